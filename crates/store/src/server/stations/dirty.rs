//! What buffered writes have left dirty on the emulated servers: for each server a log of page ranges in shared memory.
//!
//! Whoever writes back takes records out of the log, all or those of an object. A record is 32 bytes: a sequence word, file, region and generation,
//! first page and pages. Writers claim the record behind the last one by compare-and-swap, fill it, and publish it by its sequence word;
//! a record is taken by one compare-and-swap of that word, so by one process only. No lock is held: a record that was claimed and not published when the
//! log is full is *skipped*. Its writer may have been killed, and its place is lost, or stopped: it may yet fill the record, so nobody else uses
//! that place before the writer has given it back. A process killed after it took records leaves a device that was busy for less than it should
//! have been.

use super::{Nanos, Stations};
use crate::server::ObjectName;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use stripewise_layout::{FileId, Generation, RegionIndex, ServerId};

/// Records of a server's log. Half of them are the most that stays dirty: 32 MiB in pages that are written one by one.
const RECORDS: u64 = 1 << 14;
const RECORD_BYTES: usize = 32;
pub(super) const LOG_BYTES: usize = RECORDS as usize * RECORD_BYTES;
const PAGE_BYTES: u64 = 4096;

const HEAD: usize = 512;
const TAIL: usize = 520;
const DIRTY_PAGES: usize = 528;
const LAST_END: usize = 536;
const END_BEFORE: usize = 544;

const PUBLISHED: u64 = 1;
const TAKEN: u64 = 2;
const SKIPPED: u64 = 3;

/// The sequence word of record number `number` in a state.
fn sequence(number: u64, state: u64) -> u64 {
    number.wrapping_add(1) << 2 | state
}

/// Whether the record number `number` may be filled, by what its place holds: nothing, or an earlier record that was taken.
fn is_free(found: u64, number: u64) -> bool {
    found == 0 || (found & 3 == TAKEN && found >> 2 <= number)
}

/// Whether the record number `number` counts no more: taken, or its place is lost.
fn is_over(found: u64, number: u64) -> bool {
    found == sequence(number, TAKEN) || (found & 3 == SKIPPED && found >> 2 <= number + 1)
}

/// Pages of an object that one buffered write made dirty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirtyPages {
    pub(crate) object: ObjectName,
    pub(crate) first: u32,
    pub(crate) count: u32,
}

impl DirtyPages {
    /// The whole pages that hold a range, which is not empty; `None` of an object too long to be emulated so.
    pub(crate) fn of(object: ObjectName, offset: u64, length: u64) -> Option<Self> {
        let (first, end) = (offset / PAGE_BYTES, offset.checked_add(length)?.div_ceil(PAGE_BYTES));
        u32::try_from(end).ok()?;
        Some(Self { object, first: first as u32, count: (end - first) as u32 })
    }

    pub(crate) fn end(&self) -> u32 {
        self.first.saturating_add(self.count)
    }
}

/// Bytes of pages.
pub(crate) fn bytes_of(pages: u32) -> u64 {
    u64::from(pages) * PAGE_BYTES
}

/// The writer of record number `number` will not fill it any more: if it was skipped, others may use its place.
fn give_back(state: &AtomicU64, number: u64) {
    let skipped = sequence(number, SKIPPED);
    let _ = state.compare_exchange(skipped, sequence(number, TAKEN), AcqRel, Acquire);
}

impl Stations {
    fn record(&self, server: ServerId, number: u64) -> Option<[&AtomicU64; 4]> {
        let at = self.logs_at() + usize::from(server.0) * LOG_BYTES + (number % RECORDS) as usize * RECORD_BYTES;
        let is_there = self.map.is_reached(at, RECORD_BYTES);
        is_there.then(|| std::array::from_fn(|word| self.map.word(at + word * 8)))
    }

    /// Notes what a buffered write leaves dirty; false if there is no record left for it.
    pub(crate) fn note_dirty(&self, server: ServerId, pages: &DirtyPages) -> bool {
        // Each place is lost once at most.
        (0..RECORDS).find_map(|_| self.fill_next(server, pages)).unwrap_or(false)
    }

