//! Which regions get further copies in other layouts, so that every request finds one that suits it (Cost-intelligent section 5).
//!
//! **Algorithm.** A region's requests are each served by the copy that is cheapest for them. A further copy in layout L so gains, over the
//! region's requests, the sum of max(0, present cost - cost in L). Copies are added one by one, the one with the greatest gain per byte
//! first, while they fit the budget and the room of every server they lie on. Gains only shrink as a region gets more copies, so a copy whose
//! gain is still the greatest after it has been worked out again is the greatest of all, and few are ever worked out twice.
//!
//! **Deviations.** The paper replicates whole files and names no budget. Writes are counted as the paper does, on the cheapest copy, the
//! others being brought up to date in the background; the live data path pins a primary copy at the first write instead.
//!
//! **Complexity.** O(regions x layouts x classes) and a heap of regions x layouts.

use super::process_costs::{candidates, cost_of, parameters_of};
use super::process_oriented::{Regions, Shares, region_layouts};
use super::{FileChoice, Replica, Replicas, Task, region_bytes};
use crate::capacity::Ledger;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use stripewise_layout::{Layout, RegionIndex, ServerId};
use stripewise_model::Concurrency;
use stripewise_model::cost_intelligent::ProcessLayout;
use stripewise_trace::AccessClass;

/// What a region's requests of one class cost: in the cheapest of its copies, and in every candidate layout.
struct Demand {
    requests: u64,
    present_ps: u128,
    candidates_ps: Vec<u128>,
    /// p of their window.
    processes: f64,
}

/// A copy that could be made; `gain_ps` may be out of date, but is never too small.
#[derive(PartialEq, Eq)]
struct Offer {
    gain_ps: u128,
    bytes: u64,
    file: usize,
    region: u32,
    candidate: usize,
}

impl Ord for Offer {
    fn cmp(&self, other: &Self) -> Ordering {
        let per_byte = |a: &Offer, b: &Offer| a.gain_ps.saturating_mul(u128::from(b.bytes));
        let place = |offer: &Offer| std::cmp::Reverse((offer.file, offer.region, offer.candidate));
        per_byte(self, other).cmp(&per_byte(other, self)).then_with(|| place(self).cmp(&place(other)))
    }
}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One file's candidate layouts and the demands of its accessed regions.
struct FileOffers {
    /// For every candidate the layouts of all regions.
    layouts: Vec<Regions>,
    demands: BTreeMap<u32, Vec<Demand>>,
}

/// Copies for the files whose own layouts are `choices`, of at most `budget_bytes` on all servers together.
pub(super) fn plan_replicas(task: &Task<'_>, choices: &[FileChoice], budget_bytes: u64) -> Vec<Replicas> {
    let servers: Vec<ServerId> = task.groups.all().collect();
    let shares = Shares::of(task);
    let mut ledger = Ledger::new(task.capacity);
    let mut heap = BinaryHeap::new();
    let mut files = Vec::new();
    for (number, (file, choice)) in task.request.files.iter().zip(choices).enumerate() {
        for (region, layout) in choice.windows[0].iter().enumerate() {
            let bytes = region_bytes(file, RegionIndex(region as u32));
            ledger.add(&choice.layouts[*layout as usize], bytes, 1);
        }
        let offers = FileOffers::of(task, number, shares.of_file(number), &servers, choice);
        for (region, demands) in &offers.demands {
            let own = &choice.layouts[choice.windows[0][*region as usize] as usize];
            let bytes = region_bytes(file, RegionIndex(*region));
            for candidate in 0..offers.layouts.len() {
                // For requests smaller than any stripe, kinds that cost differently lie the same.
                let layout = |candidate: usize| offers.layouts[candidate].get(*region as usize);
                if layout(candidate) == own || (0..candidate).any(|before| layout(before) == layout(candidate)) {
                    continue;
                }
                let offer =
                    Offer { gain_ps: gain_ps(demands, candidate), bytes, file: number, region: *region, candidate };
                heap.extend((offer.gain_ps > 0).then_some(offer));
            }
        }
        files.push(offers);
    }
    let mut left_bytes = budget_bytes;
    let mut found: Vec<Vec<(u32, usize)>> = choices.iter().map(|_| Vec::new()).collect();
    let mut saved_s = vec![0.0; choices.len()];
    while let Some(offer) = heap.pop() {
        let of_file = &mut files[offer.file];
        let demands = of_file.demands.get_mut(&offer.region).expect("offers are made for demands");
        let now_ps = gain_ps(demands, offer.candidate);
        if now_ps < offer.gain_ps {
            heap.extend((now_ps > 0).then_some(Offer { gain_ps: now_ps, ..offer }));
            continue;
        }
        let layout = of_file.layouts[offer.candidate].get(offer.region as usize);
        if offer.bytes > left_bytes || !ledger.book(layout, offer.bytes, &servers) {
            continue;
        }
        left_bytes -= offer.bytes;
        saved_s[offer.file] += take(demands, offer.candidate);
        found[offer.file].push((offer.region, offer.candidate));
    }
    let lists = files.iter().zip(found).map(|(offers, mut found)| {
        found.sort_unstable();
        joined(found.into_iter().map(|(region, candidate)| (region, offers.layouts[candidate].get(region as usize))))
    });
    lists.zip(saved_s).map(|(list, saved_s)| Replicas { list, saved_s }).collect()
}

