//! Verification: a plan's own requests on the servers for some seconds, against what the plan predicts of them.
//!
//! Nothing is placed or moved. Every server gets a scratch file, as for calibration. As many processes as the plan
//! counts on draw requests from the plan's busiest window (`mix.rs`), each its next one when all sub-requests of the last
//! one are done (`load.rs`): first the reads, then the writes, as the prediction takes them. A sub-request goes to the
//! server that the plan's layout names, at a place of the scratch file that stands for its object. So seeks are as far
//! as the scratch file is long. Buffered writes lie as densely there as in the plan's window.

mod load;
mod mix;

use super::directory::{CachedFile, DirectorySubject};
use super::error::{CalibrationError, Result};
use super::fresh_seed;
use super::measure::Subject as _;
use super::pool::{DURABLE, PoolSubject, PoolsLock};
use crate::interrupt::Interrupt;
use crate::made_from::{MadeFrom, PlanFiles, Recorded};
use crate::session::Session;
use load::{Load, Tally, Target, run};
use mix::Mix;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use stripewise_layout::{Cluster, Direction, Placement, RequestKind, Server, WriteClass};
use stripewise_model::Caveat;
use stripewise_planner::Throughput;
use stripewise_planner::explain::Explainer;
use stripewise_store::server::emulated::is_emulated;
use stripewise_store::server::{How, is_by_agent};
use stripewise_trace::FileAccess;

/// Measured bandwidth over predicted, or the inverse, up to which a prediction counts as met.
const TOLERANCE: f64 = 1.3;

/// How a plan is to be verified.
#[derive(Clone, Debug)]
pub struct VerifyOptions {
    /// The plan and where its inputs are.
    pub files: PlanFiles,
    /// Time for each direction that the plan has requests in, besides filling the scratch files.
    pub duration: Duration,
    /// Size of the scratch file on each server.
    pub file_bytes: u64,
    /// Longest time that filling a scratch file may take; it is shorter then.
    pub patience: Duration,
    /// See [`super::Options::interrupt`].
    pub interrupt: Interrupt,
}

/// What a plan predicts, and what its servers did.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Verification {
    /// The plan's file.
    pub plan: PathBuf,
    /// Start of the window that was tried, the one with the most bytes; seconds from the start of the run.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Processes that issued requests, each one at a time.
    pub processes: u32,
    /// Reads, then writes; those of which the window has any.
    pub directions: Vec<VerifiedDirection>,
    /// True if every measured bandwidth is within a factor of 1.3 of the predicted one.
    pub is_met: bool,
    /// Why figures of the profile may be wrong.
    pub caveats: Vec<Caveat>,
}

/// The requests of one direction.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct VerifiedDirection {
    /// Reads or writes.
    pub direction: Direction,
    /// Requests that were done in the time measured.
    pub requests: u64,
    /// Million bytes per second that the plan predicts for the window.
    pub predicted_mb_per_s: f64,
    /// Relative spread of that prediction.
    pub predicted_spread: f64,
    /// Million bytes per second that the servers did.
    pub measured_mb_per_s: f64,
    /// Measured over predicted.
    pub ratio: f64,
    /// In cluster order.
    pub servers: Vec<VerifiedServer>,
}

/// One server's part.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct VerifiedServer {
    /// As in the cluster file.
    pub name: String,
    /// Sub-requests that it did.
    pub sub_requests: u64,
    /// Million bytes per second that it did.
    pub mb_per_s: f64,
    /// Mean seconds that a sub-request took on the server, behind those that it had at the same time.
    pub mean_s: Option<f64>,
    /// Share of the time in which it had a sub-request, 0 to 1: the busiest server sets the pace.
    pub busy: f64,
}

