//! Reading and writing files whether managed or not, in large pieces.

use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use crate::store::{Managed, Store, StoreError};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::FileOffset;
use stripewise_store::file::{FileError, StripedFile};
use thiserror::Error;

/// Why bytes did not come or go.
#[derive(Debug, Error)]
pub enum TransferError {
    /// The file could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A managed file did not give its bytes, or took none.
    #[error("cannot {what} {}", shown(path))]
    Managed {
        /// What was tried, to follow "cannot".
        what: &'static str,
        /// As it was named.
        path: PathBuf,
        /// Its cause.
        source: FileError,
    },
}

type Result<T> = std::result::Result<T, TransferError>;

/// Bytes at once: enough for every server of a wide layout to have some of them.
const PIECE_BYTES: usize = 8 << 20;

/// A file to read from.
pub struct Reader {
    path: PathBuf,
    source: Source,
}

enum Source {
    Managed(Managed),
    Ordinary(File),
}

/// Mode, owner and times of a file as a program would see them.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Permission bits, with those of set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// Last access, ns since 1970.
    pub accessed_ns: i128,
    /// Last change of the data, ns since 1970; of a managed file its own, not the stub's.
    pub modified_ns: i128,
}

impl Attributes {
    fn of(metadata: &Metadata) -> Self {
        let ns = |seconds: i64, part: i64| i128::from(seconds) * 1_000_000_000 + i128::from(part);
        Self {
            mode: metadata.mode() & 0o7777,
            accessed_ns: ns(metadata.atime(), metadata.atime_nsec()),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl Reader {
    /// Opens the file at `path`, managed or not.
    ///
    /// # Errors
    ///
    /// [`TransferError::Store`].
    pub fn open(store: &Store, path: &Path) -> Result<Self> {
        let source = match store.managed_if(path, false)? {
            Ok(managed) => Source::Managed(managed),
            Err(file) => Source::Ordinary(file),
        };
        Ok(Self { path: path.to_owned(), source })
    }

    fn metadata(&self) -> Result<Metadata> {
        let file = match &self.source {
            Source::Managed(managed) => &managed.stub,
            Source::Ordinary(file) => file,
        };
        Ok(file.metadata().on("look at", &self.path)?)
    }

    /// Whether it is a regular file; a stub is one.
    ///
    /// # Errors
    ///
    /// [`TransferError::Path`].
    pub fn is_regular(&self) -> Result<bool> {
        Ok(self.metadata()?.is_file())
    }

    /// Device and inode.
    ///
    /// # Errors
    ///
    /// [`TransferError::Path`].
    pub fn identity(&self) -> Result<(u64, u64)> {
        let metadata = self.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// Mode and times.
    ///
    /// # Errors
    ///
    /// [`TransferError::Path`].
    pub fn attributes(&self) -> Result<Attributes> {
        let mut attributes = Attributes::of(&self.metadata()?);
        if let Source::Managed(managed) = &self.source
            && let Some(modified_ns) = managed.striped.modified_ns()
        {
            attributes.modified_ns = i128::from(modified_ns);
        }
        Ok(attributes)
    }

    /// Logical size of a managed file, else what the file system says.
    ///
    /// # Errors
    ///
    /// [`TransferError::Path`].
    pub fn size_bytes(&self) -> Result<u64> {
        match &self.source {
            Source::Managed(managed) => managed.striped.latest_size_bytes().map_err(|source| self.unread(source)),
            Source::Ordinary(_) => Ok(self.metadata()?.len()),
        }
    }

    /// Hands every piece with its offset to `take`, in order.
    ///
    /// # Errors
    /// When it cannot be read, or what `take` returns.
    pub fn each<E: From<TransferError>>(
        &self,
        mut take: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        loop {
            let length = self.read_at(offset, &mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            take(offset, &buffer[..length])?;
            offset += length as u64;
        }
    }

    /// As [`Self::each`] without the holes, which read as zeros.
    ///
    /// # Errors
    /// As [`Self::each`].
    pub fn each_data<E: From<TransferError>>(
        &self,
        mut take: impl FnMut(u64, &[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        while let Some(data) = self.next_data(offset)? {
            let until_hole = self.next_hole(data)?.saturating_sub(data).max(1);
            let most = usize::try_from(until_hole).map_or(PIECE_BYTES, |until_hole| until_hole.min(PIECE_BYTES));
            let length = self.read_at(data, &mut buffer[..most])?;
            if length == 0 {
                break;
            }
            take(data, &buffer[..length])?;
            offset = data + length as u64;
        }
        Ok(())
    }

    /// Where data begins at or after `offset`; none when only a hole or the end follows.
    fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        match &self.source {
            Source::Managed(managed) => {
                let data = managed.striped.next_data(FileOffset(offset)).map_err(|source| self.unread(source))?;
                Ok(data.map(|data| data.0))
            }
            Source::Ordinary(file) => match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                Ok(data) => Ok(Some(data)),
                Err(Errno::NXIO) => Ok(None),
                // The file system knows no holes.
                Err(Errno::INVAL) => Ok(Some(offset)),
                Err(error) => Ok(Err(error).on("read", &self.path)?),
            },
        }
    }

    /// Where the next hole begins after the data at `offset`; the end of the file counts as one.
    fn next_hole(&self, offset: u64) -> Result<u64> {
        match &self.source {
            Source::Managed(managed) => {
                let hole = managed.striped.next_hole(FileOffset(offset)).map_err(|source| self.unread(source))?;
                Ok(hole.map_or(u64::MAX, |hole| hole.0))
            }
            Source::Ordinary(file) => match rustix::fs::seek(file, SeekFrom::Hole(offset)) {
                Ok(hole) => Ok(hole),
                Err(Errno::INVAL | Errno::NXIO) => Ok(u64::MAX),
                Err(error) => Ok(Err(error).on("read", &self.path)?),
            },
        }
    }

    fn unread(&self, source: FileError) -> TransferError {
        TransferError::Managed { what: "read", path: self.path.clone(), source }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let length = match &self.source {
            Source::Managed(managed) => {
                let read = managed.striped.read_at(FileOffset(offset), &mut [IoSliceMut::new(buffer)]);
                read.map_err(|source| self.unread(source))?
            }
            // A pipe has no offsets; it is read on.
            Source::Ordinary(file) => match file.read_at(buffer, offset) {
                Err(error) if error.raw_os_error() == Some(libc::ESPIPE) => std::io::Read::read(&mut &*file, buffer),
                read => read,
            }
            .on("read", &self.path)?,
        };
        Ok(length)
    }
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
///
/// [`TransferError::Managed`]; a part may have been written.
pub fn write_all(striped: &Arc<StripedFile>, path: &Path, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let at = FileOffset(offset + done as u64);
        let written = striped.write_at(at, &[IoSlice::new(&bytes[done..])]);
        done += written.map_err(|source| TransferError::Managed { what: "write", path: path.to_owned(), source })?;
    }
    Ok(())
}
