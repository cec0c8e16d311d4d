//! What an error of the data path means to a program: one errno each.
//!
//! Matches name every variant, so that a new error does not compile until someone has decided what a program shall see.

use crate::client::ClientError;
use crate::file::FileError;
use crate::packet::PacketError;
use crate::protocol::Refusal;
use crate::server::ServerError;
use crate::shared::control::ControlError;
use crate::stub::StubError;
use rustix::io::Errno;

/// The errno that a system call would have failed with.
pub trait ToErrno {
    /// One errno for each variant; what a program cannot mend is `EIO`.
    fn errno(&self) -> Errno;
}

impl ToErrno for FileError {
    fn errno(&self) -> Errno {
        match self {
            FileError::ObjectMissing { .. } | FileError::GateStuck { .. } => Errno::IO,
            FileError::Server { source, .. } => source.errno(),
            FileError::Broker { source, .. } => source.errno(),
            FileError::TooLarge { .. } => Errno::FBIG,
            FileError::Stub { source, .. } => *source,
            FileError::NotWritable { .. } => Errno::BADF,
            FileError::AppendShared { .. } => Errno::OPNOTSUPP,
            FileError::Replaced { .. } => Errno::STALE,
            FileError::ShutOut { .. } => Errno::IO,
        }
    }
}

impl ToErrno for ClientError {
    fn errno(&self) -> Errno {
        match self {
            ClientError::StateDirectory { source, .. } | ClientError::Os { source, .. } => *source,
            ClientError::Unreachable { .. }
            | ClientError::NoAgent { .. }
            | ClientError::Lost { .. }
            | ClientError::OtherVersion { .. }
            | ClientError::Unexpected { .. } => Errno::IO,
            ClientError::Packet(packet) => packet.errno(),
            ClientError::Refused(refusal) => refusal.errno(),
            ClientError::NoProcessSlot => Errno::AGAIN,
            ClientError::StateFull { .. } => Errno::NOSPC,
            ClientError::OtherState { .. } | ClientError::Gone { .. } => Errno::STALE,
            ClientError::Control { source, .. } => source.errno(),
        }
    }
}

impl ToErrno for ServerError {
    fn errno(&self) -> Errno {
        match self {
            ServerError::Missing { .. }
            | ServerError::Exists { .. }
            | ServerError::Unusable { .. }
            | ServerError::NotAnswering { .. }
            | ServerError::ShutOut { .. } => Errno::IO,
            ServerError::NoSpace { .. } => Errno::NOSPC,
            ServerError::Denied { .. } => Errno::ACCESS,
            // The program's memory, which its server reached by the kernel.
            ServerError::Os { source: Errno::FAULT, .. } => Errno::FAULT,
            // What a server fails with is an I/O error to the program, whatever the server's own words; a full or forbidden one was named above.
            ServerError::Os { .. } => Errno::IO,
        }
    }
}

impl ToErrno for Refusal {
    fn errno(&self) -> Errno {
        match self {
            Refusal::Version { .. } | Refusal::Server { .. } | Refusal::Table { .. } => Errno::IO,
            Refusal::UnknownFile { .. } | Refusal::CopiedStub { .. } | Refusal::OtherCluster { .. } => Errno::STALE,
            Refusal::NotPermitted => Errno::ACCESS,
            Refusal::NoSpace { .. } => Errno::NOSPC,
            Refusal::Busy { .. } | Refusal::Held { .. } | Refusal::NameInUse { .. } | Refusal::NameChanged { .. } => {
                Errno::BUSY
            }
            Refusal::TooLarge { .. } => Errno::FBIG,
            Refusal::Invalid { .. } | Refusal::NotManaged { .. } => Errno::INVAL,
        }
    }
}

impl ToErrno for PacketError {
    fn errno(&self) -> Errno {
        match self {
            PacketError::Closed | PacketError::Truncated | PacketError::Malformed(_) => Errno::IO,
            PacketError::Os(errno) => *errno,
        }
    }
}

impl ToErrno for ControlError {
    fn errno(&self) -> Errno {
        match self {
            ControlError::LayoutsFull { .. } => Errno::NOSPC,
            ControlError::TooManyRegions { .. } => Errno::FBIG,
            ControlError::NotAControlBlock | ControlError::OtherVersion { .. } => Errno::IO,
            ControlError::Os(errno) => *errno,
        }
    }
}

impl ToErrno for StubError {
    fn errno(&self) -> Errno {
        match self {
            StubError::PathTooLong { .. } => Errno::NAMETOOLONG,
            StubError::Version { .. } => Errno::OPNOTSUPP,
            StubError::Damaged { .. } => Errno::STALE,
        }
    }
}
