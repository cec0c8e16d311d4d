//! How what stands in a request's way is removed.

use super::core::FileCore;
use super::error::FileError;
use super::lane::Lanes;
use super::logs::FragmentLogs;
use super::reason::RetryReason;
use crate::client::objects::Opened;
use crate::protocol::Request;
use crate::server::{Handle, ObjectName};
use rustix::fd::AsFd as _;
use rustix::fs::OFlags;

/// Removes reasons, by the broker or by waiting.
#[derive(Clone, Copy)]
pub(super) struct Retry<'f> {
    file: &'f FileCore,
    logs: &'f FragmentLogs,
}

impl<'f> Retry<'f> {
    #[inline]
    pub(super) fn new(file: &'f FileCore, logs: &'f FragmentLogs) -> Self {
        Self { file, logs }
    }

    pub(super) fn file(&self) -> &'f FileCore {
        self.file
    }

    pub(super) fn logs(&self) -> &'f FragmentLogs {
        self.logs
    }

    /// Removes what stood in the way, outside the lane.
    #[cold]
    pub(super) fn resolve(&self, reason: RetryReason) -> Result<(), FileError> {
        let (core, file) = (self.file.core(), self.file.id());
        match reason {
            RetryReason::Again => Ok(()),
            RetryReason::Truncating => Lanes::new(self.file).wait_for_gate(),
            RetryReason::Sealed(region) => Lanes::new(self.file).wait_while_sealed(region),
            RetryReason::Pin { first, last } => {
                self.file.check_not_replaced()?;
                self.file.ask(&Request::Pin { file, first, last })?;
                self.file.check_not_replaced()
            }
            RetryReason::Leftovers => {
                self.file.check_not_replaced()?;
                self.file.ask(&Request::Tidy { file })
            }
            RetryReason::Place { first, last } => {
                self.file.check_not_replaced()?;
                self.file.ask(&Request::Place { file, first, last })?;
                self.file.check_not_replaced()
            }
            RetryReason::Refresh { first, last } => self.file.refresh(first, last),
            RetryReason::Begin { bytes } => {
                self.file.check_not_replaced()?;
                self.file.ask(&Request::Begin { file, bytes })?;
                self.file.check_not_replaced()
            }
            RetryReason::Object(key) => {
                let ObjectName { region, generation, .. } = key.object;
                let request = Request::OpenObject { file, region, generation, server: key.server.0 };
                let object = core.object_from_broker(&request).map_err(|source| self.file.broker(source))?;
                if key.direct {
                    // The broker opens for all alike; a file system without direct transfers goes through its cache.
                    let _ = rustix::fs::fcntl_getfl(&object)
                        .and_then(|flags| rustix::fs::fcntl_setfl(&object, flags | OFlags::DIRECT));
                }
                core.note_medium(key.server, Handle::Descriptor(object.as_fd()));
                drop(core.objects.insert(&key, Opened::Descriptor(object)));
                Ok(())
            }
            RetryReason::AgentLane => {
                core.make_agent_lane();
                Ok(())
            }
            RetryReason::Fragments => self.logs.check_for(self.file),
            RetryReason::Full { key, error } => {
                let ObjectName { region, generation, .. } = key.object;
                let request = Request::Rescue { file, region, generation, server: key.server.0 };
                // Whatever keeps the region where it is, the program's error is that the server is full.
                core.done(&request, &[]).map_err(|_| error)?;
                self.file.check_not_replaced()
            }
            RetryReason::Fault(error) | RetryReason::Lost(error) => Err(error),
        }
    }
}
