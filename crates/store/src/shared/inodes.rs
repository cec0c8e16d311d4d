//! The inodes of all stubs, for every process that has to tell a managed file from others at its open.
//!
//! A stub may have been cut or written over by a program that is not redirected; its inode still says what it is. Asking the broker at each open would
//! cost every program dear, so the broker publishes the inodes in `run/inodes`, a table with open addressing. Words of 8 bytes:
//!
//! | offset | what |
//! |---|---|
//! | 0 | magic and version |
//! | 8 | places, a power of two |
//! | 16 | places that were ever used |
//! | 24 | 1: a successor of this table stands at its path, or is about to |
//! | 32 | least minimum size of a managed directory in bytes, plus 1; 0: none has one |
//! | 40 | 1: other hosts use the cluster too. The table has not the stubs that these made, which their text tells, and no status holds |
//! | 4096 + 8 n | place n: 0 never used, 1 of an inode that is gone, else an inode, hashed with its device |
//! | 4096 + 8 places + 40 n | status of place n's file: a count that is odd while the status is not known, the file's id, the stub's birth time in ns, the size in bytes, its blocks of 512 bytes |
//!
//! An inode is entered before anybody can open its stub, so that none is missed. Who finds one asks the broker, whose word counts.
//!
//! The status is known while nobody has the file open: the broker hides it before it lets anybody open the file, so who reads it meanwhile reads what holds at
//! that moment. The number of an inode may be used again after its stub was removed without redirection; the birth time tells. Space for statuses is
//! allocated as they are written; where there is none, the broker is asked.

use super::map::{self, SharedMap};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use stripewise_layout::FileId;

const MAGIC: u64 = u64::from_le_bytes(*b"SWINOD\0\x03");
const PLACES_AT: usize = 8;
const USED_AT: usize = 16;
const REPLACED_AT: usize = 24;
const MIN_SIZE_AT: usize = 32;
const BY_TEXT_AT: usize = 40;
const HEAD_BYTES: usize = 4096;
const NEVER: u64 = 0;
const GONE: u64 = 1;
const FEWEST_PLACES: usize = 4096;
const PLACE_BYTES: usize = 8;
const STATUS_WORDS: usize = 5;
const STATUS_BYTES: usize = STATUS_WORDS * 8;

/// What holds of a managed file that nobody has open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClosedStatus {
    /// The file.
    pub file: FileId,
    /// When its stub was born, in ns since 1970.
    pub born_ns: u64,
    /// Logical size.
    pub size_bytes: u64,
    /// Blocks of 512 bytes.
    pub blocks_512: u64,
}

impl ClosedStatus {
    /// Whether what stands at `path` from `base` on is the stub of this status and has this device and inode: a number may be another file's by now, and the birth
    /// time tells.
    #[must_use]
    pub fn is_of(&self, base: BorrowedFd<'_>, path: &CStr, flags: AtFlags, identity: (u64, u64)) -> bool {
        let Ok(found) = rustix::fs::statx(base, path, flags, StatxFlags::INO | StatxFlags::BTIME) else { return false };
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let born_s = u64::try_from(found.stx_btime.tv_sec).ok();
        let born_ns =
            born_s.and_then(|born_s| born_s.checked_mul(1_000_000_000)?.checked_add(found.stx_btime.tv_nsec.into()));
        (device, found.stx_ino) == identity && has_birth && born_ns == Some(self.born_ns)
    }
}

/// The mapped table of stubs' inodes.
#[derive(Debug)]
pub struct Inodes {
    map: SharedMap,
    places: usize,
}

