//! The requests of a window by the layouts of their regions.

use crate::served::Served;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use stripewise_layout::{Layout, Placement};
use stripewise_trace::{AccessClass, Company, FileAccess, RegionAccess, Slices, WindowAccess};

/// The requests of one file in one window.
pub(super) struct FileSum<'a> {
    pub(super) region_bytes: u64,
    /// See [`super::Laid::run_bytes`].
    pub(super) run_bytes: Option<u64>,
    pub(super) company: Company,
    /// Processes that access the file at a time: at least those of its busiest region, at most all of its own, or where these
    /// are not known those of all its regions together.
    pub(super) processes: RangeInclusive<u32>,
    pub(super) slices: Slices,
    /// Seconds in which it wrote and nothing was written back yet.
    pub(super) idle_s: f64,
    pub(super) counts: Vec<LayoutCounts<'a>>,
}

/// A layout's requests.
pub(super) struct LayoutCounts<'a> {
    pub(super) layout: &'a Layout,
    /// As counted.
    pub(super) traced: Vec<(AccessClass, u64)>,
    /// As the servers see them ([`Served`]); classes of one size stand together.
    pub(super) served: Vec<(AccessClass, f64)>,
}

/// Requests are first counted per layout and class, so that each pair is costed once.
pub(super) fn counts_by_layout<'a>(
    placement: &'a Placement,
    access: &FileAccess,
    window: &WindowAccess,
    served: &Served<'_>,
) -> Vec<LayoutCounts<'a>> {
    let classes = access.classes.len();
    let mut counts = vec![0u64; placement.layouts.len() * classes];
    let mut written_back: Vec<BTreeMap<AccessClass, f64>> = vec![BTreeMap::new(); placement.layouts.len()];
    let mut runs = placement.runs.iter();
    let mut before: Option<(&RegionAccess, u32)> = None;
    let (mut run_end, mut layout) = (0u64, placement.beyond);
    for region in &window.regions {
        while run_end <= u64::from(region.region.0) {
            match runs.next() {
                Some(run) => {
                    run_end += u64::from(run.regions);
                    layout = run.layout;
                }
                None => (run_end, layout) = (u64::MAX, placement.beyond),
            }
        }
        for (class, count) in &region.counts {
            let sum = &mut counts[layout as usize * classes + usize::from(class.0)];
            *sum = sum.saturating_add(*count);
        }
        if served.has_written_back() {
            let is_next = |(known, of): &(&RegionAccess, u32)| known.region.0 + 1 == region.region.0 && *of == layout;
            let behind = before.filter(is_next).map(|(known, _)| known);
            before = Some((region, layout));
            for (class, count) in served.requests(region, behind) {
                *written_back[layout as usize].entry(class).or_insert(0.0) += count;
            }
        }
    }
    let rows = placement.layouts.iter().zip(counts.chunks(classes.max(1))).zip(written_back);
    rows.filter_map(|((layout, row), written_back)| {
        let pairs = access.classes.iter().copied().zip(row.iter().copied());
        let traced: Vec<(AccessClass, u64)> = pairs.filter(|(_, count)| *count > 0).collect();
        let mut served: Vec<(AccessClass, f64)> = match written_back.is_empty() {
            true => traced.iter().map(|(class, count)| (*class, *count as f64)).collect(),
            false => written_back.into_iter().collect(),
        };
        served.sort_by_key(|(class, _)| class.request_bytes);
        (!traced.is_empty()).then_some(LayoutCounts { layout, traced, served })
    })
    .collect()
}
