//! What every kind of server does: the trait of object stores, and what a store says of itself.

use super::operation::{Call, OpenMode, Standing};
use super::transfer::{Handle, How, LentTransfer, Memory, ObjectHandle, Then, Transfer};
use super::{Due, ObjectName, ObjectSize, Ownership, ServerError};
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::{Direction, FileId, ObjectOffset, RequestKind};

/// What a sub-request is expected to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Predicted {
    /// Behind what was there before, ns.
    pub wait_ns: u64,
    /// Its own time, ns.
    pub service_ns: u64,
    /// Of that the time at the station that it holds longest: so long others wait for it at most.
    pub held_ns: u64,
}

/// What `sync` of a file has to ask of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syncing {
    /// [`ObjectStore::sync`] of what was written, and [`ObjectStore::sync_names`] of what was created.
    DataAndNames,
    /// Nothing: what a call has answered is as durable as the store is.
    Nothing,
}

/// Whose free space a store's is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreeSpace {
    /// Nobody else's.
    Own,
    /// That of all servers of one number in [`Standing::file_system`].
    OfFileSystem,
}

/// What a store can do. It never changes while the store is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Handles are plain descriptors, whose reads, writes and syncs a client may also ask of the kernel itself, several at once.
    pub plain_descriptors: bool,
    /// Transfers of one [`ObjectStore::submit`] are under way together with those of other stores, though handles are no plain descriptors. So are calls of
    /// one [`ObjectStore::perform_batch`].
    pub overlaps: bool,
    /// Objects have an owner and a mode, which the store enforces.
    pub ownership: bool,
    /// What makes writes durable.
    pub syncing: Syncing,
    /// A write can be made to fail where the object's epoch has passed. No store of one host needs that: lanes keep late writers out.
    pub guarded_writes: bool,
    /// [`ObjectStore::fence_host`] can be done, and hosts that share a cluster can use the store at once.
    pub fences_hosts: bool,
    /// Longest object, in bytes.
    pub max_object_bytes: u64,
    /// What one host has written every other host reads.
    pub coherent_between_hosts: bool,
    /// Whether other servers fill the same space.
    pub free_space: FreeSpace,
}

impl Capabilities {
    /// Of a store of which nothing is known yet: it promises nothing.
    pub const UNKNOWN: Self = Self {
        plain_descriptors: false,
        overlaps: false,
        ownership: true,
        syncing: Syncing::DataAndNames,
        guarded_writes: false,
        fences_hosts: false,
        max_object_bytes: i64::MAX as u64,
        coherent_between_hosts: false,
        free_space: FreeSpace::OfFileSystem,
    };
}

/// The time that an emulated device takes.
pub trait DeviceTime {
    /// Takes the device's time for a sub-request and returns when it will be done, for its process: of a buffered write that may be at once.
    fn reserve(&self, kind: RequestKind, object: ObjectName, offset: ObjectOffset, length: u64) -> Due;

    /// Takes the device's time for what buffered writes left of the object, and returns when it will be written. `None` where that is nothing ever.
    fn write_back_due(&self, object: ObjectName) -> Due;

    /// What a sub-request issued now would take; nothing is reserved. `None`: it would take no time.
    fn predict(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, length: u64)
    -> Option<Predicted>;
}

/// One place that stores objects. Methods may be called from any thread.
///
/// # Errors
/// Every call returns a [`ServerError`] that names the server and what failed.
#[allow(clippy::missing_errors_doc, reason = "said of all methods together")]
pub trait ObjectStore: Send + Sync {
    /// As in the cluster file.
    fn name(&self) -> &str;

    /// What the store can do; the same at every call.
    fn capabilities(&self) -> Capabilities;

