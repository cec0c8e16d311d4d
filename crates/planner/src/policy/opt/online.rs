//! `opt --online`: every window planned from the windows before it, with the data where it is.
//!
//! The window to come is guessed as the mean of those seen, weighted by powers of the decay. Each window is compared with the guess for it: by
//! the part of its requests that the guess had in the right regions, beyond what two samples of one distribution differ by anyway. Where less
//! than three quarters are right, the program has turned to other data: all before is forgotten, and how long it held is remembered. Less right than
//! usual makes what was before count less. What the guess usually has wrong is taken to fall on all regions seen, evenly, so that
//! where the past says nothing of the future nothing is moved for it.
//!
//! A guess is worth moves as long as it holds: for what the mean life of earlier hot sets leaves of this one, and with a part r right for at
//! most 1 / (1 - r) windows, as if each window kept to the last one with probability r. Of the moves to what is best for so long, the hottest are
//! begun that the next window has time for (`stages.rs`); the rest waits for the next plan. Where nothing was worth a move, nothing is planned
//! again until the guess is another.
//!
//! Before anything is known, stripes are 1 MiB: most requests then meet one server. If the SSDs have space for their part of all regions, these are striped
//! over all servers. Otherwise as many regions as fit, drawn at random, lie on SSDs as a whole, so that a region that turns out to be cold
//! frees space for a hot one with one move; parts of the same bytes on the SSDs would be in the way of several.

mod history;
mod stages;

pub use history::{Guess, History};

use super::super::fill::{FileLayouts, RegionLayouts, fill_at_random};
use super::super::{FileChoice, Optimum, PolicyName, ServerPrices, Task, region_bytes, region_count};
use super::budget::Budget;
use super::plan_block;
use super::turning::turned;
use crate::moves::{Move, moves_between};
use crate::request::{Online, PlanRequest, RequestError};
use stripewise_layout::{Layout, Placement};
use stripewise_model::StripePair;
use stripewise_trace::FileAccess;

/// Stripe of regions of which nothing is known.
const BLIND_STRIPE_BYTES: u64 = 1 << 20;

/// Share of the time of the windows to come that moves must save at least, all together, to be made while programs run: less may be chance.
pub const MIN_GAIN: f64 = 0.02;

/// What [`online_step`] says of one file.
#[derive(Clone, PartialEq, Debug)]
pub struct OnlineWindow {
    /// Layouts at the end of the window; where there was no time for a move, the one that the
    /// region has now.
    pub placement: Placement,
    /// From where the data is, to be done in this order.
    pub moves: Vec<Move>,
}

/// How the window to come is planned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OnlineStep {
    /// Who says where regions should lie.
    pub policy: PolicyName,
    /// How many windows the accesses stand for, as [`Guess`] has it.
    pub windows: f64,
    /// Seconds of a window, if they are known: programs also do other things than wait for their files, and data can be moved meanwhile. Otherwise a
    /// window is taken to last as long as its requests.
    pub length_s: Option<f64>,
}

/// As [`online_step_by`], by `opt` and whatever the gain.
///
/// # Errors
///
/// Those of [`PlanRequest::check`].
pub fn online_step(
    request: &PlanRequest<'_>,
    windows: f64,
    now: &[Placement],
) -> Result<Vec<OnlineWindow>, RequestError> {
    request.check()?;
    let capacity = request.capacity();
    let task = Task::new(request, &capacity);
    let before = choices_of(request, now);
    let choices = step(&task, windows, &before, &Budget::new(request.options.time_limit_s));
    Ok(windows_of(&task, &before, &choices))
}

