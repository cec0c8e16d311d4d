//! Which regions get hybrid servers, window by window (H2DP section 3.6), under one space for all files.
//!
//! In every window the room is given out again: accessed regions with a positive benefit in descending order of it. A region that the window
//! does not access has no benefit either way; it keeps its place while there is room after the accessed ones, and leaves otherwise. (The
//! paper does not say; sending it out at once would copy data for nothing and back again after an idle window.)

use super::cost_table::CostTable;
use super::{FileChoice, Task, file_request_bytes, region_bytes, region_count};
use crate::capacity::Ledger;
use crate::moves::move_seconds;
use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use stripewise_layout::{Layout, RegionIndex};
use stripewise_model::{Concurrency, Picoseconds, StripePair};
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

/// The candidates of all files when a tier's servers are there ([`Task::tiers`]).
pub(crate) struct Tier<'a> {
    pub(crate) task: &'a Task<'a>,
    pub(crate) files: Vec<FileCandidates<'a>>,
}

/// A pair on the servers of a tier, by number; one without SServers is the same in all, and has tier 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct TierPair {
    tier: usize,
    pair: StripePair,
}

/// Layouts of one file so far.
struct FileState {
    numbers: HashMap<TierPair, u32>,
    pairs: Vec<TierPair>,
    layouts: Vec<Layout>,
    /// Layout of every region in the window at hand.
    current: Vec<u32>,
    windows: Vec<Vec<u32>>,
    fallback: u32,
}

