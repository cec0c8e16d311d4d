//! The slots of one process: mapped from its file, or in memory.
#![allow(unsafe_code, reason = "mapped records are read in place")]

use memmap2::{Mmap, UncheckedAdvice};
use std::ops::Range;
use stripewise_capture::format::{HEADER_BYTES, SLOT_BYTES};

/// The slots of one process, the header already taken off.
#[derive(Debug)]
pub(crate) enum Slots {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

/// Ranges that are given back begin and end at multiples of this, which all page sizes divide.
const PAGE_BYTES: usize = 64 << 10;

impl Slots {
    /// Of a whole process file.
    pub(crate) fn mapped(map: Mmap) -> Self {
        Self::Mapped(map)
    }

    pub(crate) fn owned(bytes: Vec<u8>) -> Self {
        Self::Owned(bytes)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map.get(HEADER_BYTES..).unwrap_or(&[]),
            Self::Owned(bytes) => bytes,
        }
    }

    pub(crate) fn byte_len(&self) -> u64 {
        self.bytes().len() as u64
    }

    pub(crate) fn get(&self) -> &[[u8; SLOT_BYTES]] {
        self.bytes().as_chunks().0
    }

    /// Lets go of the memory behind those slots until somebody looks at them again.
    pub(crate) fn give_back(&self, slots: &Range<usize>) {
        let Self::Mapped(map) = self else { return };
        let (begin, end) = (HEADER_BYTES + slots.start * SLOT_BYTES, HEADER_BYTES + slots.end * SLOT_BYTES);
        // Whole pages; the rest of a process's last ones is little.
        let (begin, end) = (begin.next_multiple_of(PAGE_BYTES), end / PAGE_BYTES * PAGE_BYTES);
        if begin < end && end <= map.len() {
            // SAFETY: the mapping is a read-only one of a file, which nobody changes (see the reader that made it). So the pages hold
            // what the file holds, and come back the same when they are touched.
            let advised = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, begin, end - begin) };
            // It is advice: without it the memory stays in use.
            let _ = advised;
        }
    }
}
