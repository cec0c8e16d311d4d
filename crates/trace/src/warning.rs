//! What was odd in a trace that was read all the same.

use std::path::PathBuf;

/// What was odd in a trace that was read all the same.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Warning {
    /// A process was killed, or the disk filled, before its header was whole.
    #[error("{path}: truncated within its header after {bytes} bytes; the process is left out")]
    TruncatedInHeader {
        /// The process file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A process file is shorter than it was when it was finished, or ends within a record.
    #[error(
        "{path}: truncated after {bytes} of {expected_bytes} bytes: up to {} records are missing; read up to there",
        expected_bytes.saturating_sub(*bytes).div_ceil(stripewise_capture::format::SLOT_BYTES as u64)
    )]
    Truncated {
        /// The process file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The length that it should have.
        expected_bytes: u64,
    },
    /// A process never said that its trace is complete.
    #[error(
        "{path}: process {pid} did not finish its trace: it was killed, or is still running; read up to its last record"
    )]
    Unfinished {
        /// The process file.
        path: PathBuf,
        /// The process.
        pid: u32,
    },
    /// A process dropped records, for want of disk or memory.
    #[error("{path}: process {pid} could not write {records} records (no space); they are missing")]
    Lost {
        /// The process file.
        path: PathBuf,
        /// The process.
        pid: u32,
        /// How many it dropped.
        records: u64,
    },
    /// Records are missing, as the format itself says.
    #[error("{path}: {what}")]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// A file has slots that are of no known kind, or not as their kind has to be.
    #[error("{path}: {slots} damaged or unknown records skipped")]
    Skipped {
        /// The process file.
        path: PathBuf,
        /// How many such slots.
        slots: u64,
    },
}
