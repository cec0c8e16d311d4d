//! `stripewise trace show`: files, request sizes, patterns, hot regions of each window, alignment to a stripe size.

use crate::context::Context;
use crate::output::Verdict;
use crate::seconds;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;
use stripewise::shell::command_line;
use stripewise::table::Table;
use stripewise::trace_summary::{AlignmentSummary, HotRegion, SummaryOptions, TraceFile, TraceSummary, summarize};
use stripewise_layout::figures::{bytes, counted, duration, grouped, number};
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::statistics::SIZES_APART;

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

    /// Also report how requests lie to stripes of this size, as iBridge's Table 1
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

pub(super) fn run(context: &Context, arguments: ShowArgs) -> Result<Verdict> {
    let ShowArgs { trace, strict, stripe, window: window_s, region, top, files, all } = arguments;
    let files = if all { usize::MAX } else { files };
    let options = SummaryOptions { trace, strict, stripe, window_s, region, top, files, all };
    let summary = summarize(&context.session, options)?;
    if context.json {
        context.object(&summary)?;
    } else {
        print(context, &summary, files, |file| all || file.is_data)?;
    }
    Ok(Verdict::Done)
}

/// Nodes whose processes are shown.
const NODES: usize = 16;

fn print(context: &Context, shown: &TraceSummary, most: usize, is_shown: impl Fn(&TraceFile) -> bool) -> Result<()> {
    if !shown.traced_command.is_empty() {
        context.line(format_args!("command    {}", command_line(&shown.traced_command)))?;
    }
    let mpi = if shown.mpi_size > 0 { format!(", MPI with {} ranks", shown.mpi_size) } else { String::new() };
    let nodes = counted(shown.nodes as usize, "node", "nodes");
    context.line(format_args!("processes  {}{mpi}, on {nodes}", shown.processes))?;
    if shown.processes_by_node.len() > 1 {
        let mut by_node: Vec<_> =
            shown.processes_by_node.iter().map(|(node, count)| format!("{node} {count}")).collect();
        let left_out = by_node.len().saturating_sub(NODES);
        by_node.truncate(NODES);
        by_node.extend((left_out > 0).then(|| format!("and {left_out} more (--json shows them)")));
        context.line(format_args!("on nodes   {}", by_node.join(", ")))?;
    }
    context.line(format_args!("records    {} in {}", count(shown.records), duration(shown.duration_s)))?;
    for warning in &shown.warnings {
        context.say(warning);
    }
    let (of_data, others): (Vec<_>, Vec<_>) = shown.files.iter().partition(|file| is_shown(file));
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

fn print_file(context: &Context, file: &TraceFile) -> Result<()> {
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
    for (operation, name) in [(Direction::Read, "reads"), (Direction::Write, "writes")] {
        let patterns = file.patterns.iter().filter(|pattern| pattern.operation == operation);
        let patterns: Vec<String> = patterns
            .map(|found| format!("{} ({})", found.pattern, counted(found.processes as usize, "process", "processes")))
            .collect();
        if !patterns.is_empty() {
            context.line(format_args!("  {name:<9}{}", patterns.join(", ")))?;
        }
    }
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

fn print_alignment(context: &Context, alignment: &AlignmentSummary) -> Result<()> {
    context.line(format_args!(
        "stripe {}: unaligned is larger than a stripe with an end off it, random is below {}",
        bytes(alignment.stripe.0),
        bytes(alignment.random_below.0)
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
