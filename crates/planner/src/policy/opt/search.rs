//! Candidates, and the choice among them by sampled closed loops.
//!
//! The program's optimum is that of infinitely many processes. With 32 on 16 servers some servers always idle, requests wait for the slowest of
//! their parts, and latency counts. So the program is solved again under other aims: with latency charged beside the busiest station (`haste`), and with
//! the rows of each kind weighted up or down, which shifts load between kinds. The aims are searched by coordinates under the sampled
//! time. Every other policy's plan is a candidate too. With very many regions, groups of them are asked for prices first
//! (`groups.rs`).

use super::super::FileChoice;
use super::block::Block;
use super::budget::Budget;
use super::dual::{Aim, BOUND_ROUNDS, Relaxed, reference_s, refine, relax};
use super::paths::Prices;
use super::placing::place;
use super::program::Program;
use super::rounding::round;
use super::shapes::Shape;
use rayon::prelude::*;
use stripewise_layout::ServerClass;

/// Latency beside the busiest station, at first.
const HASTES: [f64; 5] = [0.0, 0.1, 0.3, 1.0, 3.0];

/// Steps of the coordinate search; a step that moves nowhere halves the next.
const STEPS: usize = 8;
const STEPS_OF_LARGE: usize = 3;

/// The same where moves are possible: a solution then costs so much more that fewer aims are tried.
const HASTES_WITH_MOVES: [f64; 3] = [0.0, 0.3, 1.0];
const STEPS_WITH_MOVES: usize = 1;

/// Kinds whose weights are coordinates of their own, at most.
const MAX_KINDS: usize = 4;

/// Least stripes that are tried where ranks march in order.
const GRAINS: [u64; 4] = [256 << 10, 1 << 20, 4 << 20, 16 << 20];

/// As [`BOUND_ROUNDS`], for other aims.
const AIM_ROUNDS: usize = 3;

/// Times as dear as moves are taken to be: the program counts what they ask of the stations, but not that a region is copied after
/// others and serves from its old place until then. The last one forbids them.
const RELUCTANCES: [f64; 5] = [1e4, 30.0, 10.0, 3.0, 1.0];

/// Candidates that are compared over several runs: so many of the aims and of the others, and no slower than the fastest by more than this.
const LAST_OF_FAMILY: usize = 2;
const NEARLY: f64 = 0.03;

/// A plan with the time that the sample says.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) choices: Vec<FileChoice>,
    pub(crate) time_s: f64,
}

/// What the search found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) best: Candidate,
    pub(crate) bound_s: f64,
    pub(crate) prices: Prices,
    pub(crate) time_limited: bool,
}

#[derive(Clone, PartialEq, Debug)]
struct Knobs {
    haste: f64,
    /// ln of the weight of the rows of each kind.
    weights: Vec<f64>,
    /// Times as dear as moves are taken to be.
    reluctance: f64,
    /// Stripes are at least so large. The program sees no difference among those that hold whole requests, but a disk does, when the next request
    /// finds its head in the stripe.
    grain: u64,
    /// All stripes of a region are equal.
    even: bool,
}

/// The aims that were tried, and what is common to them.
struct Search<'a> {
    block: &'a Block<'a>,
    budget: &'a Budget,
    reference_s: f64,
    /// Of groups of regions, if there are such; of the regions.
    rough: Option<Relaxed>,
    relaxed: Relaxed,
    reluctant: Vec<(f64, Program)>,
    tried: Vec<(Knobs, Candidate)>,
}

