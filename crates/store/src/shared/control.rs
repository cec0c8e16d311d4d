//! The control block of a managed file: for every region its generation and layout. Only the broker writes it.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic and version |
//! | 8 | 8 | file id |
//! | 16 | 16 | boot id of the host when the block was built |
//! | 32 | 8 | region size in bytes |
//! | 40 | 4 | life: 0 being made, 1 live, 2 gone (objects freed or file released), 3 lost (the host was shut out of its cluster while it was in use) |
//! | 44 | 4 | gate: 0 open; odd while the file is held exclusively (truncation, release) |
//! | 48 | 4 | layout words used |
//! | 52 | 4 | flags. 1, leftovers: a server may hold bytes beyond the size, which must be cut before a gap is left there. 2: requests are observed. 4: the broker appended to descriptions what no sync has covered yet. 8: other hosts use the file too, and what is shown here may lag behind. From bit 16 on: the number of the observation |
//! | 56 | 8 | size that the mapping table has made durable |
//! | 64 | 4 | moves: counted up whenever writers may go on in a region that was sealed; they wait on it |
//! | 68 | 4 | fragments: 0 off, 1 on and no table yet, 2 on, 3 off with a table whose entries hold (`super::fragments`) |
//! | 72 | 4 | fragments' threshold in bytes |
//! | 76 | 4 | generation up to which the names of placed objects are durable |
//! | 80 | 8 | process slot + 1 of who asked for the truncation under way; 0: none is under way that might be repeated |
//! | 88, 96 | 8 each | its incarnation and the truncation's number (`super::processes`) |
//! | 104 | 8 | the size to be |
//! | 112 | 8 | 1: the file is extended without being held |
//! | 120 | 4 | retractions: counted up before a region's word becomes absent that was not |
//! | 128 | 512 | the first 64 words of layouts |
//! | 640 | 8 each | region words: generation (32 bits), layout's word number (24), state (8) |
//! | 4096 + 8 MiB | 1 MiB | layouts: words of 8 bytes; one layout is its count, then as many stripes. The place of the first 64 words is not used. A layout that does not fit below the 64th word begins there; a count of 0 leads to it |
//! | 4096 + 9 MiB | 24 each | replica words of a region, three: as region words, with state 0 none, 1 equal to the region's place |
//!
//! A region word is published by one store, so a reader sees a generation together with its layout and with the state:
//!
//! - 0: absent;
//! - 1: placed;
//! - 2: placed with replicas. A writer has the broker forget them first. Replica words are valid in this state only;
//! - 3: placed and narrow: its layout is the first stripe of one to come, and a writer has the other stripes made before it writes beyond that stripe;
//! - 64 + s: moving in move slot s (`super::marking`);
//! - 128 + s: sealed in move slot s; writers of the region wait.
//!
//! While a region moves, generation and layout are those of the place that it comes from. A generation that a move made has bit 31
//! set. Layouts are only ever added.
//!
//! The file is sparse, but its first page always has room: the words of the first 432 regions and the first layouts lie there, and only this page is mapped before others are used. Further layouts and further words get room before they are published ([`Regions::learn`], [`Regions::reserve_replicas`]), so that
//! publishing cannot fail; a region whose word has no space yet is absent.
//!
//! A reader that saw 2 may load a replica word that was cleared or published again since. It never gets old bytes by that: a replica that was
//! forgotten in the meantime was so for a write that overlaps this read, and one that was published in the meantime is newer.

mod gate;
mod layouts;
mod notices;
mod regions;

pub use gate::Gate;
pub use notices::{FragmentMode, Notices};
pub use regions::{RegionState, Regions, narrow_bytes};

use super::map::{self, SharedMap};
use super::process_slot::{Incarnation, MAX_PROCESSES, ProcessSlot};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stripewise_layout::{FileId, Generation, RegionIndex};

