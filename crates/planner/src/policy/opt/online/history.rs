//! The decayed past of files, and the guess that follows from it for the windows to come.

use crate::request::Online;
use std::collections::HashMap;
use stripewise_layout::RegionIndex;
use stripewise_trace::{
    AccessClass, ClassIndex, Company, FileAccess, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
};

/// Weight of a guess relative to the next one when it is asked how right guesses are: slower than the accesses themselves are forgotten, since
/// how often a program changes its ways tells of later changes.
const RELIANCE_DECAY: f64 = 0.8;

/// A window of which the guess had less than this right has nothing to do with those before it. When a Zipf-distributed hot set (exponent 0.8)
/// moves to other regions, about half is right by chance; when a quarter of its regions are exchanged, nearly nine tenths are.
const CHANGED: f64 = 0.75;

/// Difference of two windows that may be ascribed to chance, at most.
const MAX_CHANCE: f64 = 0.2;

/// Windows that a guess is taken to hold for, at most, and before any change was seen: moves must be dared once to learn from. Ours, from one
/// seed of one size; 12 gained as much and moved a sixth more.
const LONGEST_HORIZON: f64 = 5.0;

/// A guess that has this part of its requests where the one before had them is no news.
const ALIKE: f64 = 0.98;

/// Weight of the life of a hot set relative to that of the next one.
const LIFE_DECAY: f64 = 0.7;

/// What one file's window looked like, region by region and class by class, as weights that sum to its mean requests.
type Weights = HashMap<(u32, AccessClass), f64>;

/// The decayed past of some files.
#[derive(Clone, Debug)]
pub struct History {
    decay: f64,
    files: Vec<Past>,
}

#[derive(Clone, Debug, Default)]
struct Past {
    weights: Weights,
    /// Sum of the windows' weights.
    windows: f64,
    /// Of its busiest region, the most of any window.
    processes: u32,
    processes_per_node: u32,
    /// Of the file and the run, in the last window with accesses.
    of_window: WindowProcesses,
    /// Shares are means; distances those of the last window with accesses.
    company: Company,
    /// Decayed sums of what guesses had right, and of windows that were guessed.
    right: f64,
    guessed: f64,
    /// Windows since the last change.
    age: f64,
    /// Decayed sums of the windows between changes, and of their number.
    lives: f64,
    changes: f64,
}

impl History {
    /// Nothing seen yet of `files` files.
    #[must_use]
    pub fn new(online: Online, files: usize) -> Self {
        Self { decay: online.decay, files: vec![Past::default(); files] }
    }

    /// One more file, of which nothing was seen yet, behind the others.
    pub fn add_file(&mut self) {
        self.files.push(Past::default());
    }

    /// Forgets a file, by its place in the order; those behind it move up.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn remove_file(&mut self, file: usize) {
        self.files.remove(file);
    }

    /// Adds window `window` of every file, which must be as many as the history is of and always in the same order.
    pub fn see(&mut self, files: &[FileAccess], window: usize) {
        for (past, file) in self.files.iter_mut().zip(files) {
            match file.windows.get(window) {
                Some(seen) => past.see(file, seen, self.decay),
                None => past.see(file, &empty(window), self.decay),
            }
        }
    }

    /// The guess for what comes. `None` while nothing was seen.
    #[must_use]
    pub fn guess(&self, files: &[FileAccess]) -> Option<Guess> {
        let seen = self.files.iter().any(|past| !past.weights.is_empty());
        seen.then(|| Guess {
            files: self.files.iter().zip(files).map(|(past, file)| past.guess(file)).collect(),
            windows: self.horizon(),
        })
    }

    /// Windows that the guess is taken to hold for, the mean of all files by their requests.
    fn horizon(&self) -> f64 {
        let (mut sum, mut requests) = (0.0, 0.0);
        for past in self.files.iter().filter(|past| past.windows > 0.0) {
            let mut counts: Vec<f64> = past.weights.values().copied().collect();
            // Sums must not depend on the order of a hash table.
            counts.sort_by(f64::total_cmp);
            let of_file = counts.iter().sum::<f64>() / past.windows;
            sum += past.horizon() * of_file;
            requests += of_file;
        }
        if requests > 0.0 { sum / requests } else { 1.0 }
    }
}

/// What is expected of some files.
#[derive(Clone, PartialEq, Debug)]
pub struct Guess {
    /// Each with one window, which stands for all those to come that it is taken to hold for.
    pub files: Vec<FileAccess>,
    /// How many these are, 1 or more.
    pub windows: f64,
}

impl Guess {
    /// Whether it has nearly all requests where `other`, of the same files, has them: what was planned for that need not be planned again.
    #[must_use]
    pub fn is_like(&self, other: &Guess) -> bool {
        self.files.len() == other.files.len()
            && self.files.iter().zip(&other.files).all(|(a, b)| {
                let (a, b) = (weights(a, &a.windows[0]), weights(b, &b.windows[0]));
                (a.is_empty() && b.is_empty()) || overlap(&a, &b) >= ALIKE
            })
    }
}

fn empty(window: usize) -> WindowAccess {
    WindowAccess {
        start_s: window as f64,
        end_s: window as f64,
        company: Company::default(),
        processes: WindowProcesses::default(),
        synchronizations: Synchronizations::default(),
        regions: Vec::new(),
    }
}

