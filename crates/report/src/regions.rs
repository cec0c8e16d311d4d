//! Where a plan puts a file: servers by offset, shaded by stripe size, the file's heat above it.

use super::scale::Scale;
use super::svg::{Anchor, Path, Svg};
use std::collections::BTreeMap;
use stripewise_layout::figures::bytes;
use stripewise_layout::{Layout, Placement, RegionGeometry, RegionIndex, ServerClass};
use stripewise_planner::PlannedServer;

/// Consecutive regions with one layout.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Span<'a> {
    pub(super) first: u64,
    pub(super) regions: u64,
    pub(super) layout: &'a Layout,
}

/// The spans that cover a file of `size_bytes`: the planned ones, and what lies beyond them.
pub(super) fn spans(placement: &Placement, size_bytes: u64) -> Vec<Span<'_>> {
    let total = u64::from(RegionGeometry::new(placement.region_size.0).count_for(size_bytes));
    let mut spans = Vec::new();
    let mut first = 0;
    for run in &placement.runs {
        let regions = u64::from(run.regions).min(total - first);
        if regions > 0 {
            spans.push(Span { first, regions, layout: &placement.layouts[run.layout as usize] });
        }
        first += regions;
    }
    if first < total {
        let layout = placement.layout_of(RegionIndex(u32::MAX));
        spans.push(Span { first, regions: total - first, layout });
    }
    spans
}

/// A layout in words: `12 hdd x 64KiB + 4 ssd x 128KiB`.
pub(super) fn layout_words(layout: &Layout, servers: &[PlannedServer]) -> String {
    let mut parts = Vec::new();
    for class in [ServerClass::Hdd, ServerClass::Ssd] {
        let mut sizes: BTreeMap<u32, usize> = BTreeMap::new();
        for stripe in layout.stripes() {
            if servers.get(usize::from(stripe.server.0)).is_some_and(|server| server.class == class) {
                *sizes.entry(stripe.size_bytes).or_default() += 1;
            }
        }
        for (size, count) in sizes {
            parts.push(format!("{count} {class} \u{d7} {}", bytes(u64::from(size))));
        }
    }
    if parts.is_empty() { "unknown servers".to_owned() } else { parts.join(" + ") }
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 76.0;
const PLOT: f64 = WIDTH - LEFT - 4.0;
const HEAT: f64 = 26.0;
const CLASS_GAP: f64 = 7.0;

/// What the map of one file under one plan shows.
pub(super) struct RegionMap<'a> {
    pub(super) path: &'a str,
    pub(super) policy: &'a str,
    pub(super) size_bytes: u64,
    pub(super) placement: &'a Placement,
    pub(super) servers: &'a [PlannedServer],
    /// Bytes accessed in each region, from 0; empty when no trace is at hand.
    pub(super) heat: &'a [f64],
}

/// The picture of `map`.
pub(super) fn chart(map: &RegionMap<'_>) -> String {
    let spans = spans(map.placement, map.size_bytes);
    let row = if map.servers.len() > 24 { 8.0 } else { 13.0 };
    let heat_height = if map.heat.is_empty() { 0.0 } else { HEAT + 10.0 };
    let top = 8.0 + heat_height;
    let order = rows(map.servers);
    let classes_change =
        order.windows(2).filter(|pair| map.servers[pair[0]].class != map.servers[pair[1]].class).count();
    let height = row * order.len() as f64 + CLASS_GAP * classes_change as f64;
    let floor = top + height;
    let mut svg = Svg::new(WIDTH, floor + 62.0);
    let across = Across { region_bytes: map.placement.region_size.0, size_bytes: map.size_bytes.max(1) };
    if !map.heat.is_empty() {
        heat_strip(&mut svg, map.heat, &across);
    }
    svg.rect([LEFT, top, PLOT, height], "plot", "");
    let tops = row_tops(&order, map.servers, top, row);
    stripes(&mut svg, &spans, map.servers, &tops, row, &across);
    server_names(&mut svg, &order, map.servers, &tops, row);
    let offsets = Scale::bytes(map.size_bytes, 8.0);
    for tick in offsets.ticks() {
        let x = LEFT + offsets.at(tick, PLOT);
        svg.line((x, floor), (x, floor + 4.0), "axis");
        let anchor = if tick == 0.0 {
            Anchor::Start
        } else if x > WIDTH - 30.0 {
            Anchor::End
        } else {
            Anchor::Middle
        };
        svg.text((x, floor + 17.0), anchor, "tick", if tick == 0.0 { "0".to_owned() } else { bytes(tick as u64) });
    }
    legend(&mut svg, floor + 36.0, &spans, map.servers);
    let label = format!("Servers and stripe sizes of the regions of {} under {}", map.path, map.policy);
    svg.finish(&label, "The table of layouts in words beneath the chart lists the same.")
}

