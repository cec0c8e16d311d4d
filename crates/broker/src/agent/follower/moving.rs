//! This host's part of moves, which the master runs.
//!
//! What a move has come to here is kept beside the file's memory, so that the word of a region that is shown in the middle of a move is shown in motion.
//! Steps change it under the lock of the memory, and wait for programs without it.

use super::files::{HostFile, HostMemory};
use super::moves::{HostMove, busy};
use crate::host_messages::{FromAgent, Known, MoveStep};
use crate::managed::{Managed, memory_fault};
use crate::quiescing::{Patience, Quiescing, STOPPED_PATIENCE};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::{FileId, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::marking::MARK_WORDS;

fn all_marks() -> Vec<u64> {
    vec![u64::MAX; MARK_WORDS]
}

/// A region of a file that is open here, whose move has a turn.
pub(super) struct Moving<'a> {
    pub(super) found: &'a HostFile,
    pub(super) quiescing: &'a Quiescing,
    pub(super) file: FileId,
    pub(super) region: RegionIndex,
    pub(super) turn: u64,
}

impl Moving<'_> {
    /// Takes the step. `is_over`: the master is followed no longer, which ends waiting.
    pub(super) fn take(&self, step: MoveStep, is_over: &dyn Fn() -> bool) -> Result<FromAgent, Refusal> {
        match step {
            MoveStep::Begin { slot, patience } => {
                let managed = self.begin(slot)?;
                self.wait(&managed, patience, is_over).map_or_else(Ok, |_| Ok(FromAgent::Done))
            }
            MoveStep::Collect => self.collect(false),
            MoveStep::Seal { patience } => {
                let managed = self.seal()?;
                match self.wait(&managed, patience, is_over) {
                    Ok(has_died) => self.collect(has_died),
                    Err(stuck) => Ok(stuck),
                }
            }
            MoveStep::Unseal => {
                let mut memory = self.found.memory();
                let moving = memory.moves.of(self.file, self.region, self.turn)?;
                moving.is_sealed = false;
                let slot = moving.slot;
                if let Some(managed) = &memory.managed {
                    let _ = managed.control.regions().unseal(self.region, slot);
                }
                Ok(FromAgent::Done)
            }
            MoveStep::Recall { recalls } => {
                let mut memory = self.found.memory();
                memory.moves.of(self.file, self.region, self.turn)?;
                memory.moves.remove(self.region);
                memory.recalls = memory.recalls.max(recalls);
                // Writers that wait go on when the master says how the move has ended, or when they look for themselves.
                if let Some(managed) = &memory.managed {
                    managed.control.regions().retract(self.region);
                }
                Ok(FromAgent::Done)
            }
            MoveStep::GiveUp => {
                let mut memory = self.found.memory();
                let slot = memory.moves.of(self.file, self.region, self.turn).ok().map(|moving| moving.slot);
                if slot.is_some() {
                    memory.moves.remove(self.region);
                }
                if let Some(managed) = &memory.managed {
                    let regions = managed.control.regions();
                    match slot {
                        Some(slot) => drop(regions.give_up_move(self.region, slot)),
                        None => regions.let_writers_go_on(),
                    }
                }
                Ok(FromAgent::Done)
            }
        }
    }

    /// A file whose memory is just being made or removed takes part in nothing: what shows its regions may be under way.
    fn managed(&self, memory: &HostMemory) -> Result<Arc<Managed>, Refusal> {
        let changing = || busy(self.file, "a host that is just opening or closing the file".to_owned());
        memory.managed.clone().ok_or_else(changing)
    }

    fn begin(&self, slot: u8) -> Result<Arc<Managed>, Refusal> {
        let mut memory = self.found.memory();
        let managed = self.managed(&memory)?;
        managed.extent.reserve_marks(slot).map_err(memory_fault(self.file))?;
        let moving = HostMove {
            turn: self.turn,
            slot,
            is_sealed: false,
            dead: HashSet::new(),
            forgotten: managed.slots.forgotten(),
        };
        let regions = managed.control.regions();
        let is_absent = regions.is_absent(self.region);
        if !is_absent && !regions.follow_move(self.region, slot, managed.extent.marks(slot)) {
            return Err(busy(self.file, format!("another move of region {}", self.region)));
        }
        if is_absent {
            let _ = managed.extent.marks(slot).take();
        }
        memory.moves.insert(self.region, moving);
        Ok(managed)
    }

    fn seal(&self) -> Result<Arc<Managed>, Refusal> {
        let mut memory = self.found.memory();
        let managed = self.managed(&memory)?;
        let moving = memory.moves.of(self.file, self.region, self.turn)?;
        let regions = managed.control.regions();
        if !regions.is_absent(self.region) && !regions.seal(self.region, moving.slot) {
            return Err(busy(self.file, format!("something that ended the move of region {}", self.region)));
        }
        moving.is_sealed = true;
        Ok(managed)
    }

    /// Waits for those who write the region. The dead count as gone, each once; whether any was found to be.
    fn wait(&self, managed: &Managed, patience: Duration, is_over: &dyn Fn() -> bool) -> Result<bool, FromAgent> {
        let dead = match self.found.memory().moves.of(self.file, self.region, self.turn) {
            Ok(moving) => moving.dead.clone(),
            Err(refusal) => return Err(FromAgent::Refused(refusal)),
        };
        let mut uses = self.quiescing.writers_inside(managed, self.region, self.region);
        uses.retain(|lane| !dead.contains(&(lane.slot, lane.incarnation)));
        let patience = Patience { all: patience, stopped: Some(STOPPED_PATIENCE) };
        let waited = self.quiescing.wait(managed, uses, patience, &mut |_| is_over());
        let has_died = !waited.died.is_empty();
        if let Ok(moving) = self.found.memory().moves.of(self.file, self.region, self.turn) {
            moving.dead.extend(waited.died);
        }
        waited.stuck.map_or(Ok(has_died), |slot| Err(FromAgent::Stuck(self.quiescing.stuck(slot))))
    }

    /// Hands the marks over. `has_died`: a writer died inside, and may have written what it did not mark.
    fn collect(&self, mut has_died: bool) -> Result<FromAgent, Refusal> {
        let mut memory = self.found.memory();
        let managed = self.managed(&memory)?;
        let moving = memory.moves.of(self.file, self.region, self.turn)?;
        let forgotten = managed.slots.forgotten();
        has_died |= forgotten != moving.forgotten;
        moving.forgotten = forgotten;
        let taken = managed.extent.marks(moving.slot).take();
        let marks = if has_died { all_marks() } else { taken.to_vec() };
        let known = Known { size_bytes: managed.extent.size_bytes(), truncations: memory.truncations };
        Ok(FromAgent::Marked { marks, known: Some(known), has_died })
    }
}
