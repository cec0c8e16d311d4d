//! Processes that go through regions in order: where they are at a time, and how they leave one stripe for the next.

use super::counting::{FileSum, LayoutCounts};
use stripewise_layout::{Direction, Layout, Order};
use stripewise_model::{Profile, touched_share};
use stripewise_trace::AccessClass;

/// Requests in order to files whose stripes lie on drawn servers.
#[derive(Clone, Copy, Default)]
pub(super) struct Drawn {
    pub(super) requests: f64,
    /// How often a process leaves a stripe.
    pub(super) stays: f64,
}

/// Shares of a file's requests, 0 to 1.
#[derive(Clone, Copy, Default)]
pub(super) struct Presence {
    /// Those that go to regions which lie on the server wholly or in part.
    pub(super) lies: f64,
    /// Those that touch the server.
    pub(super) touched: f64,
}

impl FileSum<'_> {
    /// For every server.
    pub(super) fn presence(&self, servers: usize) -> Vec<Presence> {
        let (mut presence, mut all) = (vec![Presence::default(); servers], 0.0);
        for LayoutCounts { layout, traced, .. } in &self.counts {
            let (cycle_bytes, mut start) = (layout.view().cycle_bytes(), 0);
            let requests: f64 = traced.iter().map(|(_, count)| *count as f64).sum();
            all += requests;
            for stripe in layout.stripes() {
                let (of_server, bytes) = (&mut presence[usize::from(stripe.server.0)], u64::from(stripe.size_bytes));
                of_server.lies += requests;
                for (class, count) in traced {
                    let request = class.request_bytes.max(1);
                    of_server.touched +=
                        *count as f64 * touched_share(start, bytes, cycle_bytes, request, self.region_bytes);
                }
                start += bytes;
            }
        }
        for of_server in &mut presence {
            of_server.lies /= f64::max(all, 1.0);
            of_server.touched /= f64::max(all, 1.0);
        }
        presence
    }

    /// Of requests in one direction that are waited for.
    pub(super) fn leaving(&self, profile: &Profile, direction: Direction) -> Leaving {
        let is_waited_for = |class: &AccessClass| class.direction() == direction && profile.is_awaited(class.kind);
        let (mut all, mut of_layouts, mut leaving) = (0.0, 0.0, Leaving::default());
        for LayoutCounts { layout, served, .. } in &self.counts {
            let stripes = layout.stripes().len();
            let stripe_bytes = (layout.view().cycle_bytes() as f64 / stripes as f64)
                .min(self.run_bytes.map_or(f64::INFINITY, |bytes| bytes as f64));
            let (mut of_layout, mut apart) = (0.0, 0.0);
            for (class, count) in served.iter().filter(|(class, _)| is_waited_for(class)) {
                all += count;
                if class.order == Order::Sequential && stripes > 1 {
                    let left = count * (class.request_bytes as f64 / stripe_bytes).min(1.0);
                    of_layout += left;
                    apart += if is_apart(layout, class.request_bytes) { left } else { 0.0 };
                    leaving.drawn.requests += count;
                }
            }
            of_layouts += apart * apart;
            leaving.drawn.stays += of_layout;
        }
        leaving.in_turn = of_layouts / f64::max(all, 1.0);
        if self.run_bytes.is_none() {
            leaving.drawn = Drawn::default();
        }
        leaving
    }
}

/// Requests of processes that go through regions in order and from stripe to stripe.
#[derive(Clone, Copy, Default)]
pub(super) struct Leaving {
    /// Those that leave a stripe, as far as the others are on regions of the same layout: their processes go around the same servers in the same turn.
    pub(super) in_turn: f64,
    pub(super) drawn: Drawn,
}

/// Whether requests one behind the other go to servers of their own, or to the same ones: those that share some of their servers wait for each other.
fn is_apart(layout: &Layout, request_bytes: u64) -> bool {
    let (cycle_bytes, stripes) = (layout.view().cycle_bytes(), layout.stripes());
    let fit = stripes.iter().all(|stripe| u64::from(stripe.size_bytes).is_multiple_of(request_bytes));
    let are_alike = stripes.iter().all(|stripe| stripe.size_bytes == stripes[0].size_bytes);
    let is_of_whole_stripes = are_alike && request_bytes.is_multiple_of(u64::from(stripes[0].size_bytes));
    fit || is_of_whole_stripes && cycle_bytes.is_multiple_of(request_bytes)
}