impl Past {
    fn see(&mut self, file: &FileAccess, window: &WindowAccess, decay: f64) {
        let now = weights(file, window);
        let total: f64 = now.values().sum();
        let mut decay = decay;
        if !self.weights.is_empty() && total > 0.0 {
            let right = overlap(&self.weights, &now);
            if right < CHANGED {
                self.change();
            } else {
                // Less right than usual: what was before counts the less.
                decay *= (right / self.reliance().max(1e-9)).min(1.0).powi(2);
                self.right = RELIANCE_DECAY * self.right + right;
                self.guessed = RELIANCE_DECAY * self.guessed + 1.0;
            }
        }
        if total > 0.0 {
            self.age += 1.0;
        }
        self.weights.retain(|_, weight| {
            *weight *= decay;
            *weight > 1e-9
        });
        for (key, count) in now {
            *self.weights.entry(key).or_insert(0.0) += count;
        }
        let before = decay * self.windows;
        self.windows = before + 1.0;
        let mean = |known: f64, seen: f64| (before * known + seen) / (before + 1.0);
        let distances = if total > 0.0 { window.company } else { self.company };
        self.company = Company {
            same_region: mean(self.company.same_region, window.company.same_region),
            adjoining: mean(self.company.adjoining, window.company.adjoining),
            ..distances
        };
        if total > 0.0 {
            self.of_window = window.processes;
        }
        self.processes = window.regions.iter().map(|region| region.processes).fold(self.processes, u32::max);
        let per_node = window.regions.iter().map(|region| region.processes_per_node);
        self.processes_per_node = per_node.fold(self.processes_per_node, u32::max);
    }

    /// Other data is accessed than before.
    fn change(&mut self) {
        self.lives = LIFE_DECAY * self.lives + self.age;
        self.changes = LIFE_DECAY * self.changes + 1.0;
        (self.age, self.windows) = (0.0, 0.0);
        self.weights.clear();
    }

    /// How far guesses were right while the program kept to its data, 0 to 1; 1 while there was none.
    fn reliance(&self) -> f64 {
        if self.guessed > 0.0 { (self.right / self.guessed).clamp(0.0, 1.0) } else { 1.0 }
    }

    /// Windows for which the guess is taken to hold.
    fn horizon(&self) -> f64 {
        let left = if self.changes > 0.0 {
            // A hot set that has outlived the others may go on as long as it did.
            let life = self.lives / self.changes;
            if life > self.age { life - self.age } else { self.age }
        } else {
            LONGEST_HORIZON
        };
        left.min(1.0 / (1.0 - self.reliance())).clamp(1.0, LONGEST_HORIZON)
    }

    fn guess(&self, file: &FileAccess) -> FileAccess {
        let mut keys: Vec<(u32, AccessClass)> = self.weights.keys().copied().collect();
        keys.sort_unstable();
        let mut classes: Vec<AccessClass> = keys.iter().map(|(_, class)| *class).collect();
        classes.sort_unstable();
        classes.dedup();
        let mut regions: Vec<u32> = keys.iter().map(|(region, _)| *region).collect();
        regions.dedup();
        let even = 1.0 / regions.len().max(1) as f64;
        let mut by_class: HashMap<AccessClass, f64> = HashMap::new();
        for key in &keys {
            *by_class.entry(key.1).or_insert(0.0) += self.weights[key];
        }
        // The mean window, as many times as it is taken to come.
        let (reliance, scale) = (self.reliance(), self.horizon() / self.windows.max(1e-9));
        let count = |region: u32, class: &AccessClass| {
            let own = self.weights.get(&(region, *class)).copied().unwrap_or(0.0);
            (scale * (reliance * own + (1.0 - reliance) * even * by_class[class])).round() as u64
        };
        let accesses = regions.iter().map(|region| {
            let counts =
                classes.iter().enumerate().map(|(number, class)| (ClassIndex(number as u16), count(*region, class)));
            RegionAccess {
                region: RegionIndex(*region),
                counts: counts.filter(|(_, count)| *count > 0).collect(),
                processes: self.processes.max(1),
                processes_per_node: self.processes_per_node.max(1),
                slices: Slices::ALL,
            }
        });
        let window = WindowAccess {
            regions: accesses.filter(|access| !access.counts.is_empty()).collect(),
            company: self.company,
            processes: self.of_window,
            ..empty(0)
        };
        FileAccess {
            path: file.path.clone(),
            size_bytes: file.size_bytes,
            region_size: file.region_size,
            windows: vec![window],
            classes,
        }
    }
}

fn weights(file: &FileAccess, window: &WindowAccess) -> Weights {
    let mut weights: Weights = HashMap::new();
    for region in &window.regions {
        for (class, count) in &region.counts {
            *weights.entry((region.region.0, file.class(*class))).or_insert(0.0) += *count as f64;
        }
    }
    weights
}

/// The part of the requests that two windows have in the same places, 0 to 1. What they are expected to differ by as samples of one distribution
/// (the mean absolute difference of two Poisson counts) is not held against them.
fn overlap(a: &Weights, b: &Weights) -> f64 {
    let (all_a, all_b): (f64, f64) = (a.values().sum(), b.values().sum());
    let spread = (1.0 / all_a + 1.0 / all_b) / (all_a + all_b);
    let mean_difference = |key: &(u32, AccessClass)| {
        let both = a.get(key).unwrap_or(&0.0) + b.get(key).unwrap_or(&0.0);
        (2.0 / std::f64::consts::PI * both * spread).sqrt()
    };
    let common = b.iter().filter_map(|(key, weight)| Some((weight / all_b).min(a.get(key)? / all_a)));
    let chance = a.keys().chain(b.keys().filter(|key| !a.contains_key(key))).map(|key| mean_difference(key) / 2.0);
    // Sums must not depend on the order of a hash table.
    let sum = |mut terms: Vec<f64>| -> f64 {
        terms.sort_by(f64::total_cmp);
        terms.into_iter().sum()
    };
    // With few requests everything could be chance: then what is seen counts.
    let (common, chance) = (sum(common.collect()), sum(chance.collect()).min(MAX_CHANCE));
    (common + chance).min(1.0)
}
