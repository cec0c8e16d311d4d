//! Does a policy's model prefer the layout that is really faster?
//!
//! A case is a pair of layouts that a policy weighs against each other for one access pattern. The policy's own cost function names the
//! cheaper one; the simulator runs the pattern on both, or real processes on emulated servers do. Pairs that are found nearer to each other than
//! runs repeat themselves, or than a hundredth, are no cases. A model that finds both equally good is right half the time.
//!
//! A plan's prediction is another model's, the same for all policies ([`stripewise_planner::predict`]): what it says of every layout stands beside what
//! the simulator finds.

mod accuracy;
mod emulated;
mod weighed;

use super::experiment::{BOTH, Experiment, Findings, OURS, Panel, Published, Row, Setting, TestbedKind, Unit};
use super::opt_cases::case::Disk;
use super::script::{Generated, access};
use accuracy::{Accuracy, Guess};
use anyhow::Result;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use rayon::prelude::*;
use serde::Serialize;
use std::collections::BTreeMap;
use stripewise::laboratory::Lab;
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, Order, Placement};
use stripewise_model::Concurrency;
use stripewise_planner::Throughput;
use stripewise_sim::{FilePlacements, SimOptions};
use stripewise_trace::{AccessClass, Step};
use weighed::{Breadth, Weighed, weighed};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment {
    id: "model-check",
    paper: OURS,
    place: "after Cost-intelligent's table 5",
    title: "How often a policy's model prefers the layout that is really faster",
    testbeds: BOTH,
    setup: "Pairs of layouts that each policy weighs, for reads and writes, sequential and random, of 64 KiB to 4 MiB by 8, 32 and 128 \
            processes, on 12 or 6 HServers with 4 or 2 SServers, for `cost` and `segment` also on 16 and 8 HServers alone; disks with 0.3 ms \
            and 5 ms of random startup. The faster one is what the simulator finds; on the emulated testbed, for a sample of these patterns, what \
            real runs find.",
    discussion: DISCUSSION,
    run,
}];

const DISCUSSION: &str = "Cost-intelligent counts in how many patterns its model picks the best of three layouts and finds 80 to 91 %. Pairs \
    are the same question, which can be asked of every policy; its model stays at the lower end of what the paper says, on HServers alone too. \
    The second figure of the picture is what the preference is worth: the speed of the layout that the model likes best, over that of the fastest \
    one, as a geometric mean over all patterns. `padp` and `h2dp` cost a request as if all servers of its region served p such requests one after the \
    other (\"What the tables cannot see\" in docs/equations.md), and lose a quarter of the speed by it. `psa` weighs with the same tables \
    as `h2dp` but among other pairs, between which they tell well. `segment` weighs stripes that differ by a factor of two at a time, so \
    that many of its pairs are close, and costs less than its share of wrong pairs suggests. The model that `opt` begins with, a closed queueing \
    network, is right in more than nine of ten.";

const REGION: ByteCount = ByteCount(64 << 20);
const REGIONS: u64 = 64;
/// Of one simulated run, all processes together, and of each at least, so that what counts is not how they end.
const REQUESTS: u64 = 2_048;
const REQUESTS_EACH: u64 = 64;
/// Layouts nearer to each other than this are no case.
const TIE_SHARE: f64 = 0.01;

/// One access pattern on one cluster.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    servers: (usize, usize),
    disk: Disk,
    class: AccessClass,
    processes: u32,
}

fn patterns() -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for servers in [(12, 4), (6, 2), (16, 0), (8, 0)] {
        for disk in [Disk::Fast, Disk::Seeking] {
            for direction in [Direction::Read, Direction::Write] {
                for order in [Order::Sequential, Order::Random] {
                    for request_bytes in [64 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20] {
                        let class = AccessClass { kind: direction.into(), request_bytes, order };
                        patterns.extend([8, 32, 128].map(|processes| Pattern { servers, disk, class, processes }));
                    }
                }
            }
        }
    }
    patterns
}

impl Pattern {
    fn lab(&self, region: ByteCount) -> Result<Lab> {
        let (ssd, link) = (lookup_device("paper-ssd")?, lookup_link("gigabit")?);
        let hdd = self.disk.device()?;
        Ok(Lab::hybrid((self.servers.0, hdd), (self.servers.1, ssd), link, None, region))
    }

    fn concurrency(&self) -> Concurrency {
        Concurrency { processes: self.processes, processes_per_node: 1 }
    }

