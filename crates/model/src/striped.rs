//! The papers' request cost carried over to any layout, with every server's own line.
//!
//! H2DP table 2 and table 3 are the special cases of equal servers within a class. [`request_cost`] keeps the papers' assumption that
//! every request waits for all servers of the layout; [`exact_cost`] looks at the true sub-requests of request-aligned offsets.

use crate::offsets::AlignedOffsets;
use crate::{Concurrency, Profile, RequestCost, most_bytes_on_one_server};
use stripewise_layout::{Layout, RegionOffset};
use stripewise_trace::AccessClass;

/// Offsets that [`exact_cost`] looks at, at most: all those of a region of 64 MiB from requests of 4 KiB on. Fewer would miss narrow stripes, on which few
/// requests fall that cost many times as much as the others.
pub const EXACT_OFFSETS: u64 = 1 << 14;

/// The cost of a request and the relative spread of its slowest line.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SpreadCost {
    /// The four parts, in seconds.
    pub cost: RequestCost,
    /// [`crate::Line::spread`] of the server that decided `storage_s`.
    pub storage_spread: f64,
}

/// The papers' cost of one request of `class` on `layout`: all its servers take part, each with the most bytes that any offset puts on it.
/// Every server that the layout names must be in the profile.
#[must_use]
pub fn request_cost(profile: &Profile, layout: &Layout, class: AccessClass, concurrency: Concurrency) -> SpreadCost {
    let cycle_bytes = layout.view().cycle_bytes();
    // Most stripes are like the one before.
    let mut last = (0, 0);
    let parts = layout.stripes().iter().map(|stripe| {
        let stripe_bytes = u64::from(stripe.size_bytes);
        if last.0 != stripe_bytes {
            last = (stripe_bytes, most_bytes_on_one_server(stripe_bytes, cycle_bytes, class.request_bytes));
        }
        (usize::from(stripe.server.0), last.1)
    });
    cost_of_parts(profile, parts, class, concurrency)
}

/// The mean cost of one request of `class` over its possible offsets 0, r, 2r, .. in a region, counting only the servers that the
/// request touches. Traces are kept as counts of classes, so the offsets are the request-aligned ones, which real requests mostly have.
#[must_use]
pub fn exact_cost(
    profile: &Profile,
    layout: &Layout,
    class: AccessClass,
    concurrency: Concurrency,
    region_bytes: u64,
) -> RequestCost {
    let request_bytes = class.request_bytes.max(1);
    let offsets = AlignedOffsets::of(layout.view().cycle_bytes(), request_bytes, region_bytes, EXACT_OFFSETS);
    let mut sum = RequestCost::default();
    for (offset, share) in (0..offsets.sampled()).map(|number| (offsets.offset(number), offsets.share(number))) {
        let parts = layout
            .view()
            .split(RegionOffset(offset), class.request_bytes)
            .map(|sub| (usize::from(sub.server.0), sub.length));
        let cost = cost_of_parts(profile, parts, class, concurrency).cost;
        sum.establish_s += share * cost.establish_s;
        sum.transfer_s += share * cost.transfer_s;
        sum.storage_s += share * cost.storage_s;
    }
    sum
}

fn cost_of_parts(
    profile: &Profile,
    parts: impl Iterator<Item = (usize, u64)>,
    class: AccessClass,
    concurrency: Concurrency,
) -> SpreadCost {
    let (p, c) = concurrency.factors();
    let (mut servers, mut fullest_bytes, mut slowest_s, mut storage_spread) = (0u32, 0.0f64, 0.0f64, 0.0);
    for (server, bytes) in parts {
        let line = profile.servers[server].line(class.kind, class.order);
        let seconds = line.seconds(bytes as f64);
        servers += 1;
        fullest_bytes = fullest_bytes.max(bytes as f64);
        if seconds > slowest_s {
            (slowest_s, storage_spread) = (seconds, line.spread);
        }
    }
    let network = &profile.network;
    let cost = RequestCost {
        establish_s: p.max(c * f64::from(servers)) * network.e_s,
        transfer_s: (c * class.request_bytes as f64).max(p * fullest_bytes) * network.t_s_per_byte,
        storage_s: p * slowest_s,
    };
    SpreadCost { cost, storage_spread }
}
