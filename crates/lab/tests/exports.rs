//! What exports of plans are said to lose against what the simulator finds: 25 plans for each kind of file system.
//!
//! The simulator runs the layout that is set, byte for byte, and not the planner's approximation of it. Where the file system chooses the target of each object by itself, it
//! runs several choices, which are not those that the stated loss was drawn from, and their mean counts.

mod support;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rayon::prelude::*;
use std::path::Path;
use stripewise::laboratory::Lab;
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{
    ByteCount, FileOffset, Layout, Placement, RegionIndex, RegionOffset, RequestKind, ServerId, WriteClass,
};
use stripewise_planner::file_system::Naming;
use stripewise_planner::native::{self, ExportRequest, ExportedFile, NativeLayout, Part, export};
use stripewise_planner::site::{Site, SiteServers};
use stripewise_planner::{PlanOptions, PolicyName, plan};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};
use support::{PROCESSES, SEED, Skewed};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const REGION: ByteCount = ByteCount(64 * MIB);
const REGIONS: u64 = 24;
const REQUESTS: u64 = 3_200;
/// How far what is stated may be from what is simulated, as a share.
const LIMIT: f64 = 0.10;

/// Six disks that seek and two SSDs that have space for a third of the file each.
fn lab() -> Lab {
    let (disk, ssd) = (lookup_device("paper-hdd-5ms").unwrap(), lookup_device("paper-ssd").unwrap());
    let room = Some(ByteCount(REGION.0 * REGIONS / 3));
    Lab::hybrid((6, disk), (2, ssd), lookup_link("infiniband").unwrap(), room, REGION)
}

/// The laboratory's servers as a site: pools of each class, of each server and of all, numbers and addresses, so that every kind can name them.
fn site(kind: &str) -> Site {
    let mut text = format!("version = 1\nfs = \"{kind}\"\nmount = \"/data\"\n[default]\nstripe_count = 0\n");
    for (class, count, first) in [("hdd", 6, 0), ("ssd", 2, 6)] {
        let quoted =
            |of: &dyn Fn(usize) -> String| (0..count).map(|n| format!("{:?}", of(n))).collect::<Vec<_>>().join(", ");
        let names = quoted(&|n| format!("{class}{n}"));
        let addresses = quoted(&|n| format!("tcp://{class}{n}:3334"));
        let numbers = (0..count).map(|n| (first + n).to_string()).collect::<Vec<_>>().join(", ");
        text += &format!(
            "[[targets]]\nclass = \"{class}\"\nnames = [{names}]\nnumbers = [{numbers}]\naddresses = [{addresses}]\npool = \"{class}\"\ndevice = \"nvme\"\n"
        );
    }
    text += "[[pool]]\nname = \"all\"\ntargets = [\"hdd0..hdd5\", \"ssd0..ssd1\"]\n";
    Site::parse(&text, Path::new("site.toml"), &native::file_systems()).unwrap()
}

fn programs() -> Vec<Box<dyn Program>> {
    let write = RequestKind::Write(WriteClass::Direct);
    let skewed = |(kind, bytes, skew)| -> Box<dyn Program> {
        Box::new(Skewed::new((REGION, REGIONS), kind, bytes, REQUESTS, skew))
    };
    let mut programs: Vec<Box<dyn Program>> =
        [(RequestKind::Read, 64 * KIB, 1), (RequestKind::Read, MIB, 2), (write, 128 * KIB, 3)].map(skewed).into();
    let file = |(number, regions)| FileShape { path: format!("/data/{number}"), size_bytes: REGION.0 * regions };
    programs.push(Box::new(Made { files: vec![file((0, REGIONS))], steps: streams }));
    programs.push(Box::new(Made { files: [(0, 2), (1, 4), (2, 16)].map(file).into(), steps: scattered }));
    programs
}

/// Requests to files, made for each process by a function.
struct Made {
    files: Vec<FileShape>,
    steps: for<'f> fn(&'f [FileShape], u32) -> Box<dyn Iterator<Item = Step> + Send + 'f>,
}

impl Program for Made {
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
        (self.steps)(&self.files, process)
    }
}

/// Each process reads its part of one file in order.
fn streams(files: &[FileShape], process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
    let part = files[0].size_bytes / u64::from(PROCESSES);
    let first = part * u64::from(process);
    Box::new((first..first + part).step_by(MIB as usize).map(|offset| {
        let offset = FileOffset(offset);
        Step::Access(IoRequest { file: ProgramFile(0), kind: RequestKind::Read, offset, bytes: MIB })
    }))
}

/// Random reads, as many of each file, so that the smallest is the hottest.
fn scattered(files: &[FileShape], process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
    let mut draws = SmallRng::seed_from_u64(SEED << 32 | u64::from(process));
    let bytes = 128 * KIB;
    Box::new((0..REQUESTS / u64::from(PROCESSES)).map(move |number| {
        let file = number as usize % files.len();
        let offset = FileOffset(draws.random_range(0..files[file].size_bytes / bytes) * bytes);
        Step::Access(IoRequest { file: ProgramFile(file as u32), kind: RequestKind::Read, offset, bytes })
    }))
}

/// One plan, exported to one kind of file system.
struct Row {
    name: String,
    /// Time of the layouts that are set over that of the plan.
    stated: f64,
    simulated: f64,
}

/// Choices of targets that are simulated where the file system has the choice. Where a region is one chunk, its target is that of all of its requests, and times of choices
/// differ by a third and more; their mean must not.
const CHOICES: u64 = 40;
const CHOICES_OF_CHUNKS: u64 = 400;

/// A number that has nothing to do with those next to it.
fn hash(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        mixed = (mixed ^ mixed >> shift).wrapping_mul(factor);
    }
    mixed ^ mixed >> 31
}

