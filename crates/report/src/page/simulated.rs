//! The section on a simulated run: bandwidth of each plan, the time line, latency.

use crate::bars::{self, Bar, Operation};
use crate::simulation::{SimulatedRun, Simulation};
use crate::{latency, timeline};
use serde::Serialize;
use stripewise_layout::Direction;
use stripewise_layout::figures::{bytes, counted, duration, grouped, number};
use stripewise_planner::within;
use stripewise_sim::{DirectionOutcome, Latency};

#[derive(Serialize)]
pub(super) struct SimulatedSection {
    workload: String,
    facts: String,
    chart: String,
    any_moved: bool,
    phases: bool,
    shades: Vec<usize>,
    lines: Vec<String>,
    latency: String,
    rows: Vec<Vec<String>>,
}

pub(super) fn section(simulation: &Simulation) -> SimulatedSection {
    let runs = &simulation.runs;
    let axes = timeline::Axes::of(runs);
    let processes = counted(simulation.processes as usize, "process", "processes");
    SimulatedSection {
        workload: simulation.workload.clone(),
        facts: format!(
            "{processes} on {}, {}",
            counted(simulation.nodes as usize, "client node", "client nodes"),
            servers(simulation)
        ),
        chart: bars::chart(&rates(runs), &[], "simulated"),
        any_moved: runs.iter().any(|run| run.outcome.timeline.iter().any(|slice| slice.moved_bytes > 0)),
        phases: runs.iter().any(|run| run.outcome.phases.len() > 1),
        shades: (0..timeline::SHADES).collect(),
        lines: runs.iter().map(|run| timeline::chart(run, &simulation.servers, &axes)).collect(),
        latency: latency::chart(&latencies(runs)),
        rows: runs.iter().map(row).collect(),
    }
}

/// `12 hdd-7200 (mean) behind gigabit`, and so on.
fn servers(simulation: &Simulation) -> String {
    let kinds = bars::distinct(simulation.servers.iter().map(|server| (&server.device, &server.model, &server.link)));
    let words = kinds.into_iter().map(|(device, model, link)| {
        let is_same = |server: &&crate::simulation::SimulatedServer| {
            (&server.device, &server.model, &server.link) == (device, model, link)
        };
        let count = simulation.servers.iter().filter(is_same).count();
        let behind = link.as_ref().map_or_else(String::new, |link| format!(" behind {link}"));
        format!("{} {device} ({model}){behind}", grouped(count as i64))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// One bar for each run: all its requests. The planner predicts the same.
fn rates(runs: &[SimulatedRun]) -> Vec<Bar> {
    let any = |of: fn(&SimulatedRun) -> &DirectionOutcome| runs.iter().any(|run| of(run).any());
    let operation = match (any(|run| &run.outcome.read), any(|run| &run.outcome.write)) {
        (true, false) => Operation::Only(Direction::Read),
        (false, true) => Operation::Only(Direction::Write),
        _ => Operation::Both,
    };
    let bar = |run: &SimulatedRun| Bar {
        policy: run.name.clone(),
        operation,
        request_bytes: None,
        found_mb_s: Some(run.outcome.mb_per_s),
        predicted_mb_s: run.predicted_mb_per_s,
        predicted_spread: run.predicted_spread,
        host_bound: false,
    };
    runs.iter().map(bar).collect()
}

fn latencies(runs: &[SimulatedRun]) -> Vec<latency::Span> {
    let of = |direction: Direction, outcome: fn(&SimulatedRun) -> &DirectionOutcome| {
        runs.iter().filter(move |run| outcome(run).any()).map(move |run| latency::Span {
            run: run.name.clone(),
            operation: bars::direction_name(direction),
            latency: outcome(run).latency,
        })
    };
    of(Direction::Read, |run| &run.outcome.read).chain(of(Direction::Write, |run| &run.outcome.write)).collect()
}

/// Run, read, write, predicted, time, median, 95, 99, longest, in flight, moved.
fn row(run: &SimulatedRun) -> Vec<String> {
    let none = || "\u{2013}".to_owned();
    let outcome = &run.outcome;
    let rate = |of: &DirectionOutcome| if of.any() { number(of.mb_per_s) } else { none() };
    let Latency { p50_s, p95_s, p99_s, max_s, .. } = outcome.latency;
    let moved = match (outcome.moved_bytes, outcome.unmoved_bytes) {
        (0, 0) => none(),
        (moved, 0) => bytes(moved),
        (moved, left) => format!("{}, {} left", bytes(moved), bytes(left)),
    };
    vec![
        run.name.clone(),
        rate(&outcome.read),
        rate(&outcome.write),
        run.predicted_mb_per_s.map_or_else(none, |rate| format!("{} {}", number(rate), within(run.predicted_spread))),
        duration(outcome.time_s),
        duration(p50_s),
        duration(p95_s),
        duration(p99_s),
        duration(max_s),
        number(outcome.in_flight),
        moved,
    ]
}

/// What the figures were made from, for the table of sources.
pub(super) fn source(simulation: &Simulation) -> String {
    let option = |key: &str| match simulation.options.get(key) {
        Some(serde_json::Value::String(text)) => format!("; {key} {text}"),
        Some(value) if value.is_number() => format!("; {key} {value}"),
        _ => String::new(),
    };
    let events: u64 = simulation.runs.iter().map(|run| run.outcome.events).sum();
    format!(
        "{}, {} simulated with {} events{}{}",
        simulation.workload,
        counted(simulation.runs.len(), "run", "runs"),
        grouped(events as i64),
        option("seed"),
        option("order")
    )
}