/// The placement at the end of the window to come, from the accesses that are expected of it and of those after it (`request.files`, one window each, for
/// as many windows as `how` says) and from where each file's data is now. The moves are those that the window has time for.
/// Options are those of the request; other policies' plans are not looked at, so a step is fast.
///
/// `opt` weighs the moves itself. What any other policy chooses, which knows nothing of moves, is a proposal: of all its moves, or of the hottest half, quarter
/// and so on, those are taken with which the accesses and the moves together take the least time. Nothing is moved that saves less than
/// [`MIN_GAIN`] of the time.
///
/// # Errors
///
/// Those of [`PlanRequest::check`].
pub fn online_step_by(
    request: &PlanRequest<'_>,
    how: &OnlineStep,
    now: &[Placement],
) -> Result<Vec<OnlineWindow>, RequestError> {
    request.check()?;
    let capacity = request.capacity();
    let task = Task::new(request, &capacity);
    let before = choices_of(request, now);
    let budget = Budget::new(request.options.time_limit_s);
    let staying = super::extract_windows(&before, &(usize::MAX - 1..usize::MAX));
    let weighs_moves = how.policy.policy().weighs_moves();
    let (proposed, others) = if weighs_moves {
        (plan_block(&task, 0..1, vec![staying.clone()], Some(&before), &budget).choices, Vec::new())
    } else {
        let proposed = super::extract_windows(&task.choose(how.policy), &(0..1));
        (proposed.clone(), vec![proposed])
    };
    let block = super::block::Block::new(&task, 0..1, &others, Some(&before), None);
    let window = |time_s: f64| {
        let of_requests = stages::Window::of(&task, time_s, how.windows);
        stages::Window { length_s: of_requests.length_s.max(how.length_s.unwrap_or(0.0)), ..of_requests }
    };
    let stay_s = block.time_s(&staying);
    let (mut best, mut best_s) = (staying.clone(), stay_s * (1.0 - MIN_GAIN));
    let mut most = usize::MAX;
    loop {
        let staged = stages::stage_some(&task, &staying, proposed.clone(), window(stay_s), most);
        let moves = moved(&staying, &staged);
        if moves == 0 {
            break;
        }
        let time_s = block.time_s(&staged);
        if time_s < best_s {
            (best, best_s) = (staged, time_s);
        }
        if weighs_moves || moves == 1 || budget.is_spent() {
            break;
        }
        most = moves / 2;
    }
    Ok(windows_of(&task, &before, &best))
}

fn choices_of(request: &PlanRequest<'_>, now: &[Placement]) -> Vec<FileChoice> {
    request.files.iter().zip(now).map(|(file, placement)| choice_of(placement, region_count(file))).collect()
}

fn windows_of(task: &Task<'_>, before: &[FileChoice], choices: &[FileChoice]) -> Vec<OnlineWindow> {
    let windows = task.request.files.iter().zip(before).zip(choices).map(|((file, before), after)| {
        let joined = super::joined(vec![before.clone()], vec![after.clone()]).remove(0);
        let [.., from, to] = joined.windows.as_slice() else { unreachable!("two windows were joined") };
        OnlineWindow {
            placement: placement(file, after, &after.windows[0]),
            moves: moves_between(&joined.layouts, from, to, &task.groups.ssd, |region| region_bytes(file, region)),
        }
    });
    windows.collect()
}

/// Regions that lie differently.
fn moved(from: &[FileChoice], to: &[FileChoice]) -> usize {
    let of_file = |(from, to): (&FileChoice, &FileChoice)| {
        let layouts = from.windows[0].iter().zip(&to.windows[0]);
        layouts.filter(|(a, b)| from.layouts[**a as usize] != to.layouts[**b as usize]).count()
    };
    from.iter().zip(to).map(of_file).sum()
}

/// The choices for the window to come, of `windows` that the task's one window stands for.
fn step(task: &Task<'_>, windows: f64, before: &[FileChoice], budget: &Budget) -> Vec<FileChoice> {
    // Staying as it is is a candidate.
    let now = super::extract_windows(before, &(usize::MAX - 1..usize::MAX));
    let planned = plan_block(task, 0..1, vec![now.clone()], Some(before), budget);
    stages::stage(task, &now, planned.choices, stages::Window::of(task, planned.time_s, windows))
}

fn choice_of(placement: &Placement, regions: u32) -> FileChoice {
    let mut numbers: Vec<u32> =
        placement.runs.iter().flat_map(|run| std::iter::repeat_n(run.layout, run.regions as usize)).collect();
    numbers.resize(regions as usize, placement.beyond);
    FileChoice { layouts: placement.layouts.clone(), windows: vec![numbers], fallback: placement.fallback }
}

fn placement(file: &FileAccess, choice: &FileChoice, regions: &[u32]) -> Placement {
    let layout = |number: u32| -> Layout { choice.layouts[number as usize].clone() };
    let beyond = regions.last().copied().unwrap_or(choice.fallback);
    Placement::from_regions(
        file.region_size,
        regions.iter().map(|number| layout(*number)),
        layout(beyond),
        layout(choice.fallback),
    )
}

