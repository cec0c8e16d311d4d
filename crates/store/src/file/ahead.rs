//! Reading ahead of a program that goes through a file.
//!
//! The kernel reads ahead in each object on its own: in windows of one size, whatever share of a stripe the object has, and never into the next
//! region's objects. A program that reads in order then waits for one server's large window while the others have nothing to do, and for all of
//! them where a region begins. Here the next bytes of the *file* are asked for, on all servers that hold some of them, regions ahead included.
//!
//! It is advice: it delivers no bytes, and what of it fails or comes late is met by the read itself. Only servers behind a page cache that may wait
//! for a device are asked.

use super::objects::Objects;
use crate::client::servers::Medium;
use crate::shared::control::RegionState;
use crate::shared::marking::Motion;
use rustix::fs::{Advice, fadvise};
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use stripewise_layout::FileOffset;

/// Bytes read in order, in two requests or more, before anything is asked for.
const MIN_RUN_BYTES: u64 = 256 << 10;
/// Bytes ahead of the program: some 10 ms of a dozen disks.
const MAX_WINDOW_BYTES: u64 = 16 << 20;
/// Regions ahead of the program: their objects are opened.
const MAX_REGIONS: u64 = 2;
/// Of one object in one call: the kernel reads no more than its device takes at once.
const CALL_BYTES: u64 = 512 << 10;

/// How a process goes through an open file. Threads that read at once may lose each other's notes, which costs advice only.
#[derive(Default)]
#[repr(align(64))] // Written by every read; what other requests only read lies elsewhere.
pub(super) struct ReadAhead {
    /// End of the last read.
    end: AtomicU64,
    /// Bytes that were read in order up to there.
    run_bytes: AtomicU64,
    /// What has been asked for ends here.
    until: AtomicU64,
    /// The file lies in memory or in stores that have no page cache.
    is_pointless: AtomicBool,
}

impl ReadAhead {
    /// Notes a read of `bytes` bytes; returns the range that is to be asked for, if it is one of many in order.
    #[inline]
    pub(super) fn note(
        &self,
        offset: FileOffset,
        bytes: u64,
        size_bytes: u64,
        region_bytes: u64,
    ) -> Option<(FileOffset, u64)> {
        if self.is_pointless.load(Relaxed) {
            return None;
        }
        let end = offset.0 + bytes;
        let follows = self.end.load(Relaxed) == offset.0 && offset.0 > 0;
        self.end.store(end, Relaxed);
        if !follows {
            self.run_bytes.store(bytes, Relaxed);
            self.until.store(0, Relaxed);
            return None;
        }
        let run_bytes = self.run_bytes.load(Relaxed) + bytes;
        self.run_bytes.store(run_bytes, Relaxed);
        let window = run_bytes.min(MAX_WINDOW_BYTES).min(MAX_REGIONS * region_bytes);
        // The request's own bytes first: devices serve in order.
        let (from, to) = (self.until.load(Relaxed).max(offset.0), end.saturating_add(window).min(size_bytes));
        // In steps, so that small requests seldom ask; the last step ends with the file.
        if run_bytes < MIN_RUN_BYTES || from >= to || (to - from < window / 4 && to < size_bytes) {
            return None;
        }
        self.until.store(to, Relaxed);
        Some((FileOffset(from), to - from))
    }

    /// Asks all servers for their parts of a range.
    #[cold]
    pub(super) fn ask(&self, objects: Objects<'_>, from: FileOffset, bytes: u64) {
        let file = objects.file();
        let (mut is_asked, mut lies_elsewhere) = (false, false);
        for piece in file.geometry().pieces(from, bytes) {
            // Of replicas it is not known yet which one will be read.
            let RegionState::Placed { generation, view, motion, .. } = file.region(piece.region) else { continue };
            if motion == Motion::Replicated {
                continue;
            }
            for sub in view.split(piece.offset, piece.length) {
                let Ok(pin) = objects.pin(&objects.key(piece.region, generation, sub.server)) else { continue };
                match pin.handle().descriptor() {
                    Some(object) if file.core().medium(sub.server) == Medium::Device => {
                        is_asked = true;
                        for begin in (0..sub.length).step_by(CALL_BYTES as usize) {
                            let part = NonZeroU64::new(CALL_BYTES.min(sub.length - begin));
                            let _ = fadvise(object, sub.offset.0 + begin, part, Advice::WillNeed);
                        }
                    }
                    _ => lies_elsewhere = true,
                }
            }
        }
        if lies_elsewhere && !is_asked {
            self.is_pointless.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const FILE_BYTES: u64 = 100 * MIB;

    /// The ranges that reads of `request` bytes in order ask for.
    fn asked(ahead: &ReadAhead, from: u64, request: u64, count: u64) -> Vec<(u64, u64)> {
        let reads = (0..count).map(|number| from + number * request);
        let asked = reads.filter_map(|at| ahead.note(FileOffset(at), request, FILE_BYTES, 64 * MIB));
        asked.map(|(from, bytes)| (from.0, from.0 + bytes)).collect()
    }

    #[test]
    fn reads_in_order_ask_for_what_follows_once_and_without_gaps() {
        for request in [4096, 64 << 10, 100_000, MIB, 4 * MIB] {
            let ranges = asked(&ReadAhead::default(), 0, request, FILE_BYTES / request);
            assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{request}: {ranges:?}");
            let (begin, end) = ranges[0];
            assert!(begin <= MIN_RUN_BYTES.max(request) && end <= 2 * (begin + request), "{request}: {ranges:?}");
            assert_eq!(ranges.last().unwrap().1, FILE_BYTES, "{request}: up to the end and not beyond");
            assert!(ranges.len() as u64 <= 40 + FILE_BYTES / (MAX_WINDOW_BYTES / 4), "{request}: in few steps");
        }
    }

    #[test]
    fn reads_out_of_order_ask_for_nothing() {
        let ahead = ReadAhead::default();
        for number in 0..50 {
            assert_eq!(ahead.note(FileOffset(number * 37 % 50 * MIB), MIB / 2, FILE_BYTES, 64 * MIB), None);
        }
        assert_eq!(asked(&ahead, 7 * MIB, 4096, MIN_RUN_BYTES / 4096 - 1), [], "nor do few");
        assert!(!asked(&ahead, 60 * MIB, MIB, 3).is_empty());
        assert_eq!(asked(&ahead, 10 * MIB, MIB, 1), [], "a run that ended is forgotten");
    }
}
