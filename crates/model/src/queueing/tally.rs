//! Requests of many layouts and sizes, added up before they are a network.
//!
//! Service is linear in bytes, so of every server only the number, bytes and squared bytes of its sub-requests count, apart for each
//! kind and order: what thousands of pairs of a layout and a class ask for is added up with few operations each. [`Network::add_tally`] then gives
//! the same network as [`Network::add`] of every [`super::RequestDemand`], but for rounding.

use super::demand::{Moments, ServerDemand, SubRequestCost};
use super::network::ForkSum;
use super::{Network, Splitting, Streaming};
use crate::Profile;
use stripewise_layout::{Direction, Layout, Order, RequestKind};

/// Kinds and orders; [`kind`] numbers them.
pub const KINDS: usize = 2 * RequestKind::ALL.len();

const ORDERS: [Order; 2] = [Order::Sequential, Order::Random];

/// The number of a kind and order in the counts of [`Tally::add`].
#[must_use]
pub fn kind(kind: impl Into<RequestKind>, order: Order) -> usize {
    2 * kind.into().index() + usize::from(order == Order::Random)
}

/// Requests that form one network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Reads.
    Reads,
    /// Writes that their processes wait for.
    AwaitedWrites,
    /// Writes that are written back later: load without a time of their own.
    WrittenBack,
}

impl Side {
    /// Every side.
    pub const ALL: [Self; SIDES] = [Self::Reads, Self::AwaitedWrites, Self::WrittenBack];

    /// Which way its bytes go.
    #[must_use]
    pub fn direction(self) -> Direction {
        match self {
            Self::Reads => Direction::Read,
            Self::AwaitedWrites | Self::WrittenBack => Direction::Write,
        }
    }

    fn of(profile: &Profile, kind: RequestKind) -> Self {
        match (kind, profile.is_awaited(kind)) {
            (RequestKind::Read, _) => Self::Reads,
            (RequestKind::Write(_), true) => Self::AwaitedWrites,
            (RequestKind::Write(_), false) => Self::WrittenBack,
        }
    }

    /// Whether processes wait for its requests.
    fn is_awaited(self) -> bool {
        self != Self::WrittenBack
    }
}

const SIDES: usize = 3;

/// Service seconds of all requests of one direction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ServiceSeconds {
    /// On devices, each times the spread of its line.
    pub device_spread_s: f64,
    /// On devices and links.
    pub all_s: f64,
}

/// Requests that fork over one set of servers, reads and writes.
struct Forks {
    /// Number of the list of servers, first turn, and how many.
    run: (usize, usize, usize),
    /// Ascending.
    servers: Vec<u32>,
    sums: [ForkSum; SIDES],
}

/// What requests ask of the servers of one profile.
pub struct Tally<'a> {
    profile: &'a Profile,
    region_bytes: u64,
    run_bytes: u64,
    /// By server and kind: of processes that come from other servers, and of those that stay.
    costs: Vec<[[SubRequestCost; 2]; KINDS]>,
    moments: Vec<[[Moments; 2]; KINDS]>,
    /// By [`kind`].
    sides: [Side; KINDS],
    requests: [f64; SIDES],
    unloaded_s: [f64; SIDES],
    /// Servers in the order of their turns: sets of servers are runs of these.
    lists: Vec<TurnList>,
    forks: Vec<Forks>,
}

/// The servers of layouts in the order of their turns.
struct TurnList {
    servers: Vec<u16>,
    /// By first turn, of the runs that are known: how many turns, and the number among the forks.
    runs: Vec<Vec<(usize, usize)>>,
}

impl<'a> Tally<'a> {
    /// Of no requests yet, to regions of `region_bytes`; `streams` says of every server of the profile what its disk sees of order.
    #[must_use]
    pub fn new(profile: &'a Profile, streams: &[Streaming], region_bytes: u64) -> Self {
        let of_server = |(server, streams): (usize, &Streaming)| {
            std::array::from_fn(|kind| {
                SubRequestCost::both(profile, server, RequestKind::ALL[kind / 2], ORDERS[kind % 2], *streams)
            })
        };
        Self {
            profile,
            region_bytes,
            run_bytes: u64::MAX,
            costs: streams.iter().enumerate().map(of_server).collect(),
            moments: vec![[[Moments::default(); 2]; KINDS]; streams.len()],
            sides: std::array::from_fn(|kind| Side::of(profile, RequestKind::ALL[kind / 2])),
            requests: [0.0; SIDES],
            unloaded_s: [0.0; SIDES],
            lists: Vec::new(),
            forks: Vec::new(),
        }
    }

