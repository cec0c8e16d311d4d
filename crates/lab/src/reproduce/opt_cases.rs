//! The cases by which `opt` is judged: every policy on the two kinds of disks of DESIGN.md section 4.6, four request sizes, four patterns.
//!
//! A policy plans from the counts of one run and is judged by another run with the same popularity but other draws, so that no plan can
//! profit from having seen the very requests that it serves.

pub(super) mod case;
mod emulated;
mod summary;

use super::experiment::{Experiment, Findings, OURS, Panel, Setting, TestbedKind, Unit};
use super::late::{late, over_all_runs};
use anyhow::Result;
use case::{Case, Pattern};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use stripewise::laboratory::{Lab, placements};
use stripewise_planner::{Plan, PolicyName};
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::Program as _;

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "opt-cases",
    paper: OURS,
    place: "docs/policies.md",
    title: "Every policy beside the bound, two kinds of disks, four request sizes, four patterns",
    testbeds: &[TestbedKind::Simulated, TestbedKind::Emulated],
    setup: "12 disks and 4 SSDs behind gigabit links, a shared file of 128 GiB in 2,048 regions, SSD capacity for a sixth of it. Disks as in \
            Cost-intelligent layout's table 4 (0.3 ms startup of a random request) and the same with a startup of 5 ms. Planned from one \
            run, judged by another with the same popularity and other requests; where processes march, with a late start as well.",
    discussion: "The bound is that of infinitely many processes, which 32 do not reach: with one request each in flight some server is always idle. Zipf-distributed \
                reads and mixes are where `opt` leads most, about twofold for small requests on disks that seek. Ranks that march through the file \
                together are another matter: what costs is when regions are accessed, not how often, and a disk may or may not see the ranks' \
                requests as one stream. There the ratio to the best other policy, in the table above, is the one to look at.",
    run,
}];

/// One case with what every policy made of it.
#[derive(Serialize)]
pub(super) struct CaseResult {
    hdd: &'static str,
    request_bytes: u64,
    processes: u32,
    pattern: Pattern,
    testbed: TestbedKind,
    /// Million bytes per second, by policy.
    mb_s: BTreeMap<&'static str, f64>,
    /// The same for each start of a case whose processes march: `together` and `late`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    starts: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    /// No placement by the shapes that `opt` weighs can be faster.
    bound_mb_s: Option<f64>,
    /// Half the width of the 95 % interval over the repetitions, relative, of the least certain policy.
    spread: f64,
    /// Policies with a run of which the machine and not the emulated devices set the pace; it is left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    host_bound: Vec<String>,
    requests: u64,
}

impl CaseResult {
    fn name(&self) -> String {
        let size = stripewise_layout::ByteCount(self.request_bytes);
        format!("{}-{size}-{}-{}", self.hdd, self.processes, self.pattern)
    }
}

/// Runs with other draws, until the 95 % interval of the mean is within the target.
const MIN_REPETITIONS: usize = 4;
const MAX_REPETITIONS: usize = 12;
const TARGET_SPREAD: f64 = 0.01;
/// Student's t, 95 % two-sided, by degrees of freedom from 1 on.
const STUDENT_T: [f64; MAX_REPETITIONS - 1] =
    [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201];

fn run(setting: &Setting<'_>) -> Result<Findings> {
    let results = match setting.testbed {
        TestbedKind::Simulated => setting.map(&Case::all(), |case| measure(case, setting.seed))?,
        TestbedKind::Emulated => emulated::measure_all(setting)?,
    };
    let mut findings = Findings { rows: summary::rows(&results), panels: panels(&results), ..Findings::default() };
    findings.notes.extend(emulated::remark(&results));
    findings.details.insert("cases".to_owned(), serde_json::to_value(&results)?);
    Ok(findings)
}

