//! What can go wrong between a client and its broker.

use crate::packet::PacketError;
use crate::protocol::Refusal;
use crate::shared::control::ControlError;
use rustix::io::Errno;
use std::path::PathBuf;
use stripewise_layout::FileId;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot open the state directory {}: {source}", path.display())]
    StateDirectory { path: PathBuf, source: Errno },
    #[error("no broker answers in {} ({source}); start the program with `stripewise run`, or the broker with `stripewise broker`", path.display())]
    Unreachable { path: PathBuf, source: Errno },
    #[error("the broker of {} went away and none took its place within {waited_s} s", path.display())]
    Lost { path: PathBuf, waited_s: u64 },
    #[error("talking to the broker: {0}")]
    Packet(#[source] PacketError),
    #[error("{0}")]
    Refused(#[source] Refusal),
    #[error("the broker answered {request} with {what}; client and broker are of different builds")]
    Unexpected { request: &'static str, what: String },
    #[error("all process slots of this cluster are taken; end some of the processes that use it")]
    NoProcessSlot,
    #[error("the state directory {} holds another cluster than before, or was made anew; end this program and start it again", path.display())]
    OtherState { path: PathBuf },
    #[error("the file system of the state directory {} is full; free some room there", path.display())]
    StateFull { path: PathBuf },
    #[error("file {file} was deleted or released while it was being opened")]
    Gone { file: FileId },
    #[error("file {file}: {source}")]
    Control { file: FileId, source: ControlError },
    #[error("{action}: {source}")]
    Os { action: &'static str, source: Errno },
}

impl From<PacketError> for ClientError {
    fn from(error: PacketError) -> Self {
        ClientError::Packet(error)
    }
}
