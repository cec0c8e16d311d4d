//! What all who have a file open tell each other and the broker of its fragments, `ID.hints`. Everybody may write it, so nothing in it can make a byte
//! wrong: what it says decides what is worth a place on the SSD, and what `stat` shows.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic and version |
//! | 8 | 8 | suggestions made so far |
//! | 64 | 32,768 | the latest 2,048 suggestions, 16 bytes each: region (20 bits) and offset (44); length (21), disk (16), class (1), 1 |
//! | 36,864 | 256 each | by server: service time, mean returns, counters |
//! | areas | 4 each | by server and entry: tick of the last use |
//!
//! *T*, the service time of a disk, follows iBridge's average: an eighth of the old and seven eighths of the newest. It is kept per byte. With the times of
//! whole sub-requests a fragment is cheaper than the stripe-sized one before it as soon as both seek, so that the more a disk seeks, the
//! fewer fragments would be admitted; per byte it is the dearer the shorter it is. What goes to an SSD the next time is not in T, so that T is that of what
//! the disk is left with.
//!
//! What one small sub-request took this time, with or without a seek, says little of what it takes the next time. So one is also admitted whose
//! own return is negative, if those of its class on its disk return something in the mean. (Ours. Without it a tenth of the fragments of a file read in
//! order by 64 ranks stays on the disks, and with it more than half of the gain: each costs a seek.)

use super::table::FragmentTable;
use super::{Class, DiskRange, OFFSET_LIMIT, Seen};
use crate::shared::map::{self, SharedMap};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use stripewise_layout::{ObjectOffset, RegionIndex, ServerId};

const MAGIC: u64 = u64::from_le_bytes(*b"SWHINT\0\x02");
const SUGGESTED_AT: usize = 8;
const RING_AT: usize = 64;
/// Suggestions that are kept until the broker has looked at them.
pub const SUGGESTIONS: u64 = 2048;
const DISKS_AT: usize = 36_864;
const DISK_BYTES: usize = 256;
const _: () = assert!(RING_AT + SUGGESTIONS as usize * 16 <= DISKS_AT);
const SERVICE: usize = 0;
const SMALL_WRITE: usize = 8;
const RETURNS: usize = 16;
const COUNTERS: usize = 64;

/// Share of the newest time in the mean (iBridge: 7/8).
pub const NEWEST_SHARE: f64 = 7.0 / 8.0;
/// Share of the newest return in a class's recent mean. Ours; the article gives none.
const NEWEST_RETURN_SHARE: f64 = 1.0 / 32.0;

/// What is counted of each disk's fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Counter {
    /// Reads that were served from the log.
    ReadHits,
    /// Bytes of those reads.
    ReadHitBytes,
    /// Writes that went to the log alone.
    WriteHits,
    /// Bytes of those writes.
    WriteHitBytes,
    /// Ranges that the broker copied in from the disk.
    CopiedIn,
    /// Bytes that the broker wrote back to the disk.
    WrittenBackBytes,
    /// Then those of the second class.
    AdmittedFragments,
    /// As `AdmittedFragments`, of [`Class::Random`].
    AdmittedRandom,
    /// Sub-requests of [`Class::Fragment`] that stayed on the disk by their return.
    RefusedFragments,
    /// As `RefusedFragments`, of [`Class::Random`].
    RefusedRandom,
}

/// The mapped hints of a file's fragments.
#[derive(Debug)]
pub struct Hints {
    map: SharedMap,
    servers: usize,
    /// Offset and number of the ticks of each server.
    ticks: Box<[(usize, usize)]>,
}

/// A range that was read from its disk and is worth a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Suggestion {
    /// HServer that holds the range.
    pub disk: ServerId,
    /// What is to be copied in.
    pub range: DiskRange,
    /// Why it is worth a slot.
    pub class: Class,
}

