//! The table and the election on a real etcd.

mod election;
mod interrupted;
mod reaching;
pub(crate) mod server;

use super::client::Client;
use super::keys::Keys;
use super::store::EtcdStore;
use crate::coordination::Coordinator;
use crate::coordination::tests::{self as common, Engine, all, elected, key, put_all};
use crate::rmt::{Batch, Entries};
use server::Etcd;
use std::time::Duration;

impl Engine for Etcd {
    fn coordinator(&self, cluster: &str, lease: Duration) -> Box<dyn Coordinator> {
        Box::new(Etcd::coordinator(self, cluster).with_lease(lease))
    }
}

#[test]
fn the_table_behaves_as_a_sorted_map() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::the_table_behaves_as_a_sorted_map(&etcd);
}

#[test]
fn a_table_is_one_as_over_lmdb() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::a_table_is_one_as_over_lmdb(&etcd);
}

#[test]
fn clusters_do_not_see_each_other() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::clusters_do_not_see_each_other(&etcd);
}

#[test]
fn keys_of_any_bytes_and_empty_values_are_kept() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::keys_of_any_bytes_and_empty_values_are_kept(&etcd);
}

#[test]
fn watchers_of_another_host_are_sent_what_took_effect() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    common::watchers_of_another_host_are_sent_what_took_effect(&etcd);
}

#[test]
fn a_copy_of_the_table_replaces_the_one_before() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let coordinator = etcd.coordinator("copied");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let reader = EtcdStore::new(std::sync::Arc::new(Client::new(&etcd.options()).unwrap()), Keys::new("copied"), None);
    assert_eq!(reader.copy("good").unwrap(), None);
    for (numbers, value) in [(0..700, b"old"), (300..301, b"new")] {
        store.commit(&put_all(numbers, value)).unwrap();
        store.keep_copy("good").unwrap();
        assert_eq!(reader.copy("good").unwrap().unwrap(), all(store.as_ref()));
    }
    store.put(&key(0), b"later").unwrap();
    let copy = reader.copy("good").unwrap().unwrap();
    assert_eq!((copy.len(), copy[0].1.as_slice(), copy[300].1.as_slice()), (700, &b"old"[..], &b"new"[..]));
}

#[test]
fn a_value_that_no_transaction_holds_is_refused_and_one_below_is_kept() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let coordinator = etcd.coordinator("large");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let limit = super::staging::MAX_VALUE_BYTES;
    let said = store.put(b"f12345678", &vec![7; limit + 1]).unwrap_err().to_string();
    assert!(said.contains(&limit.to_string()) && said.contains("file 3132333435363738"), "{said}");
    let values: Entries = (0..3).map(|number| (key(number), vec![number as u8; limit])).collect();
    let changes = values.iter().map(|(key, value)| (key.clone(), Some(value.clone()))).collect();
    assert!(store.commit(&Batch { expected: Vec::new(), changes }).unwrap());
    assert_eq!(all(store.as_ref()), values);
    let (first, second) = (values[0].1.as_slice(), values[1].1.as_slice());
    assert!(store.compare_and_swap(&key(0), Some(first), Some(second)).unwrap());
    assert!(!store.compare_and_swap(&key(0), Some(first), Some(second)).unwrap());
}
