//! Whose cluster it is. What a cluster file names (directories, a state directory, clocks) is done by whoever runs the command: root would do
//! what any user wrote there. So root uses root's clusters only, and becomes the owner for those of others (`--as-owner`), as `git` has its
//! `safe.directory`.

use crate::messages::shown;
use crate::paths::{OnPath as _, PathError};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use stripewise_layout::{Cluster, ClusterError};
use stripewise_store::entry::User;
use thiserror::Error;

const ROOT: u32 = 0;

/// Why a cluster is not used, for whose it is.
#[derive(Debug, Error)]
pub enum OwnerError {
    /// It could not be found out.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Root would do what another user wrote.
    #[error(
        "{} belongs to user {owner}, this is root: nothing was done, since root would do what user {owner} wrote there. Repeat with --as-owner, or as that user",
        shown(path)
    )]
    OfAnother {
        /// The cluster file.
        path: PathBuf,
        /// Its owner's uid.
        owner: u32,
    },
    /// Only root becomes another.
    #[error(
        "--as-owner: the cluster belongs to user {owner}, this is user {caller}; only root can become another user"
    )]
    NotRoot {
        /// The uid of the cluster's owner.
        owner: u32,
        /// The effective uid of this process.
        caller: u32,
    },
    /// The system refused.
    #[error("--as-owner: cannot become user {owner}")]
    Become {
        /// The uid of the cluster's owner.
        owner: u32,
        /// Its cause.
        source: rustix::io::Errno,
    },
    /// The cluster file is wrong.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

/// Refuses the cluster file of another user to root.
pub(crate) fn check(file: &File, cluster_file: &Path) -> Result<(), OwnerError> {
    let owner = file.metadata().on("look at", cluster_file)?.uid();
    if rustix::process::geteuid().is_root() && owner != ROOT {
        return Err(OwnerError::OfAnother { path: cluster_file.to_owned(), owner });
    }
    Ok(())
}

/// The owner of a state directory.
pub(crate) fn of_state(state: &Path) -> Result<u32, OwnerError> {
    Ok(owner_of(state)?)
}

/// The owner of a cluster: of its file; of the state directory that a cluster file of root names; of the directory in which `init` will make them.
pub(crate) fn of_cluster(file: &Path) -> Result<u32, OwnerError> {
    if !file.exists() {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Ok(owner_of(parent)?);
    }
    Ok(match owner_of(file)? {
        ROOT => {
            let state = Cluster::load(file)?.state;
            if state.exists() { owner_of(&state)? } else { ROOT }
        }
        owner => owner,
    })
}

/// Makes this process the owner of a cluster, for good.
pub(crate) fn become_user(owner: u32) -> Result<(), OwnerError> {
    let caller = rustix::process::geteuid().as_raw();
    if owner == caller {
        return Ok(());
    }
    if caller != ROOT {
        return Err(OwnerError::NotRoot { owner, caller });
    }
    User::of(owner).become_for_good().map_err(|source| OwnerError::Become { owner, source })
}

fn owner_of(path: &Path) -> Result<u32, PathError> {
    Ok(std::fs::metadata(path).on("look at", path)?.uid())
}