fn areas(servers: usize, table: &FragmentTable) -> (Box<[(usize, usize)]>, usize) {
    let mut at = (DISKS_AT + servers * DISK_BYTES).next_multiple_of(4096);
    let areas = (0..servers).map(|number| {
        let entries = table.log(ServerId(number as u16)).map_or(0, |log| log.sets.count());
        let area = (at, entries);
        at = (at + entries * 4).next_multiple_of(64);
        area
    });
    (areas.collect(), at)
}

impl Hints {
    /// Broker only: for the logs of `table`.
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full, otherwise the error of sizing or mapping the file.
    pub fn build(descriptor: &OwnedFd, servers: usize, table: &FragmentTable) -> rustix::io::Result<Self> {
        let (ticks, length) = areas(servers, table);
        let map = map::make(descriptor, length, length)?;
        map.word(0).store(MAGIC, Release);
        Ok(Self { map, servers, ticks })
    }

    /// `INVAL`: these are no hints, or not those of such a table.
    ///
    /// # Errors
    ///
    /// `INVAL` as said, otherwise the error of mapping the file.
    pub fn open(descriptor: impl AsFd, servers: usize, table: &FragmentTable) -> rustix::io::Result<Self> {
        let (ticks, length) = areas(servers, table);
        let map = SharedMap::new(descriptor, length, true)?;
        if map.word(0).load(Acquire) != MAGIC {
            return Err(Errno::INVAL);
        }
        Ok(Self { map, servers, ticks })
    }

    fn disk_word(&self, disk: ServerId, offset: usize) -> &AtomicU64 {
        let number = usize::from(disk.0).min(self.servers.saturating_sub(1));
        self.map.word(DISKS_AT + number * DISK_BYTES + offset)
    }

    fn number(word: &AtomicU64) -> f64 {
        let value = f64::from_bits(word.load(Relaxed));
        if value.is_finite() { value } else { 0.0 }
    }

    /// T of a disk, in ns per byte; 0 before its first request.
    #[must_use]
    pub fn service_ns_per_byte(&self, disk: ServerId) -> f64 {
        Self::number(self.disk_word(disk, SERVICE))
    }

    /// What a sub-request of `bytes` that took `ns` on the disk would make of its T, less T: its return, before the share of its siblings.
    #[must_use]
    pub fn return_of(&self, disk: ServerId, bytes: u64, ns: u64) -> f64 {
        NEWEST_SHARE * (ns as f64 / bytes.max(1) as f64 - self.service_ns_per_byte(disk))
    }

    /// The disk served a sub-request. (Two that do so at once may lose one of the times.)
    pub fn note_service(&self, disk: ServerId, bytes: u64, ns: u64) {
        let value = self.service_ns_per_byte(disk) + self.return_of(disk, bytes, ns);
        self.disk_word(disk, SERVICE).store(value.to_bits(), Relaxed);
    }

    /// Mean time of small writes that the disk served, ns; 0: none yet.
    #[must_use]
    pub fn small_write_ns(&self, disk: ServerId) -> u64 {
        Self::number(self.disk_word(disk, SMALL_WRITE)) as u64
    }

    /// The disk served a small write in `ns`; an eighth of it goes into the mean.
    pub fn note_small_write(&self, disk: ServerId, ns: u64) {
        let word = self.disk_word(disk, SMALL_WRITE);
        let before = Self::number(word);
        let value = if before == 0.0 { ns as f64 } else { before + (ns as f64 - before) / 8.0 };
        word.store(value.to_bits(), Relaxed);
    }

    /// Recent mean return of a class, ns per byte.
    #[must_use]
    pub fn mean_return(&self, disk: ServerId, class: Class) -> f64 {
        Self::number(self.disk_word(disk, RETURNS + class as usize * 8))
    }

    /// Weighs a small sub-request by its own return and by those of its class before: whether it is admitted.
    #[must_use]
    pub fn weigh(&self, disk: ServerId, class: Class, value: f64) -> bool {
        let (yes, no) = match class {
            Class::Fragment => (Counter::AdmittedFragments, Counter::RefusedFragments),
            Class::Random => (Counter::AdmittedRandom, Counter::RefusedRandom),
        };
        let mut mean = self.mean_return(disk, class);
        if value.is_finite() {
            mean += NEWEST_RETURN_SHARE * (value - mean);
            self.disk_word(disk, RETURNS + class as usize * 8).store(mean.to_bits(), Relaxed);
        }
        let is_admitted = value > 0.0 || mean > 0.0;
        self.count(disk, if is_admitted { yes } else { no }, 1);
        is_admitted
    }

