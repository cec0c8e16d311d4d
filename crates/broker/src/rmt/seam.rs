//! The seam to the store of the table: ordered keys and values, and batches of changes.

use super::RmtError;
use std::sync::Arc;

/// Changes that take effect together. Built in any order; each key at most once.
#[derive(Clone, Default, Debug)]
pub struct Batch {
    /// What must stand in the store for the batch to apply; `None`: nothing.
    pub expected: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// What stands there afterwards; `None` removes.
    pub changes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A durable, ordered map. Methods may be called from any thread.
pub trait MappingStore: Send + Sync {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError>;

    /// Applies the batch durably if all it expects holds; otherwise changes nothing and returns false.
    fn commit(&self, batch: &Batch) -> Result<bool, RmtError>;

    /// As [`Self::commit`], but durable only with the next commit or [`Self::flush`], with all that took effect before it. Until then it
    /// outlives the process and not a power failure.
    fn commit_later(&self, batch: &Batch) -> Result<bool, RmtError> {
        self.commit(batch)
    }

    /// Makes durable what is not.
    fn flush(&self) -> Result<(), RmtError> {
        Ok(())
    }

    /// Whether anything is not durable yet.
    fn has_pending(&self) -> bool {
        false
    }

    /// Up to `limit` entries whose keys start with `prefix`, in order, the first behind `after` if that is given.
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError>;

    /// From now on the keys that start with `prefix` and are changed, each after its change took effect. What is changed by
    /// other hosts is reported too where the store is shared between hosts.
    fn watch(&self, prefix: &[u8]) -> std::sync::mpsc::Receiver<Vec<u8>>;

    /// Keeps a durable copy of everything, as it is now, beside the store; one of that name is replaced.
    fn keep_copy(&self, name: &str) -> Result<(), RmtError>;

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), RmtError> {
        let changes = vec![(key.to_vec(), Some(value.to_vec()))];
        self.commit(&Batch { expected: Vec::new(), changes }).map(|_| ())
    }

    /// Replaces `old` by `new` (`None`: absent) if `old` stands there; says whether it did.
    fn compare_and_swap(&self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool, RmtError> {
        let owned = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        self.commit(&Batch { expected: vec![(key.to_vec(), owned(old))], changes: vec![(key.to_vec(), owned(new))] })
    }
}

/// Several tables over one store.
impl<S: MappingStore + ?Sized> MappingStore for Arc<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        (**self).get(key)
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        (**self).commit(batch)
    }

    fn commit_later(&self, batch: &Batch) -> Result<bool, RmtError> {
        (**self).commit_later(batch)
    }

    fn flush(&self) -> Result<(), RmtError> {
        (**self).flush()
    }

    fn has_pending(&self) -> bool {
        (**self).has_pending()
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        (**self).scan(prefix, after, limit)
    }

    fn watch(&self, prefix: &[u8]) -> std::sync::mpsc::Receiver<Vec<u8>> {
        (**self).watch(prefix)
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        (**self).keep_copy(name)
    }
}

/// Keys with their values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;
