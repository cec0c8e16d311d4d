//! Traces and logs reduced to counts: requests by file, window, region and class.

use crate::inputs::InputError;
use crate::recordings::Recordings;
use crate::trace_faults::impossible_requests;
use std::path::PathBuf;
use stripewise_planner::PlannedProgram;
use stripewise_trace::darshan::coarse::Arrangement;
use stripewise_trace::{CountOptions, FileAccess};

/// What was counted.
#[derive(Clone, Debug)]
pub struct Counts {
    /// In order of path; all with the same windows.
    pub files: Vec<FileAccess>,
    /// What a person should know of the traces, one sentence each.
    pub remarks: Vec<String>,
}

/// Counts the files of all `traces`, which are taken to run at the same time. Files of which a log has only counters count as if each rank had a part of
/// its own.
///
/// # Errors
///
/// [`InputError::Trace`] or [`InputError::Count`].
pub fn count(traces: &[PathBuf], options: &CountOptions) -> Result<Counts, InputError> {
    let recordings = Recordings::open(traces, false, |trace| PlannedProgram::new("", trace.processes.len() as u32))?;
    let counted = recordings.count(options, Arrangement::Apart)?;
    let mut remarks = recordings.warnings.clone();
    if counted.impossible > 0 {
        remarks.push(impossible_requests(counted.impossible));
    }
    Ok(Counts { files: counted.files, remarks })
}
