//! Some windows that are planned together: their program, and the sampled time of any plan for them.

use super::super::{FileChoice, Task, mean_request_bytes};
use super::budget::Budget;
use super::closed_loop::{Drawn, Moving, Sample};
use super::demand::{Demands, SeenClass};
use super::dual::{Aim, BOUND_ROUNDS, reference_s, refine, relax};
use super::groups::grouped;
use super::kinds::{Kind, kinds};
use super::periods::Accesses;
use super::placing::{last_layout, layout_in};
use super::program::{Item, Program};
use super::shapes::{Shape, kind_of_servers, shapes};
use super::side_by_side::Part;
use super::turning::unturned;
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::Range;
use stripewise_layout::{Layout, ServerId};
use stripewise_trace::{AccessClass, Company};

/// Distinct layouts of other policies that become shapes, at most: those of most regions.
const MAX_BORROWED: usize = 24;

/// Runs with the same popularity by which the last candidates are compared, beside the one that was traced.
const OTHER_RUNS: u64 = 2;

/// The requests of a run as samples, by period.
pub(crate) struct Run(Vec<Vec<Sample>>);

pub(crate) struct Block<'a> {
    pub(crate) task: &'a Task<'a>,
    /// Choices whose last window holds before the first one of the block; leaving it costs moves.
    pub(crate) before: Option<&'a [FileChoice]>,
    accesses: Accesses,
    kind_of: Vec<usize>,
    demands: Demands,
    program: Program,
    groups: Option<Program>,
    /// By period: requests that keep no company, and those that march; or all, where programs are known apart.
    samples: Vec<Vec<Sample>>,
    /// By window, the classes as disks were taken to see them.
    seen: Vec<Vec<SeenClass>>,
}

