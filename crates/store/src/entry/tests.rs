use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn real(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().canonicalize().unwrap()
}

/// A directory on the way that was renamed and replaced by a link led root into another user's directories.
#[test]
fn a_link_on_the_way_or_at_its_end_is_never_followed() {
    let directory = tempfile::tempdir().unwrap();
    let top = real(&directory);
    std::fs::create_dir_all(top.join("a/b")).unwrap();
    std::fs::write(top.join("a/b/file"), "x").unwrap();
    symlink(top.join("a"), top.join("link")).unwrap();
    symlink(top.join("a/b"), top.join("a/last")).unwrap();
    symlink(top.join("a/b/file"), top.join("a/b/linked")).unwrap();
    for open in [open_directory, walk] {
        open(&top.join("a/b")).unwrap();
        open(Path::new("/")).unwrap();
        for linked in ["link/b", "link", "a/last"] {
            assert_eq!(open(&top.join(linked)).unwrap_err(), Errno::LOOP, "{linked}");
        }
        assert_eq!(open(&top.join("a/b/file")).unwrap_err(), Errno::NOTDIR);
        assert_eq!(open(&top.join("a/none")).unwrap_err(), Errno::NOENT);
    }
    for odd in [Path::new("a/b"), &top.join("a/../a"), Path::new("")] {
        assert_eq!(open_directory(odd).unwrap_err(), Errno::INVAL, "{}", odd.display());
    }
    let linked = DirectoryEntry::at(&top.join("a/b/linked")).unwrap();
    assert_eq!(linked.open_regular(OFlags::RDONLY).unwrap_err(), Errno::LOOP);
    assert_eq!(linked.create().unwrap_err(), Errno::EXIST);
    assert_eq!(FileType::from_raw_mode(linked.stat().unwrap().unwrap().st_mode), FileType::Symlink);
}

/// The directory is the one that was opened, whatever stands at its path since.
#[test]
fn an_entry_stays_in_its_directory_when_a_link_takes_the_directorys_place() {
    let directory = tempfile::tempdir().unwrap();
    let top = real(&directory);
    std::fs::create_dir(top.join("own")).unwrap();
    std::fs::create_dir(top.join("foreign")).unwrap();
    std::fs::write(top.join("foreign/name"), "foreign").unwrap();
    let entry = DirectoryEntry::at(&top.join("own/name")).unwrap();
    std::fs::rename(top.join("own"), top.join("moved")).unwrap();
    symlink(top.join("foreign"), top.join("own")).unwrap();
    assert!(entry.stat().unwrap().is_none());
    let made = entry.create().unwrap();
    let other = entry.sibling(OsStr::new("other"));
    entry.rename(&other).unwrap();
    assert!(other.is(&made) && !entry.is(&made));
    let names: Vec<OsString> = entry.siblings().unwrap().iter().map(|entry| entry.name().to_owned()).collect();
    assert_eq!(names, ["other"]);
    entry.sync_directory().unwrap();
    assert_eq!(std::fs::read(top.join("foreign/name")).unwrap(), b"foreign");
    assert_eq!(std::fs::read_dir(top.join("foreign")).unwrap().count(), 1);
    assert_eq!(std::fs::metadata(top.join("moved/other")).unwrap().mode() & 0o777, 0o600);
    other.unlink().unwrap();
    let nameless = entry.create_nameless().unwrap().expect("the usual file systems have nameless files");
    entry.link(&nameless).unwrap();
    assert!(top.join("moved/name").exists());
}

/// A FIFO at the name of a temporary hung the broker that opened it.
#[test]
fn what_is_no_regular_file_is_an_error_and_nobody_waits() {
    let directory = tempfile::tempdir().unwrap();
    let top = real(&directory);
    rustix::fs::mknodat(CWD, top.join("fifo"), FileType::Fifo, OWNER_ONLY, 0).unwrap();
    std::fs::create_dir(top.join("directory")).unwrap();
    let opened = |name: &str, access| DirectoryEntry::at(&top.join(name)).unwrap().open_regular(access).unwrap_err();
    assert_eq!(opened("fifo", OFlags::RDONLY), Errno::NXIO);
    assert_eq!(opened("fifo", OFlags::RDWR), Errno::NXIO);
    assert_eq!(opened("fifo", OFlags::WRONLY), Errno::NXIO);
    assert_eq!(opened("directory", OFlags::RDONLY), Errno::ISDIR);
    assert_eq!(opened("none", OFlags::RDONLY), Errno::NOENT);
    assert_eq!(
        DirectoryEntry::at(Path::new("/dev/null")).unwrap().open_regular(OFlags::RDWR).unwrap_err(),
        Errno::NXIO
    );
}

/// Root that repairs a user's file must not write where the user may not.
#[test]
fn root_acting_for_a_user_creates_only_where_the_user_could() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can act for another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let top = real(&directory);
    std::fs::set_permissions(&top, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (name, owner) in [("theirs", 65_534), ("roots", 0)] {
        std::fs::create_dir(top.join(name)).unwrap();
        std::os::unix::fs::chown(top.join(name), Some(owner), Some(owner)).unwrap();
    }
    let user = User::of(65_534);
    let create = |name: &str| user.act(|| DirectoryEntry::at(&top.join(name))?.create().map(drop)).unwrap();
    create("theirs/file").unwrap();
    assert_eq!(std::fs::metadata(top.join("theirs/file")).unwrap().uid(), 65_534);
    assert_eq!(create("roots/file"), Err(Errno::ACCESS));
    // This thread is root as before.
    std::fs::write(top.join("roots/own"), "").unwrap();
    assert_eq!(std::fs::metadata(top.join("roots/own")).unwrap().uid(), 0);
}
