//! Costs of request classes under stripe pairs, each worked out once.
//!
//! A region's cost under a pair is the sum of its counts times a row of this table. Costs are whole picoseconds, so the sum does not
//! depend on how requests are grouped: the table gives what a loop over single requests gives. [`CostTable::near_least`] first adds up in
//! floating point, which is several times as fast and tells all but the nearest apart.

use super::Task;
use rayon::prelude::*;
use std::collections::HashMap;
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
    rows: HashMap<(StripePair, Concurrency), Row>,
    pairs: Vec<(StripePair, Concurrency)>,
    costs_ps: Vec<u64>,
    /// The same as floating point numbers.
    costs: Vec<f64>,
}

impl<'a> CostTable<'a> {
    pub(crate) fn new(task: &'a Task<'a>, classes: &'a [AccessClass], region_bytes: u64) -> Self {
        Self {
            task,
            classes,
            region_bytes,
            rows: HashMap::new(),
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
        let parts = new.par_chunks(ROWS_AT_ONCE).map(|pairs| {
            let mut costs_ps = Vec::with_capacity(pairs.len() * width);
            for (pair, concurrency) in pairs {
                if self.task.request.options.exact {
                    costs_ps.extend(self.classes.iter().map(|class| self.cost(*pair, *class, *concurrency)));
                } else {
                    of_tables.append_costs(*pair, *concurrency, &mut costs_ps);
                }
            }
            costs_ps
        });
        let parts: Vec<Vec<u64>> = parts.collect();
        for costs_ps in parts {
            self.costs.extend(costs_ps.iter().map(|cost| *cost as f64));
            self.costs_ps.extend(costs_ps);
        }
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
            None => summed(counts, |class| self.cost(pair, self.classes[usize::from(class.0)], concurrency)),
        }
    }

    /// Those of `rows` whose costs for these counts may be the least: all but the ones that are certainly more. `weights` and `sums` are
    /// room to work in.
    pub(crate) fn near_least<'r>(
        &self,
        rows: &'r [Row],
        counts: &[(ClassIndex, u64)],
        weights: &mut Vec<f64>,
        sums: &'r mut Vec<f64>,
    ) -> impl Iterator<Item = Row> + 'r {
        let width = self.classes.len();
        weights.clear();
        weights.resize(width, 0.0);
        counts.iter().for_each(|(class, count)| weights[usize::from(class.0)] += *count as f64);
        sums.clear();
        sums.extend(rows.iter().map(|row| dot(weights, &self.costs[row.0 as usize * width..][..width])));
        let least = sums.iter().copied().fold(f64::INFINITY, f64::min);
        // All terms are positive, so each rounding is at most half a unit in the last place of the sum.
        let bound = least * (1.0 + 4.0 * (width + 4) as f64 * f64::EPSILON);
        rows.iter().zip(&*sums).filter(move |(_, sum)| **sum <= bound).map(|(row, _)| *row)
    }

    fn cost(&self, pair: StripePair, class: AccessClass, concurrency: Concurrency) -> u64 {
        let task = self.task;
        let cost = if task.request.options.exact {
            let layout = task.groups.pair_layout(pair);
            striped::exact_cost(task.request.profile, &layout, class, concurrency, self.region_bytes)
        } else {
            hybrid_cost(&task.parameters, pair, class, concurrency)
        };
        Picoseconds::narrow_from_seconds(cost.total_s())
    }
}

fn summed(counts: &[(ClassIndex, u64)], cost_ps: impl Fn(ClassIndex) -> u64) -> Picoseconds {
    let costs = counts.iter().map(|(class, count)| u128::from(cost_ps(*class)) * u128::from(*count));
    Picoseconds(costs.fold(0, u128::saturating_add))
}

/// Four sums side by side, so that the additions do not wait for each other.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, mut rest) = ([0.0; 4], 0.0);
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    for (a, b) in a.remainder().iter().zip(b.remainder()) {
        rest += a * b;
    }
    for (a, b) in a.zip(b) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + rest
}
