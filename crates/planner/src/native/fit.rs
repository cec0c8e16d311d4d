//! What a plan wants of a file, and how near a layout comes to it.

use super::layout::{NativeLayout, Turn};
use crate::site::Site;
use std::collections::HashMap;
use stripewise_layout::figures::bytes;
use stripewise_layout::{Layout, Placement, ServerClass, ServerId};

/// Why a file system cannot take a file as planned, nor nearly so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// No layout that the file system can set leaves room for the file.
    #[error("no layout of {fs} holds its {} in the capacity of the site's targets; give them more in site.toml, or plan fewer files", bytes(*size_bytes))]
    Capacity {
        /// The file system.
        fs: &'static str,
        /// Size of the file.
        size_bytes: u64,
    },
    /// The layout of a file is full.
    #[error("the layout of a file of {fs} has no free space for another mirror")]
    Layout {
        /// The file system.
        fs: &'static str,
    },
}

/// A file as planned, its servers being positions of the site's targets.
pub(super) struct Wanted<'a> {
    pub(super) size_bytes: u64,
    pub(super) placement: &'a Placement,
    /// What each planned region counts where not all can be had: bytes that are asked for, or its own.
    pub(super) weights: &'a [u64],
    /// The less, the better: predicted seconds, or without accesses the share of bytes that lie elsewhere.
    pub(super) judge: &'a dyn Fn(&Placement) -> f64,
    /// Bytes that are left on each target; `None`: unknown.
    pub(super) free_bytes: &'a [Option<u64>],
    /// Copies of the file that are laid out already: where a file can have several, one layout holds them all.
    pub(super) copies: &'a [NativeLayout],
}

/// Layouts of a plan that are tried for a whole file, at most.
const TRIED_LAYOUTS: usize = 12;

/// A set of targets and the stripe sizes that suit it.
pub(super) struct Candidate {
    /// In the order of turns.
    pub(super) targets: Vec<usize>,
    /// Of every target; equal ones where the file system knows no others.
    pub(super) stripes: Vec<u64>,
}

impl Wanted<'_> {
    /// Layouts of the plan with the weight of the regions that have them, the heaviest first.
    pub(super) fn layouts(&self) -> Vec<(&Layout, u64)> {
        let mut weights: HashMap<u32, u64> = HashMap::new();
        let mut region = 0;
        for run in &self.placement.runs {
            let end = region + run.regions as usize;
            let of_run: u64 = self.weights.get(region..end.min(self.weights.len())).map_or(0, |run| run.iter().sum());
            *weights.entry(run.layout).or_insert(0) += of_run;
            region = end;
        }
        if weights.is_empty() {
            weights.insert(self.placement.beyond, 1);
        }
        let mut layouts: Vec<(u32, u64)> = weights.into_iter().collect();
        layouts.sort_by_key(|(layout, weight)| (std::cmp::Reverse(*weight), *layout));
        layouts.into_iter().map(|(layout, weight)| (&self.placement.layouts[layout as usize], weight)).collect()
    }

    /// Target sets and stripes for file systems that know one layout for all of a file: those of the plan's regions, and all targets, of each class and of
    /// both, with the plan's stripes.
    pub(super) fn candidates(&self, site: &Site) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        for (layout, _) in self.layouts().into_iter().take(TRIED_LAYOUTS) {
            let stripes: Vec<u64> = layout.stripes().iter().map(|stripe| u64::from(stripe.size_bytes)).collect();
            sizes.extend(&stripes);
            let targets = layout.stripes().iter().map(|stripe| usize::from(stripe.server.0)).collect();
            candidates.push(Candidate { targets, stripes });
        }
        sizes.sort_unstable();
        sizes.dedup();
        let class = |wanted: Option<ServerClass>| -> Vec<usize> {
            (0..site.targets.len()).filter(|target| wanted.is_none_or(|class| site.class(*target) == class)).collect()
        };
        let sets = [class(None), class(Some(ServerClass::Hdd)), class(Some(ServerClass::Ssd))];
        // The least, the middle and the largest stripe are enough to choose from.
        let sizes = match sizes[..] {
            [] => Vec::new(),
            [first, .., last] => vec![first, sizes[sizes.len() / 2], last],
            [only] => vec![only],
        };
        for targets in sets.into_iter().filter(|targets| !targets.is_empty()) {
            candidates.extend(
                sizes.iter().map(|size| Candidate { stripes: vec![*size; targets.len()], targets: targets.clone() }),
            );
        }
        candidates
    }

    /// The layout that comes nearest, of those that fit.
    pub(super) fn nearest(&self, site: &Site, layouts: Vec<NativeLayout>) -> Result<NativeLayout, Refusal> {
        let mut seen: Vec<NativeLayout> = Vec::new();
        let mut nearest: Option<(f64, NativeLayout)> = None;
        for layout in layouts {
            if seen.contains(&layout) || !self.fits(&layout) {
                continue;
            }
            seen.push(layout.clone());
            let cost = (self.judge)(&layout.placement(self.placement.region_size, self.size_bytes));
            if nearest.as_ref().is_none_or(|(least, _)| cost < *least) {
                nearest = Some((cost, layout));
            }
        }
        nearest.map(|(_, layout)| layout).ok_or(Refusal::Capacity { fs: site.fs.title, size_bytes: self.size_bytes })
    }

    /// Whether there is room for it.
    pub(super) fn fits(&self, layout: &NativeLayout) -> bool {
        let needed = layout.target_bytes(self.free_bytes.len(), self.size_bytes);
        needed.iter().zip(self.free_bytes).all(|(needed, free)| free.is_none_or(|free| *needed <= free))
    }
}

