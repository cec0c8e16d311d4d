//! A recorded trace or a benchmark as a real run.
//!
//! The replay writes what each rank does into one script file, compiles a small C program with the machine's MPI (or without), and
//! starts it with as many ranks. That program does the requests and tells times; nothing of Stripewise is in it, so that a redirected
//! replay goes the way of any program.

mod script;
mod target;

use crate::programs::{self, Compiler};
use anyhow::{Context as _, Result, bail, ensure};
use script::{Script, ScriptFile};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use stripewise::Session;
use stripewise::paths::absolute;
use stripewise::scratch;
use stripewise::workload::Source;
use stripewise_layout::figures::counted;
use stripewise_store::server::emulated::is_emulated;
use stripewise_trace::{FileShape, Pacing, Program, RecordedOptions};
use target::Wishes;
use tempfile::TempDir;

const PROGRAM: programs::Source = programs::Source {
    name: "replay_io",
    text: include_str!("replay/replay_io.c"),
    headers: &[
        ("ranks_mpi.h", include_str!("replay/ranks_mpi.h")),
        ("ranks_posix.h", include_str!("replay/ranks_posix.h")),
    ],
};

/// Which processes make the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interface {
    /// Plain processes with pread and pwrite.
    Posix,
    /// MPI-IO under MPICH.
    Mpich,
    /// MPI-IO under Open MPI.
    OpenMpi,
}

impl Interface {
    fn name(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
        }
    }

    fn compiler(self) -> Compiler {
        match self {
            Self::Posix => Compiler::Plain,
            Self::Mpich => Compiler::Mpich,
            Self::OpenMpi => Compiler::OpenMpi,
        }
    }
}

/// What is replayed, and how.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplayOptions {
    /// A trace, or a benchmark such as `ior:size=1GiB,transfer=64KiB,op=read`.
    pub workload: String,
    /// Of a trace, only the requests on these files; all where none is named.
    pub files: Vec<PathBuf>,
    /// Where the workload's files go, rather than where they name themselves.
    pub directory: Option<PathBuf>,
    /// Under `stripewise run`, on the managed files of the cluster.
    pub redirect: bool,
    pub interface: Interface,
    /// Of a benchmark in place of its own number, of a trace the first so many.
    pub processes: Option<u32>,
    /// By which think times, or the trace's own times, are multiplied; 0 to 1,000,000.
    pub scale_time: f64,
    /// Make a trace's requests at its own times, rather than after the time that lay between them.
    pub own_times: bool,
    /// Length in seconds of the phases that a trace is cut into.
    pub window_s: Option<f64>,
    /// Write data that tell their place, and compare all that is read with them.
    pub verify: bool,
    /// Write over files that stand there.
    pub force: bool,
    /// Keep the files that the replay makes.
    pub keep: bool,
}

/// What the C program prints.
#[derive(Deserialize, Serialize, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Measured {
    /// MPI processes.
    pub ranks: u32,
    /// From the agreed start of all ranks to the end of the last request, in seconds.
    pub seconds: f64,
    /// Of all reads.
    pub read: Direction,
    /// Of all writes.
    pub write: Direction,
    /// In the order of the program.
    pub phases: Vec<Phase>,
    /// Between the first and the last rank's start.
    pub start_skew_s: f64,
    /// How late ranks were in issuing requests at their times, in seconds.
    pub lateness_s: f64,
    /// Mean seconds that a rank took to make and compare data; part of `seconds`.
    pub verify_s: f64,
    /// Absent without --verify.
    pub verified: Option<bool>,
    /// Only of runs that were asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<Slices>,
}

/// Bytes over time.
#[derive(Clone, Deserialize, Serialize, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Slices {
    /// The agreed start by the clock that no change of the date disturbs, the same for all processes of a host.
    pub started_ns: u64,
    /// Seconds of a slice.
    pub slice_s: f64,
    /// When the first request of each phase began, since the start.
    pub phases_s: Vec<f64>,
    /// Of requests that ended in the slice.
    pub bytes: Vec<u64>,
}

impl Measured {
    /// From what a run of the program printed.
    fn find(printed: &str) -> Option<Result<Self>> {
        let line = printed.lines().find(|line| line.starts_with('{'))?;
        Some(serde_json::from_str(line).context("reading what the replay measured"))
    }
}

#[derive(Deserialize, Serialize, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Direction {
    /// Bytes of the requests.
    pub bytes: u64,
    /// Seconds of the stages in which requests of that direction were under way.
    pub seconds: f64,
    /// Million bytes per second.
    pub bandwidth_mb_s: f64,
    /// Requests of all ranks.
    pub requests: u64,
    /// Median time of a request, in seconds.
    pub latency_p50_s: f64,
    /// Not exceeded by 95 % of the requests.
    pub latency_p95_s: f64,
    /// Not exceeded by 99 % of the requests.
    pub latency_p99_s: f64,
}

