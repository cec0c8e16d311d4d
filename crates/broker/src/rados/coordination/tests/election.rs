//! One master at a time.

use super::{ceph::Ceph, coordinator, pool_of};
use crate::coordination::Coordinator;
use crate::coordination::tests::election::{self as common, LEASE, wait_until};
use crate::coordination::tests::{PATIENCE, all, candidate, elected, key};
use crate::rados::{ConnectOptions, Connection, Operation, RadosCoordinator, RadosOptions};
use crate::rmt::RmtError;
use std::time::Duration;

fn elected_here(ceph: &Ceph) -> RadosCoordinator {
    coordinator(ceph, "elected").with_lease(LEASE)
}

#[test]
fn a_master_that_was_stopped_is_blocklisted_by_the_one_that_follows() {
    if let Some(address) = common::address_of_candidate() {
        let (conf, pool) = address.split_once(' ').unwrap();
        let ceph = ConnectOptions { conf: Some(conf.into()), ..ConnectOptions::default() };
        let coordinator = RadosCoordinator::new(&RadosOptions { ceph, pool: pool.to_owned() }, "elected").unwrap();
        return common::run_candidate(&coordinator.with_lease(LEASE));
    }
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let address = format!("{} {}", ceph.options().conf.unwrap().display(), ceph.pool(0));
    let coordinator = elected_here(&ceph);
    let said = common::a_master_that_was_stopped_is_followed_and_its_next_commit_is_refused(&coordinator, &address);
    assert!(said.contains("another, which shut this process out"), "{said}");
}

#[test]
fn a_master_whose_lock_is_not_renewed_is_lost_and_followed() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    // One connection for both: the fence alone decides.
    common::a_master_whose_lease_is_not_renewed_is_lost_and_followed(&elected_here(&ceph));
    let others = elected_here(&ceph);
    let before = others.master().unwrap();
    let third = elected(&others, "third");
    assert!(before.is_none_or(|before| before.term < third.master().term));
}

#[test]
fn the_end_of_a_term_is_reported() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    common::the_end_of_a_term_is_reported(&ceph);
}

#[test]
fn a_master_that_resigns_hands_over_at_once() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    common::a_master_that_resigns_hands_over_at_once(&ceph);
}

#[test]
fn a_master_that_has_ended_for_certain_is_followed_at_once_and_none_but_it() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let lasting = coordinator(&ceph, "elected").with_lease(PATIENCE * 100);
    common::a_master_that_has_ended_for_certain_is_followed_at_once_and_none_but_it(&lasting);
}

#[test]
fn a_record_that_arrives_late_makes_nobody_master() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let coordinator = elected_here(&ceph);
    let pool = pool_of(&ceph, "elected");
    let records = || pool.keys("table").unwrap().into_iter().find(|(key, _)| key == "master").map(|(_, value)| value);
    let first = elected(&coordinator, "first");
    let seen = records().unwrap();
    first.resign().unwrap();
    let second = elected(&coordinator, "second");
    let (current, late) = (records().unwrap(), b"late".as_slice());
    let expected = [("master", seen.as_slice())];
    let change = Operation::ChangeKeys { expected: &expected, set: &[("master", late)], remove: &[] };
    pool.run("table", change).expect_err("the record is another by now");
    assert_eq!(records().unwrap(), current);
    assert_eq!(coordinator.master().unwrap().as_ref(), Some(second.master()));
    second.table().put(&key(1), b"1").unwrap();
}

