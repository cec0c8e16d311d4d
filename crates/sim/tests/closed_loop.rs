//! Closed loops whose outcome is known without a simulator.

use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, Layout, Placement, ServerId};
use stripewise_sim::{FilePlacements, Scenario, ServerModel, SimOptions, System, simulate};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

/// `requests` reads of 1 MiB by each process, every one in a region of its own.
struct Reads {
    files: Vec<FileShape>,
    processes: u32,
    requests: u64,
}

const REQUEST_BYTES: u64 = 1 << 20;
const REGION_BYTES: u64 = 64 << 20;

impl Program for Reads {
    fn files(&self) -> &[FileShape] {
        &self.files
    }
    fn processes(&self) -> u32 {
        self.processes
    }
    fn nodes(&self) -> u32 {
        1
    }
    fn phases(&self) -> u32 {
        1
    }
    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        Box::new((0..self.requests).map(move |number| {
            let region = (number * u64::from(self.processes) + u64::from(process)) * 7 % 1000;
            Step::Access(IoRequest {
                file: ProgramFile(0),
                direction: Direction::Read,
                offset: stripewise_layout::FileOffset(region * REGION_BYTES),
                bytes: REQUEST_BYTES,
            })
        }))
    }
}

#[test]
fn one_disk_serves_its_requests_one_after_the_other() {
    let (device, link) = (lookup_device("hdd-7200").unwrap(), lookup_link("gigabit").unwrap());
    let server = ServerModel { name: "hdd0".into(), device, link: Some(link) };
    let system = System { servers: vec![server], client_link: None };
    let layout = Layout::new([(ServerId(0), 64 << 10)]).unwrap();
    let placement = Placement::uniform(ByteCount(REGION_BYTES), layout.clone(), layout);
    let shape = FileShape { path: "/f".into(), size_bytes: 1000 * REGION_BYTES };
    for processes in [1, 4] {
        let program = Reads { files: vec![shape.clone()], processes, requests: 50 };
        let files = [FilePlacements::fixed(placement.clone())];
        let scenario = Scenario { system: &system, program: &program, files: &files, options: SimOptions::default() };
        let outcome = simulate(&scenario, &mut |_| {}).unwrap();
        let device_s = 12.66e-3 + REQUEST_BYTES as f64 / 125e6;
        let link_s = 300e-6 + REQUEST_BYTES as f64 / 120e6;
        let requests = f64::from(processes) * 50.0;
        // One process waits for both stations in turn; with several the disk never rests.
        let expected_s = if processes == 1 { requests * (device_s + link_s) } else { requests * device_s + link_s };
        assert!((outcome.time_s / expected_s - 1.0).abs() < 1e-6, "{} instead of {expected_s}", outcome.time_s);
        assert_eq!((outcome.read.requests, outcome.write.requests), (u64::from(processes) * 50, 0));
    }
}
