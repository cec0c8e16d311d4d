//! `stripewise trace show`: files, request sizes, patterns, hot regions of each window, alignment to a stripe size.

use super::alignment::{self, Alignment};
use crate::context::Context;
use crate::figures::{bytes, duration, grouped};
use crate::output::Verdict;
use crate::progress::Waiting;
use crate::seconds;
use crate::table::Table;
use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, Direction, Order};
use stripewise_trace::{CountOptions, FileAccess, RegionAccess, Trace, WindowAccess, count};

/// Show the files, request sizes, patterns and hot regions of a trace
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise trace show run.trace
  stripewise trace show run.trace --stripe 64KiB
  stripewise trace show run.trace --window 60s --region 4MiB --hot 10")]
pub(super) struct ShowArgs {
    /// A trace of any form that Stripewise reads: its own, CSV, IOSIG's
    trace: PathBuf,

    /// Also tell how requests lie to stripes of this size, as iBridge's Table 1
    #[arg(long, value_name = "SIZE")]
    stripe: Option<ByteCount>,

    /// Length of a window
    #[arg(long, value_name = "TIME", default_value = "600s", value_parser = seconds::parse)]
    window: f64,

    /// Size of a region [default: the cluster's, 64MiB without one]
    #[arg(long, value_name = "SIZE")]
    region: Option<ByteCount>,

    /// Hot regions to name for each window
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    hot: usize,

    /// Files to show, those with the most bytes first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    files: usize,
}

#[derive(Serialize)]
struct Shown {
    trace: PathBuf,
    host: Option<String>,
    traced_command: Vec<String>,
    processes: usize,
    mpi_size: u32,
    nodes: usize,
    records: u64,
    duration_s: f64,
    warnings: Vec<String>,
    files: Vec<ShownFile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alignment: Option<ShownAlignment>,
}

#[derive(Serialize)]
struct ShownFile {
    path: String,
    size_bytes: u64,
    bytes: u64,
    classes: Vec<ShownClass>,
    windows: Vec<ShownWindow>,
}

#[derive(Serialize)]
struct ShownClass {
    operation: Direction,
    request_bytes: u64,
    order: Order,
    requests: u64,
}

#[derive(Serialize)]
struct ShownWindow {
    start_s: f64,
    end_s: f64,
    regions: usize,
    requests: u64,
    bytes: u64,
    processes: u32,
    hot: Vec<HotRegion>,
}

#[derive(Serialize)]
struct HotRegion {
    region: u32,
    requests: u64,
    bytes: u64,
    processes: u32,
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
    let waiting = Waiting::start("reading the trace");
    let trace = Trace::open(&arguments.trace)?;
    let region_size = match arguments.region {
        Some(size) => size,
        None if context.cluster_path().exists() => context.cluster()?.region_size,
        None => ByteCount(DEFAULT_REGION_BYTES),
    };
    let options = CountOptions { window_s: arguments.window, region_size, ..CountOptions::default() };
    let counted = count(&trace, &options)?;
    let alignment = arguments.stripe.map(|stripe| alignment_of(&trace, stripe)).transpose()?;
    drop(waiting);
    let mut files: Vec<ShownFile> = counted.iter().map(|file| shown_file(file, arguments.hot)).collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.bytes));
    let manifest = trace.manifest.as_ref();
    let shown = Shown {
        host: manifest.map(|manifest| manifest.host.clone()),
        traced_command: manifest.map_or_else(Vec::new, |manifest| manifest.command.clone()),
        processes: trace.processes.len(),
        mpi_size: trace.mpi_size(),
        nodes: trace.nodes.len(),
        records: trace.event_count(),
        duration_s: trace.duration().seconds(),
        warnings: trace.warnings.iter().map(ToString::to_string).collect(),
        trace: arguments.trace,
        files,
        alignment,
    };
    if context.json {
        context.object(&shown)?;
    } else {
        print(context, &shown, arguments.files)?;
    }
    Ok(Verdict::Done)
}

fn shown_file(file: &FileAccess, hot: usize) -> ShownFile {
    let mut requests = vec![0; file.classes.len()];
    for (class, count) in file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts) {
        requests[usize::from(class.0)] += count;
    }
    let mut classes: Vec<ShownClass> = file
        .classes
        .iter()
        .zip(requests)
        .map(|(class, requests)| ShownClass {
            operation: class.direction,
            request_bytes: class.request_bytes,
            order: class.order,
            requests,
        })
        .collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.requests * class.request_bytes));
    let bytes = classes.iter().map(|class| class.requests * class.request_bytes).sum();
    let windows = file.windows.iter().map(|window| shown_window(file, window, hot)).collect();
    ShownFile { path: file.path.clone(), size_bytes: file.size_bytes, bytes, classes, windows }
}

fn requests_and_bytes(file: &FileAccess, region: &RegionAccess) -> (u64, u64) {
    region.counts.iter().fold((0, 0), |(requests, bytes), (class, count)| {
        (requests + count, bytes + count * file.class(*class).request_bytes)
    })
}

