//! What one request asks of the servers.

use super::Streaming;
use crate::Profile;
use crate::striped::aligned_offsets;
use stripewise_layout::{Layout, Order, RegionOffset};
use stripewise_trace::AccessClass;

/// Forks kept of one class under one layout, at most; with more, evenly spaced ones stand for all.
const FORKS: usize = 16;

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
    request_demand_with(profile, layout, class, |_| streams, region_bytes)
}

/// As [`request_demand`] where the streams that meet differ by server.
#[must_use]
pub fn request_demand_with(
    profile: &Profile,
    layout: &Layout,
    class: AccessClass,
    streams: impl Fn(usize) -> Streaming,
    region_bytes: u64,
) -> RequestDemand {
    let offsets = aligned_offsets(layout.view().cycle_bytes(), class.request_bytes, region_bytes);
    let count = offsets.clone().count();
    let share = 1.0 / count as f64;
    let costs: Vec<SubRequestCost> = layout
        .stripes()
        .iter()
        .map(|stripe| {
            let server = usize::from(stripe.server.0);
            SubRequestCost::of(profile, server, class, streams(server).continuing(class.order))
        })
        .collect();
    let mut sums: Vec<ServerDemand> = costs.iter().map(|cost| ServerDemand::none(cost.server)).collect();
    let mut unloaded_s = 0.0;
    let mut forks: Vec<Fork> = Vec::new();
    for (number, offset) in offsets.enumerate() {
        let is_kept = count <= FORKS || number * FORKS / count != (number + 1) * FORKS / count;
        let (mut longest_s, mut parts) = (0.0f64, Vec::new());
        for sub in layout.view().split(RegionOffset(offset), class.request_bytes) {
            let cost = &costs[sub.turn];
            let (device, link) = (cost.device(sub.length), cost.link(sub.length));
            sums[sub.turn].add(share, device, link);
            let part = Part { server: cost.server, device_s: device.mean_s, link_s: link.mean_s };
            longest_s = longest_s.max(part.alone_s());
            if is_kept {
                parts.push(part);
            }
        }
        unloaded_s += share * longest_s;
        if is_kept {
            parts.sort_unstable_by_key(|part| part.server);
            forks.push(Fork { share: 1.0 / count.min(FORKS) as f64, parts });
        }
    }
    let mut servers: Vec<ServerDemand> = sums.into_iter().filter(|sum| sum.visits > 0.0).collect();
    servers.iter_mut().for_each(ServerDemand::finish);
    servers.sort_unstable_by_key(|demand| demand.server);
    RequestDemand { servers, unloaded_s, forks }
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
    server: usize,
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
            server,
            device: [line(Order::Sequential, continuing), line(Order::Random, 1.0 - continuing)],
            message_s: profile.network.e_s,
            link_s_per_byte: profile.network.t_s_per_byte,
        }
    }

    fn device(&self, bytes: u64) -> Work {
        let mut work = Work::default();
        for (share, startup_s, s_per_byte) in self.device {
            let seconds = startup_s + bytes as f64 * s_per_byte;
            work.mean_s += share * seconds;
            work.mean_square_s2 += share * seconds * seconds;
        }
        work
    }

    fn link(&self, bytes: u64) -> Work {
        let seconds = self.message_s + bytes as f64 * self.link_s_per_byte;
        Work { mean_s: seconds, mean_square_s2: seconds * seconds }
    }
}
