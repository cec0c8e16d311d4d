//! The store of the table in a pool.

use super::super::{KeyRange, RadosError};
use super::copies;
use super::error::RadosTableError;
use super::objects::{Change, Objects, TABLE};
use super::scanning::scan;
use super::state::{
    Entry, MASTER, MasterRecord, RECENT, Recent, STATE, State, decode, entry_key, entry_value, recent_key, table_value,
    value_of,
};
use super::watch::{Follower, watch};
use crate::coordination::Candidate;
use crate::rmt::{Batch, Entries, MappingStore, RmtError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

/// Expectations that the operation itself compares, each an operation of its own within it. More are read before; nothing changes in between
/// unless the state does.
const MAX_COMPARED: usize = 1024;
/// Keys and values of one batch, in bytes: below Ceph's 90 MiB for a message (`osd_max_write_size`).
pub(super) const MAX_BATCH_BYTES: usize = 64 << 20;
/// How often an operation is tried whose answer does not come.
const ATTEMPTS: usize = 3;

/// What every change of a master expects: that the record of its election still stands.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) record: MasterRecord,
    pub(super) candidate: Candidate,
}

/// What became of a batch.
enum Done {
    Applied,
    /// Something that the batch expects does not hold.
    Unexpected,
    /// The state is another than was thought.
    Moved,
}

