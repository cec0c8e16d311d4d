//! Which regions get hybrid servers, window by window (H2DP section 3.6), under one room for all files.
//!
//! In every window the room is given out anew: accessed regions with a positive benefit in descending order of it. A region that the window
//! does not access has no benefit either way; it keeps its place while there is room after the accessed ones, and leaves otherwise. (The
//! paper does not say; sending it out at once would copy data for nothing and back again after an idle window.)

use super::cost_table::CostTable;
use super::{FileChoice, Task, file_request_bytes, region_bytes, region_count};
use crate::moves::move_seconds;
use crate::room::Ledger;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use stripewise_layout::{Layout, RegionIndex};
use stripewise_model::{Picoseconds, StripePair};
use stripewise_trace::RegionAccess;

/// What algorithm 1 and table 3 say of one accessed region in one window.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) access: &'a RegionAccess,
    pub(crate) hybrid: StripePair,
    pub(crate) hybrid_cost: Picoseconds,
    pub(crate) pure: StripePair,
    pub(crate) pure_cost: Picoseconds,
}

/// The candidates of one file's windows, and the table they were costed with.
pub(crate) struct FileCandidates<'a> {
    pub(crate) table: CostTable<'a>,
    pub(crate) windows: Vec<Vec<Candidate<'a>>>,
}

/// Layouts of one file so far.
struct FileState {
    numbers: HashMap<StripePair, u32>,
    pairs: Vec<StripePair>,
    layouts: Vec<Layout>,
    /// Layout of every region in the window at hand.
    current: Vec<u32>,
    windows: Vec<Vec<u32>>,
    fallback: u32,
}

impl FileState {
    fn new(task: &Task<'_>, regions: u32, fallback: StripePair) -> Self {
        let mut state = Self {
            numbers: HashMap::new(),
            pairs: Vec::new(),
            layouts: Vec::new(),
            current: Vec::new(),
            windows: Vec::new(),
            fallback: 0,
        };
        state.fallback = state.number(task, fallback);
        state.current = vec![state.fallback; regions as usize];
        state
    }

    fn number(&mut self, task: &Task<'_>, pair: StripePair) -> u32 {
        *self.numbers.entry(pair).or_insert_with(|| {
            self.pairs.push(pair);
            self.layouts.push(task.groups.pair_layout(pair));
            self.layouts.len() as u32 - 1
        })
    }
}

/// A pair for a region with what it costs, the move to it included where that is asked for.
#[derive(Clone, Copy)]
struct Choice {
    pair: StripePair,
    cost: Picoseconds,
}

/// A region that asks for hybrid servers.
struct Bid {
    rank: Rank,
    file: usize,
    region: RegionIndex,
    pair: StripePair,
}

/// benefit / bytes, compared without division; `bytes` is 1 unless the benefit is taken per byte of room.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Rank {
    benefit_ps: u128,
    bytes: u64,
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let cross = |a: &Rank, b: &Rank| a.benefit_ps.saturating_mul(u128::from(b.bytes));
        cross(self, other).cmp(&cross(other, self))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Layouts of all files in all windows; candidates are in the order of the task's files.
pub(crate) fn select_windows(task: &Task<'_>, candidates: &[FileCandidates<'_>]) -> Vec<FileChoice> {
    let files = task.request.files.iter();
    let mut states: Vec<FileState> = files
        .map(|file| {
            FileState::new(task, region_count(file), fallback_pair(task, file_request_bytes(file, task.step_bytes)))
        })
        .collect();
    let windows = candidates.iter().map(|file| file.windows.len()).max().unwrap_or(0).max(1);
    for window in 0..windows {
        select(task, candidates, window, &mut states);
        for state in &mut states {
            state.windows.push(state.current.clone());
        }
    }
    states
        .into_iter()
        .map(|state| FileChoice { layouts: state.layouts, windows: state.windows, fallback: state.fallback })
        .collect()
}

/// HServers only, striped for the file's mean request.
pub(crate) fn fallback_pair(task: &Task<'_>, request_bytes: u64) -> StripePair {
    task.groups.pure_pair(task.groups.pure_stripe_bytes(request_bytes, task.step_bytes))
}

