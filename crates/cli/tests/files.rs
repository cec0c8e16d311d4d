//! Managed files by the command alone: in, out, between, looked at, removed.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use support::{Place, noise};

#[test]
fn what_is_copied_in_is_what_comes_out() {
    let place = Place::with_cluster();
    let data = noise((3 << 20) + 4567);
    place.write("data", &data);
    std::fs::set_permissions(place.path("data"), std::fs::Permissions::from_mode(0o640)).unwrap();
    place.done(&["cp", "--managed", "data", "managed"]);
    assert!(place.read("managed").starts_with(b"stripewise stub 1\n"));
    assert_eq!(place.command(&["cat", "managed"]).output().unwrap().stdout, data);
    place.done(&["cp", "managed", "back"]);
    assert_eq!(place.read("back"), data);
    let (first, last) = (place.path("data").metadata().unwrap(), place.path("back").metadata().unwrap());
    assert_eq!(first.modified().unwrap(), last.modified().unwrap());
    assert_eq!((first.mode(), last.mode() & 0o777), (last.mode(), 0o640));
    // From one managed file to another.
    place.done(&["cp", "--managed", "managed", "second"]);
    assert_eq!(place.command(&["cat", "second"]).output().unwrap().stdout, data);
}

#[test]
fn a_managed_file_that_is_overwritten_keeps_its_placement_and_frees_the_old_data() {
    let place = Place::with_cluster();
    place.write("data", &noise(2 << 20));
    place.write("other", &noise(5 << 20)[1 << 20..]);
    place.done(&["manage", "h0", "--class", "ssd", "--stripe", "128KiB"]);
    place.done(&["cp", "data", "h0/file"]);
    let before = place.json(&["stat", "h0/file"])["files"][0].clone();
    assert_eq!(before["spans"][0]["layout"], "<0B,128KiB>");
    place.done(&["unmanage", "h0"]);
    place.done(&["cp", "other", "h0/file"]);
    let after = place.json(&["stat", "h0/file"])["files"][0].clone();
    assert_eq!(
        (&after["spans"][0]["layout"], &after["size_bytes"]),
        (&before["spans"][0]["layout"], &(4u64 << 20).into())
    );
    assert_ne!(after["file"], before["file"]);
    assert_eq!(place.json(&["ls"])["files"].as_array().unwrap().len(), 1);
    assert_eq!(place.command(&["cat", "h0/file"]).output().unwrap().stdout, place.read("other"));
}

#[test]
fn listing_and_stat_agree_with_the_layout() {
    let place = Place::with_cluster();
    place.write("data", &noise((2 << 20) + 65_536));
    place.done(&["cp", "--managed", "data", "managed"]);
    let listed = place.json(&["ls"])["files"][0].clone();
    assert_eq!(listed["size_bytes"], (2 << 20) + 65_536);
    assert_eq!(listed["regions_placed"], 3);
    let stat = place.json(&["stat", "managed"])["files"][0].clone();
    assert_eq!(stat["file"], listed["file"]);
    // Two regions of 1 MiB over four servers, and one stripe of the third.
    let on =
        |name: &str| stat["servers"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap()["bytes"].clone();
    assert_eq!((on("h0"), on("s1")), (((512 << 10) + 65_536).into(), (512 << 10).into()));
    let text = place.done(&["stat", "managed"]);
    for expected in
        ["size      2.1 MiB (2,162,688 bytes)", "regions   3 of 1 MiB, 3 placed", "  0..2     <64KiB,64KiB>"]
    {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    assert!(place.done(&["ls"]).starts_with("file              "), "a table with headings");
    assert_eq!(place.json(&["ls", "h0"])["files"].as_array().unwrap().len(), 0);
}

#[test]
fn removed_and_released_files_leave_no_objects() {
    let place = Place::with_cluster();
    let data = noise(1 << 20);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "one"]);
    place.done(&["cp", "--managed", "data", "two"]);
    place.done(&["rm", "one"]);
    assert!(!place.path("one").exists());
    assert_eq!(place.say(&["rm", "one"]).status, 2);
    place.done(&["rm", "--force", "one"]);
    place.done(&["release", "two"]);
    assert_eq!(place.read("two"), data);
    assert_eq!(
        place.say(&["ls"]).err,
        "stripewise ls: no managed files; `stripewise apply` or `stripewise manage` make some\n"
    );
    for server in ["h0", "h1", "s0", "s1"] {
        let left = std::fs::read_dir(place.path(server).join("stripewise-objects")).unwrap();
        let files: usize = left.map(|entry| std::fs::read_dir(entry.unwrap().path()).map_or(1, Iterator::count)).sum();
        assert_eq!(files, 0, "{server} still holds objects");
    }
}

#[test]
fn a_copy_of_a_stub_is_refused_and_frees_nothing() {
    let place = Place::with_cluster();
    let data = noise(1 << 20);
    place.write("data", &data);
    place.done(&["cp", "--managed", "data", "managed"]);
    std::fs::copy(place.path("managed"), place.path("copy")).unwrap();
    for words in [["stat", "copy"], ["cat", "copy"], ["rm", "copy"]] {
        let said = place.say(&words);
        assert_eq!(said.status, 2);
        assert!(said.err.contains("copy of the stub") && said.err.contains("stripewise check"), "{}", said.err);
    }
    assert!(place.path("copy").exists());
    assert_eq!(place.command(&["cat", "managed"]).output().unwrap().stdout, data);
}

#[test]
fn managed_directories_are_listed() {
    let place = Place::with_cluster();
    std::fs::create_dir(place.path("out")).unwrap();
    place.done(&["manage", "out"]);
    assert_eq!(place.done(&["manage"]), "what       path\ndirectory  HERE/out\n");
    place.done(&["unmanage", "out"]);
    assert_eq!(place.done(&["manage"]), "");
}
