//! What can go wrong with an open file.

use crate::client::ClientError;
use crate::server::ServerError;
use rustix::io::Errno;
use stripewise_layout::{FileId, FileOffset, Generation, RegionIndex};

/// Why a call on an open file failed. [`ToErrno`](crate::errno::ToErrno) says what a program sees.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A region's place has no object on a server: data is lost.
    #[error(
        "file {file}: server {server} has no object of region {region}, generation {generation}; see `stripewise check`"
    )]
    ObjectMissing {
        /// The managed file.
        file: FileId,
        /// The region.
        region: RegionIndex,
        /// Of the region's place.
        generation: Generation,
        /// Name of the server.
        server: String,
    },
    /// A server failed, and no replica could serve instead.
    #[error("file {file}: {source}")]
    Server {
        /// The managed file.
        file: FileId,
        /// Its error.
        source: ServerError,
    },
    /// The broker refused, or cannot be reached.
    #[error("file {file}: {source}")]
    Broker {
        /// The managed file.
        file: FileId,
        /// Its cause.
        source: ClientError,
    },
    /// Somebody holds the file, for a truncation or a release, and does not end.
    #[error("file {file} was held exclusively for more than {waited_s} s; see `stripewise check`")]
    GateStuck {
        /// The managed file.
        file: FileId,
        /// For how long the gate was waited for.
        waited_s: u64,
    },
    /// The file's number of regions does not reach so far.
    #[error("file {file}: byte {offset} lies beyond the largest size of {limit_bytes} bytes; use a larger region size")]
    TooLarge {
        /// The managed file.
        file: FileId,
        /// The end that was asked for.
        offset: FileOffset,
        /// As [`StripedFile::limit_bytes`](super::StripedFile::limit_bytes).
        limit_bytes: u64,
    },
    /// The stub could not be made durable.
    #[error("file {file}: syncing its stub: {source}")]
    Stub {
        /// The managed file.
        file: FileId,
        /// Its cause.
        source: Errno,
    },
    /// The stub's descriptor was not open for writing.
    #[error("file {file} is not open for writing")]
    NotWritable {
        /// The managed file.
        file: FileId,
    },
    /// The end of a file that other hosts use too is nobody's to write at: hosts do not take turns there.
    #[error(
        "file {file} cannot be appended to: its cluster is used by several hosts, which do not take turns at the end of a file; write at offsets instead"
    )]
    AppendShared {
        /// The managed file.
        file: FileId,
    },
    /// The memory that this open shares with others is no longer the broker's.
    #[error("file {file} was reset by another broker; close it and open it again")]
    Replaced {
        /// The managed file.
        file: FileId,
    },
    /// The other hosts of the cluster went on without this one while the file was open.
    #[error(
        "file {file}: this host did not answer the cluster's master and was shut out; what was written here and neither synced nor closed may be lost. Close the file and open it again"
    )]
    ShutOut {
        /// The managed file.
        file: FileId,
    },
}

impl FileError {
    /// Whether the request failed for want of free descriptor numbers, so that it did nothing and may be repeated once there are some. Nothing else may be: the
    /// kernel tells a failed write-back once per open file, and a second try would hide it.
    #[must_use]
    pub fn lacks_descriptors(&self) -> bool {
        match self {
            FileError::Server { source: ServerError::Os { source, .. }, .. } => *source == Errno::MFILE,
            FileError::Broker { source, .. } => source.lacks_descriptors(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::PacketError;

    #[test]
    fn what_a_server_failed_with_is_not_for_want_of_descriptors() {
        let of_server = |source| {
            let source = ServerError::Os { server: "a".into(), action: "writing an object", source };
            FileError::Server { file: FileId(1), source }
        };
        assert!(!of_server(Errno::IO).lacks_descriptors());
        assert!(of_server(Errno::MFILE).lacks_descriptors());
        let of_broker = |source: ClientError| FileError::Broker { file: FileId(1), source };
        assert!(of_broker(PacketError::Truncated.into()).lacks_descriptors());
        assert!(!of_broker(PacketError::Closed.into()).lacks_descriptors());
        assert!(!FileError::GateStuck { file: FileId(1), waited_s: 60 }.lacks_descriptors());
    }
}
