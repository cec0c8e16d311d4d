//! The order of operations that lets a region move while programs write it.
//!
//! A region word tells in its state byte whether the region is *placed*, *moving* or *sealed*; generation and layout in it are those of the old place
//! until the move is published. While it moves, writers go on writing the old place and *mark* the chunks they write in the bitmap of the
//! move's slot; the mover copies what is marked until little is left, seals the region, waits for the writers inside, copies the rest and publishes the new
//! place. Writers never touch the new place, so nothing is written twice, and a writer that dies leaves at most a mark.
//!
//! Why no byte is lost, with every operation here sequentially consistent:
//!
//! - *Lane, then word; word, then lanes.* A writer stores its lane before it loads the word; the mover changes the word before it reads the lanes. So a
//!   writer that did not see "moving" stands in a lane that the mover waits for before it copies the first byte, and one that did not see "sealed" in a lane
//!   that it waits for before it takes the last marks.
//! - *Mark, data, mark.* The mover clears a mark before it reads the chunk. Data that came after that read is marked again after it, and the second mark is
//!   set before the lane is freed, so it is there when the seal has drained.
//! - *The dead.* A writer may die between data and second mark. Whoever dies with a write lane taken is found when the lanes are drained: then
//!   everything is copied again. A process that takes over a dead one's entry in the table of lanes counts up *forgotten* before it clears
//!   the lanes ([`super::slots`]); a mover that finds that number changed after the drain does the same.
//!
//! A region with *replicas* (further copies that readers may use) has a state of its own. A writer that sees it touches nothing: it has the replicas
//! forgotten first, durably, after which the region is placed like any other. So replicas only ever stand beside a place that nobody
//! is writing, and they are made as a move is: marked, sealed, drained, and published by the word that lets writers in again.
//!
//! The code is generic over [`Word`] so that a model checker runs exactly what the store runs.

use std::ops::RangeInclusive;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// 64 bits that processes share. All operations but [`Word::peek`] are sequentially consistent.
pub trait Word {
    /// The present value.
    fn load(&self) -> u64;
    /// A load that decides nothing by itself.
    fn peek(&self) -> u64;
    /// Sets the value.
    fn store(&self, value: u64);
    /// Sets these bits too; returns the value before.
    fn fetch_or(&self, bits: u64) -> u64;
    /// Sets the value; returns the one before.
    fn swap(&self, value: u64) -> u64;
    /// Replaces `current` by `new` if it stands there; says whether it did.
    fn compare_exchange(&self, current: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        self.load(SeqCst)
    }
    #[inline]
    fn peek(&self) -> u64 {
        self.load(Relaxed)
    }
    #[inline]
    fn store(&self, value: u64) {
        self.store(value, SeqCst);
    }
    #[inline]
    fn fetch_or(&self, bits: u64) -> u64 {
        self.fetch_or(bits, SeqCst)
    }
    #[inline]
    fn swap(&self, value: u64) -> u64 {
        self.swap(value, SeqCst)
    }
    #[inline]
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, SeqCst, SeqCst).is_ok()
    }
}

/// Regions of one file that move at the same time.
pub const MOVE_SLOTS: u8 = 64;
/// Chunks of a region, the unit of marking, at most.
pub const MAX_CHUNKS: usize = 1024;
/// Words of one move's bitmap.
pub const MARK_WORDS: usize = MAX_CHUNKS / 64;

const STATE: u64 = 0xff;
const PLACED: u64 = 1;
const REPLICATED: u64 = 2;
const NARROW: u64 = 3;
const MOVING: u64 = 64;
const SEALED: u64 = 128;

/// The number of uses in a lane's word, which makes no two of them look alike; the rest is what the lane is used for, 0: it is free.
pub const LANE_USES: u64 = 0x3f_ffff << 40;
const ONE_USE: u64 = 1 << 40;

/// Occupies a lane if it is free, before the gate and any region word are looked at. Returns the word that frees it.
#[inline]
pub fn occupy<W: Word>(lane: &W, what: u64) -> Option<u64> {
    let before = lane.peek();
    if before & !LANE_USES != 0 {
        return None;
    }
    let free = before.wrapping_add(ONE_USE) & LANE_USES;
    lane.compare_exchange(before, what | free).then_some(free)
}

