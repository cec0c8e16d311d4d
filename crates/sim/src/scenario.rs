//! What is simulated: servers and client links, the program, where its files lie, and the options of the run.

use serde::Serialize;
use stripewise_device::{DeviceModel, DeviceSpec, LinkSpec, PageCacheSpec};
use stripewise_layout::{ByteCount, Placement, ServerId};
use stripewise_trace::Program;

/// One storage server.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ServerModel {
    /// For people; layouts name servers by their position.
    pub name: String,
    /// Mean service times, and which kind of stages the device has.
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
    /// Layouts of all regions of the file.
    pub placement: Placement,
}

/// The placements of one file, in order; at least one.
#[derive(Clone, PartialEq, Debug)]
pub struct FilePlacements {
    /// By ascending `start_s`; each holds until the next begins.
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
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
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ServerDetail {
    /// How the device behaves; its mean service times by default.
    pub device: DeviceModel,
    /// The server's page cache; `None` when every request goes to the device.
    pub cache: Option<PageCacheSpec>,
    /// Where its fragments are; `None` when they stay on its own device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragments: Option<FragmentService>,
}

/// What of a server's data lies on an SSD beside its device, as iBridge has it.
///
/// A fragment is a sub-request shorter than `below` and than half its stripe, of a request longer than a stripe. All of them lie on the SSD
/// from the start: which are admitted, for how many there is room, and how a log of writes goes back to the disk is not modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FragmentService {
    /// The server of the system that stands for the SSD; no layout should name it.
    pub on: ServerId,
    /// Length in bytes that no fragment reaches.
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

/// How a run is simulated. The default has no time line, free migration and servers of mean service
/// times.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct SimOptions {
    /// Of all random draws.
    pub seed: u64,
    /// Seconds of one slice of the time line; 0 for none. A run of more than 512 slices gets longer ones.
    pub slice_s: f64,
    /// What begins the next of a file's windows.
    pub borders: Borders,
    /// How data gets from one window's placement to the next one's.
    pub migration: Migration,
    /// Which stations a sub-request passes, in which order.
    pub order: StationOrder,
    /// Most bytes of buffered writes that clients hold for each server before processes wait; `None` when they write nothing back later,
    /// and buffered writes wait as direct ones do. So it is with emulated servers that have no dirty limit.
    pub write_back: Option<ByteCount>,
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
            write_back: Some(WRITE_BACK_LIMIT),
            detail: Vec::new(),
        }
    }
}

/// Default of [`SimOptions::write_back`]: a tenth of 2.5 GiB of free memory, where Linux begins to write back.
const WRITE_BACK_LIMIT: ByteCount = ByteCount(256 << 20);

impl SimOptions {
    /// Of emulated servers without a dirty limit: [`StationOrder::DeviceFirst`], and buffered writes wait.
    #[must_use]
    pub fn testbed() -> Self {
        Self { order: StationOrder::DeviceFirst, write_back: None, ..Self::default() }
    }
}

/// All that [`crate::simulate`] needs; equal scenarios have equal outcomes.
pub struct Scenario<'a> {
    /// Servers and client links.
    pub system: &'a System,
    /// The processes and their requests.
    pub program: &'a dyn Program,
    /// One for each of the program's files, in their order.
    pub files: &'a [FilePlacements],
    /// Seed, windows, migration and detail.
    pub options: SimOptions,
}

/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SimError {
    /// Files and placements are not paired.
    #[error("the program has {files} files but {placements} placements are given; give one for each file")]
    Files {
        /// Files of the program.
        files: usize,
        /// Placements of the scenario.
        placements: usize,
    },
    /// A placement fails [`Placement::check`] for the system's servers.
    #[error("{path}: {message}; plan the file for this cluster")]
    Placement {
        /// File of the program.
        path: String,
        /// What is wrong with the placement.
        message: String,
    },
    /// A file has no window at all.
    #[error("{path}: no placement; give at least one")]
    NoPlacement {
        /// File of the program.
        path: String,
    },
    /// The system is empty.
    #[error("the system has no servers; give at least one")]
    NoServers,
    /// [`SimOptions::detail`] is neither empty nor as long as the list of servers.
    #[error("{servers} servers but details of {detail}; give one for each server, or none")]
    Detail {
        /// Servers of the system.
        servers: usize,
        /// Entries of the list.
        detail: usize,
    },
    /// A server's fragments lie on a server that does not exist.
    #[error("server {server} has its fragments on server {on}, but there are only {servers}; name one of them")]
    Fragments {
        /// The server whose detail is wrong, by position.
        server: usize,
        /// The server that it names.
        on: ServerId,
        /// Servers of the system.
        servers: usize,
    },
    /// [`Migration::Copied`] has empty chunks, or a bandwidth that is not above 0.
    #[error("migration needs chunks of at least 1 byte and a bandwidth above 0")]
    Migration,
    /// The windows of a file disagree on the size of a region.
    #[error(
        "{path}: regions of {first} in one window and of {other} in another; plan all windows with one region size"
    )]
    RegionSize {
        /// File of the program.
        path: String,
        /// Region size of its first window.
        first: ByteCount,
        /// Region size of the first window that differs.
        other: ByteCount,
    },
}
