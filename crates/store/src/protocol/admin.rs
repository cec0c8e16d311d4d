//! What the `stripewise` command asks of the broker.
//!
//! The broker answers these requests to its own user and to root only.

use super::{MoveControl, MoveNumber, MoveOrder};
use serde::{Deserialize, Serialize};
use stripewise_layout::{FileId, Layout, Placement, RegionIndex};

/// Requests of the `stripewise` command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Admin {
    /// As `Create`, with a placement given; used by `apply`. The original's descriptor rides along after the stub's: it must be a regular, unmanaged
    /// file, and its identity is recorded so that a crash is cleaned up. Answer: `Opened`.
    Import {
        /// Absolute path of the original.
        path: String,
        /// Where the file's regions go.
        placement: Placement,
        /// Absolute path that the stub has until it takes the original's place.
        temporary: String,
    },
    /// The import's data is in place, verified and synced: durable from here on; the caller then renames the stub over the original and sends `Linked`.
    Imported {
        /// As `Import` was answered.
        file: FileId,
    },
    /// Hold the file exclusively for `release`: no user but the caller's own connection, and no new ones. The descriptor of the ordinary
    /// copy that will replace the stub rides along (open, it may still be nameless); `temporary` is the path it has until then.
    BeginRelease {
        /// The file to be released.
        file: FileId,
        /// Absolute path that the ordinary copy has until it takes the stub's place.
        temporary: String,
    },
    /// The ordinary copy took the stub's place: free everything.
    EndRelease {
        /// A file held by `BeginRelease`.
        file: FileId,
    },
    /// The release is given up: the file is as it was.
    CancelRelease {
        /// A file held by `BeginRelease`.
        file: FileId,
    },
    /// New files below this directory become managed, with this placement unless a plan knows their name.
    Manage {
        /// Absolute, with no symbolic link.
        directory: String,
        /// Where regions of new files go.
        placement: Placement,
        /// Files that their last close leaves smaller become ordinary, and ordinary ones that it leaves larger managed; `None`: files stay
        /// what they are.
        min_bytes: Option<u64>,
    },
    /// New files below this directory are ordinary again.
    Unmanage {
        /// As `Manage` was given it.
        directory: String,
    },
    /// New files whose absolute path matches get this placement.
    Expect {
        /// Absolute path, compared as it stands.
        path: String,
        /// Where the new file's regions go.
        placement: Placement,
    },
    /// Answer: `Files`, from the id after `after`.
    List {
        /// The last file of the part before; `None` for the first part.
        after: Option<FileId>,
    },
    /// Answer: `Usage`.
    Usage,
    /// Answer: `Regions`.
    Regions {
        /// Any file of the cluster.
        file: FileId,
        /// The first region of the answer.
        first: RegionIndex,
    },
    /// Look for orphans and lost stubs; `repair` acts. Answer: `Findings`.
    Check {
        /// Whether to act on what is found.
        repair: bool,
    },
    /// Gives a file whose stub is gone a new stub at `path`, where nothing may stand.
    Rescue {
        /// A file whose stub is gone.
        file: FileId,
        /// Absolute path of the new stub.
        path: String,
    },
    /// Frees a file whose stub is gone; when its last user closes it, if it has any.
    Remove {
        /// A file whose stub is gone.
        file: FileId,
    },
    /// Queue moves of regions. Refused as a whole if an order names what does not exist. Answer: `MovesQueued`.
    Move {
        /// In the order in which they are queued.
        orders: Vec<MoveOrder>,
    },
    /// Pause, resume or cancel moves, or set their bandwidth.
    ControlMoves(MoveControl),
    /// Answer: `Moves`, after the move `after`. Of ended moves the last 4096 are kept.
    Moves {
        /// The last move of the part before; `None` for the first part.
        after: Option<MoveNumber>,
    },
    /// The placement by which the file's regions to come are placed, those without objects; what is placed stays. The region size is the file's.
    SetPlacement {
        /// Any file of the cluster.
        file: FileId,
        /// Its region size must be the file's.
        placement: Placement,
    },
    /// The placement by which the file's regions to come are placed. Answer: `Placement`.
    Placement {
        /// Any file of the cluster.
        file: FileId,
    },
    /// Nothing new is placed on the server and nothing moves there, as long as it is drained. What lies there stays until it is moved.
    Drain {
        /// Number of the server.
        server: u16,
        /// False: it takes new regions again.
        drained: bool,
    },
    /// The further copies that the file's regions are to have, beside their places; those that it has and that are not wanted any more go. Made by
    /// `SyncReplicas`, and by the broker when the last writer closes the file or nobody writes it for a while.
    SetReplicas {
        /// Any file of the cluster.
        file: FileId,
        /// All replicas that are wanted, at most
        /// [`MAX_REPLICAS`](crate::shared::control::MAX_REPLICAS) of a region.
        wanted: Vec<WantedReplicas>,
    },
    /// The same for a file that is yet to be made at this absolute path.
    ExpectReplicas {
        /// As of `Expect`.
        path: String,
        /// As of `SetReplicas`.
        wanted: Vec<WantedReplicas>,
    },
    /// Queue the making of the replicas that are wanted and not there.
    SyncReplicas {
        /// Any file of the cluster.
        file: FileId,
    },
    /// Answer: `Replicas`.
    Replicas {
        /// Any file of the cluster.
        file: FileId,
    },
    /// Fragments of the file are to go to SSDs, or not, whatever the cluster says; `None`: as the cluster says. Refused (`Invalid`) where no space is
    /// set aside for any.
    SetFragments {
        /// Any file of the cluster.
        file: FileId,
        /// `None`: the cluster's setting holds.
        on: Option<bool>,
    },
    /// Answer: `FileFragments`.
    Fragments {
        /// Any file of the cluster.
        file: FileId,
    },
    /// From now on until this connection ends, processes note their requests for observers. Answer: `Observed`, files that were open or opened since
    /// then, from behind number `after`. `again`: what was noted for an observer before is not wanted.
    Observe {
        /// The last [`ObservedFile::number`](super::ObservedFile::number) that was answered; 0 at first.
        after: u64,
        /// Begins an observation of its own.
        reset: bool,
    },
    /// The memory in which the requests on a file are noted. Answer: `Opened`, not writable, with the same descriptors as of `Open`.
    ObservedMemory {
        /// A file that `Observe` has named.
        file: FileId,
    },
    /// Of a cluster of many hosts: what programs of all of them did on files since the last such request. They note their requests from the first one on, until
    /// none comes for a while. Answer: `Accesses`.
    Accesses,
    /// The sizes of files. Answer: `Sizes`.
    Sizes {
        /// As many as a packet holds.
        files: Vec<FileId>,
    },
    /// Of a cluster of many hosts: the asking process decides about moves, for as long as it says so every second or so. Refused while another does.
    Guide {
        /// On the host of the asking process.
        process: u32,
        /// False: it does so no more.
        begins: bool,
    },
    /// `Expect` of many files at once, durable together. What is as it was costs nothing.
    ExpectFiles {
        /// As many as a packet holds.
        files: Vec<ExpectedFile>,
    },
    /// Forget the names of `Expect` at this path and below it, and their replicas. Answer: `Forgotten`.
    ForgetExpected {
        /// Absolute path of a file or a directory, compared as it stands.
        path: String,
    },
    /// The paths of files that processes below the asking one opened since the first such request of this connection. Answer: `OpenedPaths`, from
    /// behind `after`.
    OpenedPaths {
        /// The last path of the part before; empty at first.
        after: String,
    },
    /// What a file's objects occupy. Answer: `HeldBytes`.
    HeldBytes {
        /// Any file of the cluster.
        file: FileId,
    },
    /// What the objects of the next files occupy together. Answer: `HeldByFiles`.
    HeldByFiles {
        /// The last file of the part before; `None`: from the first on.
        after: Option<FileId>,
    },
    /// The hosts of the cluster. Answer: [`Reply::Hosts`](super::Reply::Hosts).
    Hosts,
    /// A host that does not answer is gone for good: whatever it had open is closed. Refused of a host that answers.
    ForgetHost {
        /// As `Hosts` lists it.
        host: String,
    },
    /// The cluster's key pair is replaced on all hosts. Refused where one does not answer. Answer: [`Reply::Rekeyed`](super::Reply::Rekeyed).
    Rekey {
        /// Random: the same order is carried out once, however often it is asked.
        order: u64,
    },
    /// What the agent of this host has counted since it began; no other host is asked. Answer: [`Reply::Agent`](super::Reply::Agent).
    Agent,
    /// Programs of other hosts than the asking one that have the file open, mapped or locked. Refused by name for a host that cannot say, unless it is
    /// among `unchecked`. Answer: [`Reply::Holders`](super::Reply::Holders).
    Holders {
        /// The file.
        file: SharedFile,
        /// Names of hosts that are not asked.
        unchecked: Vec<String>,
    },
    /// What the master's host and each other see of each other's changes in a directory. Answer: [`Reply::Probed`](super::Reply::Probed).
    Probe {
        /// Absolute.
        directory: String,
    },
}

/// A file that all hosts have at the same path, as they can recognise it: device numbers differ from host to host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SharedFile {
    /// Absolute, without symbolic links.
    pub path: String,
    /// Where it stands now, in the same directory: it may be about to lose its name.
    pub stands_at: String,
    /// Inode number of its directory.
    pub directory_inode: u64,
    /// Its own.
    pub inode: u64,
    /// Its mode.
    pub mode: u32,
    /// It is a stub: descriptors that cannot do I/O are the library's.
    pub is_stub: bool,
}

/// The regions from `first` on are to have one more copy, in this layout.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WantedReplicas {
    /// The first of the regions.
    pub first: RegionIndex,
    /// How many.
    pub regions: u32,
    /// Layout of the further copy.
    pub layout: Layout,
}

/// A file that is yet to be made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExpectedFile {
    /// Absolute.
    pub path: String,
    /// Where the file's regions go.
    pub placement: Placement,
    /// As of `ExpectReplicas`; `None`: as they were.
    pub replicas: Option<Vec<WantedReplicas>>,
}
