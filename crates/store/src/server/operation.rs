//! The calls of a store as values: what is asked, what came of it, and a call on its way.

use super::transfer::{Handle, ObjectHandle};
use super::{ObjectName, ObjectSize, Ownership, ServerError};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use stripewise_layout::FileId;

/// A server on which objects can be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// Bytes that new objects may take.
    pub free_bytes: u64,
    /// Bytes of the store in all, those included that others fill.
    pub total_bytes: u64,
    /// Servers of one number share their free space; `None`: with nobody.
    pub file_system: Option<u64>,
}

/// How an object is opened.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OpenMode {
    /// For reads and writes; otherwise for reads alone.
    pub writable: bool,
    /// Past the page cache, where the store has one and can: memory, offsets and lengths are then aligned to [`super::transfer::DIRECT_BYTES`].
    pub direct: bool,
}

/// A call of a store. See the method of [`super::ObjectStore`] with its name.
#[derive(Clone, Debug)]
pub enum Operation<'a> {
    /// [`probe`](super::ObjectStore::probe).
    Probe,
    /// [`standing`](super::ObjectStore::standing).
    Standing,
    /// [`create`](super::ObjectStore::create).
    Create {
        /// The object.
        object: ObjectName,
        /// Its owner and mode.
        ownership: Ownership,
        /// Bytes from its begin on that will be written soon.
        expected_bytes: u64,
    },
    /// [`open_as`](super::ObjectStore::open_as).
    Open(ObjectName, OpenMode),
    /// [`size`](super::ObjectStore::size).
    Size(ObjectName),
    /// [`truncate`](super::ObjectStore::truncate).
    Truncate(ObjectName, u64),
    /// [`sync`](super::ObjectStore::sync).
    Sync(Handle<'a>),
    /// [`sync_names`](super::ObjectStore::sync_names).
    SyncNames(FileId),
    /// [`set_ownership`](super::ObjectStore::set_ownership).
    SetOwnership(ObjectName, Ownership),
    /// [`remove`](super::ObjectStore::remove).
    Remove(ObjectName),
    /// [`remove_file`](super::ObjectStore::remove_file).
    RemoveFile(FileId),
    /// [`describe`](super::ObjectStore::describe).
    Describe {
        /// The file described.
        file: FileId,
        /// What a new description begins with.
        head: Cow<'a, str>,
        /// What is appended.
        lines: Cow<'a, str>,
    },
    /// [`describe_again`](super::ObjectStore::describe_again).
    DescribeAgain {
        /// The file described.
        file: FileId,
        /// The whole description.
        text: Cow<'a, str>,
    },
    /// [`sync_description`](super::ObjectStore::sync_description).
    SyncDescription(FileId),
    /// [`descriptions`](super::ObjectStore::descriptions).
    Descriptions,
    /// [`objects`](super::ObjectStore::objects).
    Objects,
    /// [`free_bytes`](super::ObjectStore::free_bytes).
    FreeBytes,
    /// [`fence_host`](super::ObjectStore::fence_host).
    FenceHost {
        /// The host that is shut out.
        host: Cow<'a, str>,
        /// The highest admission with which it does not come in any more.
        admission: u64,
    },
    /// These, each after the one before it succeeded; the first error is the whole call's.
    InTurn(Vec<Self>),
}

impl Operation<'_> {
    /// A [`Self::Create`] of an object of which nobody knows how long it becomes.
    #[must_use]
    pub fn create(object: ObjectName, ownership: Ownership) -> Self {
        Operation::Create { object, ownership, expected_bytes: 0 }
    }
}

/// What a call gave.
#[derive(Debug)]
pub enum Outcome {
    /// Of calls that return nothing.
    Done,
    /// Of [`Operation::Open`].
    Handle(ObjectHandle),
    /// Of [`Operation::Size`].
    Size(ObjectSize),
    /// Of [`Operation::Standing`].
    Standing(Standing),
    /// Of a text, or free.
    Bytes(u64),
    /// Of [`Operation::Descriptions`].
    Descriptions(Vec<(FileId, String)>),
    /// Of [`Operation::Objects`].
    Objects(Vec<ObjectName>),
    /// Of [`Operation::InTurn`]: of each of its calls.
    InTurn(Vec<Self>),
}

/// A call on its way.
pub struct Call<'a> {
    /// What is asked of the store.
    pub operation: Operation<'a>,
    /// What it gave, once it is over.
    pub completion: Option<Result<Outcome, ServerError>>,
}

impl<'a> Call<'a> {
    /// A call that has not begun.
    #[must_use]
    pub fn new(operation: Operation<'a>) -> Self {
        Self { operation, completion: None }
    }
}

/// A store gave another kind of answer than the call has.
fn misfit<T>(server: &str, outcome: &Outcome) -> Result<T, ServerError> {
    Err(ServerError::Unusable { server: server.to_owned(), what: format!("it answered another question: {outcome:?}") })
}

/// What a call of the store `server` gave, as the kind of answer that this call has.
///
/// # Errors
/// [`ServerError::Unusable`] if it is an answer to another question.
#[allow(clippy::missing_errors_doc, reason = "said of all methods together")]
impl Outcome {
    /// Of calls that return nothing.
    pub fn into_done(self, server: &str) -> Result<(), ServerError> {
        match self {
            Outcome::Done => Ok(()),
            other => misfit(server, &other),
        }
    }

    /// Of [`Operation::Open`].
    pub fn into_handle(self, server: &str) -> Result<ObjectHandle, ServerError> {
        match self {
            Outcome::Handle(handle) => Ok(handle),
            other => misfit(server, &other),
        }
    }

    /// Of [`Operation::Size`].
    pub fn into_size(self, server: &str) -> Result<ObjectSize, ServerError> {
        match self {
            Outcome::Size(size) => Ok(size),
            other => misfit(server, &other),
        }
    }

    /// Of [`Operation::Standing`].
    pub fn into_standing(self, server: &str) -> Result<Standing, ServerError> {
        match self {
            Outcome::Standing(standing) => Ok(standing),
            other => misfit(server, &other),
        }
    }

    /// Of [`Operation::Describe`] and [`Operation::FreeBytes`].
    pub fn into_bytes(self, server: &str) -> Result<u64, ServerError> {
        match self {
            Outcome::Bytes(bytes) => Ok(bytes),
            other => misfit(server, &other),
        }
    }

    /// Of [`Operation::Descriptions`].
    pub fn into_descriptions(self, server: &str) -> Result<Vec<(FileId, String)>, ServerError> {
        match self {
            Outcome::Descriptions(found) => Ok(found),
            other => misfit(server, &other),
        }
    }

    /// Of [`Operation::InTurn`].
    pub fn into_turns(self, server: &str) -> Result<Vec<Self>, ServerError> {
        match self {
            Outcome::InTurn(outcomes) => Ok(outcomes),
            other => misfit(server, &other),
        }
    }

    /// Of [`Operation::Objects`].
    pub fn into_objects(self, server: &str) -> Result<Vec<ObjectName>, ServerError> {
        match self {
            Outcome::Objects(found) => Ok(found),
            other => misfit(server, &other),
        }
    }
}
