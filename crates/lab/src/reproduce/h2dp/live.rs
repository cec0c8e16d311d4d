//! Figure 11 with moves that really happen: an MPI program on emulated servers, regions copied while it reads and writes them.

use super::schemes::Testbed;
use super::zipf::{PHASES, PROCESSES, SERVERS, SIZES, first_window, ior, ior_with};
use super::{DIRECTIONS, direction_name};
use crate::reproduce::emulated::live::LiveRun;
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use crate::reproduce::testbed::Bench;
use anyhow::{Result, bail};
use stripewise_layout::{ByteCount, Direction};
use stripewise_planner::PolicyName;
use stripewise_sim::Migration;
use stripewise_store::protocol::MigrateBandwidth;
use stripewise_trace::{FileAccess, Program};

/// How long a phase takes about without moves, the mean of both. The paper's windows take ten minutes on a file that is 128 times as large, which would
/// be 5 s here.
const PHASE_S: f64 = 12.0;
/// The paper names no limit.
const BANDWIDTH: MigrateBandwidth = MigrateBandwidth::Unlimited;

struct Pair {
    without: LiveRun,
    with: LiveRun,
    file_bytes: u64,
}

struct Figures {
    without_mb_s: Option<f64>,
    with_mb_s: Option<f64>,
}

impl Figures {
    fn ratio(&self) -> f64 {
        self.with_mb_s.zip(self.without_mb_s).map_or(f64::NAN, |(with, without)| with / without)
    }
}

impl Pair {
    fn moved_percent(&self) -> f64 {
        self.with.moved_bytes as f64 / self.file_bytes as f64 * 100.0
    }

    /// Of both phases.
    fn whole(&self, setting: &Setting<'_>) -> Figures {
        let rate = |run: &LiveRun| setting.log.live_mb_per_s(&run.whole());
        Figures { without_mb_s: rate(&self.without), with_mb_s: rate(&self.with) }
    }

    /// Of the phase after the change, its moves included.
    fn after(&self) -> Figures {
        let last = |run: &LiveRun| run.phases.last().filter(|last| !last.host_bound).map(|last| last.mb_per_s());
        Figures { without_mb_s: last(&self.without), with_mb_s: last(&self.with) }
    }
}

pub(super) fn figure_11(setting: &Setting<'_>) -> Result<Findings> {
    let cases: Vec<(Direction, ByteCount)> =
        DIRECTIONS.iter().flat_map(|direction| SIZES.map(|size| (*direction, size))).collect();
    let found = setting.map(&cases, |(direction, size)| with_and_without(setting, *direction, *size))?;
    let mut findings = Findings::default();
    for (direction, found) in DIRECTIONS.into_iter().zip(found.chunks(SIZES.len())) {
        let name = direction_name(direction);
        let (mut after_groups, mut whole_groups) = (Vec::new(), Vec::new());
        for (number, (size, pair)) in SIZES.iter().zip(found).enumerate() {
            let (after, whole) = (pair.after(), pair.whole(setting));
            let case = format!("{size} {name}");
            findings.rows.extend(rows(&case, pair, direction, number, (&after, &whole)));
            findings.notes.extend(remark(&case, pair));
            after_groups.push((size.to_string(), vec![after.without_mb_s, after.with_mb_s]));
            whole_groups.push((size.to_string(), vec![whole.without_mb_s, whole.with_mb_s]));
        }
        for (title, groups) in [("after the change", after_groups), ("both phases", whole_groups)] {
            let title = format!("IOR {name}, {title}");
            findings.panels.push(Panel::new(title, Unit::MbPerS, "request size", ["without", "with"], groups));
        }
    }
    Ok(findings)
}

fn rows(
    case: &str,
    pair: &Pair,
    direction: Direction,
    number: usize,
    (after, whole): (&Figures, &Figures),
) -> Vec<Row> {
    // The text gives two of the reads, and what is moved in one.
    let (gain, moved) = match (direction, number) {
        (Direction::Read, 0) => (Published::Value(26.0), Published::Value(17.0)),
        (Direction::Read, 3) => (Published::Value(5.0), Published::NotPrinted),
        _ => (Published::NotPrinted, Published::NotPrinted),
    };
    let goal = if number == 0 { Published::AtLeast(1.2) } else { Published::NotPrinted };
    vec![
        Row::new(case, "with over without, after the change", Unit::Ratio, goal, after.ratio()),
        Row::new(case, "with over without, both phases", Unit::Percent, gain, (whole.ratio() - 1.0) * 100.0),
        Row::new(case, "data migrated", Unit::Percent, moved, pair.moved_percent()),
    ]
}

