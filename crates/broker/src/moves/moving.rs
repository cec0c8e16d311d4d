//! One region's move, step by step. `shared::marking` says why no byte is lost; this is who does what when.
//!
//! 1. *Begin,* under the file's lock: room promised, the new objects noted as a discard (durably) and made, the region word "moving".
//! 2. Whoever was writing there before is waited for: from then on every writer marks, and none puts anything into a log. What logs hold of the
//!    region is written to its place and dropped.
//! 3. Rounds: what is marked is copied, until little is left or the rounds do not get smaller.
//! 4. Sync, so that little is left to be synced under the seal. Seal; those inside are waited for; the rest is copied and synced.
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

use super::Moves;
use super::beginning::{BeginError, failed};
use super::copying::{Copier, Fault, Speed};
use crate::describing::servers_of;
use crate::discards::Discard;
use crate::fencing;
use crate::guard;
use crate::host_messages::Snapshot;
use crate::log::note;
use crate::managed::{AbortReason, ActiveMove, Inner, Managed};
use crate::move_queue::{Outcome, Task};
use crate::objects::stripe_servers;
use crate::placements::with_layout;
use crate::quiescing::{Elsewhere, Patience, RemoteMove, STOPPED_PATIENCE, Turn};
use crate::rmt::{Changes, RegionRecord, ReplicaRecord};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::ServerId;
use stripewise_store::protocol::{MoveNumber, MoveState, Refusal};
use stripewise_store::server::{ObjectName, Operation, ServerError};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

