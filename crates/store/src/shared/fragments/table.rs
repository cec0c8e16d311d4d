//! The table of a managed file's fragments, `ID.frag`: one log for each disk, its entries and free slots.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic and version |
//! | 8 | 8 | file id |
//! | 16 | 16 | boot id of the host when the table was built |
//! | 32 | 8 | bytes of a slot |
//! | 40 | 8 | servers of the cluster |
//! | 48 | 8 | whether something is dirty that was not yet written back, see `super::Dirtied` |
//! | 4096 | 64 each | by server: number of the log's server + 1 (0: no log), its generation, slots, slots granted, entries, offset of its area |
//! | areas | | free bits, 8 bytes for 64 slots; then entries of 24 bytes, see `super` |
//!
//! An entry is three words:
//!
//! - state: occupancy (32 bits, raised when a range enters or leaves), version (24, raised at every change), state (8: 0 empty,
//!   1 claimed, 2 pending, 3 clean, 4 dirty, 5 flushing);
//! - place: region (20 bits) and offset in its object on the disk (44);
//! - rest: class (1 bit), slot (32), length (21).
//!
//! The broker makes the file when a program first needs it. Those who may write the managed file map it writable. It outlives every
//! process and is valid in one boot of the host only, because `fsync` writes to the disks all that must survive a boot. There are
//! twice as many entries as slots, so that few sets are full before the log is.

use super::{Dirtied, ENTRY_WORDS, Sets, WAYS};
use crate::shared::control::MAX_REGIONS;
use crate::shared::map::{self, SharedMap};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stripewise_layout::{FileId, Generation, RegionIndex, ServerId};

const MAGIC: u64 = u64::from_le_bytes(*b"SWFRAG\0\x02");
const FILE_AT: usize = 8;
const BOOT_AT: usize = 16;
const SLOT_BYTES_AT: usize = 32;
const SERVERS_AT: usize = 40;
const DIRTIED_AT: usize = 48;
const LOGS_AT: usize = 4096;
const LOG_BYTES: usize = 64;
const ON: usize = 0;
const GENERATION: usize = 8;
const SLOTS: usize = 16;
const GRANTED: usize = 24;
const ENTRIES: usize = 32;
const AREA: usize = 40;
/// Most servers of a cluster that a table has space for.
const MAX_SERVERS: u64 = 1 << 16;

/// A log that a table is built with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewLog {
    /// SServer that holds the log's object.
    pub on: ServerId,
    /// Of the log's object.
    pub generation: Generation,
    /// Most slots that the file may ever get here.
    pub slots: u32,
}

/// One disk's log as the table has it.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    /// Server on which the log's object lies.
    pub on: ServerId,
    /// Of the log's object.
    pub generation: Generation,
    /// Slots that the log may have at most.
    pub slots: u32,
    /// Its entries and free slots.
    pub sets: Sets<'a, AtomicU64>,
}

/// What the head says of a log, which never changes. Read once: whoever may write the file may write this too, later.
#[derive(Clone, Copy, Debug)]
struct Place {
    on: ServerId,
    generation: Generation,
    slots: u32,
    entries: usize,
    area: usize,
}

impl Place {
    /// `None`: the server has no log.
    fn read(map: &SharedMap, server: usize, servers: usize, length: usize) -> rustix::io::Result<Option<Self>> {
        let word = |offset| map.word(LOGS_AT + server * LOG_BYTES + offset).load(Relaxed);
        let Some(on) = word(ON).checked_sub(1) else { return Ok(None) };
        let place = (|| {
            let place = Self {
                on: ServerId(u16::try_from(on).ok().filter(|on| usize::from(*on) < servers)?),
                generation: Generation(u32::try_from(word(GENERATION)).ok()?),
                slots: u32::try_from(word(SLOTS)).ok().filter(|slots| slots.is_multiple_of(64))?,
                entries: usize::try_from(word(ENTRIES)).ok().filter(|entries| entries.is_multiple_of(WAYS))?,
                area: usize::try_from(word(AREA)).ok().filter(|area| area.is_multiple_of(8))?,
            };
            let end = place.area.checked_add(place.slots as usize / 8)?;
            let end = end.checked_add(place.entries.checked_mul(ENTRY_WORDS * 8)?)?;
            (place.area >= LOGS_AT + servers * LOG_BYTES && end <= length).then_some(place)
        })();
        place.map(Some).ok_or(Errno::INVAL)
    }
}

