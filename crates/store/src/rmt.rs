//! The region mapping table: the durable map from file id and region to generation and layout, and what else the broker must not
//! forget.
//!
//! [`MappingStore`] is the seam: ordered keys and values, and batches that take effect whole and durably, or, if an expectation does
//! not hold, not at all. [`lmdb`] is the embedded one. [`Table`] gives the keys and values their meaning:
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
//! | `l` file id, server | [`LogRecord`]: the log of the file's fragments on that disk (`crate::shared::fragments`) |
//! | `g` file id | whether fragments of the file go to SSDs; no entry: as the cluster says |
//! | `i` device, inode | file id |
//! | `m` directory | [`Placement`] of new files below a managed directory |
//! | `e` path | [`Placement`] of a file that a plan expects |
//! | `x` path | list of [`WantedReplicas`] of such a file |
//!
//! Version 2 added `o`, `s`, `w` and `x`, version 3 `l` and `g`; a table of an earlier version is taken over as it is. A replica that no longer equals its region's place
//! has no record: it became an `o` before the write that made it so.
//!
//! Numbers in keys are big-endian, so that they sort; values are postcard. Only the broker opens the table.

mod fragments;
pub mod lmdb;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::path::PathBuf;
use stripewise_layout::{FileId, Generation, Layout, Placement, RegionIndex, ServerId};

/// Raised with every change of a key or a value; a later version is refused by name.
pub const TABLE_VERSION: u32 = 3;

#[derive(Debug, thiserror::Error)]
pub enum RmtError {
    #[error("{}: {source}", path.display())]
    Store { path: PathBuf, source: heed::Error },
    #[error(
        "the mapping table has version {found}, this stripewise reads {TABLE_VERSION}; use the stripewise that wrote it"
    )]
    Version { found: u32 },
    #[error(
        "the mapping table's entry for {key} is damaged ({source}); restore the state directory's `rmt` from a backup"
    )]
    Damaged { key: String, source: postcard::Error },
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
    #[error("the mapping table was changed by another while this change was made")]
    Conflict,
}

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

    /// Up to `limit` entries whose keys start with `prefix`, in order, the first behind `after` if that is given.
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError>;

    /// From now on the keys that start with `prefix` and are changed, each after its change took effect. What is changed by
    /// other hosts is reported too where the store is shared between hosts.
    fn watch(&self, prefix: &[u8]) -> std::sync::mpsc::Receiver<Vec<u8>>;

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

/// Keys with their values.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Identity of a file's stub, or of an ordinary file: where it stands in the kernel's eyes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Inode {
    pub device: u64,
    pub inode: u64,
    /// Time of birth in ns since 1970; 0 where the file system does not say. An inode number is used again, with another birth.
    pub born_ns: u64,
}

impl Inode {
    /// Whether both are the same file: a birth that only one of them knows decides nothing.
    #[must_use]
    pub fn is(&self, other: &Inode) -> bool {
        let born = self.born_ns == other.born_ns || self.born_ns == 0 || other.born_ns == 0;
        self.device == other.device && self.inode == other.inode && born
    }
}

/// Where a managed file is in its life.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FileState {
    /// The stub has no name yet.
    Creating,
    Live,
    /// `apply` copies an ordinary file in; `temporary` is the stub's name meanwhile. `complete` once the data is in place and synced.
    Importing {
        original: Inode,
        temporary: String,
        complete: bool,
    },
    /// `release` copies it out to `temporary`.
    Releasing {
        copy: Inode,
        temporary: String,
    },
    /// No name is left; freed with the last user.
    Unlinked,
}

