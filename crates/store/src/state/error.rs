//! Why a state directory cannot be used, with the path and the remedy.

use super::HOST;
use crate::entry::what_stands;
use rustix::io::Errno;
use std::path::PathBuf;

/// Why a state directory cannot be used. Messages name the path and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Os {
        /// The file or directory concerned.
        path: PathBuf,
        /// What was tried, to follow "cannot".
        action: &'static str,
        /// Its cause.
        source: Errno,
    },
    /// Another host has used the directory; shared memory and locks would not reach it.
    #[error(
        "the cluster with state directory {} is in use by host {first} (machine {machine}); this is host {this}. Stripewise keeps shared memory and locks on one host: run on {first}, \
         or, if {first} will never use this cluster again and nothing of it runs there, rename {} to host.old and repeat",
        path.display(),
        path.join(HOST).display()
    )]
    OtherHost {
        /// The state directory.
        path: PathBuf,
        /// Name of that host.
        first: String,
        /// Its machine id.
        machine: String,
        /// Name of this host.
        this: String,
    },
    /// `host` is of another version, or damaged.
    #[error("{}: not a host file of this version (`{text}`); use the stripewise that wrote it, or, if no other host uses this cluster, rename it to host.old and repeat", path.display())]
    HostFile {
        /// That file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// `drained` is of another version, or damaged.
    #[error("{}: not a list of drained servers of this version (`{text}`); use the stripewise that wrote it, or correct it: `stripewise drained 1`, then one server's name a line", path.display())]
    DrainedFile {
        /// That file.
        path: PathBuf,
        /// What it says.
        text: String,
    },
    /// The directory belongs to another user.
    #[error(
        "the state directory {} belongs to user {owner}, this is user {caller}; nothing in it was touched. Only its owner runs commands on a cluster: be that user, or, as root, repeat with --as-owner",
        path.display()
    )]
    OtherOwner {
        /// The state directory.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
        /// The effective uid of this process.
        caller: u32,
    },
    /// Other users could put links in the place of files.
    #[error(
        "the state directory {} can be written by other users (mode {mode:o}); nothing in it was touched. Look whether all in it is yours, then take that right away: chmod go-w",
        path.display()
    )]
    OpenToWriters {
        /// The state directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The directory that `init` made is not there, or holds nothing.
    #[error(
        "the state directory {} is {how}, but `stripewise init` made it: its file system is not mounted, or the directory was moved or removed. Mount it, or correct `state` in cluster.toml; \
         nothing was made there. If it is lost for good, `stripewise check --repair` makes it again from what the servers hold",
        path.display()
    )]
    Lost {
        /// The state directory.
        path: PathBuf,
        /// `missing` or `empty`.
        how: &'static str,
    },
    /// The directory holds other things; probably `state` in cluster.toml is wrong.
    #[error("{} is no state directory: it holds other things; correct `state` in cluster.toml, or name an empty directory", path.display())]
    NotState {
        /// The directory.
        path: PathBuf,
    },
    /// A link, a directory or somebody else's file stands where a file of the state directory
    /// belongs.
    #[error(
        "{}: {what} stands in the place of a file of the state directory; it was not touched. Find out who put it there, and move it elsewhere",
        path.display()
    )]
    Foreign {
        /// Where it stands.
        path: PathBuf,
        /// What it is, with its article.
        what: &'static str,
    },
    /// Nobody listens on the broker's socket.
    #[error("{}: no broker answers there; start one with `stripewise run`, or any other stripewise command", path.display())]
    NoBroker {
        /// The state directory.
        path: PathBuf,
    },
}

impl StateError {
    /// Whether an error is for want of space on the state directory's file system.
    #[must_use]
    pub fn is_full(errno: Errno) -> bool {
        matches!(errno, Errno::NOSPC | Errno::DQUOT)
    }
}

/// An error at `path`; of an `open` that met something else than a file of this user, what stands there.
pub(super) fn fault_of(path: PathBuf, action: &'static str, source: Errno) -> StateError {
    match what_stands(source).filter(|_| action == "open") {
        Some(what) => StateError::Foreign { path, what },
        None => StateError::Os { path, action, source },
    }
}
