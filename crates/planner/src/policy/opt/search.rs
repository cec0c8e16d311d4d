//! Candidates, and the choice among them by sampled closed loops.
//!
//! The program's optimum is that of infinitely many processes. With 32 on 16 servers some servers always idle, requests wait for the slowest of
//! their parts, and latency counts. So the program is solved again under other aims: with latency charged beside the busiest station (`haste`), and with
//! the rows of the SServers (or of each kind) weighted up or down, which shifts load between kinds. The aims are searched by coordinates under
//! the sampled time. Every other policy's plan is a candidate too.

use super::super::FileChoice;
use super::Window;
use super::dual::{Aim, relax};
use super::program::Prices;
use super::rounding::{place, round};
use stripewise_layout::{Layout, ServerClass};

/// Latency beside the busiest station, at first.
const HASTES: [f64; 5] = [0.0, 0.1, 0.3, 1.0, 3.0];

/// A plan for the window with the time that the sample says.
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
}

#[derive(Clone, PartialEq, Debug)]
struct Knobs {
    haste: f64,
    /// ln of the weight of the rows of each kind.
    weights: Vec<f64>,
}

/// Searches the aims, starting from `others`.
pub(crate) fn search(window: &Window<'_>, others: Vec<Vec<FileChoice>>) -> Found {
    let program = &window.program;
    let reference_s = window.reference_s();
    let relaxed = relax(program, &Aim::plain(program), reference_s);
    let mut best: Option<Candidate> = None;
    let mut offer = |choices: Vec<FileChoice>| {
        let time_s = window.time_s(&choices);
        let better = best.as_ref().is_none_or(|best| time_s < best.time_s);
        if better {
            best = Some(Candidate { choices, time_s });
        }
        time_s
    };
    for choices in others {
        offer(choices);
    }
    let mut try_knobs = |knobs: &Knobs| {
        let aim = knobs.aim(window);
        let relaxed = relax(program, &aim, reference_s);
        let sum = round(program, &aim, &relaxed);
        offer(place(window.task, program, &relaxed.prices, &sum.chosen))
    };
    let kinds = program.kinds.len();
    let start = |haste: f64| Knobs { haste, weights: vec![0.0; kinds] };
    let mut center = (f64::INFINITY, start(0.0));
    for haste in HASTES {
        let knobs = start(haste);
        let time_s = try_knobs(&knobs);
        if time_s < center.0 {
            center = (time_s, knobs);
        }
    }
    let mut step = 0.2f64;
    for _ in 0..5 {
        let mut moved = false;
        for neighbour in center.1.neighbours(step, program.kinds.iter().map(|kind| kind.class).collect()) {
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
    Found { best, bound_s: relaxed.bound_s, prices: relaxed.prices }
}

impl Knobs {
    fn aim(&self, window: &Window<'_>) -> Aim {
        let mut aim = Aim::plain(&window.program);
        aim.haste = self.haste;
        for (kind, weight) in self.weights.iter().enumerate() {
            aim.weights[2 * kind] = weight.exp();
            aim.weights[2 * kind + 1] = weight.exp();
        }
        aim
    }

    fn neighbours(&self, step: f64, classes: Vec<ServerClass>) -> Vec<Knobs> {
        let mut neighbours = Vec::new();
        for sign in [1.0, -1.0] {
            let haste = if self.haste == 0.0 { 0.05 } else { self.haste * (sign * 3.0 * step).exp() };
            neighbours.push(Knobs { haste, weights: self.weights.clone() });
            let shift = |of: &dyn Fn(usize) -> bool| {
                let weights = self.weights.iter().enumerate();
                weights.map(|(kind, weight)| if of(kind) { weight + sign * step } else { *weight }).collect()
            };
            if classes.len() > 4 {
                neighbours.push(Knobs { haste: self.haste, weights: shift(&|kind| classes[kind] == ServerClass::Ssd) });
            } else {
                for kind in 1..classes.len() {
                    neighbours.push(Knobs { haste: self.haste, weights: shift(&|other| other == kind) });
                }
            }
        }
        neighbours
    }
}

/// The layout that a choice gives a region in its first window.
pub(crate) fn layout_of(choices: &[FileChoice], file: usize, region: u32) -> &Layout {
    let choice = &choices[file];
    let number = choice.windows[0].get(region as usize).copied().unwrap_or(choice.fallback);
    &choice.layouts[number as usize]
}
