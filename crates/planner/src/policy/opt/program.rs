//! The linear program of a run: items, their options, and what each asks of every station in every period.
//!
//! An *item* is a region (or all regions of one size that nobody accesses). An *option* of an item is a shape that it may have; a *path* is one
//! option for each window, and changing the shape between windows costs the reading and writing of the region, on the stations of the
//! later window. A window's requests fall into *periods* (`periods.rs`) whose times add up. Rows are the stations of a period: device and link
//! of each kind, then latency over p. Options that another beats in every row and window are left out: no prices would ever choose them.

use super::demand::{Demands, rows};
use super::kinds::Kind;
use super::shapes::Shape;
use rayon::prelude::*;
use std::sync::Arc;
use stripewise_layout::Layout;
use stripewise_model::Profile;

/// Options of all items of a program that is not yet large.
const LARGE: usize = 1 << 20;

/// A region, or several that nobody accesses.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Item {
    pub(crate) file: usize,
    /// One when it is accessed.
    pub(crate) regions: Vec<u32>,
    /// Bytes in each of its regions.
    pub(crate) region_bytes: u64,
    /// Requests by class (position in the classes of all files), for each window; of buffered writes what is written back.
    pub(crate) counts: Vec<Vec<(u16, f64)>>,
    /// For each period the share of its window's requests that falls there.
    pub(crate) shares: Vec<f64>,
    /// For each window the share of the time in which the requests of all processes are in one region.
    pub(crate) same_region: Vec<f64>,
    /// The shape that it has before the first window, if changing it costs a move.
    pub(crate) before: Option<u16>,
}

impl Item {
    /// Bytes in all its regions.
    pub(crate) fn bytes(&self) -> f64 {
        self.region_bytes as f64 * self.regions.len() as f64
    }

    pub(crate) fn is_accessed(&self) -> bool {
        self.counts.iter().any(|counts| !counts.is_empty())
    }

    /// Whether it is mostly accessed by all processes at once, and another of the same file in the same way and as often.
    pub(crate) fn marches_like(&self, other: &Item) -> bool {
        let (regions, others) = (self.regions.len(), other.regions.len());
        let mostly = self.same_region.iter().all(|together| *together > 0.5);
        let alike = (self.file, self.region_bytes, regions, self.before)
            == (other.file, other.region_bytes, others, other.before);
        mostly
            && alike
            && (&self.counts, &self.shares, &self.same_region) == (&other.counts, &other.shares, &other.same_region)
    }
}

/// Options of all items, flat. A copy shares what is large.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) shapes: Arc<Vec<Shape>>,
    pub(crate) items: Arc<Vec<Item>>,
    /// Rows of one period.
    pub(crate) rows: usize,
    pub(crate) windows: usize,
    /// The window of each period, ascending.
    pub(crate) window_of: Vec<usize>,
    /// Item i has options `first[i]..first[i + 1]`.
    first: Arc<Vec<usize>>,
    shape_of: Arc<Vec<u16>>,
    /// For each option and window `rows` seconds that it asks of the stations while requests do not march together, and the seconds that it
    /// costs outright: while all requests are in its region.
    load_s: Arc<Vec<f32>>,
    /// Seconds per byte on the stations for reading a region of a shape in a move, and for writing it.
    read_s: Vec<Vec<f64>>,
    write_s: Vec<Vec<f64>>,
    /// For each period its share of its window: where moves go.
    period_share: Vec<f64>,
}

/// One option of every item in every window, with the sums.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Assignment {
    /// For each item `windows` options, counted within their item.
    pub(crate) chosen: Vec<u16>,
    /// `rows` for each period.
    pub(crate) load_s: Vec<f64>,
    pub(crate) fixed_s: f64,
    /// Bytes on each server of a kind, for each window.
    pub(crate) room_bytes: Vec<f64>,
}

impl Program {
    /// `window_of` names the window of each period.
    pub(crate) fn new(
        profile: &Profile,
        kinds: Vec<Kind>,
        shapes: Vec<Shape>,
        items: Vec<Item>,
        demands: &Demands,
        window_of: Vec<usize>,
    ) -> Self {
        let rows = rows(kinds.len());
        let windows = window_of.last().map_or(0, |last| last + 1);
        let open = unbeaten(&shapes, demands, windows);
        let options: Vec<Vec<(u16, Vec<f32>)>> =
            items.par_iter().map(|item| options_of(item, &shapes, &open, demands, rows, windows)).collect();
        let moving = |direction| shapes.iter().map(|shape| demands.moving(profile, &kinds, shape, direction)).collect();
        let mut requests = vec![0.0; window_of.len()];
        for item in &items {
            for (period, window) in window_of.iter().enumerate() {
                let count: f64 = item.counts[*window].iter().map(|(_, count)| *count).sum();
                requests[period] += item.shares[period] * count;
            }
        }
        let in_window = |period: usize| {
            let same = || (0..window_of.len()).filter(|other| window_of[*other] == window_of[period]);
            let sum: f64 = same().map(|other| requests[other]).sum();
            if sum > 0.0 { requests[period] / sum } else { 1.0 / same().count() as f64 }
        };
        let (mut first, mut shape_of, mut load_s) = (vec![0], Vec::new(), Vec::new());
        for of_item in options {
            for (shape, row) in of_item {
                shape_of.push(shape);
                load_s.extend(row);
            }
            first.push(shape_of.len());
        }
        Self {
            rows,
            windows,
            first: Arc::new(first),
            shape_of: Arc::new(shape_of),
            load_s: Arc::new(load_s),
            read_s: moving(stripewise_layout::Direction::Read),
            write_s: moving(stripewise_layout::Direction::Write),
            period_share: (0..window_of.len()).map(in_window).collect(),
            window_of,
            kinds,
            shapes: Arc::new(shapes),
            items: Arc::new(items),
        }
    }

