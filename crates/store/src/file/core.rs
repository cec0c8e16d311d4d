//! What every part of an open file uses: the open itself, its regions' geometry, what is checked, and errors that name the file.

use super::error::FileError;
use crate::client::{ClientError, Core, OpenFile};
use crate::protocol::Request;
use crate::server::ServerError;
use crate::shared::control::{ControlBlock, Life, MAX_REGIONS, RegionState};
use crate::shared::extent::Extent;
use crate::shared::robust::{self, RobustGuard};
use crate::shared::slots::Slots;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::AtomicU64;
use stripewise_layout::{FileId, FileOffset, RegionGeometry, RegionIndex};

/// An open file as its parts see it.
pub(super) struct FileCore {
    open: OpenFile,
    geometry: RegionGeometry,
}

impl FileCore {
    pub(super) fn new(open: OpenFile) -> Self {
        let geometry = RegionGeometry::new(open.control().region_bytes().max(1));
        Self { open, geometry }
    }

    /// Closes the open, with its last handle.
    pub(super) fn close(mut self) -> Result<(), FileError> {
        let closed = self.open.close().map_err(|source| self.broker(source));
        // What was written by it may not have come to the size that others see.
        match self.control().life() == Life::Lost && self.is_writable() {
            true => Err(FileError::ShutOut { file: self.id() }),
            false => closed,
        }
    }

    #[inline]
    pub(super) fn core(&self) -> &Core {
        self.open.core()
    }

    #[inline]
    pub(super) fn id(&self) -> FileId {
        self.open.id()
    }

    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        self.open.is_writable()
    }

    #[inline]
    pub(super) fn geometry(&self) -> &RegionGeometry {
        &self.geometry
    }

    #[inline]
    pub(super) fn control(&self) -> &ControlBlock {
        self.open.control()
    }

    #[inline]
    pub(super) fn extent(&self) -> &Extent {
        self.open.extent()
    }

    #[inline]
    pub(super) fn slots(&self) -> &Slots {
        self.open.slots()
    }

    /// The region's present state.
    #[inline]
    pub(super) fn region(&self, region: RegionIndex) -> RegionState<'_> {
        self.control().regions().get(region)
    }

    #[inline]
    pub(super) fn size_bytes(&self) -> u64 {
        self.extent().size_bytes()
    }

    /// Whether other hosts use the file too.
    #[inline]
    pub(super) fn is_shared(&self) -> bool {
        self.control().notices().is_shared()
    }

    /// The first and the last region of a range that is not empty.
    pub(super) fn regions_of(&self, offset: FileOffset, bytes: u64) -> (RegionIndex, RegionIndex) {
        let last = FileOffset(offset.0.saturating_add(bytes - 1));
        (self.geometry.locate(offset).0, self.geometry.locate(last).0)
    }

    /// Largest size that the number of regions allows.
    #[inline]
    pub(super) fn limit_bytes(&self) -> u64 {
        self.geometry.region_bytes().saturating_mul(u64::from(MAX_REGIONS)).min(i64::MAX as u64)
    }

    /// That a request may reach up to `end`.
    pub(super) fn check_limit(&self, end: FileOffset) -> Result<(), FileError> {
        let limit_bytes = self.limit_bytes();
        if end.0 > limit_bytes {
            Err(FileError::TooLarge { file: self.id(), offset: end, limit_bytes })
        } else {
            Ok(())
        }
    }

    #[inline]
    pub(super) fn check_writable(&self) -> Result<(), FileError> {
        if self.is_writable() && self.extent().is_writable() {
            Ok(())
        } else {
            Err(FileError::NotWritable { file: self.id() })
        }
    }

    pub(super) fn check_not_replaced(&self) -> Result<(), FileError> {
        let file = self.id();
        match (self.control().life(), self.open.is_replaced()) {
            (Life::Lost, _) => Err(FileError::ShutOut { file }),
            (_, true) => Err(FileError::Replaced { file }),
            (_, false) => Ok(()),
        }
    }

    /// Of a request that stopped in the middle. What lies before that is told as a prefix, which programs take for the file's end or go on behind; of a file
    /// that was taken from this host the error is told.
    #[cold]
    pub(super) fn check_not_shut_out(&self) -> Result<(), FileError> {
        match self.control().life() {
            Life::Lost => Err(FileError::ShutOut { file: self.id() }),
            _ => Ok(()),
        }
    }

    /// Takes a lock of the extent for this process.
    pub(super) fn robust_lock<'a>(&'a self, word: &'a AtomicU64) -> Result<RobustGuard<'a>, FileError> {
        self.check_writable()?;
        let (slot, incarnation) = self.core().identity().ok_or_else(|| self.broker(ClientError::NoProcessSlot))?;
        Ok(robust::lock(word, slot, incarnation, &self.core().processes))
    }

    /// The modification time is now.
    #[inline]
    pub(super) fn touch(&self) {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        self.extent().set_modified_ns(Some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64));
    }

    /// Has this host's memory show what others had made of the size and of these regions.
    pub(super) fn refresh(&self, first: RegionIndex, last: RegionIndex) -> Result<(), FileError> {
        self.check_not_replaced()?;
        self.ask(&Request::Refresh { file: self.id(), first, last })?;
        self.check_not_replaced()
    }

    /// Has the broker carry out a request whose answer carries nothing.
    pub(super) fn ask(&self, request: &Request) -> Result<(), FileError> {
        self.core().done(request, &[]).map_err(|source| self.broker(source))
    }

    pub(super) fn broker(&self, source: ClientError) -> FileError {
        FileError::Broker { file: self.id(), source }
    }

    pub(super) fn server(&self, source: ServerError) -> FileError {
        FileError::Server { file: self.id(), source }
    }
}
