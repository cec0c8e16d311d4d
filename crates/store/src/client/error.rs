//! What can go wrong between a client and its broker.

use crate::packet::PacketError;
use crate::protocol::Refusal;
use crate::shared::control::ControlError;
use rustix::io::Errno;
use std::path::PathBuf;
use stripewise_layout::FileId;

/// Why a client cannot use its broker or open a file. [`ToErrno`](crate::errno::ToErrno) says what
/// a program sees.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The state directory is missing or closed to this user.
    #[error("cannot open the state directory {}: {source}", path.display())]
    StateDirectory {
        /// The state directory.
        path: PathBuf,
        /// Its cause.
        source: Errno,
    },
    /// Nobody listens on the broker's socket, or it does not answer.
    #[error("no broker answers in {} ({source}); start the program with `stripewise run`, or the broker with `stripewise broker`", path.display())]
    Unreachable {
        /// The state directory.
        path: PathBuf,
        /// Its cause.
        source: Errno,
    },
    /// The agent of this host found no master.
    #[error("no agent serves this host within {waited_s} s: the cluster has no master that it reaches; {}/log says why", path.display())]
    NoAgent {
        /// The state directory.
        path: PathBuf,
        /// For how long it was waited for.
        waited_s: u64,
    },
    /// The connection ended, and no successor was found in time.
    #[error("the broker of {} went away and none took its place within {waited_s} s", path.display())]
    Lost {
        /// The state directory.
        path: PathBuf,
        /// For how long one was looked for.
        waited_s: u64,
    },
    /// A message did not go or come, for another reason than the end of the connection.
    #[error("talking to the broker: {0}")]
    Packet(#[source] PacketError),
    /// The broker answered that it will not.
    #[error("{0}")]
    Refused(#[source] Refusal),
    /// The process that serves the cluster is of another version, as after an upgrade.
    #[error(
        "process {process} serves this cluster with protocol {broker}, this stripewise has protocol {client}; wait until it and the programs that it serves have ended, end them, or use their version of stripewise"
    )]
    OtherVersion {
        /// Id of the broker's process.
        process: u32,
        /// The broker's [`PROTOCOL_VERSION`](crate::protocol::PROTOCOL_VERSION).
        broker: u32,
        /// That of this process.
        client: u32,
    },
    /// The broker's answer does not fit the request.
    #[error("the broker answered {request} with {what}; client and broker are of different builds")]
    Unexpected {
        /// Name of the request.
        request: &'static str,
        /// The answer, or what it lacks.
        what: String,
    },
    /// 4,096 processes of this host use the cluster already.
    #[error("all process slots of this cluster are taken; end some of the processes that use it")]
    NoProcessSlot,
    /// The broker that was found later serves other data: nothing that is open here may be used
    /// with it.
    #[error("the state directory {} holds another cluster than before, or was reset; end this program and start it again", path.display())]
    OtherState {
        /// The state directory.
        path: PathBuf,
    },
    /// Shared memory of a file could not be given space.
    #[error("the file system of the state directory {} is full; free some space there", path.display())]
    StateFull {
        /// The state directory.
        path: PathBuf,
    },
    /// The file's control block says that it is gone.
    #[error("file {file} was deleted or released while it was being opened")]
    Gone {
        /// That file.
        file: FileId,
    },
    /// A file's control block cannot be used.
    #[error("file {file}: {source}")]
    Control {
        /// That file.
        file: FileId,
        /// Its cause.
        source: ControlError,
    },
    /// The operating system refused.
    #[error("{action}: {source}")]
    Os {
        /// What was tried, as in "mapping the table of processes".
        action: &'static str,
        /// Its cause.
        source: Errno,
    },
}

impl From<PacketError> for ClientError {
    fn from(error: PacketError) -> Self {
        ClientError::Packet(error)
    }
}

impl ClientError {
    /// Whether descriptors that came with an answer, or were to be made, had no free number.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        match self {
            ClientError::Packet(error) => matches!(error, PacketError::Truncated | PacketError::Os(Errno::MFILE)),
            ClientError::Os { source, .. } | ClientError::Unreachable { source, .. } => *source == Errno::MFILE,
            ClientError::Control { source, .. } => matches!(source, ControlError::Os(Errno::MFILE)),
            _ => false,
        }
    }
}