    /// The same with moves so many times as dear.
    pub(crate) fn reluctant(&self, factor: f64) -> Self {
        let mut program = self.clone();
        program.read_s.iter_mut().chain(&mut program.write_s).flatten().for_each(|seconds| *seconds *= factor);
        program
    }

    /// Whether a response to prices costs so much that groups of its items should be asked first.
    pub(crate) fn is_large(&self) -> bool {
        self.shape_of.len() > LARGE
    }

    /// Whether any path can have moves.
    pub(crate) fn has_moves(&self) -> bool {
        self.windows > 1 || self.items.iter().any(|item| item.before.is_some())
    }

    pub(crate) fn periods(&self) -> usize {
        self.window_of.len()
    }

    pub(crate) fn periods_of(&self, window: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.periods()).filter(move |period| self.window_of[*period] == window)
    }

    /// The same with shapes' stripes multiplied until none is smaller than the grain; for placing only, since what they cost is left as it was.
    pub(crate) fn coarsened(&self, grain: u64) -> Program {
        let coarse = |shape: &Shape| {
            let stripes = shape.layout.stripes();
            let least = stripes.iter().map(|stripe| stripe.size_bytes).min().map_or(grain, u64::from);
            let factor = grain.div_ceil(least.max(1));
            let sizes = stripes
                .iter()
                .map(|stripe| Some((stripe.server, stripe.size_bytes.checked_mul(factor.try_into().ok()?)?)));
            let layout = sizes.collect::<Option<Vec<_>>>().and_then(|stripes| Layout::new(stripes).ok());
            Shape { layout: layout.unwrap_or_else(|| shape.layout.clone()), ..shape.clone() }
        };
        Program { shapes: Arc::new(self.shapes.iter().map(coarse).collect()), ..self.clone() }
    }

    pub(crate) fn options(&self, item: usize) -> usize {
        self.first[item + 1] - self.first[item]
    }

    pub(crate) fn shape(&self, item: usize, option: u16) -> usize {
        usize::from(self.shape_of[self.first[item] + usize::from(option)])
    }

    /// Shape of every option of an item, and one behind the other its `rows` seconds and its fixed part. Of a program of one window.
    pub(crate) fn options_with_loads(&self, item: usize) -> (&[u16], &[f32]) {
        debug_assert_eq!(self.windows, 1);
        let (options, width) = (self.first[item]..self.first[item + 1], self.rows + 1);
        (&self.shape_of[options.clone()], &self.load_s[options.start * width..options.end * width])
    }

    /// The option of a shape, if the item has it.
    pub(crate) fn option_of(&self, item: usize, shape: u16) -> Option<u16> {
        let shapes = &self.shape_of[self.first[item]..self.first[item + 1]];
        shapes.iter().position(|known| *known == shape).map(|option| option as u16)
    }

    /// `rows` seconds of an option in a window.
    pub(crate) fn load_s(&self, item: usize, option: u16, window: usize) -> &[f32] {
        let at = self.at(item, option, window);
        &self.load_s[at..at + self.rows]
    }

    pub(crate) fn fixed_s(&self, item: usize, option: u16, window: usize) -> f64 {
        f64::from(self.load_s[self.at(item, option, window) + self.rows])
    }

    fn at(&self, item: usize, option: u16, window: usize) -> usize {
        ((self.first[item] + usize::from(option)) * self.windows + window) * (self.rows + 1)
    }

    /// Seconds per byte on the stations for reading a region of a shape in a move.
    pub(crate) fn read_s(&self, shape: usize) -> &[f64] {
        &self.read_s[shape]
    }

    /// As [`Self::read_s`], for writing.
    pub(crate) fn write_s(&self, shape: usize) -> &[f64] {
        &self.write_s[shape]
    }

    /// The part of a window's moves that a period gets.
    pub(crate) fn period_share(&self, period: usize) -> f64 {
        self.period_share[period]
    }

    pub(crate) fn path<'a>(&self, sum: &'a Assignment, item: usize) -> &'a [u16] {
        &sum.chosen[item * self.windows..(item + 1) * self.windows]
    }

    /// The shape before the first window, as an option.
    pub(crate) fn before(&self, item: usize) -> Option<u16> {
        self.items[item].before.and_then(|shape| self.option_of(item, shape))
    }

    pub(crate) fn sum(&self, chosen: Vec<u16>) -> Assignment {
        let mut sum = self.nothing();
        for item in 0..self.items.len() {
            self.book(&mut sum, item, &chosen[item * self.windows..(item + 1) * self.windows], 1.0);
        }
        sum.chosen = chosen;
        sum
    }

    pub(crate) fn nothing(&self) -> Assignment {
        Assignment {
            chosen: Vec::new(),
            load_s: vec![0.0; self.periods() * self.rows],
            fixed_s: 0.0,
            room_bytes: vec![0.0; self.windows * self.kinds.len()],
        }
    }

    /// Adds a path to the sums, or takes it off with `sign` -1.
    pub(crate) fn book(&self, sum: &mut Assignment, item: usize, path: &[u16], sign: f64) {
        let of_item = &self.items[item];
        let bytes = of_item.bytes();
        let mut previous = self.before(item);
        for (window, option) in path.iter().enumerate() {
            let load_s = self.load_s(item, *option, window);
            for period in self.periods_of(window) {
                let share = sign * of_item.shares[period];
                for (sum, load) in sum.load_s[period * self.rows..].iter_mut().zip(load_s) {
                    *sum += share * f64::from(*load);
                }
            }
            sum.fixed_s += sign * self.fixed_s(item, *option, window);
            let shape = self.shape(item, *option);
            let capacity = &mut sum.room_bytes[window * self.kinds.len()..];
            for (sum, share) in capacity.iter_mut().zip(&self.shapes[shape].capacity_share) {
                *sum += sign * share * bytes;
            }
            if let Some(previous) = previous.filter(|previous| previous != option) {
                let from = self.shape(item, previous);
                for period in self.periods_of(window) {
                    let moved = sign * self.period_share[period] * bytes;
                    for row in 0..self.rows {
                        sum.load_s[period * self.rows + row] +=
                            moved * (self.read_s[from][row] + self.write_s[shape][row]);
                    }
                }
            }
            previous = Some(*option);
        }
    }
}

