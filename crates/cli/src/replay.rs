//! `stripewise replay`: a recorded trace or a benchmark as a real run.
//!
//! The command writes what each rank does into one script file, compiles a small C program with the machine's MPI (or without), and
//! starts it with as many ranks. That program does the requests and tells times; nothing of Stripewise is in it, so that a redirected
//! replay goes the way of any program.

mod script;
mod source;
mod target;

use crate::context::{Context, absolute};
use crate::output::Verdict;
use crate::programs::{self, Compiler};
use crate::progress::Waiting;
use crate::scratch;
use crate::seconds;
use crate::table::Table;
use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use script::{Script, ScriptFile};
use serde::{Deserialize, Serialize};
pub(crate) use source::Source;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use stripewise_layout::ServerUrl;
use stripewise_layout::figures::{bytes, counted, duration, number};
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

/// Replay a recorded trace or a benchmark as a real run, and tell how fast it was
///
/// A workload is a trace, or a benchmark with its parameters: see docs/workloads.md, or `--list`. Files that are missing are made and
/// afterwards removed; files that stand there are never written without --force. Bandwidth is of the time from the first request to the last,
/// between two barriers each; computing between bursts is not in it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise replay ior:pattern=zipf,size=1GiB,region=4MiB,transfer=64KiB --directory /scratch
  stripewise replay run.trace --directory /scratch/copy --no-think
  stripewise replay btio:class=A,processes=4 --directory data --redirect
  stripewise replay checkpoint:state=16MiB,compute=1s --posix --verify --directory /scratch
  stripewise replay --list")]
pub(crate) struct ReplayArgs {
    /// A trace, or a benchmark such as ior:size=1GiB,transfer=64KiB,op=read
    #[arg(required_unless_present = "list", value_name = "WORKLOAD")]
    workload: Option<String>,

    /// List the benchmarks with their parameters
    #[arg(long, conflicts_with = "workload")]
    list: bool,

    /// Of a trace, only the requests on this file; may be given several times
    #[arg(long, value_name = "PATH")]
    file: Vec<PathBuf>,

    /// Put the workload's files into this directory rather than where they name themselves
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Run under `stripewise run`, on the managed files of the cluster
    #[arg(long)]
    redirect: bool,

    /// Plain processes and pread/pwrite rather than MPI
    #[arg(long, conflicts_with = "mpi")]
    posix: bool,

    /// Which MPI
    #[arg(long, value_name = "MPI", value_enum, default_value_t = Mpi::Mpich)]
    mpi: Mpi,

    /// Processes: of a benchmark in place of its own number, of a trace the first so many
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    processes: Option<u32>,

    /// Multiply think times, or the trace's own times, by this
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, allow_negative_numbers = true)]
    scale_time: f64,

    /// No computing between requests: as --scale-time 0
    #[arg(long, conflicts_with_all = ["scale_time", "own_times"])]
    no_think: bool,

    /// Make a trace's requests at its own times, rather than after the time that lay between them
    #[arg(long)]
    own_times: bool,

    /// Cut a trace into phases of this length, at which all processes meet
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    window: Option<f64>,

    /// Write data that tell their place, and compare all that is read with them; files that stand there must be an earlier replay's
    #[arg(long)]
    verify: bool,

    /// Write over files that stand there
    #[arg(long)]
    force: bool,

    /// Keep the files that the replay makes
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Mpi {
    Mpich,
    #[value(name = "openmpi")]
    OpenMpi,
}

/// What the C program prints.
#[derive(Deserialize, Serialize, Debug)]
pub(crate) struct Measured {
    ranks: u32,
    seconds: f64,
    pub(crate) read: Direction,
    pub(crate) write: Direction,
    pub(crate) phases: Vec<Phase>,
    /// Between the first and the last rank's start.
    pub(crate) start_skew_s: f64,
    lateness_s: f64,
    verify_s: f64,
    /// Absent without --verify.
    pub(crate) verified: Option<bool>,
    /// Only of runs that were asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slices: Option<Slices>,
}

