//! The main job by hand: watch a program, plan, place, run it again.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use support::plan::plan;
use support::{Place, noise, preload, write_profile};

#[test]
fn from_a_trace_to_a_redirected_run() {
    preload();
    let place = Place::with_cluster();
    write_profile(&place);
    let data = noise(4 << 20);
    place.write("data", &data);
    let said = place.say(&[
        "trace",
        "-o",
        "run.trace",
        "--",
        "dd",
        "if=data",
        "of=/dev/null",
        "bs=64k",
        "count=64",
        "status=none",
    ]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(said.err.contains("HERE/run.trace: ") && said.err.contains(" records of 1 process"), "{}", said.err);
    assert_eq!(place.say(&["trace", "-o", "run.trace", "--", "true"]).status, 2, "a trace is not overwritten");

    let shown = place.json(&["trace", "show", "run.trace", "--stripe", "48KiB"]);
    let file = shown["files"]
        .as_array()
        .unwrap()
        .iter()
        .find(|file| file["path"].as_str().unwrap().ends_with("/data"))
        .unwrap();
    assert_eq!((&file["read_requests"], &file["read_bytes"]), (&64.into(), &(4 << 20).into()));
    let pattern = &file["patterns"][0];
    assert_eq!(
        (&pattern["operation"], &pattern["pattern"], &file["is_data"]),
        (&"read".into(), &"sequential".into(), &true.into())
    );
    // Every third border of 64 KiB is one of 48 KiB, but never both ends of a request.
    let row = &shown["alignment"]["rows"][0];
    assert_eq!((row["unaligned_percent"].as_f64(), row["random_percent"].as_f64()), (Some(100.0), Some(0.0)));

    let table = place.done(&["plan", "run.trace", "--policy", "all", "-o", "plans"]);
    for policy in ["def", "padp", "psa", "h2dp"] {
        assert!(
            table.contains(&format!("\n{policy}: ")) && place.path(&format!("plans/{policy}.json")).exists(),
            "{table}"
        );
    }
    let compared = place.json(&["plan", "run.trace", "--policy", "all"]);
    let times = compared["policies"].as_array().unwrap().iter().map(|row| row["time_s"].as_f64().unwrap());
    assert!(times.is_sorted(), "{compared}");
    // The advice stands first, and the command that follows it.
    let advice = match compared["recommended"].as_str() {
        Some(policy) => (
            format!("recommended: {policy}, predicted to save "),
            format!("next: stripewise apply plans/{policy}.json"),
        ),
        None => ("recommended: leave the files where they are".to_owned(), "next: nothing to apply".to_owned()),
    };
    let first: Vec<&str> = table.lines().take(2).collect();
    assert!(first[0].starts_with(&advice.0) && first[1] == advice.1, "{table}");
    let planned = place.done(&["plan", "run.trace", "-o", "plan.json"]);
    assert!(planned.starts_with("verdict    ") && planned.contains("\nnext       "), "{planned}");
    let before = place.done(&["apply", "plan.json", "--dry-run"]);
    assert!(before.contains("would move") && place.read("data") == data, "a dry run changes nothing");
    place.done(&["apply", "plan.json"]);
    assert!(place.read("data").starts_with(b"stripewise stub"));

    let ran = place.command(&["run", "--", "cat", "data"]).output().unwrap();
    assert!(ran.stdout == data, "the redirected program reads other bytes");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains("the plan was made for `dd`, this was `cat`; the nearest plan was taken"), "{said}");
    // What does not touch the planned file does not hear of its plan; a child that does is a part of the run.
    place.write("other", b"text");
    for unrelated in [&["cat", "other"][..], &["true"], &["ls", "-l", "data"]] {
        assert_eq!(place.say(&[&["run", "--"][..], unrelated].concat()).err, "", "{unrelated:?}");
    }
    let script = place.say(&["run", "--", "sh", "-c", "cat other; (cat data > /dev/null)"]);
    assert!(script.err.contains("this was `sh`"), "{}", script.err);
    let again = place.say(&["apply", "plan.json"]);
    assert!(again.status == 2 && again.err.contains("`stripewise release HERE/data` first"), "{}", again.err);

    let stub = place.say(&["trace", "-o", "stub.trace", "--", "cat", "data"]);
    assert!(stub.err.contains("HERE/data is a managed file, and the program saw its stub"), "{}", stub.err);
    let captured = place.say(&["run", "--trace", "again.trace", "--", "cmp", "data", "data"]);
    assert_eq!(captured.status, 0, "{}", captured.err);
    assert!(place.path("again.trace/trace.json").exists());

    place.done(&["report", "run.trace", "plans/def.json", "plan.json", "profile.json", "-o", "report.html"]);
    let page = String::from_utf8(place.read("report.html")).unwrap();
    for section in ["bandwidth", "accesses", "regions", "load", "profile", "plans"] {
        assert!(page.contains(&format!("<section id=\"{section}\" ")), "{section}");
    }
    place.done(&["release", "data"]);
    assert!(place.read("data") == data);
}

