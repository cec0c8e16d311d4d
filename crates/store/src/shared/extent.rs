//! What writers of a managed file share: size, modification time, append lock, and what is not yet synced.
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic and version |
//! | 8 | 8 | logical size in bytes |
//! | 16 | 8 | modification time, ns since 1970; 0: the stub's own time holds |
//! | 24 | 8 | append lock: 0, or a mark that someone waits (1 bit), incarnation (31) and process slot + 1 (32) of the holder |
//! | 32 | 8 | inode of the stub that a process synced in this boot; 0: none |
//! | 40 | 8 | where hosts share the file: the number of truncations that the size follows, as the master counts them; 0: none |
//! | 128 | 8 each | per region: writes counted (32 bits, raised before and after the data) and synced up to (32) |
//! | 4096 + 8 MiB | 128 each | move slots: the marks of one moving region's chunks, see `super::marking` |
//!
//! The first page always has room; it holds the counters of the first 496 regions, so that a small file needs no other; only this page is mapped before others are used. Further counters and marks get room when the broker places a region or begins a move ([`Extent::reserve`], [`Extent::reserve_marks`]), before any writer can
//! have use for them. The size only grows by atomic maximum; shrinking is the broker's, with the gate shut and all slots drained.

use super::control::MAX_REGIONS;
use super::map::{self, SharedMap};
use super::marking::{MARK_WORDS, MOVE_SLOTS, Marks};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use stripewise_layout::RegionIndex;

const MAGIC: u64 = u64::from_le_bytes(*b"SWEXTN\0\x05");
const SIZE_AT: usize = 8;
const MODIFIED_AT: usize = 16;
const APPEND_AT: usize = 24;
const STUB_AT: usize = 32;
const TRUNCATIONS_AT: usize = 40;
const REGIONS_AT: usize = 128;
const FIRST_PAGE_BYTES: usize = 4096;
const MARKS_AT: usize = FIRST_PAGE_BYTES + MAX_REGIONS as usize * 8;
const LENGTH: usize = MARKS_AT + MOVE_SLOTS as usize * MARK_WORDS * 8;

/// A mapped extent.
#[derive(Debug)]
pub struct Extent {
    map: SharedMap,
}

impl Extent {
    /// Broker only. Regions are counted as never synced when `dirty_regions` says so (a rebuilt block counts all as dirty).
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full, otherwise the error of sizing or mapping the file.
    pub fn build(descriptor: &OwnedFd, size_bytes: u64, dirty_regions: u32) -> rustix::io::Result<Self> {
        let dirty_regions = dirty_regions.min(MAX_REGIONS);
        let allocated = (REGIONS_AT + dirty_regions as usize * 8).max(FIRST_PAGE_BYTES);
        let map = map::make_first(descriptor, FIRST_PAGE_BYTES, LENGTH, allocated)?;
        map.word(SIZE_AT).store(size_bytes, Relaxed);
        for region in 0..dirty_regions {
            map.half(REGIONS_AT + region as usize * 8).store(1, Relaxed);
        }
        map.word(0).store(MAGIC, Release);
        Ok(Self { map })
    }

    /// Maps an existing extent; `writable` is of those who may write the file.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is no extent of this version, otherwise the error of mapping it.
    pub fn open(descriptor: impl AsFd, writable: bool) -> rustix::io::Result<Self> {
        let map = SharedMap::first(descriptor, FIRST_PAGE_BYTES, LENGTH, writable)?;
        if map.word(0).load(Acquire) != MAGIC {
            return Err(rustix::io::Errno::INVAL);
        }
        map.assume_reached(FIRST_PAGE_BYTES);
        Ok(Self { map })
    }

    /// For [`map::unmap_together`].
    pub fn map_mut(&mut self) -> &mut SharedMap {
        &mut self.map
    }

