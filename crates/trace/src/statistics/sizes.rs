//! Request sizes by number of requests, in bounded memory: told apart exactly until too many differ, from then on rounded.
//!
//! Whether the sizes of a file end up rounded depends on how many of them differ, not on how they came to be spread over processes.

use std::collections::HashMap;
use stripewise_layout::Direction;

/// Sizes of a file that are told apart at most, directions told apart.
pub const SIZES_APART: usize = 4096;
/// Leading bits that rounded sizes keep: the size told is at most 1 / 32 less than the true one.
const LEADING_BITS: u32 = 6;

/// Requests by direction and size.
#[derive(Default)]
pub(super) struct Sizes {
    requests: HashMap<(Direction, u64), u64>,
    is_rounded: bool,
}

impl Sizes {
    pub(super) fn add(&mut self, direction: Direction, bytes: u64, requests: u64) {
        let bytes = if self.is_rounded { rounded(bytes) } else { bytes };
        *self.requests.entry((direction, bytes)).or_insert(0) += requests;
        if self.requests.len() > SIZES_APART && !self.is_rounded {
            self.round();
        }
    }

    /// Adds what another process did.
    pub(super) fn absorb(&mut self, other: &Self) {
        if other.is_rounded && !self.is_rounded {
            self.round();
        }
        other.requests.iter().for_each(|((direction, bytes), requests)| self.add(*direction, *bytes, *requests));
    }

    fn round(&mut self) {
        self.is_rounded = true;
        for ((direction, bytes), requests) in std::mem::take(&mut self.requests) {
            self.add(direction, bytes, requests);
        }
    }

    pub(super) fn is_rounded(&self) -> bool {
        self.is_rounded
    }

    /// Sizes that are told apart.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Direction, size and requests, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Direction, u64, u64)> {
        self.requests.iter().map(|((direction, bytes), requests)| (*direction, *bytes, *requests))
    }
}

fn rounded(bytes: u64) -> u64 {
    let dropped = (u64::BITS - bytes.leading_zeros()).saturating_sub(LEADING_BITS);
    bytes >> dropped << dropped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Against a plain map, however the requests are spread over processes.
        #[test]
        fn sizes_are_exact_or_rounded_by_how_many_differ(
            range in prop_oneof![Just(4_000u64), Just(6_000), Just(u64::MAX)],
            seed in any::<u64>(),
            processes in 1..5usize,
        ) {
            let size = |number: u64| (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ seed) % range;
            let mut parts: Vec<Sizes> = (0..processes).map(|_| Sizes::default()).collect();
            let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
            for number in 0..20_000 {
                let bytes = size(number);
                parts[(number.wrapping_mul(seed | 1) >> 32) as usize % processes].add(Direction::Read, bytes, 1);
                *counts.entry(bytes).or_insert(0) += 1;
            }
            let mut whole = Sizes::default();
            parts.iter().for_each(|part| whole.absorb(part));
            prop_assert_eq!(whole.is_rounded(), counts.len() > SIZES_APART);
            prop_assert!(whole.len() <= SIZES_APART);
            let found: BTreeMap<u64, u64> = whole.iter().map(|(_, bytes, requests)| (bytes, requests)).collect();
            if whole.is_rounded() {
                let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
                for (bytes, requests) in &counts {
                    let reported = rounded(*bytes);
                    prop_assert!(reported <= *bytes && bytes - reported <= bytes / 32);
                    *expected.entry(reported).or_insert(0) += requests;
                }
                prop_assert_eq!(found, expected);
            } else {
                prop_assert_eq!(found, counts);
            }
        }
    }

    #[test]
    fn rounded_sizes_are_few() {
        let sizes: BTreeSet<u64> =
            (0..64).flat_map(|bit| (0..64).map(move |step| rounded((1 << bit) | (step << bit >> 6)))).collect();
        assert!(2 * sizes.len() <= SIZES_APART, "{}", sizes.len());
        assert_eq!(
            (rounded(63), rounded(64), rounded(65), rounded(66), rounded(1 << 62 | 1)),
            (63, 64, 64, 66, 1 << 62)
        );
    }
}
