//! Reads traces: Stripewise's own format, CSV, and IOSIG's text.
//!
//! Whatever the source, a process becomes a run of 32-byte slots: mapped from its file when that is finished, in memory otherwise. So
//! all that looks at events has one fast path. What is odd but harmless (a process that was killed, a file that was cut off) becomes a
//! [`Warning`] of the trace; what cannot be a trace is an error that names the file.

mod csv;
mod gather;
mod iosig;
mod own;
#[cfg(test)]
mod tests;

use crate::manifest::ManifestError;
use crate::trace::Trace;
use std::path::{Path, PathBuf};

/// Why a trace is refused.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(
        "{path}: no trace; expected a directory that holds *.swt or *_trace_rank-N.out files, a .swt file, a .csv file that `stripewise` exported, or an IOSIG .out file"
    )]
    Foreign { path: PathBuf },
    #[error(
        "{path}: trace format version {found}; this Stripewise reads version {}: trace again, or use the Stripewise that wrote it",
        stripewise_capture::format::FORMAT_VERSION
    )]
    Version { path: PathBuf, found: u32 },
    #[error("{path}: damaged header: {field} is {value}")]
    Header { path: PathBuf, field: &'static str, value: u64 },
    #[error("{path}: the first line must name the columns {}; found {found}", crate::export::COLUMNS.join(","))]
    Columns { path: PathBuf, found: String },
    #[error("{path}, line {line}: {fault}")]
    Line { path: PathBuf, line: u64, fault: LineFault },
}

/// What is wrong with a line of a text format.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    #[error("{text}")]
    Syntax { text: String },
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} is `{text}`, expected a number in range")]
    Number { field: &'static str, text: String },
    #[error("`{text}` is no call that Stripewise knows")]
    Call { text: String },
    #[error("operation `{text}` is not what `{call}` does")]
    Operation { text: String, call: &'static str },
    #[error("a call that failed (errno {errno}) cannot have moved {bytes} bytes")]
    Bytes { bytes: u64, errno: u32 },
    #[error("ends at {end}, before its start at {start}")]
    Times { start: String, end: String },
}

/// What was odd in a trace that was read all the same.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Warning {
    #[error("{path}: cut off within its header after {bytes} bytes; the process is left out")]
    CutInHeader { path: PathBuf, bytes: u64 },
    #[error(
        "{path}: cut off after {bytes} of {expected_bytes} bytes: up to {} records are missing; read up to there",
        expected_bytes.saturating_sub(*bytes).div_ceil(stripewise_capture::format::SLOT_BYTES as u64)
    )]
    Cut { path: PathBuf, bytes: u64, expected_bytes: u64 },
    #[error(
        "{path}: process {pid} did not finish its trace: it was killed, or is still running; read up to its last record"
    )]
    Unfinished { path: PathBuf, pid: u32 },
    #[error("{path}: process {pid} could not write {records} records (no room); they are missing")]
    Lost { path: PathBuf, pid: u32, records: u64 },
    #[error("{path}: {slots} damaged or unknown records skipped")]
    Skipped { path: PathBuf, slots: u64 },
}

impl Trace {
    /// Reads a trace directory or file of any known format.
    ///
    /// # Errors
    /// When it is not a trace, is of another version, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let found = std::fs::metadata(path).map_err(io)?;
        if !found.is_dir() && !found.is_file() {
            // Endless, perhaps, and read twice.
            let what = "it is neither a directory nor a regular file";
            return Err(io(std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
        }
        if found.is_dir() {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(path).map_err(io)? {
                names.push(entry.map_err(io)?.path());
            }
            names.sort();
            let own: Vec<_> = names
                .iter()
                .filter(|name| has_extension(name, stripewise_capture::format::EXTENSION))
                .cloned()
                .collect();
            if !own.is_empty() || path.join(crate::manifest::MANIFEST_NAME).exists() {
                return own::read_directory(path, &own);
            }
            let ranks: Vec<_> = names.into_iter().filter(|name| iosig::name_facts(name).is_some()).collect();
            if !ranks.is_empty() {
                return iosig::read(path, &ranks);
            }
            return Err(ReadError::Foreign { path: path.to_owned() });
        }
        if has_extension(path, "csv") {
            return csv::read(path);
        }
        if has_extension(path, "out") {
            return iosig::read(path, std::slice::from_ref(&path.to_owned()));
        }
        own::read_directory(Path::new(""), std::slice::from_ref(&path.to_owned()))
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}
