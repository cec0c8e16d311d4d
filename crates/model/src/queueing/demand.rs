//! What one request asks of the servers.

use super::Streaming;
use crate::Profile;
use crate::offsets::{AlignedOffsets, StripeOfCycle};
use stripewise_layout::{Layout, Order, RequestKind};
use stripewise_trace::AccessClass;

/// Offsets that are looked at, at most; with more, as many spread ones stand for all.
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
    /// How often a sub-request waits for the device once more without service, 0 to 1: [`crate::ServerProfile::flush_wait`].
    pub flushes: f64,
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
    /// Position in the profile's servers.
    pub server: usize,
    /// Mean seconds of the device: alpha + b beta.
    pub device_s: f64,
    /// Mean seconds of the link: e + b t.
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
    /// Seconds of one request alone: its longest sub-request, device and then link; 0 for requests that nobody waits for.
    pub unloaded_s: f64,
    /// How requests fork; none for requests that nobody waits for.
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
/// Means of visits and bytes are those of all offsets of the region, in closed form where not all are looked at; second moments, forks and the longest sub-requests are those of
/// at most 16 offsets, which is all of them where sizes and cycles are powers of two that are not far apart.
#[derive(Clone, PartialEq, Debug)]
pub struct Splitting {
    /// Of the layout, ascending.
    pub(super) servers: Vec<usize>,
    /// The bytes on each server that an offset touches, by position in `servers`, one offset after the other.
    parts: Vec<(u16, f64)>,
    /// Where in `parts` each offset ends, and the share of the requests that it stands for.
    ends: Vec<(usize, f64)>,
    /// Of each of `servers`. Service is linear in bytes, so these are all that a class needs of them.
    pub(super) moments: Vec<Moments>,
    /// Of each of `servers`, for [`Self::staying`].
    passes: Vec<Pass>,
    /// Sets of servers that are touched together.
    pub(super) sets: Vec<TouchedSet>,
}

/// Sub-requests to one server per request: how many, their bytes and their squared bytes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Moments {
    pub(super) visits: f64,
    pub(super) bytes: f64,
    pub(super) square_bytes: f64,
}

impl Moments {
    pub(super) fn add(&mut self, weight: f64, other: &Moments) {
        self.visits += weight * other.visits;
        self.bytes += weight * other.bytes;
        self.square_bytes += weight * other.square_bytes;
    }

    /// With known visits and bytes; the samples say how far the bytes of sub-requests vary about their mean.
    fn with_means(self, visits: f64, bytes: f64) -> Self {
        if visits <= 0.0 {
            return Self::default();
        }
        let spread = if self.bytes > 0.0 { self.square_bytes * self.visits / (self.bytes * self.bytes) } else { 1.0 };
        Self { visits, bytes, square_bytes: bytes * bytes / visits * spread.max(1.0) }
    }
}

/// A process that goes through a cycle in order passes a server's stripe.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Pass {
    /// Sub-requests meanwhile.
    touches: f64,
    /// Of the stripe.
    bytes: u64,
}

/// The share of the samples that touch just these servers, and the mean bytes on each. Requests are contiguous, so a set is a run of the cycle.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct TouchedSet {
    /// Turn of the cycle with which the run begins; 0 for all of them.
    pub(super) first_turn: usize,
    pub(super) share: f64,
    /// By position in [`Splitting::servers`], ascending.
    pub(super) parts: Vec<(u16, f64)>,
}

/// Cuts contiguous requests at the stripes of a cycle.
struct Cutter {
    cycle_bytes: u64,
    /// Where each turn starts in the cycle, and its bytes.
    turns: Vec<(u64, u64)>,
    /// For every turn the position of its server among the servers in order.
    positions: Vec<u16>,
}

impl Cutter {
    /// Adds the bytes on every touched server, by ascending position; returns the turn in which the request begins, which must not be empty.
    fn split(&self, offset: u64, length: u64, parts: &mut Vec<(u16, f64)>) -> usize {
        let known = parts.len();
        let first_turn = if length < self.cycle_bytes {
            self.split_short(offset % self.cycle_bytes, length, parts)
        } else {
            self.split_long(offset, length, parts)
        };
        if !parts[known..].is_sorted_by_key(|(at, _)| *at) {
            parts[known..].sort_unstable_by_key(|(at, _)| *at);
        }
        // A request on all servers is the same wherever it begins.
        if parts.len() - known == self.turns.len() { 0 } else { first_turn }
    }

