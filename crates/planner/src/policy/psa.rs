//! `psa`: stripe sizes by server performance and SServer room.
//!
//! **Paper.** PSA, reference 40 of H2DP, as H2DP sections 5.1 and 6 describe it: SServers get the smaller stripe, so that more of the
//! file finds room on hybrid servers; which part does is left to chance, and nothing moves.
//!
//! **Assumptions.** One access pattern per file, m h + n s = r; all files share the room in proportion to their sizes.
//!
//! **Algorithm.** For h from r / (m + n) to r / m in steps, s = ceil_step((r - m h) / n), s > 0: the cost is that of the requests which
//! find room on hybrid servers plus that of the rest on HServers only ([`stripewise_model::psa`]); the least wins, ties go to the smaller s,
//! which leaves more room. Then regions are drawn as for `def`. Where r is so small that no lattice point lies in the interval, h starts at
//! the lattice point below it. With a least stripe both stripes of every candidate are raised to it before it is costed.
//!
//! **Complexity.** O(r / step x classes) per file and O(regions).

use super::fill::{FileLayouts, fill_at_random};
use super::{About, FileChoice, Policy, Source, Task, file_request_bytes, phases};
use crate::servers::ceil_to;
use stripewise_model::psa::PsaExtent;
use stripewise_model::{Concurrency, Picoseconds, StripePair, h2dp};
use stripewise_trace::{AccessClass, FileAccess};

pub(crate) struct Psa;

/// Costs within this part of the least are equal. Once the room is used up, a stripe twice as large saves twice as much on half the
/// requests: exact ties are the rule, and rounding must not decide them.
const TIE_SHARE: u128 = 1_000_000_000;

