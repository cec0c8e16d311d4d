//! What a plan was made from, read again.
//!
//! The plan says where its traces and profile were and what their hashes are, so that what is weighed or measured is
//! what the plan was made from.

use crate::inputs::{InputError, Inputs, Selection};
use crate::messages::shown;
use crate::session::{Session, SessionError};
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, Cluster};
use stripewise_planner::{Plan, PlanError, PlanRequest};
use thiserror::Error;

/// Length of a window where the plan does not say it: the default of `stripewise plan`.
const DEFAULT_WINDOW_S: f64 = 600.0;

/// Why a plan, or what it was made from, cannot be read again.
#[derive(Debug, Error)]
pub enum MadeFromError {
    /// The plan cannot be read or is for other servers.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Which cluster is meant is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Trace or profile cannot be read.
    #[error(transparent)]
    Inputs(#[from] InputError),
    /// An old plan does not record where its inputs are.
    #[error("{} does not say where its {what} is; name it with {option}", shown(plan))]
    NotRecorded {
        /// The plan's file.
        plan: PathBuf,
        /// `trace` or `profile`.
        what: &'static str,
        /// The option of the command that names it.
        option: &'static str,
    },
    /// An input is no longer where it was.
    #[error("there is no {}, which {} was made from; name where it is now with {option}", shown(path), shown(plan))]
    Gone {
        /// Where the input was.
        path: PathBuf,
        /// The plan's file.
        plan: PathBuf,
        /// The option of the command that names it.
        option: &'static str,
    },
    /// An input has changed since the plan was made.
    #[error(
        "{input} is not what {} was made from: its contents differ; name the original with {option}, or make the plan again with `stripewise plan`",
        shown(plan)
    )]
    Changed {
        /// The input's file, or files.
        input: String,
        /// The plan's file.
        plan: PathBuf,
        /// The option of the command that names it.
        option: &'static str,
    },
}

type Result<T> = std::result::Result<T, MadeFromError>;

/// A plan and its inputs as files.
#[derive(Clone, Debug)]
pub struct PlanFiles {
    /// The plan's file.
    pub plan: PathBuf,
    /// The traces; none: where the plan found them.
    pub traces: Vec<PathBuf>,
    /// The profile; `None`: where the plan found it.
    pub profile: Option<PathBuf>,
}

/// A plan for a cluster, before its inputs are read.
pub(crate) struct Recorded<'a> {
    pub(crate) plan: Plan,
    pub(crate) cluster: Cluster,
    cluster_path: PathBuf,
    files: &'a PlanFiles,
}

/// A plan with what it was made from.
pub(crate) struct MadeFrom {
    pub(crate) plan: Plan,
    pub(crate) cluster: Cluster,
    inputs: Inputs,
    /// The capacity that the plan was made for, whatever has been written since.
    free_bytes: Vec<Option<u64>>,
}

impl<'a> Recorded<'a> {
    /// Reads the plan, which must be for the cluster that `session` means.
    pub(crate) fn load(session: &Session, files: &'a PlanFiles) -> Result<Self> {
        let plan = Plan::load(&files.plan)?;
        let (cluster_path, mut cluster) = (session.cluster_path(), session.cluster()?);
        plan.check(&cluster, &files.plan)?;
        cluster.region_size = plan.region_size().unwrap_or(cluster.region_size);
        Ok(Self { plan, cluster, cluster_path, files })
    }

    /// Reads traces and profile, which must be those that the plan was made from.
    pub(crate) fn read_inputs(self) -> Result<MadeFrom> {
        let Self { plan, cluster, cluster_path, files } = self;
        let (traces, profile) = sources(&plan, files)?;
        let window_s = plan.made_from.inputs.as_ref().map_or(DEFAULT_WINDOW_S, |inputs| inputs.window_s);
        let prefixes = plan.files.iter().map(|file| PathBuf::from(&file.path)).collect();
        let selection = Selection { prefixes, least: ByteCount(0), window_s };
        let read = Inputs::read(&cluster, &cluster_path, &profile, &traces, &selection, false);
        let mut inputs = read.map_err(|error| match error {
            InputError::NotTraced { traces, .. } => {
                MadeFromError::Changed { input: traces, plan: files.plan.clone(), option: "--trace" }
            }
            error => error.into(),
        })?;
        check_hashes(&plan, &inputs, &files.plan, &traces, &profile)?;
        inputs.keep(|path| plan.files.iter().any(|file| file.path == path));
        let free_bytes = plan
            .servers
            .iter()
            .zip(cluster.ids())
            .map(|(planned, id)| planned.room_bytes.map(|bytes| bytes.saturating_add(cluster.kept_free_bytes(id))))
            .collect();
        Ok(MadeFrom { plan, cluster, inputs, free_bytes })
    }
}

impl MadeFrom {
    /// The request that the plan answers.
    pub(crate) fn request(&self) -> PlanRequest<'_> {
        let options = self.plan.options.clone();
        PlanRequest { free_bytes: &self.free_bytes, ..self.inputs.request(&self.cluster, options) }
    }
}

/// Where trace and profile are: as given, else where the plan found them.
fn sources(plan: &Plan, files: &PlanFiles) -> Result<(Vec<PathBuf>, PathBuf)> {
    let recorded = plan.made_from.inputs.as_ref();
    let not_recorded = |what, option| MadeFromError::NotRecorded { plan: files.plan.clone(), what, option };
    let traces: Vec<PathBuf> = match (files.traces.is_empty(), recorded) {
        (false, _) => files.traces.clone(),
        (true, Some(inputs)) => inputs.traces.iter().map(PathBuf::from).collect(),
        (true, None) => return Err(not_recorded("trace", "--trace")),
    };
    let profile = match (&files.profile, recorded) {
        (Some(path), _) => path.clone(),
        (None, Some(inputs)) => PathBuf::from(&inputs.profile),
        (None, None) => return Err(not_recorded("profile", "--profile")),
    };
    for (path, option) in traces.iter().map(|path| (path, "--trace")).chain([(&profile, "--profile")]) {
        if !path.exists() {
            return Err(MadeFromError::Gone { path: path.clone(), plan: files.plan.clone(), option });
        }
    }
    Ok((traces, profile))
}

fn check_hashes(plan: &Plan, inputs: &Inputs, plan_path: &Path, traces: &[PathBuf], profile: &Path) -> Result<()> {
    let (made_from, found) = (&plan.made_from, inputs.sources());
    let named = traces.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ");
    for (input, was, is, option) in [
        (named, &made_from.trace_sha256, &found.trace_sha256, "--trace"),
        (shown(profile), &made_from.profile_sha256, &found.profile_sha256, "--profile"),
    ] {
        // A hash that is not known is empty.
        if !was.is_empty() && was != is {
            return Err(MadeFromError::Changed { input, plan: plan_path.to_owned(), option });
        }
    }
    Ok(())
}
