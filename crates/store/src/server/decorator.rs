//! What stands before a store: every call but transfers passes through one function.
//!
//! A decorator names its inner store and overrides what it is for; the rest is the inner store's. [`Operation`] is a call as a value: it can be looked at,
//! kept, and run on a store by another thread.

use super::store::{Capabilities, DeviceTime, ObjectStore, OpenMode, Standing};
use super::transfer::{Handle, ObjectHandle, Transfer};
use super::{ObjectName, ObjectSize, Ownership, ServerError};
use std::borrow::Cow;
use stripewise_layout::FileId;

/// A call of a store. See the method of [`ObjectStore`] with its name.
#[derive(Clone, Debug)]
pub enum Operation<'a> {
    /// [`ObjectStore::probe`].
    Probe,
    /// [`ObjectStore::standing`].
    Standing,
    /// [`ObjectStore::create`].
    Create(ObjectName, Ownership),
    /// [`ObjectStore::open_as`].
    Open(ObjectName, OpenMode),
    /// [`ObjectStore::size`].
    Size(ObjectName),
    /// [`ObjectStore::truncate`].
    Truncate(ObjectName, u64),
    /// [`ObjectStore::sync`].
    Sync(Handle<'a>),
    /// [`ObjectStore::sync_names`].
    SyncNames(FileId),
    /// [`ObjectStore::set_ownership`].
    SetOwnership(ObjectName, Ownership),
    /// [`ObjectStore::remove`].
    Remove(ObjectName),
    /// [`ObjectStore::remove_file`].
    RemoveFile(FileId),
    /// [`ObjectStore::describe`].
    Describe {
        /// The file described.
        file: FileId,
        /// What a new description begins with.
        head: Cow<'a, str>,
        /// What is appended.
        lines: Cow<'a, str>,
    },
    /// [`ObjectStore::describe_again`].
    DescribeAgain {
        /// The file described.
        file: FileId,
        /// The whole description.
        text: Cow<'a, str>,
    },
    /// [`ObjectStore::sync_description`].
    SyncDescription(FileId),
    /// [`ObjectStore::descriptions`].
    Descriptions,
    /// [`ObjectStore::objects`].
    Objects,
    /// [`ObjectStore::free_bytes`].
    FreeBytes,
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
}

impl Operation<'_> {
    /// Makes the call.
    ///
    /// # Errors
    /// The store's.
    pub fn run_on(&self, store: &dyn ObjectStore) -> Result<Outcome, ServerError> {
        let done = |()| Outcome::Done;
        match self {
            Operation::Probe => store.probe().map(done),
            Operation::Standing => store.standing().map(Outcome::Standing),
            Operation::Create(object, ownership) => store.create(*object, *ownership).map(done),
            Operation::Open(object, mode) => store.open_as(*object, *mode).map(Outcome::Handle),
            Operation::Size(object) => store.size(*object).map(Outcome::Size),
            Operation::Truncate(object, length) => store.truncate(*object, *length).map(done),
            Operation::Sync(handle) => store.sync(*handle).map(done),
            Operation::SyncNames(file) => store.sync_names(*file).map(done),
            Operation::SetOwnership(object, ownership) => store.set_ownership(*object, *ownership).map(done),
            Operation::Remove(object) => store.remove(*object).map(done),
            Operation::RemoveFile(file) => store.remove_file(*file).map(done),
            Operation::Describe { file, head, lines } => store.describe(*file, head, lines).map(Outcome::Bytes),
            Operation::DescribeAgain { file, text } => store.describe_again(*file, text).map(done),
            Operation::SyncDescription(file) => store.sync_description(*file).map(done),
            Operation::Descriptions => store.descriptions().map(Outcome::Descriptions),
            Operation::Objects => store.objects().map(Outcome::Objects),
            Operation::FreeBytes => store.free_bytes().map(Outcome::Bytes),
        }
    }

    /// The same with memory and handle of its own, to be run by another thread.
    pub(super) fn into_kept(self) -> Result<KeptOperation, rustix::io::Errno> {
        let own = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let operation = match self {
            Operation::Sync(handle) => return Ok(KeptOperation::Sync(handle.to_owned_handle()?)),
            Operation::Probe => Operation::Probe,
            Operation::Standing => Operation::Standing,
            Operation::Create(object, ownership) => Operation::Create(object, ownership),
            Operation::Open(object, mode) => Operation::Open(object, mode),
            Operation::Size(object) => Operation::Size(object),
            Operation::Truncate(object, length) => Operation::Truncate(object, length),
            Operation::SyncNames(file) => Operation::SyncNames(file),
            Operation::SetOwnership(object, ownership) => Operation::SetOwnership(object, ownership),
            Operation::Remove(object) => Operation::Remove(object),
            Operation::RemoveFile(file) => Operation::RemoveFile(file),
            Operation::Describe { file, head, lines } => {
                Operation::Describe { file, head: own(head), lines: own(lines) }
            }
            Operation::DescribeAgain { file, text } => Operation::DescribeAgain { file, text: own(text) },
            Operation::SyncDescription(file) => Operation::SyncDescription(file),
            Operation::Descriptions => Operation::Descriptions,
            Operation::Objects => Operation::Objects,
            Operation::FreeBytes => Operation::FreeBytes,
        };
        Ok(KeptOperation::Other(operation))
    }
}

