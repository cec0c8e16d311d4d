//! What programs left of their I/O: traces, and Darshan's logs, which have segments, counters, or both.
//!
//! Segments are a trace as any other. Files that a log knows by counters alone get accesses made from these (`stripewise_trace::darshan::coarse`),
//! which leave open how ranks share a file: [`Recordings::count`] is told which of two extremes to take.

use crate::messages::shown;
use crate::trace_faults::{IncompleteTrace, refuse_incomplete};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use stripewise_planner::PlannedProgram;
use stripewise_trace::darshan::DarshanLog;
use stripewise_trace::darshan::coarse::{Arrangement, CoarseOptions, access};
use stripewise_trace::reader::is_log;
use stripewise_trace::{
    Company, CountError, CountOptions, FileAccess, ReadError, Synchronizations, Trace, WindowAccess, WindowProcesses,
    count_together,
};

/// Traces and logs that were opened.
pub(crate) struct Recordings {
    pub(crate) traces: Vec<Trace>,
    /// Their traces taken out.
    logs: Vec<DarshanLog>,
    /// The program of each, in order.
    pub(crate) programs: Vec<PlannedProgram>,
    /// What is missing or damaged.
    pub(crate) warnings: Vec<String>,
}

/// Accesses of all files, in order of path, with the same windows.
pub(crate) struct RecordedAccesses {
    pub(crate) files: Vec<FileAccess>,
    /// Requests left out because they cannot be.
    pub(crate) impossible: u64,
    /// Files whose accesses are made from counters, and whether these depend on the arrangement.
    pub(crate) coarse: BTreeMap<String, bool>,
}

/// Why recordings are not opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Incomplete(#[from] IncompleteTrace),
}

impl Recordings {
    pub(crate) fn open(
        paths: &[PathBuf],
        is_strict: bool,
        program_of: impl Fn(&Trace) -> PlannedProgram,
    ) -> Result<Self, RecordingError> {
        let mut found = Self { traces: Vec::new(), logs: Vec::new(), programs: Vec::new(), warnings: Vec::new() };
        for path in paths {
            if is_log(path) {
                let mut log = DarshanLog::read(path).map_err(ReadError::from)?;
                let faults = log.missing.iter().map(|what| format!("{}: {what}", shown(path))).collect::<Vec<_>>();
                if is_strict && !faults.is_empty() {
                    return Err(IncompleteTrace { path: path.clone(), faults }.into());
                }
                let program = log.job.command.split_whitespace().next().unwrap_or_default();
                let name = program.rsplit('/').next().unwrap_or(program);
                found.programs.push(PlannedProgram::new(name, log.processes()));
                found.warnings.extend(faults);
                found.traces.extend(log.take_trace());
                found.logs.push(log);
            } else {
                let trace = Trace::open(path)?;
                if is_strict {
                    refuse_incomplete(path, &trace)?;
                }
                found.programs.push(program_of(&trace));
                found.warnings.extend(trace.warnings.iter().map(ToString::to_string));
                found.traces.push(trace);
            }
        }
        Ok(found)
    }

    pub(crate) fn count(
        &self,
        options: &CountOptions,
        arrangement: Arrangement,
    ) -> Result<RecordedAccesses, CountError> {
        let counted = count_together(&self.traces, options)?;
        let mut by_path: BTreeMap<String, Vec<FileAccess>> = BTreeMap::new();
        for file in counted.files {
            by_path.entry(file.path.clone()).or_default().push(file);
        }
        let runs = self.logs.iter().map(|log| log.job.run_s);
        let run_s = self.traces.iter().map(|trace| trace.duration().seconds()).chain(runs).fold(0.0, f64::max);
        let coarse_options = CoarseOptions {
            region_size: options.region_size,
            window_s: options.window_s,
            run_s,
            class_limit: options.class_limit,
        };
        let mut coarse: BTreeMap<String, bool> = BTreeMap::new();
        for log in &self.logs {
            for file in log.files.iter().filter(|file| !log.traced.contains(&file.path)) {
                let Some((made, depends)) = access(log, file, arrangement.even(), &coarse_options) else { continue };
                *coarse.entry(made.path.clone()).or_insert(false) |= depends;
                by_path.entry(made.path.clone()).or_default().push(made);
            }
        }
        let windows = by_path.values().flatten().map(|file| file.windows.len()).max().unwrap_or(0);
        let merge = |parts| {
            // Cannot fail: the parts are of one file and have the same regions and windows.
            let mut file = FileAccess::merge(parts, options.class_limit).ok()?;
            for number in file.windows.len()..windows {
                file.windows.push(without_accesses(number, options.window_s));
            }
            Some(file)
        };
        let files = by_path.into_values().filter_map(merge).collect();
        Ok(RecordedAccesses { files, impossible: counted.impossible, coarse })
    }
}

fn without_accesses(number: usize, window_s: f64) -> WindowAccess {
    WindowAccess {
        start_s: number as f64 * window_s,
        end_s: (number + 1) as f64 * window_s,
        company: Company::default(),
        processes: WindowProcesses::default(),
        synchronizations: Synchronizations::default(),
        regions: Vec::new(),
    }
}

impl RecordedAccesses {
    /// Those of `files` that are known by counters alone, and whether any depends on the arrangement.
    pub(crate) fn coarse_of(&self, files: &[FileAccess]) -> (BTreeSet<String>, bool) {
        let found = files.iter().filter_map(|file| self.coarse.get_key_value(&file.path));
        let (paths, depends): (BTreeSet<String>, Vec<bool>) = found.map(|(path, open)| (path.clone(), *open)).unzip();
        (paths, depends.contains(&true))
    }
}