    /// A request shorter than a cycle, from `start` in it: only the turns that it touches are looked at.
    fn split_short(&self, start: u64, length: u64, parts: &mut Vec<(u16, f64)>) -> usize {
        let known = parts.len();
        let first_turn = self.turns.partition_point(|(first, _)| *first <= start) - 1;
        let (mut turn, mut left) = (first_turn, length);
        let mut skipped = start - self.turns[turn].0;
        loop {
            let bytes = (self.turns[turn].1 - skipped).min(left);
            if turn == first_turn && parts.len() > known {
                // Once around: the end lies in the stripe in which it began.
                parts[known].1 += bytes as f64;
            } else {
                parts.push((self.positions[turn], bytes as f64));
            }
            left -= bytes;
            if left == 0 {
                return first_turn;
            }
            (turn, skipped) = (if turn + 1 == self.turns.len() { 0 } else { turn + 1 }, 0);
        }
    }

    fn split_long(&self, offset: u64, length: u64, parts: &mut Vec<(u16, f64)>) -> usize {
        let (first_cycle, first_rest) = (offset / self.cycle_bytes, offset % self.cycle_bytes);
        let end = offset + length;
        let (cycles, last_rest) = (end / self.cycle_bytes - first_cycle, end % self.cycle_bytes);
        let mut first_turn = 0;
        for ((start, size), position) in self.turns.iter().zip(&self.positions) {
            let before = first_rest.saturating_sub(*start).min(*size);
            first_turn += usize::from(before == *size);
            let bytes = cycles * size + last_rest.saturating_sub(*start).min(*size) - before;
            if bytes > 0 {
                parts.push((*position, bytes as f64));
            }
        }
        first_turn
    }
}

impl Splitting {
    /// Requests of `request_bytes`, aligned to their size, in regions of `region_bytes` on `layout`.
    #[must_use]
    pub fn of(layout: &Layout, request_bytes: u64, region_bytes: u64) -> Self {
        let (cycle_bytes, request_bytes) = (layout.view().cycle_bytes(), request_bytes.max(1));
        let mut order: Vec<usize> = (0..layout.stripes().len()).collect();
        order.sort_by_key(|turn| layout.stripes()[*turn].server);
        let mut positions = vec![0u16; order.len()];
        order.iter().zip(0..).for_each(|(turn, at)| positions[*turn] = at);
        let mut start = 0;
        let turns = layout.stripes().iter().map(|stripe| {
            let size = u64::from(stripe.size_bytes);
            start += size;
            (start - size, size)
        });
        let cutter = Cutter { cycle_bytes, turns: turns.collect(), positions };
        let offsets = AlignedOffsets::of(cycle_bytes, request_bytes, region_bytes, SAMPLES);
        let (count, sampled) = (offsets.all(), offsets.sampled());
        let mut parts: Vec<(u16, f64)> = Vec::with_capacity(sampled as usize * order.len());
        let mut ends = Vec::with_capacity(sampled as usize);
        let mut moments = vec![Moments::default(); order.len()];
        let mut sets: Vec<TouchedSet> = Vec::new();
        for number in 0..sampled {
            let (known, share) = (parts.len(), offsets.share(number));
            let first_turn = cutter.split(offsets.offset(number), request_bytes, &mut parts);
            let split = &parts[known..];
            for (at, bytes) in split {
                moments[usize::from(*at)]
                    .add(share, &Moments { visits: 1.0, bytes: *bytes, square_bytes: bytes * bytes });
            }
            let is_same = |set: &&mut TouchedSet| set.first_turn == first_turn && set.parts.len() == split.len();
            match sets.iter_mut().find(is_same) {
                Some(set) => {
                    set.share += share;
                    set.parts.iter_mut().zip(split).for_each(|(sum, (_, bytes))| sum.1 += share * bytes);
                }
                None => {
                    let summed = split.iter().map(|(at, bytes)| (*at, share * bytes)).collect();
                    sets.push(TouchedSet { first_turn, share, parts: summed });
                }
            }
            ends.push((parts.len(), share));
        }
        for set in &mut sets {
            set.parts.iter_mut().for_each(|(_, bytes)| *bytes /= set.share);
        }
        if !offsets.covers_all() {
            for (turn, at) in order.iter().zip(&mut moments) {
                let (start, bytes) = cutter.turns[*turn];
                let stripe = StripeOfCycle { start, bytes, cycle_bytes };
                let mean = |sum: u64| sum as f64 / count as f64;
                *at = at.with_means(
                    mean(stripe.touching(request_bytes, count)),
                    mean(stripe.bytes_of(count * request_bytes)),
                );
            }
        }
        let servers = order.iter().map(|turn| usize::from(layout.stripes()[*turn].server.0)).collect();
        let pass = |(turn, of): (&usize, &Moments)| Pass {
            touches: of.visits * cycle_bytes.min(region_bytes) as f64 / request_bytes as f64,
            bytes: cutter.turns[*turn].1,
        };
        // On one server a process stays for as long as it is in the region, which is the same as coming to it.
        let passes = match order.len() {
            1 => vec![Pass { touches: 1.0, bytes: cycle_bytes }],
            _ => order.iter().zip(&moments).map(pass).collect(),
        };
        Self { servers, parts, ends, moments, passes, sets }
    }

