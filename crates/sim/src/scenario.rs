//! What is simulated: servers and client links, the program, where its files lie, and the options of the run.

use serde::Serialize;
use stripewise_device::{DeviceModel, DeviceSpec, LinkSpec, PageCacheSpec};
use stripewise_layout::{ByteCount, Placement, ServerId};
use stripewise_trace::Program;

/// One storage server.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ServerModel {
    pub name: String,
    pub device: DeviceSpec,
    /// Its own link; `None` where no network lies between.
    pub link: Option<LinkSpec>,
}

/// The machines.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct System {
    /// In the order of the cluster's servers, as layouts number them.
    pub servers: Vec<ServerModel>,
    /// The link of every client node, shared by its processes; `None` when clients have links of their own or none.
    pub client_link: Option<LinkSpec>,
}

/// What a window border is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Borders {
    /// Windows begin at their time, in seconds of the simulated run.
    Time,
    /// Window i is phase i of the program.
    Phase,
}

/// Where a file lies from a border on.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedWindow {
    /// Seconds from the start of the run; not looked at with [`Borders::Phase`].
    pub start_s: f64,
    pub placement: Placement,
}

/// The placements of one file, in order; at least one.
#[derive(Clone, PartialEq, Debug)]
pub struct FilePlacements {
    pub windows: Vec<PlacedWindow>,
}

impl FilePlacements {
    /// One placement for the whole run.
    #[must_use]
    pub fn fixed(placement: Placement) -> Self {
        Self { windows: vec![PlacedWindow { start_s: 0.0, placement }] }
    }
}

/// How data moves at a border.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Migration {
    /// The new placement holds at once and costs nothing.
    Free,
    /// Regions are copied one after the other through the servers' devices and links while the program goes on: those that leave SSDs first. The
    /// mover has a link of its own that never is the bottleneck. Until a region is copied as a whole, its reads go to the old place; a write
    /// to chunks that are copied already goes to both places, any other to the old one, and a chunk that is written while it is
    /// being copied is copied again.
    Copied {
        /// Most bytes per second, if capped.
        bandwidth_bytes_per_s: Option<f64>,
        /// Bytes copied at a time.
        chunk: ByteCount,
    },
}

/// The way of a sub-request through the stations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StationOrder {
    /// As over a network: the bytes of a read leave the device, then the server's link, then the link of the client's node; those of
    /// a write come the other way. A link is one station for both directions, as [`LinkSpec`] has it. The short messages that ask and
    /// acknowledge are not modelled.
    #[default]
    Network,
    /// Device, then the server's link, reads and writes alike, and no client links: the order in which emulated servers reserve time.
    DeviceFirst,
}

/// What of a server is modelled beyond its device's mean service times.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ServerDetail {
    pub device: DeviceModel,
    pub cache: Option<PageCacheSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<FragmentService>,
}

/// What of a server's data lies on an SSD beside its device, as iBridge has it.
///
/// A fragment is a sub-request shorter than `below` and than half its stripe, of a request longer than a stripe. All of them lie on the SSD
/// from the start: which are admitted, for how many there is room, and how a log of writes goes back to the disk is not modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct FragmentService {
    /// The server of the system that stands for the SSD; no layout should name it.
    pub on: ServerId,
    pub below: ByteCount,
    /// Whether requests that are shorter than `below` as a whole lie there too.
    pub small_requests: bool,
}

impl FragmentService {
    /// Whether it serves a sub-request of `part_bytes` of a request, on a stripe of `stripe_bytes`.
    pub(crate) fn serves(&self, request_bytes: u64, stripe_bytes: u64, part_bytes: u64) -> bool {
        let is_fragment = request_bytes > stripe_bytes && part_bytes < self.below.0.min(stripe_bytes / 2);
        is_fragment || (self.small_requests && request_bytes < self.below.0)
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct SimOptions {
    /// Of all random draws.
    pub seed: u64,
    /// Seconds of one slice of the time line; 0 for none. A run of more than 512 slices gets longer ones.
    pub slice_s: f64,
    pub borders: Borders,
    pub migration: Migration,
    pub order: StationOrder,
    /// In the order of the servers; empty when no server is modelled in more detail than its means.
    pub detail: Vec<ServerDetail>,
}

impl Default for SimOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            slice_s: 0.0,
            borders: Borders::Time,
            migration: Migration::Free,
            order: StationOrder::default(),
            detail: Vec::new(),
        }
    }
}

pub struct Scenario<'a> {
    pub system: &'a System,
    pub program: &'a dyn Program,
    /// One for each of the program's files, in their order.
    pub files: &'a [FilePlacements],
    pub options: SimOptions,
}

#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SimError {
    #[error("the program has {files} files but {placements} placements are given; give one for each file")]
    Files { files: usize, placements: usize },
    #[error("{path}: {message}; plan the file for this cluster")]
    Placement { path: String, message: String },
    #[error("{path}: no placement; give at least one")]
    NoPlacement { path: String },
    #[error("the system has no servers; give at least one")]
    NoServers,
    #[error("{servers} servers but details of {detail}; give one for each server, or none")]
    Detail { servers: usize, detail: usize },
    #[error("server {server} has its fragments on server {on}, but there are only {servers}; name one of them")]
    Fragments { server: usize, on: ServerId, servers: usize },
    #[error("migration needs chunks of at least 1 byte and a bandwidth above 0")]
    Migration,
    #[error(
        "{path}: regions of {first} in one window and of {other} in another; plan all windows with one region size"
    )]
    RegionSize { path: String, first: ByteCount, other: ByteCount },
}
