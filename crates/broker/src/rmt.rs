//! The region mapping table: the durable map from file id and region to generation and layout, together with all other durable
//! state of the broker. Only the broker opens it.
//!
//! [`MappingStore`] is the interface to the database: ordered keys and values, and batches that take effect durably and as a whole,
//! or, if an expectation does not hold, not at all. [`lmdb`] implements it with an LMDB database named `rmt` in the directory
//! `rmt/`. [`Table`] gives the keys and values their meaning:
//!
//! | key | value |
//! |---|---|
//! | `v` | version of the table |
//! | `c` | [`ClusterRecord`]: whose table it is, and which server each number means |
//! | `f` file id | [`FileRecord`] |
//! | `p` file id | the file's [`Placement`] |
//! | `r` file id, region | [`RegionRecord`] |
//! | `o` file id, region, generation | [`Layout`] of objects that belong to no region: those that a move fills, and after it those it came from |
//! | `s` file id, region, number | [`ReplicaRecord`]: a further copy of the region that equals its place; of at most three |
//! | `w` file id | list of [`WantedReplicas`]: the further copies that the file's regions are to have |
//! | `l` file id, server | [`LogRecord`]: the log of the file's fragments on that disk |
//! | `g` file id | whether fragments of the file go to SSDs; no entry: as the cluster says |
//! | `i` device, inode | file id |
//! | `n` number | [`NameChange`]: a call that was about to change names of managed files |
//! | `m` directory | [`Placement`] of new files below a managed directory |
//! | `e` path | [`Placement`] of a file that a plan expects |
//! | `x` path | list of [`WantedReplicas`] of such a file |
//! | `a` host | [`HostRecord`]: another host of the cluster may have files open; its last agent |
//! | `d` host | [`HostRecord`]: agents of the host were shut out of the servers, and what they had open is closed |
//! | `q` server | [`HostRecord`]: the server is being emptied; of a cluster of many hosts |
//! | `k` | [`KeyRecord`]: which key the hosts of the cluster have, once it was replaced |
//! | `j` host | [`HostRecord`]: the host took part, and was not forgotten since; the directories that were probed with its machine |
//! | `h` | [`HeadRecord`]: how many records there are and their digest, replaced with every transaction |
//!
//! Numbers in keys are big-endian (`keys`). A value is a record (`records`) followed by a checksum of 8 bytes (`sealed`).
//!
//! # Integrity
//!
//! - The checksum covers key and record. It shows a record that is damaged or that is stored at another key.
//! - The head `h` holds the number of all other records and the sum of their digests. Every transaction replaces it, so a lost or
//!   stale record shows.
//! - The file `committed` next to the database holds the number of the last transaction (`witness`). It shows a table that was
//!   replaced by an older one as a whole.
//! - The file `pending` next to the database holds changes that have taken effect and are not durable yet (`journal`).
//! - `rmt.good/` is a copy in LMDB's compact form with a `committed` of its own. A broker makes it after it has read the table and
//!   found it intact, and again when it stops, unless the copy would be the same.
//!
//! # Compatibility
//!
//! [`TABLE_VERSION`] is raised when an earlier stripewise could misread a key or a value. An added field is optional or has a
//! default and needs no new version (`records`). A key of an unknown kind belongs to a later version: it is kept, and it counts
//! in the digest.
//!
//! Version 2 added `o`, `s`, `w` and `x`; version 3 added `l` and `g`; version 4 added `h`, numbered fields and checksums. The
//! first broker of a new version keeps a copy of the old table in `rmt.vN/` and rewrites all records in one transaction
//! (`version_3`). The record of `v` is the bare number, as it was in versions 1 to 3, so a stripewise of those versions refuses
//! the table and names its version.
//!
//! # Invariant
//!
//! A replica that no longer equals its region's place has no `s` record: the record became an `o` before the write that made the
//! two differ.

mod audit;
mod belonging;
mod fate;
mod fragments;
mod head;
mod hosts;
mod inode;
mod journal;
mod keys;
pub mod lmdb;
mod memory;
mod name_changes;
mod names;
mod pages;
mod records;
mod salvaging;
mod sealed;
mod seam;
mod version_3;
mod witness;

