//! `h2dp`: stripe sizes per region and window, the regions that gain most on hybrid servers, moves between windows.
//!
//! **Paper.** H2DP, sections 3.3 to 3.7, tables 1 to 3, algorithms 1 and 2.
//!
//! **Assumptions.** Those of the cost tables ([`stripewise_model::h2dp`]): every request waits for all servers of its region, p processes
//! at once. The next run accesses what this one did.
//!
//! **Algorithm.** For every accessed region of a window, r is its byte-weighted mean request. Algorithm 1: for every h on the lattice,
//! 0 <= h <= r / (m + n), s = ceil_step((r - m h) / n), s > h, the region's cost is the sum of its requests' costs by table 2; the least
//! wins, ties go to the larger cycle. As printed the algorithm also tries every smaller s, and since all of table 2 grows with h and s
//! it would always return `<0, step>`; section 3.4 asks that a request be covered, so here it is. Selective placement: benefit
//! B = T_H - T_(H+S), T_H by table 3 with stripe ceil_step(r / m); in descending B, regions with B > 0 take hybrid servers while the
//! SServers have space (`selection.rs`). Options, off in this faithful form: benefit per byte of room, benefit less the cost of
//! the move, costs at true offsets, a least stripe to which those of every candidate are raised before it is costed.
//!
//! **Complexity.** Naively requests x r / step. Requests are counts of classes, regions whose r lies in the same lattice cell have the same
//! candidates, and a class is costed once per pair: O(pairs x classes) costs and O(regions x candidates x classes) additions.

use super::cost_table::{CostTable, Row};
use super::selection::{Candidate, FileCandidates, Tier, select_windows};
use super::{About, FileChoice, Policy, Source, Task, mean_request_bytes};
use crate::servers::ceil_to;
use rayon::prelude::*;
use std::collections::HashMap;
use stripewise_model::{Concurrency, Picoseconds, StripePair};
use stripewise_trace::{FileAccess, RegionAccess};

pub(crate) struct H2dp;

impl Policy for H2dp {
    fn about(&self) -> About {
        About {
            section: "h2dp",
            source: Source::Paper("H2DP"),
            stripes_differ_by: "region, window, class of server",
            ssd_regions: "by benefit",
            moves_data: "yes",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        let tiers = task.tiers();
        let candidates: Vec<Tier<'_>> = tiers
            .iter()
            .map(|task| Tier {
                task,
                files: task.request.files.iter().map(|file| file_candidates(task, file)).collect(),
            })
            .collect();
        select_windows(&candidates)
    }
}

/// Regions with the same rounded-down and rounded-up r / step have the same candidate pairs.
struct Cell {
    hybrid: Vec<Row>,
    pure: Row,
}

/// For every window the best pair, the HServers-only stripe and both costs of every accessed region.
pub(super) fn file_candidates<'a>(task: &'a Task<'a>, file: &'a FileAccess) -> FileCandidates<'a> {
    let mut table = CostTable::new(task, &file.classes, file.region_size.0);
    let mut cells: Vec<Cell> = Vec::new();
    let mut numbers: HashMap<(u64, u64, Concurrency), usize> = HashMap::new();
    let mut cell_of = |region: &RegionAccess, concurrency: Concurrency| {
        let counts = region.counts.iter().map(|(class, count)| (file.class(*class), *count));
        let r = mean_request_bytes(counts)?;
        let step = task.step_bytes;
        Some(*numbers.entry((r / step, r.div_ceil(step), concurrency)).or_insert_with(|| {
            cells.push(Cell {
                hybrid: candidate_pairs(task, r).map(|pair| table.row(task.raised(pair), concurrency)).collect(),
                pure: table.row(task.pure_pair(r), concurrency),
            });
            cells.len() - 1
        }))
    };
    // A region without requests has nothing to decide.
    let windows: Vec<Vec<(&'a RegionAccess, usize)>> = file
        .windows
        .iter()
        .zip(&task.windows)
        .map(|(window, concurrency)| {
            window.regions.iter().filter_map(|region| Some((region, cell_of(region, *concurrency)?))).collect()
        })
        .collect();
    table.fill();
    let decided = |regions: &Vec<(&'a RegionAccess, usize)>| {
        let scratch = || (Vec::new(), Vec::new());
        let regions = regions.par_iter().with_min_len(32);
        regions.map_init(scratch, |scratch, (region, cell)| decide(&table, &cells[*cell], region, scratch)).collect()
    };
    let windows = windows.iter().map(decided).collect();
    FileCandidates { table, windows }
}

/// Algorithm 1's pairs for a mean request of r, with the request covered.
pub(super) fn candidate_pairs(task: &Task<'_>, r: u64) -> impl Iterator<Item = StripePair> {
    let (m, n, step) = (task.groups.m(), task.groups.n(), task.step_bytes);
    let last = if m == 0 || n == 0 { 0 } else { r / (m + n) / step };
    (0..=last)
        .map(move |i| i * step)
        .filter(move |_| n > 0)
        .map(move |h| StripePair::new(h, ceil_to((r - m * h).div_ceil(n), step)))
        .filter(|pair| pair.s_bytes > pair.h_bytes)
}

fn decide<'a>(
    table: &CostTable<'_>,
    cell: &Cell,
    region: &'a RegionAccess,
    (weights, sums): &mut (Vec<f32>, Vec<f32>),
) -> Candidate<'a> {
    let pure_cost = table.region_cost(cell.pure, &region.counts);
    let mut best: Option<(Picoseconds, Row)> = None;
    for row in table.near_least(&cell.hybrid, &region.counts, weights, sums) {
        let cost = table.region_cost(row, &region.counts);
        // Candidates come with ascending h; since m h + n s only exceeds r by rounding, the larger cycle has to be looked for.
        let better = best
            .is_none_or(|(least, least_row)| cost < least || (cost == least && larger_cycle(table, row, least_row)));
        if better {
            best = Some((cost, row));
        }
    }
    let (hybrid_cost, hybrid) = best.unwrap_or((pure_cost, cell.pure));
    Candidate { access: region, hybrid: table.pair(hybrid), hybrid_cost, pure: table.pair(cell.pure), pure_cost }
}

fn larger_cycle(table: &CostTable<'_>, a: Row, b: Row) -> bool {
    table.cycle_bytes(a) > table.cycle_bytes(b)
}
