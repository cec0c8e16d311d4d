//! Where a directory is mounted, how a mount ends, and what is refused.

use crate::bed::{DATA, Mounted, POINT, place};
use crate::support::Place;
use rustix::mount::MountFlags;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

#[test]
fn a_mount_ends_by_a_signal_or_by_umount_and_leaves_nothing() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    std::fs::write(mounted.path("file"), b"text").unwrap();
    mounted.interrupt();
    assert!(!place.path(POINT).exists(), "the mount point that was made is removed");
    std::fs::create_dir(place.path("mine")).unwrap();
    let mounted = Mounted::start_at(&place, "mine", &[]);
    assert_eq!(std::fs::read(mounted.path("file")).unwrap(), b"text");
    rustix::mount::unmount(mounted.path(""), rustix::mount::UnmountFlags::empty()).unwrap();
    mounted.wait();
    assert_eq!(std::fs::read_dir(place.path("mine")).unwrap().count(), 0, "and one that was there stays, empty");
}

#[test]
fn files_that_are_open_when_the_mount_is_to_end_are_served_until_they_are_closed() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let file = File::create(mounted.path("file")).unwrap();
    let ending = std::thread::spawn(move || mounted.interrupt());
    while place.path(POINT).join("file").exists() {
        std::thread::yield_now();
    }
    file.write_all_at(b"late", 3).unwrap();
    file.sync_all().unwrap();
    assert!(!ending.is_finished());
    drop(file);
    ending.join().unwrap();
    assert_eq!(place.command(&["cat", "data/file"]).output().unwrap().stdout, b"\0\0\0late");
}

#[test]
fn what_cannot_be_mounted_is_refused_by_name_and_nothing_is_mounted() {
    let Some(place) = place() else { return };
    std::fs::create_dir(place.path("full")).unwrap();
    place.write("full/file", b"");
    place.write("file", b"");
    let refused = |words: &[&str], why: &str| {
        let said = place.say(&[&["mount"], words].concat());
        assert_eq!(said.status, 2, "{}", said.err);
        assert!(said.err.contains(why), "{}", said.err);
    };
    refused(&[DATA, "--at", "full"], "the mount point full is not empty; name an empty directory");
    refused(&[DATA, "--at", "file"], "cannot open the mount point file");
    refused(&["absent"], "cannot open the directory absent: No such file or directory");
    refused(&["file"], "cannot open the directory file: Not a directory");
    refused(&[DATA, "--at", "data/inside"], "lie in each other; name a mount point outside with --at");
    refused(&[DATA, "--at", DATA], "lie in each other");
    assert!(!place.path("data/inside").exists());
    let mounted = Mounted::start(&place, &[]);
    refused(&[DATA], "is mounted already, with stripewise:HERE/data; unmount it with `umount data.mount` first");
    mounted.interrupt();
    let bare = Place::new();
    std::fs::create_dir(bare.path(DATA)).unwrap();
    let said = bare.say(&["mount", DATA]);
    assert!(said.status == 2 && said.err.contains("no cluster file cluster.toml; make one with"), "{}", said.err);
}

#[test]
fn a_dead_mount_is_taken_away_by_any_name_if_it_is_one_of_these_and_never_another_programs() {
    let Some(place) = place() else { return };
    let mounts = || std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for name in ["other", POINT] {
        std::fs::create_dir(place.path(name)).unwrap();
        std::os::unix::fs::symlink(name, place.path(&format!("link-{name}"))).unwrap();
    }
    // One whose process has gone.
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    let other = place.path("other");
    rustix::mount::mount("someone", &other, "fuse.other", MountFlags::empty(), data.as_c_str()).unwrap();
    let _other = Unmounted(other);
    drop(device);
    for name in ["other", "link-other", "data/../other/"] {
        let said = place.say(&["mount", DATA, "--at", name]);
        assert!(said.status == 2 && said.err.contains("is mounted already, with someone"), "{name}: {}", said.err);
        assert!(mounts().contains("fuse.other someone"), "{name}");
    }
    let said = place.say(&["mount", DATA, "--at", "link-other/inside"]);
    assert!(said.status == 2 && said.err.contains("cannot open the mount point link-other/inside"), "{}", said.err);
    for name in [POINT, &format!("link-{POINT}"), &format!("data/../{POINT}/")] {
        Mounted::start(&place, &[]).kill();
        let mounted = Mounted::start_by(place.command(&["mount", DATA, "--at", name]), place.path(POINT));
        std::fs::write(mounted.path("file"), b"text").unwrap();
        mounted.interrupt();
    }
}

/// A mount that the test takes away.
struct Unmounted(std::path::PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}
