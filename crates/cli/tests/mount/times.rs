//! Modification times on a mount: of writes, and those that programs set. The kernel tells the mount's process of the end of an open after `close` has returned.

use crate::bed::{Mounted, place};
use crate::driver::Driver;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const FILES: u64 = 300;

/// Long past, and another one of each number.
fn past(number: u64) -> SystemTime {
    UNIX_EPOCH + Duration::new(1_000_000_000 + number, 7)
}

/// By the name alone.
fn set_modified(path: &Path, time: SystemTime) {
    let since = time.duration_since(UNIX_EPOCH).unwrap();
    let time = rustix::fs::Timespec { tv_sec: since.as_secs() as i64, tv_nsec: i64::from(since.subsec_nanos()) };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().unwrap().modified().unwrap()
}

#[test]
fn a_time_that_is_set_by_the_name_after_a_close_stays() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let path = |thread: u64, number: u64| mounted.path(&format!("{thread}-{number}"));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..FILES {
                    std::fs::write(path(thread, number), b"written").unwrap();
                    set_modified(&path(thread, number), past(number));
                    assert_eq!(modified(&path(thread, number)), past(number), "{thread}-{number}");
                }
            });
        }
    });
    for (thread, number) in (0..4).flat_map(|thread| (0..FILES).map(move |number| (thread, number))) {
        assert_eq!(modified(&path(thread, number)), past(number), "{thread}-{number}, later");
    }
    // And one that a redirected program sets.
    let mut driver = Driver::start(&place, &[]);
    for number in 0..FILES {
        std::fs::write(path(0, number), b"once more").unwrap();
        assert_eq!(driver.ask(&format!("os.utime('data/0-{number}', ns=(7, 7))")), "None");
    }
    for number in 0..FILES {
        assert_eq!(modified(&path(0, number)), UNIX_EPOCH + Duration::from_nanos(7), "{number}");
    }
    assert!(driver.end().status.success());
    mounted.interrupt();
}

#[test]
fn the_time_of_a_write_is_seen_after_the_close_however_long_the_kernel_believes_attributes() {
    for words in [&[][..], &["--cache", "60s"]] {
        let Some(place) = place() else { return };
        let mounted = Mounted::start(&place, words);
        let begun = SystemTime::now() - Duration::from_secs(1);
        let path = |number: u64| mounted.path(&number.to_string());
        for number in 0..FILES {
            std::fs::write(path(number), b"written").unwrap();
            set_modified(&path(number), past(number));
        }
        for number in 0..FILES {
            assert_eq!(modified(&path(number)), past(number));
            let mut file = File::options().append(true).open(path(number)).unwrap();
            file.write_all(b" and more").unwrap();
            drop(file);
            assert!(modified(&path(number)) > begun, "{number} {words:?}");
        }
        mounted.interrupt();
    }
}

#[test]
fn a_close_gives_the_stub_the_time_of_the_write_while_others_have_the_file_open() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    let path = mounted.path("file");
    std::fs::write(&path, b"written").unwrap();
    let kept = File::options().write(true).open(&path).unwrap();
    set_modified(&path, past(0));
    std::fs::write(&path, b"once more").unwrap();
    assert!(modified(&path) > past(0));
    assert_eq!(modified(&place.path("data/file")), modified(&path));
    // A time that is set is the later one, and a write after it later still.
    set_modified(&path, past(1));
    assert_eq!((modified(&path), modified(&place.path("data/file"))), (past(1), past(1)));
    (&kept).write_all(b"at last").unwrap();
    assert!(modified(&path) > past(1));
    drop(kept);
    mounted.interrupt();
}
