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

mod closed_loop;
mod demand;
mod dual;
mod kinds;
mod program;
mod rounding;
mod search;
mod shapes;

use super::{FileChoice, PolicyName, Task, region_bytes, region_count};
use crate::plan::{Optimum, ServerPrices};
use closed_loop::Sample;
use program::{Item, Program};
use std::collections::HashMap;
use stripewise_layout::{Layout, RegionIndex};
use stripewise_trace::{AccessClass, Company};

pub(crate) struct Opt;

/// Distinct layouts of other policies that become shapes, at most: those of most regions.
const MOST_BORROWED: usize = 24;

impl super::Policy for Opt {
    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice> {
        optimize(task).0
    }
}

/// The layouts, and how far they are from what is possible.
pub(crate) fn optimize(task: &Task<'_>) -> (Vec<FileChoice>, Optimum) {
    let others: Vec<Vec<FileChoice>> = PolicyName::ALL
        .into_iter()
        .filter(|policy| *policy != PolicyName::Opt)
        .map(|policy| task.choose(policy))
        .collect();
    let window = Window::of_run(task, &others);
    let found = search::search(&window, others);
    let value_s = found.best.time_s;
    let optimum = Optimum {
        bound_s: found.bound_s,
        value_s,
        gap: if found.bound_s > 0.0 { value_s / found.bound_s - 1.0 } else { 0.0 },
        time_limited: false,
        prices: server_prices(&window.program, &found.prices, task.groups.count),
    };
    (found.best.choices, optimum)
}

/// The prices of kinds, for each of their servers. A kind's row prices are for a second on all of its servers.
fn server_prices(program: &Program, prices: &program::Prices, servers: usize) -> Vec<ServerPrices> {
    let mut of_servers = vec![ServerPrices { room_s_per_gib: 0.0, device: 0.0, link: 0.0 }; servers];
    for (number, kind) in program.kinds.iter().enumerate() {
        let count = kind.servers.len() as f64;
        for server in &kind.servers {
            of_servers[*server] = ServerPrices {
                room_s_per_gib: prices.room[number] / count * f64::from(1 << 30),
                device: prices.rows[2 * number] / count,
                link: prices.rows[2 * number + 1] / count,
            };
        }
    }
    of_servers
}

/// What is planned at once.
pub(crate) struct Window<'a> {
    task: &'a Task<'a>,
    program: Program,
    crowd: Sample,
    march: Sample,
    /// Share of the time in which all requests are in one region.
    same_region: f64,
}

impl<'a> Window<'a> {
    /// All windows of the run as one.
    fn of_run(task: &'a Task<'a>, others: &[Vec<FileChoice>]) -> Self {
        let (classes, items) = items(task);
        let mut bytes = vec![0.0; classes.len()];
        for (class, count) in items.iter().flat_map(|item| &item.counts) {
            bytes[usize::from(*class)] += *count as f64 * classes[usize::from(*class)].request_bytes as f64;
        }
        let weighted: Vec<(AccessClass, f64)> = classes.iter().copied().zip(bytes).collect();
        let kinds = kinds::kinds(task);
        let servers = task.groups.count;
        let region_bytes = task.request.cluster.region_size.0;
        let shapes =
            shapes::shapes(&kinds, servers, &weighted, borrowed(others).into_iter(), task.step_bytes, region_bytes);
        let company = company(task);
        let (profile, processes) = (task.request.profile, task.concurrency.processes);
        let seed = task.request.options.seed;
        let sample = |march: bool| Sample::draw(profile, &items, &classes, processes, seed, march);
        let (crowd, march) = (sample(false), sample(true));
        let p = task.concurrency.factors().0;
        let same_region = company.same_region;
        let program = Program::new(profile, kinds, shapes, items, &classes, p, company);
        Self { task, program, crowd, march, same_region }
    }

