//! The files that this process has open: one entry for each file and access, shared by all opens of these.

use super::connection::Answer;
use super::stub::KeptStub;
use super::{Client, ClientError, Control, Core, identity_of, missing_descriptors, now, sleep, unexpected, utf8};
use crate::descriptors::Received;
use crate::protocol::{Admin, Event, Refusal, Reply, Request};
use crate::shared::control::{ControlBlock, Life};
use crate::shared::extent::Extent;
use crate::shared::map;
use crate::shared::slots::Slots;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::OFlags;
use std::any::Any;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use stripewise_layout::{FileId, Placement};

/// Brokers that may end, one after the other, while a file is being made or opened.
const MAX_BROKERS: usize = 8;

/// An open file in the client's table.
pub(super) struct OpenEntry {
    /// What the layer above made of the open: a `StripedFile`.
    handle: Weak<dyn Any + Send + Sync>,
    pub(super) stub: Arc<KeptStub>,
    /// Device and inode of the control block.
    pub(super) control_identity: (u64, u64),
    pub(super) shared: Arc<SharedFile>,
}

/// The mapped memory of one open file, and whether it still is the broker's.
pub(super) struct SharedFile {
    pub(super) control: ControlBlock,
    pub(super) extent: Extent,
    pub(super) slots: Slots,
    /// Set when a successor of the broker made the file's control block again.
    pub(super) replaced: AtomicBool,
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        map::unmap_together([self.control.map_mut(), self.extent.map_mut(), self.slots.map_mut()]);
    }
}

/// A managed file that this process has open, and the memory that it shares with others. Closed at the latest when it is dropped.
pub(crate) struct OpenFile {
    core: Arc<Core>,
    file: FileId,
    writable: bool,
    shared: Arc<SharedFile>,
    is_closed: bool,
}

impl OpenFile {
    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    #[inline]
    pub(crate) fn id(&self) -> FileId {
        self.file
    }

    /// Whether it was opened for writing.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    #[inline]
    pub(crate) fn control(&self) -> &ControlBlock {
        &self.shared.control
    }

    #[inline]
    pub(crate) fn extent(&self) -> &Extent {
        &self.shared.extent
    }

    #[inline]
    pub(crate) fn slots(&self) -> &Slots {
        &self.shared.slots
    }

    /// Whether the shared memory is no longer the broker's.
    pub(crate) fn is_replaced(&self) -> bool {
        self.shared.replaced.load(Relaxed)
    }

