//! Local search in the closed loop: the best plan, changed part by part for as long as that makes it faster.
//!
//! The program's plans and the recipes treat all regions by one rule. What they miss are mixtures: one stripe for regions on hybrid servers and another
//! for those on disks, a few hot regions spread over the SSDs among whole ones, less or more of one class for the warm ones. A step lays all regions of
//! one *group* out in another way; where SServers have no space for that, their coldest regions take the places that become free. Groups are
//! regions that lie alike, halves of these, and slices of all regions by heat. A step is kept when runs with other draws of the same
//! popularity end earlier together. Of all that were kept, the one counts with which further runs, which no step has seen, end first: a plan that
//! suits the draws of some runs to the last request gains nothing in the next one.

#[cfg(test)]
mod tests;

use super::super::FileChoice;
use super::block::{Block, Run};
use super::budget::Budget;
use super::placing::{PlacedFile, layout_in};
use super::scene::{Bias, Filling, Scene, Servers, Spread, Work};
use super::search::Candidate;
use rayon::prelude::*;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use stripewise_layout::{Layout, ServerId};

/// Regions of a plan that is polished, at most.
const MAX_REGIONS: usize = 1 << 13;

/// Steps that are tried, at most; each runs once, and in all runs if that was faster.
const MAX_TRIES: usize = 240;

/// Rounds over all groups, at most; a round without any gain is the last one.
const MAX_ROUNDS: usize = 3;

/// Share of the time that a step has to save in the runs that it is judged by, and all of them together in those that none has seen: less is the luck of
/// the draws.
const MIN_GAIN: f64 = 2e-3;
const MIN_UNSEEN_GAIN: f64 = 4e-3;

/// Runs that steps are judged by, and those that the result is.
const RUNS: RangeInclusive<u64> = 1..=3;
const UNSEEN_RUNS: RangeInclusive<u64> = 4..=9;

/// Groups of regions that lie alike, and slices by heat.
const FAMILIES: usize = 6;
const SLICES: usize = 8;

/// Whole regions' weights of SServers over HServers.
const SSD_WEIGHTS: [f64; 4] = [1.0, 1.5, 0.7, 2.5];

/// One region.
#[derive(Clone, Copy, Debug)]
struct Part {
    item: usize,
    region: u32,
}

/// How the regions of a group shall lie.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Form {
    servers: Servers,
    spread: Spread,
    bias: Bias,
}

/// The candidate or a faster one, by the sum over other runs of the same popularity. Marches in order with nobody beside them are left as they are: their
/// samples differ by more than steps do.
pub(crate) fn polish(block: &Block<'_>, start: Candidate, budget: &Budget) -> Candidate {
    let program = block.program();
    let regions: usize = program.items.iter().map(|item| item.regions.len()).sum();
    if program.has_moves()
        || block.has_marches_alone()
        || program.is_large()
        || regions > MAX_REGIONS
        || budget.is_spent()
    {
        return start;
    }
    let polisher = Polisher::new(block);
    let layouts = polisher.layouts(&start.choices);
    let runs: Vec<Run> = RUNS.map(|run| block.other_run(run)).collect();
    let steps = polisher.search(layouts, &runs, budget);
    let unseen: Vec<Run> = UNSEEN_RUNS.map(|run| block.other_run(run)).collect();
    let sum_s = |choices: &[FileChoice]| -> f64 { unseen.iter().map(|run| block.time_of_run_s(run, choices)).sum() };
    let judged = |layouts: &Vec<Layout>| {
        let choices = polisher.choices(layouts);
        (sum_s(&choices), choices)
    };
    let judged: Vec<(f64, Vec<FileChoice>)> = steps.par_iter().map(judged).collect();
    let best = judged.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    match best.filter(|(best_s, _)| *best_s < sum_s(&start.choices) * (1.0 - MIN_UNSEEN_GAIN)) {
        Some((_, choices)) => Candidate { time_s: block.time_s(&choices), choices },
        None => start,
    }
}

struct Polisher<'a> {
    block: &'a Block<'a>,
    scene: Scene<'a>,
    /// Hottest first.
    parts: Vec<Part>,
    forms: Vec<Form>,
    /// Whether no run can end before the busiest server has done all requests as if they were random.
    work_is_bound: bool,
}

impl<'a> Polisher<'a> {
    fn new(block: &'a Block<'a>) -> Self {
        let scene = Scene::new(block);
        let of_item = |item: &usize| {
            let item = *item;
            scene.items[item].regions.iter().map(move |region| Part { item, region: *region })
        };
        let parts = scene.order.iter().flat_map(of_item).collect();
        let forms = forms(&scene);
        let work_is_bound = !block.has_streams();
        Self { block, scene, parts, forms, work_is_bound }
    }

    /// The layouts of all parts.
    fn layouts(&self, choices: &[FileChoice]) -> Vec<Layout> {
        let of_part = |part: &Part| layout_in(choices, 0, self.scene.items[part.item].file, part.region).clone();
        self.parts.iter().map(of_part).collect()
    }

