//! From the logs of a site's jobs to a layout that the site's file system can set, with a number beside it.
//!
//! Logs become accesses of files ([`Read`]), the planner plans them for the site's targets, and the export brings the plan to what the file system
//! knows. The layout is judged as it would be set, against how the files lay in the run where a log says it, and what files get by default
//! otherwise. Of files that are known by counters only, the order of requests may be open: two extreme orders are planned, each plan is judged under
//! both, and the one whose worse case is better is advised. Where in a file most requests lie is always open then: the range is that of all cases.

mod activity;
mod choosing;
mod findings;
mod inputs;
mod judging;
mod sentences;
mod traced;

pub use activity::BusyFile;
pub use findings::{Finding, Weight};
pub use inputs::{LogSummary, ModuleSummary};
pub use judging::{Coarse, Measured, Moving, PredictedTime};

use crate::export::export_for;
use crate::messages::printable;
use crate::prefixes::Prefixes;
use crate::session::Session;
use crate::site::{LoadSiteError, LoadedSite, load};
use activity::Requests;
use choosing::{choose, may_be_data};
use inputs::{Read, distinct};
use judging::{Judged, Limits, Variant};
use serde::Serialize;
use std::path::PathBuf;
use stripewise_layout::ByteCount;
use stripewise_planner::native::{Export, ExportError, check};
use stripewise_planner::{Gain, PlanKey, PlanOptions, PlanRequest, PolicyName, RequestError, Sources, plan};
use stripewise_trace::darshan::BIN_NAMES;
use stripewise_trace::darshan::coarse::{Arrangement, Assumed, Density};
use stripewise_trace::{CountError, FileAccess, MergeError, ReadError, Trace};
use thiserror::Error;

