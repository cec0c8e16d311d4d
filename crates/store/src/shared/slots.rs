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
//! A thread takes a free lane for the time of one read or write, a *further lane* (below) if all 14 are taken. Whoever shuts the gate waits until every lane of every living
//! process is free; entries of dead incarnations count as free. A free lane keeps the number of its uses, so that no two uses of a
//! lane look alike to a process that waits for the first of them to end.
//!
//! The entries of the first 27 process slots lie in the first page, which always has room, and behind them two words of 8 bytes and 64 words; the other
//! entries begin with the second page. The first word counts the *forgotten* write lanes: a dead process left them, and the next
//! process with its slot cleared them. The count is raised before they are cleared; movers need it (`super::marking`). The second
//! word is the number of entries that were ever used, counted from the first entry. Processes take the lowest numbers, so only few
//! pages of the table are allocated. The 64 words have one bit for each process slot: set before a further lane of that slot is occupied for the first
//! time, and for ever.
//!
//! From the page after the last entry on follow 14 rings of 1 KiB for each process slot, one for each lane, with its most recent requests
//! (`super::recent`). They are written only while the control block says that requests are observed.
//!
//! Then follow 1 KiB for each process slot with its further lanes, for threads beyond the 14th inside the file at once:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 2 x 8 | locks of the further rings: 0 free, 1 taken |
//! | 16 | 48 | 0 |
//! | 64 | 120 x 8 | lanes, as above |
//!
//! and at last two further rings of 1 KiB for each process slot. The further lanes share them: who notes a request holds the ring's lock. These pages are
//! allocated only for processes that use them.
//!
//! The order that makes this safe: the I/O stores its lane, then reads the gate; the other side shuts the gate, then reads the
//! lanes; both with sequentially consistent operations, so at least one sees the other.

use super::control::MAX_REGIONS;
use super::map::{self, SharedMap};
use super::marking::{self, LANE_USES};
use super::process_slot::{Incarnation, MAX_PROCESSES, ProcessSlot};
use super::recent::{Noted, RING_WORDS, Recent};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stripewise_layout::{Direction, RegionIndex};