/// Bytes over time.
#[derive(Clone, Deserialize, Serialize, Debug)]
pub(crate) struct Slices {
    /// The agreed start by the clock that no change of the date disturbs, the same for all processes of a host.
    pub(crate) started_ns: u64,
    pub(crate) slice_s: f64,
    /// When the first request of each phase began, since the start.
    pub(crate) phases_s: Vec<f64>,
    /// Of requests that ended in the slice.
    pub(crate) bytes: Vec<u64>,
}

impl Measured {
    /// From what a run of the program printed.
    fn find(printed: &str) -> Option<Result<Self>> {
        let line = printed.lines().find(|line| line.starts_with('{'))?;
        Some(serde_json::from_str(line).context("reading what the replay measured"))
    }
}

#[derive(Deserialize, Serialize, Debug)]
pub(crate) struct Direction {
    pub(crate) bytes: u64,
    seconds: f64,
    bandwidth_mb_s: f64,
    requests: u64,
    latency_p50_s: f64,
    latency_p95_s: f64,
    latency_p99_s: f64,
}

#[derive(Deserialize, Serialize, Debug)]
pub(crate) struct Phase {
    /// In which requests are under way.
    pub(crate) seconds: f64,
    read: PhaseDirection,
    write: PhaseDirection,
}

impl Phase {
    /// In both directions.
    pub(crate) fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }
}

#[derive(Deserialize, Serialize, Debug)]
struct PhaseDirection {
    bytes: u64,
    seconds: f64,
    bandwidth_mb_s: f64,
}

#[derive(Serialize)]
struct Replayed<'a> {
    workload: &'a str,
    interface: &'static str,
    redirected: bool,
    /// Whether servers of the cluster have the times of emulated devices.
    emulated: bool,
    #[serde(flatten)]
    measured: Measured,
}

pub(crate) fn run(context: &Context, arguments: ReplayArgs) -> Result<Verdict> {
    let Some(workload) = &arguments.workload else {
        context.bytes(stripewise_trace::workload::help().as_bytes())?;
        return Ok(Verdict::Done);
    };
    ensure!(
        (0.0..=1e6).contains(&arguments.scale_time),
        "--scale-time {}: want a factor from 0 to 1000000",
        arguments.scale_time
    );
    let emulated = match arguments.redirect {
        true => context.cluster()?.servers.iter().any(|server| matches!(server.url, ServerUrl::Emulated { .. })),
        false => false,
    };
    let work = Work::make()?;
    let ranks = prepare(&arguments, workload, &work.script())?;
    let (measured, good) = launch(context, &arguments, &work, ranks)?;
    let interface = match (arguments.posix, arguments.mpi) {
        (true, _) => "posix",
        (false, Mpi::Mpich) => "mpich",
        (false, Mpi::OpenMpi) => "openmpi",
    };
    let redirected = arguments.redirect;
    let replayed = Replayed { workload, interface, redirected, emulated, measured };
    if context.json {
        context.object(&replayed)?;
    } else {
        show(context, &replayed)?;
    }
    if replayed.measured.verified == Some(false) {
        context.say("what was read is not what was written");
    }
    Ok(if good { Verdict::Done } else { Verdict::Finding })
}

/// Writes the script; returns the number of ranks.
fn prepare(arguments: &ReplayArgs, workload: &str, script_path: &Path) -> Result<u32> {
    let _waiting = Waiting::start("writing what each process does");
    let source = Source::open(workload, arguments.processes)?;
    let scale = if arguments.no_think { 0.0 } else { arguments.scale_time };
    let pacing = if arguments.own_times { Pacing::OwnTimes { scale: 1.0 } } else { Pacing::Gaps { scale: 1.0 } };
    let options = RecordedOptions { pacing, window_s: arguments.window, files: None };
    let for_traces = arguments.own_times || arguments.window.is_some() || !arguments.file.is_empty();
    if matches!(source, Source::Benchmark(_)) && for_traces {
        bail!(
            "--own-times, --window and --file are for traces; {workload} is a benchmark and has parameters of its own"
        );
    }
    let program = source.program(&options, &arguments.file)?;
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
        target::look_for_room(&files, &script.uses)?;
    }
    script.finish(&files)?;
    Ok(ranks)
}

