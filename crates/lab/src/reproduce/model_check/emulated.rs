//! The same question with real processes on emulated servers: a sample of the patterns, fewer layouts of each policy.
//!
//! A pattern makes so many requests that its layouts take [`TARGET_S`] in the geometric mean, or longer where requests are large, by a simulation of each; that simulation also tells how near
//! simulator and testbed are. Some runs are repeated on a file placed again, and what repetitions differ by says which pairs are no cases.

use super::{Breadth, Judged, Pattern, TIE_SHARE, distinct, weighed, with_speeds};
use crate::replay::Ranks;
use crate::reproduce::emulated::{EmulatedLab, least_s};
use crate::reproduce::experiment::Setting;
use crate::reproduce::opt_cases::case::Disk;
use anyhow::Result;
use stripewise::laboratory::Lab;
use stripewise_layout::{ByteCount, Direction, Order, Placement};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::{AccessClass, Program};

/// Regions in which stripes of the largest request go round all servers.
pub(super) const REGION: ByteCount = ByteCount(16 << 20);
/// A multiple of 12, 4 and 16 servers, over which regions are dealt out in turn.
const REGIONS: u64 = 48;
const SIZES: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
const PROCESSES: [u32; 2] = [8, 32];
/// Of a run at least, in the geometric mean of a pattern's layouts.
const TARGET_S: f64 = 0.8;
/// With which run times are estimated.
const TRIAL_REQUESTS: u64 = 1_024;
/// The host keeps up with as many in a second.
const MAX_PER_S: f64 = 10_000.0;
/// Every so many runs one is repeated.
const REPEAT_EVERY: usize = 8;
/// Normal distribution, 95 % two-sided.
const NORMAL_95: f64 = 1.96;

/// Of both disks, reads and writes, sequential and random, three sizes: 8 and 32 processes in turn.
fn patterns(disk: Disk) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        for order in [Order::Sequential, Order::Random] {
            for request_bytes in SIZES {
                let class = AccessClass { kind: direction.into(), request_bytes, order };
                let number = patterns.len();
                // Each combination of three of the four has the number of processes that its neighbours have not.
                let turn = number / 6 + number / 3 % 2 + number % 3 + usize::from(disk == Disk::Seeking);
                patterns.push(Pattern { servers: (12, 4), disk, class, processes: PROCESSES[turn % 2] });
            }
        }
    }
    patterns
}

/// What came of one pattern.
struct Measured {
    judged: Judged,
    /// ln of a run's speed over that of its repetition.
    repeated_ln: Vec<f64>,
    /// ln of the simulated over the emulated speed.
    simulated_ln: Vec<f64>,
}

/// What each policy weighs with measured speeds, how near two speeds are no case, and what to say of it.
pub(super) fn judge_all(setting: &Setting<'_>) -> Result<(Vec<Judged>, f64, Vec<String>)> {
    let disks = setting.map(&[Disk::Fast, Disk::Seeking], |disk| -> Result<Vec<Measured>> {
        let patterns = patterns(*disk);
        let lab =
            EmulatedLab::build(setting.voice, &patterns[0].lab(REGION)?, ByteCount(REGION.0 * REGIONS), Ranks::Forked)?;
        setting.map(&patterns, |pattern| measure(setting, &lab, pattern))
    })?;
    let all: Vec<Measured> = disks.into_iter().flatten().collect();
    let repeated: Vec<f64> = all.iter().flat_map(|one| one.repeated_ln.iter().copied()).collect();
    let simulated: Vec<f64> = all.iter().flat_map(|one| one.simulated_ln.iter().copied()).collect();
    let tie_share = spread(&repeated).max(TIE_SHARE);
    let notes = vec![remark(all.len(), repeated.len(), tie_share), agreement(simulated)];
    Ok((all.into_iter().map(|one| one.judged).collect(), tie_share, notes))
}