/// 64 well-mixed bits of device and inode, none of the two words with a meaning of their own.
fn hash((device, inode): (u64, u64)) -> u64 {
    let mix = |value: u64| {
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    mix(mix(inode).wrapping_add(device)).max(2)
}

fn length_of(places: usize) -> usize {
    HEAD_BYTES + places * (PLACE_BYTES + STATUS_BYTES)
}

impl Inodes {
    /// Broker only: an empty table, with space for `count` inodes and as many again.
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full, otherwise the error of sizing or mapping the file.
    pub fn build(file: impl AsFd, count: usize) -> rustix::io::Result<Self> {
        let places = (count * 4).next_power_of_two().max(FEWEST_PLACES);
        let map = map::make(file, length_of(places), HEAD_BYTES + places * PLACE_BYTES)?;
        map.word(PLACES_AT).store(places as u64, SeqCst);
        map.word(0).store(MAGIC, Release);
        Ok(Self { map, places })
    }

    /// `INVAL`: the file is no such table.
    ///
    /// # Errors
    ///
    /// `INVAL` as said, otherwise the error of mapping it.
    pub fn open(file: impl AsFd, writable: bool) -> rustix::io::Result<Self> {
        let length = rustix::fs::fstat(&file)?.st_size as usize;
        if length < HEAD_BYTES {
            return Err(Errno::INVAL);
        }
        let map = SharedMap::new(file, length, writable)?;
        let places = map.word(PLACES_AT).load(SeqCst) as usize;
        if map.word(0).load(Acquire) != MAGIC || !places.is_power_of_two() || length != length_of(places) {
            return Err(Errno::INVAL);
        }
        Ok(Self { map, places })
    }

    fn places(&self) -> &[AtomicU64] {
        self.map.words(HEAD_BYTES, self.places)
    }

    /// The places at which an inode may stand, in the order in which they are tried, with their numbers.
    fn places_of(&self, hash: u64) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let places = self.places();
        let first = hash as usize & (self.places - 1);
        (first..self.places).chain(0..first).map(|number| (number, &places[number]))
    }

    /// The place of an inode that stands here.
    #[inline]
    fn place_of(&self, hash: u64) -> Option<usize> {
        for (number, place) in self.places_of(hash) {
            match place.load(Acquire) {
                NEVER => return None,
                found if found == hash => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// The words of a status, if there is space for them.
    fn status_words(&self, place: usize) -> Option<&[AtomicU64]> {
        let at = HEAD_BYTES + self.places * PLACE_BYTES + place * STATUS_BYTES;
        self.map.is_reached(at, STATUS_BYTES).then(|| self.map.words(at, STATUS_WORDS))
    }

    fn read_status(&self, place: usize) -> Option<ClosedStatus> {
        let words = self.status_words(place)?;
        let count = words[0].load(SeqCst);
        let [file, born_ns, size_bytes, blocks_512] = [1, 2, 3, 4].map(|number| words[number].load(SeqCst));
        let is_known = count != 0 && count.is_multiple_of(2) && words[0].load(SeqCst) == count;
        is_known.then_some(ClosedStatus { file: FileId(file), born_ns, size_bytes, blocks_512 })
    }

    fn write_status(&self, place: usize, status: Option<ClosedStatus>) {
        let Some(words) = self.status_words(place) else { return };
        let count = words[0].load(SeqCst) | 1;
        words[0].store(count, SeqCst);
        let Some(ClosedStatus { file, born_ns, size_bytes, blocks_512 }) = status else { return };
        for (word, value) in words[1..].iter().zip([file.0, born_ns, size_bytes, blocks_512]) {
            word.store(value, SeqCst);
        }
        words[0].store(count + 1, SeqCst);
    }

    /// What holds of the file of this device and inode now, if nobody has it open and the broker said so. The birth time is to be compared.
    #[must_use]
    #[inline]
    pub fn status(&self, identity: (u64, u64)) -> Option<ClosedStatus> {
        if self.asks_by_text() {
            return None;
        }
        self.read_status(self.place_of(hash(identity))?)
    }

    /// Broker only, one thread at a time: what holds of the file while nobody has it open; `None`: somebody is about to.
    pub fn set_status(&self, identity: (u64, u64), status: Option<ClosedStatus>) {
        if let Some(place) = self.place_of(hash(identity)) {
            self.write_status(place, status);
        }
    }

    /// Whether the file of this device and inode may be a stub.
    #[must_use]
    #[inline]
    pub fn holds(&self, identity: (u64, u64)) -> bool {
        self.place_of(hash(identity)).is_some()
    }

    /// Broker only, one thread at a time. False: the table is too full, and is to be replaced first.
    #[must_use]
    pub fn insert(&self, identity: (u64, u64)) -> bool {
        self.holds(identity) || self.insert_hash(hash(identity))
    }

    fn insert_hash(&self, hash: u64) -> bool {
        let used = self.map.word(USED_AT).load(SeqCst);
        for (number, place) in self.places_of(hash) {
            match place.load(SeqCst) {
                GONE => self.write_status(number, None),
                NEVER if used as usize * 2 >= self.places => return false,
                NEVER => self.map.word(USED_AT).store(used + 1, SeqCst),
                _ => continue,
            }
            place.store(hash, SeqCst);
            return true;
        }
        false
    }

    /// Broker only, one thread at a time.
    pub fn remove(&self, identity: (u64, u64)) {
        if let Some(number) = self.place_of(hash(identity)) {
            self.write_status(number, None);
            self.places()[number].store(GONE, SeqCst);
        }
    }

    /// Inodes that stand here.
    #[must_use]
    pub fn count(&self) -> usize {
        self.places().iter().filter(|place| place.load(SeqCst) > GONE).count()
    }

    /// Broker only: takes over what stands in `other`, for which there is room.
    pub fn insert_all_of(&self, other: &Inodes) {
        self.set_least_min_size(other.least_min_size());
        self.set_asks_by_text(other.asks_by_text());
        for (number, hash) in other.places().iter().map(|place| place.load(SeqCst)).enumerate() {
            if hash > GONE && self.insert_hash(hash) {
                let status = other.read_status(number);
                self.place_of(hash).into_iter().for_each(|place| self.write_status(place, status));
            }
        }
    }

    /// Whether a file that is not in the table may be a stub all the same, which its text tells: one that another host made.
    #[must_use]
    #[inline]
    pub fn asks_by_text(&self) -> bool {
        self.map.word(BY_TEXT_AT).load(SeqCst) != 0
    }

    /// Broker only: see [`Self::asks_by_text`].
    pub fn set_asks_by_text(&self, asks: bool) {
        self.map.word(BY_TEXT_AT).store(asks.into(), SeqCst);
    }

    /// The least minimum size of any managed directory, in bytes; `None`: none has one.
    #[must_use]
    #[inline]
    pub fn least_min_size(&self) -> Option<u64> {
        self.map.word(MIN_SIZE_AT).load(SeqCst).checked_sub(1)
    }

    /// Broker only: see [`Self::least_min_size`].
    pub fn set_least_min_size(&self, bytes: Option<u64>) {
        self.map.word(MIN_SIZE_AT).store(bytes.map_or(0, |bytes| bytes.saturating_add(1)), SeqCst);
    }

    /// Whether to look at the table's path for another.
    #[must_use]
    #[inline]
    pub fn is_replaced(&self) -> bool {
        self.map.word(REPLACED_AT).load(SeqCst) != 0
    }

    /// Broker only, before another table takes its path: so whoever finds the other missing looks for it again.
    pub fn set_replaced(&self) {
        self.map.word(REPLACED_AT).store(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn inodes_are_held_from_their_insertion_to_their_removal() {
        let file = tempfile::tempfile().unwrap();
        let inodes = Inodes::build(&file, 0).unwrap();
        let reader = Inodes::open(&file, false).unwrap();
        let (mut held, mut state) = (HashSet::new(), 7u64);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let identity = (state >> 62, (state >> 33) % 500);
            if state >> 40 & 1 == 0 {
                assert!(inodes.insert(identity));
                held.insert(identity);
            } else {
                inodes.remove(identity);
                held.remove(&identity);
            }
            assert_eq!(reader.holds(identity), held.contains(&identity));
        }
        let all = (0..4).flat_map(|device| (0..500).map(move |inode| (device, inode)));
        all.for_each(|identity| assert_eq!(reader.holds(identity), held.contains(&identity), "{identity:?}"));
        assert_eq!(reader.count(), held.len());
    }

    #[test]
    fn a_full_table_says_so_and_a_larger_one_takes_all_over() {
        let inodes = Inodes::build(tempfile::tempfile().unwrap(), 0).unwrap();
        let count = (0..).take_while(|inode| inodes.insert((8, *inode))).count();
        assert_eq!(count, FEWEST_PLACES / 2);
        let larger = Inodes::build(tempfile::tempfile().unwrap(), count).unwrap();
        larger.insert_all_of(&inodes);
        assert!((0..count as u64).all(|inode| larger.holds((8, inode))) && larger.insert((9, 1)));
        assert_eq!(larger.count(), count + 1);
    }

    #[test]
    fn a_status_is_seen_whole_and_only_while_it_is_known() {
        let file = tempfile::tempfile().unwrap();
        let inodes = Inodes::build(&file, 0).unwrap();
        let reader = Inodes::open(&file, false).unwrap();
        let identity = (8, 15);
        let of = |number: u64| ClosedStatus {
            file: FileId(number),
            born_ns: number + 1,
            size_bytes: number + 2,
            blocks_512: number + 3,
        };
        inodes.set_status(identity, Some(of(1)));
        assert_eq!(reader.status(identity), None, "no such inode");
        assert!(inodes.insert(identity));
        assert_eq!(reader.status(identity), None);
        inodes.set_status(identity, Some(of(7)));
        assert_eq!(reader.status(identity), Some(of(7)));
        let larger = Inodes::build(tempfile::tempfile().unwrap(), 5000).unwrap();
        larger.insert_all_of(&inodes);
        assert_eq!(larger.status(identity), Some(of(7)));
        larger.set_asks_by_text(true);
        assert_eq!(larger.status(identity), None, "another host may have changed the file");
        let largest = Inodes::build(tempfile::tempfile().unwrap(), 9000).unwrap();
        largest.insert_all_of(&larger);
        assert!(largest.asks_by_text() && !reader.asks_by_text());
        inodes.set_status(identity, None);
        assert_eq!(reader.status(identity), None);
        inodes.set_status(identity, Some(of(9)));
        // The number is another file's next.
        inodes.remove(identity);
        assert_eq!(reader.status(identity), None);
        assert!(inodes.insert(identity));
        assert_eq!(reader.status(identity), None);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..100_000 {
                    inodes.set_status(identity, Some(of(number)));
                    inodes.set_status(identity, None);
                }
            });
            while !writer.is_finished() {
                if let Some(found) = reader.status(identity) {
                    assert_eq!(found, of(found.file.0));
                }
            }
        });
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Inodes::open(&file, false).unwrap_err(), Errno::INVAL);
        Inodes::build(&file, 0).unwrap();
        file.set_len(8192).unwrap();
        assert_eq!(Inodes::open(&file, false).unwrap_err(), Errno::INVAL);
    }
}
