//! The emulation against an event simulation of the same system: a closed loop of 32 processes, within 3 %.
//!
//! Time is virtual here, so that every figure is exact and repeatable; `cargo run --release --example emulated_closed_loop` does the same with
//! real processes, real bytes and the real clock, and prints what it finds.

#[path = "emulation/event_simulation.rs"]
mod event_simulation;
#[path = "emulation/workload.rs"]
mod workload;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use stripewise_device::Nanos;
use stripewise_layout::ServerId;
use stripewise_store::server::clock::Clock;
use stripewise_store::server::emulated::EmulatedSpec;
use stripewise_store::server::pace::Pacer;
use stripewise_store::server::stations::{Parts, Stations};
use workload::{Mix, Workload};

const PROCESSES: usize = 32;

/// A host that wakes its sleepers late by up to `late_ns`, differently each time.
struct LateHost {
    now: Cell<Nanos>,
    late_ns: u64,
    draws: Cell<u64>,
}

impl Clock for LateHost {
    fn now(&self) -> Nanos {
        self.now.get()
    }

    fn sleep_until(&self, until: Nanos) {
        self.draws
            .set(self.draws.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        let late = (self.draws.get() >> 33) % (self.late_ns + 1);
        self.now.set(self.now.get().max(until + Nanos(late)));
    }
}

/// What the host does to the processes.
#[derive(Clone, Copy)]
struct Host {
    late_ns: u64,
    /// Whether lateness is carried over to the next issue, as it should be.
    carries: bool,
}

const PUNCTUAL: Host = Host { late_ns: 0, carries: true };

/// Runs the closed loop on fresh stations, process by process in the order in which the host lets them act; returns when the last
/// request of each was due.
fn emulate(servers: &[EmulatedSpec], processes: usize, requests: usize, workload: &Workload, host: Host) -> Vec<Nanos> {
    let stations = fresh_stations(servers.len());
    // A clock that starts at 0 would hide errors of the first issue.
    let start = Nanos(1 << 40);
    let clock = LateHost { now: Cell::new(start), late_ns: host.late_ns, draws: Cell::new(workload.seed) };
    let mut pacers = vec![Pacer::new(); processes];
    let mut done = vec![0; processes];
    let mut ends = vec![Nanos(0); processes];
    let mut acting: BinaryHeap<_> = (0..processes).map(|process| Reverse((start, process))).collect();
    while let Some(Reverse((now, process))) = acting.pop() {
        if done[process] == requests {
            continue;
        }
        clock.now.set(now);
        if !host.carries {
            pacers[process] = Pacer::new();
        }
        let mut due = Nanos(0);
        for (server, access) in workload.request(process, done[process]) {
            let issue = pacers[process].issue(&clock, &stations);
            let stops = (&servers[server].device, servers[server].link.as_ref());
            let server = ServerId(server as u16);
            due = due.max(stations.reserve_at(server, stops, Parts::DeviceAndLink, issue, &access).end);
        }
        ends[process] = due.saturating_sub(start);
        pacers[process].wait(&clock, &stations, due);
        done[process] += 1;
        acting.push(Reverse((clock.now.get(), process)));
    }
    ends
}

fn fresh_stations(servers: usize) -> Stations {
    let directory = tempfile::tempdir().unwrap();
    let file = Stations::establish(&directory.path().join("stations"), servers).unwrap();
    Stations::open(file, servers).unwrap()
}

fn simulate(servers: &[EmulatedSpec], requests: usize, workload: &Workload) -> Vec<Nanos> {
    event_simulation::simulate(servers, PROCESSES, requests, |process, number| workload.request(process, number))
}

/// Seconds until a process was done, on average: the figure that bandwidth is made of, less at the mercy of the last one than the greatest.
fn mean_s(ends: &[Nanos]) -> f64 {
    ends.iter().map(|end| end.seconds()).sum::<f64>() / ends.len() as f64
}

const DEVICES: [(&str, &str); 3] = [("hdd-7200", "sata-ssd-2012"), ("paper-hdd", "paper-ssd"), ("hdd-7200", "nvme")];

fn workloads(mixes: &[Mix]) -> Vec<(usize, Workload)> {
    let mut workloads = Vec::new();
    for (h, s) in [(65_536, 65_536), (0, 65_536), (20_480, 110_592), (65_536, 0)] {
        for (request_bytes, requests) in [(65_536, 60), (262_144, 40), (1 << 20, 20), (4 << 20, 8)] {
            for &mix in mixes {
                for sequential in [false, true] {
                    let layout = Workload::striped(h, s);
                    workloads.push((requests, Workload { layout, request_bytes, mix, sequential, seed: 7 }));
                }
            }
        }
    }
    workloads
}

/// Where all requests go one way, reservation at issue *is* service in order of arrival: every process is done at the same nanosecond.
#[test]
fn on_a_punctual_host_the_emulation_is_the_event_simulation() {
    for (hdd, ssd) in DEVICES {
        let servers = workload::testbed(hdd, ssd);
        for (requests, workload) in workloads(&[Mix::Reads, Mix::Writes]) {
            let emulated = emulate(&servers, PROCESSES, requests, &workload, PUNCTUAL);
            assert_eq!(emulated, simulate(&servers, requests, &workload), "{hdd}, {ssd}, {workload:?}");
        }
    }
}

/// Reads and writes together overtake each other on an SSD's channels, which reservation at issue does not see.
#[test]
fn reads_and_writes_together_stay_within_three_per_cent() {
    for (hdd, ssd) in DEVICES {
        let servers = workload::testbed(hdd, ssd);
        for (requests, workload) in workloads(&[Mix::Half]) {
            let emulated = mean_s(&emulate(&servers, PROCESSES, requests, &workload, PUNCTUAL));
            let ratio = mean_s(&simulate(&servers, requests, &workload)) / emulated;
            assert!((0.97..=1.03).contains(&ratio), "{ratio:.4} for {hdd}, {ssd}, {workload:?}");
        }
    }
}

/// Wake-ups up to 0.5 ms late, ten times what a machine with time to spare does, leave the emulated time where it was. The order in
/// which processes issue is another, so runs of several seeds are taken together.
#[test]
fn a_late_host_does_not_slow_the_devices() {
    for (hdd, ssd) in DEVICES {
        let servers = workload::testbed(hdd, ssd);
        let ratio = |workload: &Workload, requests, host| {
            let (mut simulated, mut emulated) = (0.0, 0.0);
            for seed in 0..8 {
                let workload = Workload { seed, ..workload.clone() };
                simulated += mean_s(&simulate(&servers, requests, &workload));
                emulated += mean_s(&emulate(&servers, PROCESSES, requests, &workload, host));
            }
            simulated / emulated
        };
        for request_bytes in [65_536, 1 << 20] {
            let requests = if request_bytes == 65_536 { 120 } else { 20 };
            let layout = Workload::striped(65_536, 65_536);
            let workload = Workload { layout, request_bytes, mix: Mix::Half, sequential: false, seed: 0 };
            let carried = ratio(&workload, requests, Host { late_ns: 500_000, carries: true });
            assert!((0.97..=1.03).contains(&carried), "{carried:.4} for {hdd}, {ssd}, {workload:?}");
        }
    }
}

/// One process alone, whose every wait is late by up to 2 ms: carried over, not a nanosecond is lost; dropped, they add up.
#[test]
fn lateness_is_carried_to_the_next_issue() {
    let servers = workload::testbed("hdd-7200", "sata-ssd-2012");
    let layout = Workload::striped(0, 16_384);
    let workload = Workload { layout, request_bytes: 65_536, mix: Mix::Half, sequential: false, seed: 5 };
    let simulated = event_simulation::simulate(&servers, 1, 100, |_, number| workload.request(0, number));
    let host = |carries| Host { late_ns: 2_000_000, carries };
    assert_eq!(emulate(&servers, 1, 100, &workload, host(true)), simulated);
    let dropped = emulate(&servers, 1, 100, &workload, host(false));
    assert!(mean_s(&dropped) > mean_s(&simulated) + 99.0 * 0.0005, "{dropped:?}, {simulated:?}");
}

#[test]
fn the_host_report_counts_skew_stalls_and_lateness() {
    let stations = fresh_stations(1);
    let run = |late_ns: u64, second_start: u64| {
        stations.reset_counters();
        for process in 0..2_u64 {
            let start = Nanos((1 << 40) + process * second_start);
            let host = LateHost { now: Cell::new(start), late_ns: 0, draws: Cell::new(0) };
            let mut pacer = Pacer::new();
            for _ in 0..10 {
                let issue = pacer.issue(&host, &stations);
                pacer.wait(&host, &stations, issue + Nanos(100_000_000));
                host.now.set(host.now.get() + Nanos(1_000));
            }
            let issue = pacer.issue(&host, &stations);
            host.now.set(issue + Nanos(1_000_000 + late_ns));
            pacer.wait(&host, &stations, issue + Nanos(1_000_000));
        }
        stations.host_report()
    };
    let calm = run(19_000_000, 5_000_000);
    assert!(!calm.is_host_bound(), "{calm:?}");
    assert_eq!((calm.waits, calm.stalls, calm.overruns), (22, 0, 2));
    assert_eq!((calm.late_max, calm.late_sum), (Nanos(19_000_000), Nanos(38_000_000)));
    assert_eq!(calm.start_skew, Nanos(5_000_000));
    assert_eq!(calm.span, Nanos(1_006_010_000));
    assert!(run(19_000_000, 20_000_000).is_host_bound(), "20 ms of skew in a second");
    assert!(run(21_000_000, 0).is_host_bound(), "a stall of 21 ms");
}

const RESERVES_UNTIL_KILLED: &str = "EMULATION_TEST_STATIONS";

/// A process killed at any instruction leaves clocks that go on: no lock, no torn word.
#[test]
fn killed_processes_hold_up_nobody() {
    use stripewise_device::{Access, DiskPlace, ExtentId};
    use stripewise_layout::{Direction, ObjectOffset};
    let spec = EmulatedSpec::named("hdd-7200", Some("gigabit"), 1.0).unwrap();
    let reserve = |stations: &Stations, number: u64| {
        let place = DiskPlace { extent: ExtentId(1), after: None, offset: ObjectOffset((number % 1000) << 20) };
        let access = Access { direction: Direction::Write, place, bytes: 65_536 };
        let stops = (&spec.device, spec.link.as_ref());
        stations.reserve_at(ServerId(0), stops, Parts::DeviceAndLink, Nanos(0), &access)
    };
    if let Some(path) = std::env::var_os(RESERVES_UNTIL_KILLED) {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let stations = Stations::open(file, 1).unwrap();
        for number in 0.. {
            reserve(&stations, number);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stations");
    let stations = Stations::open(Stations::establish(&path, 1).unwrap(), 1).unwrap();
    for _ in 0..20 {
        let mut children: Vec<_> = (0..2)
            .map(|_| {
                std::process::Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "killed_processes_hold_up_nobody", "-q"])
                    .env(RESERVES_UNTIL_KILLED, &path)
                    .stdout(std::process::Stdio::null())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let before = stations.server_load(ServerId(0)).sub_requests;
        while stations.server_load(ServerId(0)).sub_requests < before + 1000 {
            assert!(children.iter_mut().all(|child| child.try_wait().unwrap().is_none()), "a child ended by itself");
            std::thread::yield_now();
        }
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let (before, load) = (reserve(&stations, 1), stations.server_load(ServerId(0)));
        let after = reserve(&stations, 500);
        let service = spec.device.demand(Direction::Write, 65_536, None).serial;
        assert!(before.end > before.device_end, "{before:?}");
        assert_eq!(after.device_end, before.device_end + service, "the very next place in the queue");
        // What the killed ones reserved and did not come to count, or counted, is one request each.
        let one = service.0.max(spec.link.unwrap().demand(65_536).0);
        assert!(before.device_end.0.abs_diff(load.device_busy.0) <= 40 * one, "{before:?}, {load:?}");
    }
}
