//! `results.json`, which the demo writes and the report reads: bandwidth of every run beside the model's prediction.

use serde::{Deserialize, Serialize};
use stripewise_layout::Direction;

/// What `stripewise demo` measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Absent in the first files, which are as version 1.
    #[serde(default = "version_1")]
    pub(crate) version: u32,
    pub(crate) emulated: bool,
    pub(crate) runs: Vec<RunResult>,
    /// The profile and the cluster that the runs were made with, as in their own files.
    pub(crate) profile: serde_json::Value,
    pub(crate) cluster: serde_json::Value,
}

/// The version that is written and read.
pub(crate) const RESULTS_VERSION: u32 = 1;

fn version_1() -> u32 {
    1
}

/// One run, or one direction of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct RunResult {
    pub(crate) policy: String,
    pub(crate) op: Direction,
    pub(crate) request_bytes: u64,
    pub(crate) ranks: u32,
    pub(crate) bandwidth_mb_s: f64,
    #[serde(default)]
    pub(crate) predicted_mb_s: Option<f64>,
    pub(crate) bytes: u64,
    /// Every byte that was read was compared with what it had to be.
    pub(crate) verified: bool,
    /// The machine and not the emulated devices was the bottleneck.
    #[serde(default)]
    pub(crate) host_bound: bool,
}

impl Results {
    /// Mean gain of `policy` over `def`, as the geometric mean of the ratios of bandwidth over all sizes and operations that both have.
    pub(crate) fn gain(&self, policy: &str) -> Option<f64> {
        let valid = |run: &&RunResult| !run.host_bound && run.bandwidth_mb_s > 0.0;
        let ratios: Vec<f64> = self
            .runs
            .iter()
            .filter(|run| run.policy == policy)
            .filter(valid)
            .filter_map(|run| {
                let same = |other: &&RunResult| {
                    other.policy == "def" && (other.op, other.request_bytes) == (run.op, run.request_bytes)
                };
                let default = self.runs.iter().filter(same).find(valid)?;
                Some(run.bandwidth_mb_s / default.bandwidth_mb_s)
            })
            .collect();
        let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp() - 1.0)
    }

    /// The policy with the highest [`Self::gain`], and that gain; none when only `def` ran.
    pub(crate) fn best(&self) -> Option<(&str, f64)> {
        let mut policies: Vec<&str> = self.runs.iter().map(|run| run.policy.as_str()).collect();
        policies.sort_unstable();
        policies.dedup();
        policies
            .into_iter()
            .filter(|policy| *policy != "def")
            .filter_map(|policy| self.gain(policy).map(|gain| (policy, gain)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    pub(crate) fn run(policy: &str, op: Direction, request_bytes: u64, bandwidth_mb_s: f64) -> RunResult {
        RunResult {
            policy: policy.into(),
            op,
            request_bytes,
            ranks: 32,
            bandwidth_mb_s,
            predicted_mb_s: Some(bandwidth_mb_s * 1.07),
            bytes: 1 << 30,
            verified: true,
            host_bound: false,
        }
    }

    #[test]
    fn gains_are_over_def_and_without_host_bound_runs() {
        let mut wrong = run("h2dp", Direction::Write, 65536, 9e9);
        wrong.host_bound = true;
        let runs = vec![
            run("def", Direction::Read, 65536, 100.0),
            run("def", Direction::Read, 1 << 20, 100.0),
            run("def", Direction::Write, 65536, 100.0),
            run("h2dp", Direction::Read, 65536, 400.0),
            run("h2dp", Direction::Read, 1 << 20, 100.0),
            wrong,
            run("psa", Direction::Read, 4 << 20, 900.0),
        ];
        let results = Results {
            version: 1,
            emulated: true,
            runs,
            profile: serde_json::Value::Null,
            cluster: serde_json::Value::Null,
        };
        assert!((results.gain("h2dp").unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(results.gain("psa"), None, "def has no run of that size");
        assert_eq!(results.best().unwrap().0, "h2dp");
    }

    #[test]
    fn the_documented_form_is_read() {
        let text = r#"{"emulated": true, "runs": [{"policy": "def", "op": "read", "request_bytes": 65536, "ranks": 32,
            "bandwidth_mb_s": 41.5, "predicted_mb_s": 40.0, "bytes": 1073741824, "verified": true, "host_bound": false}],
            "profile": {}, "cluster": {}}"#;
        let results: Results = serde_json::from_str(text).unwrap();
        assert_eq!(results.runs[0].op, Direction::Read);
        assert_eq!(results.runs[0].predicted_mb_s, Some(40.0));
    }

    /// Numbers replaced, bytes changed, the end cut off.
    fn damage(text: &str, random: &mut SmallRng) -> Vec<u8> {
        const NUMBERS: [&str; 8] = ["0", "-1", "1e308", "1e-320", "18446744073709551615", "4294967296", "7", "0.5"];
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..random.random_range(1..4) {
            let place = random.random_range(0..bytes.len());
            match random.random_range(0..6) {
                0..=3 => {
                    let Some(start) = bytes[place..].iter().position(u8::is_ascii_digit).map(|skip| place + skip)
                    else {
                        continue;
                    };
                    let is_number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'-');
                    let end = bytes[start..].iter().position(|byte| !is_number(byte));
                    let end = end.map_or(bytes.len(), |length| start + length);
                    bytes.splice(start..end, NUMBERS[random.random_range(0..NUMBERS.len())].bytes());
                }
                4 => bytes[place] ^= 1 << random.random_range(0..8),
                _ => bytes.truncate(place.max(1)),
            }
        }
        bytes
    }

    #[test]
    fn damaged_results_are_shown_or_refused_by_name() {
        let runs = ["def", "h2dp", "opt"].into_iter().zip(1u32..).flat_map(|(policy, factor)| {
            [Direction::Read, Direction::Write].map(|op| run(policy, op, 65536, 40.5 * f64::from(factor)))
        });
        let line =
            serde_json::json!({"alpha_s": 5e-3, "beta_s_per_byte": 1e-8, "r2": 0.99, "spread": 0.05, "samples": 44});
        let server = serde_json::json!({"name": "hdd0", "class": "hdd", "read_sequential": line, "read_random": line,
            "write_sequential": line, "write_random": line});
        let network = serde_json::json!({"e_s": 1e-4, "t_s_per_byte": 1e-8, "source": "given"});
        let profile = serde_json::json!({"version": 1, "cluster": "c", "emulated": true, "measured_at": "", "servers": [server],
            "network": network});
        let results =
            Results { version: 1, emulated: true, runs: runs.collect(), profile, cluster: serde_json::Value::Null };
        let text = serde_json::to_string_pretty(&results).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.json");
        let show = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            crate::report::from_files(std::slice::from_ref(&path))
        };
        show(text.as_bytes()).unwrap();
        let mut shown = 0;
        for seed in 0..400 {
            match show(&damage(&text, &mut SmallRng::seed_from_u64(seed))) {
                Ok(page) => shown += u32::from(page.contains("</html>")),
                Err(error) => assert!(format!("{error:#}").contains("results.json"), "seed {seed}: {error:#}"),
            }
        }
        // Mutants that are all refused test little.
        assert!((40..400).contains(&shown), "{shown} of 400 mutants were shown");
    }
}
