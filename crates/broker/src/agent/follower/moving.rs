//! This host's part of moves, which the master runs.
//!
//! [`HostView`](stripewise_coherence::host::HostView) says what a step does here. Steps are taken under the lock of the file's memory, and wait for programs without it.

use super::files::{HostFile, HostMemory, known_of};
use super::programs::Dead;
use crate::host_messages::FromAgent;
use crate::managed::{Managed, memory_fault};
use crate::quiescing::{Patience, Quiescing, STOPPED_PATIENCE};
use std::sync::Arc;
use std::time::Duration;
use stripewise_coherence::host::{Message, NotTaken, Step, Then};
use stripewise_layout::FileId;
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::marking::MARK_WORDS;

fn all_marks() -> Vec<u64> {
    vec![u64::MAX; MARK_WORDS]
}

/// A message about the move of a region of a file that may be open here.
pub(super) struct Moving<'a> {
    pub(super) found: &'a HostFile,
    pub(super) quiescing: &'a Quiescing,
    pub(super) file: FileId,
    pub(super) message: Message,
}

impl Moving<'_> {
    /// Takes the step, and waits for programs if it asks for that. `is_over`: the master is followed no longer, which ends waiting.
    pub(super) fn take(&self, patience: Duration, is_over: &dyn Fn() -> bool) -> Result<FromAgent, Refusal> {
        let (then, managed) = self.take_step()?;
        let Some(managed) = managed else {
            return Ok(match then {
                Then::NothingMarked => FromAgent::Marked { marks: Vec::new(), known: None, has_died: false },
                _ => FromAgent::Done,
            });
        };
        let has_died = match then {
            Then::Drain | Then::DrainAndCollect => match self.wait(&managed, patience, is_over) {
                Ok(has_died) => has_died,
                Err(stuck) => return Ok(stuck),
            },
            Then::Answer | Then::Collect | Then::NothingMarked => false,
        };
        match then {
            Then::Collect | Then::DrainAndCollect => self.collect(&managed, has_died),
            Then::Answer | Then::Drain | Then::NothingMarked => Ok(FromAgent::Done),
        }
    }

    fn take_step(&self) -> Result<(Then, Option<Arc<Managed>>), Refusal> {
        let Message { region, turn, slot, step, .. } = self.message;
        let mut memory = self.found.memory();
        let managed = memory.managed();
        if let (Step::Begin, Some(managed)) = (step, &managed) {
            managed.extent.reserve_marks(slot).map_err(memory_fault(self.file))?;
        }
        let forgotten = managed.as_ref().map(|managed| managed.slots.forgotten());
        let then = memory.take_step(&self.message).map_err(|why| self.refusal(why))?;
        if let (Step::Begin, Some(forgotten)) = (step, forgotten) {
            memory.dead.insert(region, Dead::of(turn, forgotten));
        } else if !memory.heard.takes_part(region, turn) {
            memory.dead.remove(&region);
        }
        Ok((then, managed))
    }

    fn refusal(&self, why: NotTaken) -> Refusal {
        let region = self.message.region;
        let holder = match why {
            NotTaken::Late => format!("this host, which has heard how the move of region {region} went on"),
            NotTaken::Unknown => format!("this host, which knows nothing of the move of region {region}"),
            NotTaken::Ended => format!("something that ended the move of region {region}"),
        };
        Refusal::Busy { file: self.file, holder }
    }

    /// The dead of the move; an error: it is over.
    fn dead<'m>(&self, memory: &'m mut HostMemory) -> Result<&'m mut Dead, Refusal> {
        let Message { region, turn, .. } = self.message;
        let is_on = memory.heard.takes_part(region, turn);
        let dead = memory.dead.get_mut(&region).filter(|dead| is_on && dead.turn == turn);
        dead.ok_or_else(|| self.refusal(NotTaken::Unknown))
    }

    /// Waits for those who write the region. The dead count as gone, each once; whether any was found to be.
    fn wait(&self, managed: &Managed, patience: Duration, is_over: &dyn Fn() -> bool) -> Result<bool, FromAgent> {
        let region = self.message.region;
        let counted = match self.dead(&mut self.found.memory()) {
            Ok(dead) => dead.counted.clone(),
            Err(refusal) => return Err(FromAgent::Refused(refusal)),
        };
        let mut uses = self.quiescing.writers_inside(managed, region, region);
        uses.retain(|lane| !counted.contains(&(lane.slot, lane.incarnation)));
        let patience = Patience { all: patience, stopped: Some(STOPPED_PATIENCE) };
        let waited = self.quiescing.wait(managed, uses, patience, &mut |_| is_over());
        let has_died = !waited.died.is_empty();
        if let Ok(dead) = self.dead(&mut self.found.memory()) {
            dead.counted.extend(waited.died);
        }
        waited.stuck.map_or(Ok(has_died), |slot| Err(FromAgent::Stuck(self.quiescing.stuck(slot))))
    }

    /// Hands the marks over. `has_died`: a writer died inside, and may have written what it did not mark.
    fn collect(&self, managed: &Managed, mut has_died: bool) -> Result<FromAgent, Refusal> {
        let mut memory = self.found.memory();
        let dead = self.dead(&mut memory)?;
        let forgotten = managed.slots.forgotten();
        has_died |= forgotten != dead.forgotten;
        dead.forgotten = forgotten;
        let taken = managed.extent.marks(self.message.slot).take();
        let marks = if has_died { all_marks() } else { taken.to_vec() };
        let known = known_of(managed);
        Ok(FromAgent::Marked { marks, known: Some(known), has_died })
    }
}