const MAGIC: u64 = u64::from_le_bytes(*b"SWCTRL\0\x0c");
const FILE_AT: usize = 8;
const BOOT_AT: usize = 16;
const REGION_BYTES_AT: usize = 32;
const LIFE_AT: usize = 40;
const GATE_AT: usize = 44;
const DURABLE_SIZE_AT: usize = 56;
const DURABLE_NAMES_AT: usize = 76;
const TRUNCATION_AT: usize = 80;
const FIRST_LAYOUTS_AT: usize = 128;
/// Words of layouts that lie in the first page.
const FIRST_LAYOUT_WORDS: usize = 64;
const REGIONS_AT: usize = FIRST_LAYOUTS_AT + FIRST_LAYOUT_WORDS * 8;
const FIRST_PAGE_BYTES: usize = 4096;

/// Most regions of one file: with 64 MiB regions, 64 TiB.
pub const MAX_REGIONS: u32 = 1 << 20;
/// Most replicas of a region, its place not counted.
pub const MAX_REPLICAS: usize = 3;
const LAYOUTS_AT: usize = FIRST_PAGE_BYTES + MAX_REGIONS as usize * 8;
const LAYOUT_WORDS: usize = 1 << 17;
const REPLICAS_AT: usize = LAYOUTS_AT + LAYOUT_WORDS * 8;
const LENGTH: usize = REPLICAS_AT + MAX_REGIONS as usize * MAX_REPLICAS * 8;

/// In the place of a durable size: none is.
const NOT_DURABLE: u64 = u64::MAX;

/// How far the file is from its making to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Its stub has no name yet; an open waits or fails.
    Making,
    /// Open to everybody who may open its stub.
    Live,
    /// Objects are freed, or belong to an ordinary file again: open the path again.
    Gone,
    /// The host was shut out of its cluster while programs here used this memory: what they made of the file's size may be lost. Other memory has taken its place.
    Lost,
}

/// A truncation under way, for a successor of its broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncating {
    /// Process slot of who asked for it.
    pub slot: ProcessSlot,
    /// Which holder of that slot.
    pub incarnation: Incarnation,
    /// The asker's number of it, by which a repetition is known ([`super::processes`]).
    pub number: u64,
    /// The size to be.
    pub size_bytes: u64,
    /// The file is extended, and not held for that.
    pub only_extends: bool,
}

/// Why a control block cannot be used or take a layout in.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Distinct layouts of a file fill the words that a block has for them.
    #[error(
        "the layouts of file {file} need more than {LAYOUT_WORDS} words; use fewer distinct layouts or larger regions"
    )]
    LayoutsFull {
        /// The file.
        file: FileId,
    },
    /// The region's number is [`MAX_REGIONS`] or more.
    #[error(
        "file {file} would need region {region}; a file has at most {MAX_REGIONS} regions (use a larger region size)"
    )]
    TooManyRegions {
        /// The file.
        file: FileId,
        /// The region asked for.
        region: RegionIndex,
    },
    /// The descriptor's file has other magic bytes, or is the block of another file.
    #[error("not a control block of this file")]
    NotAControlBlock,
    /// Another version of stripewise built the block; it is taken over when nobody uses it any
    /// more.
    #[error("the control block of file {file} is of another version ({found}) of stripewise")]
    OtherVersion {
        /// The file.
        file: FileId,
        /// Version in the block's magic.
        found: u8,
        /// Boot of the host in which it was built.
        boot: [u8; 16],
    },
    /// The kernel refused; `NOSPC`: the state directory is full.
    #[error("control block: {0}")]
    Os(#[from] rustix::io::Errno),
}

/// A mapped control block.
#[derive(Debug)]
pub struct ControlBlock {
    map: SharedMap,
}

impl ControlBlock {
    /// Broker only: sizes an empty file and writes the header. The life is [`Life::Making`].
    ///
    /// # Errors
    ///
    /// [`ControlError::Os`]; `NOSPC` when the state directory has no space for the header.
    pub fn build(descriptor: &OwnedFd, file: FileId, boot: [u8; 16], region_bytes: u64) -> Result<Self, ControlError> {
        let map = map::make_first(descriptor, FIRST_PAGE_BYTES, LENGTH, FIRST_PAGE_BYTES)?;
        map.word(FILE_AT).store(file.0, Relaxed);
        for (i, half) in boot.chunks_exact(8).enumerate() {
            map.word(BOOT_AT + i * 8).store(u64::from_le_bytes(half.try_into().expect("8 bytes")), Relaxed);
        }
        map.word(REGION_BYTES_AT).store(region_bytes, Relaxed);
        map.word(0).store(MAGIC, Release);
        Ok(Self { map })
    }

