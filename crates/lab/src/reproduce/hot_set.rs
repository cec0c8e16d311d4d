//! A hot set that moves: what is it worth to move the data after it?

use super::experiment::{Experiment, Findings, OURS, Panel, Published, Row, SIMULATED, Setting, Unit};
use super::opt_cases::case::{Disk, HDDS, REGION, SSDS};
use crate::reproduce::rephased::{ProcessSteps, Rephased};
use anyhow::Result;
use std::collections::BTreeMap;
use stripewise::laboratory::{Lab, placements};
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, RegionIndex};
use stripewise_planner::{Online, Plan, PlanOptions, PolicyName, plan};
use stripewise_sim::{Borders, FilePlacements, Migration, PlacedWindow, SimOptions};
use stripewise_trace::{
    Benchmark, ClassIndex, FileAccess, Program, ProgramCountOptions, RegionAccess, Step, WindowAccess,
};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "hot-set",
    paper: OURS,
    place: "docs/policies.md",
    title: "Reads whose popular regions change, without moves, with moves, and planned online",
    testbeds: SIMULATED,
    setup: "The machines, the skew and the share of the SSDs are those of `opt-cases`: twelve disks of 5 ms and four SSDs, regions of 64 MiB, 32 \
            processes, Zipf-distributed reads (exponent 0.8) of a file, here of 32 GiB, a sixth of which fits the SSDs. Six phases with other popular \
            regions, each of at least ten minutes (H2DP's window). Without moves one placement for all phases together; with moves one for \
            each, known beforehand, regions being copied through the servers, 1 MiB at a time, while the program goes on. Online, the \
            placement is planned again up to 16 times in each phase from what was accessed before (decay 0.9), and nothing is known of the \
            future. Last, each phase planned by itself and moves free, as if the data lay right from its first request on: about what moves \
            could bring. The goal of 1.2 is held against the smaller requests, whose placement decides between a seek and none.",
    discussion: DISCUSSION,
    run,
}];

const DISCUSSION: &str = "\
With small requests the disks' seeks limit the run, so every popular region that lies on an SSD counts, and following the hot set pays well \
beyond the copying. With requests of 256 KiB the links of the four SSDs are nearly as busy as the disks: the placement of each phase by itself, \
its moves free, gains little over one placement for all, and so does any that has to be paid for.

The mover copies one chunk at a time and waits in the same queues as the program, so a whole new hot set takes it a large part of a phase. \
With foresight most of that is avoided: regions that will be popular again soon stay on SSDs or come early, and each phase moves less than \
its hot set. Online the first part of each phase is served from the places of the hot set before it, and both the regions that \
leave and those that come must be copied. That is most of what is lost; what follows is close to foresight, or above it: the hottest \
regions are moved first, part by part, where the plan with foresight has one list of moves for a whole phase in which all that leaves goes first.";

const FILE: ByteCount = ByteCount(32 << 30);
/// Share of the file that the SSDs hold.
const SSD_SHARE: u64 = 6;
const PHASES: u32 = 6;
/// Windows of a phase for the plan that is made online.
const SLICES: u32 = 16;
/// Requests to which the goal for moves is held.
const GOAL: ByteCount = CASES[0].0;
/// Changes are noticed by themselves, so that parts of one phase can be remembered for long.
const DECAY: f64 = 0.9;
const PROCESSES: u32 = 32;
/// Requests, and how much is read with them in each phase: what takes more than ten minutes with the placement that is made for it.
const CASES: [(ByteCount, ByteCount); 2] =
    [(ByteCount(64 << 10), ByteCount(180 << 30)), (ByteCount(256 << 10), ByteCount(400 << 30))];
const MIGRATION: Migration = Migration::Copied { bandwidth_bytes_per_s: None, chunk: ByteCount(1 << 20) };

/// How `opt` plans.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Foresight {
    Staying,
    Moving,
    Online,
    /// Each phase by itself, and moves free.
    Free,
}

const FORESIGHTS: [Foresight; 4] = [Foresight::Staying, Foresight::Moving, Foresight::Online, Foresight::Free];

/// A program whose phases are cut into equal parts, each a phase of its own, of `requests` requests of each process.
fn sliced(program: &dyn Program, requests: u64) -> Rephased<'_> {
    let steps = move |process| -> ProcessSteps<'_> {
        let mut done = 0;
        Box::new(program.steps(process).flat_map(move |step| {
            let mut mark = None;
            match step {
                Step::Access(_) => {
                    // The program marks the ends of its own phases itself.
                    let is_border = done > 0 && done % requests == 0 && done < requests * u64::from(SLICES);
                    mark = is_border.then_some(Step::Phase);
                    done += 1;
                }
                Step::Phase => done = 0,
                Step::Think { .. } | Step::Until { .. } | Step::Synchronize(_) | Step::Barrier => {}
            }
            mark.into_iter().chain([step])
        }))
    };
    Rephased { program, phases: program.phases() * SLICES, steps: Box::new(steps) }
}

