//! An unmodified program with its I/O on managed files redirected.

mod error;
mod preparation;

pub use error::RunError;

use crate::capture::{Capture, CaptureSummary, Existing};
use crate::daemon::{Course, Daemon, DaemonError, Follower, Guide, Held, Online, OnlineOptions, Settings, Windows};
use crate::launch::mpi::own_rank;
use crate::launch::{CANNOT_EXECUTE, Launch, exit_byte};
use crate::named_plan::NamedPlan;
use crate::progress::Voice;
use crate::session::Session;
use crate::store::StoreError;
use crate::{doctor, variables};

use crate::relay::Relay;
use crate::store::{Store, serve};
use preparation::{Preparation, prepare};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use stripewise_layout::Cluster;
use stripewise_planner::PlannedFile;
use stripewise_store::protocol::MigrateBandwidth;

/// How a program is run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Capture the run too, into this directory.
    pub trace: Option<PathBuf>,
    /// A trace that stands there.
    pub existing: Existing,
    /// Run a program even if it cannot be redirected.
    pub allow_unredirected: bool,
    /// Move regions while the program runs.
    pub migration: Option<MigrationOptions>,
}

/// How regions are moved while a program runs.
#[derive(Clone, Debug)]
pub struct MigrationOptions {
    /// Follow this plan rather than the applied ones.
    pub plan: Option<NamedPlan>,
    /// What begins a window of the plan.
    pub windows: Windows,
    /// How fast moves may copy, all together.
    pub bandwidth: MigrateBandwidth,
    /// Plan while the program runs, rather than follow a plan.
    pub online: Option<OnlineOptions>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit status as a shell gives it: 128 + the signal's number for a killed program, 126 for one that was not started.
    pub status: u8,
    /// What was captured, if that was asked for.
    pub captured: Option<CaptureSummary>,
}

impl Ran {
    fn with(status: u8) -> Self {
        Self { status, captured: None }
    }
}

/// Runs a program to its end, its reads and writes on managed files redirected. Signals sent to this process go on to the program.
///
/// # Errors
/// When the cluster cannot be served, or the program not started or waited for.
pub fn run(session: &Session, options: &RunOptions) -> Result<Ran, RunError> {
    let cluster = session.cluster()?;
    if let Some(found) = doctor::unredirected(&options.command, Some(&cluster.state)) {
        let (reason, remedy, mount) = (found.reason(), found.remedy(), found.mount());
        if !options.allow_unredirected {
            session.say(format_args!(
                "not started: {reason}, and of a managed file it would find the stub's text only; {remedy}, run it on a mount of the directory (`{mount}`), or give --allow-unredirected"
            ));
            return Ok(Ran::with(CANNOT_EXECUTE));
        }
        session.say(format_args!("warning: {reason}; what it does to managed files is not redirected"));
    }
    // A signal that comes while the broker starts is for the program too.
    let relay = Relay::start()?;
    // Started by a launcher for each rank, the first one decides about moves for all of them.
    let migration = options.migration.as_ref().filter(|_| own_rank().is_none_or(|rank| rank == 0));
    let (settings, held) = match migration {
        Some(MigrationOptions { online, windows, .. }) => {
            let settings = Settings::wanted(session, &cluster, online.as_ref(), *windows)?;
            (settings, Some(Held::take(session.voice(), &cluster)?))
        }
        None => (None, None),
    };
    let broker = serve(session, &cluster).map_err(StoreError::from)?;
    let Preparation { planned, ended_by, differences } = prepare(&cluster, &options.command, held.is_some(), &relay)?;
    if let Some(signal) = ended_by {
        return Ok(Ran::with(128 + u8::try_from(signal).unwrap_or_default()));
    }
    let migration = match migration {
        Some(wanted) => Some(Migration::start(session.voice(), &cluster, wanted, planned, settings)?),
        None => None,
    };
    let capture = match &options.trace {
        Some(directory) => Some(Capture::start(directory, options.existing, &options.command)?),
        None => None,
    };
    let mut variables = vec![(variables::STATE, cluster.state.as_path())];
    // On other hosts, where a launcher of the program starts it, nothing serves yet.
    let has_hosts = cluster.coordinator.is_some();
    let agent = has_hosts.then(|| (std::env::current_exe(), std::path::absolute(session.cluster_path())));
    if let Some((Ok(command), Ok(file))) = &agent {
        variables.extend([(variables::AGENT, command.as_path()), (variables::CLUSTER, file.as_path())]);
    }
    if options.allow_unredirected {
        variables.push((variables::ALLOW_UNREDIRECTED, Path::new("1")));
    }
    variables.extend(capture.as_ref().map(|capture| (variables::TRACE, capture.directory())));
    let ran = Launch::new(&options.command, &variables).and_then(|launch| launch.run(relay));
    if let (Err(_), Some(capture)) = (&ran, &capture) {
        capture.discard(options.existing);
    }
    if let Some(migration) = migration {
        migration.end()?;
    }
    let status = exit_byte(ran?);
    if let Some(differences) = differences {
        differences.say(session.voice());
    }
    if let Some(fault) = broker.fault() {
        session.say(format_args!("the broker that was to follow the first one failed: {fault}"));
    }
    drop(broker);
    drop(held);
    let captured = capture.map(|capture| capture.finish(session.voice())).transpose()?;
    Ok(Ran { status, captured })
}

/// Follows a plan, or the program, in a thread beside it.
struct Migration {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), DaemonError>>,
}

impl Migration {
    fn start(
        voice: &Voice,
        cluster: &Cluster,
        wanted: &MigrationOptions,
        planned: Vec<(String, PlannedFile)>,
        settings: Option<Settings>,
    ) -> Result<Self, RunError> {
        let store = Store::connect(cluster.clone())?;
        let windows = wanted.windows;
        let guide = match (&wanted.plan, settings) {
            (_, Some(settings)) => Guide::Online(Box::new(Online::start(settings, &store, voice)?)),
            (Some(plan), None) => Guide::Plan(Box::new(Follower::of_file(&store, voice, plan, windows)?)),
            (None, None) if planned.is_empty() => return Err(RunError::NoPlan),
            (None, None) => Guide::Plan(Box::new(Follower::new(Course::new(planned), windows))),
        };
        let bandwidth = wanted.bandwidth;
        let mut daemon = Daemon::start(store, guide, bandwidth, voice, None)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let work = move || {
            let worked = daemon.work(&|| stopping.load(Ordering::SeqCst));
            worked.and(daemon.end())
        };
        let thread = std::thread::Builder::new().name("stripewise-daemon".into()).spawn(work);
        Ok(Self { stop, thread: thread.map_err(|source| DaemonError::Thread { source })? })
    }

    fn end(self) -> Result<(), DaemonError> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or(Err(DaemonError::Panicked))
    }
}
