//! Candidates that need no program: the hottest regions one way while there is space for them, all others another way.
//!
//! The program knows loads, not queues. With few processes on many servers a plan that it holds for equal, or for worse, can be the faster one: whole regions
//! dealt to whichever server would be through first, disks of several speeds among them; or one stripe for all. These are what a person
//! would try; each is tried in the closed loop, and the best is polished there: other widths, another share of the SServers' room, more or less
//! work for the SServers.

use super::super::{FileChoice, Task, file_request_bytes};
use super::block::Block;
use super::budget::Budget;
use super::placing::PlacedFile;
use super::program::Item;
use crate::servers::ceil_to;
use rayon::prelude::*;
use stripewise_layout::{Layout, Order, ServerId};
use stripewise_trace::AccessClass;

/// Servers that regions lie on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Servers {
    Hdd,
    Ssd,
    All,
}

/// How regions lie on them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    /// Stripes of so many bytes.
    Fixed(u64),
    /// Stripes that spread a request over so many servers.
    Over(u64),
    /// One cycle holds a request; an SServer's stripe is so many times an HServer's.
    Pair(u64),
    /// Each region on the one that would be through with its work first.
    Whole,
}

/// Where all regions go.
#[derive(Clone, PartialEq, Debug)]
struct Recipe {
    hot: (Servers, Spread),
    cold: (Servers, Spread),
    /// Share of the SServers' room that may be used.
    capacity: f64,
    /// How much longer than an HServer an SServer may take, where regions lie whole on any server.
    ssd_weight: f64,
}

/// Fixed stripes that are tried, in bytes.
const FIXED_BYTES: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Servers that a request is spread over.
const WIDTHS: [u64; 5] = [1, 2, 4, 8, 16];

/// Recipes that are polished, and steps of that; a step that gains nothing halves the next.
const POLISHED: usize = 3;
const STEPS: usize = 4;

/// The plans of the best recipes for all windows of a block that has no moves.
pub(crate) fn best(block: &Block<'_>, budget: &Budget) -> Vec<Vec<FileChoice>> {
    let scene = Scene::new(block);
    let is_large = block.program().is_large();
    let timed = |recipe: &Recipe| -> Option<(f64, Recipe)> {
        (!budget.is_spent()).then(|| (block.time_s(&scene.choices(recipe)), recipe.clone()))
    };
    let first: Vec<Recipe> = recipes().into_iter().step_by(if is_large { 3 } else { 1 }).collect();
    let mut tried: Vec<(f64, Recipe)> = first.par_iter().filter_map(timed).collect();
    tried.sort_by(|a, b| a.0.total_cmp(&b.0));
    tried.truncate(POLISHED);
    if !is_large {
        tried = tried
            .into_iter()
            .map(|mut center| {
                let mut step = 0.3;
                for _ in 0..STEPS {
                    let around = center.1.neighbours(step);
                    let found: Vec<(f64, Recipe)> = around.par_iter().filter_map(timed).collect();
                    match found.into_iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
                        Some(next) if next.0 < center.0 * (1.0 - 1e-6) => center = next,
                        _ => step /= 2.0,
                    }
                }
                center
            })
            .collect();
    }
    tried.iter().map(|(_, recipe)| scene.choices(recipe)).collect()
}

/// The recipes to begin with; every third of them is a fair sample.
fn recipes() -> Vec<Recipe> {
    use Servers::{All, Hdd, Ssd};
    let of = |hot, cold, ssd_weight| Recipe { hot, cold, capacity: 1.0, ssd_weight };
    let whole = (All, Spread::Whole);
    let mut recipes: Vec<Recipe> = [1.0, 0.8, 1.25, 0.6, 1.6, 2.5].map(|weight| of(whole, whole, weight)).to_vec();
    for on_ssd in [Spread::Over(1), Spread::Over(2), Spread::Over(4), Spread::Whole] {
        recipes.extend(WIDTHS.map(|width| of((Ssd, on_ssd), (Hdd, Spread::Over(width)), 1.0)));
        recipes.push(of((Ssd, on_ssd), (Hdd, Spread::Whole), 1.0));
    }
    for fixed in FIXED_BYTES.map(Spread::Fixed) {
        recipes.extend([(All, fixed), (Ssd, fixed), (Hdd, fixed)].map(|hot| of(hot, (Hdd, fixed), 1.0)));
    }
    for over in WIDTHS.map(Spread::Over) {
        recipes.extend([(All, over), (Hdd, over)].map(|hot| of(hot, (Hdd, over), 1.0)));
    }
    recipes.extend([2, 4, 8].map(|times| of((All, Spread::Pair(times)), (Hdd, Spread::Pair(1)), 1.0)));
    recipes
}