/// What the table says of one file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Where the stub stood when last heard of: a hint.
    pub path: String,
    pub stub: Inode,
    /// Boot of the host when `stub.device` was seen: device numbers may differ after the next one.
    pub boot: [u8; 16],
    pub region_bytes: u64,
    /// The durable size; while processes use the file, the shared extent knows more.
    pub size_bytes: u64,
    /// Every generation up to this may have been used.
    pub generations_reserved: u32,
    /// Objects of generations up to this have durable names. A later one that a power failure took held nothing that was ever synced.
    pub generations_synced: u32,
    pub state: FileState,
    /// A truncation that is not known to be finished: the file is to be cut to this size before anything else happens.
    pub cutting_to_bytes: Option<u64>,
    /// A server may hold bytes beyond the file's size, since it failed when they were to be cut: again at the next occasion.
    pub has_leftovers: bool,
    /// As last applied to the objects.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub created_ns: u64,
}

/// Where one region lies.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegionRecord {
    pub generation: Generation,
    pub layout: Layout,
    /// Its own layout had no room.
    pub fell_back: bool,
}

/// One more copy of a region, equal to its place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaRecord {
    pub generation: Generation,
    pub layout: Layout,
}

/// The object that takes small parts of a file's requests to one disk. It may hold what the disk has not: as long as the file's table of fragments
/// is of this boot. Otherwise it is worth nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogRecord {
    /// Server that holds it.
    pub on: ServerId,
    pub generation: Generation,
}

/// The regions from `first` on are to have one more copy, in this layout.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WantedReplicas {
    pub first: RegionIndex,
    pub regions: u32,
    pub layout: Layout,
}

/// Whose table it is. Regions name servers by number, so the order of names is part of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub id: String,
    pub servers: Vec<String>,
}

/// The typed table over a store.
pub struct Table {
    store: Box<dyn MappingStore>,
}

/// Longest directory or path that is a key; LMDB's keys end at 511 bytes.
const MAX_NAME_BYTES: usize = 500;
const SCAN: usize = 1024;

fn file_key(kind: u8, file: FileId) -> Vec<u8> {
    let mut key = vec![kind];
    key.extend(file.0.to_be_bytes());
    key
}

fn region_key(file: FileId, region: RegionIndex) -> Vec<u8> {
    let mut key = file_key(b'r', file);
    key.extend(region.0.to_be_bytes());
    key
}

fn discard_key(file: FileId, region: RegionIndex, generation: Generation) -> Vec<u8> {
    let mut key = file_key(b'o', file);
    key.extend(region.0.to_be_bytes());
    key.extend(generation.0.to_be_bytes());
    key
}

fn replica_key(file: FileId, region: RegionIndex, number: u8) -> Vec<u8> {
    let mut key = file_key(b's', file);
    key.extend(region.0.to_be_bytes());
    key.push(number);
    key
}

fn log_key(file: FileId, disk: ServerId) -> Vec<u8> {
    let mut key = file_key(b'l', file);
    key.extend(disk.0.to_be_bytes());
    key
}

fn inode_key(inode: Inode) -> Vec<u8> {
    let mut key = vec![b'i'];
    key.extend(inode.device.to_be_bytes());
    key.extend(inode.inode.to_be_bytes());
    key
}

fn name_key(kind: u8, path: &str) -> Result<Vec<u8>, RmtError> {
    if path.len() > MAX_NAME_BYTES {
        return Err(RmtError::PathTooLong { path: path.to_owned(), limit: MAX_NAME_BYTES });
    }
    let mut key = vec![kind];
    key.extend(path.as_bytes());
    Ok(key)
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("records have no unsized sequences and memory is the only sink")
}

fn decode<T: DeserializeOwned>(key: &[u8], bytes: &[u8]) -> Result<T, RmtError> {
    postcard::from_bytes(bytes).map_err(|source| RmtError::Damaged { key: describe(key), source })
}

