//! Layouts begun at another turn of their cycle, and those less the servers that a region never comes to.

use stripewise_layout::{Layout, RegionOffset, ServerId};

/// The same cycle, begun at another turn.
pub(crate) fn turned(layout: &Layout, turn: usize) -> Layout {
    let stripes = layout.stripes();
    let pairs = stripes[turn..].iter().chain(&stripes[..turn]).map(|stripe| (stripe.server, stripe.size_bytes));
    Layout::new(pairs).expect("the same stripes in another order")
}

/// The layout less the servers that a region of these bytes never comes to.
pub(super) fn without_empty(layout: Layout, bytes: u64) -> Layout {
    if layout.view().cycle_bytes() <= bytes {
        return layout;
    }
    let used = layout.stripes().iter().enumerate().filter(|(turn, _)| layout.view().object_bytes(*turn, bytes) > 0);
    let pairs: Vec<(ServerId, u32)> = used.map(|(_, stripe)| (stripe.server, stripe.size_bytes)).collect();
    Layout::new(pairs).unwrap_or(layout)
}

/// The cycle begun at its lowest server: the same for all turns of a shape.
pub(crate) fn unturned(layout: &Layout) -> Layout {
    let stripes = layout.stripes();
    let first = (0..stripes.len()).min_by_key(|turn| stripes[*turn].server.0).unwrap_or(0);
    turned(layout, first)
}

/// Turns of the last, unfinished cycle of a region: 0 where it is a thousandth of the region or less.
pub(super) fn left_over_turns(layout: &Layout, region_bytes: u64) -> usize {
    let view = layout.view();
    let rest = region_bytes % view.cycle_bytes();
    if rest == 0 || layout.stripes().len() == 1 || rest * 1000 <= region_bytes {
        return 0;
    }
    view.locate(RegionOffset(rest - 1)).turn + 1
}
