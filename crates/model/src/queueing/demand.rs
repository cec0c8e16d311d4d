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
    /// Of each of `servers` over the samples. Service is linear in bytes, so these are all that a class needs of them.
    moments: Vec<Moments>,
    /// Sets of servers that are touched together.
    sets: Vec<TouchedSet>,
}

/// One offset: the bytes on each server that it touches, by position in [`Splitting::servers`].
type Sample = Vec<(usize, f64)>;

/// Sub-requests to one server per request: how many, their bytes and their squared bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Moments {
    visits: f64,
    bytes: f64,
    square_bytes: f64,
}

/// The share of the samples that touch just these servers, and the mean bytes on each.
#[derive(Clone, PartialEq, Debug)]
struct TouchedSet {
    share: f64,
    parts: Vec<(usize, f64)>,
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
        let share = 1.0 / looked_at as f64;
        let mut moments = vec![Moments::default(); turns.len()];
        let mut sets: Vec<TouchedSet> = Vec::new();
        for number in 0..looked_at {
            let offset = RegionOffset(number * count / looked_at * request_bytes);
            let mut parts: Sample =
                view.split(offset, request_bytes).map(|sub| (position[sub.turn], sub.length as f64)).collect();
            parts.sort_unstable_by_key(|(at, _)| *at);
            for (at, bytes) in &parts {
                let sums = &mut moments[*at];
                sums.visits += share;
                sums.bytes += share * bytes;
                sums.square_bytes += share * bytes * bytes;
            }
            let is_same = |set: &&mut TouchedSet| {
                set.parts.len() == parts.len() && set.parts.iter().zip(&parts).all(|(one, other)| one.0 == other.0)
            };
            match sets.iter_mut().find(is_same) {
                Some(set) => {
                    set.share += share;
                    set.parts.iter_mut().zip(&parts).for_each(|(sum, (_, bytes))| sum.1 += share * bytes);
                }
                None => {
                    let summed = parts.iter().map(|(at, bytes)| (*at, share * bytes)).collect();
                    sets.push(TouchedSet { share, parts: summed });
                }
            }
            samples.push(parts);
        }
        for set in &mut sets {
            set.parts.iter_mut().for_each(|(_, bytes)| *bytes /= set.share);
        }
        let is_period = count == aligned_count(view.cycle_bytes(), request_bytes, u64::MAX);
        let means = (count > looked_at && is_period).then(|| {
            let touched: Vec<f64> = touched_shares(layout, request_bytes).collect();
            let share = |turn: usize| f64::from(layout.stripes()[turn].size_bytes) / view.cycle_bytes() as f64;
            turns.iter().map(|turn| (touched[*turn], request_bytes as f64 * share(*turn))).collect()
        });
        let servers = turns.iter().map(|turn| usize::from(layout.stripes()[*turn].server.0)).collect();
        Self { servers, means, samples, moments, sets }
    }

    /// The demand of one request of `class`, whose size must be that of the splitting. `streams` says of a server what its disk sees of order.
    #[must_use]
    pub fn demand(&self, profile: &Profile, class: AccessClass, streams: impl Fn(usize) -> Streaming) -> RequestDemand {
        let cost =
            |server: &usize| SubRequestCost::of(profile, *server, class, streams(*server).continuing(class.order));
        let costs: Vec<SubRequestCost> = self.servers.iter().map(cost).collect();
        let share = 1.0 / self.samples.len() as f64;
        let longest_s = |sample: &Sample| {
            let alone_s = sample.iter().map(|(at, bytes)| costs[*at].alone_s(*bytes));
            alone_s.fold(0.0, f64::max)
        };
        let unloaded_s: f64 = self.samples.iter().map(|sample| share * longest_s(sample)).sum();
        let of_set = |set: &TouchedSet| {
            let part = |(at, bytes): &(usize, f64)| Part {
                server: self.servers[*at],
                device_s: costs[*at].device.mean_s(*bytes),
                link_s: costs[*at].link.mean_s(*bytes),
            };
            Fork { share: set.share, parts: set.parts.iter().map(part).collect() }
        };
        let forks = self.sets.iter().map(of_set).collect();
        let summed = |((server, cost), moments): ((&usize, &SubRequestCost), &Moments)| ServerDemand {
            server: *server,
            visits: moments.visits,
            device: cost.device.summed(moments),
            link: cost.link.summed(moments),
        };
        let mut sums: Vec<ServerDemand> = self.servers.iter().zip(&costs).zip(&self.moments).map(summed).collect();
        for (at, sum) in sums.iter_mut().enumerate() {
            match self.means.as_ref().map(|means| means[at]) {
                Some((visits, bytes)) => {
                    let (device, link) = (costs[at].device.of(bytes / visits), costs[at].link.of(bytes / visits));
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
    device: LineMoments,
    link: LineMoments,
}

/// Mean and mean square of a mix of lines as polynomials of the bytes.
#[derive(Clone, Copy, Default)]
struct LineMoments {
    /// Mean: startup, and per byte.
    mean: [f64; 2],
    /// Mean square: constant, per byte, per squared byte.
    square: [f64; 3],
}

impl LineMoments {
    fn add(&mut self, share: f64, startup_s: f64, s_per_byte: f64) {
        self.mean[0] += share * startup_s;
        self.mean[1] += share * s_per_byte;
        self.square[0] += share * startup_s * startup_s;
        self.square[1] += share * 2.0 * startup_s * s_per_byte;
        self.square[2] += share * s_per_byte * s_per_byte;
    }

    fn mean_s(&self, bytes: f64) -> f64 {
        self.mean[0] + bytes * self.mean[1]
    }

    /// Of sub-requests of so many bytes each.
    fn of(&self, bytes: f64) -> Work {
        self.summed(&Moments { visits: 1.0, bytes, square_bytes: bytes * bytes })
    }

    /// Sums over sub-requests.
    fn summed(&self, moments: &Moments) -> Work {
        let Moments { visits, bytes, square_bytes } = *moments;
        Work {
            mean_s: visits * self.mean[0] + bytes * self.mean[1],
            mean_square_s2: visits * self.square[0] + bytes * self.square[1] + square_bytes * self.square[2],
        }
    }
}

impl SubRequestCost {
    fn of(profile: &Profile, server: usize, class: AccessClass, continuing: f64) -> Self {
        let (mut device, mut link) = (LineMoments::default(), LineMoments::default());
        for (order, share) in [(Order::Sequential, continuing), (Order::Random, 1.0 - continuing)] {
            let line = profile.servers[server].line(class.direction, order);
            device.add(share, line.alpha_s, line.beta_s_per_byte);
        }
        link.add(1.0, profile.network.e_s, profile.network.t_s_per_byte);
        Self { device, link }
    }

    /// Seconds without waiting.
    fn alone_s(&self, bytes: f64) -> f64 {
        self.device.mean_s(bytes) + self.link.mean_s(bytes)
    }
}
