//! Who has a managed file open, and which I/O is in flight on it.
//!
//! The file begins with a table of 4096 entries of 128 bytes, one for each process slot:
//!
//! | offset in an entry | bytes | what |
//! |---|---|---|
//! | 0 | 8 | incarnation of the process slot |
//! | 8 | 8 | opens of the file by that process |
//! | 16 | 14 x 8 | lanes, one for each I/O in flight: bits 62 and 63 direction (0 free, 1 read, 2 write), bits 40 to 61 number of the lane's uses, bits 20 to 39 first region, bits 0 to 19 last region |
//!
//! A thread takes a free lane for the time of one read or write. Whoever shuts the gate waits until every lane of every living
//! process is free; entries of dead incarnations count as free. A free lane keeps the number of its uses, so that no two uses of a
//! lane look alike to a process that waits for the first of them to end.
//!
//! Two words of 8 bytes follow the table. The first counts the *forgotten* write lanes: a dead process left them, and the next
//! process with its slot cleared them. The count is raised before they are cleared; movers need it (`super::marking`). The second
//! word is the number of entries that were ever used, counted from the first entry. Processes take the lowest numbers, so only few
//! pages of the table are allocated.
//!
//! From the next page on follow 14 rings of 1 KiB for each process slot, one for each lane, with its most recent requests
//! (`super::recent`). They are written only while the control block says that requests are observed.
//!
//! The order that makes this safe: the I/O stores its lane, then reads the gate; the other side shuts the gate, then reads the
//! lanes; both with sequentially consistent operations, so at least one sees the other.

use super::control::MAX_REGIONS;
use super::map::{self, SharedMap};
use super::marking::{self, LANE_USES};
use super::process_slot::{Incarnation, MAX_PROCESSES, ProcessSlot};
use super::recent::{RING_WORDS, Recent};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stripewise_layout::{Direction, RegionIndex};

const ENTRY_BYTES: usize = 128;
const LANES_AT: usize = 16;
/// I/O in flight per process and file; a thread beyond waits for a free lane.
pub const LANES: usize = (ENTRY_BYTES - LANES_AT) / 8;
const FORGOTTEN_AT: usize = MAX_PROCESSES as usize * ENTRY_BYTES;
const USED_AT: usize = FORGOTTEN_AT + 8;
const RECENT_AT: usize = FORGOTTEN_AT + 4096;
const LENGTH: usize = RECENT_AT + MAX_PROCESSES as usize * LANES * RING_WORDS * 8;
const _: () = assert!(MAX_REGIONS <= 1 << 20);

/// The mapped table of who has the file open and what is in flight.
#[derive(Debug)]
pub struct Slots {
    map: SharedMap,
}

/// What is in flight in one lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InFlight {
    /// Whether it reads or writes.
    pub direction: Direction,
    /// First region that it touches.
    pub first: RegionIndex,
    /// Last region that it touches, at least `first`.
    pub last: RegionIndex,
}

impl InFlight {
    fn to_word(self) -> u64 {
        let direction = match self.direction {
            Direction::Read => 1,
            Direction::Write => 2,
        };
        direction << 62 | u64::from(self.first.0 & (MAX_REGIONS - 1)) << 20 | u64::from(self.last.0 & (MAX_REGIONS - 1))
    }

    fn from_word(word: u64) -> Option<Self> {
        let direction = match word >> 62 {
            1 => Direction::Read,
            2 => Direction::Write,
            _ => return None,
        };
        let region = |bits: u64| RegionIndex(bits as u32 & (MAX_REGIONS - 1));
        Some(Self { direction, first: region(word >> 20), last: region(word) })
    }
}

/// A lane that is occupied. Free it by [`Occupied::free`], or it counts as in use for ever.
#[derive(Debug)]
#[must_use]
pub struct Occupied<'a> {
    slots: &'a Slots,
    slot: ProcessSlot,
    number: usize,
    lane: &'a AtomicU64,
    free: u64,
}

impl Occupied<'_> {
    /// The I/O is over: the lane may be occupied again.
    #[inline]
    pub fn free(&self) {
        self.lane.store(self.free, Release);
    }

    /// Where to note what the lane is used for, if there is space for it.
    #[must_use]
    pub fn recent(&self) -> Option<Recent<'_>> {
        self.slots.recent(self.slot, self.number)
    }
}

/// One use of a lane by a process, as it was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// Process slot of the lane.
    pub slot: ProcessSlot,
    /// Which holder of that slot.
    pub incarnation: Incarnation,
    lane: usize,
    word: u64,
    /// Direction and regions of the I/O.
    pub what: InFlight,
}

impl Slots {
    /// Broker only.
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full, otherwise the error of sizing or mapping the file.
    pub fn build(descriptor: &OwnedFd) -> rustix::io::Result<Self> {
        let map = map::make(descriptor, LENGTH, ENTRY_BYTES)?;
        map.reach(FORGOTTEN_AT, 16)?;
        Ok(Self { map })
    }

