//! The user who means harm.

use crate::support::{Place, Said};
use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// The command as the user runs it.
pub(crate) fn say_as_user(place: &Place, words: &[&str]) -> Said {
    let command = place.command(words);
    let mut as_user = Command::new("setpriv");
    as_user.args([&format!("--reuid={USER}"), &format!("--regid={USER}"), "--clear-groups"]);
    as_user.arg(command.get_program()).args(command.get_args());
    place.said(as_user.current_dir(place.path("")).output().unwrap())
}

/// A cluster of the user's own in the directory `theirs`, with the managed file `theirs/file`.
pub(crate) fn users_cluster() -> (Place, Vec<u8>) {
    let place = Place::new();
    make_users(&place, "theirs");
    make_roots(&place, "roots");
    for server in ["theirs/h0", "theirs/s0"] {
        make_users(&place, server);
    }
    let data = crate::support::noise(300_000);
    place.write("data", &data);
    chmod(&place.path("data"), 0o644);
    for words in [
        &["-C", "theirs/cluster.toml", "init", "--server", "h0=hdd:theirs/h0", "--server", "s0=ssd:theirs/s0"][..],
        &["-C", "theirs", "cp", "--managed", "data", "theirs/file"],
    ] {
        let said = say_as_user(&place, words);
        assert_eq!(said.status, 0, "{words:?}: {}", said.err);
    }
    (place, data)
}

/// Everything below the directory: kind and mode, owner, size, and time of change.
pub(crate) fn everything_below(directory: &Path) -> BTreeMap<PathBuf, (u32, u32, u64, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let status = path.symlink_metadata().unwrap();
        found.insert(path.clone(), (status.mode(), status.uid(), status.len(), status.ctime(), status.ctime_nsec()));
        if status.is_dir() {
            found.extend(everything_below(&path));
        }
    }
    found
}
