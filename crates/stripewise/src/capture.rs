//! Capturing: a directory for the trace, the program under the preload library, and what to say when it has ended.

use crate::launch::{Launch, LaunchError, exit_byte};
use crate::messages::shown;
use crate::paths::{OnPath as _, PathError, PlaceError, absolute};
use crate::progress::Voice;
use crate::relay::{Relay, RelayError};
use crate::store::read_stub;
use crate::{doctor, variables};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use stripewise_capture::format;
use stripewise_layout::output::is_unfinished;
use stripewise_trace::manifest::MANIFEST_NAME;
use stripewise_trace::{Manifest, ManifestError, Process, ReadError, Trace, Warning};
use thiserror::Error;

/// Why a run was not captured.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The directory could not be told from the root.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The trace's manifest could not be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The trace could not be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Something else than a directory.
    #[error("{} exists and is no directory; name another one with -o", shown(path))]
    NoDirectory {
        /// What stands there.
        path: PathBuf,
    },
    /// A directory of other things.
    #[error(
        "{} holds {}, which is no part of a trace; name another directory with -o",
        shown(directory),
        shown(foreign)
    )]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// The first file of it that is no part of a trace.
        foreign: PathBuf,
    },
    /// A trace that was not to be replaced.
    #[error(
        "{} holds a trace already; name another directory with -o, or give --join if this is a part of the same job",
        shown(directory)
    )]
    TraceThere {
        /// The trace.
        directory: PathBuf,
    },
    /// The program was not started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Signals cannot be passed on to the program.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// The program's file is a stub here.
    #[error(
        "the program is a managed file, which only a redirected process can start; `stripewise run --trace DIR` does"
    )]
    Managed,
}

impl CaptureError {
    /// See [`LaunchError::exit_status`].
    #[must_use]
    pub fn exit_status(&self) -> Option<u8> {
        match self {
            Self::Launch(error) => error.exit_status(),
            _ => None,
        }
    }
}

type Result<T> = std::result::Result<T, CaptureError>;

/// A trace directory that a run fills.
pub struct Capture {
    directory: PathBuf,
    /// `None`: another process of the job has made the trace.
    manifest: Option<Manifest>,
    /// Others of the job may be adding to it still.
    is_joint: bool,
}

/// What a finished trace holds.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct CaptureSummary {
    /// Absolute path of its directory.
    pub trace: PathBuf,
    /// Processes that left records.
    pub processes: usize,
    /// Ranks of an MPI program, 0 of any other.
    pub mpi_size: u32,
    /// Records in all.
    pub records: u64,
    /// Records that did not get into the trace: the disk was full.
    pub lost: u64,
    /// Processes that were killed or are still running.
    pub unfinished: usize,
    /// What else is missing or damaged, one sentence each.
    pub warnings: Vec<String>,
    /// Files whose stubs the program saw instead of their data; only without redirection.
    pub stubs: Vec<String>,
}

/// What is to be done with a trace that stands there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Existing {
    /// It stays as it is, and nothing runs.
    #[default]
    Refuse,
    /// Another takes its place.
    Replace,
    /// What runs is a part of the same job, perhaps on another host: its processes are added.
    Join,
}

/// How a program is traced.
#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// The directory that the trace is written to.
    pub output: PathBuf,
    /// A trace that stands there.
    pub existing: Existing,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

/// A traced run.
#[derive(Debug)]
pub struct Captured {
    /// The program's exit status as a shell gives it: 128 + the signal's number for a killed program.
    pub status: u8,
    /// What the trace holds.
    pub summary: CaptureSummary,
}

/// Runs a program to its end and records its reads and writes. Nothing changes for the program;
/// signals sent to this process go on to it.
///
/// # Errors
///
/// [`CaptureError`]. No trace is left behind if the program was not started.
pub fn capture(voice: &Voice, options: &CaptureOptions) -> Result<Captured> {
    let command = &options.command;
    if doctor::starts_managed(command, None) {
        return Err(CaptureError::Managed);
    }
    if let Some(found) = doctor::unredirected(command, None) {
        voice.say(format_args!("warning: {}; it is not captured", found.reason()));
    }
    let relay = Relay::start()?;
    let capture = Capture::start(&options.output, options.existing, command)?;
    let launch = Launch::new(command, &[(variables::TRACE, capture.directory())]);
    let ran = launch.and_then(|launch| launch.run(relay));
    if ran.is_err() {
        capture.discard(options.existing);
    }
    let status = exit_byte(ran?);
    Ok(Captured { status, summary: capture.finish(voice)? })
}

