//! What the requests of some windows are to the program: items, classes as disks see them, and the periods of each window.
//!
//! The times of a window's periods add up: what is accessed in one cannot make up for a server that is overloaded in another. A window is cut
//! by the slices in which regions were accessed, neighbouring slices with like accesses together; where several windows are planned
//! at once, each is one period.

use super::super::{FileChoice, Task, region_bytes, region_count};
use super::demand::SeenClass;
use super::kinds::Kind;
use super::placing::layout_in;
use super::program::Item;
use super::side_by_side::{Part, SideBySide, Spread, side_by_side};
use crate::served::Served;
use std::collections::HashMap;
use std::ops::Range;
use stripewise_layout::RegionIndex;
use stripewise_model::queueing::Streaming;
use stripewise_trace::{AccessClass, Company, FileAccess, SLICES, Slices};

/// Periods of one window, at most.
const MAX_PERIODS: u32 = 8;

/// Neighbouring slices whose requests are spread over regions as differently as this (total variation) are periods of their own.
const UNLIKE: f64 = 0.2;

/// Regions that are looked at one by one when slices are compared; the others by their place in the file.
const EXAMINED: usize = 48;
const PLACES: usize = 16;

/// The accesses of some windows of all files.
#[derive(Debug)]
pub(crate) struct Accesses {
    pub(crate) windows: Range<usize>,
    pub(crate) items: Vec<Item>,
    pub(crate) classes: Vec<AccessClass>,
    /// The window of each period, counted from the first.
    pub(crate) window_of: Vec<usize>,
    /// By class and window: of its requests the share that begin where another one ended.
    adjoining: Vec<Vec<f64>>,
    /// By window.
    pub(crate) processes: Vec<u32>,
    /// By class.
    parts: Vec<Part>,
    /// By window.
    pub(crate) programs: Vec<Vec<SideBySide>>,
}

/// A class of requests to files that are alike in how far requests continue one another: a disk sees the same requests of another file in another
/// order.
type ClassKey = (AccessClass, u8, Part);

/// Steps of [`Company::adjoining`] by which files are told apart.
const ADJOINING_STEPS: f64 = 4.0;

/// What independent requests may seem to keep of company: less than this is none.
const CHANCE: f64 = 0.05;

impl Accesses {
    pub(crate) fn of(task: &Task<'_>, windows: Range<usize>) -> Self {
        let mut accesses = Self {
            items: Vec::new(),
            classes: Vec::new(),
            window_of: (0..windows.len()).collect(),
            adjoining: Vec::new(),
            programs: windows.clone().map(|window| side_by_side(task, window)).collect(),
            parts: Vec::new(),
            processes: windows
                .clone()
                .map(|window| task.windows.get(window).unwrap_or(&task.concurrency).processes)
                .collect(),
            windows,
        };
        let mut numbers: HashMap<ClassKey, u16> = HashMap::new();
        let mut slices: Vec<Slices> = Vec::new();
        for file in 0..task.request.files.len() {
            accesses.add_file(task, file, &mut numbers, &mut slices);
        }
        accesses.adjoining = accesses.adjoining_of_classes(task);
        if accesses.windows.len() == 1 {
            accesses.split(&slices);
        } else {
            let windows = accesses.windows.len();
            accesses.items.iter_mut().for_each(|item| item.shares = vec![1.0; windows]);
        }
        accesses
    }

