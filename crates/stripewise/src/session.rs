//! Which cluster is meant, and where to report what takes long.

use crate::limits::{self, LimitError};
use crate::messages::shown;
use crate::owner::{self, OwnerError};
use crate::paths::{OnPath as _, PathError};
use crate::progress::Voice;
use crate::variables;
use std::path::PathBuf;
use stripewise_layout::{Cluster, ClusterError, input};
use thiserror::Error;

/// The name of the cluster file in its directory.
pub const CLUSTER_FILE: &str = "cluster.toml";

/// The name of the profile beside the cluster file.
pub const PROFILE_FILE: &str = "profile.json";

/// Why the cluster that is meant is not known.
#[derive(Debug, Error)]
pub enum SessionError {
    /// Nothing stands where its file is looked for.
    #[error(
        "no cluster file {}; make one with `stripewise init`, or name it with --cluster or STRIPEWISE_CLUSTER",
        shown(path)
    )]
    NoCluster {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Its file could not be read.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It is another user's.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// A server cannot do what is asked.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// Its file is wrong.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// What every operation gets: the cluster that is meant, and who listens.
#[derive(Clone)]
pub struct Session {
    cluster: Option<PathBuf>,
    voice: Voice,
}

impl Session {
    /// For the cluster at `cluster`, its file or a directory that holds one; `None` means that of the working directory.
    pub fn new(cluster: Option<PathBuf>, voice: Voice) -> Self {
        Self { cluster, voice }
    }

    /// Who listens.
    pub fn voice(&self) -> &Voice {
        &self.voice
    }

    /// The cluster file that is meant: the one named (a directory means the `cluster.toml` in it), else `./cluster.toml`.
    pub fn cluster_path(&self) -> PathBuf {
        match &self.cluster {
            Some(path) if path.is_dir() => path.join(CLUSTER_FILE),
            Some(path) => path.clone(),
            None => PathBuf::from(CLUSTER_FILE),
        }
    }

    /// Where the cluster's profile stands: beside its file.
    pub fn profile_path(&self) -> PathBuf {
        self.cluster_path().with_file_name(PROFILE_FILE)
    }

    /// Reads the cluster file.
    ///
    /// # Errors
    /// When there is none, it cannot be read, another user than root wrote it for root, it is wrong, or it asks of servers what they cannot do.
    pub fn cluster(&self) -> Result<Cluster, SessionError> {
        let path = self.cluster_path();
        if !path.exists() {
            return Err(SessionError::NoCluster { path });
        }
        let file = input::open_regular(&path).on("read", &path)?;
        owner::check(&file, &path)?;
        let cluster = Cluster::load_from(file, &path, stripewise_store::server::check_url)?;
        limits::check(&cluster, &path)?;
        Ok(cluster)
    }

    /// The state directory of the cluster that is meant; for a program under `stripewise run` that names none, that of the run.
    ///
    /// # Errors
    /// As [`Self::cluster`].
    pub fn state(&self) -> Result<PathBuf, SessionError> {
        match self.state_of_run() {
            Some(state) => Ok(state),
            None => Ok(self.cluster()?.state),
        }
    }

    /// That of the run under which this process runs, unless a cluster is named.
    pub fn state_of_run(&self) -> Option<PathBuf> {
        let state = std::env::var_os(variables::STATE).filter(|state| self.cluster.is_none() && !state.is_empty());
        state.map(PathBuf::from)
    }

    /// The uid of the owner of the cluster that is meant.
    ///
    /// # Errors
    /// When the owner cannot be found out.
    pub fn owner(&self) -> Result<u32, OwnerError> {
        match self.state_of_run() {
            Some(state) => owner::of_state(&state),
            None => owner::of_cluster(&self.cluster_path()),
        }
    }

    /// Makes this process the owner of the cluster that is meant, for good.
    ///
    /// # Errors
    /// When this is neither root nor the owner, or the system refuses.
    pub fn become_owner(&self, owner: u32) -> Result<(), OwnerError> {
        owner::become_user(owner)
    }

    /// Reports a message to the person who asked for the operation.
    pub fn say(&self, message: impl std::fmt::Display) {
        self.voice.say(message);
    }
}
