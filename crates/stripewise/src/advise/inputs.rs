//! Logs and traces as what plans are made from and findings found in.

use super::AdviseError;
use super::activity::Activity;
use super::judging::Measured;
use super::traced::of_trace;
use crate::messages::shown;
use crate::trace_faults::impossible_requests;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use stripewise_darshan::Module;
use stripewise_layout::ByteCount;
use stripewise_planner::MAX_REGIONS;
use stripewise_trace::darshan::coarse::{Assumed, CoarseOptions, access, is_too_large};
use stripewise_trace::darshan::{DarshanLog, FileCounters, LustreLayout, ModuleCounters};
use stripewise_trace::reader::is_log;
use stripewise_trace::{CountOptions, FileAccess, ProcessCount, Trace, count_together};

/// Classes of a file that are told apart.
const CLASS_LIMIT: u16 = 32;

/// A log or trace that was read.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct LogSummary {
    /// As it was named.
    pub path: PathBuf,
    /// The command line, or the program; empty where it is not known.
    pub program: String,
    /// Its processes.
    pub processes: u32,
    /// Seconds that it ran.
    pub run_s: f64,
    /// Requests that are known one by one.
    pub requests_traced: u64,
    /// Of a Darshan log: its modules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleSummary>,
    /// What is missing or damaged, one sentence each.
    pub missing: Vec<String>,
}

/// A module of a Darshan log.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ModuleSummary {
    /// As Darshan names it.
    pub name: String,
    /// Version of its records.
    pub version: u32,
    /// Records that were read.
    pub records: u64,
    /// It ran out of memory in the run.
    pub is_partial: bool,
    /// Whether its records are read at all.
    pub is_read: bool,
    /// Every counter, added up over all records modulo 2^64.
    pub counters: BTreeMap<String, i64>,
    /// Every real counter, added up over all records.
    pub real_counters: BTreeMap<String, f64>,
    /// Of DXT: writes.
    pub segments_written: u64,
    /// Of DXT: reads.
    pub segments_read: u64,
}

impl ModuleSummary {
    fn of(found: &ModuleCounters) -> Self {
        let Module { name, version, is_partial, is_read, .. } = &found.module;
        Self {
            name: name.clone(),
            version: *version,
            records: found.records,
            is_partial: *is_partial,
            is_read: *is_read,
            counters: found.sums.iter().cloned().collect(),
            real_counters: found.real_sums.iter().cloned().collect(),
            segments_written: found.segments_written,
            segments_read: found.segments_read,
        }
    }
}

/// What was read of all logs.
pub(super) struct Read {
    pub(super) logs: Vec<LogSummary>,
    pub(super) activity: Activity,
    pub(super) darshan: Vec<DarshanLog>,
    traces: Vec<Trace>,
    /// Positions of those whose requests alone say how long they took.
    without_counters: Vec<usize>,
    /// Accesses by the traces, once they are counted.
    traced: Option<Vec<FileAccess>>,
    /// Of all logs together, once the accesses of all files are known.
    run: Option<ProcessCount>,
    pub(super) remarks: Vec<String>,
}

/// Accesses of all files for one arrangement of what counters leave open.
pub(super) struct Accesses {
    pub(super) files: Vec<FileAccess>,
    /// Paths whose accesses are made from counters.
    pub(super) coarse: HashSet<String>,
    /// Those of them of which some requests are known.
    pub(super) partly: HashSet<String>,
    /// Those of them that depend on the arrangement.
    pub(super) open: HashSet<String>,
    /// Paths of files that end behind what can be planned.
    pub(super) too_large: BTreeSet<String>,
}

impl Read {
    /// What the run did is told of files of which `is_data` says so; where requests are aligned, no log says for a trace: `alignment`.
    pub(super) fn new(
        paths: &[PathBuf],
        listed_files: usize,
        alignment: ByteCount,
        is_data: impl Fn(&str) -> bool,
    ) -> Result<Self, AdviseError> {
        let (mut logs, mut darshan, mut traces) = (Vec::new(), Vec::new(), Vec::new());
        let mut without_counters = Vec::new();
        let mut activities: Vec<Activity> = Vec::new();
        for path in paths {
            if is_log(path) {
                let mut log = DarshanLog::read(path)?;
                let activity = match &log.trace {
                    // Counters were switched off.
                    Some(trace) if log.totals.is_empty() => {
                        without_counters.push(traces.len());
                        of_trace(trace, alignment, log.job.run_s, &is_data)
                    }
                    _ => Activity::of_darshan(&log),
                };
                logs.push(summary_of_darshan(path, &log, activity.run_s));
                activities.push(activity);
                traces.extend(log.take_trace());
                darshan.push(log);
            } else {
                let trace = Trace::open(path)?;
                activities.push(of_trace(&trace, alignment, 0.0, &is_data));
                without_counters.push(traces.len());
                logs.push(summary_of_trace(path, &trace));
                traces.push(trace);
            }
        }
        let mut activity = Activity::of_all(activities);
        activity.files.truncate(listed_files);
        let (traced, run, remarks) = (None, None, Vec::new());
        Ok(Self { logs, activity, darshan, traces, without_counters, traced, run, remarks })
    }

