//! From disks to logs: ranges that a program read from its disk, and that were worth a place.
//!
//! Clients leave suggestions in memory that every user of the file may write, so each part of one is looked at before it is followed. It is
//! followed at once, while the server that has just read the range still has it in memory: iBridge's servers copy in what they have in hand, and here readers must not
//! write what others read. So an emulated disk takes no time for the second reading, and its SSD does for the write.

use super::Fragments;
use super::write_back::{Handles, Picked, log_name};
use crate::managed::Work;
use stripewise_layout::{Direction, ObjectOffset, RegionGeometry};
use stripewise_store::server::clock::wait_in_background;
use stripewise_store::server::{Due, ObjectName, ServerError};
use stripewise_store::shared::control::{FragmentMode, RegionState};
use stripewise_store::shared::fragments::hints::{Counter, Suggestion};
use stripewise_store::shared::fragments::table::{Log, tick};
use stripewise_store::shared::fragments::{Seen, State};
use stripewise_store::shared::marking::Motion;

/// What came of one suggestion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Followed {
    CopiedIn,
    /// The log has no slot or no entry left for it.
    NoSlot,
    /// It makes no sense, or not now.
    Not,
}

/// An entry that is being filled.
struct Filling<'a> {
    number: usize,
    log: Log<'a>,
    seen: Seen,
    object: ObjectName,
}

impl Fragments {
    /// Copies ranges in, one drain for all of them. Says of each what came of it.
    pub(super) fn copy_in(&self, _work: &mut Work, picked: &Picked<'_>, suggestions: &[Suggestion]) -> Vec<Followed> {
        let mut followed = vec![Followed::Not; suggestions.len()];
        let mut filling = Vec::new();
        for (number, suggestion) in suggestions.iter().enumerate() {
            let Some((log, object)) = self.sensible(picked, suggestion) else { continue };
            if is_overlapped(&log, suggestion, None) {
                continue;
            }
            let Some(seen) = log.sets.publish(&suggestion.range, suggestion.class) else {
                followed[number] = Followed::NoSlot;
                continue;
            };
            // Whoever adds one at the same time goes first.
            if is_overlapped(&log, suggestion, Some(&seen)) {
                log.sets.take_back(&seen);
                continue;
            }
            filling.push(Filling { number, log, seen, object });
        }
        let regions = || filling.iter().map(|filling| filling.seen.range.region);
        let (Some(first), Some(last)) = (regions().min(), regions().max()) else { return followed };
        self.context.step("fragments: copying in");
        let left = self.write_back.wait_for(picked, self.quiescing.writers_inside(picked.managed, first, last));
        let is_drained = |region| !left.iter().any(|lane| lane.what.first <= region && region <= lane.what.last);
        filling.retain(|filling| {
            let is_drained = is_drained(filling.seen.range.region);
            if !is_drained {
                filling.log.sets.take_back(&filling.seen);
            }
            is_drained
        });
        let (mut handles, mut due) = (Handles::default(), None);
        let mut filled = Vec::with_capacity(filling.len());
        for Filling { number, log, seen, object } in &filling {
            match self.fill(picked, &suggestions[*number], (log, seen), *object, &mut handles) {
                Ok(done) => {
                    due = due.max(done);
                    filled.push((number, log, seen));
                }
                Err(_) => log.sets.take_back(seen),
            }
        }
        due.inspect(|due| wait_in_background(*due));
        self.context.step("fragments: copied in");
        for (number, log, seen) in filled {
            if log.sets.declare(seen, State::Clean) {
                followed[*number] = Followed::CopiedIn;
                picked.logs.hints.touch(suggestions[*number].disk, seen, tick());
                picked.logs.hints.count(suggestions[*number].disk, Counter::CopiedIn, 1);
            } else {
                log.sets.free_slot(seen.slot);
            }
        }
        followed
    }

    /// The log and the disk's object, if the suggestion is of a range that the file has and that stays where it is.
    fn sensible<'a>(&self, picked: &Picked<'a>, suggestion: &Suggestion) -> Option<(Log<'a>, ObjectName)> {
        let (managed, Suggestion { disk, range, .. }) = (picked.managed, suggestion);
        let log = picked.logs.table.log(*disk)?;
        let RegionState::Placed { view, motion: Motion::Still, .. } = managed.control.regions().get(range.region)
        else {
            return None;
        };
        let object = self.write_back.object_of(managed, *disk, range)?;
        let turn = view.stripes().iter().position(|stripe| stripe.server == *disk)?;
        let geometry = RegionGeometry::new(managed.control.region_bytes());
        let used = geometry.used_bytes(range.region, managed.extent.size_bytes());
        let is_whole = range.length <= log.sets.slot_bytes() && range.end() <= view.object_bytes(turn, used);
        let is_wanted = managed.control.notices().fragments() == FragmentMode::On && !self.drained.is_drained(log.on);
        (is_whole && is_wanted).then_some((log, object))
    }

    pub(super) fn fill(
        &self,
        picked: &Picked<'_>,
        suggestion: &Suggestion,
        (log, seen): (&Log<'_>, &Seen),
        object: ObjectName,
        handles: &mut Handles,
    ) -> Result<Due, ServerError> {
        let (disk, range) = (suggestion.disk, seen.range);
        let mut buffer = vec![0; range.length as usize];
        let handle = handles.get(&self.write_back, picked, disk, object, false)?;
        // Where the object ends there are zeros.
        self.write_back.read_whole(disk, handle, range.offset, &mut buffer)?;
        let name = log_name(picked.managed, disk, log);
        let place = ObjectOffset(u64::from(seen.slot) * log.sets.slot_bytes());
        let due = self.write_back.reserve_for(picked, log.on, Direction::Write, name, (place, range.length));
        let handle = handles.get(&self.write_back, picked, log.on, name, true)?;
        self.write_back.write_whole(log.on, handle, place, &buffer)?;
        Ok(due)
    }
}

fn is_overlapped(log: &Log<'_>, suggestion: &Suggestion, own: Option<&Seen>) -> bool {
    let mut found = false;
    log.sets.overlapping(&suggestion.range, |seen| found |= own.is_none_or(|own| own.number != seen.number));
    found
}
