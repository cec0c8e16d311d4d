//! `random`: stripe sizes by lot.
//!
//! **Paper.** A baseline of H2DP's and PADP's evaluations, where stripe sizes were picked by hand.
//!
//! **Assumptions.** None, but that a request should be covered: m h + n s = r, r being the file's byte-weighted mean request.
//!
//! **Algorithm.** For each file h is drawn from 0 .. r / m, every byte equally likely, and s = ceil((r - m h) / n); sizes lie on no lattice.
//! `--pair` gives one pair for all files instead. Room is not looked at: regions are drawn as for `def`, and those that find the SServers
//! full are striped ceil_step(r / m) over the HServers. The seed decides pairs and regions.
//!
//! **Complexity.** O(regions).

use super::fill::{FileLayouts, fill_at_random};
use super::{About, FileChoice, Policy, Source, Task, file_request_bytes};
use stripewise_layout::SplitMix64;
use stripewise_model::StripePair;

pub(crate) struct Random;

/// Sets the draws of pairs apart from those of regions, which begin with the seed itself.
const PAIR_DRAWS: u64 = 0x7061_6972;

impl Policy for Random {
    fn about(&self) -> About {
        About {
            section: "random",
            source: Source::Baseline("baseline of H2DP, PADP"),
            stripes_differ_by: "file",
            ssd_regions: "drawn",
            moves_data: "no",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let mut generator = SplitMix64::new(task.request.options.seed ^ PAIR_DRAWS);
        let tiers = task.tiers();
        let layouts = task.request.files.iter().map(|file| {
            let request_bytes = file_request_bytes(file, task.step_bytes);
            // One draw for all tiers, so that a plan changes with the seed alone.
            let draw = generator.below(u64::MAX);
            let hybrid = tiers.iter().map(|tier| {
                let pair =
                    task.request.options.pair.map_or_else(|| drawn(tier, request_bytes, draw), |p| usable(tier, p));
                tier.groups.pair_layout(pair)
            });
            let pure = task.groups.pure_stripe_bytes(request_bytes, task.step_bytes);
            FileLayouts::uniform(hybrid, task.groups.pure_layout(pure))
        });
        fill_at_random(task, layouts.collect())
    }
}

/// m h + n s = r, but for the rounding up of s to a whole byte. `draw` is a number from the whole range of 64 bits.
fn drawn(task: &Task<'_>, request_bytes: u64, draw: u64) -> StripePair {
    let (m, n) = (task.groups.m(), task.groups.n());
    let share = |servers: u64| request_bytes.div_ceil(servers);
    if m == 0 || n == 0 {
        return if m == 0 { StripePair::new(0, share(n)) } else { StripePair::new(share(m), 0) };
    }
    let choices = u128::from(request_bytes / m + 1);
    let h_bytes = ((u128::from(draw) * choices) >> 64) as u64;
    StripePair::new(h_bytes, (request_bytes - m * h_bytes).div_ceil(n))
}

/// A given pair, or its other stripe where it gives the only class of a cluster nothing.
fn usable(task: &Task<'_>, pair: StripePair) -> StripePair {
    let (m, n) = (task.groups.m(), task.groups.n());
    let either = pair.h_bytes.max(pair.s_bytes);
    match (m, n) {
        (0, _) if pair.s_bytes == 0 => StripePair::new(0, either),
        (_, 0) if pair.h_bytes == 0 => StripePair::new(either, 0),
        _ => pair,
    }
}
