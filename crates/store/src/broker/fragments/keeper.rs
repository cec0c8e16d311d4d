//! The thread that keeps logs in order: it writes back, copies in, grants slots and takes them away, and cleans up after the dead.
//!
//! It looks at every file with logs that anybody uses or that has something to be written back; with none it sleeps. What costs disks time
//! waits until programs leave them alone: until an emulated disk's station was reserved by nobody else for a while, or nobody was inside the file. Only when a log is
//! half full of what its disk lacks, or its last writer has closed the file, is it written back all the same.

use super::copy_in::Followed;
use super::cutting::{logs_of, take_from_the_dead};
use super::write_back::{Picked, WRITE_BACK_PATIENCE};
use super::{Logs, Work};
use crate::broker::files::{Inner, Managed};
use crate::broker::truncation::ShutGate;
use crate::broker::{BrokerError, Core, guard};
use crate::rmt::FileState;
use crate::shared::control::{FragmentMode, MAX_REGIONS};
use crate::shared::fragments::hints::Suggestion;
use crate::shared::fragments::table::Log;
use crate::shared::fragments::{Seen, State};
use crate::shared::slots::Use;
use rustix::io::Errno;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::{FileId, RegionIndex, ServerId};

/// Time between two looks while anything happens; it doubles up to the longest while nothing does.
const LOOK: Duration = Duration::from_millis(10);
const LONGEST_LOOK: Duration = Duration::from_millis(320);
/// A disk that nobody used for so long is left alone.
const QUIET_AFTER: Duration = Duration::from_millis(50);
/// Entries written back, and ranges copied in, by one look at a quiet disk: what whoever comes next may have to wait for.
const QUIET_ENTRIES: usize = 32;
const QUIET_COPIES: usize = 8;
/// Entries written back by one look at a log that is half full of what its disk lacks.
const PRESSED_ENTRIES: usize = 256;
/// Suggestions of one file that wait for their disks to be quiet.
const MOST_WAITING: usize = 8192;
/// Files without users whose logs are kept, for those who read them next.
const MOST_PARKED: usize = 128;

/// Files to look at.
#[derive(Default)]
pub(in super::super) struct Keeping {
    state: Mutex<Files>,
    changed: Condvar,
}

#[derive(Default)]
struct Files {
    watched: BTreeSet<FileId>,
    /// With logs, and nothing to do: the longest first.
    parked: VecDeque<FileId>,
    stopping: bool,
}

impl Keeping {
    /// The file has logs that somebody uses, or something in them to be written back.
    pub(in super::super) fn watch(&self, file: FileId) {
        let mut state = guard(&self.state);
        state.parked.retain(|parked| *parked != file);
        if state.watched.insert(file) {
            self.changed.notify_all();
        }
    }

    fn forget(&self, file: FileId) {
        guard(&self.state).watched.remove(&file);
    }

    /// Nothing is to be done until somebody uses the file. Returns one whose logs have been kept for nobody for the longest time, if there are too many.
    fn park(&self, file: FileId) -> Option<FileId> {
        let mut state = guard(&self.state);
        state.watched.remove(&file);
        state.parked.push_back(file);
        (state.parked.len() > MOST_PARKED).then(|| state.parked.pop_front())?
    }

