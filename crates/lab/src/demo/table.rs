//! What the demo's program printed, and the tables of all runs.

use crate::dilation::is_host_bound;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use stripewise_layout::figures::number;
use stripewise_layout::{ByteCount, Direction};
use stripewise_planner::within;
use stripewise_report::results::{RunResult, dilation_range};

/// What the program printed of one operation.
pub(super) struct Measured {
    pub(super) op: Direction,
    pub(super) request_bytes: u64,
    pub(super) ranks: u32,
    pub(super) bandwidth_mb_s: f64,
    pub(super) bytes: u64,
    pub(super) verified: bool,
    pub(super) host_bound: bool,
    pub(super) dilation: f64,
}

/// The program's line; it says more than is used here.
#[derive(Deserialize)]
struct Line {
    op: Direction,
    request_bytes: u64,
    ranks: u32,
    bandwidth_mb_s: f64,
    bytes: u64,
    verified: bool,
    start_skew_s: f64,
    seconds: f64,
}

impl Measured {
    /// Of a run on devices dilated by `dilation`, in which a rank woke up late by at most `late_s`. The bandwidth is in the devices' own time.
    pub(super) fn parse(line: &str, late_s: f64, dilation: f64) -> Result<Self> {
        let line: Line = serde_json::from_str(line).with_context(|| format!("the demo's program printed {line}"))?;
        Ok(Self {
            op: line.op,
            request_bytes: line.request_bytes,
            ranks: line.ranks,
            bandwidth_mb_s: line.bandwidth_mb_s * dilation,
            bytes: line.bytes,
            verified: line.verified,
            host_bound: is_host_bound(late_s, line.start_skew_s, line.seconds, dilation),
            dilation,
        })
    }
}

/// Two tables, of reads and of writes: a line for each policy, a group of columns for each request size.
pub(super) fn table(runs: &[RunResult]) -> String {
    let mut text = "\nEmulated devices; MB/s (10^6 bytes per second)\n".to_owned();
    let first = runs.first().map_or("the first policy", |run| run.policy.as_str());
    let predicted = runs.iter().filter(|run| run.predicted_mb_s.is_some());
    let range = predicted
        .map(|run| run.predicted_spread)
        .reduce(f64::max)
        .map_or_else(String::new, |spread| format!(" ({})", within(spread)));
    text += &format!("each: measured, gain over {first}, the model's prediction{range}\n");
    if let Some((least, most)) = dilation_range(runs) {
        text += &format!(
            "in the devices' own time: their times were multiplied by {} to {}, so that this machine keeps up\n",
            number(least),
            number(most)
        );
    }
    for direction in [Direction::Read, Direction::Write] {
        let of_direction: Vec<&RunResult> = runs.iter().filter(|run| run.op == direction).collect();
        if !of_direction.is_empty() {
            text += "\n";
            text += &matrix(if direction == Direction::Read { "reads" } else { "writes" }, &of_direction);
        }
    }
    text + &verification(runs)
}

/// Measured, gain, prediction.
type Cell = [String; 3];

fn matrix(heading: &str, runs: &[&RunResult]) -> String {
    let policies = distinct(runs.iter().map(|run| run.policy.as_str()));
    let sizes = distinct(runs.iter().map(|run| run.request_bytes));
    let cell = |policy: &str, size: u64| {
        let of = |policy: &str| runs.iter().find(|run| run.policy == policy && run.request_bytes == size);
        of(policy).map_or_else(Cell::default, |run| cell(run, of(policies[0]).copied()))
    };
    let rows: Vec<Vec<Cell>> =
        policies.iter().map(|policy| sizes.iter().map(|size| cell(policy, *size)).collect()).collect();
    let name_width = policies.iter().map(|name| name.len()).chain([heading.len()]).max().unwrap_or(0);
    let mut head = format!("{heading:name_width$}");
    let mut lines: Vec<String> = policies.iter().map(|policy| format!("{policy:name_width$}")).collect();
    for (column, size) in sizes.iter().enumerate() {
        let width = |part: usize| rows.iter().map(|row| row[column][part].len()).max().unwrap_or(0);
        let title = ByteCount(*size).to_string();
        let widths = [width(0).max(title.len()), width(1), width(2)];
        let all = widths.iter().sum::<usize>() + 2;
        // The size stands above what was measured.
        let gap = if column == 0 { "  " } else { "   " };
        head += &format!("{gap}{title:>first$}{:rest$}", "", first = widths[0], rest = all - widths[0]);
        for (line, row) in lines.iter_mut().zip(&rows) {
            let [measured, gain, predicted] = &row[column];
            let [m, g, p] = widths;
            *line += &format!("{gap}{measured:>m$} {gain:>g$} {predicted:>p$}");
        }
    }
    let lines = std::iter::once(head).chain(lines).map(|line| format!("{}\n", line.trim_end()));
    lines.collect()
}