/// The target of each unit of a file in a pool of CephFS, of which units go to `count` objects in turn until these are full, or of MooseFS, of which a unit is a chunk.
fn chosen(choice: u64, file: usize, part: &Part, size_bytes: u64) -> Placement {
    let (count, unit_bytes, object_bytes) = (part.turns.len() as u64, part.turns[0].bytes, 4 * MIB);
    let salt = hash(SEED + choice * 1000 + file as u64);
    let (stripes, objects) =
        if unit_bytes < object_bytes { (object_bytes.div_ceil(unit_bytes), count) } else { (1, 1) };
    let object = |unit: u64| unit / objects / stripes * objects + unit % objects;
    let alone = |unit: u64| {
        let target = part.turns[(hash(salt ^ object(unit)) % count) as usize].target;
        Layout::new([(ServerId(target as u16), 64 << 10)]).unwrap()
    };
    let units = (0..size_bytes.div_ceil(unit_bytes)).map(alone);
    Placement::from_regions(ByteCount(unit_bytes), units, alone(0), alone(0))
}

/// The layout as the simulator runs it: in regions that are so large, and begin so, that every byte lies where the file system puts it.
fn as_set(layout: &NativeLayout, size_bytes: u64) -> Placement {
    let part = &layout.parts[0];
    let is_as_set = |placement: &Placement| {
        let region_bytes = placement.region_size.0;
        (0..size_bytes).step_by(64 << 10).all(|offset| {
            let region = RegionIndex((offset / region_bytes) as u32);
            let found = placement.layout_of(region).view().locate(RegionOffset(offset % region_bytes));
            usize::from(found.server.0) == layout.target_of(offset)
        })
    };
    // Whole cycles, or powers of two down to what a stripe is a multiple of.
    let cycle = part.cycle_bytes();
    let whole = cycle * (REGION.0 / cycle).max(1);
    let regions = std::iter::once(whole).chain((16..=26).rev().map(|power| 1 << power));
    let mut placements = regions.map(|bytes| layout.placement(ByteCount(bytes), size_bytes));
    placements.find(is_as_set).unwrap_or_else(|| panic!("{layout:?}"))
}

fn rows(lab: &Lab, policy: PolicyName, (number, program): (usize, &dyn Program)) -> Vec<Row> {
    let files = lab.count(program);
    let plan = plan(policy, &lab.request(program, &files, PlanOptions::default())).unwrap();
    let simulated_s = |placements: &[Placement]| {
        let placed: Vec<FilePlacements> = placements.iter().cloned().map(FilePlacements::fixed).collect();
        lab.simulate_with(&placed, program, SimOptions::default()).unwrap().time_s
    };
    let of_program = |path: &str| program.files().iter().position(|file| file.path == path).unwrap();
    let mut planned: Vec<(usize, Placement)> =
        plan.files.iter().map(|file| (of_program(&file.path), file.initial().clone())).collect();
    planned.sort_by_key(|(file, _)| *file);
    let ideal_s = simulated_s(&planned.into_iter().map(|(_, placement)| placement).collect::<Vec<_>>());
    let servers = SiteServers { cluster: lab.cluster.clone(), profile: lab.profile.clone() };
    let row = |kind: &str| {
        let site = site(kind);
        let exported =
            export(&ExportRequest { plan: &plan, site: &site, servers: &servers, accesses: &files }).unwrap();
        assert_eq!(exported.files.len(), program.files().len(), "{:?}", exported.refused);
        let simulated = |place: &dyn Fn(usize, &ExportedFile) -> Placement| {
            let mut set: Vec<(usize, Placement)> = Vec::new();
            for file in &exported.files {
                let number = of_program(&file.path);
                set.push((number, place(number, file)));
            }
            set.sort_by_key(|(file, _)| *file);
            simulated_s(&set.into_iter().map(|(_, placement)| placement).collect::<Vec<_>>()) / ideal_s
        };
        let of_choice =
            |choice: u64| simulated(&|number, file| chosen(choice, number, &file.layout.parts[0], file.size_bytes));
        let has_choice = site.fs.naming == Naming::Pools;
        let choices = if kind == "moosefs" { CHOICES_OF_CHUNKS } else { CHOICES };
        Row {
            name: format!("{kind}, {policy}, program {number}"),
            stated: 1.0 + exported.predicted.as_ref().unwrap().loss.expected,
            simulated: match has_choice {
                true => (0..choices).map(of_choice).sum::<f64>() / choices as f64,
                false => simulated(&|_, file| as_set(&file.layout, file.size_bytes)),
            },
        }
    };
    native::names().into_iter().map(row).collect()
}

#[test]
fn the_stated_loss_is_that_of_the_simulator_within_a_tenth() {
    let lab = lab();
    let policies = ["def", "1-dv", "segment", "h2dp", "opt"].map(|name| name.parse::<PolicyName>().unwrap());
    let programs = programs();
    let numbered = || programs.iter().map(|program| program.as_ref()).enumerate();
    let cases: Vec<(PolicyName, (usize, &dyn Program))> =
        policies.into_iter().flat_map(|policy| numbered().map(move |program| (policy, program))).collect();
    assert_eq!(cases.len(), 25);
    let rows: Vec<Row> = cases.par_iter().flat_map_iter(|(policy, program)| rows(&lab, *policy, *program)).collect();
    let mut wrong = Vec::new();
    for row in &rows {
        let error = row.stated / row.simulated - 1.0;
        println!("{}: {:.3} stated, {:.3} simulated, {error:+.3}", row.name, row.stated, row.simulated);
        if error.abs() > LIMIT {
            wrong.push(&row.name);
        }
    }
    assert!(wrong.is_empty(), "seed {SEED}: {wrong:#?}");
}
