//! Which accesses continue one of the disk's recent streams.
//!
//! A stream is one 64-bit word: bits 0-27 the sector (512 bytes) at which it will go on, bits 28-39 the low bits of the number
//! of the access that used it last, bits 40-63 a hash of its extent, never 0; a word of 0 is an empty slot. An access that starts at a
//! stream's sector, or a short skip after it, continues the nearest such stream (of equals the most recent), and the start of an
//! extent continues a stream in the extent before it; any other takes the place of the stream that was used least recently.
//! One word for one stream lets processes that share a disk change the state by a single compare-and-swap, so that one killed at any
//! instruction leaves it whole. The price: extents whose 24-bit hashes collide are taken for one, sectors past 128 GiB of an object
//! count as its last, and "least recently" is counted modulo 4,096 accesses.

use crate::{DiskPlace, ExtentId};

/// Most recent streams of one disk; shared memory holds a word for each.
pub const MAX_STREAMS: usize = 16;

const SECTOR_BYTES: u64 = 512;
const SECTOR_BITS: u32 = 28;
const SECTOR_MAX: u64 = (1 << SECTOR_BITS) - 1;
const STAMP_BITS: u32 = 12;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;
const TAG_SHIFT: u32 = SECTOR_BITS + STAMP_BITS;

/// What an access does to the recent streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The stream that the access continues or replaces.
    pub slot: usize,
    /// Its word before, for a compare-and-swap.
    pub before: u64,
    /// Its word afterwards.
    pub after: u64,
    /// Bytes skipped, 0 for none, when the access continues a stream; `None` when it is random.
    pub skipped_bytes: Option<u64>,
}

fn tag(extent: ExtentId) -> u64 {
    // The finaliser of MurmurHash3: every input bit reaches every output bit.
    let mut bits = extent.0;
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    bits = (bits ^ (bits >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    ((bits ^ (bits >> 33)) >> TAG_SHIFT).max(1)
}

fn sector(offset_bytes: u64) -> u64 {
    (offset_bytes / SECTOR_BYTES).min(SECTOR_MAX)
}

/// Finds what an access of `bytes` at `start` does to the streams in `words`. `uses` is the number of the access on this disk,
/// counted by the caller; `skip_bytes` as in [`crate::HddSpec`]. `words` must not be empty.
#[must_use]
pub fn place(words: &[u64], uses: u64, start: DiskPlace, bytes: u64, skip_bytes: u64) -> Placed {
    let own = tag(start.extent);
    let previous = start.after.map(tag);
    let first = sector(start.offset.0);
    let skip = skip_bytes / SECTOR_BYTES;
    let mut nearest: Option<((u64, u64), usize)> = None;
    let mut oldest = (0, 0);
    for (slot, &word) in words.iter().enumerate() {
        let next = word & SECTOR_MAX;
        let age = if word == 0 { STAMP_MASK + 1 } else { uses.wrapping_sub(word >> SECTOR_BITS) & STAMP_MASK };
        let gap = match word >> TAG_SHIFT {
            found if found == own => first.checked_sub(next),
            found if Some(found) == previous => (first == 0).then_some(0),
            _ => None,
        };
        if let Some(gap) = gap.filter(|&gap| gap <= skip)
            && nearest.is_none_or(|(least, _)| (gap, age) < least)
        {
            nearest = Some(((gap, age), slot));
        }
        if age > oldest.0 {
            oldest = (age, slot);
        }
    }
    let slot = nearest.map_or(oldest.1, |(_, slot)| slot);
    let next = sector(start.offset.0.saturating_add(bytes));
    Placed {
        slot,
        before: words[slot],
        after: own << TAG_SHIFT | (uses & STAMP_MASK) << SECTOR_BITS | next,
        skipped_bytes: nearest.map(|((gap, _), _)| gap * SECTOR_BYTES),
    }
}

/// The recent streams of one disk, for one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecentStreams {
    words: [u64; MAX_STREAMS],
    uses: u64,
}

impl RecentStreams {
    /// Notes an access on a disk that follows `streams` streams; returns the bytes skipped when it continues one.
    pub fn note(&mut self, streams: usize, start: DiskPlace, bytes: u64, skip_bytes: u64) -> Option<u64> {
        let placed = place(&self.words[..streams], self.uses, start, bytes, skip_bytes);
        self.uses = self.uses.wrapping_add(1);
        self.words[placed.slot] = placed.after;
        placed.skipped_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stripewise_layout::ObjectOffset;

    const SKIP_BYTES: u64 = 64 << 10;

    fn at(extent: u64, offset: u64) -> DiskPlace {
        DiskPlace { extent: ExtentId(extent), after: extent.checked_sub(1).map(ExtentId), offset: ObjectOffset(offset) }
    }

    /// The rule in plain terms: a list of (extent, next byte), most recent first.
    #[derive(Default)]
    struct PlainStreams(Vec<(u64, u64)>);

    impl PlainStreams {
        fn note(&mut self, streams: usize, extent: u64, offset: u64, bytes: u64) -> Option<u64> {
            let gap = |&(of, next): &(u64, u64)| {
                let gap = if of == extent {
                    offset.checked_sub(next)
                } else {
                    (of + 1 == extent && offset == 0).then_some(0)
                };
                gap.filter(|&gap| gap <= SKIP_BYTES)
            };
            let nearest = self.0.iter().filter_map(gap).min();
            match self.0.iter().position(|stream| nearest.is_some() && gap(stream) == nearest) {
                Some(position) => drop(self.0.remove(position)),
                None => self.0.truncate(streams - 1),
            }
            self.0.insert(0, (extent, offset + bytes));
            nearest
        }
    }

    proptest! {
        /// Extents are few, so that their hashes differ.
        #[test]
        fn packed_streams_follow_the_plain_rule(
            streams in 1..=MAX_STREAMS,
            accesses in prop::collection::vec((0..6u64, 0..400u64), 1..300),
        ) {
            let (mut packed, mut plain) = (RecentStreams::default(), PlainStreams::default());
            for (number, (extent, sector)) in accesses.into_iter().enumerate() {
                let (offset, bytes) = (sector * 8 * 1024, (number as u64 % 9 + 1) * 512);
                let follow_up = offset + bytes + (number as u64 % 3) * 32 * 1024;
                prop_assert_eq!(packed.note(streams, at(extent, offset), bytes, SKIP_BYTES), plain.note(streams, extent, offset, bytes));
                if number % 4 == 0 {
                    prop_assert_eq!(packed.note(streams, at(extent, follow_up), 512, SKIP_BYTES), plain.note(streams, extent, follow_up, 512));
                }
            }
        }
    }

    #[test]
    fn a_stream_goes_on_over_a_short_skip_and_into_the_next_region() {
        let mut streams = RecentStreams::default();
        let mut note = |extent, offset, bytes| streams.note(2, at(extent, offset), bytes, SKIP_BYTES);
        assert_eq!(note(7, 0, 4096), None);
        assert_eq!(note(7, 4096, 4096), Some(0));
        assert_eq!(note(7, 8192 + SKIP_BYTES, 4096), Some(SKIP_BYTES));
        assert_eq!(note(7, 12288 + 2 * SKIP_BYTES + 512, 4096), None);
        assert_eq!(note(8, 0, 4096), Some(0), "the next region's object lies behind this one's");
        assert_eq!(note(7, 0, 4096), None, "backwards is random");
        assert_eq!(note(20, 0, 4096), None);
        assert_eq!(note(8, 4096, 512), None, "two streams since: forgotten");
    }
}
