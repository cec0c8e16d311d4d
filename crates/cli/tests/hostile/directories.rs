//! `check --repair` by root, of files in a user's directories.

use crate::support::{Place, noise};
use crate::user::{USER, is_root, is_untouched, make_roots, make_users};
use rustix::fs::{CWD, FileType, Mode, RenameFlags};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Root's cluster, which manages the user's file `theirs/passwd`.
fn cluster() -> (Place, Vec<u8>) {
    let place = Place::with_cluster();
    make_users(&place, "theirs");
    make_roots(&place, "roots");
    let data = noise(300_000);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "theirs/passwd"]);
    chown(place.path("theirs/passwd"), Some(USER), Some(USER)).unwrap();
    let followed = place.done(&["check", "--repair"]);
    assert!(followed.contains("owner of HERE/theirs/passwd changed"), "{followed}");
    (place, data)
}

fn is_whole(place: &Place, data: &[u8]) {
    place.done(&["cp", "--ordinary", "theirs/passwd", "copy"]);
    assert!(place.read("copy") == data);
}

/// The repair went by the path: it moved the `passwd` of the other directory aside and made the user's stub there.
#[test]
fn a_link_in_the_place_of_a_users_directory_leads_the_repair_nowhere() {
    if !is_root() {
        return;
    }
    let (place, data) = cluster();
    std::fs::rename(place.path("theirs"), place.path("moved")).unwrap();
    symlink(place.path("roots"), place.path("theirs")).unwrap();
    let said = place.say(&["check", "--repair"]);
    is_untouched(&place, "roots");
    assert_eq!(said.status, 1, "{}{}", said.out, said.err);
    let told = "HERE/theirs/passwd: a symbolic link stands in the place of one of its directories";
    assert!(said.out.contains(told), "{}{}", said.out, said.err);
    std::fs::remove_file(place.path("theirs")).unwrap();
    std::fs::rename(place.path("moved"), place.path("theirs")).unwrap();
    assert_eq!(place.say(&["check", "--repair"]).status, 0);
    is_whole(&place, &data);
}

/// Between a look and the deed there is always time for another rename.
#[test]
fn a_directory_that_changes_places_with_a_link_all_the_time_leads_the_repair_nowhere() {
    if !is_root() {
        return;
    }
    let (place, data) = cluster();
    symlink(place.path("roots"), place.path("link")).unwrap();
    let theirs = std::fs::File::open(place.path("theirs")).unwrap();
    // Wherever the user's directory stands at the moment.
    let stub = PathBuf::from(format!("/proc/self/fd/{}/passwd", theirs.as_raw_fd()));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (theirs, link) = (place.path("theirs"), place.path("link"));
            let mut swapped = false;
            while !over.load(Ordering::Relaxed) || swapped {
                rustix::fs::renameat_with(CWD, &theirs, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swapped = !swapped;
            }
        });
        for round in 0..12 {
            match round % 3 {
                0 => drop(std::fs::remove_file(&stub)),
                1 => {
                    let _ = std::fs::remove_file(&stub);
                    std::fs::write(&stub, "another file").unwrap();
                }
                _ => std::fs::write(&stub, "another text").unwrap(),
            }
            place.say(&["check", "--repair"]);
        }
        over.store(true, Ordering::Relaxed);
    });
    is_untouched(&place, "roots");
    // Another file in the stub's place is left alone; without it the stub comes back.
    std::fs::remove_file(place.path("theirs/passwd")).unwrap();
    place.say(&["check", "--repair"]);
    is_whole(&place, &data);
}

/// The repair acted with root's rights and gave the user a file where the user may not even look.
#[test]
fn a_stub_is_restored_only_where_its_owner_could_create_it() {
    if !is_root() {
        return;
    }
    let (place, data) = cluster();
    std::fs::remove_file(place.path("theirs/passwd")).unwrap();
    chown(place.path("theirs"), Some(0), Some(0)).unwrap();
    let said = place.say(&["check", "--repair"]);
    assert_eq!(said.status, 1, "{}{}", said.out, said.err);
    assert!(said.out.contains("user 65534, whose file it is, cannot create the stub"), "{}{}", said.out, said.err);
    assert_eq!(std::fs::read_dir(place.path("theirs")).unwrap().count(), 0);
    chown(place.path("theirs"), Some(USER), Some(USER)).unwrap();
    assert_eq!(place.say(&["check", "--repair"]).status, 0);
    let stub = place.path("theirs/passwd").metadata().unwrap();
    assert_eq!((stub.uid(), stub.gid()), (USER, USER));
    is_whole(&place, &data);
}

/// A FIFO at the name under which a stub is restored made the broker wait for ever; a link there was a file elsewhere.
#[test]
fn whatever_stands_at_a_temporary_name_neither_stops_nor_leads_the_repair() {
    if !is_root() {
        return;
    }
    let (place, data) = cluster();
    let stub = String::from_utf8(place.read("theirs/passwd")).unwrap();
    let file = stub.lines().find_map(|line| line.strip_prefix("file ")).expect("a stub says its file").to_owned();
    let temporary = place.path(&format!("theirs/.stripewise-stub-{file}"));
    let kinds: [(&str, &dyn Fn()); 4] = [
        ("a FIFO", &|| rustix::fs::mknodat(CWD, &temporary, FileType::Fifo, Mode::from_raw_mode(0o666), 0).unwrap()),
        ("a link", &|| symlink(place.path("roots/passwd"), &temporary).unwrap()),
        ("a file", &|| std::fs::write(&temporary, "left by a crash").unwrap()),
        ("a directory", &|| std::fs::create_dir(&temporary).unwrap()),
    ];
    for (kind, make) in kinds {
        std::fs::remove_file(place.path("theirs/passwd")).unwrap();
        make();
        std::os::unix::fs::lchown(&temporary, Some(USER), Some(USER)).unwrap();
        let said = place.say(&["check", "--repair"]);
        is_untouched(&place, "roots");
        if kind == "a directory" {
            assert!(said.out.contains("cannot create the stub"), "{kind}: {}{}", said.out, said.err);
            std::fs::remove_dir(&temporary).unwrap();
            assert_eq!(place.say(&["check", "--repair"]).status, 0);
        }
        assert!(!temporary.exists(), "{kind}");
        is_whole(&place, &data);
        std::fs::remove_file(place.path("copy")).unwrap();
    }
}
