//! The event loop: processes that go on, and sub-requests that arrive at stations.

mod mover;
mod travel;
mod write_back;

use crate::addresses::Addresses;
use crate::histogram::Histogram;
use crate::outcome::{DirectionOutcome, Outcome, PhaseOutcome};
use crate::places::{Part, Places};
use crate::queue::EventQueue;
use crate::scenario::{Borders, FragmentService, Migration, Scenario, ServerDetail, SimError, StationOrder};
use crate::server::{Device, Fifo, Server, capacity_bytes};
use crate::timeline::{Moved, Timeline};
use mover::Mover;
use stripewise_device::Nanos;
use stripewise_layout::{Direction, RequestKind, WriteClass};
use stripewise_trace::{IoRequest, Step};
use travel::{Flight, Sending};
use write_back::WriteBack;

/// How far a simulation is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Simulated seconds.
    pub time_s: f64,
    /// Completed, as the bytes.
    pub requests: u64,
    /// Bytes of those requests.
    pub bytes: u64,
}

/// Events between two calls of `progress`.
const PROGRESS_EVERY: u64 = 1 << 18;

/// Runs the scenario to its end; `progress` is told now and then how far it is.
///
/// # Errors
/// When placements do not fit the files and servers.
pub fn simulate(scenario: &Scenario<'_>, progress: &mut dyn FnMut(Progress)) -> Result<Outcome, SimError> {
    check(scenario)?;
    let mut engine = Engine::new(scenario)?;
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
    let (servers, detail) = (scenario.system.servers.len(), scenario.options.detail.len());
    if detail != 0 && detail != servers {
        return Err(SimError::Detail { servers, detail });
    }
    for (server, detail) in scenario.options.detail.iter().enumerate() {
        if let Some(FragmentService { on, .. }) =
            detail.fragments.filter(|service| usize::from(service.on.0) >= servers)
        {
            return Err(SimError::Fragments { server, on, servers });
        }
    }
    if let Migration::Copied { bandwidth_bytes_per_s, chunk } = scenario.options.migration
        && (chunk.0 == 0 || bandwidth_bytes_per_s.is_some_and(|rate| rate.is_nan() || rate <= 0.0))
    {
        return Err(SimError::Migration);
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

/// What an event is about: three bits of kind, 29 of number.
#[derive(Clone, Copy, Debug)]
enum Event {
    Process(u32),
    /// A sub-request arrives at its next station.
    Flight(u32),
    /// A server's disk is free for the next request.
    Device(u32),
    /// A server's cache has written back.
    Flushed(u32),
    Mover,
    /// A window begins.
    Border,
    /// Clients have written a stretch back.
    WrittenBack(u32),
}

impl Event {
    const NUMBER_BITS: u32 = 29;

    #[inline]
    fn pack(self) -> u32 {
        let (kind, number) = match self {
            Self::Process(number) => (0, number),
            Self::Flight(number) => (1, number),
            Self::Device(number) => (2, number),
            Self::Flushed(number) => (3, number),
            Self::Mover => (4, 0),
            Self::Border => (5, 0),
            Self::WrittenBack(number) => (6, number),
        };
        kind << Self::NUMBER_BITS | number
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        let number = word & ((1 << Self::NUMBER_BITS) - 1);
        match word >> Self::NUMBER_BITS {
            0 => Self::Process(number),
            1 => Self::Flight(number),
            2 => Self::Device(number),
            3 => Self::Flushed(number),
            4 => Self::Mover,
            5 => Self::Border,
            _ => Self::WrittenBack(number),
        }
    }
}

struct Process<'a> {
    steps: Box<dyn Iterator<Item = Step> + Send + 'a>,
    /// The request on its way.
    request: Option<IoRequest>,
    issued: Nanos,
    /// Latest end of the sub-requests that are through.
    end: Nanos,
    /// Sub-requests on their way.
    outstanding: u32,
    node: u32,
}

/// Lays the files out on the devices, where any server is modelled by address.
fn lay_out(servers: &mut [Server], places: &Places<'_>, detail: impl Fn(usize) -> ServerDetail) -> Option<Addresses> {
    if servers.iter().all(|server| !server.by_address) {
        return None;
    }
    let capacities = (0..servers.len()).map(|number| capacity_bytes(&detail(number))).collect();
    let addresses = Addresses::new(capacities, places);
    for (number, server) in servers.iter_mut().enumerate() {
        if let Device::Flash(flash) = &mut server.device {
            flash.fill(addresses.used_bytes(number));
        }
    }
    Some(addresses)
}

struct Engine<'a> {
    scenario: &'a Scenario<'a>,
    order: StationOrder,
    places: Places<'a>,
    /// Where servers are modelled by address.
    addresses: Option<Addresses>,
    mover: Mover,
    /// `None`: buffered writes wait for the servers.
    write_back: Option<WriteBack>,
    servers: Vec<Server>,
    client_links: Vec<Fifo>,
    processes: Vec<Process<'a>>,
    queue: EventQueue,
    flights: Vec<Flight>,
    free_flights: Vec<u32>,
    parts: Vec<Part>,
    /// Processes at the barrier.
    waiting: Vec<u32>,
    phase_border: bool,
    finished: u32,
    phase: usize,
    now: Nanos,
    /// Requests on their way, and the integral of their number over time, in request-ns.
    in_flight: u64,
    in_flight_ns: u128,
    latencies: [Histogram; 2],
    timeline: Option<Timeline>,
    outcome: Outcome,
}

