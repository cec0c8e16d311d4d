//! A file's layout as file systems know it: parts from the start of the file on, each with targets that take turns.
//!
//! Turns are counted from the first byte of the *file*, wherever the part begins: Lustre does so, and a file of one part leaves no difference. A region
//! of a plan counts from its own first byte. [`NativeLayout::placement`] translates, so that the planner's model predicts what was exported.

use std::collections::HashMap;
use stripewise_layout::{ByteCount, Layout, Placement, ServerId};

/// Bytes that one target takes before the next one's turn.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Turn {
    /// Position of the target in the site.
    pub target: usize,
    /// At least 1.
    pub bytes: u64,
}

/// A part of a file with one pattern.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Part {
    /// Byte at which it ends; `None`: it goes on as far as the file does.
    pub end: Option<u64>,
    /// One cycle, which repeats. A target may have several turns.
    pub turns: Vec<Turn>,
    /// The pool whose targets the file system orders by itself, where it is not told of single ones. The turns then stand for a pattern that loads the
    /// targets as evenly as it would.
    pub pool: Option<String>,
}

/// The layout of a file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NativeLayout {
    /// From the start of the file, adjacent; only the last one has no end.
    pub parts: Vec<Part>,
}

impl Part {
    /// A pattern for all of a file.
    pub(super) fn whole(turns: Vec<Turn>, pool: Option<String>) -> Self {
        Self { end: None, turns, pool }
    }

    /// Bytes of one cycle.
    #[must_use]
    pub fn cycle_bytes(&self) -> u64 {
        self.turns.iter().map(|turn| turn.bytes).sum()
    }

    /// The pattern as a region of `length` bytes that begins at byte `start` of the file sees it. A target with several turns gets one stripe of
    /// all of them, since a layout names a server once; only the turns that the region reaches count.
    fn layout_at(&self, start: u64, length: u64) -> Layout {
        let cycle = self.cycle_bytes();
        let mut skip = start % cycle;
        let mut turn = 0;
        while skip >= self.turns[turn].bytes {
            skip -= self.turns[turn].bytes;
            turn += 1;
        }
        let mut left = cycle.min(length.max(1));
        let mut stripes: Vec<(usize, u64)> = Vec::new();
        while left > 0 {
            let Turn { target, bytes } = self.turns[turn % self.turns.len()];
            let taken = (bytes - skip).min(left);
            match stripes.iter_mut().find(|(known, _)| *known == target) {
                Some((_, stripe)) => *stripe += taken,
                None => stripes.push((target, taken)),
            }
            (left, skip, turn) = (left - taken, 0, turn + 1);
        }
        let stripe =
            |(target, bytes): (usize, u64)| (ServerId(target as u16), u32::try_from(bytes).unwrap_or(u32::MAX));
        Layout::new(stripes.into_iter().map(stripe)).expect("every turn has bytes, and a target stands once")
    }

    /// Bytes before `end` of the file that would lie in each turn, if the part began with it.
    fn bytes_before(&self, end: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let cycle = self.cycle_bytes();
        let mut prefix = 0;
        self.turns.iter().map(move |turn| {
            let bytes = end / cycle * turn.bytes + (end % cycle).saturating_sub(prefix).min(turn.bytes);
            prefix += turn.bytes;
            (turn.target, bytes)
        })
    }
}

impl NativeLayout {
    /// One pattern for all of a file.
    pub(super) fn whole(turns: Vec<Turn>, pool: Option<String>) -> Self {
        Self { parts: vec![Part::whole(turns, pool)] }
    }

    /// The parts with the bytes at which they begin and end, the last one at `u64::MAX`.
    pub(super) fn extents(&self) -> impl Iterator<Item = (u64, u64, &Part)> {
        let mut start = 0;
        self.parts.iter().map(move |part| {
            let begun = start;
            start = part.end.unwrap_or(u64::MAX);
            (begun, start, part)
        })
    }

    /// The layout as plans say it, for a file of that size in regions of that size. A region in which parts meet has the layout of the part with most
    /// of its bytes.
    #[must_use]
    pub fn placement(&self, region_size: ByteCount, size_bytes: u64) -> Placement {
        let regions = size_bytes.div_ceil(region_size.0).max(1);
        let extents: Vec<(u64, u64, &Part)> = self.extents().collect();
        let mut known: HashMap<(usize, u64), Layout> = HashMap::new();
        let mut first = 0;
        let mut layout_of = |region: u64| {
            let start = region * region_size.0;
            let end = start.saturating_add(region_size.0);
            while extents[first].1 <= start {
                first += 1;
            }
            let meet = (first..extents.len()).take_while(|part| extents[*part].0 < end);
            let share = |part: &usize| extents[*part].1.min(end) - extents[*part].0.max(start);
            let part = meet.max_by_key(|part| (share(part), std::cmp::Reverse(*part))).unwrap_or(first);
            let of_part = extents[part].2;
            let phase = start % of_part.cycle_bytes();
            known.entry((part, phase)).or_insert_with(|| of_part.layout_at(start, region_size.0)).clone()
        };
        let planned: Vec<Layout> = (0..regions).map(&mut layout_of).collect();
        let beyond = layout_of(regions);
        Placement::from_regions(region_size, planned, beyond.clone(), beyond)
    }

