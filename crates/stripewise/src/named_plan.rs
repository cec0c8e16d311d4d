//! Plans that a person names to have files moved or placed by them, and what a plan says of that itself.

use crate::messages::shown;
use crate::progress::Voice;
use std::path::{Path, PathBuf};
use stripewise_layout::Cluster;
use stripewise_planner::{Plan, PlanError};
use thiserror::Error;

/// The plan is not worth its move.
#[derive(Debug, Error)]
#[error("{}: the plan itself says: {reason}; nothing was changed. {option} applies it all the same", shown(plan))]
pub struct LeaveIt {
    /// The plan's file.
    pub plan: PathBuf,
    /// Its verdict.
    pub reason: String,
    /// What applies it all the same.
    pub option: &'static str,
}

/// Why a plan that was named is not followed.
#[derive(Debug, Error)]
pub enum NamedPlanError {
    /// The plan cannot be read or is for another cluster.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan is not worth its move.
    #[error(transparent)]
    LeaveIt(#[from] LeaveIt),
}

/// A plan that a person names.
#[derive(Clone, Debug)]
pub struct NamedPlan {
    /// The plan's file.
    pub path: PathBuf,
    /// Follow it although its own verdict is to leave the files where they are.
    pub force: bool,
    /// The option by which a person forces it.
    pub option: &'static str,
}

impl NamedPlan {
    /// Reads the plan, which must be for `cluster`, and worth its move unless it is forced.
    pub(crate) fn load(&self, cluster: &Cluster, voice: &Voice) -> Result<Plan, NamedPlanError> {
        let plan = Plan::load(&self.path)?;
        plan.check(cluster, &self.path)?;
        match (self.force, check_verdict(&plan, &self.path, self.option)) {
            (true, Err(refused)) => voice.say(format_args!("the plan itself says: {}", refused.reason)),
            (_, verdict) => verdict?,
        }
        Ok(plan)
    }
}

/// Refuses a plan, read from `path`, whose own verdict is to leave the files where they are.
pub(crate) fn check_verdict(plan: &Plan, path: &Path, option: &'static str) -> Result<(), LeaveIt> {
    if plan.verdict.apply {
        return Ok(());
    }
    Err(LeaveIt { plan: path.to_owned(), reason: plan.verdict.reason.clone(), option })
}