/// Searches the aims; `others` are plans that the result must not be worse than.
pub(crate) fn search(block: &Block<'_>, others: Vec<Vec<FileChoice>>, budget: &Budget) -> Found {
    let mut search = Search::new(block, budget);
    let has_moves = block.program().has_moves();
    let weights = vec![0.0; block.program().kinds.len()];
    let start = |haste, reluctance| Knobs { haste, weights: weights.clone(), reluctance, grain: 0, even: false };
    // Without a time to spare there is one aim to try.
    let firsts = match has_moves {
        true => RELUCTANCES.map(|reluctance| start(0.1, reluctance)).to_vec(),
        false => HASTES.map(|haste| start(haste, 1.0)).to_vec(),
    };
    search.try_all(&firsts[..1]);
    search.try_all(&firsts[1..]);
    let mut center = search.best_tried();
    if has_moves {
        search.try_all(&HASTES_WITH_MOVES.map(|haste| start(haste, center.1.reluctance)));
        center = search.best_tried();
    }
    if block.has_marches_in_order() {
        for even in [false, true] {
            search.try_all(&GRAINS.map(|grain| Knobs { grain, even, ..center.1.clone() }));
        }
        center = search.best_tried();
    }
    let classes: Vec<ServerClass> = block.program().kinds.iter().map(|kind| kind.class).collect();
    let steps = match (has_moves, block.program().is_large()) {
        (true, _) => STEPS_WITH_MOVES,
        (false, true) => STEPS_OF_LARGE,
        (false, false) => STEPS,
    };
    let mut step = 0.2f64;
    for _ in 0..steps {
        search.try_all(&center.1.neighbours(step, &classes));
        let next = search.best_tried();
        if next.0 < center.0 * (1.0 - 1e-6) {
            center = next;
        } else {
            step /= 2.0;
        }
    }
    let best = search.best(others);
    let Relaxed { bound_s, prices, .. } = search.relaxed;
    Found { best, bound_s, prices, time_limited: budget.is_spent() }
}

impl<'a> Search<'a> {
    fn new(block: &'a Block<'a>, budget: &'a Budget) -> Self {
        let program = block.program();
        let reference_s = reference_s(program);
        let plain = Aim::plain(program);
        let rough = block.groups().map(|groups| relax(groups, &plain, reference_s, None, budget));
        let relaxed = match &rough {
            Some(rough) => refine(program, &plain, reference_s, rough, BOUND_ROUNDS, budget),
            None => relax(program, &plain, reference_s, None, budget),
        };
        Self { block, budget, reference_s, rough, relaxed, reluctant: Vec::new(), tried: Vec::new() }
    }

    /// Tries some knobs side by side; none but the very first when there is no time left.
    fn try_all(&mut self, all: &[Knobs]) {
        if self.budget.is_spent() && !self.tried.is_empty() {
            return;
        }
        let all: Vec<&Knobs> = all.iter().filter(|knobs| self.tried.iter().all(|(known, _)| known != *knobs)).collect();
        for knobs in &all {
            if knobs.reluctance != 1.0 && self.reluctant.iter().all(|(known, _)| *known != knobs.reluctance) {
                self.reluctant.push((knobs.reluctance, self.block.program().reluctant(knobs.reluctance)));
            }
        }
        let new: Vec<(Knobs, Candidate)> =
            all.par_iter().map(|knobs| ((*knobs).clone(), self.candidate(knobs))).collect();
        self.tried.extend(new);
    }

    fn candidate(&self, knobs: &Knobs) -> Candidate {
        let program = self.block.program();
        let known = self.reluctant.iter().find(|(known, _)| *known == knobs.reluctance);
        let view = known.map_or(program, |(_, view)| view);
        let aim = knobs.aim(program);
        let relaxed = if knobs.reluctance == 1.0 && aim == Aim::plain(program) {
            self.relaxed.clone()
        } else {
            self.relax(view, &aim)
        };
        let sum = round(view, &aim, &relaxed);
        let choices = match knobs.grain {
            0 => place(self.block.task, view, &relaxed.prices, &sum.chosen, self.block.before),
            grain => {
                let coarse = view.coarsened(grain);
                place(self.block.task, &coarse, &relaxed.prices, &sum.chosen, self.block.before)
            }
        };
        let time_s = self.block.time_s(&choices);
        Candidate { choices, time_s }
    }

