//! A hot set that moves: what is it worth to move the data after it?

use super::experiment::{Experiment, Findings, Panel, Published, Row, SIMULATED, Setting, Unit};
use super::lab::Lab;
use super::opt_cases::case::{Disk, FILE, lab};
use anyhow::Result;
use std::collections::BTreeMap;
use stripewise_layout::{ByteCount, RegionIndex};
use stripewise_planner::{Plan, PolicyName};
use stripewise_sim::Migration;
use stripewise_trace::{Benchmark, ClassIndex, FileAccess, Program, RegionAccess, WindowAccess};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "hot-set",
    paper: "ours",
    place: "docs/policies.md",
    title: "Zipf-distributed reads whose popular regions change in every window, with and without moves",
    testbeds: SIMULATED,
    setup: "The machines of opt-cases, 32 processes, requests of 256 KiB, a file of 128 GiB. Three windows, each with other popular regions \
            and twice as many bytes read as the file has. Without moves one placement for all three windows together; with moves one for \
            each, regions being copied through the servers while the program goes on.",
    discussion: DISCUSSION,
    run,
}];

const DISCUSSION: &str = "";

const WINDOWS: u32 = 3;
const PROCESSES: u32 = 32;
const REQUEST: ByteCount = ByteCount(256 << 10);
/// Bytes read in a window over those of the file.
const TIMES_OVER: u64 = 2;
const MIGRATION: Migration = Migration::Copied { bandwidth_bytes_per_s: None, chunk: ByteCount(1 << 20) };

const SERIES: [&str; 4] = ["h2dp staying", "h2dp moving", "opt staying", "opt moving"];

fn program(seed: u64) -> Result<Box<dyn Program>> {
    let requests = FILE.0 * TIMES_OVER / REQUEST.0 / u64::from(PROCESSES);
    let text = format!(
        "ior:pattern=zipf,a=0.8,size={FILE},transfer={REQUEST},processes={PROCESSES},nodes={PROCESSES},op=read,phases={WINDOWS},\
         requests={requests},seed={seed}"
    );
    Ok(text.parse::<Benchmark>()?.program()?)
}

fn run(setting: &Setting<'_>) -> Result<Findings> {
    let program = program(setting.seed)?;
    let cases: Vec<(Disk, &str, bool)> = [Disk::Fast, Disk::Seeking]
        .into_iter()
        .flat_map(|disk| [("h2dp", false), ("h2dp", true), ("opt", false), ("opt", true)].map(|(p, m)| (disk, p, m)))
        .collect();
    let figures = setting.map(&cases, |(disk, policy, moving)| {
        let lab = lab(*disk)?;
        let files = lab.count(&*program);
        let policy: PolicyName = policy.parse()?;
        let files = if *moving { files } else { files.iter().map(merged).collect() };
        let plan = lab.plan_counted(policy, &*program, &files, setting.seed)?;
        one(&lab, &plan, &*program)
    })?;
    let groups = figures.chunks(SERIES.len()).zip([Disk::Fast, Disk::Seeking]).map(|(figures, disk)| {
        (format!("disks of {}", disk.name()), figures.iter().map(|(mb_s, _)| Some(*mb_s)).collect())
    });
    let panel = Panel::new("Moving hot set", Unit::MbPerS, "disks", SERIES, groups);
    let mut findings = Findings::default();
    for (group, figures) in panel.groups.iter().zip(figures.chunks(SERIES.len())) {
        let ratio = figures[3].0 / figures[2].0;
        let what = "opt with moves over opt without";
        findings.rows.push(Row::new(group, what, Unit::Ratio, Published::AtLeast(1.2), ratio));
        let moved = figures[3].1 as f64 / FILE.0 as f64 * 100.0;
        findings.notes.push(format!("{group}: opt moves {moved:.0} % of the file's bytes over the run."));
    }
    findings.panels.push(panel);
    Ok(findings)
}

/// Bandwidth and bytes moved.
fn one(lab: &Lab, plan: &Plan, program: &dyn Program) -> Result<(f64, u64)> {
    let outcome = lab.simulate(plan, program, MIGRATION)?;
    Ok((outcome.mb_per_s, outcome.moved_bytes))
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
    fn merging_windows_keeps_every_request() {
        let lab = lab(Disk::Fast).unwrap();
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
    }
}
