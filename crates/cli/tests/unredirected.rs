//! Programs into which the preload library cannot be loaded: what `run` starts, and what is executed in turn.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use support::{Place, Said, preload};

/// A cluster, a managed directory `data` with a managed file, and `still`, a static program that prints its arguments.
fn place() -> Place {
    preload();
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("data")).unwrap();
    place.done(&["manage", "data"]);
    place.done(&["run", "--", "sh", "-c", "echo managed > data/file"]);
    assert!(place.read("data/file").starts_with(b"stripewise stub "));
    place.write("plain", b"plain\n");
    place.write(
        "still.c",
        b"#include <stdio.h>\nint main(int n, char **v) { for (int i = 1; i < n; i++) puts(v[i]); puts(\"ran\"); return 0; }\n",
    );
    compile(&place, &["-static", "-o", "still", "still.c"]);
    place
}

fn compile(place: &Place, words: &[&str]) {
    let status = Command::new("cc").args(words).current_dir(place.path("")).status().unwrap();
    assert!(status.success(), "cc {words:?}");
}

fn shell(place: &Place, script: &str) -> Said {
    place.say(&["run", "--", "sh", "-c", script])
}

fn executable(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A static program under `run` read the stub's text for data, wrote over it, and exited 0.
#[test]
fn a_program_that_cannot_be_redirected_is_not_started_and_the_reason_is_told() {
    let place = place();
    place.write("script", format!("#!{} -x\n", place.path("still").display()).as_bytes());
    executable(&place.path("script"), 0o755);
    for command in [
        &["./still"][..],
        &["./still", "plain"],
        &["env", "A=1", "./still"],
        &["mpiexec.mpich", "-n", "1", "./still"],
        &["./script"],
    ] {
        let said = place.say(&[&["run", "--"], command].concat());
        assert_eq!((said.status, said.out.as_str()), (126, ""), "{command:?}: {}", said.err);
        assert!(said.err.contains("still is linked statically"), "{}", said.err);
        assert!(
            said.err.contains("link it dynamically")
                && said.err.contains("`stripewise mount DIR`")
                && said.err.contains("--allow-unredirected"),
            "{}",
            said.err
        );
    }
    let said = place.say(&["run", "--allow-unredirected", "--", "./still", "data/file"]);
    assert_eq!((said.status, said.out.as_str()), (0, "data/file\nran\n"));
    assert!(said.err.contains("warning: ./still is linked statically"), "{}", said.err);
}

#[test]
fn a_foreign_loader_and_a_foreign_machine_are_reasons_too() {
    let place = place();
    compile(&place, &["-o", "moving", "still.c"]);
    let program = place.read("moving");
    let with = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = program.clone();
        change(&mut changed);
        place.write(name, &changed);
        executable(&place.path(name), 0o755);
        let said = place.say(&["run", "--", &format!("./{name}")]);
        assert_eq!(said.status, 126, "{name}: {}", said.err);
        said.err
    };
    let loader = program.windows(8).position(|bytes| bytes == b"ld-linux").unwrap();
    let musl = with("musl", &|bytes| bytes[loader..loader + 8].copy_from_slice(b"ld-musl-"));
    assert!(musl.contains("a loader that is not glibc's"), "{musl}");
    let foreign = with("foreign", &|bytes| bytes[18] = 8);
    assert!(foreign.contains("is built for another machine"), "{foreign}");
    assert_eq!(place.say(&["run", "--", "./moving"]).out, "ran\n");
}

/// The loader ignores LD_PRELOAD for programs that gain rights. Only root can make such files.
#[test]
fn a_program_that_gains_rights_is_refused() {
    if !rustix::process::getuid().is_root() {
        eprintln!("skipped: only root can give a program away or give it capabilities");
        return;
    }
    let place = place();
    compile(&place, &["-o", "moving", "still.c"]);
    let copy = |name: &str| std::fs::copy(place.path("moving"), place.path(name)).unwrap();
    copy("setuid");
    copy("setgid");
    copy("capable");
    std::os::unix::fs::chown(place.path("setuid"), Some(65534), None).unwrap();
    executable(&place.path("setuid"), 0o4755);
    std::os::unix::fs::chown(place.path("setgid"), None, Some(65534)).unwrap();
    executable(&place.path("setgid"), 0o2755);
    // Version 2 of the attribute: CAP_NET_BIND_SERVICE permitted and effective.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let has_capabilities = rustix::fs::setxattr(
        place.path("capable"),
        "security.capability",
        &capability,
        rustix::fs::XattrFlags::empty(),
    );
    if has_capabilities.is_err() {
        eprintln!("file capabilities are left out: this file system has none");
    }
    let (own, others) = ("`stripewise mount DIR`", "`stripewise mount DIR --allow-other`");
    for (name, reason, mount) in
        [("setuid", "is setuid", others), ("setgid", "is setgid", others), ("capable", "has file capabilities", own)]
    {
        if name == "capable" && has_capabilities.is_err() {
            continue;
        }
        let said = place.say(&["run", "--", &format!("./{name}")]);
        assert_eq!(said.status, 126, "{name}: {}", said.err);
        assert!(said.err.contains(reason) && said.err.contains(mount), "{}", said.err);
        let said = shell(&place, &format!("./{name} data/file"));
        assert_eq!((said.status, said.out.as_str()), (126, ""), "{name}: {}", said.err);
        assert!(said.err.contains(reason) && said.err.contains(mount), "{}", said.err);
    }
}