fn shown_window(file: &FileAccess, window: &WindowAccess, hot: usize) -> ShownWindow {
    let mut regions: Vec<HotRegion> = window
        .regions
        .iter()
        .map(|region| {
            let (requests, bytes) = requests_and_bytes(file, region);
            HotRegion { region: region.region.0, requests, bytes, processes: region.processes }
        })
        .collect();
    regions.sort_by_key(|region| std::cmp::Reverse(region.bytes));
    ShownWindow {
        start_s: window.start_s,
        end_s: window.end_s,
        regions: regions.len(),
        requests: regions.iter().map(|region| region.requests).sum(),
        bytes: regions.iter().map(|region| region.bytes).sum(),
        processes: regions.iter().map(|region| region.processes).max().unwrap_or(0),
        hot: regions.into_iter().take(hot).collect(),
    }
}

fn alignment_of(trace: &Trace, stripe: ByteCount) -> Result<ShownAlignment> {
    anyhow::ensure!(stripe.0 > 0, "--stripe 0: a stripe has at least one byte; 64KiB is usual");
    let files = alignment::of_files(trace, stripe.0);
    let mut all = Alignment::default();
    let mut rows = Vec::new();
    for (file, alignment) in trace.files.iter().zip(&files).filter(|(_, alignment)| alignment.requests > 0) {
        all.requests += alignment.requests;
        all.unaligned += alignment.unaligned;
        all.random += alignment.random;
        rows.push(alignment_row(&file.path, alignment));
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.requests));
    rows.push(alignment_row("all files", &all));
    Ok(ShownAlignment { stripe, random_below: ByteCount(alignment::RANDOM_BELOW_BYTES), rows })
}

fn alignment_row(path: &str, alignment: &Alignment) -> AlignmentRow {
    let [unaligned_percent, random_percent, total_percent] = alignment.percent();
    AlignmentRow {
        path: path.to_owned(),
        requests: alignment.requests,
        unaligned_percent,
        random_percent,
        total_percent,
    }
}

fn print(context: &Context, shown: &Shown, most_files: usize) -> Result<()> {
    if !shown.traced_command.is_empty() {
        context.line(format_args!("command    {}", shown.traced_command.join(" ")))?;
    }
    let mpi = if shown.mpi_size > 0 { format!(", MPI with {} ranks", shown.mpi_size) } else { String::new() };
    context.line(format_args!("processes  {}{mpi}, on {} node(s)", shown.processes, shown.nodes))?;
    context.line(format_args!(
        "records    {} in {}",
        grouped(i64::try_from(shown.records).context("too many records")?),
        duration(shown.duration_s)
    ))?;
    for warning in &shown.warnings {
        context.say(warning);
    }
    for file in shown.files.iter().take(most_files) {
        context.line("")?;
        print_file(context, file)?;
    }
    if shown.files.len() > most_files {
        context.line(format_args!(
            "\nand {} more files (--files {})",
            shown.files.len() - most_files,
            shown.files.len()
        ))?;
    }
    if let Some(alignment) = &shown.alignment {
        context.line(format_args!(
            "\nstripe {}: unaligned is larger than a stripe with an end off it, random is below {}",
            alignment.stripe, alignment.random_below
        ))?;
        let mut table = Table::new(&["file", ">requests", ">unaligned %", ">random %", ">total %"]);
        let last = alignment.rows.len() - 1;
        let of_files = alignment.rows[..last].iter().take(most_files);
        for row in of_files.chain(&alignment.rows[last..]) {
            let percent = |value: f64| format!("{value:.1}");
            table.row([
                row.path.clone(),
                grouped(row.requests as i64),
                percent(row.unaligned_percent),
                percent(row.random_percent),
                percent(row.total_percent),
            ]);
        }
        context.line(table)?;
    }
    Ok(())
}

fn print_file(context: &Context, file: &ShownFile) -> Result<()> {
    context.line(format_args!("{} ({}, {} moved)", file.path, bytes(file.size_bytes), bytes(file.bytes)))?;
    let mut table = Table::new(&["  operation", ">request", "order", ">requests", ">bytes", ">share"]);
    for class in file.classes.iter().filter(|class| class.requests > 0) {
        let moved = class.requests * class.request_bytes;
        let operation = if class.operation == Direction::Read { "  read" } else { "  write" };
        let order = if class.order == Order::Sequential { "sequential" } else { "random" };
        table.row([
            operation.to_owned(),
            bytes(class.request_bytes),
            order.to_owned(),
            grouped(class.requests as i64),
            bytes(moved),
            format!("{:.1} %", moved as f64 * 100.0 / file.bytes.max(1) as f64),
        ]);
    }
    context.line(table)?;
    let mut table = Table::new(&["  window", ">regions", ">requests", ">bytes", ">processes", "hot regions"]);
    for window in file.windows.iter().filter(|window| window.requests > 0) {
        let share = |region: &HotRegion| region.bytes as f64 * 100.0 / window.bytes.max(1) as f64;
        let hot: Vec<String> =
            window.hot.iter().map(|region| format!("{} ({:.1} %)", region.region, share(region))).collect();
        table.row([
            format!("  {} to {}", duration(window.start_s), duration(window.end_s)),
            window.regions.to_string(),
            grouped(window.requests as i64),
            bytes(window.bytes),
            window.processes.to_string(),
            hot.join(", "),
        ]);
    }
    context.line(table)
}