fn describe(key: &[u8]) -> String {
    let number =
        |range: std::ops::Range<usize>| key.get(range).map(|b| b.iter().fold(0u64, |n, b| n << 8 | u64::from(*b)));
    match (key.first(), number(1..9)) {
        (Some(b'f' | b'p' | b'w' | b'g'), Some(file)) => format!("file {}", FileId(file)),
        (Some(b'r' | b'o' | b's'), Some(file)) => {
            format!("region {} of file {}", number(9..13).unwrap_or(0), FileId(file))
        }
        (Some(b'l'), Some(file)) => {
            format!("the log of server {} for file {}", number(9..11).unwrap_or(0), FileId(file))
        }
        (Some(b'i'), Some(device)) => format!("inode {} of device {device}", number(9..17).unwrap_or(0)),
        (Some(_), _) => String::from_utf8_lossy(&key[1..]).into_owned(),
        (None, _) => "nothing".to_owned(),
    }
}

/// Which list of names a path is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum NameKind {
    Managed = b'm',
    Expected = b'e',
}

/// Changes to the table that take effect together.
#[derive(Default, Debug)]
pub struct Changes(Batch);

impl Changes {
    pub fn put_file(&mut self, file: FileId, record: &FileRecord) {
        self.0.changes.push((file_key(b'f', file), Some(encode(record))));
    }

    pub fn put_placement(&mut self, file: FileId, placement: &Placement) {
        self.0.changes.push((file_key(b'p', file), Some(encode(placement))));
    }

    pub fn put_inode(&mut self, inode: Inode, file: FileId) {
        self.0.changes.push((inode_key(inode), Some(file.0.to_be_bytes().to_vec())));
    }

    pub fn remove_inode(&mut self, inode: Inode) {
        self.0.changes.push((inode_key(inode), None));
    }

    pub fn put_region(&mut self, file: FileId, region: RegionIndex, record: &RegionRecord) {
        self.0.changes.push((region_key(file, region), Some(encode(record))));
    }

    pub fn remove_region(&mut self, file: FileId, region: RegionIndex) {
        self.0.changes.push((region_key(file, region), None));
    }

    /// Objects of this generation belong to no region: a broker that finds the entry at its start removes them.
    pub fn put_discard(&mut self, file: FileId, region: RegionIndex, generation: Generation, layout: &Layout) {
        self.0.changes.push((discard_key(file, region, generation), Some(encode(layout))));
    }

    pub fn remove_discard(&mut self, file: FileId, region: RegionIndex, generation: Generation) {
        self.0.changes.push((discard_key(file, region, generation), None));
    }

    pub fn put_replica(&mut self, file: FileId, region: RegionIndex, number: u8, record: &ReplicaRecord) {
        self.0.changes.push((replica_key(file, region, number), Some(encode(record))));
    }

    pub fn remove_replica(&mut self, file: FileId, region: RegionIndex, number: u8) {
        self.0.changes.push((replica_key(file, region, number), None));
    }

    pub fn put_log(&mut self, file: FileId, disk: ServerId, record: LogRecord) {
        self.0.changes.push((log_key(file, disk), Some(encode(&record))));
    }

    pub fn remove_log(&mut self, file: FileId, disk: ServerId) {
        self.0.changes.push((log_key(file, disk), None));
    }

    pub fn put_wanted(&mut self, file: FileId, wanted: &[WantedReplicas]) {
        self.0.changes.push((file_key(b'w', file), (!wanted.is_empty()).then(|| encode(&wanted))));
    }

    /// Removes record, placement, wanted replicas and the switch of fragments; regions, replicas, logs and inode are removed beside.
    pub fn remove_file(&mut self, file: FileId) {
        for kind in [b'f', b'p', b'w', b'g'] {
            self.0.changes.push((file_key(kind, file), None));
        }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.changes.is_empty()
    }
}

impl Table {
    /// Takes over a store; a new one gets the version, and so does one of an earlier version.
    pub fn new(store: Box<dyn MappingStore>) -> Result<Self, RmtError> {
        if !store.compare_and_swap(b"v", None, Some(&encode(&TABLE_VERSION)))? {
            let bytes = store.get(b"v")?.unwrap_or_default();
            let found: u32 = decode(b"v", &bytes)?;
            match found {
                TABLE_VERSION => {}
                1 | 2 => store.put(b"v", &encode(&TABLE_VERSION))?,
                _ => return Err(RmtError::Version { found }),
            }
        }
        Ok(Self { store })
    }