fn measure(case: &Case, seed: u64) -> Result<CaseResult> {
    let lab = case.lab()?;
    let traced = case.run(seed, 0)?;
    let counts = lab.count(&traced);
    let judge = |policy: &PolicyName| -> Result<(PolicyName, Judged, Plan)> {
        let plan = lab.plan_counted(*policy, &traced, &counts, seed)?;
        Ok((*policy, judged_starts(&lab, &placements(&plan, &traced), case, seed)?, plan))
    };
    let judged: Vec<_> = PolicyName::ALL.par_iter().map(judge).collect::<Result<_>>()?;
    let of_start = |number: usize| -> BTreeMap<&'static str, f64> {
        judged.iter().map(|(policy, judged, _)| (policy.name(), judged.starts[number])).collect()
    };
    let starts = Start::of(case).iter().enumerate().filter(|_| case.marches());
    Ok(CaseResult {
        hdd: case.disk.name(),
        request_bytes: case.request_bytes,
        processes: case.processes,
        pattern: case.pattern,
        testbed: TestbedKind::Simulated,
        mb_s: judged.iter().map(|(policy, judged, _)| (policy.name(), judged.mb_s)).collect(),
        starts: starts.map(|(number, start)| (start.name(), of_start(number))).collect(),
        bound_mb_s: judged.iter().find_map(|(.., plan)| {
            let bytes = plan.predicted.total.bytes as f64;
            plan.optimum.as_ref().map(|optimum| bytes / 1e6 / optimum.bound_s)
        }),
        spread: judged.iter().map(|(_, judged, _)| judged.spread).fold(0.0, f64::max),
        host_bound: Vec::new(),
        requests: case.requests_per_process * u64::from(traced.processes()),
    })
}

/// When the processes of a run begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    Together,
    /// Each at a time of its own ([`late`]).
    Late,
}

impl Start {
    const ALL: [Start; 2] = [Start::Together, Start::Late];

    fn name(self) -> &'static str {
        match self {
            Start::Together => "together",
            Start::Late => "late",
        }
    }

    /// The starts that a case is judged with. Where processes march, the result may depend on their order, which the first start makes perfect.
    fn of(case: &Case) -> &'static [Start] {
        if case.marches() { &Self::ALL } else { &Self::ALL[..1] }
    }
}

/// What a plan does: bandwidth over all runs, half the width of its 95 % interval, relative, and the bandwidth with each of the starts.
struct Judged {
    mb_s: f64,
    spread: f64,
    starts: Vec<f64>,
}

/// Judged with every start of the case.
fn judged_starts(lab: &Lab, files: &[FilePlacements], case: &Case, seed: u64) -> Result<Judged> {
    let judged = Start::of(case).iter().map(|start| judged_placement(lab, files, case, *start, seed));
    let (starts, spreads): (Vec<f64>, Vec<f64>) = judged.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    Ok(Judged { mb_s: over_all_runs(&starts), spread: spreads.into_iter().fold(0.0, f64::max), starts })
}

/// Mean bandwidth over as many runs as it takes, and half the width of its 95 % interval, relative. The runs are the same for all
/// policies.
pub(super) fn judged_placement(
    lab: &Lab,
    files: &[FilePlacements],
    case: &Case,
    start: Start,
    seed: u64,
) -> Result<(f64, f64)> {
    let mut figures: Vec<f64> = Vec::new();
    loop {
        let number = figures.len() as u64 + 1;
        let run = case.run(seed, number)?;
        let outcome = match start {
            Start::Together => lab.simulate_with(files, &run, SimOptions::default())?,
            Start::Late => lab.simulate_with(files, &late(&run, seed + number - 1), SimOptions::default())?,
        };
        figures.push(outcome.mb_per_s);
        let (mean, spread) = mean_and_spread(&figures);
        // Without draws all runs are one.
        let enough = figures.len() >= MIN_REPETITIONS && spread <= TARGET_SPREAD;
        if enough || figures.len() == MAX_REPETITIONS || !case.is_drawn() {
            return Ok((mean, spread));
        }
    }
}

