//! What is done with each file of a plan.

use serde::Serialize;
use std::path::PathBuf;

/// What is to be done with one file.
#[derive(Debug, Serialize)]
pub struct Step {
    pub path: PathBuf,
    pub action: Action,
    pub size_bytes: u64,
    pub regions: u64,
    pub layouts: usize,
    /// Regions whose own layout has no space.
    pub fallback_regions: u64,
    /// Further copies of regions that the plan has.
    pub replicas: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Copy the file in.
    Move,
    /// It does not exist: note its placement.
    Expect,
}
