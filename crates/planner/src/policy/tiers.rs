//! SServers of unequal capacity.
//!
//! The papers know one room C_s for all SServers. With stripes of one size per class the smallest SServer is full first, and what the others
//! still have would stay empty. So a policy plans once for every *tier*: tier 0 has all SServers, each further one lacks those with the
//! least room of the tier before. A region takes the first tier in which it fits; each tier has stripe sizes of its own, since n differs.
//! With equal capacities there is one tier, and everything is as the papers have it.

use super::Task;
use stripewise_layout::ServerId;
use stripewise_model::ClassParameters;

impl Task<'_> {
    /// The task for each tier, the widest first. At least one.
    pub(crate) fn tiers(&self) -> Vec<Self> {
        let capacity = |id: &ServerId| self.capacity.bytes(usize::from(id.0)).unwrap_or(u64::MAX);
        let mut capacities: Vec<u64> = self.groups.ssd.iter().map(capacity).collect();
        capacities.sort_unstable();
        capacities.dedup();
        if !self.groups.is_hybrid() || capacities.len() == 1 {
            return vec![self.clone()];
        }
        let filled = std::iter::once(0).chain(capacities.iter().copied());
        filled
            .zip(&capacities)
            .map(|(filled_bytes, least)| {
                let mut tier = self.clone();
                tier.groups.ssd.retain(|id| capacity(id) >= *least);
                let groups = &tier.groups;
                tier.parameters = ClassParameters::of_servers(self.request.profile, |number| groups.has(number));
                tier.filled_bytes = filled_bytes;
                tier
            })
            .collect()
    }
}