pub use name_changes::{Caller, Mover, NameChange, Place, Victim};

pub use audit::{Audit, rewritten};
pub(crate) use belonging::Forgetting;
pub(crate) use fate::{Fate, fate_of};
pub(crate) use head::earlier_version;
pub(crate) use hosts::{
    KnownHosts, agent_in, drained_in, expect_as, hosts_in, is_shut_out_in, key_record, key_record_in, note_drained,
    probe, set_key_record,
};
pub use inode::Inode;
pub(crate) use inode::let_devices_differ;
pub(crate) use keys::describe;
use keys::{discard_key, file_in, file_key, inode_key, log_key, name_key, region_key, replica_key};
#[cfg(test)]
pub(crate) use memory::MemoryStore;
use minicbor::Decode;
pub use records::{
    ClusterRecord, FileRecord, FileState, HeadRecord, HostRecord, KeyRecord, LogRecord, RegionRecord, ReplicaRecord,
};
use records::{DiscardRecord, InodeRecord, PlacementRecord, WantedRecord, encode};
use salvaging::in_memory;
pub(crate) use salvaging::{begin_in_memory, entries_of, noted_in, salvaged};
pub use seam::{Batch, Entries, MappingStore};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use stripewise_layout::{FileId, Generation, Layout, Placement, RegionIndex, ServerId};
use stripewise_store::protocol::WantedReplicas;
pub use version_3::translate as record_of_version_3;

/// Raised when an earlier stripewise could misread a key or a value; a later version is refused by name.
pub const TABLE_VERSION: u32 = 4;

#[derive(Debug, thiserror::Error)]
pub enum RmtError {
    #[error("{}: {source}", path.display())]
    Store { path: PathBuf, source: heed::Error },
    #[error("{}: its file system is full; free some space there", path.display())]
    Full { path: PathBuf },
    #[error(
        "{}: the mapping table needs {bytes} bytes of address space, which this process cannot get; raise its limit (`ulimit -v`)",
        path.display()
    )]
    AddressSpace { path: PathBuf, bytes: usize },
    #[error(
        "the mapping table has version {found}, this stripewise reads {TABLE_VERSION}; use the stripewise that wrote it"
    )]
    Version { found: u32 },
    #[error("the mapping table needs {feature}, which this stripewise does not know; use the stripewise that wrote it")]
    Feature { feature: String },
    #[error("the mapping table's entry for {key} is damaged: {what}; run `stripewise check`, which names the remedy")]
    Damaged { key: String, what: String },
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the path {path} is longer than the mapping table's {limit} bytes for a name")]
    PathTooLong { path: String, limit: usize },
    #[error(
        "the mapping table belongs to cluster {found}, cluster.toml names cluster {expected}; correct its `state` or `id`"
    )]
    OtherCluster { found: String, expected: String },
    #[error(
        "cluster.toml lists the servers {listed}, but files were placed on {known}, in this order; list these first and new servers after them"
    )]
    Servers { listed: String, known: String },
    #[error(
        "cluster.toml lists the servers {listed}, but the mapping table knows {known}, in this order, and {what}. List these first and new servers after them; {remedy}"
    )]
    ServerInUse { listed: String, known: String, what: String, remedy: String },
    #[error("the mapping table was changed by another while this change was made")]
    Conflict,
    /// Of an engine that hosts share.
    #[error("the mapping table: {source}")]
    Engine { is_full: bool, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(
        "{name} is not the master of this cluster, so it changes nothing in the mapping table; the master is {master}"
    )]
    Deposed { name: String, master: String },
}

impl RmtError {
    /// Whether it is for want of space on the table's file system. Of an engine that hosts share this is an answer: nothing of what it refused is under way.
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Engine { is_full, .. } => *is_full,
            Self::Unreadable { source, .. } => {
                matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }
            _ => false,
        }
    }
}

/// The typed table over a store.
pub struct Table {
    store: Box<dyn MappingStore>,
    head: Mutex<Option<head::Head>>,
    witness: Option<witness::Witness>,
    deposition: head::Deposition,
}

const SCAN: usize = 1024;

