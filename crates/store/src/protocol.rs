//! The messages between clients and the broker.
//!
//! The socket `run/broker.sock` is a `SOCK_SEQPACKET` Unix socket. One packet is one message in
//! [postcard](https://postcard.jamesmunns.com/wire-format), accompanied by up to 4 descriptors (`SCM_RIGHTS`). The broker answers
//! every request once, in order.
//!
//! A client proves its right to a file by the stub's descriptor: the broker takes device, inode and access mode from the
//! descriptor, never from the message. Every request may be repeated: a client that loses its broker connects to the successor,
//! says hello, opens its files again and repeats all requests without an answer.

mod fragments;
mod moves;
mod refusals;

pub use fragments::FragmentStatus;
pub use moves::{MigrateBandwidth, MoveControl, MoveNumber, MoveOrder, MoveState, MoveStatus, MoveTotals, WhichMoves};
pub use refusals::state_full;

use serde::{Deserialize, Serialize};
use stripewise_layout::{FileId, Generation, Layout, Placement, RegionIndex, ServerClass};

/// Raised with every change of a message; the broker refuses other versions by name.
pub const PROTOCOL_VERSION: u32 = 5;

/// Largest packet; a longer list is asked for in parts.
pub const MAX_PACKET_BYTES: usize = 128 << 10;

/// What a call does to names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NameCall {
    /// The target's name goes.
    Remove,
    /// What stands at the source gets the target's name, from what stands there if anything does.
    Rename,
    /// Source and target change places.
    Exchange,
}

/// The regions from `first` on are to have one more copy, in this layout.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WantedReplicas {
    pub first: RegionIndex,
    pub regions: u32,
    pub layout: Layout,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// First on every connection. Answer: [`Reply::Welcome`] with the `processes` descriptor (and `stations`, if any server is emulated).
    Hello { version: u32 },
    /// Right after taking a process slot: lets the broker recognise what a dead client left there.
    Claimed { slot: u16, incarnation: u64 },
    /// Open the managed file whose stub's descriptor rides along. Answer: [`Reply::Opened`] with the descriptors of control block, extent and slots.
    Open { file: FileId },
    /// Make a managed file of the new, still nameless or temporary stub that rides along (open for writing, empty; the broker
    /// writes the stub's text). `path` is where it will appear: it decides the placement. Answer: as `Open`.
    /// The caller links the stub to its name, then sends `Linked`, or `Abandon` if the name was taken.
    Create { path: String },
    /// The stub of a file just made has its name.
    Linked { file: FileId },
    /// The stub of a file just made will have no name: forget the file.
    Abandon { file: FileId },
    /// Give the regions `first ..= last` objects, in the placement's layouts. Needs a file opened for writing. Answer: `Done` once
    /// the control block shows them.
    Place { file: FileId, first: RegionIndex, last: RegionIndex },
    /// A write to the region's place of this generation met a full server: move the region where there is free space. Needs a file opened for writing. `Done` once
    /// the control block shows another place; refused for want of space when there is none.
    Rescue { file: FileId, region: RegionIndex, generation: Generation, server: u16 },
    /// Forget the replicas of the regions `first ..= last`, before the first write there since they were made. Needs a file opened for writing.
    /// `Done` once that is durable and the control block shows it.
    Pin { file: FileId, first: RegionIndex, last: RegionIndex },
    /// Truncate or extend to `size_bytes`. Needs a file opened for writing. `Done` once every object is truncated and the size is
    /// durable.
    Truncate { file: FileId, size_bytes: u64 },
    /// Truncate the objects to the size after a write that failed in the middle: a later write beyond the size must leave a hole of
    /// zeros. Needs a file opened for writing.
    Tidy { file: FileId },
    /// The shared memory of the file's fragments, made now if there is none. Answer: [`Reply::Fragments`] with the descriptors of table (to be written
    /// only by who may write the file) and hints; `Done` if the file has none.
    Fragments { file: FileId },
    /// Write to the disks what is newer on SSDs. `Done` once the objects have it; they are yet to be synced. Whoever may read the file may ask.
    Flush { file: FileId },
    /// Make size, mapping and the names of new objects durable; the data was synced before.
    Sync { file: FileId },
    /// The stub's mode, owner or group changed: objects take it over. A stub descriptor rides along.
    Attributes { file: FileId },
    /// The last open of this process is closed.
    Close { file: FileId },
    /// A call is about to change names, of which a managed file has one or is to get one. Durable before it is answered (`Done`), unless
    /// no managed file is concerned. Nobody else may change these names until it ends: refused with `NameInUse` while somebody
    /// does, with `NameChanged` if other files stand there than the request says, and with `NotPermitted` to a user who may not change them.
    ///
    /// `number` is the client's, and its alone. Descriptors (O_PATH is enough) ride along: of the target's directory and, but for a
    /// removal, of the source's; of the stub that stands at the target, if `victim` says so; of the file that stands at the source, or of one
    /// without a name that is about to get that.
    BeginNameChange {
        number: u64,
        call: NameCall,
        source: Option<Vec<u8>>,
        target: Vec<u8>,
        victim: Option<FileId>,
        mover: Option<FileId>,
    },
    /// The call returned. The victim's descriptor rides along if there is one. Frees its data once no name and no user is left.
    EndNameChange { number: u64, done: bool },
    /// Opens an object on behalf of a client whom the object's mode would refuse but whose stub descriptor permits it (a file
    /// created read-only, a mode changed after the open). Answer: `Object` with the descriptor.
    OpenObject { file: FileId, region: RegionIndex, generation: Generation, server: u16 },
    /// Which file's stub the descriptor (O_PATH is enough) is open on, for a client that may not read the stub. Answer: `Found`.
    Find,
    /// Whether a plan expects a new file at this absolute path, for a client that was told directories in the place of names that were too many.
    /// Answer: `Expected`.
    IsExpected { path: String },
    /// Administration; the connection's peer must be the broker's own user or root.
    Admin(Admin),
}

