//! Names with line feeds, escapes and quotes, and names that are not UTF-8.

use crate::plans::plan;
use crate::support::{Place, noise};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

const NAMES: [&str; 7] = [
    "two\nlines",
    "clear\u{1b}[2Jscreen",
    "-rf",
    "it's \"quoted\" $(touch made) `touch made`",
    "back\\slash\\n",
    "tab\tand\u{7f}",
    "right\u{202e}left",
];

fn words<'a>(words: &[&'a str], path: &'a OsStr) -> Vec<&'a OsStr> {
    words.iter().map(|word| OsStr::new(*word)).chain([path]).collect()
}

/// Nothing in it is obeyed by a terminal, and each line is the command's own.
#[track_caller]
fn is_safe(text: &str) {
    let is_obeyed = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    assert!(!text.contains(is_obeyed), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("lines")), "{text:?}");
}

#[test]
fn commands_work_on_files_of_whatever_name_and_show_it_safely() {
    let place = Place::with_cluster();
    let data = noise(1 << 20);
    for name in NAMES {
        let path = place.path(name).into_os_string();
        std::fs::write(&path, &data).unwrap();
        let mut wanted = plan(&place, name);
        wanted["files"][0]["size_bytes"] = data.len().into();
        place.write("plan.json", wanted.to_string().as_bytes());
        for command in [&["apply", "plan.json"][..], &["ls"], &["check"], &["check", "--repair"]] {
            let said = place.say(command);
            assert_eq!(said.status, 0, "{command:?} of {name:?}: {}", said.err);
            is_safe(&said.out);
            is_safe(&said.err);
        }
        let listed = place.json(&["ls"]);
        assert_eq!(listed["files"][0]["path"], format!("HERE/{name}"), "JSON has the name exactly");
        let said = place.say(&words(&["stat"], &path));
        assert_eq!(said.status, 0, "{}", said.err);
        is_safe(&said.out);
        let copy = place.path("copy").into_os_string();
        let copied = place.say(&[OsStr::new("cp"), OsStr::new("--ordinary"), &path, &copy]);
        assert!(copied.status == 0 && place.read("copy") == data, "{}", copied.err);
        // A stub that a program without redirection removed comes back under its name.
        std::fs::remove_file(&path).unwrap();
        let said = place.say(&["check", "--repair"]);
        is_safe(&said.out);
        assert!(place.command(&words(&["cat"], &path)).output().unwrap().stdout == data, "{name:?}: {}", said.out);
        let said = place.say(&words(&["release"], &path));
        assert_eq!(said.status, 0, "{}", said.err);
        is_safe(&(said.out + &said.err));
        assert!(std::fs::read(&path).unwrap() == data);
        let said = place.say(&[OsStr::new("cp"), OsStr::new("--managed"), &copy, &path]);
        assert_eq!(said.status, 0, "{}", said.err);
        let said = place.say(&words(&["rm"], &path));
        assert_eq!(said.status, 0, "{}", said.err);
        is_safe(&(said.out + &said.err));
        assert!(!std::path::Path::new(&path).exists() && !place.path("made").exists());
        assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 0);
    }
    let log = std::fs::read_to_string(place.path("stripewise-state/log")).unwrap_or_default();
    is_safe(&log);
}

/// They were shown with one character for all such bytes, so that two names looked alike.
#[test]
fn a_name_that_is_not_utf8_is_refused_by_name_and_its_file_stays() {
    let place = Place::with_cluster();
    place.write("data", b"data");
    let path = place.path("").join(OsStr::from_bytes(b"bad\xff\xfe")).into_os_string();
    let [data, missing]: [OsString; 2] =
        [place.path("data").into(), place.path("").join(OsStr::from_bytes(b"no\xfd")).into()];
    std::fs::write(&path, "as it was").unwrap();
    let said = place.say(&[OsStr::new("cp"), OsStr::new("--managed"), &data, &path]);
    assert!(said.status == 2 && said.err.contains("bad\\xff\\xfe is not UTF-8"), "{}", said.err);
    for command in ["stat", "rm", "release"] {
        let said = place.say(&words(&[command], &path));
        assert!(said.status == 2 && said.err.contains("is not a managed file"), "{command}: {}", said.err);
        let said = place.say(&words(&[command], &missing));
        assert!(said.status == 2 && said.err.contains("no\\xfd"), "{command}: {}", said.err);
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"as it was");
    // Copied from, as any file.
    let said = place.say(&[OsStr::new("cp"), OsStr::new("--managed"), &path, OsStr::new("managed")]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert_eq!(place.done(&["cat", "managed"]), "as it was");
}
