//! The layouts that `opt` weighs, as shapes that any number of regions can share.
//!
//! A request of r bytes on a stripe of u touches about r / u servers, whatever the number of servers the region is spread over. So the
//! *grain* u = r / w is chosen apart from the set of servers: w = 1 costs one startup per request and still spreads the region's load over
//! the whole set; larger w trades startups for latency. `<h, s>` shapes give the classes a grains and b grains.

use super::kinds::{Kind, spans};
use crate::servers::ceil_to;
use std::collections::HashSet;
use stripewise_layout::{Layout, ServerClass, ServerId};
use stripewise_trace::AccessClass;

/// Servers that a request is spread over.
const WIDTHS: [u64; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// Grains on HServers and SServers in one cycle of a shape over both classes.
const WEIGHTS: [(u64, u64); 8] = [(1, 1), (1, 2), (1, 3), (1, 4), (2, 3), (1, 6), (1, 8), (2, 1)];

/// Grains that are tried, at most: with many sizes of request in one file, those that carry the most bytes.
const MAX_GRAINS: usize = 16;

/// One cycle of stripes; a region's layout is the shape, begun at some turn.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    /// Share of a region's bytes on each server of a kind.
    pub(crate) capacity_share: Vec<f64>,
}

impl Shape {
    pub(crate) fn of(layout: Layout, kinds: &[Kind], kind_of: &[usize]) -> Self {
        let cycle_bytes = layout.view().cycle_bytes() as f64;
        let mut capacity_share = vec![0.0; kinds.len()];
        for stripe in layout.stripes() {
            let kind = kind_of[usize::from(stripe.server.0)];
            capacity_share[kind] += f64::from(stripe.size_bytes) / cycle_bytes / kinds[kind].servers.len() as f64;
        }
        Self { layout, capacity_share }
    }

    /// Whether all its stripes are equal.
    pub(crate) fn is_even(&self) -> bool {
        self.layout.stripes().windows(2).all(|pair| pair[0].size_bytes == pair[1].size_bytes)
    }
}

/// For every server the number of its kind.
pub(crate) fn kind_of_servers(kinds: &[Kind], servers: usize) -> Vec<usize> {
    let mut kind_of = vec![0; servers];
    for (number, kind) in kinds.iter().enumerate() {
        for server in &kind.servers {
            kind_of[*server] = number;
        }
    }
    kind_of
}

/// Shapes for requests of these classes (with the bytes that each carries), and `extra` layouts; no layout twice, none on servers without
/// room. With `whole`, regions may lie on one server each.
pub(crate) fn shapes(
    kinds: &[Kind],
    servers: usize,
    classes: &[(AccessClass, f64)],
    extra: impl Iterator<Item = Layout>,
    step_bytes: u64,
    region_bytes: u64,
    whole: bool,
) -> Vec<Shape> {
    let kind_of = kind_of_servers(kinds, servers);
    let mut layouts: Vec<Layout> = Vec::new();
    // A stripe as large as a region puts it on one server whole, where few streams meet.
    let regions = whole.then_some(region_bytes);
    for grain in grains(classes, step_bytes, region_bytes).into_iter().chain(regions) {
        for span in spans(kinds) {
            let both = kinds[span.start].class != kinds[span.end - 1].class;
            let weights = if both { &WEIGHTS[..] } else { &WEIGHTS[..1] };
            for (hdd, ssd) in weights {
                let stripes = kinds[span.clone()].iter().flat_map(|kind| {
                    let weight = if kind.class == ServerClass::Hdd { *hdd } else { *ssd };
                    kind.servers.iter().map(move |server| (ServerId(*server as u16), weight * grain))
                });
                layouts.extend(layout_of(stripes));
            }
        }
    }
    // A class with requests that no two servers share: the pairs that cut a request into one cycle, large parts to the fast class.
    for request_bytes in sizes(classes) {
        layouts.extend(covering_pairs(kinds, request_bytes, step_bytes));
    }
    layouts.extend(extra);
    let mut seen = HashSet::new();
    layouts.retain(|layout| {
        let has_capacity =
            layout.stripes().iter().all(|s| kinds[kind_of[usize::from(s.server.0)]].room_bytes != Some(0));
        has_capacity && seen.insert(layout.clone())
    });
    layouts.into_iter().map(|layout| Shape::of(layout, kinds, &kind_of)).collect()
}

