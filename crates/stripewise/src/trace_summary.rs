//! Files, request sizes, patterns, hot regions of each window, and alignment to a stripe size of a
//! trace.

use crate::session::{Session, SessionError};
use crate::trace_faults::{IncompleteTrace, impossible_requests, refuse_incomplete};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::data_files::is_data;
use stripewise_trace::{
    Alignment, CountError, CountOptions, FileStatistics, ReadError, SMALL_REQUEST, Trace, alignment, statistics,
};
use thiserror::Error;

/// Why a trace cannot be summarized.
#[derive(Debug, Error)]
pub enum SummaryError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// Records of it are missing, which was not to be.
    #[error(transparent)]
    Incomplete(#[from] IncompleteTrace),
    /// The cluster, whose size of a region counts, cannot be read.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Windows or regions make no sense.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A stripe of 0 bytes.
    #[error("--stripe 0: a stripe has at least one byte; 64KiB is usual")]
    NoStripe,
}

/// How a trace is summarized.
#[derive(Clone, Debug)]
pub struct SummaryOptions {
    /// A trace of any form that Stripewise reads.
    pub trace: PathBuf,
    /// Refuse a trace of which records are missing or damaged.
    pub strict: bool,
    /// Report how requests lie to stripes of this size.
    pub stripe: Option<ByteCount>,
    /// Length of a window.
    pub window_s: f64,
    /// Size of a region; `None`: the cluster's, 64 MiB without a cluster.
    pub region: Option<ByteCount>,
    /// Sizes of each file, and hot regions of each window.
    pub top: usize,
    /// Files whose alignment is reported, those with the most bytes first.
    pub files: usize,
    /// Report the alignment of files of the system and of shared memory too.
    pub all: bool,
}

/// What a trace holds.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TraceSummary {
    /// The trace as it was named.
    pub trace: PathBuf,
    /// Machine on which it was made; `None` of a trace without a manifest.
    pub host: Option<String>,
    /// The program and its arguments; empty of a trace without a manifest.
    pub traced_command: Vec<String>,
    /// Processes that left records.
    pub processes: u32,
    /// Ranks of an MPI program, 0 of any other.
    pub mpi_size: u32,
    /// Machines on which the processes ran.
    pub nodes: u32,
    /// How many of them ran on each, by its name.
    pub processes_by_node: BTreeMap<String, u32>,
    /// Records in all.
    pub records: u64,
    /// Records that were lost for want of space.
    pub lost: u64,
    /// Processes that did not finish their part.
    pub unfinished: u32,
    /// From the start of the first call to the end of the last.
    pub duration_s: f64,
    /// What is missing or damaged, one sentence each.
    pub warnings: Vec<String>,
    /// Files with requests, those with the most bytes first.
    pub files: Vec<TraceFile>,
    /// How requests lie to stripes, if a stripe was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alignment: Option<AlignmentSummary>,
}

/// One file of a trace.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TraceFile {
    /// As the program named it, made absolute.
    pub path: String,
    /// False of a file of the system, of a device and of the shared memory of an MPI library: no plan and no report names it.
    pub is_data: bool,
    /// Reads.
    pub read_requests: u64,
    /// Writes.
    pub write_requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Million bytes per second between the first and the last request.
    pub bandwidth_mb_s: f64,
    /// Processes that read or wrote it.
    pub processes: u32,
    /// Machines of these processes.
    pub nodes: u32,
    /// Different sizes of requests.
    pub distinct_sizes: u64,
    /// Sizes are rounded down by up to 3 %, since too many differ.
    pub are_sizes_rounded: bool,
    /// The most frequent sizes.
    pub sizes: Vec<RequestSize>,
    /// Access patterns of reads, then of writes, each with its processes.
    pub patterns: Vec<PatternCount>,
    /// Windows of equal length, in order.
    pub windows: Vec<TraceWindow>,
}

/// Requests of one size.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RequestSize {
    /// Read or write.
    pub operation: Direction,
    /// Their size.
    pub request_bytes: u64,
    /// How many.
    pub requests: u64,
}

/// Processes whose reads, or whose writes, have one access pattern.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PatternCount {
    /// Read or write; patterns of both are found apart from each other.
    pub operation: Direction,
    /// `single request`, `sequential`, `strided by N B` or `random`.
    pub pattern: String,
    /// How many.
    pub processes: u32,
}

/// A window of time.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct TraceWindow {
    /// Begin, from the start of the trace.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
    /// Requests on the file.
    pub requests: u64,
    /// Regions that they touched.
    pub regions: u64,
    /// The regions with the most requests.
    pub hottest: Vec<HotRegion>,
}

/// Requests on one region.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct HotRegion {
    /// Number of the region.
    pub region: u32,
    /// How many.
    pub requests: u64,
}

/// How requests lie to stripes, as iBridge's Table 1.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct AlignmentSummary {
    /// Size of a stripe.
    pub stripe: ByteCount,
    /// Requests below this size count as random.
    pub random_below: ByteCount,
    /// Files, then all files together.
    pub rows: Vec<AlignmentRow>,
}

