//! Who gets slots, and who has to give some up.
//!
//! LogMemory get slots by the chunk while there is space for the disk's fragments. When there is none left, the class that has more than its share gives up what
//! was used least recently (iBridge: shares in proportion to the recent mean returns, least recently used within each). All files share the room; where the oldest
//! entries are mostly those of another file, that one gives up its last slots, whatever lies there, since the end of a log is what can be cut off.

use super::Fragments;
use super::write_back::{Picked, WRITE_BACK_PATIENCE};
use crate::managed::{LogMemory, Managed, log_object};
use crate::rmt::LogRecord;
use crate::try_guard;
use std::collections::BTreeSet;
use std::sync::Arc;
use stripewise_layout::{FileId, ServerId};
use stripewise_store::shared::control::FragmentMode;
use stripewise_store::shared::fragments::table::tick;
use stripewise_store::shared::fragments::{Class, Seen, State};

/// A file that has slots for a disk.
struct Holder {
    managed: Arc<Managed>,
    logs: Arc<LogMemory>,
}

/// An entry that may have to go.
struct Candidate {
    /// Since its last use, in ticks.
    age: u32,
    holder: usize,
    number: usize,
}

/// Which class gives up entries, given how many each has and its recent mean return; `None`: whichever was used least recently.
fn over_its_share(used: [u32; 2], mean_returns: [f64; 2]) -> Option<Class> {
    let (sum, total) = (mean_returns[0] + mean_returns[1], f64::from(used[0]) + f64::from(used[1]));
    if sum <= 0.0 {
        return None;
    }
    let over = |class: Class| f64::from(used[class as usize]) - mean_returns[class as usize] / sum * total;
    Class::ALL.into_iter().find(|class| over(*class) > 0.5)
}

impl Fragments {
    /// Grants slots where few are free, or makes some free. Returns whether anything was done.
    pub(super) fn top_up(&self, managed: &Arc<Managed>, logs: &Arc<LogMemory>) -> bool {
        if managed.control.notices().fragments() != FragmentMode::On {
            return false;
        }
        let mut has_acted = false;
        for (disk, log) in logs.all() {
            if self.drained.is_drained(log.on) {
                has_acted |= self.leave(managed, logs, disk);
                continue;
            }
            let (chunk, free) = (self.logs.chunk_slots(logs, disk), log.sets.free_slots());
            if 2 * free >= chunk.max(2) {
                continue;
            }
            if self.grant_more(managed, logs, disk) > 0 {
                has_acted = true;
            } else if 8 * free < chunk.max(8) {
                has_acted |= self.reclaim_for(managed, disk, chunk);
                self.grant_more(managed, logs, disk);
            }
        }
        has_acted
    }

    /// A log on a server that is being emptied gives up all that it has. Returns whether it had anything.
    fn leave(&self, managed: &Arc<Managed>, logs: &Arc<LogMemory>, disk: ServerId) -> bool {
        let holder = Holder { managed: Arc::clone(managed), logs: Arc::clone(logs) };
        let granted = logs.table.granted(disk);
        if granted > 0 {
            self.evict(&holder, disk, &|_| true);
            self.withdraw(&holder, disk, granted);
        }
        granted > 0
    }

    /// Grants slots to a file that was not freed meanwhile. Returns how many.
    fn grant_more(&self, managed: &Managed, logs: &Arc<LogMemory>, disk: ServerId) -> u32 {
        let Some(_inner) = try_guard(&managed.inner) else { return 0 };
        if managed.fragments.has(logs) { self.logs.grant(managed.file, logs, disk) } else { 0 }
    }

    /// Entries of a disk's logs give up slots for `needy`. No work lock may be held.
    fn reclaim_for(&self, needy: &Arc<Managed>, disk: ServerId, chunk: u32) -> bool {
        let holders = self.holders(disk);
        let is_needy = |holder: &Holder| holder.managed.file == needy.file;
        // What nobody uses first.
        for holder in holders.iter().filter(|holder| !is_needy(holder)) {
            let free = holder.logs.table.log(disk).map_or(0, |log| log.sets.free_slots());
            let spare = free.saturating_sub(self.logs.chunk_slots(&holder.logs, disk) / 2);
            if spare > 0 && self.withdraw(holder, disk, spare.min(chunk)) > 0 {
                return true;
            }
        }
        let candidates = candidates(&holders, disk, (chunk / 4).max(1) as usize);
        let count = |number: usize| candidates.iter().filter(|candidate| candidate.holder == number).count();
        let Some(donor) = (0..holders.len()).max_by_key(|number| (count(*number), is_needy(&holders[*number]))) else {
            return false;
        };
        if count(donor) == 0 {
            return false;
        }
        let holder = &holders[donor];
        if is_needy(holder) {
            let numbers: BTreeSet<usize> = candidates
                .iter()
                .filter(|candidate| candidate.holder == donor)
                .map(|candidate| candidate.number)
                .collect();
            return self.evict(holder, disk, &|seen| numbers.contains(&seen.number));
        }
        if self.retire(&holder.managed) {
            return true;
        }
        let kept = holder.logs.table.granted(disk).saturating_sub(chunk);
        self.evict(holder, disk, &|seen| seen.slot >= kept);
        self.withdraw(holder, disk, chunk) > 0
    }

