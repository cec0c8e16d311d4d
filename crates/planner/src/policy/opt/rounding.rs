//! From the fractional optimum to one option for every item, and from options to layouts on servers.
//!
//! The mix gives every item weights of its options; nearly all items have one option of weight 1. The others are rounded in order of heat, each to
//! the option that is owed most, so that every option gets its share of hot and cold items alike. Then items leave a kind that is too full, those
//! first that lose least per byte, and single changes that lower the aim are made until there are none.
//!
//! On servers, a region's layout is its shape begun at the turn where the one before left off, hottest regions first, so that regions that
//! do not fill a whole number of cycles load all servers of the set equally. Room is booked to the byte, server by server.

use super::super::{FileChoice, Task, file_request_bytes, region_count};
use super::dual::{Aim, Relaxed};
use super::program::{Assignment, Prices, Program};
use crate::room::Ledger;
use crate::servers::ceil_to;
use std::collections::HashMap;
use stripewise_layout::{Layout, ServerId};

/// Passes over all items in search of single changes that lower the aim.
const PASSES: usize = 4;

/// Seconds that an assignment takes by the aim.
pub(crate) fn aimed_s(sum: &Assignment, aim: &Aim) -> f64 {
    let slowest = sum.load_s.iter().zip(&aim.weights).map(|(load, weight)| load * weight).fold(0.0, f64::max);
    slowest + sum.fixed_s + aim.haste * sum.load_s.last().copied().unwrap_or(0.0)
}

/// One option for every item.
pub(crate) fn round(program: &Program, aim: &Aim, relaxed: &Relaxed) -> Assignment {
    let heat = by_heat(program, &relaxed.prices);
    let mut owed = vec![0.0f64; program.shapes.len()];
    let mut chosen = vec![0u16; program.items.len()];
    let mut shares: Vec<(u16, f64)> = Vec::new();
    for item in &heat {
        shares.clear();
        for (cut, weight) in &relaxed.mix {
            match shares.iter_mut().find(|(option, _)| *option == cut.chosen[*item]) {
                Some((_, sum)) => *sum += weight,
                None => shares.push((cut.chosen[*item], *weight)),
            }
        }
        for (option, weight) in &shares {
            owed[program.shape(*item, *option)] += weight;
        }
        let most = |a: &&(u16, f64), b: &&(u16, f64)| {
            owed[program.shape(*item, a.0)].total_cmp(&owed[program.shape(*item, b.0)]).then(b.0.cmp(&a.0))
        };
        let option = shares.iter().max_by(most).map_or(0, |(option, _)| *option);
        owed[program.shape(*item, option)] -= 1.0;
        chosen[*item] = option;
    }
    let mut sum = program.sum(chosen);
    make_room(program, &relaxed.prices, &aim.allowed, &mut sum);
    improve(program, aim, &heat, &mut sum);
    sum
}

/// Items by what their requests cost, the hottest first; of equals the first.
fn by_heat(program: &Program, prices: &Prices) -> Vec<usize> {
    let heat: Vec<f64> = (0..program.items.len())
        .map(|item| {
            let load_s = program.load_s(item, 0);
            load_s.iter().zip(&prices.rows).map(|(load, price)| f64::from(*load) * price).sum()
        })
        .collect();
    let mut order: Vec<usize> = (0..program.items.len()).collect();
    order.sort_by(|a, b| heat[*b].total_cmp(&heat[*a]).then(a.cmp(b)));
    order
}

/// Moves items out of kinds that hold more than their room.
fn make_room(program: &Program, prices: &Prices, allowed: &[bool], sum: &mut Assignment) {
    let free = Prices { room: vec![0.0; prices.room.len()], ..prices.clone() };
    for kind in 0..program.kinds.len() {
        let Some(room) = program.kinds[kind].room_bytes.map(|room| room as f64) else { continue };
        if sum.room_bytes[kind] <= room {
            continue;
        }
        // Every change to an option that needs less of this kind and nothing of other full ones, the cheapest per byte first.
        let mut changes: Vec<(f64, usize, u16)> = Vec::new();
        for item in 0..program.items.len() {
            let own = &program.shapes[program.shape(item, sum.chosen[item])].room_share;
            if own[kind] <= 0.0 {
                continue;
            }
            let own_s = program.priced_s(item, sum.chosen[item], &free);
            let cheapest = (0..program.options(item) as u16)
                .filter(|option| {
                    let shape = program.shape(item, *option);
                    let share = &program.shapes[shape].room_share;
                    allowed[shape]
                        && share[kind] < own[kind]
                        && (0..share.len())
                            .all(|other| other == kind || prices.room[other] <= 0.0 || share[other] <= own[other])
                })
                .map(|option| {
                    let saved = own[kind] - program.shapes[program.shape(item, option)].room_share[kind];
                    (
                        (program.priced_s(item, option, &free) - own_s)
                            / (saved * program.items[item].bytes()).max(1.0),
                        option,
                    )
                })
                .min_by(|a, b| a.0.total_cmp(&b.0));
            changes.extend(cheapest.map(|(per_byte, option)| (per_byte, item, option)));
        }
        changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, item, option) in changes {
            if sum.room_bytes[kind] <= room {
                break;
            }
            change(program, sum, item, option);
        }
    }
}