/// Horizontal positions of regions.
struct Across {
    region_bytes: u64,
    size_bytes: u64,
}

impl Across {
    /// Left edge and width of consecutive regions.
    fn span(&self, first: u64, regions: u64) -> (f64, f64) {
        let at = |region: u64| {
            let offset = region.saturating_mul(self.region_bytes).min(self.size_bytes);
            LEFT + offset as f64 / self.size_bytes as f64 * PLOT
        };
        (at(first), at(first + regions) - at(first))
    }
}

/// Server numbers from top to bottom: SServers above HServers.
fn rows(servers: &[PlannedServer]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..servers.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(servers[*index].class));
    order
}

/// The upper edge of each server's row, by server number.
fn row_tops(order: &[usize], servers: &[PlannedServer], top: f64, row: f64) -> Vec<f64> {
    let mut tops = vec![0.0; order.len()];
    let mut y = top;
    for (place, index) in order.iter().enumerate() {
        if place > 0 && servers[order[place - 1]].class != servers[*index].class {
            y += CLASS_GAP;
        }
        tops[*index] = y;
        y += row;
    }
    tops
}

fn server_names(svg: &mut Svg, order: &[usize], servers: &[PlannedServer], tops: &[f64], row: f64) {
    // Names that would touch are left out; the first of each class always stands.
    let every = if row < 11.0 { 2 } else { 1 };
    for (place, index) in order.iter().enumerate() {
        if place % every == 0 {
            svg.text((LEFT - 8.0, tops[*index] + row / 2.0 + 3.5), Anchor::End, "tick small", &servers[*index].name);
        }
    }
}

