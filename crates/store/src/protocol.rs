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
    /// The first of the regions.
    pub first: RegionIndex,
    /// How many.
    pub regions: u32,
    /// Layout of the further copy.
    pub layout: Layout,
}

/// What a client asks of the broker. Descriptors that ride along are named with each request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// First on every connection. Answer: [`Reply::Welcome`] with the `processes` descriptor (and `stations`, if any server is emulated).
    Hello {
        /// [`PROTOCOL_VERSION`] of the client.
        version: u32,
    },
    /// Right after taking a process slot: lets the broker recognise what a dead client left there.
    Claimed {
        /// Number of the slot ([`crate::shared::process_slot::ProcessSlot`]).
        slot: u16,
        /// Of the claim of that slot ([`crate::shared::process_slot::Incarnation`]).
        incarnation: u64,
    },
    /// Open the managed file whose stub's descriptor rides along. Answer: [`Reply::Opened`] with the descriptors of control block, extent and slots.
    Open {
        /// As the stub's text says; the descriptor's inode decides.
        file: FileId,
    },
    /// Make a managed file of the new, still nameless or temporary stub that rides along (open for writing, empty; the broker
    /// writes the stub's text). `path` is where it will appear: it decides the placement. Answer: as `Open`.
    /// The caller links the stub to its name, then sends `Linked`, or `Abandon` if the name was taken.
    Create {
        /// Absolute path, not necessarily free.
        path: String,
    },
    /// The stub of a file just made has its name.
    Linked {
        /// As `Create` was answered.
        file: FileId,
    },
    /// The stub of a file just made will have no name: forget the file.
    Abandon {
        /// As `Create` was answered.
        file: FileId,
    },
    /// Give the regions `first ..= last` objects, in the placement's layouts. Needs a file opened for writing. Answer: `Done` once
    /// the control block shows them.
    Place {
        /// An opened file.
        file: FileId,
        /// The first region that a write needs.
        first: RegionIndex,
        /// The last region that it needs, at least `first`.
        last: RegionIndex,
    },
    /// A write to the region's place of this generation met a full server: move the region where there is free space. Needs a file opened for writing. `Done` once
    /// the control block shows another place; refused for want of space when there is none.
    Rescue {
        /// An opened file.
        file: FileId,
        /// The region of the write.
        region: RegionIndex,
        /// Of the place that the write met; another one was moved already.
        generation: Generation,
        /// Number of the full server.
        server: u16,
    },
    /// Forget the replicas of the regions `first ..= last`, before the first write there since they were made. Needs a file opened for writing.
    /// `Done` once that is durable and the control block shows it.
    Pin {
        /// An opened file.
        file: FileId,
        /// The first region of the write.
        first: RegionIndex,
        /// The last region of the write, at least `first`.
        last: RegionIndex,
    },
    /// Truncate or extend to `size_bytes`. Needs a file opened for writing. `Done` once every object is truncated and the size is
    /// durable.
    Truncate {
        /// An opened file.
        file: FileId,
        /// The size to be.
        size_bytes: u64,
    },
    /// Truncate the objects to the size after a write that failed in the middle: a later write beyond the size must leave a hole of
    /// zeros. Needs a file opened for writing.
    Tidy {
        /// An opened file.
        file: FileId,
    },
    /// The shared memory of the file's fragments, made now if there is none. Answer: [`Reply::Fragments`] with the descriptors of table (to be written
    /// only by who may write the file) and hints; `Done` if the file has none.
    Fragments {
        /// An opened file.
        file: FileId,
    },
    /// Write to the disks what is newer on SSDs. `Done` once the objects have it; they are yet to be synced. Whoever may read the file may ask.
    Flush {
        /// An opened file.
        file: FileId,
    },
    /// Make size, mapping and the names of new objects durable; the data was synced before.
    Sync {
        /// An opened file.
        file: FileId,
    },
    /// The stub's mode, owner or group changed: objects take it over. A stub descriptor rides along.
    Attributes {
        /// The stub's file.
        file: FileId,
    },
    /// The last open of this process is closed.
    Close {
        /// An opened file.
        file: FileId,
    },
    /// A call is about to change names, of which a managed file has one or is to get one. Durable before it is answered (`Done`), unless
    /// no managed file is concerned. Nobody else may change these names until it ends: refused with `NameInUse` while somebody
    /// does, with `NameChanged` if other files stand there than the request says, and with `NotPermitted` to a user who may not change them.
    ///
    /// `number` is the client's, and its alone. Descriptors (O_PATH is enough) ride along: of the target's directory and, but for a
    /// removal, of the source's; of the stub that stands at the target, if `victim` says so; of the file that stands at the source, or of one
    /// without a name that is about to get that.
    BeginNameChange {
        /// Random; `EndNameChange` repeats it.
        number: u64,
        /// What happens to the names.
        call: NameCall,
        /// Name in the source's directory; `None` for a removal and where a file without a name
        /// gets one.
        source: Option<Vec<u8>>,
        /// Name in the target's directory.
        target: Vec<u8>,
        /// The managed file whose stub stands at the target, if one does.
        victim: Option<FileId>,
        /// The managed file whose stub stands at the source, if one does.
        mover: Option<FileId>,
    },
    /// The call returned. The victim's descriptor rides along if there is one. Frees its data once no name and no user is left.
    EndNameChange {
        /// Of the `BeginNameChange`.
        number: u64,
        /// Whether the call succeeded; if not, the names are as they were.
        done: bool,
    },
    /// Opens an object on behalf of a client whom the object's mode would refuse but whose stub descriptor permits it (a file
    /// created read-only, a mode changed after the open). Answer: `Object` with the descriptor.
    OpenObject {
        /// An opened file.
        file: FileId,
        /// Region of the object.
        region: RegionIndex,
        /// Of the place or replica that it belongs to.
        generation: Generation,
        /// Number of the server that stores it.
        server: u16,
    },
    /// Which file's stub the descriptor (O_PATH is enough) is open on, for a client that may not read the stub. Answer: `Found`.
    Find,
    /// Whether a plan expects a new file at this absolute path, for a client that was told directories in the place of names that were too many.
    /// Answer: `Expected`.
    IsExpected {
        /// Absolute, with no symbolic link.
        path: String,
    },
    /// Administration; the connection's peer must be the broker's own user or root.
    Admin(Admin),
}

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
        /// The last [`ObservedFile::number`] that was answered; 0 at first.
        after: u64,
        /// Begins an observation of its own.
        reset: bool,
    },
    /// The memory in which the requests on a file are noted. Answer: `Opened`, not writable, with the same descriptors as of `Open`.
    ObservedMemory {
        /// A file that `Observe` has named.
        file: FileId,
    },
    /// `Expect` of many files at once, durable together. What is as it was costs nothing.
    ExpectFiles {
        /// As many as a packet holds.
        files: Vec<ExpectedFile>,
    },
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
    /// The request was refused.
    Refused(Refusal),
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
    pub read_cost: ReadCost,
}

