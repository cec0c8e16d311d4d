//! Latencies counted in buckets whose width grows with the value, so that a run of any length takes the same memory.
//!
//! Below 128 ns every nanosecond has a bucket; above, each power of two is cut into 128. A percentile is given as the middle of its
//! bucket and so is at most 1/256 of itself (0.4 %) off; mean and maximum are exact.

use crate::outcome::Latency;
use stripewise_device::Nanos;

const SPLIT_BITS: u32 = 7;
const SPLITS: u64 = 1 << SPLIT_BITS;
const BUCKETS: usize = (64 - SPLIT_BITS as usize + 1) << SPLIT_BITS;

pub(crate) struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u128,
    max: Nanos,
}

fn bucket_of(nanoseconds: u64) -> usize {
    let power = u64::BITS - 1 - (nanoseconds | SPLITS).leading_zeros() - SPLIT_BITS;
    ((u64::from(power) << SPLIT_BITS) + (nanoseconds >> power)) as usize
}

/// The middle of a bucket, in ns.
fn middle_of(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < 2 * SPLITS {
        return bucket as f64;
    }
    let power = (bucket >> SPLIT_BITS) - 1;
    let first = (bucket - (power << SPLIT_BITS)) << power;
    first as f64 + ((1u64 << power) - 1) as f64 / 2.0
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], count: 0, sum_ns: 0, max: Nanos(0) }
    }

    #[inline]
    pub(crate) fn note(&mut self, latency: Nanos) {
        self.counts[bucket_of(latency.0)] += 1;
        self.count += 1;
        self.sum_ns += u128::from(latency.0);
        self.max = self.max.max(latency);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
        self.max = self.max.max(other.max);
    }

    /// The least value that is not exceeded by `share` of all.
    fn at(&self, share: f64) -> f64 {
        let rank = (share * (self.count - 1) as f64) as u64;
        let mut passed = 0;
        let bucket = self.counts.iter().position(|count| {
            passed += count;
            passed > rank
        });
        bucket.map_or(0.0, |bucket| middle_of(bucket).min(self.max.0 as f64) / 1e9)
    }

    pub(crate) fn latency(&self) -> Latency {
        if self.count == 0 {
            return Latency::default();
        }
        Latency {
            mean_s: self.sum_ns as f64 / self.count as f64 / 1e9,
            p50_s: self.at(0.5),
            p95_s: self.at(0.95),
            p99_s: self.at(0.99),
            max_s: self.max.seconds(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_list(mut values in prop::collection::vec(
            prop_oneof![0u64..1_000, 0u64..100_000_000, any::<u64>().prop_map(|value| value >> 2)], 1..300)) {
            let mut histogram = Histogram::new();
            values.iter().for_each(|value| histogram.note(Nanos(*value)));
            values.sort_unstable();
            let latency = histogram.latency();
            for (share, found) in [(0.5, latency.p50_s), (0.95, latency.p95_s), (0.99, latency.p99_s)] {
                let exact = values[((values.len() - 1) as f64 * share) as usize] as f64 / 1e9;
                prop_assert!((found - exact).abs() <= exact / 256.0 + 1e-12, "{share}: {found} instead of {exact}");
            }
            prop_assert_eq!(latency.max_s, *values.last().unwrap() as f64 / 1e9);
        }
    }

    #[test]
    fn every_value_has_a_bucket() {
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(127), 127);
        assert_eq!(bucket_of(255), 255);
        assert!(bucket_of(u64::MAX) < BUCKETS);
        for power in 1..64 {
            assert_eq!(bucket_of(1 << power), bucket_of((1 << power) - 1) + 1, "2^{power}");
        }
    }
}
