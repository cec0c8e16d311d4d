//! What the demo measured: `results.json` and the table.

use super::testbed::Testbed;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::path::Path;
use stripewise_layout::{ByteCount, Cluster, Direction};
use stripewise_model::Profile;

/// The version of `results.json`.
const RESULTS_VERSION: u32 = 1;

#[derive(Serialize)]
pub(super) struct Results {
    version: u32,
    /// Always true: the times are those of emulated devices.
    emulated: bool,
    pub(super) runs: Vec<Run>,
    profile: Profile,
    cluster: Cluster,
}

/// One operation of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Run {
    pub(super) policy: String,
    pub(super) op: Direction,
    pub(super) request_bytes: u64,
    pub(super) ranks: u32,
    /// Bytes of all ranks over the time from the agreed start to the end of the last rank, in 10^6 bytes per second.
    pub(super) bandwidth_mb_s: f64,
    pub(super) predicted_mb_s: Option<f64>,
    pub(super) bytes: u64,
    /// Every byte read had the value that the program expected.
    pub(super) verified: bool,
    /// The machine set the pace, not the emulated devices: no result.
    pub(super) host_bound: bool,
}

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

impl Results {
    pub(super) fn new(testbed: &Testbed) -> Result<Self> {
        Ok(Self {
            version: RESULTS_VERSION,
            emulated: true,
            runs: Vec::new(),
            profile: testbed.profile.clone(),
            cluster: testbed.cluster.clone(),
        })
    }

    pub(super) fn all_verified(&self) -> bool {
        self.runs.iter().all(|run| run.verified)
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("writing JSON")?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn table(&self) -> String {
        table(&self.runs)
    }
}

fn table(runs: &[Run]) -> String {
    let mut text = String::from("\nEmulated devices; MB/s (10^6 bytes per second); gain over the first policy\n\n");
    let _ = writeln!(
        text,
        "{:>9} {:<6} {:<7} {:>10} {:>8} {:>10}  {}",
        "request", "op", "policy", "measured", "gain", "predicted", "every byte"
    );
    for direction in [Direction::Read, Direction::Write] {
        for request in distinct(runs.iter().map(|run| run.request_bytes)) {
            let group: Vec<&Run> =
                runs.iter().filter(|run| run.op == direction && run.request_bytes == request).collect();
            let base = group.first().filter(|run| !run.host_bound).map(|run| run.bandwidth_mb_s);
            for (number, run) in group.iter().enumerate() {
                let gain = match base.filter(|_| number > 0 && !run.host_bound) {
                    Some(base) => format!("{:+.0}%", (run.bandwidth_mb_s / base - 1.0) * 100.0),
                    None => "-".to_owned(),
                };
                let measured =
                    if run.host_bound { "host-bound".to_owned() } else { format!("{:.1}", run.bandwidth_mb_s) };
                let predicted = run.predicted_mb_s.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"));
                let op = if direction == Direction::Read { "read" } else { "write" };
                let verified = if run.verified { "verified" } else { "WRONG" };
                let request = ByteCount(request).to_string();
                let _ = writeln!(
                    text,
                    "{request:>9} {op:<6} {:<7} {measured:>10} {gain:>8} {predicted:>10}  {verified}",
                    run.policy
                );
            }
        }
    }
    text
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

    fn run(policy: &str, bandwidth_mb_s: f64, host_bound: bool) -> Run {
        Run {
            policy: policy.into(),
            op: Direction::Read,
            request_bytes: 1 << 20,
            ranks: 32,
            bandwidth_mb_s,
            predicted_mb_s: Some(50.0),
            bytes: 1,
            verified: true,
            host_bound,
        }
    }

    #[test]
    fn gains_are_over_the_first_policy_and_host_bound_runs_give_no_figure() {
        let text = table(&[run("def", 40.0, false), run("psa", 90.0, true), run("h2dp", 100.0, false)]);
        let rows: Vec<&str> = text.lines().skip(4).collect();
        assert_eq!(
            rows,
            [
                "     1MiB read   def           40.0        -       50.0  verified",
                "     1MiB read   psa     host-bound        -       50.0  verified",
                "     1MiB read   h2dp         100.0    +150%       50.0  verified",
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
