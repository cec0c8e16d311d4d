//! IOSIG's text format: a line `OP fd offset size start end path` per call, a file per rank and interface.
//!
//! Files are named `{mpiio,posix}_trace_rank-N.out`; both files of a rank are one process. Fields are separated by any white space, the
//! path goes to the end of the line, empty lines and lines that begin with `#` are skipped. `OP` is a C name (`pwrite`,
//! `MPI_File_write_at`), or a plain `READ`, `WRITE`, `OPEN`, `CLOSE`, `SEEK`, `SYNC`, in any case; a plain one belongs to the interface
//! of the file. Times are seconds, with fractions, since anything. A negative offset is none; a negative size is a failed call.
//! The format does not tell nodes, so all ranks count as being on one.

use super::gather::{Gatherer, MAX_TIME_NS, ProcessName, Row};
use super::{LineFault, ReadError, Reader, has_extension, those};
use crate::trace::Trace;
use std::path::{Path, PathBuf};
use stripewise_capture::call::{Call, Level};
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::{FileKey, NO_OFFSET, RawEvent};
use stripewise_layout::{FileOffset, input};

/// errno of calls that failed for a reason that the format does not tell: EIO.
const UNTOLD: u32 = 5;

/// Interface and rank that a file name tells.
pub(super) fn name_facts(path: &Path) -> Option<(Level, u32)> {
    let name = path.file_name()?.to_str()?;
    let (level, rest) = match (name.strip_prefix("posix"), name.strip_prefix("mpiio")) {
        (Some(rest), _) => (Level::Posix, rest),
        (_, Some(rest)) => (Level::MpiIo, rest),
        _ => return None,
    };
    let rank = rest.strip_prefix("_trace_rank-")?.strip_suffix(".out")?;
    Some((level, rank.parse().ok()?))
}

pub(super) const READER: Reader = Reader {
    expects: "a directory that holds *_trace_rank-N.out files or an IOSIG .out file",
    in_directory: |_, names| those(names, |name| name_facts(name).is_some()),
    is_file: |path| has_extension(path, "out"),
    read,
};

/// Reads the rank files of one run.
fn read(source: &Path, files: &[PathBuf]) -> Result<Trace, ReadError> {
    let mut gatherer = Gatherer::default();
    let ranks =
        files.iter().filter_map(|path| name_facts(path)).map(|(_, rank)| rank.saturating_add(1)).max().unwrap_or(0);
    for path in files {
        let (level, rank) = name_facts(path).unwrap_or((Level::Posix, 0));
        let bytes =
            input::read(path, input::MAX_TRACE_BYTES).map_err(|source| ReadError::Io { path: path.clone(), source })?;
        let name = ProcessName { node: "iosig".to_owned(), pid: rank, rank: (ranks > 0).then_some(rank) };
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let text = stripewise_layout::text::lossless(line);
            take(&mut gatherer, &name, level, ranks, text.trim()).map_err(|fault| ReadError::Line {
                path: path.clone(),
                line: index as u64 + 1,
                fault,
            })?;
        }
    }
    Ok(Trace::assemble(None, gatherer.finish(source), Vec::new()))
}

fn call_of(text: &str, level: Level) -> Option<Call> {
    let (posix, mpi) = match text.to_ascii_lowercase().as_str() {
        "read" => (Call::Read, Call::MpiRead),
        "write" => (Call::Write, Call::MpiWrite),
        "open" => (Call::Open, Call::MpiOpen),
        "close" => (Call::Close, Call::MpiClose),
        "seek" => (Call::Lseek, Call::MpiSeek),
        "sync" => (Call::Fsync, Call::MpiSync),
        "read64" | "pread64" => (Call::Pread, Call::MpiReadAt),
        "write64" | "pwrite64" => (Call::Pwrite, Call::MpiWriteAt),
        "open64" => (Call::Open, Call::MpiOpen),
        "lseek64" => (Call::Lseek, Call::MpiSeek),
        "readat" | "read_at" => (Call::Pread, Call::MpiReadAt),
        "writeat" | "write_at" => (Call::Pwrite, Call::MpiWriteAt),
        lower => return Call::ALL.iter().copied().find(|call| call.name().eq_ignore_ascii_case(lower)),
    };
    Some(if level == Level::Posix { posix } else { mpi })
}

/// Takes the next field off `rest`.
fn next<'a>(rest: &mut &'a str, field: &'static str) -> Result<&'a str, LineFault> {
    let text = rest.trim_start();
    if text.is_empty() {
        return Err(LineFault::Missing { field });
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (found, after) = text.split_at(end);
    *rest = after;
    Ok(found)
}

fn integer(text: &str, field: &'static str) -> Result<i64, LineFault> {
    text.parse().map_err(|_| LineFault::Number { field, text: text.to_owned() })
}

/// Seconds as text to nanoseconds, exactly: a double has 200 ns steps at today's time since 1970.
fn nanoseconds(text: &str, field: &'static str) -> Result<u64, LineFault> {
    let refuse = || LineFault::Number { field, text: text.to_owned() };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let plain = !(whole.is_empty() && fraction.is_empty())
        && whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit());
    if !plain {
        // Exponents, as in 1.5e-3.
        let seconds: f64 = text.parse().map_err(|_| refuse())?;
        return if (0.0..9e9).contains(&seconds) { Ok((seconds * 1e9).round() as u64) } else { Err(refuse()) };
    }
    let seconds: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| refuse())? };
    let digits: String = fraction.chars().chain("000000000".chars()).take(9).collect();
    let rest: u64 = digits.parse().map_err(|_| refuse())?;
    let ns = seconds.checked_mul(1_000_000_000).and_then(|ns| ns.checked_add(rest));
    ns.filter(|ns| *ns <= MAX_TIME_NS).ok_or_else(refuse)
}

fn take(gatherer: &mut Gatherer, name: &ProcessName, level: Level, ranks: u32, line: &str) -> Result<(), LineFault> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    let mut rest = line;
    let operation = next(&mut rest, "OP")?;
    let call = call_of(operation, level).ok_or_else(|| LineFault::Call { text: operation.to_owned() })?;
    integer(next(&mut rest, "fd")?, "fd")?;
    let offset = integer(next(&mut rest, "offset")?, "offset")?;
    let size = integer(next(&mut rest, "size")?, "size")?;
    let (start, end) = (next(&mut rest, "start")?, next(&mut rest, "end")?);
    let (start_ns, end_ns) = (nanoseconds(start, "start")?, nanoseconds(end, "end")?);
    if end_ns < start_ns {
        return Err(LineFault::Times { start: start.to_owned(), end: end.to_owned() });
    }
    let path = rest.trim();
    if path.is_empty() {
        return Err(LineFault::Missing { field: "path" });
    }
    let offset = u64::try_from(offset).map_or(NO_OFFSET, FileOffset);
    let bytes = u64::try_from(size);
    let mut event = RawEvent::new(call, FileKey(0), offset, bytes.unwrap_or(0), Ticks(0), Ticks(0));
    event.errno = if bytes.is_err() { UNTOLD } else { 0 };
    gatherer.add(name, &Row { event, path, renamed_to: "", communicator: None, start_ns, end_ns, mpi_size: ranks });
    Ok(())
}
