//! A store in memory: what could be read of a damaged table.

use super::{Batch, Entries, MappingStore, RmtError};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

#[derive(Default)]
pub(crate) struct MemoryStore {
    entries: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
}

impl MemoryStore {
    pub(super) fn new(entries: Entries) -> Self {
        Self { entries: Mutex::new(entries.into_iter().collect()) }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Vec<u8>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MappingStore for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        Ok(self.entries().get(key).cloned())
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        let mut entries = self.entries();
        if batch.expected.iter().any(|(key, expected)| entries.get(key) != expected.as_ref()) {
            return Ok(false);
        }
        for (key, value) in &batch.changes {
            match value {
                Some(value) => drop(entries.insert(key.clone(), value.clone())),
                None => drop(entries.remove(key)),
            }
        }
        Ok(true)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        let start = after.map_or(Bound::Included(prefix), Bound::Excluded);
        let entries = self.entries();
        let found = entries.range::<[u8], _>((start, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        Ok(found.take(limit).map(|(key, value)| (key.clone(), value.clone())).collect())
    }

    /// Nobody else changes it.
    fn watch(&self, _prefix: &[u8]) -> mpsc::Receiver<Vec<u8>> {
        mpsc::channel().1
    }

    /// It ends with the process.
    fn keep_copy(&self, _name: &str) -> Result<(), RmtError> {
        Ok(())
    }
}
