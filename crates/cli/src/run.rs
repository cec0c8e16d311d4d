//! `stripewise run`: an unmodified program with its I/O on managed files redirected.

use crate::applied;
use crate::context::Context;
use crate::daemon::follow::{Course, Follower};
use crate::daemon::guide::Guide;
use crate::daemon::online::{Online, Settings};
use crate::daemon::{Daemon, FollowArgs, Held, OnlineArgs, Windows};
use crate::doctor::{self, executable_behind};
use crate::launch::signals::Relay;
use crate::launch::{ALLOW_VARIABLE, Launch, STATE_VARIABLE, TRACE_VARIABLE, exit_byte, mpi};
use crate::output::Verdict;
use crate::store::{Store, read_stub, serve};
use crate::trace::{Capture, tell};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use stripewise_layout::Cluster;
use stripewise_planner::{Plan, PlannedFile, nearest};
use stripewise_store::client::{Client, ClientOptions};
use stripewise_store::protocol::{Admin, Request};

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
    let cluster = context.cluster()?;
    if let Some(found) = doctor::unredirected(&arguments.command) {
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
    let broker = serve(context, &cluster)?;
    let planned = prepare(context, &cluster, &arguments.command)?;
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
        tell(context, &capture.finish()?)?;
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

/// Says where the run differs from what was planned, and gives files that do not exist yet the placement of the nearest plan. Returns what
/// the applied plans say of files that are managed or to come.
fn prepare(context: &Context, cluster: &Cluster, command: &[OsString]) -> Result<Vec<(String, PlannedFile)>> {
    let plans = applied::all(cluster);
    if plans.is_empty() {
        return Ok(Vec::new());
    }
    let mut planned = Vec::new();
    let Some(run) = planned_run(command, &plans) else {
        bail!("no program is named; write it after --");
    };
    let client = Client::connect(&cluster.state, ClientOptions::default())?;
    let paths: BTreeSet<&str> = plans.iter().flat_map(|plan| &plan.files).map(|file| file.path.as_str()).collect();
    let is_own = |plan: &Plan| plan.key.names(&run.program);
    let (mut said, mut others) = (BTreeSet::new(), BTreeSet::new());
    for path in paths {
        // A number that is not known is taken to be the planned one.
        let of_path = || plans.iter().find(|plan| plan.files.iter().any(|file| file.path == path));
        let planned_for = || of_path().map(|plan| plan.key.nearest_program(&run.program, 1).1);
        let processes = run.processes.or_else(planned_for).unwrap_or(1);
        let Some(found) = nearest(&plans, path, &run.program, processes) else { continue };
        let is_missing = Path::new(path).symlink_metadata().is_err();
        if is_missing {
            let placement = found.file.initial().clone();
            client.request(&Request::Admin(Admin::Expect { path: path.to_owned(), placement }), &[])?;
        } else if is_ordinary(Path::new(path)) {
            continue;
        }
        planned.push((path.to_owned(), found.file.clone()));
        let (application, made_for) = found.plan.key.nearest_program(&run.program, processes);
        if !is_own(found.plan) {
            others.insert(format!("`{application}`"));
        } else if run.processes.is_some_and(|processes| processes != made_for)
            && !plans.iter().any(|plan| plan.key.programs().any(|program| program == (run.program.as_str(), processes)))
        {
            let policy = found.plan.policy;
            said.insert(format!(
                "the plan was made for {made_for} processes, these are {processes}; taking the nearest plan ({policy})"
            ));
        }
    }
    // A program with plans of its own does not hear of other programs' files.
    if !others.is_empty() && !plans.iter().any(is_own) {
        let plans = if others.len() == 1 { "the plan was" } else { "the plans were" };
        let others = others.into_iter().collect::<Vec<_>>().join(", ");
        said.insert(format!("{plans} made for {others}, this is `{}`; taking the nearest plan", run.program));
    }
    for line in said {
        context.say(line);
    }
    Ok(planned)
}

/// What a command runs, by the name that a plan has for it if one does: the program's own, that of the file behind a link, or behind a
/// launcher that is not known.
fn planned_run(command: &[OsString], plans: &[Plan]) -> Option<mpi::Run> {
    let run = mpi::program_and_processes(command)?;
    let is_planned = |name: &String| plans.iter().any(|plan| plan.key.names(name));
    if is_planned(&run.program) {
        return Some(run);
    }
    if let Some(program) = executable_behind(command).and_then(|path| file_name(&path)).filter(is_planned) {
        return Some(mpi::Run { program, processes: run.processes });
    }
    let words = command.iter().skip(1);
    match words.filter_map(|word| file_name(Path::new(word))).find(is_planned) {
        Some(program) => Some(mpi::Run { program, processes: None }),
        None => Some(run),
    }
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// Whether an ordinary file stands there, such as one that was released; what cannot be read may be managed.
fn is_ordinary(path: &Path) -> bool {
    let read = File::open(path).map(|file| read_stub(&file, path));
    matches!(read, Ok(Ok(None)))
}
