//! Releasing a file whose data its own file system has no space for. Needs a user who may mount.

use crate::support::{Place, noise};
use std::process::Command;

#[test]
fn what_a_file_system_has_no_space_for_is_not_begun_to_be_released() {
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("m")).unwrap();
    place.write("data", &noise(8 << 20));
    let mount = "mount -t tmpfs -o size=12m none m || exit 9";
    let script = format!(
        "{mount}; $S cp --managed data m/file && $S cp --managed data m/other && head -c 6m /dev/zero > m/fill || exit 3
         $S release m/file m/other; echo $?; cmp data m/fill > /dev/null; ls m
         rm m/fill && $S release m/file && cmp data m/file && echo released"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).current_dir(place.path(""));
    command.env("S", env!("CARGO_BIN_EXE_stripewise")).env_remove("STRIPEWISE_CLUSTER");
    let Ok(output) = command.output() else { return };
    let said = place.said(output);
    if !matches!(said.status, 0 | 3) {
        return eprintln!("SKIPPED: this user cannot mount: {}", said.err);
    }
    assert_eq!(said.out, "1\nfile\nfill\nother\nreleased\n", "{}", said.err);
    for name in ["m/file", "m/other"] {
        let refused = format!(
            "no space to release {name}: 8 MiB of data are to lie on the file system of m, which has 6 MiB free"
        );
        assert!(said.err.contains(&refused), "{}", said.err);
    }
}
