//! `stripewise trace show`: files, request sizes, patterns, hot regions of each window, alignment to a stripe size.

use crate::context::Context;
use crate::output::Verdict;
use crate::seconds;
use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise::data_files::is_data;
use stripewise::shell::command_line;
use stripewise::table::Table;
use stripewise::trace_faults::{impossible_requests, refuse_incomplete};
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::figures::{bytes, counted, duration, grouped, number};
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::statistics::{AccessPattern, SIZES_APART};
use stripewise_trace::{Alignment, CountOptions, FileStatistics, SMALL_REQUEST, Trace, alignment, statistics};

/// Show the files, request sizes, patterns and hot regions of a trace
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise trace show run.trace
  stripewise trace show run.trace --stripe 64KiB
  stripewise trace show run.trace --window 60s --region 4MiB --top 10")]
pub(super) struct ShowArgs {
    /// A trace of any form that Stripewise reads: its own, CSV, IOSIG's
    trace: PathBuf,

    /// Refuse a trace of which records are missing or damaged
    #[arg(long)]
    strict: bool,

    /// Also tell how requests lie to stripes of this size, as iBridge's Table 1
    #[arg(long, value_name = "SIZE")]
    stripe: Option<ByteCount>,

    /// Length of a window
    #[arg(long, value_name = "TIME", default_value = "600s", value_parser = seconds::parse)]
    window: f64,

    /// Size of a region [default: the cluster's, 64MiB without one]
    #[arg(long, value_name = "SIZE")]
    region: Option<ByteCount>,

    /// Sizes of each file and hot regions of each window to name
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    top: usize,

    /// Files to show, those with the most bytes first
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    files: usize,

    /// Show every file: those of the system and shared memory too
    #[arg(long, conflicts_with = "files")]
    all: bool,
}

#[derive(Serialize)]
struct Shown {
    trace: PathBuf,
    host: Option<String>,
    traced_command: Vec<String>,
    processes: u32,
    mpi_size: u32,
    nodes: u32,
    records: u64,
    lost: u64,
    unfinished: u32,
    duration_s: f64,
    warnings: Vec<String>,
    files: Vec<ShownFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alignment: Option<ShownAlignment>,
}

#[derive(Serialize)]
struct ShownFile {
    path: String,
    read_requests: u64,
    write_requests: u64,
    read_bytes: u64,
    write_bytes: u64,
    bandwidth_mb_s: f64,
    processes: u32,
    nodes: u32,
    distinct_sizes: u64,
    are_sizes_rounded: bool,
    sizes: Vec<ShownSize>,
    patterns: Vec<ShownPattern>,
    windows: Vec<ShownWindow>,
}

#[derive(Serialize)]
struct ShownSize {
    operation: Direction,
    request_bytes: u64,
    requests: u64,
}

#[derive(Serialize)]
struct ShownPattern {
    pattern: String,
    processes: u32,
}

#[derive(Serialize)]
struct ShownWindow {
    start_s: f64,
    end_s: f64,
    requests: u64,
    regions: u64,
    hottest: Vec<HotRegion>,
}

#[derive(Serialize)]
struct HotRegion {
    region: u32,
    requests: u64,
}

#[derive(Serialize)]
struct ShownAlignment {
    stripe: ByteCount,
    random_below: ByteCount,
    rows: Vec<AlignmentRow>,
}

#[derive(Serialize)]
struct AlignmentRow {
    path: String,
    requests: u64,
    unaligned_percent: f64,
    random_percent: f64,
    total_percent: f64,
}

