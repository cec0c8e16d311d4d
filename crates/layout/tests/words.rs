//! Identifiers, messages and documents use the field's words. `REPLACED` lists the words that they replace.
//!
//! - *Identifiers* are the names in `crates/*/src` outside of comments, strings and tests. They are compared word by word, so `room` is found in
//!   `ssd_room` and in `RoomLeft`.
//! - *Messages* are the string literals of the same files, without what stands in `{}`. A name with `_` or `-`, as the key `fragment_room` or the
//!   option `--ssd-room`, is one word, so public names are not found.
//! - *Documents* are the Markdown files and the help text of all commands, compared as messages are.
//!
//! `words.txt` lists what is left, each with a reason: identifiers by name, occurrences in texts by file and number. The test fails when there is more, and
//! names file, line and replacement. Text that moves from file to file is no error. After words were replaced,
//! `STRIPEWISE_UPDATE_WORDS=1 cargo test --workspace --test words` writes the list again with what is left; reasons stay.

mod sources;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use sources::{files_below, for_each_word, relative, root, tokens};

/// Words, and what stands in their place.
struct Replaced {
    /// In identifiers: a word, or in capitals a word of constants only.
    identifiers: &'static [&'static str],
    /// In messages and documents: a word, or several in a row.
    texts: &'static [&'static str],
    instead: &'static str,
}

const REPLACED: [Replaced; 13] = [
    Replaced {
        identifiers: &["room", "rooms", "roomy"],
        texts: &["room", "rooms"],
        instead: "capacity, free space (the room of a thing: reserved space)",
    },
    Replaced {
        identifiers: &["cut", "cuts", "cutting"],
        texts: &["cut", "cuts", "cutting"],
        instead: "truncate, split",
    },
    Replaced {
        identifiers: &["beside"],
        texts: &["beside", "besides"],
        instead: "alongside, next to; a noun such as FragmentContext",
    },
    Replaced { identifiers: &["leavings"], texts: &["leavings"], instead: "orphans" },
    Replaced { identifiers: &["doubtful", "doubt"], texts: &["doubtful"], instead: "recheck" },
    Replaced { identifiers: &["going"], texts: &[], instead: "active, ActiveMove" },
    Replaced { identifiers: &["overcome"], texts: &["overcome"], instead: "resolve" },
    Replaced { identifiers: &["obstacle", "obstacles"], texts: &[], instead: "reason, RetryReason" },
    Replaced { identifiers: &["anew"], texts: &["anew"], instead: "reset, again, a new one" },
    Replaced { identifiers: &["MOST", "LEAST"], texts: &[], instead: "MAX, MIN" },
    Replaced {
        identifiers: &["tell", "tells", "told", "telling"],
        texts: &["tell", "tells", "told", "telling"],
        instead: "report, return, say",
    },
    Replaced { identifiers: &["look", "looks", "looked", "looking"], texts: &[], instead: "lookup, check, read" },
    Replaced {
        identifiers: &[],
        texts: &["further copy", "further copies", "more copy", "more copies"],
        instead: "replica, replicas",
    },
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Identifier,
    Message,
    Document,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Identifier, Kind::Message, Kind::Document];

    fn name(self) -> &'static str {
        match self {
            Kind::Identifier => "identifier",
            Kind::Message => "message",
            Kind::Document => "document",
        }
    }
}