    /// The same with the next record; `None` if that cannot be used, and another may be.
    fn fill_next(&self, server: ServerId, pages: &DirtyPages) -> Option<bool> {
        let (head, tail) = (self.server_word(server, HEAD), self.server_word(server, TAIL));
        let mut number = head.load(Acquire);
        loop {
            if number.wrapping_sub(tail.load(Acquire)) >= RECORDS || self.record(server, number).is_none() {
                return Some(false);
            }
            match head.compare_exchange_weak(number, number.wrapping_add(1), AcqRel, Acquire) {
                Ok(_) => break,
                Err(found) => number = found,
            }
        }
        let Some([state, file, place, range]) = self.record(server, number) else { return Some(false) };
        let before = state.load(Acquire);
        if !is_free(before, number) {
            // Skipped before it was filled, or another writer's place.
            give_back(state, number);
            return None;
        }
        let ObjectName { file: of, region, generation } = pages.object;
        file.store(of.0, Relaxed);
        place.store(u64::from(region.0) << 32 | u64::from(generation.0), Relaxed);
        range.store(u64::from(pages.first) << 32 | u64::from(pages.count), Relaxed);
        // Counted first: who takes it subtracts it.
        self.server_word(server, DIRTY_PAGES).fetch_add(pages.count.into(), Relaxed);
        if state.compare_exchange(before, sequence(number, PUBLISHED), AcqRel, Relaxed).is_ok() {
            return Some(true);
        }
        self.server_word(server, DIRTY_PAGES).fetch_sub(pages.count.into(), Relaxed);
        give_back(state, number);
        None
    }

    /// Whether more than so many bytes are dirty, or half of the log is in use.
    pub(crate) fn is_dirty_beyond(&self, server: ServerId, bytes: u64) -> bool {
        let read = |offset| self.server_word(server, offset).load(Acquire);
        read(DIRTY_PAGES).saturating_mul(PAGE_BYTES) > bytes || read(HEAD).wrapping_sub(read(TAIL)) > RECORDS / 2
    }

    /// Takes out what is dirty of the objects that are wanted, in the order in which it was written. From a log that is full, records that nobody published
    /// go too.
    pub(crate) fn take_dirty(&self, server: ServerId, wanted: impl Fn(&ObjectName) -> bool) -> Vec<DirtyPages> {
        let tail = self.server_word(server, TAIL);
        // The tail first, since it stays behind the head.
        let first = tail.load(Acquire);
        let head = self.server_word(server, HEAD).load(Acquire);
        let mut taken = Vec::new();
        let numbers = || (0..head.wrapping_sub(first).min(RECORDS)).map(|ahead| first.wrapping_add(ahead));
        let is_full = head.wrapping_sub(first) >= RECORDS;
        for number in numbers() {
            let Some([state, file, place, range]) = self.record(server, number) else { break };
            let found = state.load(Acquire);
            if found == sequence(number, PUBLISHED) {
                let (file, place, range) = (file.load(Relaxed), place.load(Relaxed), range.load(Relaxed));
                let (region, generation) = (RegionIndex((place >> 32) as u32), Generation(place as u32));
                let object = ObjectName { file: FileId(file), region, generation };
                let is_own =
                    wanted(&object) && state.compare_exchange(found, sequence(number, TAKEN), AcqRel, Relaxed).is_ok();
                if is_own {
                    taken.push(DirtyPages { object, first: (range >> 32) as u32, count: range as u32 });
                }
            } else if is_full && is_free(found, number) {
                let _ = state.compare_exchange(found, sequence(number, SKIPPED), AcqRel, Relaxed);
            }
        }
        let is_behind = |number: &u64| {
            self.record(server, *number).is_some_and(|[state, ..]| is_over(state.load(Acquire), *number))
        };
        let over = numbers().take_while(is_behind).count() as u64;
        // Another process may have moved it on already.
        let _ = tail.compare_exchange(first, first.wrapping_add(over), AcqRel, Relaxed);
        let pages: u64 = taken.iter().map(|pages| u64::from(pages.count)).sum();
        self.server_word(server, DIRTY_PAGES).fetch_sub(pages, Relaxed);
        taken
    }

    /// A write-back is under way that is over at `end`.
    pub(crate) fn note_write_back(&self, server: ServerId, end: Nanos) {
        let before = self.server_word(server, LAST_END).fetch_max(end.0, AcqRel);
        self.server_word(server, END_BEFORE).fetch_max(before.min(end.0), AcqRel);
    }