pub(super) fn run(context: &Context, arguments: ShowArgs) -> Result<Verdict> {
    let waiting = context.waiting("reading the trace");
    let trace = Trace::open(&arguments.trace)?;
    if arguments.strict {
        refuse_incomplete(&arguments.trace, &trace)?;
    }
    let region_size = match arguments.region {
        Some(size) => size,
        None if context.session.cluster_path().exists() => context.session.cluster()?.region_size,
        None => ByteCount(DEFAULT_REGION_BYTES),
    };
    let options = CountOptions { window_s: arguments.window, region_size, ..CountOptions::default() };
    let found = statistics(&trace, &options, arguments.top)?;
    let most = if arguments.all { usize::MAX } else { arguments.files };
    let with_data: Vec<&FileStatistics> = found.files.iter().filter(|file| file.requests() > 0).collect();
    let is_shown = |path: &str| arguments.all || is_data(Path::new(path));
    let alignment = match arguments.stripe {
        Some(stripe) => {
            let named: Vec<_> = with_data.iter().copied().filter(|file| is_shown(&file.path)).take(most).collect();
            Some(alignment_of(&trace, &named, stripe)?)
        }
        None => None,
    };
    drop(waiting);
    let manifest = trace.manifest.as_ref();
    let shown = Shown {
        host: manifest.map(|manifest| manifest.host.clone()),
        traced_command: manifest.map_or_else(Vec::new, |manifest| manifest.command.clone()),
        processes: found.processes,
        mpi_size: trace.mpi_size(),
        nodes: found.nodes,
        records: found.events,
        lost: found.lost,
        unfinished: found.unfinished,
        duration_s: found.duration_s,
        warnings: warnings(&trace, found.impossible),
        trace: arguments.trace,
        files: with_data.into_iter().map(shown_file).collect(),
        alignment,
    };
    if context.json {
        context.object(&shown)?;
    } else {
        print(context, &shown, most, is_shown)?;
    }
    Ok(Verdict::Done)
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

fn shown_file(file: &FileStatistics) -> ShownFile {
    let sizes = file.sizes.iter().map(|size| ShownSize {
        operation: size.direction,
        request_bytes: size.request_bytes,
        requests: size.requests,
    });
    let patterns = file.patterns.iter().map(|(pattern, processes)| ShownPattern {
        pattern: match pattern {
            AccessPattern::Single => "single request".to_owned(),
            AccessPattern::Sequential => "sequential".to_owned(),
            AccessPattern::Strided { stride_bytes } => format!("strided by {stride_bytes} B"),
            AccessPattern::Random => "random".to_owned(),
        },
        processes: *processes,
    });
    let windows = file.hot.iter().map(|window| ShownWindow {
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
    ShownFile {
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

fn alignment_of(trace: &Trace, files: &[&FileStatistics], stripe: ByteCount) -> Result<ShownAlignment> {
    ensure!(stripe.0 > 0, "--stripe 0: a stripe has at least one byte; 64KiB is usual");
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
    Ok(ShownAlignment { stripe, random_below: SMALL_REQUEST, rows })
}

fn print(context: &Context, shown: &Shown, most: usize, is_shown: impl Fn(&str) -> bool) -> Result<()> {
    if !shown.traced_command.is_empty() {
        context.line(format_args!("command    {}", command_line(&shown.traced_command)))?;
    }
    let mpi = if shown.mpi_size > 0 { format!(", MPI with {} ranks", shown.mpi_size) } else { String::new() };
    let nodes = counted(shown.nodes as usize, "node", "nodes");
    context.line(format_args!("processes  {}{mpi}, on {nodes}", shown.processes))?;
    context.line(format_args!("records    {} in {}", count(shown.records), duration(shown.duration_s)))?;
    for warning in &shown.warnings {
        context.say(warning);
    }
    let (of_data, others): (Vec<_>, Vec<_>) = shown.files.iter().partition(|file| is_shown(&file.path));
    for file in of_data.iter().take(most) {
        context.line("")?;
        print_file(context, file)?;
    }
    let more = of_data.len().saturating_sub(most);
    if more > 0 {
        let more = counted(more, "smaller file", "smaller files");
        context.line(format_args!("\nand {more} (--files {} shows them)", of_data.len()))?;
    }
    if !others.is_empty() {
        let others = counted(others.len(), "file", "files");
        context.line(format_args!("\nand {others} of the system or in shared memory (--all shows them)"))?;
    }
    if let Some(alignment) = &shown.alignment {
        context.line("")?;
        print_alignment(context, alignment)?;
    }
    Ok(())
}

fn count(number: u64) -> String {
    grouped(i64::try_from(number).unwrap_or(i64::MAX))
}

fn print_file(context: &Context, file: &ShownFile) -> Result<()> {
    context.line(&file.path)?;
    for (name, requests, moved) in
        [("read", file.read_requests, file.read_bytes), ("write", file.write_requests, file.write_bytes)]
    {
        if requests > 0 {
            let requests = counted(requests as usize, "request", "requests");
            context.line(format_args!("  {name:<9}{} in {requests}", bytes(moved)))?;
        }
    }
    context.line(format_args!(
        "  by       {} on {}, {} MB/s in all",
        counted(file.processes as usize, "process", "processes"),
        counted(file.nodes as usize, "node", "nodes"),
        number(file.bandwidth_mb_s)
    ))?;
    let patterns: Vec<String> = file
        .patterns
        .iter()
        .map(|pattern| format!("{} ({})", pattern.pattern, counted(pattern.processes as usize, "process", "processes")))
        .collect();
    context.line(format_args!("  pattern  {}", patterns.join(", ")))?;
    let mut table = Table::new(&["  size", "operation", ">requests"]);
    for size in &file.sizes {
        let operation = if size.operation == Direction::Read { "read" } else { "write" };
        table.row([format!("  {}", bytes(size.request_bytes)), operation.to_owned(), count(size.requests)]);
    }
    context.line(table)?;
    if file.are_sizes_rounded {
        context.line(format_args!("  more than {SIZES_APART} sizes differ, so they are rounded down by up to 3 %"))?;
    }
    let more = file.distinct_sizes.saturating_sub(file.sizes.len() as u64);
    if more > 0 {
        context.line(format_args!("  and {more} more sizes (--top {} shows them)", file.distinct_sizes))?;
    }
    let mut table = Table::new(&["  window", ">requests", ">regions", "hottest regions (share of requests)"]);
    for window in file.windows.iter().filter(|window| window.requests > 0) {
        let share = |region: &HotRegion| region.requests as f64 * 100.0 / window.requests as f64;
        let hottest: Vec<String> =
            window.hottest.iter().map(|region| format!("{} ({:.1} %)", region.region, share(region))).collect();
        table.row([
            format!("  {} to {}", duration(window.start_s), duration(window.end_s)),
            count(window.requests),
            count(window.regions),
            hottest.join(", "),
        ]);
    }
    context.line(table)
}

fn print_alignment(context: &Context, alignment: &ShownAlignment) -> Result<()> {
    context.line(format_args!(
        "stripe {}: unaligned is larger than a stripe with an end off it, random is below {}",
        alignment.stripe, alignment.random_below
    ))?;
    let mut table = Table::new(&["file", ">requests", ">unaligned %", ">random %", ">total %"]);
    for row in &alignment.rows {
        let percent = |value: f64| format!("{value:.1}");
        table.row([
            row.path.clone(),
            count(row.requests),
            percent(row.unaligned_percent),
            percent(row.random_percent),
            percent(row.total_percent),
        ]);
    }
    context.line(table)
}