    /// Of each server in order, the share of its sub-requests, 0 to 1, that go where the one before them went, if a process goes through the region in order: all but the first
    /// in each stripe, or in each run of `run_bytes` of it where what a layout has as one stripe lies in several places of the cycle.
    pub(super) fn staying(&self, run_bytes: u64) -> impl Iterator<Item = f64> {
        self.passes.iter().map(move |pass| {
            let runs = (pass.bytes as f64 / run_bytes as f64).max(1.0);
            if pass.touches > runs { 1.0 - runs / pass.touches } else { 0.0 }
        })
    }

    /// The mean over the offsets of the longest sub-request, whose seconds are `line[0]` and `line[1]` for each byte; lines by position.
    pub(super) fn longest_s(&self, lines: &[[f64; 2]]) -> f64 {
        let (mut start, mut sum) = (0, 0.0);
        for (end, share) in &self.ends {
            let alone_s = self.parts[start..*end].iter().map(|(at, bytes)| {
                let [startup_s, s_per_byte] = lines[usize::from(*at)];
                startup_s + bytes * s_per_byte
            });
            sum += share * alone_s.fold(0.0, f64::max);
            start = *end;
        }
        sum
    }

    /// The demand of one request of `class`, whose size must be that of the splitting. `streams` says of a server what its disk sees of order.
    #[must_use]
    pub fn demand(&self, profile: &Profile, class: AccessClass, streams: impl Fn(usize) -> Streaming) -> RequestDemand {
        let cost = |(server, staying): (&usize, f64)| {
            let [coming, stays] = SubRequestCost::both(profile, *server, class.kind, class.order, streams(*server));
            coming.mixed(&stays, staying)
        };
        let costs: Vec<SubRequestCost> = self.servers.iter().zip(self.staying(u64::MAX)).map(cost).collect();
        let lines: Vec<[f64; 2]> = costs.iter().map(SubRequestCost::alone).collect();
        let of_set = |set: &TouchedSet| {
            let part = |(at, bytes): &(u16, f64)| Part {
                server: self.servers[usize::from(*at)],
                device_s: costs[usize::from(*at)].device.mean_s(*bytes),
                link_s: costs[usize::from(*at)].link.mean_s(*bytes),
            };
            Fork { share: set.share, parts: set.parts.iter().map(part).collect() }
        };
        // What nobody waits for is load, and has no time of its own.
        let is_awaited = profile.is_awaited(class.kind);
        let forks = self.sets.iter().filter(|_| is_awaited).map(of_set).collect();
        let unloaded_s = if is_awaited { self.longest_s(&lines) } else { 0.0 };
        let touched = self.servers.iter().zip(&costs).zip(&self.moments).filter(|(_, moments)| moments.visits > 0.0);
        let servers = touched.map(|((server, cost), moments)| {
            let mut demand = ServerDemand {
                server: *server,
                visits: moments.visits,
                device: cost.device.summed(moments),
                link: cost.link.summed(moments),
                flushes: moments.visits * cost.flushes,
            };
            demand.finish();
            demand
        });
        RequestDemand { servers: servers.collect(), unloaded_s, forks }
    }
}

impl ServerDemand {
    pub(super) fn none(server: usize) -> Self {
        Self { server, visits: 0.0, device: Work::default(), link: Work::default(), flushes: 0.0 }
    }

