//! One region's move, step by step. `shared::marking` says why no byte is lost; [`stripewise_coherence::moving`] which act follows which, on all hosts; this is
//! what the acts are.
//!
//! 1. *Begin,* under the file's lock: room promised, the new objects noted as a discard (durably) and made, the region word "moving".
//! 2. Whoever was writing there before is waited for: from then on every writer marks, and none puts anything into a log. What logs hold of the
//!    region is written to its place and dropped.
//! 3. Rounds: what is marked is copied, until little is left. Once they do not get smaller they go at full speed, until those do not either.
//! 4. Sync, so that little is left to be synced under the seal. Seal; those inside are waited for; the rest is copied and synced, in a time that writers
//!    of all hosts can wait ([`sealed`]).
//! 5. *Commit,* under the file's lock: the region's record names the new objects and the old ones become the discard, in one durable batch. Then the
//!    word is published and writers go on.
//! 6. The old objects are freed when nobody who was inside at that time is there any more (`discards`).
//!
//! A *sync* goes the same way with another end: what it makes are replicas beside the place, which stays; all replicas of a region are made together
//! from one reading of the place, since writers of a moving region do not ask whether it has any. The place is synced with them, so that
//! after a power failure none holds what the place has lost. A region that is to move has its replicas forgotten before it begins.
//!
//! A move that cannot go on is given up: the word goes back to "placed", the new objects are removed. Whoever takes objects away (truncation,
//! release, removal) ends the file's moves first. What a killed broker leaves is settled by the discards in the table.

mod sealed;
mod verifying;

use super::Moves;
use super::beginning::BeginError;
use super::copying::{Copier, Fault, Speed};
use crate::describing::servers_of;
use crate::discards::Discard;
use crate::fencing;
use crate::guard;
use crate::host_messages::Snapshot;
use crate::log::note;
use crate::managed::{AbortReason, ActiveMove, Inner, Managed};
use crate::move_queue::{Outcome, Task, Way};
use crate::objects::stripe_servers;
use crate::placements::with_layout;
use crate::quiescing::{Elsewhere, Patience, STOPPED_PATIENCE};
use crate::rmt::{Changes, RmtError};
use crate::sizes;
use std::collections::HashSet;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};
use stripewise_coherence::host::{Message, Step};
use stripewise_coherence::moving::{Act, End, Outcome as Done};
use stripewise_layout::ServerId;
use stripewise_store::protocol::{MoveState, Refusal};
use stripewise_store::server::{ObjectName, Operation, ServerError};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

/// How long those who were writing when the move began are waited for.
const FIRST_DRAIN: Duration = Duration::from_secs(4);
/// The same under the seal, where other writers wait too; twice as long each time, since on a busy host a thread may wait for a processor.
const SEAL_DRAIN: Duration = Duration::from_millis(50);
/// What can be copied in this time is left for the seal.
const SHORT_SEAL: Duration = Duration::from_millis(4);
/// What turns out to need more than this under the seal is copied with writers let in, while rounds last.
const LONG_SEAL: Duration = Duration::from_millis(20);
/// How often a table that does not answer is asked whether a move is committed.
const VERIFY_PAUSE: Duration = Duration::from_millis(50);

/// Why a move does not go on.
enum Stop {
    /// Somebody ended it; [`ActiveMove`] knows why.
    Ended,
    Failed(String),
    PutBack(String),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Stop::Failed(refusal.to_string())
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Ended => Stop::Ended,
            Fault::Server(error) => Stop::Failed(error.to_string()),
        }
    }
}

impl From<Elsewhere> for Stop {
    fn from(elsewhere: Elsewhere) -> Self {
        match elsewhere {
            Elsewhere::Stuck(who) => Stop::PutBack(who),
            Elsewhere::Refused(refusal) => Stop::PutBack(refusal.to_string()),
        }
    }
}