    /// Adds `more` to a counter of the disk.
    pub fn count(&self, disk: ServerId, counter: Counter, more: u64) {
        self.disk_word(disk, COUNTERS + counter as usize * 8).fetch_add(more, Relaxed);
    }

    /// A counter of the disk since the hints were built.
    #[must_use]
    pub fn counted(&self, disk: ServerId, counter: Counter) -> u64 {
        self.disk_word(disk, COUNTERS + counter as usize * 8).load(Relaxed)
    }

    fn tick(&self, disk: ServerId, entry: usize) -> Option<&AtomicU32> {
        let (at, entries) = *self.ticks.get(usize::from(disk.0))?;
        (entry < entries).then(|| self.map.half(at + entry * 4))
    }

    /// The entry was used at `tick`.
    #[inline]
    pub fn touch(&self, disk: ServerId, seen: &Seen, tick: u32) {
        if let Some(word) = self.tick(disk, seen.number)
            && word.load(Relaxed) != tick
        {
            word.store(tick, Relaxed);
        }
    }

    /// When the entry was last used.
    #[must_use]
    pub fn last_use(&self, disk: ServerId, seen: &Seen) -> u32 {
        self.tick(disk, seen.number).map_or(0, |word| word.load(Relaxed))
    }

    /// Leaves a suggestion for the broker. When it does not come in time, the oldest are overwritten.
    pub fn suggest(&self, suggestion: &Suggestion) {
        let Suggestion { disk, range, class } = suggestion;
        if range.end() > OFFSET_LIMIT {
            return;
        }
        let number = self.map.word(SUGGESTED_AT).fetch_add(1, Relaxed);
        let at = RING_AT + (number % SUGGESTIONS) as usize * 16;
        self.map.word(at).store(u64::from(range.region.0) << 44 | range.offset.0, Relaxed);
        let rest = range.length.min(0x1f_ffff) | u64::from(disk.0) << 21 | (*class as u64) << 37 | 1 << 38;
        self.map.word(at + 8).store(rest, Release);
    }