fn heat_strip(svg: &mut Svg, heat: &[f64], across: &Across) {
    let most = heat.iter().copied().fold(0.0, f64::max).max(1.0);
    let base = 8.0 + HEAT;
    let mut path = Path::default();
    for (region, bytes) in heat.iter().enumerate().filter(|(_, bytes)| **bytes > 0.0) {
        let (x, width) = across.span(region as u64, 1);
        let tall = bytes / most * HEAT;
        if width > 0.0 {
            path.rect([x, base - tall, width, tall]);
        }
    }
    svg.path(&path, r#"class="cell heat-strip""#);
    svg.text((LEFT - 8.0, base - 2.0), Anchor::End, "tick small", "accesses");
}

/// Of the smallest stripe of a class that has several: it still stands out from the ground by 3:1.
pub(super) const WEAKEST: f64 = 0.68;

/// [`WEAKEST`] for the smallest stripe of its class to 1 for the largest, by powers of two.
fn opacity(size: u32, least: u32, most: u32) -> f64 {
    if most <= least {
        return 0.85;
    }
    let share = (f64::from(size) / f64::from(least)).log2() / (f64::from(most) / f64::from(least)).log2();
    WEAKEST + (1.0 - WEAKEST) * share
}

/// Least and largest stripe of each class.
fn extremes(spans: &[Span<'_>], servers: &[PlannedServer]) -> BTreeMap<ServerClass, (u32, u32)> {
    let mut found = BTreeMap::new();
    for stripe in spans.iter().flat_map(|span| span.layout.stripes()) {
        if let Some(server) = servers.get(usize::from(stripe.server.0)) {
            let (least, most) = found.entry(server.class).or_insert((stripe.size_bytes, stripe.size_bytes));
            *least = stripe.size_bytes.min(*least);
            *most = stripe.size_bytes.max(*most);
        }
    }
    found
}

fn stripes(svg: &mut Svg, spans: &[Span<'_>], servers: &[PlannedServer], tops: &[f64], row: f64, across: &Across) {
    let extremes = extremes(spans, servers);
    let mut shapes: BTreeMap<(ServerClass, u32), Path> = BTreeMap::new();
    for span in spans {
        let (x, width) = across.span(span.first, span.regions);
        for stripe in span.layout.stripes() {
            let index = usize::from(stripe.server.0);
            if let Some(server) = servers.get(index) {
                let shape = shapes.entry((server.class, stripe.size_bytes)).or_default();
                shape.rect([x, tops[index] + 0.75, width, row - 1.5]);
            }
        }
    }
    for ((class, size), shape) in &shapes {
        let (least, most) = extremes[class];
        svg.path(shape, &format!(r#"class="cell c-{class}" fill-opacity="{:.2}""#, opacity(*size, least, most)));
    }
}

/// Stripe sizes that the legend names for each class; more are summed up by its ends.
const LEGEND_SIZES: usize = 5;

fn legend(svg: &mut Svg, y: f64, spans: &[Span<'_>], servers: &[PlannedServer]) {
    let extremes = extremes(spans, servers);
    let mut x = LEFT;
    for (class, (least, most)) in extremes.iter().rev() {
        let mut sizes: Vec<u32> = spans
            .iter()
            .flat_map(|span| span.layout.stripes())
            .filter(|stripe| servers.get(usize::from(stripe.server.0)).is_some_and(|server| server.class == *class))
            .map(|stripe| stripe.size_bytes)
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() > LEGEND_SIZES {
            let middle = sizes[sizes.len() / 2];
            sizes = vec![*least, middle, *most];
        }
        svg.text((x, y + 9.0), Anchor::Start, "note strong", format!("{class} stripes"));
        x += 84.0;
        for size in sizes {
            let class = format!(r#"class="cell c-{class}" fill-opacity="{:.2}""#, opacity(size, *least, *most));
            let mut swatch = Path::default();
            swatch.rect([x, y, 16.0, 10.0]);
            svg.path(&swatch, &class);
            let text = bytes(u64::from(size));
            svg.text((x + 21.0, y + 9.0), Anchor::Start, "note", &text);
            x += 34.0 + 6.6 * text.len() as f64;
        }
        x += 26.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{ByteCount, ServerId};

    fn servers() -> Vec<PlannedServer> {
        let server = |name: &str, class| PlannedServer { name: name.into(), class, room_bytes: None, used_bytes: 0 };
        vec![server("hdd0", ServerClass::Hdd), server("hdd1", ServerClass::Hdd), server("ssd0", ServerClass::Ssd)]
    }

    fn layout(pairs: &[(u16, u32)]) -> Layout {
        Layout::new(pairs.iter().map(|(server, size)| (ServerId(*server), *size))).unwrap()
    }

    #[test]
    fn layouts_in_words() {
        let words = |pairs: &[(u16, u32)]| layout_words(&layout(pairs), &servers());
        assert_eq!(words(&[(0, 65536), (1, 65536), (2, 131072)]), "2 hdd \u{d7} 64 KiB + 1 ssd \u{d7} 128 KiB");
        assert_eq!(words(&[(2, 4096)]), "1 ssd \u{d7} 4 KiB");
        assert_eq!(words(&[(9, 4096)]), "unknown servers");
    }

    #[test]
    fn spans_cover_the_file_and_no_more() {
        let (a, b) = (layout(&[(0, 4096)]), layout(&[(2, 4096)]));
        let placement =
            Placement::from_regions(ByteCount(1 << 20), [a.clone(), a.clone(), b.clone()], b.clone(), a.clone());
        let of = |size_bytes| -> Vec<(u64, u64)> {
            spans(&placement, size_bytes).iter().map(|span| (span.first, span.regions)).collect()
        };
        assert_eq!(of(5 << 20), [(0, 2), (2, 1), (3, 2)]);
        assert_eq!(of(1), [(0, 1)]);
        assert_eq!(of(0), []);
    }

    #[test]
    fn ssds_stand_above_hdds() {
        assert_eq!(rows(&servers()), [2, 0, 1]);
        assert_eq!(row_tops(&[2, 0, 1], &servers(), 0.0, 10.0), [17.0, 27.0, 0.0]);
    }
}