/// Of each process in each phase; as many in each part.
fn requests((size, phase): (ByteCount, ByteCount)) -> u64 {
    let of_part = phase.0 / size.0 / u64::from(PROCESSES) / u64::from(SLICES);
    of_part * u64::from(SLICES)
}

/// The machines of `opt-cases`, with SSDs for a share of this file.
fn lab() -> Result<Lab> {
    let (hdd, ssd, link) = (Disk::Seeking.device()?, lookup_device("paper-ssd")?, lookup_link("gigabit")?);
    let capacity = ByteCount(FILE.0 / SSD_SHARE / SSDS as u64);
    Ok(Lab::hybrid((HDDS, hdd), (SSDS, ssd), link, Some(capacity), REGION))
}

fn program(case: (ByteCount, ByteCount), seed: u64) -> Result<Box<dyn Program>> {
    let (size, _) = case;
    let text = format!(
        "ior:pattern=zipf,a=0.8,size={FILE},transfer={size},processes={PROCESSES},nodes={PROCESSES},op=read,phases={PHASES},\
         requests={},seed={seed}",
        requests(case)
    );
    Ok(text.parse::<Benchmark>()?.program()?)
}

fn run(setting: &Setting<'_>) -> Result<Findings> {
    let cases: Vec<((ByteCount, ByteCount), Foresight)> =
        CASES.iter().flat_map(|case| FORESIGHTS.map(|foresight| (*case, foresight))).collect();
    let figures = setting.map(&cases, |(case, foresight)| one(*case, *foresight, setting.seed))?;
    let groups = CASES
        .iter()
        .zip(figures.chunks(FORESIGHTS.len()))
        .map(|((size, _), figures)| (size.to_string(), figures.iter().map(|(mb_s, _)| Some(*mb_s)).collect()));
    let series = ["without moves", "with moves", "online", "moves free"];
    let panel = Panel::new("opt on a moving hot set", Unit::MbPerS, "request size", series, groups);
    let mut findings = Findings::default();
    for ((size, phase), figures) in CASES.iter().zip(figures.chunks(FORESIGHTS.len())) {
        let [staying, moving, online, free] = [figures[0], figures[1], figures[2], figures[3]];
        let gain = if *size == GOAL { Published::AtLeast(1.2) } else { Published::NotPrinted };
        let rows = [
            ("with moves over without", gain, moving.0 / staying.0),
            ("free moves over without", Published::NotPrinted, free.0 / staying.0),
            ("online over with moves known beforehand", Published::AtLeast(0.85), online.0 / moving.0),
        ];
        findings.rows.extend(rows.map(|(what, goal, ours)| Row::new(size.to_string(), what, Unit::Ratio, goal, ours)));
        let share = |bytes: u64| bytes as f64 / FILE.0 as f64 * 100.0;
        findings.notes.push(format!(
            "Requests of {size}: a phase takes {:.0} s; {:.0} % of the file's bytes are moved when the future is known, {:.0} % online.",
            phase.0 as f64 / 1e6 / moving.0,
            share(moving.1),
            share(online.1)
        ));
    }
    findings.panels.push(panel);
    Ok(findings)
}

/// Bandwidth and bytes moved.
fn one(case: (ByteCount, ByteCount), foresight: Foresight, seed: u64) -> Result<(f64, u64)> {
    let program = program(case, seed)?;
    let in_parts = sliced(&*program, requests(case) / u64::from(SLICES));
    let lab = lab()?;
    let files = match foresight {
        Foresight::Online => {
            let counts = lab.count(&in_parts);
            let options = PlanOptions { seed, online: Some(Online { decay: DECAY }), ..PlanOptions::default() };
            placements(&plan(PolicyName::Opt, &lab.request(&in_parts, &counts, options))?, &in_parts)
        }
        Foresight::Moving => of_phases(&planned(&lab, &*program, &lab.count(&*program), seed)?),
        Foresight::Staying => {
            let counts: Vec<FileAccess> = lab.count(&*program).iter().map(merged).collect();
            of_phases(&planned(&lab, &*program, &counts, seed)?)
        }
        Foresight::Free => {
            let counts = lab.count(&*program);
            let plans = (0..PHASES as usize).map(|phase| {
                let of_phase: Vec<FileAccess> = counts.iter().map(|file| alone(file, phase)).collect();
                planned(&lab, &*program, &of_phase, seed)
            });
            one_by_one(&plans.collect::<Result<Vec<Plan>>>()?)
        }
    };
    let migration = if foresight == Foresight::Free { Migration::Free } else { MIGRATION };
    let options = SimOptions { borders: Borders::Phase, migration, ..SimOptions::default() };
    let outcome = lab.simulate_with(&files, &in_parts, options)?;
    Ok((outcome.mb_per_s, outcome.moved_bytes))
}