/// Requests of the `stripewise` command.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Admin {
    /// As `Create`, with a placement given; used by `apply`. The original's descriptor rides along after the stub's: it must be a regular, unmanaged
    /// file, and its identity is recorded so that a crash is cleaned up. Answer: `Opened`.
    Import { path: String, placement: Placement, temporary: String },
    /// The import's data is in place, verified and synced: durable from here on; the caller then renames the stub over the original and sends `Linked`.
    Imported { file: FileId },
    /// Hold the file exclusively for `release`: no user but the caller's own connection, and no new ones. The descriptor of the ordinary
    /// copy that will replace the stub rides along (open, it may still be nameless); `temporary` is the path it has until then.
    BeginRelease { file: FileId, temporary: String },
    /// The ordinary copy took the stub's place: free everything.
    EndRelease { file: FileId },
    /// The release is given up: the file is as it was.
    CancelRelease { file: FileId },
    /// New files below this directory become managed, with this placement unless a plan knows their name.
    Manage { directory: String, placement: Placement },
    /// New files below this directory are ordinary again.
    Unmanage { directory: String },
    /// New files whose absolute path matches get this placement.
    Expect { path: String, placement: Placement },
    /// Answer: `Files`, from the id after `after`.
    List { after: Option<FileId> },
    /// Answer: `Usage`.
    Usage,
    /// Answer: `Regions`.
    Regions { file: FileId, first: RegionIndex },
    /// Look for orphans and lost stubs; `repair` acts. Answer: `Findings`.
    Check { repair: bool },
    /// Gives a file whose stub is gone a new stub at `path`, where nothing may stand.
    Rescue { file: FileId, path: String },
    /// Frees a file whose stub is gone; when its last user closes it, if it has any.
    Remove { file: FileId },
    /// Queue moves of regions. Refused as a whole if an order names what does not exist. Answer: `MovesQueued`.
    Move { orders: Vec<MoveOrder> },
    /// Pause, resume or cancel moves, or set their bandwidth.
    ControlMoves(MoveControl),
    /// Answer: `Moves`, after the move `after`. Of ended moves the last 4096 are kept.
    Moves { after: Option<MoveNumber> },
    /// The placement by which the file's regions to come are placed, those without objects; what is placed stays. The region size is the file's.
    SetPlacement { file: FileId, placement: Placement },
    /// The placement by which the file's regions to come are placed. Answer: `Placement`.
    Placement { file: FileId },
    /// Nothing new is placed on the server and nothing moves there, as long as it is drained. What lies there stays until it is moved.
    Drain { server: u16, drained: bool },
    /// The further copies that the file's regions are to have, beside their places; those that it has and that are not wanted any more go. Made by
    /// `SyncReplicas`, and by the broker when the last writer closes the file or nobody writes it for a while.
    SetReplicas { file: FileId, wanted: Vec<WantedReplicas> },
    /// The same for a file that is yet to be made at this absolute path.
    ExpectReplicas { path: String, wanted: Vec<WantedReplicas> },
    /// Queue the making of the replicas that are wanted and not there.
    SyncReplicas { file: FileId },
    /// Answer: `Replicas`.
    Replicas { file: FileId },
    /// Fragments of the file are to go to SSDs, or not, whatever the cluster says; `None`: as the cluster says. Refused (`Invalid`) where no room is
    /// set aside for any.
    SetFragments { file: FileId, on: Option<bool> },
    /// Answer: `FileFragments`.
    Fragments { file: FileId },
    /// From now on until this connection ends, processes note their requests for observers. Answer: `Observed`, files that were open or opened since
    /// then, from behind number `after`. `anew`: what was noted for an observer before is not wanted.
    Observe { after: u64, anew: bool },
    /// The memory in which the requests on a file are noted. Answer: `Opened`, not writable, with the same descriptors as of `Open`.
    ObservedMemory { file: FileId },
    /// `Expect` of many files at once, durable together. What is as it was costs nothing.
    ExpectFiles { files: Vec<ExpectedFile> },
}

