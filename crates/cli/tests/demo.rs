//! `stripewise demo` at a size that shows no figure worth having, but takes the whole way: bytes, moves, report.

mod support;

use serde_json::Value;
use support::{Place, preload};

const REGION: u64 = 1 << 20;
const FILE: u64 = 8 << 20;

/// A small testbed, one size and one policy, and a short live part.
const WORDS: [&str; 19] = [
    "demo",
    "--emulated",
    "2xhdd-7200,1xsata-ssd-2012",
    "--size",
    "32MiB",
    "--region",
    "1MiB",
    "--ranks",
    "2",
    "--request",
    "256KiB",
    "--policy",
    "def",
    "--seconds",
    "0.1",
    "--live",
    "0.5",
    "--out",
    "out",
];

fn sum(list: &Value) -> u64 {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).sum()
}

#[test]
fn the_live_part_moves_regions_under_a_program_and_verifies_every_byte() {
    preload();
    let place = Place::new();
    let said = place.json(&WORDS);
    let live = &said["live"];
    assert_eq!(
        (&live["policy"], &live["op"], live["file_bytes"].as_u64()),
        (&"h2dp".into(), &"read".into(), Some(FILE))
    );
    let runs = live["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["migrate"].as_bool().unwrap()).collect::<Vec<_>>(), [false, true]);
    for run in runs {
        assert_eq!((&run["verified"], &run["failed_moves"]), (&Value::Bool(true), &0.into()), "{run}");
        let halves: Vec<u64> =
            run["halves"].as_array().unwrap().iter().map(|half| half["bytes"].as_u64().unwrap()).collect();
        assert!(halves.len() == 2 && halves[0] == halves[1] && halves[0] > 0, "{run}");
        // Every request ended in some slice of time.
        assert_eq!(sum(&run["slice_bytes"]), halves[0] + halves[1]);
        assert_eq!(run["slice_bytes"].as_array().unwrap().len(), run["slice_copied_bytes"].as_array().unwrap().len());
    }
    let [staying, moving] = [&runs[0], &runs[1]];
    assert_eq!((&staying["moved_bytes"], &staying["unfinished_moves"]), (&0.into(), &0.into()));
    assert_eq!(sum(&staying["slice_copied_bytes"]), 0);
    // How many of the moves were in time is the machine's doing.
    let ordered = moving["moved_bytes"].as_u64().unwrap() / REGION + moving["unfinished_moves"].as_u64().unwrap();
    assert!((1..=FILE / REGION).contains(&ordered), "{moving}");

    let written: Value = serde_json::from_slice(&place.read("out/results.json")).unwrap();
    assert_eq!((&written["version"], &written["live"]), (&2.into(), live));
    let report = String::from_utf8(place.read("out/report.html")).unwrap();
    assert!(report.contains("<section id=\"live\" ") && report.contains("</i>regions move</li>"));
}

#[test]
fn a_live_part_that_cannot_be_is_refused_before_anything_runs() {
    let place = Place::new();
    let fault = |words: &[&str]| {
        let said = place.say(&[&["demo"], words].concat());
        assert_eq!(said.status, 2, "{}", said.err);
        assert!(!said.err.contains("init"), "nothing has run: {}", said.err);
        said.err
    };
    assert!(fault(&["--live", "-1"]).contains("--live -1: want a time from 0 to 600 seconds"));
    let error = fault(&["--size", "1MiB", "--region", "1MiB"]);
    assert!(error.contains("--live 0 leaves it out"), "{error}");
}
