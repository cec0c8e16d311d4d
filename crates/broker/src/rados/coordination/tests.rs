//! The table and the election on a real Ceph.

#[path = "../../../tests/rados/ceph.rs"]
pub(in crate::rados) mod ceph;
mod election;
mod interrupted;
mod large;

use super::RadosCoordinator;
use crate::coordination::Coordinator;
use crate::coordination::tests::{self as common, Engine, LONG_LEASE};
use crate::rados::Pool;
use ceph::Ceph;
use std::sync::Arc;
use std::time::Duration;

impl Engine for Ceph {
    fn coordinator(&self, cluster: &str, lease: Duration) -> Box<dyn Coordinator> {
        Box::new(coordinator(self, cluster).with_lease(lease))
    }
}

/// Over a connection of its own, as another host has.
fn coordinator(ceph: &Ceph, cluster: &str) -> RadosCoordinator {
    RadosCoordinator::over(&ceph.connect(), ceph.pool(0), cluster).unwrap().with_lease(LONG_LEASE)
}

fn pool_of(ceph: &Ceph, cluster: &str) -> Arc<Pool> {
    Arc::new(Pool::open(&ceph.connect(), ceph.pool(0), &format!("stripewise-{cluster}-table")).unwrap())
}

#[test]
fn the_table_and_its_keys_are_as_of_every_engine() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    common::the_table_behaves_as_a_sorted_map(&ceph);
    common::a_table_is_one_as_over_lmdb(&ceph);
    common::clusters_do_not_see_each_other(&ceph);
    common::keys_of_any_bytes_and_empty_values_are_kept(&ceph);
    common::watchers_of_another_host_are_sent_what_took_effect(&ceph);
}
