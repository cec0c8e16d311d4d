//! Asynchronous reads and writes (libaio) of files that others extend: the kernel goes by the size that it has heard of last.

use crate::bed::{Mounted, place};
use crate::driver::Driver;
use crate::support::{Place, noise};
use std::fs::{File, OpenOptions, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const READ: u16 = 0;
const WRITE: u16 = 1;
/// Beyond the largest file.
const NOWHERE: i64 = 1 << 61;
const PATIENCE: Duration = Duration::from_secs(60);

/// `struct iocb`.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: u32,
    operation: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    other: i64,
}

/// Reads or writes by one asynchronous request, and returns its result: a number of bytes or a negative errno.
fn request(operation: u16, file: &File, buffer: &mut [u8], offset: i64) -> i64 {
    let (file, bytes) = (file.as_raw_fd() as u32, buffer.len() as u64);
    let mut request =
        Request { operation, file, buffer: buffer.as_mut_ptr() as u64, bytes, offset, ..Request::default() };
    let (mut context, mut requests, mut event) = (0u64, [&raw mut request], Event::default());
    // SAFETY: the structures are the kernel's, and buffer and event live until the context is destroyed, which waits for the request.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_io_setup, 1, &raw mut context), 0);
        let submitted = libc::syscall(libc::SYS_io_submit, context, 1, requests.as_mut_ptr());
        assert_eq!(submitted, 1, "{}", std::io::Error::last_os_error());
        let none = std::ptr::null::<libc::timespec>();
        assert_eq!(libc::syscall(libc::SYS_io_getevents, context, 1, 1, &raw mut event, none), 1);
        libc::syscall(libc::SYS_io_destroy, context);
    }
    event.result
}

/// A managed file, and one that is not and that the kernel does not write itself; empty, and open by the mount.
fn open_files(place: &Place) -> (Mounted, [(&'static str, File); 2]) {
    place.write("data/ordinary", b"");
    std::fs::set_permissions(place.path("data/ordinary"), Permissions::from_mode(0o2644)).unwrap();
    let mounted = Mounted::start(place, &[]);
    let mut options = OpenOptions::new();
    let open = |name| options.read(true).write(true).create(true).truncate(false).open(mounted.path(name)).unwrap();
    let files = ["managed", "ordinary"].map(open);
    let [managed, ordinary] = files;
    (mounted, [("data/managed", managed), ("data/ordinary", ordinary)])
}

#[test]
fn an_asynchronous_write_that_fails_takes_nothing_away_that_others_wrote() {
    let Some(place) = place() else { return };
    let (mounted, files) = open_files(&place);
    let mut driver = Driver::start(&place, &[]);
    let mut size = 0;
    for round in 0..20 {
        for (name, file) in &files {
            let write = format!("os.pwrite(os.open('{name}', os.O_RDWR), b'x' * 262144, {size})");
            assert_eq!(driver.ask(&write), "262144");
            // Of one request, and of several.
            let mut bytes = noise(if round % 2 == 0 { 4096 } else { 3 << 20 });
            assert!(request(WRITE, file, &mut bytes, NOWHERE) < 0);
            assert_eq!(driver.ask(&format!("os.stat('{name}').st_size")), (size + 262_144).to_string(), "{name}");
        }
        size += 262_144;
    }
    // A program's own truncation is one, after a failure too, also to that size after another write.
    for (name, file) in &files {
        assert!(request(WRITE, file, &mut noise(4096), NOWHERE) < 0);
        assert_eq!(request(WRITE, file, &mut noise(4096), size), 4096);
        file.set_len(size as u64).unwrap();
        assert_eq!(driver.ask(&format!("os.stat('{name}').st_size")), size.to_string(), "{name}");
        assert!(std::os::unix::fs::FileExt::write_at(file, b"x", NOWHERE as u64).is_err());
        file.set_len(100).unwrap();
        assert_eq!(driver.ask(&format!("os.stat('{name}').st_size")), "100", "{name}");
    }
    drop(files);
    assert!(driver.end().status.success());
    mounted.interrupt();
    assert_eq!(place.say(&["check"]).status, 0);
}

#[test]
fn asynchronous_reads_find_what_others_appended() {
    let Some(place) = place() else { return };
    let (mounted, files) = open_files(&place);
    let mut driver = Driver::start(&place, &[]);
    for (name, file) in &files {
        for part in 0..3 {
            let appended = format!("os.write(os.open('{name}', os.O_RDWR | os.O_APPEND), b'{part}' * 5000)");
            assert_eq!(driver.ask(&appended), "5000");
            let (begun, mut bytes) = (Instant::now(), [0; 5000]);
            // Nobody asks for the size.
            while request(READ, file, &mut bytes, part * 5000) != 5000 {
                assert!(begun.elapsed() < PATIENCE, "{name} ends before part {part}");
                std::thread::yield_now();
            }
            assert_eq!(bytes, [b'0' + part as u8; 5000], "{name}");
        }
    }
    drop(files);
    assert!(driver.end().status.success());
    mounted.interrupt();
}
