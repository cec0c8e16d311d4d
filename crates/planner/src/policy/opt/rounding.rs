//! From the fractional optimum to one path for every item.
//!
//! The mix gives every item weights of its paths; nearly all items have one path of weight 1. The others are rounded in order of heat, each to
//! the path that is owed most, so that every path gets its share of hot and cold items alike. Then items leave kinds that are too full, those
//! first that lose least per byte, and single changes that lower the aim are made until there are none.

use super::dual::{Aim, Relaxed};
use super::paths::Prices;
use super::program::{Assignment, Program};
use std::collections::HashMap;

/// Passes over all items in search of single changes that lower the aim, where there are no more items than this: with more, each is too
/// small a part of the load for its rounding to matter.
const PASSES: usize = 4;
const MAX_IMPROVED: usize = 256;

/// With so few items, all combinations are looked at (but those that the prices rule out), up to so many steps.
const FEW_ITEMS: usize = 24;
const MAX_STEPS: usize = 20_000;

/// What adding up shares in another order may seem to lack of room.
const ROUNDING_BYTES: f64 = 1e-3;

/// A price of room that no gain in time is worth, in multiples of the dearest found.
const PROHIBITIVE: f64 = 1e6;

/// One path for every item.
pub(crate) fn round(program: &Program, aim: &Aim, relaxed: &Relaxed) -> Assignment {
    let heat = by_heat(program, &relaxed.prices);
    let mut owed: HashMap<Vec<usize>, f64> = HashMap::new();
    let mut chosen = vec![0u16; program.items.len() * program.windows];
    for item in &heat {
        let mut shares: Vec<(&[u16], f64)> = Vec::new();
        for (response, weights) in &relaxed.mix {
            let (path, weight) = (program.path(response, *item), weights[*item % relaxed.groups]);
            match shares.iter_mut().find(|(known, _)| *known == path) {
                Some((_, sum)) => *sum += weight,
                None => shares.push((path, weight)),
            }
        }
        let whole = shares.iter().find(|(_, weight)| *weight > 1.0 - 1e-6);
        let path = match whole {
            Some((path, _)) => *path,
            None => owed_most(program, *item, &shares, &mut owed),
        };
        chosen[*item * program.windows..(*item + 1) * program.windows].copy_from_slice(path);
    }
    put_together(program, &mut chosen);
    let mut sum = program.sum(chosen);
    free_capacity(program, aim, &relaxed.prices, &mut sum);
    if program.windows == 1 {
        if program.items.len() <= MAX_IMPROVED {
            improve(program, aim, &heat, &mut sum);
        }
        if program.items.len() <= FEW_ITEMS && *aim == Aim::plain(program) {
            return Exact::new(program, aim, &relaxed.prices, &heat).search(sum);
        }
    }
    sum
}

/// Lets items that are alike exchange their paths until equal paths lie side by side in the file. Nothing else changes for the program, but ranks
/// that march through the file keep their distances where layouts do not change.
fn put_together(program: &Program, chosen: &mut [u16]) {
    let mut first = 0;
    while first < program.items.len() {
        let marches_along = |item: &usize| program.items[*item].marches_like(&program.items[first]);
        let end = (first + 1..program.items.len()).find(|item| !marches_along(item)).unwrap_or(program.items.len());
        let alike = &mut chosen[first * program.windows..end * program.windows];
        let mut paths: Vec<Vec<u16>> = alike.chunks(program.windows).map(<[u16]>::to_vec).collect();
        paths.sort();
        alike.copy_from_slice(&paths.concat());
        first = end;
    }
}