const ENTRY_BYTES: usize = 128;
const LANES_AT: usize = 16;
const FIRST_LANES: usize = (ENTRY_BYTES - LANES_AT) / 8;
const FURTHER_BYTES: usize = 1024;
const FURTHER_LANES_AT: usize = 64;
const FURTHER_LANES: usize = (FURTHER_BYTES - FURTHER_LANES_AT) / 8;
const FURTHER_RINGS: usize = 2;
/// Looks for a further ring that nobody holds before a request is left out.
const MAX_RING_READS: usize = 256;
/// I/O in flight per process and file; a thread beyond waits for a free lane.
pub const LANES: usize = FIRST_LANES + FURTHER_LANES;
/// Rings with recent requests per process and file.
pub const RINGS: usize = FIRST_LANES + FURTHER_RINGS;
const FIRST_PAGE_BYTES: usize = 4096;
/// Entries in the first page, before the words that are not of one process.
const FIRST_ENTRIES: usize = 27;
const ENTRIES_SKIPPED: usize = FIRST_PAGE_BYTES / ENTRY_BYTES - FIRST_ENTRIES;
const ENTRIES_END: usize = (MAX_PROCESSES as usize + ENTRIES_SKIPPED) * ENTRY_BYTES;
const FORGOTTEN_AT: usize = FIRST_ENTRIES * ENTRY_BYTES;
const USED_AT: usize = FORGOTTEN_AT + 8;
const HAS_FURTHER_AT: usize = FORGOTTEN_AT + 16;
const RECENT_AT: usize = ENTRIES_END.next_multiple_of(FIRST_PAGE_BYTES);
const RING_BYTES: usize = RING_WORDS * 8;
const FURTHER_AT: usize = RECENT_AT + MAX_PROCESSES as usize * FIRST_LANES * RING_BYTES;
const FURTHER_RINGS_AT: usize = FURTHER_AT + MAX_PROCESSES as usize * FURTHER_BYTES;
const LENGTH: usize = FURTHER_RINGS_AT + MAX_PROCESSES as usize * FURTHER_RINGS * RING_BYTES;
const _: () = assert!(MAX_REGIONS <= 1 << 20);
const _: () = assert!(HAS_FURTHER_AT + MAX_PROCESSES as usize / 8 <= FIRST_PAGE_BYTES);

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

    /// Notes what the lane was used for, if there is space for it, while requests are observed by that number.
    #[inline]
    pub fn note(&self, observation: u16, request: Noted) {
        if self.number >= FIRST_LANES {
            self.slots.note_further(self.slot, self.number, observation, request);
        } else if let Some(recent) = self.slots.recent(self.slot, self.number) {
            recent.note(observation, request);
        }
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
        Ok(Self { map: map::make_first(descriptor, FIRST_PAGE_BYTES, LENGTH, FIRST_PAGE_BYTES)? })
    }

    /// Maps an existing table, to occupy lanes in it.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is too short, otherwise the error of mapping it.
    pub fn open(descriptor: impl AsFd) -> rustix::io::Result<Self> {
        Self::over(SharedMap::first(descriptor, FIRST_PAGE_BYTES, LENGTH, true)?)
    }

    /// For one who only looks.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is too short, otherwise the error of mapping it.
    pub fn open_to_watch(descriptor: impl AsFd) -> rustix::io::Result<Self> {
        Self::over(SharedMap::first(descriptor, FIRST_PAGE_BYTES, LENGTH, false)?)
    }

    /// For [`map::unmap_together`].
    pub fn map_mut(&mut self) -> &mut SharedMap {
        &mut self.map
    }

    /// Every version has given the first entry room.
    fn over(map: SharedMap) -> rustix::io::Result<Self> {
        map.assume_reached(ENTRY_BYTES);
        Ok(Self { map })
    }

    /// The most recent requests in a ring below [`RINGS`]; `None` if there is no space for them.
    #[must_use]
    pub fn recent(&self, slot: ProcessSlot, ring: usize) -> Option<Recent<'_>> {
        let slot = usize::from(slot.0);
        let at = match ring.checked_sub(FIRST_LANES) {
            None => RECENT_AT + (slot * FIRST_LANES + ring) * RING_BYTES,
            Some(further) => FURTHER_RINGS_AT + (slot * FURTHER_RINGS + further) * RING_BYTES,
        };
        self.map.is_reached(at, RING_BYTES).then(|| Recent::new(self.map.words(at, RING_WORDS)))
    }

    /// Into a further ring that nobody else holds. Where all are held for long (by threads that lost the processor, or by the one that a signal
    /// interrupted), the request is left out.
    #[cold]
    fn note_further(&self, slot: ProcessSlot, number: usize, observation: u16, request: Noted) {
        for peek in 0..MAX_RING_READS {
            let ring = (number + peek) % FURTHER_RINGS;
            let lock = self.map.word(Self::further(slot) + ring * 8);
            if lock.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                if let Some(recent) = self.recent(slot, FIRST_LANES + ring) {
                    recent.note(observation, request);
                }
                lock.store(0, Release);
                return;
            }
            std::hint::spin_loop();
        }
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
        let slot = usize::from(slot.0);
        let skipped = if slot < FIRST_ENTRIES { 0 } else { ENTRIES_SKIPPED };
        (slot + skipped) * ENTRY_BYTES
    }

    fn further(slot: ProcessSlot) -> usize {
        FURTHER_AT + usize::from(slot.0) * FURTHER_BYTES
    }

    /// The word and the bit that say whether a further lane of the process was ever occupied.
    fn has_further(&self, slot: ProcessSlot) -> (&AtomicU64, u64) {
        (self.map.word(HAS_FURTHER_AT + usize::from(slot.0) / 64 * 8), 1 << (slot.0 % 64))
    }

    fn lane(&self, slot: ProcessSlot, number: usize) -> &AtomicU64 {
        match number.checked_sub(FIRST_LANES) {
            None => self.map.word(Self::entry(slot) + LANES_AT + number * 8),
            Some(further) => self.map.word(Self::further(slot) + FURTHER_LANES_AT + further * 8),
        }
    }

    /// Numbers of the lanes that may be in use. The bit is set before a further lane is occupied, and that before the gate is read: who shuts the gate and
    /// then does not find the bit meets nobody in a further lane.
    fn lanes(&self, slot: ProcessSlot) -> std::ops::Range<usize> {
        let (word, bit) = self.has_further(slot);
        let has_further = word.load(SeqCst) & bit != 0 && self.map.is_reached(Self::further(slot), FURTHER_BYTES);
        0..if has_further { LANES } else { FIRST_LANES }
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
            let lanes = self.lanes(slot).map(|number| self.lane(slot, number));
            let is_write = |lane: &&AtomicU64| lane.load(SeqCst) >> 62 == 2;
            let written = lanes.clone().filter(is_write).count() as u64;
            self.map.word(FORGOTTEN_AT).fetch_add(written, SeqCst);
            lanes.for_each(|lane| lane.store(lane.load(Relaxed) & LANE_USES, SeqCst));
            if self.lanes(slot).len() > FIRST_LANES {
                (0..FURTHER_RINGS).for_each(|ring| self.map.word(Self::further(slot) + ring * 8).store(0, SeqCst));
            }
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
        for i in 0..FIRST_LANES {
            let number = (hint + i) % FIRST_LANES;
            let lane = self.map.word(entry + number * 8);
            if let Some(free) = marking::occupy(lane, what.to_word()) {
                return Some(Occupied { slots: self, slot, number, lane, free });
            }
        }
        self.occupy_further(slot, hint, what)
    }

    #[cold]
    fn occupy_further(&self, slot: ProcessSlot, hint: usize, what: InFlight) -> Option<Occupied<'_>> {
        self.map.reach(Self::further(slot), FURTHER_BYTES).ok()?;
        let (word, bit) = self.has_further(slot);
        word.fetch_or(bit, SeqCst);
        (0..FURTHER_LANES).find_map(|i| {
            let number = FIRST_LANES + (hint + i) % FURTHER_LANES;
            let lane = self.lane(slot, number);
            let free = marking::occupy(lane, what.to_word())?;
            Some(Occupied { slots: self, slot, number, lane, free })
        })
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
        let is_used = u64::from(slot.0) < self.map.word(USED_AT).load(SeqCst)
            && self.map.is_reached(Self::entry(slot), ENTRY_BYTES);
        let lanes = if is_used { self.lanes(slot) } else { 0..0 };
        lanes.filter_map(move |number| InFlight::from_word(self.lane(slot, number).load(SeqCst)))
    }

    /// Every use of a lane, by the living and the dead, that overlaps `regions`.
    #[must_use]
    pub fn uses(&self, first: RegionIndex, last: RegionIndex) -> Vec<Use> {
        let mut uses = Vec::new();
        for (slot, incarnation) in self.users() {
            for lane in self.lanes(slot) {
                let word = self.lane(slot, lane).load(SeqCst);
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
            let lanes = self.lanes(slot).map(|number| self.lane(slot, number).load(SeqCst));
            lanes.fold(mark ^ u64::from(slot.0), |mark, word| mark.rotate_left(5).wrapping_add(word))
        })
    }

    /// Whether the use goes on: its lane has not been freed since, nor cleared by a later process.
    #[must_use]
    pub fn goes_on(&self, lane: &Use) -> bool {
        self.lane(lane.slot, lane.lane).load(SeqCst) == lane.word
            && self.map.word(Self::entry(lane.slot)).load(SeqCst) == lane.incarnation.0
    }

    /// Write lanes of dead processes that others have cleared, counted up for ever.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.map.word(FORGOTTEN_AT).load(SeqCst)
    }

    /// Who has the file open by a table of whatever version. Read, not mapped, so that entries that were never used get no space. The table does not say
    /// its version, and in older ones no entry was skipped: so each slot counts with what either reading finds, of which that of another version is of no
    /// incarnation that lives.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is shorter than a table, otherwise the error of reading it.
    pub fn users_of_any_version(descriptor: impl AsFd) -> rustix::io::Result<Vec<(ProcessSlot, Incarnation)>> {
        let mut table = vec![0; ENTRIES_END];
        let mut read = 0;
        while read < table.len() {
            match rustix::io::retry_on_intr(|| rustix::io::pread(&descriptor, &mut table[read..], read as u64))? {
                0 if read >= MAX_PROCESSES as usize * ENTRY_BYTES => break,
                0 => return Err(rustix::io::Errno::INVAL),
                bytes => read += bytes,
            }
        }
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|byte| table[at + byte]));
        let entries = |slot: ProcessSlot| [Self::entry(slot), usize::from(slot.0) * ENTRY_BYTES];
        let found = (0..MAX_PROCESSES).map(ProcessSlot).flat_map(|slot| entries(slot).map(|entry| (slot, entry)));
        let users = found.filter(|(_, entry)| word(entry + 8) > 0);
        let mut users: Vec<_> = users.map(|(slot, entry)| (slot, Incarnation(word(entry)))).collect();
        users.dedup();
        Ok(users)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_of(region: u32) -> InFlight {
        InFlight { direction: Direction::Write, first: RegionIndex(region), last: RegionIndex(region + 1) }
    }

    #[test]
    fn users_are_found_in_this_versions_table_and_in_one_that_skips_no_entry() {
        use std::os::unix::fs::FileExt;
        let users =
            [(3, 70), (FIRST_ENTRIES - 1, 71), (FIRST_ENTRIES, 72), (40, 73), (usize::from(MAX_PROCESSES) - 1, 74)];
        let users = users.map(|(slot, incarnation)| (ProcessSlot(slot as u16), Incarnation(incarnation)));
        let table = tempfile::tempfile().unwrap();
        let slots = Slots::build(&table.try_clone().unwrap().into()).unwrap();
        users.iter().for_each(|(slot, incarnation)| slots.add_user(*slot, *incarnation).unwrap());
        let found = Slots::users_of_any_version(&table).unwrap();
        assert!(users.iter().all(|user| found.contains(user)), "{found:?}");
        let old = tempfile::tempfile().unwrap();
        old.set_len(u64::from(MAX_PROCESSES) * ENTRY_BYTES as u64).unwrap();
        for (slot, incarnation) in users {
            let at = u64::from(slot.0) * ENTRY_BYTES as u64;
            old.write_all_at(&incarnation.0.to_ne_bytes(), at).unwrap();
            old.write_all_at(&1u64.to_ne_bytes(), at + 8).unwrap();
        }
        let found = Slots::users_of_any_version(&old).unwrap();
        assert!(users.iter().all(|user| found.contains(user)), "{found:?}");
        old.set_len(4096).unwrap();
        assert!(Slots::users_of_any_version(&old).is_err());
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
    fn threads_beyond_the_first_lanes_take_further_ones_that_everybody_sees() {
        let file = tempfile::tempfile().unwrap();
        let slots = Slots::build(&file.try_clone().unwrap().into()).unwrap();
        let (slot, other) = (ProcessSlot(70), ProcessSlot(71));
        slots.add_user(slot, Incarnation(7)).unwrap();
        slots.add_user(other, Incarnation(7)).unwrap();
        let allocated = || rustix::fs::fstat(&file).unwrap().st_blocks;
        let before = allocated();
        let taken: Vec<Occupied<'_>> =
            (0..LANES).map(|number| slots.occupy(slot, 3, write_of(number as u32)).unwrap()).collect();
        assert!(slots.occupy(slot, 3, write_of(0)).is_none(), "all lanes are taken");
        // Another's view, as the broker's is.
        let watching = Slots::open_to_watch(&file).unwrap();
        let regions: std::collections::BTreeSet<u32> = watching.in_flight(slot).map(|what| what.first.0).collect();
        assert!(regions.into_iter().eq(0..LANES as u32));
        let seen = watching.uses(RegionIndex(0), RegionIndex(MAX_REGIONS - 1));
        assert!(seen.len() == LANES && seen.iter().all(|lane| watching.goes_on(lane)));
        assert_eq!(watching.in_flight(other).count(), 0);
        let inside = slots.uses_mark();
        taken.last().unwrap().free();
        assert!(slots.uses_mark() != inside && seen.iter().filter(|lane| watching.goes_on(lane)).count() == LANES - 1);
        assert!(allocated() > before || before == 0, "the further lanes got their pages by being used");
        slots.add_user(slot, Incarnation(8)).unwrap();
        assert_eq!(slots.forgotten(), LANES as u64 - 1);
        assert!(!seen.iter().any(|lane| watching.goes_on(lane)) && watching.in_flight(slot).count() == 0);
    }

    /// Requests of many threads in few rings: each is noted once.
    #[test]
    fn what_further_lanes_are_used_for_is_noted_in_rings_that_they_share() {
        const THREADS: u64 = 24;
        let slots = Slots::build(&tempfile::tempfile().unwrap().into()).unwrap();
        let slot = ProcessSlot(5);
        slots.add_user(slot, Incarnation(7)).unwrap();
        let inside = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (slots, inside) = (&slots, &inside);
                scope.spawn(move || {
                    let lane = slots.occupy(slot, thread as usize, write_of(thread as u32)).unwrap();
                    inside.wait();
                    let offset = stripewise_layout::FileOffset(thread);
                    lane.note(1, Noted { kind: stripewise_layout::RequestKind::Read, offset, bytes: 1, time_ms: 0 });
                    inside.wait();
                    lane.free();
                });
            }
        });
        let mut noted = Vec::new();
        for ring in 0..RINGS {
            let (_, missed) = slots.recent(slot, ring).unwrap().read(0, |request| noted.push(request.offset.0));
            assert_eq!(missed, 0);
        }
        noted.sort_unstable();
        noted.dedup();
        // One that found both rings held for long is left out.
        assert!(noted.len() >= FIRST_LANES && noted.iter().all(|thread| *thread < THREADS), "{noted:?}");
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
