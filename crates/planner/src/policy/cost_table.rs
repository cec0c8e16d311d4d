//! Costs of request classes under stripe pairs, each worked out once.
//!
//! A region's cost under a pair is the sum of its counts times a row of this table. Costs are whole picoseconds, so the sum does not
//! depend on how requests are grouped: the table gives what a loop over single requests gives. [`CostTable::near_least`] first adds up in
//! short floating point numbers, which is several times as fast and tells all but the nearest apart.

use super::Task;
use rayon::prelude::*;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use stripewise_model::h2dp::{ClassCosts, hybrid_cost};
use stripewise_model::{Concurrency, Picoseconds, StripePair, striped};
use stripewise_trace::{AccessClass, ClassIndex};

/// Rows that one thread costs before it looks for more.
const ROWS_AT_ONCE: usize = 64;

/// Position of the row of a pair under one p and c.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row(u32);

/// The table of one file's classes.
pub(crate) struct CostTable<'a> {
    task: &'a Task<'a>,
    classes: &'a [AccessClass],
    region_bytes: u64,
    rows: HashMap<(StripePair, Concurrency), Row, BuildHasherDefault<PairHasher>>,
    pairs: Vec<(StripePair, Concurrency)>,
    costs_ps: Vec<u64>,
    /// The same as floating point numbers.
    costs: Vec<f32>,
}

/// Thousands of pairs are looked up, each several times; they come from the lattice, not from an adversary.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // Stripes are multiples of the step: only the upper bits of the products differ.
        self.0 ^ (self.0 >> 32)
    }
}

impl<'a> CostTable<'a> {
    pub(crate) fn new(task: &'a Task<'a>, classes: &'a [AccessClass], region_bytes: u64) -> Self {
        Self {
            task,
            classes,
            region_bytes,
            rows: HashMap::default(),
            pairs: Vec::new(),
            costs_ps: Vec::new(),
            costs: Vec::new(),
        }
    }

    /// Asks for a pair; its costs are there after [`Self::fill`].
    pub(crate) fn row(&mut self, pair: StripePair, concurrency: Concurrency) -> Row {
        *self.rows.entry((pair, concurrency)).or_insert_with(|| {
            self.pairs.push((pair, concurrency));
            Row(self.pairs.len() as u32 - 1)
        })
    }

    pub(crate) fn pair(&self, row: Row) -> StripePair {
        self.pairs[row.0 as usize].0
    }

    pub(crate) fn cycle_bytes(&self, row: Row) -> u64 {
        self.pair(row).cycle_bytes(self.task.parameters.hservers, self.task.parameters.sservers)
    }

    /// Costs all rows that were asked for since the last time.
    pub(crate) fn fill(&mut self) {
        let width = self.classes.len();
        let new = &self.pairs[self.costs_ps.len() / width.max(1)..];
        let of_tables = ClassCosts::new(&self.task.parameters, self.classes);
        let known = self.costs_ps.len();
        self.costs_ps.resize(known + new.len() * width, 0);
        self.costs.resize(known + new.len() * width, 0.0);
        let parts = self.costs_ps[known..]
            .par_chunks_mut((ROWS_AT_ONCE * width).max(1))
            .zip(self.costs[known..].par_chunks_mut((ROWS_AT_ONCE * width).max(1)));
        let (task, classes, region_bytes) = (self.task, self.classes, self.region_bytes);
        parts.zip(new.par_chunks(ROWS_AT_ONCE)).for_each(|((costs_ps, costs), pairs)| {
            for ((pair, concurrency), row) in pairs.iter().zip(costs_ps.chunks_exact_mut(width)) {
                if task.request.options.exact {
                    let of_class = |class| cost(task, region_bytes, *pair, class, *concurrency);
                    row.iter_mut().zip(classes).for_each(|(cost_ps, class)| *cost_ps = of_class(*class));
                } else {
                    of_tables.write_costs(*pair, *concurrency, row);
                }
            }
            costs.iter_mut().zip(costs_ps).for_each(|(cost, cost_ps)| *cost = *cost_ps as f32);
        });
    }

    /// The cost of a region with these counts under a pair.
    pub(crate) fn region_cost(&self, row: Row, counts: &[(ClassIndex, u64)]) -> Picoseconds {
        let width = self.classes.len();
        let costs_ps = &self.costs_ps[row.0 as usize * width..][..width];
        summed(counts, |class| costs_ps[usize::from(class.0)])
    }

    /// As [`Self::region_cost`], for a pair that may never have been asked for.
    pub(crate) fn any_region_cost(
        &self,
        pair: StripePair,
        concurrency: Concurrency,
        counts: &[(ClassIndex, u64)],
    ) -> Picoseconds {
        match self.rows.get(&(pair, concurrency)) {
            Some(row) => self.region_cost(*row, counts),
            None => summed(counts, |class| {
                cost(self.task, self.region_bytes, pair, self.classes[usize::from(class.0)], concurrency)
            }),
        }
    }

    /// Those of `rows` whose costs for these counts may be the least: all but the ones that are certainly more. `weights` and `sums` are
    /// room to work in.
    pub(crate) fn near_least<'r>(
        &self,
        rows: &'r [Row],
        counts: &[(ClassIndex, u64)],
        weights: &mut Vec<f32>,
        sums: &'r mut Vec<f32>,
    ) -> impl Iterator<Item = Row> + 'r {
        let width = self.classes.len();
        weights.clear();
        weights.resize(width, 0.0);
        counts.iter().for_each(|(class, count)| weights[usize::from(class.0)] += *count as f32);
        sums.clear();
        sums.extend(rows.iter().map(|row| dot(weights, &self.costs[row.0 as usize * width..][..width])));
        let least = sums.iter().copied().fold(f32::INFINITY, f32::min);
        // All terms are positive, so each rounding is at most half a unit in the last place of the sum. Sums too large for short numbers are
        // infinite, and then near.
        let bound = least * (1.0 + 4.0 * (width + 4) as f32 * f32::EPSILON);
        rows.iter().zip(&*sums).filter(move |(_, sum)| **sum <= bound).map(|(row, _)| *row)
    }
}

fn cost(task: &Task<'_>, region_bytes: u64, pair: StripePair, class: AccessClass, concurrency: Concurrency) -> u64 {
    let cost = if task.request.options.exact {
        let layout = task.groups.pair_layout(pair);
        striped::exact_cost(task.request.profile, &layout, class, concurrency, region_bytes)
    } else {
        hybrid_cost(&task.parameters, pair, class, concurrency)
    };
    Picoseconds::narrow_from_seconds(cost.total_s())
}

fn summed(counts: &[(ClassIndex, u64)], cost_ps: impl Fn(ClassIndex) -> u64) -> Picoseconds {
    let costs = counts.iter().map(|(class, count)| u128::from(cost_ps(*class)) * u128::from(*count));
    Picoseconds(costs.fold(0, u128::saturating_add))
}

/// Eight sums side by side, so that the additions do not wait for each other.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let (mut sums, mut rest) = ([0.0; 8], 0.0);
    let ((a, last_of_a), (b, last_of_b)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in last_of_a.iter().zip(last_of_b) {
        rest += a * b;
    }
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}
