//! `results.json`, which the demo writes and the report reads: bandwidth of every run beside the model's prediction, and bandwidth over time of
//! a program whose hot set changes.

use serde::{Deserialize, Serialize};
use stripewise_layout::Direction;
use stripewise_planner::PolicyName;

/// What `stripewise demo` measured.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Results {
    /// Absent in the first files, which are as version 1.
    #[serde(default = "version_1")]
    pub version: u32,
    /// True when servers were emulated: the devices' times are those of models.
    pub emulated: bool,
    /// In the order in which they were made.
    pub runs: Vec<RunResult>,
    /// The profile and the cluster that the runs were made with, as in their own files.
    #[cfg_attr(feature = "schemas", schemars(with = "stripewise_model::Profile"))]
    pub profile: serde_json::Value,
    /// As `profile`.
    #[cfg_attr(feature = "schemas", schemars(with = "stripewise_layout::Cluster"))]
    pub cluster: serde_json::Value,
    /// Absent in files of version 1, and where it was left out.
    #[serde(default)]
    pub live: Option<LiveResult>,
}

/// The version that is written; version 1, without the live part, is read too.
pub const RESULTS_VERSION: u32 = 2;

fn version_1() -> u32 {
    1
}

/// One run, or one direction of it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RunResult {
    /// Name of the policy whose plan placed the file.
    pub policy: String,
    /// Whether the run read or wrote.
    pub op: Direction,
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Processes of the run.
    pub ranks: u32,
    /// Measured, in million bytes per second.
    pub bandwidth_mb_s: f64,
    /// What the plan predicted; `None` where nothing was.
    #[serde(default)]
    pub predicted_mb_s: Option<f64>,
    /// Relative spread of that; results of before it was stated have that of the model alone.
    #[serde(default = "model_spread")]
    pub predicted_spread: f64,
    /// Read or written in all.
    pub bytes: u64,
    /// Every byte that was read was compared with what it had to be.
    pub verified: bool,
    /// The machine and not the emulated devices was the bottleneck.
    #[serde(default)]
    pub host_bound: bool,
    /// Factor by which the times of the emulated devices were multiplied during the run; bandwidth is in the devices' own time.
    #[serde(default = "undilated")]
    pub dilation: f64,
}

fn model_spread() -> f64 {
    stripewise_planner::MODEL_SPREAD
}

fn undilated() -> f64 {
    1.0
}

/// The least and the greatest dilation of runs; `None` where all devices ran in their own time.
#[must_use]
pub fn dilation_range(runs: &[RunResult]) -> Option<(f64, f64)> {
    let (least, most) =
        runs.iter().fold((1.0f64, 1.0f64), |(least, most), run| (least.min(run.dilation), most.max(run.dilation)));
    (least != most).then_some((least, most))
}

/// A program whose hot set changes at half time, on regions that stay where they lie and on regions that are moved meanwhile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LiveResult {
    /// Whose plan says where regions lie in each half.
    pub policy: String,
    /// As `stripewise replay` takes it.
    pub workload: String,
    /// Whether the program reads or writes.
    pub op: Direction,
    /// Bytes of each request.
    pub request_bytes: u64,
    /// Its processes.
    pub ranks: u32,
    /// Size of its file.
    pub file_bytes: u64,
    /// Length of a slice of time.
    pub slice_s: f64,
    /// Factor by which the times of the emulated devices were multiplied; all times here are the devices' own.
    #[serde(default = "undilated")]
    pub dilation: f64,
    /// Without moves, with moves.
    pub runs: Vec<LiveRun>,
}

