//! Traces for other tools: a row per call with the same columns in every format. CSV is written here, and read back by
//! [`crate::reader`]; Parquet is written by the crate `columnar`.

use crate::trace::{Event, Trace, TraceTime};
use std::io::Write;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::WriteClass;

/// The columns, in order. Empty fields are unknown or none.
///
/// | column | meaning |
/// |---|---|
/// | `node` | name of the machine |
/// | `pid` | process |
/// | `mpi_rank`, `mpi_size` | empty outside MPI |
/// | `level` | `posix` or `mpi-io` |
/// | `operation` | `open`, `create`, `close`, `read`, `write`, `sync`, `truncate`, `allocate`, `unlink`, `rename`, `map`, `seek`, `view` |
/// | `call` | the C name |
/// | `communicator` | hash, 16 hexadecimal digits, equal in all processes of the communicator |
/// | `path` | absolute path of the file |
/// | `renamed_to` | the new path, for renames |
/// | `offset` | first byte of the file, or the new length for truncations |
/// | `bytes` | bytes that moved |
/// | `errno` | empty for success; errno or MPI error class |
/// | `start_ns`, `end_ns` | nanoseconds since 1970-01-01 UTC |
/// | `write_class` | `direct`, `buffered` or `synchronous`; empty where it is not recorded |
pub const COLUMNS: [&str; 16] = [
    "node",
    "pid",
    "mpi_rank",
    "mpi_size",
    "level",
    "operation",
    "call",
    "communicator",
    "path",
    "renamed_to",
    "offset",
    "bytes",
    "errno",
    "start_ns",
    "end_ns",
    "write_class",
];

/// So many columns, the first of [`COLUMNS`], had exports before classes of writes were recorded; they are read too.
pub const COLUMNS_WITHOUT_CLASS: usize = 15;

/// Why an export failed.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The target refused the bytes.
    #[error("writing the export failed: {0}")]
    Io(#[from] std::io::Error),
    /// The target refused the bytes while a row was formatted.
    #[error("writing CSV failed: {0}")]
    Csv(#[from] csv::Error),
}

/// The columns of a call that need its process or file looked up; [`Event`] has the others. `None` is an empty field.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Name of the machine.
    pub node: &'a str,
    /// Process on that machine.
    pub pid: u32,
    /// Rank in `MPI_COMM_WORLD`; `None` outside MPI.
    pub mpi_rank: Option<u32>,
    /// Processes of `MPI_COMM_WORLD`; `None` where it is not known.
    pub mpi_size: Option<u32>,
    /// Hash of the communicator, equal in all its processes.
    pub communicator: Option<u64>,
    /// Absolute path of the file; `None` for a call whose file is not known.
    pub path: Option<&'a str>,
    /// The file's new path; `None` for everything but renames.
    pub renamed_to: Option<&'a str>,
    /// First byte of the file, or the new length for truncations.
    pub offset: Option<u64>,
    /// Since 1970-01-01 UTC.
    pub start_ns: u64,
    /// Since 1970-01-01 UTC, never before `start_ns`.
    pub end_ns: u64,
    /// What a write waits for; `None` where it is not recorded.
    pub write_class: Option<&'static str>,
}

impl<'a> Row<'a> {
    /// The row of `event`, which has to be one of `trace`.
    pub fn of(trace: &'a Trace, event: &Event) -> Row<'a> {
        let process = trace.process(event.process);
        let renamed_to = process.renamed_to(event);
        // A damaged record may hold any times, also an end before its start; readers take what has a sign bit to spare and goes forward.
        let unix_ns = |time: TraceTime| trace.origin_unix_ns().saturating_add(time.0).min(i64::MAX as u64);
        Row {
            node: &trace.nodes[process.node.0 as usize],
            pid: process.pid,
            mpi_rank: process.mpi_rank,
            mpi_size: Some(process.mpi_size).filter(|size| *size > 0),
            communicator: process.communicators.get(&event.communicator).map(|communicator| communicator.hash),
            path: event.file.map(|file| trace.file(file).path.as_str()),
            renamed_to: renamed_to.map(|file| trace.file(file).path.as_str()),
            offset: Some(event.offset)
                .filter(|offset| *offset != NO_OFFSET && renamed_to.is_none())
                .map(|offset| offset.0),
            start_ns: unix_ns(event.start),
            end_ns: unix_ns(event.end).max(unix_ns(event.start)),
            write_class: event.write_class.map(WriteClass::name),
        }
    }
}

/// Writes all calls, process after process, as CSV with [`COLUMNS`].
///
/// # Errors
/// When `target` cannot be written to.
pub fn write_csv(trace: &Trace, target: impl Write) -> Result<(), ExportError> {
    fn text<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let mut writer = csv::Writer::from_writer(target);
    writer.write_record(COLUMNS)?;
    for event in trace.events() {
        let row = Row::of(trace, &event);
        writer.write_record([
            row.node,
            &row.pid.to_string(),
            &text(row.mpi_rank),
            &text(row.mpi_size),
            event.call.level().name(),
            event.operation().name(),
            event.call.name(),
            &row.communicator.map_or_else(String::new, |hash| format!("{hash:016x}")),
            row.path.unwrap_or(""),
            row.renamed_to.unwrap_or(""),
            &text(row.offset),
            &event.bytes.to_string(),
            &text(Some(event.errno).filter(|errno| *errno != 0)),
            &row.start_ns.to_string(),
            &row.end_ns.to_string(),
            row.write_class.unwrap_or(""),
        ])?;
    }
    writer.flush()?;
    Ok(())
}
