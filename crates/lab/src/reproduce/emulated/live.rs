//! A program run as a whole on emulated servers, its regions following a plan while it runs.
//!
//! The files are placed as the plan's first window has them. With moves the program runs under `stripewise run --migrate --windows phase`, and its rank 0
//! marks the phases; regions are copied through the same emulated servers that the program uses, in its time. Without, all stays.

use super::{EmulatedLab, EmulatedRun, Prepared, REPEATS, name_of};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use stripewise::moves;
use stripewise_layout::Placement;
use stripewise_planner::Plan;
use stripewise_store::protocol::MigrateBandwidth;

/// What came of a whole run.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct LiveRun {
    pub(crate) phases: Vec<EmulatedRun>,
    /// Bytes of regions that were moved before the program ended.
    pub(crate) moved_bytes: u64,
    /// Moves that were ordered and not done by then; their regions stay.
    pub(crate) unfinished: u64,
}

impl LiveRun {
    pub(crate) fn whole(&self) -> EmulatedRun {
        EmulatedRun::sum(&self.phases)
    }
}

impl EmulatedLab {
    /// Runs the program on files that lie as the plan's first window has them. With a bandwidth for moves, the regions follow the plan's
    /// other windows, of which each is a phase of the program; a plan of one window moves nothing.
    pub(crate) fn run_live(
        &self,
        prepared: &Prepared<'_>,
        plan: &Plan,
        moves: Option<MigrateBandwidth>,
    ) -> Result<LiveRun> {
        let mut found = self.run_live_once(prepared, plan, moves)?;
        for _ in 0..REPEATS {
            if found.whole().host_bound {
                found = self.run_live_once(prepared, plan, moves)?;
            }
        }
        Ok(found)
    }

    fn run_live_once(
        &self,
        prepared: &Prepared<'_>,
        plan: &Plan,
        bandwidth: Option<MigrateBandwidth>,
    ) -> Result<LiveRun> {
        let initial: Vec<Placement> = plan.files.iter().map(|file| file.initial().clone()).collect();
        self.place(prepared, &initial)?;
        let paths = prepared.managed();
        let before = moves::totals(&self.store)?;
        let words = match bandwidth {
            Some(bandwidth) => self.migrating(prepared, &paths, plan, bandwidth)?,
            None => self.player.words(prepared.program, &paths)?,
        };
        let redirected = bandwidth.is_none().then(|| ["run".into(), "--".into()]).into_iter().flatten();
        let phases = self.measure_phases(redirected.chain(words))?;
        // What was cancelled at the program's end may still be freeing its places.
        self.steps.run(["migrate".into(), "wait".into()])?;
        let after = moves::totals(&self.store)?;
        self.remove(&paths)?;
        ensure!(
            after.since_ns == before.since_ns && after.failed == before.failed,
            "moves failed: {} of them",
            after.failed.saturating_sub(before.failed)
        );
        let moved_bytes = after.moved_bytes - before.moved_bytes;
        let unfinished = after.cancelled - before.cancelled;
        Ok(LiveRun { phases, moved_bytes, unfinished })
    }

    /// The words of a run that follows the plan.
    fn migrating(
        &self,
        prepared: &Prepared<'_>,
        paths: &[PathBuf],
        plan: &Plan,
        bandwidth: MigrateBandwidth,
    ) -> Result<Vec<OsString>> {
        let mut here = plan.clone();
        for (file, path) in here.files.iter_mut().zip(paths) {
            file.path = name_of(path)?;
        }
        let own = self.work.path().join("live.plan.json");
        here.save(&own)?;
        let borders: BTreeSet<u64> = plan
            .files
            .iter()
            .flat_map(|file| file.windows.iter().skip(1))
            .map(|window| window.start_s.to_bits())
            .collect();
        let (windows, phases) = (borders.len() + 1, prepared.program.phases() as usize);
        ensure!(
            windows == 1 || windows == phases,
            "a plan of {windows} windows is not for a program of {phases} phases"
        );
        let words = match windows {
            1 => self.player.words(prepared.program, paths)?,
            _ => self.player.marking_words(prepared.program, paths, self.mark()?)?,
        };
        let rate = bandwidth.to_string();
        let run = ["run", "--migrate", "--windows", "phase", "--migrate-bandwidth", &rate, "--force-plan", "--plan"];
        let run = run.map(OsString::from);
        Ok(run.into_iter().chain([own.into(), "--".into()]).chain(words).collect())
    }

    /// What a program runs to mark a phase; the number stands behind it.
    fn mark(&self) -> Result<OsString> {
        let command = name_of(&self.steps.stripewise)?;
        ensure!(!command.contains('\''), "{command}: a shell is to run this; move it to a path without quotes");
        Ok(format!(">/dev/null '{command}' --json phase").into())
    }
}
