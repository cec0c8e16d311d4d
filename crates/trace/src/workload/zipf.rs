//! Regions of a file by Zipf's law, as the module above defines the sequence.

use super::random::shuffled;
use stripewise_layout::SplitMix64;

/// Bits of a draw that lead into the guide.
const GUIDE_BITS: u32 = 12;
const GUIDE_SHIFT: u32 = 32 - GUIDE_BITS;

/// Which region of a file is asked for how often: one table for all ranks.
#[derive(Clone, Debug)]
pub(super) struct ZipfRegions {
    region_bytes: u64,
    order: Vec<u32>,
    limits: Vec<u64>,
    /// `guide[g]`: the k that the draw `g << GUIDE_SHIFT` chooses; the search starts there.
    guide: Vec<u32>,
}

impl ZipfRegions {
    /// `regions` at least 1.
    pub(super) fn new(regions: u32, region_bytes: u64, exponent: f64, seed: u64) -> Self {
        let limits = zipf_limits(regions, exponent);
        let chosen = |guide: u64| limits.partition_point(|limit| *limit <= guide << GUIDE_SHIFT) as u32;
        let guide = (0..1u64 << GUIDE_BITS).map(chosen).chain([regions - 1]).collect();
        Self { region_bytes, order: shuffled(regions, seed), limits, guide }
    }

    pub(super) fn regions(&self) -> u32 {
        self.order.len() as u32
    }

    /// The offset of the next request of `bytes`; popularity k is that of region `order[(k + rotation) mod regions]`.
    #[inline]
    pub(super) fn next_offset(&self, random: &mut SplitMix64, bytes: u64, rotation: u32) -> u64 {
        let draw = random.next() >> 32;
        let guide = (draw >> GUIDE_SHIFT) as usize;
        let (low, high) = (self.guide[guide] as usize, self.guide[guide + 1] as usize);
        let k = low + self.limits[low..=high].partition_point(|limit| *limit <= draw);
        let place = (k + rotation as usize) % self.order.len();
        let slot = random.next() % (self.region_bytes / bytes);
        u64::from(self.order[place]) * self.region_bytes + slot * bytes
    }
}

fn zipf_limits(regions: u32, exponent: f64) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (0..regions)
        .map(|k| {
            sum += 1.0 / (f64::from(k) + 1.0).powf(exponent);
            sum
        })
        .collect();
    let mut limits: Vec<u64> = sums.iter().map(|partial| (partial / sum * 4_294_967_296.0).floor() as u64).collect();
    if let Some(last) = limits.last_mut() {
        *last = 1 << 32;
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::super::random::of_rank;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The guide only shortens the search.
        #[test]
        fn the_guide_finds_what_a_search_finds(regions in 1u32..3000, exponent in 0.0..4.0, seed: u64) {
            let zipf = ZipfRegions::new(regions, 64, exponent, seed);
            let (mut random, mut plain) = (of_rank(seed, 0), of_rank(seed, 0));
            for _ in 0..200 {
                let offset = zipf.next_offset(&mut random, 8, 0);
                let draw = plain.next() >> 32;
                let k = zipf.limits.iter().position(|limit| *limit > draw).unwrap();
                prop_assert_eq!(offset, u64::from(zipf.order[k]) * 64 + plain.next() % 8 * 8);
            }
        }
    }
}
