//! Predictions of buffered writes against the simulator's write-back and against that of emulated servers: scattered and dense, on whole regions and
//! striped.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use stripewise::laboratory::Lab;
use stripewise_device::{DeviceSpec, LinkSpec, lookup_device, lookup_link};
use stripewise_layout::{
    ByteCount, FileId, Generation, Layout, Placement, RegionGeometry, RequestKind, ServerId, WriteClass,
};
use stripewise_model::{Concurrency, OrderedLines};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_store::server::emulated::{EmulatedServer, EmulatedSpec};
use stripewise_store::server::memory::MemoryServer;
use stripewise_store::server::stations::Stations;
use stripewise_store::server::{DeviceTime as _, ObjectName};
use stripewise_trace::{Program as _, Step};
use support::{PROCESSES, SEED, Skewed};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const REGION: ByteCount = ByteCount(8 * MIB);
const REGIONS: u64 = 128;

/// Disk, SSD and link. No gap is short enough to be skipped.
fn devices() -> (DeviceSpec, DeviceSpec, LinkSpec) {
    let mut disk = lookup_device("paper-hdd-5ms").unwrap();
    if let DeviceSpec::Hdd(disk) = &mut disk {
        disk.skip_bytes = 0;
    }
    (disk, lookup_device("paper-ssd").unwrap(), lookup_link("infiniband").unwrap())
}

/// Six disks and two SSDs whose buffered writes cost what direct ones do, once they reach them.
fn lab() -> Lab {
    let (disk, ssd, link) = devices();
    let mut lab = Lab::hybrid((6, disk), (2, ssd), link, None, REGION);
    for server in &mut lab.profile.servers {
        server.buffered_write = Some(OrderedLines { sequential: server.write_sequential, random: server.write_random });
    }
    lab
}

fn writes(request_bytes: u64, requests: u64) -> Skewed {
    Skewed::new((REGION, REGIONS), RequestKind::Write(WriteClass::Buffered), request_bytes, requests, 2)
}

/// Regions dealt out whole to all servers in turn, and striped over them; on disks alone, and on all.
fn placements() -> Vec<(&'static str, Placement)> {
    let whole = |server: u16| Layout::new([(ServerId(server), REGION.0 as u32)]).unwrap();
    let striped =
        |servers: u16, stripe: u64| Layout::new((0..servers).map(|id| (ServerId(id), stripe as u32))).unwrap();
    let dealt: Vec<Layout> = (0..REGIONS).map(|region| whole((region * 5 % 8) as u16)).collect();
    let uniform = |layout: Layout| Placement::uniform(REGION, layout.clone(), layout);
    vec![
        ("whole regions", Placement::from_regions(REGION, dealt, whole(0), whole(0))),
        ("over all", uniform(striped(8, 64 * KIB))),
        ("over the disks", uniform(striped(6, 256 * KIB))),
    ]
}

/// How far a prediction may be off: the model's part, and twice what the mean of so many draws varies by.
fn limit(requests: u64) -> f64 {
    0.15_f64.hypot(2.0 / (requests as f64).sqrt())
}

#[test]
fn buffered_writes_are_predicted_as_the_simulator_finds_them() {
    let lab = lab();
    let concurrency = Concurrency { processes: PROCESSES, processes_per_node: 1 };
    for (request_bytes, requests) in
        [(64 * KIB, 1_600), (64 * KIB, 6_400), (64 * KIB, 64_000), (MIB, 160), (MIB, 1_600), (MIB, 16_000)]
    {
        let program = writes(request_bytes, requests);
        let counts = lab.count(&program);
        for (name, placement) in placements() {
            let files = [FilePlacements::fixed(placement.clone())];
            let found = lab.simulate_with(&files, &program, SimOptions::default()).unwrap();
            let predicted = stripewise_planner::predict(&placement, &counts[0], &lab.profile, None, concurrency).total;
            let error = found.time_s / predicted.time_s - 1.0;
            println!("{requests} of {request_bytes}, {name}: {:.3} s, {error:+.3}", found.time_s);
            assert!(error.abs() < limit(requests), "seed {SEED}, {requests} of {request_bytes}, {name}: {error:+.2}");
        }
    }
}

/// Seconds of the busiest emulated device when the processes write in turn and then sync: service time as it is counted, whatever the clock says.
fn emulated_s(placement: &Placement, program: &Skewed) -> f64 {
    let directory = tempfile::tempdir().unwrap();
    let file = Stations::establish(&directory.path().join("stations"), 8).unwrap();
    let stations = Arc::new(Stations::open(file, 8).unwrap());
    let (disk, ssd, link) = devices();
    let server = |number: u16| {
        let device = if number < 6 { disk } else { ssd };
        let spec = EmulatedSpec { device, link: Some(link), dirty_limit_bytes: Some(1 << 30) };
        EmulatedServer::new(MemoryServer::new("s"), Arc::clone(&stations), ServerId(number), spec)
    };
    let servers: Vec<EmulatedServer<MemoryServer>> = (0..8).map(server).collect();
    let mut processes: Vec<_> = (0..PROCESSES).map(|process| program.steps(process)).collect();
    let mut written = BTreeSet::new();
    for _ in 0..program.requests / u64::from(PROCESSES) {
        for steps in &mut processes {
            let Some(Step::Access(request)) = steps.next() else { panic!("every step is a write") };
            for piece in RegionGeometry::new(REGION.0).pieces(request.offset, request.bytes) {
                let object = ObjectName { file: FileId(1), region: piece.region, generation: Generation(1) };
                for sub in placement.layout_of(piece.region).view().split(piece.offset, piece.length) {
                    let due = servers[usize::from(sub.server.0)].reserve(request.kind, object, sub.offset, sub.length);
                    assert_eq!(due, None, "below the limit");
                    written.insert((piece.region.0, sub.server.0));
                }
            }
        }
    }
    for (region, server) in written {
        let object =
            ObjectName { file: FileId(1), region: stripewise_layout::RegionIndex(region), generation: Generation(1) };
        servers[usize::from(server)].write_back(object);
    }
    (0..8).map(|server| stations.server_load(ServerId(server)).device_busy.seconds()).fold(0.0, f64::max)
}

/// As far as the dirty limit is not reached; beyond it, what is written again counts again in the emulation's log.
#[test]
fn buffered_writes_are_predicted_as_emulated_servers_take_them_in() {
    let lab = lab();
    let concurrency = Concurrency { processes: PROCESSES, processes_per_node: 1 };
    for (request_bytes, requests) in
        [(64 * KIB, 1_600), (64 * KIB, 6_400), (64 * KIB, 25_600), (MIB, 160), (MIB, 1_600)]
    {
        let program = writes(request_bytes, requests);
        let counts = lab.count(&program);
        for (name, placement) in placements() {
            let found_s = emulated_s(&placement, &program);
            let predicted = stripewise_planner::predict(&placement, &counts[0], &lab.profile, None, concurrency).total;
            let error = found_s / predicted.time_s - 1.0;
            println!("{requests} of {request_bytes}, {name}: {found_s:.3} s, {error:+.3}");
            assert!(error.abs() < limit(requests), "seed {SEED}, {requests} of {request_bytes}, {name}: {error:+.2}");
        }
    }
}