    /// Sequential: every process goes through a part of its own share of the file, from a drawn place on, as in the middle of a longer run; random:
    /// anywhere, aligned.
    fn program(&self, seed: u64, file: ByteCount, requests: u64) -> Generated<'static> {
        let Pattern { class: AccessClass { kind, request_bytes, order }, processes, .. } = *self;
        let each = (requests / u64::from(processes)).max(1);
        let in_file = file.0 / request_bytes;
        let share = in_file / u64::from(processes);
        let steps = move |process: u32| {
            let mut random = SmallRng::seed_from_u64(seed ^ u64::from(process) << 32);
            let first = random.random_range(0..share.max(1));
            (0..each).map(move |number| -> Step {
                let place = match order {
                    Order::Sequential => u64::from(process) * share + (first + number) % share.max(1),
                    Order::Random => random.random_range(0..in_file),
                };
                access(kind.direction(), place * request_bytes, request_bytes)
            })
        };
        Generated::shared(file.0, (processes, processes), 1, steps)
    }
}

/// What was found for one policy.
#[derive(Clone, Copy, Default, Serialize)]
struct Tally {
    cases: u64,
    right: f64,
    /// Patterns with at least two layouts to weigh.
    patterns: u64,
    /// Sum over those of ln(speed of the model's favourite / speed of the fastest).
    #[serde(skip)]
    reached_ln: f64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.cases += other.cases;
        self.right += other.right;
        self.patterns += other.patterns;
        self.reached_ln += other.reached_ln;
    }

    /// All pairs of the layouts, given what the model costs them and how fast they are. Speeds nearer than `tie_share` are no case.
    fn of(layouts: &[(f64, f64)], tie_share: f64) -> Self {
        let mut tally = Tally::default();
        for (number, (cost, speed)) in layouts.iter().enumerate() {
            for (other_cost, other_speed) in &layouts[..number] {
                if (speed / other_speed - 1.0).abs() <= tie_share || (other_speed / speed - 1.0).abs() <= tie_share {
                    continue;
                }
                tally.cases += 1;
                let equal = (cost / other_cost - 1.0).abs() < 1e-9;
                tally.right += match (equal, (cost < other_cost) == (speed > other_speed)) {
                    (true, _) => 0.5,
                    (false, true) => 1.0,
                    (false, false) => 0.0,
                };
            }
        }
        let favourite = layouts.iter().min_by(|left, right| left.0.total_cmp(&right.0));
        let fastest = layouts.iter().map(|(_, speed)| *speed).max_by(f64::total_cmp);
        if let (Some((_, speed)), Some(fastest), true) = (favourite, fastest, layouts.len() > 1) {
            tally.patterns = 1;
            tally.reached_ln = (speed / fastest).ln();
        }
        tally
    }

    fn share_percent(&self) -> f64 {
        self.right / self.cases as f64 * 100.0
    }

    fn reached_percent(&self) -> f64 {
        (self.reached_ln / self.patterns as f64).exp() * 100.0
    }
}