impl Policy for Psa {
    fn about(&self) -> About {
        About {
            section: "psa",
            source: Source::Paper("PSA"),
            stripes_differ_by: "file, class of server",
            ssd_regions: "drawn",
            moves_data: "no",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let tiers = task.tiers();
        let layouts = task.request.files.iter().map(|file| {
            let request_bytes = file_request_bytes(file, task.step_bytes);
            let hybrid = tiers.iter().map(|tier| tier.groups.pair_layout(best_pair(tier, file, request_bytes)));
            FileLayouts::uniform(hybrid, task.groups.pair_layout(task.pure_pair(request_bytes)))
        });
        fill_at_random(task, layouts.collect())
    }
}

/// The pair that PSA gives a file.
pub(crate) fn best_pair(task: &Task<'_>, file: &FileAccess, request_bytes: u64) -> StripePair {
    let groups = &task.groups;
    let pure = task.pure_pair(request_bytes);
    if !groups.is_hybrid() {
        return pure;
    }
    let totals = phases(task, file);
    let counts = totals.iter().flat_map(|(_, totals)| totals).map(|(_, count)| *count);
    let extent = PsaExtent {
        requests: counts.fold(0, u64::saturating_add),
        request_bytes,
        file_bytes: file.size_bytes.max(1),
        room_bytes: capacity_share_bytes(task, file),
    };
    let all_pure = sum_of_costs(task, &totals, pure);
    let costed: Vec<(Picoseconds, StripePair)> = candidates(groups.m(), groups.n(), request_bytes, task.step_bytes)
        .map(|pair| task.raised(pair))
        .map(|pair| (extent.file_cost(pair.s_bytes, sum_of_costs(task, &totals, pair), all_pure), pair))
        .collect();
    let least = costed.iter().map(|(cost, _)| cost.0).min().unwrap_or(0);
    costed
        .into_iter()
        .filter(|(cost, _)| cost.0 - least <= least / TIE_SHARE)
        .min_by_key(|(_, pair)| pair.s_bytes)
        .map_or(pure, |(_, pair)| pair)
}

/// h from r / (m + n) to r / m on the lattice, s covering the rest.
fn candidates(m: u64, n: u64, request_bytes: u64, step_bytes: u64) -> impl Iterator<Item = StripePair> {
    let start = ceil_to(request_bytes.div_ceil(m + n), step_bytes);
    // With m h >= r nothing is left for the SServers.
    let start = if m * start < request_bytes { start } else { start - step_bytes };
    (0..)
        .map(move |i| start + i * step_bytes)
        .take_while(move |h| m * h < request_bytes)
        .map(move |h| StripePair::new(h, ceil_to((request_bytes - m * h).div_ceil(n), step_bytes)))
}

/// Of all phases, each with its p and c.
fn sum_of_costs(task: &Task<'_>, phases: &[(Concurrency, Vec<(AccessClass, u64)>)], pair: StripePair) -> Picoseconds {
    let costs = phases.iter().flat_map(|(concurrency, totals)| {
        totals.iter().map(move |(class, count)| {
            let cost = h2dp::hybrid_cost(&task.parameters, pair, *class, *concurrency).total();
            cost.0.saturating_mul(u128::from(*count))
        })
    });
    Picoseconds(costs.fold(0, u128::saturating_add))
}

/// C_s: the file's part of the room that wider tiers leave on the SServer that has least.
fn capacity_share_bytes(task: &Task<'_>, file: &FileAccess) -> u64 {
    let least = task.groups.ssd.iter().filter_map(|id| task.capacity.bytes(usize::from(id.0))).min();
    let least = least.map(|capacity| capacity.saturating_sub(task.filled_bytes));
    let all_bytes: u128 = task.request.files.iter().map(|file| u128::from(file.size_bytes)).sum();
    least.map_or(u64::MAX, |capacity| {
        (u128::from(capacity) * u128::from(file.size_bytes)).checked_div(all_bytes).unwrap_or(0) as u64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// h lies in [r / (m + n), r / m] on the lattice; where no lattice point does, it is the one below. Every request is covered, and the SServers
    /// have a part of it.
    #[test]
    fn psa_takes_the_lattice_point_below_an_interval_without_any() {
        const STEP: u64 = 4096;
        let h_of = |m, n, r| -> Vec<u64> { candidates(m, n, r, STEP).map(|pair| pair.h_bytes).collect() };
        // 16 KiB over 12 and 4: from 1 KiB to 1.33 KiB. 49 KiB: from 3.06 to 4.08. 1 byte more than 12 stripes of 8 KiB: 6 to 8.0.
        assert_eq!((h_of(12, 4, 16 << 10), h_of(12, 4, 49 << 10)), (vec![0], vec![STEP]));
        assert_eq!(h_of(12, 4, (96 << 10) + 1), [2 * STEP]);
        assert_eq!(h_of(12, 4, 1 << 20), (16..=21).map(|steps| steps * STEP).collect::<Vec<_>>());
        let mut without = 0;
        for (m, n) in [(1, 1), (3, 1), (2, 6), (12, 4), (20, 2)] {
            for r in (1..400_000).step_by(997) {
                let pairs: Vec<StripePair> = candidates(m, n, r, STEP).collect();
                let covers = |pair: &StripePair| m * pair.h_bytes + n * pair.s_bytes >= r && pair.s_bytes > 0;
                assert!(!pairs.is_empty() && pairs.iter().all(covers), "{m}+{n}, {r} bytes: {pairs:?}");
                // With m h = r nothing is left for the SServers: that end of the interval is none of it.
                let inside = |h: u64| (m + n) * h >= r && m * h < r;
                let expected: Vec<u64> = (0..=r.div_ceil(STEP)).map(|i| i * STEP).filter(|h| inside(*h)).collect();
                let found: Vec<u64> = pairs.iter().map(|pair| pair.h_bytes).collect();
                if expected.is_empty() {
                    without += 1;
                    assert_eq!(found, [r / (m + n) / STEP * STEP], "{m}+{n}, {r} bytes");
                } else {
                    assert_eq!(found, expected, "{m}+{n}, {r} bytes");
                }
            }
        }
        assert!(without > 10, "{without} intervals without a lattice point");
    }
}