    /// No more than `run_bytes` lie one behind the other on a server: what layouts have as one stripe lies in several places of their cycle.
    #[must_use]
    pub fn in_runs_of(self, run_bytes: u64) -> Self {
        Self { run_bytes: run_bytes.max(1), ..self }
    }

    /// How many servers the profile has.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.moments.len()
    }

    /// Adds requests of `request_bytes` on `layout`, so many of each [`kind`].
    pub fn add(&mut self, layout: &Layout, request_bytes: u64, counts: [f64; KINDS]) {
        let splitting = Splitting::of(layout, request_bytes, self.region_bytes);
        let staying: Vec<f64> = splitting.staying(self.run_bytes).collect();
        for ((server, moments), staying) in splitting.servers.iter().zip(&splitting.moments).zip(&staying) {
            for ([coming, stay], count) in self.moments[*server].iter_mut().zip(counts) {
                coming.add(count * (1.0 - staying), moments);
                stay.add(count * staying, moments);
            }
        }
        let list = self.list(layout.stripes().iter().map(|stripe| stripe.server.0));
        let (mut summed, mut lines): (Vec<[f64; 2]>, Vec<[f64; 2]>) = (Vec::new(), Vec::new());
        for one in Side::ALL {
            let side = one as usize;
            let of_side = |kind: &usize| self.sides[*kind] == one && counts[*kind] > 0.0;
            let requests: f64 = (0..KINDS).filter(of_side).map(|kind| counts[kind]).sum();
            self.requests[side] += requests;
            if requests <= 0.0 || !one.is_awaited() {
                continue;
            }
            // Seconds of all requests of the side together.
            summed.clear();
            summed.resize(splitting.servers.len(), [0.0; 2]);
            for kind in (0..KINDS).filter(|kind| self.sides[*kind] == one && counts[*kind] > 0.0) {
                lines.clear();
                lines.extend(splitting.servers.iter().zip(&staying).map(|(server, staying)| {
                    let [coming, stay] = &self.costs[*server][kind];
                    coming.mixed(stay, *staying).alone()
                }));
                self.unloaded_s[side] += counts[kind] * splitting.longest_s(&lines);
                for (sum, [startup_s, s_per_byte]) in summed.iter_mut().zip(&lines) {
                    *sum = [sum[0] + counts[kind] * startup_s, sum[1] + counts[kind] * s_per_byte];
                }
            }
            for set in splitting.sets.iter().filter(|set| set.parts.len() > 1) {
                let number = self.fork((list, set.first_turn, set.parts.len()), || {
                    set.parts.iter().map(|(at, _)| splitting.servers[usize::from(*at)] as u32).collect()
                });
                let sum = &mut self.forks[number].sums[side];
                sum.requests += requests * set.share;
                for (sum, (at, bytes)) in sum.alone_s.iter_mut().zip(&set.parts) {
                    let [startup_s, s_per_byte] = summed[usize::from(*at)];
                    *sum += set.share * (startup_s + bytes * s_per_byte);
                }
            }
        }
    }

    fn list(&mut self, servers: impl Iterator<Item = u16> + Clone) -> usize {
        let known = self.lists.iter().position(|list| list.servers.iter().copied().eq(servers.clone()));
        known.unwrap_or_else(|| {
            let servers: Vec<u16> = servers.collect();
            self.lists.push(TurnList { runs: vec![Vec::new(); servers.len()], servers });
            self.lists.len() - 1
        })
    }

    fn fork(&mut self, run: (usize, usize, usize), servers: impl FnOnce() -> Vec<u32>) -> usize {
        let (list, first_turn, count) = run;
        let runs = &mut self.lists[list].runs[first_turn];
        if let Some((_, number)) = runs.iter().find(|(turns, _)| *turns == count) {
            return *number;
        }
        let sum = || ForkSum { requests: 0.0, alone_s: vec![0.0; count] };
        self.forks.push(Forks { run, servers: servers(), sums: std::array::from_fn(|_| sum()) });
        runs.push((count, self.forks.len() - 1));
        self.forks.len() - 1
    }

    /// Adds all that another tally for the same profile, streams and region size has.
    pub fn merge(&mut self, other: &Self) {
        for (own, others) in self.moments.iter_mut().zip(&other.moments) {
            for (own, other) in own.as_flattened_mut().iter_mut().zip(others.as_flattened()) {
                own.add(1.0, other);
            }
        }
        for side in 0..SIDES {
            self.requests[side] += other.requests[side];
            self.unloaded_s[side] += other.unloaded_s[side];
        }
        let lists: Vec<usize> = other.lists.iter().map(|list| self.list(list.servers.iter().copied())).collect();
        for forks in &other.forks {
            let (list, first_turn, count) = forks.run;
            let number = self.fork((lists[list], first_turn, count), || forks.servers.clone());
            for (own, other) in self.forks[number].sums.iter_mut().zip(&forks.sums) {
                own.add(1.0, other);
            }
        }
    }

    /// Service seconds of the requests of one direction, the spread by the line of the order that the trace says.
    #[must_use]
    pub fn service_s(&self, direction: Direction) -> ServiceSeconds {
        let mut sum = ServiceSeconds::default();
        for (server, (costs, moments)) in self.profile.servers.iter().zip(self.costs.iter().zip(&self.moments)) {
            for request in RequestKind::ALL.into_iter().filter(|request| request.direction() == direction) {
                for order in ORDERS {
                    let kind = kind(request, order);
                    for (cost, moments) in costs[kind].iter().zip(&moments[kind]) {
                        let device_s = cost.device.summed(moments).mean_s;
                        sum.device_spread_s += device_s * server.line(request, order).deviation();
                        sum.all_s += device_s + cost.link.summed(moments).mean_s;
                    }
                }
            }
        }
        sum
    }

    /// Adds the seconds of every server's device, by the lines of the orders that the trace says.
    pub fn add_load(&self, load_s: &mut [f64]) {
        for ((load_s, server), moments) in load_s.iter_mut().zip(&self.profile.servers).zip(&self.moments) {
            for request in RequestKind::ALL {
                for order in ORDERS {
                    let line = server.line(request, order);
                    for moments in &moments[kind(request, order)] {
                        *load_s += moments.visits * line.alpha_s + moments.bytes * line.beta_s_per_byte;
                    }
                }
            }
        }
    }
}