/// Kind, word, and the identifier or the file.
type Place = (Kind, &'static str, String);

/// Files and lines of each.
type Found = BTreeMap<Place, Vec<String>>;

/// The words of an identifier, as they are written: `SSD_ROOM` and `ssdRoom` have two each.
fn words_of(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_after_lower = false;
    for letter in identifier.chars() {
        if letter == '_' || (letter.is_uppercase() && is_after_lower) {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().unwrap().push(letter);
        }
        is_after_lower = letter.is_lowercase();
    }
    words
}

fn note_identifier(identifier: &str, mut note: impl FnMut(&'static str)) {
    for word in words_of(identifier) {
        let is_meant = |old: &&&str| match old.chars().all(char::is_uppercase) {
            true => word == ***old,
            false => word.to_lowercase() == ***old,
        };
        let old = REPLACED.iter().flat_map(|replaced| replaced.identifiers).find(is_meant);
        old.into_iter().for_each(|old| note(old));
    }
}

/// Notes every replaced word of a text, with the number of its line from 0 on.
fn note_text(text: &str, mut note: impl FnMut(&'static str, usize)) {
    for (line, text) in text.lines().enumerate() {
        let is_between = |letter: char| !(letter.is_alphanumeric() || matches!(letter, '_' | '-' | '\''));
        let words: Vec<String> =
            text.split(is_between).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
        for old in REPLACED.iter().flat_map(|replaced| replaced.texts) {
            let phrase: Vec<&str> = old.split(' ').collect();
            let times = words.windows(phrase.len()).filter(|window| **window == phrase[..]).count();
            (0..times).for_each(|_| note(old, line));
        }
    }
}

/// A message without its placeholders.
fn without_placeholders(literal: &str) -> String {
    let mut depth = 0_usize;
    let mut kept = String::new();
    for letter in literal.chars() {
        match letter {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(letter),
            _ => {}
        }
    }
    kept
}

/// Notes identifiers and string literals.
fn note_tokens(tokens: TokenStream, note: &mut impl FnMut(Kind, &'static str, &str, usize)) {
    for_each_word(tokens, &mut |token| {
        let (line, text) = (token.span().start().line, token.to_string());
        match token {
            TokenTree::Ident(_) => note_identifier(&text, |old| note(Kind::Identifier, old, &text, line)),
            _ if text.starts_with(['"', 'r']) => {
                note_text(&without_placeholders(&text), |old, below| note(Kind::Message, old, &text, line + below));
            }
            _ => {}
        }
    });
}

fn find() -> Found {
    let mut found = Found::new();
    let root = root();
    let mut sources = Vec::new();
    for package in std::fs::read_dir(root.join("crates")).unwrap() {
        files_below(&package.unwrap().path().join("src"), "rs", &mut sources);
    }
    for source in &sources {
        let file = relative(source);
        note_tokens(tokens(source), &mut |kind, old, name, line| {
            let place = if kind == Kind::Identifier { name.to_owned() } else { file.clone() };
            found.entry((kind, old, place)).or_default().push(format!("{file}:{line}"));
        });
    }
    let mut documents = vec![root.join("crates/cli/tests/help.txt")];
    files_below(&root.join("docs"), "md", &mut documents);
    let top = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(top.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    for document in documents.iter().filter(|path| path.exists()) {
        let text = std::fs::read_to_string(document).unwrap();
        let file = relative(document);
        note_text(&text, |old, line| {
            found.entry((Kind::Document, old, file.clone())).or_default().push(format!("{file}:{}", line + 1));
        });
    }
    found
}

/// What `words.txt` allows: how many, and why. Of an identifier the number has no meaning.
fn allowed() -> BTreeMap<Place, (usize, String)> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/words.txt")).unwrap();
    let known: Vec<&'static str> =
        REPLACED.iter().flat_map(|replaced| replaced.identifiers.iter().chain(replaced.texts)).copied().collect();
    let mut allowed = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let cells: Vec<&str> = line.splitn(5, " | ").collect();
        let [kind, word, file, count, reason] = cells[..] else { panic!("words.txt: no five columns: {line}") };
        let kind = *Kind::ALL.iter().find(|known| known.name() == kind).expect("a kind");
        // A word that is no longer replaced allows nothing.
        if let Some(word) = known.iter().find(|known| **known == word) {
            allowed.insert((kind, *word, file.to_owned()), (count.parse().unwrap(), reason.to_owned()));
        }
    }
    allowed
}

fn instead_of(word: &str) -> &'static str {
    let replaced =
        REPLACED.iter().find(|replaced| replaced.identifiers.iter().chain(replaced.texts).any(|old| *old == word));
    replaced.map_or("", |replaced| replaced.instead)
}

fn write_list(found: &Found) {
    let allowed = allowed();
    let mut text =
        "# Replaced words that are left: kind | word | identifier or file | how many | reason. See words.rs.\n"
            .to_owned();
    for (place, lines) in found {
        let reason = allowed.get(place).map_or("not replaced yet", |(_, reason)| reason);
        let (kind, word, whose) = place;
        let count = if *kind == Kind::Identifier { 0 } else { lines.len() };
        writeln!(text, "{} | {word} | {whose} | {count} | {reason}", kind.name()).unwrap();
    }
    std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/words.txt"), text).unwrap();
}

#[test]
fn replaced_words_do_not_come_back() {
    let found = find();
    if std::env::var_os("STRIPEWISE_UPDATE_WORDS").is_some() {
        return write_list(&found);
    }
    let allowed = allowed();
    let mut wrong = String::new();
    for (place, lines) in found.iter().filter(|(place, _)| place.0 == Kind::Identifier && !allowed.contains_key(place))
    {
        writeln!(wrong, "identifier `{}` ({}), write: {}", place.2, lines.join(" "), instead_of(place.1)).unwrap();
    }
    let mut totals: BTreeMap<(Kind, &str), (usize, usize)> = BTreeMap::new();
    for ((kind, word, _), lines) in found.iter().filter(|(place, _)| place.0 != Kind::Identifier) {
        totals.entry((*kind, word)).or_default().0 += lines.len();
    }
    for ((kind, word, _), (count, _)) in &allowed {
        totals.entry((*kind, word)).or_default().1 += count;
    }
    for ((kind, word), (now, listed)) in totals.into_iter().filter(|(_, (now, listed))| now > listed) {
        writeln!(wrong, "{} `{word}`: {now} times, {listed} allowed; write: {}", kind.name(), instead_of(word))
            .unwrap();
        for (place, lines) in found.iter().filter(|((found, old, _), _)| *found == kind && *old == word) {
            let count = allowed.get(place).map_or(0, |(count, _)| *count);
            if lines.len() > count {
                writeln!(wrong, "  {count} of these {}: {}", lines.len(), lines.join(" ")).unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "replaced words (crates/layout/tests/words.txt lists those allowed):\n{wrong}");
}

#[test]
fn replaced_words_are_found_wherever_they_stand() {
    let source = r#"
        /// No room in a comment, // nor here.
        fn ssd_room(RoomLeft: u8) { println!("no room: {room} in `fragment_room`, or --ssd-room, made
            anew"); }
        const MOST_FILES: u8 = 1; // room
        let almost = mushroom;
        #[cfg(test)]
        mod tests { fn a_table_is_made_anew() { "told" } }
        #[cfg(test)]
        mod beside;
        fn leavings() {}
    "#;
    let mut noted = Vec::new();
    note_tokens(source.parse().unwrap(), &mut |kind, old, _, line| noted.push((kind.name(), old, line)));
    let expected = [
        ("identifier", "room", 3),
        ("identifier", "room", 3),
        ("message", "room", 3),
        ("message", "anew", 4),
        ("identifier", "MOST", 5),
        ("identifier", "leavings", 11),
    ];
    assert_eq!(noted, expected);
    let mut lines = Vec::new();
    note_text("Further copies of it.\nBeside\nthat, told a_file_is_made_anew", |old, line| lines.push((old, line)));
    assert_eq!(lines, [("further copies", 0), ("beside", 1), ("told", 2)]);
}
