//! Why the broker refuses a request, and which refusal an error of the store becomes.

use crate::server::ServerError;
use crate::shared::control::ControlError;
use crate::state::StateError;
use serde::{Deserialize, Serialize};
use stripewise_layout::FileId;

/// Why the broker refused a request. The client maps each refusal to one errno, exhaustively.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Another protocol version: `EIO`.
    #[error("the broker speaks protocol {broker}, the client {client}; use one version of stripewise")]
    Version {
        /// Its [`PROTOCOL_VERSION`](super::PROTOCOL_VERSION).
        broker: u32,
        /// The version in the client's hello.
        client: u32,
    },
    /// `ESTALE`.
    #[error("no file {file} in this cluster")]
    UnknownFile {
        /// As the request named it.
        file: FileId,
    },
    /// `ESTALE`.
    #[error("{path} is a copy of the stub of file {file}, not the stub itself; run `stripewise check`")]
    CopiedStub {
        /// The file that the text names.
        file: FileId,
        /// Where the real stub was last seen.
        path: String,
    },
    /// `ESTALE`.
    #[error("the stub belongs to cluster {stub}, this is {cluster}")]
    OtherCluster {
        /// Cluster in the stub's text.
        stub: String,
        /// The broker's cluster.
        cluster: String,
    },
    /// `EACCES`.
    #[error("the descriptor does not permit this")]
    NotPermitted,
    /// No free space: `ENOSPC`.
    #[error("no space: {what}")]
    NoSpace {
        /// What there is no space for, and where.
        what: String,
    },
    /// A server is not usable: `EIO`. `what` names the server.
    #[error("{what}")]
    Server {
        /// Name of the server.
        server: String,
        /// The server's error, with its name.
        what: String,
    },
    /// The file is held exclusively: `EBUSY`.
    #[error("file {file} is held by {holder}")]
    Busy {
        /// The file.
        file: FileId,
        /// Who holds it, for people.
        holder: String,
    },
    /// As `Busy`, by `apply` or `release`: an open waits 20 s for their end, then fails with `EBUSY`.
    #[error("file {file} is held by {holder}, which has not ended in time; end it, or wait and try again")]
    Held {
        /// The file.
        file: FileId,
        /// Who holds it, for people.
        holder: String,
    },
    /// The client asks again for 20 s, then fails with `EBUSY`.
    #[error("the name {path} is being changed by another process")]
    NameInUse {
        /// The name in question.
        path: String,
    },
    /// Another file has the name than the client saw. The client looks the name up again: `EBUSY`.
    #[error("another file stands at {path} than when it was looked at")]
    NameChanged {
        /// The name in question.
        path: String,
    },
    /// Beyond the largest file: `EFBIG`.
    #[error("too large: {what}")]
    TooLarge {
        /// What is too large, and the limit.
        what: String,
    },
    /// A request that makes no sense: `EINVAL`.
    #[error("{what}")]
    Invalid {
        /// The value and the remedy.
        what: String,
    },
    /// No new file is managed there, any more perhaps: `EINVAL`.
    #[error("{path} is neither below a managed directory nor in a plan")]
    NotManaged {
        /// Where the file would be.
        path: String,
    },
    /// The mapping table failed: `EIO`.
    #[error("mapping table: {what}")]
    Table {
        /// The table's error.
        what: String,
    },
}

/// There is no space for `what` in the state directory.
#[must_use]
pub fn state_full(what: &str) -> Refusal {
    let what = format!("the file system of the state directory is full and has no space for {what}; free some there");
    Refusal::NoSpace { what }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::LayoutsFull { .. } | ControlError::TooManyRegions { .. } => {
                Refusal::TooLarge { what: error.to_string() }
            }
            ControlError::Os(errno) if StateError::is_full(errno) => state_full("a file's layouts"),
            ControlError::NotAControlBlock | ControlError::OtherVersion { .. } | ControlError::Os(_) => {
                Refusal::Table { what: error.to_string() }
            }
        }
    }
}

impl From<ServerError> for Refusal {
    fn from(error: ServerError) -> Self {
        (&error).into()
    }
}

impl From<&ServerError> for Refusal {
    fn from(error: &ServerError) -> Self {
        let what = error.to_string();
        match error {
            ServerError::NoSpace { .. } => Refusal::NoSpace { what },
            ServerError::Missing { server, .. }
            | ServerError::Exists { server, .. }
            | ServerError::Unusable { server, .. }
            | ServerError::NotAnswering { server, .. }
            | ServerError::ShutOut { server }
            | ServerError::Denied { server }
            | ServerError::Os { server, .. } => Refusal::Server { server: server.clone(), what },
        }
    }
}
