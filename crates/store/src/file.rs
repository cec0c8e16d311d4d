//! An open managed file: what a program does with a descriptor, done on stripes.
//!
//! Every read and write takes a *lane* in the file's slots, then looks at the gate (`shared::slots`): whoever cuts the file shuts the
//! gate and waits for the lanes. Inside the lane it finds the regions' layouts in mapped memory, the objects' descriptors in the process's
//! cache, and moves the bytes. Whatever needs the broker or another process (a shut gate, a region without objects, an object that only
//! the broker may open) is a *reason*: the lane is given back, the reason removed, and the request begun again. Nothing is
//! locked or allocated on the way of a request that meets none.
//!
//! Semantics that programs see:
//! - A read ends at the logical size. Regions never placed and objects shorter than their share read as zeros; a missing object is EIO.
//! - A write places missing regions first, writes, then raises the size: a reader never sees the size before the data, and a killed
//!   writer leaves at most a part of its data. Overlapping writes of several writers are not ordered, as with `pwrite` on most parallel
//!   file systems; appends are.
//! - A region with replicas is read where that is predicted to be done first, and from another copy where that fails; who writes it has the
//!   replicas forgotten first.
//! - Small parts of requests may lie in logs on SSDs instead of their disks (`fragments`); whoever reads gets the newest of both.
//! - Where other hosts use the file too, size and places in memory may lag behind what these did (`asked`): what lies beyond them is asked for first.
//! - One call moves at most `0x7fff_f000` bytes, as Linux does.

mod ahead;
mod asked;
mod buffers;
mod copies;
mod core;
mod error;
mod fragments;
mod lane;
mod logs;
mod objects;
mod opening;
mod piece;
mod reason;
mod request;
mod retry;
mod space;
mod sub_request;
mod syncing;
#[cfg(test)]
mod tests;
mod together;
mod transfer;
mod trial;
mod upkeep;

pub use error::FileError;
pub use space::SpaceChange;

use self::core::FileCore;
use crate::client::OpenFile;
use crate::shared::control::RegionState;
use ahead::ReadAhead;
use logs::FragmentLogs;
use request::{Requests, Start};
use retry::Retry;
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use stripewise_layout::{FileId, FileOffset, RegionIndex, WriteClass};
use syncing::Durability;
use transfer::Transfers;

/// How a request treats caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoMode {
    /// Past the page caches of the servers, as `O_DIRECT` asks, as far as it is aligned to [`crate::server::transfer::DIRECT_BYTES`].
    pub direct: bool,
    /// A write's bytes are durable when it returns, as `O_DSYNC` asks. Finding them after a power failure takes more: [`StripedFile::sync_written`].
    pub durable: bool,
}

impl IoMode {
    /// What a write of this mode waits for.
    #[must_use]
    #[inline]
    pub fn write_class(self) -> WriteClass {
        match self {
            Self { durable: true, .. } => WriteClass::Synchronous,
            Self { direct: true, .. } => WriteClass::Direct,
            Self { .. } => WriteClass::Buffered,
        }
    }
}

/// A managed file, open. All methods may be called from any thread.
pub struct StripedFile {
    file: FileCore,
    logs: FragmentLogs,
    durability: Durability,
    ahead: ReadAhead,
}

impl std::fmt::Debug for StripedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StripedFile")
            .field("file", &self.id())
            .field("writable", &self.is_writable())
            .finish_non_exhaustive()
    }
}

impl StripedFile {
    pub(crate) fn new(open: OpenFile) -> Self {
        Self {
            file: FileCore::new(open),
            logs: FragmentLogs::default(),
            durability: Durability::none(),
            ahead: ReadAhead::default(),
        }
    }

