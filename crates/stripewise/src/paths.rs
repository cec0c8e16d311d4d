//! Files and directories that a person named, and what could not be done with them.

use crate::messages::shown;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What the system refused to do with a file or directory.
#[derive(Debug, Error)]
#[error("cannot {what} {}", shown(path))]
pub struct PathError {
    /// As in `open`.
    pub what: &'static str,
    /// As it was named.
    pub path: PathBuf,
    /// Its cause.
    pub source: io::Error,
}

/// Says of which path an error is.
pub trait OnPath<T> {
    /// The value; else the error that `what`, such as `open`, could not be done with `path`.
    ///
    /// # Errors
    /// The same, with its path.
    fn on(self, what: &'static str, path: &Path) -> Result<T, PathError>;
}

impl<T, E: Into<io::Error>> OnPath<T> for Result<T, E> {
    fn on(self, what: &'static str, path: &Path) -> Result<T, PathError> {
        self.map_err(|source| PathError { what, path: path.to_owned(), source: source.into() })
    }
}

/// Why nobody knows where a path is from the root.
#[derive(Debug, Error)]
#[error("cannot determine where {} is", shown(path))]
pub struct PlaceError {
    /// As it was named.
    pub path: PathBuf,
    /// Its cause.
    pub source: io::Error,
}

/// `path` from the root, without resolving links.
///
/// # Errors
/// When it is relative and the working directory is gone, or empty.
pub fn absolute(path: &Path) -> Result<PathBuf, PlaceError> {
    std::path::absolute(path).map_err(|source| PlaceError { path: path.to_owned(), source })
}

/// `path` as the mapping table names it: absolute, and without links where it exists.
///
/// # Errors
/// As [`absolute`].
pub fn real(path: &Path) -> Result<PathBuf, PlaceError> {
    std::fs::canonicalize(path).or_else(|_| absolute(path))
}
