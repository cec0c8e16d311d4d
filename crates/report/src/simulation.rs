//! `sim.json`: what `stripewise simulate` found, for the report and for other programs.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use stripewise_layout::{ServerClass, output};
use stripewise_planner::{MODEL_SPREAD, Throughput};
use stripewise_sim::{Outcome, TimeSlice};
use thiserror::Error;

/// The version that is written and read.
pub const SIMULATION_VERSION: u32 = 1;

/// Slices of a time line that are kept, at most.
const SLICES: usize = 120;

/// Why a simulation could not be written or read.
#[derive(Debug, Error)]
pub enum SimulationError {
    /// It could not be put into words.
    #[error("writing JSON")]
    Form {
        /// The serializer's cause.
        source: serde_json::Error,
    },
    /// Its file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Its cause.
        source: std::io::Error,
    },
    /// The file is of another kind, or damaged.
    #[error("{} is not what `stripewise simulate` writes", path.display())]
    NotASimulation {
        /// The file.
        path: PathBuf,
        /// Line, column and cause.
        source: serde_json::Error,
    },
    /// The file is of another version.
    #[error(
        "{}: version {version} is not supported; this is stripewise with version {SIMULATION_VERSION} (run `stripewise simulate` again)",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        version: u32,
    },
}

/// What was simulated, on which servers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Simulation {
    /// [`SIMULATION_VERSION`].
    #[cfg_attr(feature = "schemas", schemars(extend("const" = SIMULATION_VERSION)))]
    pub version: u32,
    /// Always true: tells readers of the file that nothing was measured.
    pub simulated: bool,
    /// As it was named: a benchmark's text or a trace's path.
    pub workload: String,
    /// Processes of the workload.
    pub processes: u32,
    /// Client nodes that they are spread over.
    pub nodes: u32,
    /// In cluster order.
    pub servers: Vec<SimulatedServer>,
    /// [`stripewise_sim::SimOptions`], for people: nothing reads them again.
    #[cfg_attr(feature = "schemas", schemars(with = "stripewise_sim::SimOptions"))]
    pub options: serde_json::Value,
    /// One for each placement that was simulated.
    pub runs: Vec<SimulatedRun>,
}

/// A server as it was simulated.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SimulatedServer {
    /// As in the cluster file.
    pub name: String,
    /// As in the cluster file.
    pub class: ServerClass,
    /// Name of the device whose times it has.
    pub device: String,
    /// `mean`, `mechanical` or `parts`: how the device is modelled.
    pub model: String,
    /// Name of its own link; `None` without one.
    pub link: Option<String>,
}

/// The workload on one placement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SimulatedRun {
    /// The policy or plan, for people.
    pub name: String,
    /// File of the plan; `None` where the policy planned for this run.
    pub plan: Option<PathBuf>,
    /// By the cost model, in million bytes per second; `None` where nothing was predicted.
    pub predicted_mb_per_s: Option<f64>,
    /// Relative spread of that; files of before it was stated have that of the model alone.
    #[serde(default = "model_spread")]
    pub predicted_spread: f64,
    /// What the simulation found, with at most 120 slices of time.
    pub outcome: Outcome,
}

fn model_spread() -> f64 {
    MODEL_SPREAD
}

/// For `--json`, whose envelope has a version of its own.
#[derive(Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Printed<'a> {
    /// All of it, under the key `simulation`.
    pub simulation: &'a Simulation,
}

impl SimulatedRun {
    /// Joins slices of time until at most 120 are left.
    pub fn new(name: String, plan: Option<PathBuf>, predicted: Option<Throughput>, mut outcome: Outcome) -> Self {
        while outcome.timeline.len() > SLICES {
            outcome.timeline = halved(&outcome.timeline, outcome.time_s);
        }
        let predicted_mb_per_s = predicted.map(|predicted| predicted.mb_per_s);
        let predicted_spread = predicted.map_or(MODEL_SPREAD, |predicted| predicted.spread);
        Self { name, plan, predicted_mb_per_s, predicted_spread, outcome }
    }
}

