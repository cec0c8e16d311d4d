//! What stands before a store: every call but transfers passes through one function.
//!
//! A decorator names its inner store and overrides what it is for; the rest is the inner store's. [`Operation`] is a call as a value: it can be looked at,
//! kept, and run on a store by another thread.

use super::operation::{Call, OpenMode, Operation, Outcome, Standing};
use super::store::{Capabilities, DeviceTime, ObjectStore};
use super::transfer::{Handle, LentTransfer, ObjectHandle, Then, Transfer};
use super::{ObjectName, ObjectSize, Ownership, ServerError};
use stripewise_layout::FileId;

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

    /// [`ObjectStore::begin`]; by [`Self::submit`], so that what a decorator does there is done.
    ///
    /// # Safety
    /// As of [`ObjectStore::begin`].
    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        // SAFETY: the memory is lent until `then` is called.
        let result = unsafe { transfer.run(|batch| self.submit(batch, &mut || ())) };
        then(result.unwrap_or_else(|| {
            let what = "it ended a transfer without saying how".to_owned();
            Err(ServerError::Unusable { server: self.name().to_owned(), what })
        }));
    }

    /// [`ObjectStore::begin_size`]; by [`Self::perform`].
    fn begin_size(&self, object: ObjectName, then: Then) {
        let size = self.perform(Operation::Size(object)).and_then(|outcome| outcome.into_size(self.name()));
        then(size.map(|size| size.end_bytes as usize));
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

    /// [`ObjectStore::is_shut_out`].
    fn is_shut_out(&self) -> bool {
        self.inner().is_ok_and(ObjectStore::is_shut_out)
    }

    /// [`ObjectStore::device_time`].
    fn device_time(&self) -> Option<&dyn DeviceTime> {
        self.inner().ok()?.device_time()
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

    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        // SAFETY: the caller's promise.
        unsafe { Decorator::begin(self, transfer, then) };
    }

    fn begin_size(&self, object: ObjectName, then: Then) {
        Decorator::begin_size(self, object, then);
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

    fn create_expecting(
        &self,
        object: ObjectName,
        ownership: Ownership,
        expected_bytes: u64,
    ) -> Result<(), ServerError> {
        let operation = Operation::Create { object, ownership, expected_bytes };
        self.perform(operation)?.into_done(Decorator::name(self))
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

    fn fence_host(&self, host: &str, admission: u64) -> Result<(), ServerError> {
        self.perform(Operation::FenceHost { host: host.into(), admission })?.into_done(Decorator::name(self))
    }

    fn is_shut_out(&self) -> bool {
        Decorator::is_shut_out(self)
    }

    fn device_time(&self) -> Option<&dyn DeviceTime> {
        Decorator::device_time(self)
    }
}
