//! What is made on a mount, by other users than root above all.

use crate::bed::{Mounted, place};
use crate::support::Place;
use rustix::fs::inotify;
use std::fs::Permissions;
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

/// A user who is of no other group.
fn as_other(place: &Place, words: &[&str]) -> Output {
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    Command::new("setpriv").args(user).args(words).current_dir(place.path("")).output().unwrap()
}

/// A cluster that everybody may use, mounted for everybody.
fn open_mount() -> Option<(Place, Mounted)> {
    let place = place()?;
    std::fs::set_permissions(place.path(""), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(place.path("data"), Permissions::from_mode(0o777)).unwrap();
    let mounted = Mounted::start(&place, &["--allow-other"]);
    Some((place, mounted))
}

/// Owner, group and mode.
fn rights(path: &Path) -> (u32, u32, u32) {
    let found = path.symlink_metadata().unwrap();
    (found.uid(), found.gid(), found.mode() & 0o7777)
}

#[test]
fn what_others_make_is_theirs_from_the_begin_and_nothing_is_given_away_by_its_name() {
    let Some((place, mounted)) = open_mount() else { return };
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let wanted = inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB;
    inotify::add_watch(&watch, place.path("data"), wanted).unwrap();
    let script = "import os, socket; os.umask(0o027); os.chdir('data.mount'); \
                  os.mkfifo('fifo', 0o6777); os.mkdir('directory', 0o777); os.symlink('fifo', 'link'); \
                  socket.socket(socket.AF_UNIX).bind('socket')";
    let made = as_other(&place, &["/usr/bin/python3", "-c", script]);
    assert!(made.status.success(), "{made:?}");
    let own = |mode| (65534, 65534, mode);
    assert_eq!(rights(&place.path("data/fifo")), own(0o6750));
    assert_eq!(rights(&place.path("data/directory")), own(0o750));
    assert_eq!(rights(&place.path("data/link")), own(0o777));
    assert_eq!(rights(&place.path("data/socket")), own(0o750));
    assert!(place.path("data/socket").metadata().unwrap().file_type().is_socket());
    let mut events = [const { MaybeUninit::uninit() }; 4096];
    let mut events = inotify::Reader::new(watch, &mut events);
    let mut seen = Vec::new();
    while let Ok(event) = events.next() {
        seen.push((event.file_name().unwrap().to_str().unwrap().to_owned(), event.events()));
    }
    let names: Vec<_> = seen.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["fifo", "directory", "link", "socket"], "each is made, and changed no more");
    assert!(seen.iter().all(|(_, events)| events.contains(inotify::ReadFlags::CREATE)), "{seen:?}");
    // Every thread is root again.
    std::fs::create_dir(mounted.path("roots")).unwrap();
    assert_eq!(mounted.path("roots").metadata().unwrap().uid(), 0);
    for status in mounted.statuses() {
        assert!(status.contains("\nUid:\t0\t0\t0\t0\n") && status.contains("\nGid:\t0\t0\t0\t0\n"), "{status}");
    }
    mounted.interrupt();
}

#[test]
fn directories_that_give_their_group_do_so_for_other_users_too() {
    let Some((place, mounted)) = open_mount() else { return };
    let directory = mounted.path("shared");
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, None, Some(7)).unwrap();
    std::fs::set_permissions(&directory, Permissions::from_mode(0o2777)).unwrap();
    // Who is not of the group makes no program that runs as it.
    let script = "import os; os.umask(0); os.chdir('data.mount/shared'); os.mkdir('directory'); os.mkfifo('fifo'); \
                  os.close(os.open('program', os.O_CREAT | os.O_WRONLY, 0o6755)); os.close(os.open('file', os.O_CREAT, 0o444))";
    let made = as_other(&place, &["/usr/bin/python3", "-c", script]);
    assert!(made.status.success(), "{made:?}");
    for (name, mode) in [("directory", 0o2777), ("fifo", 0o666), ("program", 0o4755), ("file", 0o444)] {
        assert_eq!(rights(&place.path("data/shared").join(name)), (65534, 7, mode), "{name}");
    }
    // The kernel has permitted it by a group that the mount's process does not know.
    std::fs::set_permissions(&directory, Permissions::from_mode(0o2770)).unwrap();
    let words = ["--reuid=65534", "--regid=65534", "--groups=7", "mkdir", "data.mount/shared/by-group"];
    let made = Command::new("setpriv").args(words).current_dir(place.path("")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    assert!(!as_other(&place, &["mkdir", "data.mount/shared/refused"]).status.success());
    assert_eq!(rights(&place.path("data/shared/by-group")).0, 65534);
    mounted.interrupt();
}

#[test]
fn who_may_not_keep_set_user_bits_drops_them_by_fallocate_and_copy_file_range_too() {
    let Some((place, mounted)) = open_mount() else { return };
    place.write("source", &[b'x'; 8192]);
    std::fs::set_permissions(place.path("source"), Permissions::from_mode(0o644)).unwrap();
    place.write("data/ordinary", b"program");
    std::fs::write(mounted.path("managed"), b"program").unwrap();
    std::fs::copy(place.path("source"), mounted.path("other")).unwrap();
    let allocate = "import os, sys; os.posix_fallocate(os.open(sys.argv[1], os.O_RDWR), 0, 4096)";
    let copy = "import os, sys; assert os.copy_file_range(os.open('data.mount/other', os.O_RDONLY), os.open(sys.argv[1], os.O_RDWR), 7) == 7";
    for (name, script) in ["managed", "ordinary"].into_iter().flat_map(|name| [(name, allocate), (name, copy)]) {
        let path = format!("data.mount/{name}");
        std::fs::set_permissions(place.path(&path), Permissions::from_mode(0o6777)).unwrap();
        let changed = as_other(&place, &["/usr/bin/python3", "-c", script, &path]);
        assert!(changed.status.success(), "{name}: {changed:?}");
        assert_eq!(rights(&place.path(&path)).2, 0o777, "{name} {script}");
    }
    mounted.interrupt();
}

#[test]
fn what_is_made_in_a_directory_that_is_no_longer_managed_is_ordinary() {
    let Some(place) = place() else { return };
    std::fs::create_dir(place.path("data/below")).unwrap();
    let mounted = Mounted::start(&place, &[]);
    let is_managed = |name: &str| {
        std::fs::write(mounted.path(name), b"text").unwrap();
        assert_eq!(std::fs::read(mounted.path(name)).unwrap(), b"text");
        place.read(&format!("data/{name}")) != b"text"
    };
    assert!(is_managed("first"));
    place.done(&["unmanage", "data"]);
    assert!(!is_managed("second") && !is_managed("below/second"));
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        mounted.path("third"),
        rustix::fs::FileType::RegularFile,
        rustix::fs::Mode::RUSR,
        0,
    );
    assert_eq!(made, Ok(()));
    place.done(&["manage", "data/below"]);
    assert!(is_managed("below/third") && !is_managed("fourth"));
    place.done(&["manage", "data"]);
    assert!(is_managed("fifth"));
    let mut names: Vec<_> =
        std::fs::read_dir(place.path("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["below", "fifth", "first", "fourth", "second", "third"], "nothing is left behind");
    mounted.interrupt();
}
