//! Who has a managed file open, and which I/O is in flight on it.
//!
//! A table of 128-byte entries, one for each process slot: incarnation (8 bytes), number of opens (8), then 14 lanes of 8 bytes.
//! A thread takes a free lane for the time of one read or write. Whoever shuts the gate waits until every lane of every living
//! process is free; entries of dead incarnations count as free.
//!
//! The order that makes this safe: the I/O stores its lane, then reads the gate; the other side shuts the gate, then reads the
//! lanes; both with sequentially consistent operations, so at least one sees the other.

use super::map::SharedMap;
use super::processes::{Incarnation, MAX_PROCESSES, ProcessSlot};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use stripewise_layout::{Direction, RegionIndex};

const ENTRY_BYTES: usize = 128;
const LANES_AT: usize = 16;
/// I/O in flight per process and file; a thread beyond waits for a free lane.
pub const LANES: usize = (ENTRY_BYTES - LANES_AT) / 8;
const LENGTH: usize = MAX_PROCESSES as usize * ENTRY_BYTES;

#[derive(Debug)]
pub struct Slots {
    map: SharedMap,
}

/// What is in flight in one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InFlight {
    pub direction: Direction,
    pub first: RegionIndex,
    pub last: RegionIndex,
}

impl InFlight {
    fn to_word(self) -> u64 {
        let direction = match self.direction {
            Direction::Read => 1,
            Direction::Write => 2,
        };
        direction << 62 | u64::from(self.first.0) << 31 | u64::from(self.last.0)
    }

    fn from_word(word: u64) -> Option<Self> {
        let direction = match word >> 62 {
            1 => Direction::Read,
            2 => Direction::Write,
            _ => return None,
        };
        let region = |bits: u64| RegionIndex((bits & 0x7fff_ffff) as u32);
        Some(Self { direction, first: region(word >> 31), last: region(word) })
    }
}

impl Slots {
    /// Broker only.
    pub fn build(descriptor: &OwnedFd) -> rustix::io::Result<Self> {
        rustix::fs::ftruncate(descriptor, LENGTH as u64)?;
        Self::open(descriptor)
    }

    pub fn open(descriptor: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self { map: SharedMap::new(descriptor, LENGTH, true)? })
    }

    fn entry(slot: ProcessSlot) -> usize {
        usize::from(slot.0) * ENTRY_BYTES
    }

    /// Counts one more open by this process, clearing what an earlier holder of the slot left. Then check the life state again.
    pub fn add_user(&self, slot: ProcessSlot, incarnation: Incarnation) {
        let entry = Self::entry(slot);
        if self.map.word(entry).load(Relaxed) != incarnation.0 {
            for lane in 0..LANES {
                self.map.word(entry + LANES_AT + lane * 8).store(0, Relaxed);
            }
            self.map.word(entry + 8).store(0, Relaxed);
            self.map.word(entry).store(incarnation.0, SeqCst);
        }
        self.map.word(entry + 8).fetch_add(1, SeqCst);
    }

    /// Returns the opens that are left.
    pub fn drop_user(&self, slot: ProcessSlot) -> u64 {
        self.map.word(Self::entry(slot) + 8).fetch_sub(1, SeqCst) - 1
    }

    /// Occupies a lane, starting the search at `hint` (a thread's own number); `None` when all are taken. Store 0 to free it.
    #[must_use]
    pub fn occupy(&self, slot: ProcessSlot, hint: usize, what: InFlight) -> Option<&AtomicU64> {
        let entry = Self::entry(slot) + LANES_AT;
        for i in 0..LANES {
            let lane = self.map.word(entry + (hint + i) % LANES * 8);
            if lane.load(Relaxed) == 0 && lane.compare_exchange(0, what.to_word(), SeqCst, Relaxed).is_ok() {
                return Some(lane);
            }
        }
        None
    }

    /// Slots that have the file open, with their incarnation, dead or alive: the caller asks [`super::processes::Processes`].
    pub fn users(&self) -> impl Iterator<Item = (ProcessSlot, Incarnation)> {
        (0..MAX_PROCESSES).filter_map(|slot| {
            let entry = Self::entry(ProcessSlot(slot));
            let opens = self.map.word(entry + 8).load(SeqCst);
            (opens > 0).then(|| (ProcessSlot(slot), Incarnation(self.map.word(entry).load(SeqCst))))
        })
    }

    /// What the process has in flight.
    pub fn in_flight(&self, slot: ProcessSlot) -> impl Iterator<Item = InFlight> {
        let entry = Self::entry(slot) + LANES_AT;
        (0..LANES).filter_map(move |lane| InFlight::from_word(self.map.word(entry + lane * 8).load(SeqCst)))
    }
}
