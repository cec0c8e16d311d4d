//! How capacity-blind policies meet a full SSD: regions in seeded-random order go to hybrid servers while they fit, the rest to HServers
//! (H2DP section 5.1). Where SServers differ in capacity, a region that does not fit on all of them tries the tiers in turn.

use super::{FileChoice, Task, region_bytes, region_count};
use crate::capacity::Ledger;
use stripewise_layout::{Layout, RegionIndex, SplitMix64};

/// The layouts of a file's regions as a policy wants them, before anybody asks for room.
pub(crate) struct FileLayouts {
    /// The distinct ones; the others give positions in this list.
    pub(crate) layouts: Vec<Layout>,
    /// For every tier, the widest first.
    pub(crate) hybrid: Vec<RegionLayouts>,
    pub(crate) pure: RegionLayouts,
}

/// Which layout each region has.
pub(crate) enum RegionLayouts {
    Same(u32),
    /// One for each region of the file.
    Each(Vec<u32>),
}

impl RegionLayouts {
    fn of(&self, region: u32) -> u32 {
        match self {
            Self::Same(layout) => *layout,
            Self::Each(layouts) => layouts[region as usize],
        }
    }
}

impl FileLayouts {
    /// One layout for all regions in each tier, and one on HServers only.
    pub(crate) fn uniform(hybrid: impl IntoIterator<Item = Layout>, pure: Layout) -> Self {
        let mut layouts = vec![pure];
        layouts.extend(hybrid);
        let hybrid = (1..layouts.len() as u32).map(RegionLayouts::Same).collect();
        Self { layouts, hybrid, pure: RegionLayouts::Same(0) }
    }
}

/// One choice per file; the regions of all files are drawn together, since they share the room.
pub(crate) fn fill_at_random(task: &Task<'_>, files_layouts: Vec<FileLayouts>) -> Vec<FileChoice> {
    let files = task.request.files;
    let mut order: Vec<(usize, u32)> =
        files.iter().enumerate().flat_map(|(number, file)| (0..region_count(file)).map(move |r| (number, r))).collect();
    shuffle(&mut order, task.request.options.seed);
    let mut windows: Vec<Vec<u32>> = files
        .iter()
        .zip(&files_layouts)
        .map(|(file, layouts)| (0..region_count(file)).map(|region| layouts.pure.of(region)).collect())
        .collect();
    let mut ledger = Ledger::new(task.capacity);
    // In a cluster of one class there is nothing to choose between: all of it goes to that class.
    let limited: &[_] = if task.groups.is_hybrid() { &task.groups.ssd } else { &[] };
    for (number, region) in order {
        let bytes = region_bytes(&files[number], RegionIndex(region));
        let of_file = &files_layouts[number];
        let mut wanted = of_file.hybrid.iter().map(|tier| tier.of(region));
        if let Some(layout) = wanted.find(|layout| ledger.book(&of_file.layouts[*layout as usize], bytes, limited)) {
            windows[number][region as usize] = layout;
        }
    }
    files_layouts
        .into_iter()
        .zip(windows)
        .map(|(of_file, regions)| FileChoice {
            // A file may be empty; any of its layouts on HServers will do.
            fallback: match of_file.pure {
                RegionLayouts::Same(layout) => layout,
                RegionLayouts::Each(layouts) => layouts.last().copied().unwrap_or(0),
            },
            layouts: of_file.layouts,
            windows: vec![regions],
        })
        .collect()
}

/// Fisher-Yates over [`SplitMix64`].
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut generator = SplitMix64::new(seed);
    for last in (1..items.len()).rev() {
        items.swap(last, generator.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_permutes_and_depends_on_its_seed_alone() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..50).collect();
            shuffle(&mut items, seed);
            items
        };
        let mut sorted = shuffled(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..50).collect::<Vec<_>>());
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
        // Written down, so that a change of the generator, which would change every plan, is noticed.
        assert_eq!(shuffled(1)[..8], [49, 40, 31, 10, 18, 44, 35, 24]);
    }
}
