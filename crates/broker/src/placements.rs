//! The placement of a file whose regions move: what is placed again later (a region that was cut off and comes again) lies where the last move put it.

use stripewise_layout::{Layout, Placement, RegionIndex, Run};

/// The placement with another layout of one region.
pub(crate) fn with_layout(placement: &Placement, region: RegionIndex, layout: &Layout) -> Placement {
    with_layouts(placement, region, region, layout)
}

/// The placement with another layout of the regions `first ..= last`.
pub(crate) fn with_layouts(placement: &Placement, first: RegionIndex, last: RegionIndex, layout: &Layout) -> Placement {
    // Runs as (regions, layout), those beyond the planned end made explicit as far as they are needed.
    let mut runs: Vec<(u64, &Layout)> =
        placement.runs.iter().map(|run| (u64::from(run.regions), &placement.layouts[run.layout as usize])).collect();
    let planned: u64 = runs.iter().map(|(regions, _)| regions).sum();
    let beyond = &placement.layouts[placement.beyond as usize];
    let (from, end) = (u64::from(first.0), u64::from(last.0) + 1);
    if planned < end {
        runs.push((end - planned, beyond));
    }
    let mut changed: Vec<(u64, &Layout)> = Vec::with_capacity(runs.len() + 2);
    let mut add = |regions: u64, layout| match changed.last_mut() {
        _ if regions == 0 => {}
        Some((before, same)) if *same == layout => *before += regions,
        _ => changed.push((regions, layout)),
    };
    let mut at = 0;
    for (regions, own) in runs {
        let run_end = at + regions;
        let (inside_from, inside_end) = (from.clamp(at, run_end), end.clamp(at, run_end));
        add(inside_from - at, own);
        add(inside_end - inside_from, layout);
        add(run_end - inside_end, own);
        at = run_end;
    }
    let mut layouts: Vec<Layout> = Vec::new();
    let mut number_of = |layout: &Layout| {
        let number = layouts.iter().position(|known| known == layout).unwrap_or_else(|| {
            layouts.push(layout.clone());
            layouts.len() - 1
        });
        number as u32
    };
    // What lies beyond needs no run.
    while changed.last().is_some_and(|(_, last)| *last == beyond) {
        changed.pop();
    }
    let runs =
        changed.iter().map(|(regions, layout)| Run { regions: *regions as u32, layout: number_of(layout) }).collect();
    let (beyond, fallback) = (number_of(beyond), number_of(placement.fallback_layout()));
    Placement { region_size: placement.region_size, layouts, runs, beyond, fallback }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stripewise_layout::{ByteCount, ServerId};

    fn layout(size: u32) -> Layout {
        Layout::new([(ServerId(0), size * 4096)]).unwrap()
    }

    proptest! {
        #[test]
        fn a_placement_changes_where_it_is_told_to(
            sizes in prop::collection::vec(1u32..4, 0..20),
            changes in prop::collection::vec((0u32..30, 0u32..8, 1u32..4), 1..8),
        ) {
            let beyond = layout(3);
            let mut placement =
                Placement::from_regions(ByteCount(4096), sizes.iter().map(|size| layout(*size)), beyond, layout(9));
            let mut model: Vec<u32> = sizes.into_iter().chain(std::iter::repeat(3)).take(50).collect();
            for (first, more, size) in changes {
                let last = first + more;
                placement = with_layouts(&placement, RegionIndex(first), RegionIndex(last), &layout(size));
                model[first as usize..=last as usize].fill(size);
                prop_assert_eq!(placement.check(1), Ok(()));
                for (region, size) in model.iter().enumerate() {
                    prop_assert_eq!(placement.layout_of(RegionIndex(region as u32)), &layout(*size));
                }
                prop_assert_eq!(placement.layout_of(RegionIndex(u32::MAX)), &layout(3));
                prop_assert_eq!(placement.fallback_layout(), &layout(9));
                prop_assert!(placement.runs.windows(2).all(|runs| runs[0].layout != runs[1].layout));
            }
        }
    }
}