/// A trace has the program that a wrapper becomes, as pyenv's `python3` does; a run of the same command was foreign to its own plan.
#[test]
fn a_planned_program_is_known_by_the_wrapper_that_starts_it() {
    preload();
    let place = Place::with_cluster();
    write_profile(&place);
    place.write("data", &noise(4 << 20));
    place.write("wrapper", b"#!/bin/sh\nexec dd \"$@\"\n");
    std::fs::set_permissions(place.path("wrapper"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let words = ["if=data", "of=/dev/null", "bs=64k", "status=none"];
    place.done(&[&["trace", "-o", "run.trace", "--", "env", "A=1", "./wrapper"], &words[..]].concat());
    let plan = place.json(&["plan", "run.trace", "-o", "plan.json"])["plan"].clone();
    assert_eq!((&plan["key"]["application"], &plan["key"]["started_as"]), (&"dd".into(), &"wrapper".into()));
    place.done(&["apply", "plan.json", "--force"]);
    for command in [&["./wrapper"][..], &["env", "./wrapper"], &["dd"]] {
        assert_eq!(place.say(&[&["run", "--"], command, &words[..]].concat()).err, "", "{command:?}");
    }
    let said = place.say(&["run", "--", "cat", "data"]);
    assert!(said.err.contains("the plan was made for `dd`, this was `cat`"), "{}", said.err);
}

#[test]
fn files_of_the_system_are_counted_and_shown_on_demand() {
    preload();
    let place = Place::new();
    place.write("data", &[7; 1000]);
    place.write("more", &[7; 10]);
    place.done(&["trace", "-o", "run.trace", "--", "cat", "data", "/etc/passwd", "more"]);
    let shown = place.done(&["trace", "show", "run.trace", "--files", "1"]);
    let end = "\nand 1 smaller file (--files 2 shows them)\n\nand 1 file of the system or in shared memory (--all shows them)\n";
    assert!(shown.contains("/data\n  read     1000 B in ") && shown.ends_with(end), "{shown}");
    let shown = place.done(&["trace", "show", "run.trace", "--all"]);
    assert!(shown.contains("\n/etc/passwd\n") && shown.contains("/more\n") && !shown.contains("(--all"), "{shown}");
}

#[test]
fn a_file_that_a_plan_expects_gets_its_placement_when_it_is_made() {
    preload();
    let place = Place::with_cluster();
    write_profile(&place);
    let copy = ["dd", "if=/dev/zero", "of=out", "bs=64k", "count=32", "status=none"];
    place.done(&[&["trace", "-o", "run.trace", "--"], &copy[..]].concat());
    place.done(&["plan", "run.trace", "-o", "plan.json"]);
    std::fs::remove_file(place.path("out")).unwrap();
    assert!(place.done(&["apply", "plan.json"]).contains("expected"));
    place.done(&[&["run", "--"], &copy[..]].concat());
    assert!(place.read("out").starts_with(b"stripewise stub"));
    assert_eq!(place.json(&["ls"])["files"][0]["size_bytes"], 2 << 20);
    let plan: serde_json::Value = serde_json::from_slice(&place.read("plan.json")).unwrap();
    let placement = &plan["files"][0]["windows"][0]["placement"];
    let mut servers: Vec<u64> = Vec::new();
    for run in placement["runs"].as_array().unwrap() {
        let layout = &placement["layouts"][run["layout"].as_u64().unwrap() as usize];
        servers.extend(layout.as_array().unwrap().iter().map(|stripe| stripe[0].as_u64().unwrap()));
    }
    servers.sort_unstable();
    servers.dedup();
    let held = place.json(&["stat", "out"])["files"][0]["servers"].as_array().unwrap().len();
    assert_eq!(held, servers.len());
}

/// The plan by hand says so; `def`, against which others are measured, is one that always does.
#[test]
fn a_plan_that_says_leave_it_is_applied_only_by_force() {
    let place = Place::with_cluster();
    write_profile(&place);
    let data = noise(2 << 20);
    place.write("data", &data);
    let columns = "node,pid,mpi_rank,mpi_size,level,operation,call,communicator,path,renamed_to,offset,bytes,errno,start_ns,end_ns";
    let path = place.path("data");
    place.write(
        "run.csv",
        format!("{columns}\nn,1,,,posix,read,pread,,{},,0,2097152,,1,2\n", path.display()).as_bytes(),
    );
    let said = place.say(&["plan", "run.csv", "--policy", "def", "-o", "plan.json"]);
    assert_eq!((said.status, said.err.as_str()), (0, "stripewise plan: wrote plan.json\n"));
    let said = place.say(&["plan", "run.csv", "--policy", "def"]);
    assert_eq!((said.status, said.err.as_str()), (0, ""));
    let verdict = "plan.json: the plan itself says: leave it: this is the default placement, the measure of the others";
    let refused = place.say(&["apply", "plan.json"]);
    assert_eq!((refused.status, refused.out.as_str()), (2, ""));
    assert!(refused.err.contains(verdict) && refused.err.contains("--force applies it"), "{}", refused.err);
    let tried = place.say(&["apply", "plan.json", "--dry-run"]);
    assert!(tried.status == 0 && tried.out.contains("would move"), "{}", tried.err);
    assert!(tried.err.contains("without --force it would not be applied"), "{}", tried.err);
    assert!(place.read("data") == data && place.json(&["ls"])["files"].as_array().unwrap().is_empty());
    let forced = place.say(&["apply", "plan.json", "--force"]);
    assert!(forced.status == 0 && forced.err.contains("the plan itself says: leave it"), "{}", forced.err);
    assert!(place.read("data").starts_with(b"stripewise stub"));
}

#[test]
fn names_that_plans_expect_can_be_forgotten() {
    let place = Place::with_cluster();
    let mut planned = plan(&place, "one");
    let file = planned["files"][0].clone();
    for name in ["two", "old/three", "old/four"] {
        let mut file = file.clone();
        file["path"] = place.path(name).to_str().unwrap().into();
        planned["files"].as_array_mut().unwrap().push(file);
    }
    place.write("plan.json", planned.to_string().as_bytes());
    place.done(&["apply", "plan.json"]);
    let expected = || -> Vec<String> {
        let listed = place.json(&["manage"]);
        let paths = listed["expected"].as_array().unwrap().iter().map(|path| path.as_str().unwrap());
        paths.map(|path| path.strip_prefix("HERE/").unwrap().to_owned()).collect()
    };
    assert_eq!(expected(), ["old/four", "old/three", "one", "two"]);
    assert_eq!(place.json(&["unmanage", "--expected", "two"])["forgotten"], 1);
    assert_eq!(expected(), ["old/four", "old/three", "one"]);
    assert_eq!(place.json(&["unmanage", "--expected", "old"])["forgotten"], 2);
    // A run of what was planned hands the names to the broker again; not those that were forgotten.
    std::fs::remove_file(place.path("stripewise-state/plans/in-force")).ok();
    preload();
    place.done(&["run", "--", "true"]);
    assert_eq!(expected(), ["one"]);
    let said = place.say(&["unmanage", "--expected", "old"]);
    assert!(said.status == 2 && said.err.contains("no plan expects HERE/old or files below it"), "{}", said.err);
    place.done(&["unmanage", "--expected", "one"]);
    place.done(&["run", "--", "true"]);
    assert!(expected().is_empty());
    let left = std::fs::read_dir(place.path("stripewise-state/plans")).unwrap();
    assert_eq!(
        left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".json")).count(),
        0
    );
}

