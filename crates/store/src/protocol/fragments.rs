//! What is told of a file's fragments on SSDs.

use serde::{Deserialize, Serialize};

/// Fragments of one file that belong to one HServer. Counts are since the file got its logs, in this boot of the host;
/// in pairs, the
/// first is of parts of longer requests and the second of short requests, as in [`Class`](crate::shared::fragments::Class).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FragmentStatus {
    /// Number of the HServer, and of the SServer that holds its log.
    pub hserver: u16,
    /// Number of the SServer.
    pub on: u16,
    /// Length of a slot.
    pub slot_bytes: u32,
    /// Slots that the file may fill now; of those, such as hold something, and of these, such as are newer than the disk.
    pub slots: u64,
    /// Slots that hold something.
    pub used: u64,
    /// Slots that are newer than the disk.
    pub dirty: u64,
    /// Reads that were served from the log, and their bytes.
    pub read_hits: u64,
    /// Bytes of those reads.
    pub read_hit_bytes: u64,
    /// Writes that went to the log alone, and their bytes.
    pub write_hits: u64,
    /// Bytes of those writes.
    pub write_hit_bytes: u64,
    /// Ranges that were copied in from the disk.
    pub copied_in: u64,
    /// Bytes that were written back to the disk.
    pub written_back_bytes: u64,
    /// Mean of the latest returns: by how much the disk's time of a byte was longer than usual, in ns.
    pub mean_return_ns_per_byte: [f64; 2],
    /// Sub-requests that were to go to the log by their return, and those that were not.
    pub admitted: [u64; 2],
    /// Sub-requests that stayed on the disk by their return.
    pub refused: [u64; 2],
}