impl Recipe {
    fn neighbours(&self, step: f64) -> Vec<Recipe> {
        let mut around = Vec::new();
        for sign in [1.0, -1.0] {
            around.push(Recipe { ssd_weight: self.ssd_weight * (sign * step).exp(), ..self.clone() });
            around.push(Recipe { capacity: (self.capacity * (sign * step).exp()).min(1.0), ..self.clone() });
        }
        let with = |spread: Spread| spread.neighbours().into_iter();
        around.extend(with(self.hot.1).map(|spread| Recipe { hot: (self.hot.0, spread), ..self.clone() }));
        around.extend(with(self.cold.1).map(|spread| Recipe { cold: (self.cold.0, spread), ..self.clone() }));
        let mut distinct: Vec<Recipe> = Vec::new();
        for one in around {
            if one != *self && !distinct.contains(&one) {
                distinct.push(one);
            }
        }
        distinct
    }
}

impl Spread {
    fn neighbours(self) -> Vec<Spread> {
        match self {
            Spread::Fixed(bytes) => vec![Spread::Fixed(2 * bytes), Spread::Fixed((bytes / 2).max(4096))],
            Spread::Over(1) => vec![Spread::Over(2), Spread::Whole],
            Spread::Over(width) => vec![Spread::Over(width - 1), Spread::Over(width + 1)],
            Spread::Pair(times) => vec![Spread::Pair(times + 1), Spread::Pair((times - 1).max(1))],
            Spread::Whole => vec![Spread::Over(1)],
        }
    }
}

/// Seconds on a server's device and on its link.
#[derive(Clone, Copy, Default)]
struct Work {
    device_s: f64,
    link_s: f64,
}

/// What is accessed how often, hottest first.
struct Scene<'a> {
    task: &'a Task<'a>,
    windows: usize,
    items: &'a [Item],
    /// By item: requests of each class in all windows.
    counts: Vec<Vec<(AccessClass, f64)>>,
    order: Vec<usize>,
    /// By file.
    request_bytes: Vec<u64>,
}

impl<'a> Scene<'a> {
    fn new(block: &'a Block<'a>) -> Self {
        let (task, program) = (block.task, block.program());
        let of_item = |item: &Item| -> Vec<(AccessClass, f64)> {
            let counts = item.counts.iter().flatten();
            counts.map(|(class, count)| (block.classes()[usize::from(*class)], *count)).collect()
        };
        let counts: Vec<Vec<(AccessClass, f64)>> = program.items.iter().map(of_item).collect();
        let first = task.groups.all().next().map_or(0, |id| usize::from(id.0));
        let heat: Vec<f64> = counts.iter().map(|counts| whole_work(task, counts, first).device_s).collect();
        let mut order: Vec<usize> = (0..counts.len()).collect();
        // Stable: of equal ones as they lie in the files.
        order.sort_by(|a, b| heat[*b].total_cmp(&heat[*a]));
        let request_bytes = |file| file_request_bytes(file, task.step_bytes);
        Self {
            task,
            windows: program.windows,
            items: &program.items,
            counts,
            order,
            request_bytes: task.request.files.iter().map(request_bytes).collect(),
        }
    }

    fn choices(&self, recipe: &Recipe) -> Vec<FileChoice> {
        let mut files: Vec<PlacedFile> =
            self.task.request.files.iter().map(|file| PlacedFile::new(self.task, file)).collect();
        let mut filling = Filling {
            used_bytes: vec![0; self.task.groups.count],
            work: vec![Work::default(); self.task.groups.count],
        };
        for item in &self.order {
            let of_item = &self.items[*item];
            for region in &of_item.regions {
                let tried = [recipe.hot, recipe.cold, (Servers::All, Spread::Whole)];
                let found = tried.into_iter().find_map(|with| {
                    let layout = self.layout(with, recipe, *item, &filling)?;
                    self.fits(&layout, of_item.region_bytes, recipe.capacity, &filling).then_some(layout)
                });
                if let Some(layout) = found {
                    self.book(&layout, *item, &mut filling);
                    files[of_item.file].set(*region, layout);
                } else {
                    let fallback = files[of_item.file].fallback_layout().clone();
                    self.book(&fallback, *item, &mut filling);
                }
            }
        }
        files.into_iter().map(|file| file.finish(self.windows)).collect()
    }

