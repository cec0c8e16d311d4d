//! `opt --online`: every window planned from the windows before it, with the data where it is.
//!
//! The window to come is guessed as the mean of those seen, weighted by powers of the decay. Each window is compared with the guess for it: by
//! the part of its requests that the guess had in the right regions, beyond what two samples of one distribution differ by anyway. Where less
//! than [`CHANGED`] is right, the program has turned to other data: all before is forgotten, and how long it held is remembered. Less right than
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

mod stages;

use super::super::fill::{FileLayouts, RegionLayouts, fill_at_random};
use super::super::{FileChoice, Optimum, PolicyName, ServerPrices, Task, region_bytes, region_count};
use super::budget::Budget;
use super::plan_block;
use super::turning::turned;
use crate::moves::{Move, moves_between};
use crate::request::{Online, PlanRequest, RequestError};
use std::collections::HashMap;
use stripewise_layout::{Layout, Placement, RegionIndex};
use stripewise_model::StripePair;
use stripewise_trace::{AccessClass, ClassIndex, Company, FileAccess, RegionAccess, Slices, WindowAccess};

/// Stripe of regions of which nothing is known.
const BLIND_STRIPE_BYTES: u64 = 1 << 20;

/// Weight of a guess relative to the next one when it is asked how right guesses are: slower than the accesses themselves are forgotten, since
/// how often a program changes its ways tells of later changes.
const RELIANCE_DECAY: f64 = 0.8;

/// A window of which the guess had less than this right has nothing to do with those before it. When a Zipf-distributed hot set (exponent 0.8)
/// moves to other regions, about half is right by chance; when a quarter of its regions are exchanged, nearly nine tenths are.
const CHANGED: f64 = 0.75;

/// Difference of two windows that may be ascribed to chance, at most.
const MAX_CHANCE: f64 = 0.2;

/// Windows that a guess is taken to hold for, at most, and before any change was seen: moves must be dared once to learn from. Ours, from one
/// seed of one size; 12 gained as much and moved a sixth more.
const LONGEST_HORIZON: f64 = 5.0;

/// A guess that has this part of its requests where the one before had them is no news.
const ALIKE: f64 = 0.98;

/// Weight of the life of a hot set relative to that of the next one.
const LIFE_DECAY: f64 = 0.7;

/// Share of the time of the windows to come that moves must save at least, all together, to be made while programs run: less may be chance.
pub const MIN_GAIN: f64 = 0.02;

/// What one file's window looked like, region by region and class by class, as weights that sum to its mean requests.
type Weights = HashMap<(u32, AccessClass), f64>;

/// The decayed past of some files.
#[derive(Clone, Debug)]
pub struct History {
    decay: f64,
    files: Vec<Past>,
}

#[derive(Clone, Debug, Default)]
struct Past {
    weights: Weights,
    /// Sum of the windows' weights.
    windows: f64,
    processes: u32,
    processes_per_node: u32,
    same_region: f64,
    adjoining: f64,
    /// Decayed sums of what guesses had right, and of windows that were guessed.
    right: f64,
    guessed: f64,
    /// Windows since the last change.
    age: f64,
    /// Decayed sums of the windows between changes, and of their number.
    lives: f64,
    changes: f64,
}

impl History {
    /// Nothing seen yet of `files` files.
    #[must_use]
    pub fn new(online: Online, files: usize) -> Self {
        Self { decay: online.decay, files: vec![Past::default(); files] }
    }

    /// One more file, of which nothing was seen yet, behind the others.
    pub fn add_file(&mut self) {
        self.files.push(Past::default());
    }

