//! What a trace says of a file, reduced to what planning needs: for every window and region, how many requests of each class.
//!
//! Requests are grouped into classes (direction, size, order), so that a policy costs a class once per candidate layout and a
//! region is a weighted sum. A request that crosses regions counts in each of them with the piece that lies there.

use serde::{Deserialize, Serialize};
use stripewise_layout::{ByteCount, Direction, Order, RegionIndex};

/// One kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AccessClass {
    pub direction: Direction,
    pub request_bytes: u64,
    pub order: Order,
}

/// Position in [`FileAccess::classes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClassIndex(pub u16);

/// The accesses of one file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FileAccess {
    /// Absolute, as the application named it.
    pub path: String,
    /// The largest size seen.
    pub size_bytes: u64,
    pub region_size: ByteCount,
    pub classes: Vec<AccessClass>,
    /// In order of time, without gaps; a window without accesses has no regions.
    pub windows: Vec<WindowAccess>,
}

/// The accesses of one interval of time, in seconds from the first record of the trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WindowAccess {
    pub start_s: f64,
    pub end_s: f64,
    /// Accessed regions only, ascending.
    pub regions: Vec<RegionAccess>,
}

/// The accesses of one region in one window.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RegionAccess {
    pub region: RegionIndex,
    /// Classes that occur, ascending, with the number of requests (at least 1).
    pub counts: Vec<(ClassIndex, u64)>,
    /// Processes that accessed the region in the window: p of the papers.
    pub processes: u32,
    /// The most of them on one client node: c of the papers.
    pub processes_per_node: u32,
}

impl FileAccess {
    #[must_use]
    pub fn class(&self, index: ClassIndex) -> AccessClass {
        self.classes[usize::from(index.0)]
    }
}