/// One run of that program.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LiveRun {
    /// Whether regions were moved to where the second half's plan has them.
    pub migrate: bool,
    /// Before the change of the hot set, after it.
    pub halves: Vec<LiveHalf>,
    /// Of the requests that ended in each slice of time.
    pub slice_bytes: Vec<u64>,
    /// What movers wrote in each slice of time, as the broker told.
    pub slice_copied_bytes: Vec<u64>,
    /// Of regions that were moved before the program ended.
    pub moved_bytes: u64,
    /// Moves that were ordered and not done by then; their regions stay.
    pub unfinished_moves: u64,
    /// Moves that ended in an error; their regions stay.
    pub failed_moves: u64,
    /// Every byte that was read was compared with what it had to be.
    pub verified: bool,
    /// The machine and not the emulated devices was the bottleneck.
    pub host_bound: bool,
}

/// What the program did before or after the change of its hot set.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LiveHalf {
    /// When the first request began, since the run's start.
    pub start_s: f64,
    /// From the first request to the last.
    pub seconds: f64,
    /// Read or written in that half.
    pub bytes: u64,
}

impl LiveHalf {
    /// Million bytes per second.
    pub fn mb_s(&self) -> Option<f64> {
        let mb_s = self.bytes as f64 / 1e6 / self.seconds;
        (self.seconds > 0.0 && mb_s.is_finite()).then_some(mb_s)
    }
}

impl LiveRun {
    /// Bandwidth before the change and after it, unless the machine set the pace.
    pub fn mb_s(&self) -> [Option<f64>; 2] {
        [0, 1].map(|half| self.halves.get(half).filter(|_| !self.host_bound)?.mb_s())
    }

    /// When the hot set changed, since the start.
    pub fn changed_s(&self) -> Option<f64> {
        self.halves.get(1).map(|half| half.start_s)
    }

    /// Until the last request ended.
    pub fn end_s(&self) -> f64 {
        self.halves.iter().map(|half| half.start_s + half.seconds).fold(0.0, f64::max)
    }
}

impl LiveResult {
    /// The run with moves, or the one without; `None` where it was not made.
    pub fn run(&self, migrate: bool) -> Option<&LiveRun> {
        self.runs.iter().find(|run| run.migrate == migrate)
    }

    /// What moves brought after the change, as a share of the bandwidth without them.
    pub fn gain(&self) -> Option<f64> {
        let after = |migrate| self.run(migrate)?.mb_s()[1];
        Some(after(true)? / after(false)? - 1.0)
    }

    /// Bytes that were moved as a share of the file's.
    pub fn moved_share(&self) -> Option<f64> {
        let run = self.run(true)?;
        (self.file_bytes > 0).then(|| run.moved_bytes as f64 / self.file_bytes as f64)
    }
}

impl Results {
    /// Mean gain of `policy` over the baseline, as the geometric mean of the ratios of bandwidth over all sizes and operations that both have.
    pub fn gain(&self, policy: &str) -> Option<f64> {
        let valid = |run: &&RunResult| !run.host_bound && run.bandwidth_mb_s > 0.0;
        let ratios: Vec<f64> = self
            .runs
            .iter()
            .filter(|run| run.policy == policy)
            .filter(valid)
            .filter_map(|run| {
                let same = |other: &&RunResult| {
                    other.policy == PolicyName::BASELINE.name()
                        && (other.op, other.request_bytes) == (run.op, run.request_bytes)
                };
                let default = self.runs.iter().filter(same).find(valid)?;
                Some(run.bandwidth_mb_s / default.bandwidth_mb_s)
            })
            .collect();
        let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
        (!ratios.is_empty()).then(|| (logs / ratios.len() as f64).exp() - 1.0)
    }

