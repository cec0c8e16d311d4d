//! What a policy returns: layouts of regions, replicas, and how far they are from the optimum.

use serde::{Deserialize, Serialize};
use stripewise_layout::{Layout, RegionIndex};

/// The bound that a plan was made beside, in seconds of the whole run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Optimum {
    /// No placement by the shapes that were weighed takes less, whatever the order of requests: asymptotic, so not reached by few processes.
    pub bound_s: f64,
    /// What the plan is predicted to take, in a sampled closed loop of all processes.
    pub value_s: f64,
    /// value / bound - 1.
    pub gap: f64,
    /// The search ended at the time limit, before it found nothing better.
    pub time_limited: bool,
    /// One for each server, in cluster order.
    pub prices: Vec<ServerPrices>,
}

/// What the bound says of one server.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ServerPrices {
    /// Seconds by which one GiB more room on this server would shorten the run, as long as every server of its kind gets as much.
    pub room_s_per_gib: f64,
    /// Seconds by which the run is longer for each second more of work on its device, 0 to 1.
    pub device: f64,
    /// As `device`, of its link.
    pub link: f64,
}

/// One more copy of consecutive regions beside that of the placement (Cost-intelligent section 5). A region may have several.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Replica {
    /// The first of the regions.
    pub first: RegionIndex,
    /// How many regions, at least 1, all of them planned.
    pub regions: u32,
    /// Layout of the further copy.
    pub layout: Layout,
}

/// The further copies of one file's regions.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Replicas {
    pub(crate) list: Vec<Replica>,
    /// Seconds that the model expects them to save in a run.
    pub(crate) saved_s: f64,
}

/// Layouts of one file's regions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileChoice {
    /// The distinct layouts.
    pub(crate) layouts: Vec<Layout>,
    /// For every window the layout (position in `layouts`) of every region. A policy that never moves data gives one window.
    pub(crate) windows: Vec<Vec<u32>>,
    /// Position of the layout of regions that do not fit their own: HServers only.
    pub(crate) fallback: u32,
}
