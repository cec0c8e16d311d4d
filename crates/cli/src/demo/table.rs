//! What the demo's program printed, and the table of all runs.

use crate::results::RunResult;
use crate::table::Table;
use anyhow::{Context as _, Result};
use serde::Deserialize;
use stripewise_layout::{ByteCount, Direction};

/// What the program printed of one operation.
pub(super) struct Measured {
    pub(super) op: Direction,
    pub(super) request_bytes: u64,
    pub(super) ranks: u32,
    pub(super) bandwidth_mb_s: f64,
    pub(super) bytes: u64,
    pub(super) verified: bool,
    pub(super) host_bound: bool,
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
    pub(super) fn parse(line: &str, host_bound: bool) -> Result<Self> {
        let line: Line = serde_json::from_str(line).with_context(|| format!("the demo's program printed {line}"))?;
        Ok(Self {
            op: line.op,
            request_bytes: line.request_bytes,
            ranks: line.ranks,
            bandwidth_mb_s: line.bandwidth_mb_s,
            bytes: line.bytes,
            verified: line.verified,
            host_bound: host_bound || line.start_skew_s > line.seconds / 100.0,
        })
    }
}

/// The runs by operation and size, in the order in which they ran.
pub(super) fn table(runs: &[RunResult]) -> String {
    let mut table = Table::new(&[">request", "op", "policy", ">measured", ">gain", ">predicted", "every byte"]);
    for direction in [Direction::Read, Direction::Write] {
        for request in distinct(runs.iter().map(|run| run.request_bytes)) {
            let group: Vec<&RunResult> =
                runs.iter().filter(|run| run.op == direction && run.request_bytes == request).collect();
            let base = group.first().filter(|run| !run.host_bound).map(|run| run.bandwidth_mb_s);
            for (number, run) in group.iter().enumerate() {
                table.row([
                    ByteCount(request).to_string(),
                    if direction == Direction::Read { "read" } else { "write" }.to_owned(),
                    run.policy.clone(),
                    if run.host_bound { "host-bound".to_owned() } else { format!("{:.1}", run.bandwidth_mb_s) },
                    match base.filter(|_| number > 0 && !run.host_bound) {
                        Some(base) => format!("{:+.0}%", (run.bandwidth_mb_s / base - 1.0) * 100.0),
                        None => "-".to_owned(),
                    },
                    run.predicted_mb_s.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}")),
                    if run.verified { "verified" } else { "WRONG" }.to_owned(),
                ]);
            }
        }
    }
    format!("\nEmulated devices; MB/s (10^6 bytes per second); gain over the first policy\n\n{table}\n")
}

fn distinct(values: impl Iterator<Item = u64>) -> Vec<u64> {
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

    fn run(policy: &str, bandwidth_mb_s: f64, host_bound: bool) -> RunResult {
        RunResult { host_bound, ..crate::results::tests::run(policy, Direction::Read, 1 << 20, bandwidth_mb_s) }
    }

    #[test]
    fn gains_are_over_the_first_policy_and_host_bound_runs_give_no_figure() {
        let text = table(&[run("def", 40.0, false), run("psa", 90.0, true), run("h2dp", 100.0, false)]);
        let rows: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(
            rows,
            [
                "   1MiB  read  def           40.0      -       42.8  verified",
                "   1MiB  read  psa     host-bound      -       96.3  verified",
                "   1MiB  read  h2dp         100.0  +150%      107.0  verified",
            ]
        );
    }

    #[test]
    fn a_start_skew_of_over_a_hundredth_is_host_bound() {
        let line = |skew: f64| {
            format!(
                r#"{{"op":"read","request_bytes":4096,"ranks":2,"bandwidth_mb_s":1.5,"bytes":9,"verified":true,"start_skew_s":{skew},"seconds":1.0}}"#
            )
        };
        assert!(!Measured::parse(&line(0.009), false).unwrap().host_bound);
        assert!(Measured::parse(&line(0.011), false).unwrap().host_bound);
        assert!(Measured::parse("{}", false).is_err());
    }
}
