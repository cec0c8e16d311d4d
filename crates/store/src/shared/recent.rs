//! The most recent requests of a lane, for whoever watches what programs access.
//!
//! A ring of 1 KiB behind the table of lanes: how many requests were noted so far (8 bytes), the number of the observation (16 bits) with how many had
//! been noted before it (48), then the last 63 of them, 16 bytes each:
//!
//! | bits | what |
//! |---|---|
//! | 63 | offset in the file |
//! | 1 | 1: a write |
//! | 32 | time on a coarse clock of the host, in ms, modulo 2^32 |
//! | 32 | length in bytes |
//!
//! Only who holds the lane writes, so nothing is added atomically. The watcher copies what is new and then looks at the number once more: what may
//! have been overwritten meanwhile is left out, and the number tells how much was missed. That is a seqlock: the writer's fence makes whoever
//! sees a part of a new entry also see the number from before it.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use stripewise_layout::{Direction, FileOffset};

/// Words of a ring.
pub const RING_WORDS: usize = 128;
const FIRST_AT: usize = 2;
const ENTRY_WORDS: usize = 2;
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
/// Requests that a ring holds. The oldest of them may be just being overwritten, so one fewer can be read.
pub const KEPT: u64 = ((RING_WORDS - FIRST_AT) / ENTRY_WORDS) as u64;

/// One request, as it was noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    pub direction: Direction,
    pub offset: FileOffset,
    /// Bytes that it moved.
    pub bytes: u32,
    /// When it was about to end, on a coarse clock, modulo 2^32.
    pub time_ms: u32,
}

impl Noted {
    fn to_words(self) -> [u64; 2] {
        [
            self.offset.0 << 1 | u64::from(self.direction == Direction::Write),
            u64::from(self.time_ms) << 32 | u64::from(self.bytes),
        ]
    }

    fn from_words([place, length]: [u64; 2]) -> Self {
        let direction = if place & 1 == 1 { Direction::Write } else { Direction::Read };
        Self { direction, offset: FileOffset(place >> 1), bytes: length as u32, time_ms: (length >> 32) as u32 }
    }
}

/// The clock of [`Noted::time_ms`].
#[must_use]
#[inline]
pub fn now_ms() -> u32 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    (time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000) as u32
}

/// The ring of one lane.
#[derive(Clone, Copy, Debug)]
pub struct Recent<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Recent<'a> {
    /// # Panics
    /// When there are not [`RING_WORDS`] words.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert_eq!(words.len(), RING_WORDS);
        Self { words }
    }

    /// Requests noted so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words[0].load(Acquire)
    }

    fn entry(&self, number: u64) -> [&AtomicU64; 2] {
        let at = FIRST_AT + (number % KEPT) as usize * ENTRY_WORDS;
        [&self.words[at], &self.words[at + 1]]
    }

    /// To be called by who holds the lane, while requests are observed by that number.
    #[inline]
    pub fn note(&self, observation: u16, request: Noted) {
        let number = self.words[0].load(Relaxed);
        if self.words[1].load(Relaxed) >> COUNT_BITS != u64::from(observation) {
            self.words[1].store(u64::from(observation) << COUNT_BITS | (number & COUNT), Relaxed);
        }
        fence(Release);
        for (word, value) in self.entry(number).into_iter().zip(request.to_words()) {
            word.store(value, Relaxed);
        }
        self.words[0].store(number.wrapping_add(1), Release);
    }

    /// The first request of an observation; `None` if none was noted in it.
    #[must_use]
    pub fn first_of(&self, observation: u16) -> Option<u64> {
        // The count goes first: with what it counts comes what was stored before.
        let (count, begun) = (self.count(), self.words[1].load(Relaxed));
        let first = begun & COUNT;
        (begun >> COUNT_BITS == u64::from(observation) && first < count).then_some(first)
    }

    /// Hands over what was noted from request number `from` on, in order. Returns the number to go on from, and how many were missed in between since
    /// they had been overwritten.
    pub fn read(&self, from: u64, mut see: impl FnMut(Noted)) -> (u64, u64) {
        let end = self.count();
        // Nothing new; or another ring than before.
        if end <= from {
            return (end, 0);
        }
        let first = from.max((end + 1).saturating_sub(KEPT));
        let copied: Vec<Noted> =
            (first..end).map(|number| Noted::from_words(self.entry(number).map(|word| word.load(Relaxed)))).collect();
        fence(Acquire);
        let now = self.words[0].load(Relaxed);
        let whole = first.max((now + 1).saturating_sub(KEPT)).min(end);
        copied.into_iter().skip((whole - first) as usize).for_each(&mut see);
        (end, whole - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ring() -> Vec<AtomicU64> {
        (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn noted(number: u64) -> Noted {
        let direction = if number.is_multiple_of(3) { Direction::Write } else { Direction::Read };
        let (bytes, time_ms) = (number as u32 ^ 0x5555, (number as u32).wrapping_mul(7));
        Noted { direction, offset: FileOffset(number << 20 | 5), bytes, time_ms }
    }

    proptest! {
        /// Against a list of all that was noted: each request is handed over once, in order, or counted as missed.
        #[test]
        fn what_is_noted_is_read_or_counted_as_missed(bursts in prop::collection::vec(0u64..200, 1..20)) {
            let words = ring();
            let recent = Recent::new(&words);
            let (mut all, mut from) = (Vec::new(), 0);
            for burst in bursts {
                for _ in 0..burst {
                    let request = noted(all.len() as u64);
                    recent.note(1, request);
                    all.push(request);
                }
                let mut seen = Vec::new();
                let before = from;
                let (next, missed) = recent.read(from, |request| seen.push(request));
                from = next;
                prop_assert_eq!(next, all.len() as u64);
                prop_assert_eq!(missed, burst.saturating_sub(KEPT - 1));
                prop_assert_eq!(&seen[..], &all[(before + missed) as usize..]);
            }
        }
    }

    #[test]
    fn an_observation_begins_where_the_one_before_ended() {
        let words = ring();
        let recent = Recent::new(&words);
        assert_eq!(recent.first_of(0), None);
        (0..100).for_each(|number| recent.note(7, noted(number)));
        assert_eq!((recent.first_of(7), recent.first_of(8)), (Some(0), None));
        (100..103).for_each(|number| recent.note(8, noted(number)));
        assert_eq!((recent.first_of(7), recent.first_of(8)), (None, Some(100)));
    }

    /// No entry that was half overwritten is handed over, however writer and reader interleave.
    #[test]
    fn nothing_torn_is_read_beside_a_writer() {
        let words = ring();
        let recent = Recent::new(&words);
        const ALL: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..ALL).for_each(|number| recent.note(1, noted(number))));
            let (mut from, mut seen, mut missed) = (0, 0, 0);
            while from < ALL {
                let mut last = None;
                let (next, lost) = recent.read(from, |request| {
                    let number = request.offset.0 >> 20;
                    assert_eq!(request, noted(number));
                    assert!(number >= from && last.is_none_or(|last| number == last + 1));
                    last = Some(number);
                    seen += 1;
                });
                (from, missed) = (next, missed + lost);
            }
            assert_eq!(seen + missed, ALL);
        });
    }
}