fn change(program: &Program, sum: &mut Assignment, item: usize, option: u16) {
    let old = std::mem::replace(&mut sum.chosen[item], option);
    program.book(sum, item, old, -1.0);
    program.book(sum, item, option, 1.0);
}

/// Single changes that lower the aim.
fn improve(program: &Program, aim: &Aim, order: &[usize], sum: &mut Assignment) {
    let fits = |sum: &Assignment| {
        sum.room_bytes
            .iter()
            .zip(&program.kinds)
            .all(|(used, kind)| kind.room_bytes.is_none_or(|room| *used <= room as f64))
    };
    for _ in 0..PASSES {
        let mut changed = false;
        for item in order {
            let mut least_s = aimed_s(sum, aim);
            for option in 0..program.options(*item) as u16 {
                let old = sum.chosen[*item];
                if option == old || !aim.allowed[program.shape(*item, option)] {
                    continue;
                }
                change(program, sum, *item, option);
                let now_s = aimed_s(sum, aim);
                if now_s < least_s * (1.0 - 1e-9) && fits(sum) {
                    (least_s, changed) = (now_s, true);
                } else {
                    change(program, sum, *item, old);
                }
            }
        }
        if !changed {
            break;
        }
    }
}

/// Layouts on servers.
pub(crate) fn place(task: &Task<'_>, program: &Program, prices: &Prices, chosen: &[u16]) -> Vec<FileChoice> {
    let all: Vec<ServerId> = (0..task.groups.count).map(|server| ServerId(server as u16)).collect();
    let mut files: Vec<PlacedFile> = task.request.files.iter().map(|file| PlacedFile::new(task, file)).collect();
    let mut ledger = Ledger::new(task.room);
    let mut turns = vec![0usize; program.shapes.len()];
    for item in by_heat(program, prices) {
        let of_item = &program.items[item];
        // Its own option first, then the others from the cheapest on.
        let mut order: Vec<(f64, u16)> = (0..program.options(item) as u16)
            .filter(|option| *option != chosen[item])
            .map(|option| (program.priced_s(item, option, prices), option))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        let order: Vec<usize> = std::iter::once(chosen[item])
            .chain(order.into_iter().map(|(_, option)| option))
            .map(|option| program.shape(item, option))
            .collect();
        for region in &of_item.regions {
            let bytes = of_item.region_bytes;
            let placed = order.iter().find_map(|shape| {
                let layout = &program.shapes[*shape].layout;
                let (count, step) = (layout.stripes().len(), left_over_turns(layout, bytes));
                let tries = if step == 0 { 1 } else { count };
                (0..tries).find_map(|attempt| {
                    let turned = turned(layout, (turns[*shape] + attempt) % count);
                    ledger.book(&turned, bytes, &all).then(|| {
                        turns[*shape] = (turns[*shape] + attempt + step) % count;
                        turned
                    })
                })
            });
            let file = &mut files[of_item.file];
            let number = match placed {
                Some(layout) => file.number(layout),
                None => {
                    ledger.add(&file.layouts[file.fallback as usize], bytes);
                    file.fallback
                }
            };
            file.regions[*region as usize] = number;
        }
    }
    files
        .into_iter()
        .map(|file| FileChoice { layouts: file.layouts, windows: vec![file.regions], fallback: file.fallback })
        .collect()
}

struct PlacedFile {
    layouts: Vec<Layout>,
    numbers: HashMap<Layout, u32>,
    regions: Vec<u32>,
    fallback: u32,
}

impl PlacedFile {
    fn new(task: &Task<'_>, file: &stripewise_trace::FileAccess) -> Self {
        let request_bytes = file_request_bytes(file, task.step_bytes);
        let fallback = task.groups.pure_layout(ceil_to(request_bytes.max(1), task.step_bytes));
        let mut placed = Self { layouts: Vec::new(), numbers: HashMap::new(), regions: Vec::new(), fallback: 0 };
        placed.fallback = placed.number(fallback);
        placed.regions = vec![placed.fallback; region_count(file) as usize];
        placed
    }

    fn number(&mut self, layout: Layout) -> u32 {
        if let Some(number) = self.numbers.get(&layout) {
            return *number;
        }
        self.layouts.push(layout.clone());
        self.numbers.insert(layout, self.layouts.len() as u32 - 1);
        self.layouts.len() as u32 - 1
    }
}

/// Turns of the last, unfinished cycle of a region: 0 where it is a thousandth of the region or less.
fn left_over_turns(layout: &Layout, region_bytes: u64) -> usize {
    let view = layout.view();
    let rest = region_bytes % view.cycle_bytes();
    if rest == 0 || layout.stripes().len() == 1 || rest * 1000 <= region_bytes {
        return 0;
    }
    view.locate(stripewise_layout::RegionOffset(rest - 1)).turn + 1
}

/// The same cycle, begun at another turn.
pub(crate) fn turned(layout: &Layout, turn: usize) -> Layout {
    let stripes = layout.stripes();
    let pairs = stripes[turn..].iter().chain(&stripes[..turn]).map(|stripe| (stripe.server, stripe.size_bytes));
    Layout::new(pairs).expect("the same stripes in another order")
}
