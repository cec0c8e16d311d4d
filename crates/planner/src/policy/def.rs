//! `def`: 64 KiB stripes over all servers.
//!
//! **Paper.** The default of OrangeFS, baseline of H2DP section 5.1 and PADP section 4.1.
//!
//! **Assumptions.** None about servers or accesses.
//!
//! **Algorithm.** Every region is striped 64 KiB over all servers. Room is not looked at: regions in seeded-random order take hybrid
//! servers until the SServers are full, the rest is striped 64 KiB over the HServers.
//!
//! **Complexity.** O(regions).

use super::fill::{FileLayouts, fill_at_random};
use super::{FileChoice, Policy, Task};
use stripewise_model::StripePair;

pub(crate) struct Def;

const STRIPE_BYTES: u64 = 64 << 10;

impl Policy for Def {
    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let tiers = task.tiers();
        let layouts = task.request.files.iter().map(|_| {
            let hybrid = tiers.iter().map(|tier| tier.groups.pair_layout(StripePair::new(STRIPE_BYTES, STRIPE_BYTES)));
            FileLayouts::uniform(hybrid, task.groups.pure_layout(STRIPE_BYTES))
        });
        fill_at_random(task, layouts.collect())
    }
}