#[test]
fn what_is_executed_in_turn_is_refused_when_it_would_meet_a_managed_file() {
    let place = place();
    for meets in [
        "./still data/file",
        "./still a b data/file",
        "./still of=data/file",
        "./still --output=data/file",
        "./still < data/file",
        "./still >> data/file",
        "exec 7< data/file; ./still plain",
        "cd data; ../still file",
        "echo x | ./still 2> data/new",
        "nice ./still data/file",
        "exec ./still data/file",
        "python3 -c 'import subprocess, sys; sys.exit(subprocess.call([\"./still\", \"data/file\"]))'",
    ] {
        let said = shell(&place, meets);
        assert_ne!(said.status, 0, "{meets}: {}", said.err);
        assert_eq!(said.out, "", "{meets}");
        assert!(
            meets.contains("2>") || said.err.contains("not started: ") || meets.contains("python3"),
            "{meets}: {}",
            said.err
        );
    }
    assert_eq!(place.command(&["cat", "data/file"]).output().unwrap().stdout, b"managed\n");
    // By the library's log, since the program's own standard error is the managed file in one case.
    let said = shell(&place, "./still data/file; echo status $?; ./still plain");
    assert_eq!((said.status, said.out.as_str()), (0, "status 126\nplain\nran\n"), "{}", said.err);
    let said = place.say(&["run", "--allow-unredirected", "--", "sh", "-c", "./still data/file"]);
    assert_eq!((said.status, said.out.as_str()), (0, "data/file\nran\n"), "{}", said.err);
}

/// Such a script was "built for another machine" if it was as long as an ELF header, and else not started.
#[test]
fn a_script_that_names_no_interpreter_is_run_by_the_shell() {
    let place = place();
    place.write(
        "job.sh",
        b"# This comment makes the script longer than the header of an ELF file.\ncat data/file; echo \"$@\"\n",
    );
    executable(&place.path("job.sh"), 0o755);
    for command in [&["./job.sh", "a b"][..], &["env", "./job.sh", "a b"], &["sh", "-c", "./job.sh 'a b'"]] {
        let said = place.say(&[&["run", "--"], command].concat());
        assert_eq!((said.status, said.out.as_str()), (0, "managed\na b\n"), "{command:?}: {}", said.err);
    }
    let path = format!("{}:{}", place.path("").display(), std::env::var("PATH").unwrap());
    let said = place.said(place.command(&["run", "--", "job.sh"]).env("PATH", path).output().unwrap());
    assert_eq!((said.status, said.out.as_str()), (0, "managed\n\n"), "{}", said.err);
    let said = place.say(&["trace", "-o", "job.trace", "--", "./job.sh"]);
    assert!(said.status == 0 && said.out.starts_with("stripewise stub "), "{}", said.err);
    assert!(place.done(&["doctor", "./job.sh"]).contains("is a script for /bin/sh"));
    place.write("binary", &[&[0; 64], &b"\necho no\n"[..]].concat());
    executable(&place.path("binary"), 0o755);
    let said = place.say(&["run", "--", "./binary"]);
    assert_eq!((said.status, said.out.as_str()), (126, ""));
    assert!(said.err.contains("cannot start ./binary: "), "{}", said.err);
}