/// An [`Operation`] that borrows nothing.
pub(super) enum KeptOperation {
    Sync(ObjectHandle),
    Other(Operation<'static>),
}

impl KeptOperation {
    pub(super) fn run_on(&self, store: &dyn ObjectStore) -> Result<Outcome, ServerError> {
        match self {
            KeptOperation::Sync(handle) => Operation::Sync(handle.as_handle()).run_on(store),
            KeptOperation::Other(operation) => operation.run_on(store),
        }
    }
}

/// What stands before another store.
pub trait Decorator: Send + Sync {
    /// # Errors
    /// Where there is no inner store yet, and none can be made.
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError>;

    /// [`ObjectStore::name`]; there also where there is no inner store.
    fn name(&self) -> &str;

    /// [`ObjectStore::capabilities`]; those of an unknown store where there is no inner one.
    fn capabilities(&self) -> Capabilities {
        self.inner().map_or(Capabilities::UNKNOWN, ObjectStore::capabilities)
    }

    /// Every call but [`Self::submit`].
    ///
    /// # Errors
    /// The inner store's, or this one's own.
    fn perform(&self, operation: Operation<'_>) -> Result<Outcome, ServerError> {
        operation.run_on(self.inner()?)
    }

    /// [`ObjectStore::submit`]; without an inner store the transfers are left without completion.
    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        match self.inner() {
            Ok(inner) => inner.submit(batch, others),
            Err(_) => others(),
        }
    }

    /// [`ObjectStore::is_changing`].
    fn is_changing(&self, file: FileId) -> bool {
        self.inner().is_ok_and(|inner| inner.is_changing(file))
    }

    /// [`ObjectStore::device_time`].
    fn device_time(&self) -> Option<&dyn DeviceTime> {
        self.inner().ok()?.device_time()
    }
}

/// A decorator gave another kind of answer than the call has.
fn misfit<T>(server: &str, outcome: &Outcome) -> Result<T, ServerError> {
    Err(ServerError::Unusable { server: server.to_owned(), what: format!("it answered another question: {outcome:?}") })
}

fn done(server: &str, outcome: Outcome) -> Result<(), ServerError> {
    match outcome {
        Outcome::Done => Ok(()),
        other => misfit(server, &other),
    }
}

fn bytes(server: &str, outcome: Outcome) -> Result<u64, ServerError> {
    match outcome {
        Outcome::Bytes(bytes) => Ok(bytes),
        other => misfit(server, &other),
    }
}

impl<D: Decorator> ObjectStore for D {
    fn name(&self) -> &str {
        Decorator::name(self)
    }

    fn capabilities(&self) -> Capabilities {
        Decorator::capabilities(self)
    }

    #[inline]
    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        Decorator::submit(self, batch, others);
    }

    fn probe(&self) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::Probe)?)
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        match self.perform(Operation::Standing)? {
            Outcome::Standing(standing) => Ok(standing),
            other => misfit(Decorator::name(self), &other),
        }
    }

    fn create(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::Create(object, ownership))?)
    }

    fn open_as(&self, object: ObjectName, mode: OpenMode) -> Result<ObjectHandle, ServerError> {
        match self.perform(Operation::Open(object, mode))? {
            Outcome::Handle(handle) => Ok(handle),
            other => misfit(Decorator::name(self), &other),
        }
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        match self.perform(Operation::Size(object))? {
            Outcome::Size(size) => Ok(size),
            other => misfit(Decorator::name(self), &other),
        }
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::Truncate(object, length))?)
    }

    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::Sync(handle))?)
    }

    fn sync_names(&self, file: FileId) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::SyncNames(file))?)
    }

    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::SetOwnership(object, ownership))?)
    }

    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::Remove(object))?)
    }

    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::RemoveFile(file))?)
    }

    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        bytes(
            Decorator::name(self),
            self.perform(Operation::Describe { file, head: head.into(), lines: lines.into() })?,
        )
    }

    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::DescribeAgain { file, text: text.into() })?)
    }

    fn sync_description(&self, file: FileId) -> Result<(), ServerError> {
        done(Decorator::name(self), self.perform(Operation::SyncDescription(file))?)
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        match self.perform(Operation::Descriptions)? {
            Outcome::Descriptions(found) => Ok(found),
            other => misfit(Decorator::name(self), &other),
        }
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        match self.perform(Operation::Objects)? {
            Outcome::Objects(found) => Ok(found),
            other => misfit(Decorator::name(self), &other),
        }
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        bytes(Decorator::name(self), self.perform(Operation::FreeBytes)?)
    }

    fn is_changing(&self, file: FileId) -> bool {
        Decorator::is_changing(self, file)
    }

    fn device_time(&self) -> Option<&dyn DeviceTime> {
        Decorator::device_time(self)
    }
}
