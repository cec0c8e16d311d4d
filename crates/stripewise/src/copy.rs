//! Copies of files in, out and between managed files; mode and times are kept.
//!
//! A copy is made under a temporary name beside its destination and takes the name when it is
//! complete and durable, so that an interrupted copy leaves the destination as it was.

mod target;

use crate::interrupt::Interrupt;
use crate::layouts::PlacementError;
use crate::messages::shown;
use crate::own_places::OwnPlace;
use crate::paths::{PathError, PlaceError, absolute};
use crate::progress::Voice;
use crate::store::{Store, StoreError};
use crate::transfer::{Reader, TransferError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use stripewise_layout::LayoutError;
use stripewise_store::client::ClientError;
use stripewise_store::file::FileError;
use target::Target;
use thiserror::Error;

/// Why a file was not copied. The destination is as it was.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Bytes could not be read or written.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A path could not be made absolute.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// There is no placement for the copy.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// A region of the file that is replaced has no layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Several files into what is no directory.
    #[error("{} is no directory; several files can only be copied into one", shown(path))]
    NoDirectory {
        /// The destination as it was named.
        path: PathBuf,
    },
    /// A directory, a device or the like is to be copied.
    #[error("{} is not a regular file; cp copies regular files only", shown(path))]
    NotRegular {
        /// The source as it was named.
        path: PathBuf,
    },
    /// A directory, a device or the like stands at the destination.
    #[error("{} is no regular file; name another destination", shown(path))]
    Destination {
        /// The destination.
        path: PathBuf,
    },
    /// Source and destination are one file.
    #[error("{} is the source itself", shown(path))]
    Itself {
        /// The destination.
        path: PathBuf,
    },
    /// The destination ends in `..` or is `/`.
    #[error("{} names no file", shown(path))]
    NoName {
        /// The destination.
        path: PathBuf,
    },
    /// The destination is in one of the cluster's own directories.
    #[error(transparent)]
    Own(#[from] OwnPlace),
    /// A name that no managed file can have.
    #[error("{} is not UTF-8; managed files have names in UTF-8", shown(path))]
    NotUtf8 {
        /// The destination.
        path: PathBuf,
    },
    /// An interrupt came.
    #[error("stopped; {} is as it was", shown(path))]
    Stopped {
        /// The destination.
        path: PathBuf,
    },
    /// The broker does not say whether a plan expects the destination.
    #[error("cannot ask whether a plan expects {}", shown(path))]
    Expected {
        /// The destination.
        path: PathBuf,
        /// Its cause.
        source: ClientError,
    },
    /// The broker refused the copy.
    #[error("cannot {what} {}", shown(path))]
    Client {
        /// What was tried, to follow "cannot".
        what: &'static str,
        /// The destination.
        path: PathBuf,
        /// Its cause.
        source: ClientError,
    },
    /// The copy's data could not be made complete.
    #[error("cannot finish {}", shown(path))]
    File {
        /// The destination.
        path: PathBuf,
        /// Its cause.
        source: FileError,
    },
    /// The destination never stays the same for long enough.
    #[error("cannot finish {}: other programs replace it again and again; end them and repeat", shown(path))]
    Contended {
        /// The destination.
        path: PathBuf,
    },
}

type Result<T> = std::result::Result<T, CopyError>;

/// What a copy becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// A managed file.
    Managed,
    /// An ordinary file.
    Ordinary,
}

/// A file that was copied.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Copied {
    /// As it was named.
    pub source: PathBuf,
    /// Absolute path of the copy.
    pub destination: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Whether the copy is a managed file.
    pub managed: bool,
}

/// Copies each of `sources` to `destination`, or into it if it is a directory.
///
/// # Errors
///
/// [`CopyError`]; copies of files before the one that failed stay.
pub fn copy_all(
    store: &Store,
    voice: &Voice,
    sources: &[PathBuf],
    destination: &Path,
    kind: Option<CopyKind>,
    interrupt: Interrupt,
) -> Result<Vec<Copied>> {
    let into = destination.is_dir();
    if sources.len() > 1 && !into {
        return Err(CopyError::NoDirectory { path: destination.to_owned() });
    }
    let copy_one = |source: &PathBuf| match source.file_name() {
        Some(name) if into => copy(store, voice, source, &destination.join(name), kind, interrupt),
        _ => copy(store, voice, source, destination, kind, interrupt),
    };
    sources.iter().map(copy_one).collect()
}

/// Copies the file at `from`, managed or not, to `to`.
///
/// Unless `kind` says what it becomes, the copy is managed if its directory is, if a plan expects its
/// name, or if it replaces a managed file, whose placement it takes over; otherwise it is ordinary.
///
/// # Errors
///
/// [`CopyError`], also after an interrupt.
pub fn copy(
    store: &Store,
    voice: &Voice,
    from: &Path,
    to: &Path,
    kind: Option<CopyKind>,
    interrupt: Interrupt,
) -> Result<Copied> {
    let to = absolute(to)?;
    let reader = Reader::open(store, from)?;
    if !reader.is_regular()? {
        return Err(CopyError::NotRegular { path: from.to_owned() });
    }
    let attributes = reader.attributes()?;
    let mut target = Target::new(store, &to, kind, attributes, reader.identity()?)?;
    let progress = voice.bytes(reader.size_bytes()?, &format!("copying {}", shown(from)));
    reader.each_data(|offset, piece| {
        if interrupt.came() {
            return Err(CopyError::Stopped { path: to.clone() });
        }
        target.write(offset, piece)?;
        progress.set(offset + piece.len() as u64);
        Ok(())
    })?;
    let (bytes, managed) = (reader.size_bytes()?, target.is_managed());
    target.finish(bytes)?;
    Ok(Copied { source: from.to_owned(), destination: to, bytes, managed })
}