impl Moves {
    pub(crate) fn move_region(&self, task: &Task) -> Outcome {
        // A writer waits for an urgent one.
        let beginning = (!task.is_urgent).then(|| guard(&self.beginning));
        let managed = match self.files.managed(task.file) {
            Ok(managed) => managed,
            Err(Refusal::UnknownFile { .. }) => return Outcome::Failed("the file was removed".to_owned()),
            Err(refusal) => return Outcome::Failed(refusal.to_string()),
        };
        // A host that does not answer would not take part.
        if let Err(refusal) = fencing::shut_out_silent(&self.context, task.file) {
            return Outcome::PutBack(refusal.to_string());
        }
        let active = match self.begin_move(task, &managed) {
            Ok(active) => active,
            Err(BeginError::Over(outcome)) => return outcome,
            // What others leave may be enough.
            Err(BeginError::Full(_, what)) if self.queue.may_wait_for_space(task.number) => {
                return Outcome::PutBack(what);
            }
            Err(BeginError::Full(full, what)) => {
                drop(beginning);
                return self.without_space(task, &managed, full.as_ref(), what);
            }
        };
        let used = guard(&managed.inner).geometry().used_bytes(task.region, managed.extent.size_bytes());
        // Before another is tried, which may wait for the space that this one leaves.
        let goes_on = self.queue.begun(task.number, &active, used);
        drop(beginning);
        let mut act = Move::new(self, &managed, &active, task);
        if !goes_on {
            active.cancel();
        }
        match act.run() {
            Ok(()) => {
                if active.is_sync {
                    return Outcome::Moved { bytes: 0, freeing: false };
                }
                if task.way == Way::Aside {
                    return Outcome::MovedAside { bytes: used };
                }
                self.replicas.watch_for_idleness(managed.file);
                Outcome::Moved { bytes: used, freeing: true }
            }
            // What fails after the move was ended fails because it was.
            Err(_) if active.is_ended() => outcome_of(&active),
            Err(Stop::Ended) => outcome_of(&active),
            Err(Stop::Failed(why)) => Outcome::Failed(why),
            Err(Stop::PutBack(why)) => Outcome::PutBack(why),
        }
    }
}

/// Of a move that somebody ended.
fn outcome_of(active: &ActiveMove) -> Outcome {
    match active.reason() {
        Some(AbortReason::Abandoned(why)) => Outcome::PutBack(why),
        Some(AbortReason::Cancelled) | None => Outcome::Cancelled,
    }
}

/// A move under way; dropped before its end, it is given up.
struct Move<'a> {
    core: &'a Moves,
    managed: &'a Arc<Managed>,
    active: &'a Arc<ActiveMove>,
    task: &'a Task,
    /// From when the logs hold nothing of the region.
    copier: Option<Copier<'a>>,
    /// From [`Act::Lock`] to the end.
    locked: Option<MutexGuard<'a, Inner>>,
    /// What hosts are shown when it is committed.
    snapshot: Option<Snapshot>,
    /// Who died inside, and whose writes have been copied since.
    dead: HashSet<(ProcessSlot, Incarnation)>,
    /// See [`stripewise_store::shared::slots::Slots::forgotten`].
    forgotten: u64,
    /// How much was marked before the last round.
    marked: u32,
    /// Of rounds. They hurry when writers mark as fast as rounds copy that leave devices to them: what is left is copied so under the seal.
    speed: Speed,
    /// Seals that were broken because a writer did not come out. Those whom the last one held up have their turn.
    seals: u32,
    is_broken: bool,
    /// Since when writers wait.
    sealed: Option<Instant>,
    /// Servers may have been told that the region lies at its new place.
    described: bool,
    /// What its commit ended with.
    commit_error: Option<RmtError>,
    /// Why it does not go on.
    why: Option<Stop>,
    end: Option<End>,
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        self.drive(Done::Failed);
        // Whoever marks in it has been told that the move is over.
        guard(&self.managed.inner).move_slots &= !(1 << self.active.slot);
    }
}

impl<'a> Move<'a> {
    fn new(core: &'a Moves, managed: &'a Arc<Managed>, active: &'a Arc<ActiveMove>, task: &'a Task) -> Self {
        Self {
            core,
            managed,
            active,
            task,
            copier: None,
            locked: None,
            snapshot: None,
            dead: HashSet::new(),
            forgotten: managed.slots.forgotten(),
            marked: u32::MAX,
            speed: if task.is_urgent { Speed::AtOnce } else { Speed::Throttled },
            seals: 0,
            is_broken: false,
            sealed: None,
            described: false,
            commit_error: None,
            why: None,
            end: None,
        }
    }

    fn run(&mut self) -> Result<(), Stop> {
        self.drive(Done::Done);
        match self.end {
            Some(End::Committed) => Ok(()),
            _ => Err(self.why.take().unwrap_or(Stop::Ended)),
        }
    }

