//! Predictions of buffered writes against the simulator's write-back: scattered and dense, on whole regions and striped.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stripewise::laboratory::Lab;
use stripewise_device::{DeviceSpec, lookup_device, lookup_link};
use stripewise_layout::{ByteCount, FileOffset, Layout, Placement, RequestKind, ServerId, WriteClass};
use stripewise_model::{Concurrency, OrderedLines};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const REGION: ByteCount = ByteCount(8 * MIB);
const REGIONS: u64 = 128;
const PROCESSES: u32 = 16;
const SEED: u64 = 1;

/// Six disks and two SSDs whose buffered writes cost what direct ones do, once they reach them. No gap is short enough to be skipped.
fn lab() -> Lab {
    let mut disk = lookup_device("paper-hdd-5ms").unwrap();
    if let DeviceSpec::Hdd(disk) = &mut disk {
        disk.skip_bytes = 0;
    }
    let (ssd, link) = (lookup_device("paper-ssd").unwrap(), lookup_link("infiniband").unwrap());
    let mut lab = Lab::hybrid((6, disk), (2, ssd), link, None, REGION);
    for server in &mut lab.profile.servers {
        server.buffered_write = Some(OrderedLines { sequential: server.write_sequential, random: server.write_random });
    }
    lab
}

/// Each process writes anywhere in the file, more often at its begin.
struct Writes {
    files: Vec<FileShape>,
    request_bytes: u64,
    requests: u64,
}

impl Writes {
    fn new(request_bytes: u64, requests: u64) -> Self {
        let files = vec![FileShape { path: "/data/shared".to_owned(), size_bytes: REGION.0 * REGIONS }];
        Self { files, request_bytes, requests }
    }
}

impl Program for Writes {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        PROCESSES
    }

    fn nodes(&self) -> u32 {
        PROCESSES
    }

    fn phases(&self) -> u32 {
        1
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let mut draws = SmallRng::seed_from_u64(SEED << 32 | u64::from(process));
        Box::new((0..self.requests / u64::from(PROCESSES)).map(move |_| {
            let region = (draws.random::<f64>().powi(2) * REGIONS as f64) as u64;
            let slot = draws.random_range(0..REGION.0 / self.request_bytes);
            let offset = FileOffset(region * REGION.0 + slot * self.request_bytes);
            let kind = RequestKind::Write(WriteClass::Buffered);
            Step::Access(IoRequest { file: ProgramFile(0), kind, offset, bytes: self.request_bytes })
        }))
    }
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

#[test]
fn buffered_writes_are_predicted_as_the_simulator_finds_them() {
    let lab = lab();
    let concurrency = Concurrency { processes: PROCESSES, processes_per_node: 1 };
    for (request_bytes, requests) in
        [(64 * KIB, 1_600), (64 * KIB, 6_400), (64 * KIB, 64_000), (MIB, 160), (MIB, 1_600), (MIB, 16_000)]
    {
        let program = Writes::new(request_bytes, requests);
        let counts = lab.count(&program);
        for (name, placement) in placements() {
            let files = [FilePlacements::fixed(placement.clone())];
            let found = lab.simulate_with(&files, &program, SimOptions::default()).unwrap();
            let predicted = stripewise_planner::predict(&placement, &counts[0], &lab.profile, None, concurrency).total;
            let error = found.time_s / predicted.time_s - 1.0;
            println!("{requests} of {request_bytes}, {name}: {:.3} s, {error:+.3}", found.time_s);
            assert!(error.abs() < 0.15, "seed {SEED}, {requests} of {request_bytes}, {name}: {error:+.2}");
        }
    }
}
