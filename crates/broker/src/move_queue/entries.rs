//! What stands in the queue, and in which order it is taken.

use super::pairs;
use crate::capacity::Relocation;
use crate::managed::ActiveMove;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, Layout, RegionIndex, ServerId};
use stripewise_store::protocol::{MoveNumber, MoveState, MoveStatus, MoveTotals, WhichMoves};

/// Ended moves that are told of.
const KEPT: usize = 4096;
/// A move that was put back waits at least so long, twice as long each time, up to the longest.
const FIRST_PUT_BACK: Duration = Duration::from_millis(50);
const LONGEST_PUT_BACK: Duration = Duration::from_secs(10);

/// Of moves that lack space, so many are tried whenever some was freed.
const TRIED_AT_ONCE: usize = 4;

/// Which moves go first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    Outgoing,
    Neutral,
    Incoming,
    Sync,
}

/// One region's move or sync, from its order to its end.
pub(crate) struct Entry {
    pub(super) file: FileId,
    pub(super) path: Arc<str>,
    pub(super) region: RegionIndex,
    /// `None`: a sync.
    pub(super) to: Option<Arc<Layout>>,
    pub(super) class: Class,
    pub(super) from: Vec<(u16, u32)>,
    pub(super) total_bytes: u64,
    pub(super) copied_bytes: Arc<AtomicU64>,
    pub(super) state: MoveState,
    /// Once begun.
    pub(super) active: Option<Arc<ActiveMove>>,
    pub(super) cancelled: bool,
    pub(super) put_back: Duration,
    pub(super) was_moved_aside: bool,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) next: u64,
    pub(super) entries: BTreeMap<MoveNumber, Entry>,
    /// By class and turn.
    pub(super) ready: BTreeSet<(Class, u64, MoveNumber)>,
    pub(super) turn: u64,
    /// Put back until then.
    pub(super) later: Vec<(Instant, MoveNumber)>,
    /// Not begun, by region, and whether it is a sync.
    pub(super) queued: HashMap<Key, MoveNumber>,
    pub(super) ended: VecDeque<MoveNumber>,
    /// Taken by somebody who runs them.
    pub(super) running: HashSet<MoveNumber>,
    /// Found a server full when they were tried last, and no old place was freed since.
    pub(super) lacking_space: HashSet<MoveNumber>,
    pub(super) totals: MoveTotals,
    pub(super) stopping: bool,
}

type Key = (FileId, RegionIndex, bool);

impl Queue {
    /// Moves that were put back for long enough take their turn again; `Some` if there was one. Those that lack space take it at once where nothing is
    /// left to wait for.
    pub(super) fn take_later(&mut self, all_is_freed: bool) -> Option<()> {
        let now = Instant::now();
        let only_space_is_lacking = all_is_freed && self.running.is_empty() && !self.has_ready_move();
        let mut taken = None;
        let mut number = 0;
        while number < self.later.len() {
            let (due, later) = self.later[number];
            if due > now && !(only_space_is_lacking && self.lacking_space.contains(&later)) {
                number += 1;
                continue;
            }
            let (_, due) = self.later.swap_remove(number);
            self.make_ready(due);
            taken = Some(());
        }
        taken
    }

    /// One that has not found a server full.
    fn has_ready_move(&self) -> bool {
        self.ready.iter().any(|(class, _, number)| *class != Class::Sync && !self.lacking_space.contains(number))
    }

    pub(super) fn others_may_free_space(&self, number: MoveNumber) -> bool {
        let may_begin = |other: &MoveNumber| {
            *other != number
                && !self.lacking_space.contains(other)
                && self.entries.get(other).is_some_and(|entry| entry.to.is_some())
        };
        self.has_ready_move()
            || self.running.iter().any(may_begin)
            || self.later.iter().any(|(_, later)| may_begin(later))
    }

    /// A few of those that lack space, the first that were ordered, may find it now.
    pub(super) fn try_lacking_space(&mut self) {
        let mut lacking: Vec<MoveNumber> = self.lacking_space.drain().collect();
        lacking.sort_unstable();
        lacking.truncate(TRIED_AT_ONCE);
        let now = Instant::now();
        for (due, later) in &mut self.later {
            if lacking.contains(later) {
                *due = now;
            }
        }
    }

