//! Moving regions: what is ordered, and what is told of it.
//!
//! Orders are queued by region in the broker's memory and run by its movers while programs read and write. The queue ends with the
//! broker: whoever wants moves to outlive it orders them again from the successor (a region that lies as ordered is done at once).

use serde::{Deserialize, Serialize};
use stripewise_layout::{ByteRate, FileId, Layout, ParseRateError, RegionIndex};

/// The regions `first ..= last` of a file are to lie in this layout. Where no objects are yet, new ones are placed so later.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MoveOrder {
    /// Any file of the cluster.
    pub file: FileId,
    /// The first region to move.
    pub first: RegionIndex,
    /// The last region to move, at least `first`.
    pub last: RegionIndex,
    /// Where they are to lie.
    pub layout: Layout,
}

/// Number of one region's move, ascending in the order of queueing; new with every broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct MoveNumber(pub u64);

/// How fast movers may copy, all together.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub enum MigrateBandwidth {
    /// As fast as servers and processor allow.
    #[default]
    Unlimited,
    /// What the foreground leaves.
    Auto,
    /// At most this many bytes per second, written to the new places.
    BytesPerS(u64),
}

impl std::fmt::Display for MigrateBandwidth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MigrateBandwidth::Unlimited => f.write_str("unlimited"),
            MigrateBandwidth::Auto => f.write_str("auto"),
            MigrateBandwidth::BytesPerS(bytes) => ByteRate(*bytes).fmt(f),
        }
    }
}

/// A text that is no [`MigrateBandwidth`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseBandwidthError {
    /// Moves would never end.
    #[error("a bandwidth of 0 moves nothing; use `stripewise migrate pause`")]
    Zero,
    /// No rate.
    #[error("{rate}; `auto` and `unlimited` are bandwidths too")]
    Rate {
        /// What is wrong with it.
        rate: ParseRateError,
    },
}

/// `unlimited`, `auto`, or a rate such as `50MB/s`.
impl std::str::FromStr for MigrateBandwidth {
    type Err = ParseBandwidthError;

    fn from_str(text: &str) -> Result<Self, ParseBandwidthError> {
        match text {
            "unlimited" => Ok(MigrateBandwidth::Unlimited),
            "auto" => Ok(MigrateBandwidth::Auto),
            "0" => Err(ParseBandwidthError::Zero),
            rate => match rate.parse().map_err(|rate| ParseBandwidthError::Rate { rate })? {
                ByteRate(0) => Err(ParseBandwidthError::Zero),
                ByteRate(bytes) => Ok(MigrateBandwidth::BytesPerS(bytes)),
            },
        }
    }
}

/// What is done to the queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum MoveControl {
    /// No further move begins, and those under way copy no more until resumed; programs are not held up. `why` is told in the status.
    Pause {
        /// For people.
        why: String,
    },
    /// Moves begin again, and those under way go on.
    Resume,
    /// Ends moves that are not committed yet; their regions stay where they are.
    Cancel(WhichMoves),
    /// From the next chunk on.
    Bandwidth(MigrateBandwidth),
}

/// Which moves [`MoveControl::Cancel`] ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum WhichMoves {
    /// Every one that is queued or under way.
    All,
    /// Those of one file.
    File(FileId),
    /// A single one.
    One(MoveNumber),
    /// Those of one order, for example.
    Range {
        /// The first number.
        first: MoveNumber,
        /// The last number, at least `first`.
        last: MoveNumber,
    },
}

/// Where one region's move is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MoveState {
    /// `waits_for`: why it was put back, if it was: a process whose I/O does not end, room that another move is to free.
    Queued {
        /// For people; `None`: its turn has not come.
        waits_for: Option<String>,
    },
    /// Programs read the old place and write it too; what they write is copied again.
    Copying,
    /// Writers of the region wait for the last part.
    Sealed,
    /// The new place is being made durable; too late to cancel.
    Committing,
    /// The new place counts; the old one waits for its last readers.
    Freeing,
    /// The region lies as ordered.
    Done,
    /// The region stays where it was.
    Failed {
        /// For people.
        why: String,
    },
    /// Ended by request; the region stays where it was.
    Cancelled,
}

impl MoveState {
    /// Nothing more will happen.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, MoveState::Done | MoveState::Failed { .. } | MoveState::Cancelled)
    }
}

/// One region's move.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoveStatus {
    /// Its number in the queue.
    pub number: MoveNumber,
    /// The file of the region.
    pub file: FileId,
    /// Where the file stood when the move was ordered.
    pub path: String,
    /// The region that moves.
    pub region: RegionIndex,
    /// (server, stripe bytes) where it lies, or lay before; empty: it had no objects.
    pub from: Vec<(u16, u32)>,
    /// (server, stripe bytes) as ordered.
    pub to: Vec<(u16, u32)>,
    /// How far it is.
    pub state: MoveState,
    /// Written to the new place so far, what was written again counted again.
    pub copied_bytes: u64,
    /// Bytes of the region when the move was ordered or, once it began, then.
    pub total_bytes: u64,
}

/// All moves of this broker together.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MoveTotals {
    /// When this broker began, in ns since 1970: another number tells that the queue is another one, and what was ordered before is gone.
    pub since_ns: u64,
    /// Why nothing is moved, if it was paused.
    pub paused: Option<String>,
    /// As last set.
    pub bandwidth: MigrateBandwidth,
    /// Not begun, or put back.
    pub queued: u64,
    /// Begun and not ended, the freeing of the old place included.
    pub active: u64,
    /// Regions that lie as ordered.
    pub done: u64,
    /// Moves that failed; their regions stay where they were.
    pub failed: u64,
    /// Moves ended by request.
    pub cancelled: u64,
    /// Bytes of regions that were moved.
    pub moved_bytes: u64,
    /// Bytes written by movers, those of unfinished moves and what had to be written again included.
    pub copied_bytes: u64,
    /// Bytes that queued and active moves have yet to copy, as far as is known.
    pub left_bytes: u64,
    /// Of a cluster of many hosts: its daemon, in words.
    pub guide: Option<String>,
}
