//! The entries and free slots of one log: they are found, changed, published and removed here.

use super::entry::{Class, DiskRange, OFFSET_LIMIT, ONE_OCCUPANCY, ONE_VERSION, STATE, Seen, State, VERSIONS};
use super::{ENTRY_WORDS, WAYS};
use crate::shared::marking::Word;
use stripewise_layout::{ObjectOffset, RegionIndex};

/// The entries and free slots of one log.
#[derive(Debug)]
pub struct Sets<'a, W> {
    entries: &'a [W],
    free: &'a [W],
    slot_bytes: u64,
}

impl<W> Clone for Sets<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<W> Copy for Sets<'_, W> {}

impl<'a, W: Word> Sets<'a, W> {
    /// `entries`: a multiple of [`WAYS`] x [`ENTRY_WORDS`] words. `free`: one bit for each slot, set if it is granted and free.
    /// `slot_bytes`: a power of two.
    #[must_use]
    pub fn new(entries: &'a [W], free: &'a [W], slot_bytes: u64) -> Self {
        Self { entries, free, slot_bytes }
    }

    /// Entries, used or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len() / ENTRY_WORDS
    }

    /// Length of a slot, a power of two.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    #[inline]
    pub(super) fn word(&self, number: usize) -> &'a W {
        &self.entries[number * ENTRY_WORDS]
    }

    fn set_of(&self, region: RegionIndex, granule: u64) -> usize {
        let mixed = (u64::from(region.0) << 40 ^ granule).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sets = (self.count() / WAYS) as u64;
        ((u128::from(mixed) * u128::from(sets)) >> 64) as usize
    }

    /// The entry if there is one and its range is readable together with its word.
    #[inline]
    pub(super) fn peek(&self, number: usize) -> Option<Seen> {
        let cell = self.word(number);
        loop {
            let word = cell.load();
            if matches!(State::of(word), State::Empty | State::Claimed) {
                return None;
            }
            let place = self.entries[number * ENTRY_WORDS + 1].load();
            let rest = self.entries[number * ENTRY_WORDS + 2].load();
            if cell.load() != word {
                continue;
            }
            let range = DiskRange {
                region: RegionIndex((place >> 44) as u32),
                offset: ObjectOffset(place & (OFFSET_LIMIT - 1)),
                length: (rest & 0x1f_ffff).min(self.slot_bytes),
            };
            // A slot beyond the log's end can only be another process's damage; nothing is read there.
            let slot = (rest >> 21 & 0xffff_ffff) as u32;
            if slot as usize >= self.free.len() * 64 {
                return None;
            }
            let (before, class) = (State::of(word), Class::of_bit(rest >> 53));
            return Some(Seen { number, word, before, range, slot, class });
        }
    }

    /// Every entry that has a range, in no order.
    pub fn all(self) -> impl Iterator<Item = Seen> + use<'a, W> {
        (0..self.count()).filter_map(move |number| self.peek(number))
    }

    /// Every entry with a range that overlaps this one.
    pub fn overlapping(&self, range: &DiskRange, mut visit: impl FnMut(Seen)) {
        if self.entries.is_empty() || range.length == 0 {
            return;
        }
        let first = range.offset.0.saturating_sub(self.slot_bytes - 1) / self.slot_bytes;
        let last = (range.end() - 1) / self.slot_bytes;
        if last - first >= (self.count() / WAYS) as u64 {
            self.all().filter(|seen| seen.range.overlaps(range)).for_each(visit);
            return;
        }
        for granule in first..=last {
            let set = self.set_of(range.region, granule);
            for number in set * WAYS..(set + 1) * WAYS {
                if let Some(seen) = self.peek(number)
                    && seen.range.overlaps(range)
                    && seen.range.offset.0 / self.slot_bytes == granule
                {
                    visit(seen);
                }
            }
        }
    }

    pub(super) fn overlaps(&self, range: &DiskRange) -> Vec<Seen> {
        let mut found = Vec::new();
        self.overlapping(range, |seen| found.push(seen));
        found
    }

    /// Whether the entry's slot has held the same range ever since it was seen.
    #[must_use]
    #[inline]
    pub fn still_holds(&self, seen: &Seen) -> bool {
        let word = self.word(seen.number).load();
        State::of(word).is_filled() && word >> 32 == seen.word >> 32
    }

    /// The entry's word goes to another state unless anybody changed it since it was seen.
    #[must_use]
    pub fn change(&self, seen: &Seen, to: State) -> Option<Seen> {
        let version = seen.word.wrapping_add(ONE_VERSION) & VERSIONS;
        let mut word = seen.word & !(VERSIONS | STATE) | version | to as u64;
        if to == State::Empty {
            word = word.wrapping_add(ONE_OCCUPANCY);
        }
        self.word(seen.number).compare_exchange(seen.word, word).then_some(Seen { word, before: seen.state(), ..*seen })
    }

    /// The broker's first step of writing back. The entry is looked at again where a writer changed it meanwhile, as it does with one that a dead broker left
    /// flushing: what earlier writes left there has to reach the disk all the same. `None`: it is not newer than the disk any more.
    #[must_use]
    pub fn begin_flushing(&self, seen: &Seen) -> Option<Seen> {
        let mut seen = *seen;
        loop {
            if let Some(flushing) = self.change(&seen, State::Flushing) {
                return Some(flushing);
            }
            let now = self.peek(seen.number)?;
            let is_same = now.range == seen.range && now.word >> 32 == seen.word >> 32 && now.state().is_newer();
            seen = is_same.then_some(now)?;
        }
    }

    /// Removes a clean or a pending entry. A clean one's slot is free then; a pending one's is its owner's.
    #[must_use]
    pub fn remove(&self, seen: &Seen) -> bool {
        debug_assert!(matches!(seen.state(), State::Clean | State::Pending));
        let is_removed = self.change(seen, State::Empty).is_some();
        if is_removed && seen.state() == State::Clean {
            self.free_slot(seen.slot);
        }
        is_removed
    }

    /// The owner of a pending entry has filled its slot. False: it was removed; the slot is still the owner's.
    #[must_use]
    pub fn declare(&self, seen: &Seen, filled: State) -> bool {
        self.change(seen, filled).is_some()
    }

    /// A slot that nobody has, unless none is left.
    #[must_use]
    pub fn take_slot(&self) -> Option<u32> {
        for (number, word) in self.free.iter().enumerate() {
            let mut bits = word.load();
            while bits != 0 {
                let bit = bits.trailing_zeros();
                if word.compare_exchange(bits, bits & !(1 << bit)) {
                    return Some(number as u32 * 64 + bit);
                }
                bits = word.load();
            }
        }
        None
    }

    /// Takes this slot if it is free.
    #[must_use]
    pub fn take_this_slot(&self, slot: u32) -> bool {
        let (word, bit) = (&self.free[slot as usize / 64], 1 << (slot % 64));
        loop {
            let bits = word.load();
            if bits & bit == 0 {
                return false;
            }
            if word.compare_exchange(bits, bits & !bit) {
                return true;
            }
        }
    }

    /// The slot may be taken by anybody from here on.
    pub fn free_slot(&self, slot: u32) {
        self.free[slot as usize / 64].fetch_or(1 << (slot % 64));
    }

    /// Slots that are granted and free.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        self.free.iter().map(|word| word.load().count_ones()).sum()
    }

    /// Frees the slots below `granted` that are neither free nor an entry's: those that the dead had in hand. Broker only, while nobody else is
    /// inside. Returns how many there were.
    pub fn regain_slots(&self, granted: u32) -> u32 {
        let mut has_entry = vec![0; self.free.len()];
        for seen in self.all() {
            has_entry[seen.slot as usize / 64] |= 1 << (seen.slot % 64);
        }
        let is_kept = |slot: &u32| {
            (has_entry[*slot as usize / 64] | self.free[*slot as usize / 64].load()) >> (slot % 64) & 1 == 1
        };
        let lost: Vec<u32> = (0..granted.min(self.free.len() as u32 * 64)).filter(|slot| !is_kept(slot)).collect();
        lost.iter().for_each(|slot| self.free_slot(*slot));
        lost.len() as u32
    }

    /// Publishes a pending entry with a slot, whatever else overlaps it. `None`: no way of the set or no slot is free.
    #[must_use]
    pub fn publish(&self, range: &DiskRange, class: Class) -> Option<Seen> {
        if self.entries.is_empty() || range.length > self.slot_bytes || range.end() > OFFSET_LIMIT {
            return None;
        }
        let set = self.set_of(range.region, range.offset.0 / self.slot_bytes);
        for number in set * WAYS..(set + 1) * WAYS {
            let cell = self.word(number);
            let word = cell.load();
            if State::of(word) != State::Empty {
                continue;
            }
            let claimed = (word & !(VERSIONS | STATE)).wrapping_add(ONE_OCCUPANCY)
                | word.wrapping_add(ONE_VERSION) & VERSIONS
                | State::Claimed as u64;
            if !cell.compare_exchange(word, claimed) {
                continue;
            }
            let Some(slot) = self.take_slot() else {
                // As below: it may not be this owner's any more.
                let _ = cell.compare_exchange(claimed, claimed & !STATE);
                return None;
            };
            self.entries[number * ENTRY_WORDS + 1].store(u64::from(range.region.0) << 44 | range.offset.0);
            self.entries[number * ENTRY_WORDS + 2].store(range.length | u64::from(slot) << 21 | (class as u64) << 53);
            let word = claimed & !STATE | State::Pending as u64;
            // Not a plain store: the broker may have taken a slow owner for a dead one.
            if !cell.compare_exchange(claimed, word) {
                self.free_slot(slot);
                return None;
            }
            return Some(Seen { number, word, before: State::Claimed, range: *range, slot, class });
        }
        None
    }

    /// Removes entries that are claimed as they were when `before` was taken by [`Self::claimed`]: all who were inside then are gone.
    pub fn remove_claimed(&self, before: &[(usize, u64)]) {
        for (number, word) in before {
            let _ = self.word(*number).compare_exchange(*word, word & !STATE);
        }
    }

    /// Entries whose owner prepares them, as (number, word).
    #[must_use]
    pub fn claimed(&self) -> Vec<(usize, u64)> {
        let words = (0..self.count()).map(|number| (number, self.word(number).load()));
        words.filter(|(_, word)| State::of(*word) == State::Claimed).collect()
    }
}