fn remark(case: &str, pair: &Pair) -> Option<String> {
    let is_host_bound = pair.without.whole().host_bound || pair.with.whole().host_bound;
    let seconds = |run: &LiveRun| run.phases.last().map_or(0.0, |last| last.seconds);
    (!is_host_bound).then(|| {
        format!(
            "{case}: the phase after the change takes {:.1} s without moves and {:.1} s with them; {} in {} are \
             moved, {} moves are not done at its end.",
            seconds(&pair.without),
            seconds(&pair.with),
            ByteCount(pair.with.moved_bytes),
            ByteCount(pair.file_bytes),
            pair.with.unfinished,
        )
    })
}

fn with_and_without(setting: &Setting<'_>, direction: Direction, size: ByteCount) -> Result<Pair> {
    let program = program(setting, direction, size)?;
    let lab = Testbed::Padp.lab_for(setting, &*program, SERVERS)?;
    let Bench::Emulated { prepared, lab: emulated, .. } = setting.bench(&lab, &*program)? else {
        bail!("{size}: moves that really happen need the emulated testbed");
    };
    let files = emulated.lab().count(&*program);
    let plan = |files: &[FileAccess]| emulated.lab().plan_counted(PolicyName::H2dp, &*program, files, setting.seed);
    let without = emulated.run_live(&prepared, &plan(&first_window(&files))?, None)?;
    let with = emulated.run_live(&prepared, &plan(&files)?, Some(BANDWIDTH))?;
    Ok(Pair { without, with, file_bytes: program.files()[0].size_bytes })
}

/// The paper's IOR, with so many requests that a phase takes about [`PHASE_S`] under H2DP's placement of the first, by a simulation of a shorter run.
fn program(setting: &Setting<'_>, direction: Direction, size: ByteCount) -> Result<Box<dyn Program>> {
    let trial = ior(setting, direction, size, PROCESSES)?;
    let mut lab = Testbed::Padp.lab_for(setting, &*trial, SERVERS)?;
    lab.system.client_link = None;
    let plan = lab.plan_counted(PolicyName::H2dp, &*trial, &first_window(&lab.count(&*trial)), setting.seed)?;
    let mb_per_s = lab.simulate(&plan, &*trial, Migration::Free)?.mb_per_s;
    let requests = (mb_per_s * 1e6 * PHASE_S / size.0 as f64 / f64::from(PROCESSES)).ceil() as u64;
    debug_assert_eq!(trial.phases(), PHASES);
    ior_with(setting, direction, size, PROCESSES, requests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::emulated::EmulatedRun;

    fn run(seconds: [f64; 2], moved_bytes: u64, host_bound: bool) -> LiveRun {
        let phases = seconds.map(|seconds| EmulatedRun { bytes: 8_000_000, seconds, host_bound });
        LiveRun { phases: phases.into(), moved_bytes, unfinished: 1 }
    }

    #[test]
    fn the_phase_after_the_change_is_told_from_both_and_what_the_machine_paced_is_left_out() {
        let whole = |pair: &Pair| {
            let rate = |run: &LiveRun| Some(run.whole().mb_per_s());
            Figures { without_mb_s: rate(&pair.without), with_mb_s: rate(&pair.with) }
        };
        let pair =
            Pair { without: run([1.0, 4.0], 0, false), with: run([1.0, 2.0], 1 << 20, false), file_bytes: 4 << 20 };
        let found = rows("64KiB read", &pair, Direction::Read, 0, (&pair.after(), &whole(&pair)));
        let ours: Vec<f64> = found.iter().map(|row| row.ours).collect();
        assert_eq!((ours[0], ours[2]), (2.0, 25.0));
        assert!((ours[1] - 200.0 / 3.0).abs() < 1e-9, "{ours:?}");
        assert!(remark("64KiB read", &pair).unwrap().contains("4.0 s without moves and 2.0 s with them; 1MiB in 4MiB"));

        let pair = Pair { with: run([1.0, 2.0], 0, true), ..pair };
        assert!(pair.after().ratio().is_nan());
        assert_eq!(remark("64KiB read", &pair), None);
    }
}
