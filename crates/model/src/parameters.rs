//! The symbols of the papers (H2DP table 1), drawn from a profile, and the quantities that all models share.

use crate::{Profile, ServerProfile};
use serde::{Deserialize, Serialize};
use stripewise_layout::{Order, RequestKind, ServerClass};

/// How many processes do I/O at once. The papers multiply the cost of a request by it, because the servers serve one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Concurrency {
    /// p: client processes, at least 1.
    pub processes: u32,
    /// c: the most of them on one client node, at least 1.
    pub processes_per_node: u32,
}

impl Concurrency {
    /// p and c as numbers for the equations.
    #[must_use]
    pub fn factors(self) -> (f64, f64) {
        (f64::from(self.processes.max(1)), f64::from(self.processes_per_node.max(1)))
    }
}

/// `<h, s>`: bytes on each HServer and on each SServer in one cycle. A class with stripe 0 takes no part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct StripePair {
    /// h: stripe size on each HServer, 0 when regions use none.
    pub h_bytes: u64,
    /// s: stripe size on each SServer, 0 when regions use none.
    pub s_bytes: u64,
}

impl StripePair {
    /// `<h, s>`, in bytes.
    #[must_use]
    pub const fn new(h_bytes: u64, s_bytes: u64) -> Self {
        Self { h_bytes, s_bytes }
    }

    /// m h + n s.
    #[must_use]
    pub fn cycle_bytes(self, hservers: u32, sservers: u32) -> u64 {
        u64::from(hservers) * self.h_bytes + u64::from(sservers) * self.s_bytes
    }
}

/// alpha and beta of one server class for one kind and order of requests.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Coefficients {
    /// Startup time in seconds.
    pub alpha_s: f64,
    /// Transfer time in seconds per byte.
    pub beta_s_per_byte: f64,
}

impl Coefficients {
    /// Seconds for one request of `bytes` on one server.
    #[must_use]
    pub fn seconds(self, bytes: f64) -> f64 {
        self.alpha_s + bytes * self.beta_s_per_byte
    }
}

/// H2DP table 1 for one cluster.
///
/// The papers know one alpha and one beta for all servers of a class. Where servers of a class differ, their mean is taken: the
/// stripes of a class are equal, so the mean keeps the class's total service time, which decides between the classes. What the
/// slowest server then costs is seen by [`crate::striped`], which uses each server's own line.
#[derive(Clone, PartialEq, Debug)]
pub struct ClassParameters {
    /// m.
    pub hservers: u32,
    /// n.
    pub sservers: u32,
    /// e in seconds.
    pub e_s: f64,
    /// t in seconds per byte.
    pub t_s_per_byte: f64,
    hdd: KindLines,
    ssd: KindLines,
}

/// How many servers `takes_part` picks, and the means of their lines; zero lines without any.
fn mean_of(profile: &Profile, takes_part: impl Fn(usize, &ServerProfile) -> bool) -> (u32, KindLines) {
    let mut sums = [Coefficients::default(); LINES];
    let mut count = 0u32;
    for (_, server) in profile.servers.iter().enumerate().filter(|(number, server)| takes_part(*number, server)) {
        count += 1;
        for kind in RequestKind::ALL {
            for order in [Order::Sequential, Order::Random] {
                let (line, sum) = (server.line(kind, order), &mut sums[slot(kind, order)]);
                sum.alpha_s += line.alpha_s;
                sum.beta_s_per_byte += line.beta_s_per_byte;
            }
        }
    }
    for sum in &mut sums {
        sum.alpha_s /= f64::from(count.max(1));
        sum.beta_s_per_byte /= f64::from(count.max(1));
    }
    (count, sums)
}

/// Lines of a kind of server, by [`slot`].
type KindLines = [Coefficients; LINES];

const LINES: usize = 2 * RequestKind::ALL.len();

fn slot(kind: RequestKind, order: Order) -> usize {
    2 * kind.index() + usize::from(order == Order::Random)
}

impl ClassParameters {
    /// Of all servers of the profile.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        Self::of_servers(profile, |_| true)
    }

    /// As [`Self::of`], of those servers alone (by number in the profile) for which `takes_part` is true.
    #[must_use]
    pub fn of_servers(profile: &Profile, takes_part: impl Fn(usize) -> bool) -> Self {
        let of_class = |class| mean_of(profile, |number, server| server.class == class && takes_part(number));
        let ((hservers, hdd), (sservers, ssd)) = (of_class(ServerClass::Hdd), of_class(ServerClass::Ssd));
        Self { hservers, sservers, e_s: profile.network.e_s, t_s_per_byte: profile.network.t_s_per_byte, hdd, ssd }
    }

    /// alpha and beta of a class; zero for a class without servers.
    #[must_use]
    pub fn of_class(&self, class: ServerClass, kind: impl Into<RequestKind>, order: Order) -> Coefficients {
        let slot = slot(kind.into(), order);
        match class {
            ServerClass::Hdd => self.hdd[slot],
            ServerClass::Ssd => self.ssd[slot],
        }
    }
}

/// The symbols of Cost-intelligent table 1, which knows one kind of server: n servers with one alpha and beta, e and v of the network.
///
/// Where servers differ, their mean is taken, as in [`ClassParameters`].
#[derive(Clone, PartialEq, Debug)]
pub struct UniformParameters {
    /// n.
    pub servers: u32,
    /// e in seconds.
    pub e_s: f64,
    /// v in seconds per byte; t of the other papers.
    pub v_s_per_byte: f64,
    lines: KindLines,
}

