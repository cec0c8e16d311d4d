//! What a trace says of a file, reduced to what planning needs: for every window and region, how many requests of each class.
//!
//! Requests are grouped into classes (kind, size, order), so that a policy costs a class once per candidate layout and a
//! region is a weighted sum. A request that crosses regions counts in each of them with the piece that lies there.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use stripewise_layout::{ByteCount, Direction, Order, RegionIndex, RequestKind, WriteClass};

/// One kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "AccessClassFields", into = "AccessClassFields")]
pub struct AccessClass {
    /// Whether it reads or writes, and what its writes wait for.
    pub kind: RequestKind,
    /// r: bytes of each request, more than 0, at most a region.
    pub request_bytes: u64,
    /// Whether a process's requests of the class follow each other in the file.
    pub order: Order,
}

impl AccessClass {
    /// Whether it reads or writes.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.kind.direction()
    }
}

/// An [`AccessClass`] as files and `--json` have it.
#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schemas", schemars(rename = "AccessClass"))]
struct AccessClassFields {
    /// Whether it reads or writes.
    direction: Direction,
    /// What writes wait for; absent for reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write_class: Option<WriteClass>,
    /// r: bytes of each request, more than 0, at most a region.
    request_bytes: u64,
    /// Whether a process's requests of the class follow each other in the file.
    order: Order,
}

impl From<AccessClassFields> for AccessClass {
    fn from(fields: AccessClassFields) -> Self {
        let kind = match (fields.direction, fields.write_class) {
            (Direction::Write, Some(class)) => RequestKind::Write(class),
            (direction, _) => direction.into(),
        };
        Self { kind, request_bytes: fields.request_bytes, order: fields.order }
    }
}

impl From<AccessClass> for AccessClassFields {
    fn from(class: AccessClass) -> Self {
        let AccessClass { kind, request_bytes, order } = class;
        Self { direction: kind.direction(), write_class: kind.write_class(), request_bytes, order }
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for AccessClass {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        AccessClassFields::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        AccessClassFields::json_schema(generator)
    }
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
    /// Bytes of a region, as counted; the numbers of regions depend on it.
    pub region_size: ByteCount,
    /// What [`ClassIndex`] points into; at most as many as the counting allowed.
    pub classes: Vec<AccessClass>,
    /// In order of time, without gaps; a window without accesses has no regions.
    pub windows: Vec<WindowAccess>,
}

/// The accesses of one interval of time, in seconds from the first record of the trace.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct WindowAccess {
    /// Seconds from the first record of the trace.
    pub start_s: f64,
    /// Seconds from the first record of the trace; the next window's `start_s`.
    pub end_s: f64,
    /// How the file's requests that were in flight at the same time lay to each other.
    #[serde(default)]
    pub company: Company,
    /// How many processes made them.
    #[serde(default)]
    pub processes: WindowProcesses,
    /// How the file's synchronizations lay among its buffered writes.
    #[serde(default)]
    pub synchronizations: Synchronizations,
    /// Accessed regions only, ascending.
    pub regions: Vec<RegionAccess>,
}

/// How the synchronizations of a file (`fsync` and its like) lay among its buffered writes in one window; nothing of it where there
/// were none.
///
/// A synchronization ends an interval, and a byte that is written in several intervals goes to its server several times. Their number
/// is that of equal ones which is as uneven as those found, 1 / sum(share^2).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Synchronizations {
    /// Intervals, at least 1, or 0 without synchronizations. What was written while a synchronization was under way counts to the
    /// one before, as where it had yet to come to every byte.
    pub apart: f64,
    /// Intervals, at least as many, if every synchronization had written everything back at once.
    pub intervals: f64,
    /// How long a synchronization was under way, in the mean over the writes that came meanwhile, seconds.
    pub under_way_s: f64,
    /// Seconds that each process spent in buffered writes, in the mean, while no synchronization was under way: the servers had
    /// nothing to do.
    pub idle_s: f64,
}

impl Synchronizations {
    /// With those of another part of the file's processes, in the same window.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            apart: self.apart.max(other.apart),
            intervals: self.intervals.max(other.intervals),
            under_way_s: self.under_way_s.max(other.under_way_s),
            idle_s: self.idle_s.max(other.idle_s),
        }
    }
}

/// Processes, and the most of them on one client node; 0 where that is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProcessCount {
    /// p of the papers.
    pub processes: u32,
    /// c of the papers.
    pub per_node: u32,
}

/// Processes that accessed anything in a window. Regions know only their own: where each process has a file or a part of one to
/// itself, every region saw one process, however many there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WindowProcesses {
    /// Of this file.
    pub file: ProcessCount,
    /// Of all files that were counted together: the same in each of them.
    pub run: ProcessCount,
}

