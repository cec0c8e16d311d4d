//! Ordinary files beside the managed ones.

use crate::bed::{Mounted, place};
use crate::support::Place;
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

/// With its locks gone the process of the mount would count as dead, and moves would lose what it writes.
#[test]
fn whoever_reads_the_state_directory_by_the_mount_does_not_end_the_locks_of_the_mount() {
    if place().is_none() {
        return;
    }
    let place = Place::new();
    for name in ["data", "a"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.done(&["init", "--server", "a=hdd:a", "--state", "data/state"]);
    place.done(&["manage", "data"]);
    let mounted = Mounted::start(&place, &[]);
    std::fs::write(mounted.path("file"), b"managed").unwrap();
    let held = place.locks_of("data/state");
    assert!(held > 0);
    let read = std::fs::read(mounted.path("state/run/processes"));
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!(std::fs::read(mounted.path("file")).unwrap(), b"managed");
    assert_eq!(place.locks_of("data/state"), held);
    mounted.interrupt();
}
