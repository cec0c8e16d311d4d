//! The event loop.
//!
//! Events are the moments at which a process goes on. A server's stations serve in order of arrival, device before link, so a
//! sub-request's way through them is known when it is issued.

use crate::outcome::{DirectionOutcome, Latency, Outcome, PhaseOutcome, ServerOutcome};
use crate::scenario::{Borders, Scenario, SimError};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use stripewise_device::{Access, DiskPlace, ExtentId, Nanos, StationState};
use stripewise_layout::{Direction, Placement, RegionGeometry};
use stripewise_trace::{IoRequest, Step};

/// How far a simulation is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Simulated seconds.
    pub time_s: f64,
    pub requests: u64,
}

/// Requests between two calls of `progress`.
const PROGRESS_EVERY: u64 = 1 << 16;

/// Runs the scenario to its end; `progress` is told now and then how far it is.
///
/// # Errors
/// When placements do not fit the files and servers.
pub fn simulate(scenario: &Scenario<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, SimError> {
    check(scenario)?;
    let mut engine = Engine::new(scenario);
    engine.run(progress);
    Ok(engine.finish())
}

fn check(scenario: &Scenario<'_>) -> Result<(), SimError> {
    let files = scenario.program.files();
    if scenario.system.servers.is_empty() {
        return Err(SimError::NoServers);
    }
    if files.len() != scenario.files.len() {
        return Err(SimError::Files { files: files.len(), placements: scenario.files.len() });
    }
    for (file, placements) in files.iter().zip(scenario.files) {
        if placements.windows.is_empty() {
            return Err(SimError::NoPlacement { path: file.path.clone() });
        }
        for window in &placements.windows {
            window
                .placement
                .check(scenario.system.servers.len())
                .map_err(|message| SimError::Placement { path: file.path.clone(), message })?;
        }
    }
    Ok(())
}

struct Engine<'a> {
    scenario: &'a Scenario<'a>,
    stations: Vec<StationState>,
    steps: Vec<Box<dyn Iterator<Item = Step> + Send + 'a>>,
    ready: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Processes at the barrier.
    waiting: Vec<u32>,
    phase_border: bool,
    finished: u32,
    phase: usize,
    now: Nanos,
    last_end: Nanos,
    requests: u64,
    latencies: [Vec<u64>; 2],
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    fn new(scenario: &'a Scenario<'a>) -> Self {
        let processes = scenario.program.processes();
        let servers = scenario.system.servers.len();
        Self {
            scenario,
            stations: vec![StationState::default(); servers],
            steps: (0..processes).map(|process| scenario.program.steps(process)).collect(),
            ready: (0..processes).map(|process| Reverse((Nanos(0), process))).collect(),
            waiting: Vec::new(),
            phase_border: false,
            finished: 0,
            phase: 0,
            now: Nanos(0),
            last_end: Nanos(0),
            requests: 0,
            latencies: [Vec::new(), Vec::new()],
            outcome: Outcome {
                servers: vec![ServerOutcome::default(); servers],
                phases: vec![PhaseOutcome::default()],
                ..Outcome::default()
            },
        }
    }

    fn run(&mut self, progress: &mut dyn FnMut(Progress)) {
        while let Some(Reverse((now, process))) = self.ready.pop() {
            self.now = now;
            self.outcome.events += 1;
            self.go_on(process);
            if self.requests.is_multiple_of(PROGRESS_EVERY) {
                progress(Progress { time_s: now.seconds(), requests: self.requests });
            }
        }
    }

    fn go_on(&mut self, process: u32) {
        match self.steps[process as usize].next() {
            Some(Step::Access(request)) => {
                let end = self.access(request);
                self.ready.push(Reverse((end, process)));
            }
            Some(Step::Think { nanoseconds }) => self.ready.push(Reverse((self.now + Nanos(nanoseconds), process))),
            Some(Step::Until { nanoseconds }) => {
                self.ready.push(Reverse((self.now.max(Nanos(nanoseconds)), process)));
            }
            Some(step @ (Step::Barrier | Step::Phase)) => {
                self.phase_border |= step == Step::Phase;
                self.waiting.push(process);
                self.leave_barrier();
            }
            None => {
                self.finished += 1;
                self.leave_barrier();
            }
        }
    }

    /// Lets the waiting go on when all that still run have come.
    fn leave_barrier(&mut self) {
        let running = self.scenario.program.processes() - self.finished;
        if self.waiting.is_empty() || self.waiting.len() < running as usize {
            return;
        }
        if std::mem::take(&mut self.phase_border) {
            self.phase += 1;
            let start_s = self.now.seconds();
            self.outcome.phases.last_mut().expect("begins with one").end_s = start_s;
            self.outcome.phases.push(PhaseOutcome { start_s, ..PhaseOutcome::default() });
        }
        for process in std::mem::take(&mut self.waiting) {
            self.ready.push(Reverse((self.now, process)));
        }
    }

    fn placement(&self, file: usize) -> &'a Placement {
        let windows = &self.scenario.files[file].windows;
        let number = match self.scenario.options.borders {
            Borders::Time => windows.partition_point(|window| window.start_s <= self.now.seconds()).max(1) - 1,
            Borders::Phase => self.phase.min(windows.len() - 1),
        };
        &windows[number].placement
    }

    /// Sends the sub-requests of a request on their way; returns when the last is done.
    fn access(&mut self, request: IoRequest) -> Nanos {
        let file = request.file.0 as usize;
        let placement = self.placement(file);
        let geometry = RegionGeometry::new(placement.region_size.0);
        let mut end = self.now;
        for piece in geometry.pieces(request.offset, request.bytes) {
            let layout = placement.layout_of(piece.region);
            for part in layout.view().split(piece.offset, piece.length) {
                let number = usize::from(part.server.0);
                let extent = |region: u64| ExtentId((file as u64) << 32 | region);
                let place = DiskPlace {
                    extent: extent(u64::from(piece.region.0)),
                    after: u64::from(piece.region.0).checked_sub(1).map(extent),
                    offset: part.offset,
                };
                let access = Access { direction: request.direction, place, bytes: part.length };
                let server = &self.scenario.system.servers[number];
                let reserved = self.stations[number].reserve(&server.device, server.link.as_ref(), self.now, &access);
                end = end.max(reserved.end);
                let outcome = &mut self.outcome.servers[number];
                outcome.bytes += part.length;
                outcome.sub_requests += 1;
                if let Some(link) = &server.link {
                    outcome.link_busy_s += link.demand(part.length).seconds();
                }
            }
        }
        self.note(request, end);
        end
    }

    fn note(&mut self, request: IoRequest, end: Nanos) {
        self.requests += 1;
        self.last_end = self.last_end.max(end);
        let phase = self.outcome.phases.last_mut().expect("begins with one");
        let (sum, latencies) = match request.direction {
            Direction::Read => {
                phase.read_bytes += request.bytes;
                (&mut self.outcome.read, &mut self.latencies[0])
            }
            Direction::Write => {
                phase.write_bytes += request.bytes;
                (&mut self.outcome.write, &mut self.latencies[1])
            }
        };
        sum.requests += 1;
        sum.bytes += request.bytes;
        latencies.push(end.saturating_sub(self.now).0);
    }

    fn finish(mut self) -> Outcome {
        let time_s = self.last_end.seconds();
        let over_time = |bytes: u64| if time_s > 0.0 { bytes as f64 / 1e6 / time_s } else { 0.0 };
        let mut outcome = self.outcome;
        for (direction, latencies) in [&mut outcome.read, &mut outcome.write].into_iter().zip(&mut self.latencies) {
            direction.mb_per_s = over_time(direction.bytes);
            direction.latency = latency(latencies);
        }
        outcome.time_s = time_s;
        outcome.mb_per_s = over_time(outcome.read.bytes + outcome.write.bytes);
        outcome.phases.last_mut().expect("begins with one").end_s = time_s;
        outcome
    }
}

fn latency(nanoseconds: &mut [u64]) -> Latency {
    if nanoseconds.is_empty() {
        return Latency::default();
    }
    nanoseconds.sort_unstable();
    let at = |share: f64| nanoseconds[((nanoseconds.len() - 1) as f64 * share) as usize] as f64 / 1e9;
    let sum: f64 = nanoseconds.iter().map(|n| *n as f64).sum();
    Latency {
        mean_s: sum / nanoseconds.len() as f64 / 1e9,
        p50_s: at(0.5),
        p95_s: at(0.95),
        p99_s: at(0.99),
        max_s: at(1.0),
    }
}

impl DirectionOutcome {
    /// Whether there was any request.
    #[must_use]
    pub fn any(&self) -> bool {
        self.requests > 0
    }
}
