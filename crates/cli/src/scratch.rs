//! Directories for what a command needs while it runs.

use anyhow::{Context as _, Result};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

/// A new directory of this user's only, under a name that nobody can foresee; it goes when this is dropped.
pub(crate) fn directory(base: &Path, name: &str) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let named = format!("stripewise-{name}-");
    let made = builder.prefix(&named).rand_bytes(12).permissions(Permissions::from_mode(0o700)).tempdir_in(base);
    made.with_context(|| format!("cannot make a directory in {}", base.display()))
}
