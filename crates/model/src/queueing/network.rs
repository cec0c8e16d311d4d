//! A mix of requests on the servers: demands, loads and the asymptotic bound.

use super::demand::{RequestDemand, ServerDemand};
use std::collections::BTreeMap;

/// The two stations of a server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Station {
    /// What stores the bytes; all its stages count as one station.
    Device,
    /// The server's own link.
    Link,
}

impl Station {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Station::Device => "device",
            Station::Link => "link",
        }
    }
}

/// The station that the mix keeps busy longest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Bottleneck {
    /// Position in the profile's servers.
    pub server: usize,
    /// Which of the server's two.
    pub station: Station,
    /// Seconds of its time per request of the mix: D_max.
    pub demand_s: f64,
}

/// Requests that fork over one set of servers, added up.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ForkSum {
    pub(super) requests: f64,
    /// By ascending server, as the set: seconds without waiting, summed over the requests.
    pub(super) alone_s: Vec<f64>,
}

impl ForkSum {
    pub(super) fn add(&mut self, weight: f64, other: &ForkSum) {
        self.requests += weight * other.requests;
        self.alone_s.iter_mut().zip(&other.alone_s).for_each(|(own, other)| *own += weight * other);
    }
}

/// A closed network: every process of a run has one request in flight or thinks; requests are drawn from a mix.
#[derive(Clone, PartialEq, Debug)]
pub struct Network {
    pub(super) requests: f64,
    pub(super) unloaded_s: f64,
    /// By server; works are sums over visits.
    pub(super) sums: Vec<ServerDemand>,
    /// Requests of more than one part by the servers that they touch.
    pub(super) forks: BTreeMap<Vec<u32>, ForkSum>,
}

impl Network {
    /// Of `servers` servers and no requests yet.
    #[must_use]
    pub fn new(servers: usize) -> Self {
        Self {
            requests: 0.0,
            unloaded_s: 0.0,
            sums: (0..servers).map(ServerDemand::none).collect(),
            forks: BTreeMap::new(),
        }
    }

    /// Adds `requests` requests (any weight; of 0 or less, nothing) that each ask for `demand`.
    pub fn add(&mut self, demand: &RequestDemand, requests: f64) {
        if requests <= 0.0 {
            return;
        }
        self.requests += requests;
        self.unloaded_s += requests * demand.unloaded_s;
        for one in &demand.servers {
            self.sums[one.server].add(requests * one.visits, one);
        }
        let mut servers: Vec<u32> = Vec::new();
        for fork in demand.forks.iter().filter(|fork| fork.parts.len() > 1) {
            servers.clear();
            servers.extend(fork.parts.iter().map(|part| part.server as u32));
            if !self.forks.contains_key(servers.as_slice()) {
                let none = ForkSum { requests: 0.0, alone_s: vec![0.0; servers.len()] };
                self.forks.insert(servers.clone(), none);
            }
            let sum = self.forks.get_mut(servers.as_slice()).expect("just put there");
            sum.requests += requests * fork.share;
            for (sum, part) in sum.alone_s.iter_mut().zip(&fork.parts) {
                *sum += requests * fork.share * part.alone_s();
            }
        }
    }

    /// The weight of all requests.
    #[must_use]
    pub fn requests(&self) -> f64 {
        self.requests
    }

    /// Seconds of device time of one server for all requests.
    #[must_use]
    pub fn device_load_s(&self, server: usize) -> f64 {
        self.sums[server].device.mean_s
    }

    /// Seconds of link time of one server for all requests.
    #[must_use]
    pub fn link_load_s(&self, server: usize) -> f64 {
        self.sums[server].link.mean_s
    }

    /// Mean demand per request of the mix on every touched server, ascending.
    pub fn demands(&self) -> impl Iterator<Item = ServerDemand> {
        self.sums.iter().filter(|sum| sum.visits > 0.0).map(|sum| {
            let mut demand = *sum;
            demand.finish();
            demand.visits /= self.requests;
            demand
        })
    }

    /// T_0: mean seconds of one request alone.
    #[must_use]
    pub fn unloaded_s(&self) -> f64 {
        if self.requests > 0.0 { self.unloaded_s / self.requests } else { 0.0 }
    }

    /// The station with the largest demand; of equal ones the first. `None` without requests.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let stations = self.demands().flat_map(|demand| {
            let of = |station, demand_s| Bottleneck { server: demand.server, station, demand_s };
            [of(Station::Device, demand.device_s()), of(Station::Link, demand.link_s())]
        });
        stations.reduce(|best, one| if one.demand_s > best.demand_s { one } else { best })
    }

    /// The asymptotic bound in requests per second of `processes` processes that think `think_s` after each request: min(1 / D_max,
    /// p / (T_0 + Z)). No order of service and no placement in time does better. Infinite when requests cost nothing.
    #[must_use]
    pub fn bound(&self, processes: u32, think_s: f64) -> f64 {
        let busiest_s = self.bottleneck().map_or(0.0, |found| found.demand_s);
        (1.0 / busiest_s).min(f64::from(processes.max(1)) / (self.unloaded_s() + think_s))
    }

    /// As [`Self::throughput`], where `in_turn`, 0 to 1, is the share of the requests whose processes go around the same servers in the same turn, each to one after
    /// the other.
    ///
    /// Processes that are drawn to servers at random queue at some while others are idle. In a ring where service takes the same time each round, everybody finds the next server
    /// free once the queues have formed, and the bound is reached; with exponential service the turn makes no difference (Jackson). Between the two we interpolate by the
    /// squared variation at the bottleneck.
    #[must_use]
    pub fn throughput_in_turn(&self, processes: u32, think_s: f64, in_turn: f64) -> f64 {
        let rate = self.throughput(processes, think_s);
        let of_bottleneck = |found: Bottleneck| {
            let demand = self.demands().find(|demand| demand.server == found.server)?;
            let work = if found.station == Station::Device { demand.device } else { demand.link };
            Some(work.squared_variation().min(1.0))
        };
        let Some(variation) = self.bottleneck().and_then(of_bottleneck) else { return rate };
        rate + in_turn.clamp(0.0, 1.0) * (1.0 - variation) * (self.bound(processes, think_s) - rate).max(0.0)
    }

    pub(super) fn forks(&self) -> impl Iterator<Item = (&[u32], &ForkSum)> {
        self.forks.iter().map(|(servers, sum)| (servers.as_slice(), sum))
    }
}
