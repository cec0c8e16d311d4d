//! A mapping table that is damaged or lost.

use crate::support::{Place, noise, preload};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A managed file `managed` of 3 MiB.
fn managed() -> (Place, Vec<u8>) {
    preload();
    let place = Place::with_cluster();
    let data = noise(3 << 20);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "managed"]);
    (place, data)
}

/// The file of the table, wherever `init` puts it.
fn table(place: &Place) -> PathBuf {
    let stub = String::from_utf8(place.read("managed")).unwrap();
    let state = stub.lines().find_map(|line| line.strip_prefix("state ")).expect("the stub names it");
    PathBuf::from(state.trim_end()).join("rmt/data.mdb")
}

fn cat(place: &Place) -> std::process::Output {
    place.command(&["run", "--", "cat", "managed"]).output().unwrap()
}

#[test]
fn every_command_names_a_damaged_table_and_a_repair_makes_it_anew() {
    let (place, data) = managed();
    let path = table(&place);
    let length = path.metadata().unwrap().len();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // All but the two pages that begin an LMDB file: the worst that leaves it one.
    file.write_all_at(&vec![0; length as usize - 8192], 8192).unwrap();
    for command in [&["stat", "managed"][..], &["ls"], &["run", "--", "cat", "managed"]] {
        let said = place.say(command);
        let names = said.err.contains("rmt is damaged") && said.err.contains("`stripewise check --repair`");
        assert!(said.status == 2 && names, "{command:?}: {} {}{}", said.status, said.out, said.err);
    }
    let said = place.say(&["check"]);
    assert_eq!(said.status, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("found     mapping table: ") && said.out.contains("then `stripewise check --repair`"));
    let said = place.say(&["check", "--repair"]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("repaired  mapping table: ") && said.out.contains("rmt.damaged-1"), "{}", said.out);
    assert_eq!(place.say(&["check"]).status, 0);
    assert!(cat(&place).stdout == data);
}
