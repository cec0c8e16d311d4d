//! The linear program of a window: items, their options, and the oracle that prices them.
//!
//! An *item* is a region (or a set of regions that nobody accesses, of one size). An *option* of an item is a shape with the seconds that the
//! item's requests then ask of every row: device and link of each kind, then latency. Options that another one beats in every row
//! are left out: no prices would ever choose them.

use super::demand::{demand, rows};
use super::kinds::Kind;
use super::shapes::Shape;
use rayon::prelude::*;
use stripewise_model::Profile;
use stripewise_trace::{AccessClass, Company};

/// A region, or several that nobody accesses.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Item {
    pub(crate) file: usize,
    /// One when it is accessed.
    pub(crate) regions: Vec<u32>,
    /// Bytes in each of its regions.
    pub(crate) region_bytes: u64,
    /// Requests by class (position in the program's classes).
    pub(crate) counts: Vec<(u16, u64)>,
}

impl Item {
    /// Bytes in all its regions.
    pub(crate) fn bytes(&self) -> f64 {
        self.region_bytes as f64 * self.regions.len() as f64
    }
}

/// Options of all items, flat.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) items: Vec<Item>,
    /// Rows of one option.
    pub(crate) rows: usize,
    /// Item i has options `first[i]..first[i + 1]`.
    first: Vec<usize>,
    shape_of: Vec<u16>,
    /// `rows` seconds for each option: what it asks of the stations in the part of the time in which requests do not march together.
    load_s: Vec<f32>,
    /// Seconds of the run that the option costs outright: the part of the time in which all requests are in its region.
    fixed_s: Vec<f32>,
}

/// What the prices are: of a second on each row, of a byte on each server of a kind, and of the fixed part.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Prices {
    pub(crate) rows: Vec<f64>,
    pub(crate) room: Vec<f64>,
    /// Weight of latency beside its row; 0 for the bound.
    pub(crate) haste: f64,
}

/// One option of every item, with its sums.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Assignment {
    /// Options, counted within their item.
    pub(crate) chosen: Vec<u16>,
    pub(crate) load_s: Vec<f64>,
    pub(crate) fixed_s: f64,
    /// Bytes on each server of a kind.
    pub(crate) room_bytes: Vec<f64>,
}

impl Program {
    pub(crate) fn new(
        profile: &Profile,
        kinds: Vec<Kind>,
        shapes: Vec<Shape>,
        items: Vec<Item>,
        classes: &[AccessClass],
        processes: f64,
        company: Company,
    ) -> Self {
        let rows = rows(kinds.len());
        // Seconds of one request by shape and class; the row of the fixed part comes last.
        let table: Vec<Vec<Vec<f64>>> = shapes
            .par_iter()
            .map(|shape| {
                let of_class = |class: &AccessClass| demand(profile, &kinds, shape, *class, processes);
                classes.iter().map(of_class).collect()
            })
            .collect();
        let options: Vec<Vec<(u16, Vec<f32>)>> =
            items.par_iter().map(|item| options_of(item, &shapes, &table, rows, company.same_region)).collect();
        let mut program = Self {
            kinds,
            shapes,
            items,
            rows,
            first: vec![0],
            shape_of: Vec::new(),
            load_s: Vec::new(),
            fixed_s: Vec::new(),
        };
        for of_item in options {
            for (shape, row) in of_item {
                program.shape_of.push(shape);
                program.load_s.extend(&row[..rows]);
                program.fixed_s.push(row[rows]);
            }
            program.first.push(program.shape_of.len());
        }
        program
    }

    pub(crate) fn options(&self, item: usize) -> usize {
        self.first[item + 1] - self.first[item]
    }

    pub(crate) fn shape(&self, item: usize, option: u16) -> usize {
        usize::from(self.shape_of[self.first[item] + usize::from(option)])
    }

    pub(crate) fn load_s(&self, item: usize, option: u16) -> &[f32] {
        let at = (self.first[item] + usize::from(option)) * self.rows;
        &self.load_s[at..at + self.rows]
    }

    pub(crate) fn fixed_s(&self, item: usize, option: u16) -> f64 {
        f64::from(self.fixed_s[self.first[item] + usize::from(option)])
    }

