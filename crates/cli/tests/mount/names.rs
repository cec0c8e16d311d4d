//! Names and sizes on a mount that other programs change beneath it, and how much a listing asks the process for them.

use crate::bed::{DATA, Mounted, place};
use crate::driver::Driver;
use crate::support::Place;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The size of what has that name; none if nothing has.
fn size(path: &Path) -> Option<u64> {
    match path.symlink_metadata() {
        Ok(found) => Some(found.len()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::NotFound, "{}", path.display());
            None
        }
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Some managed files below a directory that is two directories from the mounted one.
fn fill(place: &Place, count: usize) {
    std::fs::create_dir_all(place.path("data/run/output")).unwrap();
    std::fs::create_dir(place.path("source")).unwrap();
    for number in 0..count {
        place.write(&format!("source/file-{number}"), b"text");
    }
    let sources: Vec<_> = (0..count).map(|number| format!("source/file-{number}")).collect();
    let words: Vec<_> =
        ["cp"].into_iter().chain(sources.iter().map(String::as_str)).chain(["data/run/output"]).collect();
    place.done(&words);
}

#[test]
fn a_listing_asks_for_each_file_and_not_for_the_directories_of_its_path_each_time() {
    const FILES: usize = 400;
    let Some(place) = place() else { return };
    fill(&place, FILES);
    let mounted = Mounted::start(&place, &[]);
    let directory = mounted.path("run/output");
    // Of several lists, as what holds for ticks may end with every file on a busy machine.
    let is_done_with = |requests_of_each: f64, list: &dyn Fn()| {
        let mut least = f64::MAX;
        let begun = Instant::now();
        while least > requests_of_each && begun.elapsed() < PATIENCE {
            let before = mounted.reads();
            list();
            least = least.min((mounted.reads() - before) as f64 / FILES as f64);
        }
        assert!(least <= requests_of_each, "{least}");
    };
    is_done_with(1.5, &|| {
        let listed = std::fs::read_dir(&directory).unwrap();
        assert_eq!(
            listed.map(|entry| size(&directory.join(entry.unwrap().file_name())).unwrap()).sum::<u64>(),
            4 * FILES as u64
        );
    });
    // `ls` looks each up twice, and asks for its access control list.
    is_done_with(3.5, &|| {
        let listed = Command::new("ls").arg("-l").arg(&directory).output().unwrap();
        assert_eq!(listed.stdout.iter().filter(|byte| **byte == b'\n').count(), FILES + 1);
    });
    mounted.interrupt();
}

#[test]
fn what_becomes_of_names_and_sizes_beneath_a_mount_is_seen_at_once_while_their_directory_is_listed_too() {
    let Some(place) = place() else { return };
    fill(&place, 3);
    let mounted = Mounted::start(&place, &[]);
    let at = |name: &str| mounted.path("run/output").join(name);
    let mut driver = Driver::start(&place, &[]);
    let mut tell = |step: &str| assert_eq!(driver.ask(step), "None", "{step}");
    tell("os.chdir('data/run/output')");
    tell("globals().update(put=lambda name, text: open(name, 'w').write(text) and None)");
    for round in 0..40usize {
        // Every other time with the directory open.
        let listing = (round % 2 == 0).then(|| {
            let mut listing = std::fs::read_dir(mounted.path("run/output")).unwrap();
            listing.next().unwrap().unwrap();
            listing
        });
        let see = |name: &str, expected: Option<usize>| {
            assert_eq!(size(&at(name)), expected.map(|size| size as u64), "{name} in round {round}");
        };
        see("new", None);
        tell(&format!("put('new', {:?})", "n".repeat(round + 1)));
        see("new", Some(round + 1));
        tell("os.rename('new', 'moved')");
        see("new", None);
        see("moved", Some(round + 1));
        tell("os.truncate('moved', 1000)");
        see("moved", Some(1000));
        tell("put('other', 'other')");
        see("other", Some(5));
        tell("os.replace('other', 'moved')");
        see("moved", Some(5));
        assert_eq!(std::fs::read(at("moved")).unwrap(), b"other");
        tell("os.remove('moved')");
        see("moved", None);
        see("other", None);
        // By a program that is not redirected.
        let ordinary = |name: &str| place.path("data/run/output").join(name);
        std::fs::write(ordinary("plain"), "p".repeat(round + 7)).unwrap();
        see("plain", Some(round + 7));
        std::fs::rename(ordinary("plain"), ordinary("renamed")).unwrap();
        see("plain", None);
        see("renamed", Some(round + 7));
        std::fs::remove_file(ordinary("renamed")).unwrap();
        see("renamed", None);
        let listed = std::fs::read_dir(mounted.path("run/output")).unwrap();
        assert_eq!(listed.count(), 3, "in round {round}");
        drop(listing);
    }
    assert!(driver.end().status.success());
    mounted.interrupt();
}

#[test]
fn directories_that_change_their_names_beneath_a_mount_are_seen_at_once_or_ticks_later_while_they_are_listed() {
    let Some(place) = place() else { return };
    fill(&place, 3);
    let mounted = Mounted::start(&place, &[]);
    let (old, new) = (mounted.path("run/output"), mounted.path("run/moved"));
    let mut driver = Driver::start(&place, &[]);
    let mut tell = |step: &str| assert_eq!(driver.ask(step), "None", "{step}");
    tell("os.chdir('data/run')");
    for round in 0..40u32 {
        assert_eq!(size(&old.join("file-1")), Some(4), "round {round}");
        tell("os.rename('output', 'moved')");
        assert_eq!(size(&old), None, "round {round}");
        assert_eq!((size(&old.join("file-1")), size(&new.join("file-1"))), (None, Some(4)), "round {round}");
        tell("os.rename('moved', 'output')");
    }
    for round in 0..10u32 {
        let mut listing = std::fs::read_dir(&old).unwrap();
        listing.next().unwrap().unwrap();
        let number = old.metadata().unwrap().ino();
        tell("os.rename('output', 'moved')");
        // Under its new name it is there at once, and under the old one until the ticks are over.
        assert_eq!(size(&new.join("file-1")), Some(4), "round {round}");
        wait_until(|| size(&old.join("file-1")).is_none() && size(&old).is_none());
        // Another takes its place.
        tell("os.mkdir('output')");
        assert_ne!(old.metadata().unwrap().ino(), number);
        tell("os.rmdir('output')");
        drop(listing);
        tell("os.rename('moved', 'output')");
        assert_eq!(size(&old.join("file-1")), Some(4), "round {round}");
    }
    // Nor is it old for longer that a directory may be used.
    let mut change = |step: &str, mode: u32| {
        tell(step);
        wait_until(|| mounted.path("run").metadata().unwrap().mode() & 0o777 == mode);
    };
    change("os.chmod('.', 0o700)", 0o700);
    change("os.chmod('.', 0o755)", 0o755);
    let before = mounted.path("").metadata().unwrap().mtime_nsec();
    tell("os.mkdir('../made')");
    wait_until(|| mounted.path("").metadata().unwrap().mtime_nsec() != before);
    assert!(driver.end().status.success());
    assert!(place.path(DATA).join("made").is_dir());
    mounted.interrupt();
}

#[test]
fn a_file_that_lost_its_last_name_since_it_was_looked_up_is_truncated_as_if_before() {
    let Some(place) = place() else { return };
    let mounted = Mounted::start(&place, &[]);
    for by_the_mount in [true, false] {
        std::fs::write(mounted.path("file"), [b'.'; 5000]).unwrap();
        let held = rustix::fs::open(mounted.path("file"), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        std::fs::write(mounted.path("new"), b"new").unwrap();
        match by_the_mount {
            true => std::fs::rename(mounted.path("new"), mounted.path("file")).unwrap(),
            false => {
                let mut driver = Driver::start(&place, &[]);
                assert_eq!(driver.ask("os.rename('data/new', 'data/file')"), "None");
                assert!(driver.end().status.success());
            }
        }
        // What a call by a name does when the name is replaced after the look.
        let path = std::ffi::CString::new(format!("/proc/self/fd/{}", held.as_raw_fd())).unwrap();
        // SAFETY: a path and a length.
        let truncated = unsafe { libc::truncate(path.as_ptr(), 10) };
        assert_eq!(truncated, 0, "{}", std::io::Error::last_os_error());
        assert_eq!(std::fs::read(mounted.path("file")).unwrap(), b"new");
    }
    mounted.interrupt();
}
