//! What a person wants to know of a trace: per file, how much, in which sizes and patterns, where it is hot, how fast.
//!
//! Data requests are those of the level that [`TracedFile::data_level`](crate::TracedFile::data_level) says, as in the
//! [counts](crate::counts). Processes are looked at side by side and their findings added up.

mod alignment;
mod heat_map;
mod sizes;
#[cfg(test)]
mod tests;

pub use alignment::{Alignment, SMALL_REQUEST, alignment};
pub use heat_map::{HeatMap, heat_map};
pub use sizes::SIZES_APART;

use crate::counts::{CountError, CountOptions, Counted, count_and_report};
use crate::trace::{Chunk, Event, FileIndex, ProcessIndex, Trace, TraceTime};
use rayon::prelude::*;
use sizes::Sizes;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use stripewise_capture::call::{Level, Operation};
use stripewise_layout::{Direction, RegionIndex};

/// How the reads, or the writes, of a process go through a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AccessPattern {
    /// One request.
    Single,
    /// Four of five requests begin where the last one ended.
    Sequential,
    /// Four of five requests begin this far from where the last one began, in bytes.
    Strided {
        /// Negative where the process goes backward.
        stride_bytes: i64,
    },
    /// None of the others.
    Random,
}

impl std::fmt::Display for AccessPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Single => f.write_str("single request"),
            Self::Sequential => f.write_str("sequential"),
            Self::Strided { stride_bytes } => write!(f, "strided by {stride_bytes} B"),
            Self::Random => f.write_str("random"),
        }
    }
}

/// Requests of one direction and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeCount {
    /// Whether they read or write.
    pub direction: Direction,
    /// Size of each; rounded down where [`FileStatistics::are_sizes_rounded`].
    pub request_bytes: u64,
    /// How many.
    pub requests: u64,
}

/// The most accessed regions of a window.
#[derive(Clone, PartialEq, Debug)]
pub struct HotRegions {
    /// Seconds from the first record of the trace.
    pub start_s: f64,
    /// Seconds from the first record of the trace.
    pub end_s: f64,
    /// All requests of the window to the file, pieces at region borders counted each.
    pub requests: u64,
    /// Regions with any.
    pub regions: u64,
    /// With their requests, most first.
    pub hottest: Vec<(RegionIndex, u64)>,
}

/// One file.
#[derive(Clone, PartialEq, Debug)]
pub struct FileStatistics {
    /// Which file of the trace.
    pub file: FileIndex,
    /// Absolute path.
    pub path: String,
    /// Whose requests are told here; none when there were none.
    pub level: Option<Level>,
    /// Reads that succeeded, at `level`.
    pub read_requests: u64,
    /// Writes that succeeded, at `level`.
    pub write_requests: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Data requests that failed.
    pub failed_requests: u64,
    /// Successful opens and creations, of the level of the data, or of any level where no data moved.
    pub opens: u64,
    /// Sizes by number of requests, most first, at most [`CountOptions`]-like `top` of them.
    pub sizes: Vec<SizeCount>,
    /// Sizes that are told apart, directions told apart too.
    pub distinct_sizes: u64,
    /// More than [`SIZES_APART`] sizes differ, and they are told rounded down, by at most 1 / 32.
    pub are_sizes_rounded: bool,
    /// Patterns of reads with the number of processes that had them, most first.
    pub read_patterns: Vec<(AccessPattern, u32)>,
    /// As `read_patterns`, of writes: what comes between the requests of one direction is no part of its pattern.
    pub write_patterns: Vec<(AccessPattern, u32)>,
    /// Processes that moved data.
    pub processes: u32,
    /// Nodes that they ran on.
    pub nodes: u32,
    /// Start of the first and end of the last data request.
    pub first: TraceTime,
    /// As `first`; equal to it without data requests.
    pub last: TraceTime,
    /// Sum of the durations of data requests, over all processes, in seconds.
    pub busy_s: f64,
    /// One for each window; empty where no request could be counted.
    pub hot: Vec<HotRegions>,
}

impl FileStatistics {
    /// Reads and writes that succeeded.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.read_requests + self.write_requests
    }

    /// The patterns of one direction.
    #[must_use]
    pub fn patterns(&self, direction: Direction) -> &[(AccessPattern, u32)] {
        match direction {
            Direction::Read => &self.read_patterns,
            Direction::Write => &self.write_patterns,
        }
    }

    /// Bytes read and written per second between the first and the last data request, in MB/s (10^6); 0 where no time passed.
    #[must_use]
    pub fn bandwidth_mb_s(&self) -> f64 {
        let seconds = (self.last.0.saturating_sub(self.first.0)) as f64 * 1e-9;
        if seconds > 0.0 { (self.read_bytes as f64 + self.write_bytes as f64) / 1e6 / seconds } else { 0.0 }
    }
}

