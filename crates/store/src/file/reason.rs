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
    /// The file's small parts may lie in logs that this process does not know yet.
    Fragments,
    /// A server of the region's place has no space left; the region may move.
    Full {
        key: ObjectKey,
        error: FileError,
    },
    Fault(FileError),
}