impl Network {
    /// Adds the requests of one side, each with this weight (0 or less: nothing).
    pub fn add_tally(&mut self, tally: &Tally<'_>, of: Side, weight: f64) {
        let side = of as usize;
        if weight <= 0.0 || tally.requests[side] <= 0.0 {
            return;
        }
        self.requests += weight * tally.requests[side];
        self.unloaded_s += weight * tally.unloaded_s[side];
        for (sum, (costs, moments)) in self.sums.iter_mut().zip(tally.costs.iter().zip(&tally.moments)) {
            for kind in (0..KINDS).filter(|kind| tally.sides[*kind] == of) {
                for (cost, moments) in costs[kind].iter().zip(&moments[kind]) {
                    let (device, link) = (cost.device.summed(moments), cost.link.summed(moments));
                    let (visits, flushes) = (moments.visits, moments.visits * cost.flushes);
                    sum.add_sums(weight, &ServerDemand { server: sum.server, visits, device, link, flushes });
                }
            }
        }
        for forks in tally.forks.iter().filter(|forks| forks.sums[side].requests > 0.0) {
            let none = || ForkSum { requests: 0.0, alone_s: vec![0.0; forks.servers.len()] };
            self.forks.entry(forks.servers.clone()).or_insert_with(none).add(weight, &forks.sums[side]);
        }
    }
}
