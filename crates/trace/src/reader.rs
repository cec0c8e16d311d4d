//! Reads traces: Stripewise's own format, CSV, IOSIG's text, Darshan's logs with segments, DFTracer's lines, and Recorder's
//! directories.
//!
//! Whatever the source, a process becomes a run of 32-byte slots: mapped from its file when that is finished, in memory otherwise. So
//! all that looks at events has one fast path. What is odd but harmless (a process that was killed, a file that was cut off) becomes a
//! [`Warning`](crate::Warning) of the trace; what cannot be a trace is an error that names the file.

mod csv;
mod darshan;
mod dftracer;
mod gather;
mod iosig;
mod own;
mod positions;
mod recorder;
#[cfg(test)]
mod tests;

pub use darshan::is_log;
pub use recorder::RecorderFault;

use crate::manifest::ManifestError;
use crate::trace::Trace;
use std::path::{Path, PathBuf};
use stripewise_darshan::DarshanError;

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
    /// A Darshan log is refused.
    #[error(transparent)]
    Darshan(#[from] DarshanError),
    /// A Darshan log has counters only.
    #[error(
        "{path}: a Darshan log without DXT segments, so it has no requests; `stripewise plan` reads its counters, or run with DXT_ENABLE_IO_TRACE=1"
    )]
    NoSegments {
        /// The log.
        path: PathBuf,
    },
    /// Nothing there is of a known format.
    #[error("{path}: no trace; expected {}", READERS.iter().map(|reader| reader.expects).collect::<Vec<_>>().join(", or "))]
    Foreign {
        /// The file or directory.
        path: PathBuf,
    },
    /// A process file is of another version of the format.
    #[error(
        "{path}: trace format version {found}; this Stripewise reads versions {} to {}: trace again, or use the Stripewise that wrote it",
        stripewise_capture::format::OLDEST_READ_FORMAT,
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
    /// A file of a Recorder trace is refused.
    #[error("{path}: {fault}")]
    Recorder {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: RecorderFault,
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
    /// The class of a write is not known.
    #[error("`{text}` is no class of writes; known: {}", stripewise_layout::WriteClass::ALL.map(|class| class.name()).join(", "))]
    WriteClass {
        /// The class as it stands.
        text: String,
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
            let of = |reader: &'static Reader| (reader.in_directory)(path, &names).map(|files| (reader, files));
            let Some((reader, files)) = READERS.iter().find_map(of) else {
                return Err(ReadError::Foreign { path: path.to_owned() });
            };
            return (reader.read)(path, &files);
        }
        let reader = READERS.iter().find(|reader| (reader.is_file)(path)).unwrap_or(&own::READER);
        (reader.read)(path, std::slice::from_ref(&path.to_owned()))
    }
}

/// Reads traces of one form. A form is a module with one of these and its row of [`READERS`].
struct Reader {
    /// What a path of this form leads to, with its article.
    expects: &'static str,
    /// The files of the trace that a directory holds, of all its names in order; none if it holds none of this form.
    in_directory: fn(&Path, &[PathBuf]) -> Option<Vec<PathBuf>>,
    /// Whether a file's name is one of this form.
    is_file: fn(&Path) -> bool,
    /// Reads the files of a directory, or the one file that the path leads to.
    read: fn(&Path, &[PathBuf]) -> Result<Trace, ReadError>,
}

/// In the order in which they are asked. Our own also reads a file that none recognises by its name, and says what it lacks.
const READERS: &[Reader] = &[
    own::READER,
    csv::READER,
    iosig::READER,
    darshan::READER,
    dftracer::READER,
    recorder::READER,
    #[cfg(test)]
    tests::DUMMY,
];

/// The names that fulfil a condition; none if none does.
fn those(names: &[PathBuf], condition: impl Fn(&Path) -> bool) -> Option<Vec<PathBuf>> {
    let found: Vec<PathBuf> = names.iter().filter(|name| condition(name)).cloned().collect();
    (!found.is_empty()).then_some(found)
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension))
}
