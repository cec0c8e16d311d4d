//! Random numbers, orders and permutations that a program in any language can repeat (see the module above for the definitions).

use stripewise_layout::SplitMix64;

/// What tells the streams of two ranks apart.
const RANK_STEP: u64 = 0xD1B5_4A32_D192_ED03;

/// The numbers of one rank.
pub(super) fn of_rank(seed: u64, rank: u32) -> SplitMix64 {
    let mut start = SplitMix64::new(seed.wrapping_add((u64::from(rank) + 1).wrapping_mul(RANK_STEP)));
    SplitMix64::new(start.next())
}

/// The numbers below `count` in an order of that seed.
pub(super) fn shuffled(count: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = SplitMix64::new(seed);
    for index in (1..order.len()).rev() {
        let other = random.next() % (index as u64 + 1);
        order.swap(index, other as usize);
    }
    order
}

const ROUNDS: usize = 4;

/// A permutation of the numbers below `count` without a table.
///
/// Odd factors and shifted exclusive-ors permute the numbers of the next power of two; what falls outside goes round again until it
/// is inside, fewer than two goes on average.
#[derive(Clone, Debug)]
pub(super) struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    rounds: [(u64, u64); ROUNDS],
}

impl Permutation {
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
        let mut random = SplitMix64::new(seed);
        let rounds = std::array::from_fn(|_| (random.next() | 1, random.next()));
        Self { count, mask, shift: bits.div_ceil(2).max(1), rounds }
    }

    /// `index` must be below `count`.
    #[inline]
    pub(super) fn at(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            for (factor, addend) in self.rounds {
                value = value.wrapping_mul(factor).wrapping_add(addend) & self.mask;
                value ^= value >> self.shift;
            }
            if value < self.count {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_permutation_takes_every_number_once(count in 1u64..5000, seed: u64) {
            let permutation = Permutation::new(count, seed);
            let mut taken = vec![false; count as usize];
            for index in 0..count {
                let value = permutation.at(index) as usize;
                prop_assert!(!std::mem::replace(&mut taken[value], true));
            }
        }
    }

    /// A disk sees a random order: neighbours in order are neighbours in the file no oftener than by chance.
    #[test]
    fn a_permutation_keeps_no_neighbours() {
        for count in [1000u64, 4096, 1 << 20] {
            let permutation = Permutation::new(count, 7);
            let near =
                (1..1000).filter(|index| permutation.at(*index).abs_diff(permutation.at(index - 1)) <= count / 100);
            // 2 % by chance.
            assert!(near.count() < 60, "{count}");
        }
    }

    #[test]
    fn units_fill_the_interval() {
        let mut random = SplitMix64::new(3);
        let mean = (0..10_000).map(|_| random.unit()).inspect(|unit| assert!((0.0..1.0).contains(unit))).sum::<f64>();
        assert!((mean / 10_000.0 - 0.5).abs() < 0.02);
    }
}