    /// What an option costs at these prices, in seconds.
    pub(crate) fn priced_s(&self, item: usize, option: u16, prices: &Prices) -> f64 {
        let load_s = self.load_s(item, option);
        let stations: f64 = load_s.iter().zip(&prices.rows).map(|(load, price)| f64::from(*load) * price).sum();
        let share = &self.shapes[self.shape(item, option)].room_share;
        let room: f64 = share.iter().zip(&prices.room).map(|(share, price)| share * price).sum();
        stations
            + room * self.items[item].bytes()
            + self.fixed_s(item, option)
            + prices.haste * f64::from(load_s[self.rows - 1])
    }

    /// The option of least priced cost among those that `allowed` admits (by shape); all where it admits none.
    pub(crate) fn best(&self, item: usize, prices: &Prices, allowed: &[bool]) -> u16 {
        let least = |admits: &dyn Fn(u16) -> bool| {
            (0..self.options(item) as u16)
                .filter(|option| admits(*option))
                .map(|option| (self.priced_s(item, option, prices), option))
                .min_by(|a, b| a.0.total_cmp(&b.0))
        };
        let admitted = |option: u16| allowed[self.shape(item, option)];
        least(&admitted).or_else(|| least(&|_| true)).map_or(0, |(_, option)| option)
    }

    /// Every item's best option at these prices.
    pub(crate) fn respond(&self, prices: &Prices, allowed: &[bool]) -> Assignment {
        let chosen: Vec<u16> = (0..self.items.len())
            .into_par_iter()
            .with_min_len(256)
            .map(|item| self.best(item, prices, allowed))
            .collect();
        self.sum(chosen)
    }

    pub(crate) fn sum(&self, chosen: Vec<u16>) -> Assignment {
        let mut sum = Assignment {
            chosen: Vec::new(),
            load_s: vec![0.0; self.rows],
            fixed_s: 0.0,
            room_bytes: vec![0.0; self.kinds.len()],
        };
        for (item, option) in chosen.iter().enumerate() {
            self.book(&mut sum, item, *option, 1.0);
        }
        sum.chosen = chosen;
        sum
    }

    /// Adds an option to the sums, or takes it off with `sign` -1.
    pub(crate) fn book(&self, sum: &mut Assignment, item: usize, option: u16, sign: f64) {
        for (sum, load) in sum.load_s.iter_mut().zip(self.load_s(item, option)) {
            *sum += sign * f64::from(*load);
        }
        sum.fixed_s += sign * self.fixed_s(item, option);
        let bytes = self.items[item].bytes();
        for (sum, share) in sum.room_bytes.iter_mut().zip(&self.shapes[self.shape(item, option)].room_share) {
            *sum += sign * share * bytes;
        }
    }
}

/// The options of one item that no other beats, each with its rows and, last, its fixed part.
fn options_of(
    item: &Item,
    shapes: &[Shape],
    table: &[Vec<Vec<f64>>],
    rows: usize,
    same_region: f64,
) -> Vec<(u16, Vec<f32>)> {
    let mut options: Vec<(u16, Vec<f32>)> = Vec::new();
    for number in 0..shapes.len() {
        let mut row = vec![0.0f64; rows + 1];
        for (class, count) in &item.counts {
            for (sum, seconds) in row.iter_mut().zip(&table[number][usize::from(*class)]) {
                *sum += *count as f64 * seconds;
            }
        }
        // All requests in one region: the busiest of its stations decides.
        row[rows] = same_region * row[..rows].iter().copied().fold(0.0, f64::max);
        row[..rows].iter_mut().for_each(|seconds| *seconds *= 1.0 - same_region);
        let row: Vec<f32> = row.into_iter().map(|seconds| seconds as f32).collect();
        let beats = |a: (&[f32], &Shape), b: (&[f32], &Shape)| {
            a.0.iter().zip(b.0).all(|(a, b)| a <= b)
                && a.1.room_share.iter().zip(&b.1.room_share).all(|(a, b)| *a <= *b * (1.0 + 1e-9))
        };
        let own = &shapes[number];
        if options.iter().any(|(other, load)| beats((load, &shapes[usize::from(*other)]), (&row, own))) {
            continue;
        }
        options.retain(|(other, load)| !beats((&row, own), (load, &shapes[usize::from(*other)])));
        options.push((number as u16, row));
    }
    options
}