/// A whole trace.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceStatistics {
    /// Calls of all processes, failed ones too.
    pub events: u64,
    /// Processes that left records.
    pub processes: u32,
    /// Machines that they ran on.
    pub nodes: u32,
    /// From the start of the first call to the end of the last.
    pub duration_s: f64,
    /// Records that processes could not write.
    pub lost: u64,
    /// Processes that did not finish their trace.
    pub unfinished: u32,
    /// As [`Counted::impossible`].
    pub impossible: u64,
    /// Files that data moved to or from, most bytes first; then the others by path.
    pub files: Vec<FileStatistics>,
}

/// What one process did to one file.
#[derive(Default)]
struct Part {
    requests: [u64; 2],
    bytes: [u64; 2],
    failed: u64,
    opens: [u64; 2],
    sizes: Sizes,
    span: Option<(TraceTime, TraceTime)>,
    busy_ns: u64,
    steps: [Steps; 2],
}

/// The way from each request of one direction to the next one.
#[derive(Default)]
struct Steps {
    requests: u64,
    /// Of the last request: begin and end.
    before: Option<(u64, u64)>,
    continued: u64,
    strides: HashMap<i64, u64>,
}

/// More different strides than this are no pattern.
const STRIDE_LIMIT: usize = 1024;

impl Steps {
    fn take(&mut self, start: u64, end: u64) {
        self.requests += 1;
        if let Some((last_start, last_end)) = self.before.replace((start, end)) {
            self.continued += u64::from(last_end == start);
            let stride = start.wrapping_sub(last_start) as i64;
            if self.strides.len() < STRIDE_LIMIT || self.strides.contains_key(&stride) {
                *self.strides.entry(stride).or_insert(0) += 1;
            }
        }
    }

    /// None where no data moved.
    fn pattern(&self) -> Option<AccessPattern> {
        let steps = self.requests.checked_sub(1)?;
        if steps == 0 {
            return Some(AccessPattern::Single);
        }
        let is_most = |count: u64| count * 5 >= steps * 4;
        if is_most(self.continued) {
            return Some(AccessPattern::Sequential);
        }
        let strided = self.strides.iter().find(|(_, count)| is_most(**count));
        Some(strided.map_or(AccessPattern::Random, |(stride, _)| AccessPattern::Strided { stride_bytes: *stride }))
    }
}

impl Part {
    fn take(&mut self, event: &Event, level: Option<Level>) {
        let operation = event.operation();
        if event.errno != 0 {
            self.failed += u64::from(operation.is_data() && Some(event.call.level()) == level);
            return;
        }
        if matches!(operation, Operation::Open | Operation::Create) {
            self.opens[usize::from(event.call.level() == Level::MpiIo)] += 1;
        }
        if !operation.is_data() || Some(event.call.level()) != level {
            return;
        }
        let direction = if operation == Operation::Read { Direction::Read } else { Direction::Write };
        let index = usize::from(direction == Direction::Write);
        self.requests[index] += 1;
        // Sums end at the most there is: sizes and times in damaged records may be anything.
        self.bytes[index] = self.bytes[index].saturating_add(event.bytes);
        self.sizes.add(direction, event.bytes, 1);
        let (first, last) = self.span.unwrap_or((event.start, event.end));
        self.span = Some((first.min(event.start), last.max(event.end)));
        self.busy_ns = self.busy_ns.saturating_add(event.end.0.saturating_sub(event.start.0));
        self.steps[index].take(event.offset.0, event.offset.0.saturating_add(event.bytes));
    }
}

