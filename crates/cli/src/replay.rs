//! `stripewise replay`: a recorded trace or a benchmark as a real run.

use crate::context::Context;
use crate::output::Verdict;
use crate::seconds;
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use stripewise::table::Table;
use stripewise_lab::replay::{Interface, ReplayOptions, Replayed, replay};
use stripewise_layout::figures::{bytes, counted, duration, number};

/// Replay a recorded trace or a benchmark as a real run, and report how fast it was
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

    /// Of a trace, only the requests on this file, or on files whose paths begin so; may be given several times
    #[arg(long, value_name = "PREFIX")]
    file: Vec<PathBuf>,

    /// Put the workload's files into this directory rather than where they name themselves
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,

    /// Run under `stripewise run`: files that are managed, or made in managed directories, are served by the cluster
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

    /// Split a trace into phases of this length, at which all processes meet
    #[arg(long, value_name = "TIME", value_parser = seconds::parse)]
    window: Option<f64>,

    /// Write data that name their place, and compare all that is read with them; files that stand there must be an earlier replay's
    #[arg(long)]
    verify: bool,

    /// Write over files that stand there
    #[arg(long)]
    force: bool,

    /// Keep the files that the replay makes
    #[arg(long)]
    keep: bool,
}

impl ReplayArgs {
    fn options(self, workload: String) -> ReplayOptions {
        let interface = match (self.posix, self.mpi) {
            (true, _) => Interface::Posix,
            (false, Mpi::Mpich) => Interface::Mpich,
            (false, Mpi::OpenMpi) => Interface::OpenMpi,
        };
        ReplayOptions {
            workload,
            files: self.file,
            directory: self.directory,
            redirect: self.redirect,
            interface,
            processes: self.processes,
            scale_time: if self.no_think { 0.0 } else { self.scale_time },
            own_times: self.own_times,
            window_s: self.window,
            verify: self.verify,
            force: self.force,
            keep: self.keep,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Mpi {
    Mpich,
    #[value(name = "openmpi")]
    OpenMpi,
}

pub(crate) fn run(context: &Context, mut arguments: ReplayArgs) -> Result<Verdict> {
    let Some(workload) = arguments.workload.take() else {
        context.bytes(stripewise_trace::workload::help().as_bytes())?;
        return Ok(Verdict::Done);
    };
    let replayed = replay(&context.session, &arguments.options(workload))?;
    if context.json {
        context.object(&replayed)?;
    } else {
        show(context, &replayed)?;
    }
    if !replayed.is_right() {
        context.say("what was read is not what was written");
    }
    Ok(if replayed.is_right() { Verdict::Done } else { Verdict::Finding })
}

/// Who served the workload's files.
fn redirection(replayed: &Replayed) -> String {
    let servers = if replayed.emulated { "redirected to emulated servers" } else { "redirected" };
    match (replayed.redirected, replayed.managed_files, replayed.files) {
        (false, ..) => String::new(),
        (true, 0, _) => ", on ordinary files".to_owned(),
        (true, managed, files) if managed == files => format!(", {servers}"),
        (true, managed, files) => format!(", {managed} of {files} files {servers}"),
    }
}

fn show(context: &Context, replayed: &Replayed) -> Result<()> {
    let measured = &replayed.measured;
    let redirected = redirection(replayed);
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
    if replayed.redirected && replayed.managed_files == 0 {
        context.say(
            "none of the workload's files is managed: they were ordinary files, so this measures their file system and the host's page \
             cache, no server of the cluster; `stripewise manage DIR` makes new files in DIR managed",
        );
    }
    match measured.verified {
        Some(true) => context.line("all that was read is what was written"),
        Some(false) | None => Ok(()),
    }
}
