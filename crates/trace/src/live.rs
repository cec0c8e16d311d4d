//! Counts of one file while programs run: the [`FileAccess`] of one window after the other, from requests that were seen as they happened.
//!
//! What is counted is what [`crate::count`] takes from a trace, with these differences:
//!
//! - Where requests were missed (they came faster than they were looked at), those that are known stand for them: their counts are raised so
//!   that the sum is right. The first one after a gap is not known to continue anything or not, so it counts as missed too, unless it is alone.
//! - A request is sequential when it continues the last one of its *thread*: the order of the requests of several threads is not known.
//! - Sizes are rounded from the start, to 4 leading bits, and to fewer once a file has more classes than the limit. A trace's classes are merged
//!   when all windows are known; here the same requests must be the same class in every window, or each would look like another program's.
//! - The instants at which simultaneous requests are compared are those at which the observer looks.
//! - Slices are not told apart: what is guessed from windows that are past knows none.

use crate::access::{
    AccessClass, ClassIndex, Company, FileAccess, ProcessCount, RegionAccess, Slices, Synchronizations, WindowAccess,
    WindowProcesses,
};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use stripewise_layout::{ByteCount, FileOffset, Order, RegionGeometry, RegionIndex, RequestKind};

/// Leading bits of a size that are kept, by level of coarseness.
const LEADING_BITS: [u32; 4] = [4, 3, 2, 1];
/// Instants of a window that are kept, at most.
const MAX_INSTANTS: usize = 512;
/// A request over more regions is nonsense: POSIX moves at most 2 GiB at once.
const REGIONS_OF_REQUEST: u64 = 1 << 16;
/// Cells (region, class) of a window that are counted, at most: what is noted is not to be trusted with our memory.
const MAX_CELLS: usize = 1 << 20;
/// A process is taken to be busy with its last request for so many times its mean gap between two.
const BUSY_GAPS: f64 = 8.0;

/// How requests are counted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LiveOptions {
    /// More than 0.
    pub region_size: ByteCount,
    /// As [`crate::CountOptions::forward_skip_bytes`].
    pub forward_skip_bytes: u64,
    /// Classes of a file beyond which sizes are told apart less finely. At least 4.
    pub class_limit: u16,
}

impl Default for LiveOptions {
    fn default() -> Self {
        Self { region_size: ByteCount(64 << 20), forward_skip_bytes: 64 << 10, class_limit: 32 }
    }
}

/// One request that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveRequest {
    /// Whether it read or wrote, and what a write waited for.
    pub kind: RequestKind,
    /// First byte of the file.
    pub offset: FileOffset,
    /// Bytes that moved.
    pub bytes: u64,
    /// When it ended, on a clock that all processes share, modulo 2^32.
    pub time_ms: u32,
}

/// A process of some node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LiveProcess {
    /// The same of all processes of a node, and of no other's.
    pub node: u32,
    /// Of the node.
    pub process: u32,
}

impl LiveProcess {
    /// How many there are, and how many of them on the node that has most. They come in order, each once.
    #[must_use]
    pub fn count(processes: &BTreeSet<Self>) -> ProcessCount {
        let mut on_node = BTreeMap::<u32, u32>::new();
        processes.iter().for_each(|process| *on_node.entry(process.node).or_default() += 1);
        ProcessCount { processes: processes.len() as u32, per_node: on_node.into_values().max().unwrap_or(0) }
    }
}

/// One file of which requests are seen.
#[derive(Clone, Debug)]
pub struct LiveFile {
    options: LiveOptions,
    geometry: RegionGeometry,
    /// Position in [`LEADING_BITS`]; only ever raised.
    level: usize,
    /// Where the last request of each thread ended.
    ends: HashMap<(LiveProcess, u32), u64>,
    window: Counts,
}

/// What one window holds so far.
#[derive(Clone, Debug, Default)]
struct Counts {
    cells: HashMap<(u32, AccessClass), u64>,
    classes: BTreeSet<AccessClass>,
    /// Processes by region.
    processes: HashMap<u32, BTreeSet<LiveProcess>>,
    busy: BTreeMap<LiveProcess, Busy>,
    instants: Vec<Vec<(u64, u64)>>,
    /// Every so many looks is kept as an instant.
    stride: usize,
    samples: usize,
    requests: u64,
    known: u64,
}

