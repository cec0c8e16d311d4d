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
//! | 4096 + 8 n | place n: 0 never used, 1 of an inode that is gone, else an inode, hashed with its device |
//!
//! An inode is entered before anybody can open its stub, so that none is missed. Who finds one asks the broker, whose word counts.

use super::map::{self, SharedMap};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

const MAGIC: u64 = u64::from_le_bytes(*b"SWINOD\0\x01");
const PLACES_AT: usize = 8;
const USED_AT: usize = 16;
const REPLACED_AT: usize = 24;
const HEAD_BYTES: usize = 4096;
const NEVER: u64 = 0;
const GONE: u64 = 1;
const FEWEST_PLACES: usize = 4096;

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

impl Inodes {
    /// Broker only: an empty table, with space for `count` inodes and as many again.
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full, otherwise the error of sizing or mapping the file.
    pub fn build(file: impl AsFd, count: usize) -> rustix::io::Result<Self> {
        let places = (count * 4).next_power_of_two().max(FEWEST_PLACES);
        let length = HEAD_BYTES + places * 8;
        let map = map::make(file, length, length)?;
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
        if map.word(0).load(Acquire) != MAGIC || !places.is_power_of_two() || length != HEAD_BYTES + places * 8 {
            return Err(Errno::INVAL);
        }
        Ok(Self { map, places })
    }

    /// The places at which an inode may stand, in the order in which they are tried.
    fn places_of(&self, hash: u64) -> impl Iterator<Item = &AtomicU64> {
        let places = self.map.words(HEAD_BYTES, self.places);
        let first = hash as usize & (self.places - 1);
        places[first..].iter().chain(&places[..first])
    }

    /// Whether the file of this device and inode may be a stub.
    #[must_use]
    #[inline]
    pub fn holds(&self, identity: (u64, u64)) -> bool {
        let hash = hash(identity);
        for place in self.places_of(hash) {
            match place.load(Acquire) {
                NEVER => return false,
                found if found == hash => return true,
                _ => {}
            }
        }
        false
    }

    /// Broker only, one thread at a time. False: the table is too full, and is to be replaced first.
    #[must_use]
    pub fn insert(&self, identity: (u64, u64)) -> bool {
        self.holds(identity) || self.insert_hash(hash(identity))
    }

    fn insert_hash(&self, hash: u64) -> bool {
        let used = self.map.word(USED_AT).load(SeqCst);
        for place in self.places_of(hash) {
            match place.load(SeqCst) {
                GONE => {}
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
        let hash = hash(identity);
        for place in self.places_of(hash) {
            match place.load(SeqCst) {
                NEVER => return,
                found if found == hash => return place.store(GONE, SeqCst),
                _ => {}
            }
        }
    }

    /// Inodes that stand here.
    #[must_use]
    pub fn count(&self) -> usize {
        self.map.words(HEAD_BYTES, self.places).iter().filter(|place| place.load(SeqCst) > GONE).count()
    }

    /// Broker only: takes over what stands in `other`, for which there is room.
    pub fn insert_all_of(&self, other: &Inodes) {
        let held = other.map.words(HEAD_BYTES, other.places).iter().map(|place| place.load(SeqCst));
        held.filter(|hash| *hash > GONE).for_each(|hash| _ = self.insert_hash(hash));
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
    fn what_is_no_table_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Inodes::open(&file, false).unwrap_err(), Errno::INVAL);
        Inodes::build(&file, 0).unwrap();
        file.set_len(8192).unwrap();
        assert_eq!(Inodes::open(&file, false).unwrap_err(), Errno::INVAL);
    }
}
