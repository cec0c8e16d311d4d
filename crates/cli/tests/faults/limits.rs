//! Limits that a shell or a batch system sets.

use crate::support::{Place, noise, preload};
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_stripewise");

/// The mapping table's map alone had 16 GiB.
#[test]
fn commands_and_programs_need_no_more_than_a_gigabyte_of_address_space() {
    preload();
    let place = Place::with_cluster();
    place.write("data", &noise(3 << 20));
    let script = "set -e; ulimit -v 1048576
        $S cp --managed data managed; $S ls >&2; $S stat managed >&2; $S check >&2; $S cat managed | cmp - data
        $S run -- cmp managed data; $S release managed; cmp managed data";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(place.path("")).env("S", BINARY).env_remove("STRIPEWISE_CLUSTER");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A process at its own limit is no measure of what all programs have open together.
#[test]
fn programs_have_more_files_open_together_than_the_soft_limit_of_one() {
    preload();
    let place = Place::with_cluster();
    let program = "test $(ulimit -Sn) = 100 && grep -q 'SigBlk:.*0000000000000000' /proc/self/status || exit 1
        level() {
            for number in $(seq 10 69); do eval \"exec $number>file.$1.$number\" && echo data >&$number || exit 1; done
            # On the same numbers; its parent keeps its files open.
            [ $1 = 4 ] || (level $(($1 + 1)))
        }
        level 1 && test $(cat file.* | wc -c) = 1200";
    let script = "set -e; mkdir many; $S manage many; cd many; ulimit -Sn 100; $S -C .. run -- bash -c \"$PROGRAM\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(place.path("")).env_remove("STRIPEWISE_CLUSTER");
    let output = command.env("S", BINARY).env("PROGRAM", program).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