/// Requests of one file, or of all.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct AlignmentRow {
    /// The file, or `all files`.
    pub path: String,
    /// How many.
    pub requests: u64,
    /// Larger than a stripe, with an end off it.
    pub unaligned_percent: f64,
    /// Small requests.
    pub random_percent: f64,
    /// Both.
    pub total_percent: f64,
}

/// Summarizes a trace.
///
/// # Errors
///
/// [`SummaryError`].
pub fn summarize(session: &Session, options: SummaryOptions) -> Result<TraceSummary, SummaryError> {
    let _waiting = session.voice().waiting("reading the trace");
    let trace = Trace::open(&options.trace)?;
    if options.strict {
        refuse_incomplete(&options.trace, &trace)?;
    }
    let region_size = match options.region {
        Some(size) => size,
        None if session.cluster_path().exists() => session.cluster()?.region_size,
        None => ByteCount(DEFAULT_REGION_BYTES),
    };
    let count_options = CountOptions { window_s: options.window_s, region_size, ..CountOptions::default() };
    let found = statistics(&trace, &count_options, options.top)?;
    let with_data: Vec<&FileStatistics> = found.files.iter().filter(|file| file.requests() > 0).collect();
    let is_wanted = |file: &&FileStatistics| options.all || is_data(Path::new(&file.path));
    let alignment = match options.stripe {
        Some(stripe) => {
            let wanted: Vec<_> = with_data.iter().copied().filter(is_wanted).take(options.files).collect();
            Some(alignment_of(&trace, &wanted, stripe)?)
        }
        None => None,
    };
    let manifest = trace.manifest.as_ref();
    Ok(TraceSummary {
        host: manifest.map(|manifest| manifest.host.clone()),
        traced_command: manifest.map_or_else(Vec::new, |manifest| manifest.command.clone()),
        processes: found.processes,
        mpi_size: trace.mpi_size(),
        nodes: found.nodes,
        processes_by_node: processes_by_node(&trace),
        records: found.events,
        lost: found.lost,
        unfinished: found.unfinished,
        duration_s: found.duration_s,
        warnings: warnings(&trace, found.impossible),
        trace: options.trace,
        files: with_data.into_iter().map(file_summary).collect(),
        alignment,
    })
}

fn warnings(trace: &Trace, impossible: u64) -> Vec<String> {
    let mut warnings: Vec<String> = trace.warnings.iter().map(ToString::to_string).collect();
    if impossible > 0 {
        warnings.push(impossible_requests(impossible));
    }
    if trace.processes.is_empty() {
        warnings.push("no process left a record".to_owned());
    }
    warnings
}

fn file_summary(file: &FileStatistics) -> TraceFile {
    let sizes = file.sizes.iter().map(|size| RequestSize {
        operation: size.direction,
        request_bytes: size.request_bytes,
        requests: size.requests,
    });
    let patterns = [Direction::Read, Direction::Write].into_iter().flat_map(|operation| {
        file.patterns(operation).iter().map(move |(pattern, processes)| PatternCount {
            operation,
            pattern: pattern.to_string(),
            processes: *processes,
        })
    });
    let windows = file.hot.iter().map(|window| TraceWindow {
        start_s: window.start_s,
        end_s: window.end_s,
        requests: window.requests,
        regions: window.regions,
        hottest: window
            .hottest
            .iter()
            .map(|(region, requests)| HotRegion { region: region.0, requests: *requests })
            .collect(),
    });
    TraceFile {
        is_data: is_data(Path::new(&file.path)),
        path: file.path.clone(),
        read_requests: file.read_requests,
        write_requests: file.write_requests,
        read_bytes: file.read_bytes,
        write_bytes: file.write_bytes,
        bandwidth_mb_s: file.bandwidth_mb_s(),
        processes: file.processes,
        nodes: file.nodes,
        distinct_sizes: file.distinct_sizes,
        are_sizes_rounded: file.are_sizes_rounded,
        sizes: sizes.collect(),
        patterns: patterns.collect(),
        windows: windows.collect(),
    }
}

fn alignment_of(trace: &Trace, files: &[&FileStatistics], stripe: ByteCount) -> Result<AlignmentSummary, SummaryError> {
    if stripe.0 == 0 {
        return Err(SummaryError::NoStripe);
    }
    let row = |path: &str, found: Alignment| AlignmentRow {
        path: path.to_owned(),
        requests: found.requests,
        unaligned_percent: found.unaligned_per_cent(),
        random_percent: found.random_per_cent(),
        total_percent: found.total_per_cent(),
    };
    let of_files = files.iter().map(|file| row(&file.path, alignment(trace, Some(file.file), stripe, SMALL_REQUEST)));
    let mut rows: Vec<AlignmentRow> = of_files.collect();
    rows.push(row("all files", alignment(trace, None, stripe, SMALL_REQUEST)));
    Ok(AlignmentSummary { stripe, random_below: SMALL_REQUEST, rows })
}

fn processes_by_node(trace: &Trace) -> BTreeMap<String, u32> {
    let mut by_node: BTreeMap<String, u32> = BTreeMap::new();
    for process in &trace.processes {
        *by_node.entry(trace.nodes[process.node.0 as usize].clone()).or_default() += 1;
    }
    by_node
}
