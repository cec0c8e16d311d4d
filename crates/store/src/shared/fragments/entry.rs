//! What an entry says: a range of a region's object on a disk, the slot that holds it, and its state.

use stripewise_layout::{ObjectOffset, RegionIndex};

pub(super) const STATE: u64 = 0xff;
pub(super) const ONE_VERSION: u64 = 1 << 8;
pub(super) const VERSIONS: u64 = 0xff_ffff << 8;
pub(super) const ONE_OCCUPANCY: u64 = 1 << 32;

/// What is in an entry's slot, and who may lead it out of that state; see the [module](super).
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
    pub(super) fn of(word: u64) -> Self {
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

    pub(super) fn of_bit(bit: u64) -> Self {
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
    pub(super) word: u64,
    /// Before it was changed by who saw it.
    pub(super) before: State,
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
