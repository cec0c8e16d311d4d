//! Whether the table in a file is whole: what LMDB would follow, every record's checksum, and what all of them add up to.

use super::keys::{describe, file_in};
use super::records::{self, DiscardRecord, FragmentsRecord, HeadRecord, InodeRecord, PlacementRecord, WantedRecord};
use super::witness::Witness;
use super::{
    ClusterRecord, Entries, FileRecord, LogRecord, NameChange, RegionRecord, ReplicaRecord, RmtError, TABLE_VERSION,
    pages, sealed, version_3,
};
use minicbor::{Decode, Encode};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::Path;
use stripewise_layout::FileId;

/// Damages told of one table.
const MAX_REPORTED: usize = 20;

/// What reading a table from end to end found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Audit {
    /// In words; empty: the table is whole.
    pub damages: Vec<String>,
    pub records: u64,
    /// Of the last transaction; `None`: of an earlier version, or unknown.
    pub transactions: Option<u64>,
}

impl Audit {
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.damages.is_empty()
    }

    fn report(&mut self, what: String) {
        if self.damages.len() < MAX_REPORTED {
            self.damages.push(what);
        }
    }

    /// Reads the table in `directory`, without LMDB. Nobody may have it open.
    pub fn of(directory: &Path) -> Result<Self, RmtError> {
        Ok(Self::witnessed(directory, false)?.0)
    }

    /// The entries of a table that are whole, whatever is wrong with it.
    pub(super) fn whole_entries(directory: &Path) -> Result<Entries, RmtError> {
        Ok(Self::witnessed(directory, true)?.1)
    }

    /// As [`Self::of`], with the entries that are whole if they are to be kept.
    fn witnessed(directory: &Path, keep: bool) -> Result<(Self, Entries), RmtError> {
        let (mut audit, entries) = Self::read(&directory.join(pages::FILE), keep)?;
        match Witness::read(directory) {
            Ok(last) => audit.expect(last),
            Err(what) => audit.report(what),
        }
        Ok((audit, entries))
    }

    /// Of the entries of a table that hosts share; `at_least`: its last transaction is known to be this one or a later one.
    #[must_use]
    pub fn of_entries(entries: &Entries, at_least: Option<u64>) -> Self {
        let mut reading = Reading::default();
        entries.iter().for_each(|(key, value)| reading.entry(key, value));
        let mut audit = reading.end(Vec::new()).0;
        audit.expect(at_least);
        audit
    }

    /// Those of a table's entries that are whole, whatever is wrong with the others.
    pub(super) fn whole_of(entries: &Entries) -> Entries {
        let mut reading = Reading { kept: Some(Entries::new()), ..Reading::default() };
        entries.iter().for_each(|(key, value)| reading.entry(key, value));
        reading.end(Vec::new()).1
    }

    fn expect(&mut self, at_least: Option<u64>) {
        let found = self.transactions.unwrap_or(0);
        if let Some(last) = at_least.filter(|last| self.is_whole() && found < *last) {
            self.report(format!("it is that of transaction {found}, but {last} were committed"));
        }
    }

    /// Reads one table's file.
    pub(super) fn of_file(path: &Path) -> Result<Self, RmtError> {
        Ok(Self::read(path, false)?.0)
    }

    /// Number of the last transaction, as noted beside the table.
    #[must_use]
    pub fn last_transaction(directory: &Path) -> Option<u64> {
        Witness::read(directory).ok().flatten()
    }

    fn read(path: &Path, keep: bool) -> Result<(Self, Entries), RmtError> {
        let fault = |source: std::io::Error| RmtError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(fault)?;
        let mut reading = Reading { kept: keep.then(Entries::new), ..Reading::default() };
        let found = pages::read(&file, pages::TABLE.as_bytes(), |key, value| reading.entry(key, value))
            .map_err(|errno| fault(errno.into()))?;
        Ok(reading.end(found.faults))
    }
}

/// One pass over a table's entries. Its version is known at the end only, so what would be damage is noted for both kinds.
#[derive(Default)]
struct Reading {
    /// Entries that are whole, if they are wanted.
    kept: Option<Entries>,
    entries: u64,
    records: u64,
    /// As it stands there, whatever its form.
    version: Option<u32>,
    has_version: bool,
    head: Option<HeadRecord>,
    digest: u128,
    /// If it is a table of this version.
    now: Audit,
    /// If it is one of versions 1 to 3.
    earlier: Audit,
    files: HashSet<FileId>,
    /// Files that records are about: how many, and the first one's key.
    named: BTreeMap<FileId, (u64, Vec<u8>)>,
}

