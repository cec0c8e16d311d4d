//! Plans and comparisons as text for a terminal. Pure: the command prints what these return.

use crate::compare::Comparison;
use crate::map::{region_map, segment_list};
use crate::moves::MoveKind;
use crate::plan::{Plan, PlannedWindow};
use crate::policy::PolicyName;
use crate::predict::within;
use std::fmt::Write;
use stripewise_layout::Cluster;
use stripewise_layout::figures::{bytes, duration};
use stripewise_layout::printing::printable;

/// Spans of regions that a window's text lists before it sums up the rest.
const SPANS_SHOWN: usize = 12;

/// The table of `--policy all`, the shortest predicted time first. All its figures are predictions, `within` the range that they state.
#[must_use]
pub fn comparison_text(comparison: &Comparison) -> String {
    let mut text = String::from(
        "policy        time  read MB/s  write MB/s  within  gain over def (low .. high)      on SSD  verdict\n",
    );
    for row in comparison.rows() {
        let rate = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        let verdict = row.verdict.word();
        writeln!(
            text,
            "{:<7}  {:>9}  {:>9}  {:>10}  {:>6}  {:>27}  {:>10}  {verdict}",
            row.policy,
            duration(row.time_s),
            rate(row.read_mb_per_s),
            rate(row.write_mb_per_s),
            within(row.spread),
            row.gain.total,
            bytes(row.ssd_bytes),
        )
        .expect("writing to a String cannot fail");
    }
    for row in comparison.rows() {
        writeln!(text, "{}: {}", row.policy, row.verdict.reason).expect("writing to a String cannot fail");
    }
    for note in comparison.notes() {
        writeln!(text, "note: {note}").expect("writing to a String cannot fail");
    }
    text
}

/// What is decided by a plan: the verdict, the gain, and what to do next.
#[must_use]
pub fn headline_text(plan: &Plan, next: &str) -> String {
    let mut text = format!("verdict    {}\n", plan.verdict.reason);
    if !plan.gain.total.is_none() {
        text += &format!("gain       {} over def, predicted by {}\n", plan.gain.total, plan.policy);
    }
    text + &format!("next       {next}\n")
}

/// A plan in words and numbers: first the verdict and `next`, what to do about it, then what it rests on.
#[must_use]
pub fn plan_text(plan: &Plan, cluster: &Cluster, next: &str) -> String {
    let mut text = headline_text(plan, next);
    write_plan(&mut text, plan, cluster).expect("writing to a String cannot fail");
    text
}

fn write_plan(text: &mut String, plan: &Plan, cluster: &Cluster) -> std::fmt::Result {
    let (key, concurrency) = (&plan.key, plan.concurrency);
    writeln!(text, "policy     {}", plan.policy)?;
    let programs = key.programs().map(|(application, processes)| {
        let application = if application.is_empty() { "a program" } else { application };
        format!("{application} with {processes} process{}", if processes == 1 { "" } else { "es" })
    });
    writeln!(
        text,
        "for        {} (costed with p = {}, c = {})",
        programs.collect::<Vec<_>>().join(", and at the same time "),
        concurrency.processes,
        concurrency.processes_per_node
    )?;
    for (name, predicted, default, gain) in [
        ("read", plan.predicted.read, plan.default.read, plan.gain.read),
        ("write", plan.predicted.write, plan.default.write, plan.gain.write),
    ] {
        if let (Some(predicted), Some(default), Some(gain)) = (predicted, default, gain) {
            writeln!(
                text,
                "{name:<9}  {:.1} MB/s {} predicted, def {:.1} MB/s {}, gain {gain}",
                predicted.mb_per_s,
                within(predicted.spread),
                default.mb_per_s,
                within(default.spread)
            )?;
        }
    }
    if let Some(optimum) = plan.optimum.as_ref().filter(|optimum| optimum.bound_s > 0.0) {
        writeln!(
            text,
            "bound      by the model no plan takes less than {}; this one {} {}, {:.1} % more{}",
            duration(optimum.bound_s),
            duration(optimum.value_s),
            within(plan.predicted.total.spread),
            optimum.gap * 100.0,
            if optimum.time_limited { ", when the time limit ended the search" } else { "" }
        )?;
    }
    writeln!(text, "servers    class      holds      space    serves {}", within(plan.predicted.spread()))?;
    for (server, load_s) in plan.servers.iter().zip(&plan.predicted.server_load_s) {
        let capacity = server.room_bytes.map_or_else(|| "unknown".to_owned(), bytes);
        writeln!(
            text,
            "  {:<8} {:<5} {:>10} {:>10} {:>9}",
            server.name,
            server.class,
            bytes(server.used_bytes),
            capacity,
            duration(*load_s)
        )?;
    }
    for file in &plan.files {
        writeln!(text, "file       {} ({})", printable(&file.path, false), bytes(file.size_bytes))?;
        for (number, window) in file.windows.iter().enumerate() {
            write_window(text, plan.policy, number, window, cluster)?;
        }
    }
    for note in &plan.notes {
        writeln!(text, "note       {note}")?;
    }
    Ok(())
}

fn write_window(
    text: &mut String,
    policy: PolicyName,
    number: usize,
    window: &PlannedWindow,
    cluster: &Cluster,
) -> std::fmt::Result {
    write!(
        text,
        "  window {number}, {} to {}, regions of {}",
        duration(window.start_s),
        duration(window.end_s),
        bytes(window.placement.region_size.0)
    )?;
    let count = |kind| window.moves.iter().filter(|one| one.kind == kind).count();
    let moves = [MoveKind::Outgoing, MoveKind::Restripe, MoveKind::Incoming].map(count);
    if moves.iter().any(|count| *count > 0) {
        write!(text, "; moves {} out, {} restriped, {} in", moves[0], moves[1], moves[2])?;
    }
    writeln!(text)?;
    if policy.makes_segments() {
        writeln!(text, "    segments {}", segment_list(&window.placement))?;
    }
    let spans = region_map(&window.placement, cluster);
    for span in spans.iter().take(SPANS_SHOWN) {
        let last = span.first.0 + span.regions - 1;
        let regions = if last == span.first.0 { last.to_string() } else { format!("{}..{last}", span.first) };
        writeln!(text, "    {regions:<12} {}", span.layout)?;
    }
    if spans.len() > SPANS_SHOWN {
        let rest = &spans[SPANS_SHOWN..];
        let regions: u64 = rest.iter().map(|span| u64::from(span.regions)).sum();
        let hybrid: u64 = rest.iter().filter(|span| span.uses_ssd).map(|span| u64::from(span.regions)).sum();
        writeln!(text, "    and {regions} regions more in {} spans, {hybrid} of them with SSD servers", rest.len())?;
    }
    Ok(())
}