/// A placement over the site's targets instead of the plan's servers.
pub(super) fn renumbered(placement: &Placement, numbers: &[Option<usize>]) -> Placement {
    let of = |layout: &Layout| {
        let stripes = layout.stripes().iter().map(|stripe| {
            let number = numbers[usize::from(stripe.server.0)].expect("used servers were found");
            (ServerId(number as u16), stripe.size_bytes)
        });
        Layout::new(stripes).expect("as many servers as before")
    };
    Placement { layouts: placement.layouts.iter().map(of).collect(), ..placement.clone() }
}

/// Turns of equal length, one for each target.
pub(super) fn even(targets: &[usize], bytes: u64) -> Vec<Turn> {
    targets.iter().map(|target| Turn { target: *target, bytes }).collect()
}

/// The mean stripe, weighted by nothing: what one size for all targets stands for.
pub(super) fn mean(stripes: &[u64]) -> u64 {
    (stripes.iter().map(|size| u128::from(*size)).sum::<u128>() / stripes.len().max(1) as u128) as u64
}

/// The multiple of `unit` nearest to `bytes`, at least one.
pub(super) fn nearest_multiple(bytes: u64, unit: u64) -> u64 {
    ((bytes + unit / 2) / unit).max(1) * unit
}

/// The power of two nearest to `bytes` by ratio, within bounds that are powers of two themselves.
pub(super) fn nearest_power(bytes: u64, least: u64, most: u64) -> u64 {
    let below = 1u64 << bytes.max(1).ilog2();
    let above = below.saturating_mul(2);
    // Beyond the geometric mean the larger one is nearer: compared as squares.
    let power =
        if u128::from(bytes) * u128::from(bytes) > u128::from(below) * u128::from(above) { above } else { below };
    power.clamp(least, most)
}

/// The share of weighted bytes that a placement puts elsewhere than planned: how near it comes where no accesses are known.
pub(super) fn distance(planned: &Placement, exported: &Placement, weights: &[u64]) -> f64 {
    let shares = |layout: &Layout| -> HashMap<u16, f64> {
        let cycle = layout.view().cycle_bytes() as f64;
        layout.stripes().iter().map(|stripe| (stripe.server.0, f64::from(stripe.size_bytes) / cycle)).collect()
    };
    let (mut apart, mut all) = (0.0, 0.0);
    let (mut of_planned, mut of_exported) = (regions(planned), regions(exported));
    for weight in weights {
        let (planned, exported) = (of_planned(), of_exported());
        let (planned, exported) = (shares(planned), shares(exported));
        let common: f64 =
            planned.iter().map(|(server, share)| share.min(exported.get(server).copied().unwrap_or(0.0))).sum();
        apart += *weight as f64 * (1.0 - common);
        all += *weight as f64;
    }
    if all > 0.0 { apart / all } else { 0.0 }
}

/// The layouts of a placement's regions, one after the other.
fn regions<'p>(placement: &'p Placement) -> impl FnMut() -> &'p Layout {
    let (mut runs, mut left, mut layout) = (placement.runs.iter(), 0, placement.beyond);
    move || {
        while left == 0 {
            match runs.next() {
                Some(run) => (left, layout) = (run.regions, run.layout),
                None => (left, layout) = (u32::MAX, placement.beyond),
            }
        }
        left -= 1;
        &placement.layouts[layout as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_to_what_a_file_system_takes() {
        assert_eq!(
            [1, 60 << 10, 100 << 10, 96 << 10].map(|size| nearest_multiple(size, 65536) >> 10),
            [64, 64, 128, 128]
        );
        let power = |kib: u64| nearest_power(kib << 10, 64 << 10, 1 << 20) >> 10;
        assert_eq!([1, 64, 90, 91, 128, 700, 800, 9000].map(power), [64, 64, 64, 128, 128, 512, 1024, 1024]);
        assert_eq!((mean(&[64, 192]), mean(&[5])), (128, 5));
    }
}
