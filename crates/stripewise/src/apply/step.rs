//! What is done with each file of a plan.

use serde::Serialize;
use std::path::PathBuf;

/// What is to be done with one file.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Step {
    /// Absolute path without links.
    pub path: PathBuf,
    /// What is done.
    pub action: Action,
    /// Size of the file; 0 if it does not exist.
    pub size_bytes: u64,
    /// Regions for which the plan has a layout.
    pub regions: u64,
    /// Different layouts of these regions.
    pub layouts: usize,
    /// Regions whose own layout has no space.
    pub fallback_regions: u64,
    /// Replicas of regions that the plan has.
    pub replicas: u64,
}

/// What is done with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Copy the file in.
    Move,
    /// It does not exist: note its placement.
    Expect,
}
