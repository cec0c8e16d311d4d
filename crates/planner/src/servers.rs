//! The cluster as the papers see it: m HServers, n SServers, and the layouts that a stripe pair means on them.

use crate::capacity::Capacity;
use stripewise_layout::{Cluster, Layout, ServerClass, ServerId};
use stripewise_model::StripePair;

/// Largest stripe that a layout can hold. A region that needs a larger one lies on the class's first servers alone either way.
const LARGEST_STRIPE_BYTES: u64 = u32::MAX as u64;

/// Which servers are HServers and which SServers, in cluster order; servers that a plan may not use are in neither list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ServerGroups {
    pub(crate) hdd: Vec<ServerId>,
    pub(crate) ssd: Vec<ServerId>,
    /// All servers of the cluster.
    pub(crate) count: usize,
}

impl ServerGroups {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        Self {
            hdd: cluster.ids_of_class(ServerClass::Hdd),
            ssd: cluster.ids_of_class(ServerClass::Ssd),
            count: cluster.servers.len(),
        }
    }

    /// Without the servers that may take nothing.
    pub(crate) fn with_capacity(cluster: &Cluster, capacity: &Capacity) -> Self {
        let mut groups = Self::of(cluster);
        groups.keep(|id| capacity.bytes(usize::from(id.0)) != Some(0));
        groups
    }

    pub(crate) fn keep(&mut self, wanted: impl Fn(ServerId) -> bool) {
        self.hdd.retain(|id| wanted(*id));
        self.ssd.retain(|id| wanted(*id));
    }

    /// Whether a server, by number, is one of these.
    pub(crate) fn has(&self, number: usize) -> bool {
        self.all().any(|id| usize::from(id.0) == number)
    }

    /// HServers first, as in a layout.
    pub(crate) fn all(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.hdd.iter().chain(&self.ssd).copied()
    }

    /// m.
    pub(crate) fn m(&self) -> u64 {
        self.hdd.len() as u64
    }

    /// n.
    pub(crate) fn n(&self) -> u64 {
        self.ssd.len() as u64
    }

    /// True with both classes; otherwise there is nothing to select and no space to share out.
    pub(crate) fn is_hybrid(&self) -> bool {
        !self.hdd.is_empty() && !self.ssd.is_empty()
    }

    /// `<h, s>` over all servers, HServers first. A pair that gives no existing server a stripe is a fault of the policy.
    pub(crate) fn pair_layout(&self, pair: StripePair) -> Layout {
        let stripe = |bytes: u64| u32::try_from(bytes.min(LARGEST_STRIPE_BYTES)).expect("just bounded");
        let hdd = self.hdd.iter().map(|id| (*id, stripe(pair.h_bytes)));
        let ssd = self.ssd.iter().map(|id| (*id, stripe(pair.s_bytes)));
        Layout::new(hdd.chain(ssd)).expect("a policy gives at least one existing class a stripe")
    }

    /// `stripe_bytes` over the HServers alone; over the SServers in a cluster without HServers.
    pub(crate) fn pure_layout(&self, stripe_bytes: u64) -> Layout {
        self.pair_layout(self.pure_pair(stripe_bytes))
    }

    /// As [`Self::pure_layout`], as a pair.
    pub(crate) fn pure_pair(&self, stripe_bytes: u64) -> StripePair {
        if self.hdd.is_empty() { StripePair::new(0, stripe_bytes) } else { StripePair::new(stripe_bytes, 0) }
    }

    /// ceil_step(r / m): the HServers-only stripe of H2DP table 3.
    pub(crate) fn pure_stripe_bytes(&self, request_bytes: u64, step_bytes: u64) -> u64 {
        let servers = if self.hdd.is_empty() { self.n() } else { self.m() };
        ceil_to(request_bytes.max(1).div_ceil(servers), step_bytes)
    }

    /// Whether a layout needs room on SServers that the selection has to share out.
    pub(crate) fn uses_ssd(&self, layout: &Layout) -> bool {
        layout.stripes().iter().any(|stripe| self.ssd.contains(&stripe.server))
    }
}

pub(crate) fn ceil_to(bytes: u64, step_bytes: u64) -> u64 {
    bytes.div_ceil(step_bytes) * step_bytes
}
