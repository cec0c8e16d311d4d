//! Candidates, and the choice among them by sampled closed loops.
//!
//! The program's optimum is that of infinitely many processes. With 32 on 16 servers some servers always idle, requests wait for the slowest of
//! their parts, and latency counts. So the program is solved again under other aims: with latency charged beside the busiest station (`haste`), and with
//! the rows of each kind weighted up or down, which shifts load between kinds. The aims are searched by coordinates under the sampled
//! time. Every other policy's plan is a candidate too.

use super::super::FileChoice;
use super::block::Block;
use super::budget::Budget;
use super::dual::{Aim, relax};
use super::paths::Prices;
use super::placing::place;
use super::program::Program;
use super::rounding::round;
use stripewise_layout::ServerClass;

/// Latency beside the busiest station, at first.
const HASTES: [f64; 5] = [0.0, 0.1, 0.3, 1.0, 3.0];

/// Steps of the coordinate search; a step that moves nowhere halves the next.
const STEPS: usize = 5;

/// The same where moves are possible: a solution then costs so much more that fewer aims are tried.
const HASTES_WITH_MOVES: [f64; 3] = [0.0, 0.3, 1.0];
const STEPS_WITH_MOVES: usize = 1;

/// Times as dear as moves are taken to be: the program counts what they ask of the stations, but not that a region is copied after
/// others and serves from its old place until then. The last one forbids them.
const RELUCTANCES: [f64; 5] = [1e4, 30.0, 10.0, 3.0, 1.0];

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
}

/// Searches the aims; `others` are plans that the result must not be worse than.
pub(crate) fn search(block: &Block<'_>, others: Vec<Vec<FileChoice>>, budget: &Budget) -> Found {
    let mut best: Option<Candidate> = None;
    let mut offer = |choices: Vec<FileChoice>| {
        let time_s = block.time_s(&choices);
        if best.as_ref().is_none_or(|best| time_s < best.time_s) {
            best = Some(Candidate { choices, time_s });
        }
        time_s
    };
    for choices in others {
        offer(choices);
    }
    let program = block.program();
    let reference_s = reference_s(program);
    let plain = Aim::plain(program);
    let relaxed = relax(program, &plain, reference_s, None, budget);
    let hint = relaxed.prices.clone();
    let has_moves = program.has_moves();
    let mut reluctant: Vec<(f64, Program)> = Vec::new();
    let mut try_knobs = |knobs: &Knobs| {
        if reluctant.iter().all(|(known, _)| *known != knobs.reluctance) {
            reluctant.push((knobs.reluctance, program.reluctant(knobs.reluctance)));
        }
        let view = reluctant.iter().find(|(known, _)| *known == knobs.reluctance).map_or(program, |(_, view)| view);
        let aim = knobs.aim(program);
        let found = if aim == plain && knobs.reluctance == 1.0 {
            relaxed.clone()
        } else {
            relax(view, &aim, reference_s, Some(&hint), budget)
        };
        let sum = round(view, &aim, &found);
        offer(place(block.task, view, &found.prices, &sum.chosen, block.before))
    };
    let start = |haste, reluctance| Knobs { haste, weights: vec![0.0; program.kinds.len()], reluctance };
    let mut center = (f64::INFINITY, start(0.0, 1.0));
    let mut firsts: Vec<Knobs> = Vec::new();
    match has_moves {
        true => firsts.extend(RELUCTANCES.map(|reluctance| start(0.1, reluctance))),
        false => firsts.extend(HASTES.map(|haste| start(haste, 1.0))),
    }
    let mut next = 0;
    while let Some(knobs) = firsts.get(next).cloned().filter(|_| next == 0 || !budget.is_spent()) {
        let time_s = try_knobs(&knobs);
        if time_s < center.0 {
            center = (time_s, knobs);
        }
        next += 1;
        if has_moves && next == RELUCTANCES.len() {
            let reluctance = center.1.reluctance;
            firsts.extend(HASTES_WITH_MOVES.map(|haste| start(haste, reluctance)));
        }
    }
    let steps = if has_moves { STEPS_WITH_MOVES } else { STEPS };
    let classes: Vec<ServerClass> = program.kinds.iter().map(|kind| kind.class).collect();
    let mut step = 0.2f64;
    for _ in 0..steps {
        let mut moved = false;
        for neighbour in center.1.neighbours(step, &classes) {
            if budget.is_spent() {
                break;
            }
            let time_s = try_knobs(&neighbour);
            if time_s < center.0 * (1.0 - 1e-6) {
                center = (time_s, neighbour);
                moved = true;
            }
        }
        if !moved {
            step /= 2.0;
        }
    }
    let best = best.expect("the plain aim gives a candidate");
    Found { best, bound_s: relaxed.bound_s, prices: relaxed.prices, time_limited: budget.is_spent() }
}

/// The time of a plan that looks at no station: a scale.
pub(crate) fn reference_s(program: &Program) -> f64 {
    let aim = Aim::plain(program);
    let prices = Prices {
        rows: vec![1.0 / program.rows as f64; program.rows * program.periods()],
        room: vec![0.0; program.kinds.len() * program.windows],
        haste: 0.0,
    };
    aim.seconds(program, &program.respond(&prices, &aim.allowed)).max(1e-9)
}

impl Knobs {
    fn aim(&self, program: &Program) -> Aim {
        let mut aim = Aim::plain(program);
        aim.haste = self.haste;
        for (kind, weight) in self.weights.iter().enumerate() {
            aim.weights[2 * kind] = weight.exp();
            aim.weights[2 * kind + 1] = weight.exp();
        }
        aim
    }

    fn neighbours(&self, step: f64, classes: &[ServerClass]) -> Vec<Knobs> {
        let mut neighbours = Vec::new();
        for sign in [1.0, -1.0] {
            let haste = if self.haste == 0.0 { 0.05 } else { self.haste * (sign * 3.0 * step).exp() };
            neighbours.push(Knobs { haste, ..self.clone() });
            let shift = |of: &dyn Fn(usize) -> bool| {
                let weights = self.weights.iter().enumerate();
                weights.map(|(kind, weight)| if of(kind) { weight + sign * step } else { *weight }).collect()
            };
            if classes.len() > 4 {
                neighbours.push(Knobs { weights: shift(&|kind| classes[kind] == ServerClass::Ssd), ..self.clone() });
            } else {
                let kinds = 1..classes.len();
                neighbours.extend(kinds.map(|kind| Knobs { weights: shift(&|other| other == kind), ..self.clone() }));
            }
        }
        neighbours
    }
}