/// What a process did on the file in this window.
#[derive(Clone, Copy, Debug)]
struct Busy {
    first_ms: u32,
    last: LiveRequest,
    requests: u64,
}

impl LiveFile {
    /// No requests yet, in the first window.
    #[must_use]
    pub fn new(options: LiveOptions) -> Self {
        let geometry = RegionGeometry::new(options.region_size.0.max(1));
        Self { options, geometry, level: 0, ends: HashMap::new(), window: Counts::default() }
    }

    /// Requests of this window so far, and how many of them were seen themselves.
    #[must_use]
    pub fn requests(&self) -> (u64, u64) {
        (self.window.requests, self.window.known)
    }

    /// Processes whose requests of this window were seen.
    pub fn processes(&self) -> impl Iterator<Item = LiveProcess> {
        self.window.busy.keys().copied()
    }

    /// Adds what a thread of a process did: `missed` requests, of which nothing is known, then `requests`, in order.
    pub fn add(&mut self, process: LiveProcess, thread: u32, requests: &[LiveRequest], missed: u64) {
        let possible = |request: &&LiveRequest| {
            let regions = request.bytes.div_ceil(self.options.region_size.0.max(1));
            let end = request.offset.0.checked_add(request.bytes);
            request.bytes > 0
                && regions < REGIONS_OF_REQUEST
                && end.is_some_and(|end| end / self.options.region_size.0.max(1) < u64::from(u32::MAX))
        };
        let requests: Vec<LiveRequest> = requests.iter().filter(possible).copied().collect();
        let mut missed = missed;
        let key = (process, thread);
        let mut last_end = self.ends.get(&key).copied().filter(|_| missed == 0);
        let mut known = &requests[..];
        if let [first, _, ..] = known
            && missed > 0
        {
            last_end = Some(end_of(first));
            known = &known[1..];
            missed += 1;
        }
        let (Some(first), Some(last)) = (requests.first(), requests.last()) else { return };
        self.ends.insert(key, end_of(last));
        let total = known.len() as u64 + missed;
        let share = |number: usize| (number as u128 * u128::from(total) / known.len() as u128) as u64;
        for (number, request) in known.iter().enumerate() {
            let weight = share(number + 1) - share(number);
            let skip = last_end.and_then(|end| request.offset.0.checked_sub(end));
            let is_sequential = skip.is_some_and(|gap| gap <= self.options.forward_skip_bytes);
            last_end = Some(end_of(request));
            let order = if is_sequential { Order::Sequential } else { Order::Random };
            for piece in self.geometry.pieces(request.offset, request.bytes) {
                let request_bytes = self.rounded(piece.length);
                let class = AccessClass { kind: request.kind, request_bytes, order };
                let cell = (piece.region.0, class);
                if self.window.cells.len() >= MAX_CELLS && !self.window.cells.contains_key(&cell) {
                    continue;
                }
                *self.window.cells.entry(cell).or_insert(0) += weight;
                self.window.classes.insert(class);
                self.window.processes.entry(piece.region.0).or_default().insert(process);
            }
        }
        self.window.requests += total;
        self.window.known += known.len() as u64;
        let busy =
            self.window.busy.entry(process).or_insert(Busy { first_ms: first.time_ms, last: *last, requests: 0 });
        busy.requests += total;
        // Another thread's may be the later one. Times wrap; "later" is the half circle ahead.
        if last.time_ms.wrapping_sub(busy.last.time_ms) as i32 >= 0 {
            busy.last = *last;
        }
        self.limit_classes();
    }

