//! Which small ranges of a disk's objects lie in a log on an SSD, and the order of operations that keeps them right.
//!
//! For each disk that holds parts of a file there is a *log*, an object on an SSD, cut into *slots* of one size; an *entry* says which range of which
//! region's object on the disk lies in which slot. Entries stand in sets: the set is the hash of region and granule (offset / slot size), so a range
//! is found by looking at the sets of the granules in which an entry that overlaps it can begin.
//!
//! | state | what is in the slot | who leads out of it |
//! |---|---|---|
//! | empty | nothing | a writer, or the broker copying in: claimed |
//! | claimed | being prepared; nobody else looks at it | its owner: pending |
//! | pending | being filled; nobody reads it | its owner, when it is filled: dirty (a writer) or clean (the broker); anybody: empty |
//! | clean | what the disk has | a writer: dirty, or empty; the broker: empty |
//! | dirty | what the disk will have | the broker: flushing; the writer that found it clean and could not write the slot: empty |
//! | flushing | as dirty, and being written back | a writer: dirty; the broker: clean, or dirty again |
//!
//! Why no byte is lost or old, with every operation here sequentially consistent. A process has taken its lane in the file's slots before it looks here,
//! so the broker can wait for those who were inside when it changed an entry ("drains").
//!
//! - *Readers* read the slot, or the disk with the bytes of dirty entries laid over, and look afterwards whether the entries still hold
//!   the same ranges (the occupancy in the word); if not, they begin again. So a slot may be used again at any time.
//! - *Writers* make an entry dirty before they touch the slot, and change the word of one that is dirty already. An entry becomes clean only by the broker that found it dirty, called it flushing, drained,
//!   read the slot and wrote the disk while nobody changed the word. So nobody is writing the slot of a clean entry, and it may go.
//! - *Writers of the disk* first remove what is clean or pending there, and write dirty entries' slots too, which stay dirty; so whatever the broker
//!   writes back meanwhile is written again. The slots come before the disk: a reader who looked before an entry was there reads the disk, and one
//!   who comes after it the slot, which must not be the older of the two.
//! - *Written back* means drained, read, written, and one at a time: of two at once, the later could make clean what the earlier then overwrites.
//! - *No range lies in two entries.* Who adds one publishes it as pending and then looks for others: of two that add at the same time at least one sees the
//!   other and removes it. The owner finds out when it wants to declare it filled.
//! - *Copying in:* the broker publishes the entry as pending, drains, and only then reads the disk. A writer that came later has seen the entry and removed it.
//! - *A region that moves* loses its entries before it is copied, and has none when its new place is published. Who came to read the old place may look
//!   here after that and find ranges of the new one. So who is to read slots looks at the region's word once more, after the entries, and begins again if
//!   the region has another place.
//! - *The dead* leave entries claimed or pending. When nobody is left inside who was there when the broker saw them, they are removed. Slots that
//!   they had in hand without an entry are found when nobody is inside ([`Sets::regain_slots`]).
//! - *`fsync`* needs to know whether anything is dirty that no flush has finished writing ([`Dirtied`]).
//!
//! The code is generic over [`Word`] so that a model checker runs exactly what the store runs.

pub mod hints;
pub mod table;

use super::marking::Word;
use stripewise_layout::{ObjectOffset, RegionIndex};

/// Entries of a set.
pub const WAYS: usize = 8;
/// Words of an entry: state, place, length and slot.
pub const ENTRY_WORDS: usize = 3;
/// Times that a writer tries to add an entry that others remove.
const MAX_TRIES: u32 = 3;

const STATE: u64 = 0xff;
const ONE_VERSION: u64 = 1 << 8;
const VERSIONS: u64 = 0xff_ffff << 8;
const ONE_OCCUPANCY: u64 = 1 << 32;

/// What is in an entry's slot, and who may lead it out of that state; see the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum State {
    /// Nothing: the entry may be claimed.
    Empty = 0,
    /// Being prepared by its owner.
    Claimed = 1,
    /// Published and being filled; nobody reads it.
    Pending = 2,
    /// The disk's bytes.
    Clean = 3,
    /// Bytes newer than the disk's.
    Dirty = 4,
    /// As dirty, while the broker writes them back.
    Flushing = 5,
}

impl State {
    #[inline]
    fn of(word: u64) -> Self {
        match word & STATE {
            1 => State::Claimed,
            2 => State::Pending,
            3 => State::Clean,
            4 => State::Dirty,
            5 => State::Flushing,
            _ => State::Empty,
        }
    }

