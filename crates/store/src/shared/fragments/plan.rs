//! What a reader or a writer is to do with a range: the slot, the disk, or both.

use super::entry::{Class, DiskRange, Seen, State};
use super::sets::Sets;
use crate::shared::marking::Word;

/// Times that a writer tries to add an entry that others remove.
const MAX_TRIES: u32 = 3;

/// What a reader is to do. If it names slots, it first looks whether the region still has the place that the range is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadPlan {
    /// Read this slot.
    Slot(Seen),
    /// Read the disk, and lay the bytes of these slots over.
    Disk(Vec<Seen>),
}

/// What a writer is to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WritePlan {
    /// Write this slot, which the entry has already; if that fails, [`Sets::forsake`] it and ask again.
    Slot(Seen),
    /// Write this slot, then [`Sets::declare`] it dirty; if that fails, free the slot and ask again.
    Fill(Seen),
    /// Write these slots as far as they overlap, then the disk.
    Disk(Vec<Seen>),
}

/// What a writer may do beside writing the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteChoice {
    /// The disk only: the region moves, or is longer than small.
    Disk,
    /// An entry that is there.
    Present,
    /// A new entry too.
    Add(Class),
}

impl<W: Word> Sets<'_, W> {
    /// What to do to read `range`, inside a lane.
    #[must_use]
    pub fn plan_read(&self, range: &DiskRange) -> ReadPlan {
        let (mut whole, mut newer) = (None, Vec::new());
        self.overlapping(range, |seen| {
            if seen.state().is_filled() && seen.range.covers(range) {
                whole = Some(seen);
            } else if seen.state().is_newer() {
                newer.push(seen);
            }
        });
        match whole {
            Some(seen) => ReadPlan::Slot(seen),
            None => {
                newer.sort_unstable_by_key(|seen| seen.range.offset);
                ReadPlan::Disk(newer)
            }
        }
    }

    /// What to do to write `range`, inside a lane.
    #[must_use]
    pub fn plan_write(&self, range: &DiskRange, mut choice: WriteChoice) -> WritePlan {
        let mut tries = 0;
        'again: loop {
            let found = self.overlaps(range);
            if choice != WriteChoice::Disk
                && let [seen] = found[..]
                && seen.state().is_filled()
                && seen.range.covers(range)
            {
                match self.make_dirty(&seen) {
                    Some(seen) => return WritePlan::Slot(seen),
                    None => continue,
                }
            }
            if let WriteChoice::Add(class) = choice
                && found.is_empty()
            {
                tries += 1;
                match self.publish(range, class) {
                    Some(own) if self.alone(&own) => return WritePlan::Fill(own),
                    Some(_) if tries < MAX_TRIES => {}
                    _ => choice = WriteChoice::Present,
                }
                continue;
            }
            let mut newer = Vec::new();
            for seen in found {
                if seen.state().is_newer() {
                    match self.make_dirty(&seen) {
                        Some(seen) => newer.push(seen),
                        None => continue 'again,
                    }
                } else if !self.remove(&seen) {
                    continue 'again;
                }
            }
            newer.sort_unstable_by_key(|seen| seen.range.offset);
            return WritePlan::Disk(newer);
        }
    }

    /// Before the slot is written. Of one that is dirty the word is changed too, so that whoever forsakes it finds out.
    fn make_dirty(&self, seen: &Seen) -> Option<Seen> {
        self.change(seen, State::Dirty)
    }

    /// A writer could not write the slot of an entry that it made dirty. If it was clean before, the disk has its bytes, and it is removed, unless another writer or
    /// the broker came to it meanwhile. Returns whether it is gone; then the disk takes the write.
    #[must_use]
    pub fn forsake(&self, seen: &Seen) -> bool {
        let is_gone = seen.before == State::Clean && self.change(seen, State::Empty).is_some();
        if is_gone {
            self.free_slot(seen.slot);
        }
        is_gone
    }

    /// Whether no other entry overlaps one that was just published; others that are pending are removed. If not, it is taken back.
    #[must_use]
    pub fn alone(&self, own: &Seen) -> bool {
        loop {
            let mut others = self.overlaps(&own.range);
            others.retain(|seen| seen.number != own.number);
            if others.iter().any(|seen| seen.state().is_filled()) {
                self.take_back(own);
                return false;
            }
            if others.iter().all(|seen| self.remove(seen)) {
                return true;
            }
        }
    }

    /// The owner gives a pending entry up; its slot is free then.
    pub fn take_back(&self, own: &Seen) {
        let _ = self.remove(own);
        self.free_slot(own.slot);
    }
}
