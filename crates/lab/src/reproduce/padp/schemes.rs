//! What PADP's figures compare: DEF, two random pairs of stripes, and PADP in each reading.

use super::KIB;
use crate::reproduce::experiment::{Panel, Published, Row, Setting, Unit};
use crate::reproduce::readings::{READINGS, Reading};
use anyhow::{Context as _, Result};
use stripewise::laboratory::{Lab, placements};
use stripewise_layout::RegionIndex;
use stripewise_model::StripePair;
use stripewise_planner::{Plan, PlanOptions, PolicyName};
use stripewise_sim::SimOptions;
use stripewise_trace::Program;

/// In the order of their series; PADP once for each of [`READINGS`].
pub(super) const SCHEMES: [&str; 5] = ["DEF", "RANDOM1", "RANDOM2", PADP[0], PADP[1]];
const PADP: [&str; 2] = ["PADP", "PADP 64KiB"];
const FIRST_PADP: usize = SCHEMES.len() - READINGS.len();

/// A plan and what came of it.
pub(super) struct Tried {
    pub(super) pair_kib: (u64, u64),
    pub(super) mb_per_s: Option<f64>,
}

pub(super) fn pair_kib(lab: &Lab, plan: &Plan) -> (u64, u64) {
    let layout = plan.files[0].initial().layout_of(RegionIndex(0));
    let size = |server: usize| {
        let stripe = layout.stripes().iter().find(|stripe| usize::from(stripe.server.0) == server);
        stripe.map_or(0, |stripe| u64::from(stripe.size_bytes) / KIB)
    };
    (size(0), size(lab.cluster.servers.len() - 1))
}

/// Plans of DEF, both random pairs and PADP's readings, in the order of [`SCHEMES`].
pub(super) fn plans(lab: &Lab, program: &dyn Program, random: [(u64, u64); 2], seed: u64) -> Result<Vec<Plan>> {
    let files = lab.count(program);
    let options = PlanOptions { seed, ..PlanOptions::default() };
    let fixed = |(h, s): (u64, u64)| {
        let pair = Some(StripePair::new(h * KIB, s * KIB));
        (PolicyName::Random, PlanOptions { pair, ..options.clone() })
    };
    let [random1, random2] = random.map(fixed);
    let padp =
        READINGS.map(|reading| (PolicyName::Padp, PlanOptions { min_stripe: reading.min_stripe(), ..options.clone() }));
    let all = [(PolicyName::Def, options.clone()), random1, random2].into_iter().chain(padp);
    let plan = |(policy, options)| {
        let request = lab.request(program, &files, options);
        stripewise_planner::plan(policy, &request).with_context(|| format!("planning with {policy}"))
    };
    all.map(plan).collect()
}

/// The schemes, run.
pub(super) fn schemes(
    setting: &Setting<'_>,
    lab: &Lab,
    program: &dyn Program,
    random: [(u64, u64); 2],
) -> Result<Vec<Tried>> {
    let bench = setting.bench(lab, program)?;
    let plans = plans(bench.lab(), program, random, setting.seed)?;
    let one = |plan: &Plan| -> Result<Tried> {
        let mb_per_s = bench.mb_per_s(&placements(plan, program), SimOptions::default())?;
        Ok(Tried { pair_kib: pair_kib(lab, plan), mb_per_s })
    };
    plans.iter().map(one).collect()
}

/// MB/s of the schemes.
pub(super) fn bandwidths(tried: &[Tried]) -> Vec<Option<f64>> {
    tried.iter().map(|one| one.mb_per_s).collect()
}

/// The readings of PADP, with the names of their series.
fn readings() -> impl Iterator<Item = (Reading, &'static str)> {
    READINGS.into_iter().zip(PADP)
}

/// The pairs of stripes that were tried.
pub(super) fn pairs_kib(tried: &[Tried]) -> Vec<(u64, u64)> {
    tried.iter().map(|one| one.pair_kib).collect()
}

/// The most that PADP gains over DEF, and over either random pair, in each reading, with what is published of each.
pub(super) fn gain_rows(panel: &Panel, case: &str, over_def: Published, over_random: Published) -> Vec<Row> {
    let rows = |(reading, series): (Reading, &str)| {
        let most = |base| panel.most_gain_percent(series, base).unwrap_or(f64::NAN);
        let random = most("RANDOM1").max(most("RANDOM2"));
        [("PADP over DEF", over_def, most("DEF")), ("PADP over RANDOM", over_random, random)].map(
            |(what, published, ours)| {
                Row::new(case, format!("{what}{}", reading.suffix()), Unit::Percent, published, ours)
            },
        )
    };
    readings().flat_map(rows).collect()
}

/// PADP's pairs in each reading; what is published are pairs as printed.
pub(super) fn pair_rows(case: &str, published: Option<(u64, u64)>, pairs_kib: &[(u64, u64)]) -> Vec<Row> {
    let rows = |((reading, _), pair_kib): ((Reading, &str), &(u64, u64))| {
        let of = |stripe: fn((u64, u64)) -> u64| {
            let published = published.filter(|_| reading == Reading::AsPrinted);
            (published.map_or(Published::NotPrinted, |pair| Published::Value(stripe(pair) as f64)), stripe(*pair_kib))
        };
        [("PADP's h", of(|pair| pair.0)), ("PADP's s", of(|pair| pair.1))].map(|(what, (published, ours))| {
            Row::new(case, format!("{what}{}", reading.suffix()), Unit::KiB, published, ours as f64)
        })
    };
    readings().zip(&pairs_kib[FIRST_PADP..]).flat_map(rows).collect()
}