impl<'a> Block<'a> {
    /// `presence` is the share of a window's requests to regions that lie on one disk, as far as known.
    pub(crate) fn new(
        task: &'a Task<'a>,
        windows: Range<usize>,
        others: &[Vec<FileChoice>],
        before: Option<&'a [FileChoice]>,
        presence: Option<&[f64]>,
    ) -> Self {
        let mut accesses = Accesses::of(task, windows);
        let kinds = kinds(task);
        let kind_of = kind_of_servers(&kinds, task.groups.count);
        let present: Vec<Layout> =
            before.map(|before| distinct(&mut accesses, before, &kinds, &kind_of)).unwrap_or_default();
        let shapes = known_shapes(task, &accesses, &kinds, others, &present);
        if let Some(before) = before {
            remember(&mut accesses, &shapes, before, &kinds, &kind_of);
        }
        // At first regions are taken to lie on one server each.
        let alone = vec![1.0 / task.groups.count as f64; accesses.windows.len()];
        let seen = accesses.seen(presence.unwrap_or(&alone));
        let processes: Vec<f64> = accesses.processes.iter().map(|processes| f64::from(*processes.max(&1))).collect();
        let demands =
            Demands::new(task.request.profile, &kinds, &shapes, &seen, &processes, task.request.cluster.region_size.0);
        let samples = samples(task, &accesses, &accesses.items, &seen, None);
        let (items, window_of) = (std::mem::take(&mut accesses.items), accesses.window_of.clone());
        let program_of = |items| {
            let (kinds, shapes) = (kinds.clone(), shapes.clone());
            Program::new(task.request.profile, kinds, shapes, items, &demands, window_of.clone())
        };
        let groups = grouped(&items, &accesses.classes);
        let program = program_of(items);
        let groups = groups.filter(|_| program.is_large()).map(program_of);
        Self { task, before, accesses, kind_of, demands, program, groups, samples, seen }
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// The classes that items' counts name by number.
    pub(crate) fn classes(&self) -> &[AccessClass] {
        &self.accesses.classes
    }

    /// The same of groups of regions, where there are many regions.
    pub(crate) fn groups(&self) -> Option<&Program> {
        self.groups.as_ref()
    }

    /// A bound that holds however ranks march, if they do: as if they never kept company, so that all servers could be busy all the time.
    pub(crate) fn bound_without_company_s(&self, budget: &Budget) -> Option<f64> {
        let marches = |item: &Item| item.same_region.iter().any(|share| *share > 0.0);
        if !self.program.items.iter().any(marches) {
            return None;
        }
        let (profile, kinds, shapes) = (self.task.request.profile, &self.program.kinds, &self.program.shapes);
        let alone = |program: &Program| {
            let apart = |item: &Item| Item { same_region: vec![0.0; item.same_region.len()], ..item.clone() };
            let items = program.items.iter().map(apart).collect();
            Program::new(profile, kinds.clone(), shapes.to_vec(), items, &self.demands, program.window_of.clone())
        };
        let program = alone(&self.program);
        let (aim, reference_s) = (Aim::plain(&program), reference_s(&program));
        let relaxed = match self.groups.as_ref().map(alone) {
            Some(groups) => {
                let rough = relax(&groups, &aim, reference_s, None, budget);
                refine(&program, &aim, reference_s, &rough, BOUND_ROUNDS, budget)
            }
            None => relax(&program, &aim, reference_s, None, budget),
        };
        Some(relaxed.bound_s)
    }

    /// The share of each window's requests that goes to regions which lie on one disk.
    pub(crate) fn presence(&self, choices: &[FileChoice]) -> Vec<f64> {
        self.accesses.presence(&self.program.items, &self.program.kinds, &self.kind_of, choices)
    }

    /// Whether ranks go through files in order, together.
    pub(crate) fn has_marches_in_order(&self) -> bool {
        self.samples.iter().flatten().any(Sample::is_in_order)
    }

    /// Whether ranks go through a file in order and nobody is beside them, in some period.
    pub(crate) fn has_marches_alone(&self) -> bool {
        self.samples.iter().flatten().any(|sample| sample.is_in_order() && !sample.has_crowd())
    }

    /// Whether it matters how many streams meet on a disk.
    pub(crate) fn has_streams(&self) -> bool {
        self.accesses.has_streams()
    }

    /// The sampled time of a plan for the block's windows.
    pub(crate) fn time_s(&self, choices: &[FileChoice]) -> f64 {
        self.time_with_s(&self.samples, choices)
    }

    /// The sampled times of some plans in other runs with the same popularity, added up.
    pub(crate) fn time_of_other_runs_s(&self, plans: &[&[FileChoice]]) -> Vec<f64> {
        let mut sums = vec![0.0; plans.len()];
        for run in 1..=OTHER_RUNS {
            let run = self.other_run(run);
            let times: Vec<f64> = plans.par_iter().map(|plan| self.time_of_run_s(&run, plan)).collect();
            sums.iter_mut().zip(times).for_each(|(sum, time_s)| *sum += time_s);
        }
        sums
    }

    /// Another run with the same popularity, by its number from 1 on.
    pub(crate) fn other_run(&self, number: u64) -> Run {
        Run(samples(self.task, &self.accesses, &self.program.items, &self.seen, Some(number)))
    }

    /// The sampled time of a plan in another run.
    pub(crate) fn time_of_run_s(&self, run: &Run, choices: &[FileChoice]) -> f64 {
        self.time_with_s(&run.0, choices)
    }

    fn time_with_s(&self, samples: &[Vec<Sample>], choices: &[FileChoice]) -> f64 {
        let streams = self.has_streams();
        let seen: Option<Vec<Vec<SeenClass>>> = streams.then(|| self.accesses.seen(&self.presence(choices)));
        let mut sum_s = 0.0;
        let mut begun = None;
        for (period, window) in self.program.window_of.iter().enumerate() {
            let items = &self.program.items;
            let layouts: Vec<&Layout> =
                items.iter().map(|item| layout_in(choices, *window, item.file, item.regions[0])).collect();
            // Moves go on at the begin of a window.
            let moves = if begun == Some(*window) { Vec::new() } else { self.moves(choices, *window, &layouts) };
            begun = Some(*window);
            for sample in samples[period].iter().filter(|sample| !sample.is_empty()) {
                let seen = seen.as_ref().map(|seen| seen[*window].as_slice());
                sum_s += sample.seconds(self.task.request.profile, seen, &layouts, &moves);
            }
        }
        sum_s
    }

    /// The regions that change their layout at the begin of a window, in the mover's order: those that leave SServers first.
    fn moves<'b>(&'b self, choices: &'b [FileChoice], window: usize, layouts: &[&'b Layout]) -> Vec<Moving<'b>> {
        let mut moves = Vec::new();
        for (number, item) in self.program.items.iter().enumerate() {
            let from = match (window, self.before) {
                (0, None) => return moves,
                (0, Some(before)) => last_layout(before, item.file, item.regions[0]),
                _ => layout_in(choices, window - 1, item.file, item.regions[0]),
            };
            if from != layouts[number] {
                let bytes = item.region_bytes * item.regions.len() as u64;
                moves.push(Moving { item: number, from, to: layouts[number], bytes });
            }
        }
        let on_ssd = |layout: &Layout| -> f64 {
            let of_ssd = layout.stripes().iter().filter(|stripe| self.task.groups.ssd.contains(&stripe.server));
            of_ssd.map(|stripe| f64::from(stripe.size_bytes)).sum::<f64>() / layout.view().cycle_bytes() as f64
        };
        moves.sort_by_cached_key(|one| ((on_ssd(one.to) - on_ssd(one.from)) * 1e6) as i64);
        moves
    }
}