fn planned(lab: &Lab, program: &dyn Program, counts: &[FileAccess], seed: u64) -> Result<Plan> {
    Ok(lab.plan_counted(PolicyName::Opt, program, counts, seed)?)
}

/// The placements of a plan whose windows are whole phases, for the parts of the phases.
fn of_phases(plan: &Plan) -> Vec<FilePlacements> {
    let window_s = ProgramCountOptions::default().window_s;
    let file = |planned: &stripewise_planner::PlannedFile| {
        let window = |part: u32| {
            let start_s = f64::from(part / SLICES) * window_s;
            PlacedWindow { start_s, placement: planned.placement_at(start_s).clone() }
        };
        FilePlacements { windows: (0..PHASES * SLICES).map(window).collect() }
    };
    plan.files.iter().map(file).collect()
}

/// The placements of plans for one phase each, for the parts of the phases.
fn one_by_one(plans: &[Plan]) -> Vec<FilePlacements> {
    let window_s = ProgramCountOptions::default().window_s;
    let window = |file: usize, part: u32| PlacedWindow {
        start_s: f64::from(part) * window_s,
        placement: plans[(part / SLICES) as usize].files[file].initial().clone(),
    };
    let files = plans.first().map_or(0, |plan| plan.files.len());
    (0..files)
        .map(|file| FilePlacements { windows: (0..PHASES * SLICES).map(|part| window(file, part)).collect() })
        .collect()
}

/// One window of a file as if it were the whole run.
fn alone(file: &FileAccess, window: usize) -> FileAccess {
    let first = &file.windows[0];
    let only = WindowAccess { start_s: first.start_s, end_s: first.end_s, ..file.windows[window].clone() };
    FileAccess { windows: vec![only], ..file.clone() }
}

/// All windows as one.
fn merged(file: &FileAccess) -> FileAccess {
    let mut regions: BTreeMap<RegionIndex, RegionAccess> = BTreeMap::new();
    for access in file.windows.iter().flat_map(|window| &window.regions) {
        let Some(sum) = regions.get_mut(&access.region) else {
            regions.insert(access.region, access.clone());
            continue;
        };
        let mut counts: BTreeMap<ClassIndex, u64> = sum.counts.iter().copied().collect();
        for (class, count) in &access.counts {
            *counts.entry(*class).or_insert(0) += count;
        }
        sum.counts = counts.into_iter().collect();
        sum.processes = sum.processes.max(access.processes);
        sum.processes_per_node = sum.processes_per_node.max(access.processes_per_node);
    }
    let (first, last) = (&file.windows[0], &file.windows[file.windows.len() - 1]);
    let window = WindowAccess { end_s: last.end_s, regions: regions.into_values().collect(), ..first.clone() };
    FileAccess { windows: vec![window], ..file.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_keep_the_requests_and_mark_every_part() {
        let text = "ior:pattern=zipf,size=1GiB,transfer=1MiB,processes=4,op=read,phases=2,requests=160";
        let program = text.parse::<Benchmark>().unwrap().program().unwrap();
        let in_parts = sliced(&*program, 10);
        let accesses = |program: &dyn Program| -> Vec<Step> {
            program.steps(1).filter(|step| matches!(step, Step::Access(_))).collect()
        };
        assert_eq!(accesses(&in_parts), accesses(&*program));
        let steps: Vec<Step> = in_parts.steps(1).collect();
        let parts: Vec<usize> = steps.split(|step| *step == Step::Phase).map(<[Step]>::len).collect();
        assert_eq!(parts, [10; 2 * SLICES as usize]);
        assert_eq!(in_parts.phases(), 2 * SLICES);
    }

    #[test]
    fn merging_windows_keeps_every_request() {
        let lab = lab().unwrap();
        let text = "ior:pattern=zipf,size=8GiB,transfer=1MiB,processes=4,op=read,phases=3,requests=200";
        let program = text.parse::<Benchmark>().unwrap().program().unwrap();
        let counts = lab.count(&*program);
        let requests = |file: &FileAccess| -> u64 {
            let regions = file.windows.iter().flat_map(|window| &window.regions);
            regions.flat_map(|region| &region.counts).map(|(_, count)| count).sum()
        };
        let merged = merged(&counts[0]);
        assert_eq!((counts[0].windows.len(), merged.windows.len()), (3, 1));
        assert_eq!((requests(&counts[0]), requests(&merged)), (2400, 2400));
        assert!(merged.windows[0].regions.is_sorted_by_key(|region| region.region));
        assert_eq!(merged.windows[0].end_s, counts[0].windows[2].end_s);
        let of_phases: u64 = (0..3).map(|phase| requests(&alone(&counts[0], phase))).sum();
        assert_eq!(of_phases, 2400);
        assert_eq!(alone(&counts[0], 2).windows[0].regions, counts[0].windows[2].regions);
    }
}
