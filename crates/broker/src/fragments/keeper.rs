//! The thread that keeps logs in order: it writes back, copies in, grants slots and takes them away, and cleans up after the dead.
//!
//! It looks at every file with logs that anybody uses or that has something to be written back; with none it sleeps. Writing back
//! waits until programs leave them alone: until an emulated disk's station was reserved by nobody else for a while, or nobody was inside the file. A log that is
//! half full of what its disk lacks, or whose last writer has closed the file, is written back all the same.

use super::Fragments;
use super::copy_in::Followed;
use super::write_back::{Picked, WRITE_BACK_PATIENCE};
use crate::log::note;
use crate::managed::{Inner, LogMemory, Managed, Quiet, Work};
use crate::rmt::FileState;
use crate::threads;
use crate::{BrokerError, guard, try_guard};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, ObjectOffset, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::control::FragmentMode;
use stripewise_store::shared::fragments::Seen;
use stripewise_store::shared::fragments::hints::Suggestion;
use stripewise_store::shared::fragments::table::Log;

/// Time between two looks while anything happens; it doubles up to the longest while nothing does.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);
const MAX_CHECK_INTERVAL: Duration = Duration::from_millis(320);
/// Looks take at most this part of a processor.
const CHECK_SHARE: u32 = 16;
/// A disk that nobody used for so long is left alone.
const QUIET_AFTER: Duration = Duration::from_millis(50);
/// Entries written back by one look at a quiet disk: what whoever comes next may have to wait for.
const QUIET_ENTRIES: usize = 32;
/// Ranges of one disk copied in by one look.
const COPIES: usize = 64;
/// Entries written back by one look at a log that is half full of what its disk lacks.
const PRESSED_ENTRIES: usize = 256;
/// Files without users whose logs are kept, for those who read them next.
const MAX_PARKED: usize = 128;

/// Files to look at.
#[derive(Default)]
pub(crate) struct Keeping {
    files: Mutex<Files>,
    changed: Condvar,
}

#[derive(Default)]
struct Files {
    /// With how often that was said of each.
    watched: BTreeMap<FileId, u64>,
    /// With logs, and nothing to do: the longest first.
    parked: VecDeque<FileId>,
    stopping: bool,
}

impl Files {
    /// Not if somebody has asked for it since the look began, when it had been asked for so often. Returns whether it is so.
    pub(crate) fn forget(&mut self, file: FileId, asked: u64) -> bool {
        let is_so = self.watched.get(&file) == Some(&asked);
        if is_so {
            self.watched.remove(&file);
        }
        is_so
    }
}

impl Keeping {
    /// The file has logs that somebody uses, or something in them to be written back.
    pub(crate) fn watch(&self, file: FileId) {
        let mut files = guard(&self.files);
        files.parked.retain(|parked| *parked != file);
        *files.watched.entry(file).or_default() += 1;
        self.changed.notify_all();
    }

    pub(crate) fn forget(&self, file: FileId, asked: u64) {
        guard(&self.files).forget(file, asked);
    }

    /// Nothing is to be done until somebody uses the file. Returns one whose logs have been kept for nobody for the longest time, if there are
    /// too many.
    fn park(&self, file: FileId, asked: u64) -> Option<FileId> {
        let mut files = guard(&self.files);
        if !files.forget(file, asked) {
            return None;
        }
        files.parked.push_back(file);
        (files.parked.len() > MAX_PARKED).then(|| files.parked.pop_front())?
    }

    /// The files to look at, after so long; `None`: it is over.
    pub(crate) fn next_check(&self, after: Duration) -> Option<Vec<(FileId, u64)>> {
        let mut files = guard(&self.files);
        while files.watched.is_empty() && !files.stopping {
            files = self.changed.wait(files).unwrap_or_else(PoisonError::into_inner);
        }
        let goes_on = |files: &mut Files| !files.stopping;
        let (files, _) = self.changed.wait_timeout_while(files, after, goes_on).unwrap_or_else(PoisonError::into_inner);
        (!files.stopping).then(|| files.watched.iter().map(|(file, asked)| (*file, *asked)).collect())
    }

    pub(crate) fn is_stopping(&self) -> bool {
        guard(&self.files).stopping
    }

    pub(crate) fn stop(&self) {
        guard(&self.files).stopping = true;
        self.changed.notify_all();
    }
}

