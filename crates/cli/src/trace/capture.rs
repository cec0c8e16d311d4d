//! Capturing: a directory for the trace, the program under the preload library, and what to say when it has ended.

use crate::context::Context;
use crate::doctor;
use crate::launch::{Launch, TRACE_VARIABLE, exit_byte};
use crate::output::Verdict;
use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use stripewise::Voice;
use stripewise::paths::absolute;
use stripewise::relay::Relay;
use stripewise::store::read_stub;
use stripewise_capture::format;
use stripewise_layout::figures::counted;
use stripewise_trace::manifest::MANIFEST_NAME;
use stripewise_trace::{Manifest, Trace, Warning};

/// A trace directory that a run fills.
pub(crate) struct Capture {
    directory: PathBuf,
    manifest: Manifest,
}

/// What a finished trace holds.
#[derive(Serialize)]
pub(crate) struct CaptureSummary {
    pub(crate) trace: PathBuf,
    pub(crate) processes: usize,
    pub(crate) mpi_size: u32,
    pub(crate) records: u64,
    /// Records that did not get into the trace: the disk was full.
    pub(crate) lost: u64,
    /// Processes that were killed or are still running.
    pub(crate) unfinished: usize,
    pub(crate) warnings: Vec<String>,
    /// Files whose stubs the program saw instead of their data; only without redirection.
    pub(crate) stubs: Vec<String>,
}

impl Capture {
    /// Makes the directory and its manifest. A trace that stands there is replaced only if `force` says so, and nothing but a trace is.
    pub(crate) fn start(directory: &Path, force: bool, command: &[OsString]) -> Result<Self> {
        let directory = absolute(directory)?;
        if directory.symlink_metadata().is_ok() {
            clear(&directory, force)?;
        }
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let words = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
        let manifest = Manifest::new(host, words, now);
        manifest.write(&directory)?;
        Ok(Self { directory, manifest })
    }

    /// The directory, absolute.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Nothing ran: no trace either.
    pub(crate) fn discard(&self) {
        let _ = clear(&self.directory, true);
    }

    /// Reads the trace back and completes its manifest.
    pub(crate) fn finish(mut self, voice: &Voice) -> Result<CaptureSummary> {
        let _waiting = voice.waiting("reading the trace");
        let trace = Trace::open(&self.directory)?;
        let mpi_size = trace.processes.iter().map(|process| process.mpi_size).max().unwrap_or(0);
        self.manifest.mpi_size = (mpi_size > 0).then_some(mpi_size);
        // On a full disk the first manifest stays; the records and the counts of what is missing are worth more than an error.
        let unwritten = self.manifest.write(&self.directory).err().filter(|_| self.manifest.mpi_size.is_some());
        Ok(CaptureSummary {
            processes: trace.processes.len(),
            mpi_size,
            records: trace.event_count(),
            lost: trace.processes.iter().map(|process| process.lost).sum(),
            unfinished: trace.processes.iter().filter(|process| !process.finished).count(),
            // Lost and unfinished are counted above.
            warnings: trace
                .warnings
                .iter()
                .filter(|warning| !matches!(warning, Warning::Unfinished { .. } | Warning::Lost { .. }))
                .map(ToString::to_string)
                .chain(unwritten.map(|error| format!("{error}; the trace does not tell its number of ranks")))
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

/// Removes a trace, file by file; what is no part of one stays and is an error.
fn clear(directory: &Path, force: bool) -> Result<()> {
    if !directory.is_dir() {
        bail!("{} exists and is no directory; name another one with -o", directory.display());
    }
    let entries = std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let entries = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let of_trace = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name == MANIFEST_NAME)
            || path.extension().is_some_and(|extension| extension == format::EXTENSION)
    };
    if let Some(foreign) = entries.iter().find(|path| !of_trace(path)) {
        bail!(
            "{} holds {}, which is no part of a trace; name another directory with -o",
            directory.display(),
            foreign.display()
        );
    }
    if !entries.is_empty() && !force {
        bail!("{} holds a trace already; name another directory with -o", directory.display());
    }
    for path in &entries {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    std::fs::remove_dir(directory).with_context(|| format!("cannot remove {}", directory.display()))
}

pub(super) fn run(context: &Context, output: &Path, force: bool, command: &[OsString]) -> Result<Verdict> {
    if doctor::starts_managed(command, None) {
        bail!(
            "the program is a managed file, which only a redirected process can start; `stripewise run --trace DIR` does"
        );
    }
    if let Some(found) = doctor::unredirected(command, None) {
        context.say(format_args!("warning: {}; it is not captured", found.reason()));
    }
    let relay = Relay::start()?;
    let capture = Capture::start(output, force, command)?;
    let launch = Launch::new(command, &[(TRACE_VARIABLE, capture.directory())]);
    let ran = launch.and_then(|launch| launch.run(relay));
    if ran.is_err() {
        capture.discard();
    }
    let status = ran?;
    let summary = capture.finish(context.voice())?;
    tell(context, &summary)?;
    for path in &summary.stubs {
        context.say(format_args!(
            "{path} is a managed file, and the program saw its stub; trace it with `stripewise run --trace`"
        ));
    }
    Ok(Verdict::Program(exit_byte(status)))
}

/// Says what a capture brought; numbers to standard output only as JSON, since the program's own output is there.
pub(crate) fn tell(context: &Context, summary: &CaptureSummary) -> Result<()> {
    if context.json {
        context.object(summary)?;
    } else {
        let mpi = if summary.mpi_size > 0 { format!(" (MPI, {} ranks)", summary.mpi_size) } else { String::new() };
        context.say(format_args!(
            "{}: {} of {}{mpi}",
            summary.trace.display(),
            counted(summary.records as usize, "record", "records"),
            counted(summary.processes, "process", "processes")
        ));
    }
    if summary.processes == 0 {
        context.say("no process was captured; `stripewise doctor` tells what stands in the way");
    }
    if summary.lost > 0 {
        context.say(format_args!(
            "{} lost: there was no room to write",
            counted(summary.lost as usize, "record was", "records were")
        ));
    }
    if summary.unfinished > 0 {
        context.say(format_args!(
            "{} not finish the trace (killed, or still running); what was done until then is in it",
            counted(summary.unfinished, "process did", "processes did")
        ));
    }
    for warning in &summary.warnings {
        context.say(warning);
    }
    Ok(())
}
