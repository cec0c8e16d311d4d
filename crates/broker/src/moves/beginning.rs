//! How a move begins: step 1 of [`super::moving`]. Capacity is promised, the new objects are noted as discards and made, and writers mark from then on.

use super::Moves;
use super::side::{Held, held_of};
use crate::capacity::Full;
use crate::discards::Discard;
use crate::guard;
use crate::managed::{ActiveMove, Inner, Managed, memory_fault};
use crate::move_queue::{Outcome, Task, Way};
use crate::placements::with_layout;
use crate::rmt::{Changes, FileState, RegionRecord};
use crate::standing::Standings;
use std::sync::Arc;
use stripewise_layout::figures::bytes;
use stripewise_layout::{Layout, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, moved_generation};
use stripewise_store::shared::marking::MOVE_SLOTS;

/// Why a move did not begin.
pub(super) enum BeginError {
    Over(Outcome),
    /// A server has no space, said in words too; without its name where it took back what it had promised.
    Full(Option<Full>, String),
}

impl From<Outcome> for BeginError {
    fn from(outcome: Outcome) -> Self {
        BeginError::Over(outcome)
    }
}

impl Moves {
    /// Step 1. An error is the outcome: also when nothing is to be moved.
    pub(super) fn begin_move(&self, task: &Task, managed: &Arc<Managed>) -> Result<Arc<ActiveMove>, BeginError> {
        let expected_bytes = self.bytes_to_copy(managed, task.region);
        let mut inner = guard(&managed.inner);
        let region = task.region;
        if let (None, Some(host)) = (&task.to, self.context.others().and_then(|others| others.host_of(managed.file))) {
            let what = format!("host {host} may have the file open, and files of several hosts have no replicas");
            return Err(Outcome::Failed(what).into());
        }
        let slot = self.may_begin(&inner, region, task.is_urgent)?;
        self.placer.widen(managed, &mut inner, region).map_err(failed)?;
        let nothing = |bytes| BeginError::Over(Outcome::Moved { bytes, freeing: false });
        let Some(old) = inner.regions.get(&region) else {
            let Some(layout) = &task.to else { return Err(nothing(0)) };
            let placement = with_layout(&inner.placement, region, layout);
            let put = self.placer.put_placement(managed, &mut inner, placement);
            return Err(put.map_or_else(|refusal| failed(refusal).into(), |()| nothing(0)));
        };
        if task.to.as_ref().is_some_and(|layout| old.layout == **layout) {
            return Err(nothing(0));
        }
        // Before anything is made, and before a writer can see that the region moves.
        managed.extent.reserve_marks(slot).map_err(memory_fault(managed.file)).map_err(failed)?;
        let new = match &task.to {
            Some(layout) => {
                self.replicas.forget_replicas(managed, &mut inner, &[region]).map_err(failed)?;
                let new = self.make_target(managed, &mut inner, region, layout, expected_bytes)?;
                vec![RegionRecord { fell_back: task.is_urgent || task.way == Way::Aside, ..new }]
            }
            None => self.make_replicas(managed, &mut inner, region, expected_bytes)?,
        };
        if new.is_empty() {
            return Err(nothing(0));
        }
        // Looked at again: with its replicas forgotten, a region whose own place is lost may have got another.
        let old = inner.regions[&region].clone();
        // Its turn is drawn under the lock: whoever is told of the file knows of the move, or of no turn so late.
        let joint = self.quiescing.joint_move(region, slot);
        let active = Arc::new(ActiveMove::new(slot, joint, (old, new), task.to.is_none(), inner.ownership()));
        inner.move_slots |= 1 << slot;
        inner.moving.insert(region, Arc::clone(&active));
        self.quiescing.begin(managed, region, slot);
        drop(inner);
        self.context.step("move: begun");
        Ok(active)
    }

    /// The move slot to take; an error if the region cannot move now.
    pub(super) fn may_begin(&self, inner: &Inner, region: RegionIndex, is_urgent: bool) -> Result<u8, Outcome> {
        if inner.freed || matches!(inner.record.state, FileState::Unlinked) {
            return Err(Outcome::Failed("the file was removed".to_owned()));
        }
        match inner.record.state {
            FileState::Live => {}
            FileState::Releasing { .. } => return Err(Outcome::Failed("the file is being released".to_owned())),
            // Its maker is the writer who waits.
            _ if is_urgent => {}
            _ => return Err(Outcome::PutBack("the file is still being made".to_owned())),
        }
        if inner.moving.contains_key(&region) {
            return Err(Outcome::PutBack("an earlier move of the region".to_owned()));
        }
        let slot = inner.move_slots.trailing_ones() as u8;
        if slot >= MOVE_SLOTS {
            return Err(Outcome::PutBack("other moves of the file".to_owned()));
        }
        Ok(slot)
    }