    #[inline]
    fn retry(&self) -> Retry<'_> {
        Retry::new(&self.file, &self.logs)
    }

    #[inline]
    fn requests(&self) -> Requests<'_> {
        Requests::new(&self.file, Transfers::new(&self.file, &self.logs, &self.durability, &self.ahead), self.retry())
    }

    /// Identity of the managed file.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.file.id()
    }

    /// Whether it was opened for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.file.is_writable()
    }

    /// Whether other hosts use the file too.
    #[must_use]
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.file.is_shared()
    }

    /// Logical size as this host knows it. Where other hosts use the file too it may be larger by now: [`Self::latest_size_bytes`].
    #[must_use]
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.file.size_bytes()
    }

    /// Bytes of its regions.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.file.geometry().region_bytes()
    }

    /// The layout of a region as (server, stripe bytes), for hints and reports; `None`: not placed.
    #[must_use]
    pub fn region_layout(&self, region: RegionIndex) -> Option<Vec<(stripewise_layout::ServerId, u32)>> {
        match self.file.region(region) {
            RegionState::Absent => None,
            RegionState::Placed { view, .. } => {
                Some(view.stripes().iter().map(|stripe| (stripe.server, stripe.size_bytes)).collect())
            }
        }
    }

    /// Closes this handle; with the last one, the open. Dropping does the same but tells no errors.
    ///
    /// # Errors
    ///
    /// [`FileError::Broker`] if the broker cannot be told; the file is closed here all the same.
    pub fn close(self: Arc<Self>) -> Result<(), FileError> {
        match Arc::into_inner(self) {
            Some(last) => last.file.close(),
            None => Ok(()),
        }
    }

    /// Sets the modification time, in ns since 1970; `None` hands it back to the stub's own (after `utimensat` set it there).
    ///
    /// # Errors
    ///
    /// [`FileError::NotWritable`].
    pub fn set_modified_ns(&self, modified: Option<u64>) -> Result<(), FileError> {
        self.file.check_writable()?;
        self.file.extent().set_modified_ns(modified);
        Ok(())
    }

    /// Hands the modification time back to the stub, which has got this one, in ns since 1970; false: it has changed meanwhile, and a write's holds on.
    ///
    /// # Errors
    ///
    /// [`FileError::NotWritable`].
    pub fn hand_back_modified_ns(&self, modified_ns: u64) -> Result<bool, FileError> {
        self.file.check_writable()?;
        Ok(self.file.extent().hand_back_modified_ns(modified_ns))
    }

    /// The modification time in ns since 1970 if writes have set it; otherwise the stub's own holds.
    #[must_use]
    pub fn modified_ns(&self) -> Option<u64> {
        self.file.extent().modified_ns()
    }

    /// Largest size that the number of regions allows.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.file.limit_bytes()
    }

    /// Reads at `offset`, at most up to the size; returns the bytes read, 0 at the end.
    ///
    /// # Errors
    /// [`FileError`] if nothing could be read.
    pub fn read_at(&self, offset: FileOffset, buffers: &mut [IoSliceMut<'_>]) -> Result<usize, FileError> {
        self.read_with(offset, buffers, IoMode::default())
    }

    /// As [`Self::read_at`], in a mode.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn read_with(
        &self,
        offset: FileOffset,
        buffers: &mut [IoSliceMut<'_>],
        mode: IoMode,
    ) -> Result<usize, FileError> {
        self.requests().read(offset, buffers, mode)
    }

    /// Writes at `offset` and raises the size to the end of what was written; returns the bytes written, fewer than asked for only
    /// if the rest met a fault (no space, above all).
    ///
    /// # Errors
    /// [`FileError`] if nothing could be written.
    pub fn write_at(&self, offset: FileOffset, buffers: &[IoSlice<'_>]) -> Result<usize, FileError> {
        self.write_with(offset, buffers, IoMode::default())
    }

    /// As [`Self::write_at`], in a mode.
    ///
    /// # Errors
    /// As [`Self::write_at`]; and if a server failed a part of a durable write, whatever was written of it: that may have been said of bytes of earlier
    /// writes, and is said once.
    pub fn write_with(&self, offset: FileOffset, buffers: &[IoSlice<'_>], mode: IoMode) -> Result<usize, FileError> {
        self.requests().write(Start::At(offset), buffers, mode).map(|(_, bytes)| bytes)
    }

    /// As [`Self::write_with`], but what lies beyond the size is left out, whenever others change that: returns the bytes written, perhaps none.
    ///
    /// # Errors
    /// As [`Self::write_with`].
    pub fn write_within(&self, offset: FileOffset, buffers: &[IoSlice<'_>], mode: IoMode) -> Result<usize, FileError> {
        let end = offset.0.saturating_add(buffers.iter().map(|buffer| buffer.len() as u64).sum());
        // Another host may have extended it.
        if end > self.size_bytes() {
            self.latest_size_bytes()?;
        }
        self.requests().write(Start::Within(offset), buffers, mode).map(|(_, bytes)| bytes)
    }

    /// Writes at the end of the file, wherever that is; returns where, and how many bytes. As [`Self::write_at`] otherwise.
    ///
    /// # Errors
    /// As [`Self::write_at`], and [`FileError::AppendShared`].
    pub fn append(&self, buffers: &[IoSlice<'_>]) -> Result<(FileOffset, usize), FileError> {
        self.append_with(buffers, IoMode::default())
    }

    /// As [`Self::append`], in a mode.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn append_with(&self, buffers: &[IoSlice<'_>], mode: IoMode) -> Result<(FileOffset, usize), FileError> {
        if self.is_shared() {
            return Err(FileError::AppendShared { file: self.id() });
        }
        // The lock is robust: a holder that dies before it raised the size has changed nothing that the size covers, so the next one just goes on.
        let _held = self.file.robust_lock(self.file.extent().append_lock())?;
        self.requests().write(Start::End, buffers, mode)
    }

    /// Makes durable what any process wrote before: data, then size, mapping and names. `data_only` as in `fdatasync`: the size counts as
    /// data, since it is needed to read it.
    ///
    /// # Errors
    ///
    /// [`FileError::Stub`], [`FileError::Server`], [`FileError::ObjectMissing`] or [`FileError::Broker`]
    /// where something could not be made durable, which the next call tries again;
    /// [`FileError::Replaced`].
    pub fn sync(&self, data_only: bool) -> Result<(), FileError> {
        self.durability.sync(self.retry(), data_only)
    }

    /// After a write of `[offset, offset + bytes)` in a durable mode: makes durable what it takes to find these bytes after a power failure, and nothing that the
    /// write did not touch. `data_only` as `O_DSYNC` asks, else as `O_SYNC`.
    ///
    /// # Errors
    ///
    /// As of [`Self::sync`].
    pub fn sync_written(&self, offset: FileOffset, bytes: u64, data_only: bool) -> Result<(), FileError> {
        self.durability.sync_written(self.retry(), offset, bytes, data_only)
    }
}
