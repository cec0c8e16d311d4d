//! A new stub for a managed file that has lost its own.

use crate::messages::shown;
use crate::paths::{PlaceError, absolute};
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise_layout::FileId;
use stripewise_store::protocol::Admin;
use thiserror::Error;

/// Why a file gets no new name.
#[derive(Debug, Error)]
pub enum RescueError {
    /// The path could not be made absolute.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A name that no managed file can have.
    #[error("{} is not UTF-8; managed files have names in UTF-8", shown(path))]
    NotUtf8 {
        /// Absolute path.
        path: PathBuf,
    },
    /// The broker refused.
    #[error("cannot put file {file} at {}", shown(path))]
    Refused {
        /// The file.
        file: FileId,
        /// Absolute path of the new stub.
        path: PathBuf,
        /// Its cause.
        source: Box<StoreError>,
    },
}

/// A file with a new name.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Rescued {
    /// The file.
    pub file: FileId,
    /// Absolute path of its new stub.
    pub path: PathBuf,
}

/// Gives the managed file `file`, whose stub is gone, a new stub at `path`, where nothing may stand.
///
/// # Errors
///
/// [`RescueError`].
pub fn rescue(store: &Store, file: FileId, path: &Path) -> Result<Rescued, RescueError> {
    let path = absolute(path)?;
    let Some(text) = path.to_str() else { return Err(RescueError::NotUtf8 { path }) };
    let rescue = Admin::Rescue { file, path: text.to_owned() };
    match store.done(rescue) {
        Ok(()) => Ok(Rescued { file, path }),
        Err(source) => Err(RescueError::Refused { file, path, source: Box::new(source) }),
    }
}
