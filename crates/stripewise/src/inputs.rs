//! What a plan is made from: the traces reduced to counts, the profile, free space, and the hashes of all of them.

use crate::data_files::is_data;
use crate::doctor;
use crate::messages::shown;
use crate::paths::{OnPath as _, PathError, PlaceError, absolute};
use crate::plan_space::{self, PlanSpace};
use crate::prefixes::Prefixes;
use crate::recordings::{RecordingError, Recordings};
use crate::session::Session;
use crate::trace_faults::{IncompleteTrace, impossible_requests};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use stripewise_capture::format;
use stripewise_layout::figures::bytes;
use stripewise_layout::text::bytes_of;
use stripewise_layout::{ByteCount, Cluster, Direction};
use stripewise_model::{Caveat, Profile, ProfileError};
use stripewise_planner::{InputPaths, PlanKey, PlanOptions, PlanRequest, PlannedProgram, Sources};
use stripewise_trace::darshan::coarse::Arrangement;
use stripewise_trace::{CountError, CountOptions, FileAccess, ReadError, Trace};
use thiserror::Error;

/// Why there is nothing to plan from.
#[derive(Debug, Error)]
pub enum InputError {
    /// The profile cannot be read or is of another cluster.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A trace cannot be read.
    #[error(transparent)]
    Trace(#[from] ReadError),
    /// Records of a trace are missing, which was not to be.
    #[error(transparent)]
    Incomplete(#[from] IncompleteTrace),
    /// Requests of the traces cannot be counted.
    #[error(transparent)]
    Count(#[from] CountError),
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path could not be told from the root.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Traces without data.
    #[error("{traces}: no reads or writes, so there is nothing to plan for; trace a run that reads or writes files")]
    NoRequests {
        /// Their paths.
        traces: String,
    },
    /// Files that are not planned.
    #[error(
        "{traces}: no file to plan for: {left_out} are smaller than {} or of the system; name files with --file or lower --least-size",
        bytes(least.0)
    )]
    NoFiles {
        /// Paths of the traces.
        traces: String,
        /// Files with requests that are not planned.
        left_out: usize,
        /// Size from which files are planned.
        least: ByteCount,
    },
    /// Files that the traces do not have.
    #[error("{traces}: {unmatched}; `stripewise trace show` lists the paths")]
    NotTraced {
        /// Paths of the traces.
        traces: String,
        /// Says which prefixes begin none of their paths.
        unmatched: String,
    },
}

type Result<T> = std::result::Result<T, InputError>;

impl From<RecordingError> for InputError {
    fn from(error: RecordingError) -> Self {
        match error {
            RecordingError::Read(error) => Self::Trace(error),
            RecordingError::Incomplete(error) => Self::Incomplete(error),
        }
    }
}

/// Which files are planned, and for which windows.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Files whose path begins so, as it was given or with links resolved. None: all files of data but small ones.
    pub prefixes: Vec<PathBuf>,
    /// Size from which files are planned, unless `prefixes` names them.
    pub least: ByteCount,
    /// Length of a window, in which one placement holds.
    pub window_s: f64,
}

/// What a plan is made from.
pub(crate) struct Inputs {
    profile: Profile,
    files: Vec<FileAccess>,
    key: PlanKey,
    sources: Sources,
    /// What counters leave open, planned as the other extreme; `None`: they decide it, or all requests are known.
    other: Option<Vec<FileAccess>>,
    /// Empty until it was asked.
    free_bytes: Vec<Option<u64>>,
    /// What a person should know of the choice of files.
    pub(crate) remarks: Vec<String>,
}

