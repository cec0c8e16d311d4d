//! Candidates that need no program: the hottest regions one way while there is space for them, all others another way.
//!
//! The program knows loads, not queues. With few processes on many servers a plan that it holds for equal, or for worse, can be the faster one: whole regions
//! dealt to whichever server would be through first, disks of several speeds among them; or one stripe for all. These are what a person
//! would try; each is tried in the closed loop, and the best is polished there: other widths, another share of the SServers' room, more or less
//! work for the SServers.

use super::super::FileChoice;
use super::block::Block;
use super::budget::Budget;
use super::placing::PlacedFile;
use super::scene::{Bias, Filling, Scene, Servers, Spread};
use rayon::prelude::*;

/// Where all regions go.
#[derive(Clone, PartialEq, Debug)]
struct Recipe {
    hot: (Servers, Spread),
    cold: (Servers, Spread),
    bias: Bias,
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
        (!budget.is_spent()).then(|| (block.time_s(&choices(&scene, recipe)), recipe.clone()))
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
    tried.iter().map(|(_, recipe)| choices(&scene, recipe)).collect()
}

/// The recipes to begin with; every third of them is a fair sample.
fn recipes() -> Vec<Recipe> {
    use Servers::{All, Hdd, Ssd};
    let of = |hot, cold, ssd_weight| Recipe { hot, cold, bias: Bias { capacity: 1.0, ssd_weight } };
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
            let (bias, factor) = (self.bias, (sign * step).exp());
            let biased = |bias| Recipe { bias, ..self.clone() };
            around.push(biased(Bias { ssd_weight: bias.ssd_weight * factor, ..bias }));
            around.push(biased(Bias { capacity: (bias.capacity * factor).min(1.0), ..bias }));
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

/// Every region as the recipe has it.
fn choices(scene: &Scene<'_>, recipe: &Recipe) -> Vec<FileChoice> {
    let mut files: Vec<PlacedFile> =
        scene.task.request.files.iter().map(|file| PlacedFile::new(scene.task, file)).collect();
    let mut filling = Filling::empty(scene.task.groups.count);
    for item in &scene.order {
        let of_item = &scene.items[*item];
        for region in &of_item.regions {
            let tried = [recipe.hot, recipe.cold, (Servers::All, Spread::Whole)];
            let found = tried.into_iter().find_map(|with| {
                let layout = scene.layout(with, recipe.bias, *item, &filling)?;
                scene.fits(&layout, of_item.region_bytes, recipe.bias.capacity, &filling).then_some(layout)
            });
            if let Some(layout) = found {
                scene.book(&layout, *item, &mut filling);
                files[of_item.file].set(*region, layout);
            } else {
                let fallback = files[of_item.file].fallback_layout().clone();
                scene.book(&fallback, *item, &mut filling);
            }
        }
    }
    files.into_iter().map(|file| file.finish(scene.windows)).collect()
}