/// The mapped table of a file's fragments.
#[derive(Debug)]
pub struct FragmentTable {
    map: SharedMap,
    /// By server.
    places: Box<[Option<Place>]>,
    slot_bytes: u64,
}

impl FragmentTable {
    /// Broker only. `logs`: by server, `None` where it has no log.
    ///
    /// # Errors
    ///
    /// `INVAL` if `slot_bytes` is no power of two or above 1 MiB, `NOSPC` when the state directory
    /// is full, otherwise the error of sizing or mapping the file.
    pub fn build(
        descriptor: &OwnedFd,
        file: FileId,
        boot: [u8; 16],
        slot_bytes: u64,
        logs: &[Option<NewLog>],
    ) -> rustix::io::Result<Self> {
        if !slot_bytes.is_power_of_two() || slot_bytes > 1 << 20 {
            return Err(Errno::INVAL);
        }
        let mut at = (LOGS_AT + logs.len() * LOG_BYTES).next_multiple_of(4096);
        let areas: Vec<(usize, usize)> = logs
            .iter()
            .map(|log| {
                let slots = log.map_or(0, |log| (log.slots as usize).next_multiple_of(64));
                let entries = (slots * 2).next_multiple_of(WAYS);
                let area = at;
                at = (at + slots / 8 + entries * ENTRY_WORDS * 8).next_multiple_of(4096);
                (area, entries)
            })
            .collect();
        let map = map::make(descriptor, at, at)?;
        for (number, (log, (area, entries))) in logs.iter().zip(areas).enumerate() {
            let Some(log) = log else { continue };
            let word = |offset| map.word(LOGS_AT + number * LOG_BYTES + offset);
            word(ON).store(u64::from(log.on.0) + 1, Relaxed);
            word(GENERATION).store(log.generation.0.into(), Relaxed);
            word(SLOTS).store((log.slots as usize).next_multiple_of(64) as u64, Relaxed);
            word(ENTRIES).store(entries as u64, Relaxed);
            word(AREA).store(area as u64, Relaxed);
        }
        map.word(FILE_AT).store(file.0, Relaxed);
        for (offset, half) in [0, 8].into_iter().zip(boot.chunks(8)) {
            map.word(BOOT_AT + offset).store(u64::from_le_bytes(half.try_into().map_err(|_| Errno::INVAL)?), Relaxed);
        }
        map.word(SLOT_BYTES_AT).store(slot_bytes, Relaxed);
        map.word(SERVERS_AT).store(logs.len() as u64, Relaxed);
        map.word(0).store(MAGIC, Release);
        let places = (0..logs.len()).map(|server| Place::read(&map, server, logs.len(), at));
        Ok(Self { places: places.collect::<Result<_, _>>()?, map, slot_bytes })
    }

    /// Maps a table. `INVAL`: the file is none, or of another version or file, or damaged so that it cannot be used.
    ///
    /// # Errors
    ///
    /// `INVAL` as said, otherwise the error of mapping it.
    pub fn open(descriptor: impl AsFd, file: FileId, writable: bool) -> rustix::io::Result<Self> {
        let length = rustix::fs::fstat(&descriptor)?.st_size as usize;
        if length < LOGS_AT {
            return Err(Errno::INVAL);
        }
        let map = SharedMap::new(&descriptor, length, writable)?;
        let (servers, slot_bytes) = (map.word(SERVERS_AT).load(Relaxed), map.word(SLOT_BYTES_AT).load(Relaxed));
        let is_ours = map.word(0).load(Acquire) == MAGIC && map.word(FILE_AT).load(Relaxed) == file.0;
        if !is_ours
            || servers > MAX_SERVERS
            || !slot_bytes.is_power_of_two()
            || slot_bytes > 1 << 20
            || LOGS_AT + servers as usize * LOG_BYTES > length
        {
            return Err(Errno::INVAL);
        }
        let servers = servers as usize;
        let places = (0..servers).map(|server| Place::read(&map, server, servers, length));
        Ok(Self { places: places.collect::<Result<_, _>>()?, map, slot_bytes })
    }

    /// Boot of the host in which the table was built; it is valid in that one only.
    #[must_use]
    pub fn boot_id(&self) -> [u8; 16] {
        let mut boot = [0; 16];
        boot[..8].copy_from_slice(&self.map.word(BOOT_AT).load(Relaxed).to_le_bytes());
        boot[8..].copy_from_slice(&self.map.word(BOOT_AT + 8).load(Relaxed).to_le_bytes());
        boot
    }

