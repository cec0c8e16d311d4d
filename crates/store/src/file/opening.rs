//! From a client to an open file.

use super::StripedFile;
use crate::client::{Client, ClientError};
use rustix::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{FileId, Placement};

impl Client {
    /// Opens the managed file behind `stub`, for writing if the descriptor is. Opens of one file with the same access share their state. A file that is
    /// just brought in or out is waited for, up to [`ClientOptions::patience`](crate::client::ClientOptions::patience).
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`] if the descriptor opens no file or the file stays held,
    /// [`ClientError::Gone`] if it was removed meanwhile, [`ClientError::Control`] or
    /// [`ClientError::Os`] where its memory cannot be mapped, and those of [`Self::request`].
    pub fn open(&self, stub: BorrowedFd<'_>, file: FileId) -> Result<Arc<StripedFile>, ClientError> {
        self.open_with(stub, file, StripedFile::new)
    }

    /// Makes a managed file of the empty stub, which is to appear at `path`. Then [`Self::linked`], or [`Self::abandon`].
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`]; [`ClientError::Os`] of a path that is not UTF-8.
    pub fn create(&self, path: &Path, stub: BorrowedFd<'_>) -> Result<Arc<StripedFile>, ClientError> {
        self.create_with(path, stub, StripedFile::new)
    }

    /// As [`Self::create`], with a placement given, for the existing file `original`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::create`]; [`ClientError::Refused`] with [`Refusal::NotPermitted`](crate::protocol::Refusal::NotPermitted) to other
    /// users than the broker's own and root.
    pub fn import(
        &self,
        path: &Path,
        placement: Placement,
        temporary: &Path,
        stub: BorrowedFd<'_>,
        original: BorrowedFd<'_>,
    ) -> Result<Arc<StripedFile>, ClientError> {
        self.import_with(path, placement, temporary, stub, original, StripedFile::new)
    }
}
