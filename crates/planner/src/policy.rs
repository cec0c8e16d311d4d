//! The policies. Each turns access pattern, profile and room into one layout per region and window; nothing else.
//!
//! A policy is a module with a [`Policy`] and a row of the table below; names, help texts, plan files and comparisons follow from the row. The
//! modules' texts have the same sections: paper, assumptions, algorithm, complexity; then the code.

mod about;
mod choice;
mod cost;
mod cost_table;
mod def;
#[cfg(test)]
mod dummy;
mod fill;
#[cfg(test)]
pub(crate) mod fixtures;
mod h2dp;
mod opt;
pub mod padp;
mod process_costs;
mod process_oriented;
mod psa;
mod random;
mod replicas;
mod segment;
mod selection;
mod tiers;

pub use about::{About, Source};
pub(crate) use choice::{FileChoice, Replicas};
pub use choice::{Optimum, Replica, ServerPrices};
pub use opt::online;

use crate::capacity::Capacity;
use crate::request::PlanRequest;
pub use crate::request::region_bytes;
use crate::servers::ServerGroups;
use serde::{Deserialize, Serialize};
use std::fmt;
use stripewise_layout::RegionGeometry;
use stripewise_model::{ClassParameters, Concurrency, StripePair};
use stripewise_trace::{AccessClass, FileAccess};