    /// Bytes that a file of that size puts on each of so many targets.
    #[must_use]
    pub fn target_bytes(&self, targets: usize, size_bytes: u64) -> Vec<u64> {
        let mut sums = vec![0u64; targets];
        for (start, end, part) in self.extents().filter(|(start, ..)| *start < size_bytes) {
            let before = part.bytes_before(start);
            for ((target, until), (_, from)) in part.bytes_before(end.min(size_bytes)).zip(before) {
                sums[target] += until - from;
            }
        }
        sums
    }

    /// The target that has a byte of the file.
    #[must_use]
    pub fn target_of(&self, offset: u64) -> usize {
        let (.., part) = self.extents().find(|(_, end, _)| offset < *end).expect("the last part has no end");
        let mut within = offset % part.cycle_bytes();
        let found = part.turns.iter().find(|turn| {
            let is_here = within < turn.bytes;
            within = within.saturating_sub(turn.bytes);
            is_here
        });
        found.expect("the offset is within a cycle").target
    }

    /// The site's default for the file of that number: as many targets as it says, the first one rotating from file to file.
    #[must_use]
    pub fn site_default(site: &crate::site::Site, file: usize) -> Self {
        let (from, count, stripe_size) = site.default_layout();
        let first = file * count % from.len();
        let turns = (0..count).map(|turn| Turn { target: from[(first + turn) % from.len()], bytes: stripe_size.0 });
        Self::whole(turns.collect(), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stripewise_layout::{FileOffset, RegionGeometry, RegionOffset};

    fn part(end: Option<u64>, turns: &[(usize, u64)]) -> Part {
        Part {
            end,
            turns: turns.iter().map(|(target, bytes)| Turn { target: *target, bytes: *bytes }).collect(),
            pool: None,
        }
    }

    proptest! {
        /// Where no target has two turns apart and parts end with regions, every byte of the placement lies where the layout has it.
        #[test]
        fn a_placement_puts_each_byte_on_the_target_that_has_it(
            sizes in proptest::collection::vec(1u64..5, 1..5), other in proptest::collection::vec(1u64..5, 1..5), split in 0u64..4, at in 0u64..100
        ) {
            let turns = |sizes: &[u64], first: usize| -> Vec<(usize, u64)> {
                sizes.iter().enumerate().map(|(turn, size)| (first + turn, size * 4096)).collect()
            };
            let end = (split > 0).then_some(split * 65536);
            let mut parts = vec![part(end, &turns(&sizes, 0))];
            if end.is_some() {
                parts.push(part(None, &turns(&other, 8)));
            }
            let layout = NativeLayout { parts };
            let size = 100 * 4096;
            let placement = layout.placement(ByteCount(65536), size);
            let offset = at * 4096 + 17;
            let piece = RegionGeometry::new(65536).pieces(FileOffset(offset), 1).next().unwrap();
            let view = placement.layout_of(piece.region).view();
            // Turns of several cycles in one region lie where they should as long as the first one is whole.
            let is_whole = view.cycle_bytes() >= 65536 || 65536 % view.cycle_bytes() == 0;
            if is_whole {
                prop_assert_eq!(usize::from(view.locate(RegionOffset(offset % 65536)).server.0), layout.target_of(offset));
            }
            let bytes = layout.target_bytes(16, size);
            prop_assert_eq!(bytes.iter().sum::<u64>(), size);
            let counted = (0..100).filter(|at| layout.target_of(at * 4096) == 1).count() as u64;
            prop_assert_eq!(bytes[1], counted * 4096);
        }
    }

    #[test]
    fn a_region_sees_the_turns_from_its_own_start() {
        // Three turns of 64 KiB over regions of 64 KiB: each region is on one target, in turn.
        let layout = NativeLayout { parts: vec![part(None, &[(0, 65536), (1, 65536), (2, 65536)])] };
        let placement = layout.placement(ByteCount(65536), 5 * 65536);
        let first = |region| placement.layout_of(stripewise_layout::RegionIndex(region)).stripes()[0].server.0;
        assert_eq!([0, 1, 2, 3, 4, 5].map(first), [0, 1, 2, 0, 1, 2]);
        // A target with several turns in a row has one stripe of all.
        let layout = NativeLayout { parts: vec![part(None, &[(0, 4096), (0, 4096), (1, 4096)])] };
        let stripes = layout.placement(ByteCount(12288), 12288).layouts[0].stripes().to_vec();
        assert_eq!(stripes.iter().map(|stripe| stripe.size_bytes).collect::<Vec<_>>(), [8192, 4096]);
    }
}
