//! `opt`: the layouts of all regions together that serve the run's requests in the least time.
//!
//! **Paper.** None. The operational laws of closed queueing networks, with linear programming and its dual.
//!
//! **Assumptions.** p processes have one request each in flight. A server is a device and a link in a row, both serving in order of arrival. The
//! next run accesses what this one did.
//!
//! **Algorithm.** The papers cost one request and multiply by p; but with many in flight the time of a run is that of its busiest station, or the
//! mean latency over p where that is longer. So minimise the largest row of: seconds of work on the device and on the link of each kind of
//! server, and latency over p; over one shape for every region (`shapes.rs`), under every server's room. That is a linear program but for the
//! whole regions. Its Lagrangian dual gives the bound and the prices (`dual.rs`), its fractional optimum is rounded (`rounding.rs`), and since it
//! is the optimum of infinitely many processes, it is solved under several aims whose plans, and those of all other policies, are ranked by a sampled
//! closed loop (`closed_loop.rs`, `search.rs`). Where ranks march through a file together (`Company::same_region`), that share of the time is
//! charged by the busiest station of each region by itself.
//!
//! **Complexity.** O(regions x options x kinds) for each response to prices; some tens of responses for each of some tens of aims.

mod answers;
mod block;
mod budget;
mod closed_loop;
mod dealing;
mod demand;
mod dual;
mod groups;
mod heads;
mod kinds;
pub mod online;
mod paths;
mod periods;
mod placing;
mod polishing;
mod program;
mod recipes;
mod rounding;
mod scene;
mod search;
mod shapes;
mod side_by_side;
#[cfg(test)]
mod tests;
mod turning;

use super::{About, FileChoice, Optimum, PolicyName, ServerPrices, Source, Task};
use block::Block;
use budget::Budget;
use paths::Prices;
use program::Program;
use std::ops::Range;

pub(crate) struct Opt;

/// Windows that are planned together. More are planned in blocks of so many, each from where the one before left the data.
const BLOCK_WINDOWS: usize = 6;

/// Of all draws: which plan is best does not depend on luck, so `--seed` has no part in it.
const SEED: u64 = 1;

impl super::Policy for Opt {
    fn states_bound(&self) -> bool {
        true
    }

    fn about(&self) -> About {
        About {
            section: "opt",
            source: Source::Own,
            stripes_differ_by: "region, window, class of server",
            ssd_regions: "all regions together",
            moves_data: "yes",
        }
    }

    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        optimize(task).0
    }

    fn choose_with_optimum(&self, task: &Task<'_>) -> (Vec<FileChoice>, Option<Optimum>) {
        let (choices, optimum) = optimize(task);
        (choices, Some(optimum))
    }

    fn weighs_moves(&self) -> bool {
        true
    }
}

/// The layouts, and how far they are from what is possible.
fn optimize(task: &Task<'_>) -> (Vec<FileChoice>, Optimum) {
    let budget = Budget::new(task.request.options.time_limit_s);
    if let Some(online) = task.request.options.online {
        return online::plan_windows(task, online, &budget);
    }
    let others = other_policies(task);
    let windows = task.windows.len().max(1);
    let mut choices: Option<Vec<FileChoice>> = None;
    let mut optimum = Optimum {
        bound_s: 0.0,
        value_s: 0.0,
        gap: 0.0,
        time_limited: false,
        prices: vec![ServerPrices { room_s_per_gib: 0.0, device: 0.0, link: 0.0 }; task.groups.count],
    };
    // Where moves cost nothing, no window depends on another.
    let free_moves = task.request.options.free_moves;
    let windows_of_block = if free_moves { 1 } else { BLOCK_WINDOWS };
    for first in (0..windows).step_by(windows_of_block) {
        let block = first..(first + windows_of_block).min(windows);
        let of_block = others.iter().map(|choices| extract_windows(choices, &block)).collect();
        let before = choices.as_deref().filter(|_| !free_moves);
        let planned = plan_block(task, block, of_block, before, &budget);
        optimum.bound_s += planned.bound_s;
        optimum.value_s += planned.time_s;
        optimum.time_limited |= planned.time_limited;
        for (sum, one) in optimum.prices.iter_mut().zip(planned.prices) {
            sum.room_s_per_gib += one.room_s_per_gib;
            sum.device += one.device / windows as f64;
            sum.link += one.link / windows as f64;
        }
        choices = Some(match choices {
            Some(known) => joined(known, planned.choices),
            None => planned.choices,
        });
    }
    // A sample can be luckier than the bound.
    optimum.value_s = optimum.value_s.max(optimum.bound_s);
    optimum.gap = if optimum.bound_s > 0.0 { optimum.value_s / optimum.bound_s - 1.0 } else { 0.0 };
    (choices.expect("there is at least one window"), optimum)
}

