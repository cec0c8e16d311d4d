//! What the broker answers, and what an answer says of files, servers and regions.

use super::{AgentReport, FragmentStatus, HostAccesses, HostInfo, MoveNumber, MoveStatus, MoveTotals, Refusal};
use crate::server::Standing;
use serde::{Deserialize, Serialize};
use stripewise_layout::{FileId, Generation, Placement, RegionIndex, ServerClass};

/// What the broker answers: one reply to each request, in order.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// Id and servers of the cluster, the managed directories, and the paths at which plans expect files.
    Welcome {
        /// Id of the cluster.
        cluster: String,
        /// In the cluster's order: a server's number is its position.
        servers: Vec<ServerInfo>,
        /// Absolute paths of managed directories.
        managed: Vec<String>,
        /// Absolute paths at which plans expect files; where they are too many for a packet, their
        /// directories, each with a `/` at its end.
        expected: Vec<String>,
        /// The managed directories with a minimum size, and that size in bytes.
        min_sizes: Vec<(String, u64)>,
        /// Whether other hosts use the cluster too.
        shared: bool,
    },
    /// The file, and whether it is open for writing. The descriptors of control block, extent and slots ride along.
    Opened {
        /// As the mapping table knows the stub's inode.
        file: FileId,
        /// Whether the stub's descriptor is open for writing.
        writable: bool,
    },
    /// The descriptor of an object rides along.
    Object,
    /// The descriptors of the table of fragments and of the hints ride along.
    Fragments,
    /// `file` is `None`: the descriptor's file is no stub of this cluster. The status is told of a stub itself, not of a copy; no server is asked for it.
    Found {
        /// By the inode, or, of a copy or a restored stub, by its text.
        file: Option<FileId>,
        /// `None` of a copy.
        status: Option<FileStatus>,
    },
    /// A part of the list of files, and whether there are more.
    Files {
        /// In order of their ids.
        files: Vec<FileInfo>,
        /// Whether another request should follow.
        more: bool,
    },
    /// Use and state of each server.
    Usage {
        /// In the cluster's order.
        servers: Vec<ServerUsage>,
    },
    /// A part of a file's regions with their replicas, and whether there are more.
    Regions {
        /// Regions with a place, ascending.
        regions: Vec<RegionInfo>,
        /// Whether another request should follow.
        more: bool,
    },
    /// Whether a plan expects the file.
    Expected {
        /// False also for a path that is managed for its directory alone.
        expected: bool,
    },
    /// The findings of a check.
    Findings {
        /// Empty when all is well.
        findings: Vec<Finding>,
    },
    /// One move for each region of the orders that has objects, numbered from `first` on, in the order of the orders; none if `count` is 0.
    MovesQueued {
        /// Number of the first of them.
        first: MoveNumber,
        /// How many were queued.
        count: u64,
    },
    /// All moves of this broker together, a part of the list of moves, and whether there are more.
    Moves {
        /// Over all moves.
        totals: MoveTotals,
        /// Ascending by number.
        moves: Vec<MoveStatus>,
        /// Whether another request should follow.
        more: bool,
    },
    /// The placement of the file's regions to come.
    Placement {
        /// As last set.
        placement: Placement,
    },
    /// Replicas of placed regions: how many are wanted, how many of them are there, of how many regions syncs are queued or under way, and,
    /// of a region that lacks some since its last sync, why.
    Replicas {
        /// Replicas that regions with a place are to have.
        wanted: u64,
        /// Those of them that equal their place.
        fresh: u64,
        /// Regions, not replicas.
        syncing: u64,
        /// For people; `None` when the last sync lacked nothing.
        why: Option<String>,
    },
    /// Whether fragments of the file go to SSDs, whether that was said of the file itself, and of each HServer whose fragments have a log what
    /// became of it.
    FileFragments {
        /// Whether small sub-requests of the file go to SSDs.
        on: bool,
        /// What `SetFragments` said; `None`: the cluster's setting holds.
        set_by_file: Option<bool>,
        /// By HServer.
        servers: Vec<FragmentStatus>,
    },
    /// `since_ns` tells brokers apart, as in [`MoveTotals`]: numbers of files are one broker's.
    Observed {
        /// When this broker began, ns since 1970.
        since_ns: u64,
        /// Ascending by number.
        files: Vec<ObservedFile>,
        /// Whether another request should follow.
        more: bool,
    },
    /// What programs did, and whether more of it is to be asked for at once.
    Accesses {
        /// By host; one may be named more than once.
        hosts: Vec<HostAccesses>,
        /// Whether another request should follow.
        more: bool,
    },
    /// In the order of the question; `None`: there is no such file.
    Sizes {
        /// Logical sizes in bytes.
        sizes: Vec<Option<u64>>,
    },
    /// The request was refused.
    Refused(Refusal),
    /// The hosts of the cluster, the master first.
    Hosts {
        /// One alone, where the cluster has one host.
        hosts: Vec<HostInfo>,
        /// The term of the master's election; `None`: the cluster has one host.
        term: Option<u64>,
        /// What the engine of the mapping table answers the master: what is wrong with it, if anything.
        coordinator: Result<(), String>,
        /// The fingerprint of the key by which the hosts know each other; `None`: the cluster has one host.
        key: Option<String>,
    },
    /// All hosts have the cluster's new key.
    Rekeyed {
        /// Of the new key.
        fingerprint: String,
        /// How many hosts have it.
        hosts: u64,
        /// It was made by an earlier order that was interrupted; none was made for this one.
        was_begun: bool,
    },
    /// What the agent of this host has counted.
    Agent(Box<AgentReport>),
    /// Plans expect these names no longer.
    Forgotten {
        /// How many there were.
        names: u64,
    },
    /// A part of the paths, ascending, and whether there are more.
    OpenedPaths {
        /// As the mapping table had them when the files were opened.
        paths: Vec<String>,
        /// Whether another request should follow.
        more: bool,
    },
    /// What the objects of a file's regions and replicas occupy, holes excepted.
    HeldBytes {
        /// In the cluster's order; `None`: the server cannot be asked.
        servers: Vec<Option<u64>>,
    },
    /// As `HeldBytes`, of some files together.
    HeldByFiles {
        /// As of `HeldBytes`.
        servers: Vec<Option<u64>>,
        /// The last of the files, from which another request should go on; `None`: there are no more.
        last: Option<FileId>,
    },
    /// Programs of other hosts that have a file open.
    Holders {
        /// Each as "NAME (process N) on host H".
        holders: Vec<String>,
    },
    /// What was found with each host.
    Probed {
        /// Not the master's.
        hosts: Vec<ProbedHost>,
    },
    /// The descriptor of the table of processes rides along.
    Processes,
}

