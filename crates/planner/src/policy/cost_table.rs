//! Costs of request classes under stripe pairs, each worked out once.
//!
//! A region's cost under a pair is the sum of its counts times a row of this table. Costs are whole picoseconds, so the sum does not
//! depend on how requests are grouped: the table gives what a loop over single requests gives.

use super::Task;
use rayon::prelude::*;
use std::collections::HashMap;
use stripewise_model::{Picoseconds, StripePair, h2dp, striped};
use stripewise_trace::{AccessClass, ClassIndex};

/// Position of a pair's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Row(u32);

/// The table of one file's classes.
pub(crate) struct CostTable<'a> {
    task: &'a Task<'a>,
    classes: &'a [AccessClass],
    region_bytes: u64,
    rows: HashMap<StripePair, Row>,
    pairs: Vec<StripePair>,
    costs_ps: Vec<u64>,
}

impl<'a> CostTable<'a> {
    pub(crate) fn new(task: &'a Task<'a>, classes: &'a [AccessClass], region_bytes: u64) -> Self {
        Self { task, classes, region_bytes, rows: HashMap::new(), pairs: Vec::new(), costs_ps: Vec::new() }
    }

    /// Asks for a pair; its costs are there after [`Self::fill`].
    pub(crate) fn row(&mut self, pair: StripePair) -> Row {
        *self.rows.entry(pair).or_insert_with(|| {
            self.pairs.push(pair);
            Row(self.pairs.len() as u32 - 1)
        })
    }

    pub(crate) fn pair(&self, row: Row) -> StripePair {
        self.pairs[row.0 as usize]
    }

    pub(crate) fn cycle_bytes(&self, row: Row) -> u64 {
        self.pair(row).cycle_bytes(self.task.parameters.hservers, self.task.parameters.sservers)
    }

    /// Costs all rows that were asked for since the last time.
    pub(crate) fn fill(&mut self) {
        let width = self.classes.len();
        let new = &self.pairs[self.costs_ps.len() / width.max(1)..];
        let costs: Vec<u64> = new
            .par_iter()
            .with_min_len(64)
            .flat_map_iter(|pair| self.classes.iter().map(|class| self.cost(*pair, *class)))
            .collect();
        self.costs_ps.extend(costs);
    }

    /// The cost of a region with these counts under a pair.
    pub(crate) fn region_cost(&self, row: Row, counts: &[(ClassIndex, u64)]) -> Picoseconds {
        let width = self.classes.len();
        let costs_ps = &self.costs_ps[row.0 as usize * width..][..width];
        Picoseconds(
            counts.iter().map(|(class, count)| u128::from(costs_ps[usize::from(class.0)]) * u128::from(*count)).sum(),
        )
    }

    /// As [`Self::region_cost`], for a pair that was asked for and filled before.
    pub(crate) fn known_region_cost(&self, pair: StripePair, counts: &[(ClassIndex, u64)]) -> Picoseconds {
        self.region_cost(self.rows[&pair], counts)
    }

    fn cost(&self, pair: StripePair, class: AccessClass) -> u64 {
        let task = self.task;
        let cost = if task.request.options.exact {
            let layout = task.groups.pair_layout(pair);
            striped::exact_cost(task.request.profile, &layout, class, task.concurrency, self.region_bytes)
        } else {
            h2dp::hybrid_cost(&task.parameters, pair, class, task.concurrency)
        };
        // 2^64 ps is half a year for one request.
        u64::try_from(cost.total().0).unwrap_or(u64::MAX)
    }
}