    /// The policy with the highest [`Self::gain`], and that gain; none when only the baseline ran.
    pub fn best(&self) -> Option<(&str, f64)> {
        let mut policies: Vec<&str> = self.runs.iter().map(|run| run.policy.as_str()).collect();
        policies.sort_unstable();
        policies.dedup();
        policies
            .into_iter()
            .filter(|policy| *policy != PolicyName::BASELINE.name())
            .filter_map(|policy| self.gain(policy).map(|gain| (policy, gain)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// Invented results for tests of what reads them.
#[doc(hidden)]
pub mod samples {
    use super::{LiveHalf, LiveResult, LiveRun, RunResult};
    use stripewise_layout::Direction;

    pub fn run(policy: &str, op: Direction, request_bytes: u64, bandwidth_mb_s: f64) -> RunResult {
        RunResult {
            policy: policy.into(),
            op,
            request_bytes,
            ranks: 32,
            bandwidth_mb_s,
            predicted_mb_s: Some(bandwidth_mb_s * 1.07),
            predicted_spread: 0.125,
            bytes: 1 << 30,
            verified: true,
            host_bound: false,
            dilation: 1.0,
        }
    }

    /// 40 MB/s in the first half, then half as much where regions stay; with moves three quarters at first, and as before from the second second on.
    pub fn live() -> LiveResult {
        let half = |start_s, seconds| LiveHalf { start_s, seconds, bytes: 160_000_000 };
        let run = |migrate, seconds, after: Vec<u64>, copied: Vec<u64>| LiveRun {
            migrate,
            halves: vec![half(0.0, 4.0), half(4.0, seconds)],
            slice_bytes: [vec![20_000_000; 8], after].concat(),
            slice_copied_bytes: [vec![0; 8], copied].concat(),
            moved_bytes: if migrate { 32 << 20 } else { 0 },
            unfinished_moves: 0,
            failed_moves: 0,
            verified: true,
            host_bound: false,
        };
        LiveResult {
            policy: "h2dp".into(),
            workload: "ior:pattern=zipf,size=128MiB,phases=2".into(),
            op: Direction::Read,
            request_bytes: 65536,
            ranks: 32,
            file_bytes: 128 << 20,
            slice_s: 0.5,
            dilation: 1.0,
            runs: vec![
                run(false, 8.0, vec![10_000_000; 16], vec![0; 16]),
                run(
                    true,
                    4.5,
                    [vec![15_000_000; 4], vec![20_000_000; 5]].concat(),
                    [vec![8 << 20; 4], vec![0; 5]].concat(),
                ),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{live, run};
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn what_moves_bring_is_told_of_the_half_after_the_change_only() {
        let mut live = live();
        assert_eq!(live.run(false).unwrap().mb_s(), [Some(40.0), Some(20.0)]);
        assert!((live.gain().unwrap() - 7.0 / 9.0).abs() < 1e-9, "{:?}", live.gain());
        assert_eq!(live.moved_share(), Some(0.25));
        assert_eq!(live.run(true).map(|run| (run.changed_s(), run.end_s())), Some((Some(4.0), 8.5)));
        live.runs[0].host_bound = true;
        assert_eq!((live.runs[0].mb_s(), live.gain()), ([None; 2], None));
        live.runs[0].host_bound = false;
        live.runs[1].halves[1].seconds = 0.0;
        assert_eq!(live.gain(), None, "no time is no bandwidth");
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
            live: None,
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
        assert_eq!(results.runs[0].dilation, 1.0, "files of before dilation are in the devices' time");
        assert_eq!(dilation_range(&results.runs), None);
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
        let results = Results {
            version: 2,
            emulated: true,
            runs: runs.collect(),
            profile,
            cluster: serde_json::Value::Null,
            live: Some(live()),
        };
        let text = serde_json::to_string_pretty(&results).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.json");
        let show = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let material = crate::Material::read(std::slice::from_ref(&path))?;
            Ok::<_, Box<dyn std::error::Error>>(crate::render(&material)?)
        };
        show(text.as_bytes()).unwrap();
        let mut shown = 0;
        for seed in 0..400 {
            match show(&damage(&text, &mut SmallRng::seed_from_u64(seed))) {
                Ok(page) => shown += u32::from(page.contains("</html>")),
                Err(error) => assert!(error.to_string().contains("results.json"), "seed {seed}: {error}"),
            }
        }
        // Mutants that are all refused test little.
        assert!((40..400).contains(&shown), "{shown} of 400 mutants were shown");
    }
}