    /// What processes spent in reads and writes of files; `None` where a log does not say it.
    pub(super) fn measured(&self, is_wanted: impl Fn(&str) -> bool) -> Option<Measured> {
        let with_counters = || self.darshan.iter().filter(|log| !log.totals.is_empty());
        let is_uncounted = |log: &DarshanLog| {
            let mut wanted = log.traced.iter().filter(|path| is_wanted(path)).peekable();
            let files = if wanted.peek().is_some() { &log.files[..] } else { &[] };
            let counted: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
            wanted.any(|path| !counted.contains(path.as_str()))
        };
        if with_counters().any(is_uncounted) {
            return None;
        }
        let counted = with_counters().map(|log| {
            let shares = log.shares_of(&is_wanted);
            (shares.busiest().time_s, shares.busiest().data_s, shares.most_data_s())
        });
        let traced = self.without_counters.iter().map(|number| {
            let found = of_trace(&self.traces[*number], ByteCount(1), 0.0, &is_wanted);
            (found.busiest_s, found.busiest_data_s, found.most_data_s)
        });
        let (mut longest_s, mut measured) = (0.0, Measured::default());
        for (time_s, data_s, most_s) in counted.chain(traced) {
            if time_s > longest_s {
                (longest_s, measured.busiest_s) = (time_s, data_s);
            }
            measured.most_s = measured.most_s.max(most_s);
        }
        (measured.most_s > 0.0).then_some(measured)
    }

    /// The accesses of the files that are wanted, in order of path; the first time of all. All have one window, as long as the longest run, since
    /// layouts of a file system stay.
    pub(super) fn accesses(
        &mut self,
        region_size: ByteCount,
        assumed: Assumed,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Accesses, AdviseError> {
        let window_s = self.activity.run_s.clamp(1.0, 1e8) * 2.0;
        let mut by_path: BTreeMap<String, Vec<FileAccess>> = BTreeMap::new();
        for file in self.traced(region_size, window_s)?.iter().filter(|file| is_wanted(&file.path)) {
            by_path.entry(file.path.clone()).or_default().push(file.clone());
        }
        let options = CoarseOptions { region_size, window_s, run_s: self.activity.run_s, class_limit: CLASS_LIMIT };
        let traced_windows = by_path.values().flatten().flat_map(|file| &file.windows);
        let traced_run = traced_windows.map(|window| window.processes.run).max_by_key(|run| run.processes);
        let (mut coarse, mut partly, mut open) = (HashSet::new(), HashSet::new(), HashSet::new());
        let (mut too_large, mut counted) = (BTreeSet::new(), Counted::default());
        for log in &self.darshan {
            let is_wanted = |file: &&FileCounters| !log.traced.contains(&file.path) && is_wanted(&file.path);
            let mut is_coarse = false;
            for file in log.files.iter().filter(is_wanted) {
                let Some((made, is_open)) = access(log, file, assumed, &options) else {
                    if is_too_large(log, file, region_size) {
                        too_large.insert(file.path.clone());
                    }
                    continue;
                };
                if is_open {
                    open.insert(made.path.clone());
                }
                if log.partly_traced.contains_key(&made.path) {
                    partly.insert(made.path.clone());
                }
                is_coarse = true;
                coarse.insert(made.path.clone());
                by_path.entry(made.path.clone()).or_default().push(made);
            }
            if is_coarse {
                counted.add(log.processes(), !log.traced.is_empty());
            }
        }
        // The first time of all files, of which later ones are some.
        let run = *self.run.get_or_insert_with(|| counted.together(traced_run));
        let mut files = Vec::with_capacity(by_path.len());
        for (path, parts) in by_path {
            let mut file = FileAccess::merge(parts, CLASS_LIMIT)?;
            if file.size_bytes.div_ceil(region_size.0) > MAX_REGIONS {
                too_large.insert(path);
                continue;
            }
            for window in &mut file.windows {
                // Windows of traces end with the trace's last request, those of counters with the run.
                (window.start_s, window.end_s) = (0.0, window_s);
                window.processes.run = run;
            }
            files.push(file);
        }
        files.retain(|file| !too_large.contains(&file.path));
        Ok(Accesses { files, coarse, partly, open, too_large })
    }

    fn traced(&mut self, region_size: ByteCount, window_s: f64) -> Result<&[FileAccess], AdviseError> {
        if self.traced.is_none() {
            let options = CountOptions { window_s, region_size, class_limit: CLASS_LIMIT, ..CountOptions::default() };
            let mut counted = count_together(&self.traces, &options)?;
            if counted.impossible > 0 {
                self.remarks.push(impossible_requests(counted.impossible));
            }
            counted.files.iter_mut().for_each(|file| file.windows.truncate(1));
            self.traced = Some(counted.files);
        }
        Ok(self.traced.as_deref().unwrap_or_default())
    }

    /// The trace, if it is the only one and no other log was read.
    pub(super) fn only_trace(&mut self) -> Option<Trace> {
        if self.logs.len() == 1 { self.traces.pop() } else { None }
    }

    /// How a file lay in its run, where a log says it.
    pub(super) fn lustre_layouts(&self) -> HashMap<&str, &LustreLayout> {
        let files = self.darshan.iter().flat_map(|log| &log.files);
        files.filter_map(|file| Some((file.path.as_str(), file.lustre.as_ref()?))).collect()
    }
}

/// Every log once, and remarks on those that are named more than once: their requests would count as often.
pub(super) fn distinct(logs: &[PathBuf]) -> (Vec<PathBuf>, Vec<String>) {
    let (mut known, mut distinct, mut remarks) = (HashSet::new(), Vec::new(), Vec::new());
    for path in logs {
        if known.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
            distinct.push(path.clone());
        } else {
            remarks.push(format!("{} is named more than once and counts once", shown(path)));
        }
    }
    (distinct, remarks)
}

