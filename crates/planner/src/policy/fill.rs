//! How capacity-blind policies meet a full SSD: regions in seeded-random order go to hybrid servers while they fit, the rest to HServers
//! (H2DP section 5.1).

use super::{FileChoice, Task, region_bytes, region_count};
use crate::room::Ledger;
use stripewise_layout::{Layout, RegionIndex};

/// The two layouts of a file's regions.
pub(crate) struct FileLayouts {
    pub(crate) hybrid: Layout,
    pub(crate) pure: Layout,
}

/// One choice per file; the regions of all files are drawn together, since they share the room.
pub(crate) fn fill_at_random(task: &Task<'_>, layouts: Vec<FileLayouts>) -> Vec<FileChoice> {
    let files = task.request.files;
    let mut choices: Vec<FileChoice> = files
        .iter()
        .zip(&layouts)
        .map(|(file, layouts)| FileChoice {
            layouts: vec![layouts.hybrid.clone(), layouts.pure.clone()],
            windows: vec![vec![1; region_count(file) as usize]],
            fallback: 1,
        })
        .collect();
    let mut order: Vec<(usize, u32)> =
        files.iter().enumerate().flat_map(|(number, file)| (0..region_count(file)).map(move |r| (number, r))).collect();
    shuffle(&mut order, task.request.options.seed);
    let mut ledger = Ledger::new(task.room);
    // In a cluster of one class there is nothing to choose between: all of it goes to that class.
    let limited: &[_] = if task.groups.is_hybrid() { &task.groups.ssd } else { &[] };
    for (number, region) in order {
        let bytes = region_bytes(&files[number], RegionIndex(region));
        if ledger.book(&layouts[number].hybrid, bytes, limited) {
            choices[number].windows[0][region as usize] = 0;
        }
    }
    choices
}

/// Fisher-Yates over SplitMix64. Own lines rather than a library's generator, because plans must not change with the library's version.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let below = ((u128::from(mixed) * (last as u128 + 1)) >> 64) as usize;
        items.swap(last, below);
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
