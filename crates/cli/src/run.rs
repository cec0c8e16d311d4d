//! `stripewise run`: an unmodified program with its I/O on managed files redirected.

use crate::applied;
use crate::context::Context;
use crate::launch::signals::Relay;
use crate::launch::{Launch, STATE_VARIABLE, TRACE_VARIABLE, exit_byte, mpi};
use crate::output::Verdict;
use crate::store::serve;
use crate::trace::{Capture, tell};
use anyhow::{Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use stripewise_layout::Cluster;
use stripewise_planner::{Plan, nearest};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::protocol::{Admin, Request};

/// Run a program with its reads and writes on managed files redirected
///
/// The exit status is the program's. A program, number of processes or file name other than planned is named, and the nearest plan taken.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise run -- mpiexec -n 32 ./app input.nml
  stripewise run -- cp data.bin /backup/
  stripewise run --trace again.trace -- ./app")]
pub(crate) struct RunArgs {
    /// Capture the run too, into this directory
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,

    /// Replace a trace that stands there
    #[arg(long, requires = "trace")]
    force: bool,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(context: &Context, arguments: RunArgs) -> Result<Verdict> {
    let cluster = context.cluster()?;
    // Before the broker's threads: they inherit which signals are blocked.
    let relay = Relay::start()?;
    let broker = serve(context, &cluster)?;
    prepare(context, &cluster, &arguments.command)?;
    let capture = match &arguments.trace {
        Some(directory) => Some(Capture::start(directory, arguments.force, &arguments.command)?),
        None => None,
    };
    let mut variables = vec![(STATE_VARIABLE, cluster.state.as_path())];
    variables.extend(capture.as_ref().map(|capture| (TRACE_VARIABLE, capture.directory())));
    let ran = Launch::new(&arguments.command, &variables).and_then(|launch| launch.run(relay));
    if let (Err(_), Some(capture)) = (&ran, &capture) {
        capture.discard();
    }
    let status = ran?;
    if let Some(fault) = broker.fault() {
        context.say(format_args!("the broker that was to follow the first one failed: {fault}"));
    }
    drop(broker);
    if let Some(capture) = capture {
        tell(context, &capture.finish()?)?;
    }
    Ok(Verdict::Program(exit_byte(status)))
}

/// Says where the run differs from what was planned, and gives files that do not exist yet the placement of the nearest plan.
fn prepare(context: &Context, cluster: &Cluster, command: &[OsString]) -> Result<()> {
    let plans = applied::all(cluster);
    if plans.is_empty() {
        return Ok(());
    }
    let Some(planned) = mpi::program_and_processes(command) else {
        bail!("no program is named; write it after --");
    };
    let client = Client::connect(&cluster.state, ClientOptions::default())?;
    let paths: BTreeSet<&str> = plans.iter().flat_map(|plan| &plan.files).map(|file| file.path.as_str()).collect();
    let mut said = BTreeSet::new();
    for path in paths {
        // A number that is not known is taken to be the planned one.
        let of_path = || plans.iter().find(|plan| plan.files.iter().any(|file| file.path == path));
        let processes = planned.processes.or_else(|| of_path().map(|plan| plan.key.processes)).unwrap_or(1);
        let Some(found) = nearest(&plans, path, &planned.program, processes) else { continue };
        // A program with plans of its own does not hear of other programs' files.
        let is_own = |plan: &Plan| plan.key.application == planned.program && plan.key.processes == processes;
        if !found.is_exact() && !plans.iter().any(is_own) {
            said.extend(
                found
                    .differences
                    .iter()
                    .map(|difference| format!("{difference}; taking the nearest plan ({})", found.plan.policy)),
            );
        }
        if Path::new(path).symlink_metadata().is_err() {
            let placement = found.file.initial().clone();
            client.request(&Request::Admin(Admin::Expect { path: path.to_owned(), placement }), &[])?;
        }
    }
    for line in said {
        context.say(line);
    }
    Ok(())
}
