//! A writer that ends between any two operations, and operations that are lost, repeated or late.

use super::super::objects::{Change, Found, Objects, TABLE};
use super::super::state::{MASTER, MasterRecord};
use super::super::store::{Fence, RadosTable};
use super::{ceph::Ceph, coordinator, pool_of};
use crate::coordination::tests::{LONG_LEASE, all, applied, elected, key, large_batch, put_all};
use crate::rados::{KeyRange, Pool, RadosError};
use crate::rmt::{Batch, Entries, MappingStore};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

fn timed_out() -> RadosError {
    RadosError::TimedOut { about: "a test".to_owned() }
}

fn fence_of(pool: &Arc<Pool>) -> Fence {
    let (found, _) = pool.read(TABLE, &[MASTER], KeyRange::NONE).unwrap();
    let record: MasterRecord = serde_json::from_slice(&found[0].1).unwrap();
    Fence { candidate: record.candidate.clone().unwrap(), record }
}

/// Lets so many operations through; of those after them none begins.
struct Interrupted {
    pool: Arc<Pool>,
    left: AtomicUsize,
    /// Whether the last one takes effect, its answer being lost.
    is_last_sent: bool,
    over: AtomicUsize,
}

impl Interrupted {
    fn run<T>(&self, operation: impl FnOnce() -> Result<T, RadosError>) -> Result<T, RadosError> {
        match self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => return operation(),
            Err(_) if self.over.fetch_add(1, Ordering::Relaxed) == 0 && self.is_last_sent => drop(operation()?),
            Err(_) => {}
        }
        Err(timed_out())
    }
}

impl Objects for Interrupted {
    fn pool(&self) -> &str {
        self.pool.name()
    }

    fn read(&self, object: &str, keys: &[&str], range: KeyRange<'_>) -> Result<Found, RadosError> {
        self.run(|| self.pool.read(object, keys, range))
    }

    fn change(&self, object: &str, change: &Change) -> Result<bool, RadosError> {
        self.run(|| self.pool.change(object, change))
    }

    fn create(&self, object: &str) -> Result<(), RadosError> {
        self.run(|| self.pool.create(object))
    }

    fn remove(&self, object: &str) -> Result<(), RadosError> {
        self.run(|| self.pool.remove(object))
    }
}

/// A writer commits a batch and makes a copy, and ends after so many operations. Returns whether it came to its end.
fn check(ceph: &Ceph, is_last_sent: bool, operations: usize, seen: &mut [bool; 3]) -> bool {
    let cluster = format!("{is_last_sent}-{operations}");
    let coordinator = coordinator(ceph, &cluster).with_lease(LONG_LEASE);
    let pool = pool_of(ceph, &cluster);
    let master = elected(&coordinator, "first");
    let store = master.table();
    assert!(store.commit(&put_all(0..300, b"old")).unwrap());
    store.keep_copy("good").unwrap();
    let before = all(store.as_ref());
    let after = applied(&before, &large_batch());
    let interrupted = Arc::new(Interrupted {
        pool: Arc::clone(&pool),
        left: AtomicUsize::new(operations),
        is_last_sent,
        over: AtomicUsize::new(0),
    });
    let writer = RadosTable::new(Arc::clone(&interrupted) as Arc<dyn Objects>, Some(fence_of(&pool)));
    let committed = writer.commit(&large_batch());
    let copied = committed.is_ok().then(|| writer.keep_copy("good"));

    let reader = RadosTable::new(Arc::new(Arc::clone(&pool)), None);
    let found = all(&reader);
    let took_effect = found == after;
    assert!(took_effect || found == before, "{cluster}: a part of the batch shows");
    assert!(took_effect || committed.is_err(), "{cluster}: acknowledged, but not there");
    let copy = reader.copy("good").unwrap().unwrap();
    assert!(copy == before || copy == after && took_effect, "{cluster}: a part of the copy shows");
    assert!(copy == after || !matches!(copied, Some(Ok(()))), "{cluster}: the copy was acknowledged");
    seen[usize::from(took_effect) + usize::from(copy == after)] = true;

    // The one that follows finds all in order, and leaves no copy but its own.
    master.resign().unwrap();
    let successor = elected(&coordinator, "second");
    let store = successor.table();
    assert!(store.compare_and_swap(b"z", None, Some(b"z")).unwrap());
    let expected: Entries = found.into_iter().chain([(b"z".to_vec(), b"z".to_vec())]).collect();
    assert_eq!(all(store.as_ref()), expected, "{cluster}");
    store.keep_copy("good").unwrap();
    assert_eq!(reader.copy("good").unwrap().unwrap(), expected);
    assert_eq!(pool.list().unwrap().len(), 2, "{cluster}: {:?}", pool.list());
    // What the first one would write by now is refused.
    let first = RadosTable::new(Arc::new(Arc::clone(&pool)), Some(writer_fence(&writer)));
    assert!(matches!(first.put(b"y", b"late"), Err(crate::rmt::RmtError::Deposed { .. })));
    assert!(matches!(first.keep_copy("good"), Err(crate::rmt::RmtError::Deposed { .. })));
    interrupted.over.load(Ordering::Relaxed) == 0
}

