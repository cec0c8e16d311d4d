//! From traces and a profile to plans.

use crate::inputs::{InputError, Inputs, Selection};
use crate::limits::{self, LimitError};
use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use crate::session::{PROFILE_FILE, Session, SessionError};
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, Cluster};
use stripewise_planner::{
    Comparison, Gain, Laid, PlanError, PlanOptions, PlanRequest, PolicyName, RequestError, compare, predict_laid,
};
use thiserror::Error;

/// Why no plan was made, or written.
#[derive(Debug, Error)]
pub enum PlanningError {
    /// Which cluster is meant is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Traces or profile cannot be read, or there is nothing to plan for.
    #[error(transparent)]
    Inputs(#[from] InputError),
    /// The options do not fit the cluster.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// No file can have such regions.
    #[error("--region {region}: a region is a multiple of 4KiB and has at least 4KiB")]
    Region {
        /// The size asked for.
        region: ByteCount,
    },
    /// A server cannot do what is asked.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A plan cannot be written.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The directory for plans cannot be made.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Plans of several policies need a directory.
    #[error("{} is a file; with --policy all, -o names a directory", shown(path))]
    NotDirectory {
        /// As it was named.
        path: PathBuf,
    },
}

/// What is planned from what, and how.
#[derive(Clone, Debug)]
pub struct PlanningOptions {
    /// Traces of any form that Stripewise reads. Several are taken to run at the same time, all from
    /// their starts on.
    pub traces: Vec<PathBuf>,
    /// The profile; `None`: the one beside the cluster file.
    pub profile: Option<PathBuf>,
    /// Which files are planned, and for which windows.
    pub selection: Selection,
    /// Size of the files' regions; `None`: the cluster's.
    pub region: Option<ByteCount>,
    /// Refuse a trace of which records are missing or damaged.
    pub strict: bool,
    /// Policies, each of which makes a plan.
    pub policies: Vec<PolicyName>,
    /// For all policies.
    pub options: PlanOptions,
}

/// Plans, and what they are for.
#[derive(Debug)]
pub struct Planned {
    /// The plans in the order of the policies, with predictions.
    pub comparison: Comparison,
    /// What a person should know of the traces and the choice of files, one sentence each.
    pub remarks: Vec<String>,
    /// The cluster that was planned for, with regions of the size that was planned with.
    pub cluster: Cluster,
}

/// Plans for the cluster that `session` means. Nothing is written. Servers that are drained are left out as if they were excluded.
///
/// # Errors
///
/// [`PlanningError::Session`], [`PlanningError::Inputs`] or [`PlanningError::Request`].
pub fn plan(session: &Session, options: &PlanningOptions) -> Result<Planned, PlanningError> {
    let cluster_path = session.cluster_path();
    let mut cluster = session.cluster()?;
    if let Some(region) = options.region {
        with_regions(&mut cluster, region)?;
    }
    let profile = options.profile.clone().unwrap_or_else(|| cluster_path.with_file_name(PROFILE_FILE));
    let _waiting = session.voice().waiting("reading the trace");
    let PlanningOptions { traces, selection, strict, .. } = options;
    let mut inputs = Inputs::read(&cluster, &cluster_path, &profile, traces, selection, *strict)?;
    let mut plan_options = options.options.clone();
    for server in inputs.find_space(session, &cluster) {
        if !plan_options.exclude.contains(&server) {
            plan_options.exclude.push(server);
        }
    }
    let comparison = compare(&inputs.request(&cluster, plan_options.clone()), &options.policies)?;
    let mut remarks = std::mem::take(&mut inputs.remarks);
    if let Some(other) = inputs.other_request(&cluster, plan_options) {
        remarks.push(what_is_open(&comparison, &other)?);
    }
    Ok(Planned { comparison, remarks, cluster })
}

/// By how much the gain of the first plan differs where counters leave open how ranks share files. `other`: they go through them side by side.
fn what_is_open(comparison: &Comparison, other: &PlanRequest<'_>) -> Result<String, RequestError> {
    let Some(plan) = comparison.plans.first() else { return Ok(String::new()) };
    let default = compare(other, &[PolicyName::BASELINE])?.plans.swap_remove(0).predicted.total;
    let laid: Vec<Laid> = plan.files.iter().map(|file| file.initial().clone().into()).collect();
    let planned = predict_laid(other, &laid)?.total;
    Ok(format!(
        "the counters do not say how ranks share files: the gain of {} is {} if each has a part of its own, as planned, and {} if all go through them side by side",
        plan.policy,
        plan.gain.total,
        Gain::of(planned, default, planned == default)
    ))
}

/// Lets `cluster` have regions of another size, for the files that are planned.
fn with_regions(cluster: &mut Cluster, region: ByteCount) -> Result<(), PlanningError> {
    if region.0 < 4096 || !region.0.is_multiple_of(4096) {
        return Err(PlanningError::Region { region });
    }
    limits::check_region(cluster, region)?;
    cluster.region_size = region;
    Ok(())
}

/// Writes `POLICY.json` for each plan into `directory`, which is made if it is not there.
///
/// # Errors
///
/// [`PlanningError::NotDirectory`], [`PlanningError::Path`] or [`PlanningError::Plan`]; plans before
/// the one that failed are written.
pub fn save_all(comparison: &Comparison, directory: &Path) -> Result<(), PlanningError> {
    if directory.is_file() {
        return Err(PlanningError::NotDirectory { path: directory.to_owned() });
    }
    std::fs::create_dir_all(directory).on("create", directory)?;
    for plan in &comparison.plans {
        plan.save(&plan_path(directory, plan.policy))?;
    }
    Ok(())
}

/// Where [`save_all`] writes the plan of a policy.
pub fn plan_path(directory: &Path, policy: PolicyName) -> PathBuf {
    directory.join(format!("{policy}.json"))
}
