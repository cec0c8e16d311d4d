//! Transactions: every one replaces the head, which says what the records add up to.

use super::records::{self, HeadRecord, encode};
use super::{Batch, Changes, MappingStore, RmtError, TABLE_VERSION, Table, sealed, version_3};
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

const VERSION: &[u8] = b"v";
const HEAD: &[u8] = b"h";
/// Features that this stripewise knows; a table may need them.
const FEATURES: [&str; 0] = [];
const SCAN: usize = 4096;

/// The version in a store; `None`: it is empty.
pub(super) fn version_of(store: &dyn MappingStore) -> Result<Option<u32>, RmtError> {
    let Some(value) = store.get(VERSION)? else {
        return match store.scan(b"", None, 1)?.is_empty() {
            true => Ok(None),
            false => Err(RmtError::Damaged { key: "the version".to_owned(), what: "it is missing".to_owned() }),
        };
    };
    // Up to version 3 it had no checksum. A stripewise of these versions reads the number in front of ours, and refuses it.
    match version_3::version_in(&value).filter(|found| *found < TABLE_VERSION) {
        Some(found) => Ok(Some(found)),
        None => Ok(version_3::version_in(sealed::open(VERSION, &value)?)),
    }
}

/// The version of a table that is to be rewritten before it is used.
pub(crate) fn earlier_version(store: &dyn MappingStore) -> Result<Option<u32>, RmtError> {
    Ok(version_of(store)?.filter(|found| *found < TABLE_VERSION))
}

/// The record of the version, as all later ones write it.
fn version_record() -> Vec<u8> {
    postcard::to_stdvec(&TABLE_VERSION).expect("a number")
}

/// Makes an empty store a table.
pub(super) fn begin(store: &dyn MappingStore) -> Result<(), RmtError> {
    let mut head = Head::default();
    let version = head.add(VERSION, &version_record());
    let changes = vec![(VERSION.to_vec(), Some(version)), (HEAD.to_vec(), Some(head.sealed()))];
    match store.commit(&Batch { expected: vec![(VERSION.to_vec(), None)], changes })? {
        true => Ok(()),
        false => Err(RmtError::Conflict),
    }
}

/// Keeps a copy of a table of an earlier version and rewrites all of it in one transaction.
pub(super) fn rewrite(store: &dyn MappingStore, found: u32) -> Result<(), RmtError> {
    store.keep_copy(&format!("v{found}"))?;
    let mut head = Head::default();
    let version = head.add(VERSION, &version_record());
    let mut changes = vec![(VERSION.to_vec(), Some(version))];
    let mut after: Option<Vec<u8>> = None;
    loop {
        let entries = store.scan(b"", after.as_deref(), SCAN)?;
        for (key, value) in entries.iter().filter(|(key, _)| key != VERSION) {
            let record = version_3::translate(key, value)?;
            changes.push((key.clone(), Some(head.add(key, &record))));
        }
        match entries.into_iter().next_back() {
            Some((last, _)) => after = Some(last),
            None => break,
        }
    }
    changes.push((HEAD.to_vec(), Some(head.sealed())));
    match store.commit(&Batch { expected: vec![(VERSION.to_vec(), store.get(VERSION)?)], changes })? {
        true => Ok(()),
        false => Err(RmtError::Conflict),
    }
}

/// The head as it stands in the store, or is to.
#[derive(Clone, Default, Debug)]
pub(super) struct Head {
    record: HeadRecord,
    digest: u128,
}

impl Head {
    pub(super) fn read(store: &dyn MappingStore) -> Result<Self, RmtError> {
        let value = store.get(HEAD)?.unwrap_or_default();
        let record: HeadRecord = records::decode(HEAD, sealed::open(HEAD, &value)?)?;
        let digest = u128::from_le_bytes(record.digest);
        Ok(Self { record, digest })
    }

    pub(super) fn transactions(&self) -> u64 {
        self.record.transactions
    }

    pub(super) fn refuse_unknown_needs(&self) -> Result<(), RmtError> {
        match self.record.needs.iter().find(|feature| !FEATURES.contains(&feature.as_str())) {
            Some(feature) => Err(RmtError::Feature { feature: feature.clone() }),
            None => Ok(()),
        }
    }

