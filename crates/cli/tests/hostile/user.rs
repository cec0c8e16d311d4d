//! The user who means harm.

use crate::support::Place;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// Nobody on any Linux.
pub(crate) const USER: u32 = 65_534;

/// Whether this is root; else the test is skipped, loudly.
pub(crate) fn is_root() -> bool {
    let root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        eprintln!("SKIPPED: only root can be led astray by a user's files; run this test as root");
    }
    root
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A directory `name` that is the user's.
pub(crate) fn make_users(place: &Place, name: &str) {
    chmod(&place.path(""), 0o755);
    std::fs::create_dir(place.path(name)).unwrap();
    chown(place.path(name), Some(USER), Some(USER)).unwrap();
}

/// A directory `name` of root with a file `passwd`, which only root may write.
pub(crate) fn make_roots(place: &Place, name: &str) {
    std::fs::create_dir(place.path(name)).unwrap();
    chmod(&place.path(name), 0o755);
    place.write(&format!("{name}/passwd"), b"root:x:0:0");
    chmod(&place.path(name).join("passwd"), 0o644);
}

/// Root's directory is as [`make_roots`] made it.
#[track_caller]
pub(crate) fn is_untouched(place: &Place, name: &str) {
    let names: Vec<_> = std::fs::read_dir(place.path(name)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["passwd"]);
    let found = place.path(name).join("passwd").symlink_metadata().unwrap();
    assert_eq!((found.uid(), found.mode() & 0o7777, found.is_file()), (0, 0o644, true));
    assert_eq!(place.read(&format!("{name}/passwd")), b"root:x:0:0");
}
