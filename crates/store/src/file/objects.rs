//! A file's objects on its servers, as this process has them open.

use super::core::FileCore;
use super::error::FileError;
use super::reason::RetryReason;
use crate::client::Core;
use crate::client::objects::{ObjectKey, Opened, Pin};
use crate::client::rings::Call;
use crate::descriptors::{Descriptor, with_raised_limit};
use crate::server::{Handle, How, ObjectHandle, ObjectName, ObjectStore, OpenMode, ServerError, pace};
use crate::shared::control::{MAX_REGIONS, RegionState};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use stripewise_layout::{Generation, RegionIndex, ServerId};

/// Opens objects at their first use, and says what a failure of theirs means to a request.
#[derive(Clone, Copy)]
pub(super) struct Objects<'f> {
    file: &'f FileCore,
}

impl<'f> Objects<'f> {
    #[inline]
    pub(super) fn new(file: &'f FileCore) -> Self {
        Self { file }
    }

    #[inline]
    pub(super) fn file(&self) -> &'f FileCore {
        self.file
    }

    #[inline]
    pub(super) fn core(&self) -> &'f Core {
        self.file.core()
    }

    /// The store of a server that a request needs.
    #[inline]
    pub(super) fn store(&self, server: ServerId) -> Result<&'f dyn ObjectStore, RetryReason> {
        self.core().server(server).map_err(|error| self.fault(error))
    }

    #[inline]
    pub(super) fn key(&self, region: RegionIndex, generation: Generation, server: ServerId) -> ObjectKey {
        let object = ObjectName { file: self.file.id(), region, generation };
        ObjectKey { object, server, writable: self.file.is_writable(), direct: false }
    }

    #[inline]
    pub(super) fn pin(&self, key: &ObjectKey) -> Result<Pin<'f>, RetryReason> {
        match self.core().objects.find(key) {
            // A forked child has its parent's objects, and no lane.
            Some(Pin::Named(_)) if self.core().lacks_lane_to(key.server) => Err(RetryReason::AgentLane),
            Some(pin) => Ok(pin),
            None => self.open_object(key),
        }
    }

    #[cold]
    fn open_object(&self, key: &ObjectKey) -> Result<Pin<'f>, RetryReason> {
        let core = self.core();
        let server = self.store(key.server)?;
        if core.lacks_lane_to(key.server) {
            return Err(RetryReason::AgentLane);
        }
        let mode = OpenMode { writable: key.writable, direct: key.direct };
        let open = || server.open_as(key.object, mode);
        let opened = match open() {
            // The program is at its own limit of open files, which is not the library's.
            Err(ServerError::Os { source: Errno::MFILE, .. }) => with_raised_limit(open),
            result => result,
        };
        match opened {
            Ok(handle) => {
                core.note_medium(key.server, handle.as_handle());
                let opened = match handle {
                    ObjectHandle::Descriptor(descriptor) => {
                        Opened::Descriptor(Descriptor::raise(descriptor, core.base()))
                    }
                    ObjectHandle::Named(_) => Opened::Named,
                };
                Ok(core.objects.insert(key, opened))
            }
            Err(ServerError::Denied { .. }) => Err(RetryReason::Object(*key)),
            Err(ServerError::Missing { server, .. }) => {
                let ObjectName { file, region, generation } = key.object;
                let is_log = region.0 >= MAX_REGIONS;
                if !is_log {
                    self.check_not_truncating()?;
                    if !self.file.control().regions().shows(region, generation) {
                        return Err(RetryReason::Again);
                    }
                }
                Err(RetryReason::Fault(FileError::ObjectMissing { file, region, generation, server }))
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    /// To be called before it is looked whether a missing object's region still shows its place: who opens the gate has changed that before.
    fn check_not_truncating(&self) -> Result<(), RetryReason> {
        match self.file.control().gate().is_shut() {
            true => Err(RetryReason::Truncating),
            false => Ok(()),
        }
    }

    /// Syncs objects: those at once that are plain descriptors of stores that wait, and the others in turn.
    pub(super) fn sync_group(&self, objects: &[(ObjectKey, Pin<'_>)]) -> Result<(), RetryReason> {
        // All devices begin at once, and are waited for together.
        let device_due = |(key, _): &(ObjectKey, Pin<'_>)| {
            self.core().server(key.server).ok().and_then(|server| server.device_time()?.write_back_due(key.object))
        };
        let due = self.core().stations.as_ref().and_then(|_| objects.iter().filter_map(device_due).max());
        let mut results = vec![None; objects.len()];
        let on_device = |(number, (key, pin)): (usize, &(ObjectKey, Pin<'_>))| {
            let descriptor = pin.handle().descriptor().filter(|_| self.core().may_wait(key.server))?;
            Some((number, sync_call(descriptor)))
        };
        let (numbers, calls): (Vec<usize>, Vec<Call<'_>>) = objects.iter().enumerate().filter_map(on_device).unzip();
        if calls.len() > 1 {
            let lane_of: Vec<u16> = numbers.iter().map(|number| objects[*number].0.server.0).collect();
            self.core().rings.run_by_lane(&lane_of, &calls, |call, result| results[numbers[call]] = Some(result));
        }
        for ((key, pin), result) in objects.iter().zip(results) {
            match result {
                Some(Ok(_)) => {}
                // The kernel tells a failed write-back once: asking again would hide it.
                Some(Err(source)) if source != Errno::INTR && source != Errno::AGAIN => {
                    let server = self.core().server_name(key.server);
                    return Err(self.fault(ServerError::Os { server, action: "syncing an object", source }));
                }
                _ => {
                    let server = self.store(key.server)?;
                    server.sync(pin.handle()).map_err(|error| self.fault(error))?;
                }
            }
        }
        if let (Some(due), Some(stations)) = (due, &self.core().stations) {
            pace::wait(stations, due);
        }
        Ok(())
    }

    /// An object that lost its name (a server directory emptied under us) is not durable, though its open descriptor still works.
    pub(super) fn check_named(&self, key: &ObjectKey, object: Handle<'_>) -> Result<(), RetryReason> {
        let is_named = match object {
            Handle::Descriptor(object) => rustix::fs::fstat(object).is_ok_and(|status| status.st_nlink > 0),
            Handle::Named(object) => self.core().server(key.server).is_ok_and(|server| server.size(object).is_ok()),
        };
        if is_named {
            return Ok(());
        }
        let ObjectName { file, region, generation } = key.object;
        self.check_not_truncating()?;
        match self.file.region(region) {
            RegionState::Placed { generation: present, .. } if present == generation => {
                // What is opened from now on is looked for by name.
                self.core().objects.close_file(file);
                let server = self.core().server_name(key.server);
                Err(RetryReason::Fault(FileError::ObjectMissing { file, region, generation, server }))
            }
            _ => Err(RetryReason::Again),
        }
    }

    #[cold]
    pub(super) fn fault(&self, error: ServerError) -> RetryReason {
        RetryReason::Fault(self.file.server(error))
    }

    /// Of a write to an object of a region's place, or of a log.
    #[cold]
    pub(super) fn write_fault(&self, key: &ObjectKey, how: How, error: ServerError) -> RetryReason {
        let is_full = matches!(error, ServerError::NoSpace { .. }) && key.object.region.0 < MAX_REGIONS;
        let error = self.file.server(error);
        match how.durable {
            _ if is_full => RetryReason::Full { key: *key, error },
            true => RetryReason::Lost(error),
            false => RetryReason::Fault(error),
        }
    }

    #[cold]
    pub(super) fn no_progress(&self, key: &ObjectKey) -> ServerError {
        ServerError::Os { server: self.core().server_name(key.server), action: "writing nothing", source: Errno::IO }
    }
}

fn sync_call(object: BorrowedFd<'_>) -> Call<'static> {
    Call::Sync { descriptor: object.as_raw_fd() }
}
