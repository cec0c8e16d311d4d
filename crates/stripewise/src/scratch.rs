//! Directories for what an operation needs while it runs.

use crate::messages::shown;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use thiserror::Error;

/// Why there is no such directory.
#[derive(Debug, Error)]
#[error("cannot make a directory in {}", shown(base))]
pub struct ScratchError {
    /// Where it was to be.
    pub base: PathBuf,
    /// Its cause.
    pub source: io::Error,
}

/// A new directory of this user's only, under a name that nobody can foresee; it goes when this is dropped.
///
/// # Errors
/// When none can be made in `base`.
pub fn directory(base: &Path, name: &str) -> Result<TempDir, ScratchError> {
    let mut builder = tempfile::Builder::new();
    let named = format!("stripewise-{name}-");
    let made = builder.prefix(&named).rand_bytes(12).permissions(Permissions::from_mode(0o700)).tempdir_in(base);
    made.map_err(|source| ScratchError { base: base.to_owned(), source })
}
