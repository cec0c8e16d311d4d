//! Plans of very many files, and input that never ends.

use crate::plans::plan;
use crate::support::{Place, preload, write_profile};

const FILES: usize = 20_000;

/// A plan for `part-00000` and so on, none of which exists.
fn large_plan(place: &Place) -> serde_json::Value {
    let mut whole = plan(place, "data");
    let file = whole["files"][0].take();
    let files = (0..FILES).map(|number| {
        let mut file = file.clone();
        let path = place.path(&format!("part-{number:05}"));
        (file["path"], file["pattern"]) = (path.to_str().into(), path.to_str().into());
        file
    });
    whole["files"] = files.collect();
    whole
}

/// Each run told the broker of every file again, one by one, after a search through all of them for each: 32 s to 266 s, deaf to signals.
#[test]
fn a_plan_of_20000_files_is_in_force_and_told_once() {
    preload();
    let place = Place::with_cluster();
    let mut whole = large_plan(&place);
    // A second plan for the same files: which of them holds depends on the program.
    for processes in [1, 4] {
        whole["key"]["processes"] = processes.into();
        place.write("plan.json", whole.to_string().as_bytes());
        place.done(&["apply", "plan.json"]);
    }
    // So many names are told to a program by their directory, and asked for one by one.
    let part = format!("part-{:05}", FILES - 1);
    let script = format!("echo expected > {part}; echo ordinary > unexpected");
    place.done(&["run", "--", "sh", "-c", &script]);
    assert_eq!(place.read("unexpected"), b"ordinary\n");
    assert!(place.read(&part).starts_with(b"stripewise stub"), "not managed");
    assert_eq!(place.done(&["cat", &part]), "expected\n");
    place.done(&["cp", "unexpected", "part-00000"]);
    assert!(place.read("part-00000").starts_with(b"stripewise stub"), "not managed");
    let table = std::fs::metadata(place.path("stripewise-state/rmt/data.mdb")).unwrap().len();
    place.done(&["run", "--", "true"]);
    assert_eq!(std::fs::metadata(place.path("stripewise-state/rmt/data.mdb")).unwrap().len(), table, "told again");
}

/// `apply` took it, and every later run failed.
#[test]
fn a_plan_with_a_relative_path_is_refused_by_name_and_nothing_is_changed() {
    preload();
    let place = Place::with_cluster();
    place.write("data", b"as it was");
    let mut plan = plan(&place, "data");
    let mut relative = plan["files"][0].clone();
    relative["path"] = "other/data".into();
    plan["files"].as_array_mut().unwrap().push(relative);
    place.write("plan.json", plan.to_string().as_bytes());
    let said = place.say(&["apply", "plan.json"]);
    assert_eq!(said.status, 2, "{}", said.out);
    assert!(said.err.contains("plan.json: the file `other/data` is named by a relative path"), "{}", said.err);
    assert_eq!(place.read("data"), b"as it was");
    place.done(&["run", "--", "true"]);
}

