//! What a broker does for clients that die, or that hear nothing of what was done for them.

use crate::cluster::{Client, REGION, Testbed};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, RegionIndex};
use stripewise_store::packet;
use stripewise_store::protocol::{Admin, Refusal, Reply, Request};
use stripewise_store::shared::slots::InFlight;
use stripewise_store::stub::{STUB_BYTES, Stub};

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

/// A truncation ran although its client had died while it waited for a writer; it took what the writer had been told was written.
#[test]
fn a_truncation_of_a_client_that_died_takes_nothing_that_others_were_told_is_written() {
    let testbed = Testbed::new();
    let _broker = testbed.start();
    testbed.manage_data();
    let mut writer = testbed.client();
    let (slot, incarnation) = writer.claim();
    let (opened, stub) = writer.create(&testbed.data("f")).unwrap();
    writer.place(opened.file, 0, 2).unwrap();
    opened.extent.extend_to(3 * REGION);
    opened.slots.add_user(slot, incarnation).unwrap();
    let write = InFlight { direction: Direction::Write, first: RegionIndex(0), last: RegionIndex(0) };
    let ask_while_written = || {
        let mut cutter = testbed.client();
        cutter.claim();
        cutter.open(opened.file, &stub).unwrap();
        let lane = opened.slots.occupy(slot, 0, write).unwrap();
        packet::send(&cutter.socket, &Request::Truncate { file: opened.file, size_bytes: 0, number: 0 }, &[]).unwrap();
        wait_until("the truncation waits for the writer", || opened.control.gate().is_shut());
        (cutter, lane)
    };
    let (cutter, lane) = ask_while_written();
    drop(cutter);
    // The write ends, and its program is told so.
    lane.free();
    wait_until("the gate opens", || !opened.control.gate().is_shut());
    assert_eq!((opened.extent.size_bytes(), testbed.object_count(opened.file)), (3 * REGION, 12));
    // One that is still there is served.
    let (cutter, lane) = ask_while_written();
    lane.free();
    assert_eq!(packet::receive::<Reply>(&cutter.socket, &mut Default::default()).unwrap().0, Reply::Done);
    assert_eq!((opened.extent.size_bytes(), testbed.object_count(opened.file)), (0, 0));
}

/// A client that lost its broker asks the successor for the same truncation again. What others wrote in between was cut.
#[test]
fn a_truncation_that_was_done_is_answered_and_not_done_again() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let mut client = testbed.client();
    let (slot, incarnation) = client.claim();
    let (opened, stub) = client.create(&testbed.data("f")).unwrap();
    client.place(opened.file, 0, 2).unwrap();
    opened.extent.extend_to(3 * REGION);
    let processes = client.processes.as_ref().unwrap();
    let truncate =
        |client: &Client, size_bytes| client.ask(Request::Truncate { file: opened.file, size_bytes, number: 0 });
    processes.number_truncation(slot);
    truncate(&client, REGION).unwrap();
    assert_eq!(opened.extent.size_bytes(), REGION);
    // Another program writes, and is told so.
    opened.extent.extend_to(2 * REGION);
    drop(broker);
    let _broker = testbed.start();
    let successor = testbed.client();
    successor.ask(Request::Claimed { slot: slot.0, incarnation: incarnation.0 }).unwrap();
    successor.open(opened.file, &stub).unwrap();
    truncate(&successor, REGION).unwrap();
    assert_eq!(opened.extent.size_bytes(), 2 * REGION, "repeated");
    processes.number_truncation(slot);
    truncate(&successor, REGION).unwrap();
    assert_eq!(opened.extent.size_bytes(), REGION, "another truncation to the same size");
    // An extension likewise: in between another cuts.
    processes.number_truncation(slot);
    truncate(&successor, 5 * REGION).unwrap();
    testbed.client().open(opened.file, &stub).unwrap();
    opened.extent.truncate_to(7);
    truncate(&successor, 5 * REGION).unwrap();
    assert_eq!(opened.extent.size_bytes(), 7);
}

/// `open(O_CREAT)` failed with EINVAL ("the new stub is not empty") when the broker died after it had written the stub's text.
#[test]
fn a_creation_that_is_asked_for_again_is_answered_as_the_first() {
    let testbed = Testbed::new();
    let broker = testbed.start();
    testbed.manage_data();
    let path = testbed.data("f");
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let stub = rustix::fs::open(path.parent().unwrap(), flags, Mode::from_raw_mode(0o600)).unwrap();
    let request = || Request::Create { path: path.to_str().unwrap().to_owned() };
    let file_of = |client: &Client| match client.ask_with(request(), &[stub.as_fd()]) {
        Ok((Reply::Opened { file, .. }, _)) => file,
        other => panic!("{other:?}"),
    };
    // Its answer is lost with the broker.
    let lost = testbed.client();
    file_of(&lost);
    assert_eq!(rustix::fs::fstat(&stub).unwrap().st_size, STUB_BYTES as i64);
    drop(broker);
    let _broker = testbed.start();
    let client = testbed.client();
    let file = file_of(&client);
    let link = format!("/proc/self/fd/{}", stub.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, link, rustix::fs::CWD, &path, AtFlags::SYMLINK_FOLLOW).unwrap();
    client.ask(Request::Linked { file }).unwrap();
    let text = std::fs::read(&path).unwrap();
    assert_eq!(Stub::parse(&text).unwrap().unwrap().file, file);
    client.place(file, 0, 0).unwrap();
    let refused = client.ask_with(request(), &[stub.as_fd()]).unwrap_err();
    assert!(matches!(&refused, Refusal::Invalid { what } if what.contains("is not empty")), "{refused:?}");
    let findings = client.ask(Request::Admin(Admin::Check { repair: false }));
    assert_eq!(findings, Ok(Reply::Findings { findings: Vec::new() }));
}