    /// When the write-back before the last one is over, and when the last one is.
    pub(crate) fn write_back_ends(&self, server: ServerId) -> [Nanos; 2] {
        [END_BEFORE, LAST_END].map(|offset| Nanos(self.server_word(server, offset).load(Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::stations;
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    const SERVER: ServerId = ServerId(1);

    fn pages(region: u32, first: u32) -> DirtyPages {
        let object = ObjectName { file: FileId(9), region: RegionIndex(region), generation: Generation(3) };
        DirtyPages { object, first, count: 2 }
    }

    #[test]
    fn ranges_are_noted_by_whole_pages() {
        let object = pages(0, 0).object;
        let of = |offset, length| DirtyPages::of(object, offset, length).map(|pages| (pages.first, pages.end()));
        assert_eq!([of(0, 1), of(4095, 2), of(4096, 4096)], [Some((0, 1)), Some((0, 2)), Some((1, 2))]);
        assert_eq!([of(u64::MAX, 2), of(1 << 44, 1)], [None, None]);
    }

    #[test]
    fn what_was_noted_is_taken_once_by_object_or_all() {
        let directory = tempfile::tempdir().unwrap();
        let (_, stations) = stations(&directory, 2);
        // Several times round the log.
        for round in 0..5 {
            for first in 0..RECORDS as u32 / 2 {
                assert!(stations.note_dirty(SERVER, &pages(first % 2, round * 1000 + first)));
            }
            assert!(stations.is_dirty_beyond(SERVER, RECORDS * 4096 - 1));
            assert!(!stations.is_dirty_beyond(SERVER, RECORDS * 4096));
            let odd = stations.take_dirty(SERVER, |object| object.region.0 == 1);
            assert_eq!(odd.len() as u64, RECORDS / 4);
            assert!(odd.iter().all(|found| found.object.region.0 == 1) && odd[0] == pages(1, round * 1000 + 1));
            assert_eq!(stations.take_dirty(SERVER, |_| true).len() as u64, RECORDS / 4);
            assert!(stations.take_dirty(SERVER, |_| true).is_empty() && !stations.is_dirty_beyond(SERVER, 0));
        }
        assert!(stations.take_dirty(ServerId(0), |_| true).is_empty(), "the other server's");
    }

    /// A process was killed, or stopped, between claiming a record and publishing it.
    #[test]
    fn a_record_that_nobody_publishes_is_passed_over_when_the_log_is_full() {
        let directory = tempfile::tempdir().unwrap();
        let (_, stations) = stations(&directory, 2);
        stations.server_word(SERVER, HEAD).fetch_add(1, AcqRel);
        for first in 1..RECORDS as u32 {
            assert!(stations.note_dirty(SERVER, &pages(0, first)));
        }
        assert!(!stations.note_dirty(SERVER, &pages(0, 0)), "full");
        assert_eq!(stations.take_dirty(SERVER, |_| true).len() as u64, RECORDS - 1);
        // It goes on: its record is no longer its own.
        let [state, ..] = stations.record(SERVER, 0).unwrap();
        assert_eq!(state.load(SeqCst), sequence(0, SKIPPED));
        let round = || {
            let noted = (0..RECORDS as u32).take_while(|first| stations.note_dirty(SERVER, &pages(0, *first))).count();
            assert_eq!(stations.take_dirty(SERVER, |_| true).len(), noted);
            noted as u64
        };
        assert_eq!([round(), round()], [RECORDS - 1; 2], "its place is nobody's");
        give_back(state, 0);
        assert_eq!(round(), RECORDS);
    }

    #[test]
    fn many_writers_and_takers_lose_nothing_and_take_nothing_twice() {
        const THREADS: u32 = 4;
        const EACH: u32 = 30_000;
        let directory = tempfile::tempdir().unwrap();
        let (_, stations) = stations(&directory, 2);
        let is_over = AtomicBool::new(false);
        let mut all: Vec<(u32, u32)> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut found = Vec::new();
                        loop {
                            let last = is_over.load(SeqCst);
                            found.extend(stations.take_dirty(SERVER, |_| true));
                            if last {
                                return found;
                            }
                        }
                    })
                })
                .collect();
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let stations = &stations;
                    scope.spawn(move || {
                        for first in 0..EACH {
                            while !stations.note_dirty(SERVER, &pages(thread, first)) {
                                std::thread::yield_now();
                            }
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            is_over.store(true, SeqCst);
            let found = takers.into_iter().flat_map(|taker| taker.join().unwrap());
            found.map(|pages| (pages.object.region.0, pages.first)).collect()
        });
        all.sort_unstable();
        let expected: Vec<(u32, u32)> =
            (0..THREADS).flat_map(|thread| (0..EACH).map(move |first| (thread, first))).collect();
        assert!(all == expected, "{} of {}", all.len(), expected.len());
        assert_eq!(stations.server_word(SERVER, DIRTY_PAGES).load(SeqCst), 0);
    }
}
