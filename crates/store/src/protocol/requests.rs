//! What a process with open files asks of the broker.
//!
//! Reads and writes are not among the requests: they use mapped memory and the servers. The requests
//! that only the broker's own user and root may make are in `admin`.

use super::Admin;
use serde::{Deserialize, Serialize};
use stripewise_layout::{FileId, Generation, RegionIndex};

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

/// What a client asks of the broker. Descriptors that ride along are named with each request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// First on every connection. Answer: [`Reply::Welcome`](super::Reply::Welcome) with the descriptor of `stations`, if any server is emulated.
    Hello {
        /// [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION) of the client.
        version: u32,
    },
    /// Right after taking a process slot: lets the broker recognise what a dead client left there.
    Claimed {
        /// Number of the slot ([`crate::shared::process_slot::ProcessSlot`]).
        slot: u16,
        /// Of the claim of that slot ([`crate::shared::process_slot::Incarnation`]).
        incarnation: u64,
    },
    /// Open the managed file whose stub's descriptor rides along. Answer: [`Reply::Opened`](super::Reply::Opened) with the descriptors of control block, extent and slots.
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
        /// By chance, the same when it is asked for again: where hosts share the file, the next master knows by it what the last one did. 0: it is asked for once.
        number: u64,
    },
    /// Truncate the objects to the size after a write that failed in the middle: a later write beyond the size must leave a hole of
    /// zeros. Needs a file opened for writing.
    Tidy {
        /// An opened file.
        file: FileId,
    },
    /// The shared memory of the file's fragments, made now if there is none. Answer: [`Reply::Fragments`](super::Reply::Fragments) with the descriptors of table (to be written
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
    /// Give the first region of a file what a write of at most its first `bytes` bytes needs, if it has no objects: that of its first stripe alone where
    /// these bytes fit there, otherwise all. `Place` makes the others later. Needs a file opened for writing. Answer: as `Place`.
    Begin {
        /// An opened file.
        file: FileId,
        /// The end of the write.
        bytes: u64,
    },
    /// Something that happened and needs no answer: none is sent, and the client goes on at once. It takes effect in its turn among the requests of the
    /// connection. One that a broker did not hear before its end needs no repetition, unless it says so.
    Unanswered(Event),
    /// The client is about to close an ordinary file, whose descriptor rides along, open for writing. If it is larger than the minimum size of its
    /// managed directory, the broker makes it managed once nobody has it open.
    Closing,
    /// As `Linked` and then `Begin` of the same file, in one.
    LinkedAndBegin {
        /// As `Create` was answered.
        file: FileId,
        /// The end of the write.
        bytes: u64,
    },
    /// The lane of this process ([`crate::shared::agent_lane`]) rides along: from here on the broker does what is submitted there, for the files that this
    /// connection has opened. After a change of the broker it is sent again. Answer: `Done`.
    Lane,
    /// What other hosts have made of these regions and of the size: afterwards the control block and the size show at least what any host had acknowledged
    /// before this request. `last` may lie beyond the end of the file. With one host, shared memory shows all of that anyway.
    Refresh {
        /// An opened file.
        file: FileId,
        /// The first region that is wanted.
        first: RegionIndex,
        /// The last region that is wanted, at least `first`.
        last: RegionIndex,
    },
    /// What the kernel's `sync` of all files lacks: write to the disks what is newer on SSDs, and make the sizes of all files durable that this host
    /// knows. `Done` once they are; the objects and their names are yet to be synced.
    SyncAll,
    /// The table of processes, for a process that has no descriptor of it ([`crate::shared::processes`]). Answer:
    /// [`Reply::Processes`](super::Reply::Processes).
    Processes,
}

impl Request {
    /// What is asked, in a word: the name under which requests are counted.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Hello { .. } => "hello",
            Self::Claimed { .. } => "claimed",
            Self::Open { .. } => "open",
            Self::Create { .. } => "create",
            Self::Linked { .. } => "linked",
            Self::Abandon { .. } => "abandon",
            Self::Place { .. } => "place",
            Self::Rescue { .. } => "rescue",
            Self::Pin { .. } => "pin",
            Self::Truncate { .. } => "truncate",
            Self::Tidy { .. } => "tidy",
            Self::Fragments { .. } => "fragments",
            Self::Flush { .. } => "flush",
            Self::Sync { .. } => "sync",
            Self::Attributes { .. } => "attributes",
            Self::Close { .. } => "close",
            Self::BeginNameChange { .. } => "begin_name_change",
            Self::EndNameChange { .. } => "end_name_change",
            Self::OpenObject { .. } => "open_object",
            Self::Find => "find",
            Self::IsExpected { .. } => "is_expected",
            Self::Admin(_) => "admin",
            Self::Begin { .. } => "begin",
            Self::Unanswered(Event::Linked { .. }) => "linked",
            Self::Unanswered(Event::Closed { .. }) => "close",
            Self::Unanswered(Event::Claimed { .. }) => "claimed",
            Self::Unanswered(Event::NameChanged { .. }) => "end_name_change",
            Self::Closing => "closing",
            Self::LinkedAndBegin { .. } => "linked_and_begin",
            Self::Lane => "lane",
            Self::Refresh { .. } => "refresh",
            Self::SyncAll => "sync_all",
            Self::Processes => "processes",
        }
    }
}

/// What a client reports without waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Event {
    /// As [`Request::Linked`]. A client may report it as late as before its next request about the file: what has no objects holds no data, and a close says as much. A successor of the broker finds the stub at its name when the file is opened again.
    Linked {
        /// As `Create` was answered.
        file: FileId,
    },
    /// As [`Request::Close`], of a file of which at most the size is to be recorded. To a successor of the broker it was never opened.
    Closed {
        /// An opened file.
        file: FileId,
    },
    /// As [`Request::Claimed`].
    Claimed {
        /// Number of the slot.
        slot: u16,
        /// Of the claim of that slot.
        incarnation: u64,
    },
    /// As [`Request::EndNameChange`] of a change that was made, to the broker that noted it and has its victim since. To a successor it is repeated as
    /// that request, unless an answer on the connection has shown that it was heard.
    NameChanged {
        /// The change's number.
        number: u64,
    },
}
