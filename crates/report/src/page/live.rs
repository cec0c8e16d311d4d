//! The section on the live part of a demonstration: a hot set that changes, without and with moves.

use crate::live;
use crate::results::{LiveHalf, LiveResult, LiveRun};
use serde::Serialize;
use stripewise_layout::Direction;
use stripewise_layout::figures::{bytes, counted, duration, number, signed_percent};

#[derive(Serialize)]
pub(super) struct LiveSection {
    policy: String,
    workload: String,
    facts: String,
    chart: String,
    host_bound: usize,
    rows: Vec<Vec<String>>,
    /// Time, without moves, with moves, moved.
    times: Vec<Vec<String>>,
}

pub(super) fn section(result: &LiveResult) -> LiveSection {
    let requests = match result.op {
        Direction::Read => "Reads",
        Direction::Write => "Writes",
    };
    LiveSection {
        policy: result.policy.clone(),
        workload: result.workload.clone(),
        facts: format!(
            "{} of {} by {} on a file of {}{}",
            requests,
            bytes(result.request_bytes),
            counted(result.ranks as usize, "rank", "ranks"),
            bytes(result.file_bytes),
            match result.dilation == 1.0 {
                true => String::new(),
                false => format!(", in the time of devices that ran {} times slower", number(result.dilation)),
            }
        ),
        chart: live::chart(result),
        host_bound: result.runs.iter().filter(|run| run.host_bound).count(),
        rows: result.runs.iter().map(|run| row(result, run)).collect(),
        times: times(result),
    }
}

fn none() -> String {
    "\u{2013}".to_owned()
}

fn rate(run: &LiveRun, mb_s: Option<f64>) -> String {
    if run.host_bound { "host".to_owned() } else { mb_s.map_or_else(none, number) }
}

/// Run, before, after, gain after, both halves, time, moved, share, moves not done, verified.
fn row(result: &LiveResult, run: &LiveRun) -> Vec<String> {
    let [before, after] = run.mb_s();
    let whole = LiveHalf {
        start_s: 0.0,
        seconds: run.halves.iter().map(|half| half.seconds).sum(),
        bytes: run.halves.iter().fold(0, |sum, half| sum.saturating_add(half.bytes)),
    };
    let gain = if run.migrate { result.gain().map_or_else(none, signed_percent) } else { none() };
    let moved = match run.migrate {
        true => bytes(run.moved_bytes),
        false => none(),
    };
    let share = result.moved_share().filter(|_| run.migrate);
    let left = match (run.unfinished_moves, run.failed_moves) {
        (_, 0) if !run.migrate => none(),
        (left, 0) => left.to_string(),
        (left, failed) => format!("{left}, {failed} failed"),
    };
    vec![
        live::kind(run.migrate).1.to_owned(),
        rate(run, before),
        rate(run, after),
        gain,
        rate(run, whole.mb_s()),
        if run.host_bound { none() } else { duration(whole.seconds) },
        moved,
        share.map_or_else(none, |share| format!("{:.0} %", share * 100.0)),
        left,
        if run.verified { "yes" } else { "WRONG BYTES" }.to_owned(),
    ]
}

fn times(result: &LiveResult) -> Vec<Vec<String>> {
    let of = |migrate| result.run(migrate).map(|run| live::slices(result, run)).unwrap_or_default();
    let (staying, moving) = (of(false), of(true));
    let longer = if staying.len() >= moving.len() { &staying } else { &moving };
    let cell = |slices: &[live::Slice], number_of: usize, value: fn(&live::Slice) -> f64| {
        slices.get(number_of).map_or_else(none, |slice| number(value(slice)))
    };
    let row = |(at, slice): (usize, &live::Slice)| {
        vec![
            format!("{:.2}", slice.start_s),
            cell(&staying, at, |slice| slice.mb_s),
            cell(&moving, at, |slice| slice.mb_s),
            cell(&moving, at, |slice| slice.copied_mb_s),
        ]
    };
    longer.iter().enumerate().map(row).collect()
}

/// What the figures were made from, for the table of sources.
pub(super) fn source(result: &LiveResult) -> String {
    format!(
        "{}; planned by {} from the program's own requests, a window for each half; bandwidth of moves unlimited",
        result.workload, result.policy
    )
}
