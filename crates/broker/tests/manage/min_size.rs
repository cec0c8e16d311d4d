//! Files that become ordinary or managed for their size, and the faults that may come between.
//!
//! The broker looks at files in the order in which they were closed: one that was closed later and has changed proves that those before it were looked at.

use crate::cluster::{REGION, Testbed};
use crate::interrupted::{check_after, run_child};
use crate::moves::{connect, managed_bytes, pattern};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stripewise_broker::{BrokerHandle, BrokerOptions};
use stripewise_layout::{ByteCount, FileOffset};
use stripewise_store::client::Client;
use stripewise_store::manage::{Moving, apply};
use stripewise_store::protocol::{Admin, Reply, Request};
use stripewise_store::stub::STUB_BYTES;

const MIN_BYTES: u64 = REGION;

/// Files change soon after their last close.
pub fn at_once() -> BrokerOptions {
    BrokerOptions { idle_after: Some(Duration::from_millis(1)), ..BrokerOptions::default() }
}

fn start(testbed: &Testbed) -> (BrokerHandle, Client) {
    let broker = testbed.start_with(at_once());
    let client = connect(testbed);
    (broker, client)
}

pub fn set_min_size(testbed: &Testbed, client: &Client, min_bytes: Option<u64>) {
    let directory = testbed.root().join("data").to_str().unwrap().to_owned();
    let admin = Admin::Manage { directory, placement: testbed.placement(), min_bytes };
    assert_eq!(client.request(&Request::Admin(admin), &[]).unwrap().0, Reply::Done);
}

/// By its size: an open would disturb the change that is waited for.
pub fn has_stub(path: &Path) -> bool {
    std::fs::metadata(path).unwrap().len() == STUB_BYTES as u64
}

fn wait_for(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

/// A managed file as a program leaves it that writes and closes it.
fn create(testbed: &Testbed, client: &Client, name: &str, bytes: &[u8]) -> PathBuf {
    let path = testbed.data(name);
    let stub = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    let striped = client.create(&path, stub.as_fd()).unwrap();
    client.linked(striped.id()).unwrap();
    striped.write_at(FileOffset(0), &[std::io::IoSlice::new(bytes)]).unwrap();
    striped.close().unwrap();
    path
}

/// An ordinary file that a redirected program is about to close; the close is the caller's.
fn closing(client: &Client, path: &Path, bytes: &[u8]) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    client.closing(file.as_fd()).unwrap();
    file
}

/// Every file that was closed before has been looked at when this returns.
fn pass(testbed: &Testbed, client: &Client, name: &str) {
    let path = create(testbed, client, name, b"marker");
    wait_for(|| !has_stub(&path));
}