fn measure(setting: &Setting<'_>, emulated: &EmulatedLab, pattern: &Pattern) -> Result<Measured> {
    let (lab, file) = (emulated.lab(), ByteCount(REGION.0 * REGIONS));
    let policies = weighed(lab, pattern.class, pattern.concurrency(), REGIONS as usize, Breadth::SAMPLE)?;
    let placements = distinct(&policies);
    let trial = pattern.program(setting.seed, file, TRIAL_REQUESTS);
    let trials = placements.iter().map(|placement| simulated(lab, &trial, placement)).collect::<Result<Vec<f64>>>()?;
    let mean_mb_s = (trials.iter().map(|speed| speed.ln()).sum::<f64>() / trials.len() as f64).exp();
    let per_s = (mean_mb_s * 1e6 / pattern.class.request_bytes as f64).min(MAX_PER_S);
    let target_s = least_s(pattern.processes, pattern.class.request_bytes).max(TARGET_S);
    let program = pattern.program(setting.seed, file, (per_s * target_s) as u64);
    let prepared = emulated.prepare(&program)?;
    let run = |placement: &Placement| -> Result<Option<f64>> {
        Ok(setting.log.mb_per_s(&emulated.run(&prepared, &[FilePlacements::fixed(placement.clone())])?))
    };
    let mut measured = Measured { judged: Vec::new(), repeated_ln: Vec::new(), simulated_ln: Vec::new() };
    let mut speeds = Vec::new();
    for (number, placement) in placements.iter().enumerate() {
        let speed = run(placement)?;
        if let Some(speed) = speed {
            measured.simulated_ln.push((simulated(lab, &program, placement)? / speed).ln());
            if number % REPEAT_EVERY == REPEAT_EVERY / 2 {
                measured.repeated_ln.extend(run(placement)?.map(|again| (speed / again).ln()));
            }
        }
        speeds.push(speed);
    }
    measured.judged = with_speeds(&policies, &placements, &speeds);
    Ok(measured)
}

fn simulated(lab: &Lab, program: &dyn Program, placement: &Placement) -> Result<f64> {
    Ok(lab.simulate_with(&[FilePlacements::fixed(placement.clone())], program, SimOptions::testbed())?.mb_per_s)
}

/// Half the width of the 95 % interval of the ratio of two runs, from the logarithms of such ratios.
fn spread(repeated_ln: &[f64]) -> f64 {
    let mean_square = repeated_ln.iter().map(|ln| ln * ln).sum::<f64>() / repeated_ln.len().max(1) as f64;
    (NORMAL_95 * mean_square.sqrt()).exp_m1()
}

fn remark(patterns: usize, repeated: usize, tie_share: f64) -> String {
    format!(
        "A sample: {patterns} patterns on 12 HServers and 4 SServers, both disks, reads and writes, sequential and random, 64 KiB, 256 KiB and 1 MiB, 8 or 32 \
         forked processes in turn, on a file of {} in {REGIONS} regions; of each policy at most four layouts but for `cost` and `opt`. {repeated} runs were repeated; by \
         their differences, layouts nearer than {:.1} % are no case.",
        ByteCount(REGION.0 * REGIONS),
        tie_share * 100.0
    )
}

/// How the simulator's speeds stand to the testbed's.
fn agreement(mut simulated_ln: Vec<f64>) -> String {
    simulated_ln.sort_by(f64::total_cmp);
    let Some(last) = simulated_ln.len().checked_sub(1) else {
        return "No run was comparable with a simulation.".to_owned();
    };
    let at = |share: f64| simulated_ln[(last as f64 * share).round() as usize].exp();
    format!(
        "The same runs simulated: {:.3} times the emulated bandwidth in the median, {:.3} to {:.3} times in nine of ten, {:.3} to {:.3} times in all.",
        at(0.5),
        at(0.05),
        at(0.95),
        at(0.0),
        at(1.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_sample_has_both_numbers_of_processes_everywhere() {
        let all: Vec<Pattern> = [Disk::Fast, Disk::Seeking].into_iter().flat_map(patterns).collect();
        assert_eq!(all.len(), 24);
        let mut counts: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        all.iter().for_each(|one| *counts.entry((one.class.request_bytes, one.processes)).or_default() += 1);
        assert!(counts.values().all(|count| *count == 4) && counts.len() == 6, "{counts:?}");
        for (order, direction) in [(Order::Random, Direction::Read), (Order::Sequential, Direction::Write)] {
            let few = all
                .iter()
                .filter(|one| one.processes == 8 && (one.class.order, one.class.direction()) == (order, direction));
            assert_eq!(few.count(), 3);
        }
    }

    #[test]
    fn repetitions_tell_what_is_no_case() {
        assert_eq!(spread(&[]), 0.0);
        assert!((spread(&[0.01, -0.01]) - 0.0198).abs() < 1e-3);
        assert_eq!(
            agreement(vec![0.0, 0.1f64.ln_1p(), -(0.1f64.ln_1p())]),
            "The same runs simulated: 1.000 times the emulated bandwidth in the median, 0.909 to 1.100 times in nine of ten, 0.909 to 1.100 times in all."
        );
    }
}