fn select(task: &Task<'_>, candidates: &[FileCandidates<'_>], window: usize, states: &mut [FileState]) {
    let mut ledger = Ledger::new(task.room);
    let previous: Vec<Vec<u32>> = states.iter().map(|state| state.current.clone()).collect();
    let mut idle: Vec<Vec<bool>> = previous.iter().map(|regions| vec![true; regions.len()]).collect();
    let mut bids = Vec::new();
    for (file, (of_file, state)) in candidates.iter().zip(&mut *states).enumerate() {
        for candidate in of_file.windows.get(window).map_or(&[][..], Vec::as_slice) {
            let region = candidate.access.region;
            idle[file][region.0 as usize] = false;
            let (out, inside) = choices(task, &of_file.table, state, file, candidate, window);
            state.current[region.0 as usize] = state.number(task, out.pair);
            if task.groups.is_hybrid() && inside.cost < out.cost {
                let number = state.number(task, inside.pair);
                let bytes = ssd_bytes(task, &state.layouts[number as usize], file, region);
                let rank = Rank {
                    benefit_ps: out.cost.0 - inside.cost.0,
                    bytes: if task.request.options.benefit_per_ssd_byte { bytes.max(1) } else { 1 },
                };
                bids.push(Bid { rank, file, region, pair: inside.pair });
            }
        }
    }
    bids.sort_by_key(|bid| (Reverse(bid.rank), bid.file, bid.region));
    for bid in bids {
        let number = states[bid.file].number(task, bid.pair);
        let state = &mut states[bid.file];
        let bytes = region_bytes(&task.request.files[bid.file], bid.region);
        if ledger.book(&state.layouts[number as usize], bytes, &task.groups.ssd) {
            state.current[bid.region.0 as usize] = number;
        }
    }
    if task.groups.is_hybrid() {
        for (file, state) in states.iter_mut().enumerate() {
            keep_idle(task, file, state, &previous[file], &idle[file], &mut ledger);
        }
    }
}

/// Regions that the window does not access stay on hybrid servers while there is room.
fn keep_idle(
    task: &Task<'_>,
    file: usize,
    state: &mut FileState,
    previous: &[u32],
    idle: &[bool],
    ledger: &mut Ledger<'_>,
) {
    for (index, number) in previous.iter().enumerate().filter(|(index, _)| idle[*index]) {
        let layout = &state.layouts[*number as usize];
        let bytes = region_bytes(&task.request.files[file], RegionIndex(index as u32));
        if task.groups.uses_ssd(layout) && !ledger.book(layout, bytes, &task.groups.ssd) {
            state.current[index] = state.fallback;
        }
    }
}

/// The best that a region can do outside and inside hybrid servers. In the faithful form these are table 3 and algorithm 1; with the cost
/// of moves subtracted, staying as it is counts too, and each change costs p times its move (request costs contain the factor p).
fn choices(
    task: &Task<'_>,
    table: &CostTable<'_>,
    state: &FileState,
    file: usize,
    candidate: &Candidate<'_>,
    window: usize,
) -> (Choice, Choice) {
    let mut out = Choice { pair: candidate.pure, cost: candidate.pure_cost };
    let mut inside = Choice { pair: candidate.hybrid, cost: candidate.hybrid_cost };
    // The first window's placement is made before the run.
    if window == 0 || !task.request.options.subtract_move_cost {
        return (out, inside);
    }
    let region = candidate.access.region;
    let previous = state.current[region.0 as usize] as usize;
    let previous_pair = state.pairs[previous];
    let bytes = region_bytes(&task.request.files[file], region);
    for choice in [&mut out, &mut inside] {
        if choice.pair != previous_pair {
            let layout = task.groups.pair_layout(choice.pair);
            let seconds = move_seconds(task.request.profile, &state.layouts[previous], &layout, bytes);
            choice.cost.0 += Picoseconds::from_seconds(seconds * task.concurrency.factors().0).0;
        }
    }
    let stays = Choice { pair: previous_pair, cost: table.known_region_cost(previous_pair, &candidate.access.counts) };
    let side = if task.groups.uses_ssd(&state.layouts[previous]) { &mut inside } else { &mut out };
    if stays.cost <= side.cost {
        *side = stays;
    }
    (out, inside)
}

fn ssd_bytes(task: &Task<'_>, layout: &Layout, file: usize, region: RegionIndex) -> u64 {
    let bytes = region_bytes(&task.request.files[file], region);
    let of_ssd = layout.stripes().iter().enumerate().filter(|(_, stripe)| task.groups.ssd.contains(&stripe.server));
    of_ssd.map(|(turn, _)| layout.view().object_bytes(turn, bytes)).sum()
}
