//! What one request of a class asks of each kind of server under a shape.
//!
//! Requests start at the request-aligned offsets, each equally often. Per server, device and link are two stations; a shape begun at
//! every turn in turn loads the servers of a kind equally, so a kind's load is its servers' mean. How many requests find a disk where the last
//! one left it depends on how the whole run is placed, so it is given, by window and class.

use super::kinds::Kind;
use super::shapes::{Shape, kind_of_servers};
use super::side_by_side::Part;
use rayon::prelude::*;
use stripewise_layout::{Direction, Order, RegionOffset};
use stripewise_model::{Line, Profile, greatest_common_divisor, touched_share};
use stripewise_trace::AccessClass;

/// Offsets that latency is averaged over, at most.
const OFFSETS: u64 = 64;

/// The rows of a period: device and link of every kind, then latency.
pub(crate) fn rows(kinds: usize) -> usize {
    2 * kinds + 1
}

/// A class in one window: what disks see of its order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct SeenClass {
    pub(crate) class: AccessClass,
    /// Whose requests they are.
    pub(crate) part: Part,
    /// Share of its requests that continue a stream of the disk.
    pub(crate) continuing: f64,
}

impl SeenClass {
    /// Startup on a server, the mean of both orders, and seconds per byte.
    pub(crate) fn line(&self, profile: &Profile, server: usize) -> (f64, f64) {
        let line = |order| -> &Line { profile.servers[server].line(self.class.kind, order) };
        let (sequential, random) = (line(Order::Sequential), line(Order::Random));
        let continuing = profile.sorted_share(self.class.kind, self.class.order).unwrap_or(self.continuing);
        let mean = |sequential: f64, random: f64| continuing * sequential + (1.0 - continuing) * random;
        (mean(sequential.alpha_s, random.alpha_s), mean(sequential.beta_s_per_byte, random.beta_s_per_byte))
    }
}

/// Seconds of one request by window, shape and class.
#[derive(Debug)]
pub(crate) struct Demands {
    /// By window; then by shape and class, `rows` for each. Windows whose classes are seen alike share a table.
    tables: Vec<std::sync::Arc<Vec<Vec<f64>>>>,
    rows: usize,
}

impl Demands {
    /// `classes` and `processes` by window; `region_bytes` of a whole region.
    pub(crate) fn new(
        profile: &Profile,
        kinds: &[Kind],
        shapes: &[Shape],
        classes: &[Vec<SeenClass>],
        processes: &[f64],
        region_bytes: u64,
    ) -> Self {
        let mut tables: Vec<std::sync::Arc<Vec<Vec<f64>>>> = Vec::new();
        for (window, of_window) in classes.iter().enumerate() {
            let known =
                (0..window).find(|other| classes[*other] == *of_window && processes[*other] == processes[window]);
            let table = match known {
                Some(known) => tables[known].clone(),
                None => {
                    let of_shape = |shape: &Shape| {
                        of_window
                            .iter()
                            .flat_map(|class| demand(profile, kinds, shape, class, processes[window], region_bytes))
                            .collect()
                    };
                    std::sync::Arc::new(shapes.par_iter().map(of_shape).collect())
                }
            };
            tables.push(table);
        }
        Self { tables, rows: rows(kinds.len()) }
    }

    /// Seconds of one request on each station of a server of each kind (device, link, device, link, ..), and its time without contention
    /// over p: p processes cannot be served faster than one request per process at a time.
    pub(crate) fn of(&self, window: usize, shape: usize, class: usize) -> &[f64] {
        &self.tables[window][shape][class * self.rows..(class + 1) * self.rows]
    }

    /// As [`Self::of`], of all classes one behind the other.
    pub(crate) fn of_shape(&self, window: usize, shape: usize) -> &[f64] {
        &self.tables[window][shape]
    }

    /// Seconds per byte on each station for a region of a shape that is read or written as a whole; it keeps no process waiting.
    pub(crate) fn moving(&self, profile: &Profile, kinds: &[Kind], shape: &Shape, direction: Direction) -> Vec<f64> {
        let mut seconds = vec![0.0; self.rows];
        for (number, kind) in kinds.iter().enumerate() {
            let beta: f64 = kind
                .servers
                .iter()
                .map(|server| profile.servers[*server].line(direction, Order::Sequential).beta_s_per_byte)
                .sum::<f64>()
                / kind.servers.len() as f64;
            seconds[2 * number] = shape.capacity_share[number] * beta;
            seconds[2 * number + 1] = shape.capacity_share[number] * profile.network.t_s_per_byte;
        }
        seconds
    }
}

fn demand(
    profile: &Profile,
    kinds: &[Kind],
    shape: &Shape,
    class: &SeenClass,
    processes: f64,
    region_bytes: u64,
) -> Vec<f64> {
    let mut demand = vec![0.0; rows(kinds.len())];
    let kind_of = kind_of_servers(kinds, profile.servers.len());
    let network = &profile.network;
    let cycle_bytes = shape.layout.view().cycle_bytes();
    let request_bytes = class.class.request_bytes;
    let mut start = 0;
    for stripe in shape.layout.stripes() {
        let (server, stripe_bytes) = (usize::from(stripe.server.0), u64::from(stripe.size_bytes));
        let kind = kind_of[server];
        let count = kinds[kind].servers.len() as f64;
        let (alpha_s, beta_s_per_byte) = class.line(profile, server);
        let bytes = request_bytes as f64 * stripe_bytes as f64 / cycle_bytes as f64;
        let touched = touched_share(start, stripe_bytes, cycle_bytes, request_bytes, region_bytes);
        demand[2 * kind] += (touched * alpha_s + bytes * beta_s_per_byte) / count;
        demand[2 * kind + 1] += (touched * network.e_s + bytes * network.t_s_per_byte) / count;
        start += stripe_bytes;
    }
    if profile.is_awaited(class.class.kind) {
        demand[2 * kinds.len()] = latency_s(profile, shape, class) / processes;
    }
    demand
}

/// Mean over offsets of the slowest sub-request, device and then link, on idle servers.
fn latency_s(profile: &Profile, shape: &Shape, class: &SeenClass) -> f64 {
    let view = shape.layout.view();
    let request_bytes = class.class.request_bytes;
    let lines: Vec<(f64, f64)> =
        view.stripes().iter().map(|stripe| class.line(profile, usize::from(stripe.server.0))).collect();
    // Request-aligned offsets repeat after a period of request and cycle.
    let period = view.cycle_bytes() / greatest_common_divisor(view.cycle_bytes(), request_bytes);
    let sampled = period.min(OFFSETS);
    let sum_s: f64 = (0..sampled)
        .map(|number| {
            let offset = number * period / sampled * request_bytes % view.cycle_bytes();
            let of_part = view.split(RegionOffset(offset), request_bytes).map(|sub| {
                let (alpha_s, beta_s_per_byte) = lines[sub.turn];
                let bytes = sub.length as f64;
                alpha_s + profile.network.e_s + bytes * (beta_s_per_byte + profile.network.t_s_per_byte)
            });
            of_part.fold(0.0, f64::max)
        })
        .sum();
    sum_s / sampled as f64
}