    /// Whether the mapping permits writes.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.map.is_writable()
    }

    /// The logical size, as every process sees it at once.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.map.word(SIZE_AT).load(SeqCst)
    }

    /// Raises the size to `end_bytes` if it is smaller.
    pub fn extend_to(&self, end_bytes: u64) {
        let size = self.map.word(SIZE_AT);
        if size.load(Relaxed) < end_bytes {
            size.fetch_max(end_bytes, SeqCst);
        }
    }

    /// Sets the size to less; only with the gate shut and the slots drained.
    pub fn truncate_to(&self, size_bytes: u64) {
        self.map.word(SIZE_AT).store(size_bytes, SeqCst);
    }

    /// How many truncations the size follows on a host that shares the file with others, as their master counts them.
    #[must_use]
    pub fn truncations(&self) -> u64 {
        self.map.word(TRUNCATIONS_AT).load(SeqCst)
    }

    /// Broker only, after the size was set.
    pub fn note_truncations(&self, truncations: u64) {
        self.map.word(TRUNCATIONS_AT).store(truncations, SeqCst);
    }

    /// Modification time in ns since 1970, unless the stub's own holds.
    #[must_use]
    pub fn modified_ns(&self) -> Option<u64> {
        Some(self.map.word(MODIFIED_AT).load(Relaxed)).filter(|ns| *ns != 0)
    }

    /// `None` hands the time back to the stub (after `utimensat` set it there).
    pub fn set_modified_ns(&self, modified: Option<u64>) {
        self.map.word(MODIFIED_AT).store(modified.unwrap_or(0), Relaxed);
    }

    /// Hands the time back to the stub, which has got it; false: it has changed meanwhile.
    #[must_use]
    pub fn hand_back_modified_ns(&self, modified_ns: u64) -> bool {
        self.map.word(MODIFIED_AT).compare_exchange(modified_ns, 0, Relaxed, Relaxed).is_ok()
    }

    /// The word by which writers with `O_APPEND` take turns ([`super::robust`]).
    #[must_use]
    pub fn append_lock(&self) -> &AtomicU64 {
        self.map.word(APPEND_AT)
    }

    /// Whether a process has synced the stub with this inode since the memory was built.
    #[must_use]
    pub fn is_stub_synced(&self, inode: u64) -> bool {
        inode != 0 && self.map.word(STUB_AT).load(Acquire) == inode
    }

    /// Call after the stub with this inode was synced; only where [`Self::is_writable`].
    pub fn note_stub_synced(&self, inode: u64) {
        self.map.word(STUB_AT).store(inode, Release);
    }

    /// Broker only, before the region is published: gives its counters room.
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full.
    pub fn reserve(&self, region: RegionIndex) -> rustix::io::Result<()> {
        self.map.reach(Self::region_at(region), 8)
    }

    /// Broker only, before a region's move in this slot is published: gives its marks room.
    ///
    /// # Errors
    ///
    /// `NOSPC` when the state directory is full.
    pub fn reserve_marks(&self, slot: u8) -> rustix::io::Result<()> {
        self.map.reach(Self::marks_at(slot), MARK_WORDS * 8)
    }

    fn marks_at(slot: u8) -> usize {
        MARKS_AT + usize::from(slot % MOVE_SLOTS) * MARK_WORDS * 8
    }

    /// Whether the region may have been written: its counters have space.
    fn is_counted(&self, region: RegionIndex) -> bool {
        self.map.is_reached(Self::region_at(region), 8)
    }

    /// Changes with every write to the first `regions` regions: what was derived from the data before is stale.
    #[must_use]
    pub fn writes_mark(&self, regions: u32) -> u64 {
        let counted = |region: &u32| self.is_counted(RegionIndex(*region));
        (0..regions.min(MAX_REGIONS)).filter(counted).fold(0, |mark: u64, region| {
            mark.wrapping_add(u64::from(self.map.half(Self::region_at(RegionIndex(region))).load(Acquire)))
        })
    }

    /// Call before the data of a write to `region` is issued, and [`Self::end_write`] after.
    #[inline]
    pub fn begin_write(&self, region: RegionIndex) {
        self.map.half(Self::region_at(region)).fetch_add(1, AcqRel);
    }

    /// Call after the data of a write was written, or failed.
    #[inline]
    pub fn end_write(&self, region: RegionIndex) {
        self.map.half(Self::region_at(region)).fetch_add(1, AcqRel);
    }

    /// The region's write counter if it has writes that no sync has covered: sync the data, then call [`Self::mark_synced`] with it.
    #[must_use]
    pub fn unsynced(&self, region: RegionIndex) -> Option<u32> {
        if !self.is_counted(region) {
            return None;
        }
        let written = self.map.half(Self::region_at(region)).load(Acquire);
        let synced = self.map.half(Self::region_at(region) + 4).load(Acquire);
        (written != synced).then_some(written)
    }

    /// The region's write counter if every write that it counts is synced.
    #[must_use]
    pub fn synced(&self, region: RegionIndex) -> Option<u32> {
        if !self.is_counted(region) {
            return None;
        }
        let written = self.map.half(Self::region_at(region)).load(Acquire);
        (written == self.map.half(Self::region_at(region) + 4).load(Acquire)).then_some(written)
    }

    /// What [`Self::unsynced`] returned as `written` is durable; an older number changes nothing.
    pub fn mark_synced(&self, region: RegionIndex, written: u32) {
        let synced = self.map.half(Self::region_at(region) + 4);
        let mut before = synced.load(Acquire);
        // Counters wrap; "later" is the half circle ahead.
        while (written.wrapping_sub(before) as i32) > 0 {
            match synced.compare_exchange_weak(before, written, AcqRel, Acquire) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// The marks of a move slot. Only those who may write the file may set any.
    #[must_use]
    pub fn marks(&self, slot: u8) -> Marks<'_, AtomicU64> {
        Marks::new(self.map.words(Self::marks_at(slot), MARK_WORDS))
    }

    /// The size in an extent of whatever version; it has stood at the same place from the first on.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file never was an extent, otherwise the error of mapping it.
    pub fn size_of_any_version(descriptor: impl AsFd) -> rustix::io::Result<u64> {
        Self::size_and_truncations_of_any_version(descriptor).map(|(size_bytes, _)| size_bytes)
    }

    /// The same, with [`Self::truncations`], which are 0 in other versions.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn size_and_truncations_of_any_version(descriptor: impl AsFd) -> rustix::io::Result<(u64, u64)> {
        let map = SharedMap::new(descriptor, FIRST_PAGE_BYTES, false)?;
        let magic = map.word(0).load(Acquire);
        if magic.to_le_bytes()[..7] != MAGIC.to_le_bytes()[..7] {
            return Err(rustix::io::Errno::INVAL);
        }
        let truncations = if magic == MAGIC { map.word(TRUNCATIONS_AT).load(SeqCst) } else { 0 };
        Ok((map.word(SIZE_AT).load(SeqCst), truncations))
    }

    fn region_at(region: RegionIndex) -> usize {
        REGIONS_AT + region.0.min(MAX_REGIONS - 1) as usize * 8
    }
}