/// Slices that the accessed part of a window is cut into, of equal length: bits of [`Slices`].
pub const SLICES: u32 = 64;

/// In which slices of its window something was accessed, bit i for slice i.
///
/// Regions that are accessed one after the other may share a server without waiting for each other; those of one slice may not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slices(pub u64);

impl Slices {
    /// Every slice: what is not known to keep apart.
    pub const ALL: Slices = Slices(u64::MAX);
}

impl Default for Slices {
    fn default() -> Self {
        Self::ALL
    }
}

/// How the requests of a window that were in flight at the same time lay to each other, found at sampled instants.
///
/// Zipf-distributed requests keep no company; ranks that march through a shared file in order are in the same region at every instant.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Company {
    /// By how much likelier than by chance two simultaneous requests of different processes lie in one region, 0 (chance) to 1 (always).
    pub same_region: f64,
    /// Share of requests that begin where one of the requests issued shortly before, of whichever process, ended (or a short
    /// forward skip behind), 0 to 1: what a disk that holds the region sees as sequential.
    pub adjoining: f64,
    /// Bytes by which an adjoining request begins behind the end of the one before it, the median; 0 where nothing adjoins or older counts do not say.
    #[serde(default)]
    pub skip_bytes: u64,
    /// Bytes from the start of one run of adjoining requests to the start of the next one in the file, the median; 0 where all requests are
    /// one run or older counts do not say. Rows of a grid that many ranks write together lie so far apart.
    #[serde(default)]
    pub apart_bytes: u64,
}

impl Company {
    /// From the requests (offset, bytes) in flight at sampled instants, one per process at each. Chance is what independent draws from all
    /// sampled requests would give: the sum over regions of the square of their share.
    pub fn of_instants(
        instants: impl Iterator<Item = Vec<(u64, u64)>>,
        region_bytes: u64,
        forward_skip_bytes: u64,
    ) -> Self {
        let mut by_region: HashMap<u64, u64> = HashMap::new();
        let (mut pairs, mut meeting, mut requests) = (0u64, 0u64, 0u64);
        let (mut skips, mut distances): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for mut instant in instants {
            instant.sort_unstable();
            let mut run_start = instant.first().map_or(0, |request| request.0);
            // Sorted, so the nearest end before an offset is that of a neighbour, unless requests overlap.
            for pair in instant.windows(2) {
                let end = pair[0].0.saturating_add(pair[0].1);
                match pair[1].0.checked_sub(end).filter(|gap| *gap <= forward_skip_bytes) {
                    Some(gap) => skips.push(gap),
                    None => {
                        distances.push(pair[1].0 - run_start);
                        run_start = pair[1].0;
                    }
                }
            }
            let region = |request: &(u64, u64)| request.0 / region_bytes;
            for together in instant.chunk_by(|left, right| region(left) == region(right)) {
                let count = together.len() as u64;
                meeting += count * (count - 1);
                *by_region.entry(region(&together[0])).or_insert(0) += count;
            }
            let count = instant.len() as u64;
            requests += count;
            pairs += count * count.saturating_sub(1);
        }
        if pairs == 0 {
            return Self::default();
        }
        // In whole numbers, so that the order of the map does not matter.
        let squares: u128 = by_region.values().map(|n| u128::from(*n) * u128::from(*n)).sum();
        let chance = squares as f64 / (requests as f64).powi(2);
        let found = meeting as f64 / pairs as f64;
        // Everything in one region meets always, by chance too.
        let same_region = if chance < 1.0 { ((found - chance) / (1.0 - chance)).clamp(0.0, 1.0) } else { 0.0 };
        Self {
            same_region,
            adjoining: skips.len() as f64 / requests as f64,
            skip_bytes: median(skips),
            apart_bytes: median(distances),
        }
    }
}

/// The lower one of an even number; 0 of none.
fn median(mut values: Vec<u64>) -> u64 {
    if values.is_empty() {
        return 0;
    }
    let middle = (values.len() - 1) / 2;
    *values.select_nth_unstable(middle).1
}

/// The accesses of one region in one window.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RegionAccess {
    /// Number of the region within its file.
    pub region: RegionIndex,
    /// Classes that occur, ascending, with the number of requests (at least 1).
    pub counts: Vec<(ClassIndex, u64)>,
    /// Processes that accessed the region in the window: p of the papers.
    pub processes: u32,
    /// The most of them on one client node: c of the papers.
    pub processes_per_node: u32,
    /// When in the window.
    #[serde(default)]
    pub slices: Slices,
}

impl FileAccess {
    /// The class that `index` stands for.
    ///
    /// # Panics
    ///
    /// If the file has no such class.
    #[must_use]
    pub fn class(&self, index: ClassIndex) -> AccessClass {
        self.classes[usize::from(index.0)]
    }
}