impl Capture {
    /// Makes the directory and its manifest. `existing` says what becomes of a trace that stands there; of anything else nothing does.
    ///
    /// # Errors
    ///
    /// [`CaptureError::TraceThere`], [`CaptureError::Foreign`] or [`CaptureError::NoDirectory`] of what
    /// stands there; [`CaptureError::Path`] or [`CaptureError::Manifest`].
    pub fn start(directory: &Path, existing: Existing, command: &[OsString]) -> Result<Self> {
        let directory = absolute(directory)?;
        if existing != Existing::Join && directory.symlink_metadata().is_ok() {
            clear(&directory, existing == Existing::Replace)?;
        }
        match std::fs::create_dir(&directory) {
            Err(error) if existing == Existing::Join && error.kind() == std::io::ErrorKind::AlreadyExists => {
                parts_of_trace(&directory)?;
                return Ok(Self { directory, manifest: None, is_joint: true });
            }
            made => made.on("create", &directory)?,
        }
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
        let manifest = Manifest::new(host, words, now);
        manifest.write(&directory)?;
        Ok(Self { directory, manifest: Some(manifest), is_joint: existing == Existing::Join })
    }

    /// The directory, absolute.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Nothing ran: no trace either. One that others have part in stays.
    pub fn discard(&self, existing: Existing) {
        if existing != Existing::Join {
            let _ = clear(&self.directory, true);
        }
    }

    /// Whether the process did not come to its end. What others of a job do is theirs to say.
    fn is_unfinished(&self, trace: &Trace, process: &Process) -> bool {
        let is_here = || rustix::system::uname().nodename().to_string_lossy() == *trace.nodes[process.node.0 as usize];
        let is_running = || Path::new(&format!("/proc/{}", process.pid)).exists();
        !process.finished && (!self.is_joint || is_here() && !is_running())
    }

    /// Reads the trace back and completes its manifest.
    ///
    /// # Errors
    ///
    /// [`CaptureError::Read`].
    pub fn finish(mut self, voice: &Voice) -> Result<CaptureSummary> {
        let _waiting = voice.waiting("reading the trace");
        let trace = Trace::open(&self.directory)?;
        let mpi_size = trace.processes.iter().map(|process| process.mpi_size).max().unwrap_or(0);
        // On a full disk the first manifest stays; the records and the counts of what is missing are worth more than an error.
        let unwritten = self.manifest.take().and_then(|mut manifest| {
            manifest.mpi_size = (mpi_size > 0).then_some(mpi_size);
            manifest.write(&self.directory).err().filter(|_| manifest.mpi_size.is_some())
        });
        Ok(CaptureSummary {
            processes: trace.processes.len(),
            mpi_size,
            records: trace.event_count(),
            lost: trace.processes.iter().map(|process| process.lost).sum(),
            unfinished: trace.processes.iter().filter(|process| self.is_unfinished(&trace, process)).count(),
            // Lost and unfinished are counted above.
            warnings: trace
                .warnings
                .iter()
                .filter(|warning| !matches!(warning, Warning::Unfinished { .. } | Warning::Lost { .. }))
                .map(ToString::to_string)
                .chain(unwritten.map(|error| format!("{error}; the trace does not state its number of ranks")))
                .collect(),
            stubs: trace.files.iter().map(|file| file.path.clone()).filter(|path| is_stub(path)).collect(),
            trace: self.directory,
        })
    }
}

fn is_stub(path: &str) -> bool {
    let path = Path::new(path);
    // A FIFO would wait for its other end.
    path.is_file() && std::fs::File::open(path).is_ok_and(|file| matches!(read_stub(&file, path), Ok(Some(_))))
}

/// The files of a trace; what is no part of one is an error.
fn parts_of_trace(directory: &Path) -> Result<Vec<PathBuf>> {
    if !directory.is_dir() {
        return Err(CaptureError::NoDirectory { path: directory.to_owned() });
    }
    let entries = std::fs::read_dir(directory).on("read", directory)?;
    let entries =
        entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>().on("read", directory)?;
    // Who joins a job may find its manifest half written.
    let of_trace = |path: &PathBuf| {
        is_unfinished(path)
            || path.file_name().is_some_and(|name| name == MANIFEST_NAME)
            || path.extension().is_some_and(|extension| extension == format::EXTENSION)
    };
    match entries.iter().find(|path| !of_trace(path)) {
        Some(foreign) => Err(CaptureError::Foreign { directory: directory.to_owned(), foreign: foreign.clone() }),
        None => Ok(entries),
    }
}

/// Removes a trace, file by file; what is no part of one stays and is an error.
fn clear(directory: &Path, force: bool) -> Result<()> {
    let entries = parts_of_trace(directory)?;
    if !entries.is_empty() && !force {
        return Err(CaptureError::TraceThere { directory: directory.to_owned() });
    }
    for path in &entries {
        std::fs::remove_file(path).on("remove", path)?;
    }
    Ok(std::fs::remove_dir(directory).on("remove", directory)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_joins_a_job_while_another_writes_the_manifest_has_part_in_the_trace() {
        let place = tempfile::tempdir().unwrap();
        let trace = place.path().join("job.trace");
        std::fs::create_dir(&trace).unwrap();
        std::fs::write(trace.join(".stripewise-0123456789ab"), "half").unwrap();
        assert!(Capture::start(&trace, Existing::Join, &[]).is_ok());
        std::fs::write(trace.join("notes"), "").unwrap();
        assert!(matches!(Capture::start(&trace, Existing::Join, &[]), Err(CaptureError::Foreign { .. })));
    }
}