    fn drive(&mut self, mut outcome: Done) {
        while self.end.is_none() {
            let act = self.active.next(outcome);
            outcome = self.act(act).unwrap_or_else(|why| {
                self.why = Some(why);
                Done::Failed
            });
        }
    }

    fn act(&mut self, act: Act) -> Result<Done, Stop> {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let marks = managed.extent.marks(active.slot);
        match act {
            Act::Ask(message) => return self.ask(message),
            Act::Drain { under_seal } => return self.drain_here(under_seal),
            Act::ClearLogs => self.clear_logs()?,
            Act::Judge { rounds, is_last } => return Ok(self.judge(rounds, is_last)),
            Act::Copy => {
                self.copier()?.copy(&marks.take(), self.speed)?;
                core.context.step("move: round copied");
            }
            Act::Sync => {
                self.copier()?.sync()?;
                core.context.step("move: copied and synced");
            }
            Act::Seal => {
                self.sealed = Some(Instant::now());
                if active.is_ended() || !core.quiescing.seal(managed, active.region, active.slot) {
                    return Err(Stop::Ended);
                }
                core.queue.note(self.task.number, MoveState::Sealed);
                core.context.step("move: sealed");
            }
            Act::Unseal => {
                self.marked = u32::MAX;
                if !core.quiescing.unseal(managed, active.region, active.slot) {
                    return Err(Stop::Ended);
                }
            }
            Act::MarkAll => marks.mark(0..=usize::MAX),
            Act::JudgeSeal if self.copier()?.time_for(marks.count()) > LONG_SEAL => {
                self.speed = self.speed.max(Speed::Hurried);
                return Ok(Done::Much);
            }
            Act::JudgeSeal => return Ok(Done::Little),
            Act::CopyRest => {
                self.under_seal(Self::copy_rest)?;
                core.context.step("move: whole");
                core.queue.note(self.task.number, MoveState::Committing);
            }
            Act::Lock => return self.under_seal(Self::lock),
            Act::Commit => return self.commit(),
            Act::Verify => return Ok(self.verify()),
            Act::Publish => self.publish()?,
            Act::Show => {
                if let Some(snapshot) = self.snapshot.take() {
                    core.quiescing.show_elsewhere(snapshot);
                }
            }
            Act::PutBack => self.put_back(),
            Act::ThrowAway => {
                guard(&managed.inner).moving.remove(&active.region);
                core.context.step("move: given up");
                for new in &active.new {
                    core.throw_away(managed, active.region, new);
                }
            }
            Act::End(end) => {
                self.locked = None;
                self.end = Some(end);
            }
        }
        Ok(Done::Done)
    }

    /// A writer who does not come out is why the move is given up, if it is.
    fn stuck(&mut self, who: String) -> Done {
        self.why = Some(Stop::PutBack(who));
        (self.seals, self.is_broken) = (self.seals + 1, true);
        Done::Stuck
    }

    fn ask(&mut self, message: Message) -> Result<Done, Stop> {
        let core = self.core;
        let patience = match message.step {
            Step::Begin => FIRST_DRAIN,
            Step::Seal => SEAL_DRAIN * (1 << self.seals),
            _ => Duration::ZERO,
        };
        let outcome = match core.quiescing.take_step_elsewhere(self.managed, self.active, message, patience) {
            Ok(false) => Done::Done,
            Ok(true) => Done::Died,
            Err(Elsewhere::Stuck(who)) => self.stuck(who),
            // Why the move is given up is known by then.
            Err(_) if message.step == Step::GiveUp => Done::Failed,
            Err(Elsewhere::Refused(refusal)) => return Err(Stop::PutBack(refusal.to_string())),
        };
        if message.step == Step::Unseal {
            core.queue.note(self.task.number, MoveState::Copying);
            core.context.step("move: unsealed");
            if std::mem::take(&mut self.is_broken) {
                std::thread::sleep(SEAL_DRAIN * self.seals);
            }
        }
        Ok(outcome)
    }

    /// Writers of this host.
    fn drain_here(&mut self, under_seal: bool) -> Result<Done, Stop> {
        let patience = if under_seal { SEAL_DRAIN * (1 << self.seals) } else { FIRST_DRAIN };
        let has_died = match self.drain(patience) {
            Ok(has_died) => has_died,
            Err(_) if self.active.is_ended() => return Err(Stop::Ended),
            Err(slot) => return Ok(self.stuck(self.core.quiescing.stuck(slot))),
        };
        if !under_seal {
            self.core.context.step("move: drained");
            return Ok(Done::Done);
        }
        let before = std::mem::replace(&mut self.forgotten, self.managed.slots.forgotten());
        Ok(if has_died || before != self.forgotten { Done::Died } else { Done::Done })
    }

