//! The model's prediction for any placement: bandwidth per direction, time, and service seconds per server.
//!
//! The time of a window is the sum of its requests' costs divided by its p: a cost already contains the wait behind p - 1 others, and p
//! requests wait at once. Bandwidth is bytes over that time. The spread is that of the fitted lines that decide the costs, weighted by
//! their share of the time. Service seconds per server follow from the true sub-requests instead, so that they compare with what a
//! server measures.

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use stripewise_layout::{Direction, Layout, Placement};
use stripewise_model::{Concurrency, Profile, striped};
use stripewise_trace::{AccessClass, FileAccess, WindowAccess};

/// What one direction, or all requests together, is predicted to do.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    pub requests: u64,
    pub bytes: u64,
    pub time_s: f64,
    /// Million bytes per second.
    pub mb_per_s: f64,
    /// Relative spread of the time, from the profile's fits.
    pub spread: f64,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prediction {
    pub read: Option<Throughput>,
    pub write: Option<Throughput>,
    pub total: Throughput,
    /// Service seconds of each server, in cluster order.
    pub server_load_s: Vec<f64>,
}

/// The prediction for the accesses of one window of a file, or of all its windows, under one placement. The placement must have passed
/// [`Placement::check`] for the profile's servers; a window that the file does not have has no requests.
#[must_use]
pub fn predict(
    placement: &Placement,
    access: &FileAccess,
    profile: &Profile,
    window: Option<usize>,
    concurrency: Concurrency,
) -> Prediction {
    let mut sum = PredictionSum::new(profile);
    for (number, accesses) in access.windows.iter().enumerate() {
        if window.is_none_or(|wanted| wanted == number) {
            sum.add(placement, access, accesses, concurrency);
        }
    }
    sum.finish()
}

#[derive(Clone, Copy, Default)]
struct DirectionSum {
    requests: u64,
    bytes: u128,
    time_s: f64,
    spread_time_s: f64,
}

impl DirectionSum {
    fn merge(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_add(other.requests),
            bytes: self.bytes.saturating_add(other.bytes),
            time_s: self.time_s + other.time_s,
            spread_time_s: self.spread_time_s + other.spread_time_s,
        }
    }

    fn throughput(self) -> Throughput {
        let time_s = self.time_s;
        let over_time = |value: f64| if time_s > 0.0 { value / time_s } else { 0.0 };
        Throughput {
            requests: self.requests,
            bytes: u64::try_from(self.bytes).unwrap_or(u64::MAX),
            time_s,
            mb_per_s: over_time(self.bytes as f64 / 1e6),
            spread: over_time(self.spread_time_s),
        }
    }
}

/// Adds up windows and files.
pub(crate) struct PredictionSum<'a> {
    profile: &'a Profile,
    read: DirectionSum,
    write: DirectionSum,
    load_s: Vec<f64>,
    costs: HashMap<Layout, HashMap<(AccessClass, Concurrency), striped::SpreadCost>>,
}

impl<'a> PredictionSum<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            read: DirectionSum::default(),
            write: DirectionSum::default(),
            load_s: vec![0.0; profile.servers.len()],
            costs: HashMap::new(),
        }
    }

    /// Adds one window of one file under one placement, costed with the window's p and c. Requests are first counted per layout and class,
    /// then each pair is costed once.
    pub(crate) fn add(
        &mut self,
        placement: &Placement,
        access: &FileAccess,
        window: &WindowAccess,
        concurrency: Concurrency,
    ) {
        let classes = access.classes.len();
        let mut counts = vec![0u64; placement.layouts.len() * classes];
        let mut runs = placement.runs.iter();
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
        }
        for (number, layout) in placement.layouts.iter().enumerate() {
            let row = &counts[number * classes..][..classes];
            if row.iter().any(|count| *count > 0) {
                self.add_layout(layout, &access.classes, row, concurrency);
            }
        }
    }

    fn add_layout(&mut self, layout: &Layout, classes: &[AccessClass], counts: &[u64], concurrency: Concurrency) {
        if !self.costs.contains_key(layout) {
            self.costs.insert(layout.clone(), HashMap::new());
        }
        let known = self.costs.get_mut(layout).expect("just put there");
        for (class, count) in classes.iter().zip(counts).filter(|(_, count)| **count > 0) {
            let profile = self.profile;
            let found = known
                .entry((*class, concurrency))
                .or_insert_with(|| striped::request_cost(profile, layout, *class, concurrency));
            let requests = *count as f64;
            let sum = match class.direction {
                Direction::Read => &mut self.read,
                Direction::Write => &mut self.write,
            };
            let waiting = requests / concurrency.factors().0;
            sum.requests = sum.requests.saturating_add(*count);
            sum.bytes = sum.bytes.saturating_add(u128::from(*count) * u128::from(class.request_bytes));
            sum.time_s += waiting * found.cost.total_s();
            sum.spread_time_s += waiting * found.cost.storage_s * found.storage_spread;
            striped::add_load(profile, layout, *class, requests, &mut self.load_s);
        }
    }

    pub(crate) fn finish(self) -> Prediction {
        let of = |sum: DirectionSum| (sum.requests > 0).then(|| sum.throughput());
        Prediction {
            read: of(self.read),
            write: of(self.write),
            total: self.read.merge(self.write).throughput(),
            server_load_s: self.load_s,
        }
    }
}
