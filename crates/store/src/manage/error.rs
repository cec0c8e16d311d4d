//! Why a file is not brought under management or back.

use crate::client::ClientError;
use crate::file::FileError;
use crate::stub::StubError;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use stripewise_layout::printing::shown;
use stripewise_layout::{FileId, FileOffset};

/// Why a file is not brought under management or back. Unless it says otherwise, everything is as
/// it was.
#[derive(Debug, thiserror::Error)]
pub enum ManageError {
    /// A directory, a device or the like.
    #[error("{} is {what}; only regular files can be managed", shown(path))]
    NotRegular {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// The file has other names too.
    #[error(
        "{} has {links} names (hard links), of which the others would keep the old data; let symbolic links take their places first",
        shown(path)
    )]
    HardLinked {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// How many names it has.
        links: u64,
    },
    /// The file has a set-user-id or set-group-id bit.
    #[error("{} is set-user-id or set-group-id; such a program cannot be managed", shown(path))]
    SetId {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// The file could not be replaced.
    #[error("{} is immutable or append-only (see lsattr); clear that with chattr first", shown(path))]
    Immutable {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// [`apply`](super::apply) of a stub.
    #[error("{} is managed already (file {file})", shown(path))]
    AlreadyManaged {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// The managed file.
        file: FileId,
    },
    /// [`release`](super::release) of an ordinary file.
    #[error("{} is not a managed file", shown(path))]
    NotManaged {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// The text at the path, or that of the stub to be, is refused.
    #[error("{}: {source}", shown(path))]
    Stub {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// What is wrong with the text.
        source: StubError,
    },
    /// The stub is another cluster's.
    #[error("{} belongs to cluster {found}, this is {expected}; name the right cluster.toml", shown(path))]
    OtherCluster {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// Id of its cluster.
        found: String,
        /// Id of the client's cluster.
        expected: String,
    },
    /// No lease is to be had.
    #[error("{} is open elsewhere ({holders}); close it there and repeat", shown(path))]
    OpenElsewhere {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// Processes that have it open, as far as they can be seen.
        holders: String,
    },
    /// The lease was broken, or another file stood at the path.
    #[error(
        "{} was opened or changed by another program meanwhile; nothing was changed, repeat when it is quiet",
        shown(path)
    )]
    Disturbed {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// What was written does not read back.
    #[error(
        "{}: the copy differs from the original at byte {offset}; nothing was changed. A server returns other data than was written: run `stripewise check`",
        shown(path)
    )]
    Differs {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// The first byte that differs.
        offset: FileOffset,
    },
    /// The original is not what was copied any more, though it looks as it did.
    #[error(
        "{} differs at byte {offset} from what was copied of it: a program wrote to it meanwhile, or a server returns other data than was written; nothing was changed. Repeat when it is quiet, and run `stripewise check` if it stays so",
        shown(path)
    )]
    Changed {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// The first byte that differs.
        offset: FileOffset,
    },
    /// [`Moving::unattended`](super::Moving::unattended) means another file, or one of another size.
    #[error("{} is another file by now, or of another size; nothing was changed", shown(path))]
    Unsuitable {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// [`Moving::unattended`](super::Moving::unattended) on a file system without leases.
    #[error(
        "the file system of {} has no leases, so it is not known whether the file is open; nothing was changed",
        shown(path)
    )]
    NoLease {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// Names can be neither exchanged nor given twice, so that what a program writes to the file meanwhile could be lost.
    #[error(
        "the file system of {} can neither exchange two names nor give a file a second one, so what a program may write to it meanwhile could not be kept; nothing was changed. Copy it with `stripewise cp`",
        shown(path)
    )]
    NoSecondName {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// [`Moving::cancelled`](super::Moving::cancelled) became true.
    #[error("stopped before {} was replaced; nothing was changed", shown(path))]
    Cancelled {
        /// Absolute, without symbolic links.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}; nothing was changed", shown(path))]
    Os {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// What was tried, to follow "cannot".
        action: &'static str,
        /// Its cause.
        source: Errno,
    },
    /// The broker refused or went away.
    #[error("{}: {source}", shown(path))]
    Client {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// Its cause.
        source: ClientError,
    },
    /// The managed file could not be read or written.
    #[error("{}: {source}", shown(path))]
    File {
        /// Absolute, without symbolic links.
        path: PathBuf,
        /// Its cause.
        source: FileError,
    },
}

pub(super) fn os<'a>(path: &'a Path, action: &'static str) -> impl Fn(Errno) -> ManageError + use<'a> {
    move |source| ManageError::Os { path: path.to_owned(), action, source }
}

pub(super) fn client_fault<'a>(path: &'a Path) -> impl Fn(ClientError) -> ManageError + use<'a> {
    move |source| ManageError::Client { path: path.to_owned(), source }
}

pub(super) fn file_fault<'a>(path: &'a Path) -> impl Fn(FileError) -> ManageError + use<'a> {
    move |source| ManageError::File { path: path.to_owned(), source }
}