    /// The sampled time of a plan.
    fn time_s(&self, choices: &[FileChoice]) -> f64 {
        let layout_of = |item: usize| {
            let item = &self.program.items[item];
            search::layout_of(choices, item.file, item.regions[0])
        };
        let crowd_s = if self.same_region < 1.0 { self.crowd.seconds(layout_of) } else { 0.0 };
        let march_s = if self.same_region > 0.0 { self.march.seconds(layout_of) } else { 0.0 };
        (1.0 - self.same_region) * crowd_s + self.same_region * march_s
    }

    /// The time of a plan that looks at no station: a scale.
    fn reference_s(&self) -> f64 {
        let program = &self.program;
        let prices = program::Prices {
            rows: vec![1.0 / program.rows as f64; program.rows],
            room: vec![0.0; program.kinds.len()],
            haste: 0.0,
        };
        let aim = dual::Aim::plain(program);
        rounding::aimed_s(&program.respond(&prices, &aim.allowed), &aim).max(1e-9)
    }
}

/// The classes of all files, and the regions of all files: accessed ones each an item, the others of one size together.
fn items(task: &Task<'_>) -> (Vec<AccessClass>, Vec<Item>) {
    let mut classes: Vec<AccessClass> = Vec::new();
    let mut numbers: HashMap<AccessClass, u16> = HashMap::new();
    let mut items: Vec<Item> = Vec::new();
    for (file_number, file) in task.request.files.iter().enumerate() {
        let class_numbers: Vec<u16> = file
            .classes
            .iter()
            .map(|class| {
                *numbers.entry(*class).or_insert_with(|| {
                    classes.push(*class);
                    classes.len() as u16 - 1
                })
            })
            .collect();
        let mut counts: Vec<Vec<(u16, u64)>> = vec![Vec::new(); region_count(file) as usize];
        for access in file.windows.iter().flat_map(|window| &window.regions) {
            let of_region = &mut counts[access.region.0 as usize];
            for (class, count) in &access.counts {
                let number = class_numbers[usize::from(class.0)];
                match of_region.iter_mut().find(|(known, _)| *known == number) {
                    Some((_, sum)) => *sum += count,
                    None => of_region.push((number, *count)),
                }
            }
        }
        let mut idle: HashMap<u64, usize> = HashMap::new();
        for (region, counts) in counts.into_iter().enumerate() {
            let bytes = region_bytes(file, RegionIndex(region as u32));
            let item = |counts| Item { file: file_number, regions: vec![region as u32], region_bytes: bytes, counts };
            if !counts.is_empty() {
                items.push(item(counts));
            } else if let Some(known) = idle.get(&bytes) {
                items[*known].regions.push(region as u32);
            } else {
                idle.insert(bytes, items.len());
                items.push(item(counts));
            }
        }
    }
    (classes, items)
}

/// Company of all windows, by requests.
fn company(task: &Task<'_>) -> Company {
    let (mut requests, mut same, mut adjoining) = (0.0, 0.0, 0.0);
    for window in task.request.files.iter().flat_map(|file| &file.windows) {
        let count: u64 = window.regions.iter().flat_map(|region| &region.counts).map(|(_, count)| count).sum();
        requests += count as f64;
        same += count as f64 * window.company.same_region;
        adjoining += count as f64 * window.company.adjoining;
    }
    let mean = |sum: f64| if requests > 0.0 { sum / requests } else { 0.0 };
    Company { same_region: mean(same), adjoining: mean(adjoining) }
}

/// The layouts of other policies, those of most regions first.
fn borrowed(others: &[Vec<FileChoice>]) -> Vec<Layout> {
    let mut uses: HashMap<&Layout, u64> = HashMap::new();
    for choice in others.iter().flatten() {
        for number in choice.windows.iter().flatten() {
            *uses.entry(&choice.layouts[*number as usize]).or_insert(0) += 1;
        }
    }
    let mut uses: Vec<(&Layout, u64)> = uses.into_iter().collect();
    let text = |layout: &Layout| layout.stripes().iter().map(|s| (s.server.0, s.size_bytes)).collect::<Vec<_>>();
    uses.sort_by_cached_key(|(layout, count)| (std::cmp::Reverse(*count), text(layout)));
    uses.into_iter().take(MOST_BORROWED).map(|(layout, _)| layout.clone()).collect()
}
