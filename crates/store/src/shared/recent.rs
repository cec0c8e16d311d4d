//! The most recent requests of a lane, for whoever watches what programs access.
//!
//! A ring takes 1 KiB. Its first word counts the requests noted so far. Its second word holds the number of the observation
//! (16 bits) and the count before that observation (48 bits). The last 63 requests follow, 16 bytes each; request n is entry n
//! modulo 63:
//!
//! | bits | what |
//! |---|---|
//! | 63 | offset in the file |
//! | 1 | low bit of the kind |
//! | 32 | time on a coarse clock of the host, in ms, modulo 2^32 |
//! | 1 | high bit of the kind |
//! | 31 | length in bytes |
//!
//! The kind is 0 for a read, and 1, 2 or 3 for a direct, buffered or synchronous write.
//!
//! Only who holds the lane writes, so nothing is added atomically. The watcher copies what is new and then looks at the number once more: what may
//! have been overwritten meanwhile is left out, and the number tells how much was missed. That is a seqlock: the writer's fence makes whoever
//! sees a part of a new entry also see the number from before it.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};
use stripewise_layout::{FileOffset, RequestKind};

/// Words of a ring.
pub const RING_WORDS: usize = 128;
const FIRST_AT: usize = 2;
const ENTRY_WORDS: usize = 2;
/// Requests of one lane between two looks that are believed.
const MAX_BETWEEN: u64 = 1 << 40;
const COUNT_BITS: u32 = 48;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const BYTES_BITS: u32 = 31;
const MAX_BYTES: u64 = (1 << BYTES_BITS) - 1;
/// Requests that a ring holds. The oldest of them may be just being overwritten, so one fewer can be read.
pub const KEPT: u64 = ((RING_WORDS - FIRST_AT) / ENTRY_WORDS) as u64;

/// One request, as it was noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Noted {
    /// Whether it read or wrote, and what a write waited for.
    pub kind: RequestKind,
    /// First byte of the file, below 2^63.
    pub offset: FileOffset,
    /// Bytes that it moved, below 2^31 as Linux has it.
    pub bytes: u32,
    /// When it was about to end, on a coarse clock, modulo 2^32.
    pub time_ms: u32,
}

impl Noted {
    fn to_words(self) -> [u64; 2] {
        let kind = self.kind.index() as u64;
        let length = u64::from(self.bytes) & MAX_BYTES;
        [self.offset.0 << 1 | kind & 1, u64::from(self.time_ms) << 32 | kind >> 1 << BYTES_BITS | length]
    }

    fn from_words([place, length]: [u64; 2]) -> Self {
        let kind = RequestKind::ALL[(length >> BYTES_BITS & 1) as usize * 2 + (place & 1) as usize];
        let bytes = (length & MAX_BYTES) as u32;
        Self { kind, offset: FileOffset(place >> 1), bytes, time_ms: (length >> 32) as u32 }
    }
}

/// The clock of [`Noted::time_ms`].
#[must_use]
#[inline]
pub fn now_ms() -> u32 {
    let time = clock_gettime(ClockId::MonotonicCoarse);
    (time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000) as u32
}

/// A word of a ring. The model checker that goes through this code has words of its own.
pub trait RingWord {
    /// A load that decides nothing by itself.
    fn peek(&self) -> u64;
    /// What was stored before the value is seen with it.
    fn load(&self) -> u64;
    /// A store that orders nothing.
    fn put(&self, value: u64);
    /// What is stored before is seen by whoever loads the value.
    fn publish(&self, value: u64);
}

impl RingWord for AtomicU64 {
    #[inline]
    fn peek(&self) -> u64 {
        self.load(Relaxed)
    }
    #[inline]
    fn load(&self) -> u64 {
        self.load(Acquire)
    }
    #[inline]
    fn put(&self, value: u64) {
        self.store(value, Relaxed);
    }
    #[inline]
    fn publish(&self, value: u64) {
        self.store(value, Release);
    }
}

/// The ring of one lane.
#[derive(Clone, Copy, Debug)]
pub struct Recent<'a, W = AtomicU64, const WORDS: usize = RING_WORDS> {
    words: &'a [W],
}

impl<'a, W: RingWord, const WORDS: usize> Recent<'a, W, WORDS> {
    const KEPT: u64 = ((WORDS - FIRST_AT) / ENTRY_WORDS) as u64;

    /// # Panics
    /// When there are not as many words as a ring has.
    #[must_use]
    pub fn new(words: &'a [W]) -> Self {
        assert_eq!(words.len(), WORDS);
        Self { words }
    }

