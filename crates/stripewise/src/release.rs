//! Turning managed files back into ordinary ones.

use crate::interrupt::Interrupt;
use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use crate::progress::Voice;
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise_layout::figures::shortage;
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
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The file's own file system holds no copy of the data.
    #[error(
        "no space to release {}: {} of data are to lie on the file system of {}, which has {} free; nothing was changed. Free some space there, or copy the \
         file elsewhere with `stripewise cp --ordinary`",
        shown(path),
        shortage(*free_bytes, *needed_bytes).1,
        shown(directory_of(path)),
        shortage(*free_bytes, *needed_bytes).0
    )]
    NoSpace {
        /// As it was named.
        path: PathBuf,
        /// Bytes that the ordinary file occupies.
        needed_bytes: u64,
        /// Bytes that are free where it is to lie.
        free_bytes: u64,
    },
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

/// Refuses before anything is copied what the file system of the stub has no space for; the file's size.
fn check_space(store: &Store, path: &Path) -> Result<u64, ReleaseError> {
    let striped = store.managed(path, false)?.striped;
    let size_bytes = striped.size_bytes();
    // Holes take no space. A server that cannot be asked may hold all of it.
    let held = store.held_bytes(striped.id())?;
    let held_bytes: Option<u64> = held.into_iter().try_fold(0u64, |sum, bytes| Some(sum.saturating_add(bytes?)));
    let needed_bytes = held_bytes.map_or(size_bytes, |held_bytes| held_bytes.min(size_bytes));
    let found = rustix::fs::statvfs(directory_of(path)).on("ask for the free space of", directory_of(path))?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    if needed_bytes > free_bytes {
        return Err(ReleaseError::NoSpace { path: path.to_owned(), needed_bytes, free_bytes });
    }
    Ok(size_bytes)
}

/// The directory in which the file at `path` lies, links not resolved.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
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
    let size_bytes = check_space(store, path)?;
    // Copying and verifying count each.
    let total_bytes = size_bytes * 2;
    let bar = voice.bytes(total_bytes, &format!("releasing {}", shown(path)));
    let progress = |done, _| bar.set(done);
    let (cancelled, progress) = (Some(interrupt.flag()), Some(&progress as &dyn Fn(u64, u64)));
    let moving = Moving { cancelled, progress, unchecked_hosts, ..Moving::default() };
    let moved = manage::release(&store.client, path, &moving)?;
    drop(bar);
    if let Some(note) = &moved.note {
        voice.say(format_args!("{}: {note}", shown(path)));
    }
    Ok(Released { path: path.to_owned(), size_bytes: moved.size_bytes, copied_bytes: moved.copied_bytes })
}