fn cell(run: &RunResult, base: Option<&RunResult>) -> Cell {
    let base = base.filter(|base| !base.host_bound && base.policy != run.policy && base.bandwidth_mb_s > 0.0);
    let gain = match base {
        Some(base) if !run.host_bound => format!("{:+.0}%", (run.bandwidth_mb_s / base.bandwidth_mb_s - 1.0) * 100.0),
        _ => "-".to_owned(),
    };
    let measured = if run.host_bound { "host".to_owned() } else { rate(run.bandwidth_mb_s) };
    [measured, gain, run.predicted_mb_s.map_or_else(|| "-".to_owned(), rate)]
}

/// Whole from 100 on.
fn rate(mb_per_s: f64) -> String {
    let decimals = usize::from(mb_per_s < 99.95);
    format!("{mb_per_s:.decimals$}")
}

/// What the bytes turned out to be, and what a figure that is missing means.
fn verification(runs: &[RunResult]) -> String {
    let name = |run: &RunResult| {
        let operation = if run.op == Direction::Read { "reads" } else { "writes" };
        format!("{} {operation} of {}", run.policy, ByteCount(run.request_bytes))
    };
    let wrong: Vec<String> = runs.iter().filter(|run| !run.verified).map(name).collect();
    let mut text = match wrong.len() {
        0 => format!("\nEvery byte of all {} runs was verified.\n", runs.len()),
        count => format!("\nWRONG BYTES in {count} of {} runs: {}\n", runs.len(), wrong.join(", ")),
    };
    if runs.iter().any(|run| run.host_bound) {
        text += "host: the machine and not the emulated devices was the bottleneck, no result\n";
    }
    text
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_planner::PolicyName;

    fn runs(policies: &[&str], sizes: &[u64]) -> Vec<RunResult> {
        let mut runs = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            for (place, policy) in policies.iter().enumerate() {
                for op in [Direction::Read, Direction::Write] {
                    let rate = 40.25 * (1 << (2 * at)) as f64 * (1.0 + place as f64 / 2.0);
                    runs.push(stripewise_report::results::samples::run(policy, op, *size, rate));
                }
            }
        }
        runs
    }

    #[test]
    fn gains_are_over_the_first_policy_and_host_bound_runs_give_no_figure() {
        let mut runs = runs(&["def", "psa", "opt"], &[64 << 10, 1 << 20]);
        runs[2].host_bound = true;
        runs[7].verified = false;
        let text = "
Emulated devices; MB/s (10^6 bytes per second)
each: measured, gain over def, the model's prediction (±13 %)

reads  64KiB              1MiB
def     40.2     - 43.1    161     - 172
psa     host     - 64.6    242  +50% 258
opt     80.5 +100% 86.1    322 +100% 345

writes  64KiB              1MiB
def      40.2     - 43.1    161     - 172
psa      60.4  +50% 64.6    242  +50% 258
opt      80.5 +100% 86.1    322 +100% 345

WRONG BYTES in 1 of 12 runs: def writes of 1MiB
host: the machine and not the emulated devices was the bottleneck, no result
";
        assert_eq!(table(&runs), text, "{}", table(&runs));
    }

    #[test]
    fn all_policies_at_the_four_sizes_fit_a_terminal() {
        let names: Vec<&str> = PolicyName::ALL.iter().map(|policy| policy.name()).collect();
        let text = table(&runs(&names, &[64 << 10, 256 << 10, 1 << 20, 4 << 20]));
        assert!(text.lines().count() < 36 && text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn a_base_that_is_host_bound_gives_no_gain() {
        let mut runs = runs(&["def", "opt"], &[4096]);
        runs.iter_mut().filter(|run| run.policy == "def").for_each(|run| run.host_bound = true);
        let text = table(&runs);
        assert!(text.matches('%').count() == 1 && text.contains("(\u{b1}13 %)"), "{text}");
        assert!(text.contains("host: the machine"), "{text}");
    }

    #[test]
    fn a_start_skew_of_over_a_hundredth_is_host_bound() {
        let line = |skew: f64| {
            format!(
                r#"{{"op":"read","request_bytes":4096,"ranks":2,"bandwidth_mb_s":1.5,"bytes":9,"verified":true,"start_skew_s":{skew},"seconds":1.0}}"#
            )
        };
        assert!(!Measured::parse(&line(0.009), 0.0, 1.0).unwrap().host_bound);
        assert!(Measured::parse(&line(0.011), 0.0, 1.0).unwrap().host_bound);
        assert!(Measured::parse("{}", 0.0, 1.0).is_err());
        let slow = Measured::parse(&line(0.0), 0.0, 4.0).unwrap();
        assert_eq!((slow.bandwidth_mb_s, slow.dilation), (6.0, 4.0), "in the devices' time");
    }

    #[test]
    fn a_dilation_is_said_above_the_figures() {
        let mut runs = runs(&["def", "opt"], &[4096]);
        assert!(!table(&runs).contains("own time"));
        runs[1].dilation = 0.5;
        runs[3].dilation = 8.25;
        let said =
            "in the devices' own time: their times were multiplied by 0.5 to 8.25, so that this machine keeps up\n";
        assert!(table(&runs).contains(said), "{}", table(&runs));
    }
}
