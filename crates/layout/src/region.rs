//! Regions: fixed-size ranges of a file, the unit of placement.

use crate::{FileOffset, RegionIndex, RegionOffset};

/// How a file is cut into regions of `region_bytes` each (the last one may be partly used).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionGeometry {
    region_bytes: u64,
}

/// The part of a byte range that falls into one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionPiece {
    /// The region that holds the piece.
    pub region: RegionIndex,
    /// Where the piece starts in its region.
    pub offset: RegionOffset,
    /// Bytes, more than 0.
    pub length: u64,
    /// Where this piece starts within the whole range, in bytes.
    pub buffer_offset: u64,
}

impl RegionGeometry {
    /// Panics when `region_bytes` is 0; cluster and plan files are checked before they get here.
    #[must_use]
    pub const fn new(region_bytes: u64) -> Self {
        assert!(region_bytes > 0, "a region has at least one byte");
        Self { region_bytes }
    }

    /// Bytes of every region, more than 0.
    #[must_use]
    pub const fn region_bytes(self) -> u64 {
        self.region_bytes
    }

    /// The region that holds `offset`, and the place within it. Offsets beyond 2^32 regions saturate at the last number.
    #[must_use]
    #[inline]
    pub fn locate(self, offset: FileOffset) -> (RegionIndex, RegionOffset) {
        let (index, within) = if self.region_bytes.is_power_of_two() {
            (offset.0 >> self.region_bytes.trailing_zeros(), offset.0 & (self.region_bytes - 1))
        } else {
            (offset.0 / self.region_bytes, offset.0 % self.region_bytes)
        };
        (RegionIndex(u32::try_from(index).unwrap_or(u32::MAX)), RegionOffset(within))
    }

    /// The first byte of `region`. Of regions behind the last byte that a file can have, the end of all numbers.
    #[must_use]
    pub fn start_of(self, region: RegionIndex) -> FileOffset {
        FileOffset(u64::from(region.0).saturating_mul(self.region_bytes))
    }

    /// Regions needed for a file of `size_bytes`.
    #[must_use]
    pub fn count_for(self, size_bytes: u64) -> u32 {
        u32::try_from(size_bytes.div_ceil(self.region_bytes)).unwrap_or(u32::MAX)
    }

    /// Bytes of a file of `size_bytes` that lie in `region`.
    #[must_use]
    pub fn used_bytes(self, region: RegionIndex, size_bytes: u64) -> u64 {
        size_bytes.saturating_sub(self.start_of(region).0).min(self.region_bytes)
    }

    /// The pieces of `[offset, offset + length)`, in order, each within one region.
    pub fn pieces(self, offset: FileOffset, length: u64) -> impl Iterator<Item = RegionPiece> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == length {
                return None;
            }
            let (region, within) = self.locate(FileOffset(offset.0 + done));
            let piece_length = (length - done).min(self.region_bytes - within.0);
            let piece = RegionPiece { region, offset: within, length: piece_length, buffer_offset: done };
            done += piece_length;
            Some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_region_behind_the_last_offset_begins_at_the_end_of_all_numbers() {
        // A plan and a cluster file may name regions of any size and number.
        let geometry = RegionGeometry::new(1 << 63);
        assert_eq!(geometry.start_of(RegionIndex(1)), FileOffset(1 << 63));
        assert_eq!(geometry.start_of(RegionIndex(2)), FileOffset(u64::MAX));
        assert_eq!(geometry.used_bytes(RegionIndex(u32::MAX), i64::MAX as u64), 0);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_range_once_and_in_order(
            region_bytes in 1u64..5_000, offset in 0u64..100_000, length in 0u64..50_000,
        ) {
            let geometry = RegionGeometry::new(region_bytes);
            let mut next = offset;
            for piece in geometry.pieces(FileOffset(offset), length) {
                prop_assert_eq!(geometry.start_of(piece.region).0 + piece.offset.0, next);
                prop_assert_eq!(piece.buffer_offset, next - offset);
                prop_assert!(piece.length > 0 && piece.offset.0 + piece.length <= region_bytes);
                next += piece.length;
            }
            prop_assert_eq!(next, offset + length);
        }
    }
}
