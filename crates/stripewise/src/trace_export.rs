//! Traces as CSV and Parquet files.

use crate::messages::shown;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use stripewise_layout::output;
use stripewise_trace::{Trace, write_csv};
use thiserror::Error;

/// Why a trace was not exported. A file that stood at the path stands as it was.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The file could not be written.
    #[error("cannot write {}", shown(path))]
    Write {
        /// The file.
        path: PathBuf,
        /// Its cause.
        source: WriteError,
    },
    /// This build has no Parquet.
    #[error(
        "--parquet needs the feature `columnar`, without which this stripewise was built: use --csv, or build with default features"
    )]
    NoParquet,
}

/// Why a file could not be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A row could not be written.
    #[error(transparent)]
    Csv(#[from] stripewise_trace::ExportError),
    /// A group of rows could not be written.
    #[cfg(feature = "columnar")]
    #[error(transparent)]
    Parquet(#[from] stripewise_columnar::ColumnarError),
}

/// Writes a trace as CSV.
///
/// # Errors
///
/// [`ExportError::Write`].
pub fn to_csv(trace: &Trace, path: &Path) -> Result<(), ExportError> {
    let written = output::write_with(path, |file| Ok(write_csv(trace, BufWriter::new(file))?));
    written.map_err(|source| ExportError::Write { path: path.to_owned(), source })
}

/// Writes a trace as Parquet.
///
/// # Errors
///
/// [`ExportError::Write`]; [`ExportError::NoParquet`] of a build without the feature `columnar`.
pub fn to_parquet(trace: &Trace, path: &Path) -> Result<(), ExportError> {
    #[cfg(feature = "columnar")]
    {
        let write = |file: &_| Ok(stripewise_columnar::write_parquet(trace, BufWriter::new(file))?);
        output::write_with(path, write).map_err(|source| ExportError::Write { path: path.to_owned(), source })
    }
    #[cfg(not(feature = "columnar"))]
    {
        let _ = (trace, path);
        Err(ExportError::NoParquet)
    }
}

/// Refuses Parquet where this build has none, before a trace is read.
///
/// # Errors
///
/// [`ExportError::NoParquet`].
pub fn check_parquet() -> Result<(), ExportError> {
    if cfg!(feature = "columnar") { Ok(()) } else { Err(ExportError::NoParquet) }
}
