//! What one request asks of the servers.

use super::Streaming;
use crate::Profile;
use crate::striped::{aligned_count, touched_shares};
use stripewise_layout::{Layout, Order, RegionOffset};
use stripewise_trace::AccessClass;

/// Offsets that are looked at, at most; with more, as many evenly spaced ones stand for all.
const SAMPLES: u64 = 16;

/// Service of one station, per visit.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Mean seconds.
    pub mean_s: f64,
    /// Mean of the squared seconds.
    pub mean_square_s2: f64,
}

impl Work {
    /// Variance over squared mean; 0 for no work.
    #[must_use]
    pub fn squared_variation(&self) -> f64 {
        match self.mean_s * self.mean_s {
            square if square > 0.0 => (self.mean_square_s2 / square - 1.0).max(0.0),
            _ => 0.0,
        }
    }
}

/// What one request asks of one server on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ServerDemand {
    /// Position in the profile's servers.
    pub server: usize,
    /// Sub-requests per request, at most 1.
    pub visits: f64,
    /// Per sub-request.
    pub device: Work,
    /// Per sub-request.
    pub link: Work,
}

impl ServerDemand {
    /// Seconds of device time per request.
    #[must_use]
    pub fn device_s(&self) -> f64 {
        self.visits * self.device.mean_s
    }

    /// Seconds of link time per request.
    #[must_use]
    pub fn link_s(&self) -> f64 {
        self.visits * self.link.mean_s
    }
}

/// One sub-request: mean seconds on the server's device and on its link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Part {
    pub server: usize,
    pub device_s: f64,
    pub link_s: f64,
}

impl Part {
    /// Seconds without waiting.
    #[must_use]
    pub fn alone_s(&self) -> f64 {
        self.device_s + self.link_s
    }
}

/// One way in which requests fall apart, by where they start in the cycle.
#[derive(Clone, PartialEq, Debug)]
pub struct Fork {
    /// Share of the requests; those of a [`RequestDemand`] sum to 1.
    pub share: f64,
    /// At least one, by ascending server.
    pub parts: Vec<Part>,
}

/// What one request of a class asks of the servers under a layout: means over the request-aligned offsets of a region.
#[derive(Clone, PartialEq, Debug)]
pub struct RequestDemand {
    /// Touched servers only, ascending.
    pub servers: Vec<ServerDemand>,
    /// Seconds of one request alone: its longest sub-request, device and then link.
    pub unloaded_s: f64,
    /// How requests fork.
    pub forks: Vec<Fork>,
}

/// The demand of one request of `class` on `layout`, whose servers must all be in the profile. Requests start at 0, r, 2r, .. of a region of
/// `region_bytes`, as in [`crate::striped::exact_cost`], each offset equally often.
///
/// A sub-request of b bytes holds the device for alpha + b beta of that server's own line and then the link for e + b t. `streams` mixes
/// the sequential and the random line. A device is one station: startups that an SSD overlaps on several channels count one after the other, since a
/// profile does not tell its channels.
#[must_use]
pub fn request_demand(
    profile: &Profile,
    layout: &Layout,
    class: AccessClass,
    streams: Streaming,
    region_bytes: u64,
) -> RequestDemand {
    Splitting::of(layout, class.request_bytes, region_bytes).demand(profile, class, |_| streams)
}

/// How requests of one size fall apart under one layout, whatever they cost. Worth keeping where several classes have the size.
///
/// Means of visits and bytes are those of all offsets; second moments, forks and the longest sub-requests are those of at most 16 evenly spaced
/// offsets, which is all of them where sizes and cycles are powers of two that are not far apart.
#[derive(Clone, PartialEq, Debug)]
pub struct Splitting {
    /// Of the layout, ascending.
    servers: Vec<usize>,
    /// Visits and bytes per request of each of `servers`, when the samples are not all offsets.
    means: Option<Vec<(f64, f64)>>,
    samples: Vec<Sample>,
    /// Sets of servers that are touched together.
    sets: usize,
}

/// One offset: which set of servers it touches, and the bytes on each, by position in [`Splitting::servers`].
#[derive(Clone, PartialEq, Debug)]
struct Sample {
    set: usize,
    parts: Vec<(usize, u64)>,
}

impl Splitting {
    /// Requests of `request_bytes`, aligned to their size, in regions of `region_bytes` on `layout`.
    #[must_use]
    pub fn of(layout: &Layout, request_bytes: u64, region_bytes: u64) -> Self {
        let (view, request_bytes) = (layout.view(), request_bytes.max(1));
        let mut turns: Vec<usize> = (0..layout.stripes().len()).collect();
        turns.sort_unstable_by_key(|turn| layout.stripes()[*turn].server);
        let mut position = vec![0; turns.len()];
        turns.iter().enumerate().for_each(|(at, turn)| position[*turn] = at);
        let count = aligned_count(view.cycle_bytes(), request_bytes, region_bytes);
        let looked_at = count.min(SAMPLES);
        let mut samples: Vec<Sample> = Vec::with_capacity(looked_at as usize);
        let mut sets = 0;
        for number in 0..looked_at {
            let offset = RegionOffset(number * count / looked_at * request_bytes);
            let mut parts: Vec<(usize, u64)> =
                view.split(offset, request_bytes).map(|sub| (position[sub.turn], sub.length)).collect();
            parts.sort_unstable();
            let is_same = |sample: &&Sample| {
                sample.parts.len() == parts.len()
                    && sample.parts.iter().zip(&parts).all(|(one, other)| one.0 == other.0)
            };
            let set = samples.iter().find(is_same).map_or(sets, |sample| sample.set);
            sets = sets.max(set + 1);
            samples.push(Sample { set, parts });
        }
        let is_period = count == aligned_count(view.cycle_bytes(), request_bytes, u64::MAX);
        let means = (count > looked_at && is_period).then(|| {
            let touched: Vec<f64> = touched_shares(layout, request_bytes).collect();
            let share = |turn: usize| f64::from(layout.stripes()[turn].size_bytes) / view.cycle_bytes() as f64;
            turns.iter().map(|turn| (touched[*turn], request_bytes as f64 * share(*turn))).collect()
        });
        let servers = turns.iter().map(|turn| usize::from(layout.stripes()[*turn].server.0)).collect();
        Self { servers, means, samples, sets }
    }