/// What a host and the master's see of each other's changes in a directory; of each property what is wrong with it, or `None`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProbedHost {
    /// The other host.
    pub host: String,
    /// Names that one of them gives or takes are seen by the other at once.
    pub names: Option<String>,
    /// So is the length of a file.
    pub attributes: Option<String>,
    /// So are bytes, also next to bytes that the other has just written.
    pub data: Option<String>,
    /// `fcntl` locks keep programs of the other out.
    pub locks: Option<String>,
}

/// What `stat` returns of a managed file's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileStatus {
    /// Logical size.
    pub size_bytes: u64,
    /// Blocks of 512 bytes in the placed regions up to the size: what the file occupies, if these have no holes.
    pub blocks_512: u64,
    /// Of the last change, ns since 1970; `None`: the stub's own time holds.
    pub modified_ns: Option<u64>,
}

/// What clients have to know of a server.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerInfo {
    /// As in cluster.toml.
    pub name: String,
    /// As in cluster.toml.
    pub class: ServerClass,
    /// As in cluster.toml, absolute.
    pub url: String,
    /// By which readers choose among replicas, unless the server can tell better itself.
    pub read_cost: RequestCost,
}

/// What a request takes on a server that is not busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestCost {
    /// Before the first byte, in ns.
    pub startup_ns: u64,
    /// Of each 1024 bytes.
    pub kib_ns: u64,
}

impl RequestCost {
    /// Of a server that was never measured: a disk that seeks half of the time, or an SSD (rounded figures of ours).
    #[must_use]
    pub fn usual(class: ServerClass) -> Self {
        match class {
            ServerClass::Hdd => Self { startup_ns: 4_000_000, kib_ns: 7_000 },
            ServerClass::Ssd => Self { startup_ns: 100_000, kib_ns: 2_000 },
        }
    }

    /// For one request.
    #[must_use]
    pub fn ns(&self, bytes: u64) -> u64 {
        self.startup_ns.saturating_add(bytes.saturating_mul(self.kib_ns) / 1024)
    }
}

/// One file of the list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its identity.
    pub file: FileId,
    /// Where its stub was last seen.
    pub path: String,
    /// Logical size.
    pub size_bytes: u64,
    /// Bytes of its regions.
    pub region_bytes: u64,
    /// Regions that have objects.
    pub regions_placed: u32,
    /// Processes that have it open.
    pub users: u32,
    /// `creating`, `live`, `importing`, `releasing` or `unlinked`.
    pub state: String,
}

/// A file whose requests are noted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObservedFile {
    /// Ascending in the order in which files were seen to be open; each file has one as long as anybody observes.
    pub number: u64,
    /// Its identity.
    pub file: FileId,
    /// Where it stood when it was first seen.
    pub path: String,
    /// Bytes of its regions.
    pub region_bytes: u64,
}

/// What a server holds, and how it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerUsage {
    /// As in cluster.toml.
    pub name: String,
    /// Bytes that placed regions may come to occupy.
    pub promised_bytes: u64,
    /// Bytes that regions may occupy in all; `None`: not known.
    pub room_bytes: Option<u64>,
    /// Objects of places and replicas.
    pub objects: u64,
    /// Nothing new is placed there.
    pub drained: bool,
    /// What is wrong with the server now, if anything.
    pub fault: Option<String>,
    /// For how long it has not answered.
    pub silent_s: Option<u64>,
    /// Its free space, or why that is not known.
    pub standing: Result<Standing, String>,
}

/// A region that has a place.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RegionInfo {
    /// Number of the region.
    pub region: RegionIndex,
    /// Of its place.
    pub generation: Generation,
    /// (server, stripe bytes) of the place, in the order of turns.
    pub stripes: Vec<(u16, u32)>,
    /// True when its own layout had no space and the fallback was used.
    pub fell_back: bool,
    /// Those that are there, then those that are wanted and are not.
    pub replicas: Vec<ReplicaInfo>,
}

/// One further copy of a region.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReplicaInfo {
    /// (server, stripe bytes), in the order of turns.
    pub stripes: Vec<(u16, u32)>,
    /// It equals the region's place. Otherwise it has no objects until it is rebuilt.
    pub fresh: bool,
}

/// One thing that `check` found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The fault and where it is, for people.
    pub what: String,
    /// What to do about it, for people.
    pub remedy: String,
    /// True when the check has done that.
    pub repaired: bool,
}