#[derive(Deserialize, Serialize, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Phase {
    /// In which requests are under way.
    pub seconds: f64,
    /// Of reads.
    pub read: PhaseDirection,
    /// Of writes.
    pub write: PhaseDirection,
}

impl Phase {
    /// In both directions.
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }
}

/// One direction of a phase.
#[derive(Deserialize, Serialize, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PhaseDirection {
    /// Bytes of the requests.
    pub bytes: u64,
    /// Seconds of the stages in which requests of that direction were under way.
    pub seconds: f64,
    /// Million bytes per second.
    pub bandwidth_mb_s: f64,
}

/// What a replay came to.
#[derive(Serialize, Debug)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Replayed {
    /// As it was named.
    pub workload: String,
    /// Which calls the ranks issue.
    pub interface: &'static str,
    /// Whether the program ran under redirection.
    pub redirected: bool,
    /// Whether servers of the cluster have the times of emulated devices.
    pub emulated: bool,
    /// Files that the ranks read or wrote.
    pub files: usize,
    /// Those of them that are managed, so that servers of the cluster served them; 0 without redirection.
    pub managed_files: usize,
    /// What the program measured.
    #[serde(flatten)]
    pub measured: Measured,
}

impl Replayed {
    /// Whether nothing that was read is other than what was written.
    pub fn is_right(&self) -> bool {
        self.measured.verified != Some(false)
    }
}

/// Runs a workload for real.
///
/// # Errors
/// When the workload or the options are wrong, files are in the way, or the program failed.
pub fn replay(session: &Session, options: &ReplayOptions) -> Result<Replayed> {
    ensure!(
        (0.0..=1e6).contains(&options.scale_time),
        "--scale-time {}: want a factor from 0 to 1000000",
        options.scale_time
    );
    let emulated = match options.redirect {
        true => session.cluster()?.servers.iter().any(|server| is_emulated(&server.url)),
        false => false,
    };
    let work = Work::make()?;
    let Prepared { ranks, files } = prepare(session, options, &work.script())?;
    let managed_files = if options.redirect { target::count_managed(session, &files)? } else { 0 };
    let measured = launch(session, options, &work, ranks)?;
    let (workload, interface) = (options.workload.clone(), options.interface.name());
    let (redirected, files) = (options.redirect, files.len());
    Ok(Replayed { workload, interface, redirected, emulated, files, managed_files, measured })
}

/// What is about to be run.
struct Prepared {
    ranks: u32,
    /// Paths of the files that the ranks read or write.
    files: Vec<PathBuf>,
}

/// Writes the script.
fn prepare(session: &Session, arguments: &ReplayOptions, script_path: &Path) -> Result<Prepared> {
    let workload = &arguments.workload;
    let _waiting = session.voice().waiting("writing what each process does");
    let source = Source::open(workload, arguments.processes)?;
    let scale = arguments.scale_time;
    let pacing = if arguments.own_times { Pacing::OwnTimes { scale: 1.0 } } else { Pacing::Gaps { scale: 1.0 } };
    let options = RecordedOptions { pacing, window_s: arguments.window_s, ..RecordedOptions::default() };
    let for_traces = arguments.own_times || arguments.window_s.is_some() || !arguments.files.is_empty();
    if matches!(source, Source::Benchmark(_)) && for_traces {
        bail!(
            "--own-times, --window and --file are for traces; {workload} is a benchmark and has parameters of its own"
        );
    }
    let program = source.program(&options, &arguments.files)?;
    let ranks = arguments.processes.unwrap_or(program.processes());
    ensure!(
        ranks <= program.processes(),
        "--processes {ranks}: the trace has {}",
        counted(program.processes() as usize, "process", "processes")
    );
    let directory = arguments.directory.as_deref();
    let wishes = Wishes { directory, redirect: arguments.redirect, force: arguments.force, keep: arguments.keep };
    let paths = target::paths(program.files(), wishes.directory)?;
    let script = Script::write(script_path, &*program, ranks, paths.clone(), scale)?;
    ensure!(script.requests > 0, "the first {ranks} processes of {workload} make no request");
    // Only files that those processes touch matter.
    let used: Vec<PathBuf> = used(&paths, &script);
    target::make_directories(&used, directory)?;
    let decided = paths.iter().zip(program.files()).zip(&script.uses);
    let files: Vec<ScriptFile> =
        decided.map(|((path, shape), found)| target::decide(path, shape, found, &wishes)).collect::<Result<_>>()?;
    if !arguments.redirect {
        target::check_space(&files, &script.uses)?;
    }
    script.finish(&files)?;
    Ok(Prepared { ranks, files: used })
}