impl UniformParameters {
    /// Of those servers (by number in the profile) for which `takes_part` is true.
    #[must_use]
    pub fn of_servers(profile: &Profile, takes_part: impl Fn(usize) -> bool) -> Self {
        let (servers, lines) = mean_of(profile, |number, _| takes_part(number));
        Self { servers, e_s: profile.network.e_s, v_s_per_byte: profile.network.t_s_per_byte, lines }
    }

    /// alpha and beta.
    #[must_use]
    pub fn of_class(&self, kind: impl Into<RequestKind>, order: Order) -> Coefficients {
        self.lines[slot(kind.into(), order)]
    }
}

/// The cost of one request in the papers' four parts, in seconds; `storage_s` is T_S + T_T.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct RequestCost {
    /// T_E: connections.
    pub establish_s: f64,
    /// T_X: network transfer.
    pub transfer_s: f64,
    /// T_S + T_T: startup and transfer on the slowest server.
    pub storage_s: f64,
}

impl RequestCost {
    /// T of PADP equation 2: the sum of the parts, in seconds.
    #[must_use]
    pub fn total_s(self) -> f64 {
        self.establish_s + self.transfer_s + self.storage_s
    }

    /// As [`Self::total_s`], rounded to whole picoseconds.
    #[must_use]
    pub fn total(self) -> Picoseconds {
        Picoseconds::from_seconds(self.total_s())
    }
}

/// A cost in whole picoseconds. Costs that are summed and compared are integers, so that neither grouping nor the order of the
/// summation nor the number of threads can change a plan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Picoseconds(pub u128);

impl Picoseconds {
    /// Rounds to the nearest; negative values are 0.
    #[must_use]
    pub fn from_seconds(seconds: f64) -> Self {
        Self((seconds * 1e12).round() as u128)
    }

    /// As [`Self::from_seconds`] for costs below half a year, which fit 64 bits; larger ones are the largest number. No call of a library's
    /// rounding: this stands in the planner's innermost loop.
    #[must_use]
    #[inline]
    pub fn narrow_from_seconds(seconds: f64) -> u64 {
        let ps = seconds * 1e12;
        let whole = ps as u64;
        // Beyond 2^53 there are no fractions, and below the difference is exact.
        whole.saturating_add(u64::from(ps - whole as f64 >= 0.5))
    }

    /// As seconds, rounded to the nearest number of 53 bits.
    #[must_use]
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

/// The most bytes of a request that one server can get, over all offsets of the request within the cycle: whole cycles give it
/// `stripe` each, the rest at most one stripe. This is the "stripe clipped to the request" of the cost tables; where the request is
/// exactly one cycle it is the stripe, as the papers print.
#[must_use]
pub fn most_bytes_on_one_server(stripe_bytes: u64, cycle_bytes: u64, request_bytes: u64) -> u64 {
    request_bytes / cycle_bytes * stripe_bytes + stripe_bytes.min(request_bytes % cycle_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use stripewise_layout::{Layout, RegionOffset, ServerId};

    /// n equal servers; random accesses start ten times as slowly.
    pub(crate) fn uniform(servers: u32) -> UniformParameters {
        uniform_with(servers, 1e-4, 8.5e-9, 4e-4, 1e-8)
    }

    /// Two classes of servers; sequential accesses start four times as fast, SSDs ten times as fast.
    pub(crate) fn classes(m: u32, n: u32, e_s: f64, t_s_per_byte: f64, alpha_s: f64, beta: f64) -> ClassParameters {
        let line = |alpha_s, beta_s_per_byte| Coefficients { alpha_s, beta_s_per_byte };
        let of = |alpha: f64, beta: f64| {
            let write = [line(alpha / 3.0, beta), line(alpha, beta)];
            let read = [line(alpha / 4.0, beta), line(alpha, beta)];
            [read, write, write, write].concat().try_into().expect("a line for each kind and order")
        };
        let (hdd, ssd) = (of(alpha_s, beta), of(alpha_s / 10.0, beta / 3.0));
        ClassParameters { hservers: m, sservers: n, e_s, t_s_per_byte, hdd, ssd }
    }

    pub(crate) fn uniform_with(
        servers: u32,
        e_s: f64,
        v_s_per_byte: f64,
        alpha_s: f64,
        beta: f64,
    ) -> UniformParameters {
        let line = |alpha_s| Coefficients { alpha_s, beta_s_per_byte: beta };
        UniformParameters {
            servers,
            e_s,
            v_s_per_byte,
            lines: std::array::from_fn(|slot| line(if slot % 2 == 0 { alpha_s } else { 10.0 * alpha_s })),
        }
    }

    proptest! {
        #[test]
        fn narrow_picoseconds_are_the_wide_ones(seconds in prop_oneof![0.0..1e-6f64, 0.0..1.0f64, 0.0..1e7f64], ps in 0u64..1 << 54) {
            for seconds in [seconds, ps as f64 / 1e12, (ps as f64 + 0.5) / 1e12] {
                prop_assert_eq!(u128::from(Picoseconds::narrow_from_seconds(seconds)), Picoseconds::from_seconds(seconds).0);
            }
        }

        #[test]
        fn the_most_bytes_on_one_server_is_the_maximum_over_all_offsets(
            sizes in proptest::collection::vec(1u32..30, 1..6), request in 1u64..200,
        ) {
            let layout = Layout::new(sizes.iter().enumerate().map(|(i, size)| (ServerId(i as u16), *size))).unwrap();
            let view = layout.view();
            for (turn, size) in sizes.iter().enumerate() {
                let most = (0..view.cycle_bytes())
                    .flat_map(|start| view.split(RegionOffset(start), request).filter(|sub| sub.turn == turn))
                    .map(|sub| sub.length)
                    .max();
                prop_assert_eq!(most, Some(most_bytes_on_one_server(u64::from(*size), view.cycle_bytes(), request)));
            }
        }
    }
}
