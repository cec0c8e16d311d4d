//! Why servers could not be measured.

use crate::made_from::MadeFromError;
use crate::messages::shown;
use std::path::PathBuf;
use stripewise_device::UnknownName;
use stripewise_layout::ByteCount;
use stripewise_layout::figures::bytes;
use stripewise_model::ProfileError;
use stripewise_model::fit::FitError;
use stripewise_store::server::ServerError;
use stripewise_store::server::stations::StationsError;
use stripewise_store::state::StateError;
use thiserror::Error;

/// Why servers could not be measured.
#[derive(Debug, Error)]
pub enum CalibrationError {
    /// One server.
    #[error("server `{name}`")]
    Server {
        /// Name of the server.
        name: String,
        /// Its cause.
        source: Box<CalibrationError>,
    },
    /// A server's directory is missing or another's.
    #[error(transparent)]
    Directory(#[from] ServerError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The emulated servers' clocks cannot be used.
    #[error(transparent)]
    Stations(#[from] StationsError),
    /// A device or link that nobody has described.
    #[error(transparent)]
    Device(#[from] UnknownName),
    /// The times make no line.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// The profile cannot be written.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The profile could not be written there, found out before minutes of measuring.
    #[error("cannot write {}", shown(path))]
    Output {
        /// Where the profile is to go.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system refused an access.
    #[error(transparent)]
    Access(#[from] rustix::io::Errno),
    /// A real server where an emulated one is measured.
    #[error("{url} is not an emulated server")]
    NotEmulated {
        /// The server's URL.
        url: String,
    },
    /// A parameter of a server's URL is missing or wrong.
    #[error("{what}")]
    Url {
        /// Name, value and remedy.
        what: String,
    },
    /// The file system does not say how full it is.
    #[error("cannot determine the free space")]
    FreeSpace {
        /// What the system says.
        source: rustix::io::Errno,
    },
    /// Too little is free for a file of which random parts are read.
    #[error(
        "{} has {} free; calibration needs {}: free some space there",
        shown(directory),
        bytes(free.0),
        bytes(needed.0)
    )]
    NoSpace {
        /// The server's directory.
        directory: PathBuf,
        /// What is free there.
        free: ByteCount,
        /// What calibration needs.
        needed: ByteCount,
    },
    /// As [`Self::NoSpace`], of a pool.
    #[error("its pool has {} free; calibration needs {}: free some space there", bytes(free.0), bytes(needed.0))]
    FullPool {
        /// What is free there.
        free: ByteCount,
        /// What calibration needs.
        needed: ByteCount,
    },
    /// Pools are measured by one process at a time.
    #[error(
        "another process measures the pools of the cluster with state directory {}; repeat when it has ended",
        shown(state)
    )]
    Another {
        /// The cluster's state directory.
        state: PathBuf,
    },
    /// It was asked to end.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// There is no file to measure with.
    #[error("cannot {what} a scratch file in {}", shown(directory))]
    Scratch {
        /// What was tried, to follow "cannot".
        what: &'static str,
        /// The server's directory.
        directory: PathBuf,
        /// What the system says.
        source: rustix::io::Errno,
    },
    /// A plan or what it was made from cannot be read.
    #[error(transparent)]
    MadeFrom(#[from] MadeFromError),
    /// A plan and its trace do not fit.
    #[error(transparent)]
    Explain(#[from] stripewise_planner::explain::ExplainError),
    /// A plan for emulated servers is not verified.
    #[error(
        "server `{name}` is emulated: its times are those of the model that the prediction is made of; `stripewise simulate` and `stripewise replay` try a plan on emulated servers"
    )]
    EmulatedPlan {
        /// Name of the server.
        name: String,
    },
    /// The emulated devices take no time.
    #[error("the emulated servers run at the host's pace in this process")]
    HostPace,
}

pub(super) type Result<T> = std::result::Result<T, CalibrationError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_said_as_sizes_are_elsewhere() {
        // Not round, as free space hardly ever is.
        let (free, needed) = (ByteCount(3_214_567), ByteCount(32 << 20));
        let said = CalibrationError::NoSpace { directory: "/a".into(), free, needed }.to_string();
        assert_eq!(said, "/a has 3.1 MiB free; calibration needs 32 MiB: free some space there");
        let said = CalibrationError::FullPool { free, needed }.to_string();
        assert_eq!(said, "its pool has 3.1 MiB free; calibration needs 32 MiB: free some space there");
    }
}