/// What each policy weighs for a pattern: its model's cost and the measured speed, without speeds that are not known.
type Judged = Vec<(&'static str, Vec<(f64, f64)>)>;

/// What each policy weighs for a pattern: what a plan would predict, and what was found.
type Guessed = Vec<(&'static str, Vec<Guess>)>;

fn run(setting: &Setting<'_>) -> Result<Findings> {
    let mut accuracies: BTreeMap<&'static str, Accuracy> = BTreeMap::new();
    let (judged, tie_share, notes) = match setting.testbed {
        TestbedKind::Simulated => {
            let found = setting.map(&patterns(), |pattern| judge(pattern, setting.seed))?;
            let (judged, guessed): (Vec<Judged>, Vec<Guessed>) = found.into_iter().unzip();
            for (policy, guesses) in guessed.into_iter().flatten() {
                accuracies.entry(policy).or_default().add(guesses);
            }
            (judged, TIE_SHARE, Vec::new())
        }
        TestbedKind::Emulated => emulated::judge_all(setting)?,
    };
    let mut tallies: BTreeMap<&'static str, Tally> = BTreeMap::new();
    for (policy, layouts) in judged.iter().flatten() {
        tallies.entry(policy).or_default().add(&Tally::of(layouts, tie_share));
    }
    let row = |(policy, tally): (&&'static str, &Tally)| {
        let published = match *policy {
            "cost" | "cost, HServers alone" => Published::Range(80.0, 91.0),
            _ => Published::NotPrinted,
        };
        let case = format!("{policy}, {} pairs", tally.cases);
        Row::new(case, "preferred what is faster", Unit::Percent, published, tally.share_percent())
    };
    let groups = tallies.iter().map(|(policy, tally)| {
        ((*policy).to_owned(), vec![Some(tally.share_percent()), Some(tally.reached_percent())])
    });
    let series = ["pairs judged rightly", "speed of the favourite over the fastest"];
    let panel = Panel::new("Models", Unit::Percent, "policy", series, groups);
    let rows =
        tallies.iter().map(row).chain(accuracies.iter().flat_map(|(policy, found)| found.rows(policy))).collect();
    let mut findings = Findings { rows, panels: vec![panel], notes, ..Findings::default() };
    findings.panels.extend((!accuracies.is_empty()).then(|| accuracy::panel(&accuracies)));
    findings.details.insert("model_check".to_owned(), serde_json::to_value(&tallies)?);
    let errors: BTreeMap<&str, _> = accuracies.iter().map(|(policy, found)| (*policy, found.summary())).collect();
    findings.details.insert("predictions".to_owned(), serde_json::to_value(&errors)?);
    Ok(findings)
}

fn judge(pattern: &Pattern, seed: u64) -> Result<(Judged, Guessed)> {
    let lab = pattern.lab(REGION)?;
    let policies = weighed(&lab, pattern.class, pattern.concurrency(), REGIONS as usize, Breadth::FULL)?;
    let placements = distinct(&policies);
    let requests = REQUESTS.max(u64::from(pattern.processes) * REQUESTS_EACH);
    let program = pattern.program(seed, ByteCount(REGION.0 * REGIONS), requests);

    let speed = |placement: &&Placement| -> Result<Option<f64>> {
        let files = [FilePlacements::fixed((*placement).clone())];
        Ok(Some(lab.simulate_with(&files, &program, SimOptions::default())?.mb_per_s))
    };
    let speeds = placements.par_iter().map(speed).collect::<Result<Vec<_>>>()?;
    let counts = lab.count(&program);
    let predict = |placement: &&Placement| -> Throughput {
        stripewise_planner::predict(placement, &counts[0], &lab.profile, None, pattern.concurrency()).total
    };
    let predicted: Vec<Throughput> = placements.par_iter().map(predict).collect();
    let guess = |weighed: &Weighed| {
        let place = placements.iter().position(|known| **known == weighed.placement)?;
        Some(Guess { predicted_mb_s: predicted[place].mb_per_s, spread: predicted[place].spread, mb_s: speeds[place]? })
    };
    let guessed =
        policies.iter().map(|(policy, weighed)| (*policy, weighed.iter().filter_map(guess).collect())).collect();
    Ok((with_speeds(&policies, &placements, &speeds), guessed))
}

/// A layout that several policies weigh is run once.
fn distinct<'a>(policies: &'a [(&'static str, Vec<Weighed>)]) -> Vec<&'a Placement> {
    let mut placements: Vec<&Placement> = Vec::new();
    for weighed in policies.iter().flat_map(|(_, weighed)| weighed) {
        if !placements.contains(&&weighed.placement) {
            placements.push(&weighed.placement);
        }
    }
    placements
}

/// `speeds` are those of `placements`, among which are all that are weighed.
fn with_speeds(policies: &[(&'static str, Vec<Weighed>)], placements: &[&Placement], speeds: &[Option<f64>]) -> Judged {
    let of = |weighed: &Weighed| {
        let place = placements.iter().position(|known| **known == weighed.placement).expect("all were listed");
        Some((weighed.cost, speeds[place]?))
    };
    policies.iter().map(|(policy, weighed)| (*policy, weighed.iter().filter_map(of).collect())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_right_wrong_or_even_and_near_ones_do_not_count() {
        // Costs and speeds: the first is right of the second, wrong of the third; the last two are too near.
        let tally = Tally::of(&[(1.0, 100.0), (2.0, 50.0), (3.0, 200.0), (4.0, 201.0)], TIE_SHARE);
        assert_eq!((tally.cases, tally.right), (5, 1.0));
        assert_eq!(Tally::of(&[(1.0, 100.0), (1.0, 50.0)], TIE_SHARE).right, 0.5);
        assert!((Tally::of(&[(1.0, 100.0), (2.0, 200.0)], TIE_SHARE).reached_percent() - 50.0).abs() < 1e-9);
        assert_eq!(Tally::of(&[(1.0, 100.0)], TIE_SHARE).patterns, 0);
    }

    #[test]
    fn every_policy_weighs_enough_pairs() {
        let pattern = patterns()[8];
        for (breadth, region) in [(Breadth::FULL, REGION), (Breadth::SAMPLE, emulated::REGION)] {
            let lab = pattern.lab(region).unwrap();
            for (policy, weighed) in weighed(&lab, pattern.class, pattern.concurrency(), 16, breadth).unwrap() {
                assert!(weighed.len() >= 2, "{policy}");
                assert!(weighed.iter().all(|one| one.placement.check(16).is_ok() && one.cost > 0.0), "{policy}");
            }
        }
    }
}
