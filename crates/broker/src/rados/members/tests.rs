//! Hosts that share a pool of a real Ceph, each over a connection of its own as on hosts of their own.

use super::open_shared;
use crate::membership::Membership;
use crate::rados::coordination::tests::ceph::Ceph;
use crate::rados::store::{RadosServer, prepare};
use stripewise_layout::{FileId, Generation, ObjectOffset, RegionIndex};
use stripewise_store::server::{Handle, How, ObjectName, ObjectStore, Ownership, ServerError};

const OWNERSHIP: Ownership = Ownership { mode: 0o600, uid: 0, gid: 0 };
const OBJECT: ObjectName = ObjectName { file: FileId(7), region: RegionIndex(0), generation: Generation(1) };

/// The server as a host's agent has it, in a process of its own.
fn open(ceph: &Ceph, membership: &Membership) -> Result<RadosServer, ServerError> {
    let server = RadosServer::within(&ceph.connect(), "c", "s", ceph.pool(0))?;
    server.join(membership, membership.admission().unwrap())?;
    Ok(server)
}

fn follower(host: &str, admission: u64) -> Membership {
    let membership = Membership::of_follower(host);
    membership.admit(admission);
    membership
}

fn write(server: &RadosServer, text: &str) -> Result<(), ServerError> {
    let text = std::io::IoSlice::new(text.as_bytes());
    server.write_at(Handle::Named(OBJECT), ObjectOffset(0), &[text], How::default()).map(drop)
}

fn read(server: &RadosServer) -> String {
    let mut bytes = [0; 100];
    let buffer = &mut [std::io::IoSliceMut::new(&mut bytes)];
    let count = server.read_at(Handle::Named(OBJECT), ObjectOffset(0), buffer).unwrap();
    String::from_utf8_lossy(&bytes[..count]).into_owned()
}

fn is_shut_out<T>(result: &Result<T, ServerError>) -> bool {
    matches!(result, Err(ServerError::ShutOut { .. }))
}

#[test]
fn a_host_that_is_shut_out_changes_nothing_until_it_is_admitted_again() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    prepare(&ceph.connect(), "c", "s", ceph.pool(0)).unwrap();
    let master = open(&ceph, &Membership::of_master("m", 10)).unwrap();
    let cut_off = open(&ceph, &follower("h", 11)).unwrap();
    let other = open(&ceph, &follower("o", 12)).unwrap();
    master.create(OBJECT, OWNERSHIP).unwrap();
    write(&cut_off, "first").unwrap();
    write(&other, "other").unwrap();
    assert_eq!(read(&master), "other", "hosts use the pool at once");

    master.fence_host("h", 13).unwrap();
    assert!(is_shut_out(&write(&cut_off, "late.")) && cut_off.is_shut_out());
    assert!(is_shut_out(&cut_off.size(OBJECT)), "nor does it read what may be old");
    assert!(is_shut_out(&cut_off.remove(OBJECT)) && is_shut_out(&cut_off.truncate(OBJECT, 0)));
    assert_eq!(read(&other), "other");
    master.fence_host("h", 13).unwrap();

    // As a new client it comes in with a later admission only.
    assert!(is_shut_out(&open(&ceph, &follower("h", 11))) && is_shut_out(&open(&ceph, &follower("h", 13))));
    let back = open(&ceph, &follower("h", 14)).unwrap();
    write(&back, "again").unwrap();
    assert_eq!(read(&other), "again");

    // One that never opened the pool does not open it late.
    master.fence_host("n", 15).unwrap();
    assert!(is_shut_out(&open(&ceph, &follower("n", 15))));
    open(&ceph, &follower("n", 16)).unwrap();

    // Its next agent shuts out the one before it.
    let next = open(&ceph, &follower("o", 12)).unwrap();
    assert!(is_shut_out(&write(&other, "late.")));
    write(&next, "next.").unwrap();
    assert_eq!(read(&master), "next.");
}

#[test]
fn a_master_that_was_followed_changes_nothing_any_more() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    prepare(&ceph.connect(), "c", "s", ceph.pool(0)).unwrap();
    let first = open(&ceph, &Membership::of_master("m", 1 << 24)).unwrap();
    first.create(OBJECT, OWNERSHIP).unwrap();
    write(&first, "first").unwrap();
    let second = open(&ceph, &Membership::of_master("n", 2 << 24)).unwrap();
    assert!(is_shut_out(&first.truncate(OBJECT, 1)) && is_shut_out(&first.remove(OBJECT)));
    assert_eq!(read(&second), "first");
    // Nor over a new connection, and nor does one that had not opened the pool before.
    assert!(is_shut_out(&open(&ceph, &Membership::of_master("m", 1 << 24))));
    assert!(is_shut_out(&open(&ceph, &Membership::of_master("k", (2 << 24) - 1))));
    // Its host follows, and may be master again.
    open(&ceph, &follower("m", (2 << 24) + 1)).unwrap();
    open(&ceph, &Membership::of_master("m", 3 << 24)).unwrap();
    assert!(is_shut_out(&write(&second, "late.")));
}

#[test]
fn who_was_not_admitted_opens_nothing() {
    let url = "rados://pool".parse().unwrap();
    let error = open_shared("c", "s", &url, &Membership::of_follower("h")).err().unwrap().to_string();
    assert!(error.contains("host h is not admitted"), "{error}");
}

#[test]
fn what_a_role_was_about_to_open_is_not_opened_when_it_is_over() {
    let (url, membership) = ("rados://pool".parse().unwrap(), follower("h", 11));
    membership.end();
    assert!(is_shut_out(&open_shared("c", "s", &url, &membership)));
}