/// A file that is yet to be made.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExpectedFile {
    /// Absolute.
    pub path: String,
    pub placement: Placement,
    /// As of `ExpectReplicas`; `None`: as they were.
    pub replicas: Option<Vec<WantedReplicas>>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// Id and servers of the cluster, the managed directories, and the paths at which plans expect files.
    Welcome { cluster: String, servers: Vec<ServerInfo>, managed: Vec<String>, expected: Vec<String> },
    /// The file, and whether it is open for writing. The descriptors of control block, extent and slots ride along.
    Opened { file: FileId, writable: bool },
    /// The descriptor of an object rides along.
    Object,
    /// The descriptors of the table of fragments and of the hints ride along.
    Fragments,
    /// `file` is `None`: the descriptor's file is no stub of this cluster. The status is told of a stub itself, not of a copy; no server is asked for it.
    Found { file: Option<FileId>, status: Option<FoundStatus> },
    /// A part of the list of files, and whether there are more.
    Files { files: Vec<FileInfo>, more: bool },
    /// Use and state of each server.
    Usage { servers: Vec<ServerUsage> },
    /// A part of a file's regions with their replicas, and whether there are more.
    Regions { regions: Vec<RegionInfo>, more: bool },
    /// Whether a plan expects the file.
    Expected { expected: bool },
    /// The findings of a check.
    Findings { findings: Vec<Finding> },
    /// One move for each region of the orders that has objects, numbered from `first` on, in the order of the orders; none if `count` is 0.
    MovesQueued { first: MoveNumber, count: u64 },
    /// All moves of this broker together, a part of the list of moves, and whether there are more.
    Moves { totals: MoveTotals, moves: Vec<MoveStatus>, more: bool },
    /// The placement of the file's regions to come.
    Placement { placement: Placement },
    /// Replicas of placed regions: how many are wanted, how many of them are there, of how many regions syncs are queued or under way, and,
    /// of a region that lacks some since its last sync, why.
    Replicas { wanted: u64, fresh: u64, syncing: u64, why: Option<String> },
    /// Whether fragments of the file go to SSDs, whether that was said of the file itself, and of each HServer whose fragments have a log what
    /// became of it.
    FileFragments { on: bool, set_by_file: Option<bool>, servers: Vec<FragmentStatus> },
    /// `since_ns` tells brokers apart, as in [`MoveTotals`]: numbers of files are one broker's.
    Observed { since_ns: u64, files: Vec<ObservedFile>, more: bool },
    /// The request was refused.
    Refused(Refusal),
}

/// What a stub's file is, as far as its data goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundStatus {
    pub size_bytes: u64,
    /// As of [`crate::file::FileStatus`].
    pub blocks_512: u64,
    /// Of the last change, ns since 1970; `None`: the stub's own time holds.
    pub modified_ns: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerInfo {
    pub name: String,
    pub class: ServerClass,
    /// As in cluster.toml, absolute.
    pub url: String,
    /// By which readers choose among replicas, unless the server can tell better itself.
    pub read_cost: ReadCost,
}

