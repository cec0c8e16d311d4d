//! From a plan's regions to components.
//!
//! Where the targets have no room for the file so laid out, the least used parts lie elsewhere, or all of the file has one layout.

use super::super::fit::{Candidate, Refusal, Wanted, nearest_multiple};
use super::super::layout::{NativeLayout, Part, Turn};
use crate::site::Site;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use stripewise_layout::{Layout, Placement, ServerId};

/// Stripes and extents are multiples of this.
const UNIT: u64 = 64 << 10;

/// Stripes of a component, at most.
const MAX_STRIPES: u64 = 2_000;

/// Bytes of a layout at most, of its head, of a component and of a stripe.
pub(super) const MAX_LAYOUT: u64 = 64 << 10;
const HEAD: u64 = 32;
const COMPONENT: u64 = 48 + 48;
const STRIPE: u64 = 24;

/// Bytes of the least layout.
pub(super) const MIN_LAYOUT: u64 = HEAD + COMPONENT + STRIPE;

/// Layouts with several approximations that are judged one by one; the others take the first.
const JUDGED: usize = 16;

/// Stripes of one size, each with its target.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Stripes {
    unit: u64,
    targets: Vec<usize>,
}

impl Stripes {
    /// `None`: the sizes need more stripes than `most`.
    fn of(sizes: &[(usize, u64)], unit: u64, most: u64) -> Option<Self> {
        let turns: u64 = sizes.iter().map(|(_, size)| size / unit).sum();
        if turns == 0 || turns > most {
            return None;
        }
        let targets = sizes.iter().flat_map(|(target, size)| std::iter::repeat_n(*target, (size / unit) as usize));
        Some(Self { unit, targets: targets.collect() })
    }

    /// As turns that are counted from the start of the file, the first one at byte `start`.
    fn turns(&self, start: u64) -> Vec<Turn> {
        let count = self.targets.len();
        let first = (start / self.unit % count as u64) as usize;
        let turn = |place: usize| Turn { target: self.targets[(place + count - first) % count], bytes: self.unit };
        (0..count).map(turn).collect()
    }

    fn bytes(&self) -> u64 {
        COMPONENT + STRIPE * self.targets.len() as u64
    }
}

/// Ways to say a layout in at most so many stripes of one size: one if it can be said as it is.
fn ways(layout: &Layout, most: u64) -> Vec<Stripes> {
    let sizes: Vec<(usize, u64)> =
        layout.stripes().iter().map(|stripe| (usize::from(stripe.server.0), u64::from(stripe.size_bytes))).collect();
    let greatest_divisor = |sizes: &[(usize, u64)]| sizes.iter().fold(0, |all, (_, size)| divisor(all, *size));
    let exact = greatest_divisor(&sizes);
    if exact.is_multiple_of(UNIT)
        && let Some(stripes) = Stripes::of(&sizes, exact, most)
    {
        return vec![stripes];
    }
    let least = sizes.iter().map(|(_, size)| *size).min().unwrap_or(UNIT).max(1);
    let rounded = |scale: u64, from: u64| -> Vec<(usize, u64)> {
        let of = |size: u64| nearest_multiple((u128::from(size) * u128::from(scale) / u128::from(from)) as u64, UNIT);
        sizes.iter().map(|(target, size)| (*target, of(*size))).collect()
    };
    let mut ways = Vec::new();
    let mut add = |sizes: Vec<(usize, u64)>| {
        let exact = Stripes::of(&sizes, greatest_divisor(&sizes), most);
        // Coarser stripes until there are few enough of them.
        let coarse = || {
            (1..32).map(|doubled| UNIT << doubled).find_map(|unit| {
                let sizes: Vec<_> =
                    sizes.iter().map(|(target, size)| (*target, nearest_multiple(*size, unit))).collect();
                Stripes::of(&sizes, unit, most)
            })
        };
        if let Some(stripes) = exact.or_else(coarse).filter(|stripes| !ways.contains(stripes)) {
            ways.push(stripes);
        }
    };
    // All stripes larger, so that the least is 64 KiB and their ratio stays; each by itself; without those that would mostly be rounding.
    if least < UNIT {
        add(rounded(UNIT, least));
    }
    add(rounded(1, 1));
    let large: Vec<_> = rounded(1, 1).into_iter().zip(&sizes).filter(|(_, (_, size))| *size >= UNIT / 2).collect();
    if !large.is_empty() && large.len() < sizes.len() {
        add(large.into_iter().map(|(rounded, _)| rounded).collect());
    }
    if ways.is_empty() {
        ways.push(widest(&sizes, most));
    }
    ways
}

