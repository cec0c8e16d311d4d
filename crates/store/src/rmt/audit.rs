//! Whether the table in a file is whole: what LMDB would follow, every record's checksum, and what all of them add up to.

use super::keys::{describe, file_in};
use super::records::{self, DiscardRecord, FragmentsRecord, HeadRecord, InodeRecord, PlacementRecord, WantedRecord};
use super::witness::Witness;
use super::{
    ClusterRecord, Entries, FileRecord, LogRecord, NameChange, RegionRecord, ReplicaRecord, RmtError, TABLE_VERSION,
    lmdb, pages, sealed, version_3,
};
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;
use stripewise_layout::FileId;

/// Damages told of one table.
const MAX_TOLD: usize = 20;

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

    fn tell(&mut self, what: String) {
        if self.damages.len() < MAX_TOLD {
            self.damages.push(what);
        }
    }

    /// Reads the table in `directory`, without LMDB. Nobody may have it open.
    pub fn of(directory: &Path) -> Result<Self, RmtError> {
        Ok(Self::with_records(directory)?.0)
    }

    /// The entries of a table that are whole, whatever is wrong with it.
    pub(super) fn whole_entries(directory: &Path) -> Result<Entries, RmtError> {
        Ok(Self::with_records(directory)?.1)
    }

    /// As [`Self::of`], with all entries that are whole.
    fn with_records(directory: &Path) -> Result<(Self, Entries), RmtError> {
        let (mut audit, records) = Self::read(&directory.join(lmdb::FILE))?;
        match Witness::read(directory) {
            Ok(Some(last)) if audit.is_whole() && audit.transactions.unwrap_or(0) < last => {
                let found = audit.transactions.unwrap_or(0);
                audit.tell(format!("it is that of transaction {found}, but {last} were committed"));
            }
            Ok(_) => {}
            Err(what) => audit.tell(what),
        }
        Ok((audit, records))
    }

    /// Reads one table's file.
    pub(super) fn of_file(path: &Path) -> Result<Self, RmtError> {
        Ok(Self::read(path)?.0)
    }

    /// Number of the last transaction, as noted beside the table.
    #[must_use]
    pub fn last_transaction(directory: &Path) -> Option<u64> {
        Witness::read(directory).ok().flatten()
    }

    fn read(path: &Path) -> Result<(Self, Entries), RmtError> {
        let fault = |source: std::io::Error| RmtError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(fault)?;
        let mut entries = Entries::new();
        let name = lmdb::TABLE.as_bytes();
        let found = pages::read(&file, name, |key, value| entries.push((key.to_vec(), value.to_vec())))
            .map_err(|errno| fault(errno.into()))?;
        let mut audit = Self::default();
        found.faults.into_iter().for_each(|fault| audit.tell(fault));
        let records = match audit.is_earlier(&entries) {
            true => Entries::new(),
            false => audit.look_at(&entries),
        };
        Ok((audit, records))
    }

    /// Whether the table is of an earlier version, which has no checksums: records that cannot be read are told.
    fn is_earlier(&mut self, entries: &Entries) -> bool {
        let version = entries.iter().find(|(key, _)| key == b"v").and_then(|(_, value)| version_3::version_in(value));
        if !version.is_some_and(|version| version < TABLE_VERSION) {
            return false;
        }
        for (key, value) in entries.iter().filter(|(key, _)| key != b"v") {
            if let Err(error) = version_3::translate(key, value) {
                self.tell(error.to_string());
            }
        }
        self.records = entries.len() as u64;
        true
    }

    fn look_at(&mut self, entries: &Entries) -> Entries {
        let mut records = Entries::with_capacity(entries.len());
        let (mut head, mut digest) = (None, 0u128);
        let mut has_version = false;
        for (key, value) in entries {
            let record = match sealed::open(key, value) {
                Ok(record) => record,
                Err(_) => {
                    self.tell(format!("the entry for {} has another checksum than it should", describe(key)));
                    continue;
                }
            };
            if let Err(error) = reads(key, record) {
                self.tell(error.to_string());
                continue;
            }
            match key.as_slice() {
                b"h" => head = records::decode::<HeadRecord>(key, record).ok(),
                _ => digest = digest.wrapping_add(sealed::digest_of(key, record)),
            }
            has_version |= key == b"v";
            records.push((key.clone(), value.clone()));
        }
        self.records = records.len() as u64;
        match head {
            // An empty store is none that was damaged: it is just being made.
            None if entries.is_empty() => {}
            None => self.tell("the digest of all records is missing".to_owned()),
            Some(head) => {
                let counted = self.records - 1;
                if head.records != counted || digest != u128::from_le_bytes(head.digest) {
                    self.tell(format!(
                        "its {counted} whole records do not add up to the digest of {}: some are lost or old",
                        head.records
                    ));
                }
                if !has_version {
                    self.tell("the version is missing".to_owned());
                }
                self.transactions = Some(head.transactions);
            }
        }
        self.refer(&records);
        records
    }

    /// Records of files that have no record.
    fn refer(&mut self, records: &Entries) {
        let of_kind = |kinds: &'static [u8]| records.iter().filter(move |(key, _)| kinds.contains(&key[0]));
        let files: HashSet<FileId> = of_kind(b"f").map(|(key, _)| file_in(key)).collect();
        // What is left to be removed may outlive its file.
        let mut lost = of_kind(b"prswlg").filter(|(key, _)| !files.contains(&file_in(key))).peekable();
        if let Some((key, _)) = lost.peek() {
            let (first, count) = (describe(key), lost.count());
            self.tell(format!("{count} entries belong to files that it does not know, the first for {first}"));
        }
    }
}

/// Whether the record is one of its key's kind; kinds that are not known are a later stripewise's.
fn reads(key: &[u8], record: &[u8]) -> Result<(), RmtError> {
    match key.first() {
        Some(b'v') => Ok(()),
        Some(b'h') => records::decode::<HeadRecord>(key, record).map(drop),
        Some(b'c') => records::decode::<ClusterRecord>(key, record).map(drop),
        Some(b'f') => records::decode::<FileRecord>(key, record).map(drop),
        Some(b'p' | b'm' | b'e') => records::decode::<PlacementRecord>(key, record).map(drop),
        Some(b'r') => records::decode::<RegionRecord>(key, record).map(drop),
        Some(b'o') => records::decode::<DiscardRecord>(key, record).map(drop),
        Some(b's') => records::decode::<ReplicaRecord>(key, record).map(drop),
        Some(b'w' | b'x') => records::decode::<WantedRecord>(key, record).map(drop),
        Some(b'l') => records::decode::<LogRecord>(key, record).map(drop),
        Some(b'g') => records::decode::<FragmentsRecord>(key, record).map(drop),
        Some(b'i') => records::decode::<InodeRecord>(key, record).map(drop),
        Some(b'n') => records::decode::<NameChange>(key, record).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
