//! Simulated runs as text: one table, the busiest servers, the time line in bars.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use stripewise::table::Table;
use stripewise_layout::figures::{bytes, counted, duration, number};
use stripewise_planner::within;
use stripewise_report::simulation::{SimulatedRun, Simulation};

/// Columns of a time line.
const COLUMNS: usize = 60;
/// Servers that are named as the busiest.
const BUSIEST: usize = 4;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn text(simulation: &Simulation) -> String {
    let mut text = String::new();
    let mut groups: BTreeMap<(String, String, Option<String>), usize> = BTreeMap::new();
    for server in &simulation.servers {
        *groups.entry((server.device.clone(), server.model.clone(), server.link.clone())).or_default() += 1;
    }
    let groups = groups.into_iter().map(|((device, model, link), count)| {
        let link = link.map_or(String::new(), |link| format!(" on {link}"));
        format!("{count} x {device} ({model}){link}")
    });
    let _ = writeln!(
        text,
        "{}, {} on {}\n{}\nAll figures are simulated.\n",
        simulation.workload,
        counted(simulation.processes as usize, "process", "processes"),
        counted(simulation.nodes as usize, "node", "nodes"),
        groups.collect::<Vec<_>>().join(", ")
    );
    let _ = writeln!(text, "{}", table(simulation));
    for run in &simulation.runs {
        let _ = writeln!(text, "\n{}\n  busiest: {}", run.name, busiest(simulation, run));
        let (line, most) = bars(run);
        if !line.is_empty() {
            let _ = writeln!(text, "  MB/s over time, at most {}:\n  {line}", number(most));
        }
        if run.outcome.unmoved_bytes > 0 {
            let _ = writeln!(text, "  {} were still to be moved at the end", bytes(run.outcome.unmoved_bytes));
        }
        let dirty: u64 = run.outcome.servers.iter().map(|server| server.dirty_bytes).sum();
        if dirty > 0 {
            let _ = writeln!(text, "  {} were still in page caches at the end", bytes(dirty));
        }
    }
    text
}

fn table(simulation: &Simulation) -> Table {
    let mut table = Table::new(&[
        "plan",
        ">MB/s",
        ">predicted",
        ">read",
        ">write",
        ">time",
        ">mean",
        ">p50",
        ">p95",
        ">p99",
        ">max",
        ">moved",
    ]);
    for run in &simulation.runs {
        let outcome = &run.outcome;
        let rate = |rate: f64, any: bool| if any { number(rate) } else { "-".to_owned() };
        let latency = &outcome.latency;
        table.row([
            run.name.clone(),
            number(outcome.mb_per_s),
            run.predicted_mb_per_s
                .map_or("-".to_owned(), |rate| format!("{} {}", number(rate), within(run.predicted_spread))),
            rate(outcome.read.mb_per_s, outcome.read.any()),
            rate(outcome.write.mb_per_s, outcome.write.any()),
            duration(outcome.time_s),
            duration(latency.mean_s),
            duration(latency.p50_s),
            duration(latency.p95_s),
            duration(latency.p99_s),
            duration(latency.max_s),
            if outcome.moved_bytes > 0 { bytes(outcome.moved_bytes) } else { "-".to_owned() },
        ]);
    }
    table
}

/// The busiest servers with their shares of device and link.
fn busiest(simulation: &Simulation, run: &SimulatedRun) -> String {
    let time_s = run.outcome.time_s.max(f64::MIN_POSITIVE);
    let mut servers: Vec<(usize, f64, f64)> = run
        .outcome
        .servers
        .iter()
        .enumerate()
        .map(|(index, server)| (index, server.device_busy_s / time_s, server.link_busy_s / time_s))
        .collect();
    servers.sort_by(|left, right| right.1.max(right.2).total_cmp(&left.1.max(left.2)));
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let names = servers.iter().take(BUSIEST).map(|(index, device, link)| {
        let server = &simulation.servers[*index];
        match &server.link {
            Some(_) => format!("{} device {} link {}", server.name, percent(*device), percent(*link)),
            None => format!("{} device {}", server.name, percent(*device)),
        }
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Bandwidth over time, one character for each part of the run, and the rate of the highest.
fn bars(run: &SimulatedRun) -> (String, f64) {
    let (timeline, time_s) = (&run.outcome.timeline, run.outcome.time_s);
    if timeline.is_empty() || time_s <= 0.0 {
        return (String::new(), 0.0);
    }
    let columns = COLUMNS.min(timeline.len());
    let mut sums = vec![0.0; columns];
    let mut lengths = vec![0.0; columns];
    for (number, slice) in timeline.iter().enumerate() {
        let end_s = timeline.get(number + 1).map_or(time_s, |next| next.start_s);
        let column = number * columns / timeline.len();
        sums[column] += (slice.read_bytes + slice.write_bytes) as f64;
        lengths[column] += end_s - slice.start_s;
    }
    let rates: Vec<f64> =
        sums.iter().zip(&lengths).map(|(bytes, length)| bytes / f64::max(*length, f64::MIN_POSITIVE) / 1e6).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let bar = |rate: &f64| BARS[((rate / most.max(f64::MIN_POSITIVE) * 7.0).round() as usize).min(7)];
    (rates.iter().map(bar).collect(), most)
}
