//! What is simulated, and why it cannot be.

use crate::emulated::EmulatedServers;
use crate::laboratory::PolicyError;
use crate::messages::shown;
use crate::session::SessionError;
use crate::workload::SourceError;
use std::path::PathBuf;
use stripewise_device::{DiskOrder, UnknownName};
use stripewise_layout::ByteCount;
use stripewise_layout::figures::counted;
use stripewise_planner::{PlanError, PolicyName};
use stripewise_sim::{Migration, SimError, StationOrder};
use stripewise_trace::Pacing;
use thiserror::Error;

/// How disks are modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disks {
    /// Mean service times.
    Mean,
    /// Seeks, rotation, zones, a cache; served in this order.
    Mechanical(DiskOrder),
}

/// How SSDs are modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ssds {
    /// Mean service times.
    Mean,
    /// Dies, channels, write buffer, garbage collection.
    Parts,
}

/// A workload, the servers that it runs on, and the plans that it runs under.
#[derive(Clone, PartialEq, Debug)]
pub struct SimulateOptions {
    /// A trace, or a benchmark such as `ior:size=1GiB,transfer=64KiB,op=read`.
    pub workload: String,
    /// Plans to simulate.
    pub plans: Vec<PathBuf>,
    /// Policies to plan with and simulate; `def` where neither a plan nor a policy is named.
    pub policies: Vec<PolicyName>,
    /// Groups of servers; none for the emulated servers of the session's cluster.
    pub servers: Vec<EmulatedServers>,
    /// The link of every server of these groups.
    pub link: Option<String>,
    /// Size of a region on these groups.
    pub region: ByteCount,
    /// A link of every client node, shared by its processes.
    pub client_link: Option<String>,
    /// The way of a request; unless given device first for the cluster's servers, else over the network.
    pub order: Option<StationOrder>,
    /// Processes of a benchmark in place of its own number.
    pub processes: Option<u32>,
    /// When a trace's processes make their next request; unless given after as much time as lay between them in the trace.
    pub pacing: Option<Pacing>,
    /// Of a trace, only the requests on these files; all where none is named.
    pub files: Vec<PathBuf>,
    /// Length of the phases that a trace is split into.
    pub window_s: Option<f64>,
    /// How disks are modelled.
    pub disks: Disks,
    /// How SSDs are modelled.
    pub ssds: Ssds,
    /// A page cache of that size on every server.
    pub cache: Option<ByteCount>,
    /// How regions move at window borders.
    pub migration: Migration,
    /// Capacity of each SSD for policies, in place of the servers' own.
    pub ssd_capacity: Option<ByteCount>,
    /// Of everything random.
    pub seed: u64,
}

/// Why nothing is simulated.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// There are no servers to simulate.
    #[error("--servers names the servers to simulate without a cluster")]
    NoServers {
        /// Why the session has no cluster.
        source: SessionError,
    },
    /// The workload cannot be had.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A plan cannot be read.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A policy makes no plan.
    #[error(transparent)]
    Planning(#[from] PolicyError),
    /// A device or link that nobody has described.
    #[error(transparent)]
    Device(#[from] UnknownName),
    /// The servers make no cluster.
    #[error("{what}")]
    Cluster {
        /// Name, value and remedy.
        what: String,
    },
    /// A real server.
    #[error(
        "server `{name}` ({url}) is a real one, whose device nobody has described; name servers to simulate with --servers"
    )]
    RealServer {
        /// Name of the server.
        name: String,
        /// Its URL.
        url: String,
    },
    /// A device that is slower than real, and modelled in detail.
    #[error("{device} with time_scale {time_scale}: a dilated device can only be modelled by its mean")]
    Dilated {
        /// Name of the device.
        device: String,
        /// How much slower than real it is.
        time_scale: f64,
    },
    /// An option of benchmarks.
    #[error("--processes is for benchmarks; a trace has the processes that were traced")]
    ProcessesOfTrace,
    /// An option of traces.
    #[error("--window, --file and the pace are for traces; {workload} is a benchmark and has parameters of its own")]
    TraceOptions {
        /// The benchmark as it was named.
        workload: String,
    },
    /// A plan for other servers.
    #[error(
        "{}: planned for {}, but {has} are simulated; name the same ones with --servers",
        shown(path),
        counted(*wants, "server", "servers")
    )]
    OtherServers {
        /// The plan's file.
        path: PathBuf,
        /// Servers that are simulated.
        has: usize,
        /// Servers of the plan.
        wants: usize,
    },
    /// Links that the testbed does not have.
    #[error("--client-link: the testbed has no client links; add --order network")]
    ClientLink,
    /// A file that the plan does not name.
    #[error("the plan says nothing of {path}; it plans {}", planned.join(", "))]
    NotPlanned {
        /// File of the workload.
        path: String,
        /// Files of the plan.
        planned: Vec<String>,
    },
    /// The simulator refused.
    #[error("simulating {name}")]
    Simulating {
        /// The plan or policy.
        name: String,
        /// Its cause.
        source: SimError,
    },
}
