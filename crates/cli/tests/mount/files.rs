//! What programs see of files by way of the mount, and do with them.

use crate::bed::{DATA, Mounted, place};
use crate::driver::Driver;
use crate::support::{Place, noise};
use rustix::fs::FlockOperation;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn of_cluster(place: &Place, name: &str) -> Vec<u8> {
    place.command(&["cat", name]).output().unwrap().stdout
}

fn ids(place: &Place) -> Vec<String> {
    let listed = place.json(&["ls"]);
    listed["files"].as_array().unwrap().iter().map(|file| file["file"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_program_sees_managed_files_with_their_size_times_and_data() {
    let Some(place) = place() else { return };
    let data = noise((3 << 20) + 4567);
    place.write("source", &data);
    std::fs::set_permissions(place.path("source"), Permissions::from_mode(0o640)).unwrap();
    place.done(&["cp", "source", "data/managed"]);
    place.write("data/ordinary", b"as it is");
    // Of a stub's size, and none.
    place.write("data/like-a-stub", &[b'x'; 1021]);
    std::os::unix::fs::symlink("managed", place.path("data/link")).unwrap();
    let mounted = Mounted::start(&place, &[]);
    let listed = Command::new("ls").arg("-l").arg(mounted.path("")).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let size_of = |name: &str| {
        let line = listed.lines().find(|line| line.split_whitespace().nth(8) == Some(name)).unwrap();
        line.split_whitespace().nth(4).unwrap().parse::<usize>().unwrap()
    };
    assert_eq!((size_of("managed"), size_of("ordinary"), size_of("like-a-stub")), (data.len(), 8, 1021), "{listed}");
    let (seen, source) = (mounted.path("managed").metadata().unwrap(), place.path("source").metadata().unwrap());
    assert_eq!((seen.modified().unwrap(), seen.mode()), (source.modified().unwrap(), source.mode()));
    let stub = place.path("data/managed").metadata().unwrap();
    assert_eq!((stub.len(), stub.ino(), stub.uid()), (1021, seen.ino(), seen.uid()));
    assert!(std::fs::read(mounted.path("managed")).unwrap() == data);
    assert!(std::fs::read(mounted.path("link")).unwrap() == data);
    assert_eq!(std::fs::read(mounted.path("ordinary")).unwrap(), b"as it is");
    // A static program would do; nothing of the library is needed here.
    let sum = |path| Command::new("sha256sum").arg(path).output().unwrap().stdout[..64].to_vec();
    assert_eq!(sum(mounted.path("managed")), sum(place.path("source")));
    mounted.interrupt();
}

#[test]
fn what_programs_write_by_the_mount_is_in_the_cluster() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let data = noise((2 << 20) + 99);
    let mut file = File::create(mounted.path("new")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    assert!(place.read("data/new").starts_with(b"stripewise stub 1\n"), "it is managed");
    assert!(of_cluster(&place, "data/new") == data);
    // What others write is seen at once, by opens of before too.
    place.write("source", b"other");
    place.done(&["cp", "source", "data/new"]);
    assert_eq!(std::fs::read(mounted.path("new")).unwrap(), b"other");
    let mut appending = OpenOptions::new().append(true).open(mounted.path("new")).unwrap();
    appending.write_all(b" and more").unwrap();
    assert_eq!(of_cluster(&place, "data/new"), b"other and more");
    drop(file);
    let file = OpenOptions::new().read(true).write(true).open(mounted.path("new")).unwrap();
    file.set_len(5).unwrap();
    file.write_all_at(b"end", 8).unwrap();
    assert_eq!(of_cluster(&place, "data/new"), b"other\0\0\0end");
    let mut file = file;
    assert_eq!(file.seek(SeekFrom::End(-3)).unwrap(), 8);
    let mut end = String::new();
    file.read_to_string(&mut end).unwrap();
    assert_eq!(end, "end");
    let modified = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 5);
    file.set_modified(modified).unwrap();
    drop((file, appending));
    assert_eq!(mounted.path("new").metadata().unwrap().modified().unwrap(), modified);
    std::fs::set_permissions(mounted.path("new"), Permissions::from_mode(0o604)).unwrap();
    assert_eq!(place.path("data/new").metadata().unwrap().mode() & 0o777, 0o604);
    let shell = Command::new("sh")
        .args([
            "-c",
            "echo one > file && echo two >> file && cp file copy && mv copy moved && ln moved linked && cat linked",
        ])
        .current_dir(mounted.path(""))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&shell.stdout), "one\ntwo\n", "{shell:?}");
    assert_eq!(mounted.path("linked").metadata().unwrap().nlink(), 2);
    assert_eq!(of_cluster(&place, "data/moved"), b"one\ntwo\n");
    mounted.interrupt();
}