impl<'a> Engine<'a> {
    fn new(scenario: &'a Scenario<'a>) -> Result<Self, SimError> {
        let program = scenario.program;
        let servers = &scenario.system.servers;
        let sizes: Vec<(String, u64)> =
            program.files().iter().map(|file| (file.path.clone(), file.size_bytes)).collect();
        let process = |number| Process {
            steps: program.steps(number),
            request: None,
            issued: Nanos(0),
            end: Nanos(0),
            outstanding: 0,
            node: program.node_of(number),
        };
        let detail = |number: usize| scenario.options.detail.get(number).copied().unwrap_or_default();
        let server = |(number, model)| {
            let seed = scenario.options.seed.wrapping_mul(0x9E37_79B9).wrapping_add(number as u64);
            Server::new(model, &detail(number), seed)
        };
        let mut servers: Vec<Server> = servers.iter().enumerate().map(server).collect();
        let places = Places::new(&sizes, scenario.files)?;
        let addresses = lay_out(&mut servers, &places, detail);
        let mut engine = Self {
            scenario,
            order: scenario.options.order,
            places,
            addresses,
            mover: Mover::default(),
            write_back: scenario.options.write_back.map(|limit| WriteBack::new(limit.0, servers.len())),
            client_links: vec![Fifo::default(); program.nodes().max(1) as usize],
            processes: (0..program.processes()).map(process).collect(),
            queue: EventQueue::new(),
            flights: Vec::new(),
            free_flights: Vec::new(),
            parts: Vec::new(),
            waiting: Vec::new(),
            phase_border: false,
            finished: 0,
            phase: 0,
            now: Nanos(0),
            in_flight: 0,
            in_flight_ns: 0,
            latencies: [Histogram::new(), Histogram::new()],
            timeline: Timeline::new(scenario.options.slice_s, servers.len()),
            servers,
            outcome: Outcome { phases: vec![PhaseOutcome::default()], ..Outcome::default() },
        };
        engine.schedule_borders();
        for number in 0..program.processes() {
            engine.queue.push(Nanos(0), Event::Process(number).pack());
        }
        Ok(engine)
    }

    fn schedule_borders(&mut self) {
        if self.scenario.options.borders == Borders::Time {
            let windows = self.scenario.files.iter().flat_map(|file| file.windows.iter().skip(1));
            let mut times: Vec<Nanos> = windows.map(|window| Nanos::from_seconds(window.start_s)).collect();
            times.sort_unstable();
            times.dedup();
            times.into_iter().for_each(|time| self.queue.push(time, Event::Border.pack()));
        }
    }

    fn run(&mut self, progress: &mut dyn FnMut(Progress)) {
        while let Some((now, event)) = self.queue.pop() {
            self.in_flight_ns += u128::from(self.in_flight) * u128::from(now.0 - self.now.0);
            self.now = now;
            match Event::unpack(event) {
                Event::Process(process) => self.go_on(process),
                Event::Flight(flight) => self.arrive(flight),
                Event::Device(server) => {
                    self.outcome.events += 1;
                    self.start_disk(server);
                }
                Event::Flushed(server) => self.flushed(server),
                Event::Mover => self.mover_goes_on(),
                Event::Border => self.cross_border(),
                Event::WrittenBack(stretch) => self.written_back(stretch),
            }
            if self.finished as usize == self.processes.len()
                && self.write_back.as_ref().is_none_or(WriteBack::is_clean)
            {
                return;
            }
            if self.outcome.events.is_multiple_of(PROGRESS_EVERY) {
                let Outcome { read, write, .. } = &self.outcome;
                let (requests, bytes) = (read.requests + write.requests, read.bytes + write.bytes);
                progress(Progress { time_s: now.seconds(), requests, bytes });
            }
        }
    }