fn used(paths: &[PathBuf], script: &Script) -> Vec<PathBuf> {
    let uses = paths.iter().zip(&script.uses).filter(|(_, found)| found.reads || found.writes);
    uses.map(|(path, _)| path.clone()).collect()
}

/// Runs the C program; returns what it measured.
fn launch(session: &Session, arguments: &ReplayOptions, work: &Work, ranks: u32) -> Result<Measured> {
    let program = programs::compile(&PROGRAM, arguments.interface.compiler(), work.0.path())?;
    let mut words: Vec<OsString> = Vec::new();
    if arguments.redirect {
        let own = std::env::current_exe().context("cannot determine where this executable is")?;
        words.extend([own.into(), "--cluster".into(), absolute(&session.cluster_path())?.into()]);
        words.extend(["run".into(), "--".into()]);
    }
    if arguments.interface != Interface::Posix {
        let launcher = programs::write_launcher(work.0.path())?;
        words.extend([launcher.into(), "-n".into(), ranks.to_string().into()]);
    }
    words.extend([program.into(), work.script().into()]);
    words.extend(arguments.verify.then(|| "--verify".into()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::piped());
    command.env("STRIPEWISE_MPI", if arguments.interface == Interface::OpenMpi { "openmpi" } else { "mpich" });
    let (status, printed) = programs::finish(command, Some((session.voice(), "replaying")))?;
    // A launcher has its own status for ranks that end with 1; wrong data are told in the line.
    let Some(measured) = Measured::find(&printed).filter(|_| status.code().is_some()) else {
        bail!("the replay failed ({status}); its messages stand above");
    };
    let measured = measured?;
    let good = measured.verified != Some(false);
    ensure!(status.success() || !good, "the replay failed after it was measured ({status}); its messages stand above");
    Ok(measured)
}

/// The C program, compiled once, for commands that start it themselves.
pub(crate) struct Player {
    directory: PathBuf,
    program: PathBuf,
    /// Of MPI's ranks.
    launcher: Option<PathBuf>,
}

/// What a program's processes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ranks {
    /// MPI's, with its I/O.
    Mpi,
    /// Forked, which takes a tenth of the time, with pread and pwrite.
    Forked,
}

impl Player {
    /// In a directory that exists.
    pub(crate) fn compile(directory: &Path, ranks: Ranks) -> Result<Self> {
        let (compiler, launcher) = match ranks {
            Ranks::Mpi => (Compiler::Mpich, Some(programs::write_launcher(directory)?)),
            Ranks::Forked => (Compiler::Plain, None),
        };
        let program = programs::compile(&PROGRAM, compiler, directory)?;
        Ok(Self { directory: directory.to_owned(), program, launcher })
    }

    /// The words that run a program with all its processes on files that stand at `paths`, data compared with what an earlier run has written.
    /// They hold until the next call.
    pub(crate) fn words(&self, program: &dyn Program, paths: &[PathBuf]) -> Result<Vec<OsString>> {
        let path = self.directory.join("script");
        if path.exists() {
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        let script = Script::write(&path, program, program.processes(), paths.to_vec(), 1.0)?;
        let file = |(path, shape): (&PathBuf, &FileShape)| ScriptFile {
            path: path.clone(),
            size_bytes: shape.size_bytes,
            prepare: false,
            remove: false,
        };
        script.finish(&paths.iter().zip(program.files()).map(file).collect::<Vec<_>>())?;
        let ranks = program.processes().to_string();
        let launched = self.launcher.iter().flat_map(|launcher| [launcher.into(), "-n".into(), ranks.clone().into()]);
        Ok(launched.chain([self.program.clone().into(), path.into(), "--verify".into()]).collect())
    }

    /// As [`Self::words`], the program running `command` with a phase's number at the begin of every phase but the first.
    pub(crate) fn marking_words(
        &self,
        program: &dyn Program,
        paths: &[PathBuf],
        command: OsString,
    ) -> Result<Vec<OsString>> {
        let mut words = self.words(program, paths)?;
        words.extend(["--mark".into(), command]);
        Ok(words)
    }

    /// What to add to the words so that the bytes of every slice of time are told.
    pub(crate) fn slicing(slice: Duration) -> [OsString; 2] {
        ["--slice".into(), slice.as_nanos().to_string().into()]
    }

    /// What a run of those words printed.
    pub(crate) fn measured(printed: &str) -> Result<Measured> {
        Measured::find(printed).context("the replay failed; its messages stand above")?
    }
}

/// A directory for script and program; goes when the replay ends.
struct Work(TempDir);

impl Work {
    fn make() -> Result<Self> {
        Ok(Self(scratch::directory(&std::env::temp_dir(), "replay")?))
    }

    fn script(&self) -> PathBuf {
        self.0.path().join("script")
    }
}
