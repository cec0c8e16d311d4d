//! What must hold of every layout and placement, wherever it was read.

use stripewise_layout::{FileOffset, Layout, Placement, RegionGeometry, RegionIndex, RegionOffset};

/// Every byte of a region lies in one place, and objects hold what the region has.
pub(crate) fn check_layout(layout: &Layout, region_bytes: u64) {
    let view = layout.view();
    assert!(!layout.stripes().is_empty() && layout.stripes().iter().all(|stripe| stripe.size_bytes > 0));
    for end in [region_bytes, region_bytes / 3] {
        let held = (0..layout.stripes().len()).map(|turn| view.object_bytes(turn, end)).sum::<u64>();
        assert_eq!(held, end, "objects hold the region");
    }
    for offset in [0, region_bytes / 2, region_bytes - 1] {
        let place = view.locate(RegionOffset(offset));
        assert_eq!(view.region_offset(place.turn, place.offset), RegionOffset(offset));
        assert!(place.offset.0 < view.object_bytes(place.turn, region_bytes));
    }
    let first = region_bytes / 3;
    let parts = view.split(RegionOffset(first), region_bytes - first);
    assert_eq!(parts.map(|part| part.length).sum::<u64>(), region_bytes - first);
}

/// A placement that [`Placement::check`] accepts names a layout for every region.
pub(crate) fn check_placement(placement: &Placement, servers: usize) {
    let geometry = RegionGeometry::new(placement.region_size.0);
    for layout in &placement.layouts {
        check_layout(layout, placement.region_size.0);
        assert!(layout.stripes().iter().all(|stripe| usize::from(stripe.server.0) < servers));
    }
    let planned = u32::try_from(placement.planned_regions()).expect("a placement that was checked");
    for region in [0, 1, planned.saturating_sub(1), planned, u32::MAX].map(RegionIndex) {
        assert!(placement.layouts.contains(placement.layout_of(region)));
        assert!(geometry.used_bytes(region, i64::MAX as u64) <= placement.region_size.0);
    }
    assert!(placement.layouts.contains(placement.fallback_layout()));
    for size in [0, 1, i64::MAX as u64, u64::MAX] {
        let last = geometry.locate(FileOffset(size.saturating_sub(1))).0;
        assert!(geometry.count_for(size) <= last.0.saturating_add(1));
    }
}
