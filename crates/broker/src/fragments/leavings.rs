//! What the dead leave in logs: entries that they were preparing or filling, slots that they had in hand, and dirty entries that nobody was told of.

use super::cutting::{logs_of, take_from_the_dead};
use super::{Logs, Work, try_guard};
use crate::Core;
use crate::files::Managed;
use crate::truncation::ShutGate;
use std::time::{Duration, Instant};
use stripewise_layout::{RegionIndex, ServerId};
use stripewise_store::shared::control::MAX_REGIONS;
use stripewise_store::shared::fragments::{Seen, State};
use stripewise_store::shared::slots::Use;

/// How often logs are looked through for it.
const LOOK: Duration = Duration::from_millis(100);

/// Entries that nobody has finished, and who was inside when they were seen.
pub(super) struct Leavings {
    claimed: Vec<(ServerId, Vec<(usize, u64)>)>,
    pending: Vec<(ServerId, Seen)>,
    uses: Vec<Use>,
}

impl Core {
    /// Removes what the dead have left once nobody is inside who was there when it was seen. Returns whether there may be more.
    pub(super) fn clean_up(&self, managed: &Managed, logs: &Logs, work: &mut Work) -> bool {
        if let Some(leavings) = &mut work.leavings {
            leavings.uses.retain(|lane| managed.slots.goes_on(lane) && self.is_alive(lane.slot, lane.incarnation));
            if !leavings.uses.is_empty() {
                return true;
            }
            for (disk, claimed) in &leavings.claimed {
                logs.table.log(*disk).inspect(|log| log.sets.remove_claimed(claimed));
            }
            for (disk, seen) in &leavings.pending {
                logs.table.log(*disk).inspect(|log| take_from_the_dead(log, seen));
            }
            (work.leavings, work.cleaned_up) = (None, None);
            self.step("fragments: leavings removed");
        }
        if work.cleaned_up.is_some_and(|cleaned_up| cleaned_up.elapsed() < LOOK) {
            return false;
        }
        work.cleaned_up = Some(Instant::now());
        work.leavings = self.find_leavings(managed, logs);
        work.leavings.is_some()
    }

    fn find_leavings(&self, managed: &Managed, logs: &Logs) -> Option<Leavings> {
        let mut leavings = Leavings { claimed: Vec::new(), pending: Vec::new(), uses: Vec::new() };
        let (mut lost, mut newer) = (0, 0);
        for (disk, log) in logs_of(logs) {
            let (free, granted) = (log.sets.free_slots(), logs.table.granted(disk));
            if free >= granted {
                continue;
            }
            let claimed = log.sets.claimed();
            if !claimed.is_empty() {
                leavings.claimed.push((disk, claimed));
            }
            let mut entries = 0;
            for seen in log.sets.all() {
                entries += 1;
                newer += u32::from(seen.state().is_newer());
                if seen.state() == State::Pending {
                    leavings.pending.push((disk, seen));
                }
            }
            lost += granted.saturating_sub(free + entries);
        }
        if newer > 0 && !logs.table.is_dirtied() {
            // Its writer died before it could say so, or is about to.
            logs.table.note_dirtied();
        }
        if lost > 0 {
            self.regain(managed, logs);
        }
        if leavings.claimed.is_empty() && leavings.pending.is_empty() {
            return None;
        }
        leavings.uses = self.writers_inside(managed, RegionIndex(0), RegionIndex(MAX_REGIONS - 1));
        Some(leavings)
    }

    /// Frees slots that are nobody's, if nobody is inside just now; the gate keeps others out for that moment.
    fn regain(&self, managed: &Managed, logs: &Logs) {
        let Some(inner) = try_guard(&managed.inner) else { return };
        // A gate that is found shut beside the intent of a cut has the next broker cut the file again.
        let is_cutting = inner.record.cutting_to_bytes.is_some();
        if inner.freed || is_cutting || managed.control.gate_is_shut() {
            return;
        }
        let Ok(_gate) = ShutGate::new(self, managed) else { return };
        let mut uses = managed.slots.uses(RegionIndex(0), RegionIndex(MAX_REGIONS - 1)).into_iter();
        if uses.any(|lane| self.is_alive(lane.slot, lane.incarnation)) {
            return;
        }
        for (disk, log) in logs_of(logs) {
            log.sets.regain_slots(logs.table.granted(disk));
        }
    }
}
