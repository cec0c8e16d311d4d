//! More keys than one operation reads, and batches of any size.

use super::super::RadosTable;
use super::super::objects::{Change, Objects, TABLE};
use super::super::state::{RECENT, STATE, recent_key};
use super::super::store::MAX_BATCH_BYTES;
use super::{ceph::Ceph, coordinator, pool_of};
use crate::coordination::Coordinator;
use crate::coordination::tests::{all, elected, key, put_all};
use crate::rmt::Batch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const KEYS: usize = 5000;

#[test]
fn a_scan_shows_one_moment_whatever_is_written_meanwhile() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let (here, there) = (coordinator(&ceph, "moments"), coordinator(&ceph, "moments"));
    let master = elected(&here, "one");
    let store = master.table();
    assert!(store.commit(&put_all(0..KEYS, b"0")).unwrap());
    let reader = there.table();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            for round in 1..=300_usize {
                // The marks are on all pages; between them keys come and go.
                let value = round.to_string().into_bytes();
                let marks = [0, KEYS / 2, KEYS - 1].map(|number| (key(number), Some(value.clone())));
                let place = 1 + round * 7 % (KEYS - 2);
                let place = if place == KEYS / 2 { place + 1 } else { place };
                let extra = (format!("k{place:05}x").into_bytes(), (round % 3 > 0).then(|| value.clone()));
                let many = (round % 50 == 0).then(|| (b"large".to_vec(), Some(vec![1; 100_000])));
                let changes = marks.into_iter().chain([extra]).chain(many).collect();
                assert!(store.commit(&Batch { expected: Vec::new(), changes }).unwrap());
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let (mut scans, mut values) = (0, std::collections::BTreeSet::new());
        let mut last = false;
        while !last {
            last = is_over.load(Ordering::Relaxed);
            let found = reader.scan(b"k", None, usize::MAX).unwrap();
            assert!(found.is_sorted() && found.len() >= KEYS, "{}", found.len());
            let mark = |number: usize| found.iter().find(|(found, _)| *found == key(number)).unwrap().1.clone();
            let marks = [0, KEYS / 2, KEYS - 1].map(mark);
            assert!(marks[0] == marks[1] && marks[1] == marks[2], "{marks:?}");
            let first = reader.scan(b"k", Some(&key(0)), 2500).unwrap();
            assert_eq!(first.len(), 2500);
            values.insert(marks[0].clone());
            scans += 1;
        }
        println!("{scans} scans saw {} moments", values.len());
        writing.join().unwrap();
    });
    assert_eq!(all(reader.as_ref()), all(store.as_ref()));
    // Of the batches so many are kept as a watcher may be behind.
    let pool = pool_of(&ceph, "moments");
    for _ in 0..RECENT {
        store.put(b"z", b"z").unwrap();
    }
    let kept = pool.keys(TABLE).unwrap().into_iter().filter(|(key, _)| key.starts_with("w/")).count();
    assert_eq!(kept as u64, RECENT);
}

#[test]
fn batches_of_many_keys_expectations_and_bytes_are_one_operation() {
    let Some(ceph) = Ceph::start(&["--osds", "1", "--store", "bluestore"]) else { return };
    let coordinator = coordinator(&ceph, "large");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let many = put_all(0..40_000, &[1; 60]);
    assert!(store.commit(&many).unwrap());
    assert_eq!(all(store.as_ref()).len(), 40_000);
    // Far more expectations than the operation itself compares.
    let removed = Batch {
        expected: many.changes.clone(),
        changes: many.changes.iter().map(|(key, _)| (key.clone(), None)).collect(),
    };
    assert!(store.commit(&removed).unwrap());
    assert!(!store.commit(&removed).unwrap(), "what it expects no longer holds");
    assert!(all(store.as_ref()).is_empty());

    let value = vec![7; MAX_BATCH_BYTES / 4 - 100];
    let largest = |count: usize| put_all(0..count, &value);
    assert!(store.commit(&largest(4)).unwrap());
    assert_eq!(store.get(&key(3)).unwrap().as_ref(), Some(&value));
    let said = store.commit(&largest(5)).unwrap_err().to_string();
    assert!(said.contains(&MAX_BATCH_BYTES.to_string()), "{said}");
}

