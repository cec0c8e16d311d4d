//! The queue of moves, and what is told of them.
//!
//! Orders become one move for each region. Those that take a region off SSD come first, since they free space, then those that leave the SSD
//! share as it is, then the rest; each kind in the order in which it was ordered. A later order for a region replaces an earlier one that has
//! not begun. A move that finds a server full waits for others that may free space there. Where all that are left wait for space, a region moves
//! aside ([`crate::moves`]), or its move fails. Behind all moves come *syncs*: a region stays where it is and its replicas are made from it
//! ([`crate::replicas`]); they are told of elsewhere and counted in no total but that of bytes copied. The queue is in memory only: it ends with the broker, and
//! a move that had not been committed never was.

mod entries;

pub(crate) use entries::{Class, Entry};

use crate::capacity::Relocation;
use crate::discards::Discards;
use crate::guard;
use crate::idleness::Idle;
use crate::managed::ActiveMove;
use crate::throttle::Throttle;
use entries::Queue;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stripewise_layout::{FileId, Layout, RegionIndex};
use stripewise_store::protocol::{
    MAX_PACKET_BYTES, MoveControl, MoveNumber, MoveState, MoveStatus, MoveTotals, Refusal,
};

/// Moves queued at most.
const MAX_QUEUED: usize = 1 << 20;
/// How often movers look at what waits for others (readers of an old place, a stopped process).
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// What a mover takes from the queue.
pub(crate) struct Task {
    pub(crate) number: MoveNumber,
    pub(crate) file: FileId,
    pub(crate) region: RegionIndex,
    /// `None`: it stays, and its replicas are made.
    pub(crate) to: Option<Arc<Layout>>,
    pub(crate) copied_bytes: Arc<AtomicU64>,
    /// A writer waits for it: as fast as it can be, whatever the file is about to become, and away from where the region is wanted.
    pub(crate) is_urgent: bool,
    pub(crate) way: Way,
}

/// Where a move leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// To where the region is wanted.
    Straight,
    /// Aside, so that the place that the region leaves is free for what waits for it.
    Aside,
    /// To where the region is wanted, from aside.
    FromAside,
}

/// What became of a task.
pub(crate) enum Outcome {
    /// Committed, or nothing was to be done; the old place may still wait for its readers.
    Moved {
        bytes: u64,
        freeing: bool,
    },
    /// Committed to a place aside; it moves on to its own.
    MovedAside {
        bytes: u64,
    },
    Failed(String),
    Cancelled,
    /// To be tried again later; why not now.
    PutBack(String),
}

/// All moves of a broker.
pub(crate) struct MoveQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
    throttle: Arc<Throttle>,
    discards: Arc<Discards>,
    idle: Arc<Idle>,
}