/// The table of a cluster in a pool of Ceph.
pub struct RadosTable {
    objects: Arc<dyn Objects>,
    /// `None`: nobody's election; it reads only.
    fence: Option<Fence>,
    /// The state in the pool, if known. Held across a commit.
    known: Mutex<Option<Option<State>>>,
    /// Held while a copy is made.
    copying: Mutex<()>,
    followers: Mutex<Vec<Follower>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RadosTable {
    pub(super) fn new(objects: Arc<dyn Objects>, fence: Option<Fence>) -> Self {
        Self { objects, fence, known: Mutex::default(), copying: Mutex::default(), followers: Mutex::default() }
    }

    fn fence(&self) -> Result<&Fence, RmtError> {
        let reader = || RmtError::Deposed { name: "a reader of the table".into(), master: "another".into() };
        self.fence.as_ref().ok_or_else(reader)
    }

    /// What stands at the keys, which are those of the object.
    fn values(&self, keys: &[&str]) -> Result<Vec<(String, Vec<u8>)>, RadosTableError> {
        Ok(self.objects.read(TABLE, keys, KeyRange::NONE)?.0)
    }

    fn state(&self) -> Result<Option<State>, RadosTableError> {
        let found = self.values(&[STATE])?;
        value_of(&found, STATE).map(|value| decode(self.objects.as_ref(), STATE, value)).transpose()
    }

    /// Applies the batch, if `state` is the last one. More than once is as once.
    fn decide(&self, fence: &Fence, state: Option<&State>, batch: &Batch) -> Result<(Done, State), RmtError> {
        let next = State::after(state);
        if batch.expected.len() > MAX_COMPARED && !self.holds(&batch.expected).map_err(|error| self.fault(error))? {
            return Ok((self.refused(fence, state, &next)?, next));
        }
        let mut change = Change::default();
        change.expected.push((MASTER.to_owned(), Some(fence.record.encode())));
        change.expected.push((STATE.to_owned(), state.map(State::encode)));
        if batch.expected.len() <= MAX_COMPARED {
            let of_batch = batch.expected.iter();
            change.expected.extend(of_batch.map(|(key, value)| (entry_key(key), value.as_deref().map(entry_value))));
        }
        for (key, value) in &batch.changes {
            change.put(entry_key(key), value.as_deref().map(entry_value));
        }
        change.put(STATE.to_owned(), Some(next.encode()));
        change.put(recent_key(next.number), Some(Recent::of(&next.batch, &batch.changes).encode()));
        change.removed.extend(next.number.checked_sub(RECENT).map(recent_key));
        let done = match self.change(&change)? {
            true => Done::Applied,
            false => self.refused(fence, state, &next)?,
        };
        Ok((done, next))
    }

    /// Whether what a batch expects stands there.
    fn holds(&self, expected: &[Entry]) -> Result<bool, RadosTableError> {
        for part in expected.chunks(MAX_COMPARED) {
            let keys: Vec<_> = part.iter().map(|(key, _)| entry_key(key)).collect();
            let found = self.values(&keys.iter().map(String::as_str).collect::<Vec<_>>())?;
            let found: std::collections::HashMap<_, _> = found.into_iter().collect();
            let is_there =
                |(key, (_, value)): (&String, &Entry)| found.get(key) == value.as_deref().map(entry_value).as_ref();
            if !keys.iter().zip(part).all(is_there) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One change of the table's object, sent again while its answer does not come.
    fn change(&self, change: &Change) -> Result<bool, RmtError> {
        let (mut attempts, mut unanswered) = (ATTEMPTS, None);
        loop {
            attempts -= 1;
            return match (self.objects.change(TABLE, change), unanswered.take()) {
                (Err(timed_out @ RadosError::TimedOut { .. }), _) if attempts > 0 => {
                    unanswered = Some(timed_out);
                    continue;
                }
                // An earlier sending may take effect all the same.
                (Err(RadosError::Full { .. }), Some(timed_out)) => Err(self.fault(timed_out)),
                (Err(RadosError::Missing { pool, object }), _) => Err(RadosTableError::Gone { pool, object }.into()),
                (Err(error), _) => Err(self.fault(error)),
                (Ok(held), _) => Ok(held),
            };
        }
    }

    /// Whoever follows a master blocklists it, so that is how a master may learn of it.
    fn fault(&self, error: impl Into<RadosTableError>) -> RmtError {
        match (error.into(), &self.fence) {
            (RadosTableError::Rados(RadosError::Blocklisted { .. }), Some(fence)) => RmtError::Deposed {
                name: fence.candidate.name.clone(),
                master: "another, which shut this process out of Ceph".to_owned(),
            },
            (error, _) => error.into(),
        }
    }

    /// Why a batch did not take effect, unless an earlier sending of it did.
    fn refused(&self, fence: &Fence, state: Option<&State>, next: &State) -> Result<Done, RmtError> {
        let recent = recent_key(next.number);
        let found = self.objects.read(TABLE, &[MASTER, STATE, &recent], KeyRange::NONE);
        let (found, _) = found.map_err(|error| self.fault(error))?;
        let objects = self.objects.as_ref();
        if let Some(value) = value_of(&found, &recent)
            && Recent::decode(objects, &recent, value)?.batch == next.batch
        {
            return Ok(Done::Applied);
        }
        self.refuse_deposed(fence, value_of(&found, MASTER))?;
        let last: Option<State> = value_of(&found, STATE).map(|value| decode(objects, STATE, value)).transpose()?;
        Ok(if last.as_ref() == state { Done::Unexpected } else { Done::Moved })
    }

    fn refuse_deposed(&self, fence: &Fence, found: Option<&[u8]>) -> Result<(), RmtError> {
        let record = found.map(|value| decode::<MasterRecord>(self.objects.as_ref(), MASTER, value)).transpose()?;
        if record.as_ref() == Some(&fence.record) {
            return Ok(());
        }
        let master = match record.and_then(|record| record.candidate) {
            Some(candidate) => format!("{} at {}", candidate.name, candidate.address),
            None => "nobody".to_owned(),
        };
        Err(RmtError::Deposed { name: fence.candidate.name.clone(), master })
    }

    /// Replaces the value of a key that is not of the table.
    fn replace(&self, key: &str, old: Option<Vec<u8>>, new: &[u8]) -> Result<(), RmtError> {
        let fence = self.fence()?;
        let mut change = Change::default();
        change.expected.push((MASTER.to_owned(), Some(fence.record.encode())));
        change.expected.push((key.to_owned(), old));
        change.put(key.to_owned(), Some(new.to_vec()));
        if self.change(&change)? {
            return Ok(());
        }
        let found = self.values(&[MASTER, key]).map_err(|error| self.fault(error))?;
        self.refuse_deposed(fence, value_of(&found, MASTER))?;
        match value_of(&found, key) == Some(new) {
            true => Ok(()),
            false => Err(RmtError::Conflict),
        }
    }

    /// The entries of the copy of this name; `None`: there is none.
    ///
    /// # Errors
    /// The pool's.
    pub fn copy(&self, name: &str) -> Result<Option<Entries>, RmtError> {
        Ok(copies::read(self.objects.as_ref(), name)?)
    }

    #[cfg(test)]
    pub(super) fn fence_for_tests(&self) -> &Fence {
        self.fence.as_ref().expect("a writer")
    }

    fn bytes_of(entries: &[Entry]) -> usize {
        entries.iter().map(|(key, value)| 2 * key.len() + value.as_ref().map_or(0, Vec::len)).sum()
    }
}

impl MappingStore for RadosTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        let name = entry_key(key);
        let found = self.objects.read(TABLE, &[&name], KeyRange::NONE);
        let (mut found, _) = found.map_err(|error| self.fault(error))?;
        let value = found.pop().map(|(name, value)| table_value(self.objects.as_ref(), &name, value));
        Ok(value.transpose()?)
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        let fence = self.fence()?;
        let bytes = Self::bytes_of(&batch.expected) + Self::bytes_of(&batch.changes);
        if bytes > MAX_BATCH_BYTES {
            return Err(RadosTableError::TooLarge { bytes, limit: MAX_BATCH_BYTES }.into());
        }
        let mut known = lock(&self.known);
        loop {
            // Forgotten until this succeeds: after an error it is not known.
            let state = match known.take() {
                Some(state) => state,
                None => self.state().map_err(|error| self.fault(error))?,
            };
            match self.decide(fence, state.as_ref(), batch)? {
                (Done::Applied, next) => {
                    *known = Some(Some(next));
                    return Ok(true);
                }
                (Done::Unexpected, _) => {
                    *known = Some(state);
                    return Ok(false);
                }
                (Done::Moved, _) => {}
            }
        }
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        scan(self.objects.as_ref(), prefix, after, limit).map_err(|error| self.fault(error))
    }

    fn watch(&self, prefix: &[u8]) -> mpsc::Receiver<Vec<u8>> {
        // Without an answer the receiver ends at once.
        let Ok(state) = self.state() else { return mpsc::channel().1 };
        let (receiver, follower) = watch(&self.objects, prefix, state.map_or(0, |state| state.number));
        lock(&self.followers).extend(follower);
        receiver
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        let _one_at_a_time = lock(&self.copying);
        let objects = self.objects.as_ref();
        let (found, record) = copies::record(objects, name).map_err(|error| self.fault(error))?;
        let entries = self.scan(b"", None, usize::MAX)?;
        let (object, begun) = record.begin(name);
        self.replace(&copies::key(name), found, &begun.encode())?;
        copies::write(objects, &object, entries).map_err(|error| self.fault(error))?;
        let replaced = begun.replace_by(object);
        self.replace(&copies::key(name), Some(begun.encode()), &replaced.encode())?;
        let ended = replaced.remove_old(objects).map_err(|error| self.fault(error))?;
        self.replace(&copies::key(name), Some(replaced.encode()), &ended.encode())
    }
}
