//! The control block of a managed file: for every region its generation and layout. Only the broker writes it.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic and version |
//! | 8 | 8 | file id |
//! | 16 | 16 | boot id of the host when the block was built |
//! | 32 | 8 | region size in bytes |
//! | 40 | 4 | life: 0 being made, 1 live, 2 gone (objects freed or file released) |
//! | 44 | 4 | gate: 0 open; odd while the file is held exclusively (truncation, release) |
//! | 48 | 4 | layout words used |
//! | 52 | 4 | flags. 1, leftovers: a server may hold bytes beyond the size, which must be cut before a gap is left there. 2: requests are observed. From bit 16 on: the number of the observation |
//! | 56 | 8 | size that the mapping table has made durable |
//! | 64 | 4 | moves: counted up whenever writers may go on in a region that was sealed; they wait on it |
//! | 68 | 4 | fragments: 0 off, 1 on and no table yet, 2 on, 3 off with a table whose entries hold (`super::fragments`) |
//! | 72 | 4 | fragments' threshold in bytes |
//! | 80 | 8 | process slot + 1 of who asked for the truncation under way; 0: none is under way that might be repeated |
//! | 88, 96 | 8 each | its incarnation and the truncation's number (`super::processes`) |
//! | 104 | 8 | the size to be |
//! | 112 | 8 | 1: the file is extended without being held |
//! | 4096 | 1 MiB | layouts: words of 8 bytes; one layout is its count, then as many stripes |
//! | 4096 + 1 MiB | 8 each | region words: generation (32 bits), layout's word number (24), state (8) |
//! | 4096 + 9 MiB | 24 each | replica words of a region, three: as region words, with state 0 none, 1 equal to the region's place |
//!
//! A region word is published by one store, so a reader sees a generation together with its layout and with the state:
//!
//! - 0: absent;
//! - 1: placed;
//! - 2: placed with replicas. A writer has the broker forget them first. Replica words are valid in this state only;
//! - 64 + s: moving in move slot s (`super::marking`);
//! - 128 + s: sealed in move slot s; writers of the region wait.
//!
//! While a region moves, generation and layout are those of the place that it comes from. A generation that a move made has bit 31
//! set. Layouts are only ever added.
//!
//! The file is sparse. Layouts and words get room before they are published ([`ControlBlock::learn`], [`ControlBlock::reserve_replicas`]), so that
//! publishing cannot fail; a region whose word has no space yet is absent.
//!
//! A reader that saw 2 may load a replica word that was cleared or published again since. It never gets old bytes by that: a replica that was
//! forgotten in the meantime was so for a write that overlaps this read, and one that was published in the meantime is newer.

use super::map::{self, SharedMap};
use super::marking::{self, Marks, Motion};
use super::process_slot::{Incarnation, MAX_PROCESSES, ProcessSlot};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};
use stripewise_layout::{FileId, Generation, Layout, RegionGeometry, RegionIndex, Stripe, StripeView};

const MAGIC: u64 = u64::from_le_bytes(*b"SWCTRL\0\x06");
const FILE_AT: usize = 8;
const BOOT_AT: usize = 16;
const REGION_BYTES_AT: usize = 32;
const LIFE_AT: usize = 40;
const GATE_AT: usize = 44;
const LAYOUT_WORDS_AT: usize = 48;
const FLAGS_AT: usize = 52;
const DURABLE_SIZE_AT: usize = 56;
const MOVES_AT: usize = 64;
const FRAGMENTS_AT: usize = 68;
const THRESHOLD_AT: usize = 72;
const TRUNCATION_AT: usize = 80;
const LAYOUTS_AT: usize = 4096;
/// Flags.
const LEFTOVERS: u32 = 1;
const OBSERVED: u32 = 2;
const OBSERVATION_SHIFT: u32 = 16;
const LAYOUT_WORDS: usize = 1 << 17;
const REGIONS_AT: usize = LAYOUTS_AT + LAYOUT_WORDS * 8;

