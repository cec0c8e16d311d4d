//! What a report is made from, and how each part is read from its file.

use crate::finding::Finding;
use crate::headline::Headline;
use crate::results::{RESULTS_VERSION, Results};
use crate::run_facts::RunFacts;
use crate::simulation::{Simulation, SimulationError};
use crate::summary::TraceSummary;
use std::path::{Path, PathBuf};
use stripewise_layout::cluster::DEFAULT_REGION_BYTES;
use stripewise_layout::{ByteCount, input};
use stripewise_model::{Profile, ProfileError};
use stripewise_planner::{Plan, PlanError};
use stripewise_trace::{CountError, ReadError, Trace};
use thiserror::Error;

/// All that a report can be made from; each part may be missing.
#[derive(Clone, Default)]
pub struct Material {
    /// The traced run.
    pub trace: Option<TraceSummary>,
    /// Plans, which are compared with each other.
    pub plans: Vec<Plan>,
    /// The profile of the cluster; without one, that of the results is shown.
    pub profile: Option<Profile>,
    /// What was measured.
    pub results: Option<Results>,
    /// What was simulated.
    pub simulation: Option<Simulation>,
    /// What stands first; without one it is made of the plans.
    pub headline: Option<Headline>,
    /// What was found beside layouts, in the order in which it is shown within each severity.
    pub findings: Vec<Finding>,
    /// The run, where it is known by other means than a trace.
    pub run: Option<RunFacts>,
    /// Where each plan was read from, in the order of `plans`; empty where none was.
    pub plan_files: Vec<PathBuf>,
}

/// Why a report's inputs could not be read.
#[derive(Debug, Error)]
pub enum ReportError {
    /// A trace was not readable.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// The trace's requests could not be counted.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The input.
        path: PathBuf,
        /// Its cause.
        source: std::io::Error,
    },
    /// A file named as JSON is none.
    #[error("{} is not JSON", path.display())]
    NotJson {
        /// The input.
        path: PathBuf,
        /// Line, column and cause.
        source: serde_json::Error,
    },
    /// A plan was damaged or of another version.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A simulation was damaged or of another version.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// Results lack what belongs to them.
    #[error("{}: not the results of a demonstration", path.display())]
    NotResults {
        /// The input.
        path: PathBuf,
        /// Line, column and cause.
        source: serde_json::Error,
    },
    /// Results of a version that is not read.
    #[error(
        "{}: results of version {version}; this stripewise reads versions 1 to {RESULTS_VERSION}: run `stripewise demo` again",
        path.display()
    )]
    ResultsVersion {
        /// The input.
        path: PathBuf,
        /// Version in the file.
        version: u32,
    },
    /// A profile was damaged or of another version.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A JSON file of no known kind.
    #[error(
        "{} is neither a plan nor a profile, results or a simulation; a trace is named by its directory",
        path.display()
    )]
    UnknownKind {
        /// The input.
        path: PathBuf,
    },
    /// A second input of a kind of which a report shows one.
    #[error("{} is a second {kind}; a report shows one", path.display())]
    Second {
        /// The second one.
        path: PathBuf,
        /// What both are, for people.
        kind: &'static str,
    },
}

impl Material {
    /// Reads `inputs`: traces, plans, profiles, results and simulations in any order, each told by its content.
    ///
    /// # Errors
    /// When one cannot be read, is of no kind that a report shows, or is the second of a kind of which one is shown.
    pub fn read(inputs: &[PathBuf]) -> Result<Self, ReportError> {
        let mut material = Self::default();
        let mut trace = None;
        for path in inputs {
            if let Some(kind) = add(path, &mut material, &mut trace)? {
                return Err(ReportError::Second { path: path.clone(), kind });
            }
        }
        if let Some(trace) = trace {
            let planned = material.plans.first().and_then(|plan| plan.files.first());
            let region_size = planned.map_or(ByteCount(DEFAULT_REGION_BYTES), |file| file.initial().region_size);
            material.trace = Some(TraceSummary::of(&trace, region_size)?);
        }
        Ok(material)
    }
}

/// Adds one input; returns what it is when there is one of its kind already.
fn add(path: &Path, material: &mut Material, trace: &mut Option<Trace>) -> Result<Option<&'static str>, ReportError> {
    let is_json = path.extension().is_some_and(|extension| extension == "json") && path.is_file();
    if !is_json {
        let second = trace.replace(Trace::open(path)?).is_some();
        return Ok(second.then_some("trace"));
    }
    let owned = || path.to_owned();
    let text =
        input::read_text(path, input::MAX_LIST_BYTES).map_err(|source| ReportError::Read { path: owned(), source })?;
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|source| ReportError::NotJson { path: owned(), source })?;
    let has = |key: &str| value.get(key).is_some();
    if has("policy") && has("files") {
        material.plans.push(Plan::parse(&text, path)?);
        material.plan_files.push(owned());
        Ok(None)
    } else if has("simulated") && has("runs") {
        Ok(material.simulation.replace(Simulation::parse(&text, path)?).map(|_| "simulation"))
    } else if has("runs") {
        let results: Results =
            serde_json::from_value(value).map_err(|source| ReportError::NotResults { path: owned(), source })?;
        if !(1..=RESULTS_VERSION).contains(&results.version) {
            return Err(ReportError::ResultsVersion { path: owned(), version: results.version });
        }
        Ok(material.results.replace(results).map(|_| "results file"))
    } else if has("network") && has("servers") {
        Ok(material.profile.replace(Profile::parse(&text, path)?).map(|_| "profile"))
    } else {
        Err(ReportError::UnknownKind { path: owned() })
    }
}