impl FileState {
    fn new(tiers: &[Tier<'_>], regions: u32, fallback: StripePair) -> Self {
        let mut state = Self {
            numbers: HashMap::new(),
            pairs: Vec::new(),
            layouts: Vec::new(),
            current: Vec::new(),
            windows: Vec::new(),
            fallback: 0,
        };
        state.fallback = state.number(tiers, TierPair { tier: 0, pair: fallback });
        state.current = vec![state.fallback; regions as usize];
        state
    }

    fn number(&mut self, tiers: &[Tier<'_>], pair: TierPair) -> u32 {
        *self.numbers.entry(pair).or_insert_with(|| {
            self.pairs.push(pair);
            self.layouts.push(tiers[pair.tier].task.groups.pair_layout(pair.pair));
            self.layouts.len() as u32 - 1
        })
    }
}

/// A pair for a region with what it costs, the move to it included where that is asked for.
#[derive(Clone, Copy)]
struct Choice {
    pair: TierPair,
    cost: Picoseconds,
}

/// A region that asks for hybrid servers.
struct Bid {
    rank: Rank,
    file: usize,
    region: RegionIndex,
    pair: TierPair,
    /// Position among the file's candidates of the window.
    candidate: usize,
    /// Cost on HServers only.
    out: Picoseconds,
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

/// Layouts of all files in all windows; candidates are in the order of the task's files. At least one tier.
pub(crate) fn select_windows(tiers: &[Tier<'_>]) -> Vec<FileChoice> {
    let task = tiers[0].task;
    let files = task.request.files.iter();
    let mut states: Vec<FileState> = files
        .map(|file| {
            FileState::new(tiers, region_count(file), fallback_pair(task, file_request_bytes(file, task.step_bytes)))
        })
        .collect();
    for window in 0..task.windows.len().max(1) {
        select(tiers, window, &mut states);
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
    task.pure_pair(request_bytes)
}

fn select(tiers: &[Tier<'_>], window: usize, states: &mut [FileState]) {
    let task = tiers[0].task;
    let mut ledger = Ledger::new(task.capacity);
    let previous: Vec<Vec<u32>> = states.iter().map(|state| state.current.clone()).collect();
    let mut idle: Vec<Vec<bool>> = previous.iter().map(|regions| vec![true; regions.len()]).collect();
    let mut bids = Vec::new();
    for (file, (of_file, state)) in tiers[0].files.iter().zip(&mut *states).enumerate() {
        for (number, candidate) in of_file.windows.get(window).map_or(&[][..], Vec::as_slice).iter().enumerate() {
            let region = candidate.access.region;
            idle[file][region.0 as usize] = false;
            let before = state.current[region.0 as usize];
            let (out, inside) = choices(tiers, 0, state, before, file, candidate, window);
            state.current[region.0 as usize] = state.number(tiers, out.pair);
            if task.groups.is_hybrid() && inside.cost < out.cost {
                bids.push(bid(tiers, state, file, number, region, inside, out.cost));
            }
        }
    }
    bids.sort_by_key(|bid| (Reverse(bid.rank), bid.file, bid.region));
    for bid in bids {
        let before = previous[bid.file][bid.region.0 as usize];
        place(tiers, window, before, &bid, &mut states[bid.file], &mut ledger);
    }
    if task.groups.is_hybrid() {
        for (file, state) in states.iter_mut().enumerate() {
            keep_idle(task, file, state, &previous[file], &idle[file], &mut ledger);
        }
    }
}

fn bid(
    tiers: &[Tier<'_>],
    state: &mut FileState,
    file: usize,
    candidate: usize,
    region: RegionIndex,
    inside: Choice,
    out: Picoseconds,
) -> Bid {
    let task = tiers[0].task;
    let bytes = if task.request.options.benefit_per_ssd_byte {
        let number = state.number(tiers, inside.pair);
        ssd_bytes(task, &state.layouts[number as usize], file, region).max(1)
    } else {
        1
    };
    Bid { rank: Rank { benefit_ps: out.0 - inside.cost.0, bytes }, file, region, pair: inside.pair, candidate, out }
}

/// Gives a region the first tier that has space and still gains, beginning with the pair it bids for.
fn place(tiers: &[Tier<'_>], window: usize, before: u32, bid: &Bid, state: &mut FileState, ledger: &mut Ledger<'_>) {
    let task = tiers[0].task;
    let bytes = region_bytes(&task.request.files[bid.file], bid.region);
    for tier in 0..tiers.len() {
        let pair = if tier == 0 {
            bid.pair
        } else {
            let candidate = &tiers[tier].files[bid.file].windows[window][bid.candidate];
            let (_, inside) = choices(tiers, tier, state, before, bid.file, candidate, window);
            if inside.cost >= bid.out {
                continue;
            }
            inside.pair
        };
        let number = state.number(tiers, pair);
        if ledger.book(&state.layouts[number as usize], bytes, &task.groups.ssd) {
            state.current[bid.region.0 as usize] = number;
            return;
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

/// The best that a region can do outside and inside hybrid servers of a tier, `before` being its layout so far. In the faithful form these
/// are table 3 and algorithm 1; with the cost of moves subtracted, staying as it is counts too, and each change costs p times its move
/// (request costs contain the factor p).
fn choices(
    tiers: &[Tier<'_>],
    tier: usize,
    state: &FileState,
    before: u32,
    file: usize,
    candidate: &Candidate<'_>,
    window: usize,
) -> (Choice, Choice) {
    let task = tiers[tier].task;
    let mut out = Choice { pair: TierPair { tier: 0, pair: candidate.pure }, cost: candidate.pure_cost };
    let mut inside = Choice { pair: TierPair { tier, pair: candidate.hybrid }, cost: candidate.hybrid_cost };
    // The first window's placement is made before the run.
    if window == 0 || !task.request.options.subtract_move_cost {
        return (out, inside);
    }
    let region = candidate.access.region;
    let (stays_pair, from) = (state.pairs[before as usize], &state.layouts[before as usize]);
    let concurrency: Concurrency = task.windows[window];
    let bytes = region_bytes(&task.request.files[file], region);
    for choice in [&mut out, &mut inside] {
        if choice.pair != stays_pair {
            let to = tiers[choice.pair.tier].task.groups.pair_layout(choice.pair.pair);
            let seconds = move_seconds(task.request.profile, from, &to, bytes);
            let move_ps = Picoseconds::from_seconds(seconds * concurrency.factors().0).0;
            choice.cost.0 = choice.cost.0.saturating_add(move_ps);
        }
    }
    let table = &tiers[stays_pair.tier].files[file].table;
    let cost = table.any_region_cost(stays_pair.pair, concurrency, &candidate.access.counts);
    let stays = Choice { pair: stays_pair, cost };
    let side = if task.groups.uses_ssd(from) { &mut inside } else { &mut out };
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