    fn relax(&self, program: &Program, aim: &Aim) -> Relaxed {
        let of = |program, rough: &Relaxed| relax(program, aim, self.reference_s, Some(&rough.prices), self.budget);
        match (self.block.groups(), &self.rough) {
            (Some(groups), Some(rough)) => {
                let rough = of(groups, rough);
                refine(program, aim, self.reference_s, &rough, AIM_ROUNDS, self.budget)
            }
            _ => of(program, &self.relaxed),
        }
    }

    fn best_tried(&self) -> (f64, Knobs) {
        let best = self.tried.iter().min_by(|a, b| a.1.time_s.total_cmp(&b.1.time_s));
        best.map(|(knobs, candidate)| (candidate.time_s, knobs.clone())).expect("one aim is always tried")
    }

    /// The best of the aims' plans and the other ones. Of those that are nearly as fast, the one that is fastest over other runs too: the
    /// aims' plans suit the traced run's counts to the last request.
    fn best(&mut self, others: Vec<Vec<FileChoice>>) -> Candidate {
        let timed = |choices: Vec<FileChoice>| Candidate { time_s: self.block.time_s(&choices), choices };
        let others: Vec<Candidate> = others.into_par_iter().map(timed).collect();
        let tried = std::mem::take(&mut self.tried).into_iter().map(|(_, candidate)| candidate).collect();
        let mut last: Vec<Candidate> = Vec::new();
        for mut family in [tried, others] {
            family.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
            family.dedup_by(|a, b| a.time_s == b.time_s && a.choices == b.choices);
            family.truncate(LAST_OF_FAMILY);
            last.extend(family);
        }
        last.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
        let best_s = last.first().expect("one aim is always tried").time_s;
        last.retain(|one| one.time_s <= best_s * (1.0 + NEARLY));
        if last.len() == 1 || self.block.program().has_moves() || self.budget.is_spent() {
            return last.swap_remove(0);
        }
        let plans: Vec<&[FileChoice]> = last.iter().map(|one| &one.choices[..]).collect();
        let others = self.block.time_of_other_runs_s(&plans);
        let times: Vec<f64> = last.iter().zip(others).map(|(one, others_s)| one.time_s + others_s).collect();
        let least = (0..times.len()).min_by(|a, b| times[*a].total_cmp(&times[*b])).unwrap_or(0);
        last.swap_remove(least)
    }
}

impl Knobs {
    fn aim(&self, program: &Program) -> Aim {
        let mut aim = Aim::plain(program);
        aim.haste = self.haste;
        if self.even {
            aim.allowed = program.shapes.iter().map(Shape::is_even).collect();
        }
        for (kind, weight) in self.weights.iter().enumerate() {
            aim.weights[2 * kind] = weight.exp();
            aim.weights[2 * kind + 1] = weight.exp();
        }
        aim
    }

    /// Knobs a step away: other haste, other weights of a kind (with many kinds, of all SServers), and both.
    fn neighbours(&self, step: f64, classes: &[ServerClass]) -> Vec<Knobs> {
        let hasten = |knobs: &Knobs, sign: f64| {
            let haste = if knobs.haste == 0.0 { 0.05 } else { knobs.haste * (sign * 3.0 * step).exp() };
            Knobs { haste, ..knobs.clone() }
        };
        let mut neighbours = vec![hasten(self, 1.0), hasten(self, -1.0)];
        let apart = classes.len() <= MAX_KINDS;
        let turned = if apart { 1..classes.len() } else { 0..1 };
        for kind in turned {
            for sign in [1.0, -1.0] {
                let mut knobs = self.clone();
                for (other, weight) in knobs.weights.iter_mut().enumerate() {
                    let meant = if apart { other == kind } else { classes[other] == ServerClass::Ssd };
                    *weight += if meant { sign * step } else { 0.0 };
                }
                neighbours.extend([hasten(&knobs, 1.0), hasten(&knobs, -1.0)]);
                neighbours.push(knobs);
            }
        }
        neighbours
    }
}
