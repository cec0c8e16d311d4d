//! Layouts that a region could have, and what its requests take of the servers.

use crate::plan::Plan;
use crate::policy::{mean_request_bytes, region_bytes};
use crate::request::PlanRequest;
use crate::servers::ceil_to;
use crate::verdict::layouts_by_region;
use std::collections::HashMap;
use stripewise_layout::{Layout, Placement, RegionIndex, ServerClass, ServerId};
use stripewise_model::Profile;
use stripewise_model::queueing::{Streaming, request_demand};
use stripewise_trace::{AccessClass, FileAccess, RegionAccess, WindowAccess};

/// For each kind of server with room: the region whole on the one that the plan loads least, and spread over all in stripes that give each
/// its share of the mean request.
pub(super) fn layouts_of(
    request: &PlanRequest<'_>,
    plan: &Plan,
    access: &FileAccess,
    own: Option<&RegionAccess>,
    region: RegionIndex,
) -> Vec<(String, Layout)> {
    let counts = own.into_iter().flat_map(|own| &own.counts).map(|(class, count)| (access.class(*class), *count));
    let request_bytes = mean_request_bytes(counts).unwrap_or(request.options.step.0);
    let stripe = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut found = Vec::new();
    for class in [ServerClass::Hdd, ServerClass::Ssd] {
        let usable = |id: &ServerId| plan.servers[usize::from(id.0)].room_bytes != Some(0);
        let ids: Vec<ServerId> = request.cluster.ids_of_class(class).into_iter().filter(usable).collect();
        let load_s = |id: &ServerId| plan.predicted.server_load_s.get(usize::from(id.0)).copied().unwrap_or(0.0);
        let Some(least) = ids.iter().min_by(|one, other| load_s(one).total_cmp(&load_s(other))) else {
            continue;
        };
        let whole = Layout::new([(*least, stripe(region_bytes(access, region)))]);
        let share = ceil_to(request_bytes.div_ceil(ids.len() as u64), request.options.step.0);
        let spread = Layout::new(ids.iter().map(|id| (*id, stripe(share))));
        found.extend(whole.ok().map(|layout| (format!("whole on one {class}"), layout)));
        found.extend(spread.ok().map(|layout| (format!("spread over all {class}"), layout)));
    }
    found
}

/// Service seconds of one request on all servers, kept by layout and class.
pub(super) struct Services<'a> {
    profile: &'a Profile,
    known: HashMap<Layout, HashMap<AccessClass, f64>>,
}

impl<'a> Services<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        Self { profile, known: HashMap::new() }
    }

    /// Adds the service seconds of a window's requests to those of their regions.
    pub(super) fn add(
        &mut self,
        placement: &Placement,
        access: &FileAccess,
        window: &WindowAccess,
        by_region: &mut [f64],
    ) {
        let beyond = &placement.layouts[placement.beyond as usize];
        let mut layouts = layouts_by_region(placement).chain(std::iter::repeat(beyond));
        let mut next = 0;
        for region in &window.regions {
            let number = region.region.0 as usize;
            let layout = layouts.nth(number - next).expect("goes on for ever");
            next = number + 1;
            if !self.known.contains_key(layout) {
                self.known.insert(layout.clone(), HashMap::new());
            }
            let known = self.known.get_mut(layout).expect("just put there");
            for (class, count) in &region.counts {
                let (class, profile) = (access.class(*class), self.profile);
                let service_s = known.entry(class).or_insert_with(|| {
                    let demand = request_demand(profile, layout, class, Streaming::AS_TRACED, access.region_size.0);
                    demand.servers.iter().map(|one| one.device_s() + one.link_s()).sum()
                });
                by_region[number] += *count as f64 * *service_s;
            }
        }
    }
}
