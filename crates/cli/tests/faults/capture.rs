//! A trace whose disk is full.

use crate::support::{Place, noise, preload};
use std::process::Command;

/// What a program of 200,000 writes leaves in a trace that has no space for it: the program succeeds, and what is lost is said.
fn traced(command: &mut Command, place: &Place) {
    let said = place.said(command.output().unwrap());
    assert_eq!(said.status, 0, "the program does not suffer: {}", said.err);
    let number = |end: &str| {
        let line = said.err.lines().find_map(|line| line.split_once(end).map(|(before, _)| before));
        let digits = line.and_then(|line| line.rsplit(' ').next()).unwrap_or_else(|| panic!("{}", said.err));
        digits.replace(',', "").parse::<u64>().unwrap()
    };
    let lost = number(" records were lost: there was no space to write");
    let kept = number(" records of 1 process");
    assert!(lost > 0 && kept > 0 && lost + kept >= 400_000, "{kept} kept, {lost} lost");
    // Said again whenever the trace is read.
    let shown = place.say(&["trace", "show", "small/run.trace"]);
    assert_eq!(shown.status, 0, "{}", shown.err);
    assert!(
        shown.err.contains(&format!("could not write {lost} records (no space); they are missing")),
        "{}",
        shown.err
    );
}

const DD: &str = "dd if=data of=copy bs=16 count=200000 status=none";

#[test]
fn records_that_a_full_disk_refuses_are_counted_and_said() {
    preload();
    let place = Place::new();
    place.write("data", &noise(16 * 200_000));
    std::fs::create_dir(place.path("small")).unwrap();
    // In a mount name space of its own, so that nothing is left mounted.
    let mounted = "mount -t tmpfs -o size=1m none small && touch small/mounted";
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", mounted]).current_dir(place.path("")).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("not tried: this user cannot mount a small tmpfs");
        return;
    }
    let binary = env!("CARGO_BIN_EXE_stripewise");
    // The reader stands in the same name space: the trace is copied out before it goes.
    let script = format!(
        "mkdir kept && mount -t tmpfs -o size=1m none small && '{binary}' trace -o small/run.trace -- {DD}; \
         status=$?; cp -a small/run.trace kept/ && umount small && mv kept/run.trace small/ && exit $status"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).current_dir(place.path(""));
    traced(&mut command, &place);
    assert!(place.read("copy") == place.read("data"));
}