impl MoveQueue {
    pub(crate) fn new(throttle: &Arc<Throttle>, discards: &Arc<Discards>, idle: &Arc<Idle>) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let since_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let totals = MoveTotals { since_ns, ..MoveTotals::default() };
        let queue = Mutex::new(Queue { totals, ..Queue::default() });
        let (throttle, discards, idle) = (Arc::clone(throttle), Arc::clone(discards), Arc::clone(idle));
        Self { queue, changed: Condvar::new(), throttle, discards, idle }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        guard(&self.queue)
    }

    pub(crate) fn stop(&self) {
        let mut queue = self.queue();
        queue.stopping = true;
        for active in queue.entries.values().filter_map(|entry| entry.active.as_ref()) {
            active.abandon("the broker was stopped");
        }
        drop(queue);
        self.throttle.stop();
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.queue().stopping
    }

    /// Whether the move, which found a server full, may wait for others to free space there. If so it counts as one that waits, so of moves that wait
    /// for each other the last one may not.
    pub(crate) fn may_wait_for_space(&self, number: MoveNumber) -> bool {
        let mut queue = self.queue();
        let may_wait = !self.discards.is_empty() || queue.others_may_free_space(number);
        if may_wait {
            queue.lacking_space.insert(number);
        }
        may_wait
    }

    /// The others that wait for space.
    pub(crate) fn waiting_for_space(&self, number: MoveNumber) -> Vec<Relocation> {
        let queue = self.queue();
        let numbers = queue.lacking_space.iter().filter(|lacking| **lacking != number);
        let entries = numbers.filter_map(|number| queue.entries.get(number));
        entries.filter_map(Entry::relocation).collect()
    }

    pub(crate) fn control(&self, control: MoveControl) {
        let mut queue = self.queue();
        match control {
            MoveControl::Pause { why } => {
                queue.totals.paused = Some(why);
                self.throttle.pause(true);
            }
            MoveControl::Resume => {
                queue.totals.paused = None;
                self.throttle.pause(false);
            }
            MoveControl::Bandwidth(bandwidth) => {
                queue.totals.bandwidth = bandwidth;
                self.throttle.set(bandwidth);
            }
            MoveControl::Cancel(which) => queue.cancel(which),
        }
        drop(queue);
        self.throttle.wake();
        self.changed.notify_all();
    }

    /// The move has come to this state, which is not its last.
    pub(crate) fn note(&self, number: MoveNumber, state: MoveState) {
        if let Some(entry) = self.queue().entries.get_mut(&number) {
            entry.state = state;
        }
    }

    /// Queues, or refuses all. Returns the number of the first and how many there are.
    pub(crate) fn add(&self, added: Vec<Entry>) -> Result<(MoveNumber, u64), Refusal> {
        let mut queue = self.queue();
        let (first, count) = (MoveNumber(queue.next), added.len() as u64);
        if queue.queued.len() + added.len() > MAX_QUEUED {
            return Err(Refusal::TooLarge {
                what: format!(
                    "{} moves in the queue; order the rest when some are done",
                    queue.queued.len() + added.len()
                ),
            });
        }
        let replaced: HashSet<MoveNumber> = added.into_iter().filter_map(|entry| queue.add(entry)).collect();
        queue.take_out(&replaced);
        drop(queue);
        self.changed.notify_all();
        Ok((first, count))
    }

    /// A move that somebody runs who is no mover; see [`Self::finish`].
    pub(crate) fn add_active(&self, entry: Entry) -> MoveNumber {
        let mut queue = self.queue();
        let number = MoveNumber(queue.next);
        queue.next += 1;
        queue.running.insert(number);
        queue.entries.insert(number, entry);
        number
    }

    /// Syncs of the file's regions that have not ended.
    pub(crate) fn syncs_of(&self, file: FileId) -> u64 {
        self.queue().entries.values().filter(|entry| entry.to.is_none() && entry.file == file).count() as u64
    }

    /// For movers that wait: there is something new to look after.
    pub(crate) fn wake(&self) {
        drop(self.queue());
        self.changed.notify_all();
    }

    /// The move has begun. False: it was cancelled meanwhile.
    pub(crate) fn begun(&self, number: MoveNumber, active: &Arc<ActiveMove>, total_bytes: u64) -> bool {
        let mut queue = self.queue();
        let stopping = queue.stopping;
        let Some(entry) = queue.entries.get_mut(&number) else { return false };
        entry.from = pairs(&active.old.layout);
        entry.total_bytes = total_bytes;
        entry.state = MoveState::Copying;
        entry.active = Some(Arc::clone(active));
        let goes_on = !entry.cancelled && !stopping;
        queue.lacking_space.remove(&number);
        goes_on
    }

    /// The old place of a committed move was freed; without a number, of one that moved aside.
    pub(crate) fn freed(&self, number: Option<MoveNumber>) {
        let mut queue = self.queue();
        queue.try_lacking_space();
        if let Some(number) = number
            && queue.entries.get(&number).is_some_and(|entry| entry.state == MoveState::Freeing)
        {
            queue.end(number, MoveState::Done);
        }
        drop(queue);
        self.changed.notify_all();
    }

    pub(crate) fn totals(&self) -> MoveTotals {
        let queue = self.queue();
        let moves = queue.entries.values().filter(|entry| entry.to.is_some());
        let unfinished = moves.filter(|entry| !entry.state.is_final());
        let left = |entry: &Entry| match entry.state {
            MoveState::Queued { .. } => entry.total_bytes,
            MoveState::Copying => entry.total_bytes.saturating_sub(entry.copied_bytes.load(Relaxed)),
            _ => 0,
        };
        let (mut queued, mut active, mut left_bytes) = (0, 0, 0);
        for entry in unfinished {
            match entry.state {
                MoveState::Queued { .. } => queued += 1,
                _ => active += 1,
            }
            left_bytes += left(entry);
        }
        let copied_bytes = self.throttle.copied_bytes();
        MoveTotals { queued, active, left_bytes, copied_bytes, ..queue.totals.clone() }
    }

    /// Moves from behind `after`, as many as fit a packet, and whether there are more.
    pub(crate) fn list(&self, after: Option<MoveNumber>) -> (Vec<MoveStatus>, bool) {
        use std::ops::Bound;
        let queue = self.queue();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut bytes, mut moves) = (0, Vec::new());
        for (number, entry) in queue.entries.range((from, Bound::Unbounded)) {
            let Some(to) = &entry.to else { continue };
            let status = entry.status(*number, to);
            bytes += 128 + status.path.len() + 8 * (status.from.len() + status.to.len());
            if let MoveState::Failed { why } | MoveState::Queued { waits_for: Some(why) } = &status.state {
                bytes += why.len();
            }
            if bytes > MAX_PACKET_BYTES / 2 && !moves.is_empty() {
                return (moves, true);
            }
            moves.push(status);
        }
        (moves, false)
    }

    /// Waits for something to do, at most [`CHECK_INTERVAL`] while something waits for others; `None` when there is nothing yet.
    pub(crate) fn next_task(&self) -> Option<Task> {
        let mut queue = self.queue();
        let all_is_freed = self.discards.is_empty();
        if !queue.stopping
            && queue.take_later(all_is_freed).is_none()
            && (queue.totals.paused.is_some() || queue.ready.is_empty())
        {
            let wait = if queue.later.is_empty() && self.discards.is_empty() {
                self.idle.next_check().unwrap_or(Duration::from_secs(3600))
            } else {
                CHECK_INTERVAL
            };
            queue = self.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
            queue.take_later(all_is_freed);
        }
        if queue.stopping || queue.totals.paused.is_some() {
            return None;
        }
        let (_, _, number) = queue.ready.pop_first()?;
        queue.running.insert(number);
        let entry = queue.entries.get_mut(&number)?;
        entry.state = MoveState::Queued { waits_for: None };
        let task = Task {
            number,
            file: entry.file,
            region: entry.region,
            to: entry.to.clone(),
            copied_bytes: Arc::clone(&entry.copied_bytes),
            is_urgent: false,
            way: if entry.was_moved_aside { Way::FromAside } else { Way::Straight },
        };
        let key = entry.key();
        queue.queued.remove(&key);
        Some(task)
    }

    pub(crate) fn finish(&self, number: MoveNumber, outcome: Outcome) {
        let mut queue = self.queue();
        queue.running.remove(&number);
        match outcome {
            Outcome::Moved { bytes, freeing } => {
                queue.totals.moved_bytes += bytes;
                // Otherwise it ends, or has ended, when the old place is freed.
                if !freeing {
                    queue.end(number, MoveState::Done);
                }
            }
            Outcome::MovedAside { bytes } => {
                queue.totals.moved_bytes += bytes;
                queue.put_aside(number);
            }
            Outcome::Failed(why) => queue.end(number, MoveState::Failed { why }),
            Outcome::Cancelled => queue.end(number, MoveState::Cancelled),
            Outcome::PutBack(why) => queue.put_back(number, why),
        }
        drop(queue);
        self.changed.notify_all();
    }
}

pub(crate) fn pairs(layout: &Layout) -> Vec<(u16, u32)> {
    layout.stripes().iter().map(|stripe| (stripe.server.0, stripe.size_bytes)).collect()
}