impl Inputs {
    pub(crate) fn read(
        cluster: &Cluster,
        cluster_path: &Path,
        profile_path: &Path,
        trace_paths: &[PathBuf],
        selection: &Selection,
        is_strict: bool,
    ) -> Result<Self> {
        let mut profile = Profile::load(profile_path)?;
        profile.check(cluster, profile_path)?;
        let recordings = Recordings::open(trace_paths, is_strict, program_of)?;
        let mut remarks = recordings.warnings.clone();
        let options =
            CountOptions { window_s: selection.window_s, region_size: cluster.region_size, ..CountOptions::default() };
        let counted = recordings.count(&options, Arrangement::Apart)?;
        if counted.impossible > 0 {
            remarks.push(impossible_requests(counted.impossible));
        }
        let named = trace_paths.iter().map(|path| shown(path)).collect::<Vec<_>>().join(", ");
        if counted.files.is_empty() {
            return Err(InputError::NoRequests { traces: named });
        }
        let prefixes = Prefixes::new(&selection.prefixes);
        let unmatched = prefixes.unmatched(counted.files.iter().map(|file| file.path.as_str()));
        let (files, left_out) = selection.choose(&prefixes, counted.files.clone());
        let (files, unnamed): (Vec<FileAccess>, Vec<FileAccess>) = files.into_iter().partition(can_be_managed);
        if let Some(first) = unnamed.first() {
            let (name, others) = (shown(&name_of(&first.path)), unnamed.len() - 1);
            let others = if others > 0 { format!(" and {others} others") } else { String::new() };
            remarks.push(format!("left out {name}{others}: managed files have names in UTF-8"));
        }
        if let Some(unmatched) = unmatched {
            if files.is_empty() {
                return Err(InputError::NotTraced { traces: named, unmatched });
            }
            remarks.push(unmatched);
        }
        if files.is_empty() {
            return Err(InputError::NoFiles { traces: named, left_out, least: selection.least });
        }
        if left_out > 0 {
            remarks.push(format!(
                "left out {left_out} files: smaller than {}, of the system, or not named",
                bytes(selection.least.0)
            ));
        }
        let (coarse, is_open) = counted.coarse_of(&files);
        let other = match is_open {
            true => {
                let (mut other, _) =
                    selection.choose(&prefixes, recordings.count(&options, Arrangement::Together)?.files);
                other.retain(can_be_managed);
                Some(other)
            }
            false => None,
        };
        if !coarse.is_empty() {
            remarks.push(format!(
                "of {} of {} only counters are known, not the requests (DXT_ENABLE_IO_TRACE=1 records them): they are taken to be spread evenly over the file",
                coarse.len(),
                counted_files(files.len())
            ));
        }
        profile.caveats.extend(assumed_writes(&recordings.traces, &coarse, &files));
        let key = key_of(recordings.programs);
        Ok(Self {
            sources: Sources {
                cluster_sha256: hash(cluster_path)?,
                profile_sha256: hash(profile_path)?,
                trace_sha256: hash_traces(trace_paths)?,
                inputs: Some(InputPaths {
                    profile: absolute_text(profile_path)?,
                    traces: trace_paths.iter().map(|path| absolute_text(path)).collect::<Result<_>>()?,
                    window_s: selection.window_s,
                }),
            },
            other,
            free_bytes: Vec::new(),
            key,
            profile,
            files,
            remarks,
        })
    }

    /// The hashes of all that was read.
    pub(crate) fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Finds out what the files may take on the servers; names of servers that are drained. What is not known is said in a remark.
    pub(crate) fn find_space(&mut self, session: &Session, cluster: &Cluster) -> Vec<String> {
        let paths = self.files.iter().filter_map(|file| String::from_utf8(bytes_of(&file.path)).ok()).collect();
        let PlanSpace { free_bytes, drained, remarks } = plan_space::find(session, cluster, &paths);
        self.free_bytes = free_bytes;
        self.remarks.extend(remarks);
        drained
    }

    /// Leaves out the files whose path is not wanted.
    pub(crate) fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.files.retain(|file| wanted(&file.path));
        if let Some(other) = &mut self.other {
            other.retain(|file| wanted(&file.path));
        }
    }

    /// As [`Self::request`], of the other extreme of what counters leave open, if they leave any.
    pub(crate) fn other_request<'a>(&'a self, cluster: &'a Cluster, options: PlanOptions) -> Option<PlanRequest<'a>> {
        let files = self.other.as_deref()?;
        Some(PlanRequest { files, ..self.request(cluster, options) })
    }

    pub(crate) fn request<'a>(&'a self, cluster: &'a Cluster, options: PlanOptions) -> PlanRequest<'a> {
        PlanRequest {
            cluster,
            profile: &self.profile,
            files: &self.files,
            key: self.key.clone(),
            sources: self.sources.clone(),
            options,
            free_bytes: &self.free_bytes,
            promises_whole_regions: true,
            concurrency: None,
        }
    }
}

/// The name that a path of a trace stands for.
fn name_of(path: &str) -> PathBuf {
    OsString::from_vec(bytes_of(path)).into()
}

/// Whether the mapping table can name the file.
fn can_be_managed(file: &FileAccess) -> bool {
    String::from_utf8(bytes_of(&file.path)).is_ok()
}

fn counted_files(count: usize) -> String {
    stripewise_layout::figures::counted(count, "file", "files")
}

/// The caveat about those of the planned files whose writes the traces do not tell apart; counters never do.
fn assumed_writes(traces: &[Trace], coarse: &BTreeSet<String>, files: &[FileAccess]) -> Option<Caveat> {
    let assumed: BTreeSet<&str> = traces
        .iter()
        .flat_map(|trace| &trace.files)
        .filter(|file| file.has_assumed_writes())
        .map(|file| file.path.as_str())
        .collect();
    let is_written = |file: &&FileAccess| file.classes.iter().any(|class| class.direction() == Direction::Write);
    let is_assumed =
        |file: &&FileAccess| assumed.contains(file.path.as_str()) || (coarse.contains(&file.path) && is_written(file));
    let mut paths = files.iter().filter(is_assumed).map(|file| &file.path);
    let path = paths.next()?.clone();
    Some(Caveat::AssumedWrites { files: 1 + paths.count() as u64, path })
}