/// By period. Of another run with the same popularity, if `other_run` is its number.
fn samples(
    task: &Task<'_>,
    accesses: &Accesses,
    items: &[Item],
    seen: &[Vec<SeenClass>],
    other_run: Option<u64>,
) -> Vec<Vec<Sample>> {
    let window_of = &accesses.window_of;
    let of_period = |(period, window): (usize, &usize)| {
        let companies = task.request.files.iter().map(|file| {
            file.windows.get(accesses.windows.start + window).map_or(Company::default(), |window| window.company)
        });
        let drawn = Drawn {
            profile: task.request.profile,
            items,
            window: *window,
            periods: period..period + 1,
            classes: &seen[*window],
            companies: companies.collect(),
            region_sizes: task.request.files.iter().map(|file| file.region_size.0).collect(),
            part: Part::All,
            processes: accesses.processes[*window],
            seed: super::SEED + other_run.unwrap_or(0),
            march: false,
            redrawn: other_run.is_some(),
        };
        if let programs @ [_, ..] = &accesses.programs[*window][..] {
            return vec![Sample::draw_side_by_side(&drawn, programs)];
        }
        let crowd = Sample::draw(&drawn);
        // Ranks in order go from one period into the next: how they stand to each other there is not drawn again.
        let periods = match drawn.is_in_order() {
            true if period > 0 && window_of[period - 1] == *window => return vec![crowd],
            true => period..window_of.partition_point(|other| other <= window),
            false => drawn.periods.clone(),
        };
        vec![crowd, Sample::draw(&Drawn { periods, march: true, ..drawn })]
    };
    window_of.iter().enumerate().map(of_period).collect()
}

/// Shapes for the classes of the block, the layouts of other policies and those that the data has.
fn known_shapes(
    task: &Task<'_>,
    accesses: &Accesses,
    kinds: &[Kind],
    others: &[Vec<FileChoice>],
    present: &[Layout],
) -> Vec<Shape> {
    let mut bytes = vec![0.0; accesses.classes.len()];
    for (class, count) in accesses.items.iter().flat_map(|item| &item.counts).flatten() {
        bytes[usize::from(*class)] += count * accesses.classes[usize::from(*class)].request_bytes as f64;
    }
    let mut weighted: Vec<(AccessClass, f64)> = accesses.classes.iter().copied().zip(bytes).collect();
    if mean_request_bytes(weighted.iter().map(|(class, bytes)| (*class, *bytes as u64))).is_none() {
        // Nobody accesses anything: any size will do.
        let class = AccessClass {
            kind: stripewise_layout::Direction::Read.into(),
            request_bytes: 1 << 20,
            order: stripewise_layout::Order::Random,
        };
        weighted.push((class, 1.0));
    }
    let region_bytes = task.request.cluster.region_size.0;
    let kind_of = kind_of_servers(kinds, task.groups.count);
    let extra = borrowed(others, |layout| whole_cycle(layout, region_bytes, kinds, &kind_of));
    let extra = extra.into_iter().chain(present.iter().cloned());
    shapes(kinds, task.groups.count, &weighted, extra, task.step_bytes, region_bytes, accesses.has_streams())
}

/// The shapes in which the data lies; idle regions that lie differently become items of their own.
fn distinct(accesses: &mut Accesses, before: &[FileChoice], kinds: &[Kind], kind_of: &[usize]) -> Vec<Layout> {
    let mut layouts: Vec<Layout> = Vec::new();
    let mut numbers: HashMap<Layout, usize> = HashMap::new();
    let mut number_of = |file: usize, region: u32, region_bytes: u64| {
        let layout = whole_cycle(last_layout(before, file, region), region_bytes, kinds, kind_of);
        *numbers.entry(layout).or_insert_with_key(|layout| {
            layouts.push(layout.clone());
            layouts.len() - 1
        })
    };
    for item in &accesses.items {
        for region in &item.regions {
            number_of(item.file, *region, item.region_bytes);
        }
    }
    accesses.split_idle(number_of);
    layouts
}

