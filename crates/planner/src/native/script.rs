//! Shell scripts that set layouts: bytes, since names of files need not be text.
//!
//! Each file is a call of `layout`, which runs in a shell of its own: where it fails, the others are laid out nevertheless, and the script ends with 1. A file
//! whose path is not known stands as a comment, since a command would make a file of the name that stands for it.

use stripewise_layout::text::bytes_of;

/// A script of `/bin/sh`, and files that stand beside it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Script {
    /// The script.
    pub text: Vec<u8>,
    /// Name and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// A word as `/bin/sh` reads it, whatever bytes it has: in single quotes, which keep all but themselves, unless it is plain.
pub(super) fn quoted(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"%+,-./:=@^_".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let mut text = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            _ => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

/// The bytes of a path as plans have it; `None`: a name that a log has in place of one, which leads to no file.
pub(super) fn name_of(path: &str) -> Option<Vec<u8>> {
    let name = bytes_of(path);
    (name.first() == Some(&b'/') && !name.contains(&0)).then_some(name)
}

/// What every script has before its own functions: `layout FILE WORD...` calls `set_layout` of the file system; `own NEW FILE` gives a new file to whom it is
/// for.
const LAYOUT: &str = r#"set -u
failed=0

fail() {
    printf '%s\n' "$1" >&2
    exit 1
}

# dash runs no EXIT trap where a signal ends it: so signals make it exit.
exit_by_signals() {
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}
exit_by_signals

# Where one file fails, the others go on. A signal ends the script.
layout() {
    (
        exit_by_signals
        set -e
        [ -d "${1%/*}/" ] || fail "$1: its directory does not exist; make it first"
        set_layout "$@"
    )
    is_set=$?
    case $is_set in
        0) ;;
        129 | 130 | 143)
            printf '%s\n' "$1: interrupted; this file and those after it do not have their layout" >&2
            exit "$is_set"
            ;;
        *) missed "$1" ;;
    esac
}

# Root makes files for others: a new file gets the owner and group of the directory of FILE.
own() {
    [ "$(id -u)" != 0 ] || chown -h --reference="${2%/*}/" "$1" || fail "$2 cannot be given to the owner of its directory"
}

missed() {
    failed=$((failed + 1))
    printf '%s\n' "$1: layout not set" >&2
}
"#;

/// A script that begins with what it is for and the functions that its commands call.
pub(super) struct Writer {
    script: Script,
}

impl Writer {
    /// `title`: the file system; `files`: how many files are laid out; `prelude`: functions of the script, comments included.
    pub(super) fn new(title: &str, files: usize, prelude: &str) -> Self {
        let files = if files == 1 { "1 file".to_owned() } else { format!("{files} files") };
        let head = format!(
            "#!/bin/sh\n# Sets the layouts of a plan on {title}, for {files}; made by `stripewise export`.\n\
             # Existing files are copied or migrated: no program may write to them meanwhile. Run it where {title} is mounted.\n{LAYOUT}\n{prelude}\n"
        );
        Self { script: Script { text: head.into_bytes(), files: Vec::new() } }
    }

    /// `FUNCTION FILE WORD...`; of a file without a path, as a comment that says what to fill in.
    pub(super) fn of_file(&mut self, function: &str, path: &str, words: &[impl AsRef<str>]) {
        let name = name_of(path);
        if name.is_none() {
            // Escaped, so that no line of it is a command.
            let known = path.escape_debug();
            let remark = format!(
                "# `{known}` is no path but what the logs have in place of one: write the file's path for FILE, then take the # away.\n# "
            );
            self.script.text.extend(remark.into_bytes());
        }
        let name = name.as_deref().unwrap_or(b"FILE");
        let words = words.iter().map(|word| word.as_ref().as_bytes());
        self.command([function.as_bytes(), name].into_iter().chain(words));
    }

    /// A line for whoever reads the script.
    pub(super) fn comment(&mut self, text: &str) {
        self.script.text.extend(format!("# {text}\n").into_bytes());
    }

    /// A command of one line; words are quoted where they have to be.
    pub(super) fn command<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) {
        for (number, word) in words.into_iter().enumerate() {
            if number > 0 {
                self.script.text.push(b' ');
            }
            self.script.text.extend(quoted(word));
        }
        self.script.text.push(b'\n');
    }

    pub(super) fn file(&mut self, name: String, text: String) {
        self.script.files.push((name, text.into_bytes()));
    }

    /// With the verdict at its end.
    pub(super) fn finish(mut self) -> Script {
        let end = b"\n[ \"$failed\" = 0 ] || fail \"$failed of the files do not have their layout\"\n";
        self.script.text.extend(end);
        self.script
    }
}

/// For files that are made with their layout: `name_new FILE` puts a name in `new`, which nobody has; `settle NEW FILE` gives the new file that of the file.
pub(super) const NEW: &str = r#"# A name in the same directory that nobody has. What is left of it is removed.
name_new() {
    new=$(mktemp -u "${1%/*}/.stripewise.XXXXXXXXXX")
    trap 'rm -f "$new"' EXIT
}