/// Pays every path its weight and takes 1 off the richest.
fn owed_most<'a>(
    program: &Program,
    item: usize,
    shares: &[(&'a [u16], f64)],
    owed: &mut HashMap<Vec<usize>, f64>,
) -> &'a [u16] {
    let key = |path: &[u16]| -> Vec<usize> { path.iter().map(|option| program.shape(item, *option)).collect() };
    let mut most: Option<(f64, usize)> = None;
    for (number, (path, weight)) in shares.iter().enumerate() {
        let account = owed.entry(key(path)).or_insert(0.0);
        *account += weight;
        if most.is_none_or(|(known, _)| *account > known) {
            most = Some((*account, number));
        }
    }
    let (path, _) = shares[most.map_or(0, |(_, number)| number)];
    owed.entry(key(path)).and_modify(|account| *account -= 1.0);
    path
}

/// Items by what their requests cost, the hottest first; of equals the first.
pub(crate) fn by_heat(program: &Program, prices: &Prices) -> Vec<usize> {
    let free = Prices { capacity: vec![0.0; prices.capacity.len()], ..prices.clone() };
    let heat: Vec<f64> = (0..program.items.len())
        .map(|item| (0..program.windows).map(|window| program.priced_s(item, 0, window, &free)).sum())
        .collect();
    let mut order: Vec<usize> = (0..program.items.len()).collect();
    order.sort_by(|a, b| heat[*b].total_cmp(&heat[*a]).then(a.cmp(b)));
    order
}

fn capacity_of(program: &Program, at: usize) -> f64 {
    program.kinds[at % program.kinds.len()].room_bytes.map_or(f64::INFINITY, |capacity| capacity as f64)
}

/// Moves items out of kinds that hold more than their room: those with the cheapest path per byte that avoids the kind in that window, at
/// prices at which no other full kind is an alternative.
fn free_capacity(program: &Program, aim: &Aim, prices: &Prices, sum: &mut Assignment) {
    let dearest = prices.capacity.iter().copied().fold(1e-30, f64::max);
    for at in 0..sum.room_bytes.len() {
        if sum.room_bytes[at] <= capacity_of(program, at) {
            continue;
        }
        let (window, kind) = (at / program.kinds.len(), at % program.kinds.len());
        let mut avoiding = prices.clone();
        avoiding.capacity[at] = dearest * PROHIBITIVE;
        let mut changes: Vec<(f64, usize, Vec<u16>)> = Vec::new();
        for item in 0..program.items.len() {
            let path = program.path(sum, item);
            let share = |path: &[u16]| program.shapes[program.shape(item, path[window])].capacity_share[kind];
            let own = share(path);
            if own <= 0.0 {
                continue;
            }
            let (_, other) = program.best_path(item, &avoiding, &aim.allowed);
            let saved = (own - share(&other)) * program.items[item].bytes();
            if saved > 0.0 {
                let lost_s = program.priced_path_s(item, &other, prices) - program.priced_path_s(item, path, prices);
                changes.push((lost_s / saved, item, other));
            }
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, item, path) in changes {
            if sum.room_bytes[at] <= capacity_of(program, at) {
                break;
            }
            change(program, sum, item, &path);
        }
    }
}

fn change(program: &Program, sum: &mut Assignment, item: usize, path: &[u16]) {
    let old: Vec<u16> = program.path(sum, item).to_vec();
    program.book(sum, item, &old, -1.0);
    program.book(sum, item, path, 1.0);
    sum.chosen[item * program.windows..(item + 1) * program.windows].copy_from_slice(path);
}

/// Bytes for which there is no space.
fn excess(program: &Program, sum: &Assignment) -> f64 {
    sum.room_bytes.iter().enumerate().map(|(at, used)| (used - capacity_of(program, at)).max(0.0)).sum()
}