    /// Accessed regions each an item, the others of one size together. `slices` are those of each item in the first window.
    fn add_file(
        &mut self,
        task: &Task<'_>,
        file_number: usize,
        numbers: &mut HashMap<ClassKey, u16>,
        slices: &mut Vec<Slices>,
    ) {
        let file = &task.request.files[file_number];
        let step = adjoining_step(file, &self.windows);
        let count = self.windows.len();
        let parts: Vec<Vec<SideBySide>> = (0..count).map(|number| self.parts_of(file_number, number)).collect();
        let mut number_of = |class: AccessClass, part: Part| {
            *numbers.entry((class, step, part)).or_insert_with(|| {
                self.classes.push(class);
                self.parts.push(part);
                self.classes.len() as u16 - 1
            })
        };
        let of_window = |(number, window): (usize, usize)| match parts[number].is_empty() {
            // Marchers and the processes beside them are never all in one region.
            false => 0.0,
            true => file.windows.get(window).map_or(0.0, |window| beyond_chance(window.company.same_region)),
        };
        let same_region: Vec<f64> = self.windows.clone().enumerate().map(of_window).collect();
        let mut counts: Vec<Vec<Vec<(u16, f64)>>> = vec![Vec::new(); region_count(file) as usize];
        let mut seen: Vec<Slices> = vec![Slices(0); counts.len()];
        for (number, window) in self.windows.clone().enumerate() {
            let Some(window) = file.windows.get(window) else { continue };
            let served = Served::of(task.request.profile, file, window);
            let spread = Spread::of(&parts[number], window);
            for access in &window.regions {
                let of_region = &mut counts[access.region.0 as usize];
                of_region.resize(count, Vec::new());
                let shares = spread.shares(access);
                let mut add = |class: AccessClass, count: f64| {
                    of_region[number]
                        .extend(shares.iter().map(|(part, share)| (number_of(class, *part), count * share)));
                };
                if served.has_written_back() {
                    served.requests(access, None).into_iter().for_each(|(class, count)| add(class, count));
                } else {
                    access.counts.iter().for_each(|(class, count)| add(file.class(*class), *count as f64));
                }
                seen[access.region.0 as usize] = access.slices;
            }
        }
        let mut idle: HashMap<u64, usize> = HashMap::new();
        for (region, counts) in counts.into_iter().enumerate() {
            let bytes = region_bytes(file, RegionIndex(region as u32));
            if counts.is_empty()
                && let Some(known) = idle.get(&bytes)
            {
                self.items[*known].regions.push(region as u32);
                continue;
            }
            if counts.is_empty() {
                idle.insert(bytes, self.items.len());
            }
            self.items.push(Item {
                file: file_number,
                regions: vec![region as u32],
                region_bytes: bytes,
                counts: if counts.is_empty() { vec![Vec::new(); count] } else { counts },
                shares: Vec::new(),
                same_region: same_region.clone(),
                before: None,
            });
            slices.push(seen[region]);
        }
    }

    /// Who shares a file in a window, if its requests are not of one kind.
    fn parts_of(&self, file: usize, number: usize) -> Vec<SideBySide> {
        let of_file = self.programs[number].iter().filter(|program| program.file == file && program.part != Part::All);
        of_file.copied().collect()
    }

    /// Items that nobody accesses and that differ in where they lie cannot stay together.
    pub(crate) fn split_idle(&mut self, mut layout_number: impl FnMut(usize, u32, u64) -> usize) {
        let mut apart: Vec<Item> = Vec::new();
        for item in std::mem::take(&mut self.items) {
            if item.regions.len() == 1 {
                apart.push(item);
                continue;
            }
            let mut by_layout: Vec<(usize, Vec<u32>)> = Vec::new();
            for region in &item.regions {
                let number = layout_number(item.file, *region, item.region_bytes);
                match by_layout.iter_mut().find(|(known, _)| *known == number) {
                    Some((_, regions)) => regions.push(*region),
                    None => by_layout.push((number, vec![*region])),
                }
            }
            apart.extend(by_layout.into_iter().map(|(_, regions)| Item { regions, ..item.clone() }));
        }
        self.items = apart;
    }

    /// By class and window, the mean over the files that have the class, by requests.
    fn adjoining_of_classes(&self, task: &Task<'_>) -> Vec<Vec<f64>> {
        let mut sums = vec![vec![(0.0, 0.0); self.windows.len()]; self.classes.len()];
        for item in &self.items {
            for (number, counts) in item.counts.iter().enumerate() {
                let of_window = task.request.files[item.file].windows.get(self.windows.start + number);
                for (class, count) in counts {
                    let company = of_window.map_or(Company::default(), |window| window.company);
                    let part = self.parts[usize::from(*class)];
                    let program = self.programs[number].iter().find(|one| (one.file, one.part) == (item.file, part));
                    let company = program.map_or(company, |program| program.company(company));
                    let adjoining = beyond_chance(company.adjoining);
                    let (requests, sum) = &mut sums[usize::from(*class)][number];
                    *requests += count;
                    *sum += count * adjoining;
                }
            }
        }
        let mean = |(requests, sum): (f64, f64)| if requests > 0.0 { sum / requests } else { 0.0 };
        sums.into_iter().map(|of_class| of_class.into_iter().map(mean).collect()).collect()
    }

