//! Where a file may lie on a file system that chooses among the targets of a pool by itself.
//!
//! The file is divided into objects, and each object lies on a target of the pool that a hash or a master picks. Some targets get more of a file than others, and of a
//! file that is read unevenly some get more of the load. One picking cannot be foretold, so a few are drawn, and what is predicted of them is averaged.

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

    /// Objects and bytes of them that stand for what lies from one byte to another: of each set of objects one cycle at
    /// most, so that large requests are divided as they are there. Where that is several sets, their shares are those of
    /// their bytes, and stripes are as long as units on average.
    fn reached(&self, start: u64, end: u64) -> Vec<(u64, f64)> {
        // An object without others that take turns is one unit.
        let unit = if self.turns == 1 { self.object_bytes } else { self.unit_bytes };
        let of_set = |set: u64| {
            let begin = set * self.set_bytes();
            let (from, to) = (start.max(begin) - begin, end.min(begin + self.set_bytes()) - begin);
            (set, from, to - from, (to - from).min(self.turns * unit))
        };
        let sets = (start / self.set_bytes()..end.div_ceil(self.set_bytes())).map(of_set);
        let sets: Vec<(u64, u64, u64, u64)> = sets.collect();
        let mean = sets.iter().map(|(.., counted)| *counted).sum::<u64>() as f64 / (end - start) as f64;
        let mut reached = Vec::new();
        for (set, from, bytes, counted) in sets {
            let scale = bytes as f64 / counted as f64 * mean;
            let (mut at, until) = (from, from + counted);
            while at < until {
                let next = (at / unit + 1).saturating_mul(unit).min(until);
                reached.push((set * self.turns + at / unit % self.turns, (next - at) as f64 * scale));
                at = next;
            }
        }
        reached
    }

    /// One drawing of a file of that size, whose objects lie on these targets: as plans say it, each region with the bytes
    /// that its objects leave on each target. A seed gives one drawing; draw several with seeds that differ.
    pub(super) fn draw(&self, targets: &[usize], region_size: ByteCount, size_bytes: u64, seed: u64) -> Placement {
        let picked = |object: u64| {
            let pick = mixed(mixed(seed) ^ object) % targets.len() as u64;
            targets[pick as usize]
        };
        let layout_of = |start: u64, end: u64| {
            let mut stripes: Vec<(usize, f64)> = Vec::new();
            for (object, bytes) in self.reached(start, end) {
                let target = picked(object);
                match stripes.iter_mut().find(|(known, _)| *known == target) {
                    Some((_, stripe)) => *stripe += bytes,
                    None => stripes.push((target, bytes)),
                }
            }
            // The most there is for what is larger.
            let stripe = |(target, bytes): (usize, f64)| (ServerId(target as u16), bytes.round().max(1.0) as u32);
            Layout::new(stripes.into_iter().map(stripe)).expect("a region reaches an object, and a target stands once")
        };
        let whole = |region: u64| {
            let start = region * region_size.0;
            (start, start.saturating_add(region_size.0))
        };
        let regions = size_bytes.div_ceil(region_size.0).max(1);
        let mut known: HashMap<u64, Layout> = HashMap::new();
        let mut of_pattern = |region: u64| {
            let (start, end) = whole(region);
            let layout = || layout_of(start, end.min(size_bytes.max(start + 1)));
            known.entry(region % PATTERNS).or_insert_with(layout).clone()
        };
        let planned: Vec<Layout> = (0..regions).map(&mut of_pattern).collect();
        let (start, end) = whole(regions);
        let beyond = layout_of(start, end);
        Placement::from_regions(region_size, planned, beyond.clone(), beyond)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::RegionIndex;

    const MIB: u64 = 1 << 20;

    const POOL: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

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
        let (region, size) = (ByteCount(64 * MIB), 640 * MIB);
        for objects in [Objects::in_order(4 * MIB), Objects { unit_bytes: MIB / 16, turns: 8, object_bytes: 4 * MIB }] {
            let drawings: Vec<Vec<f64>> =
                (0..4).map(|seed| bytes_of(&objects.draw(&POOL, region, size, seed), 10, 8)).collect();
            for drawing in &drawings {
                assert_eq!(drawing.iter().sum::<f64>(), size as f64);
                assert!(drawing.iter().all(|bytes| *bytes % (4 * MIB) as f64 == 0.0), "{drawing:?}");
            }
            assert_ne!(drawings[0], drawings[1]);
            assert_eq!(drawings[0], bytes_of(&objects.draw(&POOL, region, size, 0), 10, 8));
        }
    }

    #[test]
    fn many_objects_are_spread_evenly() {
        let objects = Objects::in_order(4 * MIB);
        let drawn = bytes_of(&objects.draw(&POOL, ByteCount(64 * MIB), 64 << 30, 7), 1024, 8);
        let mean = drawn.iter().sum::<f64>() / 8.0;
        // 2048 objects each, so 22 more or less by chance.
        assert!(drawn.iter().all(|bytes| (bytes / mean - 1.0).abs() < 0.06), "{drawn:?}");
    }

    #[test]
    fn a_region_smaller_than_an_object_lies_on_one_target() {
        let objects = Objects::in_order(64 * MIB);
        let placement = objects.draw(&POOL[..4], ByteCount(16 * MIB), 256 * MIB, 3);
        for chunk in 0..4 {
            let of = |region: u32| placement.layout_of(RegionIndex(region)).stripes()[0].server;
            assert!((0..4).all(|within| of(chunk * 4 + within) == of(chunk * 4)));
        }
    }

    /// The object that a byte lies in, as file systems count it.
    fn object_at(objects: &Objects, byte: u64) -> u64 {
        let (set, within) = (byte / objects.set_bytes(), byte % objects.set_bytes());
        set * objects.turns + within / objects.unit_bytes % objects.turns
    }

    #[test]
    fn a_region_that_begins_within_a_cycle_lies_on_the_objects_whose_turn_it_is() {
        // Cycles of 32 MiB: a region of 4 MiB reaches two of the 16 units, and the next region the two after them.
        let objects = Objects { unit_bytes: 2 * MIB, turns: 16, object_bytes: 4 * MIB };
        let targets: Vec<usize> = (0..200).collect();
        let (region, size) = (4 * MIB, 256 * MIB);
        for seed in 0..4 {
            let placement = objects.draw(&targets, ByteCount(region), size, seed);
            let own = |object: u64| mixed(mixed(seed) ^ object) % 200;
            for number in 0..size / region {
                let mut expected = [0, 1].map(|unit| own(object_at(&objects, number * region + unit * 2 * MIB)) as u16);
                expected.sort_unstable();
                let layout = placement.layout_of(RegionIndex(number as u32));
                let mut servers: Vec<u16> = layout.stripes().iter().map(|stripe| stripe.server.0).collect();
                servers.sort_unstable();
                let expected = &expected[..if expected[0] == expected[1] { 1 } else { 2 }];
                assert_eq!(servers, expected, "region {number}");
            }
        }
        let held = bytes_of(&objects.draw(&targets, ByteCount(region), size, 1), (size / region) as u32, 200);
        assert!(held.iter().all(|bytes| *bytes % (4 * MIB) as f64 == 0.0), "whole objects: {held:?}");
    }

    #[test]
    fn sets_that_a_region_reaches_in_part_weigh_as_much_as_their_bytes() {
        // Sets of 48 MiB: regions of 64 MiB reach one wholly and others in part, and the file ends within one.
        let objects = Objects { unit_bytes: MIB / 16, turns: 12, object_bytes: 4 * MIB };
        let targets: Vec<usize> = (0..12).collect();
        let (region, size) = (64 * MIB, 610 * MIB);
        for number in 0..size.div_ceil(region) {
            let (start, end) = (number * region, ((number + 1) * region).min(size));
            let reached = objects.reached(start, end);
            let all: f64 = reached.iter().map(|(_, bytes)| bytes).sum();
            let mut expected = HashMap::new();
            (start..end).step_by(MIB as usize / 16).for_each(|byte| {
                *expected.entry(object_at(&objects, byte)).or_insert(0.0) += (MIB / 16) as f64 / (end - start) as f64;
            });
            let mut found = HashMap::new();
            reached.iter().for_each(|(object, bytes)| *found.entry(*object).or_insert(0.0) += bytes / all);
            assert_eq!(found.len(), expected.len(), "region {number}");
            for (object, share) in expected {
                assert!((found[&object] - share).abs() < 0.002, "region {number}, object {object}: {share}");
            }
            let mean = all / reached.len() as f64;
            assert!((mean / (MIB / 16) as f64 - 1.0).abs() < 0.05, "stripes are as long as units: {mean}");
        }
        // The same bytes on a target as its objects have.
        let placement = objects.draw(&targets, ByteCount(region), 640 * MIB, 5);
        let mut held = vec![0.0; 12];
        (0..640).for_each(|mib| {
            let units = (0..16).map(|unit| mib * MIB + unit * MIB / 16);
            let own = |byte: u64| (mixed(mixed(5) ^ object_at(&objects, byte)) % 12) as usize;
            units.for_each(|byte| held[own(byte)] += (MIB / 16) as f64);
        });
        for (drawn, held) in bytes_of(&placement, 10, 12).into_iter().zip(held) {
            assert!((drawn - held).abs() < 0.001 * (640 * MIB) as f64, "{drawn} is not {held}");
        }
    }
}