    fn go_on(&mut self, number: u32) {
        self.outcome.events += 1;
        if let Some(request) = self.processes[number as usize].request.take() {
            self.complete(number, request);
        }
        match self.processes[number as usize].steps.next() {
            Some(Step::Access(request)) => self.issue(number, request),
            Some(Step::Think { nanoseconds }) => {
                self.queue.push(self.now + Nanos(nanoseconds), Event::Process(number).pack());
            }
            Some(Step::Until { nanoseconds }) => {
                self.queue.push(self.now.max(Nanos(nanoseconds)), Event::Process(number).pack());
            }
            Some(Step::Synchronize(file)) => {
                let write_back = self.write_back.as_mut();
                let servers = write_back.map_or(0, |write_back| write_back.synchronize(number, file.0 as usize));
                let process = &mut self.processes[number as usize];
                (process.end, process.outstanding) = (self.now, 1 + servers);
                self.part_done(number, self.now);
            }
            Some(step @ (Step::Barrier | Step::Phase)) => {
                self.phase_border |= step == Step::Phase;
                self.waiting.push(number);
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
        let running = self.processes.len() - self.finished as usize;
        if self.waiting.is_empty() || self.waiting.len() < running {
            return;
        }
        if std::mem::take(&mut self.phase_border) {
            self.phase += 1;
            let start_s = self.now.seconds();
            self.outcome.phases.last_mut().expect("begins with one").end_s = start_s;
            self.outcome.phases.push(PhaseOutcome { start_s, ..PhaseOutcome::default() });
            if self.scenario.options.borders == Borders::Phase {
                self.cross_border();
            }
        }
        for process in std::mem::take(&mut self.waiting) {
            self.queue.push(self.now, Event::Process(process).pack());
        }
    }

    /// Enters the windows that begin now.
    fn cross_border(&mut self) {
        for (file, placements) in self.scenario.files.iter().enumerate() {
            let windows = &placements.windows;
            let number = match self.scenario.options.borders {
                Borders::Time => {
                    let begun = |window: &crate::PlacedWindow| Nanos::from_seconds(window.start_s) <= self.now;
                    windows.partition_point(begun).max(1) - 1
                }
                Borders::Phase => self.phase.min(windows.len() - 1),
            };
            if number != self.places.files[file].window {
                self.enter_window(file, number);
            }
        }
    }

    /// Sends the sub-requests of a request on their way.
    fn issue(&mut self, number: u32, request: IoRequest) {
        let process = &mut self.processes[number as usize];
        (process.request, process.issued, process.end) = (Some(request), self.now, self.now);
        // One more than are on their way, until all have been sent.
        process.outstanding = 1;
        let node = process.node;
        self.in_flight += 1;
        let file = request.file.0 as usize;
        let mut parts = std::mem::take(&mut self.parts);
        let is_written_back = self.write_back.is_some() && request.kind == RequestKind::Write(WriteClass::Buffered);
        let mut written: Vec<u32> = Vec::new();
        let pieces = self.places.files[file].geometry.pieces(request.offset, request.bytes);
        for piece in pieces {
            let region = piece.region;
            let cycle = self.places.cycle_number(file, region);
            parts.clear();
            self.places.cycle(cycle).split(piece.offset.0, piece.length, &mut parts);
            if !is_written_back {
                self.processes[number as usize].outstanding += parts.len() as u32;
            }
            let extents = self.addresses.as_ref().and_then(|addresses| addresses.extents(file, region));
            let sending = Sending { owner: number, node, direction: request.direction(), file, region, extents };
            for part in &parts {
                let part = self.on_its_device(cycle, &request, *part);
                if is_written_back {
                    written.push(part.server);
                    self.keep_dirty(&sending, part);
                } else {
                    self.send(&sending, part);
                }
            }
            if request.direction() == Direction::Write {
                self.write_to_new_place(&piece, &sending);
            }
        }
        self.parts = parts;
        let is_throttled =
            self.write_back.as_mut().is_some_and(|write_back| write_back.throttle(number, written.into_iter()));
        if !is_throttled {
            self.part_done(number, self.now);
        }
    }

    /// The sub-request, sent to the SSD beside its server if it is a fragment that lies there.
    #[inline]
    fn on_its_device(&self, cycle: u32, request: &IoRequest, part: Part) -> Part {
        let detail = self.scenario.options.detail.get(part.server as usize);
        match detail.and_then(|detail| detail.fragments) {
            Some(service)
                if service.serves(request.bytes, self.places.cycle(cycle).stripe_bytes(part.turn), part.bytes) =>
            {
                Part { server: u32::from(service.on.0), ..part }
            }
            _ => part,
        }
    }

    /// A sub-request of a process is through at `end`, now or later.
    #[inline]
    fn part_done(&mut self, number: u32, end: Nanos) {
        let process = &mut self.processes[number as usize];
        process.end = process.end.max(end);
        process.outstanding -= 1;
        if process.outstanding == 0 {
            let end = process.end;
            self.queue.push(end, Event::Process(number).pack());
        }
    }

    fn complete(&mut self, number: u32, request: IoRequest) {
        self.in_flight -= 1;
        let latency = self.now.saturating_sub(self.processes[number as usize].issued);
        let phase = self.outcome.phases.last_mut().expect("begins with one");
        let (sum, bytes) = match request.direction() {
            Direction::Read => (&mut self.outcome.read, &mut phase.read_bytes),
            Direction::Write => (&mut self.outcome.write, &mut phase.write_bytes),
        };
        *bytes += request.bytes;
        sum.requests += 1;
        sum.bytes += request.bytes;
        self.latencies[request.direction() as usize].note(latency);
        if let Some(timeline) = &mut self.timeline {
            timeline.note_bytes(self.now, Moved::Program(request.direction()), request.bytes);
        }
    }

    fn finish(mut self) -> Outcome {
        let time_s = self.now.seconds();
        let over_time = |bytes: u64| if time_s > 0.0 { bytes as f64 / 1e6 / time_s } else { 0.0 };
        let unmoved_bytes = self.unmoved_bytes();
        let mut outcome = self.outcome;
        outcome.unmoved_bytes = unmoved_bytes;
        let directions: [&mut DirectionOutcome; 2] = [&mut outcome.read, &mut outcome.write];
        for (direction, latencies) in directions.into_iter().zip(&self.latencies) {
            direction.mb_per_s = over_time(direction.bytes);
            direction.latency = latencies.latency();
        }
        let [mut all, writes] = self.latencies;
        all.add(&writes);
        outcome.latency = all.latency();
        outcome.in_flight = if self.now.0 > 0 { self.in_flight_ns as f64 / self.now.0 as f64 } else { 0.0 };
        outcome.time_s = time_s;
        outcome.mb_per_s = over_time(outcome.read.bytes + outcome.write.bytes);
        outcome.phases.last_mut().expect("begins with one").end_s = time_s;
        outcome.servers = self.servers.iter().map(Server::outcome).collect();
        let channels: Vec<usize> = self.servers.iter().map(|server| server.channels).collect();
        outcome.timeline = self.timeline.take().map_or_else(Vec::new, |line| line.slices(self.now, &channels));
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FilePlacements, ServerModel, SimOptions, System};
    use stripewise_device::{lookup_device, lookup_link};
    use stripewise_layout::{ByteCount, FileOffset, Layout, Placement, ServerId};
    use stripewise_trace::{FileShape, Program, ProgramFile};

    struct Reads {
        files: Vec<FileShape>,
        each: u64,
    }

    impl Program for Reads {
        fn files(&self) -> &[FileShape] {
            &self.files
        }
        fn processes(&self) -> u32 {
            10
        }
        fn nodes(&self) -> u32 {
            1
        }
        fn phases(&self) -> u32 {
            1
        }
        fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
            Box::new((0..self.each).map(move |number| {
                let offset = FileOffset(((number * 31 + u64::from(process)) % 64) << 16);
                Step::Access(IoRequest { file: ProgramFile(0), kind: Direction::Read.into(), offset, bytes: 1 << 16 })
            }))
        }
    }

    #[test]
    fn memory_follows_what_is_on_its_way_and_not_the_length_of_the_run() {
        let link = lookup_link("gigabit").ok();
        let server = |name: &str| ServerModel { name: name.to_owned(), device: lookup_device(name).unwrap(), link };
        let system = System { servers: ["nvme", "sata-ssd-2012"].map(server).to_vec(), client_link: link };
        let layout = Layout::new([(ServerId(0), 4096), (ServerId(1), 8192)]).unwrap();
        let files = [FilePlacements::fixed(Placement::uniform(ByteCount(1 << 22), layout.clone(), layout))];
        let capacities = [100, 5_000].map(|each| {
            let program = Reads { files: vec![FileShape { path: "/f".into(), size_bytes: 1 << 22 }], each };
            let options = SimOptions::default();
            let scenario = Scenario { system: &system, program: &program, files: &files, options };
            let mut engine = Engine::new(&scenario).unwrap();
            engine.run(&mut |_| {});
            assert_eq!(engine.free_flights.len(), engine.flights.len(), "all have arrived");
            engine.flights.len()
        });
        assert!(capacities[1] <= 2 * 10 && capacities[1] <= capacities[0] + 2, "{capacities:?}");
    }
}