/// Issues the requests of a plan on its servers and measures them. Nothing of the cluster is changed.
///
/// # Errors
///
/// [`CalibrationError::MadeFrom`] and [`CalibrationError::Explain`] if the plan or its inputs cannot be read again,
/// [`CalibrationError::EmulatedPlan`] for emulated servers, whose times the prediction is made of, and
/// [`CalibrationError::Server`] if a server cannot be written or read.
pub fn verify(session: &Session, options: &VerifyOptions) -> Result<Verification> {
    let recorded = Recorded::load(session, &options.files)?;
    if let Some(server) = recorded.cluster.servers.iter().find(|server| is_emulated(&server.url)) {
        return Err(CalibrationError::EmulatedPlan { name: server.name.clone() });
    }
    let waiting = session.voice().waiting("reading the trace");
    let made_from = recorded.read_inputs()?;
    drop(waiting);
    let window = busiest_window(&made_from);
    let request = made_from.request();
    let prediction = Explainer::new(&made_from.plan, &request)?.prediction(window);
    let files: Vec<(&FileAccess, &Placement)> = request
        .files
        .iter()
        .zip(&made_from.plan.files)
        .map(|(access, planned)| (access, planned.placement_at(start_of(access, window))))
        .collect();
    let parts = [(Direction::Read, prediction.read), (Direction::Write, prediction.write)];
    let parts: Vec<(Direction, Throughput)> =
        parts.into_iter().filter_map(|(direction, throughput)| Some((direction, throughput?))).collect();
    let servers = &made_from.cluster.servers;
    let pools = PoolsLock::take(&made_from.cluster, options.interrupt)?;
    let subjects = prepare(session, &made_from.cluster, options, &pools)?;
    let processes = request.window_concurrency(window).processes.max(1);
    let spans: Vec<u64> = subjects.iter().map(Target::span_bytes).collect();
    let bar = session.voice().share("verifying");
    let mut directions = Vec::new();
    for (done, (direction, predicted)) in parts.iter().enumerate() {
        let (seed, mut written_back_bytes) = (fresh_seed(), u64::MAX);
        let mut mix = Mix::of(&files, window, *direction);
        if mix.is_written_back() {
            // As much as is predicted for the time.
            let in_time = (predicted.mb_per_s * 1e6 * options.duration.as_secs_f64()) as u64;
            (mix, written_back_bytes) = mix.keep_density(in_time, &spans, &mut SmallRng::seed_from_u64(seed));
        }
        let load = Load { processes, duration: options.duration, written_back_bytes, seed };
        let progress = |share: f64| bar.set(((done as f64 + share) / parts.len() as f64 * 1000.0) as u64);
        let tally = run(&mix, &subjects, &load, &progress).map_err(|(server, source)| CalibrationError::Server {
            name: servers[server].name.clone(),
            source: Box::new(source),
        })?;
        directions.push(verified(*direction, predicted, &tally, servers));
    }
    drop(bar);
    let bounds = request.files.iter().find_map(|file| file.windows.get(window));
    let (start_s, end_s) = bounds.map_or((0.0, 0.0), |window| (window.start_s, window.end_s));
    let is_met = directions.iter().all(|direction| (1.0 / TOLERANCE..=TOLERANCE).contains(&direction.ratio));
    let (plan, caveats) = (options.files.plan.clone(), request.profile.caveats.clone());
    Ok(Verification { plan, start_s, end_s, processes, directions, is_met, caveats })
}

/// Start of a window, in seconds from the start of the run.
fn start_of(access: &FileAccess, window: usize) -> f64 {
    access.windows.get(window).map_or(0.0, |window| window.start_s)
}

/// The window of the run in which the most bytes are read and written.
fn busiest_window(made_from: &MadeFrom) -> usize {
    let request = made_from.request();
    let windows = request.files.iter().map(|file| file.windows.len()).max().unwrap_or(0);
    let bytes = |number: &usize| -> u128 {
        let of_file = |file: &FileAccess| -> u128 {
            let counts = file.windows.get(*number).into_iter().flat_map(|window| &window.regions);
            let bytes = |(class, count): &(_, u64)| u128::from(file.class(*class).request_bytes) * u128::from(*count);
            counts.flat_map(|region| &region.counts).map(bytes).sum()
        };
        request.files.iter().map(of_file).sum()
    };
    // Of equal ones the first.
    (0..windows).rev().max_by_key(bytes).unwrap_or(0)
}

