//! Ordinary files beside the managed ones.

use crate::bed::{Mounted, place};
use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Command;

/// Appends by the mount, then past it, then by the same open of the mount.
pub(crate) const APPEND_BY_TURNS: &str =
    "exec 3>> data.mount/$0 && echo mount1 >&3 && echo outside-outside >> data/$0 && echo mount2 >&3 && cat data/$0";
pub(crate) const APPENDED: &str = "base\nmount1\noutside-outside\nmount2\n";

#[test]
fn appends_to_ordinary_files_go_to_their_end_whoever_else_appends() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    // One that the kernel writes itself, where it can, and one that it does not.
    for (name, mode) in [("plain", 0o644), ("setgid", 0o2644)] {
        place.write(&format!("data/{name}"), b"base\n");
        std::fs::set_permissions(place.path("data").join(name), Permissions::from_mode(mode)).unwrap();
        let appended =
            Command::new("sh").args(["-c", APPEND_BY_TURNS, name]).current_dir(place.path("")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&appended.stdout), APPENDED, "{name}: {appended:?}");
    }
    mounted.interrupt();
}

#[test]
fn a_file_whose_set_group_bit_comes_and_goes_while_it_is_open_can_be_opened() {
    let Some(place) = place() else { return };
    place.write("data/ordinary", b"text");
    let mounted = Mounted::start(&place, &[]);
    let set = |mode| std::fs::set_permissions(place.path("data/ordinary"), Permissions::from_mode(mode)).unwrap();
    for modes in [[0o644, 0o2644, 0o644], [0o2644, 0o644, 0o2644]] {
        let mut open = Vec::new();
        for mode in modes {
            set(mode);
            let file = File::options().read(true).write(true).open(mounted.path("ordinary"));
            open.push(file.unwrap_or_else(|error| panic!("{mode:o} of {modes:?}: {error}")));
        }
        for file in &open {
            file.write_all_at(b"next", 0).unwrap();
            let mut read = [0; 4];
            file.read_exact_at(&mut read, 0).unwrap();
            assert_eq!(&read, b"next", "{modes:?}");
        }
    }
    mounted.interrupt();
}