    /// The files to look at, after so long; `None`: it is over.
    fn next_look(&self, after: Duration) -> Option<Vec<FileId>> {
        let mut state = guard(&self.state);
        while state.watched.is_empty() && !state.stopping {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let is_waiting = |state: &mut Files| !state.stopping;
        let (state, _) =
            self.changed.wait_timeout_while(state, after, is_waiting).unwrap_or_else(PoisonError::into_inner);
        (!state.stopping).then(|| state.watched.iter().copied().collect())
    }

    fn is_stopping(&self) -> bool {
        guard(&self.state).stopping
    }

    fn stop(&self) {
        guard(&self.state).stopping = true;
        self.changed.notify_all();
    }
}

/// The thread, until dropped.
pub(in super::super) struct Keeper {
    core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(in super::super) fn start(core: &Arc<Core>) -> Result<Self, BrokerError> {
        let keeping = Arc::clone(core);
        let thread = std::thread::Builder::new().name("stripewise-logs".into()).spawn(move || keeping.keep_on());
        let thread = thread.map_err(|error| BrokerError::Os {
            action: "starting a thread",
            source: Errno::from_io_error(&error).unwrap_or(Errno::AGAIN),
        })?;
        Ok(Self { core: Arc::clone(core), thread: Some(thread) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.core.keeping.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether anybody used a disk since it was last looked at.
#[derive(Clone, Copy)]
pub(super) struct Quiet {
    mark: u64,
    since: Instant,
}

/// What the dead may have left, and who was inside when it was seen.
pub(super) struct Leavings {
    claimed: Vec<(ServerId, Vec<(usize, u64)>)>,
    pending: Vec<(ServerId, Seen)>,
    uses: Vec<Use>,
}

/// What came of a look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    Busy,
    Idle,
    /// Nothing is to be done until it is used again.
    Parked,
    /// It has no logs any more.
    Gone,
}

/// What a log holds.
#[derive(Clone, Copy, Default)]
struct Census {
    entries: u32,
    newer: u32,
}

impl Core {
    fn keep_on(&self) {
        let mut pause = LOOK;
        while let Some(files) = self.keeping.next_look(pause) {
            let mut is_busy = false;
            for file in files {
                let Some(managed) = self.if_loaded(file) else {
                    self.keeping.forget(file);
                    continue;
                };
                // A fault of ours ends this look and not the thread.
                let look = std::panic::AssertUnwindSafe(|| self.look_after(&managed));
                match std::panic::catch_unwind(look) {
                    Ok(Looked::Busy) => is_busy = true,
                    Ok(Looked::Idle) => {}
                    Ok(Looked::Gone) => self.keeping.forget(file),
                    Ok(Looked::Parked) => {
                        if let Some(longest) = self.keeping.park(file).and_then(|longest| self.if_loaded(longest)) {
                            self.retire(&longest);
                        }
                    }
                    Err(_) => {
                        self.state.note(&format!("file {file}: a fault in the keeper of fragments itself"));
                        self.keeping.forget(file);
                    }
                }
            }
            pause = if is_busy { LOOK } else { (2 * pause).min(LONGEST_LOOK) };
        }
    }

    fn look_after(&self, managed: &Arc<Managed>) -> Looked {
        let Some(logs) = managed.fragments.logs() else { return Looked::Gone };
        let (has_writers, has_users, is_live) = {
            let inner = guard(&managed.inner);
            if inner.freed {
                return Looked::Gone;
            }
            let users = !self.users(managed).is_empty() || !inner.openers.is_empty() || inner.holder.is_some();
            // After a change of broker the openers are not known until they say hello again; their processes are.
            let writers = !inner.writers.is_empty() || (inner.openers.is_empty() && users);
            (writers, users, matches!(inner.record.state, FileState::Live))
        };
        let mut work = managed.fragments.hold();
        let mut is_busy = self.clean_up(managed, &logs, &mut work);
        self.take_suggestions(&logs, &mut work, is_live);
        if !has_writers && logs.table.is_dirtied() {
            is_busy |= self.flush_in_background(managed, &logs, &mut work);
        }
        for (disk, log) in logs_of(&logs) {
            if self.keeping.is_stopping() {
                return Looked::Idle;
            }
            is_busy |= self.look_at_disk(managed, &logs, &mut work, disk, &log);
        }
        drop(work);
        is_busy |= self.top_up(managed, &logs);
        let is_settled = !logs.table.is_dirtied() && has_nothing_waiting(managed);
        match (has_users, managed.control.fragments()) {
            (false, FragmentMode::Leaving) if is_settled && self.retire(managed) => Looked::Gone,
            (false, FragmentMode::On) if is_settled => Looked::Parked,
            _ if is_busy => Looked::Busy,
            _ => Looked::Idle,
        }
    }

    /// Returns whether something was written.
    fn flush_in_background(&self, managed: &Managed, logs: &Logs, work: &mut Work) -> bool {
        match self.flush_held(managed, logs, work, true) {
            Ok(()) => {
                work.fault_noted = false;
                true
            }
            Err(refusal) => {
                if !std::mem::replace(&mut work.fault_noted, true) {
                    self.state
                        .note(&format!("file {}: its fragments are not on the disks yet: {refusal}", managed.file));
                }
                false
            }
        }
    }

    fn take_suggestions(&self, logs: &Logs, work: &mut Work, is_live: bool) {
        let (suggestions, seen) = logs.hints.suggestions(work.suggestions_seen);
        work.suggestions_seen = seen;
        for suggestion in suggestions {
            if !work.waiting.contains(&suggestion) {
                work.waiting.push_back(suggestion);
            }
        }
        let excess = work.waiting.len().saturating_sub(MOST_WAITING);
        work.waiting.drain(..if is_live { excess } else { work.waiting.len() });
    }

    /// Writes back and copies in as it is time to. Returns whether there is more to do.
    fn look_at_disk(&self, managed: &Managed, logs: &Logs, work: &mut Work, disk: ServerId, log: &Log<'_>) -> bool {
        let has_newer = logs.table.is_dirtied();
        let has_waiting = work.waiting.iter().any(|suggestion| suggestion.disk == disk);
        let is_quiet = self.is_quiet(managed, work, disk);
        if !has_newer && !has_waiting {
            return false;
        }
        let census = if has_newer { census(log) } else { Census::default() };
        let is_pressed = census.newer * 2 > logs.table.granted(disk);
        if is_pressed || (is_quiet && census.newer > 0) {
            let most = if is_pressed { PRESSED_ENTRIES } else { QUIET_ENTRIES };
            self.write_back_some(managed, logs, work, disk, log, most);
        } else if has_newer && census.newer == 0 && is_quiet {
            // The note may stand for nothing any more.
            self.flush_in_background(managed, logs, work);
        }
        if is_quiet && has_waiting {
            self.copy_some_in(managed, logs, work, disk);
        }
        true
    }

    /// Goes through the log's entries in the order of their places, on and on.
    fn write_back_some(
        &self,
        managed: &Managed,
        logs: &Logs,
        work: &mut Work,
        disk: ServerId,
        log: &Log<'_>,
        most: usize,
    ) {
        let place = |seen: &Seen| (seen.range.region, seen.range.offset);
        let mut newer: Vec<Seen> = log.sets.all().filter(|seen| seen.state().is_newer()).collect();
        newer.sort_unstable_by_key(place);
        let from = work.cursors.get(&disk).copied().unwrap_or_default();
        let behind = newer.partition_point(|seen| place(seen) < from);
        newer.rotate_left(behind);
        newer.truncate(most);
        let Some(last) = newer.last() else { return };
        work.cursors.insert(disk, (last.range.region, stripewise_layout::ObjectOffset(last.range.offset.0 + 1)));
        let chosen: BTreeSet<usize> = newer.iter().map(|seen| seen.number).collect();
        let picked = Picked { managed, logs, held: None, patience: WRITE_BACK_PATIENCE, is_paced: true };
        let is_chosen = |of, seen: &Seen| of == disk && chosen.contains(&seen.number);
        match self.write_back(work, &picked, &is_chosen) {
            Ok(_) => work.fault_noted = false,
            Err(refusal) => {
                if !std::mem::replace(&mut work.fault_noted, true) {
                    self.state
                        .note(&format!("file {}: its fragments are not on the disks yet: {refusal}", managed.file));
                }
            }
        }
    }

    fn copy_some_in(&self, managed: &Managed, logs: &Logs, work: &mut Work, disk: ServerId) {
        let mut chosen: Vec<Suggestion> = Vec::with_capacity(QUIET_COPIES);
        work.waiting.retain(|suggestion| {
            let is_chosen = suggestion.disk == disk && chosen.len() < QUIET_COPIES;
            if is_chosen {
                chosen.push(*suggestion);
            }
            !is_chosen
        });
        let picked = Picked { managed, logs, held: None, patience: QUIET_AFTER, is_paced: true };
        let followed = self.copy_in(work, &picked, &chosen);
        // They have their turn when slots were made free for them.
        let lacking = chosen.into_iter().zip(followed).filter(|(_, followed)| *followed == Followed::NoSlot);
        work.waiting.extend(lacking.map(|(suggestion, _)| suggestion).filter(|_| lacks_slots(logs, disk)));
    }

    /// Whether programs have left the disk alone for a while.
    fn is_quiet(&self, managed: &Managed, work: &mut Work, disk: ServerId) -> bool {
        let (mark, is_inside) = match self.moves.throttle.foreground_ns(disk) {
            Some(ns) => (ns, false),
            None => {
                let users = managed.slots.users();
                let is_inside = users.into_iter().any(|(slot, incarnation)| {
                    managed.slots.in_flight(slot).next().is_some() && self.is_alive(slot, incarnation)
                });
                (managed.slots.uses_mark(), is_inside)
            }
        };
        let now = Quiet { mark, since: Instant::now() };
        let quiet = work.quiet.entry(disk).or_insert(now);
        if quiet.mark != mark || is_inside {
            *quiet = now;
        }
        quiet.since.elapsed() >= QUIET_AFTER
    }

    /// Removes what the dead have left once nobody is inside who was there when it was seen. Returns whether there may be more.
    fn clean_up(&self, managed: &Managed, logs: &Logs, work: &mut Work) -> bool {
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
            work.leavings = None;
            self.step("fragments: leavings removed");
        }
        let mut leavings = Leavings { claimed: Vec::new(), pending: Vec::new(), uses: Vec::new() };
        let mut lost = 0;
        for (disk, log) in logs_of(logs) {
            let free = log.sets.free_slots();
            let granted = logs.table.granted(disk);
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
                if seen.state() == State::Pending {
                    leavings.pending.push((disk, seen));
                }
            }
            lost += granted.saturating_sub(free + entries);
        }
        if lost > 0 {
            self.regain(managed, logs);
        }
        if leavings.claimed.is_empty() && leavings.pending.is_empty() {
            return false;
        }
        leavings.uses = self.writers_inside(managed, RegionIndex(0), RegionIndex(MAX_REGIONS - 1));
        work.leavings = Some(leavings);
        true
    }

    /// Frees slots that are nobody's, if nobody is inside just now; the gate keeps others out for that moment.
    fn regain(&self, managed: &Managed, logs: &Logs) {
        let inner = guard(&managed.inner);
        if inner.freed || managed.control.gate_is_shut() {
            return;
        }
        let _gate = ShutGate::new(managed);
        let mut uses = managed.slots.uses(RegionIndex(0), RegionIndex(MAX_REGIONS - 1)).into_iter();
        if uses.any(|lane| self.is_alive(lane.slot, lane.incarnation)) {
            return;
        }
        for (disk, log) in logs_of(logs) {
            log.sets.regain_slots(logs.table.granted(disk));
        }
    }

    /// Takes a file's logs away if nobody uses it and nothing is newer in them. Returns whether they are gone.
    pub(super) fn retire(&self, managed: &Managed) -> bool {
        let _work = managed.fragments.hold();
        let mut guarded = guard(&managed.inner);
        let inner: &mut Inner = &mut guarded;
        let Some(logs) = managed.fragments.logs() else { return true };
        let is_used = !inner.openers.is_empty() || inner.holder.is_some() || !self.users(managed).is_empty();
        let has_newer = || logs_of(&logs).any(|(_, log)| log.sets.all().any(|seen| seen.state().is_newer()));
        if inner.freed || is_used || has_newer() {
            return false;
        }
        let Ok(switched) = self.table.fragments_switch(managed.file) else { return false };
        self.show_fragments_without_logs(managed, switched);
        managed.fragments.set(None);
        if let Err(refusal) = self.remove_logs(managed.file, inner) {
            self.state.note(&format!("{}: logs of its fragments are not removed yet: {refusal}", inner.record.path));
        }
        self.step("fragments: retired");
        true
    }
}

/// Whether a log lacks slots, and not only ways of some set.
fn lacks_slots(logs: &Logs, disk: ServerId) -> bool {
    logs.table.log(disk).is_some_and(|log| log.sets.free_slots() == 0)
}

fn has_nothing_waiting(managed: &Managed) -> bool {
    let work = managed.fragments.hold();
    work.waiting.is_empty() && work.leavings.is_none()
}

fn census(log: &Log<'_>) -> Census {
    let mut census = Census::default();
    for seen in log.sets.all() {
        census.entries += 1;
        census.newer += u32::from(seen.state().is_newer());
    }
    census
}
