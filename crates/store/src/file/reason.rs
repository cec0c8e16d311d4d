//! Why a request leaves its lane before it is done.

use super::error::FileError;
use crate::client::objects::ObjectKey;
use stripewise_layout::RegionIndex;

/// Why a request must leave its lane before it can go on.
pub(super) enum RetryReason {
    /// What it saw has changed meanwhile.
    Again,
    /// Regions without objects.
    Place {
        first: RegionIndex,
        last: RegionIndex,
    },
    /// Other hosts may have made the file larger, or placed these regions.
    Refresh {
        first: RegionIndex,
        last: RegionIndex,
    },
    /// The file's first region has no objects, for a write of at most the file's first `bytes`.
    Begin {
        bytes: u64,
    },
    /// Regions with replicas, which have to be forgotten before a write.
    Pin {
        first: RegionIndex,
        last: RegionIndex,
    },
    /// An object is gone and the file's gate shut: it is truncated, and on hosts other than the master's the region's word goes when the gate opens.
    Truncating,
    /// A region whose writers wait for the end of its move.
    Sealed(RegionIndex),
    /// Bytes beyond the size on a server, over which the request would leave a gap.
    Leftovers,
    /// An object that this process may not open by itself.
    Object(ObjectKey),
    /// A server whose I/O runs in the agent, and this process has no lane to it yet.
    AgentLane,
    /// The file's small parts may lie in logs that this process does not know yet.
    Fragments,
    /// A server of the region's place has no space left; the region may move.
    Full {
        key: ObjectKey,
        error: FileError,
    },
    Fault(FileError),
    /// A server failed a durable write. That may be the one time that it tells of bytes written before, which it has lost: the program
    /// is told, whatever else was done.
    Lost(FileError),
}

impl RetryReason {
    /// The first of two reasons, unless the second alone may be told once.
    pub(super) fn or_lost(self, later: Self) -> Self {
        match (&self, &later) {
            (Self::Lost(_), _) => self,
            (_, Self::Lost(_)) => later,
            _ => self,
        }
    }
}