    /// Makes sure that the table is this cluster's; servers may have been added behind those known.
    pub fn belong_to(&self, cluster: &ClusterRecord) -> Result<(), RmtError> {
        let known: Option<ClusterRecord> = self.get(b"c")?;
        if let Some(known) = &known {
            if known.id != cluster.id {
                return Err(RmtError::OtherCluster { found: known.id.clone(), expected: cluster.id.clone() });
            }
            if !cluster.servers.starts_with(&known.servers) {
                return Err(RmtError::Servers { listed: cluster.servers.join(", "), known: known.servers.join(", ") });
            }
        }
        if known.as_ref() == Some(cluster) { Ok(()) } else { self.store.put(b"c", &encode(cluster)) }
    }

    fn get<T: DeserializeOwned>(&self, key: &[u8]) -> Result<Option<T>, RmtError> {
        self.store.get(key)?.map(|bytes| decode(key, &bytes)).transpose()
    }

    pub fn file(&self, file: FileId) -> Result<Option<FileRecord>, RmtError> {
        self.get(&file_key(b'f', file))
    }

    pub fn placement(&self, file: FileId) -> Result<Option<Placement>, RmtError> {
        self.get(&file_key(b'p', file))
    }

    /// The file whose stub has, or had, this inode.
    pub fn file_of(&self, inode: Inode) -> Result<Option<FileId>, RmtError> {
        let found = self.store.get(&inode_key(inode))?;
        Ok(found.and_then(|bytes| bytes.try_into().ok()).map(|bytes| FileId(u64::from_be_bytes(bytes))))
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
                all.push((file_in(key), RegionIndex(number(9)), Generation(number(13)), decode(key, value)?));
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
        Ok(self.get(&file_key(b'w', file))?.unwrap_or_default())
    }

    /// The replicas that the regions of a new file at `path` are to have.
    pub fn expected_replicas(&self, path: &str) -> Result<Vec<WantedReplicas>, RmtError> {
        match name_key(b'x', path) {
            Ok(key) => Ok(self.get(&key)?.unwrap_or_default()),
            // Longer than any name that was ever taken in.
            Err(RmtError::PathTooLong { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// See [`Self::expected_replicas`]; an empty list expects none.
    pub fn expect_replicas(&self, path: &str, wanted: &[WantedReplicas]) -> Result<(), RmtError> {
        let changes = vec![(name_key(b'x', path)?, (!wanted.is_empty()).then(|| encode(&wanted)))];
        self.store.commit(&Batch { expected: Vec::new(), changes }).map(|_| ())
    }

    /// All names of one kind with their placements.
    pub fn names(&self, kind: NameKind) -> Result<Vec<(String, Placement)>, RmtError> {
        let mut all = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let entries = self.store.scan(&[kind as u8], after.as_deref(), SCAN)?;
            for (key, value) in &entries {
                all.push((String::from_utf8_lossy(&key[1..]).into_owned(), decode(key, value)?));
            }
            match entries.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => return Ok(all),
            }
        }
    }

    /// Sets or, with `None`, removes a name.
    pub fn set_name(&self, kind: NameKind, path: &str, placement: Option<&Placement>) -> Result<(), RmtError> {
        let changes = vec![(name_key(kind as u8, path)?, placement.map(encode))];
        self.store.commit(&Batch { expected: Vec::new(), changes }).map(|_| ())
    }

    /// Makes the changes durable, together.
    pub fn commit(&self, changes: &Changes) -> Result<(), RmtError> {
        if changes.is_empty() || self.store.commit(&changes.0)? { Ok(()) } else { Err(RmtError::Conflict) }
    }
}

fn file_in(key: &[u8]) -> FileId {
    FileId(key.get(1..9).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes))
}

#[cfg(test)]
mod tests;
