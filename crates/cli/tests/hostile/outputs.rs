//! Files that commands write into a directory in which everybody may make names, as in `/tmp`.

use crate::support::{Place, preload, write_profile};
use crate::traced::{self, Act, Traced, Whom};
use crate::user::{USER, chmod, is_root, is_untouched, make_roots};
use rustix::fs::{CWD, FileType, Mode};
use std::io::Write as _;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;

const SIMULATE: [&str; 6] =
    ["simulate", "ior:size=1MiB,transfer=64KiB,processes=4,op=read", "--servers", "2xnvme", "--link", "gigabit"];

/// A cluster with its profile and a small trace, and the directory `shared`.
fn place() -> Place {
    preload();
    let place = Place::with_cluster();
    write_profile(&place);
    place.write("data", &vec![1; 2 << 20]);
    place.done(&["trace", "-o", "run.trace", "--", "dd", "if=data", "of=/dev/null", "bs=64k", "status=none"]);
    std::fs::create_dir(place.path("shared")).unwrap();
    chmod(&place.path("shared"), 0o1777);
    chmod(&place.path(""), 0o755);
    place
}

/// Each command that writes a file which its words name, here `OUT`.
fn commands() -> Vec<Vec<&'static str>> {
    vec![
        vec!["plan", "run.trace", "-o", "OUT"],
        [&SIMULATE[..], &["-o", "OUT"]].concat(),
        vec!["report", "run.trace", "-o", "OUT"],
        vec!["trace", "export", "run.trace", "--csv", "OUT"],
        vec!["trace", "export", "run.trace", "--parquet", "OUT"],
        vec!["calibrate", "--quick", "--seconds", "1", "--file-size", "16MiB", "-o", "OUT"],
    ]
}

fn with_output(words: &[&'static str], output: &'static str) -> Vec<&'static str> {
    words.iter().map(|word| if *word == "OUT" { output } else { word }).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Temporaries had names that could be foreseen and were opened whatever stood there; so was what stood at the output's own name.
#[test]
fn what_a_stranger_puts_at_an_outputs_name_is_neither_written_nor_waited_for() {
    if !is_root() {
        return;
    }
    let place = place();
    make_roots(&place, "roots");
    let (shared, planted) = (place.path("shared"), place.path("shared/out"));
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("a symbolic link", &|| symlink(place.path("roots/passwd"), &planted).unwrap()),
        ("a symbolic link", &|| symlink(place.path("roots/new"), &planted).unwrap()),
        ("a FIFO", &|| rustix::fs::mknodat(CWD, &planted, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap()),
        ("a file", &|| std::fs::write(&planted, "theirs").unwrap()),
    ];
    for words in commands() {
        let words = with_output(&words, "shared/out");
        for (kind, plant) in kinds {
            plant();
            lchown(&planted, Some(USER), Some(USER)).unwrap();
            let said = place.say(&words);
            assert_eq!(said.status, 2, "{words:?}: {}{}", said.out, said.err);
            assert!(said.err.contains("shared/out: ") && said.err.contains(kind), "{words:?}: {}", said.err);
            assert!(said.err.contains("of user 65534 stands there, in a directory in which everybody"), "{}", said.err);
            is_untouched(&place, "roots");
            assert_eq!(names(&shared), ["out"], "{words:?}: nothing of it stays");
            std::fs::remove_file(&planted).unwrap();
        }
        place.done(&words);
        assert_eq!(names(&shared), ["out"], "{words:?}");
        std::fs::remove_file(&planted).unwrap();
    }
    for name in ["stripewise.1", "stripewise-plan.1", "stripewise-trace-show.1"] {
        let page = shared.join(name);
        // An earlier round may have written it.
        let _ = std::fs::remove_file(&page);
        symlink(place.path("roots/passwd"), &page).unwrap();
        lchown(&page, Some(USER), Some(USER)).unwrap();
        let said = place.say(&["man", "--directory", "shared"]);
        assert!(said.status == 2 && said.err.contains(name), "{}", said.err);
        is_untouched(&place, "roots");
        std::fs::remove_file(&page).unwrap();
    }
    for words in [
        &["-C", "shared/cluster.toml", "init", "--server", "a=hdd:roots"][..],
        &["trace", "-o", "shared/cluster.toml", "true"],
    ] {
        symlink(place.path("roots/new"), shared.join("cluster.toml")).unwrap();
        assert_eq!(place.say(words).status, 2, "{words:?}");
        is_untouched(&place, "roots");
        std::fs::remove_file(shared.join("cluster.toml")).unwrap();
    }
}

#[test]
fn an_output_may_be_a_device_a_pipe_or_a_link_of_ones_own() {
    let place = place();
    for words in commands().into_iter().filter(|words| words[0] != "calibrate") {
        place.done(&with_output(&words, "/dev/null"));
        place.done(&with_output(&words, "plain"));
        // By a pipe, and into a file: what the command prints beside goes before it or after it, not over it.
        let through = place.command(&with_output(&words, "/dev/stdout")).output().unwrap();
        assert!(through.status.success());
        let file = std::fs::File::create(place.path("redirected")).unwrap();
        (&file).write_all(b"before\n").unwrap();
        assert!(place.command(&with_output(&words, "/dev/fd/1")).stdout(file).status().unwrap().success());
        let redirected = place.read("redirected");
        let (plain, length) = (place.read("plain"), place.read("plain").len());
        assert!(redirected.starts_with(b"before\n"), "{words:?}");
        // Beginning and end: a plan tells the room that there is, a report the time.
        let (head, tail) = (&plain[..plain.len().min(40)], &plain[length - plain.len().min(4)..]);
        for found in [&through.stdout, &redirected[7..].to_vec()] {
            let at = found.windows(head.len()).position(|window| window == head).expect("the beginning");
            let end = &found[at + length * 9 / 10..];
            assert!(end.windows(tail.len()).any(|window| window == tail), "{words:?}: the end");
        }
        place.write("shared/old", b"old");
        symlink("shared/old", place.path("link")).unwrap();
        place.done(&with_output(&words, "link"));
        assert!(place.path("link").is_symlink() && place.read("shared/old").len() >= length / 2, "{words:?}");
        std::fs::remove_file(place.path("link")).unwrap();
    }
    assert!(Path::new("/dev/null").metadata().unwrap().len() == 0 && !Path::new("/dev/null").is_file());
}

#[test]
fn a_command_that_is_killed_at_any_call_leaves_the_old_output_or_the_new_one() {
    let place = place();
    for words in [
        with_output(&["trace", "export", "run.trace", "--parquet", "OUT"], "out"),
        with_output(&["trace", "export", "run.trace", "--csv", "OUT"], "out"),
    ] {
        place.done(&words);
        let new = place.read("out");
        let Traced::Ended { calls, status: 0 } = traced::run(place.command(&words), None) else {
            panic!("{words:?} fails under a tracer");
        };
        assert!(calls > 2, "{words:?}: {calls} calls");
        let (mut old_ones, mut new_ones) = (0, 0);
        for call in 0..calls {
            place.write("out", b"old");
            assert_eq!(
                traced::run(place.command(&words), Some((call, Act::Kill(Whom::All)))),
                Traced::Killed,
                "{words:?} at {call}"
            );
            let found = place.read("out");
            assert!(found == b"old" || found == new, "{words:?} killed before call {call}: {} bytes", found.len());
            if found == b"old" { old_ones += 1 } else { new_ones += 1 }
        }
        assert!(old_ones > 2, "{old_ones} old ones, {new_ones} new ones");
    }
}