/// It went by a stub's size and text, so a damaged stub was an ordinary file, and a static program got it for one.
#[test]
fn a_stub_that_was_cut_or_written_over_is_still_one_to_what_is_executed() {
    let place = place();
    place.done(&["run", "--", "cp", "still.c", "data/still.c"]);
    place.done(&["run", "--", "cc", "-o", "data/made", "data/still.c"]);
    place.done(&["run", "--", "sh", "-c", "printf '#!/bin/sh\necho script $1\n' > data/script; chmod +x data/script"]);
    let same_length = "x".repeat(1021);
    for text in ["", &same_length, &"#!/bin/echo longer\n".repeat(100)] {
        for stub in ["data/file", "data/made", "data/script"] {
            std::fs::write(place.path(stub), text).unwrap();
        }
        for meets in [
            "./still data/file",
            "./still of=data/file",
            "./still < data/file",
            "exec 7< data/file; ./still plain",
            "exec ./still data/file",
        ] {
            let said = shell(&place, meets);
            assert_ne!(said.status, 0, "{meets}: {}", said.err);
            assert!(said.out.is_empty() && said.err.contains("not started: "), "{meets}: {}", said.err);
        }
        assert_eq!(place.done(&["run", "--", "data/made", "one"]), "one\nran\n");
        assert_eq!(place.done(&["run", "--", "data/script", "one"]), "script one\n");
        assert_eq!(shell(&place, "data/made two; data/script two").out, "two\nran\nscript two\n");
        assert_eq!(place.done(&["run", "--", "cat", "data/file"]), "managed\n");
    }
}

#[test]
fn a_program_that_only_might_meet_one_is_warned_of_once_in_a_run() {
    let place = place();
    std::fs::copy(place.path("still"), place.path("other")).unwrap();
    let script =
        "for i in 1 2 3; do ./still $i & done; wait; sh -c './still again; ./other'; ./still plain; exec ./other";
    let said = shell(&place, script);
    assert_eq!(said.status, 0, "{}", said.err);
    assert_eq!(said.out.matches("ran").count(), 7, "{}", said.out);
    let warnings: Vec<&str> = said.err.lines().filter(|line| line.contains("linked statically")).collect();
    assert_eq!(warnings.len(), 2, "{}", said.err);
    // Whoever switches the library off, or runs another time, is told as much as that asks for.
    assert_eq!(shell(&place, "STRIPEWISE_DISABLE=1 ./still").err, "");
    assert_eq!(shell(&place, "./still").err.lines().count(), 1);
}

#[test]
fn a_trace_of_such_a_program_says_that_nothing_is_captured() {
    let place = place();
    let said = place.say(&["trace", "-o", "one.trace", "--", "./still"]);
    assert_eq!((said.status, said.out.as_str()), (0, "ran\n"));
    assert!(
        said.err.contains("warning: ./still is linked statically") && said.err.contains("is not captured"),
        "{}",
        said.err
    );
    let said = place.say(&["trace", "-o", "two.trace", "--", "sh", "-c", "./still data/file; ./still"]);
    assert_eq!((said.status, said.out.as_str()), (0, "data/file\nran\nran\n"));
    assert_eq!(said.err.matches("is not captured").count(), 1, "{}", said.err);
}

/// The command itself is not redirected, and the kernel, then a shell, would have executed the stub's text.
#[test]
fn run_starts_a_program_that_is_a_managed_file() {
    let place = place();
    place.done(&["run", "--", "cp", "still.c", "data/still.c"]);
    place.done(&["run", "--", "cc", "-o", "data/made", "data/still.c"]);
    assert!(place.read("data/made").starts_with(b"stripewise stub "));
    assert_eq!(place.done(&["run", "--", "data/made", "a b", "$c"]), "a b\n$c\nran\n");
    place.done(&["run", "--", "sh", "-c", "printf '#!data/made -x\\n' > data/script; chmod +x data/script"]);
    assert_eq!(place.done(&["run", "--", "data/script", "one"]), "-x\ndata/script\none\nran\n");
    let said = place.say(&["trace", "-o", "a.trace", "--", "data/made"]);
    assert_eq!(said.status, 2);
    assert!(said.err.contains("run --trace"), "{}", said.err);
    assert!(place.done(&["doctor", "data/made"]).contains("is a managed file"));
}

/// A program started with an environment of its own (`env -i`) read the stub's text.
#[test]
fn a_program_with_an_emptied_environment_is_redirected_all_the_same() {
    let place = place();
    for script in [
        "env -i /bin/cat data/file",
        "env -i /bin/sh -c 'env -i /bin/cat data/file'",
        "python3 -c 'import subprocess; subprocess.run([\"/bin/cat\", \"data/file\"], env={})'",
        "python3 -c 'import os; os.posix_spawn(\"/bin/cat\", [\"cat\", \"data/file\"], {}); os.wait()'",
    ] {
        let said = shell(&place, script);
        assert_eq!((said.status, said.out.as_str()), (0, "managed\n"), "{script}: {}", said.err);
    }
    // What the program was given is all that it sees besides.
    let said = shell(&place, "env -i A=1 /usr/bin/env | grep -v -e ^LD_PRELOAD= -e ^STRIPEWISE_");
    assert_eq!(said.out, "A=1\n");
    let said = shell(&place, "env -i STRIPEWISE_DISABLE=1 /bin/cat data/file");
    assert!(said.out.starts_with("stripewise stub "), "{}", said.out);
}