#[test]
fn names_come_and_go_by_the_mount_and_no_data_stays_behind() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    for name in ["a", "b", "c"] {
        std::fs::write(mounted.path(name), name.repeat(100_000)).unwrap();
    }
    assert_eq!(ids(&place).len(), 3);
    // An open file that loses its name keeps its data.
    let kept = File::options().read(true).write(true).open(mounted.path("a")).unwrap();
    std::fs::rename(mounted.path("b"), mounted.path("a")).unwrap();
    kept.write_all_at(b"still", 100_000).unwrap();
    let mut old = vec![0; 100_005];
    kept.read_exact_at(&mut old, 0).unwrap();
    assert!(old.starts_with(b"aaa") && old.ends_with(b"astill") && kept.metadata().unwrap().nlink() == 0);
    assert_eq!(std::fs::read(mounted.path("a")).unwrap(), b"b".repeat(100_000));
    drop(kept);
    let rename = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(rustix::fs::CWD, mounted.path(from), rustix::fs::CWD, mounted.path(to), flags)
    };
    assert_eq!(rename("a", "c", rustix::fs::RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename("a", "c", rustix::fs::RenameFlags::EXCHANGE).unwrap();
    assert_eq!(std::fs::read(mounted.path("c")).unwrap(), b"b".repeat(100_000));
    assert_eq!(of_cluster(&place, "data/a"), b"c".repeat(100_000));
    std::fs::create_dir(mounted.path("directory")).unwrap();
    std::fs::rename(mounted.path("c"), mounted.path("directory/c")).unwrap();
    std::fs::rename(mounted.path("directory"), mounted.path("other")).unwrap();
    assert_eq!(of_cluster(&place, "data/other/c"), b"b".repeat(100_000));
    let error = std::fs::remove_dir(mounted.path("other")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
    std::fs::remove_file(mounted.path("other/c")).unwrap();
    std::fs::remove_file(mounted.path("a")).unwrap();
    std::fs::remove_dir(mounted.path("other")).unwrap();
    assert_eq!(std::fs::read_dir(mounted.path("")).unwrap().count(), 0);
    mounted.interrupt();
    assert!(ids(&place).is_empty(), "{:?}", ids(&place));
    assert_eq!(std::fs::read_dir(place.path(DATA)).unwrap().count(), 0);
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn two_mounts_and_a_reader_without_any_agree_on_a_file_that_is_written() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let other = Mounted::start_at(&place, "second", &["--read-only"]);
    let writer = File::create(mounted.path("shared")).unwrap();
    let reader = File::open(other.path("shared")).unwrap();
    for round in 0..20u64 {
        let bytes = noise(1 << 16);
        writer.write_all_at(&bytes, round * 50_000).unwrap();
        assert_eq!(reader.metadata().unwrap().len(), round * 50_000 + (1 << 16));
        let mut read = vec![0; 1 << 16];
        reader.read_exact_at(&mut read, round * 50_000).unwrap();
        assert!(read == bytes, "round {round}");
    }
    let refused = File::create(other.path("refused")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    drop((writer, reader));
    other.interrupt();
    mounted.interrupt();
}

#[test]
fn record_locks_exclude_programs_on_the_mount_and_redirected_ones() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(mounted.path("file")).unwrap();
    let mut driver = Driver::start(&place, &[]);
    assert_eq!(driver.ask("globals().update(f=os.open('data/file', os.O_RDWR), fcntl=__import__('fcntl'))"), "None");
    let lock = |operation| rustix::fs::fcntl_lock(&file, operation);
    assert_eq!(driver.ask("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"), "None");
    assert_eq!(lock(FlockOperation::NonBlockingLockExclusive), Err(rustix::io::Errno::AGAIN));
    // One that waits gets the lock when the other gives it up.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock(FlockOperation::LockExclusive));
        assert_eq!(driver.ask("fcntl.lockf(f, fcntl.LOCK_UN)"), "None");
        waiting.join().unwrap().unwrap();
    });
    assert_eq!(driver.ask("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"), "EAGAIN");
    lock(FlockOperation::Unlock).unwrap();
    assert_eq!(driver.ask("fcntl.lockf(f, fcntl.LOCK_SH | fcntl.LOCK_NB)"), "None");
    lock(FlockOperation::NonBlockingLockShared).unwrap();
    // The locks of a process on the mount end with its first close.
    drop(file.try_clone().unwrap());
    assert_eq!(driver.ask("fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)"), "None");
    drop(file);
    assert!(driver.end().status.success());
    mounted.interrupt();
}