impl Reading {
    fn entry(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        if key == b"v" {
            self.version = version_3::version_in(value);
        }
        match sealed::open(key, value) {
            Ok(record) => self.record(key, record, value),
            Err(_) => {
                self.now.report(format!("the entry for {} has another checksum than it should", describe(key)));
                if key != b"v"
                    && let Err(error) = version_3::translate(key, value)
                {
                    self.earlier.report(error.to_string());
                }
            }
        }
    }

    fn record(&mut self, key: &[u8], record: &[u8], value: &[u8]) {
        if let Err(error) = read_as_its_kind(key, record, false) {
            return self.now.report(error.to_string());
        }
        self.records += 1;
        match key.first() {
            Some(b'h') => self.head = records::decode(key, record).ok(),
            _ => self.digest = self.digest.wrapping_add(sealed::digest_of(key, record)),
        }
        match key.first() {
            Some(b'v') => self.has_version = true,
            Some(b'f') => drop(self.files.insert(file_in(key))),
            // What is left to be removed (`o`) may outlive its file.
            Some(b'p' | b'r' | b's' | b'w' | b'l' | b'g') => {
                self.named.entry(file_in(key)).or_insert_with(|| (0, key.to_vec())).0 += 1;
            }
            _ => {}
        }
        if let Some(kept) = &mut self.kept {
            kept.push((key.to_vec(), value.to_vec()));
        }
    }

    fn end(mut self, faults: Vec<String>) -> (Audit, Entries) {
        if self.version.is_some_and(|version| version < TABLE_VERSION) {
            let damages = faults.into_iter().chain(self.earlier.damages).collect();
            return (Audit { damages, records: self.entries, transactions: None }, Entries::new());
        }
        let mut audit = Audit { damages: faults, records: self.records, transactions: None };
        std::mem::take(&mut self.now.damages).into_iter().for_each(|damage| audit.report(damage));
        self.add_up(&mut audit);
        (audit, self.kept.unwrap_or_default())
    }

    fn add_up(&self, audit: &mut Audit) {
        match &self.head {
            // An empty store is none that was damaged: it is just being made.
            None if self.entries == 0 => {}
            None => audit.report("the digest of all records is missing".to_owned()),
            Some(head) => {
                let counted = self.records - 1;
                if head.records != counted || self.digest != u128::from_le_bytes(head.digest) {
                    audit.report(format!(
                        "its {counted} whole records do not add up to the digest of {}: some are lost or old",
                        head.records
                    ));
                }
                if !self.has_version {
                    audit.report("the version is missing".to_owned());
                }
                audit.transactions = Some(head.transactions);
            }
        }
        let mut lost =
            self.named.iter().filter(|(file, _)| !self.files.contains(file)).map(|(_, lost)| lost).peekable();
        if let Some((_, key)) = lost.peek() {
            let first = describe(key);
            let count: u64 = lost.map(|(count, _)| count).sum();
            audit.report(format!("{count} entries belong to files that it does not know, the first for {first}"));
        }
    }
}

/// The record as it would be written now, if it is one of its key's kind; kinds that are not known are a later stripewise's.
pub fn rewritten(key: &[u8], record: &[u8]) -> Result<Vec<u8>, RmtError> {
    Ok(read_as_its_kind(key, record, true)?.unwrap_or_else(|| record.to_vec()))
}

/// An error if the record is none of its key's kind. It is written again if that is asked for.
fn read_as_its_kind(key: &[u8], record: &[u8], writes: bool) -> Result<Option<Vec<u8>>, RmtError> {
    let known = Known { key, record, writes };
    match key.first() {
        Some(b'h') => known.read::<HeadRecord>(),
        Some(b'c') => known.read::<ClusterRecord>(),
        Some(b'f') => known.read::<FileRecord>(),
        Some(b'p' | b'm' | b'e') => known.read::<PlacementRecord>(),
        Some(b'r') => known.read::<RegionRecord>(),
        Some(b'o') => known.read::<DiscardRecord>(),
        Some(b's') => known.read::<ReplicaRecord>(),
        Some(b'w' | b'x') => known.read::<WantedRecord>(),
        Some(b'l') => known.read::<LogRecord>(),
        Some(b'g') => known.read::<FragmentsRecord>(),
        Some(b'i') => known.read::<InodeRecord>(),
        Some(b'n') => known.read::<NameChange>(),
        _ => Ok(None),
    }
}

struct Known<'a> {
    key: &'a [u8],
    record: &'a [u8],
    writes: bool,
}

impl Known<'_> {
    fn read<T: Encode<()> + for<'b> Decode<'b, ()>>(&self) -> Result<Option<Vec<u8>>, RmtError> {
        let record: T = records::decode(self.key, self.record)?;
        Ok(self.writes.then(|| records::encode(&record)))
    }
}

#[cfg(test)]
mod tests;