    /// Broker only: the suggestions since `seen` ones, at most those that are still there, and how many were made in all. Some
    /// may be mixed from two; whoever follows them checks every part.
    #[must_use]
    pub fn suggestions(&self, seen: u64) -> (Vec<Suggestion>, u64) {
        let made = self.map.word(SUGGESTED_AT).load(Acquire);
        let first = seen.max(made.saturating_sub(SUGGESTIONS));
        let found = (first..made).filter_map(|number| {
            let at = RING_AT + (number % SUGGESTIONS) as usize * 16;
            let rest = self.map.word(at + 8).swap(0, Acquire);
            let place = self.map.word(at).load(Relaxed);
            (rest >> 38 & 1 == 1).then(|| Suggestion {
                disk: ServerId((rest >> 21) as u16),
                range: DiskRange {
                    region: RegionIndex((place >> 44) as u32),
                    offset: ObjectOffset(place & (OFFSET_LIMIT - 1)),
                    length: rest & 0x1f_ffff,
                },
                class: Class::of_bit(rest >> 37),
            })
        });
        (found.collect(), made)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::NewLog;
    use super::*;
    use stripewise_layout::{FileId, Generation};

    fn hints() -> (FragmentTable, Hints, OwnedFd) {
        let log = Some(NewLog { on: ServerId(1), generation: Generation(1), slots: 64 });
        let table: OwnedFd = tempfile::tempfile().unwrap().into();
        let table = FragmentTable::build(&table, FileId(1), [0; 16], 4096, &[log, None]).unwrap();
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let hints = Hints::build(&file, 2, &table).unwrap();
        (table, hints, file)
    }

    #[test]
    fn a_short_request_that_seeks_returns_and_one_that_follows_does_not() {
        let (_table, hints, _file) = hints();
        let disk = ServerId(0);
        // 64 KiB in a row at 100 MB/s: 10 ns a byte.
        (0..8).for_each(|_| hints.note_service(disk, 65_536, 655_360));
        assert!((hints.service_ns_per_byte(disk) - 10.0).abs() < 1e-3);
        let seek_ns = 5_000_000;
        assert!(hints.return_of(disk, 1024, seek_ns + 10_240) > 1000.0);
        assert!(hints.return_of(disk, 1024, 10_240) <= 0.001);
        // Where everything seeks, the short one still costs more of the disk for its bytes.
        hints.note_service(disk, 65_536, seek_ns + 655_360);
        assert!(hints.return_of(disk, 1024, seek_ns + 10_240) > 1000.0);
        // An eighth of the old, seven eighths of the new.
        let (disk, (first, second)) = (ServerId(1), (80.0, 160.0));
        hints.note_service(disk, 10, 800);
        hints.note_service(disk, 10, 1600);
        let expected = (first * 7.0 / 8.0) / 8.0 + second * 7.0 / 8.0;
        assert!((hints.service_ns_per_byte(disk) - expected).abs() < 1e-9);
    }

    #[test]
    fn suggestions_come_once_and_the_oldest_give_way() {
        let (_table, hints, _file) = hints();
        let suggestion = |offset| Suggestion {
            disk: ServerId(1),
            range: DiskRange { region: RegionIndex(0xf_ffff), offset: ObjectOffset(offset), length: 20_479 },
            class: Class::Random,
        };
        (0..3).for_each(|offset| hints.suggest(&suggestion(offset)));
        let (found, seen) = hints.suggestions(0);
        assert_eq!((found, seen), ((0..3).map(suggestion).collect(), 3));
        assert_eq!(hints.suggestions(seen), (vec![], 3));
        (3..SUGGESTIONS + 10).for_each(|offset| hints.suggest(&suggestion(offset)));
        let (found, seen) = hints.suggestions(seen);
        assert_eq!((found.len() as u64, seen), (SUGGESTIONS, SUGGESTIONS + 10));
        assert_eq!(found[0], suggestion(10));
    }

    #[test]
    fn one_that_returns_nothing_itself_is_admitted_with_its_class() {
        let (table, hints, file) = hints();
        let disk = ServerId(0);
        assert!(hints.weigh(disk, Class::Fragment, 32.0) && hints.mean_return(disk, Class::Fragment) == 1.0);
        assert!(hints.weigh(disk, Class::Fragment, -1.0));
        assert!(!hints.weigh(disk, Class::Fragment, -100.0) && hints.weigh(disk, Class::Fragment, 1.0));
        assert!(!hints.weigh(disk, Class::Random, f64::NAN) && hints.mean_return(disk, Class::Random) == 0.0);
        let other = Hints::open(&file, 2, &table).unwrap();
        let counted = |counter| other.counted(disk, counter);
        assert_eq!((counted(Counter::AdmittedFragments), counted(Counter::RefusedFragments)), (3, 1));
        assert_eq!((counted(Counter::AdmittedRandom), counted(Counter::RefusedRandom)), (0, 1));
    }

    #[test]
    fn uses_are_kept_by_entry() {
        let (table, hints, _file) = hints();
        table.grant(ServerId(0), 4);
        let range = DiskRange { region: RegionIndex(3), offset: ObjectOffset(70), length: 5 };
        let seen = table.log(ServerId(0)).unwrap().sets.publish(&range, Class::Fragment).unwrap();
        assert_eq!(hints.last_use(ServerId(0), &seen), 0);
        hints.touch(ServerId(0), &seen, 17);
        hints.touch(ServerId(1), &seen, 18);
        assert_eq!((hints.last_use(ServerId(0), &seen), hints.last_use(ServerId(1), &seen)), (17, 0));
    }
}
