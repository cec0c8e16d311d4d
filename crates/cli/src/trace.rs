//! `stripewise trace`: capture what a program reads and writes, look at it, hand it to other tools.

mod capture;
pub(crate) mod export;
mod show;

use crate::context::Context;
use crate::output::Verdict;
use anyhow::Result;
pub(crate) use capture::report;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use stripewise::capture::{CaptureOptions, Existing};

/// Capture the reads and writes of a program; show or export a trace
///
/// Nothing changes for the program. The exit status is the program's; 127 when there is no such program, 126 when it cannot be executed.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  stripewise trace -o run.trace -- mpiexec -n 32 ./app input.nml
  mpiexec -n 32 stripewise trace -o job.trace --join -- ./app
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

    /// Add to a trace that stands there: this is a part of the same job, perhaps on another host
    #[arg(long, conflicts_with = "force")]
    join: bool,

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
        None => {
            let TraceArgs { output, force, join, command, .. } = arguments;
            capture::run(
                context,
                &CaptureOptions { output: output.unwrap_or_default(), existing: existing(force, join), command },
            )
        }
    }
}

/// What the options say of a trace that stands there.
pub(crate) fn existing(force: bool, join: bool) -> Existing {
    match (force, join) {
        (true, _) => Existing::Replace,
        (false, true) => Existing::Join,
        (false, false) => Existing::Refuse,
    }
}