    fn layout(
        &self,
        (servers, spread): (Servers, Spread),
        recipe: &Recipe,
        item: usize,
        filling: &Filling,
    ) -> Option<Layout> {
        let groups = &self.task.groups;
        let of_item = &self.items[item];
        let chosen: Vec<ServerId> = match servers {
            Servers::Hdd => groups.hdd.clone(),
            Servers::Ssd => groups.ssd.clone(),
            Servers::All => groups.all().collect(),
        };
        let request_bytes = self.request_bytes[of_item.file];
        let stripes = |bytes: &dyn Fn(ServerId) -> u64| -> Option<Layout> {
            let pairs = chosen.iter().map(|id| Some((*id, u32::try_from(bytes(*id)).ok()?)));
            Layout::new(pairs.collect::<Option<Vec<_>>>()?).ok()
        };
        match spread {
            Spread::Fixed(bytes) => stripes(&|_| ceil_to(bytes, self.task.step_bytes)),
            Spread::Over(width) => {
                let width = width.min(chosen.len() as u64).max(1);
                stripes(&|_| ceil_to(request_bytes.div_ceil(width), self.task.step_bytes))
            }
            Spread::Pair(times) => {
                let of = |id: ServerId| if groups.ssd.contains(&id) { times } else { 1 };
                let parts: u64 = chosen.iter().map(|id| of(*id)).sum();
                let part = ceil_to(request_bytes.div_ceil(parts.max(1)), self.task.step_bytes);
                stripes(&|id| of(id) * part)
            }
            Spread::Whole => {
                let weight = |id: &ServerId| if groups.ssd.contains(id) { recipe.ssd_weight } else { 1.0 };
                let bytes = u32::try_from(ceil_to(of_item.region_bytes, self.task.step_bytes)).ok()?;
                let through_s = |id: &ServerId| {
                    let server = usize::from(id.0);
                    let (known, more) = (filling.work[server], self.whole_work(item, server));
                    (known.device_s + more.device_s).max(known.link_s + more.link_s) / weight(id)
                };
                let mut best: Option<(f64, u64, ServerId)> = None;
                for id in &chosen {
                    let used = filling.used_bytes[usize::from(id.0)];
                    let candidate = (through_s(id), used, *id);
                    let is_better = best.is_none_or(|(known_s, known_used, _)| {
                        candidate.0 < known_s || (candidate.0 == known_s && used < known_used)
                    });
                    if is_better && self.has_space(*id, of_item.region_bytes, recipe.capacity, filling) {
                        best = Some(candidate);
                    }
                }
                best.and_then(|(_, _, id)| Layout::new([(id, bytes)]).ok())
            }
        }
    }

    fn has_space(&self, id: ServerId, bytes: u64, share: f64, filling: &Filling) -> bool {
        let server = usize::from(id.0);
        let share = if self.task.groups.ssd.contains(&id) { share } else { 1.0 };
        let capacity = self.task.capacity.bytes(server).map(|capacity| (capacity as f64 * share) as u64);
        capacity.is_none_or(|capacity| filling.used_bytes[server].saturating_add(bytes) <= capacity)
    }

    fn fits(&self, layout: &Layout, region_bytes: u64, share: f64, filling: &Filling) -> bool {
        let view = layout.view();
        let stripes = layout.stripes().iter().enumerate();
        stripes
            .into_iter()
            .all(|(turn, stripe)| self.has_space(stripe.server, view.object_bytes(turn, region_bytes), share, filling))
    }

    /// One region of the item on one server.
    fn whole_work(&self, item: usize, server: usize) -> Work {
        let work = whole_work(self.task, &self.counts[item], server);
        let regions = self.items[item].regions.len() as f64;
        Work { device_s: work.device_s / regions, link_s: work.link_s / regions }
    }

    /// A request touches about (r + x) / C of the servers with a stripe of x.
    fn book(&self, layout: &Layout, item: usize, filling: &mut Filling) {
        let (profile, of_item) = (self.task.request.profile, &self.items[item]);
        let cycle_bytes = layout.view().cycle_bytes() as f64;
        for (turn, stripe) in layout.stripes().iter().enumerate() {
            let server = usize::from(stripe.server.0);
            filling.used_bytes[server] += layout.view().object_bytes(turn, of_item.region_bytes);
            let part = f64::from(stripe.size_bytes) / cycle_bytes;
            for (class, count) in &self.counts[item] {
                let line = profile.servers[server].line(class.kind, Order::Random);
                let bytes = class.request_bytes as f64;
                let touched = (bytes / cycle_bytes + part).min(1.0);
                let count = count / of_item.regions.len() as f64;
                filling.work[server].device_s += count * (touched * line.alpha_s + bytes * part * line.beta_s_per_byte);
                filling.work[server].link_s +=
                    count * (touched * profile.network.e_s + bytes * part * profile.network.t_s_per_byte);
            }
        }
    }
}

/// Work of requests that are served by one server.
fn whole_work(task: &Task<'_>, counts: &[(AccessClass, f64)], server: usize) -> Work {
    let profile = task.request.profile;
    let mut work = Work::default();
    for (class, count) in counts {
        let line = profile.servers[server].line(class.kind, Order::Random);
        let bytes = class.request_bytes as f64;
        work.device_s += count * line.seconds(bytes);
        work.link_s += count * (profile.network.e_s + bytes * profile.network.t_s_per_byte);
    }
    work
}

/// What is placed already, by server.
struct Filling {
    used_bytes: Vec<u64>,
    work: Vec<Work>,
}