/// Why there is no advice.
#[derive(Debug, Error)]
pub enum AdviseError {
    /// The site cannot be read.
    #[error(transparent)]
    Site(#[from] LoadSiteError),
    /// A Darshan log cannot be read.
    #[error(transparent)]
    Darshan(#[from] stripewise_darshan::DarshanError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// Requests of the traces cannot be counted.
    #[error(transparent)]
    Count(#[from] CountError),
    /// Accesses of several logs to one file cannot be added up.
    #[error(transparent)]
    Merge(#[from] MergeError),
    /// [`AdviseOptions::max_files`] is 0.
    #[error("at most 0 files leave nothing to lay out; give --max-files a number from 1 on")]
    NoFiles,
    /// [`AdviseOptions::worth_runs`] is no number of runs.
    #[error(
        "moving the data cannot be won back within {runs} runs; give --worth-runs a number above 0, for example 10"
    )]
    WorthRuns {
        /// The number asked for.
        runs: f64,
    },
    /// Damaged logs of which nothing is left to advise upon.
    #[error("{logs}: no reads or writes are left of it: {missing}")]
    NothingLeft {
        /// Their paths.
        logs: String,
        /// What is missing.
        missing: String,
    },
    /// The files cannot be planned for the site.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The site's description does not say what its layouts need.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// What is advised upon.
#[derive(Clone, Debug)]
pub struct AdviseOptions {
    /// Darshan logs, and traces of any form that Stripewise reads, of one program; all are taken to run at the same time.
    pub logs: Vec<PathBuf>,
    /// The description of the site.
    pub site: PathBuf,
    /// Files whose path begins so, as it was given or with links resolved. None: those of the site's file system.
    pub prefixes: Vec<PathBuf>,
    /// Size from which files are laid out, unless `prefixes` names them.
    pub least: ByteCount,
    /// Files that are laid out at most, those with the most bytes first.
    pub max_files: usize,
    /// Runs within which moving the data must be won back.
    pub worth_runs: f64,
}

impl AdviseOptions {
    /// [`Self::least`] unless something else is asked for: 1 MiB.
    pub const MIN_SIZE: ByteCount = ByteCount(1 << 20);
    /// [`Self::max_files`] unless something else is asked for.
    pub const MAX_FILES: usize = 64;
    /// [`Self::worth_runs`] unless something else is asked for.
    pub const WORTH_RUNS: f64 = 10.0;

    fn check(&self) -> Result<(), AdviseError> {
        if self.max_files == 0 {
            return Err(AdviseError::NoFiles);
        }
        let is_number = self.worth_runs.is_finite() && self.worth_runs > 0.0;
        if is_number { Ok(()) } else { Err(AdviseError::WorthRuns { runs: self.worth_runs }) }
    }
}

/// Requests by size.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SizeRow {
    /// Range of sizes.
    pub size: &'static str,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Requests and bytes of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Totals {
    /// Seconds of the longest run.
    pub run_s: f64,
    /// Processes of all logs.
    pub processes: u32,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Files with requests.
    pub files: u64,
    /// Seconds in reads and writes, all processes added up.
    pub data_s: f64,
    /// Seconds in metadata calls, all processes added up.
    pub metadata_s: f64,
    /// Seconds of I/O of the process that has most.
    pub busiest_s: f64,
}

/// The advice.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Advice {
    /// The site's description.
    pub site: PathBuf,
    /// Kind of its file system.
    pub file_system: String,
    /// Whether the layouts below are better than leaving the files.
    pub change: bool,
    /// The answer in one sentence.
    pub answer: String,
    /// The measured facts that decide, one sentence each.
    pub why: Vec<String>,
    /// What the layouts change, one sentence each.
    pub layout: Vec<String>,
    /// What the logs measured of the files that were planned; `None` where they do not say it.
    pub measured: Option<Measured>,
    /// Where the logs measured quite another time than is predicted for the files as they lie: one sentence.
    pub misfit: Option<String>,
    /// Against how the files lay, or what they get by default: time before over time after, less 1. `None`: no layout could be made.
    pub gain: Option<Gain>,
    /// Of I/O as the files lie now.
    pub now: Option<PredictedTime>,
    /// Of I/O with the layouts.
    pub advised: Option<PredictedTime>,
    /// Of I/O under the plan that the file system cannot express wholly.
    pub ideal: Option<PredictedTime>,
    /// What it costs to move files that exist.
    pub moving: Option<Moving>,
    /// What is known by counters only, and how much that leaves open.
    pub coarse: Option<Coarse>,
    /// Layouts and the script that sets them.
    pub export: Option<Export>,
    /// What else to know of the run, those that weigh most first.
    pub findings: Vec<Finding>,
    /// Requests and bytes.
    pub totals: Totals,
    /// Requests by size.
    pub sizes: Vec<SizeRow>,
    /// Bytes read and written in equal slices of the run.
    pub timeline: Vec<[f64; 2]>,
    /// The files with the most bytes.
    pub files: Vec<BusyFile>,
    /// What was read.
    pub logs: Vec<LogSummary>,
    /// What a person should know besides, one sentence each.
    pub remarks: Vec<String>,
    /// The requests one by one, where a single log or trace has them.
    #[serde(skip)]
    pub trace: Option<Trace>,
}

/// Files with the most bytes that are listed.
const LISTED_FILES: usize = 10;

/// Advises on a layout for a program's files. Nothing is written.
///
/// # Errors
///
/// [`AdviseError`].
pub fn advise(session: &Session, options: &AdviseOptions) -> Result<Advice, AdviseError> {
    options.check()?;
    let loaded = load(&options.site)?;
    check(&loaded.site)?;
    let reading = session.voice().waiting("reading the logs");
    let (.., stripe_size) = loaded.site.default_layout();
    let (logs, mut remarks) = distinct(&options.logs);
    let prefixes = Prefixes::new(&options.prefixes);
    let mut read = Read::new(&logs, LISTED_FILES, stripe_size, |path| may_be_data(path) || prefixes.name(path))?;
    let region_size = loaded.servers.cluster.region_size;
    let first = read.accesses(region_size, Arrangement::Apart.even(), |_| true)?;
    remarks.append(&mut read.remarks);
    drop(reading);
    let _planning = session.voice().waiting("planning");
    let chosen = choose(&read, &first, &loaded, (options, &prefixes), &mut remarks)?;
    let (chosen, reason) = match chosen {
        Ok(chosen) => (chosen, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    let coarse = chosen.iter().filter(|path| first.coarse.contains(*path)).count();
    let partly = chosen.iter().filter(|path| first.partly.contains(*path)).count();
    let is_open = chosen.iter().any(|path| first.open.contains(path));
    let is_chosen = |path: &str| chosen.binary_search_by(|known| known.as_str().cmp(path)).is_ok();
    let mut cases = vec![Case { assumed: Arrangement::Apart.even(), files: first.files }];
    cases[0].files.retain(|file| is_chosen(&file.path));
    for assumed in judging::others(coarse > 0, is_open) {
        cases.push(Case { assumed, files: read.accesses(region_size, assumed, is_chosen)?.files });
    }
    let (judged, reason) = match reason {
        Some(reason) => (None, reason),
        None => match judge(&read, &cases, &loaded, options) {
            Ok(mut judged) => {
                if let Some(judged) = &mut judged {
                    judged.limits = limits(&read, is_chosen, &judged.exported);
                }
                (judged, String::new())
            }
            Err(ExportError::Request(error)) => return Err(error.into()),
            // No layout of the file system holds the files: the only answer of these that is advice.
            Err(ExportError::Refused { path, reason }) => (None, format!("{}: {reason}", printable(&path, false))),
            Err(error) => return Err(error.into()),
        },
    };
    let files = Laid { coarse, partly, files: chosen.len(), reason };
    Ok(answer(read, judged, &files, &loaded, options, remarks))
}

/// What the logs measured of the files that are planned, and of those that get a layout.
fn limits(read: &Read, is_chosen: impl Fn(&str) -> bool, exported: &Export) -> Limits {
    let planned = read.measured(is_chosen);
    let laid_out = match exported.refused.is_empty() {
        true => planned,
        false => read.measured(|path| exported.files.iter().any(|file| file.path == path)),
    };
    let has_others = exported.files.len() as u64 != read.activity.file_count;
    Limits { planned, laid_out, run_s: read.activity.run_s, has_others }
}

/// The files that are laid out, or why none is.
struct Laid {
    /// Those whose accesses are made from counters.
    coarse: usize,
    /// Of them, those of which some requests are known.
    partly: usize,
    files: usize,
    /// Empty where a layout could be made.
    reason: String,
}

/// Accesses of the chosen files under what is assumed where counters leave it open.
struct Case {
    assumed: Assumed,
    files: Vec<FileAccess>,
}

/// Plans and exports for every arrangement, and what each export does in every case.
fn judge(
    read: &Read,
    cases: &[Case],
    loaded: &LoadedSite,
    options: &AdviseOptions,
) -> Result<Option<Judged>, ExportError> {
    let lustre = read.lustre_layouts();
    let variants: Vec<Variant<'_>> = cases
        .iter()
        .map(|case| Variant {
            assumed: case.assumed,
            now: judging::layouts_now(&loaded.site, &case.files, &lustre),
            request: request(read, &case.files, loaded, options),
        })
        .collect();
    let mut candidates = Vec::new();
    // Where most requests lie is not known: a plan for one such case would be as wrong for the other.
    for variant in variants.iter().filter(|variant| variant.assumed.density == Density::Even) {
        let planned = plan(PolicyName::DEFAULT, &variant.request)?;
        let exported = export_for(&planned, loaded, variant.request.files)?;
        candidates.push((planned, exported));
    }
    Ok(judging::best(&loaded.site, &variants, candidates)?)
}

fn request<'a>(
    read: &Read,
    files: &'a [FileAccess],
    loaded: &'a LoadedSite,
    options: &AdviseOptions,
) -> PlanRequest<'a> {
    let program = read.logs.first().and_then(|log| log.program.split(' ').next()).unwrap_or_default();
    PlanRequest {
        cluster: &loaded.servers.cluster,
        profile: &loaded.servers.profile,
        files,
        key: PlanKey::new(program, read.activity.processes),
        sources: Sources::default(),
        options: PlanOptions { worth_runs: options.worth_runs, ..PlanOptions::default() },
        free_bytes: &[],
        promises_whole_regions: false,
        concurrency: None,
    }
}

fn answer(
    mut read: Read,
    judged: Option<Judged>,
    laid: &Laid,
    loaded: &LoadedSite,
    options: &AdviseOptions,
    remarks: Vec<String>,
) -> Advice {
    let trace = read.only_trace();
    let activity = &read.activity;
    let row =
        |bin: usize| SizeRow { size: BIN_NAMES[bin], reads: activity.read.bins[bin], writes: activity.write.bins[bin] };
    let totals = |reads: &Requests, writes: &Requests| Totals {
        run_s: activity.run_s,
        processes: activity.processes,
        reads: reads.count,
        writes: writes.count,
        read_bytes: reads.bytes,
        write_bytes: writes.bytes,
        files: activity.file_count,
        data_s: activity.data_s,
        metadata_s: activity.metadata_s,
        busiest_s: activity.busiest_s,
    };
    let answer = match &judged {
        Some(judged) => judged.answer(&loaded.site, options.worth_runs),
        None => Err(format!("leave it: {}", laid.reason)),
    };
    let change = answer.is_ok();
    let (Ok(answer) | Err(answer)) = answer;
    let mut advice = Advice {
        site: options.site.clone(),
        file_system: loaded.site.fs.name.to_owned(),
        change,
        answer,
        why: Vec::new(),
        layout: Vec::new(),
        measured: None,
        misfit: None,
        gain: None,
        now: None,
        advised: None,
        ideal: None,
        moving: None,
        coarse: None,
        export: None,
        findings: findings::findings(activity),
        totals: totals(&activity.read, &activity.write),
        sizes: (0..BIN_NAMES.len()).map(row).collect(),
        timeline: activity.timeline.clone(),
        files: activity.files.clone(),
        logs: Vec::new(),
        remarks,
        trace,
    };
    if let Some(judged) = judged {
        (advice.why, advice.layout) = (judged.why(activity), judged.layout(&loaded.site));
        (advice.measured, advice.misfit) = (judged.limits.planned, judged.misfit());
        advice.gain = Some(judged.gain());
        (advice.now, advice.advised) = (Some(judged.now()), Some(judged.advised()));
        advice.ideal = Some(judged.ideal());
        advice.moving = Some(judged.moving());
        advice.coarse = (laid.coarse > 0).then(|| judged.coarse(laid.coarse, laid.partly, laid.files));
        advice.remarks.extend(judged.exported.notes.iter().cloned());
        let refused = &judged.exported.refused;
        let refused = refused.iter().map(|file| format!("{}: {}", printable(&file.path, false), file.reason));
        advice.remarks.extend(refused);
        advice.export = Some(judged.exported);
    }
    advice.logs = read.logs;
    advice
}