    /// Forgets a file, by its place in the order; those behind it move up.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn remove_file(&mut self, file: usize) {
        self.files.remove(file);
    }

    /// Adds window `window` of every file, which must be as many as the history is of and always in the same order.
    pub fn see(&mut self, files: &[FileAccess], window: usize) {
        for (past, file) in self.files.iter_mut().zip(files) {
            match file.windows.get(window) {
                Some(seen) => past.see(file, seen, self.decay),
                None => past.see(file, &empty(window), self.decay),
            }
        }
    }

    /// The guess for what comes. `None` while nothing was seen.
    #[must_use]
    pub fn guess(&self, files: &[FileAccess]) -> Option<Guess> {
        let seen = self.files.iter().any(|past| !past.weights.is_empty());
        seen.then(|| Guess {
            files: self.files.iter().zip(files).map(|(past, file)| past.guess(file)).collect(),
            windows: self.horizon(),
        })
    }

    /// Windows that the guess is taken to hold for, the mean of all files by their requests.
    fn horizon(&self) -> f64 {
        let (mut sum, mut requests) = (0.0, 0.0);
        for past in self.files.iter().filter(|past| past.windows > 0.0) {
            let mut counts: Vec<f64> = past.weights.values().copied().collect();
            // Sums must not depend on the order of a hash table.
            counts.sort_by(f64::total_cmp);
            let of_file = counts.iter().sum::<f64>() / past.windows;
            sum += past.horizon() * of_file;
            requests += of_file;
        }
        if requests > 0.0 { sum / requests } else { 1.0 }
    }
}

/// What is expected of some files.
#[derive(Clone, PartialEq, Debug)]
pub struct Guess {
    /// Each with one window, which stands for all those to come that it is taken to hold for.
    pub files: Vec<FileAccess>,
    /// How many these are, 1 or more.
    pub windows: f64,
}

impl Guess {
    /// Whether it has nearly all requests where `other`, of the same files, has them: what was planned for that need not be planned again.
    #[must_use]
    pub fn is_like(&self, other: &Guess) -> bool {
        self.files.len() == other.files.len() && alike(self, other)
    }
}

fn empty(window: usize) -> WindowAccess {
    WindowAccess { start_s: window as f64, end_s: window as f64, company: Company::default(), regions: Vec::new() }
}

impl Past {
    fn see(&mut self, file: &FileAccess, window: &WindowAccess, decay: f64) {
        let now = weights(file, window);
        let total: f64 = now.values().sum();
        let mut decay = decay;
        if !self.weights.is_empty() && total > 0.0 {
            let right = overlap(&self.weights, &now);
            if right < CHANGED {
                self.change();
            } else {
                // Less right than usual: what was before counts the less.
                decay *= (right / self.reliance().max(1e-9)).min(1.0).powi(2);
                self.right = RELIANCE_DECAY * self.right + right;
                self.guessed = RELIANCE_DECAY * self.guessed + 1.0;
            }
        }
        if total > 0.0 {
            self.age += 1.0;
        }
        self.weights.retain(|_, weight| {
            *weight *= decay;
            *weight > 1e-9
        });
        for (key, count) in now {
            *self.weights.entry(key).or_insert(0.0) += count;
        }
        let before = decay * self.windows;
        self.windows = before + 1.0;
        let mean = |known: f64, seen: f64| (before * known + seen) / (before + 1.0);
        self.same_region = mean(self.same_region, window.company.same_region);
        self.adjoining = mean(self.adjoining, window.company.adjoining);
        self.processes = window.regions.iter().map(|region| region.processes).fold(self.processes, u32::max);
        let per_node = window.regions.iter().map(|region| region.processes_per_node);
        self.processes_per_node = per_node.fold(self.processes_per_node, u32::max);
    }

    /// Other data is accessed than before.
    fn change(&mut self) {
        self.lives = LIFE_DECAY * self.lives + self.age;
        self.changes = LIFE_DECAY * self.changes + 1.0;
        (self.age, self.windows) = (0.0, 0.0);
        self.weights.clear();
    }

