//! From the logs of a site's jobs to a layout that the site's file system can set, with a number beside it.
//!
//! Logs become accesses of files ([`Read`]), the planner plans them for the site's targets, and the export brings the plan to what the file system
//! knows. The layout is judged as it would be set, against how the files lay in the run where a log says it, and what files get by default
//! otherwise. Of files that are known by counters only, the order of requests may be open: two extreme orders are planned, each plan is judged under
//! both, and the one whose worse case is better is advised. Where in a file most requests lie is always open then: the range is that of all cases.

mod activity;
mod findings;
mod inputs;
mod judging;
mod traced;

pub use activity::BusyFile;
pub use findings::{Finding, Weight};
pub use inputs::{LogSummary, ModuleSummary};
pub use judging::{Coarse, Moving, PredictedTime};

use crate::data_files::is_data;
use crate::export::export_for;
use crate::inputs::is_named;
use crate::messages::printable;
use crate::session::Session;
use crate::site::{LoadSiteError, LoadedSite, load};
use activity::Requests;
use inputs::{Accesses, Read};
use judging::{Judged, Variant};
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise_layout::ByteCount;
use stripewise_layout::figures::{bytes, counted};
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
    /// Files whose absolute path begins so. None: those of the site's file system.
    pub prefixes: Vec<PathBuf>,
    /// Size from which files are laid out, unless `prefixes` names them.
    pub least: ByteCount,
    /// Files that are laid out at most, those with the most bytes first.
    pub max_files: usize,
    /// Runs within which moving the data must be won back.
    pub worth_runs: f64,
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
    let loaded = load(&options.site)?;
    check(&loaded.site)?;
    let _waiting = session.voice().waiting("reading the logs");
    let (.., stripe_size) = loaded.site.default_layout();
    let mut read = Read::new(&options.logs, LISTED_FILES, stripe_size, |path| {
        may_be_data(path) || is_named(path, &options.prefixes)
    })?;
    let region_size = loaded.servers.cluster.region_size;
    let first = read.accesses(region_size, Arrangement::Apart.even(), |_| true)?;
    let mut remarks = std::mem::take(&mut read.remarks);
    let chosen = choose(&read, &first, &loaded, options, &mut remarks)?;
    let (chosen, reason) = match chosen {
        Ok(chosen) => (chosen, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    let coarse = chosen.iter().filter(|path| first.coarse.contains(*path)).count();
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
            Ok(judged) => (judged, String::new()),
            Err(ExportError::Request(error)) => return Err(error.into()),
            // No layout of the file system holds the files: the only answer of these that is advice.
            Err(error @ ExportError::Refused { .. }) => (None, error.to_string()),
            Err(error) => return Err(error.into()),
        },
    };
    let files = Laid { coarse, files: chosen.len(), reason };
    Ok(answer(read, judged, &files, &loaded, options, remarks))
}

/// The files that are laid out, or why none is.
struct Laid {
    /// Those of which only counters are known.
    coarse: usize,
    files: usize,
    /// Empty where a layout could be made.
    reason: String,
}

