//! A long random search over placements, judged by the simulator: what is there that `opt` does not find?
//!
//! Regions are grouped by how often they are accessed, every group has a shape (whole on one server, spread over a class, pairs, ..), and the
//! shapes, the limits between the groups and the weight of SSDs against disks are changed at random; what the simulator finds faster stays.
//! Several starts, the first ones made by hand, the others drawn. The search knows no model at all.

mod genome;

use super::experiment::{Experiment, Findings, OURS, Panel, Published, Row, SIMULATED, Setting, Unit};
use super::opt_cases::case::{Case, Run};
use super::opt_cases::{Start, judged_placement};
use anyhow::{Context as _, Result, bail};
use genome::{Genome, Heat};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rayon::prelude::*;
use std::time::Instant;
use stripewise::laboratory::{Lab, placements};
use stripewise_layout::Placement;
use stripewise_planner::PolicyName;
use stripewise_sim::{FilePlacements, SimOptions};

pub(super) const ID: &str = "opt-search";

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: ID,
    paper: OURS,
    place: "docs/policies.md",
    title: "The optimum beside the best of a long random search",
    testbeds: SIMULATED,
    setup: "The eight cases of opt-cases with Zipf-distributed reads of 32 processes, or those that are named after opt-search. The search \
            hill-climbs with restarts on a short run; its best and the optimum are then judged on the same long runs.",
    discussion: "With 8,000 tries, which took 11.6 times as long as the plan or longer, and seed 1, `opt` is 0.995 to 1.046 times the best that was found in each case, and 1.012 \
                times in the geometric mean. What the search finds is of the same kind: most regions whole on one server, with more of the work on SSDs, and requests of 4 MiB \
                spread over many servers.",
    run,
}];

/// Placements tried in each case: so many that the search takes ten times as long as the plan.
const TRIES: u32 = 8000;
const STARTS: u32 = 12;
/// Of the short run, all processes together.
const SHORT_REQUESTS: u64 = 16_384;

struct Found {
    name: String,
    best_mb_s: f64,
    best: String,
    opt_mb_s: f64,
    /// Time of the search over that in which `opt` made its plan, both on all cores.
    time_ratio: f64,
}

impl Found {
    fn ratio(&self) -> f64 {
        self.opt_mb_s / self.best_mb_s
    }
}

fn run(setting: &Setting<'_>) -> Result<Findings> {
    let cases = chosen(setting.cases)?;
    let found = setting.map_in_turn(&cases, |case| one_case(case, setting.seed))?;
    let mut findings = Findings::default();
    for found in &found {
        findings.notes.push(format!("{}: {:.0} MB/s, {}.", found.name, found.best_mb_s, found.best));
        let what = "opt over the best found";
        findings.rows.push(Row::new(&found.name, what, Unit::Ratio, Published::AtLeast(0.95), found.ratio()));
    }
    if found.len() > 1 {
        let what = "opt over the best found, geometric mean";
        let mean = (found.iter().map(|found| found.ratio().ln()).sum::<f64>() / found.len() as f64).exp();
        findings.rows.push(Row::new("all cases", what, Unit::Ratio, Published::AtLeast(0.99), mean));
    }
    if let Some(least) = found.iter().map(|found| found.time_ratio).min_by(f64::total_cmp) {
        let what = "time of the search over that of opt's plan, measured, the least";
        findings.rows.push(Row::new("all cases", what, Unit::Ratio, Published::AtLeast(10.0), least));
    }
    let groups = found.iter().map(|found| (found.name.clone(), vec![Some(found.best_mb_s), Some(found.opt_mb_s)]));
    findings.panels.push(Panel::new("Search", Unit::MbPerS, "case", ["search", "opt"], groups));
    Ok(findings)
}

fn chosen(names: &[String]) -> Result<Vec<Case>> {
    let all = Case::all();
    if names.is_empty() {
        return Ok(all.into_iter().filter(Case::is_one_of_the_eight).collect());
    }
    let find = |name: &String| {
        let known = || all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match all.iter().find(|case| case.to_string() == *name) {
            Some(case) => Ok(*case),
            None => bail!("`{name}` is neither an experiment nor a case of {ID}; the cases are {}", known()),
        }
    };
    names.iter().map(find).collect()
}

fn one_case(case: &Case, seed: u64) -> Result<Found> {
    let lab = case.lab()?;
    let traced = case.run(seed, 0)?;
    let counts = lab.count(&traced);
    let heat = Heat::of(&lab, counts.first().context("a program has a file")?, case.request_bytes);
    let begun = Instant::now();
    let plan = lab.plan_counted(PolicyName::Opt, &traced, &counts, seed)?;
    let planned_s = begun.elapsed().as_secs_f64();
    let short = case.shortened(SHORT_REQUESTS).run(seed, 1)?;
    let begun = Instant::now();
    let (genome, _) = climb(&lab, &heat, &short, seed)?;
    let time_ratio = begun.elapsed().as_secs_f64() / planned_s;
    let (best_mb_s, _) =
        judged_placement(&lab, &[FilePlacements::fixed(heat.placement(&genome))], case, Start::Together, seed)?;
    let (opt_mb_s, _) = judged_placement(&lab, &placements(&plan, &traced), case, Start::Together, seed)?;
    Ok(Found { name: case.to_string(), best_mb_s, best: genome.to_string(), opt_mb_s, time_ratio })
}

/// The best that hill-climbing finds from several starts.
fn climb(lab: &Lab, heat: &Heat, run: &Run, seed: u64) -> Result<(Genome, f64)> {
    let speed = |placement: Placement| -> Result<f64> {
        let files = [FilePlacements::fixed(placement)];
        Ok(lab.simulate_with(&files, run, SimOptions::default())?.mb_per_s)
    };
    let from_start = |start: u32| -> Result<(Genome, f64)> {
        let mut random = SmallRng::seed_from_u64(seed ^ u64::from(start) << 32);
        let mut here = Genome::start(start, &mut random);
        let mut here_mb_s = speed(heat.placement(&here))?;
        for _ in 1..TRIES / STARTS {
            let next = here.mutated(&mut random);
            let next_mb_s = speed(heat.placement(&next))?;
            if next_mb_s >= here_mb_s {
                (here, here_mb_s) = (next, next_mb_s);
            }
        }
        Ok((here, here_mb_s))
    };
    let found: Vec<(Genome, f64)> = (0..STARTS).into_par_iter().map(from_start).collect::<Result<_>>()?;
    // Of equals the first.
    found.into_iter().rev().max_by(|left, right| left.1.total_cmp(&right.1)).context("there is at least one start")
}
