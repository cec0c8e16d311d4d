//! Why a program was not run.

use crate::applied::AppliedError;
use crate::capture::CaptureError;
use crate::daemon::DaemonError;
use crate::launch::LaunchError;
use crate::relay::RelayError;
use crate::session::SessionError;
use crate::store::StoreError;
use stripewise_store::client::ClientError;
use thiserror::Error;

/// Why a program was not run, or not to its end.
#[derive(Debug, Error)]
pub enum RunError {
    /// Which cluster is meant is not known.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The cluster cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker refused.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Signals cannot be passed on.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// Regions cannot be moved meanwhile.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// What plans say of the run is not known.
    #[error(transparent)]
    Applied(#[from] AppliedError),
    /// The run cannot be captured.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The program was not started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Nothing says where regions should lie.
    #[error(
        "--migrate: no plan was applied to managed files of this cluster; `stripewise apply` one first, name one with --plan, or plan while the program runs with --online"
    )]
    NoPlan,
}

impl RunError {
    /// See [`LaunchError::exit_status`].
    #[must_use]
    pub fn exit_status(&self) -> Option<u8> {
        match self {
            Self::Launch(error) => error.exit_status(),
            _ => None,
        }
    }
}
