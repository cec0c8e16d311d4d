//! The table and the election on a real etcd.

mod election;
mod interrupted;
mod reaching;
pub(crate) mod server;

use super::EtcdCoordinator;
use super::client::Client;
use super::keys::Keys;
use super::store::EtcdStore;
use crate::coordination::{Candidate, Coordinator, Mastership};
use crate::rmt::lmdb::LmdbStore;
use crate::rmt::tests::{batches, check_as_sorted_map};
use crate::rmt::{Batch, Entries, FileRecord, MappingStore, Table};
use proptest::test_runner::{Config, TestRunner};
use server::Etcd;
use std::cell::Cell;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn candidate(name: &str) -> Candidate {
    Candidate { name: name.to_owned(), address: format!("{name}:7000") }
}

fn elected(coordinator: &EtcdCoordinator, name: &str) -> Box<dyn Mastership> {
    coordinator.campaign(&candidate(name), PATIENCE).unwrap().expect("nobody else is master")
}

fn key(number: usize) -> Vec<u8> {
    format!("k{number:05}").into_bytes()
}

fn put_all(numbers: std::ops::Range<usize>, value: &[u8]) -> Batch {
    let changes = numbers.map(|number| (key(number), Some(value.to_vec()))).collect();
    Batch { expected: Vec::new(), changes }
}

fn all(store: &dyn MappingStore) -> Entries {
    store.scan(b"", None, usize::MAX).unwrap()
}

#[test]
fn the_table_in_etcd_behaves_as_a_sorted_map() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let cases = Cell::new(0);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(12) });
    let check = |batches| {
        cases.set(cases.get() + 1);
        let coordinator = etcd.coordinator(&format!("case-{}", cases.get()));
        let master = elected(&coordinator, "one");
        check_as_sorted_map(master.table().as_ref(), batches)
    };
    runner.run(&batches(), check).unwrap_or_else(|error| panic!("{error}\n{runner}"));
}

#[test]
fn a_table_over_etcd_is_one_over_lmdb() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let directory = tempfile::tempdir().unwrap();
    let coordinator = etcd.coordinator("table");
    let master = elected(&coordinator, "one");
    let stores: [Box<dyn MappingStore>; 2] = [master.table(), Box::new(LmdbStore::open(directory.path()).unwrap())];
    let contents = stores.map(|store| {
        let table = Table::new(store).unwrap();
        for first in 0..3 {
            let mut changes = crate::rmt::Changes::default();
            for file in first..first + 200 {
                let record: FileRecord = crate::rmt::tests::record(&format!("/data/{file}"));
                changes.put_file(stripewise_layout::FileId(file), &record);
            }
            changes.remove_file(stripewise_layout::FileId(first));
            table.commit(&changes).unwrap();
        }
        table.all_files().unwrap()
    });
    assert_eq!(contents[0], contents[1]);
    assert_eq!(contents[0].len(), 199, "of 202 three were removed and stay so");
    master.resign().unwrap();
    // A successor takes the table over, and goes on from its head.
    let successor = elected(&coordinator, "two");
    let table = Table::new(successor.table()).unwrap();
    assert_eq!(table.transactions().unwrap(), 3);
}

#[test]
fn clusters_in_one_etcd_do_not_see_each_other() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let (one, other) = (etcd.coordinator("c1"), etcd.coordinator("c10"));
    let (master, others) = (elected(&one, "one"), elected(&other, "one"));
    master.table().commit(&put_all(0..2, b"mine")).unwrap();
    others.table().put(&key(1), b"theirs").unwrap();
    assert_eq!(all(one.table().as_ref()).len(), 2);
    assert_eq!(all(other.table().as_ref()), [(key(1), b"theirs".to_vec())]);
}

#[test]
fn keys_of_any_bytes_and_empty_values_are_kept() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let coordinator = etcd.coordinator("bytes");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let keys: [&[u8]; 7] = [b"\0", b"\0\0", b"a", b"a\xfe\xff", b"a\xff", b"a\xff\xff\0", b"\xff\xff"];
    for key in keys {
        store.put(key, b"").unwrap();
    }
    let found = |prefix: &[u8], after: Option<&[u8]>| -> Vec<Vec<u8>> {
        store.scan(prefix, after, 9).unwrap().into_iter().map(|(key, _)| key).collect()
    };
    assert_eq!(found(b"", None), keys);
    assert_eq!(found(b"a\xff", None), [keys[4], keys[5]]);
    assert_eq!(found(b"a", Some(b"a\xfe\xff")), [keys[4], keys[5]]);
    assert_eq!(found(b"\xff", None), [keys[6]]);
    assert!(found(b"a", Some(b"b")).is_empty());
    assert_eq!(store.get(b"a").unwrap(), Some(Vec::new()));
}

#[test]
fn watchers_of_another_host_are_sent_what_took_effect() {
    let Some(etcd) = Etcd::start(&[]) else { return };
    let (here, there) = (etcd.coordinator("watched"), etcd.coordinator("watched"));
    let reader = there.table();
    let heard = reader.watch(b"k");
    let master = elected(&here, "one");
    let store = master.table();
    store.put(b"b", b"1").unwrap();
    store.put(&key(1), b"1").unwrap();
    assert!(!store.compare_and_swap(&key(2), Some(b"x"), Some(b"y")).unwrap());
    assert!(store.compare_and_swap(&key(1), Some(b"1"), None).unwrap());
    // In parts.
    store.commit(&put_all(0..300, b"2")).unwrap();
    let expected = [key(1), key(1)].into_iter().chain((0..300).map(key));
    for key in expected {
        assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), key);
    }
    assert!(heard.try_recv().is_err());
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