    /// The demand of one request of `class`, whose size must be that of the splitting. `streams` says of a server what its disk sees of order.
    #[must_use]
    pub fn demand(&self, profile: &Profile, class: AccessClass, streams: impl Fn(usize) -> Streaming) -> RequestDemand {
        let cost =
            |server: &usize| SubRequestCost::of(profile, *server, class, streams(*server).continuing(class.order));
        let costs: Vec<SubRequestCost> = self.servers.iter().map(cost).collect();
        let mut sums: Vec<ServerDemand> = self.servers.iter().map(|server| ServerDemand::none(*server)).collect();
        let mut forks: Vec<Fork> = vec![Fork { share: 0.0, parts: Vec::new() }; self.sets];
        let share = 1.0 / self.samples.len() as f64;
        let mut unloaded_s = 0.0;
        for sample in &self.samples {
            let fork = &mut forks[sample.set];
            if fork.parts.is_empty() {
                let none = |(at, _): &(usize, u64)| Part { server: self.servers[*at], device_s: 0.0, link_s: 0.0 };
                fork.parts = sample.parts.iter().map(none).collect();
            }
            fork.share += share;
            let mut longest_s = 0.0f64;
            for ((at, bytes), part) in sample.parts.iter().zip(&mut fork.parts) {
                let (device, link) = (costs[*at].device(*bytes as f64), costs[*at].link(*bytes as f64));
                sums[*at].add(share, device, link);
                part.device_s += share * device.mean_s;
                part.link_s += share * link.mean_s;
                longest_s = longest_s.max(device.mean_s + link.mean_s);
            }
            unloaded_s += share * longest_s;
        }
        for fork in &mut forks {
            for part in &mut fork.parts {
                part.device_s /= fork.share;
                part.link_s /= fork.share;
            }
        }
        for (at, sum) in sums.iter_mut().enumerate() {
            match self.means.as_ref().map(|means| means[at]) {
                Some((visits, bytes)) => {
                    let (device, link) = (costs[at].device(bytes / visits), costs[at].link(bytes / visits));
                    sum.become_mean(visits, device, link);
                }
                None if sum.visits > 0.0 => sum.finish(),
                None => {}
            }
        }
        let servers = sums.into_iter().filter(|sum| sum.visits > 0.0).collect();
        RequestDemand { servers, unloaded_s, forks }
    }
}

impl ServerDemand {
    pub(super) fn none(server: usize) -> Self {
        Self { server, visits: 0.0, device: Work::default(), link: Work::default() }
    }

    /// Adds `visits` sub-requests; the works are sums until [`Self::finish`].
    pub(super) fn add(&mut self, visits: f64, device: Work, link: Work) {
        self.visits += visits;
        for (sum, work) in [(&mut self.device, device), (&mut self.link, link)] {
            sum.mean_s += visits * work.mean_s;
            sum.mean_square_s2 += visits * work.mean_square_s2;
        }
    }

    /// From sums over samples to known means; the samples say how far the works vary about them.
    fn become_mean(&mut self, visits: f64, device: Work, link: Work) {
        if self.visits > 0.0 {
            self.finish();
        }
        self.visits = visits;
        for (own, mean) in [(&mut self.device, device), (&mut self.link, link)] {
            let variation = own.squared_variation().max(mean.squared_variation());
            *own = Work { mean_s: mean.mean_s, mean_square_s2: mean.mean_s * mean.mean_s * (1.0 + variation) };
        }
    }

    /// From sums to means.
    pub(super) fn finish(&mut self) {
        for work in [&mut self.device, &mut self.link] {
            work.mean_s /= self.visits;
            work.mean_square_s2 /= self.visits;
        }
    }
}

/// The lines of one server for one class.
struct SubRequestCost {
    /// Probability, startup and time per byte, for requests that continue a stream and those that do not.
    device: [(f64, f64, f64); 2],
    message_s: f64,
    link_s_per_byte: f64,
}

impl SubRequestCost {
    fn of(profile: &Profile, server: usize, class: AccessClass, continuing: f64) -> Self {
        let line = |order, share| {
            let line = profile.servers[server].line(class.direction, order);
            (share, line.alpha_s, line.beta_s_per_byte)
        };
        Self {
            device: [line(Order::Sequential, continuing), line(Order::Random, 1.0 - continuing)],
            message_s: profile.network.e_s,
            link_s_per_byte: profile.network.t_s_per_byte,
        }
    }

    fn device(&self, bytes: f64) -> Work {
        let mut work = Work::default();
        for (share, startup_s, s_per_byte) in self.device {
            let seconds = startup_s + bytes * s_per_byte;
            work.mean_s += share * seconds;
            work.mean_square_s2 += share * seconds * seconds;
        }
        work
    }

    fn link(&self, bytes: f64) -> Work {
        let seconds = self.message_s + bytes * self.link_s_per_byte;
        Work { mean_s: seconds, mean_square_s2: seconds * seconds }
    }
}