    /// Requests noted so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.words[0].load()
    }

    fn entry(&self, number: u64) -> [&W; ENTRY_WORDS] {
        let at = FIRST_AT + (number % Self::KEPT) as usize * ENTRY_WORDS;
        [&self.words[at], &self.words[at + 1]]
    }

    /// To be called by who holds the lane, while requests are observed by that number.
    #[inline]
    pub fn note(&self, observation: u16, request: Noted) {
        let number = self.words[0].peek();
        if self.words[1].peek() >> COUNT_BITS != u64::from(observation) {
            self.words[1].put(u64::from(observation) << COUNT_BITS | (number & COUNT));
        }
        fence(Release);
        for (word, value) in self.entry(number).into_iter().zip(request.to_words()) {
            word.put(value);
        }
        self.words[0].publish(number.wrapping_add(1));
    }

    /// The first request of an observation; `None` if none was noted in it.
    #[must_use]
    pub fn first_of(&self, observation: u16) -> Option<u64> {
        // The count goes first: with what it counts comes what was stored before.
        let (count, begun) = (self.count(), self.words[1].peek());
        let first = begun & COUNT;
        (begun >> COUNT_BITS == u64::from(observation) && first < count).then_some(first)
    }

    /// Hands over what was noted from request number `from` on, in order. Returns the number to go on from, and how many were missed in between since
    /// they had been overwritten.
    pub fn read(&self, from: u64, mut see: impl FnMut(Noted)) -> (u64, u64) {
        let end = self.count();
        // Nothing new, or nonsense: nobody makes so many between two looks.
        if end <= from || end - from > MAX_BETWEEN {
            return (end, 0);
        }
        let first = from.max(end.saturating_add(1).saturating_sub(Self::KEPT));
        let copied: Vec<Noted> =
            (first..end).map(|number| Noted::from_words(self.entry(number).map(W::peek))).collect();
        fence(Acquire);
        let now = self.words[0].peek();
        let whole = first.max(now.saturating_add(1).saturating_sub(Self::KEPT)).min(end);
        copied.into_iter().skip((whole - first) as usize).for_each(&mut see);
        (end, whole - from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shuttle::sync::Arc;
    use shuttle::sync::atomic::AtomicU64 as CheckedU64;
    use std::sync::atomic::Ordering::SeqCst;

    impl RingWord for CheckedU64 {
        fn peek(&self) -> u64 {
            self.load(SeqCst)
        }
        fn load(&self) -> u64 {
            self.load(SeqCst)
        }
        fn put(&self, value: u64) {
            self.store(value, SeqCst);
        }
        fn publish(&self, value: u64) {
            self.store(value, SeqCst);
        }
    }

    /// A ring of four requests, so that the checker meets every overlap.
    const SHORT: usize = FIRST_AT + 4 * ENTRY_WORDS;

    /// A writer and a reader under the model checker, which knows sequential consistency only; without its second look at the number, the reader hands
    /// over what was overwritten under it.
    fn scenario(rechecks: bool) {
        const ALL: u64 = 9;
        let words: Arc<Vec<CheckedU64>> = Arc::new((0..SHORT).map(|_| CheckedU64::new(0)).collect());
        let written = Arc::clone(&words);
        let writer = shuttle::thread::spawn(move || {
            let recent = Recent::<'_, _, SHORT>::new(&written);
            (0..ALL).for_each(|number| recent.note(1, noted(number)));
        });
        let recent = Recent::<'_, _, SHORT>::new(&words);
        let (mut from, mut seen) = (0, 0);
        let mut observe = || {
            let mut expected = None;
            let (next, missed) = if rechecks {
                recent.read(from, |request| {
                    let number = request.offset.0 >> 20;
                    assert!(
                        request == noted(number) && *expected.get_or_insert(number) == number,
                        "torn or out of order"
                    );
                    expected = Some(number + 1);
                    seen += 1;
                })
            } else {
                let end = recent.count();
                let first = from.max((end + 1).saturating_sub(4));
                for number in first..end {
                    let request = Noted::from_words(recent.entry(number).map(RingWord::peek));
                    assert!(request == noted(number), "torn or out of order");
                    seen += 1;
                }
                (end, first - from)
            };
            seen += missed;
            from = next;
        };
        (0..16).for_each(|_| observe());
        writer.join().unwrap();
        observe();
        assert_eq!((from, seen), (ALL, ALL));
    }

    #[test]
    fn no_schedule_tears_or_loses_a_request() {
        shuttle::check_random(|| scenario(true), 2000);
        shuttle::check_pct(|| scenario(true), 2000, 3);
        let without = std::panic::catch_unwind(|| shuttle::check_random(|| scenario(false), 20_000));
        assert!(without.is_err(), "the checker finds what goes wrong without the second look");
    }

    fn ring() -> Vec<AtomicU64> {
        (0..RING_WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn noted(number: u64) -> Noted {
        let kind = RequestKind::ALL[(number % 4) as usize];
        let (bytes, time_ms) = (number as u32 ^ 0x5555, (number as u32).wrapping_mul(7));
        Noted { kind, offset: FileOffset(number << 20 | 5), bytes, time_ms }
    }

    proptest! {
        /// Against a list of all that was noted: each request is handed over once, in order, or counted as missed.
        #[test]
        fn what_is_noted_is_read_or_counted_as_missed(bursts in prop::collection::vec(0u64..200, 1..20)) {
            let words = ring();
            let recent: Recent<'_> = Recent::new(&words);
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
    fn the_largest_numbers_of_every_kind_come_back() {
        for kind in RequestKind::ALL {
            for (offset, bytes, time_ms) in [(0, 0, 0), (i64::MAX as u64, MAX_BYTES as u32, u32::MAX)] {
                let noted = Noted { kind, offset: FileOffset(offset), bytes, time_ms };
                assert_eq!(Noted::from_words(noted.to_words()), noted);
            }
        }
    }

    /// Whoever may write the file may write nonsense into its rings.
    #[test]
    fn nonsense_is_passed_over() {
        let words = ring();
        let recent: Recent<'_> = Recent::new(&words);
        for count in [u64::MAX, u64::MAX - 1, 1 << 60] {
            words[0].store(count, Relaxed);
            assert_eq!(recent.read(3, |request| panic!("{request:?}")), (count, 0));
        }
        words[0].store(u64::MAX, Relaxed);
        assert_eq!(recent.read(u64::MAX - 3, |_| {}).0, u64::MAX);
        assert_eq!(recent.first_of(0), Some(0));
        words[1].store(u64::MAX, Relaxed);
        let _ = recent.first_of(u16::MAX);
    }

    #[test]
    fn an_observation_begins_where_the_one_before_ended() {
        let words = ring();
        let recent: Recent<'_> = Recent::new(&words);
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
        let recent: Recent<'_> = Recent::new(&words);
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