#[test]
fn the_programs_status_is_passed_on() {
    preload();
    let place = Place::with_cluster();
    assert_eq!(place.say(&["run", "--", "sh", "-c", "exit 7"]).status, 7);
    assert_eq!(place.say(&["trace", "-o", "t", "--", "sh", "-c", "exit 9"]).status, 9);
    assert_eq!(place.say(&["run", "--", "sh", "-c", "kill -9 $$"]).status, 137);
    place.write("text", b"no program");
    for (words, program, status) in [
        (&["trace", "-o", "u", "--"][..], "./no-such-program", 127),
        (&["run", "--"], "no-such-program", 127),
        (&["run", "--trace", "u", "--"], "./no-such-program", 127),
        (&["run", "--"], "./text", 126),
        (&["trace", "-o", "u", "--"], "./text", 126),
    ] {
        let said = place.say(&[words, &[program]].concat());
        assert_eq!(said.status, status, "{words:?} {program}");
        assert!(said.err.contains(&format!("cannot start {program}: ")), "{}", said.err);
        assert!(!place.path("u").exists(), "nothing ran, so there is no trace");
    }
}

#[test]
fn the_program_starts_with_no_signal_blocked() {
    preload();
    let place = Place::with_cluster();
    let program = ["grep", "SigBlk", "/proc/self/status"];
    for words in [&["run", "--"][..], &["trace", "-o", "t", "--"]] {
        assert_eq!(place.done(&[words, &program].concat()), "SigBlk:\t0000000000000000\n", "{words:?}");
    }
}