/// `/dev/zero` filled the memory; a FIFO was waited for.
#[test]
fn input_that_never_ends_is_refused_by_name() {
    let place = Place::with_cluster();
    write_profile(&place);
    assert!(std::process::Command::new("mkfifo").arg(place.path("fifo")).status().unwrap().success());
    for (words, named) in [
        (&["apply", "/dev/zero"][..], "cannot read the plan /dev/zero"),
        (&["apply", "fifo"], "fifo: not a plan"),
        (&["-C", "/dev/zero", "ls"], "cannot read /dev/zero"),
        (&["-C", "fifo", "ls"], "cannot read fifo"),
        (&["trace", "show", "/dev/zero"], "/dev/zero"),
        (&["trace", "show", "fifo"], "fifo"),
        (&["plan", "/dev/zero"], "/dev/zero"),
        (&["report", "/dev/zero", "-o", "report.html"], "/dev/zero"),
        (&["apply", "h0"], "cannot read the plan h0"),
        (&["explain", "/dev/urandom"], "cannot read the plan /dev/urandom"),
    ] {
        let said = place.say(words);
        assert!(said.status == 2 && said.err.contains(named), "{words:?}: {} {}", said.status, said.err);
    }
    std::fs::remove_file(place.path("profile.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path("profile.json")).unwrap();
    place.done(&["ls"]);
}

/// A line of a CSV trace filled the memory, and so did what comes by a pipe. The address space is limited to 1 GiB, which endless input fills soon.
#[test]
fn endless_files_lines_and_pipes_fill_no_memory() {
    preload();
    let place = Place::with_cluster();
    write_profile(&place);
    place.write("data", &vec![1; 2 << 20]);
    place.done(&["trace", "-o", "run.trace", "--", "dd", "if=data", "of=/dev/null", "bs=64k", "status=none"]);
    place.done(&["trace", "export", "run.trace", "--csv", "line.csv"]);
    place.done(&["plan", "run.trace", "-o", "plan.json"]);
    std::fs::copy(place.path("line.csv"), place.path("quoted.csv")).unwrap();
    let mut quoted = std::fs::File::options().append(true).open(place.path("quoted.csv")).unwrap();
    std::io::Write::write_all(&mut quoted, &[&b"\""[..], &b"line\n".repeat(1 << 20)].concat()).unwrap();
    for name in ["big", "big.csv", "big.out", "line.csv"] {
        std::fs::File::options().create(true).append(true).open(place.path(name)).unwrap().set_len(1 << 40).unwrap();
    }
    let endless = "yes | tr -d '\\n' | ";
    for (before, words, said) in [
        ("", "apply big", "it has more than 512MiB, the most that is read"),
        ("", "explain big", "it has more than 512MiB"),
        ("", "explain plan.json --profile big", "it has more than 16MiB"),
        ("", "plan run.trace --profile big", "it has more than 16MiB"),
        ("", "report big.out -o page.html", "it has more than 4GiB"),
        ("", "-C big ls", "it has more than 16MiB"),
        ("", "trace show big.csv", "a line has more than 1MiB, the most that is read"),
        ("", "trace show line.csv", "a line has more than 1MiB"),
        ("", "trace show quoted.csv", "a line has more than 1MiB"),
        ("", "plan line.csv", "a line has more than 1MiB"),
        ("", "trace show big.out", "it has more than 4GiB"),
        (endless, "-C /dev/stdin ls", "cannot read /dev/stdin"),
        (endless, "apply /dev/stdin", "cannot read the plan /dev/stdin"),
        (endless, "report /dev/stdin -o page.html", "it is neither a directory nor a regular file"),
        (endless, "plan run.trace --profile /dev/stdin", "it has more than 16MiB"),
        (endless, "trace show /dev/stdin", "it is neither a directory nor a regular file"),
    ] {
        let script = format!("ulimit -v 1048576; {before}$S {words}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]).current_dir(place.path("")).env("S", env!("CARGO_BIN_EXE_stripewise"));
        let output = command.env_remove("STRIPEWISE_CLUSTER").output().unwrap();
        let found = place.said(output);
        assert_eq!(found.status, 2, "{words}: {}{}", found.out, found.err);
        assert!(found.err.contains(said), "{words}: {}", found.err);
    }
}

/// A batch system ends a job by SIGTERM: nothing is half done, and the next try does all.
#[test]
fn a_signal_ends_apply_and_run_of_20000_files_soon_and_the_next_try_completes() {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    preload();
    let place = Place::with_cluster();
    let whole = large_plan(&place);
    place.write("plan.json", whole.to_string().as_bytes());
    let socket = place.path("stripewise-state/run/broker.sock");
    for (words, signal) in [
        (&["apply", "plan.json"][..], 15),
        (&["apply", "plan.json"], 2),
        (&["run", "--", "sleep", "60"], 15),
        (&["run", "--", "sleep", "60"], 2),
    ] {
        let _ = std::fs::remove_file(&socket);
        let mut command = place.command(words);
        // SAFETY: a plain system call. Jobs in the background of a shell ignore SIGINT, and so would the program.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                Ok(())
            });
        }
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        while !socket.exists() {
            assert!(child.try_wait().unwrap().is_none(), "{words:?}: it ended before it was seen at work");
            std::thread::yield_now();
        }
        let sent = std::time::Instant::now();
        // SAFETY: our child, which is not waited for yet.
        unsafe { libc::kill(child.id() as i32, signal) };
        let status = child.wait().unwrap();
        let took = sent.elapsed();
        println!("{words:?} ended {took:?} after signal {signal} with {status}");
        assert!(took.as_secs() < 10, "{words:?}: {took:?}");
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
        assert_eq!(code, Some(128 + signal), "{words:?}");
        if words[0] == "apply" && signal == 2 {
            place.done(&["apply", "plan.json"]);
        }
    }
    place.done(&["run", "--", "sh", "-c", "echo expected > part-00007"]);
    assert!(place.read("part-00007").starts_with(b"stripewise stub"), "not managed");
    place.done(&["check"]);
}