    /// How far guesses were right while the program kept to its data, 0 to 1; 1 while there was none.
    fn reliance(&self) -> f64 {
        if self.guessed > 0.0 { (self.right / self.guessed).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// Windows for which the guess is taken to hold.
    fn horizon(&self) -> f64 {
        let left = if self.changes > 0.0 {
            // A hot set that has outlived the others may go on as long as it did.
            let life = self.lives / self.changes;
            if life > self.age { life - self.age } else { self.age }
        } else {
            LONGEST_HORIZON
        };
        left.min(1.0 / (1.0 - self.reliance())).clamp(1.0, LONGEST_HORIZON)
    }

    fn guess(&self, file: &FileAccess) -> FileAccess {
        let mut keys: Vec<(u32, AccessClass)> = self.weights.keys().copied().collect();
        keys.sort_unstable();
        let mut classes: Vec<AccessClass> = keys.iter().map(|(_, class)| *class).collect();
        classes.sort_unstable();
        classes.dedup();
        let mut regions: Vec<u32> = keys.iter().map(|(region, _)| *region).collect();
        regions.dedup();
        let even = 1.0 / regions.len().max(1) as f64;
        let mut by_class: HashMap<AccessClass, f64> = HashMap::new();
        for key in &keys {
            *by_class.entry(key.1).or_insert(0.0) += self.weights[key];
        }
        // The mean window, as many times as it is taken to come.
        let (reliance, scale) = (self.reliance(), self.horizon() / self.windows.max(1e-9));
        let count = |region: u32, class: &AccessClass| {
            let own = self.weights.get(&(region, *class)).copied().unwrap_or(0.0);
            (scale * (reliance * own + (1.0 - reliance) * even * by_class[class])).round() as u64
        };
        let accesses = regions.iter().map(|region| {
            let counts =
                classes.iter().enumerate().map(|(number, class)| (ClassIndex(number as u16), count(*region, class)));
            RegionAccess {
                region: RegionIndex(*region),
                counts: counts.filter(|(_, count)| *count > 0).collect(),
                processes: self.processes.max(1),
                processes_per_node: self.processes_per_node.max(1),
                slices: Slices::ALL,
            }
        });
        let window = WindowAccess {
            regions: accesses.filter(|access| !access.counts.is_empty()).collect(),
            company: Company { same_region: self.same_region, adjoining: self.adjoining },
            ..empty(0)
        };
        FileAccess {
            path: file.path.clone(),
            size_bytes: file.size_bytes,
            region_size: file.region_size,
            windows: vec![window],
            classes,
        }
    }
}

fn weights(file: &FileAccess, window: &WindowAccess) -> Weights {
    let mut weights: Weights = HashMap::new();
    for region in &window.regions {
        for (class, count) in &region.counts {
            *weights.entry((region.region.0, file.class(*class))).or_insert(0.0) += *count as f64;
        }
    }
    weights
}

/// The part of the requests that two windows have in the same places, 0 to 1. What they are expected to differ by as samples of one distribution
/// (the mean absolute difference of two Poisson counts) is not held against them.
fn overlap(a: &Weights, b: &Weights) -> f64 {
    let (all_a, all_b): (f64, f64) = (a.values().sum(), b.values().sum());
    let spread = (1.0 / all_a + 1.0 / all_b) / (all_a + all_b);
    let mean_difference = |key: &(u32, AccessClass)| {
        let both = a.get(key).unwrap_or(&0.0) + b.get(key).unwrap_or(&0.0);
        (2.0 / std::f64::consts::PI * both * spread).sqrt()
    };
    let common = b.iter().filter_map(|(key, weight)| Some((weight / all_b).min(a.get(key)? / all_a)));
    let chance = a.keys().chain(b.keys().filter(|key| !a.contains_key(key))).map(|key| mean_difference(key) / 2.0);
    // Sums must not depend on the order of a hash table.
    let sum = |mut terms: Vec<f64>| -> f64 {
        terms.sort_by(f64::total_cmp);
        terms.into_iter().sum()
    };
    // With few requests everything could be chance: then what is seen counts.
    let (common, chance) = (sum(common.collect()), sum(chance.collect()).min(MAX_CHANCE));
    (common + chance).min(1.0)
}

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
            Some(guess) if settled.as_ref().is_none_or(|known| !alike(known, &guess)) => {
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

/// Whether two guesses have nearly all requests in the same places.
fn alike(a: &Guess, b: &Guess) -> bool {
    a.files.iter().zip(&b.files).all(|(a, b)| {
        let (a, b) = (weights(a, &a.windows[0]), weights(b, &b.windows[0]));
        (a.is_empty() && b.is_empty()) || overlap(&a, &b) >= ALIKE
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