    /// Maps an existing block; `writable` is the broker's.
    ///
    /// # Errors
    ///
    /// [`ControlError::NotAControlBlock`], [`ControlError::OtherVersion`], or [`ControlError::Os`]
    /// when it cannot be mapped.
    pub fn open(descriptor: impl AsFd, file: FileId, writable: bool) -> Result<Self, ControlError> {
        let map = SharedMap::first(descriptor, FIRST_PAGE_BYTES, LENGTH, writable)?;
        let (magic, expected) = (map.word(0).load(Acquire).to_le_bytes(), MAGIC.to_le_bytes());
        if magic[..7] != expected[..7] || map.word(FILE_AT).load(Relaxed) != file.0 {
            return Err(ControlError::NotAControlBlock);
        }
        if magic != expected {
            // The boot id has stood at the same place from the first version on.
            return Err(ControlError::OtherVersion { file, found: magic[7], boot: Self { map }.boot_id() });
        }
        map.assume_reached(FIRST_PAGE_BYTES);
        Ok(Self { map })
    }

    /// For [`map::unmap_together`].
    pub fn map_mut(&mut self) -> &mut SharedMap {
        &mut self.map
    }

    /// The boot id in whatever once was a control block; it has stood at the same place from the first version on.
    ///
    /// # Errors
    ///
    /// [`ControlError::Os`] when it cannot be mapped, as `INVAL` when it is shorter than a block.
    pub fn boot_id_of_any(descriptor: impl AsFd) -> Result<[u8; 16], ControlError> {
        Ok(Self { map: SharedMap::first(descriptor, FIRST_PAGE_BYTES, LENGTH, false)? }.boot_id())
    }

    /// Boot of the host in which the block was built; it is valid in that one only.
    #[must_use]
    pub fn boot_id(&self) -> [u8; 16] {
        let mut boot = [0; 16];
        boot[..8].copy_from_slice(&self.map.word(BOOT_AT).load(Relaxed).to_le_bytes());
        boot[8..].copy_from_slice(&self.map.word(BOOT_AT + 8).load(Relaxed).to_le_bytes());
        boot
    }

