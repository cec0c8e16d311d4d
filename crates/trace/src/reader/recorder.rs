//! Recorder's traces: a directory that holds `VERSION`, `recorder.mt` and, for each rank, which calls it made, in which order, and when.
//!
//! A call with its arguments is a *signature*, stored once (`.cst`). The order of a rank's calls is the grammar that Sequitur made of them (`.cfg`): rules over
//! signatures and other rules, each with a number of repetitions. Two numbers for each call are its times (`.ts`). Versions differ in how many files
//! these are and whether they are compressed. Arguments name files, not descriptors, and results are not recorded: [`calls`] and [`mpi`] make of a signature
//! what it says, and [`positions`](super::positions) follows the files.

mod bytes;
mod calls;
mod files;
mod grammar;
mod metadata;
mod mpi;
mod signatures;
#[cfg(test)]
mod tests;
mod times;

use super::gather::{Gatherer, ProcessName};
use super::positions::{Paths, emit};
use super::{ReadError, Reader, those};
use crate::trace::Trace;
use crate::warning::Warning;
use calls::Calls;
use files::Tables;
use metadata::Metadata;
use std::path::{Path, PathBuf};
use stripewise_layout::figures::counted;

/// What every trace has, whatever its version.
const METADATA: &str = "recorder.mt";

pub(super) const READER: Reader = Reader {
    expects: "a directory that Recorder wrote, with recorder.mt",
    in_directory: |_, names| those(names, is_metadata),
    is_file: is_metadata,
    read: |source, files| read(source, &files[0]),
};

fn is_metadata(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == METADATA)
}

/// What is wrong with a file of Recorder's.
#[derive(Debug, thiserror::Error)]
pub enum RecorderFault {
    /// Another version of the format.
    #[error(
        "Recorder's traces of version `{found}` are not read; this Stripewise reads 2.3, 2.4, 2.5 and 3.0, and recorder2text of that version what it has"
    )]
    Version {
        /// As it stands, up to some length.
        found: String,
    },
    /// The file ends early.
    #[error("the file is truncated: it ends within {what}")]
    Truncated {
        /// What is not whole.
        what: &'static str,
    },
    /// A number that no trace has.
    #[error("{what} is {value}, which cannot be: the file is damaged or not Recorder's")]
    Number {
        /// What the number says.
        what: &'static str,
        /// The number.
        value: String,
    },
    /// A rule of the grammar contains itself.
    #[error("the order of calls has no end: rule {rule} contains itself")]
    Endless {
        /// Its number.
        rule: i32,
    },
    /// Offsets are stored as differences or as functions of the rank.
    #[error(
        "its offsets are stored as patterns, which do not say them: trace with RECORDER_INTERPROCESS_PATTERN_RECOGNITION=0 and RECORDER_INTRAPROCESS_PATTERN_RECOGNITION=0"
    )]
    Patterns,
    /// Compressed data that are damaged.
    #[error("its compressed data are damaged: {text}")]
    Compressed {
        /// What the decoder says.
        text: String,
    },
}

impl RecorderFault {
    fn of(self, path: &Path) -> ReadError {
        ReadError::Recorder { path: path.to_owned(), fault: self }
    }

    fn number(what: &'static str, value: impl ToString) -> Self {
        Self::Number { what, value: value.to_string() }
    }
}

fn read(source: &Path, metadata: &Path) -> Result<Trace, ReadError> {
    let directory: PathBuf = metadata.parent().map_or_else(PathBuf::new, Path::to_owned);
    let metadata = Metadata::read(&directory)?;
    let mut paths = Paths::default();
    let tables = Tables::open(&directory, &metadata, &mut paths)?;
    let mut gatherer = Gatherer::default();
    let (mut without_facts, mut without_offset, mut warnings) = (0, 0, Vec::new());
    for rank in 0..metadata.ranks {
        let of_rank = tables.rank(rank, &mut paths)?;
        let mut calls = Calls::default();
        let mut times = of_rank.times();
        for signature in of_rank.grammar.calls() {
            let Some((start_ns, end_ns)) = times.next() else { break };
            if start_ns > end_ns || end_ns > super::gather::MAX_TIME_NS {
                return Err(RecorderFault::number("the time of a call", end_ns).of(&of_rank.times_path));
            }
            calls.add(&of_rank.signatures.all[signature as usize], start_ns, end_ns);
        }
        let (all, timed) = (of_rank.grammar.count(), of_rank.times().left());
        if timed < all {
            let what = format!("the times of rank {rank} end after {timed} of {all} calls; read up to there");
            warnings.push(Warning::Incomplete { path: of_rank.times_path.clone(), what });
        }
        let is_mpi = metadata.ranks > 1 || of_rank.signatures.has_mpi;
        let name = ProcessName { node: "recorder".to_owned(), pid: rank, rank: is_mpi.then_some(rank) };
        let mpi_size = if is_mpi { metadata.ranks } else { 0 };
        without_facts += calls.without_facts;
        without_offset += emit(&mut gatherer, &name, mpi_size, calls.finish(), &paths);
    }
    let mut say = |count: u64, one: &str, many: &str, rest: &str| {
        if count > 0 {
            let what = format!("{} {rest}", counted(count as usize, one, many));
            warnings.push(Warning::Incomplete { path: source.to_owned(), what });
        }
    };
    say(
        without_facts,
        "call of MPI-IO is",
        "calls of MPI-IO are",
        "of a derived datatype or an unknown file, whose bytes the trace does not say, and missing; the POSIX calls below are there",
    );
    say(
        without_offset,
        "read or write is",
        "reads and writes are",
        "at offsets that the trace does not say (appended, behind a seek from the end, or through one of several descriptors of a file), and count for no region",
    );
    Ok(Trace::assemble(None, gatherer.finish(source), warnings))
}