    /// Whether the slot's bytes are those of the range.
    #[must_use]
    #[inline]
    pub fn is_filled(self) -> bool {
        matches!(self, State::Clean | State::Dirty | State::Flushing)
    }

    /// Whether the slot's bytes are newer than the disk's.
    #[must_use]
    #[inline]
    pub fn is_newer(self) -> bool {
        matches!(self, State::Dirty | State::Flushing)
    }
}

/// Why a small sub-request is one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// The first or last part of a longer request.
    Fragment = 0,
    /// A request of its own.
    Random = 1,
}

impl Class {
    /// In the order of their numbers.
    pub const ALL: [Class; 2] = [Class::Fragment, Class::Random];

    fn of_bit(bit: u64) -> Self {
        if bit & 1 == 0 { Class::Fragment } else { Class::Random }
    }
}

/// A range of a region's object on one disk.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DiskRange {
    /// The region whose object it is in.
    pub region: RegionIndex,
    /// Below 2^44.
    pub offset: ObjectOffset,
    /// In an entry at most the size of a slot, itself at most 1 MiB.
    pub length: u64,
}

impl DiskRange {
    /// The first byte behind the range.
    #[must_use]
    #[inline]
    pub fn end(&self) -> u64 {
        self.offset.0 + self.length
    }

    /// Whether both have a byte of one region in common.
    #[must_use]
    #[inline]
    pub fn overlaps(&self, other: &DiskRange) -> bool {
        self.region == other.region && self.offset.0 < other.end() && other.offset.0 < self.end()
    }

    /// Whether every byte of `other` is in this range.
    #[must_use]
    #[inline]
    pub fn covers(&self, other: &DiskRange) -> bool {
        self.region == other.region && self.offset.0 <= other.offset.0 && other.end() <= self.end()
    }
}

/// Largest offset in an object that an entry can name, exclusive.
pub const OFFSET_LIMIT: u64 = 1 << 44;

/// An entry as it was seen.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Of the entry.
    pub number: usize,
    word: u64,
    /// Before it was changed by who saw it.
    before: State,
    /// What the entry's slot holds, or is to hold.
    pub range: DiskRange,
    /// Number of the slot in its log.
    pub slot: u32,
    /// Why it is there.
    pub class: Class,
}

/// Equal are those that were seen alike, whoever changed them.
impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        (self.number, self.word, self.range, self.slot, self.class)
            == (other.number, other.word, other.range, other.slot, other.class)
    }
}

impl Eq for Seen {}

impl Seen {
    /// The entry's state when it was seen, or after it was changed by who holds this.
    #[must_use]
    #[inline]
    pub fn state(&self) -> State {
        State::of(self.word)
    }
}

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
    fn word(&self, number: usize) -> &'a W {
        &self.entries[number * ENTRY_WORDS]
    }

    fn set_of(&self, region: RegionIndex, granule: u64) -> usize {
        let mixed = (u64::from(region.0) << 40 ^ granule).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let sets = (self.count() / WAYS) as u64;
        ((u128::from(mixed) * u128::from(sets)) >> 64) as usize
    }

    /// The entry if there is one and its range is readable together with its word.
    #[inline]
    fn peek(&self, number: usize) -> Option<Seen> {
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

    fn overlaps(&self, range: &DiskRange) -> Vec<Seen> {
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

/// One word that tells `fsync` whether there may be bytes that only slots have.
///
/// A writer notes *after* it made an entry dirty and before its write returns. Were it before, a flush could begin between the two, miss the entry
/// and have taken the note. While a flush goes on the word is not zero, so that an `fsync` at that time waits for it.
#[derive(Debug)]
pub struct Dirtied<'a, W>(pub &'a W);

const NOTED: u64 = 1;
const BEING_FLUSHED: u64 = 2;

impl<W: Word> Dirtied<'_, W> {
    /// To be called after an entry was made dirty and before its write returns.
    #[inline]
    pub fn note(&self) {
        if self.0.load() != NOTED {
            self.0.store(NOTED);
        }
    }

    /// Whether a sync of the file has to flush first.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.0.load() != 0
    }

    /// Broker only, before it looks for entries to write back; one flush at a time. Whether there is anything that `fsync` needs; entries of the
    /// dead, who did not come to note them, may be dirty nevertheless.
    pub fn begin_flush(&self) -> bool {
        self.needs_flush() && self.0.swap(BEING_FLUSHED) != 0
    }

    /// Broker only, when every entry that was dirty has been written to its disk. Not after an error: the word still tells of it then.
    pub fn end_flush(&self) {
        let _ = self.0.compare_exchange(BEING_FLUSHED, 0);
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod tests;
