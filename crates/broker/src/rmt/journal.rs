//! Changes that have taken effect and need not be durable yet.
//!
//! A transaction of LMDB waits for the disk twice. What no program has asked to be durable (a file that was made, a region that was
//! placed, the size at a close, a name that goes) waits for none: it takes effect by [`MappingStore::commit_later`], and becomes durable
//! with the next durable transaction, all of it in that one transaction, or by [`MappingStore::flush`].
//!
//! Until then it stands in memory, where every reader looks first, and in the file `pending` next to the database. The file is written
//! and not synced: it outlives the broker, however that ends, and the successor takes it over. A power failure may take it, whole or
//! from some record on. What is left is then the table as it was at some earlier moment, since changes become durable in their order.
//!
//! The file is a sequence of records: the length of the rest (4 bytes) and its XXH3-64 hash (8 bytes), both little-endian, then the
//! [`Batch`] in postcard's form. A record applies only where all holds that it expects. Every transaction of a table expects the head that it found, with
//! the number and the digest of all before it, so a record of another history, or of one that is durable by now, ends the reading.

use super::{Batch, Entries, MappingStore, RmtError};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, mpsc};
use stripewise_store::state::PENDING as NAME;
use twox_hash::XxHash3_64;

/// With more than this in the file, the next change is made durable with all of it.
const MAX_BYTES: u64 = 1 << 20;
const HEAD_BYTES: usize = 12;

/// By key; `None`: removed.
type Pending = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A store before which changes wait.
pub(super) struct Journal {
    store: Box<dyn MappingStore>,
    file: File,
    pending: RwLock<Pending>,
    /// Bytes of the file in use. Held by whoever changes anything, across the transaction.
    end: Mutex<u64>,
}

impl Journal {
    /// Takes over what a predecessor left in `directory` and makes it durable.
    pub(super) fn open(store: Box<dyn MappingStore>, directory: &Path) -> Result<Self, RmtError> {
        let path = directory.join(NAME);
        let fault = |source| RmtError::Unreadable { path: path.clone(), source };
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(fault)?;
        let bytes = std::fs::read(&path).map_err(fault)?;
        let journal = Self { store, file, pending: RwLock::default(), end: Mutex::new(0) };
        let mut rest = &bytes[..];
        while let Some((batch, behind)) = next_record(rest) {
            if !journal.holds(&batch.expected)? {
                break;
            }
            journal.change(&batch);
            rest = behind;
        }
        journal.flush()?;
        // Or a record might be taken for one of a later history's.
        journal.file.set_len(0).map_err(fault)?;
        Ok(journal)
    }