/// Scratch files on all servers, filled side by side.
fn prepare(session: &Session, cluster: &Cluster, options: &VerifyOptions, pools: &PoolsLock) -> Result<Vec<Scratch>> {
    let servers = &cluster.servers;
    let _waiting = session.voice().waiting("filling the scratch files");
    std::thread::scope(|scope| {
        let fill = |server: &Server| {
            let (bytes, patience) = (options.file_bytes, options.patience);
            if is_by_agent(&server.url) {
                return PoolSubject::prepare(cluster, server, bytes, patience, (fresh_seed(), pools))
                    .map(Scratch::Pool);
            }
            let directory = server.url.directory();
            let subject = DirectorySubject::prepare(directory, bytes, patience, fresh_seed())?;
            Ok(Scratch::File { cached: subject.cached(directory)?, subject })
        };
        let fillers: Vec<_> = servers.iter().map(|server| scope.spawn(move || fill(server))).collect();
        let filled = fillers.into_iter().zip(servers).map(|(filler, server)| {
            filler
                .join()
                .expect("filling does not panic")
                .map_err(|source| CalibrationError::Server { name: server.name.clone(), source: Box::new(source) })
        });
        filled.collect()
    })
}

enum Scratch {
    /// A scratch file, past the page cache and through it.
    File { subject: DirectorySubject, cached: CachedFile },
    /// Scratch objects.
    Pool(PoolSubject),
}

impl Target for Scratch {
    fn span_bytes(&self) -> u64 {
        match self {
            Self::File { subject, .. } => subject.span_bytes(),
            Self::Pool(subject) => subject.span_bytes(),
        }
    }

    fn perform(&self, kind: RequestKind, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let (subject, cached) = match self {
            Self::File { subject, cached } => (subject, cached),
            Self::Pool(subject) => {
                let how = if kind == RequestKind::Write(WriteClass::Buffered) { How::default() } else { DURABLE };
                return subject.perform(kind.direction(), how, offset, buffer);
            }
        };
        match kind {
            RequestKind::Read | RequestKind::Write(WriteClass::Direct) => {
                subject.perform(kind.direction(), offset, buffer)
            }
            RequestKind::Write(WriteClass::Buffered) => cached.write(offset, buffer),
            RequestKind::Write(WriteClass::Synchronous) => cached.write_synchronously(offset, buffer),
        }
    }

    fn sync(&self) -> Result<()> {
        match self {
            Self::File { cached, .. } => cached.sync(),
            Self::Pool(subject) => subject.sync(),
        }
    }
}

fn verified(direction: Direction, predicted: &Throughput, tally: &Tally, servers: &[Server]) -> VerifiedDirection {
    let mb_per_s = |bytes: u64| bytes as f64 / 1e6 / tally.seconds;
    let of_server = |(server, part): (&Server, &load::ServerTally)| VerifiedServer {
        name: server.name.clone(),
        sub_requests: part.sub_requests,
        mb_per_s: mb_per_s(part.bytes),
        mean_s: (part.sub_requests > 0).then(|| part.seconds / part.sub_requests as f64),
        busy: (part.busy_s / tally.seconds).min(1.0),
    };
    let measured_mb_per_s = mb_per_s(tally.bytes);
    VerifiedDirection {
        direction,
        requests: tally.requests,
        predicted_mb_per_s: predicted.mb_per_s,
        predicted_spread: predicted.spread,
        measured_mb_per_s,
        ratio: measured_mb_per_s / predicted.mb_per_s,
        servers: servers.iter().zip(&tally.servers).map(of_server).collect(),
    }
}