/// The thread, until dropped.
pub(crate) struct Keeper {
    fragments: Arc<Fragments>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(fragments: &Arc<Fragments>) -> Result<Self, BrokerError> {
        let keeping = Arc::clone(fragments);
        let thread = threads::spawn("stripewise-logs", move || keeping.keep_on())?;
        Ok(Self { fragments: Arc::clone(fragments), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.fragments.keeping.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What came of a look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checked {
    Busy,
    Idle,
    /// Nothing is to be done until it is used again.
    Parked,
    /// It has no logs any more.
    Gone,
}

/// What one look is to do at the disks.
#[derive(Default)]
struct Plan {
    /// Numbers of entries to write back.
    back: BTreeMap<ServerId, BTreeSet<usize>>,
    copies: Vec<Suggestion>,
    has_more: bool,
}

impl Fragments {
    fn keep_on(&self) {
        let mut pause = CHECK_INTERVAL;
        while let Some(files) = self.keeping.next_check(pause) {
            let (begun, mut is_busy) = (own_time(), false);
            for (file, asked) in files {
                let Some(managed) = self.files.if_loaded(file) else {
                    self.keeping.forget(file, asked);
                    continue;
                };
                // A fault of ours ends this look and not the thread.
                let tending = std::panic::AssertUnwindSafe(|| self.tend(&managed));
                match std::panic::catch_unwind(tending) {
                    Ok(Checked::Busy) => is_busy = true,
                    Ok(Checked::Idle) => {}
                    Ok(Checked::Gone) => self.keeping.forget(file, asked),
                    Ok(Checked::Parked) => {
                        if let Some(longest) =
                            self.keeping.park(file, asked).and_then(|longest| self.files.if_loaded(longest))
                        {
                            self.retire(&longest);
                        }
                    }
                    Err(_) => {
                        note!(self.context.log(), error, %file, "a fault in the keeper of fragments itself");
                        self.keeping.forget(file, asked);
                    }
                }
            }
            let least = CHECK_INTERVAL.max(((own_time() - begun) * CHECK_SHARE).min(MAX_CHECK_INTERVAL));
            pause = if is_busy { least } else { (2 * pause).clamp(least, MAX_CHECK_INTERVAL) };
        }
    }

    fn tend(&self, managed: &Arc<Managed>) -> Checked {
        let Some(logs) = managed.fragments.logs() else { return Checked::Gone };
        let (has_writers, has_users, is_live) = {
            let Some(inner) = try_guard(&managed.inner) else { return Checked::Idle };
            if inner.freed {
                return Checked::Gone;
            }
            let users =
                !self.quiescing.users(managed).is_empty() || !inner.openers.is_empty() || inner.holder.is_some();
            // After a change of broker the openers are not known until they say hello again; their processes are.
            let writers = !inner.writers.is_empty() || (inner.openers.is_empty() && users);
            (writers, users, matches!(inner.record.state, FileState::Live))
        };
        let Some(mut work) = managed.fragments.try_hold() else { return Checked::Idle };
        let mut is_busy = self.clean_up(managed, &logs, &mut work);
        take_suggestions(&logs, &mut work, is_live);
        if !has_writers && logs.table.is_dirtied() {
            let flushed = self.write_back.flush_held(managed, &logs, &mut work, true);
            is_busy |= self.note_fault(managed, &mut work, flushed);
        }
        let plan = self.plan(managed, &logs, &mut work);
        is_busy |= plan.has_more;
        if !self.keeping.is_stopping() {
            self.follow(managed, &logs, &mut work, plan);
        }
        let has_nothing_waiting = work.waiting.is_empty() && work.orphans.is_none();
        drop(work);
        is_busy |= self.top_up(managed, &logs);
        let is_settled = has_nothing_waiting && !logs.table.is_dirtied();
        match (has_users, managed.control.notices().fragments()) {
            (false, FragmentMode::Leaving) if is_settled && self.retire(managed) => Checked::Gone,
            (false, FragmentMode::On) if is_settled => Checked::Parked,
            _ if is_busy => Checked::Busy,
            _ => Checked::Idle,
        }
    }

    /// True if it worked. A fault is said once, until it works again.
    fn note_fault(&self, managed: &Managed, work: &mut Work, written: Result<(), Refusal>) -> bool {
        match written {
            Ok(()) => work.fault_noted = false,
            Err(_) if work.fault_noted || guard(&managed.inner).freed => {}
            Err(ref refusal) => {
                work.fault_noted = true;
                note!(self.context.log(), warn, file = %managed.file, error = %refusal, "fragments are not on the disks yet");
            }
        }
        written.is_ok()
    }

    /// What is to be done now, disk by disk.
    fn plan(&self, managed: &Managed, logs: &LogMemory, work: &mut Work) -> Plan {
        let mut plan = Plan::default();
        for (disk, log) in logs.all() {
            let (has_newer, has_waiting) = (logs.table.is_dirtied(), work.waiting.has(disk));
            let is_quiet = self.is_quiet(managed, work, disk);
            plan.has_more |= has_newer || has_waiting;
            if has_newer {
                let newer: Vec<Seen> = log.sets.all().filter(|seen| seen.state().is_newer()).collect();
                // Of what it has and of what it could still get.
                let left = self.log_capacity.left_bytes(disk) / logs.table.slot_bytes();
                let is_pressed = newer.len() as u64 * 2 > u64::from(logs.table.granted(disk)) + left;
                if is_pressed || is_quiet {
                    let most = if is_pressed { PRESSED_ENTRIES } else { QUIET_ENTRIES };
                    plan.back.insert(disk, next_in_turn(work, disk, newer, most));
                }
            }
            plan.copies.extend(work.waiting.take(disk, COPIES));
        }
        plan
    }

    fn follow(&self, managed: &Managed, logs: &LogMemory, work: &mut Work, plan: Plan) {
        let count: usize = plan.back.values().map(BTreeSet::len).sum();
        let written = if logs.table.is_dirtied() && plan.back.len() == logs.all().count() && count == 0 {
            // Quiet everywhere, and nothing to write: the note stands for nothing any more.
            self.write_back.flush_held(managed, logs, work, true)
        } else if count > 0 {
            let picked = Picked { managed, logs, held: None, patience: WRITE_BACK_PATIENCE, is_paced: true };
            let is_chosen =
                |disk, seen: &Seen| plan.back.get(&disk).is_some_and(|numbers| numbers.contains(&seen.number));
            self.write_back.write_back(work, &picked, &is_chosen).map(drop)
        } else {
            Ok(())
        };
        self.note_fault(managed, work, written);
        if plan.copies.is_empty() {
            return;
        }
        let picked = Picked { managed, logs, held: None, patience: QUIET_AFTER, is_paced: true };
        let followed = self.copy_in(work, &picked, &plan.copies);
        for (suggestion, followed) in plan.copies.into_iter().zip(followed) {
            // It has its turn when slots were made free.
            let lacks_slots = || logs.table.log(suggestion.disk).is_some_and(|log| log.sets.free_slots() == 0);
            if followed == Followed::NoSlot && lacks_slots() {
                work.waiting.add(suggestion);
            }
        }
    }

    /// Whether programs have left the disk alone for a while.
    fn is_quiet(&self, managed: &Managed, work: &mut Work, disk: ServerId) -> bool {
        let (mark, is_inside) = match self.throttle.foreground_ns(disk) {
            Some(ns) => (ns, false),
            None => {
                let mut users = managed.slots.users();
                let is_inside = users.any(|(slot, incarnation)| {
                    managed.slots.in_flight(slot).next().is_some() && self.context.is_alive(slot, incarnation)
                });
                (managed.slots.uses_mark(), is_inside)
            }
        };
        let now = Quiet { mark, since: Instant::now() };
        let quiet = work.quiet.entry(disk).or_insert(now);
        if quiet.mark != mark || is_inside {
            *quiet = now;
        }
        quiet.since.elapsed() >= self.context.quiet_after().unwrap_or(QUIET_AFTER)
    }

    /// Takes a file's logs away if nobody uses it and nothing is newer in them. Returns whether they are gone.
    pub(super) fn retire(&self, managed: &Managed) -> bool {
        let Some(_work) = managed.fragments.try_hold() else { return false };
        let Some(mut guarded) = try_guard(&managed.inner) else { return false };
        let inner: &mut Inner = &mut guarded;
        let Some(logs) = managed.fragments.logs() else { return true };
        let is_used = !inner.openers.is_empty() || inner.holder.is_some() || !self.quiescing.users(managed).is_empty();
        let is_newer = |(_, log): (ServerId, Log<'_>)| log.sets.all().any(|seen| seen.state().is_newer());
        if inner.freed || is_used || logs.all().any(is_newer) {
            return false;
        }
        let Ok(switched) = self.context.table().fragments_switch(managed.file) else { return false };
        self.logs.show_fragments_without_logs(managed, switched);
        managed.fragments.set(None);
        if let Err(refusal) = self.logs.remove_logs(managed.file, inner) {
            note!(self.context.log(), warn, path = %inner.record.path, error = %refusal, "logs of fragments are not removed yet");
        }
        self.context.step("fragments: retired");
        true
    }
}

/// Time that this thread has had a processor.
fn own_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn take_suggestions(logs: &LogMemory, work: &mut Work, is_live: bool) {
    let (suggestions, seen) = logs.hints.suggestions(work.suggestions_seen);
    work.suggestions_seen = seen;
    // Those of servers without a log make no sense, and would wait for ever.
    let sensible = suggestions.into_iter().filter(|suggestion| logs.table.log(suggestion.disk).is_some());
    sensible.for_each(|suggestion| work.waiting.add(suggestion));
    if !is_live {
        work.waiting.clear();
    }
}

/// Numbers of the next entries in the order of their places, on and on.
fn next_in_turn(work: &mut Work, disk: ServerId, mut newer: Vec<Seen>, most: usize) -> BTreeSet<usize> {
    let place = |seen: &Seen| (seen.range.region, seen.range.offset);
    newer.sort_unstable_by_key(place);
    let from = work.cursors.get(&disk).copied().unwrap_or_default();
    let behind = newer.partition_point(|seen| place(seen) < from);
    newer.rotate_left(behind);
    newer.truncate(most);
    if let Some(last) = newer.last() {
        work.cursors.insert(disk, (last.range.region, ObjectOffset(last.range.offset.0 + 1)));
    }
    newer.iter().map(|seen| seen.number).collect()
}
