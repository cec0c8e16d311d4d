//! Names of files to come and of managed directories, with their placements.

use super::keys::name_key;
use super::records::{PlacementRecord, encode};
use super::{ManagedDirectory, NameKind, RmtError, SCAN, Table, decode};
use stripewise_layout::Placement;

impl Table {
    /// All names of one kind with their placements.
    pub fn names(&self, kind: NameKind) -> Result<Vec<(String, Placement)>, RmtError> {
        Ok(self.name_records(kind)?.into_iter().map(|(path, record)| (path, record.into())).collect())
    }

    /// The managed directories.
    pub fn directories(&self) -> Result<Vec<(String, ManagedDirectory)>, RmtError> {
        let directory =
            |record: PlacementRecord| ManagedDirectory { min_bytes: record.min_bytes, placement: record.into() };
        let records = self.name_records(NameKind::Managed)?;
        Ok(records.into_iter().map(|(path, record)| (path, directory(record))).collect())
    }

    fn name_records(&self, kind: NameKind) -> Result<Vec<(String, PlacementRecord)>, RmtError> {
        let mut all = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let entries = self.store.scan(&[kind as u8], after.as_deref(), SCAN)?;
            for (key, value) in &entries {
                let record = decode::<PlacementRecord>(key, value)?;
                all.push((String::from_utf8_lossy(&key[1..]).into_owned(), record));
            }
            match entries.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    /// Sets or, with `None`, removes a name.
    pub fn set_name(&self, kind: NameKind, path: &str, placement: Option<&Placement>) -> Result<(), RmtError> {
        let record = placement.map(|placement| encode(&PlacementRecord::from(placement)));
        self.set(name_key(kind as u8, path)?, record)
    }

    /// Sets a managed directory.
    pub fn set_directory(&self, path: &str, directory: &ManagedDirectory) -> Result<(), RmtError> {
        let mut record = PlacementRecord::from(&directory.placement);
        record.min_bytes = directory.min_bytes;
        self.set(name_key(NameKind::Managed as u8, path)?, Some(encode(&record)))
    }
}
