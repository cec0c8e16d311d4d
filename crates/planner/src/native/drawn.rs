//! Where a file may lie on a file system that chooses among the targets of a pool by itself.
//!
//! The file is divided into objects, and each object lies on a target of the pool that a hash or a master picks. Some targets get more of a file than others, and of a
//! file that is read unevenly some get more of the load. One picking cannot be foretold, so a few are drawn, and what is predicted of them is averaged.

use super::layout::Part;
use std::collections::HashMap;
use stripewise_layout::{ByteCount, Layout, Placement, ServerId};

/// How a file of one part is divided into objects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Objects {
    /// Bytes that go to one object before the next one's turn.
    pub unit_bytes: u64,
    /// Objects that take turns until all of them are full.
    pub turns: u64,
    /// Bytes of an object, a multiple of the unit.
    pub object_bytes: u64,
}

/// Regions with patterns of their own. Those of larger files repeat them: so many differ by chance no more.
const PATTERNS: u64 = 4096;

/// A number that has nothing to do with those next to it (SplitMix64's finalizer).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        mixed = (mixed ^ mixed >> shift).wrapping_mul(factor);
    }
    mixed ^ mixed >> 31
}

impl Objects {
    /// Objects of whole units, one after the other.
    #[must_use]
    pub fn in_order(object_bytes: u64) -> Self {
        Self { unit_bytes: object_bytes, turns: 1, object_bytes }
    }

    /// Bytes of the objects that take turns.
    fn set_bytes(&self) -> u64 {
        self.turns * self.object_bytes
    }

    /// One drawing of a file of that size: as plans say it, each region with the bytes that its objects leave on each target. A seed gives one drawing; draw
    /// several with seeds that differ.
    pub(super) fn draw(&self, part: &Part, region_size: ByteCount, size_bytes: u64, seed: u64) -> Placement {
        let picked = |object: u64| {
            let pick = mixed(mixed(seed) ^ object) % part.turns.len() as u64;
            part.turns[pick as usize].target
        };
        let layout_of = |region: u64| {
            let start = region * region_size.0;
            let end = start.saturating_add(region_size.0).min(size_bytes.max(start + 1));
            let mut stripes: Vec<(usize, u64)> = Vec::new();
            let mut add = |object: u64, bytes: u64| {
                let target = picked(object);
                match stripes.iter_mut().find(|(known, _)| *known == target) {
                    Some((_, stripe)) => *stripe += bytes,
                    None => stripes.push((target, bytes)),
                }
            };
            if self.turns == 1 {
                for object in start / self.object_bytes..end.div_ceil(self.object_bytes) {
                    let from = start.max(object * self.object_bytes);
                    add(object, end.min((object + 1) * self.object_bytes) - from);
                }
            } else {
                // One cycle over the objects of all sets that the region reaches, so that large requests are divided as they are there.
                for set in start / self.set_bytes()..end.div_ceil(self.set_bytes()) {
                    (0..self.turns).for_each(|turn| add(set * self.turns + turn, self.unit_bytes));
                }
            }
            let stripe =
                |(target, bytes): (usize, u64)| (ServerId(target as u16), u32::try_from(bytes).unwrap_or(u32::MAX));
            Layout::new(stripes.into_iter().map(stripe)).expect("a region reaches an object, and a target stands once")
        };
        let regions = size_bytes.div_ceil(region_size.0).max(1);
        let mut known: HashMap<u64, Layout> = HashMap::new();
        let planned: Vec<Layout> = (0..regions)
            .map(|region| known.entry(region % PATTERNS).or_insert_with(|| layout_of(region)).clone())
            .collect();
        let beyond = layout_of(regions);
        Placement::from_regions(region_size, planned, beyond.clone(), beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::Turn;
    use super::*;
    use stripewise_layout::RegionIndex;

    const MIB: u64 = 1 << 20;

    fn part(targets: usize) -> Part {
        Part { end: None, turns: (0..targets).map(|target| Turn { target, bytes: MIB }).collect(), pool: None }
    }

    /// Bytes of a whole file of whole regions on each target.
    fn bytes_of(placement: &Placement, regions: u32, targets: usize) -> Vec<f64> {
        let mut sums = vec![0.0; targets];
        for region in 0..regions {
            let view = placement.layout_of(RegionIndex(region));
            let cycle = view.view().cycle_bytes() as f64;
            for stripe in view.stripes() {
                sums[usize::from(stripe.server.0)] +=
                    placement.region_size.0 as f64 * f64::from(stripe.size_bytes) / cycle;
            }
        }
        sums
    }

    #[test]
    fn every_object_lies_whole_on_one_target_and_drawings_differ() {
        let (part, region, size) = (part(8), ByteCount(64 * MIB), 640 * MIB);
        for objects in [Objects::in_order(4 * MIB), Objects { unit_bytes: MIB / 16, turns: 8, object_bytes: 4 * MIB }] {
            let drawings: Vec<Vec<f64>> =
                (0..4).map(|seed| bytes_of(&objects.draw(&part, region, size, seed), 10, 8)).collect();
            for drawing in &drawings {
                assert_eq!(drawing.iter().sum::<f64>(), size as f64);
                assert!(drawing.iter().all(|bytes| *bytes % (4 * MIB) as f64 == 0.0), "{drawing:?}");
            }
            assert_ne!(drawings[0], drawings[1]);
            assert_eq!(drawings[0], bytes_of(&objects.draw(&part, region, size, 0), 10, 8));
        }
    }

    #[test]
    fn many_objects_are_spread_evenly() {
        let objects = Objects::in_order(4 * MIB);
        let drawn = bytes_of(&objects.draw(&part(8), ByteCount(64 * MIB), 64 << 30, 7), 1024, 8);
        let mean = drawn.iter().sum::<f64>() / 8.0;
        // 2048 objects each, so 22 more or less by chance.
        assert!(drawn.iter().all(|bytes| (bytes / mean - 1.0).abs() < 0.06), "{drawn:?}");
    }

    #[test]
    fn a_region_smaller_than_an_object_lies_on_one_target() {
        let objects = Objects::in_order(64 * MIB);
        let placement = objects.draw(&part(4), ByteCount(16 * MIB), 256 * MIB, 3);
        for chunk in 0..4 {
            let of = |region: u32| placement.layout_of(RegionIndex(region)).stripes()[0].server;
            assert!((0..4).all(|within| of(chunk * 4 + within) == of(chunk * 4)));
        }
    }
}