#[test]
fn a_signal_goes_on_to_the_program() {
    preload();
    let place = Place::with_cluster();
    // The program says when it is ready, so that nothing waits by the clock.
    let script = "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child = place.command(&["run", "--", "sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(lines.next().unwrap().unwrap(), "caught");
    let status = child.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(5), None));
}

#[test]
fn mpi_launchers_of_both_families_are_traced() {
    preload();
    for (launcher, extra) in [("mpiexec.mpich", &[][..]), ("mpiexec.openmpi", &["--oversubscribe"])] {
        if !Path::new("/usr/bin").join(launcher).exists() {
            eprintln!("{launcher} is not installed; not tried");
            continue;
        }
        let place = Place::with_cluster();
        place.write("data", &noise(1 << 20));
        let run = [launcher, "-n", "3"];
        let program = ["dd", "if=data", "of=/dev/null", "bs=64k", "count=16", "status=none"];
        let words = [&["trace", "-o", "t", "--"][..], &run, extra, &program].concat();
        let mut command = place.command(&words);
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let said = place.said(command.output().unwrap());
        assert_eq!(said.status, 0, "{launcher}: {}", said.err);
        let shown = place.json(&["trace", "show", "t"]);
        let file =
            shown["files"].as_array().unwrap().iter().find(|file| file["path"].as_str().unwrap().ends_with("/data"));
        let file = file.unwrap_or_else(|| panic!("{launcher}: the ranks' reads are not in the trace"));
        assert_eq!((&file["read_requests"], &file["processes"]), (&48.into(), &3.into()), "{launcher}");
    }
}

// In that mode UCX calls libc's own mmap: a map of a managed file was one of its stub.
#[test]
fn the_doctor_names_the_hooks_of_ucx_that_go_past_the_library() {
    preload();
    let place = Place::new();
    for (mode, status) in [("reloc", 1), ("bistro", 0), ("none", 0)] {
        let output = place.command(&["doctor", "cat"]).env("UCX_MEM_MMAP_HOOK_MODE", mode).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(status), "{mode}: {text}");
        assert_eq!(text.contains("UCX_MEM_MMAP_HOOK_MODE"), status == 1, "{mode}: {text}");
    }
}

#[test]
fn the_doctor_tells_what_stands_in_the_way() {
    preload();
    let place = Place::new();
    let fine = place.json(&["doctor", "cat"]);
    assert_eq!(fine["redirectable"], true);
    place.write("script", b"#!/no/such/interpreter\n");
    place.write("text", b"\0hello");
    for name in ["script", "text"] {
        Command::new("chmod").arg("+x").arg(place.path(name)).status().unwrap();
    }
    place.write("plain", &std::fs::read("/bin/cat").unwrap());
    for (program, expected) in [
        ("./gone", "there is no such program"),
        ("./script", "its interpreter /no/such/interpreter is missing"),
        ("./text", "is neither an ELF program nor a script with #!"),
        ("./plain", "cannot be executed"),
    ] {
        let said = place.say(&["doctor", program]);
        assert_eq!(said.status, 1, "{program}");
        assert!(
            said.out.contains(expected) && said.out.ends_with("cannot be redirected as it is\n"),
            "{program}: {}",
            said.out
        );
    }
    place.write("main.c", b"int main(void) { return 0; }\n");
    let compiled = Command::new("cc").args(["-static", "-o", "still", "main.c"]).current_dir(place.path("")).status();
    if compiled.is_ok_and(|status| status.success()) {
        let said = place.say(&["doctor", "--", "env", "A=1", "./still"]);
        assert_eq!(said.status, 1);
        assert!(said.out.contains("is linked statically"), "{}", said.out);
    }
}