    /// Bytes of a region of this file.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.map.word(REGION_BYTES_AT).load(Relaxed)
    }

    /// Broker only, of a new block that nobody else has.
    pub fn set_region_bytes(&self, region_bytes: u64) {
        self.map.word(REGION_BYTES_AT).store(region_bytes, Release);
    }

    /// Whether the file is being made, there, or gone.
    #[must_use]
    pub fn life(&self) -> Life {
        match self.map.half(LIFE_AT).load(SeqCst) {
            0 => Life::Making,
            1 => Life::Live,
            3 => Life::Lost,
            _ => Life::Gone,
        }
    }

    /// Broker only.
    pub fn set_life(&self, life: Life) {
        self.map.half(LIFE_AT).store(life as u32, SeqCst);
    }

    /// The size that the mapping table has durably; `None` if the file's present record might not outlive a power failure. The size itself is the
    /// extent's.
    #[must_use]
    pub fn durable_size_bytes(&self) -> Option<u64> {
        Some(self.map.word(DURABLE_SIZE_AT).load(Acquire)).filter(|size| *size != NOT_DURABLE)
    }

    /// Broker only: after the transaction that made it durable, or `None` when the record has changed and is not durable.
    pub fn set_durable_size_bytes(&self, size: Option<u64>) {
        self.map.word(DURABLE_SIZE_AT).store(size.unwrap_or(NOT_DURABLE), Release);
    }

    /// Generation up to which the names of placed objects are durable. Those of moved regions are so in any case, from before the commit of the move.
    #[must_use]
    pub fn durable_names(&self) -> Generation {
        Generation(self.map.half(DURABLE_NAMES_AT).load(Acquire))
    }

    /// Broker only, after the transaction that recorded it: the names of all objects placed up to this generation are synced.
    pub fn set_durable_names(&self, generation: Generation) {
        self.map.half(DURABLE_NAMES_AT).store(generation.0, Release);
    }

    /// Whether I/O may begin.
    #[must_use]
    #[inline]
    pub fn gate(&self) -> Gate<'_> {
        Gate::new(self.map.half(GATE_AT))
    }

    /// Where the file's regions are, and what happens to them.
    #[must_use]
    #[inline]
    pub fn regions(&self) -> Regions<'_> {
        Regions::new(&self.map)
    }

    /// What everybody who uses the file has to mind.
    #[must_use]
    #[inline]
    pub fn notices(&self) -> Notices<'_> {
        Notices::new(&self.map)
    }

    /// Broker only: the truncation begins, or none is under way any more.
    pub fn set_truncating(&self, truncating: Option<Truncating>) {
        let word = |number: usize| self.map.word(TRUNCATION_AT + number * 8);
        // While the others change, the first says that there is none.
        word(0).store(0, SeqCst);
        let Some(truncating) = truncating else { return };
        word(1).store(truncating.incarnation.0, SeqCst);
        word(2).store(truncating.number, SeqCst);
        word(3).store(truncating.size_bytes, SeqCst);
        word(4).store(truncating.only_extends.into(), SeqCst);
        word(0).store(u64::from(truncating.slot.0) + 1, SeqCst);
    }

    /// The truncation that was under way when the broker ended.
    #[must_use]
    pub fn truncating(&self) -> Option<Truncating> {
        let word = |number: usize| self.map.word(TRUNCATION_AT + number * 8).load(SeqCst);
        Some(Truncating {
            slot: ProcessSlot(word(0).checked_sub(1)?.try_into().ok().filter(|slot| *slot < MAX_PROCESSES)?),
            incarnation: Incarnation(word(1)),
            number: word(2),
            size_bytes: word(3),
            only_extends: word(4) != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::marking::Motion;
    use stripewise_layout::{Layout, ServerId};

    /// A word beyond the file's size was not looked at, and believed when the file grew to it.
    #[test]
    fn words_of_regions_that_no_table_knows_are_cleared_and_get_no_room() {
        for directory in ["/dev/shm", "/tmp"] {
            let Ok(file) = tempfile::tempfile_in(directory) else { continue };
            let file = OwnedFd::from(file);
            let control = ControlBlock::build(&file, FileId(7), [1; 16], 4096).unwrap();
            let layout = Layout::new([(ServerId(0), 4096), (ServerId(1), 4096)]).unwrap();
            let far = MAX_REGIONS - 1;
            for region in [0, 1, 2, 70_000, far].map(RegionIndex) {
                control.regions().publish(FileId(7), region, Generation(5), &layout).unwrap();
            }
            let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks;
            let before = blocks();
            assert_eq!(control.regions().clear_from(&file, 2).unwrap(), 3);
            assert_eq!(blocks(), before, "{directory}");
            let placed = |region| control.regions().get(RegionIndex(region)) != RegionState::Absent;
            assert_eq!([0, 1, 2, 70_000, far].map(placed), [true, true, false, false, false]);
            assert_eq!(control.regions().clear_from(&file, 2).unwrap(), 0);
        }
    }

    #[test]
    fn observations_are_numbered_and_leave_other_flags_alone() {
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), FileId(7), [1; 16], 4096).unwrap();
        assert_eq!(control.notices().observation(), None);
        control.notices().set_leftovers(true);
        control.notices().begin_observation();
        let first = control.notices().observation().unwrap();
        assert!(control.notices().has_leftovers());
        control.notices().end_observation();
        assert_eq!(control.notices().observation(), None);
        control.notices().begin_observation();
        control.notices().set_leftovers(false);
        assert!(
            control.notices().observation().is_some_and(|number| number != first) && !control.notices().has_leftovers()
        );
    }

    #[test]
    fn other_hosts_are_noted_beside_other_flags_and_retractions_are_counted() {
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), FileId(7), [1; 16], 4096).unwrap();
        assert!(!control.notices().is_shared());
        control.notices().set_shared(true);
        control.notices().begin_observation();
        control.notices().set_leftovers(true);
        control.notices().set_leftovers(false);
        assert!(control.notices().is_shared());
        control.notices().set_shared(false);
        assert!(!control.notices().is_shared() && control.notices().observation().is_some());
        let layout = Layout::new([(ServerId(0), 4096)]).unwrap();
        control.regions().publish(FileId(7), RegionIndex(3), Generation(1), &layout).unwrap();
        assert_eq!(control.regions().retractions(), 0);
        control.regions().retract(RegionIndex(2));
        assert_eq!(control.regions().retractions(), 0, "it was absent before");
        control.regions().retract(RegionIndex(3));
        assert_eq!(control.regions().retractions(), 1);
    }

    #[test]
    fn placed_regions_count_up_to_the_size() {
        let file = FileId(7);
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), file, [1; 16], 4096).unwrap();
        assert_eq!((control.regions().placed_bytes(0), control.regions().placed_bytes(1 << 40)), (0, 0));
        let layout = Layout::new([(ServerId(0), 4096)]).unwrap();
        for region in [0, 2, 3, 9] {
            control.regions().publish(file, RegionIndex(region), Generation(1), &layout).unwrap();
        }
        for (size, placed) in
            [(0, 0), (1, 1), (4096, 4096), (8192, 4096), (8193, 4097), (14_000, 4096 + 5808), (16_384, 3 * 4096)]
        {
            assert_eq!(control.regions().placed_bytes(size), placed, "{size}");
        }
        assert_eq!(control.regions().placed_bytes(u64::MAX), 4 * 4096);
        control.regions().retract(RegionIndex(2));
        assert_eq!(control.regions().placed_bytes(16_384), 2 * 4096);
    }

    /// Layouts of so many stripes that they fit the first page in different ways, or not at all.
    #[test]
    fn layouts_in_the_first_page_and_behind_it_are_all_found_again() {
        let file = FileId(7);
        for sizes in
            [vec![1; 60], vec![62, 1, 63, 5], vec![63, 1], vec![64, 2], vec![20, 20, 20, 20, 1], vec![30, 31, 2]]
        {
            let memory = OwnedFd::from(tempfile::tempfile().unwrap());
            let control = ControlBlock::build(&memory, file, [1; 16], 4096).unwrap();
            let layouts: Vec<Layout> = sizes
                .iter()
                .enumerate()
                .map(|(number, stripes)| {
                    Layout::new((0..*stripes).map(|server| (ServerId(server), 4096 + number as u32))).unwrap()
                })
                .collect();
            let regions = || (0..).map(RegionIndex).zip(&layouts);
            for (region, layout) in regions() {
                control.regions().publish(file, region, Generation(1), layout).unwrap();
            }
            let reader = ControlBlock::open(&memory, file, false).unwrap();
            for (region, layout) in regions() {
                let RegionState::Placed { view, .. } = reader.regions().get(region) else { panic!("{region:?}") };
                assert_eq!(view.stripes(), layout.stripes(), "{sizes:?}");
                // Found, not added once more.
                control.regions().publish(file, region, Generation(1), layout).unwrap();
            }
            let recorded = regions().map(|(region, layout)| (region, Generation(1), layout));
            assert_eq!(reader.regions().find_damage(recorded, sizes.len() as u32), None, "{sizes:?}");
        }
    }

    #[test]
    fn a_layout_that_was_learnt_can_be_published_when_no_other_has_room() {
        let file = FileId(7);
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), file, [1; 16], 4096).unwrap();
        let layout = |size: u32| Layout::new((0..256).map(|server| (ServerId(server), size))).unwrap();
        let learnt =
            (1..).find(|size| control.regions().learn(file, RegionIndex(0), &layout(*size)).is_err()).unwrap() - 1;
        assert_eq!(learnt as usize, (LAYOUT_WORDS - FIRST_LAYOUT_WORDS) / 257);
        let full = control.regions().publish(file, RegionIndex(0), Generation(1), &layout(learnt + 1));
        assert!(matches!(full, Err(ControlError::LayoutsFull { .. })));
        assert_eq!(control.regions().get(RegionIndex(0)), RegionState::Absent);
        control.regions().publish(file, RegionIndex(0), Generation(1), &layout(learnt)).unwrap();
        let expected = layout(learnt);
        let placed = RegionState::Placed {
            generation: Generation(1),
            view: expected.view(),
            motion: Motion::Still,
            is_narrow: false,
        };
        assert_eq!(control.regions().get(RegionIndex(0)), placed);
    }
}