/// What a read takes on a server that is not busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadCost {
    pub startup_ns: u64,
    /// Of each 1024 bytes.
    pub kib_ns: u64,
}

impl ReadCost {
    /// Of a server that was never measured: a disk that seeks half of the time, or an SSD (rounded figures of ours).
    #[must_use]
    pub fn usual(class: ServerClass) -> Self {
        match class {
            ServerClass::Hdd => Self { startup_ns: 4_000_000, kib_ns: 7_000 },
            ServerClass::Ssd => Self { startup_ns: 100_000, kib_ns: 2_000 },
        }
    }

    /// For one read.
    #[must_use]
    pub fn ns(&self, bytes: u64) -> u64 {
        self.startup_ns.saturating_add(bytes.saturating_mul(self.kib_ns) / 1024)
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FileInfo {
    pub file: FileId,
    pub path: String,
    pub size_bytes: u64,
    pub region_bytes: u64,
    pub regions_placed: u32,
    pub users: u32,
    pub state: String,
}

/// A file whose requests are noted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObservedFile {
    /// Ascending in the order in which files were seen to be open; each file has one as long as anybody observes.
    pub number: u64,
    pub file: FileId,
    pub path: String,
    pub region_bytes: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ServerUsage {
    pub name: String,
    /// Bytes that placed regions may come to occupy.
    pub promised_bytes: u64,
    pub room_bytes: Option<u64>,
    pub objects: u64,
    /// Nothing new is placed there.
    pub drained: bool,
    /// What is wrong with the server now, if anything.
    pub fault: Option<String>,
    /// For how long it has not answered.
    pub silent_s: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RegionInfo {
    pub region: RegionIndex,
    pub generation: Generation,
    pub stripes: Vec<(u16, u32)>,
    /// True when its own layout had no room and the fallback was used.
    pub fell_back: bool,
    /// Those that are there, then those that are wanted and are not.
    pub replicas: Vec<ReplicaInfo>,
}

/// One further copy of a region.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReplicaInfo {
    pub stripes: Vec<(u16, u32)>,
    /// It equals the region's place. Otherwise it has no objects until it is made anew.
    pub fresh: bool,
}

/// One thing that `check` found.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Finding {
    pub what: String,
    pub remedy: String,
    pub repaired: bool,
}

/// Why the broker refused a request. The client maps each refusal to one errno, exhaustively.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another protocol version: `EIO`.
    #[error("the broker speaks protocol {broker}, the client {client}; use one version of stripewise")]
    Version { broker: u32, client: u32 },
    /// `ESTALE`.
    #[error("no file {file} in this cluster")]
    UnknownFile { file: FileId },
    /// `ESTALE`.
    #[error("{path} is a copy of the stub of file {file}, not the stub itself; run `stripewise check`")]
    CopiedStub { file: FileId, path: String },
    /// `ESTALE`.
    #[error("the stub belongs to cluster {stub}, this is {cluster}")]
    OtherCluster { stub: String, cluster: String },
    /// `EACCES`.
    #[error("the descriptor does not permit this")]
    NotPermitted,
    /// No free space: `ENOSPC`.
    #[error("no room: {what}")]
    NoSpace { what: String },
    /// A server is not usable: `EIO`. `what` names the server.
    #[error("{what}")]
    Server { server: String, what: String },
    /// The file is held exclusively: `EBUSY`.
    #[error("file {file} is held by {holder}")]
    Busy { file: FileId, holder: String },
    /// As `Busy`, by `apply` or `release`: an open waits 20 s for their end, then fails with `EBUSY`.
    #[error("file {file} is held by {holder}, which has not ended in time; end it, or wait and try again")]
    Held { file: FileId, holder: String },
    /// The client asks again for 20 s, then fails with `EBUSY`.
    #[error("the name {path} is being changed by another process")]
    NameInUse { path: String },
    /// Another file has the name than the client saw. The client looks the name up again: `EBUSY`.
    #[error("another file stands at {path} than when it was looked at")]
    NameChanged { path: String },
    /// Beyond the largest file: `EFBIG`.
    #[error("too large: {what}")]
    TooLarge { what: String },
    /// A request that makes no sense: `EINVAL`.
    #[error("{what}")]
    Invalid { what: String },
    /// The mapping table failed: `EIO`.
    #[error("mapping table: {what}")]
    Table { what: String },
}
