//! Directories of the cluster itself, in which no file of a person belongs.

use std::path::{Path, PathBuf};
use stripewise_layout::Cluster;
use stripewise_store::server::is_by_agent;
use thiserror::Error;

/// A path in a directory of the cluster itself.
#[derive(Debug, Error)]
#[error(
    "{} lies in {whose}, which holds the cluster's own files alone; name another place",
    crate::messages::shown(path)
)]
pub struct OwnPlace {
    /// Absolute path without links.
    path: PathBuf,
    whose: String,
}

/// Refuses `path`, absolute and without links, if it is the state directory or a server's directory, or lies below one.
pub(crate) fn refuse(cluster: &Cluster, path: &Path) -> Result<(), OwnPlace> {
    let lies_in = |directory: &Path| {
        let directory = std::fs::canonicalize(directory);
        directory.is_ok_and(|directory| path.starts_with(directory))
    };
    let refused = |whose: String| Err(OwnPlace { path: path.to_owned(), whose });
    if lies_in(&cluster.state) {
        return refused(format!("the state directory {}", crate::messages::shown(&cluster.state)));
    }
    let directories = cluster.servers.iter().filter(|server| !is_by_agent(&server.url));
    match directories.into_iter().find(|server| lies_in(server.url.directory())) {
        Some(server) => {
            let directory = crate::messages::shown(server.url.directory());
            refused(format!("the directory {directory} of server {}", server.name))
        }
        None => Ok(()),
    }
}