/// How long those who were writing when the move began are waited for.
const FIRST_DRAIN: Duration = Duration::from_secs(4);
/// The same under the seal, where other writers wait too; twice as long each time, since on a busy host a thread may wait for a processor.
const SEAL_DRAIN: Duration = Duration::from_millis(50);
/// Seals that may be broken because a writer inside did not come out.
const MAX_SEALS: u32 = 6;
/// Rounds of copying before the last one, which is done under the seal whatever is left.
const MAX_ROUNDS: u32 = 16;
/// What can be copied in this time is left for the seal.
const SHORT_SEAL: Duration = Duration::from_millis(4);
/// What turns out to need more than this under the seal is copied with writers let in, while rounds last.
const LONG_SEAL: Duration = Duration::from_millis(20);

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
            Elsewhere::Stuck(who) => Stop::PutBack(format!("{who}, on another host")),
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
        let begun = self.begin_move(task, &managed);
        drop(beginning);
        let active = match begun {
            Ok(active) => active,
            Err(BeginError::Over(outcome)) => return outcome,
            // What others leave may be enough.
            Err(BeginError::Full(full, what))
                if self.queue.others_may_free_space() || self.replicas.take_back(&full) =>
            {
                return Outcome::PutBack(what);
            }
            Err(BeginError::Full(_, what)) => return failed(Refusal::NoSpace { what }),
        };
        let used = guard(&managed.inner).geometry().used_bytes(task.region, managed.extent.size_bytes());
        let mut act = Move {
            core: self,
            managed: &managed,
            active: &active,
            number: task.number,
            turn: self.quiescing.next_turn(),
            dead: HashSet::new(),
            described: false,
            committed: false,
        };
        if !self.queue.begun(task.number, &active, used) {
            active.cancel();
        }
        match act.run(task) {
            Ok(()) => {
                act.committed = true;
                if active.is_sync {
                    return Outcome::Moved { bytes: 0, freeing: false };
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

/// A move under way; dropped without being committed, it is given up.
struct Move<'a> {
    core: &'a Moves,
    managed: &'a Arc<Managed>,
    active: &'a Arc<ActiveMove>,
    number: MoveNumber,
    /// What other hosts call it.
    turn: Turn,
    /// Who died inside, and whose writes have been copied since.
    dead: HashSet<(ProcessSlot, Incarnation)>,
    /// Servers may have been told that the region lies at its new place.
    described: bool,
    committed: bool,
}

impl Drop for Move<'_> {
    fn drop(&mut self) {
        let (managed, active) = (self.managed, self.active);
        if !self.committed {
            self.give_up();
        }
        // Whoever marks in it has been told that the move is over.
        guard(&managed.inner).move_slots &= !(1 << active.slot);
    }
}

impl Move<'_> {
    fn give_up(&mut self) {
        let (managed, active) = (self.managed, self.active);
        let inner = guard(&managed.inner);
        if self.described
            && let Some(place) = inner.regions.get(&active.region)
        {
            // Before anybody writes there again.
            let new_servers = servers_of(active.new.iter().map(|new| &new.layout));
            if let Err(refusal) =
                self.core.describing.describe_instead(managed, &inner, (active.region, place), &new_servers)
            {
                note!(self.core.context.log(), warn, path = %inner.record.path, region = %active.region, error = %refusal, "a region that did not move is not described again");
            }
        }
        self.core.quiescing.put_back(managed, active.region, active.slot);
        drop(inner);
        // The next move of the region begins after that.
        self.core.quiescing.put_back_elsewhere(self.elsewhere());
        guard(&managed.inner).moving.remove(&active.region);
        self.core.context.step("move: given up");
        for new in &active.new {
            self.core.throw_away(managed, active.region, new);
        }
    }

    fn elsewhere(&self) -> RemoteMove<'_> {
        let (region, slot) = (self.active.region, self.active.slot);
        RemoteMove { managed: self.managed, region, slot, turn: self.turn }
    }

    pub(crate) fn run(&mut self, task: &Task) -> Result<(), Stop> {
        let (core, slots, active) = (self.core, &self.managed.slots, self.active);
        let mut forgotten = slots.forgotten();
        core.quiescing.begin_elsewhere(self.elsewhere(), FIRST_DRAIN)?;
        if let Err(slot) = self.drain(FIRST_DRAIN) {
            if active.is_ended() {
                return Err(Stop::Ended);
            }
            return Err(Stop::PutBack(core.quiescing.stuck(slot)));
        }
        core.context.step("move: drained");
        // Nobody adds entries of a region that moves, and what the copy reads has all that they held.
        if !core.write_back.clear_region(self.managed, active.region, &|| active.is_ended())? {
            return Err(if active.is_ended() {
                Stop::Ended
            } else {
                Stop::PutBack("its fragments, which are written all the time".to_owned())
            });
        }
        let copier = Copier::open(core, self.managed, active, &task.copied_bytes)?;
        let marks = self.managed.extent.marks(active.slot);
        let (mut rounds, mut seals) = (0, 0);
        let speed = if task.is_urgent { Speed::AtOnce } else { Speed::Throttled };
        loop {
            rounds = self.copy_rounds(&copier, rounds, speed)?;
            copier.sync()?;
            core.context.step("move: copied and synced");
            if active.is_ended() || !core.quiescing.seal(self.managed, active.region, active.slot) {
                return Err(Stop::Ended);
            }
            core.queue.note(self.number, MoveState::Sealed);
            core.context.step("move: sealed");
            match self.drain_sealed(SEAL_DRAIN * (1 << seals))? {
                Err(who) => {
                    self.unseal()?;
                    seals += 1;
                    if seals == MAX_SEALS {
                        return Err(Stop::PutBack(who));
                    }
                    // Those who were held up have their turn.
                    std::thread::sleep(SEAL_DRAIN * seals);
                    continue;
                }
                Ok(has_died) => {
                    let count = slots.forgotten();
                    if has_died || count != forgotten {
                        forgotten = count;
                        marks.mark(0..=usize::MAX);
                        self.unseal()?;
                        // Once for each that died: not counted.
                        rounds = rounds.min(MAX_ROUNDS - 2);
                        continue;
                    }
                }
            }
            if rounds < MAX_ROUNDS && copier.time_for(marks.count()) > LONG_SEAL {
                self.unseal()?;
                continue;
            }
            loop {
                let taken = marks.take();
                if taken.iter().any(|word| *word != 0) {
                    copier.copy(&taken, Speed::AtOnce)?;
                    copier.sync()?;
                }
                core.context.step("move: whole");
                core.queue.note(self.number, MoveState::Committing);
                if self.commit()? {
                    return Ok(());
                }
            }
        }
    }

    /// Step 3; returns the number of rounds so far.
    fn copy_rounds(&self, copier: &Copier<'_>, mut rounds: u32, speed: Speed) -> Result<u32, Stop> {
        let marks = self.managed.extent.marks(self.active.slot);
        let mut before = u32::MAX;
        loop {
            self.core.quiescing.collect_elsewhere(self.elsewhere())?;
            let marked = marks.count();
            let is_shrinking = u64::from(marked) * 5 < u64::from(before) * 4;
            if rounds > 0 && (rounds >= MAX_ROUNDS || !is_shrinking || copier.time_for(marked) <= SHORT_SEAL) {
                return Ok(rounds);
            }
            copier.copy(&marks.take(), speed)?;
            self.core.context.step("move: round copied");
            (before, rounds) = (marked, rounds + 1);
        }
    }

    pub(crate) fn unseal(&self) -> Result<(), Stop> {
        if !self.core.quiescing.unseal(self.managed, self.active.region, self.active.slot) {
            return Err(Stop::Ended);
        }
        self.core.quiescing.unseal_elsewhere(self.elsewhere())?;
        self.core.queue.note(self.number, MoveState::Copying);
        self.core.context.step("move: unsealed");
        Ok(())
    }

    /// Under the seal, on all hosts: whether a writer died inside, or who does not come out.
    fn drain_sealed(&mut self, patience: Duration) -> Result<Result<bool, String>, Stop> {
        let has_died = match self.core.quiescing.seal_elsewhere(self.elsewhere(), patience) {
            Ok(has_died) => has_died,
            Err(Elsewhere::Stuck(who)) => return Ok(Err(format!("{who}, on another host"))),
            Err(refused) => return Err(refused.into()),
        };
        let drained = self.drain(patience).map_err(|slot| self.core.quiescing.stuck(slot));
        Ok(drained.map(|died_here| died_here || has_died))
    }

    /// Waits for those who write the region. The dead count as gone, each once; whether any was found to be.
    pub(crate) fn drain(&mut self, patience: Duration) -> Result<bool, ProcessSlot> {
        let (quiescing, region) = (&self.core.quiescing, self.active.region);
        let mut uses = quiescing.writers_inside(self.managed, region, region);
        uses.retain(|lane| !self.dead.contains(&(lane.slot, lane.incarnation)));
        let patience = Patience { all: patience, stopped: Some(STOPPED_PATIENCE) };
        let waited = quiescing.wait(self.managed, uses, patience, &mut |_| self.active.is_ended());
        let has_died = !waited.died.is_empty();
        self.dead.extend(waited.died);
        waited.stuck.map_or(Ok(has_died), Err)
    }

    /// Step 5. False: something was cut meanwhile and has to be copied again.
    pub(crate) fn commit(&mut self) -> Result<bool, Stop> {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let mut guarded = guard(&managed.inner);
        let inner = &mut *guarded;
        let sealed = core.quiescing.is_sealed(managed, active.region, active.slot);
        if inner.freed || active.is_ended() || !sealed {
            return Err(Stop::Ended);
        }
        if managed.extent.marks(active.slot).count() > 0 {
            return Ok(false);
        }
        self.finish_objects(inner)?;
        if active.is_sync {
            return self.commit_replicas(inner).map(|()| true);
        }
        let (file, region, new) = (managed.file, active.region, active.new[0].clone());
        let placement = with_layout(&inner.placement, region, &new.layout);
        let mut changes = Changes::default();
        changes.put_region(file, region, &new);
        changes.remove_discard(file, region, new.generation);
        changes.put_discard(file, region, active.old.generation, &active.old.layout);
        if placement != inner.placement {
            changes.put_placement(file, &placement);
        }
        self.described = true;
        let old_servers = servers_of([&active.old.layout]);
        core.describing.describe_instead(managed, inner, (region, &new), &old_servers)?;
        core.quiescing.recall(self.elsewhere(), inner)?;
        core.context.step("move: before the commit");
        core.context.table().commit(&changes).map_err(Refusal::from)?;
        core.context.step("move: committed");
        // It was learnt when the move began, so this cannot fail for want of space.
        let uses = core.quiescing.publish(managed, region, (new.generation, &new.layout)).map_err(Refusal::from)?;
        inner.placement = placement;
        inner.discards.remove(&(region, new.generation));
        inner.discards.insert((region, active.old.generation), active.old.layout.clone());
        inner.regions.insert(region, new);
        inner.moving.remove(&region);
        let snapshot = Snapshot::of(managed, inner, region..=region);
        drop(guarded);
        core.context.step("move: published");
        core.quiescing.show_elsewhere(snapshot);
        core.queue.note(self.number, MoveState::Freeing);
        core.discards.add(Discard {
            managed: Arc::clone(managed),
            region,
            generation: active.old.generation,
            layout: active.old.layout.clone(),
            uses,
            number: Some(self.number),
        });
        Ok(true)
    }

    /// The same of a sync: the replicas count from here on.
    fn commit_replicas(&self, inner: &mut Inner) -> Result<(), Stop> {
        let (core, managed, active) = (self.core, self.managed, self.active);
        let (file, region) = (managed.file, active.region);
        if let Some(Err(refusal)) =
            active.new.iter().map(|new| core.drained.check_drained(&new.layout)).find(Result::is_err)
        {
            return Err(Stop::PutBack(refusal.to_string()));
        }
        let replica = |new: &RegionRecord| ReplicaRecord { generation: new.generation, layout: new.layout.clone() };
        let replicas: BTreeMap<u8, ReplicaRecord> = (0..).zip(active.new.iter().map(replica)).collect();
        let mut changes = Changes::default();
        for (number, replica) in &replicas {
            changes.remove_discard(file, region, replica.generation);
            changes.put_replica(file, region, *number, replica);
        }
        core.context.step("move: before the commit");
        core.context.table().commit(&changes).map_err(Refusal::from)?;
        core.context.step("move: committed");
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