/// Name of the last good copy.
pub const GOOD_COPY: &str = "good";

/// Which list of names a path is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NameKind {
    Managed = b'm',
    Expected = b'e',
}

/// What the table says of a managed directory.
#[derive(Clone, PartialEq, Debug)]
pub struct ManagedDirectory {
    /// Where regions of new files go.
    pub placement: Placement,
    /// Size in bytes below which files are ordinary.
    pub min_bytes: Option<u64>,
}

/// Changes to the table that take effect together.
#[derive(Default, Debug)]
pub struct Changes(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Changes {
    /// The record that is to stand at `key`, without checksum; `None`: none.
    fn set(&mut self, key: Vec<u8>, record: Option<Vec<u8>>) {
        self.0.insert(key, record);
    }

    pub fn put_file(&mut self, file: FileId, record: &FileRecord) {
        self.set(file_key(b'f', file), Some(encode(record)));
    }

    pub fn put_placement(&mut self, file: FileId, placement: &Placement) {
        self.set(file_key(b'p', file), Some(encode(&PlacementRecord::from(placement))));
    }

    pub fn put_inode(&mut self, inode: Inode, file: FileId) {
        self.set(inode_key(inode), Some(encode(&InodeRecord { file })));
    }

    pub fn remove_inode(&mut self, inode: Inode) {
        self.set(inode_key(inode), None);
    }

    pub fn put_region(&mut self, file: FileId, region: RegionIndex, record: &RegionRecord) {
        self.set(region_key(file, region), Some(encode(record)));
    }

    pub fn remove_region(&mut self, file: FileId, region: RegionIndex) {
        self.set(region_key(file, region), None);
    }

    /// Objects of this generation belong to no region: a broker that finds the entry at its start removes them.
    pub fn put_discard(&mut self, file: FileId, region: RegionIndex, generation: Generation, layout: &Layout) {
        self.set(discard_key(file, region, generation), Some(encode(&DiscardRecord { layout: layout.clone() })));
    }

    pub fn remove_discard(&mut self, file: FileId, region: RegionIndex, generation: Generation) {
        self.set(discard_key(file, region, generation), None);
    }

    pub fn put_replica(&mut self, file: FileId, region: RegionIndex, number: u8, record: &ReplicaRecord) {
        self.set(replica_key(file, region, number), Some(encode(record)));
    }

    pub fn remove_replica(&mut self, file: FileId, region: RegionIndex, number: u8) {
        self.set(replica_key(file, region, number), None);
    }

    pub fn put_log(&mut self, file: FileId, disk: ServerId, record: LogRecord) {
        self.set(log_key(file, disk), Some(encode(&record)));
    }

    pub fn remove_log(&mut self, file: FileId, disk: ServerId) {
        self.set(log_key(file, disk), None);
    }

    pub fn put_wanted(&mut self, file: FileId, wanted: &[WantedReplicas]) {
        self.set(file_key(b'w', file), wanted_record(wanted));
    }

    /// Removes record, placement, wanted replicas and the switch of fragments; regions, replicas, logs and inode are removed beside.
    pub fn remove_file(&mut self, file: FileId) {
        for kind in [b'f', b'p', b'w', b'g'] {
            self.set(file_key(kind, file), None);
        }
    }

    /// See [`Table::set_name`].
    pub fn put_name(&mut self, kind: NameKind, path: &str, placement: &Placement) -> Result<(), RmtError> {
        self.set(name_key(kind as u8, path)?, Some(encode(&PlacementRecord::from(placement))));
        Ok(())
    }

    pub fn remove_name(&mut self, kind: NameKind, path: &str) -> Result<(), RmtError> {
        self.set(name_key(kind as u8, path)?, None);
        Ok(())
    }

    /// See [`Table::expected_replicas`]; an empty list expects none.
    pub fn expect_replicas(&mut self, path: &str, wanted: &[WantedReplicas]) -> Result<(), RmtError> {
        self.set(name_key(b'x', path)?, wanted_record(wanted));
        Ok(())
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn wanted_record(wanted: &[WantedReplicas]) -> Option<Vec<u8>> {
    (!wanted.is_empty()).then(|| encode(&WantedRecord::new(wanted.iter().cloned())))
}

impl Table {
    /// Takes over a store: an empty one becomes a table, and one of an earlier version is rewritten after a copy of it was kept.
    pub fn new(store: Box<dyn MappingStore>) -> Result<Self, RmtError> {
        match head::version_of(store.as_ref())? {
            None => head::begin(store.as_ref())?,
            Some(TABLE_VERSION) => {}
            Some(found @ 1..TABLE_VERSION) => head::rewrite(store.as_ref(), found)?,
            Some(found) => return Err(RmtError::Version { found }),
        }
        head::Head::read(store.as_ref())?.refuse_unknown_needs()?;
        Ok(Self { store, head: Mutex::default(), witness: None, deposition: head::Deposition::default() })
    }

    /// What can be read of the table in `directory`, which may be damaged or gone. It is not changed by changes to this one.
    pub fn salvage(directory: &Path) -> Result<Self, RmtError> {
        let entries = match lmdb::LmdbStore::exists(directory) {
            true => Audit::whole_entries(directory)?,
            false => Entries::new(),
        };
        Ok(in_memory(entries))
    }

    /// From now on notes in `directory` which transaction was the last that is durable, and keeps there what is not yet.
    pub fn witnessed_in(mut self, directory: &Path) -> Result<Self, RmtError> {
        self.store = Box::new(journal::Journal::open(self.store, directory)?);
        noted_in(self, directory)
    }

    /// Keeps a copy of the table, whose directory this is, as the last good one, unless that holds the same transaction.
    pub fn keep_good_copy(&self, directory: &Path) -> Result<(), RmtError> {
        self.flush()?;
        let transactions = self.transactions()?;
        let copy = lmdb::LmdbStore::copy_path(directory, GOOD_COPY);
        if Audit::last_transaction(&copy) == Some(transactions) {
            return Ok(());
        }
        self.store.keep_copy(GOOD_COPY)?;
        let fault = |source| RmtError::Unreadable { path: copy.clone(), source };
        witness::Witness::open(&copy).and_then(|witness| witness.note(transactions)).map_err(fault)
    }

    /// Number of the last transaction.
    pub fn transactions(&self) -> Result<u64, RmtError> {
        Ok(head::Head::read(self.store.as_ref())?.transactions())
    }

    fn set(&self, key: Vec<u8>, record: Option<Vec<u8>>) -> Result<(), RmtError> {
        self.commit(&Changes(BTreeMap::from([(key, record)])))
    }

    fn get<T: for<'b> Decode<'b, ()>>(&self, key: &[u8]) -> Result<Option<T>, RmtError> {
        self.store.get(key)?.map(|bytes| decode(key, &bytes)).transpose()
    }

    pub fn file(&self, file: FileId) -> Result<Option<FileRecord>, RmtError> {
        self.get(&file_key(b'f', file))
    }

    pub fn placement(&self, file: FileId) -> Result<Option<Placement>, RmtError> {
        Ok(self.get::<PlacementRecord>(&file_key(b'p', file))?.map(Into::into))
    }

    /// The file whose stub has, or had, this inode.
    pub fn file_of(&self, inode: Inode) -> Result<Option<FileId>, RmtError> {
        Ok(self.get::<InodeRecord>(&inode_key(inode))?.map(|record| record.file))
    }

    /// Up to `limit` files in order of their ids, from behind `after`.
    pub fn files(&self, after: Option<FileId>, limit: usize) -> Result<Vec<(FileId, FileRecord)>, RmtError> {
        let after = after.map(|file| file_key(b'f', file));
        self.store
            .scan(b"f", after.as_deref(), limit)?
            .iter()
            .map(|(key, value)| Ok((file_in(key), decode(key, value)?)))
            .collect()
    }

    /// Every file.
    pub fn all_files(&self) -> Result<Vec<(FileId, FileRecord)>, RmtError> {
        let mut all = Vec::new();
        loop {
            let more = self.files(all.last().map(|(file, _)| *file), SCAN)?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }

    /// All placed regions of a file, in order.
    pub fn regions(&self, file: FileId) -> Result<Vec<(RegionIndex, RegionRecord)>, RmtError> {
        let mut all = Vec::new();
        self.each_region(&file_key(b'r', file), |_, region, record| all.push((region, record)))?;
        Ok(all)
    }

    /// Calls `visit` with every placed region of every file.
    pub fn every_region(&self, visit: impl FnMut(FileId, RegionIndex, RegionRecord)) -> Result<(), RmtError> {
        self.each_region(b"r", visit)
    }

    fn each_region(
        &self,
        prefix: &[u8],
        mut visit: impl FnMut(FileId, RegionIndex, RegionRecord),
    ) -> Result<(), RmtError> {
        let mut after: Option<Vec<u8>> = None;
        loop {
            let entries = self.store.scan(prefix, after.as_deref(), SCAN)?;
            for (key, value) in &entries {
                let region = key.get(9..13).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
                visit(file_in(key), RegionIndex(region), decode(key, value)?);
            }
            match entries.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(()),
            }
        }
    }

    /// Objects that belong to no region, of one file or of all.
    pub fn discards(&self, file: Option<FileId>) -> Result<Vec<(FileId, RegionIndex, Generation, Layout)>, RmtError> {
        let prefix = file.map_or_else(|| b"o".to_vec(), |file| file_key(b'o', file));
        let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let entries = self.store.scan(&prefix, after.as_deref(), SCAN)?;
            for (key, value) in &entries {
                let number = |at: usize| {
                    key.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes)
                };
                all.push((
                    file_in(key),
                    RegionIndex(number(9)),
                    Generation(number(13)),
                    decode::<DiscardRecord>(key, value)?.layout,
                ));
            }
            match entries.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    /// Replicas of one file or of all, with their regions and numbers.
    pub fn replicas(&self, file: Option<FileId>) -> Result<Vec<(FileId, RegionIndex, u8, ReplicaRecord)>, RmtError> {
        let prefix = file.map_or_else(|| b"s".to_vec(), |file| file_key(b's', file));
        let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let entries = self.store.scan(&prefix, after.as_deref(), SCAN)?;
            for (key, value) in &entries {
                let region = key.get(9..13).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
                let number = key.get(13).copied().unwrap_or(0);
                all.push((file_in(key), RegionIndex(region), number, decode(key, value)?));
            }
            match entries.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    /// Logs of one file's fragments or of all, with the disks that they belong to.
    pub fn logs(&self, file: Option<FileId>) -> Result<Vec<(FileId, ServerId, LogRecord)>, RmtError> {
        let prefix = file.map_or_else(|| b"l".to_vec(), |file| file_key(b'l', file));
        let (mut all, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let entries = self.store.scan(&prefix, after.as_deref(), SCAN)?;
            for (key, value) in &entries {
                let disk = key.get(9..11).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_be_bytes);
                all.push((file_in(key), ServerId(disk), decode(key, value)?));
            }
            match entries.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    /// The replicas that a file's regions are to have.
    pub fn wanted(&self, file: FileId) -> Result<Vec<WantedReplicas>, RmtError> {
        Ok(self.get::<WantedRecord>(&file_key(b'w', file))?.map(WantedRecord::into_wanted).unwrap_or_default())
    }

    /// The replicas that the regions of a new file at `path` are to have.
    pub fn expected_replicas(&self, path: &str) -> Result<Vec<WantedReplicas>, RmtError> {
        match name_key(b'x', path) {
            Ok(key) => Ok(self.get::<WantedRecord>(&key)?.map(WantedRecord::into_wanted).unwrap_or_default()),
            // Longer than any name that was ever taken in.
            Err(RmtError::PathTooLong { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// See [`Self::expected_replicas`]; an empty list expects none.
    pub fn expect_replicas(&self, path: &str, wanted: &[WantedReplicas]) -> Result<(), RmtError> {
        self.set(name_key(b'x', path)?, wanted_record(wanted))
    }
}

/// The record in a value as it is stored.
fn decode<T: for<'b> Decode<'b, ()>>(key: &[u8], value: &[u8]) -> Result<T, RmtError> {
    records::decode(key, sealed::open(key, value)?)
}

#[cfg(test)]
pub(crate) mod tests;
