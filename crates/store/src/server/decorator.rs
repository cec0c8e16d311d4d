//! What stands before a store: every call but transfers passes through one function.
//!
//! A decorator names its inner store and overrides what it is for; the rest is the inner store's. [`Operation`] is a call as a value: it can be looked at,
//! kept, and run on a store by another thread.

use super::calls::Call;
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

    /// Every call that is made alone, but [`Self::submit`].
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

    /// [`ObjectStore::perform_batch`].
    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        for call in batch {
            call.completion = Some(self.perform(call.operation.clone()));
        }
        others();
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

    /// Of [`Operation::Objects`].
    pub fn into_objects(self, server: &str) -> Result<Vec<ObjectName>, ServerError> {
        match self {
            Outcome::Objects(found) => Ok(found),
            other => misfit(server, &other),
        }
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

    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        Decorator::perform_batch(self, batch, others);
    }

    fn probe(&self) -> Result<(), ServerError> {
        self.perform(Operation::Probe)?.into_done(Decorator::name(self))
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        self.perform(Operation::Standing)?.into_standing(Decorator::name(self))
    }

    fn create(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.perform(Operation::Create(object, ownership))?.into_done(Decorator::name(self))
    }

    fn open_as(&self, object: ObjectName, mode: OpenMode) -> Result<ObjectHandle, ServerError> {
        self.perform(Operation::Open(object, mode))?.into_handle(Decorator::name(self))
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        self.perform(Operation::Size(object))?.into_size(Decorator::name(self))
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        self.perform(Operation::Truncate(object, length))?.into_done(Decorator::name(self))
    }

    fn sync(&self, handle: Handle<'_>) -> Result<(), ServerError> {
        self.perform(Operation::Sync(handle))?.into_done(Decorator::name(self))
    }

    fn sync_names(&self, file: FileId) -> Result<(), ServerError> {
        self.perform(Operation::SyncNames(file))?.into_done(Decorator::name(self))
    }

    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.perform(Operation::SetOwnership(object, ownership))?.into_done(Decorator::name(self))
    }

    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        self.perform(Operation::Remove(object))?.into_done(Decorator::name(self))
    }

    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        self.perform(Operation::RemoveFile(file))?.into_done(Decorator::name(self))
    }

    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        let operation = Operation::Describe { file, head: head.into(), lines: lines.into() };
        self.perform(operation)?.into_bytes(Decorator::name(self))
    }

    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        self.perform(Operation::DescribeAgain { file, text: text.into() })?.into_done(Decorator::name(self))
    }

    fn sync_description(&self, file: FileId) -> Result<(), ServerError> {
        self.perform(Operation::SyncDescription(file))?.into_done(Decorator::name(self))
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        self.perform(Operation::Descriptions)?.into_descriptions(Decorator::name(self))
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        self.perform(Operation::Objects)?.into_objects(Decorator::name(self))
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        self.perform(Operation::FreeBytes)?.into_bytes(Decorator::name(self))
    }

    fn is_changing(&self, file: FileId) -> bool {
        Decorator::is_changing(self, file)
    }

    fn device_time(&self) -> Option<&dyn DeviceTime> {
        Decorator::device_time(self)
    }
}