# Gives NEW the name FILE, unless somebody made a file of that name meanwhile or a link that leads nowhere has it.
settle() {
    own "$1" "$2"
    mv -nT "$1" "$2" || :
    [ ! -e "$1" ] || fail "$2 was made meanwhile or is a symbolic link that leads nowhere: left as it was"
}
"#;

/// For file systems whose files get a layout when they are made, after `NEW`: `ask FILE` refuses what cannot be replaced, and `finish FILE` settles the file
/// `new`, which is empty and has the layout, or copies the data to it and puts it in the old one's place, once it is on the servers, if nobody changed that
/// meanwhile.
pub(super) const REPLACE: &str = r#"# Whether FILE exists, which is asked once: one that somebody makes later is not replaced. Nobody else reads a copy before it has the mode of the file.
ask() {
    exists=
    [ -e "$1" ] || return 0
    exists=yes
    check "$1"
    umask 077
}

finish() {
    if [ -n "$exists" ]; then
        replace "$1" "$new"
    else
        settle "$new" "$1"
    fi
}

# Refuses a file that a copy would not replace.
check() {
    [ ! -L "$1" ] || fail "$1 is a symbolic link: name the file itself"
    [ "$(stat -c %h "$1")" = 1 ] || fail "$1 has several names (hard links), which a copy would part: left as it was"
    command -v getfattr >/dev/null ||
        fail "no getfattr says whether $1 has extended attributes, which a copy would lose: install it (package attr); left as it was"
    if ! attributes=$(LC_ALL=C getfattr --absolute-names -m '^user\.' -- "$1" 2>&1); then
        case $attributes in
            *': Operation not supported') attributes= ;;
            *) fail "$1: its extended attributes cannot be read ($attributes): left as it was" ;;
        esac
    fi
    # OrangeFS shows layouts so, which a copy shall not keep.
    ! printf '%s\n' "$attributes" | grep '^user\.' | grep -qv '^user\.pvfs2\.' ||
        fail "$1 has extended attributes (user.*), which a copy would lose: left as it was"
}

# Copies OLD into NEW, which is empty and has the layout, and puts it in the place of OLD unless that was changed meanwhile. A crash must not leave the name
# to a file whose bytes are in a cache only, so the copy is synced first.
replace() {
    before=$(stat -c '%i %s %y' "$1")
    chmod 600 "$2"
    cp --preserve=mode,ownership,timestamps "$1" "$2" || fail "$1 cannot be copied: left as it was"
    # cp says nothing where it may not set the owner.
    access=$(stat -c '%u %g %a' "$1")
    copied=$(stat -c '%u %g %a' "$2")
    [ "$copied" = "$access" ] ||
        fail "$1 has owner, group and mode $access, and its copy would have $copied: run the script as root; left as it was"
    sync "$2" || fail "$1 cannot be copied: left as it was"
    if cmp -s "$1" "$2" && [ "$(stat -c '%i %s %y' "$1")" = "$before" ]; then
        mv -f "$2" "$1"
    else
        fail "$1 was written to while it was copied: left as it was"
    fi
}
"#;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn printed_by_a_shell(words: &[Vec<u8>]) -> Vec<u8> {
        let mut writer = Writer::new("Test", 1, "say() { printf '%s\\0' \"$@\"; }");
        let words = std::iter::once(b"say".as_slice()).chain(words.iter().map(Vec::as_slice));
        writer.command(words);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        std::fs::write(&path, writer.finish().text).unwrap();
        let output = Command::new("/bin/sh").arg(&path).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        output.stdout
    }

    #[test]
    fn words_come_back_from_bin_sh_byte_for_byte() {
        let words: Vec<Vec<u8>> = [
            b"/plain-1.0/x".to_vec(),
            b"two words".to_vec(),
            b"it's \"quoted\"".to_vec(),
            b"$HOME `id` $(id) ${x}".to_vec(),
            b"line\nbreak\n".to_vec(),
            b"back\\slash\\n".to_vec(),
            b"not \xff\xfe UTF-8 \x80".to_vec(),
            b"\t*?[a]~!#&|;<>(){}".to_vec(),
            Vec::new(),
        ]
        .to_vec();
        let expected: Vec<u8> = words.iter().flat_map(|word| word.iter().copied().chain([0])).collect();
        assert_eq!(printed_by_a_shell(&words), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn any_bytes_come_back_from_bin_sh(words in proptest::collection::vec(proptest::collection::vec(1u8..=255, 0..40), 1..20)) {
            let expected: Vec<u8> = words.iter().flat_map(|word| word.iter().copied().chain([0])).collect();
            prop_assert_eq!(printed_by_a_shell(&words), expected);
        }
    }
}