#[test]
fn a_master_that_cannot_reach_ceph_knows_when_its_lock_is_over() {
    let Some(mut ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let impatient = ceph.connect_impatiently(Duration::from_secs(5));
    let coordinator = RadosCoordinator::over(&impatient, ceph.pool(0), "elected").unwrap().with_lease(LEASE);
    let first = elected(&coordinator, "first");
    let store = first.table();
    store.put(b"a", b"1").unwrap();
    ceph.order("stop 0");
    wait_until("lost", || first.is_lost());
    let said = store.put(b"a", b"2").unwrap_err().to_string();
    assert!(said.contains("no answer in time") && said.contains("ceph health detail"), "{said}");
    ceph.order("continue 0");
    // Another follows, over a connection of its own; the first is shut out.
    let others = elected_here(&ceph);
    let second = elected(&others, "second");
    assert!(second.master().term > first.master().term);
    let value = others.table().get(b"a").unwrap().unwrap();
    assert!(second.table().compare_and_swap(b"a", Some(&value), Some(b"second")).unwrap());
    assert!(matches!(store.put(b"a", b"late"), Err(RmtError::Deposed { .. })));
    assert_eq!(all(others.table().as_ref()), [(b"a".to_vec(), b"second".to_vec())]);
}

#[test]
fn who_may_not_blocklist_does_not_follow_a_master_that_went_silent() {
    let Some(ceph) = Ceph::start(&["--osds", "1", "--auth"]) else { return };
    let connection = ceph.connect();
    let caps = r#"["mon","allow r","osd","allow *"]"#;
    let command = format!(r#"{{"prefix":"auth get-or-create","entity":"client.weak","caps":{caps}}}"#);
    let keyring = connection.command(&command).unwrap();
    let conf = ceph.options().conf.unwrap();
    std::fs::write(conf.parent().unwrap().join("client.weak.keyring"), keyring).unwrap();
    let weak = Connection::open(&ConnectOptions { user: "weak".to_owned(), ..ceph.options() }).unwrap();
    let weak = RadosCoordinator::over(&weak, ceph.pool(0), "elected").unwrap();
    // Nobody was master before, or the one before resigned: nobody has to be shut out.
    elected(&weak, "first").resign().unwrap();
    drop(elected(&elected_here(&ceph), "second"));
    let mut refused = None;
    wait_until("refused", || {
        refused = weak.campaign(&candidate("third"), Duration::ZERO).err();
        refused.is_some()
    });
    let said = refused.unwrap().to_string();
    assert!(said.contains("second") && said.contains("osd blocklist") && said.contains("client.weak"), "{said}");
    // The lock is free again for one who may.
    drop(coordinator(&ceph, "elected").campaign(&candidate("fourth"), PATIENCE).unwrap().unwrap());
}

#[test]
fn a_host_that_was_shut_out_stands_again_over_a_new_connection() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let options = RadosOptions { ceph: ceph.options(), pool: ceph.pool(0).to_owned() };
    let here = RadosCoordinator::new(&options, "elected").unwrap().with_lease(LEASE);
    let first = elected(&here, "first");
    // The other host has a connection of its own.
    let there = elected_here(&ceph);
    let addresses = here.connection_for_tests().addresses().unwrap();
    ceph.connect().shut_out(&addresses).unwrap();
    wait_until("lost", || first.is_lost());
    let second = elected(&there, "second");
    assert!(here.campaign(&candidate("first"), Duration::ZERO).unwrap().is_none());
    assert_eq!(here.master().unwrap().as_ref(), Some(second.master()));
    second.resign().unwrap();
    elected(&here, "first").table().put(b"a", b"1").unwrap();
}

#[test]
fn a_pool_that_cannot_hold_the_table_is_named() {
    let Some(ceph) = Ceph::start(&["--osds", "3"]) else { return };
    let missing = RadosOptions { ceph: ceph.options(), pool: "nowhere".to_owned() };
    let said = RadosCoordinator::new(&missing, "c").err().unwrap().to_string();
    assert!(said.contains("no pool nowhere"), "{said}");
    let coded = RadosOptions { pool: "coded".to_owned(), ..missing };
    let coordinator = RadosCoordinator::new(&coded, "c").unwrap();
    let said = coordinator.campaign(&candidate("first"), PATIENCE).err().unwrap().to_string();
    assert!(said.contains("pool coded is erasure-coded"), "{said}");
    let said = RadosCoordinator::probe(&coded, "c").unwrap_err().to_string();
    assert!(said.contains("pool coded is erasure-coded"), "{said}");
    let options = RadosOptions { ceph: ceph.options(), pool: ceph.pool(0).to_owned() };
    RadosCoordinator::probe(&options, "c").unwrap();
    elected(&RadosCoordinator::new(&options, "c").unwrap(), "first").resign().unwrap();
    let said = RadosCoordinator::probe(&options, "c").unwrap_err().to_string();
    assert!(said.contains("holds a mapping table of cluster c already"), "{said}");
    RadosCoordinator::probe(&options, "d").unwrap();
}