/// Makes [`PolicyName`] of the table of policies.
macro_rules! policies {
    ($($(#[$attribute:meta])* $variant:ident = $name:literal, $summary:literal, $policy:expr;)*) => {
        /// A policy by the name that users give and plans carry.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
        pub enum PolicyName {
            $($(#[$attribute])* #[doc = $summary] #[serde(rename = $name)] $variant,)*
        }

        impl PolicyName {
            /// In the order of the table.
            pub const ALL: [PolicyName; [$($(#[$attribute])* $name),*].len()] =
                [$($(#[$attribute])* PolicyName::$variant),*];

            /// As the command, plan files and reports spell it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(#[$attribute])* PolicyName::$variant => $name,)*
                }
            }

            /// One line for help texts and tables.
            #[must_use]
            pub fn summary(self) -> &'static str {
                match self {
                    $($(#[$attribute])* PolicyName::$variant => $summary,)*
                }
            }

            fn policy(self) -> &'static dyn Policy {
                match self {
                    $($(#[$attribute])* PolicyName::$variant => &$policy,)*
                }
            }
        }
    };
}

// In the order of their publication, the default first: name, one line of help, implementation.
policies! {
    Def = "def", "64KiB stripes over all servers until the SSDs are full", def::Def;
    Random = "random", "drawn stripe sizes that cover a request", random::Random;
    OneDh = "1-dh", "each process's data over all servers", process_oriented::OneDh;
    OneDv = "1-dv", "each process's data on one server", process_oriented::OneDv;
    TwoD = "2-d", "each process's data over a group of servers", process_oriented::TwoD;
    Cost = "cost", "the cheapest of 1-dh, 1-dv and 2-d for each file, and replicas in the others", cost::Cost;
    Segment = "segment", "stripe sizes per segment of a file, evenly loaded", segment::Segment;
    Padp = "padp", "stripe sizes by server performance (linear programs), regions chosen at random", padp::Padp;
    Psa = "psa", "small stripes on SSDs so that more regions fit, regions chosen at random", psa::Psa;
    H2dp = "h2dp", "stripe sizes per region and window, the regions that gain most on all servers", h2dp::H2dp;
    Opt = "opt", "all regions' layouts together by a linear program and sampled closed loops", opt::Opt;
    #[cfg(test)]
    Dummy = "dummy", "all data on one server", dummy::Dummy;
}

impl PolicyName {
    /// Every plan is measured by what this policy would do.
    pub const BASELINE: PolicyName = PolicyName::Def;
    /// Plans are made by this policy unless another one is named.
    pub const DEFAULT: PolicyName = PolicyName::Opt;
    /// Plans are made by this policy while programs run, unless another one is named.
    pub const ONLINE: PolicyName = PolicyName::Opt;

    /// Its cells in the table of `docs/policies.md`.
    #[must_use]
    pub fn about(self) -> About {
        self.policy().about()
    }

    /// Whether its plans state a bound that no placement by the layouts that it weighs exceeds.
    #[must_use]
    pub fn states_bound(self) -> bool {
        self.policy().states_bound()
    }

    /// Whether its plans have replicas where there is room for them.
    #[must_use]
    pub fn plans_replicas(self) -> bool {
        self.policy().plans_replicas()
    }

    /// Its position in [`Self::ALL`].
    #[must_use]
    pub fn position(self) -> usize {
        Self::ALL.iter().position(|policy| *policy == self).expect("it is one of all")
    }

    /// Whether its plans are read segment by segment.
    pub(crate) fn makes_segments(self) -> bool {
        self.policy().makes_segments()
    }
}

/// The table of all policies for `docs/policies.md`.
#[must_use]
pub fn reference() -> String {
    let rows = PolicyName::ALL.iter().map(|policy| policy.about().row(policy.name()));
    std::iter::once(about::HEAD.to_owned()).chain(rows).collect()
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no policy's.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{name}` is not a policy; use one of {}", PolicyName::ALL.map(PolicyName::name).join(", "))]
pub struct UnknownPolicy {
    /// The name as it was given.
    pub name: String,
}

impl std::str::FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        Self::ALL
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| UnknownPolicy { name: text.to_owned() })
    }
}

/// Chooses layouts.
trait Policy: Sync {
    /// What the table of policies says of it.
    fn about(&self) -> About;

    /// One choice per file of the task, in order.
    fn choose(&self, task: &Task<'_>) -> Vec<FileChoice>;

    /// The choices of [`Self::choose`], and how far they are from the optimum, of a policy that knows.
    fn choose_with_optimum(&self, task: &Task<'_>) -> (Vec<FileChoice>, Option<Optimum>) {
        (self.choose(task), None)
    }

    /// Further copies of regions, for every file, in all its windows; `choices` are the policy's own.
    fn replicas(&self, task: &Task<'_>, choices: &[FileChoice]) -> Vec<Replicas> {
        let _ = task;
        choices.iter().map(|_| Replicas::default()).collect()
    }

    /// Whether [`PlanOptions::replica_room`](crate::PlanOptions::replica_room) means anything to it.
    fn plans_replicas(&self) -> bool {
        false
    }

    /// Whether it weighs what moving regions costs, so that [`online`] takes all of its moves or none.
    fn weighs_moves(&self) -> bool {
        false
    }

    /// Whether a plan's text lists the segments of its files.
    fn makes_segments(&self) -> bool {
        false
    }

    /// Whether [`Self::choose_with_optimum`] returns an optimum.
    fn states_bound(&self) -> bool {
        false
    }
}

/// The request with what all policies derive from it.
#[derive(Clone)]
pub(crate) struct Task<'a> {
    pub(crate) request: &'a PlanRequest<'a>,
    pub(crate) groups: ServerGroups,
    pub(crate) parameters: ClassParameters,
    /// The most of any window.
    pub(crate) concurrency: Concurrency,
    /// p and c of every window.
    pub(crate) windows: Vec<Concurrency>,
    /// Bytes on each SServer that wider tiers ([`Task::tiers`]) have filled before this one is used.
    pub(crate) filled_bytes: u64,
    pub(crate) capacity: &'a Capacity,
    pub(crate) step_bytes: u64,
}

impl<'a> Task<'a> {
    pub(crate) fn new(request: &'a PlanRequest<'a>, capacity: &'a Capacity) -> Self {
        let groups = ServerGroups::with_capacity(request.cluster, capacity);
        let windows = request.files.iter().map(|file| file.windows.len()).max().unwrap_or(0);
        Self {
            request,
            parameters: ClassParameters::of_servers(request.profile, |number| groups.has(number)),
            groups,
            concurrency: request.concurrency(),
            windows: (0..windows).map(|window| request.window_concurrency(window)).collect(),
            filled_bytes: 0,
            capacity,
            step_bytes: request.options.step.0,
        }
    }

    /// The pair with stripes below [`crate::PlanOptions::min_stripe`] raised to it. A class without a stripe keeps none.
    pub(crate) fn raised(&self, pair: StripePair) -> StripePair {
        let least = self.request.options.min_stripe.map_or(0, |least| least.0);
        let raised = |bytes: u64| if bytes == 0 { 0 } else { bytes.max(least) };
        StripePair::new(raised(pair.h_bytes), raised(pair.s_bytes))
    }

    /// The HServers-only stripe of H2DP table 3 for requests of this size, as a pair, raised.
    pub(crate) fn pure_pair(&self, request_bytes: u64) -> StripePair {
        self.raised(self.groups.pure_pair(self.groups.pure_stripe_bytes(request_bytes, self.step_bytes)))
    }

    pub(crate) fn choose(&self, policy: PolicyName) -> Vec<FileChoice> {
        policy.policy().choose(self)
    }

    pub(crate) fn choose_with_optimum(&self, policy: PolicyName) -> (Vec<FileChoice>, Option<Optimum>) {
        policy.policy().choose_with_optimum(self)
    }

    pub(crate) fn replicas(&self, policy: PolicyName, choices: &[FileChoice]) -> Vec<Replicas> {
        policy.policy().replicas(self, choices)
    }
}

/// Regions of a file: those of its size, and accessed ones past it.
pub(crate) fn region_count(file: &FileAccess) -> u32 {
    let by_size = RegionGeometry::new(file.region_size.0).count_for(file.size_bytes);
    let accessed = file.windows.iter().filter_map(|window| window.regions.last()).map(|last| last.region.0 + 1);
    accessed.max().unwrap_or(0).max(by_size)
}

/// The byte-weighted mean request, rounded to whole bytes, of counted classes; `None` without requests. Large requests decide, since they
/// carry the bytes.
pub(crate) fn mean_request_bytes(counts: impl Iterator<Item = (AccessClass, u64)>) -> Option<u64> {
    let (mut bytes, mut squares) = (0u128, 0u128);
    for (class, count) in counts {
        let size = class.request_bytes;
        // Without a real trace's counts ever getting there, products past 2^128 stay at the largest number.
        let (carried, square) = match count.checked_mul(size) {
            Some(carried) => (u128::from(carried), u128::from(carried) * u128::from(size)),
            None => {
                let carried = u128::from(count) * u128::from(size);
                (carried, carried.saturating_mul(u128::from(size)))
            }
        };
        bytes = bytes.saturating_add(carried);
        squares = squares.saturating_add(square);
    }
    (bytes > 0).then(|| (squares.saturating_add(bytes / 2) / bytes).max(1) as u64)
}

/// The requests of all windows and regions of a file by class.
pub(crate) fn class_totals(file: &FileAccess) -> Vec<(AccessClass, u64)> {
    let mut totals = vec![0u64; file.classes.len()];
    for (class, count) in file.windows.iter().flat_map(|window| &window.regions).flat_map(|region| &region.counts) {
        let total = &mut totals[usize::from(class.0)];
        *total = total.saturating_add(*count);
    }
    file.classes.iter().copied().zip(totals).filter(|(_, count)| *count > 0).collect()
}

/// The requests of a file by class, for each p and c that its windows have.
pub(crate) fn phases(task: &Task<'_>, file: &FileAccess) -> Vec<(Concurrency, Vec<(AccessClass, u64)>)> {
    let mut phases: Vec<(Concurrency, Vec<u64>)> = Vec::new();
    for (window, concurrency) in file.windows.iter().zip(&task.windows) {
        let known = phases.iter().position(|(of_phase, _)| of_phase == concurrency);
        let phase = known.unwrap_or_else(|| {
            phases.push((*concurrency, vec![0; file.classes.len()]));
            phases.len() - 1
        });
        for (class, count) in window.regions.iter().flat_map(|region| &region.counts) {
            let total = &mut phases[phase].1[usize::from(class.0)];
            *total = total.saturating_add(*count);
        }
    }
    let of_phase =
        |totals: Vec<u64>| file.classes.iter().copied().zip(totals).filter(|(_, count)| *count > 0).collect();
    phases.into_iter().map(|(concurrency, totals)| (concurrency, of_phase(totals))).collect()
}

/// p and c of one pattern for all phases: their means, each phase counted with the bytes that it moves.
pub(crate) fn mean_concurrency(task: &Task<'_>, phases: &[(Concurrency, Vec<(AccessClass, u64)>)]) -> Concurrency {
    let (mut bytes, mut p_bytes, mut c_bytes) = (0.0, 0.0, 0.0);
    for (concurrency, totals) in phases {
        let of_phase: f64 = totals.iter().map(|(class, count)| *count as f64 * class.request_bytes as f64).sum();
        let (p, c) = concurrency.factors();
        (bytes, p_bytes, c_bytes) = (bytes + of_phase, p_bytes + p * of_phase, c_bytes + c * of_phase);
    }
    let mean = |sum: f64, otherwise: u32| if bytes > 0.0 { (sum / bytes).round() as u32 } else { otherwise };
    Concurrency {
        processes: mean(p_bytes, task.concurrency.processes),
        processes_per_node: mean(c_bytes, task.concurrency.processes_per_node),
    }
}

/// [`mean_request_bytes`] of a whole file; one step for a file without requests.
pub(crate) fn file_request_bytes(file: &FileAccess, step_bytes: u64) -> u64 {
    mean_request_bytes(class_totals(file).into_iter()).unwrap_or(step_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_layout::{Direction, Order};

    #[test]
    fn the_mean_request_is_weighted_by_bytes_and_rounded() {
        let class = |request_bytes| AccessClass { kind: Direction::Read.into(), request_bytes, order: Order::Random };
        let mean = |counts: &[(u64, u64)]| mean_request_bytes(counts.iter().map(|(size, n)| (class(*size), *n)));
        assert_eq!(mean(&[(100, 7)]), Some(100));
        // 1 + 4 over 1 + 2; 3 + 16 over 3 + 4.
        assert_eq!((mean(&[(1, 1), (2, 1)]), mean(&[(1, 3), (4, 1)])), (Some(2), Some(3)));
        assert_eq!((mean(&[]), mean(&[(100, 0)])), (None, None));
    }
}