/// What a read takes on a server that is not busy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReadCost {
    /// Before the first byte, in ns.
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

/// Why the broker refused a request. The client maps each refusal to one errno, exhaustively.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another protocol version: `EIO`.
    #[error("the broker speaks protocol {broker}, the client {client}; use one version of stripewise")]
    Version {
        /// Its [`PROTOCOL_VERSION`].
        broker: u32,
        /// The version in the client's hello.
        client: u32,
    },
    /// `ESTALE`.
    #[error("no file {file} in this cluster")]
    UnknownFile {
        /// As the request named it.
        file: FileId,
    },
    /// `ESTALE`.
    #[error("{path} is a copy of the stub of file {file}, not the stub itself; run `stripewise check`")]
    CopiedStub {
        /// The file that the text names.
        file: FileId,
        /// Where the real stub was last seen.
        path: String,
    },
    /// `ESTALE`.
    #[error("the stub belongs to cluster {stub}, this is {cluster}")]
    OtherCluster {
        /// Cluster in the stub's text.
        stub: String,
        /// The broker's cluster.
        cluster: String,
    },
    /// `EACCES`.
    #[error("the descriptor does not permit this")]
    NotPermitted,
    /// No free space: `ENOSPC`.
    #[error("no space: {what}")]
    NoSpace {
        /// What there is no space for, and where.
        what: String,
    },
    /// A server is not usable: `EIO`. `what` names the server.
    #[error("{what}")]
    Server {
        /// Name of the server.
        server: String,
        /// The server's error, with its name.
        what: String,
    },
    /// The file is held exclusively: `EBUSY`.
    #[error("file {file} is held by {holder}")]
    Busy {
        /// The file.
        file: FileId,
        /// Who holds it, for people.
        holder: String,
    },
    /// As `Busy`, by `apply` or `release`: an open waits 20 s for their end, then fails with `EBUSY`.
    #[error("file {file} is held by {holder}, which has not ended in time; end it, or wait and try again")]
    Held {
        /// The file.
        file: FileId,
        /// Who holds it, for people.
        holder: String,
    },
    /// The client asks again for 20 s, then fails with `EBUSY`.
    #[error("the name {path} is being changed by another process")]
    NameInUse {
        /// The name in question.
        path: String,
    },
    /// Another file has the name than the client saw. The client looks the name up again: `EBUSY`.
    #[error("another file stands at {path} than when it was looked at")]
    NameChanged {
        /// The name in question.
        path: String,
    },
    /// Beyond the largest file: `EFBIG`.
    #[error("too large: {what}")]
    TooLarge {
        /// What is too large, and the limit.
        what: String,
    },
    /// A request that makes no sense: `EINVAL`.
    #[error("{what}")]
    Invalid {
        /// The value and the remedy.
        what: String,
    },
    /// The mapping table failed: `EIO`.
    #[error("mapping table: {what}")]
    Table {
        /// The table's error.
        what: String,
    },
}
