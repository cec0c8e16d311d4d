//! What `stat` reports of a file's fragments: where they go, how many, and what they were worth.

use crate::fragments::{FragmentState, fragments};
use crate::store::{Store, StoreError};
use serde::Serialize;
use stripewise_layout::{Cluster, FileId, ServerId};
use stripewise_store::protocol::FragmentStatus;
use stripewise_store::shared::fragments::Class;

/// Fragments of a file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FragmentsStat {
    /// Whether they go to SSDs.
    pub on: bool,
    /// The setting of the file itself; `None`: the cluster file's setting holds.
    pub set_by_file: Option<bool>,
    /// Whether the cluster file reserves space for fragments.
    pub has_room: bool,
    /// Logs of the disks whose fragments have one. Counted since the log was made, in this boot of
    /// the host.
    pub logs: Vec<FragmentLogStat>,
}

/// The log of the fragments of one file and one disk.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FragmentLogStat {
    /// Name of the disk.
    pub disk: String,
    /// Name of the SSD that holds the log.
    pub on: String,
    /// Size of a slot.
    pub slot_bytes: u64,
    /// Space reserved for the fragments of all files of that disk.
    pub room_bytes: u64,
    /// The part of it that this file may fill now.
    pub granted_bytes: u64,
    /// Slots whose bytes the disk has too.
    pub clean_bytes: u64,
    /// Slots that are newer than the disk.
    pub dirty_bytes: u64,
    /// Reads served from the log.
    pub reads_served: u64,
    /// Their bytes.
    pub read_bytes: u64,
    /// Writes taken by the log.
    pub writes_taken: u64,
    /// Their bytes.
    pub write_bytes: u64,
    /// Ranges copied from the disk into the log after they were read.
    pub copied_in: u64,
    /// Bytes written back to the disk.
    pub written_back_bytes: u64,
    /// First and last parts of longer requests.
    pub fragments: FragmentClassStat,
    /// Short requests.
    pub random: FragmentClassStat,
}

/// Candidates of one class.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FragmentClassStat {
    /// Candidates that went to the SSD.
    pub admitted: u64,
    /// Candidates that stayed on the disk.
    pub refused: u64,
    /// How much longer than usual the disk would have taken for each byte of those admitted lately.
    pub mean_return_ns_per_byte: f64,
}

impl FragmentsStat {
    pub(super) fn of(store: &Store, file: FileId) -> Result<Self, StoreError> {
        let FragmentState { on, set_by_file, servers } = fragments(store, file)?;
        let logs = servers.iter().map(|status| FragmentLogStat::of(&store.cluster, status)).collect();
        Ok(Self { on, set_by_file, has_room: store.cluster.has_fragment_capacity(), logs })
    }
}

impl FragmentLogStat {
    /// From the broker's answer.
    pub fn of(cluster: &Cluster, status: &FragmentStatus) -> Self {
        let name = |number: u16| {
            cluster.server(ServerId(number)).map_or_else(|| number.to_string(), |server| server.name.clone())
        };
        let slot_bytes = u64::from(status.slot_bytes);
        let class = |class: Class| FragmentClassStat {
            admitted: status.admitted[class as usize],
            refused: status.refused[class as usize],
            mean_return_ns_per_byte: status.mean_return_ns_per_byte[class as usize],
        };
        Self {
            disk: name(status.hserver),
            on: name(status.on),
            slot_bytes,
            room_bytes: cluster.fragment_log(ServerId(status.hserver)).map_or(0, |log| log.capacity.0),
            granted_bytes: status.slots * slot_bytes,
            clean_bytes: status.used.saturating_sub(status.dirty) * slot_bytes,
            dirty_bytes: status.dirty * slot_bytes,
            reads_served: status.read_hits,
            read_bytes: status.read_hit_bytes,
            writes_taken: status.write_hits,
            write_bytes: status.write_hit_bytes,
            copied_in: status.copied_in,
            written_back_bytes: status.written_back_bytes,
            fragments: class(Class::Fragment),
            random: class(Class::Random),
        }
    }
}
