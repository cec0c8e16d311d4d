//! Entries that have to go: those beyond a new end of the file, and those of a region that is to move or to have replicas.

use super::{Picked, WRITE_BACK_PATIENCE, WriteBack};
use crate::managed::{Inner, Managed, Work, drop_entry, take_from_the_dead};
use std::time::Instant;
use stripewise_layout::{RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::fragments::{DiskRange, State};

/// Times that a region's entries are written back while programs write them.
const MAX_PASSES: u32 = 64;

/// Where a range lies, seen from the end of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lies {
    Before,
    Across,
    Beyond,
}

/// Where a range on `disk` lies when the file ends at `size_bytes`.
fn lies(inner: &Inner, disk: ServerId, range: &DiskRange, size_bytes: u64) -> Lies {
    let used = inner.geometry().used_bytes(range.region, size_bytes);
    let Some(placed) = inner.regions.get(&range.region).filter(|_| used > 0) else { return Lies::Beyond };
    let Some(turn) = placed.layout.stripes().iter().position(|stripe| stripe.server == disk) else {
        return Lies::Beyond;
    };
    let end = placed.layout.view().object_bytes(turn, used);
    match (range.offset.0 < end, range.end() <= end) {
        (_, true) => Lies::Before,
        (true, false) => Lies::Across,
        (false, false) => Lies::Beyond,
    }
}

impl WriteBack {
    /// Before a cut that may still be refused: what lies across the new end is written to the disks. Nothing is in flight.
    pub(crate) fn write_back_across(
        &self,
        managed: &Managed,
        inner: &Inner,
        work: &mut Work,
        size_bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(logs) = managed.fragments.logs() else { return Ok(()) };
        let is_across = |disk, range: &DiskRange| lies(inner, disk, range, size_bytes) == Lies::Across;
        let picked = Picked { managed, logs: &logs, held: Some(inner), patience: WRITE_BACK_PATIENCE, is_paced: true };
        self.write_back(work, &picked, &|disk, seen| is_across(disk, &seen.range)).map(drop)
    }

    /// Drops every entry that reaches beyond the end; what lies across it is written back first. Nothing is in flight.
    pub(crate) fn truncate_entries(
        &self,
        managed: &Managed,
        inner: &Inner,
        work: &mut Work,
        size_bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(logs) = managed.fragments.logs() else { return Ok(()) };
        let written = self.write_back_across(managed, inner, work, size_bytes);
        for (disk, log) in logs.all() {
            for seen in log.sets.all() {
                match lies(inner, disk, &seen.range, size_bytes) {
                    Lies::Before => {}
                    // Its part before the end may be nowhere else.
                    Lies::Across if written.is_err() && seen.state().is_newer() => {}
                    Lies::Across | Lies::Beyond => drop_entry(&log, &seen),
                }
            }
        }
        written
    }

    /// No entry of the region is left: what is newer is written to the disks first. Programs may go on writing, if none of them adds an entry. False:
    /// `is_ended` said so, or they write too much.
    pub(crate) fn clear_region(
        &self,
        managed: &Managed,
        region: RegionIndex,
        is_ended: &dyn Fn() -> bool,
    ) -> Result<bool, Refusal> {
        let Some(logs) = managed.fragments.logs() else { return Ok(true) };
        let mut work = managed.fragments.hold();
        let picked = Picked { managed, logs: &logs, held: None, patience: WRITE_BACK_PATIENCE, is_paced: true };
        let begun = Instant::now();
        for _ in 0..MAX_PASSES {
            // A writer that does not come out must not keep the file's other work waiting for long.
            if is_ended() || begun.elapsed() > WRITE_BACK_PATIENCE {
                return Ok(false);
            }
            self.write_back(&mut work, &picked, &|_, seen| seen.range.region == region)?;
            let mut left = 0;
            for (_, log) in logs.all() {
                for seen in log.sets.all().filter(|seen| seen.range.region == region) {
                    match seen.state() {
                        State::Clean if log.sets.remove(&seen) => {}
                        // Nobody can be filling it any more: who would add one here has left.
                        State::Pending => take_from_the_dead(&log, &seen),
                        _ => left += 1,
                    }
                }
            }
            if left == 0 {
                self.context.step("fragments: region cleared");
                return Ok(true);
            }
        }
        Ok(false)
    }
}
