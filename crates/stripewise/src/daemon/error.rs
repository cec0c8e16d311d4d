//! Why a daemon does not start, or what it could not do.

use crate::messages::shown;
use crate::moves::MoveError;
use crate::named_plan::NamedPlanError;
use crate::paths::PathError;
use crate::store::StoreError;
use std::net::SocketAddr;
use std::path::PathBuf;
use stripewise_layout::LayoutError;
use stripewise_layout::figures::duration;
use stripewise_model::ProfileError;
use stripewise_planner::RequestError;
use stripewise_store::client::ClientError;
use stripewise_store::state::StateError;
use thiserror::Error;

/// Why a daemon does not start, or what it could not do.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The cluster cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Moves cannot be ordered.
    #[error(transparent)]
    Moves(#[from] MoveError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system refused.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The plan cannot be read, is for another cluster, or not worth its moves.
    #[error(transparent)]
    Plan(#[from] NamedPlanError),
    /// The profile cannot be read or is of another cluster.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The policy cannot plan.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A layout makes no sense.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The broker refused, or is not there.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The system refused something of a socket.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Another process is the daemon.
    #[error(
        "{process} is the daemon of {} already (`stripewise daemon` or `stripewise run --migrate`); stop it first, or leave the moves to it",
        shown(state)
    )]
    Another {
        /// The process, in words.
        process: String,
        /// The state directory.
        state: PathBuf,
    },
    /// A process of another host is the daemon.
    #[error("{what}; stop it first, or leave the moves to it")]
    AnotherHost {
        /// Who it is.
        what: String,
    },
    /// No thread was to be had.
    #[error("cannot start a thread")]
    Thread {
        /// What the system says.
        source: std::io::Error,
    },
    /// No random bits for a token.
    #[error("cannot get random bits")]
    Random {
        /// What the system says.
        source: rustix::io::Errno,
    },
    /// An address or path at which nobody may listen.
    #[error("cannot listen at {at}")]
    Listen {
        /// Address or path.
        at: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// An address that others reach.
    #[error("--metrics {address}: only this host may ask (127.0.0.1 or [::1]); put a proxy before it for others")]
    NotLoopback {
        /// As it was given.
        address: SocketAddr,
    },
    /// A phase was marked where windows go by time.
    #[error("the plan is followed by time; start it with --windows phase to follow phases")]
    ByTime,
    /// A phase was marked where no plan is followed.
    #[error("no plan is followed; start the daemon with --plan PLAN --windows phase")]
    NoPlan,
    /// A window that the plan has not.
    #[error("the plan has windows 0 to {last}, not {number}")]
    NoWindow {
        /// The plan's last window.
        last: usize,
        /// The window that was marked.
        number: usize,
    },
    /// A plan whose placement makes no sense on this cluster.
    #[error("{}: {file}: {what}", shown(path))]
    Placement {
        /// The plan's file.
        path: PathBuf,
        /// File of the plan.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// Programs cannot be watched.
    #[error("asking the broker to let programs be watched")]
    Watch {
        /// Its cause.
        source: ClientError,
    },
    /// The broker did not say how far it is.
    #[error("asking the broker")]
    Ask {
        /// Its cause.
        source: Box<DaemonError>,
    },
    /// The metrics contradict each other, or a value is none.
    #[error("writing the metrics")]
    Metrics {
        /// Its cause.
        source: prometheus::Error,
    },
    /// The broker is of another version.
    #[error("the broker answered with something else; use one version of stripewise")]
    Answer,
    /// Nobody can ask any more.
    #[error("the socket's threads ended")]
    SocketEnded,
    /// A window in which little is seen.
    #[error(
        "--window: {} is too short to see what programs do; give at least 100ms, better some seconds",
        duration(*window_s)
    )]
    ShortWindow {
        /// As it was given.
        window_s: f64,
    },
    /// A weight that is none.
    #[error("--decay: {decay} is not a weight; use a number from 0 to 1, for example 0.5")]
    Decay {
        /// As it was given.
        decay: f64,
    },
    /// Phases are those of a plan.
    #[error("--windows phase: phases are those of a plan; with --online, every window has the length of --window")]
    OnlineByPhase,
    /// Phases are those of a plan.
    #[error("--windows phase: there is no plan to follow; name one with --plan")]
    PhasesWithoutPlan,
    /// The thread that follows a plan ended by a fault of this crate.
    #[error("the thread that follows the plan panicked")]
    Panicked,
}

pub(super) type Result<T> = std::result::Result<T, DaemonError>;
