//! A placement as people read it: spans of regions with one layout, `<h, s>` where the layout is a stripe pair.

use crate::servers::ServerGroups;
use stripewise_layout::{ByteCount, Cluster, Layout, Placement, RegionIndex};

/// Consecutive regions with one layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionSpan {
    /// The first region of the span.
    pub first: RegionIndex,
    /// How many regions, at least 1.
    pub regions: u32,
    /// As [`layout_text`] writes it.
    pub layout: String,
    /// True when any SServer takes part.
    pub uses_ssd: bool,
}

/// The planned regions of a placement, in order, without gaps.
#[must_use]
pub fn region_map(placement: &Placement, cluster: &Cluster) -> Vec<RegionSpan> {
    let groups = ServerGroups::of(cluster);
    let mut first = 0;
    let spans = placement.runs.iter().map(|run| {
        let layout = &placement.layouts[run.layout as usize];
        let span = RegionSpan {
            first: RegionIndex(first),
            regions: run.regions,
            layout: layout_text(layout, cluster),
            uses_ssd: groups.uses_ssd(layout),
        };
        first += run.regions;
        span
    });
    spans.collect()
}

/// The file's segments as the poster of Segment-level layout writes them, `<offset,stripe size:offset,stripe size ..>`: a new one wherever the
/// stripe size changes, whichever servers hold it. Where stripes of one region differ, its largest counts.
#[must_use]
pub fn segment_list(placement: &Placement) -> String {
    let mut parts: Vec<String> = Vec::new();
    let (mut offset_bytes, mut last) = (0u64, None);
    for run in &placement.runs {
        let stripes = placement.layouts[run.layout as usize].stripes();
        let stripe_bytes = stripes.iter().map(|stripe| stripe.size_bytes).max();
        if stripe_bytes != last {
            let size = ByteCount(u64::from(stripe_bytes.unwrap_or(0)));
            parts.push(format!(
                "{},{size}",
                if offset_bytes == 0 { "0".to_owned() } else { ByteCount(offset_bytes).to_string() }
            ));
            last = stripe_bytes;
        }
        // Whatever a damaged plan says, there is something to print.
        offset_bytes = offset_bytes.saturating_add(u64::from(run.regions).saturating_mul(placement.region_size.0));
    }
    format!("<{}>", parts.join(":"))
}

/// `<h,s>` where every HServer has stripe h and every SServer s (0 where a class takes no part), as the papers write; otherwise each
/// server with its stripe, equal neighbours together: `hdd0 64KiB, ssd0..ssd3 128KiB`.
#[must_use]
pub fn layout_text(layout: &Layout, cluster: &Cluster) -> String {
    let groups = ServerGroups::of(cluster);
    if let Some((h, s)) = pair_of(layout, &groups) {
        return format!("<{},{}>", ByteCount(u64::from(h)), ByteCount(u64::from(s)));
    }
    let name = |turn: usize| {
        let id = layout.stripes()[turn].server;
        cluster.server(id).map_or_else(|| format!("server {id}"), |server| server.name.clone())
    };
    let stripes = layout.stripes();
    let mut parts = Vec::new();
    let mut first = 0;
    while first < stripes.len() {
        let mut last = first;
        while last + 1 < stripes.len()
            && stripes[last + 1].size_bytes == stripes[first].size_bytes
            && stripes[last + 1].server.0 == stripes[last].server.0 + 1
        {
            last += 1;
        }
        let size = ByteCount(u64::from(stripes[first].size_bytes));
        parts.push(match last - first {
            0 => format!("{} {size}", name(first)),
            _ => format!("{}..{} {size}", name(first), name(last)),
        });
        first = last + 1;
    }
    parts.join(", ")
}

fn pair_of(layout: &Layout, groups: &ServerGroups) -> Option<(u32, u32)> {
    let stripes = layout.stripes();
    let hdd = stripes.iter().filter(|stripe| groups.hdd.contains(&stripe.server));
    let (hdd_count, h) = (hdd.clone().count(), hdd.clone().next().map_or(0, |stripe| stripe.size_bytes));
    let s = stripes.iter().find(|stripe| groups.ssd.contains(&stripe.server)).map_or(0, |stripe| stripe.size_bytes);
    let ssd_count = stripes.len() - hdd_count;
    let whole_classes =
        (hdd_count == 0 || hdd_count == groups.hdd.len()) && (ssd_count == 0 || ssd_count == groups.ssd.len());
    let equal = stripes.iter().all(|stripe| {
        let expected = if groups.hdd.contains(&stripe.server) { h } else { s };
        stripe.size_bytes == expected
    });
    (whole_classes && equal).then_some((h, s))
}