/// A path as a plan file carries it.
fn absolute_text(path: &Path) -> Result<String> {
    Ok(absolute(path)?.to_string_lossy().into_owned())
}

impl Selection {
    /// The files to plan, and how many are left out; `prefixes` are [`Self::prefixes`].
    fn choose(&self, prefixes: &Prefixes, files: Vec<FileAccess>) -> (Vec<FileAccess>, usize) {
        let all = files.len();
        let wanted = |file: &FileAccess| {
            let path = Path::new(&file.path);
            if prefixes.is_empty() {
                is_data(path) && file.size_bytes >= self.least.0
            } else {
                prefixes.name(&file.path)
            }
        };
        let chosen: Vec<FileAccess> = files.into_iter().filter(wanted).collect();
        let left_out = all - chosen.len();
        (chosen, left_out)
    }
}

/// The programs of all traces, the one of the first trace first.
fn key_of(programs: Vec<PlannedProgram>) -> PlanKey {
    let mut programs = programs.into_iter();
    let Some(PlannedProgram { application, processes, started_as }) = programs.next() else {
        return PlanKey::new("", 0);
    };
    PlanKey { application, processes, started_as, with: programs.collect() }
}

/// The program that made the most calls, how many processes it had, and by which name the traced command started it.
fn program_of(trace: &Trace) -> PlannedProgram {
    let mut calls: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
    for process in &trace.processes {
        let name = process.program.rsplit('/').next().unwrap_or(&process.program);
        let (events, processes) = calls.entry(name).or_default();
        *events += process.events;
        *processes += 1;
    }
    let busiest = calls.into_iter().max_by_key(|(_, (events, _))| *events);
    let (application, processes) =
        busiest.map_or((String::new(), 1), |(name, (_, processes))| (name.to_owned(), processes));
    // A run of MPI has as many processes as it has ranks, whatever else was started with it.
    let processes = if trace.mpi_size() == 0 { processes } else { trace.mpi_size() };
    let words = trace.manifest.iter().flat_map(|manifest| &manifest.command);
    let started_as = doctor::name_behind(&words.map(OsString::from).collect::<Vec<_>>());
    PlannedProgram { started_as: started_as.filter(|name| *name != application), application, processes }
}

fn hash(path: &Path) -> Result<String> {
    let mut file = File::open(path).on("read", path)?;
    Ok(Sources::hash_reader(&mut file).on("read", path)?)
}

/// Of one trace its own hash; of several, the hash of their hashes in order.
pub(crate) fn hash_traces(paths: &[PathBuf]) -> Result<String> {
    let hashes = paths.iter().map(|path| hash_trace(path)).collect::<Result<Vec<String>>>()?;
    Ok(if let [only] = &hashes[..] { only.clone() } else { Sources::hash(hashes.concat().as_bytes()) })
}

/// Of the process files of a trace directory, one after the other in the order of their names; of the file otherwise.
fn hash_trace(path: &Path) -> Result<String> {
    if !path.is_dir() {
        return hash(path);
    }
    let entries = std::fs::read_dir(path).on("read", path)?;
    let mut names: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    names.retain(|name| name.extension().is_some_and(|found| found == format::EXTENSION || found == "out"));
    names.sort();
    let mut reader: Box<dyn std::io::Read> = Box::new(std::io::empty());
    for name in &names {
        let file = File::open(name).on("read", name)?;
        reader = Box::new(std::io::Read::chain(reader, file));
    }
    Ok(Sources::hash_reader(&mut reader).on("read", path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, size_bytes: u64) -> FileAccess {
        FileAccess {
            path: path.into(),
            size_bytes,
            region_size: ByteCount(1 << 20),
            classes: Vec::new(),
            windows: Vec::new(),
        }
    }

    #[test]
    fn data_files_are_planned_and_others_are_not() {
        let files = || {
            vec![
                file("/usr/lib/big.so", 9 << 20),
                file("/d/small", 10),
                file("/d/data", 9 << 20),
                file("pipe", 9 << 20),
                file("/dev/shm/ucx_shm_posix_1", 9 << 20),
                file("/dev/shm/run/data", 9 << 20),
            ]
        };
        let names = |selection: &Selection| {
            let (chosen, left_out) = selection.choose(&Prefixes::new(&selection.prefixes), files());
            (chosen.into_iter().map(|file| file.path).collect::<Vec<_>>(), left_out)
        };
        let mut selection = Selection { prefixes: Vec::new(), least: ByteCount(1 << 20), window_s: 600.0 };
        assert_eq!(names(&selection), (vec!["/d/data".to_owned(), "/dev/shm/run/data".to_owned()], 4));
        selection.prefixes = vec!["/d/sm".into(), "/usr/lib".into()];
        assert_eq!(names(&selection), (vec!["/usr/lib/big.so".to_owned(), "/d/small".to_owned()], 4));
    }
}
