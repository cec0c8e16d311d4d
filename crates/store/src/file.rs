//! An open managed file: what a program does with a descriptor, done on stripes.
//!
//! Every read and write takes a *lane* in the file's slots, then looks at the gate (`shared::slots`): whoever cuts the file shuts the
//! gate and waits for the lanes. Inside the lane it finds the regions' layouts in mapped memory, the objects' descriptors in the process's
//! cache, and moves the bytes. Whatever needs the broker or another process (a shut gate, a region without objects, an object that only
//! the broker may open) is an *reason*: the lane is given back, the reason removed, and the request begun again. Nothing is
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
//! - One call moves at most `0x7fff_f000` bytes, as Linux does.

mod append;
mod buffers;
mod copies;
mod fragments;
mod lane;
mod opening;
mod retry;
mod sub_request;
mod syncing;
mod together;
mod transfer;
mod upkeep;

use crate::client::{ClientError, OpenFile};
use crate::server::ServerError;
use crate::shared::robust::RobustGuard;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use stripewise_layout::{FileId, FileOffset, Generation, RegionGeometry, RegionIndex};

/// Why a call on an open file failed. [`ToErrno`](crate::errno::ToErrno) says what a program sees.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A region's place has no object on a server: data is lost.
    #[error(
        "file {file}: server {server} has no object of region {region}, generation {generation}; see `stripewise check`"
    )]
    ObjectMissing {
        /// The managed file.
        file: FileId,
        /// The region.
        region: RegionIndex,
        /// Of the region's place.
        generation: Generation,
        /// Name of the server.
        server: String,
    },
    /// A server failed, and no replica could serve instead.
    #[error("file {file}: {source}")]
    Server {
        /// The managed file.
        file: FileId,
        /// Its error.
        source: ServerError,
    },
    /// The broker refused, or cannot be reached.
    #[error("file {file}: {source}")]
    Broker {
        /// The managed file.
        file: FileId,
        /// Its cause.
        source: ClientError,
    },
    /// Somebody holds the file, for a truncation or a release, and does not end.
    #[error("file {file} was held exclusively for more than {waited_s} s; see `stripewise check`")]
    GateStuck {
        /// The managed file.
        file: FileId,
        /// For how long the gate was waited for.
        waited_s: u64,
    },
    /// The file's number of regions does not reach so far.
    #[error("file {file}: byte {offset} lies beyond the largest size of {limit_bytes} bytes; use a larger region size")]
    TooLarge {
        /// The managed file.
        file: FileId,
        /// The end that was asked for.
        offset: FileOffset,
        /// As [`StripedFile::limit_bytes`].
        limit_bytes: u64,
    },
    /// The stub could not be made durable.
    #[error("file {file}: syncing its stub: {source}")]
    Stub {
        /// The managed file.
        file: FileId,
        /// Its cause.
        source: rustix::io::Errno,
    },
    /// The stub's descriptor was not open for writing.
    #[error("file {file} is not open for writing")]
    NotWritable {
        /// The managed file.
        file: FileId,
    },
    /// The memory that this open shares with others is no longer the broker's.
    #[error("file {file} was reset by another broker; close it and open it again")]
    Replaced {
        /// The managed file.
        file: FileId,
    },
}

/// How a request treats caches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IoMode {
    /// Past the page caches of the servers, as `O_DIRECT` asks, as far as it is aligned to [`crate::server::transfer::DIRECT_BYTES`].
    pub direct: bool,
    /// A write's bytes are durable when it returns, as `O_DSYNC` asks. Size and names need [`StripedFile::sync`], which finds the data durable.
    pub durable: bool,
}

/// A managed file, open. All methods may be called from any thread.
pub struct StripedFile {
    open: OpenFile,
    geometry: RegionGeometry,
    /// Asked for when there is use for it.
    fragment_memory: OnceLock<fragments::FragmentMemory>,
    /// Nobody could be asked for it while the file had no logs; the disks take everything as long as it has none.
    does_without_fragments: AtomicBool,
    /// Since this open.
    stub_is_synced: AtomicBool,
    durable_names: syncing::DurableNames,
}

impl std::fmt::Debug for StripedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StripedFile")
            .field("file", &self.open.id())
            .field("writable", &self.open.is_writable())
            .finish_non_exhaustive()
    }
}

impl StripedFile {
    pub(crate) fn new(open: OpenFile) -> Self {
        Self {
            geometry: RegionGeometry::new(open.control().region_bytes().max(1)),
            open,
            fragment_memory: OnceLock::new(),
            does_without_fragments: AtomicBool::new(false),
            stub_is_synced: AtomicBool::new(false),
            durable_names: syncing::DurableNames::none(),
        }
    }

    /// Identity of the managed file.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.open.id()
    }

    /// Whether it was opened for writing.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.open.is_writable()
    }

    /// Logical size.
    #[must_use]
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.open.extent().size_bytes()
    }

    /// Bytes of its regions.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.geometry.region_bytes()
    }

    /// The layout of a region as (server, stripe bytes), for hints and reports; `None`: not placed.
    #[must_use]
    pub fn region_layout(&self, region: RegionIndex) -> Option<Vec<(stripewise_layout::ServerId, u32)>> {
        match self.open.control().regions().get(region) {
            crate::shared::control::RegionState::Absent => None,
            crate::shared::control::RegionState::Placed { view, .. } => {
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
            Some(mut last) => last.open.close().map_err(|source| last.broker(source)),
            None => Ok(()),
        }
    }

    /// Sets the modification time, in ns since 1970; `None` hands it back to the stub's own (after `utimensat` set it there).
    ///
    /// # Errors
    ///
    /// [`FileError::NotWritable`].
    pub fn set_modified_ns(&self, modified: Option<u64>) -> Result<(), FileError> {
        self.check_writable()?;
        self.open.extent().set_modified_ns(modified);
        Ok(())
    }

    /// The modification time in ns since 1970 if writes have set it; otherwise the stub's own holds.
    #[must_use]
    pub fn modified_ns(&self) -> Option<u64> {
        self.open.extent().modified_ns()
    }

    fn robust_lock<'a>(&'a self, word: &'a AtomicU64) -> Result<RobustGuard<'a>, FileError> {
        self.check_writable()?;
        let (slot, incarnation) = self.open.core().identity().ok_or_else(|| self.broker(ClientError::NoProcessSlot))?;
        Ok(crate::shared::robust::lock(word, slot, incarnation, &self.open.core().processes))
    }

    #[inline]
    fn check_writable(&self) -> Result<(), FileError> {
        if self.open.is_writable() && self.open.extent().is_writable() {
            Ok(())
        } else {
            Err(FileError::NotWritable { file: self.open.id() })
        }
    }

    fn check_not_replaced(&self) -> Result<(), FileError> {
        if self.open.is_replaced() { Err(FileError::Replaced { file: self.open.id() }) } else { Ok(()) }
    }

    /// Largest size that the number of regions allows.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        let regions = u64::from(crate::shared::control::MAX_REGIONS);
        self.geometry.region_bytes().saturating_mul(regions).min(i64::MAX as u64)
    }

    fn broker(&self, source: ClientError) -> FileError {
        FileError::Broker { file: self.open.id(), source }
    }

    fn server(&self, source: ServerError) -> FileError {
        FileError::Server { file: self.open.id(), source }
    }
}