fn mean_and_spread(figures: &[f64]) -> (f64, f64) {
    let count = figures.len() as f64;
    let mean = figures.iter().sum::<f64>() / count;
    if figures.len() < 2 {
        return (mean, 0.0);
    }
    let variance = figures.iter().map(|figure| (figure - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, STUDENT_T[figures.len() - 2] * (variance / count).sqrt() / mean)
}

fn panels(results: &[CaseResult]) -> Vec<Panel> {
    let mut families: Vec<(Pattern, &'static str, u32)> = Vec::new();
    for result in results {
        let family = (result.pattern, result.hdd, result.processes);
        if !families.contains(&family) {
            families.push(family);
        }
    }
    let of_family = |(pattern, hdd, processes): (Pattern, &'static str, u32)| {
        let found = results
            .iter()
            .filter(move |result| (result.pattern, result.hdd, result.processes) == (pattern, hdd, processes));
        let groups = found.map(|result| {
            let figures = PolicyName::ALL.iter().map(|policy| result.mb_s.get(policy.name()).copied());
            let size = stripewise_layout::ByteCount(result.request_bytes).to_string();
            (size, figures.chain([result.bound_mb_s]).collect())
        });
        let series = PolicyName::ALL.iter().map(|policy| policy.name()).chain(["bound"]);
        let title = format!("{pattern}, disks of {hdd}, {processes} processes");
        Panel::new(title, Unit::MbPerS, "request size", series, groups)
    };
    families.into_iter().map(of_family).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marches_are_judged_with_both_starts() {
        for case in Case::all() {
            assert_eq!(Start::of(&case).contains(&Start::Late), case.to_string().ends_with("-order"), "{case}");
        }
        let case = Case::all().into_iter().find(|case| case.to_string() == "5ms-1MiB-32-mix-order").unwrap();
        let case = case.shortened(640);
        let (lab, traced) = (case.lab().unwrap(), case.run(1, 0).unwrap());
        let plan = lab.plan_counted(PolicyName::Def, &traced, &lab.count(&traced), 1).unwrap();
        let judged = judged_starts(&lab, &placements(&plan, &traced), &case, 1).unwrap();
        let [together, late] = judged.starts[..] else { panic!("{:?}", judged.starts) };
        // A run this short is mostly the pause before its last process begins.
        assert!(late < together, "{:?}", judged.starts);
        assert!((2.0 / judged.mb_s - 1.0 / together - 1.0 / late).abs() < 1e-12);
    }

    /// Half of the processes march and the others read at random: who takes all for one crowd or one march stripes too finely.
    #[test]
    fn marchers_beside_random_readers_are_served_as_well_as_by_whole_regions() {
        let case = Case::all().into_iter().find(|case| case.to_string() == "5ms-1MiB-32-mix-order").unwrap();
        let case = case.shortened(16_000);
        let (lab, traced) = (case.lab().unwrap(), case.run(1, 0).unwrap());
        let counts = lab.count(&traced);
        let mb_s = |policy| {
            let plan = lab.plan_counted(policy, &traced, &counts, 1).unwrap();
            judged_placement(&lab, &placements(&plan, &traced), &case, Start::Together, 1).unwrap().0
        };
        let (opt, whole) = (mb_s(PolicyName::Opt), mb_s(PolicyName::OneDv));
        assert!(opt >= 0.98 * whole, "{opt} {whole}");
    }

    #[test]
    fn the_interval_narrows_with_the_runs() {
        let (mean, spread) = mean_and_spread(&[98.0, 102.0, 98.0, 102.0]);
        // Standard deviation 2 x sqrt(4/3), of the mean half of it.
        assert!((mean - 100.0).abs() < 1e-12 && (spread - 3.182 * (4.0f64 / 3.0).sqrt() / 100.0).abs() < 1e-9);
        assert_eq!(mean_and_spread(&[7.0]), (7.0, 0.0));
    }
}