fn used(paths: &[PathBuf], script: &Script) -> Vec<PathBuf> {
    let uses = paths.iter().zip(&script.uses).filter(|(_, found)| found.reads || found.writes);
    uses.map(|(path, _)| path.clone()).collect()
}

/// Runs the C program; returns what it measured and whether the data were right.
fn launch(context: &Context, arguments: &ReplayArgs, work: &Work, ranks: u32) -> Result<(Measured, bool)> {
    let compiler = match (arguments.posix, arguments.mpi) {
        (true, _) => Compiler::Plain,
        (false, Mpi::Mpich) => Compiler::Mpich,
        (false, Mpi::OpenMpi) => Compiler::OpenMpi,
    };
    let program = programs::compile(&PROGRAM, compiler, work.0.path())?;
    let mut words: Vec<OsString> = Vec::new();
    if arguments.redirect {
        let own = std::env::current_exe().context("cannot tell where this executable is")?;
        words.extend([own.into(), "--cluster".into(), absolute(&context.cluster_path())?.into()]);
        words.extend(["run".into(), "--".into()]);
    }
    if !arguments.posix {
        let launcher = programs::write_launcher(work.0.path())?;
        words.extend([launcher.into(), "-n".into(), ranks.to_string().into()]);
    }
    words.extend([program.into(), work.script().into()]);
    words.extend(arguments.verify.then(|| "--verify".into()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdout(Stdio::piped());
    command.env("STRIPEWISE_MPI", if arguments.mpi == Mpi::OpenMpi { "openmpi" } else { "mpich" });
    let (status, printed) = programs::finish(command, Some("replaying"))?;
    // A launcher has its own status for ranks that end with 1; wrong data are told in the line.
    let Some(measured) = Measured::find(&printed).filter(|_| status.code().is_some()) else {
        bail!("the replay failed ({status}); its messages stand above");
    };
    let measured = measured?;
    let good = measured.verified != Some(false);
    ensure!(status.success() || !good, "the replay failed after it was measured ({status}); its messages stand above");
    Ok((measured, good))
}

fn show(context: &Context, replayed: &Replayed<'_>) -> Result<()> {
    let measured = &replayed.measured;
    let redirected = match (replayed.redirected, replayed.emulated) {
        (false, _) => "",
        (true, false) => ", redirected",
        (true, true) => ", redirected to emulated servers",
    };
    let processes = counted(measured.ranks as usize, "process", "processes");
    context.line(format_args!("{}: {processes} ({}{redirected})", replayed.workload, replayed.interface))?;
    let mut table = Table::new(&["", ">bytes", ">time", ">MB/s", ">requests", ">p50", ">p95", ">p99"]);
    for (name, direction) in [("read", &measured.read), ("write", &measured.write)] {
        if direction.requests > 0 {
            table.row([
                name.to_owned(),
                bytes(direction.bytes),
                duration(direction.seconds),
                number(direction.bandwidth_mb_s),
                direction.requests.to_string(),
                duration(direction.latency_p50_s),
                duration(direction.latency_p95_s),
                duration(direction.latency_p99_s),
            ]);
        }
    }
    context.line(table)?;
    if measured.phases.len() > 1 {
        let mut table = Table::new(&[">phase", ">time", ">read MB/s", ">write MB/s"]);
        for (phase, found) in measured.phases.iter().enumerate() {
            let rates = [&found.read, &found.write];
            let [read, write] = rates.map(|rate| if rate.bytes > 0 { number(rate.bandwidth_mb_s) } else { "-".into() });
            table.row([phase.to_string(), duration(found.seconds), read, write]);
        }
        context.line("")?;
        context.line(table)?;
    }
    match measured.verified {
        Some(true) => context.line("all that was read is what was written"),
        Some(false) | None => Ok(()),
    }
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