/// What the state byte of a region word says of moving. Of an absent region too: it is still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Motion {
    /// It does not move, and has no replicas.
    Still,
    /// Still, and there are replicas that equal the place: readers may choose, writers have the replicas forgotten first.
    Replicated,
    /// Writers mark in this move slot.
    Moving(u8),
    /// Writers wait.
    Sealed(u8),
}

impl Motion {
    /// What the state byte of `word` says; unknown bytes below 64 are still.
    #[must_use]
    #[inline]
    pub fn of(word: u64) -> Self {
        let state = word & STATE;
        if state < MOVING {
            if state == REPLICATED { Motion::Replicated } else { Motion::Still }
        } else if state < SEALED {
            Motion::Moving((state - MOVING) as u8)
        } else {
            Motion::Sealed((state - SEALED) as u8 % MOVE_SLOTS)
        }
    }

    /// The word of a region that has a place, with this state.
    #[must_use]
    pub fn in_word(self, word: u64) -> u64 {
        let state = match self {
            Motion::Still => PLACED,
            Motion::Replicated => REPLICATED,
            Motion::Moving(slot) => MOVING + u64::from(slot),
            Motion::Sealed(slot) => SEALED + u64::from(slot),
        };
        word & !STATE | state
    }
}

/// Whether the word is that of a still region that has no object but its first stripe's.
#[must_use]
#[inline]
pub fn is_narrow(word: u64) -> bool {
    word & STATE == NARROW
}

/// The word of a region that has a place and is narrow.
#[must_use]
pub fn narrow_word(word: u64) -> u64 {
    word & !STATE | NARROW
}

/// Bytes of a chunk: the smallest multiple of 4 KiB by which a region has at most [`MAX_CHUNKS`].
#[must_use]
pub fn chunk_bytes(region_bytes: u64) -> u64 {
    region_bytes.div_ceil(MAX_CHUNKS as u64).next_multiple_of(4096)
}

/// The chunks that `[offset, offset + length)` of a region touches; `length` is not 0.
#[must_use]
pub fn chunks_of(region_bytes: u64, offset: u64, length: u64) -> RangeInclusive<usize> {
    let chunk = chunk_bytes(region_bytes);
    (offset / chunk) as usize..=((offset + length - 1) / chunk) as usize
}

/// One move's bitmap.
#[derive(Debug)]
pub struct Marks<'a, W>(&'a [W]);

impl<W> Clone for Marks<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<W> Copy for Marks<'_, W> {}

impl<'a, W: Word> Marks<'a, W> {
    /// Over as many words as the chunks need, at most [`MARK_WORDS`].
    #[must_use]
    pub fn new(words: &'a [W]) -> Self {
        Self(words)
    }

    /// Marks chunks; those beyond the bitmap are none.
    pub fn mark(&self, chunks: RangeInclusive<usize>) {
        let (first, last) = (*chunks.start(), (*chunks.end()).min(self.0.len() * 64 - 1));
        for (number, word) in self.0.iter().enumerate().take(last / 64 + 1).skip(first / 64) {
            let from = first.saturating_sub(number * 64);
            let to = (last - number * 64).min(63);
            word.fetch_or(u64::MAX << from & u64::MAX >> (63 - to));
        }
    }

    /// Marks the chunks whose bits are set, as [`Self::take`] returns them; bits beyond the bitmap are none.
    pub fn add(&self, taken: &[u64]) {
        for (word, bits) in self.0.iter().zip(taken).filter(|(_, bits)| **bits != 0) {
            word.fetch_or(*bits);
        }
    }

    /// A writer's part, in its lane, having loaded a word that says "moving": marks, lets `write` change the old place, marks again.
    pub fn write<T>(&self, chunks: RangeInclusive<usize>, write: impl FnOnce() -> T) -> T {
        self.mark(chunks.clone());
        let result = write();
        self.mark(chunks);
        result
    }