/// `None` for more servers than a layout can name, or stripes larger than it can hold.
fn layout_of(stripes: impl Iterator<Item = (ServerId, u64)>) -> Option<Layout> {
    let pairs: Option<Vec<(ServerId, u32)>> =
        stripes.map(|(id, bytes)| Some((id, u32::try_from(bytes).ok()?))).collect();
    Layout::new(pairs?).ok()
}

/// The request sizes that carry at least a fiftieth of the bytes, the heaviest first.
fn sizes(classes: &[(AccessClass, f64)]) -> Vec<u64> {
    let mut by_size: Vec<(u64, f64)> = Vec::new();
    for (class, bytes) in classes {
        match by_size.iter_mut().find(|(size, _)| *size == class.request_bytes) {
            Some((_, sum)) => *sum += bytes,
            None => by_size.push((class.request_bytes, *bytes)),
        }
    }
    let all: f64 = by_size.iter().map(|(_, bytes)| bytes).sum();
    by_size.retain(|(_, bytes)| *bytes * 50.0 >= all);
    by_size.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    by_size.into_iter().map(|(size, _)| size).take(8).collect()
}

fn grains(classes: &[(AccessClass, f64)], step_bytes: u64, region_bytes: u64) -> Vec<u64> {
    let sizes = sizes(classes);
    let mut grains: Vec<u64> = Vec::new();
    for width in WIDTHS {
        for size in &sizes {
            let grain = ceil_to(size.div_ceil(width), step_bytes);
            grains.push(grain);
            if width == 1 && *size % step_bytes != 0 {
                // Requests off the lattice: exactly the size keeps each on one server; eight of them cut one in eight.
                grains.extend([*size, ceil_to(8 * size, step_bytes)]);
            }
        }
    }
    let mut seen = HashSet::new();
    grains.retain(|grain| *grain <= region_bytes.max(step_bytes) && seen.insert(*grain));
    grains.truncate(MAX_GRAINS);
    grains
}

/// `<h, s>` with m h + n s = r, rounded up, for every sixteenth of the largest h; over two classes only.
fn covering_pairs(kinds: &[Kind], request_bytes: u64, step_bytes: u64) -> Vec<Layout> {
    let of_class = |class: ServerClass| -> Vec<usize> {
        kinds.iter().filter(|kind| kind.class == class).flat_map(|kind| kind.servers.iter().copied()).collect()
    };
    let (hdd, ssd) = (of_class(ServerClass::Hdd), of_class(ServerClass::Ssd));
    if hdd.is_empty() || ssd.is_empty() {
        return Vec::new();
    }
    let (m, n) = (hdd.len() as u64, ssd.len() as u64);
    let largest = request_bytes / m;
    let mut pairs: Vec<(u64, u64)> = (1..16)
        .map(|part| {
            let h = largest * part / 16 / step_bytes * step_bytes;
            (h, ceil_to(request_bytes.saturating_sub(m * h).div_ceil(n), step_bytes))
        })
        .filter(|(h, s)| *h > 0 && *s > 0)
        .collect();
    pairs.dedup();
    let stripes = |(h, s): (u64, u64)| {
        let (hdd, ssd) = (hdd.iter().map(move |id| (*id, h)), ssd.iter().map(move |id| (*id, s)));
        layout_of(hdd.chain(ssd).map(|(server, bytes)| (ServerId(server as u16), bytes)))
    };
    pairs.into_iter().filter_map(stripes).collect()
}
