//! What traces lack, and what is said of it.

use crate::messages::shown;
use std::path::{Path, PathBuf};
use stripewise_trace::Trace;
use thiserror::Error;

/// A trace that does not hold all that its program did.
#[derive(Debug, Error)]
#[error(
    "{}: the trace is not complete, and --strict was given:\n  {}\ntrace again, or leave out --strict to use what there is",
    shown(path),
    faults.join("\n  ")
)]
pub struct IncompleteTrace {
    /// The trace.
    pub path: PathBuf,
    /// What it lacks, one line each.
    pub faults: Vec<String>,
}

/// Refuses a trace that does not hold all that its program did.
///
/// # Errors
/// When something of it is missing or damaged.
pub fn refuse_incomplete(path: &Path, trace: &Trace) -> Result<(), IncompleteTrace> {
    let faults: Vec<String> = trace.warnings.iter().map(ToString::to_string).collect();
    match faults.is_empty() {
        true => Ok(()),
        false => Err(IncompleteTrace { path: path.to_owned(), faults }),
    }
}

/// What to say of requests that were not counted.
pub fn impossible_requests(requests: u64) -> String {
    let (noun, verb) = if requests == 1 { ("request", "is") } else { ("requests", "are") };
    format!("{requests} {noun} at offsets or of sizes that no file can have {verb} left out; the trace is damaged")
}