    /// Counts a record and returns it as it is to be stored.
    fn add(&mut self, key: &[u8], record: &[u8]) -> Vec<u8> {
        self.record.records += 1;
        self.digest = self.digest.wrapping_add(sealed::digest_of(key, record));
        sealed::seal(key, record)
    }

    fn take_off(&mut self, key: &[u8], record: &[u8]) {
        self.record.records = self.record.records.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(sealed::digest_of(key, record));
    }

    fn sealed(&mut self) -> Vec<u8> {
        self.record.digest = self.digest.to_le_bytes();
        sealed::seal(HEAD, &encode(&self.record))
    }
}

/// Whether a change was refused because another host is master.
#[derive(Default)]
pub(super) struct Deposition(AtomicBool);

impl Deposition {
    fn noted<T>(&self, result: Result<T, RmtError>) -> Result<T, RmtError> {
        if matches!(result, Err(RmtError::Deposed { .. })) {
            self.0.store(true, Relaxed);
        }
        result
    }
}

impl Table {
    /// A transaction that changes nothing else: its number is nobody else's. At least `least`.
    pub fn advance(&self, least: u64) -> Result<u64, RmtError> {
        self.transact(&Changes::default(), least, |batch| self.store.commit(batch))
    }

    /// Makes the changes durable, together, and with them all that took effect before.
    pub fn commit(&self, changes: &Changes) -> Result<(), RmtError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.transact(changes, 0, |batch| self.store.commit(batch)).map(drop)
    }

    /// Has the changes take effect, together. They outlive the broker, and become durable with the next commit or flush; a power failure
    /// before that may take them, and then all that took effect after them.
    pub fn commit_later(&self, changes: &Changes) -> Result<(), RmtError> {
        if changes.is_empty() {
            return Ok(());
        }
        self.transact(changes, 0, |batch| self.store.commit_later(batch)).map(drop)
    }

    /// Makes durable whatever took effect before.
    pub fn flush(&self) -> Result<(), RmtError> {
        let known = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.store.has_pending() {
            return Ok(());
        }
        self.deposition.noted(self.store.flush())?;
        let transactions = match known.as_ref() {
            Some(head) => head.transactions(),
            None => Head::read(self.store.as_ref())?.transactions(),
        };
        self.note_durable(transactions);
        Ok(())
    }

    /// Whether all that took effect is durable.
    pub fn is_durable(&self) -> bool {
        !self.store.has_pending()
    }

    /// Whether a change was refused because another host is master: what was asked here is to be asked there.
    pub fn is_deposed(&self) -> bool {
        self.deposition.0.load(Relaxed)
    }

    fn note_durable(&self, transactions: u64) {
        // A full or failing disk keeps the number of an earlier one, which contradicts nothing.
        let _ = self.witness.as_ref().map(|witness| witness.note(transactions));
    }

    fn transact(
        &self,
        changes: &Changes,
        least: u64,
        commit: impl FnOnce(&Batch) -> Result<bool, RmtError>,
    ) -> Result<u64, RmtError> {
        // Held over the transaction: the next one goes on from its head.
        let mut known = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        let mut head = match known.take() {
            Some(head) => head,
            // Also after a transaction of which it is not known whether it took effect.
            None => Head::read(self.store.as_ref())?,
        };
        let mut batch = Batch { expected: vec![(HEAD.to_vec(), Some(head.sealed()))], changes: Vec::new() };
        for (key, record) in &changes.0 {
            if let Some(value) = self.store.get(key)? {
                head.take_off(key, sealed::open(key, &value)?);
            }
            batch.changes.push((key.clone(), record.as_ref().map(|record| head.add(key, record))));
        }
        head.record.transactions = (head.record.transactions + 1).max(least);
        batch.changes.push((HEAD.to_vec(), Some(head.sealed())));
        if !self.deposition.noted(commit(&batch))? {
            return Err(RmtError::Conflict);
        }
        if self.is_durable() {
            self.note_durable(head.record.transactions);
        }
        let number = head.record.transactions;
        *known = Some(head);
        Ok(number)
    }
}
