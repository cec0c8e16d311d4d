//! What every engine has to do, whatever it is; each engine's tests run these on a real one.

pub(crate) mod election;

use super::{Candidate, Coordinator, Mastership};
use crate::rmt::lmdb::LmdbStore;
use crate::rmt::tests::{batches, check_as_sorted_map};
use crate::rmt::{Batch, Entries, FileRecord, MappingStore, Table};
use proptest::test_runner::{Config, TestRunner};
use std::cell::Cell;
use std::time::Duration;

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Of masters that are to stay, on a machine however busy.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(120);
/// Between two looks at something that is waited for.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// A running engine.
pub(crate) trait Engine {
    /// Of a cluster by this id, as a host of its own.
    fn coordinator(&self, cluster: &str, lease: Duration) -> Box<dyn Coordinator>;
}

pub(crate) fn skip(why: &str) {
    eprintln!("SKIPPED: {}: {why}", std::thread::current().name().unwrap_or("a test"));
}

pub(crate) fn candidate(name: &str) -> Candidate {
    Candidate { name: name.to_owned(), address: format!("{name}:7000") }
}

pub(crate) fn elected(coordinator: &dyn Coordinator, name: &str) -> Box<dyn Mastership> {
    coordinator.campaign(&candidate(name), PATIENCE).unwrap().expect("nobody else is master")
}

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("k{number:05}").into_bytes()
}

pub(crate) fn put_all(numbers: std::ops::Range<usize>, value: &[u8]) -> Batch {
    let changes = numbers.map(|number| (key(number), Some(value.to_vec()))).collect();
    Batch { expected: Vec::new(), changes }
}

pub(crate) fn all(store: &dyn MappingStore) -> Entries {
    store.scan(b"", None, usize::MAX).unwrap()
}

/// Changes, removals and new keys over those of `put_all(0..300, b"old")`, and expectations.
pub(crate) fn large_batch() -> Batch {
    let expected = (0..200).map(|number| (key(number), Some(b"old".to_vec()))).collect();
    let change = |number| (key(number), (number % 4 > 0).then(|| b"new".to_vec()));
    Batch { expected, changes: (100..400).map(change).collect() }
}

/// What stands there after the batch.
pub(crate) fn applied(before: &Entries, batch: &Batch) -> Entries {
    let mut after: std::collections::BTreeMap<_, _> = before.iter().cloned().collect();
    for (key, value) in batch.changes.clone() {
        match value {
            Some(value) => drop(after.insert(key, value)),
            None => drop(after.remove(&key)),
        }
    }
    after.into_iter().collect()
}

pub(crate) fn the_table_behaves_as_a_sorted_map(engine: &dyn Engine) {
    let cases = Cell::new(0);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(12) });
    let check = |batches| {
        cases.set(cases.get() + 1);
        let coordinator = engine.coordinator(&format!("case-{}", cases.get()), LONG_LEASE);
        let master = elected(coordinator.as_ref(), "one");
        check_as_sorted_map(master.table().as_ref(), batches)
    };
    runner.run(&batches(), check).unwrap_or_else(|error| panic!("{error}\n{runner}"));
}

pub(crate) fn a_table_is_one_as_over_lmdb(engine: &dyn Engine) {
    let directory = tempfile::tempdir().unwrap();
    let coordinator = engine.coordinator("table", LONG_LEASE);
    let master = elected(coordinator.as_ref(), "one");
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
    let successor = elected(coordinator.as_ref(), "two");
    let table = Table::new(successor.table()).unwrap();
    assert_eq!(table.transactions().unwrap(), 3);
}

pub(crate) fn clusters_do_not_see_each_other(engine: &dyn Engine) {
    let (one, other) = (engine.coordinator("c1", LONG_LEASE), engine.coordinator("c10", LONG_LEASE));
    let (master, others) = (elected(one.as_ref(), "one"), elected(other.as_ref(), "one"));
    master.table().commit(&put_all(0..2, b"mine")).unwrap();
    others.table().put(&key(1), b"theirs").unwrap();
    assert_eq!(all(one.table().as_ref()).len(), 2);
    assert_eq!(all(other.table().as_ref()), [(key(1), b"theirs".to_vec())]);
}

pub(crate) fn keys_of_any_bytes_and_empty_values_are_kept(engine: &dyn Engine) {
    let coordinator = engine.coordinator("bytes", LONG_LEASE);
    let master = elected(coordinator.as_ref(), "one");
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
    // An empty value is another than none.
    assert!(!store.compare_and_swap(b"a", None, Some(b"1")).unwrap());
    assert!(!store.compare_and_swap(b"b", Some(b""), Some(b"1")).unwrap());
    assert!(store.compare_and_swap(b"a", Some(b""), None).unwrap());
    assert_eq!(store.get(b"a").unwrap(), None);
}

pub(crate) fn watchers_of_another_host_are_sent_what_took_effect(engine: &dyn Engine) {
    let (here, there) = (engine.coordinator("watched", LONG_LEASE), engine.coordinator("watched", LONG_LEASE));
    let reader = there.table();
    let heard = reader.watch(b"k");
    let master = elected(here.as_ref(), "one");
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
