//! Tables of versions 1 to 3: values in postcard, fields in order, without checksums. Version 2 added kinds of keys to 1, and 3 to 2.

use super::keys::describe;
use super::records::{DiscardRecord, FragmentsRecord, InodeRecord, PlacementRecord, WantedRecord, encode};
use super::{ClusterRecord, FileRecord, FileState, Inode, LogRecord, RegionRecord, ReplicaRecord, RmtError};
use serde::{Deserialize, de::DeserializeOwned};
use stripewise_layout::{FileId, Generation, Layout, Placement, RegionIndex, ServerId};
use stripewise_store::protocol::WantedReplicas;

/// Device, inode, birth.
type OldInode = (u64, u64, u64);

#[derive(Deserialize)]
enum OldState {
    Creating,
    Live,
    Importing { original: OldInode, temporary: String, complete: bool },
    Releasing { copy: OldInode, temporary: String },
    Unlinked,
}

#[derive(Deserialize)]
struct OldFile {
    path: String,
    stub: OldInode,
    boot: [u8; 16],
    region_bytes: u64,
    size_bytes: u64,
    generations_reserved: u32,
    generations_synced: u32,
    state: OldState,
    truncating_to_bytes: Option<u64>,
    has_leftovers: bool,
    mode: u32,
    uid: u32,
    gid: u32,
    created_ns: u64,
}

/// The version that stands in `value`, if it is of this form.
pub(super) fn version_in(value: &[u8]) -> Option<u32> {
    exactly(value)
}

fn exactly<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    postcard::take_from_bytes(bytes).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// The record that the entry becomes, without checksum; `None`: it is no record of these versions.
fn translated(key: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    let wanted = |list: Vec<(RegionIndex, u32, Layout)>| {
        WantedRecord::new(list.into_iter().map(|(first, regions, layout)| WantedReplicas { first, regions, layout }))
    };
    Some(match key.first()? {
        b'c' => exactly::<(String, Vec<String>)>(value).map(|(id, servers)| encode(&ClusterRecord { id, servers }))?,
        b'f' => encode(&FileRecord::from(exactly::<OldFile>(value)?)),
        b'p' | b'm' | b'e' => encode(&PlacementRecord::from(&exactly::<Placement>(value)?)),
        b'r' => exactly::<(Generation, Layout, bool)>(value).map(|(generation, layout, fell_back)| {
            encode(&RegionRecord { fell_back, ..RegionRecord::placed(generation, layout) })
        })?,
        b'o' => encode(&DiscardRecord { layout: exactly(value)? }),
        b's' => exactly::<(Generation, Layout)>(value)
            .map(|(generation, layout)| encode(&ReplicaRecord { generation, layout }))?,
        b'w' | b'x' => encode(&wanted(exactly(value)?)),
        b'l' => {
            exactly::<(ServerId, Generation)>(value).map(|(on, generation)| encode(&LogRecord { on, generation }))?
        }
        b'g' => encode(&FragmentsRecord { on: exactly(value)? }),
        b'i' => encode(&InodeRecord { file: FileId(u64::from_be_bytes(value.try_into().ok()?)) }),
        _ => return None,
    })
}

/// The record that an entry of versions 1 to 3 becomes, without checksum, or an error that names the entry.
pub fn translate(key: &[u8], value: &[u8]) -> Result<Vec<u8>, RmtError> {
    translated(key, value)
        .ok_or_else(|| RmtError::Damaged { key: describe(key), what: "it is no record of versions 1 to 3".to_owned() })
}

impl From<OldFile> for FileRecord {
    fn from(old: OldFile) -> Self {
        let inode = |(device, inode, born_ns)| Inode { device, inode, born_ns };
        Self {
            path: old.path,
            stub: inode(old.stub),
            boot: old.boot,
            region_bytes: old.region_bytes,
            size_bytes: old.size_bytes,
            generations_reserved: old.generations_reserved,
            generations_synced: old.generations_synced,
            state: match old.state {
                OldState::Creating => FileState::Creating,
                OldState::Live => FileState::Live,
                OldState::Importing { original, temporary, complete } => {
                    FileState::Importing { original: inode(original), temporary, complete }
                }
                OldState::Releasing { copy, temporary } => FileState::Releasing { copy: inode(copy), temporary },
                OldState::Unlinked => FileState::Unlinked,
            },
            truncating_to_bytes: old.truncating_to_bytes,
            has_leftovers: old.has_leftovers,
            mode: old.mode,
            uid: old.uid,
            gid: old.gid,
            created_ns: old.created_ns,
            epoch: 0,
            parent: None,
            above: Vec::new(),
            root: None,
            is_described: false,
            is_size_untold: false,
            put_away_in: None,
            put_away_unsynced: false,
            truncating_number: None,
            truncation_numbers: Vec::new(),
            truncations: 0,
        }
    }
}