    /// All processes have been looked at: their last requests are taken to be simultaneous as far as they are recent.
    pub fn sample(&mut self, now_ms: u32) {
        let counts = &mut self.window;
        counts.samples += 1;
        if !counts.samples.is_multiple_of(counts.stride.max(1)) {
            return;
        }
        let is_recent = |busy: &&Busy| {
            let age_ms = now_ms.wrapping_sub(busy.last.time_ms) as i32;
            let span_ms = busy.last.time_ms.wrapping_sub(busy.first_ms);
            // The clock is coarse: what is but a few of its ticks old is recent.
            f64::from(age_ms) <= (BUSY_GAPS * f64::from(span_ms) / busy.requests as f64).max(10.0)
        };
        let together = counts.busy.values().filter(is_recent).map(|busy| (busy.last.offset.0, busy.last.bytes));
        let together: Vec<(u64, u64)> = together.collect();
        if !together.is_empty() {
            counts.instants.push(together);
        }
        if counts.instants.len() >= MAX_INSTANTS {
            // Every second one stays, and half as many come from here on.
            let mut number = 0;
            counts.instants.retain(|_| {
                number += 1;
                number % 2 == 0
            });
            counts.stride = counts.stride.max(1) * 2;
        }
    }

    /// Ends the window: its accesses, with the file's name and size. The next one begins, with nothing in it. `run`: the processes that accessed any
    /// file in the window.
    pub fn finish(
        &mut self,
        path: String,
        size_bytes: u64,
        (start_s, end_s): (f64, f64),
        run: ProcessCount,
    ) -> FileAccess {
        let counts = std::mem::take(&mut self.window);
        let busy = counts.busy.into_keys().collect();
        let processes = WindowProcesses { file: LiveProcess::count(&busy), run };
        let classes: Vec<AccessClass> = counts.classes.into_iter().collect();
        let mut by_region: BTreeMap<u32, Vec<(ClassIndex, u64)>> = BTreeMap::new();
        for ((region, class), count) in counts.cells.into_iter().filter(|(_, count)| *count > 0) {
            let index = classes.binary_search(&class).expect("every class was noted");
            by_region.entry(region).or_default().push((ClassIndex(index as u16), count));
        }
        let regions = by_region.into_iter().map(|(region, mut of_region)| {
            of_region.sort_unstable();
            let one = ProcessCount { processes: 1, per_node: 1 };
            let ProcessCount { processes, per_node } = counts.processes.get(&region).map_or(one, LiveProcess::count);
            RegionAccess {
                region: RegionIndex(region),
                counts: of_region,
                processes,
                processes_per_node: per_node,
                slices: Slices::ALL,
            }
        });
        let regions = regions.collect();
        let (region_bytes, skip) = (self.options.region_size.0.max(1), self.options.forward_skip_bytes);
        let company = Company::of_instants(counts.instants.into_iter(), region_bytes, skip);
        let window =
            WindowAccess { start_s, end_s, company, processes, synchronizations: Synchronizations::default(), regions };
        FileAccess { path, size_bytes, region_size: self.options.region_size, classes, windows: vec![window] }
    }

    /// The size that stands for a size in its class: the nearest with as few leading bits, at most a region.
    fn rounded(&self, bytes: u64) -> u64 {
        // Level by level, so that it does not matter when a file came to be coarser.
        let rounded = LEADING_BITS[..=self.level].iter().fold(bytes, |bytes, kept| {
            let dropped = (u64::BITS - bytes.leading_zeros()).saturating_sub(*kept);
            let half = if dropped > 0 { 1u64 << (dropped - 1) } else { 0 };
            (bytes + half) >> dropped << dropped
        });
        rounded.min(self.options.region_size.0)
    }

    fn limit_classes(&mut self) {
        while self.window.classes.len() > usize::from(self.options.class_limit) && self.level + 1 < LEADING_BITS.len() {
            self.level += 1;
            let cells = std::mem::take(&mut self.window.cells);
            self.window.classes.clear();
            for ((region, class), count) in cells {
                let class = AccessClass { request_bytes: self.rounded(class.request_bytes), ..class };
                *self.window.cells.entry((region, class)).or_insert(0) += count;
                self.window.classes.insert(class);
            }
        }
    }
}

fn end_of(request: &LiveRequest) -> u64 {
    request.offset.0.saturating_add(request.bytes)
}

#[cfg(test)]
mod tests;