    /// Maps an existing table, to occupy lanes in it.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is too short, otherwise the error of mapping it.
    pub fn open(descriptor: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self { map: SharedMap::new(descriptor, LENGTH, true)? })
    }

    /// For one who only looks.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is too short, otherwise the error of mapping it.
    pub fn open_to_watch(descriptor: impl AsFd) -> rustix::io::Result<Self> {
        Ok(Self { map: SharedMap::new(descriptor, LENGTH, false)? })
    }

    /// The most recent requests of a lane below [`LANES`]; `None` if there is no space for them.
    #[must_use]
    pub fn recent(&self, slot: ProcessSlot, lane: usize) -> Option<Recent<'_>> {
        let at = RECENT_AT + (usize::from(slot.0) * LANES + lane) * RING_WORDS * 8;
        self.map.is_reached(at, RING_WORDS * 8).then(|| Recent::new(self.map.words(at, RING_WORDS)))
    }

    /// Slots that ever had the file open since the table was made, whether or not they have now.
    pub fn ever_used(&self) -> impl Iterator<Item = ProcessSlot> {
        let end = self.map.word(USED_AT).load(SeqCst).min(MAX_PROCESSES.into()) as u16;
        let is_used = |slot: &ProcessSlot| {
            self.map.is_reached(Self::entry(*slot), ENTRY_BYTES) && self.map.word(Self::entry(*slot)).load(Acquire) != 0
        };
        (0..end).map(ProcessSlot).filter(is_used)
    }

    fn entry(slot: ProcessSlot) -> usize {
        usize::from(slot.0) * ENTRY_BYTES
    }

    /// Counts one more open by this process, clearing what an earlier holder of the slot left. Then check the life state again. `NOSPC`: the process
    /// cannot be counted, since the state directory is full.
    ///
    /// # Errors
    ///
    /// `NOSPC` as said.
    pub fn add_user(&self, slot: ProcessSlot, incarnation: Incarnation) -> rustix::io::Result<()> {
        let entry = Self::entry(slot);
        self.map.reach(entry, ENTRY_BYTES)?;
        self.map.word(USED_AT).fetch_max(u64::from(slot.0) + 1, SeqCst);
        if self.map.word(entry).load(Relaxed) != incarnation.0 {
            let lanes = (0..LANES).map(|lane| self.map.word(entry + LANES_AT + lane * 8));
            let is_write = |lane: &&AtomicU64| lane.load(SeqCst) >> 62 == 2;
            let written = lanes.clone().filter(is_write).count() as u64;
            self.map.word(FORGOTTEN_AT).fetch_add(written, SeqCst);
            lanes.for_each(|lane| lane.store(lane.load(Relaxed) & LANE_USES, SeqCst));
            self.map.word(entry + 8).store(0, Relaxed);
            self.map.word(entry).store(incarnation.0, SeqCst);
        }
        self.map.word(entry + 8).fetch_add(1, SeqCst);
        Ok(())
    }

    /// Returns the opens that are left.
    pub fn drop_user(&self, slot: ProcessSlot) -> u64 {
        self.map.word(Self::entry(slot) + 8).fetch_sub(1, SeqCst) - 1
    }

    /// Occupies a lane, starting the search at `hint` (a thread's own number); `None` when all are taken.
    #[inline]
    pub fn occupy(&self, slot: ProcessSlot, hint: usize, what: InFlight) -> Option<Occupied<'_>> {
        let entry = Self::entry(slot) + LANES_AT;
        for i in 0..LANES {
            let number = (hint + i) % LANES;
            let lane = self.map.word(entry + number * 8);
            if let Some(free) = marking::occupy(lane, what.to_word()) {
                return Some(Occupied { slots: self, slot, number, lane, free });
            }
        }
        None
    }

    /// Slots that have the file open, with their incarnation, dead or alive: the caller asks [`super::processes::Processes`].
    pub fn users(&self) -> impl Iterator<Item = (ProcessSlot, Incarnation)> {
        self.ever_used().filter_map(|slot| {
            let entry = Self::entry(slot);
            let opens = self.map.word(entry + 8).load(SeqCst);
            (opens > 0).then(|| (slot, Incarnation(self.map.word(entry).load(SeqCst))))
        })
    }

    /// What the process has in flight.
    pub fn in_flight(&self, slot: ProcessSlot) -> impl Iterator<Item = InFlight> {
        let entry = Self::entry(slot) + LANES_AT;
        let lanes = if u64::from(slot.0) < self.map.word(USED_AT).load(SeqCst) { 0..LANES } else { 0..0 };
        let lanes = lanes.filter(move |_| self.map.is_reached(entry, ENTRY_BYTES - LANES_AT));
        lanes.filter_map(move |lane| InFlight::from_word(self.map.word(entry + lane * 8).load(SeqCst)))
    }

    /// Every use of a lane, by the living and the dead, that overlaps `regions`.
    #[must_use]
    pub fn uses(&self, first: RegionIndex, last: RegionIndex) -> Vec<Use> {
        let mut uses = Vec::new();
        for (slot, incarnation) in self.users() {
            let entry = Self::entry(slot) + LANES_AT;
            for lane in 0..LANES {
                let word = self.map.word(entry + lane * 8).load(SeqCst);
                match InFlight::from_word(word) {
                    Some(what) if what.first <= last && what.last >= first => {
                        uses.push(Use { slot, incarnation, lane, word, what });
                    }
                    _ => {}
                }
            }
        }
        uses
    }

    /// Changes with every use of a lane by those who have the file open; while it stays the same, nobody goes in or out.
    #[must_use]
    pub fn uses_mark(&self) -> u64 {
        self.users().fold(0, |mark, (slot, _)| {
            let entry = Self::entry(slot);
            let lanes = (0..LANES).map(|lane| self.map.word(entry + LANES_AT + lane * 8).load(SeqCst));
            lanes.fold(mark ^ u64::from(slot.0), |mark, word| mark.rotate_left(5).wrapping_add(word))
        })
    }

    /// Whether the use goes on: its lane has not been freed since, nor cleared by a later process.
    #[must_use]
    pub fn goes_on(&self, lane: &Use) -> bool {
        let entry = Self::entry(lane.slot);
        self.map.word(entry + LANES_AT + lane.lane * 8).load(SeqCst) == lane.word
            && self.map.word(entry).load(SeqCst) == lane.incarnation.0
    }

    /// Write lanes of dead processes that others have cleared, counted up for ever.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.map.word(FORGOTTEN_AT).load(SeqCst)
    }

    /// Who has the file open by a table of whatever version; its entries have stood at the same places from the first on. Read, not mapped, so that
    /// entries that were never used get no space.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is shorter than a table, otherwise the error of reading it.
    pub fn users_of_any_version(descriptor: impl AsFd) -> rustix::io::Result<Vec<(ProcessSlot, Incarnation)>> {
        let mut table = vec![0; FORGOTTEN_AT];
        let mut read = 0;
        while read < table.len() {
            match rustix::io::retry_on_intr(|| rustix::io::pread(&descriptor, &mut table[read..], read as u64))? {
                0 => return Err(rustix::io::Errno::INVAL),
                bytes => read += bytes,
            }
        }
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| table[at + byte]));
        let slots = (0..MAX_PROCESSES).map(ProcessSlot).filter(|slot| word(Self::entry(*slot) + 8) > 0);
        Ok(slots.map(|slot| (slot, Incarnation(word(Self::entry(slot))))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_of(region: u32) -> InFlight {
        InFlight { direction: Direction::Write, first: RegionIndex(region), last: RegionIndex(region + 1) }
    }

    #[test]
    fn every_use_of_a_lane_is_another() {
        let slots = Slots::build(&tempfile::tempfile().unwrap().into()).unwrap();
        let (slot, incarnation) = (ProcessSlot(5), Incarnation(7));
        slots.add_user(slot, incarnation).unwrap();
        let first = slots.occupy(slot, 3, write_of(MAX_REGIONS - 2)).unwrap();
        let seen = slots.uses(RegionIndex(MAX_REGIONS - 1), RegionIndex(MAX_REGIONS - 1));
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].what, seen[0].slot, seen[0].incarnation), (write_of(MAX_REGIONS - 2), slot, incarnation));
        assert!(slots.goes_on(&seen[0]) && slots.uses(RegionIndex(0), RegionIndex(9)).is_empty());
        let inside = slots.uses_mark();
        first.free();
        let outside = slots.uses_mark();
        assert!(inside != outside && outside == slots.uses_mark());
        assert!(!slots.goes_on(&seen[0]) && slots.in_flight(slot).next().is_none());
        let again = slots.occupy(slot, 3, write_of(MAX_REGIONS - 2)).unwrap();
        assert!(!slots.goes_on(&seen[0]));
        again.free();
        assert!(![inside, outside].contains(&slots.uses_mark()), "in and out again");
    }

    #[test]
    fn what_a_dead_writer_leaves_is_counted_before_it_is_forgotten() {
        let slots = Slots::build(&tempfile::tempfile().unwrap().into()).unwrap();
        let slot = ProcessSlot(5);
        slots.add_user(slot, Incarnation(7)).unwrap();
        let _left = slots.occupy(slot, 0, write_of(3)).unwrap();
        let read = InFlight { direction: Direction::Read, ..write_of(3) };
        let _also = slots.occupy(slot, 0, read).unwrap();
        let seen = slots.uses(RegionIndex(3), RegionIndex(3));
        assert_eq!((seen.len(), slots.forgotten()), (2, 0));
        slots.add_user(slot, Incarnation(8)).unwrap();
        assert_eq!(slots.forgotten(), 1);
        assert!(seen.iter().all(|lane| !slots.goes_on(lane)) && slots.in_flight(slot).next().is_none());
        // The same process once more.
        slots.add_user(slot, Incarnation(8)).unwrap();
        assert_eq!(slots.forgotten(), 1);
    }
}