fn writer_fence(writer: &RadosTable) -> Fence {
    writer.fence_for_tests().clone()
}

#[test]
fn a_writer_that_ends_between_any_two_operations_leaves_all_or_nothing() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    for is_last_sent in [false, true] {
        let mut seen = [false; 3];
        let needed = (0..100).find(|operations| check(&ceph, is_last_sent, *operations, &mut seen)).unwrap();
        assert!(needed > 6, "it took {needed} operations");
        assert_eq!(seen, [true; 3], "some end before the commit, some before the copy, some after it");
    }
}

/// Answers are lost, operations arrive twice, not at all, or late.
struct Faulty {
    pool: Arc<Pool>,
    dice: Mutex<StdRng>,
    late: Mutex<Vec<Change>>,
}

impl Objects for Faulty {
    fn pool(&self) -> &str {
        self.pool.name()
    }

    fn read(&self, object: &str, keys: &[&str], range: KeyRange<'_>) -> Result<Found, RadosError> {
        self.pool.read(object, keys, range)
    }

    fn change(&self, object: &str, change: &Change) -> Result<bool, RadosError> {
        let what = self.dice.lock().unwrap().random_range(0..8);
        match what {
            0 => Err(timed_out()),
            1 => self.pool.change(object, change).and(Err(timed_out())),
            2 => {
                self.late.lock().unwrap().push(change.clone());
                Err(timed_out())
            }
            3 => self.pool.change(object, change).and_then(|_| self.pool.change(object, change)),
            _ => self.pool.change(object, change),
        }
    }

    fn create(&self, object: &str) -> Result<(), RadosError> {
        self.pool.create(object)
    }

    fn remove(&self, object: &str) -> Result<(), RadosError> {
        self.pool.remove(object)
    }
}

#[test]
fn a_batch_takes_effect_once_whatever_becomes_of_its_operations() {
    let Some(ceph) = Ceph::start(&["--osds", "1"]) else { return };
    let seed = u64::from_str_radix(&crate::coordination::unique_name()[..16], 16).unwrap();
    println!("seed {seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let coordinator = coordinator(&ceph, "faulty");
    let _master = elected(&coordinator, "first");
    let pool = pool_of(&ceph, "faulty");
    let faulty = Arc::new(Faulty {
        pool: Arc::clone(&pool),
        dice: Mutex::new(StdRng::seed_from_u64(seed ^ 1)),
        late: Mutex::default(),
    });
    let writer = RadosTable::new(Arc::clone(&faulty) as Arc<dyn Objects>, Some(fence_of(&pool)));
    let reader = RadosTable::new(Arc::new(Arc::clone(&pool)), None);
    let mut model = Entries::new();
    let mut failures = 0;
    for _ in 0..600 {
        let value = |dice: &mut StdRng| dice.random_bool(0.7).then(|| vec![dice.random_range(0..3); 2]);
        let mut batch = Batch::default();
        for number in 0..6 {
            if dice.random_bool(0.3) {
                batch.changes.push((key(number), value(&mut dice)));
            }
            if dice.random_bool(0.2) {
                let found = model.iter().find(|(found, _)| *found == key(number)).map(|(_, value)| value.clone());
                let expected = if dice.random_bool(0.8) { found } else { value(&mut dice) };
                batch.expected.push((key(number), expected));
            }
        }
        let holds = batch
            .expected
            .iter()
            .all(|(key, value)| model.iter().find(|(found, _)| found == key).map(|(_, value)| value) == value.as_ref());
        let after = if holds { applied(&model, &batch) } else { model.clone() };
        let done = writer.commit(&batch);
        match &done {
            Ok(done) => assert_eq!((*done, &all(&reader)), (holds, &after), "seed {seed}"),
            Err(_) => failures += 1,
        }
        let arrives_now = dice.random_bool(0.5);
        if arrives_now || done.is_ok() {
            for change in std::mem::take(&mut *faulty.late.lock().unwrap()) {
                pool.change(TABLE, &change).unwrap();
            }
        }
        let found = all(&reader);
        assert!(found == after || done.is_err() && found == model, "seed {seed}: {found:?}");
        // One that may still arrive is what the next commit has to prevent, or to see.
        model = found;
        if done.is_err() && !arrives_now {
            let settled = put_all(9..10, b"settled");
            while writer.commit(&settled).is_err() {}
            for change in std::mem::take(&mut *faulty.late.lock().unwrap()) {
                pool.change(TABLE, &change).unwrap();
            }
            model = applied(&model, &settled);
            assert_eq!(all(&reader), model, "seed {seed}: a late operation took effect");
        }
    }
    assert!(failures > 0, "seed {seed}");
}
