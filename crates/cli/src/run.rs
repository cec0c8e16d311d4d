//! `stripewise run`: an unmodified program with its I/O on managed files redirected.

use crate::context::Context;
use crate::daemon::{BeginWindow, FollowArgs, OnlineArgs};
use crate::output::Verdict;
use crate::trace::{existing, report};
use anyhow::{Result, bail};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use stripewise::named_plan::NamedPlan;
use stripewise::run::{MigrationOptions, RunOptions};

/// Run a program with its reads and writes on managed files redirected
///
/// The exit status is the program's; 127 when there is no such program, 126 when it cannot be executed or redirected. A program or number of processes other than planned is named, and the nearest plan taken.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise run -- mpiexec -n 32 ./app input.nml
  stripewise run -- cp data.bin /backup/
  stripewise run --trace again.trace -- ./app
  mpiexec -n 32 stripewise run --trace job.trace --join -- ./app
  stripewise run --migrate -- mpiexec -n 32 ./app
  stripewise run --migrate --plan plan.json --migrate-bandwidth 50MB/s -- ./app
  stripewise run --migrate --plan plan.json --force-plan -- ./app
  stripewise run --migrate --online --window 30s -- mpiexec -n 32 ./app")]
pub(crate) struct RunArgs {
    /// Capture the run too, into this directory
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,

    /// Replace a trace that stands there
    #[arg(long, requires = "trace")]
    force: bool,

    /// Add to a trace that stands there: this is a part of the same job, perhaps on another host
    #[arg(long, requires = "trace", conflicts_with = "force")]
    join: bool,

    /// Move regions while the program runs, as the windows of the applied plans, or of --plan, want them, or, with --online, as the program uses them
    #[arg(long)]
    migrate: bool,

    /// Follow this plan rather than the applied ones; it may be replaced meanwhile
    #[arg(long, value_name = "PLAN", requires = "migrate")]
    plan: Option<PathBuf>,

    /// Follow --plan although the plan says itself that it is not worth its move
    #[arg(long, requires = "plan")]
    force_plan: bool,

    #[command(flatten)]
    follow: FollowArgs,

    /// Run a program even if it cannot be redirected; it finds the text of a stub in place of a managed file's data
    #[arg(long)]
    allow_unredirected: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    // Last: its heading would be that of all that follows.
    #[command(flatten)]
    online: OnlineArgs,
}

impl From<RunArgs> for RunOptions {
    fn from(arguments: RunArgs) -> Self {
        let RunArgs { trace, force, join, migrate, plan, force_plan, follow, allow_unredirected, command, online } =
            arguments;
        let FollowArgs { windows, migrate_bandwidth } = follow;
        let migration = migrate.then(|| MigrationOptions {
            plan: plan.map(|path| NamedPlan { path, force: force_plan, option: "--force-plan" }),
            windows: windows.into(),
            bandwidth: migrate_bandwidth,
            online: online.options(),
        });
        Self { command, trace, existing: existing(force, join), allow_unredirected, migration }
    }
}

pub(crate) fn run(context: &Context, arguments: RunArgs) -> Result<Verdict> {
    if !arguments.migrate && arguments.follow.windows == BeginWindow::Phase {
        bail!("--windows phase: nothing is moved without --migrate");
    }
    if !arguments.migrate && arguments.online.online {
        bail!("--online: nothing is moved without --migrate");
    }
    let ran = stripewise::run::run(&context.session, &arguments.into())?;
    if let Some(summary) = &ran.captured {
        report(context, summary)?;
    }
    Ok(Verdict::Program(ran.status))
}
