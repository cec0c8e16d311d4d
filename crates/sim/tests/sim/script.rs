//! Programs written out step by step, and systems to run them on.

use stripewise_device::{DeviceSpec, LinkSpec, Service, SsdSpec, lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, FileOffset, Layout, Placement, ServerId};
use stripewise_sim::{FilePlacements, Outcome, PlacedWindow, Scenario, ServerModel, SimOptions, System, simulate};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

pub(crate) const REGION_BYTES: u64 = 1 << 20;

pub(crate) struct Script {
    pub(crate) files: Vec<FileShape>,
    pub(crate) steps: Vec<Vec<Step>>,
    pub(crate) nodes: u32,
}

impl Script {
    /// On one file of so many regions.
    pub(crate) fn new(regions: u64, steps: Vec<Vec<Step>>) -> Self {
        let files = vec![FileShape { path: "/f".into(), size_bytes: regions * REGION_BYTES }];
        Self { files, steps, nodes: 1 }
    }
}

impl Program for Script {
    fn files(&self) -> &[FileShape] {
        &self.files
    }
    fn processes(&self) -> u32 {
        self.steps.len() as u32
    }
    fn nodes(&self) -> u32 {
        self.nodes
    }
    fn phases(&self) -> u32 {
        1 + self.steps[0].iter().filter(|step| **step == Step::Phase).count() as u32
    }
    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        Box::new(self.steps[process as usize].iter().copied())
    }
}

pub(crate) fn access(direction: Direction, offset: u64, bytes: u64) -> Step {
    Step::Access(IoRequest { file: ProgramFile(0), kind: direction.into(), offset: FileOffset(offset), bytes })
}

pub(crate) fn read(offset: u64, bytes: u64) -> Step {
    access(Direction::Read, offset, bytes)
}

pub(crate) fn servers(names: &[&str], link: Option<&str>) -> System {
    let link = link.map(|name| lookup_link(name).unwrap());
    let server = |name: &&str| ServerModel { name: (*name).into(), device: lookup_device(name).unwrap(), link };
    System { servers: names.iter().map(server).collect(), client_link: None }
}

/// One server that takes `service_s` for everything, and no link.
pub(crate) fn constant(service_s: f64) -> System {
    let service = Service { startup_s: 0.0, random_startup_s: 0.0, transfer_s_per_byte: service_s / 4096.0 };
    let device = DeviceSpec::Ssd(SsdSpec { read: service, write: service, channels: 1 });
    System { servers: vec![ServerModel { name: "one".into(), device, link: None }], client_link: None }
}

/// A link that takes `seconds` for 4 KiB.
pub(crate) fn constant_link(seconds: f64) -> LinkSpec {
    LinkSpec { message_s: 0.0, transfer_s_per_byte: seconds / 4096.0 }
}

pub(crate) fn striped(servers: impl IntoIterator<Item = u16>, stripe_bytes: u32) -> Layout {
    Layout::new(servers.into_iter().map(|server| (ServerId(server), stripe_bytes))).unwrap()
}

pub(crate) fn uniform(layout: Layout) -> FilePlacements {
    FilePlacements::fixed(Placement::uniform(ByteCount(REGION_BYTES), layout.clone(), layout))
}

/// Windows at these times, each with one layout for all regions.
pub(crate) fn windows(layouts: &[(f64, Layout)]) -> FilePlacements {
    let window = |(start_s, layout): &(f64, Layout)| PlacedWindow {
        start_s: *start_s,
        placement: Placement::uniform(ByteCount(REGION_BYTES), layout.clone(), layout.clone()),
    };
    FilePlacements { windows: layouts.iter().map(window).collect() }
}

pub(crate) fn run(system: &System, program: &Script, files: &FilePlacements, options: SimOptions) -> Outcome {
    let files: Vec<FilePlacements> = program.files.iter().map(|_| files.clone()).collect();
    simulate(&Scenario { system, program, files: &files, options }, &mut |_| {}).unwrap()
}

/// The same pseudo-random numbers at every call.
pub(crate) fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
