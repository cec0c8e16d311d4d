//! What the dead leave in logs: entries that they were preparing or filling, slots that they had in hand, and dirty entries that nobody was told of.

use super::Fragments;
use crate::managed::{LogMemory, Managed, Orphans, Work, take_from_the_dead};
use crate::try_guard;
use std::time::{Duration, Instant};
use stripewise_layout::RegionIndex;
use stripewise_store::shared::control::MAX_REGIONS;
use stripewise_store::shared::fragments::State;

/// How often logs are looked through for it.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

impl Fragments {
    /// Removes what the dead have left once nobody is inside who was there when it was seen. Returns whether there may be more.
    pub(super) fn clean_up(&self, managed: &Managed, logs: &LogMemory, work: &mut Work) -> bool {
        if let Some(orphans) = &mut work.orphans {
            self.quiescing.retain_inside(managed, &mut orphans.uses);
            if !orphans.uses.is_empty() {
                return true;
            }
            for (disk, claimed) in &orphans.claimed {
                logs.table.log(*disk).inspect(|log| log.sets.remove_claimed(claimed));
            }
            for (disk, seen) in &orphans.pending {
                logs.table.log(*disk).inspect(|log| take_from_the_dead(log, seen));
            }
            (work.orphans, work.cleaned_up) = (None, None);
            self.context.step("fragments: orphans removed");
        }
        if work.cleaned_up.is_some_and(|cleaned_up| cleaned_up.elapsed() < CHECK_INTERVAL) {
            return false;
        }
        work.cleaned_up = Some(Instant::now());
        work.orphans = self.find_orphans(managed, logs);
        work.orphans.is_some()
    }

    fn find_orphans(&self, managed: &Managed, logs: &LogMemory) -> Option<Orphans> {
        let mut orphans = Orphans { claimed: Vec::new(), pending: Vec::new(), uses: Vec::new() };
        let (mut lost, mut newer) = (0, 0);
        for (disk, log) in logs.all() {
            let (free, granted) = (log.sets.free_slots(), logs.table.granted(disk));
            if free >= granted {
                continue;
            }
            let claimed = log.sets.claimed();
            if !claimed.is_empty() {
                orphans.claimed.push((disk, claimed));
            }
            let mut entries = 0;
            for seen in log.sets.all() {
                entries += 1;
                newer += u32::from(seen.state().is_newer());
                if seen.state() == State::Pending {
                    orphans.pending.push((disk, seen));
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
        if orphans.claimed.is_empty() && orphans.pending.is_empty() {
            return None;
        }
        orphans.uses = self.quiescing.writers_inside(managed, RegionIndex(0), RegionIndex(MAX_REGIONS - 1));
        Some(orphans)
    }

    /// Frees slots that are nobody's, if nobody is inside just now; the gate keeps others out for that moment.
    fn regain(&self, managed: &Managed, logs: &LogMemory) {
        let Some(inner) = try_guard(&managed.inner) else { return };
        // A gate that is found shut beside the intent of a cut has the next broker cut the file again.
        let is_truncating = inner.record.truncating_to_bytes.is_some();
        if inner.freed || is_truncating || managed.control.gate().is_shut() {
            return;
        }
        let Ok(_gate) = self.quiescing.shut(managed) else { return };
        let mut uses = self.quiescing.inside(managed, RegionIndex(0), RegionIndex(MAX_REGIONS - 1));
        self.quiescing.retain_inside(managed, &mut uses);
        if !uses.is_empty() {
            return;
        }
        for (disk, log) in logs.all() {
            log.sets.regain_slots(logs.table.granted(disk));
        }
    }
}