/// Most regions of one file: with 64 MiB regions, 64 TiB.
pub const MAX_REGIONS: u32 = 1 << 20;
/// Most replicas of a region, its place not counted.
pub const MAX_REPLICAS: usize = 3;
const REPLICAS_AT: usize = REGIONS_AT + MAX_REGIONS as usize * 8;
const LENGTH: usize = REPLICAS_AT + MAX_REGIONS as usize * MAX_REPLICAS * 8;

/// How far the file is from its making to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    /// Its stub has no name yet; an open waits or fails.
    Making,
    /// Open to everybody who may open its stub.
    Live,
    /// Objects are freed, or belong to an ordinary file again: open the path again.
    Gone,
}

/// What the control block says of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionState<'a> {
    /// Never placed: no object exists, all zeros.
    Absent,
    /// While it moves, this is where it lies until the move is published.
    Placed {
        /// Of the objects at the place; replicas have generations of their own.
        generation: Generation,
        /// Layout of the place, borrowed from the mapping.
        view: StripeView<'a>,
        /// Whether it moves, and whether there are replicas.
        motion: Motion,
    },
}

/// What the control block says of a file's fragments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum FragmentMode {
    /// No sub-request goes to an SSD for being small.
    Off = 0,
    /// Whoever has a small sub-request asks the broker for the table.
    Wanted = 1,
    /// There is a table; every I/O has to look there.
    On = 2,
    /// There is a table with entries; nothing is added.
    Leaving = 3,
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
        let map = map::make(descriptor, LENGTH, LAYOUTS_AT)?;
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
        let map = SharedMap::new(descriptor, LENGTH, writable)?;
        let (magic, expected) = (map.word(0).load(Acquire).to_le_bytes(), MAGIC.to_le_bytes());
        if magic[..7] != expected[..7] || map.word(FILE_AT).load(Relaxed) != file.0 {
            return Err(ControlError::NotAControlBlock);
        }
        if magic != expected {
            // The boot id has stood at the same place from the first version on.
            return Err(ControlError::OtherVersion { file, found: magic[7], boot: Self { map }.boot_id() });
        }
        Ok(Self { map })
    }

    /// The boot id in whatever once was a control block; it has stood at the same place from the first version on.
    ///
    /// # Errors
    ///
    /// [`ControlError::Os`] when it cannot be mapped, as `INVAL` when it is shorter than a block.
    pub fn boot_id_of_any(descriptor: impl AsFd) -> Result<[u8; 16], ControlError> {
        Ok(Self { map: SharedMap::new(descriptor, LENGTH, false)? }.boot_id())
    }

    /// What is wrong with a block that is to be taken over: words that no broker writes, or regions that do not lie where the mapping table says they
    /// do. `regions` are those of the table, in order; words are looked at up to `count` regions. `None`: nothing is.
    #[must_use]
    pub fn find_damage<'l>(
        &self,
        regions: impl Iterator<Item = (RegionIndex, Generation, &'l Layout)>,
        count: u32,
    ) -> Option<String> {
        let used = self.map.half(LAYOUT_WORDS_AT).load(Acquire) as usize;
        if used > LAYOUT_WORDS {
            return Some(format!("{used} words of layouts"));
        }
        let (mut starts, mut at) = (std::collections::HashSet::new(), 0);
        while at < used {
            let stripes = self.map.word(LAYOUTS_AT + at * 8).load(Relaxed);
            if stripes == 0 || stripes > (used - at - 1) as u64 {
                return Some(format!("a layout of {stripes} stripes"));
            }
            starts.insert(at as u64);
            at += 1 + stripes as usize;
        }
        let mut regions = regions.peekable();
        for region in (0..count.min(MAX_REGIONS)).map(RegionIndex) {
            let recorded = regions.next_if(|(of, ..)| *of == region);
            let word = self.load_word(region);
            if word == 0 {
                continue;
            }
            if !starts.contains(&(word >> 8 & 0xff_ffff)) || Motion::of(word).in_word(word) != word {
                return Some(format!("region {region} has the word {word:#x}"));
            }
            let (generation, view) = self.place_in(word);
            match recorded {
                // Committed and not published: the one who takes over publishes it.
                Some((_, other, _)) if generation != other => {}
                Some((.., layout)) if layout.stripes() == view.stripes() => {}
                Some(_) => return Some(format!("region {region} does not lie where the mapping table says")),
                None => return Some(format!("region {region} is not in the mapping table")),
            }
        }
        None
    }

    /// Broker only: clears the words of all regions from number `count` on, of which the mapping table knows none. What [`Self::find_damage`] has not
    /// looked at must not be believed when the file grows. Returns how many there were; `descriptor` is the block's file.
    ///
    /// # Errors
    ///
    /// The error of searching or reading `descriptor`; words that were found before it are cleared.
    pub fn clear_from(&self, descriptor: impl AsFd, count: u32) -> rustix::io::Result<u32> {
        let (mut at, mut cleared) = (Self::word_at(RegionIndex(count.min(MAX_REGIONS))) as u64, 0);
        let mut words = vec![0; 64 << 10];
        while at < REPLICAS_AT as u64 {
            // Read by the kernel: a page without room must not be touched, and gets none here.
            at = match rustix::fs::seek(&descriptor, SeekFrom::Data(at)) {
                Ok(data) => data & !7,
                Err(Errno::NXIO) => break,
                Err(Errno::INVAL) => at,
                Err(errno) => return Err(errno),
            };
            let most = (REPLICAS_AT as u64).saturating_sub(at).min(words.len() as u64) as usize;
            let read = rustix::io::pread(&descriptor, &mut words[..most], at)?;
            for (number, word) in words[..read].chunks_exact(8).enumerate() {
                if word.iter().any(|byte| *byte != 0) {
                    self.map.word(at as usize + number * 8).store(0, SeqCst);
                    cleared += 1;
                }
            }
            if read == 0 {
                break;
            }
            at += read as u64;
        }
        Ok(cleared)
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

    /// Whether the file is being made, there, or gone.
    #[must_use]
    pub fn life(&self) -> Life {
        match self.map.half(LIFE_AT).load(SeqCst) {
            0 => Life::Making,
            1 => Life::Live,
            _ => Life::Gone,
        }
    }

    /// Broker only.
    pub fn set_life(&self, life: Life) {
        self.map.half(LIFE_AT).store(life as u32, SeqCst);
    }

    /// True while someone holds the file exclusively: take the slot back and wait.
    #[must_use]
    pub fn gate_is_shut(&self) -> bool {
        self.map.half(GATE_AT).load(SeqCst) & 1 == 1
    }

    /// Broker only: no I/O begins from here on; those under way are in the slots' lanes.
    pub fn shut_gate(&self) {
        self.map.half(GATE_AT).fetch_or(1, SeqCst);
    }

    /// Broker only: I/O may begin again, and whoever waits on [`Self::gate_word`] is woken.
    pub fn open_gate(&self) {
        // The value changes with every opening, so that a waiter on it cannot miss one.
        let gate = self.map.half(GATE_AT);
        gate.store((gate.load(SeqCst) | 1).wrapping_add(1), SeqCst);
        let _ = rustix::thread::futex::wake(gate, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
    }

    /// The word that a waiter may use as a futex.
    #[must_use]
    pub fn gate_word(&self) -> &AtomicU32 {
        self.map.half(GATE_AT)
    }

    /// Whether a server may hold bytes beyond the size.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.map.half(FLAGS_AT).load(Acquire) & LEFTOVERS != 0
    }

    /// Broker only; with the gate shut.
    pub fn set_leftovers(&self, has_leftovers: bool) {
        self.set_flag(LEFTOVERS, has_leftovers);
    }

    /// The number of the present observation, if somebody wants to know of every request ([`super::recent`]). In the cache line of the gate, which an
    /// I/O has just read.
    #[must_use]
    #[inline]
    pub fn observation(&self) -> Option<u16> {
        let flags = self.map.half(FLAGS_AT).load(Acquire);
        (flags & OBSERVED != 0).then_some((flags >> OBSERVATION_SHIFT) as u16)
    }

    /// Broker only, one thread at a time: requests are observed from here on, by a new number.
    pub fn begin_observation(&self) {
        let flags = self.map.half(FLAGS_AT);
        let number = ((flags.load(Relaxed) >> OBSERVATION_SHIFT) as u16).wrapping_add(1);
        // Leftovers may be noted by another thread.
        let begin = |flags: u32| {
            Some(u32::from(number) << OBSERVATION_SHIFT | (flags & ((1 << OBSERVATION_SHIFT) - 1)) | OBSERVED)
        };
        let _ = flags.fetch_update(AcqRel, Acquire, begin);
    }

    /// Broker only.
    pub fn end_observation(&self) {
        self.set_flag(OBSERVED, false);
    }

    fn set_flag(&self, flag: u32, is_set: bool) {
        let flags = self.map.half(FLAGS_AT);
        if is_set {
            flags.fetch_or(flag, AcqRel);
        } else {
            flags.fetch_and(!flag, AcqRel);
        }
    }

    /// Whether the file's small sub-requests go to SSDs, and whether there is a table of them.
    #[must_use]
    #[inline]
    pub fn fragments(&self) -> FragmentMode {
        match self.map.half(FRAGMENTS_AT).load(SeqCst) {
            1 => FragmentMode::Wanted,
            2 => FragmentMode::On,
            3 => FragmentMode::Leaving,
            _ => FragmentMode::Off,
        }
    }

    /// Sub-requests shorter than this, and than half a stripe, may be fragments.
    #[must_use]
    pub fn fragment_threshold_bytes(&self) -> u64 {
        self.map.half(THRESHOLD_AT).load(Relaxed).into()
    }

    /// Broker only.
    pub fn set_fragments(&self, mode: FragmentMode, threshold_bytes: u32) {
        self.map.half(THRESHOLD_AT).store(threshold_bytes, Relaxed);
        self.map.half(FRAGMENTS_AT).store(mode as u32, SeqCst);
    }

    /// The size that the mapping table has; the size itself is the extent's.
    #[must_use]
    pub fn durable_size_bytes(&self) -> u64 {
        self.map.word(DURABLE_SIZE_AT).load(Acquire)
    }

    /// Broker only, after the transaction that made it durable.
    pub fn set_durable_size_bytes(&self, size: u64) {
        self.map.word(DURABLE_SIZE_AT).store(size, Release);
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

    /// The region's present state. One load; the view borrows the mapping.
    #[must_use]
    pub fn region(&self, region: RegionIndex) -> RegionState<'_> {
        if region.0 >= MAX_REGIONS {
            return RegionState::Absent;
        }
        // Ordered after the caller's lane: see `super::marking`.
        let word = self.load_word(region);
        if word & 0xff == 0 {
            return RegionState::Absent;
        }
        let (generation, view) = self.place_in(word);
        RegionState::Placed { generation, view, motion: Motion::of(word) }
    }

    /// Bytes of a file of `size_bytes` that lie in placed regions. No server knows more cheaply what the file occupies: holes within regions and bytes
    /// reserved beyond the size are not told apart.
    #[must_use]
    pub fn placed_bytes(&self, size_bytes: u64) -> u64 {
        let geometry = RegionGeometry::new(self.region_bytes().max(1));
        let count = geometry.count_for(size_bytes).min(MAX_REGIONS);
        let Some(last) = count.checked_sub(1) else { return 0 };
        let words = self.map.words(REGIONS_AT, count as usize);
        let is_placed = |word: &&AtomicU64| word.load(Relaxed) & 0xff != 0;
        let whole = words[..last as usize].iter().filter(is_placed).count() as u64 * geometry.region_bytes();
        let rest = words[last as usize..].iter().filter(is_placed).count() as u64;
        whole + rest * geometry.used_bytes(RegionIndex(last), size_bytes)
    }

    /// What a word that is not 0 says of a place.
    #[inline]
    fn place_in(&self, word: u64) -> (Generation, StripeView<'_>) {
        let at = LAYOUTS_AT + (word >> 8 & 0xff_ffff) as usize * 8;
        let count = self.map.word(at).load(Relaxed) as usize;
        // SAFETY: the word was stored after the layout, and layouts are never changed; any bits are a valid Stripe.
        let stripes = unsafe { self.map.published::<Stripe>(at + 8, count) };
        (Generation((word >> 32) as u32), StripeView::new(stripes))
    }

    /// The replicas of a region whose state is [`Motion::Replicated`], in the order of their numbers. To be called inside a lane.
    pub fn replicas(&self, region: RegionIndex) -> impl Iterator<Item = (Generation, StripeView<'_>)> {
        self.replica_words(region).iter().filter_map(|word| match word.load(SeqCst) {
            0 => None,
            word => Some(self.place_in(word)),
        })
    }

    /// Whether objects of this generation belong to the region now, as its place or as a replica.
    #[must_use]
    pub fn shows(&self, region: RegionIndex, generation: Generation) -> bool {
        match self.region(region) {
            RegionState::Absent => false,
            RegionState::Placed { generation: place, motion, .. } => {
                let is_replica = || self.replicas(region).any(|(replica, _)| replica == generation);
                place == generation || (motion == Motion::Replicated && is_replica())
            }
        }
    }

    fn replica_words(&self, region: RegionIndex) -> &[AtomicU64] {
        let region = region.0.min(MAX_REGIONS - 1) as usize;
        self.map.words(REPLICAS_AT + region * MAX_REPLICAS * 8, MAX_REPLICAS)
    }

    /// Broker only: a placed region has these replicas, by their numbers, and no others. Not while it moves, but from the seal on.
    ///
    /// # Errors
    ///
    /// [`ControlError::LayoutsFull`], or [`ControlError::Os`] with `NOSPC`; never after
    /// [`Self::learn`] and [`Self::reserve_replicas`].
    pub fn show_replicas<'b>(
        &self,
        file: FileId,
        region: RegionIndex,
        replicas: impl IntoIterator<Item = (u8, Generation, &'b Layout)>,
    ) -> Result<(), ControlError> {
        let (mut words, mut has_any) = ([0; MAX_REPLICAS], false);
        for (number, generation, layout) in replicas {
            let at = self.find_or_add(file, layout)? as u64;
            words[usize::from(number) % MAX_REPLICAS] = Motion::Still.in_word(u64::from(generation.0) << 32 | at << 8);
            has_any = true;
        }
        let before = self.load_word(region);
        let had_any = Motion::of(before) == Motion::Replicated;
        if has_any {
            self.reserve_replicas(region)?;
        } else if had_any {
            self.word(region).store(Motion::Still.in_word(before), SeqCst);
        } else {
            // Nobody looks at its replica words, which may have no space.
            return Ok(());
        }
        for (shared, own) in self.replica_words(region).iter().zip(words) {
            shared.store(own, SeqCst);
        }
        if has_any {
            self.word(region).store(Motion::Replicated.in_word(before), SeqCst);
        }
        Ok(())
    }

    /// Broker only: gives the replica words of a region room, so that [`Self::show_replicas`] with layouts that were learnt cannot fail.
    ///
    /// # Errors
    ///
    /// [`ControlError::Os`]; `NOSPC` when the state directory is full.
    pub fn reserve_replicas(&self, region: RegionIndex) -> Result<(), ControlError> {
        let region = region.0.min(MAX_REGIONS - 1) as usize;
        Ok(self.map.reach(REPLICAS_AT + region * MAX_REPLICAS * 8, MAX_REPLICAS * 8)?)
    }

    fn word_at(region: RegionIndex) -> usize {
        REGIONS_AT + region.0 as usize * 8
    }

    #[inline]
    fn word(&self, region: RegionIndex) -> &AtomicU64 {
        self.map.word(Self::word_at(region))
    }

    /// The word of a region, which may have no space yet.
    #[inline]
    fn load_word(&self, region: RegionIndex) -> u64 {
        if self.map.is_reached(Self::word_at(region), 8) { self.word(region).load(SeqCst) } else { 0 }
    }

    /// Broker only: a placed region begins to move in a move slot.
    pub fn begin_move(&self, region: RegionIndex, slot: u8, marks: Marks<'_, AtomicU64>, chunks: usize) {
        marking::begin(self.word(region), marks, chunks, slot);
    }

    /// Broker only, as [`Self::unseal`] and [`Self::give_up_move`]; see [`marking::seal`].
    #[must_use]
    pub fn seal(&self, region: RegionIndex, slot: u8) -> bool {
        marking::seal(self.word(region), slot)
    }

    /// A sealed region moves again, and its writers go on; false if it was not sealed in this slot.
    #[must_use]
    pub fn unseal(&self, region: RegionIndex, slot: u8) -> bool {
        let unsealed = marking::unseal(self.word(region), slot);
        self.let_writers_go_on();
        unsealed
    }

    /// The region stays where it is, unless it no longer moves in this slot.
    pub fn give_up_move(&self, region: RegionIndex, slot: u8) -> bool {
        let ended = marking::give_up(self.word(region), slot);
        self.let_writers_go_on();
        ended
    }

    /// Broker only: after the word of a sealed region was changed.
    pub fn let_writers_go_on(&self) {
        let moves = self.moves_word();
        moves.fetch_add(1, SeqCst);
        let _ = rustix::thread::futex::wake(moves, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
    }

    /// What writers of sealed regions wait on, as a futex.
    #[must_use]
    pub fn moves_word(&self) -> &AtomicU32 {
        self.map.half(MOVES_AT)
    }

    /// Broker only: takes the layout in, so that [`Self::publish`] of the region with it cannot fail for want of space.
    ///
    /// # Errors
    ///
    /// [`ControlError::TooManyRegions`], [`ControlError::LayoutsFull`], or [`ControlError::Os`]
    /// with `NOSPC` when the state directory is full.
    pub fn learn(&self, file: FileId, region: RegionIndex, layout: &Layout) -> Result<(), ControlError> {
        if region.0 >= MAX_REGIONS {
            return Err(ControlError::TooManyRegions { file, region });
        }
        self.map.reach(Self::word_at(region), 8)?;
        self.find_or_add(file, layout).map(|_| ())
    }

    /// Broker only: publishes a placement whose objects exist.
    ///
    /// # Errors
    ///
    /// Those of [`Self::learn`]; none if that went well before.
    pub fn publish(
        &self,
        file: FileId,
        region: RegionIndex,
        generation: Generation,
        layout: &Layout,
    ) -> Result<(), ControlError> {
        self.learn(file, region, layout)?;
        let number = self.find_or_add(file, layout)?;
        let place = u64::from(generation.0) << 32 | (number as u64) << 8;
        self.word(region).store(Motion::Still.in_word(place), SeqCst);
        Ok(())
    }

    /// Broker only: the region has no objects any more.
    pub fn retract(&self, region: RegionIndex) {
        let before = self.load_word(region);
        if before == 0 {
            return;
        }
        self.word(region).store(0, SeqCst);
        if Motion::of(before) == Motion::Replicated {
            self.replica_words(region).iter().for_each(|word| word.store(0, SeqCst));
        }
    }

    fn find_or_add(&self, file: FileId, layout: &Layout) -> Result<usize, ControlError> {
        let used = self.map.half(LAYOUT_WORDS_AT).load(Relaxed) as usize;
        let mut at = 0;
        while at < used {
            let count = self.map.word(LAYOUTS_AT + at * 8).load(Relaxed) as usize;
            // SAFETY: words below `used` are published and never changed.
            let stripes = unsafe { self.map.published::<Stripe>(LAYOUTS_AT + (at + 1) * 8, count) };
            if stripes == layout.stripes() {
                return Ok(at);
            }
            at += 1 + count;
        }
        let count = layout.stripes().len();
        if at + 1 + count > LAYOUT_WORDS {
            return Err(ControlError::LayoutsFull { file });
        }
        self.map.reach(LAYOUTS_AT + at * 8, (1 + count) * 8)?;
        self.map.word(LAYOUTS_AT + at * 8).store(count as u64, Relaxed);
        let target = self.map.unpublished(LAYOUTS_AT + (at + 1) * 8, size_of_val(layout.stripes())).cast::<Stripe>();
        for (i, stripe) in layout.stripes().iter().enumerate() {
            // SAFETY: in bounds (checked by `unpublished`), aligned to 8, and no region word leads here yet.
            unsafe { target.add(i).write(*stripe) };
        }
        self.map.half(LAYOUT_WORDS_AT).store((at + 1 + count) as u32, Release);
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::ServerId;

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
                control.publish(FileId(7), region, Generation(5), &layout).unwrap();
            }
            let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks;
            let before = blocks();
            assert_eq!(control.clear_from(&file, 2).unwrap(), 3);
            assert_eq!(blocks(), before, "{directory}");
            let placed = |region| control.region(RegionIndex(region)) != RegionState::Absent;
            assert_eq!([0, 1, 2, 70_000, far].map(placed), [true, true, false, false, false]);
            assert_eq!(control.clear_from(&file, 2).unwrap(), 0);
        }
    }

    #[test]
    fn observations_are_numbered_and_leave_other_flags_alone() {
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), FileId(7), [1; 16], 4096).unwrap();
        assert_eq!(control.observation(), None);
        control.set_leftovers(true);
        control.begin_observation();
        let first = control.observation().unwrap();
        assert!(control.has_leftovers());
        control.end_observation();
        assert_eq!(control.observation(), None);
        control.begin_observation();
        control.set_leftovers(false);
        assert!(control.observation().is_some_and(|number| number != first) && !control.has_leftovers());
    }

    #[test]
    fn placed_regions_count_up_to_the_size() {
        let file = FileId(7);
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), file, [1; 16], 4096).unwrap();
        assert_eq!((control.placed_bytes(0), control.placed_bytes(1 << 40)), (0, 0));
        let layout = Layout::new([(ServerId(0), 4096)]).unwrap();
        for region in [0, 2, 3, 9] {
            control.publish(file, RegionIndex(region), Generation(1), &layout).unwrap();
        }
        for (size, placed) in
            [(0, 0), (1, 1), (4096, 4096), (8192, 4096), (8193, 4097), (14_000, 4096 + 5808), (16_384, 3 * 4096)]
        {
            assert_eq!(control.placed_bytes(size), placed, "{size}");
        }
        assert_eq!(control.placed_bytes(u64::MAX), 4 * 4096);
        control.retract(RegionIndex(2));
        assert_eq!(control.placed_bytes(16_384), 2 * 4096);
    }

    #[test]
    fn a_layout_that_was_learnt_can_be_published_when_no_other_has_room() {
        let file = FileId(7);
        let control = ControlBlock::build(&tempfile::tempfile().unwrap().into(), file, [1; 16], 4096).unwrap();
        let layout = |size: u32| Layout::new((0..256).map(|server| (ServerId(server), size))).unwrap();
        let learnt = (1..).find(|size| control.learn(file, RegionIndex(0), &layout(*size)).is_err()).unwrap() - 1;
        assert_eq!(learnt as usize, LAYOUT_WORDS / 257);
        let full = control.publish(file, RegionIndex(0), Generation(1), &layout(learnt + 1));
        assert!(matches!(full, Err(ControlError::LayoutsFull { .. })));
        assert_eq!(control.region(RegionIndex(0)), RegionState::Absent);
        control.publish(file, RegionIndex(0), Generation(1), &layout(learnt)).unwrap();
        let expected = layout(learnt);
        let placed = RegionState::Placed { generation: Generation(1), view: expected.view(), motion: Motion::Still };
        assert_eq!(control.region(RegionIndex(0)), placed);
    }
}
