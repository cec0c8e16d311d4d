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
use super::{About, FileChoice, Policy, Source, Task};
use stripewise_model::StripePair;

pub(crate) struct Def;

const STRIPE_BYTES: u64 = 64 << 10;

impl Policy for Def {
    fn about(&self) -> About {
        About {
            section: "def",
            source: Source::Baseline("default of OrangeFS"),
            stripes_differ_by: "nothing",
            ssd_regions: "drawn",
            moves_data: "no",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let tiers = task.tiers();
        let layouts = task.request.files.iter().map(|_| {
            let hybrid = tiers.iter().map(|tier| tier.groups.pair_layout(StripePair::new(STRIPE_BYTES, STRIPE_BYTES)));
            FileLayouts::uniform(hybrid, task.groups.pure_layout(STRIPE_BYTES))
        });
        fill_at_random(task, layouts.collect())
    }
}
