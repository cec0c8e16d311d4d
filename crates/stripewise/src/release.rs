//! Turning managed files back into ordinary ones.

use crate::interrupt::Interrupt;
use crate::progress::Voice;
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise_store::manage::{self, ManageError, Moving};
use thiserror::Error;

/// Why a file stays managed.
#[derive(Debug, Error)]
pub enum ReleaseError {
    /// The cluster or the file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The data could not be copied out, or an interrupt came; the file is managed as before.
    #[error(transparent)]
    Manage(#[from] ManageError),
}

/// A file that is ordinary again.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Released {
    /// As it was named.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes that were copied; holes are not.
    pub copied_bytes: u64,
}

/// Turns the managed file at `path` back into an ordinary one. The data is copied out and verified
/// before it takes the stub's place; what did not go as it should after that is reported to `voice`. `unchecked_hosts` are not asked for programs that
/// have the stub open without their agents knowing.
///
/// # Errors
///
/// [`ReleaseError`], also after an interrupt. The file is managed as before then.
pub fn release(
    store: &Store,
    voice: &Voice,
    path: &Path,
    unchecked_hosts: &[String],
    interrupt: Interrupt,
) -> Result<Released, ReleaseError> {
    // Copying and verifying count each.
    let total_bytes = store.managed(path, false)?.striped.size_bytes() * 2;
    let bar = voice.bytes(total_bytes, &format!("releasing {}", path.display()));
    let progress = |done, _| bar.set(done);
    let (cancelled, progress) = (Some(interrupt.flag()), Some(&progress as &dyn Fn(u64, u64)));
    let moving = Moving { cancelled, progress, unchecked_hosts, ..Moving::default() };
    let moved = manage::release(&store.client, path, &moving)?;
    drop(bar);
    if let Some(note) = &moved.note {
        voice.say(format_args!("{}: {note}", path.display()));
    }
    Ok(Released { path: path.to_owned(), size_bytes: moved.size_bytes, copied_bytes: moved.copied_bytes })
}
