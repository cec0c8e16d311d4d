//! What H2DP's figures compare, and on which disks: policies with stripes as the papers choose them and with stripes of a least size.

use super::{MIGRATION, SSD_SHARE, lab_of};
use crate::reproduce::experiment::{Panel, Published, Row, Setting, TestbedKind, Unit};
use crate::reproduce::readings::MIN_STRIPE;
pub(super) use crate::reproduce::readings::{READINGS, Reading, Testbed};
use anyhow::Result;
use std::fmt;
use stripewise::laboratory::{Lab, placements};
use stripewise_layout::ByteCount;
use stripewise_planner::{Plan, PlanOptions, PolicyName};
use stripewise_sim::{Borders, Migration, Outcome, SimOptions};
use stripewise_trace::{FileAccess, Program};

impl Testbed {
    /// For one program's files, of which SServers have space for a share.
    pub(super) fn lab_for(self, setting: &Setting<'_>, program: &dyn Program, servers: (usize, usize)) -> Result<Lab> {
        let bytes: u64 = program.files().iter().map(|file| file.size_bytes).sum();
        let capacity = ByteCount(bytes / SSD_SHARE / servers.1 as u64);
        lab_of(self, servers, Some(capacity), setting.scale(super::SCALE).region(super::REGION))
    }
}

/// Whether H2DP, the only one of the paper's that moves data, runs a second time with moves that take no time. On emulated servers none does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moves {
    /// As the experiment says.
    AsSaid,
    /// As the experiment says, and free ones.
    AlsoFree,
}

impl Moves {
    /// Those of figures whose popular regions change.
    pub(super) fn of(setting: &Setting<'_>) -> Self {
        if setting.testbed == TestbedKind::Simulated { Self::AlsoFree } else { Self::AsSaid }
    }

    /// Whether a series has free moves, for all of its series.
    fn variants(self) -> &'static [bool] {
        if self == Self::AlsoFree { &[false, true] } else { &[false] }
    }
}

/// A policy in one reading; a series of the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scheme {
    pub(super) policy: PolicyName,
    pub(super) reading: Reading,
    /// Whether its moves are free where the experiment says otherwise.
    pub(super) free_moves: bool,
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        if self.reading == Reading::LargeStripes {
            write!(f, " {MIN_STRIPE}")?;
        }
        f.write_str(if self.free_moves { ", free moves" } else { "" })
    }
}

/// Those that the paper compares and ours, then those again that have a second reading.
pub(super) fn schemes(moves: Moves) -> Vec<Scheme> {
    let printed = [PolicyName::Def, PolicyName::Padp, PolicyName::Psa, PolicyName::H2dp, PolicyName::Opt];
    let large = [PolicyName::Padp, PolicyName::Psa, PolicyName::H2dp];
    let named = printed.map(|policy| (policy, Reading::AsPrinted)).into_iter();
    let named = named.chain(large.map(|policy| (policy, Reading::LargeStripes)));
    let variants = |(policy, reading)| {
        let variants = if policy == PolicyName::H2dp { moves.variants() } else { &[false] };
        variants.iter().map(move |free_moves| Scheme { policy, reading, free_moves: *free_moves })
    };
    named.flat_map(variants).collect()
}

impl Scheme {
    /// The plan for a program of which the accesses were counted.
    pub(super) fn plan(
        self,
        setting: &Setting<'_>,
        lab: &Lab,
        program: &dyn Program,
        files: &[FileAccess],
        migration: Migration,
    ) -> Result<Plan> {
        let options = PlanOptions {
            seed: setting.seed,
            min_stripe: self.reading.min_stripe(),
            free_moves: migration == Migration::Free,
            ..PlanOptions::default()
        };
        Ok(lab.plan_with(self.policy, program, files, options)?)
    }
}

/// What each scheme does, planned for the program and run on it.
pub(super) fn outcomes(setting: &Setting<'_>, lab: &Lab, program: &dyn Program) -> Result<Vec<Outcome>> {
    let files = lab.count(program);
    let one = |scheme: Scheme| -> Result<Outcome> {
        Ok(lab.simulate(&scheme.plan(setting, lab, program, &files, MIGRATION)?, program, MIGRATION)?)
    };
    schemes(Moves::AsSaid).into_iter().map(one).collect()
}

