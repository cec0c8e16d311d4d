//! `stripewise run`: an unmodified program with its I/O on managed files redirected.

mod preparation;

use crate::context::Context;
use crate::daemon::follow::{Course, Follower};
use crate::daemon::guide::Guide;
use crate::daemon::online::{Online, Settings};
use crate::daemon::{Daemon, FollowArgs, Held, OnlineArgs, Windows};
use crate::doctor;
use crate::launch::{ALLOW_VARIABLE, Launch, STATE_VARIABLE, TRACE_VARIABLE, exit_byte};
use crate::output::Verdict;
use crate::trace::{Capture, tell};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use preparation::{Preparation, prepare};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use stripewise::relay::Relay;
use stripewise::store::{Store, serve};
use stripewise_layout::Cluster;
use stripewise_planner::PlannedFile;

/// Run a program with its reads and writes on managed files redirected
///
/// The exit status is the program's; 126 when it cannot be redirected. A program or number of processes other than planned is named, and the nearest plan taken.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stripewise run -- mpiexec -n 32 ./app input.nml
  stripewise run -- cp data.bin /backup/
  stripewise run --trace again.trace -- ./app
  stripewise run --migrate -- mpiexec -n 32 ./app
  stripewise run --migrate --plan plan.json --migrate-bandwidth 50MiB -- ./app
  stripewise run --migrate --online --window 30s -- mpiexec -n 32 ./app")]
pub(crate) struct RunArgs {
    /// Capture the run too, into this directory
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,

    /// Replace a trace that stands there
    #[arg(long, requires = "trace")]
    force: bool,

    /// Move regions while the program runs, as the windows of the applied plans, or of --plan, want them, or, with --online, as the program uses them
    #[arg(long)]
    migrate: bool,

    /// Follow this plan rather than the applied ones; it may be replaced meanwhile
    #[arg(long, value_name = "PLAN", requires = "migrate")]
    plan: Option<PathBuf>,

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

/// As shells have it: found, but not to be executed.
const CANNOT_EXECUTE: u8 = 126;

pub(crate) fn run(context: &Context, arguments: RunArgs) -> Result<Verdict> {
    let cluster = context.session.cluster()?;
    if let Some(found) = doctor::unredirected(&arguments.command, Some(&cluster.state)) {
        let (reason, remedy) = (found.reason(), found.remedy());
        if !arguments.allow_unredirected {
            context.say(format_args!(
                "not started: {reason}, and of a managed file it would find the stub's text only; {remedy}, or give --allow-unredirected"
            ));
            return Ok(Verdict::Program(CANNOT_EXECUTE));
        }
        context.say(format_args!("warning: {reason}; what it does to managed files is not redirected"));
    }
    // A signal that comes while the broker starts is for the program too.
    let relay = Relay::start()?;
    if !arguments.migrate && arguments.follow.windows == Windows::Phase {
        bail!("--windows phase: nothing is moved without --migrate");
    }
    if !arguments.migrate && arguments.online.online {
        bail!("--online: nothing is moved without --migrate");
    }
    let settings = arguments.online.settings(context, &cluster, arguments.follow.windows)?;
    let held = if arguments.migrate { Some(Held::take(context.voice(), &cluster)?) } else { None };
    let broker = serve(&context.session, &cluster)?;
    let Preparation { planned, ended_by } = prepare(context, &cluster, &arguments.command, held.is_some(), &relay)?;
    if let Some(signal) = ended_by {
        return Ok(Verdict::Program(128 + u8::try_from(signal).unwrap_or_default()));
    }
    let migration = match &held {
        Some(_) => Some(Migration::start(context, &cluster, &arguments, planned, settings)?),
        None => None,
    };
    let capture = match &arguments.trace {
        Some(directory) => Some(Capture::start(directory, arguments.force, &arguments.command)?),
        None => None,
    };
    let mut variables = vec![(STATE_VARIABLE, cluster.state.as_path())];
    if arguments.allow_unredirected {
        variables.push((ALLOW_VARIABLE, Path::new("1")));
    }
    variables.extend(capture.as_ref().map(|capture| (TRACE_VARIABLE, capture.directory())));
    let ran = Launch::new(&arguments.command, &variables).and_then(|launch| launch.run(relay));
    if let (Err(_), Some(capture)) = (&ran, &capture) {
        capture.discard();
    }
    if let Some(migration) = migration {
        migration.end()?;
    }
    let status = ran?;
    if let Some(fault) = broker.fault() {
        context.say(format_args!("the broker that was to follow the first one failed: {fault}"));
    }
    drop(broker);
    drop(held);
    if let Some(capture) = capture {
        tell(context, &capture.finish(context.voice())?)?;
    }
    Ok(Verdict::Program(exit_byte(status)))
}

/// Follows a plan, or the program, in a thread beside it.
struct Migration {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

impl Migration {
    fn start(
        context: &Context,
        cluster: &Cluster,
        arguments: &RunArgs,
        planned: Vec<(String, PlannedFile)>,
        settings: Option<Settings>,
    ) -> Result<Self> {
        let store = Store::beside(cluster.clone())?;
        let windows = arguments.follow.windows;
        let guide = match (&arguments.plan, settings) {
            (_, Some(settings)) => Guide::Online(Box::new(Online::start(settings, &store, context.voice())?)),
            (Some(path), None) => Guide::Plan(Box::new(Follower::of_file(&store, path, windows)?)),
            (None, None) if planned.is_empty() => {
                bail!(
                    "--migrate: no plan was applied to managed files of this cluster; `stripewise apply` one first, name one with --plan, or plan while the program runs with --online"
                )
            }
            (None, None) => Guide::Plan(Box::new(Follower::new(Course::new(planned), windows))),
        };
        let bandwidth = arguments.follow.migrate_bandwidth;
        let mut daemon = Daemon::start(store, guide, bandwidth, context.voice(), None)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let work = move || {
            let worked = daemon.work(&|| stopping.load(Ordering::SeqCst));
            worked.and(daemon.end())
        };
        let thread = std::thread::Builder::new().name("stripewise-daemon".into()).spawn(work);
        Ok(Self { stop, thread: thread.context("cannot start a thread")? })
    }

    fn end(self) -> Result<()> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_else(|_| bail!("the thread that follows the plan panicked"))
    }
}