    /// The mover's part: takes all marks. What it reads from the old place afterwards is what the marks are for.
    #[must_use]
    pub fn take(&self) -> [u64; MARK_WORDS] {
        let mut taken = [0; MARK_WORDS];
        for (taken, word) in taken.iter_mut().zip(self.0) {
            // Seldom set in late rounds: a load spares the writers' cache line.
            if word.load() != 0 {
                *taken = word.swap(0);
            }
        }
        taken
    }

    /// How many chunks are marked now.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.load().count_ones()).sum()
    }
}

/// The mover's part: the region begins to move. Everything is yet to be copied; drain the lanes next. `word` holds the region's place.
pub fn begin<W: Word>(word: &W, marks: Marks<'_, W>, chunks: usize, slot: u8) {
    marks.mark(0..=chunks.saturating_sub(1));
    word.store(Motion::Moving(slot).in_word(word.load()));
}

/// The same on a host that the mover is not on: what is marked here are this host's writes alone.
pub fn follow<W: Word>(word: &W, marks: Marks<'_, W>, slot: u8) -> bool {
    let _ = marks.take();
    exchange(word, Motion::Still, Motion::Moving(slot))
}

/// Writers wait from here on, but for those inside; drain the lanes next. False: the move was abandoned.
#[must_use]
pub fn seal<W: Word>(word: &W, slot: u8) -> bool {
    exchange(word, Motion::Moving(slot), Motion::Sealed(slot))
}

/// Lets writers in again, which mark as before. False: the move was abandoned.
#[must_use]
pub fn unseal<W: Word>(word: &W, slot: u8) -> bool {
    exchange(word, Motion::Sealed(slot), Motion::Moving(slot))
}

/// The region stays where it is, unless it does not move in this slot any more.
pub fn give_up<W: Word>(word: &W, slot: u8) -> bool {
    exchange(word, Motion::Moving(slot), Motion::Still) || exchange(word, Motion::Sealed(slot), Motion::Still)
}

/// The word changes by the broker's threads only, and only by the one whose move it is or one that ends the move.
fn exchange<W: Word>(word: &W, from: Motion, to: Motion) -> bool {
    let before = word.load();
    Motion::of(before) == from && word.compare_exchange(before, to.in_word(before))
}

#[cfg(test)]
mod interleavings;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn states_are_told_apart() {
        let place = 0xdead_beef_0012_3401;
        let moving = [Motion::Moving(0), Motion::Moving(63), Motion::Sealed(0), Motion::Sealed(63)];
        for motion in [Motion::Still, Motion::Replicated].into_iter().chain(moving) {
            let word = motion.in_word(place);
            assert_eq!((Motion::of(word), Motion::Still.in_word(word)), (motion, place));
        }
        assert_eq!(Motion::of(0), Motion::Still);
    }

    #[test]
    fn regions_of_any_size_have_chunks_that_fit() {
        for region_bytes in [4096, 8192, 65_536, 4 << 20, (4 << 20) + 4096, 64 << 20, 1 << 40] {
            let last = *chunks_of(region_bytes, 0, region_bytes).end();
            assert!(last < MAX_CHUNKS && chunk_bytes(region_bytes).is_multiple_of(4096), "{region_bytes}");
        }
        assert_eq!(chunk_bytes(64 << 20), 64 << 10);
    }

    proptest! {
        #[test]
        fn marks_are_bits_of_chunks(ranges in prop::collection::vec((0usize..1024, 0usize..300), 0..6)) {
            let words: Vec<AtomicU64> = (0..MARK_WORDS).map(|_| AtomicU64::new(0)).collect();
            let marks = Marks::new(&words);
            let mut model = [false; MAX_CHUNKS];
            for (first, count) in ranges {
                let last = (first + count).min(MAX_CHUNKS - 1);
                marks.mark(first..=first + count);
                model[first..=last].fill(true);
            }
            prop_assert_eq!(marks.count() as usize, model.iter().filter(|marked| **marked).count());
            let taken = marks.take();
            for (chunk, marked) in model.iter().enumerate() {
                prop_assert_eq!(taken[chunk / 64] >> (chunk % 64) & 1 == 1, *marked);
            }
            prop_assert_eq!(marks.count(), 0);
        }
    }
}
