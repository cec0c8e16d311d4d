//! The queue of moves, the threads that run them, and what is told of both.
//!
//! Orders become one move for each region. Those that take a region off SSD come first, since they make room, then those that leave the SSD
//! share as it is, then the rest; each kind in the order in which it was ordered. A later order for a region replaces an earlier one that has
//! not begun. Behind all moves come *syncs*: a region stays where it is and its replicas are made from it (`crate::replicas`); they are told of
//! elsewhere and counted in no total but that of bytes copied. The queue is in memory only: it ends with the broker, and a move that had not been committed never was.
//!
//! | module | what |
//! |---|---|
//! | `moving` | one region's move, step by step |
//! | `copying` | bytes from the old place to the new one |
//! | `throttle` | how fast |
//! | `rescue` | away from a server that became full under a writer |
//! | `placements` | what a file's placement says after a move |
//! | `discards` | objects that belong to no region (any more), and their freeing |

mod copying;
mod discards;
mod moving;
mod placements;
mod rescue;
mod throttle;

pub(crate) use discards::Discard;

use crate::managed::ActiveMove;
use crate::managed::{Inner, Managed};
use crate::{BrokerError, Core, guard};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, Layout, Placement, RegionIndex, ServerClass};
use stripewise_store::protocol::{
    MAX_PACKET_BYTES, MoveControl, MoveNumber, MoveOrder, MoveState, MoveStatus, MoveTotals, Refusal, WhichMoves,
};
use stripewise_store::shared::control::MAX_REGIONS;
pub(crate) use throttle::Throttle;

/// Moves that run at the same time: while one seals and syncs, another copies.
const MOVERS: usize = 3;
/// Moves queued at most.
const MAX_QUEUED: usize = 1 << 20;
/// Ended moves that are told of.
const KEPT: usize = 4096;
/// How often movers look at what waits for others (readers of an old place, a stopped process).
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A move that was put back waits at least so long, twice as long each time, up to the longest.
const FIRST_PUT_BACK: Duration = Duration::from_millis(50);
const LONGEST_PUT_BACK: Duration = Duration::from_secs(10);

/// Which moves go first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Outgoing,
    Neutral,
    Incoming,
    Sync,
}

/// One region's move or sync, from its order to its end.
struct Entry {
    file: FileId,
    path: Arc<str>,
    region: RegionIndex,
    /// `None`: a sync.
    to: Option<Arc<Layout>>,
    class: Class,
    from: Vec<(u16, u32)>,
    total_bytes: u64,
    copied_bytes: Arc<AtomicU64>,
    state: MoveState,
    /// Once begun.
    active: Option<Arc<ActiveMove>>,
    cancelled: bool,
    put_back: Duration,
}

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
}

/// What became of a task.
pub(crate) enum Outcome {
    /// Committed, or nothing was to be done; the old place may still wait for its readers.
    Moved {
        bytes: u64,
        freeing: bool,
    },
    Failed(String),
    Cancelled,
    /// To be tried again later; why not now.
    PutBack(String),
}

#[derive(Default)]
struct Queue {
    next: u64,
    entries: BTreeMap<MoveNumber, Entry>,
    /// By class and turn.
    ready: BTreeSet<(Class, u64, MoveNumber)>,
    turn: u64,
    /// Put back until then.
    later: Vec<(Instant, MoveNumber)>,
    /// Not begun, by region, and whether it is a sync.
    queued: HashMap<Key, MoveNumber>,
    ended: VecDeque<MoveNumber>,
    active: usize,
    totals: MoveTotals,
    stopping: bool,
}

type Key = (FileId, RegionIndex, bool);

/// All moves of a broker.
pub(crate) struct Moves {
    queue: Mutex<Queue>,
    changed: Condvar,
    pub(crate) throttle: Throttle,
    pub(crate) freeing: discards::Freeing,
    pub(crate) idle: crate::replicas::Idle,
}