    /// Whether the mapping permits writes: those of who may write the managed file do.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.map.is_writable()
    }

    /// Length of the slots of all its logs, a power of two up to 1 MiB.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// The log of a disk; `None` if it has none.
    #[must_use]
    pub fn log(&self, disk: ServerId) -> Option<Log<'_>> {
        let Place { on, generation, slots, entries, area } = (*self.places.get(usize::from(disk.0))?)?;
        let free = self.map.words(area, slots as usize / 64);
        let entries = self.map.words(area + slots as usize / 8, entries * ENTRY_WORDS);
        Some(Log { on, generation, slots, sets: Sets::new(entries, free, self.slot_bytes) })
    }

    /// Disks that have a log.
    pub fn disks(&self) -> impl Iterator<Item = ServerId> {
        (0..self.places.len()).map(|number| ServerId(number as u16)).filter(|disk| self.log(*disk).is_some())
    }

    /// Slots that the broker has granted this log, from the first on.
    #[must_use]
    pub fn granted(&self, disk: ServerId) -> u32 {
        let slots = self.places.get(usize::from(disk.0)).copied().flatten().map_or(0, |place| place.slots);
        self.granted_word(disk).map_or(0, |word| word.load(SeqCst).min(slots.into()) as u32)
    }

    /// Broker only: grants further slots, which are free then. Returns how many there were to grant.
    pub fn grant(&self, disk: ServerId, more: u32) -> u32 {
        let (Some(log), Some(word)) = (self.log(disk), self.granted_word(disk)) else { return 0 };
        let granted = self.granted(disk);
        let more = more.min(log.slots - granted);
        word.store(u64::from(granted + more), SeqCst);
        (granted..granted + more).for_each(|slot| log.sets.free_slot(slot));
        more
    }

    /// Broker only: takes back slots from the last one on as long as they are free, at most so many. Returns how many.
    pub fn withdraw(&self, disk: ServerId, most: u32) -> u32 {
        let (Some(log), Some(word)) = (self.log(disk), self.granted_word(disk)) else { return 0 };
        let granted = self.granted(disk);
        let most = most.min(granted);
        let withdrawn = (1..=most).take_while(|back| log.sets.take_this_slot(granted - back)).count() as u32;
        word.store(u64::from(granted - withdrawn), SeqCst);
        withdrawn
    }

    fn granted_word(&self, disk: ServerId) -> Option<&AtomicU64> {
        let number = usize::from(disk.0);
        (number < self.places.len()).then(|| self.map.word(LOGS_AT + number * LOG_BYTES + GRANTED))
    }

    fn dirtied(&self) -> Dirtied<'_, AtomicU64> {
        Dirtied(self.map.word(DIRTIED_AT))
    }

    /// A writer's note, after it made an entry dirty and before its write returns.
    #[inline]
    pub fn note_dirtied(&self) {
        self.dirtied().note();
    }

    /// Whether a writer noted anything that no flush has finished writing back.
    #[must_use]
    pub fn is_dirtied(&self) -> bool {
        self.dirtied().needs_flush()
    }

    /// Broker only, before everything is written back. Whether there is anything.
    pub fn take_dirtied(&self) -> bool {
        self.dirtied().begin_flush()
    }

    /// Broker only, after everything was written back without an error.
    pub fn end_flush(&self) {
        self.dirtied().end_flush();
    }
}

/// The region number under which a disk's log is named.
#[must_use]
pub fn log_region(disk: ServerId) -> RegionIndex {
    RegionIndex(MAX_REGIONS + u32::from(disk.0))
}

/// Steps of an eighth of a second, for the order of last uses.
#[must_use]
pub fn tick() -> u32 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    (now.tv_sec as u64 * 8 + now.tv_nsec as u64 / 125_000_000) as u32
}

#[cfg(test)]
mod tests {
    use super::super::{Class, DiskRange};
    use super::*;
    use stripewise_layout::{ObjectOffset, RegionIndex};

    fn logs() -> Vec<Option<NewLog>> {
        let log = |on| Some(NewLog { on: ServerId(on), generation: Generation(7), slots: 100 });
        vec![log(2), log(3), None, None]
    }

