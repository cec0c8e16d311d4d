//! One master at a time.

use super::server::Etcd;
use crate::coordination::Coordinator;
use crate::coordination::tests::election::{self as common, LEASE, wait_until};
use crate::coordination::tests::{PATIENCE, elected, key};
use crate::etcd::{EtcdCoordinator, EtcdOptions};
use std::time::Duration;

fn coordinator(endpoint: &str) -> EtcdCoordinator {
    let options = EtcdOptions { patience: PATIENCE, ..EtcdOptions::new(vec![endpoint.to_owned()]) };
    EtcdCoordinator::new(&options, "elected").unwrap().with_lease(LEASE)
}

#[test]
fn a_master_that_was_stopped_is_followed_and_its_next_commit_is_refused_by_name() {
    if let Some(endpoint) = common::address_of_candidate() {
        return common::run_candidate(&coordinator(&endpoint));
    }
    let Some(etcd) = Etcd::start(&[]) else { return };
    let (coordinator, address) = (coordinator(&etcd.endpoint()), etcd.endpoint());
    let said = common::a_master_that_was_stopped_is_followed_and_its_next_commit_is_refused(&coordinator, &address);
    assert!(said.contains("second at second:7000"), "{said}");
}

#[test]
fn a_master_whose_lease_is_not_renewed_is_lost_and_followed() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::a_master_whose_lease_is_not_renewed_is_lost_and_followed(&coordinator(&etcd.endpoint()));
}

#[test]
fn a_master_that_resigns_hands_over_at_once() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::a_master_that_resigns_hands_over_at_once(&etcd);
}

#[test]
fn the_end_of_a_term_is_reported() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::the_end_of_a_term_is_reported(&etcd);
}

#[test]
fn a_master_that_has_ended_for_certain_is_followed_at_once_and_none_but_it() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::a_master_that_has_ended_for_certain_is_followed_at_once_and_none_but_it(
        &etcd.coordinator("elected").with_lease(PATIENCE * 100),
    );
}

#[test]
fn a_master_goes_on_after_etcd_was_restarted() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let coordinator = etcd.coordinator("elected").with_lease(LEASE * 10);
    let master = elected(&coordinator, "first");
    let (store, reader) = (master.table(), coordinator.table());
    let heard = reader.watch(b"k");
    store.put(&key(1), b"before").unwrap();
    etcd.kill();
    std::thread::scope(|scope| {
        // It is tried until etcd is back.
        let waiting = scope.spawn(|| store.compare_and_swap(&key(1), Some(b"before"), Some(b"after")));
        etcd.start_again();
        assert!(waiting.join().unwrap().unwrap());
    });
    assert_eq!(coordinator.master().unwrap().as_ref(), Some(master.master()));
    assert!(!master.is_lost());
    for _ in 0..2 {
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), key(1));
    }
}

#[test]
fn a_master_that_cannot_reach_etcd_knows_when_its_lease_is_over() {
    let Some(mut etcd) = Etcd::start(&[]) else { return };
    let options = EtcdOptions { patience: Duration::from_millis(200), ..etcd.options() };
    let coordinator = EtcdCoordinator::new(&options, "elected").unwrap().with_lease(LEASE);
    let master = elected(&coordinator, "first");
    etcd.kill();
    wait_until("lost", || master.is_lost());
    let said = master.table().put(b"a", b"1").unwrap_err().to_string();
    assert!(said.contains(&etcd.endpoint()) && said.contains("endpoint health"), "{said}");
}