/// Processes of logs that gave files of which only counters are known.
#[derive(Default)]
struct Counted {
    /// Of logs that have no requests.
    alone: u32,
    /// Of logs whose processes the requests have as well.
    with_requests: u32,
}

impl Counted {
    fn add(&mut self, processes: u32, has_requests: bool) {
        let sum = if has_requests { &mut self.with_requests } else { &mut self.alone };
        *sum = sum.saturating_add(processes);
    }

    /// With those of the requests, which run at the same time: a log that is in both counts once.
    fn together(&self, traced: Option<ProcessCount>) -> ProcessCount {
        let traced = traced.unwrap_or_default();
        let counted = self.with_requests.max(traced.processes);
        // How many are on one node is known of requests only.
        let is_known = self.alone.max(self.with_requests) <= traced.processes;
        let per_node = if is_known { traced.per_node } else { 0 };
        ProcessCount { processes: self.alone.saturating_add(counted), per_node }
    }
}

fn summary_of_darshan(path: &Path, log: &DarshanLog, run_s: f64) -> LogSummary {
    LogSummary {
        path: path.to_owned(),
        program: log.job.command.trim().to_owned(),
        processes: log.processes(),
        run_s,
        requests_traced: log.trace.as_ref().map_or(0, Trace::event_count),
        modules: log.modules.iter().map(ModuleSummary::of).collect(),
        missing: log.missing.clone(),
    }
}

fn summary_of_trace(path: &Path, trace: &Trace) -> LogSummary {
    let command = trace.manifest.as_ref().map(|manifest| manifest.command.join(" "));
    let program = command.or_else(|| trace.processes.first().map(|process| process.program.clone()));
    LogSummary {
        path: path.to_owned(),
        program: program.unwrap_or_default(),
        processes: (trace.processes.len() as u32).max(trace.mpi_size()),
        run_s: trace.duration().seconds(),
        requests_traced: trace.event_count(),
        modules: Vec::new(),
        missing: trace.warnings.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(logs: &[(u32, bool)], traced: Option<(u32, u32)>) -> (u32, u32) {
        let mut counted = Counted::default();
        logs.iter().for_each(|(processes, has_requests)| counted.add(*processes, *has_requests));
        let traced = traced.map(|(processes, per_node)| ProcessCount { processes, per_node });
        let ProcessCount { processes, per_node } = counted.together(traced);
        (processes, per_node)
    }

    #[test]
    fn processes_of_logs_that_run_at_the_same_time_are_added_up() {
        // Two jobs of 64 ranks, by counters and by requests.
        assert_eq!(together(&[(64, false), (64, false)], None), (128, 0));
        assert_eq!(together(&[], Some((128, 32))), (128, 32));
        assert_eq!(together(&[(64, false)], Some((64, 32))), (128, 32));
        // Files of the same jobs of which there are counters only add nobody.
        assert_eq!(together(&[(64, true), (64, true)], Some((128, 32))), (128, 32));
        assert_eq!(together(&[(64, true)], Some((16, 16))), (64, 0));
    }
}