/// The targets with the largest stripes, as many as there can be stripes.
fn widest(sizes: &[(usize, u64)], most: u64) -> Stripes {
    let mut largest: Vec<usize> = (0..sizes.len()).collect();
    largest.sort_by_key(|place| Reverse(sizes[*place].1));
    largest.truncate(most.max(1) as usize);
    largest.sort_unstable();
    let mean = largest.iter().map(|place| sizes[*place].1).sum::<u64>() / largest.len() as u64;
    Stripes { unit: nearest_multiple(mean, UNIT), targets: largest.into_iter().map(|place| sizes[place].0).collect() }
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Consecutive regions with one layout of the plan.
struct Span {
    start: u64,
    layout: u32,
    weight: u64,
}

/// Stands for no layout of a plan: the targets that have room.
const ELSEWHERE: u32 = u32::MAX;

pub(super) fn fit(site: &Site, wanted: &Wanted<'_>) -> Result<NativeLayout, Refusal> {
    let taken: u64 = wanted.copies.iter().map(bytes).sum();
    let limit = site.layout_bytes().unwrap_or(MAX_LAYOUT).saturating_sub(taken);
    if limit < MIN_LAYOUT {
        return Err(Refusal::Layout { fs: site.fs.title });
    }
    let most = MAX_STRIPES.min((limit - HEAD - COMPONENT) / STRIPE);
    let mut chosen = choose(wanted, most);
    let mut spans = spans(wanted);
    merge(&mut spans, &chosen, limit);
    let layout = composed(site, &spans, &chosen);
    if wanted.fits(&layout) {
        return Ok(layout);
    }
    // A copy that lies elsewhere than it is wanted is worth nothing.
    if !wanted.copies.is_empty() {
        return Err(Refusal::Capacity { fs: site.fs.title, size_bytes: wanted.size_bytes });
    }
    let whole = wanted.candidates(site).into_iter().filter_map(|Candidate { targets, stripes }| {
        let pairs = targets.iter().zip(stripes).map(|(target, size)| (ServerId(*target as u16), size as u32));
        let stripes = ways(&Layout::new(pairs).ok()?, most).swap_remove(0);
        Some(composed(site, &[Span { start: 0, layout: 0, weight: 0 }], &HashMap::from([(0, stripes)])))
    });
    let elsewhere = elsewhere(site, wanted, (spans, &mut chosen), (layout, limit, most));
    wanted.nearest(site, elsewhere.into_iter().chain(whole).collect())
}

/// Bytes of a layout's components.
fn bytes(layout: &NativeLayout) -> u64 {
    layout.parts.iter().map(|part| COMPONENT + STRIPE * part.turns.len() as u64).sum()
}

fn composed(site: &Site, spans: &[Span], chosen: &HashMap<u32, Stripes>) -> NativeLayout {
    let parts = spans.iter().enumerate().map(|(index, span)| {
        let stripes = &chosen[&span.layout];
        let mut named = stripes.targets.clone();
        named.sort_unstable();
        named.dedup();
        let pool = site.pools.iter().find(|pool| named.iter().all(|target| pool.targets.contains(target)));
        Part {
            end: spans.get(index + 1).map(|next| next.start),
            turns: stripes.turns(span.start),
            pool: pool.map(|pool| pool.name.clone()),
        }
    });
    NativeLayout { parts: parts.collect() }
}

/// The layout with parts of targets that are overfull on the others, those first of which the fewest bytes are asked for; `None`: that does not help.
fn elsewhere(
    site: &Site,
    wanted: &Wanted<'_>,
    (mut spans, chosen): (Vec<Span>, &mut HashMap<u32, Stripes>),
    (mut layout, limit, most): (NativeLayout, u64, u64),
) -> Option<NativeLayout> {
    let needed = layout.target_bytes(site.targets.len(), wanted.size_bytes);
    let is_full = |target: &usize| wanted.free_bytes[*target].is_some_and(|free| needed[*target] > free);
    let (full, others): (Vec<usize>, Vec<usize>) = (0..site.targets.len()).partition(|target| is_full(target));
    if others.is_empty() {
        return None;
    }
    let unit = chosen.values().map(|stripes| stripes.unit).max().unwrap_or(UNIT);
    let targets: Vec<usize> = others.into_iter().take(most as usize).collect();
    chosen.insert(ELSEWHERE, Stripes { unit, targets });
    let end = |number: usize, spans: &[Span]| spans.get(number + 1).map_or(wanted.size_bytes, |next| next.start);
    let length = |number: &usize| end(*number, &spans).saturating_sub(spans[*number].start);
    let on_full = |span: &Span| chosen[&span.layout].targets.iter().any(|target| full.contains(target));
    let mut movable: Vec<usize> = (0..spans.len()).filter(|number| on_full(&spans[*number])).collect();
    let density = |number: &usize| spans[*number].weight as f64 / length(number).max(1) as f64;
    movable.sort_by(|a, b| density(a).total_cmp(&density(b)));
    for number in movable {
        spans[number].layout = ELSEWHERE;
        layout = composed(site, &spans, chosen);
        if wanted.fits(&layout) {
            break;
        }
    }
    merge(&mut spans, chosen, limit);
    layout.clone_from(&composed(site, &spans, chosen));
    wanted.fits(&layout).then_some(layout)
}

/// Stripes for each layout of the plan, the nearest of what can be had.
fn choose(wanted: &Wanted<'_>, most: u64) -> HashMap<u32, Stripes> {
    let number = |layout: &Layout| {
        let found = wanted.placement.layouts.iter().position(|known| known == layout);
        found.expect("the layout is one of the placement's") as u32
    };
    let mut chosen = HashMap::new();
    let mut judged = 0;
    for (layout, _) in wanted.layouts() {
        let number = number(layout);
        let mut ways = ways(layout, most);
        if ways.len() > 1 && judged < JUDGED {
            judged += 1;
            let cost = |stripes: &Stripes| {
                let mut placement = wanted.placement.clone();
                placement.layouts[number as usize] = as_layout(stripes);
                (wanted.judge)(&placement)
            };
            let costs: Vec<f64> = ways.iter().map(cost).collect();
            let best = (0..ways.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0);
            ways.swap(0, best);
        }
        chosen.insert(number, ways.swap_remove(0));
    }
    // The layout beyond the planned regions need not be that of any.
    let beyond = wanted.placement.beyond;
    chosen.entry(beyond).or_insert_with(|| ways(&wanted.placement.layouts[beyond as usize], most).swap_remove(0));
    chosen
}

fn as_layout(stripes: &Stripes) -> Layout {
    let layout = NativeLayout::whole(stripes.turns(0), None);
    let cycle = stripes.unit * stripes.targets.len() as u64;
    // Regions are multiples of 4 KiB, and so are stripes.
    let placement: Placement = layout.placement(stripewise_layout::ByteCount(cycle), cycle);
    placement.layouts[0].clone()
}

/// The planned regions, and one span for what is beyond them. Spans begin at multiples of 64 KiB.
fn spans(wanted: &Wanted<'_>) -> Vec<Span> {
    let placement = wanted.placement;
    let mut spans: Vec<Span> = Vec::new();
    let mut region = 0usize;
    let mut add = |start: u64, layout: u32, weight: u64| match spans.last_mut() {
        Some(last) if last.layout == layout => last.weight += weight,
        // Regions may be smaller than what an extent is a multiple of.
        Some(last) if start <= last.start => (last.layout, last.weight) = (layout, last.weight + weight),
        _ => spans.push(Span { start, layout, weight }),
    };
    let start_of = |region: usize| (region as u64 * placement.region_size.0).div_ceil(UNIT) * UNIT;
    for run in &placement.runs {
        let end = region + run.regions as usize;
        let weight = wanted.weights.get(region..end.min(wanted.weights.len())).map_or(0, |run| run.iter().sum());
        add(start_of(region), run.layout, weight);
        region = end;
    }
    add(start_of(region), placement.beyond, 0);
    spans
}

/// Merges neighbours until the layout is small enough: of all pairs the one first whose lighter part weighs least, which takes the other's layout.
fn merge(spans: &mut Vec<Span>, chosen: &HashMap<u32, Stripes>, limit: u64) {
    let size = |span: &Span| chosen[&span.layout].bytes();
    let mut bytes: u64 = HEAD + spans.iter().map(size).sum::<u64>();
    let count = spans.len();
    let (mut next, mut before): (Vec<usize>, Vec<usize>) =
        ((1..=count).collect(), (0..count).map(|span| span.wrapping_sub(1)).collect());
    let mut is_gone = vec![false; count];
    let mut pairs: BinaryHeap<Reverse<(u64, usize, usize)>> =
        (1..count).map(|right| Reverse((lighter(spans, right - 1, right), right - 1, right))).collect();
    while bytes > limit {
        let Some(Reverse((weight, left, right))) = pairs.pop() else { break };
        let is_old = is_gone[left] || is_gone[right] || next[left] != right || lighter(spans, left, right) != weight;
        if is_old {
            continue;
        }
        let heavier = if spans[right].weight > spans[left].weight { right } else { left };
        bytes -= size(&spans[left]) + size(&spans[right]);
        spans[left].layout = spans[heavier].layout;
        spans[left].weight += spans[right].weight;
        bytes += size(&spans[left]);
        is_gone[right] = true;
        next[left] = next[right];
        if next[left] < count {
            before[next[left]] = left;
            pairs.push(Reverse((lighter(spans, left, next[left]), left, next[left])));
        }
        if before[left] != usize::MAX {
            pairs.push(Reverse((lighter(spans, before[left], left), before[left], left)));
        }
    }
    let mut kept = is_gone.into_iter();
    spans.retain(|_| !kept.next().unwrap_or(false));
    spans.dedup_by(|right, left| right.layout == left.layout);
}

/// Weight of the lighter of two spans.
fn lighter(spans: &[Span], left: usize, right: usize) -> u64 {
    spans[left].weight.min(spans[right].weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sizes: &[u32]) -> Layout {
        Layout::new(sizes.iter().enumerate().map(|(server, kib)| (ServerId(server as u16), kib << 10))).unwrap()
    }

    /// The manual's figures: 545, 341, 227 and 136 components of 1, 4, 8 and 16 stripes fill a layout of 64 KiB.
    #[test]
    fn as_many_components_are_kept_as_the_manual_says_and_no_more() {
        let left = |stripes: usize, components: usize| {
            // No two alike, so that merging makes exactly one of two.
            let of = |unit: usize| Stripes { unit: UNIT * (1 + unit as u64), targets: vec![0; stripes] };
            let chosen: HashMap<u32, Stripes> = (0..components).map(|layout| (layout as u32, of(layout))).collect();
            let span = |span: usize| Span { start: span as u64 * UNIT, layout: span as u32, weight: 5 };
            let mut spans: Vec<Span> = (0..components).map(span).collect();
            merge(&mut spans, &chosen, MAX_LAYOUT);
            spans.len()
        };
        for (stripes, most) in [(1, 545), (4, 341), (8, 227), (16, 136)] {
            assert_eq!(left(stripes, most), most, "as many as that stay");
            assert_eq!([most + 1, 700].map(|components| left(stripes, components)), [most; 2], "no more are left");
        }
    }

    #[test]
    fn few_bytes_leave_the_targets_with_the_largest_stripes() {
        let wide: Vec<u32> = (1..=8).map(|size| size * 64).collect();
        assert_eq!(ways(&layout(&wide), 3), [Stripes { unit: 448 << 10, targets: vec![5, 6, 7] }]);
        assert_eq!(ways(&layout(&[64, 192]), 2), [Stripes { unit: 256 << 10, targets: vec![0, 1] }]);
    }

    #[test]
    fn stripes_of_several_sizes_are_overstriped() {
        let ways = ways(&layout(&[64, 192, 128]), MAX_STRIPES);
        assert_eq!(ways, [Stripes { unit: UNIT, targets: vec![0, 1, 1, 1, 2, 2] }]);
        assert_eq!(super::ways(&layout(&[1024, 1024]), MAX_STRIPES), [Stripes { unit: 1 << 20, targets: vec![0, 1] }]);
        // 20 and 108 KiB: in their ratio, rounded, or without the small one.
        let near: Vec<Vec<usize>> =
            super::ways(&layout(&[20, 108]), MAX_STRIPES).into_iter().map(|way| way.targets).collect();
        assert_eq!(near, [vec![0, 1, 1, 1, 1, 1], vec![0, 1, 1], vec![1]]);
        // More stripes than a component has: coarser ones.
        let coarse = super::ways(&layout(&[64, 4_000_000]), MAX_STRIPES).remove(0);
        assert!(coarse.targets.len() <= MAX_STRIPES as usize && coarse.targets[0] == 0, "{}", coarse.targets.len());
    }

    #[test]
    fn the_lightest_parts_are_merged_first_and_take_the_layout_of_their_neighbour() {
        let stripes = |count| Stripes { unit: UNIT, targets: vec![0; count] };
        let chosen = HashMap::from([(0, stripes(1)), (1, stripes(2)), (2, stripes(3))]);
        let span = |start: u64, layout, weight| Span { start: start * UNIT, layout, weight };
        let mut spans = vec![span(0, 0, 90), span(1, 1, 3), span(2, 2, 50), span(3, 0, 40)];
        let three = HEAD + 3 * COMPONENT + STRIPE * (1 + 3 + 1);
        merge(&mut spans, &chosen, three);
        let left: Vec<(u64, u32, u64)> =
            spans.iter().map(|span| (span.start / UNIT, span.layout, span.weight)).collect();
        assert_eq!(left, [(0, 0, 93), (2, 2, 50), (3, 0, 40)]);
    }

    #[test]
    fn turns_are_rotated_to_the_start_of_their_component() {
        let stripes = Stripes { unit: UNIT, targets: vec![7, 8, 9] };
        let order = |start: u64| stripes.turns(start * UNIT).iter().map(|turn| turn.target).collect::<Vec<_>>();
        assert_eq!((order(0), order(1), order(5)), (vec![7, 8, 9], vec![9, 7, 8], vec![8, 9, 7]));
        for start in 0..7 {
            let layout = NativeLayout::whole(stripes.turns(start * UNIT), None);
            assert_eq!(layout.target_of(start * UNIT), 7);
        }
    }
}