    /// How many of the region's first bytes will be written to a new place, before anything is locked; 0 where there are holes among them, which stay holes,
    /// or its servers do not say.
    fn bytes_to_copy(&self, managed: &Managed, region: RegionIndex) -> u64 {
        let Some(place) = guard(&managed.inner).regions.get(&region).cloned() else { return 0 };
        let object = ObjectName { file: managed.file, region, generation: place.generation };
        match held_of(object, &place.layout, &self.context) {
            Ok(Held { end, has_holes: false }) => end.min(managed.control.region_bytes()),
            _ => 0,
        }
    }

    /// Room, a durable note that they are nobody's yet, and objects for another copy of the region.
    pub(super) fn make_target(
        &self,
        managed: &Arc<Managed>,
        inner: &mut Inner,
        region: RegionIndex,
        layout: &Layout,
        expected_bytes: u64,
    ) -> Result<RegionRecord, BeginError> {
        // Now, since what is committed cannot be taken back.
        managed.control.regions().learn(managed.file, region, layout).map_err(|error| failed(error.into()))?;
        self.promise_space(inner, region, layout)?;
        let give_back = |refusal: Refusal| {
            self.capacity.give_back([layout], managed.control.region_bytes());
            failed(refusal)
        };
        let generation = self.placer.reserve_generations(managed, inner, 1).map_err(give_back)? + 1;
        let generation = moved_generation(generation);
        let new = RegionRecord::placed(generation, layout.clone());
        let mut changes = Changes::default();
        changes.put_discard(managed.file, region, generation, &new.layout);
        self.context.step("move: before the discard");
        self.context.table().commit(&changes).map_err(Refusal::from).map_err(give_back)?;
        inner.discards.insert((region, generation), new.layout.clone());
        self.context.step("move: discard noted");
        if let Err(unmade) = self.placer.make_objects(managed, inner, &[(region, new.clone())], expected_bytes) {
            inner.forgotten.push((region, generation));
            self.discards.check_again(managed.file);
            return Err(match unmade.into_refusal() {
                Refusal::NoSpace { what } => BeginError::Full(None, what),
                refusal => BeginError::Over(failed(refusal)),
            });
        }
        Ok(new)
    }

    /// Objects for all replicas that the region is to have and has not; none if it has all that it can have now.
    pub(super) fn make_replicas(
        &self,
        managed: &Arc<Managed>,
        inner: &mut Inner,
        region: RegionIndex,
        expected_bytes: u64,
    ) -> Result<Vec<RegionRecord>, BeginError> {
        let wanted = self.replicas.wanted_of(inner, region);
        inner.lacking.remove(&region);
        let missing: Vec<&Layout> =
            wanted.iter().filter(|layout| inner.replicas_of(region).all(|had| had.layout != **layout)).collect();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        managed.control.regions().reserve_replicas(region).map_err(|error| failed(error.into()))?;
        let mut made = Vec::with_capacity(wanted.len());
        if inner.replicas.contains_key(&region) {
            // Those there are stay if they are all that there is space for.
            if !missing.iter().any(|layout| self.replicas.has_space(layout, inner.record.region_bytes)) {
                inner.lacking.insert(region, "no server has space for another replica".to_owned());
                return Ok(Vec::new());
            }
            self.replicas.forget_replicas(managed, inner, &[region]).map_err(failed)?;
            return Err(Outcome::PutBack("the freeing of its former replicas".to_owned()).into());
        }
        for layout in &wanted {
            match self.make_target(managed, inner, region, layout, expected_bytes) {
                Ok(replica) => made.push(replica),
                Err(BeginError::Full(_, what) | BeginError::Over(Outcome::Failed(what) | Outcome::PutBack(what))) => {
                    inner.lacking.insert(region, what);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(made)
    }

    pub(super) fn promise_space(&self, inner: &Inner, region: RegionIndex, layout: &Layout) -> Result<(), BeginError> {
        let mut standings = Standings::new(self.context.servers());
        standings.check(layout).map_err(failed)?;
        let mut reservation = self.capacity.reserve(&standings);
        match reservation.take(layout, inner.record.region_bytes) {
            Ok(()) => {
                reservation.promise();
                Ok(())
            }
            Err(full) => {
                let what = format!(
                    "server {} has {} left of the {} that region {region} of {} needs there",
                    self.context.cluster().servers[usize::from(full.server.0)].name,
                    bytes(full.left_bytes),
                    bytes(full.asked_bytes),
                    inner.record.path
                );
                Err(BeginError::Full(Some(full), what))
            }
        }
    }

    /// Removes the objects of a move that did not come to its end.
    pub(super) fn throw_away(&self, managed: &Arc<Managed>, region: RegionIndex, new: &RegionRecord) {
        let (managed, generation, layout) = (Arc::clone(managed), new.generation, new.layout.clone());
        let discard = Discard { managed, region, generation, layout, uses: Vec::new(), number: None };
        if self.discards.discard(&discard).is_err() {
            // Tried again until it is done, and at the next start.
            self.discards.add(discard);
        }
    }
}

pub(super) fn failed(refusal: Refusal) -> Outcome {
    Outcome::Failed(refusal.to_string())
}