/// Shapes that no other beats for every class in every window and in room: whatever its requests, no item needs the others. Of equals the first.
fn unbeaten(shapes: &[Shape], demands: &Demands, windows: usize) -> Vec<bool> {
    let beats = |a: usize, b: usize| {
        let capacity = shapes[a].capacity_share.iter().zip(&shapes[b].capacity_share).all(|(a, b)| a <= b);
        capacity
            && (0..windows)
                .all(|window| demands.of_shape(window, a).iter().zip(demands.of_shape(window, b)).all(|(a, b)| a <= b))
    };
    let mut open: Vec<bool> = vec![true; shapes.len()];
    for number in 0..shapes.len() {
        open[number] = !(0..shapes.len()).any(|other| {
            other != number && open[other] && beats(other, number) && (other < number || !beats(number, other))
        });
    }
    open
}

/// The options of one item that no other beats in all windows, each with its rows and fixed part window by window; always the one
/// that it has.
fn options_of(
    item: &Item,
    shapes: &[Shape],
    open: &[bool],
    demands: &Demands,
    rows: usize,
    windows: usize,
) -> Vec<(u16, Vec<f32>)> {
    let mut options: Vec<(u16, Vec<f32>)> = Vec::new();
    let beats = |a: (&[f32], &Shape), b: (&[f32], &Shape)| {
        a.0.iter().zip(b.0).all(|(a, b)| a <= b)
            && a.1.capacity_share.iter().zip(&b.1.capacity_share).all(|(a, b)| *a <= *b * (1.0 + 1e-9))
    };
    for number in (0..shapes.len()).filter(|number| open[*number] || item.before == Some(*number as u16)) {
        let mut load = vec![0.0f32; windows * (rows + 1)];
        for (window, counts) in item.counts.iter().enumerate() {
            let mut row = vec![0.0f64; rows];
            for (class, count) in counts {
                for (sum, seconds) in row.iter_mut().zip(demands.of(window, number, usize::from(*class))) {
                    *sum += count * seconds;
                }
            }
            // All requests in one region: the busiest of its stations decides.
            let together = item.same_region[window];
            let busiest = row.iter().copied().fold(0.0, f64::max);
            let to = &mut load[window * (rows + 1)..];
            to.iter_mut().zip(&row).for_each(|(to, seconds)| *to = ((1.0 - together) * seconds) as f32);
            to[rows] = (together * busiest) as f32;
        }
        let own = &shapes[number];
        let kept = |shape: u16| item.before == Some(shape);
        if !kept(number as u16)
            && options.iter().any(|(other, known)| beats((known, &shapes[usize::from(*other)]), (&load, own)))
        {
            continue;
        }
        options.retain(|(other, known)| kept(*other) || !beats((&load, own), (known, &shapes[usize::from(*other)])));
        options.push((number as u16, load));
    }
    options
}