    /// Adds `visits` sub-requests like those of `one`; works and flushes are sums until [`Self::finish`].
    pub(super) fn add(&mut self, visits: f64, one: &ServerDemand) {
        self.visits += visits;
        self.flushes += visits * one.flushes;
        for (sum, work) in [(&mut self.device, one.device), (&mut self.link, one.link)] {
            sum.mean_s += visits * work.mean_s;
            sum.mean_square_s2 += visits * work.mean_square_s2;
        }
    }

    /// Adds what are sums already, each with a weight.
    pub(super) fn add_sums(&mut self, weight: f64, sums: &ServerDemand) {
        self.visits += weight * sums.visits;
        self.flushes += weight * sums.flushes;
        for (own, other) in [(&mut self.device, sums.device), (&mut self.link, sums.link)] {
            own.mean_s += weight * other.mean_s;
            own.mean_square_s2 += weight * other.mean_square_s2;
        }
    }

    /// From sums to means.
    pub(super) fn finish(&mut self) {
        for work in [&mut self.device, &mut self.link] {
            work.mean_s /= self.visits;
            work.mean_square_s2 /= self.visits;
        }
        self.flushes /= self.visits;
    }
}

/// The lines of one server for requests of one kind and order.
#[derive(Clone, Copy)]
pub(super) struct SubRequestCost {
    pub(super) device: LineMoments,
    pub(super) link: LineMoments,
    /// [`ServerDemand::flushes`].
    pub(super) flushes: f64,
}

/// Mean and mean square of a mix of lines as polynomials of the bytes.
#[derive(Clone, Copy, Default)]
pub(super) struct LineMoments {
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

    /// Of processes that stay and are served in turn: as if a visit was served at a shared pace, where queues are those of exponential service whatever its length is.
    fn take_turns(&mut self) {
        self.square.iter_mut().for_each(|square| *square *= 2.0);
    }

    fn mixed(&self, other: &Self, share: f64) -> Self {
        let mix = |own: f64, other: f64| own + share * (other - own);
        Self {
            mean: std::array::from_fn(|at| mix(self.mean[at], other.mean[at])),
            square: std::array::from_fn(|at| mix(self.square[at], other.square[at])),
        }
    }

    fn mean_s(&self, bytes: f64) -> f64 {
        self.mean[0] + bytes * self.mean[1]
    }

    /// Sums over sub-requests.
    pub(super) fn summed(&self, moments: &Moments) -> Work {
        let Moments { visits, bytes, square_bytes } = *moments;
        Work {
            mean_s: visits * self.mean[0] + bytes * self.mean[1],
            mean_square_s2: visits * self.square[0] + bytes * self.square[1] + square_bytes * self.square[2],
        }
    }
}

impl SubRequestCost {
    /// Of processes that come from other servers, and of those that stay.
    pub(super) fn both(
        profile: &Profile,
        server: usize,
        kind: RequestKind,
        order: Order,
        streams: Streaming,
    ) -> [Self; 2] {
        let sorted = profile.sorted_share(kind, order);
        let of = |continuing| Self::of(profile, server, kind, sorted.unwrap_or(continuing));
        let [coming, mut staying] = [streams.continuing(order), streams.staying(order)].map(of);
        if order == Order::Sequential {
            staying.device.take_turns();
            staying.link.take_turns();
        }
        [coming, staying]
    }

    /// `continuing`: share of the sub-requests that pay the sequential startup.
    fn of(profile: &Profile, server: usize, kind: RequestKind, continuing: f64) -> Self {
        let (mut device, mut link) = (LineMoments::default(), LineMoments::default());
        for (order, share) in [(Order::Sequential, continuing), (Order::Random, 1.0 - continuing)] {
            let line = profile.servers[server].line(kind, order);
            device.add(share, line.alpha_s, line.beta_s_per_byte);
        }
        link.add(1.0, profile.network.e_s, profile.network.t_s_per_byte);
        Self { device, link, flushes: profile.servers[server].flush_wait_of(kind) }
    }

    /// With a share of the other's sub-requests in the place of its own.
    pub(super) fn mixed(&self, other: &Self, share: f64) -> Self {
        let (device, link) = (self.device.mixed(&other.device, share), self.link.mixed(&other.link, share));
        Self { device, link, flushes: self.flushes }
    }

    /// Seconds without waiting: startup, and per byte.
    pub(super) fn alone(&self) -> [f64; 2] {
        [self.device.mean[0] + self.link.mean[0], self.device.mean[1] + self.link.mean[1]]
    }
}