    fn choices(&self, layouts: &[Layout]) -> Vec<FileChoice> {
        let task = self.scene.task;
        let mut files: Vec<PlacedFile> = task.request.files.iter().map(|file| PlacedFile::new(task, file)).collect();
        for (part, layout) in self.parts.iter().zip(layouts) {
            files[self.scene.items[part.item].file].set(part.region, layout.clone());
        }
        files.into_iter().map(|file| file.finish(self.scene.windows)).collect()
    }

    /// The layouts after each step that was kept.
    fn search(&self, start: Vec<Layout>, runs: &[Run], budget: &Budget) -> Vec<Vec<Layout>> {
        let time_s = |run: &Run, layouts: &[Layout]| self.block.time_of_run_s(run, &self.choices(layouts));
        let mut here = start;
        let mut here_s: Vec<f64> = runs.par_iter().map(|run| time_s(run, &here)).collect();
        let mut steps = Vec::new();
        let mut tries = 0;
        for _ in 0..MAX_ROUNDS {
            let mut gained = false;
            for group in self.groups(&here) {
                if tries >= MAX_TRIES || budget.is_spent() {
                    return steps;
                }
                let sum_s: f64 = here_s.iter().sum();
                let changed = self.neighbours(&here, &group, here_s[0]);
                tries += changed.len();
                // Most are slower by far in any run.
                let timed = |layouts: Vec<Layout>| -> Option<(Vec<f64>, Vec<Layout>)> {
                    let first_s = time_s(&runs[0], &layouts);
                    if first_s >= here_s[0] {
                        return None;
                    }
                    let others = runs[1..].iter().map(|run| time_s(run, &layouts));
                    Some((std::iter::once(first_s).chain(others).collect(), layouts))
                };
                let faster: Vec<(Vec<f64>, Vec<Layout>)> = changed.into_par_iter().filter_map(timed).collect();
                let sum = |times: &[f64]| times.iter().sum::<f64>();
                let best = faster.into_iter().min_by(|a, b| sum(&a.0).total_cmp(&sum(&b.0)));
                if let Some((times, layouts)) = best.filter(|(times, _)| sum(times) < sum_s * (1.0 - MIN_GAIN)) {
                    steps.push(layouts.clone());
                    (here, here_s, gained) = (layouts, times, true);
                }
            }
            if !gained {
                break;
            }
        }
        steps
    }

    /// The layouts with each form of the group that differs and may be faster than `time_s`.
    fn neighbours(&self, here: &[Layout], group: &[usize], time_s: f64) -> Vec<Vec<Layout>> {
        let mut distinct: Vec<Vec<Layout>> = Vec::new();
        for form in &self.forms {
            let Some((layouts, filling)) = self.changed(here, group, *form) else { continue };
            let busiest_s = filling.work.iter().map(Work::busy_s).fold(0.0, f64::max);
            let hopeless = self.work_is_bound && busiest_s > time_s;
            if !hopeless && layouts != here && !distinct.contains(&layouts) {
                distinct.push(layouts);
            }
        }
        distinct
    }

    /// Positions of parts, hottest first in each group.
    fn groups(&self, here: &[Layout]) -> Vec<Vec<usize>> {
        let heat: Vec<f64> = self.parts.iter().map(|part| self.scene.heat_s(part.item)).collect();
        let total: f64 = heat.iter().sum();
        let mut families: Vec<(f64, Vec<usize>)> = Vec::new();
        let mut numbers: HashMap<Vec<(u16, u32)>, usize> = HashMap::new();
        for (part, layout) in here.iter().enumerate() {
            let number = *numbers.entry(self.family(part, layout)).or_insert_with(|| {
                families.push((0.0, Vec::new()));
                families.len() - 1
            });
            families[number].0 += heat[part];
            families[number].1.push(part);
        }
        families.retain(|(heat, _)| *heat > 0.0);
        families.sort_by(|a, b| b.0.total_cmp(&a.0));
        families.truncate(FAMILIES);
        let halves = families.iter().flat_map(|(sum, family)| {
            let mut known = 0.0;
            let at = family.iter().take_while(|part| {
                known += heat[**part];
                known <= sum / 2.0
            });
            let (hot, cold) = family.split_at(at.count());
            [hot.to_vec(), cold.to_vec()]
        });
        let mut slices: Vec<Vec<usize>> = vec![Vec::new(); SLICES];
        let mut known = 0.0;
        for (part, own) in heat.iter().enumerate().filter(|(_, own)| **own > 0.0) {
            slices[((known + own / 2.0) / total * SLICES as f64) as usize % SLICES].push(part);
            known += own;
        }
        let whole = families.iter().map(|(_, family)| family.clone());
        whole.chain(halves).chain(slices).filter(|group| !group.is_empty()).collect()
    }

    /// What layouts of regions that lie alike have in common: a whole one the class of its server, any other its stripes. On which servers a region lies
    /// that does not fill a cycle depends on what was placed before it, so of those the classes.
    fn family(&self, part: usize, layout: &Layout) -> Vec<(u16, u32)> {
        if let [stripe] = layout.stripes() {
            return vec![(u16::from(self.is_ssd(stripe.server)), u32::MAX)];
        }
        let is_part = layout.view().cycle_bytes() >= self.scene.items[self.parts[part].item].region_bytes;
        let lies_on = |server: ServerId| if is_part { u16::from(self.is_ssd(server)) } else { server.0 };
        let mut stripes: Vec<(u16, u32)> = layout.stripes().iter().map(|s| (lies_on(s.server), s.size_bytes)).collect();
        stripes.sort_unstable();
        stripes
    }

