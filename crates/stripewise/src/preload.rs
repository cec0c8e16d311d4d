//! Where the preload library is.

use crate::messages::shown;
use crate::variables;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// File name of the preload library.
pub(crate) const PRELOAD_NAME: &str = "libstripewise_preload.so";

/// Why there is no preload library.
#[derive(Debug, Error)]
pub enum PreloadError {
    /// The one that was named does not exist.
    #[error("{} names {}, which is not a file", variables::PRELOAD, shown(path))]
    NoFile {
        /// The path that the variable names.
        path: PathBuf,
    },
    /// A path could not be told from the root.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Where it should be is not known.
    #[error("cannot determine where this executable is")]
    Executable {
        /// What the system says.
        source: std::io::Error,
    },
    /// It is not installed.
    #[error(
        "there is no {PRELOAD_NAME} in {} or {}; build it (`cargo build -p stripewise-preload`) or name it with {}",
        shown(directory),
        shown(&directory.join("../lib/stripewise")),
        variables::PRELOAD
    )]
    Missing {
        /// Directory of this executable.
        directory: PathBuf,
    },
}

/// The preload library: named by STRIPEWISE_PRELOAD, beside this executable, or in ../lib/stripewise.
///
/// # Errors
/// When it is nowhere there.
pub(crate) fn preload_library() -> Result<PathBuf, PreloadError> {
    if let Some(named) = std::env::var_os(variables::PRELOAD).filter(|named| !named.is_empty()) {
        let path = std::path::absolute(&named)?;
        if !path.is_file() {
            return Err(PreloadError::NoFile { path });
        }
        return Ok(path);
    }
    let own = std::env::current_exe().map_err(|source| PreloadError::Executable { source })?;
    let own = std::fs::canonicalize(&own).unwrap_or(own);
    let directory = own.parent().unwrap_or(Path::new("/"));
    let candidates = [directory.join(PRELOAD_NAME), directory.join("../lib/stripewise").join(PRELOAD_NAME)];
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(PreloadError::Missing { directory: directory.to_owned() }),
    }
}
