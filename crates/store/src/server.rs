//! Servers: independent places that store objects.
//!
//! [`ServerBackend`] is the seam for every kind of server. A kind is added by one module below this one and one arm in [`open`].
//! An object is created before its first data; a missing object is an error, never zeros; an object shorter than a read is zeros
//! beyond its end, which the caller fills in.

pub mod directory;
pub mod emulated;
pub mod pace;
pub mod stations;
pub mod watched;

use rustix::fd::{BorrowedFd, OwnedFd};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_layout::{Direction, FileId, Generation, ObjectOffset, RegionIndex, ServerId, ServerUrl};

/// Opens server `number`, called `name`, of the cluster with id `cluster`. A server that is not there now opens all the same:
/// [`ServerBackend::probe`] and every call say what is wrong. With `stations` an emulated server takes its device's time; without
/// (the broker, the command) it is as fast as the host.
pub fn open(
    cluster: &str,
    number: ServerId,
    name: &str,
    url: &ServerUrl,
    stations: Option<&Arc<stations::Stations>>,
) -> Result<Box<dyn ServerBackend>, ServerError> {
    let directory = directory::DirectoryServer::new(cluster, name, url.directory());
    match (url, stations) {
        (ServerUrl::Emulated { device, link, time_scale, .. }, Some(stations)) => {
            let spec = emulated::EmulatedSpec::named(device, link.as_deref(), *time_scale)
                .map_err(|unknown| ServerError::Unusable { server: name.to_owned(), what: unknown.to_string() })?;
            Ok(Box::new(emulated::EmulatedServer::new(directory, Arc::clone(stations), number, spec)))
        }
        (ServerUrl::File { .. } | ServerUrl::Emulated { .. }, _) => Ok(Box::new(directory)),
    }
}

/// One generation of one region on one server. Names are never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectName {
    pub file: FileId,
    pub region: RegionIndex,
    pub generation: Generation,
}

impl std::fmt::Display for ObjectName {
    /// As the object's path below the directory of objects.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}.{}", self.file, self.region, self.generation)
    }
}

/// Set in the generation of a region that was moved: its objects were durable before the table named them, and an emulated disk lays them apart.
const MOVED: u32 = 1 << 31;
/// First line of the text that describes a file's layout ([`ServerBackend::descriptions`]).
pub const FIRST_LINE_OF_DESCRIPTIONS: &str = "stripewise description 1";

/// Highest number of a generation, without the mark of the moved.
pub const MAX_ORDINAL: u32 = MOVED - 1;

/// The generation number `ordinal` of a file, made by a move.
#[must_use]
pub fn moved_generation(ordinal: u32) -> Generation {
    Generation(ordinal | MOVED)
}

#[must_use]
pub fn is_moved(generation: Generation) -> bool {
    generation.0 & MOVED != 0
}

/// The generation's number in its file, whether it was moved or not.
#[must_use]
pub fn ordinal(generation: Generation) -> u32 {
    generation.0 & !MOVED
}

/// Mode and owner that an object takes over from its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ownership {
    /// Permission bits, the read and write ones of which count.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("server {server}: object {object} is missing")]
    Missing { server: String, object: ObjectName },
    #[error("server {server}: object {object} exists already")]
    Exists { server: String, object: ObjectName },
    #[error("server {server}: {what}")]
    Unusable { server: String, what: String },
    #[error(
        "server {server} has not answered for {waited_s} s; see to its mount: what needs it goes on when it answers"
    )]
    NotAnswering { server: String, waited_s: u64 },
    #[error("server {server}: no space left")]
    NoSpace { server: String },
    #[error("server {server}: permission denied")]
    Denied { server: String },
    #[error("server {server}: {action}: {source}")]
    Os { server: String, action: &'static str, source: rustix::io::Errno },
}

/// When a sub-request is done, in ns of CLOCK_MONOTONIC; `None`: when its system call returns.
pub type Due = Option<u64>;

/// A server on which objects can be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    pub free_bytes: u64,
    /// Servers of one number share their free space; `None`: with nobody.
    pub file_system: Option<u64>,
}

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

/// An open object.
#[derive(Debug)]
pub struct ObjectHandle {
    pub descriptor: OwnedFd,
}

/// One place that stores objects. Methods may be called from any thread.
pub trait ServerBackend: Send + Sync {
    fn name(&self) -> &str;

    /// That the server is there and is the one the cluster means (its marker), before anything is placed on it.
    fn probe(&self) -> Result<(), ServerError>;

    /// That new objects can be made here, and what free space there is for them.
    fn standing(&self) -> Result<Standing, ServerError> {
        self.probe()?;
        Ok(Standing { free_bytes: self.free_bytes()?, file_system: None })
    }

    /// Makes an empty object; [`ServerError::Exists`] if the name was used.
    fn create(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError>;

    /// Opens for reading, and for writing if `writable`; [`ServerError::Missing`] if there is none.
    fn open(&self, object: ObjectName, writable: bool) -> Result<ObjectHandle, ServerError>;

    /// Reserves the device's time for a sub-request and says when it will be done. Real servers return `None`.
    fn reserve(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, length: u64) -> Due;

    /// What a sub-request issued now would take; nothing is reserved. `None`: the server cannot tell.
    fn predict(
        &self,
        _direction: Direction,
        _object: ObjectName,
        _offset: ObjectOffset,
        _length: u64,
    ) -> Option<Predicted> {
        None
    }

    /// Reads at most the buffers' length; a shorter count means the object ends there.
    fn read_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize, ServerError>;

    /// Writes at most the buffers' length; may be short as `pwritev` may.
    fn write_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, ServerError>;

    /// As [`Self::write_at`], of an object that programs use: however long it takes, the caller learns what became of it.
    fn write_in_place(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, ServerError> {
        self.write_at(handle, offset, buffers)
    }

    /// Whether a handle is a plain descriptor whose reads and syncs a client may also ask of the kernel itself, several at once.
    fn has_plain_handles(&self) -> bool {
        false
    }

    /// Bytes that the object holds (its end) and bytes that it occupies.
    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError>;

    /// Cuts an object that is longer; a shorter one stays.
    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError>;

    fn sync(&self, handle: BorrowedFd<'_>) -> Result<(), ServerError>;

    /// Makes the names of a file's new objects durable.
    fn sync_names(&self, file: FileId) -> Result<(), ServerError>;

    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError>;

    /// Frees an object; one that is not there is no error (frees are repeated after a crash).
    fn remove(&self, object: ObjectName) -> Result<(), ServerError>;

    /// Frees what is left of a file here.
    fn remove_file(&self, file: FileId) -> Result<(), ServerError>;

    /// Appends to the file's [`description`] here, which begins with `head`; durable with the next [`Self::sync_names`] or
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

    /// Whether a cut of one of the file's objects, of which the caller was told that it failed, may yet happen.
    fn is_changing(&self, _file: FileId) -> bool {
        false
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectSize {
    pub end_bytes: u64,
    pub occupied_bytes: u64,
}