/// Looks at the whole trace. `top` limits the lists of sizes and hot regions; windows and regions are as `options` says.
///
/// # Errors
/// When an option makes no sense.
pub fn statistics(trace: &Trace, options: &CountOptions, top: usize) -> Result<TraceStatistics, CountError> {
    let Counted { files: accesses, impossible } = count_and_report(trace, options)?;
    let by_process: Vec<HashMap<FileIndex, Part>> = (0..trace.processes.len() as u32)
        .into_par_iter()
        .map(|process| {
            let mut parts: HashMap<FileIndex, Part> = HashMap::new();
            for event in trace.events_of(ProcessIndex(process)) {
                let Some(file) = event.file else { continue };
                parts.entry(file).or_default().take(&event, trace.file(file).data_level());
            }
            let slots = 0..trace.process(ProcessIndex(process)).slots().len();
            trace.is_through(&Chunk { process: ProcessIndex(process), slots });
            parts
        })
        .collect();
    let mut by_file: Vec<Vec<(ProcessIndex, Part)>> = trace.files.iter().map(|_| Vec::new()).collect();
    for (process, parts) in trace.process_indices().zip(by_process) {
        for (file, part) in parts {
            by_file[file.0 as usize].push((process, part));
        }
    }
    let hot: HashMap<&str, Vec<HotRegions>> =
        accesses.iter().map(|file| (file.path.as_str(), hot_regions(file, top))).collect();
    let mut files: Vec<FileStatistics> = by_file
        .iter()
        .enumerate()
        .map(|(index, parts)| {
            let file = FileIndex(index as u32);
            let hot = hot.get(trace.file(file).path.as_str()).cloned().unwrap_or_default();
            add_up(trace, file, parts, top, hot)
        })
        .collect();
    // Stable: equal files stay in order of path.
    files.sort_by_key(|file| Reverse(u128::from(file.read_bytes) + u128::from(file.write_bytes)));
    Ok(TraceStatistics {
        events: trace.event_count(),
        processes: trace.processes.len() as u32,
        nodes: trace.nodes.len() as u32,
        duration_s: trace.duration().seconds(),
        lost: trace.processes.iter().map(|process| process.lost).sum(),
        unfinished: trace.processes.iter().filter(|process| !process.finished).count() as u32,
        impossible,
        files,
    })
}

fn hot_regions(file: &crate::access::FileAccess, top: usize) -> Vec<HotRegions> {
    let windows = file.windows.iter().map(|window| {
        let mut hottest: Vec<(RegionIndex, u64)> = window
            .regions
            .iter()
            .map(|region| (region.region, region.counts.iter().map(|(_, count)| count).sum()))
            .collect();
        let requests = hottest.iter().map(|(_, count)| count).sum();
        let regions = hottest.len() as u64;
        hottest.sort_by_key(|(region, count)| (Reverse(*count), *region));
        hottest.truncate(top);
        HotRegions { start_s: window.start_s, end_s: window.end_s, requests, regions, hottest }
    });
    windows.collect()
}

fn add_up(
    trace: &Trace,
    file: FileIndex,
    parts: &[(ProcessIndex, Part)],
    top: usize,
    hot: Vec<HotRegions>,
) -> FileStatistics {
    let level = trace.file(file).data_level();
    let mut sizes = Sizes::default();
    let mut patterns: [HashMap<AccessPattern, u32>; 2] = Default::default();
    let mut users = BTreeSet::new();
    let mut span: Option<(TraceTime, TraceTime)> = None;
    for (process, part) in parts {
        sizes.absorb(&part.sizes);
        for (patterns, steps) in patterns.iter_mut().zip(&part.steps) {
            if let Some(pattern) = steps.pattern() {
                *patterns.entry(pattern).or_insert(0) += 1;
                users.insert((trace.process(*process).node, *process));
            }
        }
        if let Some((first, last)) = part.span {
            span = Some(span.map_or((first, last), |(start, end)| (start.min(first), end.max(last))));
        }
    }
    let sum = |of: &dyn Fn(&Part) -> u64| parts.iter().fold(0u64, |sum, (_, part)| sum.saturating_add(of(part)));
    let mut ranked: Vec<SizeCount> = sizes
        .iter()
        .map(|(direction, request_bytes, requests)| SizeCount { direction, request_bytes, requests })
        .collect();
    ranked.sort_by_key(|size| (Reverse(size.requests), size.request_bytes, size.direction));
    ranked.truncate(top);
    let [read_patterns, write_patterns] = patterns.map(|patterns| {
        let mut patterns: Vec<(AccessPattern, u32)> = patterns.into_iter().collect();
        patterns.sort_by_key(|(pattern, processes)| (Reverse(*processes), *pattern));
        patterns
    });
    let (first, last) = span.unwrap_or_default();
    FileStatistics {
        file,
        path: trace.file(file).path.clone(),
        level,
        read_requests: sum(&|part| part.requests[0]),
        write_requests: sum(&|part| part.requests[1]),
        read_bytes: sum(&|part| part.bytes[0]),
        write_bytes: sum(&|part| part.bytes[1]),
        failed_requests: sum(&|part| part.failed),
        opens: match level {
            Some(Level::Posix) => sum(&|part| part.opens[0]),
            Some(Level::MpiIo) => sum(&|part| part.opens[1]),
            None => sum(&|part| part.opens[0] + part.opens[1]),
        },
        sizes: ranked,
        distinct_sizes: sizes.len() as u64,
        are_sizes_rounded: sizes.is_rounded(),
        read_patterns,
        write_patterns,
        processes: users.len() as u32,
        nodes: users.iter().map(|(node, _)| node).collect::<BTreeSet<_>>().len() as u32,
        first,
        last,
        busy_s: sum(&|part| part.busy_ns) as f64 * 1e-9,
        hot,
    }
}
