//! Ranks that march through a file beside processes that do not, told from counts of the whole.
//!
//! Of p processes of which a share s marches as one run, s - 1/p of the requests adjoin another one, and s (s p - 1) / (p - 1) of the pairs that are in
//! flight together lie in one region beyond chance. A crowd has little of either; a march has nearly all of both, or of the first alone where
//! its run is longer than a region; rows of a grid have all of the second and less of the first. Where both say the same s, and it is not nearly all or
//! nothing, some march and the others do not. Ours.

use std::ops::RangeInclusive;
use stripewise_trace::Company;

/// Outside of these a file is one march or one crowd.
const MIXED: RangeInclusive<f64> = 0.15..=0.85;

/// What the pairs say of the share over what the adjoining requests say. A run that crosses a border of regions meets less often, by a third of the pairs
/// where it is as long as a region.
const AGREEMENT: RangeInclusive<f64> = 0.7..=1.15;

/// The share of `processes` that marches through the file while the others do not, between 0 and 1; `None` where all are alike.
#[must_use]
pub fn marching_share(company: Company, processes: u32) -> Option<f64> {
    let p = f64::from(processes);
    let by_adjoining = company.adjoining + 1.0 / p;
    let is_mixed = MIXED.contains(&by_adjoining) && (by_adjoining * p).round() >= 2.0;
    // s (s p - 1) = x (p - 1).
    let by_pairs = (1.0 + (1.0 + 4.0 * p * (p - 1.0) * company.same_region).sqrt()) / (2.0 * p);
    (is_mixed && AGREEMENT.contains(&(by_pairs / by_adjoining))).then_some(by_adjoining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::SplitMix64;

    /// Of 64 MiB regions; `marching` of `processes` read one behind the other, the others anywhere, at sampled instants.
    fn company(marching: u64, processes: u64, request_bytes: u64) -> Company {
        const REGION: u64 = 64 << 20;
        let mut random = SplitMix64::new(3);
        let instants = (0..400).map(|_| {
            let first = random.below(1000 * REGION / request_bytes) * request_bytes;
            let mut instant: Vec<(u64, u64)> =
                (0..marching).map(|rank| (first + rank * request_bytes, request_bytes)).collect();
            let elsewhere = (marching..processes).map(|_| random.below(1000 * REGION / request_bytes) * request_bytes);
            instant.extend(elsewhere.map(|offset| (offset, request_bytes)));
            instant
        });
        Company::of_instants(instants, REGION, 4096)
    }

    #[test]
    fn marchers_in_a_crowd_are_counted() {
        for (marching, processes) in [(16, 32), (8, 32), (24, 32), (4, 8), (64, 128)] {
            for request_bytes in [64 << 10, 256 << 10, 1 << 20] {
                let company = company(marching, processes, request_bytes);
                let share = marching_share(company, processes as u32);
                let expected = marching as f64 / processes as f64;
                assert!(
                    share.is_some_and(|share| (share / expected - 1.0).abs() < 0.05),
                    "{marching} of {processes}, {request_bytes}: {share:?}, {company:?}"
                );
            }
        }
    }

    #[test]
    fn a_crowd_a_march_and_rows_are_no_mixture() {
        for (marching, processes) in [(0, 32), (1, 32), (32, 32), (31, 32)] {
            assert_eq!(marching_share(company(marching, processes, 1 << 20), processes as u32), None, "{marching}");
        }
        // Eight rows of four in one region, and a march that is longer than its regions.
        let rows = Company { same_region: 1.0, adjoining: 0.75, skip_bytes: 0, apart_bytes: 4 << 20 };
        let long = Company { same_region: 0.1, adjoining: 31.0 / 32.0, ..Company::default() };
        assert_eq!([rows, long].map(|company| marching_share(company, 32)), [None; 2]);
    }
}