    /// Nobody adds entries of a region that moves, and what the copy reads has all that they held.
    fn clear_logs(&mut self) -> Result<(), Stop> {
        let (core, active) = (self.core, self.active);
        if !core.write_back.clear_region(self.managed, active.region, &|| active.is_ended())? {
            return Err(if active.is_ended() {
                Stop::Ended
            } else {
                Stop::PutBack("its fragments, which are written all the time".to_owned())
            });
        }
        self.copier = Some(Copier::open(core, self.managed, active, &self.task.copied_bytes)?);
        Ok(())
    }

    fn copier(&self) -> Result<&Copier<'a>, Stop> {
        self.copier.as_ref().ok_or(Stop::Ended)
    }

    fn judge(&mut self, rounds: u32, is_last: bool) -> Done {
        let marked = self.managed.extent.marks(self.active.slot).count();
        let is_shrinking = u64::from(marked) * 5 < u64::from(self.marked) * 4;
        let takes = self.copier.as_ref().map_or(Duration::ZERO, |copier| copier.time_for(marked));
        let is_long = takes > LONG_SEAL && self.speed == Speed::Throttled;
        if rounds > 0 && (is_last || takes <= SHORT_SEAL || !is_shrinking && !is_long) {
            return Done::Little;
        }
        if !is_shrinking {
            self.speed = self.speed.max(Speed::Hurried);
        }
        self.marked = marked;
        Done::Much
    }

    /// Waits for those who write the region. The dead count as gone, each once; whether any was found to be.
    fn drain(&mut self, patience: Duration) -> Result<bool, ProcessSlot> {
        let (quiescing, region) = (&self.core.quiescing, self.active.region);
        let mut uses = quiescing.writers_inside(self.managed, region, region);
        uses.retain(|lane| !self.dead.contains(&(lane.slot, lane.incarnation)));
        let patience = Patience { all: patience, stopped: Some(STOPPED_PATIENCE) };
        let waited = quiescing.wait(self.managed, uses, patience, &mut |_| self.active.is_ended());
        let has_died = !waited.died.is_empty();
        self.dead.extend(waited.died);
        waited.stuck.map_or(Ok(has_died), Err)
    }

    /// The file's lock is held from here on, and the new objects are ready.
    fn lock(&mut self) -> Result<Done, Stop> {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let inner = guard(&managed.inner);
        let sealed = core.quiescing.is_sealed(managed, active.region, active.slot);
        if inner.freed || active.is_ended() || !sealed {
            return Err(Stop::Ended);
        }
        if managed.extent.marks(active.slot).count() > 0 {
            return Ok(Done::Much);
        }
        sizes::take_owed(&core.context, managed, &inner).map_err(Refusal::from)?;
        self.finish_objects(&inner)?;
        if !active.is_sync {
            self.described = true;
            let (region, new) = (active.region, &active.new[0]);
            core.describing.describe_instead(managed, &inner, (region, new), &servers_of([&active.old.layout]))?;
            active.set_recalls(core.quiescing.next_recall(managed, &inner));
        }
        self.locked = Some(inner);
        Ok(Done::Done)
    }

    fn commit(&mut self) -> Result<Done, Stop> {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let Some(inner) = &self.locked else { return Err(Stop::Ended) };
        let (file, region) = (managed.file, active.region);
        let mut changes = Changes::default();
        if active.is_sync {
            let mut checked = active.new.iter().map(|new| core.drained.check_drained(&new.layout));
            if let Some(Err(refusal)) = checked.find(Result::is_err) {
                return Err(Stop::PutBack(refusal.to_string()));
            }
            for (number, replica) in &active.replicas() {
                changes.remove_discard(file, region, replica.generation);
                changes.put_replica(file, region, *number, replica);
            }
        } else {
            let new = &active.new[0];
            let placement = with_layout(&inner.placement, region, &new.layout);
            changes.put_region(file, region, new);
            changes.remove_discard(file, region, new.generation);
            changes.put_discard(file, region, active.old.generation, &active.old.layout);
            if placement != inner.placement {
                changes.put_placement(file, &placement);
            }
        }
        core.context.step("move: before the commit");
        if let Err(error) = core.context.table().commit(&changes) {
            let why = Refusal::from(&error).into();
            (self.why, self.commit_error) = (Some(why), Some(error));
            // A table of this host alone does nothing after an error. One that is elsewhere may have done it, or do it still.
            return Ok(if core.context.others().is_none() { Done::Failed } else { Done::Unknown });
        }
        core.context.step("move: committed");
        Ok(Done::Done)
    }

    fn publish(&mut self) -> Result<(), Stop> {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let Some(mut guarded) = self.locked.take() else { return Err(Stop::Ended) };
        let inner = &mut *guarded;
        let region = active.region;
        if active.is_sync {
            return self.publish_replicas(inner);
        }
        let new = active.new[0].clone();
        // It was learnt when the move began, so this cannot fail for want of space.
        let uses = core.quiescing.publish(managed, region, (new.generation, &new.layout)).map_err(Refusal::from)?;
        inner.placement = with_layout(&inner.placement, region, &new.layout);
        inner.discards.remove(&(region, new.generation));
        inner.discards.insert((region, active.old.generation), active.old.layout.clone());
        inner.regions.insert(region, new);
        inner.moving.remove(&region);
        self.snapshot = core.quiescing.snapshot(managed, inner, region);
        drop(guarded);
        core.context.step("move: published");
        core.queue.note(self.task.number, MoveState::Freeing);
        core.discards.add(Discard {
            managed: Arc::clone(managed),
            region,
            generation: active.old.generation,
            layout: active.old.layout.clone(),
            uses,
            number: (self.task.way != Way::Aside).then_some(self.task.number),
        });
        Ok(())
    }

    /// The same of a sync: the replicas count from here on.
    fn publish_replicas(&self, inner: &mut Inner) -> Result<(), Stop> {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let (region, replicas) = (active.region, active.replicas());
        let shown = replicas.iter().map(|(number, replica)| (*number, replica.generation, &replica.layout));
        core.quiescing.publish_replicas(managed, region, shown).map_err(Refusal::from)?;
        for replica in replicas.values() {
            inner.discards.remove(&(region, replica.generation));
        }
        core.capacity.note_replicas();
        inner.replicas.insert(region, replicas);
        inner.moving.remove(&region);
        core.context.step("move: published");
        Ok(())
    }

    /// Writers of this host go on where they were.
    fn put_back(&mut self) {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let inner = self.locked.take().unwrap_or_else(|| guard(&managed.inner));
        if self.described
            && let Some(place) = inner.regions.get(&active.region)
        {
            // Before anybody writes there again.
            let new_servers = servers_of(active.new.iter().map(|new| &new.layout));
            if let Err(refusal) =
                core.describing.describe_instead(managed, &inner, (active.region, place), &new_servers)
            {
                note!(core.context.log(), warn, path = %inner.record.path, region = %active.region, error = %refusal, "a region that did not move is not described again");
            }
        }
        core.quiescing.put_back(managed, active.region, active.slot);
    }

    /// The new objects get the file's present mode and owner, and end with the file.
    fn finish_objects(&self, inner: &Inner) -> Result<(), Stop> {
        let (core, active) = (self.core, self.active);
        let used = inner.geometry().used_bytes(active.region, self.managed.extent.size_bytes());
        let objects: Vec<(ServerId, ObjectName, u64)> = active
            .new
            .iter()
            .flat_map(|new| {
                let object = ObjectName { file: self.managed.file, region: active.region, generation: new.generation };
                let length = move |turn| new.layout.view().object_bytes(turn, used);
                stripe_servers(&new.layout).enumerate().map(move |(turn, server)| (server, object, length(turn)))
            })
            .collect();
        let truncated = core.context.truncate_as_owner(&objects, active.ownership);
        truncated.into_iter().collect::<Result<(), ServerError>>().map_err(Refusal::from)?;
        if inner.ownership() != active.ownership {
            let own = |(server, object, _): &(ServerId, ObjectName, u64)| {
                (*server, Operation::SetOwnership(*object, inner.ownership()))
            };
            let owned = core.context.perform_together(objects.iter().map(own));
            owned.into_iter().try_for_each(|outcome| outcome.map(drop)).map_err(Refusal::from)?;
        }
        Ok(())
    }
}