/// The plans of all other policies, with the regions and stripes that they draw from [`SEED`].
fn other_policies(task: &Task<'_>) -> Vec<Vec<FileChoice>> {
    let mut request = task.request.clone();
    request.options.seed = SEED;
    let task = Task { request: &request, ..task.clone() };
    let others = PolicyName::ALL.into_iter().filter(|policy| *policy != PolicyName::Opt);
    others.map(|policy| task.choose(policy)).collect()
}

/// What is planned for some windows.
struct Planned {
    choices: Vec<FileChoice>,
    time_s: f64,
    bound_s: f64,
    /// Row prices summed over the block's periods' windows.
    prices: Vec<ServerPrices>,
    time_limited: bool,
}

/// Plans some windows together. `before` is where the data is then, if that is not free to choose.
fn plan_block(
    task: &Task<'_>,
    windows: Range<usize>,
    others: Vec<Vec<FileChoice>>,
    before: Option<&[FileChoice]>,
    budget: &Budget,
) -> Planned {
    let block = Block::new(task, windows.clone(), &others, before, None);
    let mut known = others.clone();
    if !block.program().has_moves() {
        known.extend(recipes::best(&block, budget));
    }
    let mut found = search::search(&block, known, budget);
    let mut prices = server_prices(block.program(), &found.prices, task.groups.count);
    // How many streams meet on a disk is known only now: plan again with that.
    if block.has_streams() && !budget.is_spent() {
        let presence = block.presence(&found.best.choices);
        let mut others = others.clone();
        others.push(found.best.choices.clone());
        let again = Block::new(task, windows.clone(), &others, before, Some(&presence));
        // The best is no worse than the others, whose times do not depend on what was known of the streams.
        let second = search::search(&again, vec![found.best.choices.clone()], budget);
        // Whichever the streams, the smaller bound is one.
        let bound_s = found.bound_s.min(second.bound_s);
        if second.best.time_s <= found.best.time_s {
            prices = server_prices(again.program(), &second.prices, task.groups.count);
            found = second;
        }
        found.bound_s = bound_s;
    }
    // Where the data was before is a choice of ours: the bound of the run does not count it.
    if before.is_some() {
        let free = Block::new(task, windows, &others, None, None);
        let program = free.program();
        let relaxed = dual::relax(program, &dual::Aim::plain(program), dual::reference_s(program), None, budget);
        found.bound_s = found.bound_s.min(relaxed.bound_s);
    }
    if let Some(bound_s) = block.bound_without_company_s(budget) {
        found.bound_s = found.bound_s.min(bound_s);
    }
    let polished = polishing::polish(&block, found.best, budget);
    let time_limited = found.time_limited || budget.is_spent();
    Planned { choices: polished.choices, time_s: polished.time_s, bound_s: found.bound_s, prices, time_limited }
}

/// The part of choices for some windows; a choice without moves is the same in all.
fn extract_windows(choices: &[FileChoice], windows: &Range<usize>) -> Vec<FileChoice> {
    let of_window = |choice: &FileChoice, window: usize| choice.windows[window.min(choice.windows.len() - 1)].clone();
    let extract = |choice: &FileChoice| FileChoice {
        layouts: choice.layouts.clone(),
        windows: windows.clone().map(|window| of_window(choice, window)).collect(),
        fallback: choice.fallback,
    };
    choices.iter().map(extract).collect()
}

/// The windows of `next` behind those of `known`.
fn joined(mut known: Vec<FileChoice>, next: Vec<FileChoice>) -> Vec<FileChoice> {
    for (known, next) in known.iter_mut().zip(next) {
        let numbers: Vec<u32> = next
            .layouts
            .into_iter()
            .map(|layout| match known.layouts.iter().position(|other| *other == layout) {
                Some(number) => number as u32,
                None => {
                    known.layouts.push(layout);
                    known.layouts.len() as u32 - 1
                }
            })
            .collect();
        let renumbered =
            next.windows.into_iter().map(|regions| regions.into_iter().map(|r| numbers[r as usize]).collect());
        known.windows.extend(renumbered);
    }
    known
}

/// The prices of kinds, for each of their servers. A kind's row prices are for a second on all of its servers.
fn server_prices(program: &Program, prices: &Prices, servers: usize) -> Vec<ServerPrices> {
    let mut of_servers = vec![ServerPrices { room_s_per_gib: 0.0, device: 0.0, link: 0.0 }; servers];
    let kinds = program.kinds.len();
    for (number, kind) in program.kinds.iter().enumerate() {
        let count = kind.servers.len() as f64;
        let capacity: f64 = prices.capacity.iter().skip(number).step_by(kinds).sum();
        // Periods of a window share it.
        let row = |row: usize| -> f64 {
            let of_period = |period: usize| program.period_share(period) * prices.rows[period * program.rows + row];
            (0..program.periods()).map(of_period).sum()
        };
        for server in &kind.servers {
            of_servers[*server] = ServerPrices {
                room_s_per_gib: capacity / count * f64::from(1 << 30),
                device: row(2 * number) / count,
                link: row(2 * number + 1) / count,
            };
        }
    }
    of_servers
}
