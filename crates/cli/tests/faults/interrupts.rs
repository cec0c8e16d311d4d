//! Ctrl-C and kill at every stage: the file is whole, and the next command says what it cleaned up.

use crate::plans::{at_work, names, slow_place};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Stdio};

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn ctrl_c_during_apply_leaves_the_file_as_it_was() {
    let (place, data) = slow_place();
    let before = names(&place);
    let child = at_work(&place, &["apply", "plan.json"]);
    signal(&child, Signal::INT);
    let said = place.said(child.wait_with_output().unwrap());
    assert_eq!(said.status, 130);
    assert_eq!(said.err, "stripewise apply: stopped before HERE/data was replaced; nothing was changed\n");
    assert!(place.read("data") == data && names(&place) == before);
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 0);
}

#[test]
fn kill_during_apply_and_the_next_command_cleans_up() {
    let (place, data) = slow_place();
    let before = names(&place);
    let child = at_work(&place, &["apply", "plan.json"]);
    signal(&child, Signal::KILL);
    child.wait_with_output().unwrap();
    assert!(place.read("data") == data, "the original is whole");
    let next = place.say(&["ls"]);
    assert!(next.status == 0 && next.err.contains("cleaned up: ") && next.err.contains("HERE/data"), "{}", next.err);
    assert!(place.read("data") == data && names(&place) == before);
    place.done(&["apply", "plan.json"]);
    assert!(place.command(&["cat", "data"]).output().unwrap().stdout == data);
}

#[test]
fn release_interrupted_or_killed_leaves_the_managed_file() {
    let (place, data) = slow_place();
    place.done(&["apply", "plan.json"]);
    let before = names(&place);
    for (how, says) in [(Signal::INT, "stopped before HERE/data was replaced; nothing was changed"), (Signal::KILL, "")]
    {
        let child = at_work(&place, &["release", "data"]);
        signal(&child, how);
        let said = place.said(child.wait_with_output().unwrap());
        assert!(said.err.contains(says), "{}", said.err);
        let next = place.say(&["ls"]);
        assert_eq!(next.err.contains("cleaned up: "), how == Signal::KILL, "{}", next.err);
        assert!(names(&place) == before && next.out.contains("HERE/data"), "{}", next.out);
        assert!(place.command(&["cat", "data"]).output().unwrap().stdout == data);
    }
    place.done(&["release", "data"]);
    assert!(place.read("data") == data);
}

#[test]
fn ctrl_c_during_a_copy_leaves_the_destination_as_it_was() {
    let (place, _) = slow_place();
    place.write("old", b"what stood here");
    place.done(&["cp", "--managed", "old", "target"]);
    let before = names(&place);
    // The copy has no name until it is complete: what the disk holds tells that it is under way.
    let held = || bytes_below(&place.path("servers"));
    let at_rest = held();
    let mut child = place.command(&["cp", "data", "target"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while held() < at_rest + (1 << 20) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was seen at work");
        std::thread::yield_now();
    }
    signal(&child, Signal::INT);
    let said = place.said(child.wait_with_output().unwrap());
    assert_eq!((said.status, said.err.as_str()), (130, "stripewise cp: stopped; HERE/target is as it was\n"));
    assert_eq!(names(&place), before);
    assert_eq!(place.command(&["cat", "target"]).output().unwrap().stdout, b"what stood here");
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 1, "nothing of the copy stays");
}

fn bytes_below(directory: &Path) -> u64 {
    // What is removed meanwhile counts no more.
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => bytes_below(&entry.path()),
            Ok(found) => found.len(),
            Err(_) => 0,
        })
        .sum()
}