#[test]
fn copies_replace_each_other_and_leave_nothing() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let coordinator = coordinator(&ceph, "copied");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let pool = pool_of(&ceph, "copied");
    let reader = RadosTable::new(Arc::new(Arc::clone(&pool)), None);
    assert_eq!(reader.copy("good").unwrap(), None);
    for (numbers, value) in [(0..9000, b"old"), (300..301, b"new")] {
        store.commit(&put_all(numbers, value)).unwrap();
        store.keep_copy("good").unwrap();
        assert_eq!(reader.copy("good").unwrap().unwrap(), all(store.as_ref()));
    }
    store.put(&key(0), b"later").unwrap();
    let copy = reader.copy("good").unwrap().unwrap();
    assert_eq!((copy.len(), copy[0].1.as_slice(), copy[300].1.as_slice()), (9000, &b"old"[..], &b"new"[..]));
    assert_eq!(pool.list().unwrap().len(), 2);
}

#[test]
fn what_cannot_be_read_is_named() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let coordinator = coordinator(&ceph, "damaged");
    let master = elected(&coordinator, "one");
    let pool = pool_of(&ceph, "damaged");
    let put = |key: &str, value: &[u8]| {
        let set = vec![(key.to_owned(), value.to_vec())];
        assert!(pool.change(TABLE, &Change { set, ..Change::default() }).unwrap());
    };
    let store = master.table();
    store.put(b"a", b"1").unwrap();
    let mut watched = coordinator.table().watch(b"");
    put("t/61", b"1");
    put("t/6g", b"=1");
    for said in [store.get(b"a").unwrap_err(), store.scan(b"", None, 9).unwrap_err()] {
        let said = said.to_string();
        assert!(said.contains(ceph.pool(0)) && said.contains("t/61") && said.contains("damaged"), "{said}");
    }
    put(&recent_key(1), b"");
    put(STATE, br#"{"format":2,"parts":{}}"#);
    let later = coordinator.table();
    let said = later.scan(b"", None, 9).unwrap_err().to_string();
    assert!(said.contains("key state") && said.contains("format 2"), "{said}");
    assert!(watched.recv().is_err(), "who watches learns that it may have missed something");
    watched = coordinator.table().watch(b"");
    assert!(watched.recv().is_err());
    // The writer, which knows its state, finds another.
    assert!(store.put(b"b", b"1").unwrap_err().to_string().contains("format 2"));
    pool.remove(TABLE).unwrap();
    let said = store.put(b"b", b"1").unwrap_err().to_string();
    assert!(said.contains("is gone"), "{said}");
}

/// What `docs/ceph.md` says of sizes: `cargo test --release -p stripewise-broker --lib figures_of -- --ignored --nocapture`
#[test]
#[ignore = "it measures, which takes minutes and needs a quiet machine"]
fn figures_of_a_growing_table() {
    let Some(ceph) = Ceph::start(&["--osds", "1", "--store", "bluestore", "--osd-bytes", "8589934592"]) else { return };
    let coordinator = coordinator(&ceph, "figures");
    let master = elected(&coordinator, "one");
    let store = master.table();
    let mut count = 0;
    for size in [1000, 100_000, 300_000, 1_000_000] {
        while count < size {
            let end = size.min(count + 20_000);
            assert!(store.commit(&put_all(count..end, &[7; 100])).unwrap());
            count = end;
        }
        let timed = |what: &mut dyn FnMut(usize)| {
            let start = std::time::Instant::now();
            (0..1000).for_each(|number| what(number * size / 1000));
            start.elapsed() / 1000
        };
        let commit = timed(&mut |number| store.put(&key(number), &[8; 100]).unwrap());
        let get = timed(&mut |number| assert!(store.get(&key(number)).unwrap().is_some()));
        let start = std::time::Instant::now();
        assert_eq!(all(store.as_ref()).len(), size);
        println!("{size} keys: a commit of one {commit:?}, a get {get:?}, a whole scan {:?}", start.elapsed());
    }
}