/// A lock on the whole file that belongs to the open, not to the process.
fn lock_open(file: &File, waits: bool) -> std::io::Result<()> {
    let range =
        libc::flock { l_type: libc::F_WRLCK as i16, l_whence: libc::SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 };
    let command = if waits { libc::F_OFD_SETLKW } else { libc::F_OFD_SETLK };
    // SAFETY: the descriptor is open, and the kernel reads the range only.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw const range) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
fn locks_that_belong_to_an_open_file_go_with_its_last_descriptor() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let open = || {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).open(mounted.path("file")).unwrap()
    };
    // It stays open all the time.
    let (first, other) = (open(), open());
    lock_open(&first, false).unwrap();
    let copy = first.try_clone().unwrap();
    drop(first);
    assert_eq!(lock_open(&other, false).unwrap_err().raw_os_error(), Some(libc::EAGAIN), "one descriptor is left");
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(lock_open(&other, true).is_ok()).unwrap());
        drop(copy);
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
    });
    // A process's own go with the first of its descriptors, and no others do.
    let lock = |file: &File| rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive);
    let third = open();
    assert_eq!(lock(&third), Err(rustix::io::Errno::AGAIN));
    drop(open());
    assert_eq!(lock(&third), Err(rustix::io::Errno::AGAIN));
    drop(other);
    let begun = Instant::now();
    while lock(&third).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
    drop(third);
    mounted.interrupt();
}

#[test]
fn a_file_that_cannot_be_looked_at_is_listed_or_the_list_fails_though_the_kernel_may_believe_names() {
    let Some(place) = place() else { return };
    // A stub whose data is not to be had: another cluster's.
    let other = Place::with_cluster();
    std::fs::create_dir(other.path(DATA)).unwrap();
    other.done(&["manage", DATA]);
    other.write("source", b"data");
    other.done(&["cp", "source", "data/file"]);
    place.write("data/foreign", &other.read("data/file"));
    (0..20).for_each(|number| place.write(&format!("data/plain-{number}"), b"text"));
    let list = |mounted: &Mounted| -> std::io::Result<Vec<_>> {
        std::fs::read_dir(mounted.path(""))?.map(|entry| Ok(entry?.file_name())).collect()
    };
    for cache in ["0s", "10s"] {
        let mounted = Mounted::start(&place, &["--cache", cache]);
        assert_eq!(std::fs::read(mounted.path("foreign")).unwrap_err().raw_os_error(), Some(libc::EIO));
        // The kernel asks for attributes along with names again once somebody has asked for them.
        for _ in 0..3 {
            match list(&mounted) {
                Ok(names) => assert!(names.len() == 21 && names.iter().any(|name| name == "foreign"), "{names:?}"),
                Err(error) => assert_eq!((cache, error.raw_os_error()), ("10s", Some(libc::EIO)), "{error}"),
            }
            assert_eq!(mounted.path("foreign").metadata().unwrap_err().raw_os_error(), Some(libc::EIO));
            assert_eq!(mounted.path("plain-7").metadata().unwrap().len(), 4);
        }
        mounted.interrupt();
    }
}
