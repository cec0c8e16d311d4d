//! What the broker lets everybody know who uses a file: leftovers on servers, observation, and fragments on SSDs.

use super::super::map::SharedMap;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};

const FLAGS_AT: usize = 52;
const FRAGMENTS_AT: usize = 68;
const THRESHOLD_AT: usize = 72;
/// Flags.
const LEFTOVERS: u32 = 1;
const OBSERVED: u32 = 2;
const DESCRIPTIONS_UNSYNCED: u32 = 4;
const SHARED: u32 = 8;
const OBSERVATION_SHIFT: u32 = 16;

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

/// Three words: flags, whether small parts go to SSDs, and below what size.
#[derive(Clone, Copy, Debug)]
pub struct Notices<'a> {
    flags: &'a AtomicU32,
    fragments: &'a AtomicU32,
    threshold_bytes: &'a AtomicU32,
}

impl<'a> Notices<'a> {
    #[inline]
    pub(super) fn new(map: &'a SharedMap) -> Self {
        Self { flags: map.half(FLAGS_AT), fragments: map.half(FRAGMENTS_AT), threshold_bytes: map.half(THRESHOLD_AT) }
    }

    /// Whether a server may hold bytes beyond the size.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.flags.load(Acquire) & LEFTOVERS != 0
    }

    /// Broker only; with the gate shut.
    pub fn set_leftovers(&self, has_leftovers: bool) {
        self.set_flag(LEFTOVERS, has_leftovers);
    }

    /// Whether servers were told of the file what no sync has covered yet.
    #[must_use]
    pub fn has_unsynced_descriptions(&self) -> bool {
        self.flags.load(Acquire) & DESCRIPTIONS_UNSYNCED != 0
    }

    /// Broker only: before it appends to the descriptions, and after it has synced them.
    pub fn set_unsynced_descriptions(&self, are_unsynced: bool) {
        self.set_flag(DESCRIPTIONS_UNSYNCED, are_unsynced);
    }

    /// Whether other hosts use the file too: size and places shown here may lag behind what they have done
    /// ([`crate::protocol::Request::Refresh`]).
    #[must_use]
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.flags.load(Acquire) & SHARED != 0
    }

    /// Broker only: before anybody gets the block.
    pub fn set_shared(&self, is_shared: bool) {
        self.set_flag(SHARED, is_shared);
    }

    /// The number of the present observation, if somebody wants to know of every request ([`crate::shared::recent`]). In the cache line of the gate, which an
    /// I/O has just read.
    #[must_use]
    #[inline]
    pub fn observation(&self) -> Option<u16> {
        let flags = self.flags.load(Acquire);
        (flags & OBSERVED != 0).then_some((flags >> OBSERVATION_SHIFT) as u16)
    }

    /// Broker only, one thread at a time: requests are observed from here on, by a new number.
    pub fn begin_observation(&self) {
        let flags = self.flags;
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
        let flags = self.flags;
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
        match self.fragments.load(SeqCst) {
            1 => FragmentMode::Wanted,
            2 => FragmentMode::On,
            3 => FragmentMode::Leaving,
            _ => FragmentMode::Off,
        }
    }

    /// Sub-requests shorter than this, and than half a stripe, may be fragments.
    #[must_use]
    pub fn fragment_threshold_bytes(&self) -> u64 {
        self.threshold_bytes.load(Relaxed).into()
    }

    /// Broker only.
    pub fn set_fragments(&self, mode: FragmentMode, threshold_bytes: u32) {
        self.threshold_bytes.store(threshold_bytes, Relaxed);
        self.fragments.store(mode as u32, SeqCst);
    }
}
