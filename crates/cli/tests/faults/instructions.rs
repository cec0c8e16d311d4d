//! System calls by an instruction in a program's own code, which no library can see.

use crate::stubs::{cat, managed};
use crate::support::Place;
use std::process::Command;

fn compile(place: &Place) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/instructions.c");
    let status = Command::new("cc").args(["-O1", "-w", "-o"]).arg(place.path("program")).arg(source).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_descriptor_that_only_reads_lets_no_instruction_damage_the_stub() {
    let (place, data) = managed();
    compile(&place);
    let stub = place.read("managed");
    let said = place.say(&["run", "--", "./program", "read", "managed"]);
    assert_eq!((said.status, said.out.as_str()), (0, ""), "{}", said.err);
    assert!(place.read("managed") == stub && cat(&place, "managed") == data);
    assert_eq!(place.say(&["check"]).status, 0);
}

// Locks for writing need a descriptor that the kernel lets write, so an instruction can write the stub through it. The
// data lies elsewhere: the program goes on with it, and `check` restores the text.
#[test]
fn an_instruction_damages_the_stub_alone_and_check_restores_it() {
    let (place, data) = managed();
    compile(&place);
    let stub = place.read("managed");
    for how in ["write", "copy", "cut"] {
        let said = place.say(&["run", "--", "./program", how, "managed"]);
        assert_eq!((said.status, said.out.as_str()), (0, ""), "{how}: {}", said.err);
        assert!(place.read("managed") != stub, "{how}: the instruction did nothing");
        // A change of its size is seen for certain; of the text, by `check` alone.
        let changes_size = stub.len() != place.read("managed").len();
        let warned = said.err.contains("HERE/managed") && said.err.contains("stripewise check --repair");
        assert_eq!(warned, changes_size, "{how}: {}", said.err);
        let found = place.say(&["check"]);
        assert_eq!(found.status, 1, "{how}: {}{}", found.out, found.err);
        let repaired = place.say(&["check", "--repair"]);
        assert_eq!(repaired.status, 0, "{how}: {}{}", repaired.out, repaired.err);
        assert!(place.read("managed") == stub, "{how}: the stub is restored");
        assert!(cat(&place, "managed") == data, "{how}: the data is whole");
        std::fs::remove_file(place.path("managed.before-check")).unwrap();
    }
    assert_eq!(place.say(&["check"]).status, 0);
}
