//! What one request of a class asks of each kind of server under a shape.
//!
//! Requests start at the request-aligned offsets, each equally often. Per server, device and link are two stations; a shape begun at
//! every turn in turn loads the servers of a kind equally, so a kind's load is its servers' mean.

use super::kinds::Kind;
use super::shapes::{Shape, kind_of_servers};
use stripewise_layout::RegionOffset;
use stripewise_model::Profile;
use stripewise_trace::AccessClass;

/// Offsets that latency is averaged over, at most.
const OFFSETS: u64 = 64;

/// The rows of the program: device and link of every kind, then latency.
pub(crate) fn rows(kinds: usize) -> usize {
    2 * kinds + 1
}

/// Seconds of one request of `class` on each station of a server of each kind (device, link, device, link, ..), and its time without
/// contention over `processes`: p processes cannot be served faster than one request per process at a time.
pub(crate) fn demand(profile: &Profile, kinds: &[Kind], shape: &Shape, class: AccessClass, processes: f64) -> Vec<f64> {
    let mut demand = vec![0.0; rows(kinds.len())];
    let kind_of = kind_of_servers(kinds, profile.servers.len());
    let network = &profile.network;
    let cycle_bytes = shape.layout.view().cycle_bytes();
    let mut start = 0;
    for stripe in shape.layout.stripes() {
        let (server, stripe_bytes) = (usize::from(stripe.server.0), u64::from(stripe.size_bytes));
        let kind = kind_of[server];
        let count = kinds[kind].servers.len() as f64;
        let line = profile.servers[server].line(class.direction, class.order);
        let bytes = class.request_bytes as f64 * stripe_bytes as f64 / cycle_bytes as f64;
        let touched = touched_share(start, stripe_bytes, cycle_bytes, class.request_bytes);
        demand[2 * kind] += (touched * line.alpha_s + bytes * line.beta_s_per_byte) / count;
        demand[2 * kind + 1] += (touched * network.e_s + bytes * network.t_s_per_byte) / count;
        start += stripe_bytes;
    }
    demand[2 * kinds.len()] = latency_s(profile, shape, class) / processes;
    demand
}

/// Share of the request-aligned offsets at which a request touches the stripe that begins `start` bytes into the cycle, in closed form: request
/// borders fall on multiples of the divisor, and those inside the stripe are counted over a period.
fn touched_share(start: u64, stripe_bytes: u64, cycle_bytes: u64, request_bytes: u64) -> f64 {
    if request_bytes > cycle_bytes - stripe_bytes {
        return 1.0;
    }
    let divisor = greatest_common_divisor(cycle_bytes, request_bytes);
    let reach = request_bytes + stripe_bytes - 1 - (start + stripe_bytes - 1) % divisor + start % divisor;
    reach as f64 / cycle_bytes as f64
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Mean over offsets of the slowest sub-request, device and then link, on idle servers.
fn latency_s(profile: &Profile, shape: &Shape, class: AccessClass) -> f64 {
    let view = shape.layout.view();
    let cycle_bytes = view.cycle_bytes();
    let network = &profile.network;
    let mut sum_s = 0.0;
    for number in 0..OFFSETS {
        // An odd multiple walks all residues of a cycle of any even number of requests.
        let offset = (number * 7919 % (1 << 20)) * class.request_bytes % cycle_bytes;
        let of_part = view.split(RegionOffset(offset), class.request_bytes).map(|sub| {
            let line = profile.servers[usize::from(sub.server.0)].line(class.direction, class.order);
            let bytes = sub.length as f64;
            line.seconds(bytes) + network.e_s + bytes * network.t_s_per_byte
        });
        sum_s += of_part.fold(0.0, f64::max);
    }
    sum_s / OFFSETS as f64
}