fn managed_files(client: &Client) -> usize {
    match client.request(&Request::Admin(Admin::List { after: None }), &[]).unwrap().0 {
        Reply::Files { files, .. } => files.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_small_file_becomes_ordinary_after_its_last_close_and_a_large_one_managed() {
    let testbed = Testbed::new();
    let (_broker, client) = start(&testbed);
    set_min_size(&testbed, &client, Some(MIN_BYTES));
    let bytes = pattern(MIN_BYTES as usize - 1);
    let small = create(&testbed, &client, "small", &bytes);
    let exact = create(&testbed, &client, "exact", &pattern(MIN_BYTES as usize));
    wait_for(|| !has_stub(&small));
    assert_eq!(std::fs::read(&small).unwrap(), bytes);
    pass(&testbed, &client, "marker");
    assert!(has_stub(&exact), "neither smaller nor larger");
    wait_for(|| managed_files(&client) == 1);

    let mut large = pattern(MIN_BYTES as usize + 1);
    std::fs::set_permissions(&small, std::fs::Permissions::from_mode(0o640)).unwrap();
    let file = closing(&client, &small, &large);
    let time = std::time::UNIX_EPOCH + Duration::new(1_234_567_890, 123_456_789);
    file.set_modified(time).unwrap();
    drop(file);
    wait_for(|| has_stub(&small));
    assert_eq!(managed_bytes(&client, &small), large);
    let stub = std::fs::metadata(&small).unwrap();
    assert_eq!((stub.mode() & 0o7777, stub.modified().unwrap()), (0o640, time));

    // Truncated by a program that then closes it, it is small again.
    let opened = File::options().read(true).write(true).open(&small).unwrap();
    let file = client.find(opened.as_fd()).unwrap().unwrap();
    let striped = client.open(opened.as_fd(), file).unwrap();
    striped.truncate(10).unwrap();
    striped.close().unwrap();
    drop(opened);
    wait_for(|| !has_stub(&small));
    large.truncate(10);
    assert_eq!(std::fs::read(&small).unwrap(), large);
    assert_eq!(std::fs::metadata(&small).unwrap().mode() & 0o7777, 0o640);
    wait_for(|| testbed.object_count(file) == 0);
}

#[test]
fn the_minimum_size_is_kept_and_without_one_files_stay_what_they_are() {
    let testbed = Testbed::new();
    let path = {
        let (_broker, client) = start(&testbed);
        testbed.manage_data();
        let path = create(&testbed, &client, "f", b"small");
        assert_eq!((connect(&testbed).min_sizes(), has_stub(&path)), (&[][..], true));
        path
    };
    {
        let (_broker, client) = start(&testbed);
        assert!(has_stub(&path));
        set_min_size(&testbed, &client, Some(MIN_BYTES));
        // Those that nobody opens are found as well.
        wait_for(|| !has_stub(&path));
        assert_eq!(std::fs::read(&path).unwrap(), b"small");
    }
    let (_broker, client) = start(&testbed);
    let directory = testbed.root().join("data").to_str().unwrap().to_owned();
    assert_eq!(client.min_sizes(), [(directory.clone(), MIN_BYTES)]);
    assert_eq!(client.min_size_above(&path), Some((directory.as_str(), MIN_BYTES)));
    set_min_size(&testbed, &client, None);
    let large = closing(&client, &path, &pattern(2 * MIN_BYTES as usize));
    drop(large);
    let kept = create(&testbed, &client, "kept", b"small");
    // What is looked at now was closed later.
    set_min_size(&testbed, &client, Some(2));
    pass_with_one_byte(&testbed, &client);
    assert!(!has_stub(&path) && has_stub(&kept));
}

fn pass_with_one_byte(testbed: &Testbed, client: &Client) {
    let path = create(testbed, client, "byte", b"b");
    wait_for(|| !has_stub(&path));
}

/// A descriptor that no client has told the broker of: as in a program that another one executed, or one without redirection.
#[test]
fn a_file_that_anybody_has_open_stays_what_it_is() {
    let testbed = Testbed::new();
    let (_broker, client) = start(&testbed);
    set_min_size(&testbed, &client, Some(MIN_BYTES));
    let small = testbed.data("small");
    std::fs::write(&small, b"bytes").unwrap();
    let moved = apply(&client, &small, &testbed.placement(), &Moving::default());
    let stub = File::open(&small);
    // It may have become ordinary before it could be opened here.
    let held = moved.is_ok() && stub.is_ok() && has_stub(&small);
    let large = testbed.data("large");
    let bytes = pattern(2 * MIN_BYTES as usize);
    let open = closing(&client, &large, &bytes);
    rustix::fs::fcntl_lock(&open, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mapped = testbed.data("mapped");
    let file = closing(&client, &mapped, &bytes);
    let (protection, flags) =
        (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, rustix::mm::MapFlags::SHARED);
    // SAFETY: anywhere, and unmapped below.
    let address = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes.len(), protection, flags, &file, 0) }.unwrap();
    drop(file);
    for marker in ["m1", "m2", "m3"] {
        pass(&testbed, &client, marker);
    }
    assert!(!has_stub(&large) && !has_stub(&mapped));
    assert!(!held || has_stub(&small));
    // SAFETY: it is `bytes.len()` bytes long and ours.
    unsafe { address.cast::<u8>().write(b'!') };
    open.write_all_at(b"?", 0).unwrap();
    drop((stub, open));
    // SAFETY: mapped above, and not used again.
    unsafe { rustix::mm::munmap(address, bytes.len()) }.unwrap();
    wait_for(|| !has_stub(&small) && has_stub(&large) && has_stub(&mapped));
    assert_eq!(std::fs::read(&small).unwrap(), b"bytes");
    assert_eq!(managed_bytes(&client, &large), [b"?", &bytes[1..]].concat());
    assert_eq!(managed_bytes(&client, &mapped), [b"!", &bytes[1..]].concat());
}

#[test]
fn expected_names_hard_links_and_shared_objects_stay_what_they_are() {
    let testbed = Testbed::new();
    let (_broker, client) = start(&testbed);
    testbed.manage_data();
    let path = testbed.data("expected").to_str().unwrap().to_owned();
    client.request(&Request::Admin(Admin::Expect { path, placement: testbed.placement() }), &[]).unwrap();
    let expected = create(&testbed, &client, "expected", b"small");
    let linked = create(&testbed, &client, "linked", b"small");
    std::fs::hard_link(&linked, testbed.data("second name")).unwrap();
    set_min_size(&testbed, &client, Some(MIN_BYTES));
    let bytes = pattern(2 * MIN_BYTES as usize);
    for name in ["library.so", "wal-shm"] {
        drop(closing(&client, &testbed.data(name), &bytes));
    }
    std::fs::write(testbed.data("pair"), b"").unwrap();
    std::fs::hard_link(testbed.data("pair"), testbed.data("other of the pair")).unwrap();
    drop(closing(&client, &testbed.data("pair"), &bytes));
    for marker in ["m1", "m2"] {
        pass(&testbed, &client, marker);
    }
    assert!(has_stub(&expected) && has_stub(&linked));
    for name in ["library.so", "wal-shm", "pair", "other of the pair"] {
        assert_eq!(std::fs::read(testbed.data(name)).unwrap(), bytes, "{name}");
    }
    // With its last name alone it follows the rule again.
    std::fs::remove_file(testbed.data("second name")).unwrap();
    let stub = File::open(&linked).unwrap();
    let file = client.find(stub.as_fd()).unwrap().unwrap();
    client.open(stub.as_fd(), file).unwrap().close().unwrap();
    drop(stub);
    wait_for(|| !has_stub(&linked));
    assert_eq!(std::fs::read(&linked).unwrap(), b"small");
}

#[test]
fn a_file_that_the_servers_have_no_space_for_stays_ordinary_and_whole() {
    let mut testbed = Testbed::new();
    for server in &mut testbed.cluster.servers {
        server.capacity = Some(ByteCount(REGION));
    }
    let (_broker, client) = start(&testbed);
    set_min_size(&testbed, &client, Some(10));
    let bytes = pattern(9 * REGION as usize);
    drop(closing(&client, &testbed.data("large"), &bytes));
    pass_with_one_byte(&testbed, &client);
    assert_eq!(std::fs::read(testbed.data("large")).unwrap(), bytes);
    let names: Vec<_> =
        std::fs::read_dir(testbed.root().join("data")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    wait_for(|| managed_files(&client) == 0);
}

#[test]
fn a_stop_finishes_what_was_closed_before() {
    let testbed = Testbed::new();
    // Not before the stop.
    let options = BrokerOptions { idle_after: Some(Duration::from_secs(3600)), ..BrokerOptions::default() };
    let broker = testbed.start_with(options);
    let client = connect(&testbed);
    set_min_size(&testbed, &client, Some(MIN_BYTES));
    let small = create(&testbed, &client, "small", b"small");
    let bytes = pattern(2 * MIN_BYTES as usize);
    drop(closing(&client, &testbed.data("large"), &bytes));
    assert!(has_stub(&small) && !has_stub(&testbed.data("large")));
    broker.stop();
    assert_eq!(std::fs::read(&small).unwrap(), b"small");
    assert!(has_stub(&testbed.data("large")));
    let _broker = testbed.start();
    assert_eq!(managed_bytes(&connect(&testbed), &testbed.data("large")), bytes);
}

#[test]
fn a_broker_killed_at_any_step_of_a_change_by_size_leaves_a_whole_file() {
    for (direction, bytes) in
        [("shrink", pattern(MIN_BYTES as usize - 1)), ("grow", pattern(2 * MIN_BYTES as usize + 77))]
    {
        let mut is_managed = Vec::new();
        for step in 0.. {
            let testbed = Testbed::new();
            std::fs::write(testbed.data("f"), &bytes).unwrap();
            {
                let _broker = testbed.start();
                let client = connect(&testbed);
                if direction == "shrink" {
                    apply(&client, &testbed.data("f"), &testbed.placement(), &Moving::default()).unwrap();
                }
                // In the other direction the child sets it.
                if direction == "grow" {
                    set_min_size(&testbed, &client, Some(MIN_BYTES));
                }
            }
            let ended = run_child(&testbed, direction, step);
            {
                // What the next broker would do by itself is not asked here.
                let _broker = testbed.start();
                set_min_size(&testbed, &connect(&testbed), None);
            }
            let (managed, _) = check_after(&testbed, &bytes);
            is_managed.push(managed == (direction == "grow"));
            if ended {
                assert!(is_managed.last() == Some(&true), "{direction}");
                break;
            }
        }
        assert!(is_managed.len() > 8, "{direction}: {is_managed:?}");
        assert!(is_managed.is_sorted(), "{direction}: once changed, changed at every later step: {is_managed:?}");
    }
}
