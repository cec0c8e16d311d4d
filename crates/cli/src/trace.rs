//! `stripewise trace`: capture what a program reads and writes, look at it, hand it to other tools.

mod capture;
mod export;
mod show;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::{Result, bail};
pub(crate) use capture::tell;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use stripewise_trace::Trace;

/// Capture the reads and writes of a program; show or export a trace
///
/// Nothing changes for the program. The exit status is the program's.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  stripewise trace -o run.trace -- mpiexec -n 32 ./app input.nml
  stripewise trace show run.trace --stripe 64KiB
  stripewise trace export run.trace --parquet run.parquet"
)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    action: Option<Action>,

    /// The directory that the trace is written to
    #[arg(short, long, value_name = "DIR", required = true)]
    output: Option<PathBuf>,

    /// Replace a trace that stands there
    #[arg(long)]
    force: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Subcommand, Debug)]
enum Action {
    Show(show::ShowArgs),
    Export(export::ExportArgs),
}

pub(crate) fn run(context: &Context, arguments: TraceArgs) -> Result<Verdict> {
    match arguments.action {
        Some(Action::Show(show)) => show::run(context, show),
        Some(Action::Export(export)) => export::run(context, export),
        None => capture::run(context, &arguments.output.unwrap_or_default(), arguments.force, &arguments.command),
    }
}

/// Refuses a trace that does not hold all that its program did, for `--strict`.
pub(crate) fn refuse_incomplete(path: &Path, trace: &Trace) -> Result<()> {
    let faults: Vec<String> = trace.warnings.iter().map(ToString::to_string).collect();
    if !faults.is_empty() {
        bail!(
            "{}: the trace is not complete, and --strict was given:\n  {}\ntrace again, or leave out --strict to use what there is",
            path.display(),
            faults.join("\n  ")
        );
    }
    Ok(())
}

/// What to say of requests that were not counted.
pub(crate) fn impossible_requests(requests: u64) -> String {
    let (noun, verb) = if requests == 1 { ("request", "is") } else { ("requests", "are") };
    format!("{requests} {noun} at offsets or of sizes that no file can have {verb} left out; the trace is damaged")
}