    /// Closes it here, whatever becomes of telling the broker.
    pub(crate) fn close(&mut self) -> Result<(), ClientError> {
        if std::mem::replace(&mut self.is_closed, true) {
            return Ok(());
        }
        self.core.close(self.file, self.writable, &self.shared)
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

impl Client {
    /// See [`Client::open`]; `make` is what the layer above makes of a new open, once for all its users.
    pub(crate) fn open_with<H: Any + Send + Sync>(
        &self,
        stub: BorrowedFd<'_>,
        mut file: FileId,
        make: fn(OpenFile) -> H,
    ) -> Result<Arc<H>, ClientError> {
        let core = &self.core;
        let writable = is_writable(stub)?;
        let identity = identity_of(stub)?;
        let give_up_at = now() + core.options.patience;
        let mut pause = Duration::from_millis(1);
        loop {
            match self.try_open(stub, file, writable, identity, make) {
                Err(ClientError::Refused(Refusal::Held { .. })) if now() < give_up_at => sleep(pause),
                // It has another stub's text; what it is its inode says.
                Err(ClientError::Refused(refusal @ Refusal::CopiedStub { .. })) => match self.find(stub)? {
                    Some(own) if own != file => file = own,
                    _ => return Err(ClientError::Refused(refusal)),
                },
                result => return result,
            }
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn try_open<H: Any + Send + Sync>(
        &self,
        stub: BorrowedFd<'_>,
        file: FileId,
        writable: bool,
        identity: (u64, u64),
        make: fn(OpenFile) -> H,
    ) -> Result<Arc<H>, ClientError> {
        let core = &self.core;
        let mut control = core.control();
        if let Some(entry) = control.open.get(&(file, writable)).filter(|entry| entry.stub.identity() == identity)
            && let Some(handle) = entry.handle.upgrade()
            && let Ok(handle) = handle.downcast()
        {
            return Ok(handle);
        }
        core.ask_and_adopt(&mut control, (&Request::Open { file }, "Open"), (stub, identity), make)
    }

    /// See [`Client::create`].
    pub(crate) fn create_with<H: Any + Send + Sync>(
        &self,
        path: &Path,
        stub: BorrowedFd<'_>,
        make: fn(OpenFile) -> H,
    ) -> Result<Arc<H>, ClientError> {
        let request = Request::Create { path: utf8(path)? };
        let identity = identity_of(stub)?;
        let mut control = self.core.control();
        self.core.ask_and_adopt(&mut control, (&request, "Create"), (stub, identity), make)
    }

    /// See [`Client::import`].
    pub(crate) fn import_with<H: Any + Send + Sync>(
        &self,
        path: &Path,
        placement: Placement,
        temporary: &Path,
        stub: BorrowedFd<'_>,
        original: BorrowedFd<'_>,
        make: fn(OpenFile) -> H,
    ) -> Result<Arc<H>, ClientError> {
        let request = Request::Admin(Admin::Import { path: utf8(path)?, placement, temporary: utf8(temporary)? });
        let identity = identity_of(stub)?;
        let mut control = self.core.control();
        let answer = self.core.call_locked(&mut control, &request, &[stub, original])?;
        self.core.adopt(&mut control, answer, (stub, identity), "Import", make)
    }
}

impl Core {
    /// The stub of a file that this process has open.
    pub(crate) fn stub_of(&self, file: FileId, writable: bool) -> Option<Arc<KeptStub>> {
        self.control().open.get(&(file, writable)).map(|entry| Arc::clone(&entry.stub))
    }

    /// Asks for a file and adopts it. What the broker opened may be gone before this process could register: a successor takes a creation for a dead client's, and an
    /// agent that leaves forgets files that nobody uses. Whoever serves next is asked again, and knows whether there is such a file.
    fn ask_and_adopt<H: Any + Send + Sync>(
        self: &Arc<Self>,
        control: &mut Control,
        (request, name): (&Request, &'static str),
        (stub, identity): (BorrowedFd<'_>, (u64, u64)),
        make: fn(OpenFile) -> H,
    ) -> Result<Arc<H>, ClientError> {
        let mut brokers = 1;
        loop {
            let answer = self.call_locked(control, request, &[stub])?;
            match self.adopt(control, answer, (stub, identity), name, make) {
                Err(ClientError::Gone { .. }) if brokers < MAX_BROKERS => brokers += 1,
                result => return result,
            }
        }
    }

    /// Maps what the broker opened and registers this process as a user.
    fn adopt<H: Any + Send + Sync>(
        self: &Arc<Self>,
        control: &mut Control,
        answer: Answer,
        (stub, identity): (BorrowedFd<'_>, (u64, u64)),
        request: &'static str,
        make: fn(OpenFile) -> H,
    ) -> Result<Arc<H>, ClientError> {
        let Reply::Opened { file, writable } = answer.reply else { return Err(unexpected(request, &answer.reply)) };
        let [block, extent, slots] =
            <[Received; 3]>::try_from(answer.descriptors).map_err(|_| missing_descriptors(request))?;
        let mapping = |source| ClientError::Os { action: "mapping the shared memory of a file", source };
        let shared = Arc::new(SharedFile {
            control: ControlBlock::open(&block, file, false).map_err(|source| ClientError::Control { file, source })?,
            extent: Extent::open(&extent, writable).map_err(mapping)?,
            slots: Slots::open(&slots).map_err(mapping)?,
            replaced: false.into(),
        });
        let (slot, incarnation) = self.identity().ok_or(ClientError::NoProcessSlot)?;
        let control_identity = identity_of(block.as_fd())?;
        let stub = KeptStub::new(stub, identity, writable, self.base)
            .map_err(|source| ClientError::Os { action: "keeping the stub", source })?;
        // From here on nothing may fail but with the use taken back; and no handle may be dropped, which would wait for the lock held here.
        shared
            .slots
            .add_user(slot, incarnation)
            .map_err(|_| ClientError::StateFull { path: self.state_directory.clone() })?;
        if shared.control.life() == Life::Gone {
            self.leave(control, file, &shared)?;
            return Err(ClientError::Gone { file });
        }
        let open = OpenFile { core: Arc::clone(self), file, writable, shared: Arc::clone(&shared), is_closed: false };
        let handle = Arc::new(make(open));
        let weak: Weak<H> = Arc::downgrade(&handle);
        let entry = OpenEntry { handle: weak, stub: Arc::new(stub), control_identity, shared };
        control.open.insert((file, writable), entry);
        Ok(handle)
    }

    /// Drops one use of the file by this process; the last one is told to the broker.
    pub(super) fn leave(&self, control: &mut Control, file: FileId, shared: &SharedFile) -> Result<(), ClientError> {
        let Some((slot, _)) = self.identity() else { return Ok(()) };
        if shared.slots.drop_user(slot) > 0 {
            return Ok(());
        }
        self.objects.close_file(file);
        self.done_locked(control, &Request::Close { file }, &[])
    }

    /// The last handle of an open is gone. The objects are closed without the lock, which everybody needs who opens a file: a server that does not answer
    /// keeps whoever closes waiting.
    fn close(&self, file: FileId, writable: bool, shared: &Arc<SharedFile>) -> Result<(), ClientError> {
        let mut control = self.control();
        // A new open may have taken the place meanwhile.
        let mut entry = None;
        if control.open.get(&(file, writable)).is_some_and(|entry| Arc::ptr_eq(&entry.shared, shared)) {
            entry = control.open.remove(&(file, writable));
        }
        // Neither a time that the stub has not got, which who looks at it next is to see, nor the end of a removed file.
        let leaves_nothing = entry
            .as_ref()
            .is_some_and(|entry| entry.stub.is_named() && has_its_time(&entry.stub, &shared.extent, writable));
        drop(entry);
        let Some((slot, _)) = self.identity() else { return Ok(()) };
        if shared.slots.drop_user(slot) > 0 {
            return Ok(());
        }
        drop(control);
        self.objects.close_file(file);
        let mut control = self.control();
        // Opened again meanwhile: the broker is told by the close that follows.
        if control.open.keys().any(|(open, _)| *open == file) {
            return Ok(());
        }
        // Where other hosts use the file too, an open there after this close is to find what was written here.
        let is_shared = shared.control.notices().is_shared();
        if leaves_nothing && !is_shared && !self.options.waits_for_closes {
            self.report(&mut control, Event::Closed { file });
            return Ok(());
        }
        self.done_locked(&mut control, &Request::Close { file }, &[])
    }
}

/// Whether the stub has the file's modification time; a writer gives it the time, where it may.
fn has_its_time(stub: &KeptStub, extent: &Extent, writable: bool) -> bool {
    match extent.modified_ns() {
        None => true,
        Some(modified_ns) => {
            writable && stub.set_modified_ns(modified_ns).is_ok() && extent.hand_back_modified_ns(modified_ns)
        }
    }
}

fn is_writable(stub: BorrowedFd<'_>) -> Result<bool, ClientError> {
    let flags = rustix::fs::fcntl_getfl(stub)
        .map_err(|source| ClientError::Os { action: "reading a stub's access mode", source })?;
    Ok(matches!(flags & OFlags::RWMODE, OFlags::WRONLY | OFlags::RDWR))
}