impl Simulation {
    /// Replaces the file at `path`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), SimulationError> {
        let text = serde_json::to_string_pretty(self).map_err(|source| SimulationError::Form { source })?;
        output::write(path, text + "\n").map_err(|source| SimulationError::Write { path: path.to_owned(), source })
    }

    /// What a file says; `path` is for messages.
    ///
    /// # Errors
    /// When it is of another version, which is named, or not of this form.
    pub fn parse(text: &str, path: &Path) -> Result<Self, SimulationError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let not_one = |source| SimulationError::NotASimulation { path: path.to_owned(), source };
        let Versioned { version } = serde_json::from_str(text).map_err(not_one)?;
        if version != SIMULATION_VERSION {
            return Err(SimulationError::Version { path: path.to_owned(), version });
        }
        serde_json::from_str(text).map_err(not_one)
    }
}

/// Neighbours joined; a server's share is weighted by length, as the last slice may be shorter.
fn halved(timeline: &[TimeSlice], time_s: f64) -> Vec<TimeSlice> {
    let end_s = |number: usize| timeline.get(number + 1).map_or(time_s, |slice| slice.start_s);
    let pairs = (0..timeline.len()).step_by(2).map(|first| {
        let mut joined = timeline[first].clone();
        if let Some(second) = timeline.get(first + 1) {
            joined.read_bytes += second.read_bytes;
            joined.write_bytes += second.write_bytes;
            joined.moved_bytes += second.moved_bytes;
            let lengths = [end_s(first) - joined.start_s, end_s(first + 1) - second.start_s];
            for (share, other) in joined.device_busy.iter_mut().zip(&second.device_busy) {
                *share = (*share * lengths[0] + other * lengths[1]) / (lengths[0] + lengths[1]).max(f64::MIN_POSITIVE);
            }
        }
        joined
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_other_versions_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sim.json");
        let outcome = Outcome { time_s: 0.1 + 0.2, timeline: vec![TimeSlice::default()], ..Outcome::default() };
        let predicted = Throughput { mb_per_s: 1.0 / 3.0, spread: 0.125, ..Throughput::default() };
        let simulation = Simulation {
            version: SIMULATION_VERSION,
            simulated: true,
            workload: "ior".into(),
            processes: 4,
            nodes: 1,
            servers: Vec::new(),
            options: serde_json::json!({"seed": 1}),
            runs: vec![SimulatedRun::new("def".into(), None, Some(predicted), outcome)],
        };
        simulation.save(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(Simulation::parse(&text, &path).unwrap(), simulation);
        assert_eq!(simulation.runs[0].predicted_spread, 0.125);
        let former = text.replace(r#""predicted_spread": 0.125,"#, "");
        assert_eq!(Simulation::parse(&former, &path).unwrap().runs[0].predicted_spread, MODEL_SPREAD);
        let other = Simulation::parse("{\"version\": 9}", &path).unwrap_err();
        assert!(other.to_string().contains("version 9 is not supported"), "{other}");
    }

    #[test]
    fn joined_slices_keep_bytes_and_busy_time() {
        let slice = |number: usize, share: f64| TimeSlice {
            start_s: number as f64,
            read_bytes: 10,
            write_bytes: 1,
            moved_bytes: 2,
            device_busy: vec![share],
        };
        // The last slice is half as long as the others.
        let halved = halved(&[slice(0, 1.0), slice(1, 0.0), slice(2, 0.25), slice(3, 1.0)], 3.5);
        assert_eq!(
            halved.iter().map(|slice| (slice.start_s, slice.read_bytes)).collect::<Vec<_>>(),
            [(0.0, 20), (2.0, 20)]
        );
        assert_eq!(halved[0].device_busy, [0.5]);
        assert!((halved[1].device_busy[0] - 0.5).abs() < 1e-12);
    }
}
