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