    /// Cuts the one window by slices.
    fn split(&mut self, slices: &[Slices]) {
        let requests: Vec<f64> =
            self.items.iter().map(|item| item.counts[0].iter().map(|(_, count)| *count).sum()).collect();
        let buckets = buckets(&requests);
        let width = SLICES / MAX_PERIODS;
        let mask = |group: u32| u64::MAX >> (64 - width) << (group * width);
        let share = |item: usize, mask: u64| {
            let all = slices[item].0.count_ones().max(1);
            f64::from((slices[item].0 & mask).count_ones()) / f64::from(all)
        };
        let histogram = |mask: u64| {
            let mut sums = vec![0.0; EXAMINED + PLACES];
            for (item, bucket) in buckets.iter().enumerate() {
                sums[*bucket] += requests[item] * share(item, mask);
            }
            sums
        };
        let mut masks = vec![mask(0)];
        for group in 1..MAX_PERIODS {
            let last = masks.last_mut().expect("it begins with one");
            if unlike(&histogram(*last), &histogram(mask(group))) {
                masks.push(mask(group));
            } else {
                *last |= mask(group);
            }
        }
        for (number, item) in self.items.iter_mut().enumerate() {
            let empty = slices[number].0 == 0;
            let of = |mask: &u64| if empty { 1.0 / masks.len() as f64 } else { share(number, *mask) };
            item.shares = masks.iter().map(of).collect();
        }
        self.window_of = vec![0; masks.len()];
    }

    /// What disks see of the classes in each window when that share of a window's requests goes to regions that lie on one disk.
    pub(crate) fn seen(&self, presence: &[f64]) -> Vec<Vec<SeenClass>> {
        let of_window = |window: usize| {
            let see = |((class, part), adjoining): ((&AccessClass, &Part), &Vec<f64>)| {
                let company = Company { adjoining: adjoining[window], ..Company::default() };
                let streaming = Streaming::of(company, self.processes[window], presence[window], presence[window]);
                SeenClass { class: *class, part: *part, continuing: streaming.continuing(class.order) }
            };
            self.classes.iter().zip(&self.parts).zip(&self.adjoining).map(see).collect()
        };
        (0..self.windows.len()).map(of_window).collect()
    }

    /// For each window the mean share of its requests that goes to regions which lie on one server, over the servers of the kind where
    /// most do.
    pub(crate) fn presence(
        &self,
        items: &[Item],
        kinds: &[Kind],
        kind_of: &[usize],
        choices: &[FileChoice],
    ) -> Vec<f64> {
        let of_window = |window: usize| {
            let (mut on_kind, mut all) = (vec![0.0; kinds.len()], 0.0);
            for item in items {
                let requests: f64 = item.counts[window].iter().map(|(_, count)| *count).sum();
                if requests == 0.0 {
                    continue;
                }
                all += requests;
                let layout = layout_in(choices, window, item.file, item.regions[0]);
                for (turn, stripe) in layout.stripes().iter().enumerate() {
                    if layout.view().object_bytes(turn, item.region_bytes) > 0 {
                        on_kind[kind_of[usize::from(stripe.server.0)]] += requests;
                    }
                }
            }
            let mean = |(sum, kind): (&f64, &Kind)| sum / kind.servers.len() as f64 / f64::max(all, 1.0);
            on_kind.iter().zip(kinds).map(mean).fold(0.0, f64::max).min(1.0)
        };
        (0..self.windows.len()).map(of_window).collect()
    }

    /// Whether it matters how many streams meet on a disk.
    pub(crate) fn has_streams(&self) -> bool {
        self.classes.iter().any(|class| class.order == stripewise_layout::Order::Sequential)
    }
}

/// For every item a bucket: the most accessed each their own, the others by their place.
fn buckets(requests: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by(|a, b| requests[*b].total_cmp(&requests[*a]).then(a.cmp(b)));
    let mut buckets: Vec<usize> = (0..requests.len()).map(|item| EXAMINED + item * PLACES / requests.len()).collect();
    for (bucket, item) in order.into_iter().take(EXAMINED).enumerate() {
        buckets[item] = bucket;
    }
    buckets
}

fn unlike(a: &[f64], b: &[f64]) -> bool {
    let (all_a, all_b): (f64, f64) = (a.iter().sum(), b.iter().sum());
    if all_a <= 0.0 || all_b <= 0.0 {
        return all_a != all_b;
    }
    a.iter().zip(b).map(|(a, b)| (a / all_a - b / all_b).abs()).sum::<f64>() / 2.0 > UNLIKE
}

/// A share of [`Company`], 0 where independent requests would have as much by chance.
fn beyond_chance(share: f64) -> f64 {
    if share < CHANCE { 0.0 } else { share.min(1.0) }
}

/// How far a file's requests continue one another, in steps; the mean of some windows by requests.
fn adjoining_step(file: &FileAccess, windows: &Range<usize>) -> u8 {
    let (mut requests, mut adjoining) = (0.0, 0.0);
    for window in windows.clone().filter_map(|window| file.windows.get(window)) {
        let counts = window.regions.iter().flat_map(|region| &region.counts);
        let count: f64 = counts.map(|(_, count)| *count as f64).sum();
        requests += count;
        adjoining += count * beyond_chance(window.company.adjoining);
    }
    if requests > 0.0 { (adjoining / requests * ADJOINING_STEPS).round() as u8 } else { 0 }
}
