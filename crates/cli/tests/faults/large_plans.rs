//! Plans of very many files, and input that never ends.

use crate::plans::plan;
use crate::support::{Place, preload, write_profile};

const FILES: usize = 20_000;

/// Each run told the broker of every file again, one by one, after a search through all of them for each: 32 s to 266 s, deaf to signals.
#[test]
fn a_plan_of_20000_files_is_in_force_and_told_once() {
    preload();
    let place = Place::with_cluster();
    let mut whole = plan(&place, "data");
    let file = whole["files"][0].take();
    let files = (0..FILES).map(|number| {
        let mut file = file.clone();
        let path = place.path(&format!("part-{number:05}"));
        (file["path"], file["pattern"]) = (path.to_str().into(), path.to_str().into());
        file
    });
    whole["files"] = files.collect();
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
    ] {
        let said = place.say(words);
        assert!(said.status == 2 && said.err.contains(named), "{words:?}: {} {}", said.status, said.err);
    }
    std::fs::remove_file(place.path("profile.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path("profile.json")).unwrap();
    place.done(&["ls"]);
}