    fn is_ssd(&self, server: ServerId) -> bool {
        self.scene.task.groups.ssd.contains(&server)
    }

    fn is_on_ssd(&self, layout: &Layout) -> bool {
        layout.stripes().iter().any(|stripe| self.is_ssd(stripe.server))
    }

    /// All layouts when the group has another form, and what servers have then. Where SServers have no space, regions that are colder than those of the
    /// group leave them; `None` if these find none elsewhere.
    fn changed(&self, here: &[Layout], group: &[usize], form: Form) -> Option<(Vec<Layout>, Filling)> {
        let mut next = here.to_vec();
        let mut filling = Filling::empty(self.scene.task.groups.count);
        let mut is_member = vec![false; here.len()];
        group.iter().for_each(|part| is_member[*part] = true);
        for (part, layout) in here.iter().enumerate().filter(|(part, _)| !is_member[*part]) {
            self.scene.book(layout, self.parts[part].item, &mut filling);
        }
        let mut coldest = (0..here.len()).rev().filter(|part| !is_member[*part] && self.is_on_ssd(&here[*part]));
        let mut displaced = Vec::new();
        for part in group {
            loop {
                if let Some(layout) = self.fitting(form, *part, &filling) {
                    self.scene.book(&layout, self.parts[*part].item, &mut filling);
                    next[*part] = layout;
                    break;
                }
                let colder = coldest.next().filter(|other| other > part && form.servers != Servers::Hdd);
                if let Some(other) = colder {
                    self.scene.remove(&here[other], self.parts[other].item, &mut filling);
                    displaced.push(other);
                    continue;
                }
                if !self.fits(&here[*part], *part, &filling) {
                    return None;
                }
                self.scene.book(&here[*part], self.parts[*part].item, &mut filling);
                break;
            }
        }
        let before = &here[*group.first()?];
        for part in displaced {
            let layout = self.place_of_displaced(before, part, &filling)?;
            self.scene.book(&layout, self.parts[part].item, &mut filling);
            next[part] = layout;
        }
        Some((next, filling))
    }

    /// As the group lay that takes the part's place, if that was on disks.
    fn place_of_displaced(&self, before: &Layout, part: usize, filling: &Filling) -> Option<Layout> {
        let bias = Bias { capacity: 1.0, ssd_weight: 1.0 };
        let on_disks = |spread| self.fitting(Form { servers: Servers::Hdd, spread, bias }, part, filling);
        let alike = match before.stripes() {
            [_] => on_disks(Spread::Whole),
            _ => Some(before.clone()).filter(|layout| !self.is_on_ssd(layout) && self.fits(layout, part, filling)),
        };
        alike.or_else(|| on_disks(Spread::Over(1)))
    }

    fn fitting(&self, form: Form, part: usize, filling: &Filling) -> Option<Layout> {
        let layout = self.scene.layout((form.servers, form.spread), form.bias, self.parts[part].item, filling)?;
        self.fits(&layout, part, filling).then_some(layout)
    }

    fn fits(&self, layout: &Layout, part: usize, filling: &Filling) -> bool {
        self.scene.fits(layout, self.scene.items[self.parts[part].item].region_bytes, 1.0, filling)
    }
}

/// What is tried, on the classes that there are.
fn forms(scene: &Scene<'_>) -> Vec<Form> {
    use Servers::{All, Hdd, Ssd};
    let groups = &scene.task.groups;
    let classes = [(Hdd, groups.hdd.len() as u64), (Ssd, groups.ssd.len() as u64), (All, groups.all().count() as u64)];
    let is_hybrid = classes[0].1 > 0 && classes[1].1 > 0;
    let plain = Bias { capacity: 1.0, ssd_weight: 1.0 };
    let mut forms = Vec::new();
    for (servers, count) in classes.into_iter().filter(|(servers, count)| *count > 0 && (is_hybrid || *servers != All))
    {
        let mut widths: Vec<u64> = [1, 2, 3, 4, 8].into_iter().filter(|width| *width < count).collect();
        widths.push(count);
        let spreads = widths.into_iter().map(Spread::Over).chain([Spread::Fixed(4 << 20)]);
        forms.extend(spreads.map(|spread| Form { servers, spread, bias: plain }));
        let weights = if servers == All { &SSD_WEIGHTS[..] } else { &SSD_WEIGHTS[..1] };
        let whole =
            |ssd_weight: &f64| Form { servers, spread: Spread::Whole, bias: Bias { ssd_weight: *ssd_weight, ..plain } };
        forms.extend(weights.iter().map(whole));
    }
    if is_hybrid {
        forms.extend([2, 4].map(|times| Form { servers: All, spread: Spread::Pair(times), bias: plain }));
    }
    forms
}
