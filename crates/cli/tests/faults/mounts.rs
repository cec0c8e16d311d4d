//! Real mounts that fill up, become read-only or go away under a running program. Needs a user who may mount.

use crate::driver::Driver;
use crate::support::{Place, noise};
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_stripewise");

/// Directories for servers `a` (hdd) and `b` (ssd), managed directories on each, and the line that mounts `b` with 6 MiB and prepares all.
fn mounted() -> Option<(Place, String)> {
    let place = Place::new();
    for name in ["a", "b", "on-a", "on-b"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    place.write("data", &noise(3 << 20));
    let mount = "mount -t tmpfs -o size=6m,mode=755 none b";
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", mount]).current_dir(place.path("")).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        eprintln!("not tried: this user cannot mount a small tmpfs");
        return None;
    }
    let before = format!(
        "{mount}; S={BINARY}; $S init --region 1MiB --server a=hdd:a --server b=ssd:b >&2; \
         $S manage on-a --class hdd; $S manage on-b --class ssd; $S cp data on-b/file; $S cp data on-a/file"
    );
    Some((place, before))
}

fn open(name: &str) -> String {
    format!("(f := os.open('{name}', os.O_RDWR | os.O_CREAT, 0o644)) >= 0")
}

/// The program's own view of `b`'s and `a`'s file, as a sum of their bytes.
const SUM: &str = "hashlib.sha256(os.pread(f, 3 << 20, 0)).hexdigest()";

#[test]
fn a_mount_that_is_full_sends_regions_to_the_disks() {
    let Some((place, before)) = mounted() else { return };
    let mut driver = Driver::start_with_mounts(&place, &before);
    assert_eq!(driver.ask(&open("on-b/new")), "True");
    // Another program fills the mount beside us.
    assert!(driver.shell("head -c 2m /dev/zero > b/foreign").contains("status 0"));
    assert_eq!(driver.ask("os.pwrite(f, b'5' * (4 << 20), 0)"), (4 << 20).to_string());
    assert_eq!(driver.ask("len(os.pread(f, 5 << 20, 0).strip(b'5'))"), "0");
    let stat = driver.shell(&format!("{BINARY} stat on-b/new"));
    assert!(stat.contains("fallback: its servers were full"), "{stat}");
    let checked = driver.shell(&format!("{BINARY} check"));
    assert!(checked.contains("lie in the fallback layout") && checked.contains("status 1"), "{checked}");
    assert!(driver.end().status.success());
}

/// Regions promise their room to servers, and others fill the mount all the same.
#[test]
fn a_region_moves_from_a_mount_that_others_fill_and_the_write_goes_on() {
    let Some((place, before)) = mounted() else { return };
    let mut driver = Driver::start_with_mounts(&place, &before);
    assert_eq!(driver.ask(&open("on-b/new")), "True");
    assert_eq!(driver.ask("os.pwrite(f, b'1' * 300000, 0)"), "300000");
    assert!(driver.shell("head -c 8m /dev/zero > b/foreign").contains("status 1"), "the mount is full");
    assert_eq!(driver.ask("os.pwrite(f, b'2' * 600000, 200000)"), "600000");
    assert_eq!(driver.ask("os.pread(f, 1 << 20, 0) == b'1' * 200000 + b'2' * 600000"), "True");
    let checked = driver.shell(&format!("{BINARY} check"));
    assert!(checked.contains("lie in the fallback layout"), "{checked}");
    assert!(driver.end().status.success());
}

#[test]
fn a_mount_that_becomes_read_only_fails_writes_there_and_nothing_else() {
    let Some((place, before)) = mounted() else { return };
    let mut driver = Driver::start_with_mounts(&place, &before);
    // Objects that are open for writing would keep the mount from it.
    assert_eq!(driver.ask("(f := os.open('on-b/file', os.O_RDONLY)) >= 0"), "True");
    let sum = driver.ask(SUM);
    let remounted = driver.shell("mount -o remount,ro b");
    assert!(remounted.contains("status 0"), "{remounted}");
    assert_eq!(driver.ask(SUM), sum);
    assert_eq!(driver.ask(&open("on-b/file")), "True");
    assert_eq!(driver.ask(SUM), sum);
    assert_eq!(driver.ask("os.pwrite(f, b'x', 1 << 20)"), "EIO");
    assert_eq!(driver.ask("os.fstat(f).st_size"), (3 << 20).to_string());
    // A region to come is placed where it can be.
    assert_eq!(driver.ask("os.pwrite(f, b'x', 7 << 20)"), "1");
    assert_eq!(driver.ask("os.fstat(f).st_size"), ((7 << 20) + 1).to_string());
    assert_eq!(driver.ask(&open("on-a/file")), "True");
    assert_eq!(driver.ask("os.pwrite(f, b'x', 7 << 20)"), "1");
    assert_eq!(driver.ask(SUM), sum);
    let checked = driver.shell(&format!("{BINARY} check"));
    assert!(checked.contains("is not writable") && checked.contains("status 1"), "{checked}");
    let said = String::from_utf8(driver.end().stderr).unwrap();
    assert!(said.contains("server b: ") && said.contains("is not writable"), "{said}");
    assert!(said.contains("mount it read-write"), "{said}");
}

#[test]
fn a_mount_that_goes_away_gives_errors_to_its_users_only() {
    let Some((place, before)) = mounted() else { return };
    let mut driver = Driver::start_with_mounts(&place, &before);
    assert_eq!(driver.ask(&open("on-a/file")), "True");
    let sum = driver.ask(SUM);
    assert!(driver.shell("umount -l b").contains("status 0"));
    for _ in 0..2 {
        // Not opened before, by a program that comes when the mount is gone.
        let read = driver.shell(&format!("{BINARY} run -- cat on-b/file > got"));
        assert!(read.contains("cat: on-b/file: Input/output error") && read.contains("status 1"), "{read}");
        assert!(
            read.contains("server b: ") && read.contains("is not mounted or was emptied; mount it again"),
            "{read}"
        );
    }
    assert_eq!(place.read("got"), b"");
    assert_eq!(driver.ask(SUM), sum);
    assert_eq!(driver.ask("os.pwrite(f, b'x', 7 << 20)"), "1");
    assert!(driver.end().status.success());
    assert_eq!(std::fs::read_dir(place.path("b")).unwrap().count(), 0, "nothing is written below the mount point");
}