/// Bandwidth of both directions together with each scheme, planned for the program and run on it, regions moving between its phases.
pub(super) fn bandwidths(
    setting: &Setting<'_>,
    lab: &Lab,
    program: &dyn Program,
    moves: Moves,
    migration: Migration,
) -> Result<Vec<Option<f64>>> {
    let bench = setting.bench(lab, program)?;
    let files = bench.lab().count(program);
    let one = |scheme: Scheme| -> Result<Option<f64>> {
        let migration = if scheme.free_moves { Migration::Free } else { migration };
        let plan = scheme.plan(setting, bench.lab(), program, &files, migration)?;
        let options = SimOptions { borders: Borders::Phase, migration, ..SimOptions::default() };
        bench.mb_per_s(&placements(&plan, program), options)
    };
    schemes(moves).into_iter().map(one).collect()
}

/// Rows beside the paper's, over `def`, `padp` and `psa`, in each reading; `gain` is that of a series over another.
pub(super) fn rows(
    case: &str,
    published: [Published; 3],
    moves: Moves,
    gain: impl Fn(&str, &str) -> Option<f64>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (reading, free_moves) in READINGS.into_iter().flat_map(|r| moves.variants().iter().map(move |free| (r, *free)))
    {
        let h2dp = Scheme { policy: PolicyName::H2dp, reading, free_moves };
        for (policy, published) in [PolicyName::Def, PolicyName::Padp, PolicyName::Psa].into_iter().zip(published) {
            let of_reading = Scheme { policy, reading, free_moves: false };
            let base = if policy == PolicyName::Def {
                Scheme { reading: Reading::AsPrinted, ..of_reading }
            } else {
                of_reading
            };
            let ours = gain(&h2dp.to_string(), &base.to_string()).unwrap_or(f64::NAN);
            let free = if free_moves { ", free moves" } else { "" };
            let what = format!("h2dp over {policy}{free}{}", reading.suffix());
            rows.push(Row::new(case, what, Unit::Percent, published, ours));
        }
    }
    rows
}

/// Rows "up to": our most over all groups beside the paper's.
pub(super) fn most_gains(panel: &Panel, case: &str, published: [Published; 3], moves: Moves) -> Vec<Row> {
    rows(case, published, moves, |series, base| panel.most_gain_percent(series, base))
}

/// Rows of one group beside the paper's.
pub(super) fn gains(panel: &Panel, case: &str, group: &str, published: [Published; 3], moves: Moves) -> Vec<Row> {
    rows(case, published, moves, |series, base| panel.gain_percent(group, series, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reading_is_compared_with_its_own_plans_and_with_the_one_def() {
        let series = schemes(Moves::AsSaid);
        let values: Vec<Option<f64>> = (0..series.len()).map(|at| Some(100.0 * (1 + at) as f64)).collect();
        let names: Vec<String> = series.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["def", "padp", "psa", "h2dp", "opt", "padp 64KiB", "psa 64KiB", "h2dp 64KiB"]);
        let panel = Panel::new("t", Unit::MbPerS, "x", series, [("a".to_owned(), values)]);
        let found = gains(&panel, "a", "a", [Published::NotPrinted; 3], Moves::AsSaid);
        let ours: Vec<f64> = found.iter().map(|row| row.ours.round()).collect();
        assert_eq!(ours, [300.0, 100.0, 33.0, 700.0, 33.0, 14.0]);
        assert_eq!(found[3].quantity, "h2dp over def, stripes of 64KiB or more");
        assert_eq!(most_gains(&panel, "a", [Published::NotPrinted; 3], Moves::AsSaid), found);
        let names: Vec<String> = schemes(Moves::AlsoFree).iter().map(ToString::to_string).collect();
        assert_eq!([&names[4], &names[9]], ["h2dp, free moves", "h2dp 64KiB, free moves"]);
        let found = rows("a", [Published::NotPrinted; 3], Moves::AlsoFree, |series, base| {
            assert!(names.iter().any(|name| name == series) && names.iter().any(|name| name == base));
            None
        });
        assert_eq!(found[9].quantity, "h2dp over def, free moves, stripes of 64KiB or more");
    }
}
