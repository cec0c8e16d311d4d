//! Whether small parts of requests to a file's disks go to SSDs.

use crate::messages::shown;
use crate::session::Session;
use crate::store::{Store, StoreError};
use serde::Serialize;
use std::path::PathBuf;
use stripewise_layout::FileId;
use stripewise_store::protocol::{Admin, FragmentStatus, Reply};
use thiserror::Error;

/// Why fragments of files cannot be switched.
#[derive(Debug, Error)]
pub enum FragmentsError {
    /// The cluster or a file cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is nowhere to put fragments.
    #[error(
        "{} reserves no space for fragments; write `fragment_room = \"256MiB\"`, or another size, above its first [[server]]",
        shown(cluster)
    )]
    NoSpace {
        /// The cluster file.
        cluster: PathBuf,
    },
    /// The broker refused it for one file.
    #[error("{}", shown(path))]
    File {
        /// As it was named.
        path: PathBuf,
        /// Its cause.
        source: Box<StoreError>,
    },
}

/// What the broker reports of a file's fragments.
#[derive(Debug)]
pub struct FragmentState {
    /// Whether they go to SSDs.
    pub on: bool,
    /// The setting of the file itself; `None`: the cluster file's setting holds.
    pub set_by_file: Option<bool>,
    /// Logs of the disks whose fragments have one.
    pub servers: Vec<FragmentStatus>,
}

/// A file whose setting was changed.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct FragmentsSet {
    /// As it was named.
    pub path: PathBuf,
    /// Its id.
    pub file: FileId,
    /// Whether its fragments go to SSDs now.
    pub on: bool,
    /// The setting of the file itself; `None`: the cluster file's setting holds.
    pub set_by_file: Option<bool>,
}

/// Whether fragments of a file go to SSDs, and what its logs hold.
///
/// # Errors
///
/// [`StoreError::Client`], also where there is no such file, or [`StoreError::Answer`].
pub fn fragments(store: &Store, file: FileId) -> Result<FragmentState, StoreError> {
    let Reply::FileFragments { on, set_by_file, servers } = store.admin(Admin::Fragments { file })? else {
        return Err(StoreError::Answer { question: "a question for fragments" });
    };
    Ok(FragmentState { on, set_by_file, servers })
}

/// Sends fragments of the managed files at `paths` to SSDs or not; `None`: as the cluster file says.
/// `session` is the one that `store` was opened with.
///
/// All files are opened before the first is switched.
///
/// # Errors
///
/// [`FragmentsError::NoSpace`], [`FragmentsError::Store`] if a file is not managed (nothing is
/// switched then), [`FragmentsError::File`]; files before that one are switched.
pub fn set_fragments(
    session: &Session,
    store: &Store,
    paths: &[PathBuf],
    on: Option<bool>,
) -> Result<Vec<FragmentsSet>, FragmentsError> {
    if on == Some(true) && !store.cluster.has_fragment_capacity() {
        return Err(FragmentsError::NoSpace { cluster: session.cluster_path() });
    }
    let opened = paths.iter().map(|path| store.managed(path, false)).collect::<Result<Vec<_>, _>>()?;
    let mut files = Vec::new();
    for managed in opened {
        let (path, file) = (managed.path, managed.striped.id());
        let set = store.done(Admin::SetFragments { file, on }).and_then(|()| fragments(store, file));
        let FragmentState { on, set_by_file, .. } =
            set.map_err(|source| FragmentsError::File { path: path.clone(), source: Box::new(source) })?;
        files.push(FragmentsSet { path, file, on, set_by_file });
    }
    Ok(files)
}
