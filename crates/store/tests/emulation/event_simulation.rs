//! An event simulation of clients in a closed loop over servers, for comparison with the emulation: every station serves in
//! order of *arrival at it*, event by event, where the emulation reserves all stations at issue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use stripewise_device::{Access, Demand, DeviceSpec, Nanos, RecentStreams};
use stripewise_store::server::emulated::EmulatedSpec;

/// What one request asks of each server that it touches.
pub(crate) type Request = Vec<(usize, Access)>;

struct Stage {
    servers: usize,
    busy: usize,
    queue: VecDeque<usize>,
}

/// The stages that a sub-request passes on one server.
const CHANNEL: usize = 0;
const SERIAL: usize = 1;
const LINK: usize = 2;

struct Job {
    process: usize,
    server: usize,
    access: Access,
    demand: Demand,
}

/// At one instant sub-requests leave before processes issue, and processes issue in their order: as in the emulation.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Leave { job: usize, stage: usize },
    Issue { process: usize },
}

struct Simulation<'a> {
    servers: &'a [EmulatedSpec],
    stages: Vec<[Stage; 3]>,
    streams: Vec<RecentStreams>,
    jobs: Vec<Job>,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
}

impl Simulation<'_> {
    fn schedule(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, event)));
    }

    fn arrive(&mut self, now: Nanos, job: usize, stage: usize) {
        self.stages[self.jobs[job].server][stage].queue.push_back(job);
        self.serve(now, self.jobs[job].server, stage);
    }

    fn serve(&mut self, now: Nanos, server: usize, stage: usize) {
        while self.stages[server][stage].busy < self.stages[server][stage].servers {
            let Some(job) = self.stages[server][stage].queue.pop_front() else { return };
            self.stages[server][stage].busy += 1;
            let access = self.jobs[job].access;
            let span = match stage {
                CHANNEL => self.jobs[job].demand.channel,
                SERIAL => match self.servers[server].device {
                    DeviceSpec::Hdd(hdd) => {
                        let skipped =
                            self.streams[server].note(hdd.streams, access.place, access.bytes, hdd.skip_bytes);
                        self.servers[server].device.demand(access.direction, access.bytes, skipped).serial
                    }
                    DeviceSpec::Ssd(_) => self.jobs[job].demand.serial,
                },
                _ => self.servers[server].link.map_or(Nanos(0), |link| link.demand(access.bytes)),
            };
            self.schedule(now + span, Event::Leave { job, stage });
        }
    }
}

/// When each of `processes` processes has done its `requests` requests, one after the other, all starting at 0.
pub(crate) fn simulate(
    servers: &[EmulatedSpec],
    processes: usize,
    requests: usize,
    workload: impl Fn(usize, usize) -> Request,
) -> Vec<Nanos> {
    let stage = |servers| Stage { servers, busy: 0, queue: VecDeque::new() };
    let mut simulation = Simulation {
        servers,
        stages: servers.iter().map(|server| [stage(server.device.channels()), stage(1), stage(1)]).collect(),
        streams: vec![RecentStreams::default(); servers.len()],
        jobs: Vec::new(),
        events: BinaryHeap::new(),
    };
    let mut done = vec![0; processes];
    let mut in_flight = vec![0; processes];
    for process in 0..processes {
        simulation.schedule(Nanos(0), Event::Issue { process });
    }
    let mut ends = vec![Nanos(0); processes];
    while let Some(Reverse((now, event))) = simulation.events.pop() {
        match event {
            Event::Issue { process } if done[process] == requests => ends[process] = now,
            Event::Issue { process } => {
                let request = workload(process, done[process]);
                in_flight[process] = request.len();
                for (server, access) in request {
                    let device = &servers[server].device;
                    let demand = device.demand(access.direction, access.bytes, None);
                    simulation.jobs.push(Job { process, server, access, demand });
                    let first = if device.channels() > 0 { CHANNEL } else { SERIAL };
                    simulation.arrive(now, simulation.jobs.len() - 1, first);
                }
            }
            Event::Leave { job, stage } => {
                let (server, process) = (simulation.jobs[job].server, simulation.jobs[job].process);
                simulation.stages[server][stage].busy -= 1;
                simulation.serve(now, server, stage);
                if stage < LINK {
                    simulation.arrive(now, job, stage + 1);
                } else {
                    in_flight[process] -= 1;
                    if in_flight[process] == 0 {
                        done[process] += 1;
                        simulation.schedule(now, Event::Issue { process });
                    }
                }
            }
        }
    }
    ends
}