/// Paths of the files that are laid out, in order, or why there are none.
fn choose(
    read: &Read,
    accesses: &Accesses,
    loaded: &LoadedSite,
    options: &AdviseOptions,
    remarks: &mut Vec<String>,
) -> Result<Result<Vec<String>, String>, AdviseError> {
    if accesses.files.is_empty() {
        let Some(missing) = read.logs.iter().flat_map(|log| &log.missing).next() else {
            return Ok(Err("the logs have no reads or writes".to_owned()));
        };
        let logs = options.logs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        return Err(AdviseError::NothingLeft { logs, missing: missing.clone() });
    }
    let is_large = |file: &&FileAccess| may_be_data(&file.path) && file.size_bytes >= options.least.0;
    let mut chosen: Vec<&FileAccess> = if options.prefixes.is_empty() {
        let large: Vec<&FileAccess> = accesses.files.iter().filter(is_large).collect();
        let below: Vec<&FileAccess> = large.iter().copied().filter(|file| is_of_site(file, read, loaded)).collect();
        match (&loaded.site.file.mount, below.is_empty() && !large.is_empty()) {
            (Some(mount), true) => {
                remarks.push(format!(
                    "no file of the logs lies below {}, the site's mount: {} of the logs {} taken to lie there",
                    mount.display(),
                    counted(large.len(), "file", "files"),
                    if large.len() == 1 { "is" } else { "are" }
                ));
                large
            }
            _ => below,
        }
    } else {
        accesses.files.iter().filter(|file| is_named(&file.path, &options.prefixes)).collect()
    };
    if chosen.is_empty() {
        let elsewhere = accesses.files.iter().filter(is_large).max_by_key(|file| asked_bytes(file));
        let what = if let (true, Some(file)) = (options.prefixes.is_empty(), elsewhere) {
            format!(
                "no file of at least {} lies on {}, as the logs have it ({} lies on {}); name files with --file",
                bytes(options.least.0),
                loaded.site.fs.name,
                printable(&file.path, false),
                kinds_of(&file.path, read).join(", ")
            )
        } else if options.prefixes.is_empty() {
            format!(
                "its {} smaller than {} or no data; lower --least-size or name files with --file",
                counted(accesses.files.len(), "file is", "files are"),
                bytes(options.least.0)
            )
        } else {
            format!("no path of its {} begins so", counted(accesses.files.len(), "file", "files"))
        };
        return Ok(Err(what));
    }
    chosen.sort_by_key(|file| std::cmp::Reverse(asked_bytes(file)));
    let all: u128 = chosen.iter().map(|file| asked_bytes(file)).sum();
    let beyond: u128 = chosen.iter().skip(options.max_files).map(|file| asked_bytes(file)).sum();
    if chosen.len() > options.max_files {
        remarks.push(format!(
            "the {} files with the most bytes are laid out; the other {} move {:.1} % of all bytes (--max-files)",
            options.max_files,
            chosen.len() - options.max_files,
            beyond as f64 * 100.0 / (all as f64).max(1.0)
        ));
        chosen.truncate(options.max_files);
    }
    let mut paths: Vec<String> = chosen.into_iter().map(|file| file.path.clone()).collect();
    paths.sort();
    Ok(Ok(paths))
}

fn may_be_data(path: &str) -> bool {
    is_data(Path::new(path)) || has_no_name(path)
}

/// Whether a file stands by a number: one whose name the log lacks, or has replaced by its hash (`darshan-convert --obfuscate`).
fn has_no_name(path: &str) -> bool {
    ["darshan-", "dftracer-"].iter().any(|begin| path.starts_with(begin))
        || (!path.is_empty() && path.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a file lies below the site's mount, or on a file system of its kind where the site names no mount.
fn is_of_site(file: &FileAccess, read: &Read, loaded: &LoadedSite) -> bool {
    if let Some(mount) = &loaded.site.file.mount {
        return Path::new(&file.path).starts_with(mount);
    }
    let kinds = kinds_of(&file.path, read);
    kinds.is_empty() || kinds.iter().any(|kind| kind.contains(loaded.site.fs.name))
}

/// The file systems on which the logs have this path.
fn kinds_of<'a>(path: &str, read: &'a Read) -> Vec<&'a str> {
    let mut kinds: Vec<&str> = read.darshan.iter().filter_map(|log| log.file_system_of(path)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Bytes of all requests on a file.
fn asked_bytes(file: &FileAccess) -> u128 {
    let counts = file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts);
    counts.map(|(class, count)| u128::from(*count) * u128::from(file.class(*class).request_bytes)).sum()
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
    let limit = activity.most_share();
    let answer = match &judged {
        Some(judged) => judged.answer(laid.files, limit, &loaded.site, options.worth_runs),
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
        (advice.why, advice.layout) = (judging::why(activity), judged.layout(&loaded.site));
        advice.misfit = judged.misfit(activity);
        advice.gain = Some(judged.gain());
        (advice.now, advice.advised) = (Some(judged.now()), Some(judged.advised()));
        advice.ideal = Some(judged.ideal());
        advice.moving = Some(judged.moving());
        advice.coarse = (laid.coarse > 0).then(|| judged.coarse(laid.coarse, laid.files));
        advice.remarks.extend(judged.exported.notes.iter().cloned());
        let refused = judged.exported.refused.iter().map(|file| format!("{}: {}", file.path, file.reason));
        advice.remarks.extend(refused);
        advice.export = Some(judged.exported);
    }
    advice.logs = read.logs;
    advice
}