    /// It lies aside and takes its turn again.
    pub(super) fn put_aside(&mut self, number: MoveNumber) {
        self.put_back(number, "the place that it left is not freed yet".to_owned());
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.was_moved_aside = true;
            entry.put_back = Duration::ZERO;
        }
    }

    pub(super) fn make_ready(&mut self, number: MoveNumber) {
        if let Some(entry) = self.entries.get(&number) {
            self.turn += 1;
            self.ready.insert((entry.class, self.turn, number));
        }
    }

    pub(crate) fn put_back(&mut self, number: MoveNumber, why: String) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        entry.active = None;
        let key = entry.key();
        // Cancelled, or replaced by a later order, while it was being tried.
        if entry.cancelled || self.queued.contains_key(&key) {
            return self.end(number, MoveState::Cancelled);
        }
        entry.state = MoveState::Queued { waits_for: Some(why) };
        entry.copied_bytes.store(0, Relaxed);
        entry.put_back = (2 * entry.put_back).clamp(FIRST_PUT_BACK, LONGEST_PUT_BACK);
        self.later.push((Instant::now() + entry.put_back, number));
        self.queued.insert(key, number);
    }

    pub(crate) fn end(&mut self, number: MoveNumber, state: MoveState) {
        self.lacking_space.remove(&number);
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if entry.to.is_none() {
            self.entries.remove(&number);
            return;
        }
        let total = match state {
            MoveState::Failed { .. } => &mut self.totals.failed,
            MoveState::Cancelled => &mut self.totals.cancelled,
            _ => &mut self.totals.done,
        };
        *total += 1;
        entry.state = state;
        entry.active = None;
        self.ended.push_back(number);
        if self.ended.len() > KEPT
            && let Some(forgotten) = self.ended.pop_front()
        {
            self.entries.remove(&forgotten);
        }
    }

    pub(crate) fn cancel(&mut self, which: WhichMoves) {
        let is_meant = |number: MoveNumber, entry: &Entry| match which {
            WhichMoves::All => true,
            WhichMoves::File(file) => entry.file == file,
            WhichMoves::One(one) => number == one,
            WhichMoves::Range { first, last } => (first..=last).contains(&number),
        };
        let meant: Vec<MoveNumber> = self
            .entries
            .iter()
            .filter(|(number, entry)| !entry.state.is_final() && is_meant(**number, entry))
            .map(|(number, _)| *number)
            .collect();
        let mut taken_out = HashSet::new();
        for number in meant {
            if self.end_cancelled(number) {
                taken_out.insert(number);
            }
        }
        self.take_out(&taken_out);
    }

    pub(super) fn take_out(&mut self, numbers: &HashSet<MoveNumber>) {
        if !numbers.is_empty() {
            self.ready.retain(|(_, _, ready)| !numbers.contains(ready));
            self.later.retain(|(_, later)| !numbers.contains(later));
        }
    }

    /// True: it had not begun and has ended; whoever calls takes it out of the queue.
    pub(super) fn end_cancelled(&mut self, number: MoveNumber) -> bool {
        let Some(entry) = self.entries.get_mut(&number) else { return false };
        entry.cancelled = true;
        let key = entry.key();
        match &entry.active {
            Some(active) => active.cancel(),
            None if self.queued.get(&key) == Some(&number) => {
                self.queued.remove(&key);
                self.end(number, MoveState::Cancelled);
                return true;
            }
            // Just being taken up: seen when it begins.
            None => {}
        }
        false
    }

    /// Returns the move that it replaces, which has ended; whoever calls takes it out of the queue.
    pub(crate) fn add(&mut self, entry: Entry) -> Option<MoveNumber> {
        let number = MoveNumber(self.next);
        self.next += 1;
        let key = entry.key();
        let earlier = self.queued.get(&key).copied();
        let replaced = earlier.filter(|earlier| self.end_cancelled(*earlier));
        self.queued.insert(key, number);
        self.entries.insert(number, entry);
        self.make_ready(number);
        replaced
    }
}

impl Entry {
    /// A move, or without `to` a sync, of a region that holds so many bytes.
    pub(crate) fn new(
        (file, path): (FileId, &Arc<str>),
        (region, from): (RegionIndex, Vec<(u16, u32)>),
        (to, class): (Option<Arc<Layout>>, Class),
        total_bytes: u64,
    ) -> Self {
        Self {
            file,
            path: Arc::clone(path),
            region,
            to,
            class,
            from,
            total_bytes,
            copied_bytes: Arc::default(),
            state: MoveState::Queued { waits_for: None },
            active: None,
            cancelled: false,
            put_back: Duration::ZERO,
            was_moved_aside: false,
        }
    }

    pub(super) fn relocation(&self) -> Option<Relocation> {
        let stripes = self.from.iter().map(|(server, size)| (ServerId(*server), *size));
        let (from, to) = (Layout::new(stripes).ok()?, Arc::clone(self.to.as_ref()?));
        Some(Relocation { file: self.file, from, to, used_bytes: self.total_bytes })
    }

    /// Counted up by who copies.
    pub(crate) fn copied_bytes(&self) -> &Arc<AtomicU64> {
        &self.copied_bytes
    }

    pub(super) fn key(&self) -> Key {
        (self.file, self.region, self.to.is_none())
    }

    pub(crate) fn status(&self, number: MoveNumber, to: &Layout) -> MoveStatus {
        MoveStatus {
            number,
            file: self.file,
            path: self.path.to_string(),
            region: self.region,
            from: self.from.clone(),
            to: pairs(to),
            state: self.state.clone(),
            copied_bytes: self.copied_bytes.load(Relaxed),
            total_bytes: self.total_bytes,
        }
    }
}