    /// Loaded files that have a log for the disk.
    fn holders(&self, disk: ServerId) -> Vec<Holder> {
        let files: Vec<FileId> = self.files.ids();
        let holder = |file| {
            let managed = self.files.if_loaded(file)?;
            let logs = managed.fragments.logs()?;
            logs.table.log(disk).is_some().then_some(Holder { managed, logs })
        };
        files.into_iter().filter_map(holder).collect()
    }

    /// Frees the slots of entries; what is newer than the disk is written there first. Returns whether there were any.
    fn evict(&self, holder: &Holder, disk: ServerId, is_meant: &(dyn Fn(&Seen) -> bool + Sync)) -> bool {
        let Some(mut work) = holder.managed.fragments.try_hold() else { return false };
        let Some(log) = holder.logs.table.log(disk) else { return false };
        let picked = Picked {
            managed: &holder.managed,
            logs: &holder.logs,
            held: None,
            patience: WRITE_BACK_PATIENCE,
            is_paced: true,
        };
        // What cannot be written back stays.
        let _ = self.write_back.write_back(&mut work, &picked, &|of, seen| of == disk && is_meant(seen));
        let mut has_freed = false;
        for seen in log.sets.all().filter(|seen| seen.state() == State::Clean && is_meant(seen)) {
            has_freed |= log.sets.remove(&seen);
        }
        self.context.step("fragments: evicted");
        has_freed
    }

    /// Takes slots that are free at the end of a log. Returns how many.
    fn withdraw(&self, holder: &Holder, disk: ServerId, most: u32) -> u32 {
        let Some(_work) = holder.managed.fragments.try_hold() else { return 0 };
        let Some(_inner) = try_guard(&holder.managed.inner) else { return 0 };
        if !holder.managed.fragments.has(&holder.logs) {
            return 0;
        }
        let (table, file) = (&holder.logs.table, holder.managed.file);
        let (mut withdrawn, mut granted_bytes) = (0, 0);
        self.log_capacity.set(file, disk, |_| {
            withdrawn = table.withdraw(disk, most);
            granted_bytes = u64::from(table.granted(disk)) * table.slot_bytes();
            granted_bytes
        });
        if let Some(log) = table.log(disk).filter(|_| withdrawn > 0)
            && let Ok(server) = self.context.server(log.on)
        {
            let record = LogRecord { on: log.on, generation: log.generation };
            // What stays there is overwritten when the slots are granted again.
            let _ = server.truncate(log_object(file, disk, record), granted_bytes);
        }
        withdrawn
    }
}

/// The entries that have to go, the least recently used first: of the class that has more than its share.
fn candidates(holders: &[Holder], disk: ServerId, most: usize) -> Vec<Candidate> {
    let now = tick();
    let (mut used, mut returns, mut weights) = ([0u32; 2], [0.0; 2], [0.0; 2]);
    let mut of_class: [Vec<Candidate>; 2] = [Vec::new(), Vec::new()];
    for (holder, Holder { logs, .. }) in holders.iter().enumerate() {
        let Some(log) = logs.table.log(disk) else { continue };
        let before = used;
        for seen in log.sets.all().filter(|seen| seen.state().is_filled()) {
            used[seen.class as usize] += 1;
            let age = now.wrapping_sub(logs.hints.last_use(disk, &seen));
            of_class[seen.class as usize].push(Candidate { age, holder, number: seen.number });
        }
        for class in Class::ALL.map(|class| class as usize) {
            let weight = f64::from(used[class] - before[class]);
            returns[class] += weight * logs.hints.mean_return(disk, Class::ALL[class]);
            weights[class] += weight;
        }
    }
    let mean = |class: usize| if weights[class] > 0.0 { returns[class] / weights[class] } else { 0.0 };
    let [fragments, random] = of_class;
    let mut candidates = match over_its_share(used, [mean(0), mean(1)]) {
        Some(Class::Fragment) => fragments,
        Some(Class::Random) => random,
        None => fragments.into_iter().chain(random).collect(),
    };
    candidates.sort_unstable_by_key(|candidate| std::cmp::Reverse(candidate.age));
    candidates.truncate(most);
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_that_has_more_than_its_share_gives_way() {
        for (used, returns, expected) in [
            ([50, 50], [3.0, 1.0], Some(Class::Random)),
            ([90, 10], [3.0, 1.0], Some(Class::Fragment)),
            ([75, 25], [3.0, 1.0], None),
            ([0, 100], [0.0, 2.0], None),
            ([1, 99], [0.0, 2.0], Some(Class::Fragment)),
            ([10, 90], [0.0, 0.0], None),
            ([0, 0], [1.0, 1.0], None),
        ] {
            assert_eq!(over_its_share(used, returns), expected, "{used:?} {returns:?}");
        }
    }
}