    #[test]
    fn a_table_that_was_built_is_opened_with_its_logs() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let built = FragmentTable::build(&file, FileId(9), [5; 16], 4096, &logs()).unwrap();
        let opened = FragmentTable::open(&file, FileId(9), false).unwrap();
        assert_eq!((opened.boot_id(), opened.slot_bytes()), ([5; 16], 4096));
        assert_eq!(opened.disks().collect::<Vec<_>>(), [ServerId(0), ServerId(1)]);
        let log = opened.log(ServerId(1)).unwrap();
        assert_eq!((log.on, log.generation, log.slots, log.sets.count()), (ServerId(3), Generation(7), 128, 256));
        assert!(opened.log(ServerId(2)).is_none() && opened.log(ServerId(9)).is_none());
        let range = DiskRange { region: RegionIndex(1), offset: ObjectOffset(5), length: 9 };
        assert!(built.log(ServerId(0)).unwrap().sets.publish(&range, Class::Fragment).is_none(), "nothing granted");
        assert_eq!((built.grant(ServerId(0), 100), built.grant(ServerId(0), 100)), (100, 28));
        assert_eq!((opened.granted(ServerId(0)), opened.granted(ServerId(1))), (128, 0));
        built.log(ServerId(0)).unwrap().sets.publish(&range, Class::Random).unwrap();
        let seen: Vec<_> = opened.log(ServerId(0)).unwrap().sets.all().collect();
        assert_eq!((seen.len(), seen[0].range, seen[0].class), (1, range, Class::Random));
        assert_eq!(opened.log(ServerId(1)).unwrap().sets.all().count(), 0);
        // Slot 0 is the entry's.
        assert_eq!((built.withdraw(ServerId(0), 100), built.withdraw(ServerId(0), 100)), (100, 27));
        assert_eq!((opened.granted(ServerId(0)), opened.log(ServerId(0)).unwrap().sets.free_slots()), (1, 0));
        assert_eq!((built.grant(ServerId(0), 2), built.log(ServerId(0)).unwrap().sets.take_slot()), (2, Some(1)));
        built.note_dirtied();
        assert!(opened.is_dirtied() && built.take_dirtied() && opened.is_dirtied());
        built.end_flush();
        assert!(!opened.is_dirtied() && !built.take_dirtied());
        // Noted while a flush goes on, which may have missed it.
        built.note_dirtied();
        built.end_flush();
        assert!(opened.is_dirtied());
    }

    #[test]
    fn damage_to_an_open_table_leads_nowhere_else() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        let built = FragmentTable::build(&file, FileId(9), [5; 16], 4096, &logs()).unwrap();
        let opened = FragmentTable::open(&file, FileId(9), true).unwrap();
        assert_eq!(built.grant(ServerId(0), 4), 4);
        let length = rustix::fs::fstat(&file).unwrap().st_size as usize;
        rustix::io::pwrite(&file, &vec![0xff; length], 0).unwrap();
        for table in [&built, &opened] {
            let log = table.log(ServerId(0)).unwrap();
            assert_eq!((log.on, log.generation, log.slots, log.sets.count()), (ServerId(2), Generation(7), 128, 256));
            assert_eq!((table.slot_bytes(), table.disks().count()), (4096, 2));
            assert_eq!((table.granted(ServerId(0)), table.grant(ServerId(0), 1)), (128, 0));
            assert_eq!((table.granted(ServerId(2)), table.granted(ServerId(9))), (0, 0));
        }
        assert_eq!((built.withdraw(ServerId(0), 200), built.withdraw(ServerId(0), 200)), (128, 0));
        assert_eq!(FragmentTable::open(&file, FileId(9), true).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn what_is_no_table_or_a_damaged_one_is_refused() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        assert_eq!(FragmentTable::open(&file, FileId(9), false).unwrap_err(), Errno::INVAL);
        FragmentTable::build(&file, FileId(9), [5; 16], 4096, &logs()).unwrap();
        assert_eq!(FragmentTable::open(&file, FileId(8), false).unwrap_err(), Errno::INVAL);
        for (offset, bytes) in [
            (0, *b"SWFRAG\0\x03"),
            (32, [3; 8]),
            (40, [0xff; 8]),
            (4096 + 32, [0xff; 8]),
            (4096, [9; 8]),
            (4096 + 40, [0; 8]),
        ] {
            let mut before = [0; 8];
            rustix::io::pread(&file, &mut before, offset).unwrap();
            rustix::io::pwrite(&file, &bytes, offset).unwrap();
            assert_eq!(FragmentTable::open(&file, FileId(9), false).unwrap_err(), Errno::INVAL, "{offset}");
            rustix::io::pwrite(&file, &before, offset).unwrap();
        }
        assert!(FragmentTable::open(&file, FileId(9), true).is_ok());
        rustix::fs::ftruncate(&file, 8192).unwrap();
        assert_eq!(FragmentTable::open(&file, FileId(9), false).unwrap_err(), Errno::INVAL);
    }
}
