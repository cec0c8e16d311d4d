//! How many events a second the engine handles on one core. Prints one JSON object: the median in million events for each second of processor time
//! (the engine has one thread and does no I/O, so what else runs on the machine does not count), beside its floor, taking as many events from a
//! queue of the same length (the standard library's heap) and putting them back.
//!
//! What counts as an event: a sub-request that arrives at a station (the SSD's channels and its interface, the disk, the server's link, the client
//! node's link are stations), or a process that goes on. The system: 12 disks and 4 SSDs, 128 processes on 8 nodes that read 256 KiB each in a closed
//! loop, Zipf 0.8 over 2,048 regions, in stripes of 64 KiB, the way over server and client links.
//!
//! `cargo bench -p stripewise-sim --bench events`; with `-- --all`, other systems too, on standard error.

use rustix::time::{ClockId, clock_gettime};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, Layout, Placement, ServerId};
use stripewise_sim::{FilePlacements, Scenario, ServerModel, SimOptions, StationOrder, System, simulate};
use stripewise_trace::workload::{Generator, Pattern, Workload};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

const REPETITIONS: usize = 7;
const REGION_BYTES: u64 = 64 << 20;

struct Zipf {
    files: Vec<FileShape>,
    generator: Generator,
    nodes: u32,
}

impl Zipf {
    fn new(processes: u32, nodes: u32, requests_per_rank: u64) -> Self {
        let workload = Workload {
            pattern: Pattern::Zipf { exponent: 0.8, region_size: ByteCount(REGION_BYTES) },
            file_size: ByteCount(2048 * REGION_BYTES),
            request_size: ByteCount(256 << 10),
            direction: Direction::Read,
            ranks: processes,
            requests_per_rank,
            seed: 42,
        };
        let files = vec![FileShape { path: "/data".into(), size_bytes: workload.file_size.0 }];
        Self { files, generator: workload.generator().expect("sizes fit"), nodes }
    }
}

impl Program for Zipf {
    fn files(&self) -> &[FileShape] {
        &self.files
    }
    fn processes(&self) -> u32 {
        self.generator.workload().ranks
    }
    fn nodes(&self) -> u32 {
        self.nodes
    }
    fn phases(&self) -> u32 {
        1
    }
    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let direction = self.generator.workload().direction;
        Box::new(self.generator.requests(process).map(move |request| {
            Step::Access(IoRequest {
                file: ProgramFile(0),
                kind: direction.into(),
                offset: request.offset,
                bytes: request.bytes,
            })
        }))
    }
}

fn system(hdd: usize, ssd: usize, client_links: bool) -> System {
    let link = lookup_link("gigabit").expect("a known name");
    let server = |number: usize| {
        let device = if number < hdd { "hdd-7200" } else { "sata-ssd-2012" };
        let device = lookup_device(device).expect("a known name");
        ServerModel { name: format!("server{number}"), device, link: Some(link) }
    };
    System { servers: (0..hdd + ssd).map(server).collect(), client_link: client_links.then_some(link) }
}

/// Stripes of 64 KiB over `width` servers; regions begin one server further each.
fn striped(servers: usize, width: usize) -> FilePlacements {
    let layout = |first: usize| {
        Layout::new((0..width).map(|turn| (ServerId(((first + turn) % servers) as u16), 64 << 10))).expect("stripes")
    };
    let region_size = ByteCount(REGION_BYTES);
    FilePlacements::fixed(Placement::from_regions(region_size, (0..2048).map(layout), layout(0), layout(0)))
}

/// Seconds that this thread has computed.
fn processor_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Events, and seconds for all of them.
fn run(system: &System, program: &Zipf, files: &[FilePlacements], order: StationOrder) -> (u64, f64) {
    let options = SimOptions { order, ..SimOptions::default() };
    let scenario = Scenario { system, program, files, options };
    let start_s = processor_s();
    let outcome = simulate(&scenario, &mut |_| {}).expect("a sound scenario");
    let seconds = processor_s() - start_s;
    (black_box(outcome).events, seconds)
}

/// Seconds to take `events` events from a heap of `pending` and to put each back somewhat later.
fn floor(events: u64, pending: u64) -> f64 {
    let start_s = processor_s();
    let mut heap: BinaryHeap<Reverse<(u64, u32)>> = (0..pending).map(|n| Reverse((n * 977, n as u32))).collect();
    for step in 0..events {
        let Reverse((time, number)) = heap.pop().expect("never empty");
        heap.push(Reverse((time + 1_000_000 + step * 7_919 % 500_000, number)));
    }
    black_box(heap.len());
    processor_s() - start_s
}

fn repetitions() -> usize {
    // `cargo test --all-targets` runs this too, without the flag that `cargo bench` gives: once shows that it works.
    if std::env::args().any(|argument| argument == "--bench") { REPETITIONS } else { 1 }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let requests = if repetitions() > 1 { 4_000 } else { 40 };
    let (machines, files) = (system(12, 4, true), [striped(16, 16)]);
    let program = Zipf::new(128, 8, requests);
    let (mut rates, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..repetitions() {
        let (events, seconds) = run(&machines, &program, &files, StationOrder::Network);
        rates.push(events as f64 / seconds / 1e6);
        floors.push(events as f64 / floor(events, 128 * 4) / 1e6);
    }
    let (value, floor) = (median(rates), median(floors));
    let ratio = value / floor;
    println!(
        r#"{{"name": "sim.events", "value": {value:.2}, "unit": "M/s", "floor": {floor:.2}, "ratio": {ratio:.3}}}"#
    );
    if !std::env::args().any(|argument| argument == "--all") {
        return;
    }
    let wide = |name: &str, servers: (usize, usize), processes: u32, per_process: u64, width: usize, order| {
        let system = system(servers.0, servers.1, order == StationOrder::Network);
        let files = [striped(servers.0 + servers.1, width)];
        let (events, seconds) = run(&system, &Zipf::new(processes, processes.div_ceil(16), per_process), &files, order);
        eprintln!("{name:<55} {:8.2} M events/s, {seconds:.2} s", events as f64 / seconds / 1e6);
    };
    wide("as above, device first", (12, 4), 128, 4_000, 16, StationOrder::DeviceFirst);
    wide("as above, whole regions", (12, 4), 128, 4_000, 1, StationOrder::Network);
    wide("32 processes, whole regions, device first", (12, 4), 32, 16_000, 1, StationOrder::DeviceFirst);
    wide("1,000 servers, 100,000 processes, stripes over 16", (750, 250), 100_000, 20, 16, StationOrder::Network);
    wide("1,000 servers, 100,000 processes, stripes over 256", (750, 250), 100_000, 20, 256, StationOrder::Network);
}