    /// Whether no call waits for a device or another host, so that it takes less than to hand it to another thread. What stands before a server
    /// ([`super::Decorator`]) never says so.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Begins every transfer of the batch, calls `others` once, in which other stores begin theirs, and returns when all transfers of the batch are
    /// over: each has its completion then, and nobody uses its memory any more. A store that answers from memory does them in turn.
    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut());

    /// Begins a transfer of an object in use and returns, at once where the store can; `then` is called when it is over, maybe before this returns and maybe by
    /// another thread.
    ///
    /// # Safety
    /// The memory stays valid, and nobody else uses it, until `then` is called.
    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        // SAFETY: the memory is lent until `then` is called.
        let result = unsafe { transfer.run(|batch| self.submit(batch, &mut || ())) };
        then(result.unwrap_or_else(|| {
            let what = "it ended a transfer without saying how".to_owned();
            Err(ServerError::Unusable { server: self.name().to_owned(), what })
        }));
    }

    /// Asks for an object's length as [`Self::begin`] moves bytes: `then` gets it.
    fn begin_size(&self, object: ObjectName, then: Then) {
        then(self.size(object).map(|size| size.end_bytes as usize));
    }

    /// The same for calls other than transfers. They may be done in any order.
    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut());

    /// That the server is there and is the one the cluster means (its marker), before anything is placed on it.
    fn probe(&self) -> Result<(), ServerError>;

    /// That new objects can be made here, and what free space there is for them.
    fn standing(&self) -> Result<Standing, ServerError>;

    /// Makes an empty object; [`ServerError::Exists`] if the name was used. That so many bytes from its begin on will be written soon is advice: a store may
    /// set space aside for them, so that they lie together.
    fn create_expecting(
        &self,
        object: ObjectName,
        ownership: Ownership,
        expected_bytes: u64,
    ) -> Result<(), ServerError>;

    /// Opens an object; [`ServerError::Missing`] if there is none.
    fn open_as(&self, object: ObjectName, mode: OpenMode) -> Result<ObjectHandle, ServerError>;

    /// The object's end and the bytes that it occupies.
    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError>;

    /// Truncates an object that is longer; a shorter one stays.
    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError>;

    /// Makes durable what was written to the object.
    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError>;

    /// Makes the names of a file's new objects durable.
    fn sync_names(&self, file: FileId) -> Result<(), ServerError>;

    /// Gives an object the mode and owner of its file.
    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError>;

    /// Frees an object; one that is not there is no error (frees are repeated after a crash).
    fn remove(&self, object: ObjectName) -> Result<(), ServerError>;

    /// Frees what is left of a file here.
    fn remove_file(&self, file: FileId) -> Result<(), ServerError>;

    /// Appends to the file's description here, which begins with `head`; durable with the next [`Self::sync_names`] or
    /// [`Self::sync_description`]. Returns how long the text is now.
    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError>;

    /// Replaces the file's description here, durably.
    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError>;

    /// Makes what was appended durable.
    fn sync_description(&self, file: FileId) -> Result<(), ServerError>;

    /// The descriptions of all files that have any here, for repairs.
    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError>;

    /// Every object here, for `check`.
    fn objects(&self) -> Result<Vec<ObjectName>, ServerError>;

    /// Free bytes of the underlying store.
    fn free_bytes(&self) -> Result<u64, ServerError>;

    /// Shuts out the agent of another host of the cluster: when this returns, nothing that it has sent or will send takes effect any more, until it
    /// opens the server with an admission above this one. A host that never opened the server is no error. An error where the store cannot do
    /// that ([`Capabilities::fences_hosts`]).
    fn fence_host(&self, host: &str, _admission: u64) -> Result<(), ServerError> {
        let what = format!("it cannot shut out host {host}, which may go on writing");
        Err(ServerError::Unusable { server: self.name().to_owned(), what })
    }

    /// Whether this client was shut out, as far as its calls have shown.
    fn is_shut_out(&self) -> bool {
        false
    }

    /// Whether a truncation of one of the file's objects, of which the caller was told that it failed, may yet happen.
    fn is_changing(&self, _file: FileId) -> bool {
        false
    }

    /// Of an emulated server.
    fn device_time(&self) -> Option<&dyn DeviceTime> {
        None
    }

    /// As [`Self::create_expecting`], of an object of which nobody knows how long it becomes.
    fn create(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.create_expecting(object, ownership, 0)
    }

    /// As [`Self::open_as`], through the page cache.
    fn open(&self, object: ObjectName, writable: bool) -> Result<ObjectHandle, ServerError> {
        self.open_as(object, OpenMode { writable, direct: false })
    }

    /// One transfer: reads at most the buffers' length; a shorter count means the object ends there.
    #[inline]
    fn read_at(
        &self,
        handle: Handle<'_>,
        offset: ObjectOffset,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize, ServerError> {
        let mut transfer = [Transfer::new(handle, offset, Memory::to_fill(buffers), How::default())];
        self.submit(&mut transfer, &mut || ());
        let [transfer] = transfer;
        transfer.into_result(self.name())
    }

    /// One transfer: writes at most the buffers' length; may be short as `pwritev` may.
    #[inline]
    fn write_at(
        &self,
        handle: Handle<'_>,
        offset: ObjectOffset,
        buffers: &[IoSlice<'_>],
        how: How,
    ) -> Result<usize, ServerError> {
        let mut transfer = [Transfer::new(handle, offset, Memory::to_take(buffers), how)];
        self.submit(&mut transfer, &mut || ());
        let [transfer] = transfer;
        transfer.into_result(self.name())
    }
}
