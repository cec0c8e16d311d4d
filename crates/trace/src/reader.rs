//! Reads traces: Stripewise's own format, CSV, and IOSIG's text.
//!
//! Whatever the source, a process becomes a run of 32-byte slots: mapped from its file when that is finished, in memory otherwise. So
//! all that looks at events has one fast path. What is odd but harmless (a process that was killed, a file that was cut off) becomes a
//! [`Warning`](crate::Warning) of the trace; what cannot be a trace is an error that names the file.

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
    /// The operating system refused, or `path` is neither a directory nor a regular file.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Its cause.
        source: std::io::Error,
    },
    /// The trace directory's manifest is refused.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// Nothing there is of a known format.
    #[error(
        "{path}: no trace; expected a directory that holds *.swt or *_trace_rank-N.out files, a .swt file, a .csv file that `stripewise` exported, or an IOSIG .out file"
    )]
    Foreign {
        /// The file or directory.
        path: PathBuf,
    },
    /// A process file is of another version of the format.
    #[error(
        "{path}: trace format version {found}; this Stripewise reads version {}: trace again, or use the Stripewise that wrote it",
        stripewise_capture::format::FORMAT_VERSION
    )]
    Version {
        /// The process file.
        path: PathBuf,
        /// Version in its header.
        found: u32,
    },
    /// A process file's header has a value that cannot be.
    #[error("{path}: damaged header: {field} is {value}")]
    Header {
        /// The process file.
        path: PathBuf,
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The first line of a CSV file does not name the columns of an export.
    #[error("{path}: the first line must name the columns {}; found {found}", crate::export::COLUMNS.join(","))]
    Columns {
        /// The CSV file.
        path: PathBuf,
        /// Its first line.
        found: String,
    },
    /// A line of a text format is refused.
    #[error("{path}, line {line}: {fault}")]
    Line {
        /// The text file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        fault: LineFault,
    },
}

/// What is wrong with a line of a text format.
#[derive(Debug, thiserror::Error)]
pub enum LineFault {
    /// The line has another number of fields, or is not UTF-8, or is too long.
    #[error("{text}")]
    Syntax {
        /// The CSV reader's words.
        text: String,
    },
    /// A field that every line has is not there.
    #[error("{field} is missing")]
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A field is no number, or one beyond what the format can hold.
    #[error("{field} is `{text}`, expected a number in range")]
    Number {
        /// Name of the field.
        field: &'static str,
        /// The field as it stands.
        text: String,
    },
    /// The called function is not known.
    #[error("`{text}` is no call that Stripewise knows")]
    Call {
        /// Its name as it stands.
        text: String,
    },
    /// The operation contradicts the called function.
    #[error("operation `{text}` is not what `{call}` does")]
    Operation {
        /// The operation as it stands.
        text: String,
        /// The called function.
        call: &'static str,
    },
    /// Bytes moved in a call that failed.
    #[error("a call that failed (errno {errno}) cannot have moved {bytes} bytes")]
    Bytes {
        /// Bytes as they stand.
        bytes: u64,
        /// The call's error number.
        errno: u32,
    },
    /// The call ended before it began.
    #[error("ends at {end}, before its start at {start}")]
    Times {
        /// The start as it stands.
        start: String,
        /// The end as it stands.
        end: String,
    },
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