/// The threads, until stopped.
pub(crate) struct Movers {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

impl Movers {
    pub(crate) fn start(core: &Arc<Core>) -> Result<Self, BrokerError> {
        let mut movers = Self { core: Arc::clone(core), threads: Vec::with_capacity(MOVERS) };
        for _ in 0..MOVERS {
            let moving = Arc::clone(core);
            let thread = std::thread::Builder::new().name("stripewise-mover".into()).spawn(move || moving.move_on());
            movers.threads.push(thread.map_err(|error| BrokerError::Os {
                action: "starting a thread",
                source: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
            })?);
        }
        Ok(movers)
    }
}

impl Drop for Movers {
    /// Moves that are not committed are abandoned; their regions stay where they are.
    fn drop(&mut self) {
        self.core.moves.stop();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Moves {
    pub(crate) fn new(throttle: Throttle, idle: crate::replicas::Idle) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let since_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let totals = MoveTotals { since_ns, ..MoveTotals::default() };
        let queue = Mutex::new(Queue { totals, ..Queue::default() });
        Self { queue, changed: Condvar::new(), throttle, freeing: discards::Freeing::default(), idle }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        guard(&self.queue)
    }

    fn stop(&self) {
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

    /// Whether moves other than the one that asks may free room yet.
    pub(crate) fn others_may_make_room(&self) -> bool {
        let queue = self.queue();
        let is_outgoing =
            |number| queue.entries.get(number).is_some_and(|entry: &Entry| entry.class == Class::Outgoing);
        queue.active > 1 || !self.freeing.is_empty() || queue.queued.values().any(is_outgoing)
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
    fn add(&self, added: Vec<Entry>) -> Result<(MoveNumber, u64), Refusal> {
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
    fn add_active(&self, entry: Entry) -> MoveNumber {
        let mut queue = self.queue();
        let number = MoveNumber(queue.next);
        queue.next += 1;
        queue.active += 1;
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
        !entry.cancelled && !stopping
    }

    /// The old place of a committed move was freed.
    pub(crate) fn freed(&self, number: MoveNumber) {
        let mut queue = self.queue();
        if queue.entries.get(&number).is_some_and(|entry| entry.state == MoveState::Freeing) {
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

    /// Waits for something to do, at most [`LOOK_INTERVAL`] while something waits for others; `None` when there is nothing yet.
    fn next_task(&self) -> Option<Task> {
        let mut queue = self.queue();
        if !queue.stopping && queue.take_later().is_none() && (queue.totals.paused.is_some() || queue.ready.is_empty())
        {
            let wait = if queue.later.is_empty() && self.freeing.is_empty() {
                self.idle.next_look().unwrap_or(Duration::from_secs(3600))
            } else {
                LOOK_INTERVAL
            };
            queue = self.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
            queue.take_later();
        }
        if queue.stopping || queue.totals.paused.is_some() {
            return None;
        }
        let (_, _, number) = queue.ready.pop_first()?;
        queue.active += 1;
        let entry = queue.entries.get_mut(&number)?;
        entry.state = MoveState::Queued { waits_for: None };
        let task = Task {
            number,
            file: entry.file,
            region: entry.region,
            to: entry.to.clone(),
            copied_bytes: Arc::clone(&entry.copied_bytes),
            is_urgent: false,
        };
        let key = entry.key();
        queue.queued.remove(&key);
        Some(task)
    }

    fn finish(&self, number: MoveNumber, outcome: Outcome) {
        let mut queue = self.queue();
        queue.active -= 1;
        match outcome {
            Outcome::Moved { bytes, freeing } => {
                queue.totals.moved_bytes += bytes;
                // Otherwise it ends, or has ended, when the old place is freed.
                if !freeing {
                    queue.end(number, MoveState::Done);
                }
            }
            Outcome::Failed(why) => queue.end(number, MoveState::Failed { why }),
            Outcome::Cancelled => queue.end(number, MoveState::Cancelled),
            Outcome::PutBack(why) => queue.put_back(number, why),
        }
        drop(queue);
        self.changed.notify_all();
    }
}

impl Queue {
    /// Moves that were put back for long enough take their turn again; `Some` if there was one.
    fn take_later(&mut self) -> Option<()> {
        let now = Instant::now();
        let mut taken = None;
        let mut number = 0;
        while number < self.later.len() {
            if self.later[number].0 > now {
                number += 1;
                continue;
            }
            let (_, due) = self.later.swap_remove(number);
            self.make_ready(due);
            taken = Some(());
        }
        taken
    }

    fn make_ready(&mut self, number: MoveNumber) {
        if let Some(entry) = self.entries.get(&number) {
            self.turn += 1;
            self.ready.insert((entry.class, self.turn, number));
        }
    }

    fn put_back(&mut self, number: MoveNumber, why: String) {
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

    fn end(&mut self, number: MoveNumber, state: MoveState) {
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

    fn cancel(&mut self, which: WhichMoves) {
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

    fn take_out(&mut self, numbers: &HashSet<MoveNumber>) {
        if !numbers.is_empty() {
            self.ready.retain(|(_, _, ready)| !numbers.contains(ready));
            self.later.retain(|(_, later)| !numbers.contains(later));
        }
    }

    /// True: it had not begun and has ended; whoever calls takes it out of the queue.
    fn end_cancelled(&mut self, number: MoveNumber) -> bool {
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
    fn add(&mut self, entry: Entry) -> Option<MoveNumber> {
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
    fn key(&self) -> Key {
        (self.file, self.region, self.to.is_none())
    }

    fn status(&self, number: MoveNumber, to: &Layout) -> MoveStatus {
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

pub(crate) fn pairs(layout: &Layout) -> Vec<(u16, u32)> {
    layout.stripes().iter().map(|stripe| (stripe.server.0, stripe.size_bytes)).collect()
}

impl Core {
    /// Queues one move for each region of the orders that has objects; where none are, the placement is changed at once. Returns the number of
    /// the first and how many there are.
    pub(crate) fn queue_moves(&self, orders: &[MoveOrder]) -> Result<(MoveNumber, u64), Refusal> {
        let mut added = Vec::new();
        for order in orders {
            self.check_order(order)?;
            self.managed(order.file)?;
        }
        for order in orders {
            let managed = self.managed(order.file)?;
            let mut inner = guard(&managed.inner);
            if inner.freed {
                return Err(Refusal::UnknownFile { file: order.file });
            }
            self.place_later_by(&managed, &mut inner, order)?;
            let geometry = inner.geometry();
            let size_bytes = managed.extent.size_bytes();
            let (path, layout): (Arc<str>, _) = (inner.record.path.as_str().into(), Arc::new(order.layout.clone()));
            for (region, placed) in inner.regions.range(order.first..=order.last) {
                added.push(Entry {
                    file: order.file,
                    path: Arc::clone(&path),
                    region: *region,
                    to: Some(Arc::clone(&layout)),
                    class: self.class_of(&placed.layout, &layout),
                    from: pairs(&placed.layout),
                    total_bytes: geometry.used_bytes(*region, size_bytes),
                    copied_bytes: Arc::default(),
                    state: MoveState::Queued { waits_for: None },
                    active: None,
                    cancelled: false,
                    put_back: Duration::ZERO,
                });
            }
        }
        self.moves.add(added)
    }

    /// Queues syncs of these regions, whose file is `managed`.
    pub(crate) fn queue_sync_of(
        &self,
        managed: &Managed,
        inner: &Inner,
        regions: &[RegionIndex],
    ) -> Result<(), Refusal> {
        let (path, size_bytes): (Arc<str>, _) = (inner.record.path.as_str().into(), managed.extent.size_bytes());
        let entry = |region: &RegionIndex| Entry {
            file: managed.file,
            path: Arc::clone(&path),
            region: *region,
            to: None,
            class: Class::Sync,
            from: Vec::new(),
            total_bytes: inner.geometry().used_bytes(*region, size_bytes),
            copied_bytes: Arc::default(),
            state: MoveState::Queued { waits_for: None },
            active: None,
            cancelled: false,
            put_back: Duration::ZERO,
        };
        self.moves.add(regions.iter().map(entry).collect()).map(drop)
    }

    /// Regions of the order without objects are placed so later.
    fn place_later_by(&self, managed: &Managed, inner: &mut Inner, order: &MoveOrder) -> Result<(), Refusal> {
        let mut placement = inner.placement.clone();
        let mut from = order.first.0;
        let placed: Vec<u32> = inner.regions.range(order.first..=order.last).map(|(region, _)| region.0).collect();
        for end in placed.into_iter().chain([order.last.0 + 1]) {
            if from < end {
                placement =
                    placements::with_layouts(&placement, RegionIndex(from), RegionIndex(end - 1), &order.layout);
            }
            from = end + 1;
        }
        self.put_placement(managed, inner, placement)
    }

    fn check_order(&self, order: &MoveOrder) -> Result<(), Refusal> {
        let invalid = |what| Err(Refusal::Invalid { what });
        if order.first > order.last || order.last.0 >= MAX_REGIONS {
            return invalid(format!(
                "regions {} to {} of file {}: a file has regions 0 to {}",
                order.first,
                order.last,
                order.file,
                MAX_REGIONS - 1
            ));
        }
        let servers = self.context.servers().len();
        match order.layout.stripes().iter().find(|stripe| usize::from(stripe.server.0) >= servers) {
            Some(stripe) => {
                invalid(format!("the layout names server {}, but the cluster has {servers}", stripe.server))
            }
            None => self.drained.check_drained(&order.layout),
        }
    }

    fn class_of(&self, from: &Layout, to: &Layout) -> Class {
        // Share of the cycle on SSD, as a fraction whose sides are compared crosswise.
        let share = |layout: &Layout| {
            let on_ssd = layout.stripes().iter().filter(|stripe| {
                self.context
                    .cluster()
                    .servers
                    .get(usize::from(stripe.server.0))
                    .is_some_and(|s| s.class == ServerClass::Ssd)
            });
            let ssd_bytes: u64 = on_ssd.map(|stripe| u64::from(stripe.size_bytes)).sum();
            (u128::from(ssd_bytes), u128::from(layout.view().cycle_bytes()))
        };
        let ((before, of_before), (after, of_after)) = (share(from), share(to));
        match (after * of_before).cmp(&(before * of_after)) {
            std::cmp::Ordering::Less => Class::Outgoing,
            std::cmp::Ordering::Equal => Class::Neutral,
            std::cmp::Ordering::Greater => Class::Incoming,
        }
    }

    /// A mover's life.
    fn move_on(&self) {
        while !self.moves.is_stopping() {
            self.free_what_is_left();
            self.sync_what_is_idle();
            let Some(task) = self.moves.next_task() else { continue };
            // A fault of ours ends the move, which is given up as it unwinds, and not the mover.
            let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.move_region(&task)));
            let outcome =
                moved.unwrap_or_else(|_| Outcome::Failed("a fault in the mover itself; see its last words".to_owned()));
            if let Outcome::Failed(why) = &outcome {
                let what = if task.to.is_some() { "moving" } else { "making the replicas of" };
                self.context.note(&format!("{what} region {} of file {}: {why}", task.region, task.file));
                if let (None, Some(managed)) = (&task.to, self.if_loaded(task.file)) {
                    guard(&managed.inner).lacking.insert(task.region, why.clone());
                }
            }
            self.moves.finish(task.number, outcome);
        }
    }

    /// See [`stripewise_store::protocol::Admin::Placement`].
    pub(crate) fn placement_of(&self, file: FileId) -> Result<Placement, Refusal> {
        Ok(guard(&self.managed(file)?.inner).placement.clone())
    }

    /// The placement by which regions to come are placed; see [`stripewise_store::protocol::Admin::SetPlacement`].
    pub(crate) fn set_placement(&self, file: FileId, placement: Placement) -> Result<(), Refusal> {
        let managed = self.managed(file)?;
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(Refusal::UnknownFile { file });
        }
        placement.check(self.context.servers().len()).map_err(|what| Refusal::Invalid { what })?;
        if placement.region_size.0 != inner.record.region_bytes {
            return Err(Refusal::Invalid {
                what: format!(
                    "{} has regions of {} bytes, the placement of {}; release the file and apply the new plan to change that",
                    inner.record.path, inner.record.region_bytes, placement.region_size.0
                ),
            });
        }
        self.put_placement(&managed, &mut inner, placement)
    }
}