/// The cycle that a region's layout is a part of, begun at its lowest server. A region shorter than a cycle is placed on the few servers that
/// it comes to; where it begins goes round, so that regions of one shape load all servers of a kind alike. Taken for a shape of its own, a
/// part would be thought to do so too, and all regions that chose it would meet on its servers.
fn whole_cycle(layout: &Layout, region_bytes: u64, kinds: &[Kind], kind_of: &[usize]) -> Layout {
    let mut stripe_of = vec![None; kinds.len()];
    for stripe in layout.stripes() {
        let known = stripe_of[kind_of[usize::from(stripe.server.0)]].get_or_insert(stripe.size_bytes);
        if *known != stripe.size_bytes {
            return unturned(layout);
        }
    }
    if layout.view().cycle_bytes() < region_bytes.max(1) {
        return unturned(layout);
    }
    let of_kind = |(kind, stripe): (&Kind, Option<u32>)| {
        let servers = kind.servers.clone().into_iter();
        stripe.into_iter().flat_map(move |bytes| servers.clone().map(move |server| (ServerId(server as u16), bytes)))
    };
    match Layout::new(kinds.iter().zip(stripe_of).flat_map(of_kind)) {
        Ok(whole) => unturned(&whole),
        Err(_) => unturned(layout),
    }
}

/// Tells items the shape that they have.
fn remember(accesses: &mut Accesses, shapes: &[Shape], before: &[FileChoice], kinds: &[Kind], kind_of: &[usize]) {
    let numbers: HashMap<Layout, u16> =
        shapes.iter().enumerate().map(|(number, shape)| (unturned(&shape.layout), number as u16)).collect();
    for item in &mut accesses.items {
        let layout = whole_cycle(last_layout(before, item.file, item.regions[0]), item.region_bytes, kinds, kind_of);
        item.before = numbers.get(&layout).copied();
    }
}

/// The layouts of other policies as `shape` has them, those of most regions first.
fn borrowed(others: &[Vec<FileChoice>], shape: impl Fn(&Layout) -> Layout) -> Vec<Layout> {
    let mut uses: HashMap<Layout, u64> = HashMap::new();
    for choice in others.iter().flatten() {
        let mut of_layout = vec![0; choice.layouts.len()];
        choice.windows.iter().flatten().for_each(|number| of_layout[*number as usize] += 1);
        for (layout, count) in choice.layouts.iter().zip(of_layout).filter(|(_, count)| *count > 0) {
            *uses.entry(shape(layout)).or_insert(0) += count;
        }
    }
    let mut uses: Vec<(Layout, u64)> = uses.into_iter().collect();
    let text = |layout: &Layout| layout.stripes().iter().map(|s| (s.server.0, s.size_bytes)).collect::<Vec<_>>();
    uses.sort_by_cached_key(|(layout, count)| (std::cmp::Reverse(*count), text(layout)));
    uses.into_iter().take(MAX_BORROWED).map(|(layout, _)| layout).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(stripes: &[(u16, u32)]) -> Layout {
        Layout::new(stripes.iter().map(|(server, bytes)| (ServerId(*server), *bytes))).unwrap()
    }

    /// Regions that were placed whole on one server each, or at some turn of a cycle that they do not fill, are one shape again: as shapes of
    /// their own, each would have been taken for the whole kind, and the next plan put all that chose it on one server.
    #[test]
    fn parts_of_one_cycle_are_one_shape_and_other_layouts_are_their_own() {
        let kind = |class, servers: &[usize]| Kind { class, servers: servers.to_vec(), room_bytes: None };
        let kinds =
            [kind(stripewise_layout::ServerClass::Hdd, &[0, 1, 2]), kind(stripewise_layout::ServerClass::Ssd, &[3, 4])];
        let kind_of = [0, 0, 0, 1, 1];
        let whole =
            |stripes: &[(u16, u32)], region_bytes| whole_cycle(&layout(stripes), region_bytes, &kinds, &kind_of);
        let disks = layout(&[(0, 64), (1, 64), (2, 64)]);
        for server in 0..3 {
            assert_eq!(whole(&[(server, 64)], 64), disks);
            assert_eq!(whole(&[(server, 64), ((server + 1) % 3, 64)], 100), disks);
        }
        assert_eq!(whole(&[(2, 64), (3, 16)], 80), layout(&[(0, 64), (1, 64), (2, 64), (3, 16), (4, 16)]));
        // A group that the region comes to again and again, and stripes of which nobody knows the rest.
        assert_eq!(whole(&[(1, 64), (0, 64)], 1000), layout(&[(0, 64), (1, 64)]));
        assert_eq!(whole(&[(0, 64), (1, 32)], 90), layout(&[(0, 64), (1, 32)]));
    }
}
