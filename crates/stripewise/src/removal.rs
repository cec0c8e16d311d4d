//! Removing managed files, stubs and data.

use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use crate::store::{Store, StoreError};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use stripewise_layout::FileId;
use stripewise_store::client::ClientError;
use stripewise_store::file::FileError;
use stripewise_store::nameless;
use stripewise_store::protocol::Admin;
use thiserror::Error;

/// Why a managed file stays.
#[derive(Debug, Error)]
pub enum RemovalError {
    /// The broker cannot be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A directory.
    #[error("{} is a directory; name the managed files in it, which `stripewise ls` lists", shown(path))]
    Directory {
        /// As it was named.
        path: PathBuf,
    },
    /// An ordinary file.
    #[error("{} is not a managed file; rm removes ordinary ones", shown(path))]
    NotManaged {
        /// As it was named.
        path: PathBuf,
    },
    /// It could not be left before its name went.
    #[error(transparent)]
    File(#[from] FileError),
    /// The broker refused.
    #[error("cannot remove {}", shown(path))]
    Remove {
        /// As it was named.
        path: PathBuf,
        /// Its cause.
        source: ClientError,
    },
    /// The broker did not free the data of a file without a stub.
    #[error("cannot free file {file}")]
    Free {
        /// The file.
        file: FileId,
        /// Its cause.
        source: StoreError,
    },
}

/// Frees the data of a file whose stub is gone.
///
/// # Errors
///
/// [`RemovalError::Free`], also where the file has a stub.
pub fn free(store: &Store, file: FileId) -> Result<(), RemovalError> {
    store.done(Admin::Remove { file }).map_err(|source| RemovalError::Free { file, source })
}

/// Removes one managed file, stub and data.
///
/// # Errors
/// When it is not managed, or the broker refuses.
pub fn remove(store: &Store, path: &Path) -> Result<(), RemovalError> {
    let file = File::open(path).on("open", path)?;
    if file.metadata().on("look at", path)?.is_dir() {
        return Err(RemovalError::Directory { path: path.to_owned() });
    }
    let Some(id) = store.file_of(&file, path)? else {
        return Err(RemovalError::NotManaged { path: path.to_owned() });
    };
    // Opening it makes the broker look at the stub: a bare copy of one is refused, and must not free the data.
    let striped =
        store.client.open(file.as_fd(), id).map_err(|source| StoreError::Open { path: path.to_owned(), source })?;
    let id = striped.id();
    striped.close()?;
    // The data is kept while anybody has the stub open.
    let held = nameless::hold(&file).on("hold", path)?;
    drop(file);
    // Noted before the name goes: nothing else proves that it was meant to.
    let removed = store.client.remove(path, held.as_fd(), id);
    removed.map_err(|source| RemovalError::Remove { path: path.to_owned(), source })
}