/// The placement before anything is known.
fn blind(task: &Task<'_>) -> Vec<FileChoice> {
    let stripe = BLIND_STRIPE_BYTES.min(task.request.cluster.region_size.0).max(task.step_bytes);
    let groups = &task.groups;
    let bytes = task.request.files.iter().fold(0u64, |sum, file| sum.saturating_add(file.size_bytes));
    let share = bytes / (groups.m() + groups.n()).max(1);
    let everywhere =
        groups.ssd.iter().all(|id| task.capacity.bytes(usize::from(id.0)).is_none_or(|capacity| capacity >= share));
    let h = if everywhere || !groups.is_hybrid() { stripe } else { 0 };
    let tiers = task.tiers();
    let layouts = task.request.files.iter().map(|file| {
        let mut all = FileLayouts { layouts: Vec::new(), hybrid: Vec::new(), pure: RegionLayouts::Same(0) };
        let regions = region_count(file);
        all.pure = in_turns(&mut all.layouts, &groups.pure_layout(stripe), task.request.cluster.region_size.0, regions);
        for tier in &tiers {
            let hybrid = tier.groups.pair_layout(StripePair::new(h, stripe));
            let of_tier = in_turns(&mut all.layouts, &hybrid, task.request.cluster.region_size.0, regions);
            all.hybrid.push(of_tier);
        }
        all
    });
    fill_at_random(task, layouts.collect())
}

/// The layout for each region, begun where the last cycle of the region before it ends: so all servers get as much.
fn in_turns(layouts: &mut Vec<Layout>, layout: &Layout, region_bytes: u64, regions: u32) -> RegionLayouts {
    let (first, stripes) = (layouts.len() as u32, layout.stripes());
    let count = stripes.len() as u64;
    let step = region_bytes.div_ceil(u64::from(stripes[0].size_bytes)) % count;
    layouts.extend((0..stripes.len()).map(|turn| turned(layout, turn)));
    RegionLayouts::Each((0..regions).map(|region| first + (u64::from(region) * step % count) as u32).collect())
}

/// The windows of a recorded run planned as if it went on: each from those before it. The bound is not known, so it is 0.
pub(crate) fn plan_windows(task: &Task<'_>, online: Online, budget: &Budget) -> (Vec<FileChoice>, Optimum) {
    let files = task.request.files;
    let mut history = History::new(online, files.len());
    let mut choices = blind(task);
    // The guess for which nothing was worth a move: the same again need not be planned again.
    let mut settled: Option<Guess> = None;
    for window in 1..task.windows.len() {
        history.see(files, window - 1);
        let guess = history.guess(files).filter(|_| !budget.is_spent());
        let next = match guess {
            Some(guess) if settled.as_ref().is_none_or(|known| !known.is_like(&guess)) => {
                let request = PlanRequest { files: &guess.files, ..task.request.clone() };
                let guessed = Task { request: &request, windows: vec![task.concurrency], ..task.clone() };
                let next = step(&guessed, guess.windows, &choices, budget);
                settled = is_still(&choices, &next).then_some(guess);
                next
            }
            _ => super::extract_windows(&choices, &(window - 1..window)),
        };
        let next = padded(next, &choices);
        choices = super::joined(choices, next);
    }
    let value_s = value_s(task, &choices);
    let none = ServerPrices { room_s_per_gib: 0.0, device: 0.0, link: 0.0 };
    let prices = vec![none; task.groups.count];
    (choices, Optimum { bound_s: 0.0, value_s, gap: 0.0, time_limited: budget.is_spent(), prices })
}

/// Whether nothing moves from the last window of `known` to `next`.
fn is_still(known: &[FileChoice], next: &[FileChoice]) -> bool {
    known.iter().zip(next).all(|(known, next)| {
        let before = known.windows.last().expect("the blind window at least");
        let layouts = before.iter().zip(&next.windows[0]);
        layouts.into_iter().all(|(a, b)| known.layouts[*a as usize] == next.layouts[*b as usize])
    })
}

/// A guess knows the regions of the past only; those that the whole run has besides stay where they are.
fn padded(next: Vec<FileChoice>, known: &[FileChoice]) -> Vec<FileChoice> {
    let pad = |(mut next, known): (FileChoice, &FileChoice)| {
        let before = known.windows.last().expect("the blind window at least");
        for window in &mut next.windows {
            for number in &before[window.len().min(before.len())..] {
                let layout = &known.layouts[*number as usize];
                let found = next.layouts.iter().position(|other| other == layout);
                window.push(found.unwrap_or_else(|| {
                    next.layouts.push(layout.clone());
                    next.layouts.len() - 1
                }) as u32);
            }
        }
        next
    };
    next.into_iter().zip(known).map(pad).collect()
}

/// The sampled time of the whole run.
fn value_s(task: &Task<'_>, choices: &[FileChoice]) -> f64 {
    let mut sum_s = 0.0;
    for window in 0..task.windows.len() {
        let own = super::extract_windows(choices, &(window..window + 1));
        let before = (window > 0).then(|| super::extract_windows(choices, &(window - 1..window)));
        sum_s += super::block::Block::new(task, window..window + 1, &[], before.as_deref(), None).time_s(&own);
    }
    sum_s
}