/// Single changes of one item that lower the aim and keep to the room. (With several windows the paths leave less to improve, and the
/// time that this takes is better spent on other aims.)
fn improve(program: &Program, aim: &Aim, order: &[usize], sum: &mut Assignment) {
    for _ in 0..PASSES {
        let mut changed = false;
        let mut least_s = aim.seconds(program, sum);
        let mut full = excess(program, sum);
        for item in order.iter().filter(|item| program.items[**item].is_accessed()) {
            for option in 0..program.options(*item) as u16 {
                let old = sum.chosen[*item];
                if option == old || !aim.allowed[program.shape(*item, option)] {
                    continue;
                }
                change(program, sum, *item, &[option]);
                let (now_s, now_full) = (aim.seconds(program, sum), excess(program, sum));
                if now_s < least_s * (1.0 - 1e-9) && now_full <= full {
                    (least_s, full, changed) = (now_s, now_full, true);
                } else {
                    change(program, sum, *item, &[old]);
                }
            }
        }
        if !changed {
            break;
        }
    }
}

/// Branch and bound over the options of few items in one window. A branch ends where the priced cost of what is chosen and of the cheapest rest is
/// no less than the best found: at any prices that is a lower bound.
struct Exact<'a> {
    program: &'a Program,
    aim: &'a Aim,
    order: &'a [usize],
    /// By position in the order: options from the cheapest on, with their priced costs.
    options: Vec<Vec<(f64, u16)>>,
    /// Least priced cost of this item and all after it, less the price of all room.
    rest_s: Vec<f64>,
    steps: usize,
    best: Option<(f64, Vec<u16>)>,
}

impl<'a> Exact<'a> {
    fn new(program: &'a Program, aim: &'a Aim, prices: &Prices, order: &'a [usize]) -> Self {
        let options: Vec<Vec<(f64, u16)>> = order
            .iter()
            .map(|item| {
                let allowed = |option: &u16| aim.allowed[program.shape(*item, *option)];
                let own = |option: u16| (program.priced_path_s(*item, &[option], prices), option);
                let mut options: Vec<(f64, u16)> =
                    (0..program.options(*item) as u16).filter(allowed).map(own).collect();
                options.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                options
            })
            .collect();
        let capacity_s: f64 = prices
            .capacity
            .iter()
            .enumerate()
            .filter(|(_, price)| **price > 0.0)
            .map(|(at, price)| price * capacity_of(program, at))
            .sum();
        let mut rest_s = vec![-capacity_s; order.len() + 1];
        for (at, options) in options.iter().enumerate().rev() {
            rest_s[at] = rest_s[at + 1] + options.first().map_or(0.0, |(cost_s, _)| *cost_s);
        }
        Self { program, aim, order, options, rest_s, steps: 0, best: None }
    }

    /// The best assignment; `known` unless there is a better one.
    fn search(mut self, known: Assignment) -> Assignment {
        if excess(self.program, &known) <= 0.0 {
            self.best = Some((self.aim.seconds(self.program, &known), known.chosen.clone()));
        }
        let mut sum = self.program.nothing();
        let mut chosen = vec![0; self.order.len()];
        self.branch(0, 0.0, &mut sum, &mut chosen);
        match self.best {
            Some((_, chosen)) => self.program.sum(chosen),
            None => known,
        }
    }

    fn branch(&mut self, at: usize, priced_s: f64, sum: &mut Assignment, chosen: &mut Vec<u16>) {
        self.steps += 1;
        if self.steps > MAX_STEPS || excess(self.program, sum) > ROUNDING_BYTES {
            return;
        }
        let Some(item) = self.order.get(at).copied() else {
            let time_s = self.aim.seconds(self.program, sum);
            if self.best.as_ref().is_none_or(|(best_s, _)| time_s < *best_s) {
                self.best = Some((time_s, chosen.clone()));
            }
            return;
        };
        for number in 0..self.options[at].len() {
            let (cost_s, option) = self.options[at][number];
            let least_s = priced_s + cost_s + self.rest_s[at + 1];
            // Options come with ascending cost: none of the rest does better.
            if self.best.as_ref().is_some_and(|(best_s, _)| least_s >= *best_s * (1.0 - 1e-12)) {
                return;
            }
            chosen[item] = option;
            self.program.book(sum, item, &[option], 1.0);
            self.branch(at + 1, priced_s + cost_s, sum, chosen);
            self.program.book(sum, item, &[option], -1.0);
        }
    }
}