impl FileOffers {
    fn of(task: &Task<'_>, number: usize, rank: Option<usize>, servers: &[ServerId], choice: &FileChoice) -> Self {
        let file = &task.request.files[number];
        let parameters = parameters_of(task, servers);
        let kinds = candidates(servers.len());
        let layouts: Vec<Regions> =
            kinds.iter().map(|kind| region_layouts(task, number, rank, servers, *kind)).collect();
        let mut demands: BTreeMap<u32, Vec<Demand>> = BTreeMap::new();
        for (window, concurrency) in file.windows.iter().zip(&task.windows) {
            // Costs of this window's classes in every candidate.
            let costs: Vec<Vec<u128>> = file
                .classes
                .iter()
                .map(|class| kinds.iter().map(|kind| cost_of(&parameters, *kind, *class, *concurrency).0).collect())
                .collect();
            for access in &window.regions {
                let own = &choice.layouts[choice.windows[0][access.region.0 as usize] as usize];
                let same = layouts.iter().position(|regions| regions.get(access.region.0 as usize) == own);
                let of_region = demands.entry(access.region.0).or_default();
                for (class, count) in &access.counts {
                    let candidates_ps = &costs[usize::from(class.0)];
                    let present_ps = match same {
                        Some(candidate) => candidates_ps[candidate],
                        None => own_cost_ps(task, own, file.class(*class), *concurrency),
                    };
                    of_region.push(Demand {
                        requests: *count,
                        present_ps,
                        candidates_ps: candidates_ps.clone(),
                        processes: concurrency.factors().0,
                    });
                }
            }
        }
        Self { layouts, demands }
    }
}

/// A region that found the SServers full lies on other servers than any candidate: it is costed by the same table over those.
fn own_cost_ps(task: &Task<'_>, own: &Layout, class: AccessClass, concurrency: Concurrency) -> u128 {
    let servers: Vec<ServerId> = own.stripes().iter().map(|stripe| stripe.server).collect();
    let parameters = parameters_of(task, &servers);
    candidates(servers.len())
        .into_iter()
        .map(|kind: ProcessLayout| cost_of(&parameters, kind, class, concurrency).0)
        .min()
        .expect("1-DH is always one of them")
}

fn gain_ps(demands: &[Demand], candidate: usize) -> u128 {
    let gains = demands.iter().map(|demand| {
        demand.present_ps.saturating_sub(demand.candidates_ps[candidate]).saturating_mul(u128::from(demand.requests))
    });
    gains.fold(0, u128::saturating_add)
}

/// Serves the region's requests from the new copy too where that is cheaper; the seconds of a run that this saves.
fn take(demands: &mut [Demand], candidate: usize) -> f64 {
    let mut saved_s = 0.0;
    for demand in demands {
        let now_ps = demand.present_ps.min(demand.candidates_ps[candidate]);
        saved_s += (demand.present_ps - now_ps) as f64 / 1e12 * demand.requests as f64 / demand.processes;
        demand.present_ps = now_ps;
    }
    saved_s
}

/// Copies of consecutive regions with one layout as one entry; ascending by first region.
fn joined<'l>(copies: impl Iterator<Item = (u32, &'l Layout)>) -> Vec<Replica> {
    let mut list: Vec<Replica> = Vec::new();
    for (region, layout) in copies {
        let before = list.iter_mut().rev().find(|last| last.first.0 + last.regions == region && last.layout == *layout);
        match before {
            Some(last) => last.regions += 1,
            None => list.push(Replica { first: RegionIndex(region), regions: 1, layout: layout.clone() }),
        }
    }
    list.sort_by_key(|replica| replica.first);
    list
}