    fn pending(&self) -> RwLockReadGuard<'_, Pending> {
        self.pending.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, u64> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self, expected: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<bool, RmtError> {
        for (key, value) in expected {
            if self.get(key)? != *value {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn change(&self, batch: &Batch) {
        let mut pending = self.pending.write().unwrap_or_else(PoisonError::into_inner);
        pending.extend(batch.changes.iter().cloned());
    }

    /// One durable transaction of the batch, if all it expects holds, and of all that waits.
    fn commit_all(&self, batch: &Batch, end: &mut u64) -> Result<bool, RmtError> {
        if !self.holds(&batch.expected)? {
            return Ok(false);
        }
        let mut merged = self.pending().clone();
        // What waits is compared above; the rest once more, in the transaction.
        let expected = batch.expected.iter().filter(|(key, _)| !merged.contains_key(key)).cloned().collect();
        merged.extend(batch.changes.iter().cloned());
        if !self.store.commit(&Batch { expected, changes: merged.into_iter().collect() })? {
            return Ok(false);
        }
        self.pending.write().unwrap_or_else(PoisonError::into_inner).clear();
        *end = 0;
        Ok(true)
    }
}

/// The first record and what is behind it; `None`: there is none that is whole.
fn next_record(bytes: &[u8]) -> Option<(Batch, &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (record, behind) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    if XxHash3_64::oneshot(record).to_le_bytes() != *sum {
        return None;
    }
    let (expected, changes) = postcard::from_bytes(record).ok()?;
    Some((Batch { expected, changes }, behind))
}

/// Written as one piece, where a `Vec<u8>` is written byte by byte; the form is the same.
struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

fn pieces(entries: &[(Vec<u8>, Option<Vec<u8>>)]) -> Vec<(Bytes<'_>, Option<Bytes<'_>>)> {
    entries.iter().map(|(key, value)| (Bytes(key), value.as_deref().map(Bytes))).collect()
}

fn record_of(batch: &Batch) -> Option<Vec<u8>> {
    let mut record = vec![0; HEAD_BYTES];
    record = postcard::to_extend(&(pieces(&batch.expected), pieces(&batch.changes)), record).ok()?;
    let (head, batch) = record.split_at_mut(HEAD_BYTES);
    head[..4].copy_from_slice(&u32::try_from(batch.len()).ok()?.to_le_bytes());
    head[4..].copy_from_slice(&XxHash3_64::oneshot(batch).to_le_bytes());
    Some(record)
}

impl MappingStore for Journal {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        match self.pending().get(key) {
            Some(value) => Ok(value.clone()),
            None => self.store.get(key),
        }
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        self.commit_all(batch, &mut self.writing())
    }

    fn commit_later(&self, batch: &Batch) -> Result<bool, RmtError> {
        let mut end = self.writing();
        let record = record_of(batch).filter(|record| *end + record.len() as u64 <= MAX_BYTES);
        let Some(record) = record else { return self.commit_all(batch, &mut end) };
        if !self.holds(&batch.expected)? {
            return Ok(false);
        }
        // Where the file cannot grow, the table may have space of its own yet.
        if self.file.write_all_at(&record, *end).is_err() {
            return self.commit_all(batch, &mut end);
        }
        *end += record.len() as u64;
        self.change(batch);
        Ok(true)
    }

    fn flush(&self) -> Result<(), RmtError> {
        let mut end = self.writing();
        if self.pending().is_empty() {
            return Ok(());
        }
        if !self.commit_all(&Batch::default(), &mut end)? {
            return Err(RmtError::Conflict);
        }
        // Its space is given back; what stays applies to nothing any more.
        let _ = self.file.set_len(0);
        Ok(())
    }

    fn has_pending(&self) -> bool {
        !self.pending().is_empty()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
        // Copied first: what leaves it meanwhile is found below.
        let changed: Vec<_> = {
            let pending = self.pending();
            let changed = pending.range::<[u8], _>((start, Bound::Unbounded));
            let changed = changed.take_while(|(key, _)| key.starts_with(prefix));
            changed.map(|(key, value)| (key.clone(), value.clone())).collect()
        };
        if changed.is_empty() {
            return self.store.scan(prefix, after, limit);
        }
        // As many more as may be gone.
        let stored = self.store.scan(prefix, after, limit.saturating_add(changed.len()))?;
        let is_all = stored.len() < limit.saturating_add(changed.len());
        let last = if is_all { None } else { stored.last().map(|(key, _)| key.clone()) };
        let mut merged: Pending = stored.into_iter().map(|(key, value)| (key, Some(value))).collect();
        // Behind the last entry read there may be others before the next that changed.
        merged.extend(changed.into_iter().filter(|(key, _)| last.as_ref().is_none_or(|last| key <= last)));
        Ok(merged.into_iter().filter_map(|(key, value)| Some((key, value?))).take(limit).collect())
    }

    fn watch(&self, prefix: &[u8]) -> mpsc::Receiver<Vec<u8>> {
        self.store.watch(prefix)
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        self.flush()?;
        self.store.keep_copy(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rmt::memory::MemoryStore;
    use std::sync::Arc;

    /// What a database holds after its process ended, or the power went: what was committed.
    type Disk = Arc<MemoryStore>;

    fn journal(disk: &Disk, directory: &Path) -> Journal {
        Journal::open(Box::new(disk.clone()), directory).unwrap()
    }

    /// The change number `count`: it follows the one before it, and alternately makes and removes the other keys.
    fn step(count: u8) -> Batch {
        let last = count.checked_sub(1).map(|last| vec![last]);
        let other = if count % 3 == 2 { None } else { Some(vec![count]) };
        Batch {
            expected: vec![(b"h".to_vec(), last)],
            changes: vec![(b"h".to_vec(), Some(vec![count])), (vec![b'k', count % 3], other)],
        }
    }

    /// What stands after so many changes.
    fn after(count: u8) -> Entries {
        let store = MemoryStore::default();
        (0..count).for_each(|count| assert!(store.commit(&step(count)).unwrap()));
        store.scan(b"", None, usize::MAX).unwrap()
    }

    fn all(store: &dyn MappingStore) -> Entries {
        store.scan(b"", None, usize::MAX).unwrap()
    }

    #[test]
    fn what_is_not_durable_is_seen_and_outlives_the_process() {
        let (disk, directory) = (Disk::default(), tempfile::tempdir().unwrap());
        let first = journal(&disk, directory.path());
        assert!(first.commit(&step(0)).unwrap());
        for count in 1..8 {
            assert!(first.commit_later(&step(count)).unwrap());
            assert!(first.has_pending() && !first.commit_later(&step(count)).unwrap());
            assert_eq!(all(&first), after(count + 1));
            for limit in 0..4 {
                let from = |after: Option<&[u8]>| first.scan(b"k", after, limit).unwrap();
                let expected: Entries = all(&first).into_iter().filter(|(key, _)| key[0] == b'k').collect();
                assert_eq!(from(None), expected[..limit.min(expected.len())]);
                if let Some((key, _)) = expected.first() {
                    assert_eq!(from(Some(key)), expected[1..(limit + 1).min(expected.len())]);
                }
            }
        }
        assert_eq!(all(&disk), after(1));
        drop(first);
        let second = journal(&disk, directory.path());
        assert_eq!((all(&disk), all(&second), second.has_pending()), (after(8), after(8), false));
        // One durable change takes all before it along.
        assert!(second.commit_later(&step(8)).unwrap() && second.commit(&step(9)).unwrap());
        assert_eq!((all(&disk), second.has_pending()), (after(10), false));
        // What the file still holds is of the past.
        drop(second);
        assert_eq!((all(&journal(&disk, directory.path())), all(&disk)), (after(10), after(10)));
    }

    #[test]
    fn a_power_failure_leaves_the_table_of_some_earlier_moment() {
        let (disk, directory) = (Disk::default(), tempfile::tempdir().unwrap());
        let first = journal(&disk, directory.path());
        (0..5).for_each(|count| assert!(first.commit_later(&step(count)).unwrap()));
        let written = std::fs::read(directory.path().join(NAME)).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for length in 0..=written.len() {
            for damage in [None, length.checked_sub(1)] {
                let (disk, directory) = (Disk::default(), tempfile::tempdir().unwrap());
                let mut left = written[..length].to_vec();
                damage.into_iter().for_each(|at| left[at] ^= 1);
                std::fs::write(directory.path().join(NAME), left).unwrap();
                let found = all(&journal(&disk, directory.path()));
                seen.insert((0..=5).find(|count| after(*count) == found).unwrap());
            }
        }
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn records_of_another_history_apply_to_nothing() {
        let (disk, directory) = (Disk::default(), tempfile::tempdir().unwrap());
        let first = journal(&disk, directory.path());
        (0..3).for_each(|count| assert!(first.commit_later(&step(count)).unwrap()));
        let other = Disk::default();
        let changes = vec![(b"h".to_vec(), Some(vec![99]))];
        assert!(other.commit(&Batch { expected: Vec::new(), changes }).unwrap());
        let before = all(&other);
        assert_eq!(all(&journal(&other, directory.path())), before);
    }

    #[test]
    fn a_long_file_is_made_durable() {
        let (disk, directory) = (Disk::default(), tempfile::tempdir().unwrap());
        let store = journal(&disk, directory.path());
        let large = |number: u8| Batch {
            expected: Vec::new(),
            changes: vec![(vec![b'l', number], Some(vec![number; MAX_BYTES as usize / 3]))],
        };
        assert!(store.commit_later(&large(0)).unwrap() && store.commit_later(&large(1)).unwrap());
        assert!(all(&disk).is_empty() && store.has_pending());
        assert!(store.commit_later(&large(2)).unwrap());
        assert_eq!((all(&disk).len(), store.has_pending()), (3, false));
    }
}
