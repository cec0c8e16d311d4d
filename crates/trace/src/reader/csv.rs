//! Traces as CSV: what `export` writes, and what other tools can be made to write. The columns are in [`crate::export`].

use super::gather::{Gatherer, ProcessName, Row};
use super::{LineFault, ReadError};
use crate::export::COLUMNS;
use crate::trace::Trace;
use csv::StringRecord;
use std::path::Path;
use std::str::FromStr;
use stripewise_capture::call::{Call, Operation};
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::{FileKey, NO_OFFSET, RawEvent};
use stripewise_layout::FileOffset;

pub(super) fn read(path: &Path) -> Result<Trace, ReadError> {
    let mut reader = csv::ReaderBuilder::new().from_path(path).map_err(|error| of_csv(path, error))?;
    let found: Vec<String> = reader.headers().map_err(|error| of_csv(path, error))?.iter().map(str::to_owned).collect();
    if found != COLUMNS {
        return Err(ReadError::Columns { path: path.to_owned(), found: found.join(",") });
    }
    let mut gatherer = Gatherer::default();
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| of_csv(path, error))? {
        let line = record.position().map_or(0, csv::Position::line);
        take(&mut gatherer, &record).map_err(|fault| ReadError::Line { path: path.to_owned(), line, fault })?;
    }
    Ok(Trace::assemble(None, gatherer.finish(path), Vec::new()))
}

fn of_csv(path: &Path, error: csv::Error) -> ReadError {
    let line = error.position().map_or(0, csv::Position::line);
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) => ReadError::Io { path: path.to_owned(), source },
        _ => ReadError::Line { path: path.to_owned(), line, fault: LineFault::Syntax { text } },
    }
}

/// The position of a column; [`COLUMNS`] is checked against the file before.
fn field<'a>(record: &'a StringRecord, name: &'static str) -> &'a str {
    COLUMNS.iter().position(|column| *column == name).and_then(|index| record.get(index)).unwrap_or("").trim()
}

fn number<T: FromStr>(record: &StringRecord, name: &'static str) -> Result<T, LineFault> {
    let text = field(record, name);
    text.parse().map_err(|_| LineFault::Number { field: name, text: text.to_owned() })
}

fn optional<T: FromStr>(record: &StringRecord, name: &'static str) -> Result<Option<T>, LineFault> {
    if field(record, name).is_empty() { Ok(None) } else { number(record, name).map(Some) }
}

fn take(gatherer: &mut Gatherer, record: &StringRecord) -> Result<(), LineFault> {
    let name = ProcessName {
        node: field(record, "node").to_owned(),
        pid: number(record, "pid")?,
        rank: optional(record, "mpi_rank")?,
    };
    let call_name = field(record, "call");
    let call = Call::from_name(call_name).ok_or_else(|| LineFault::Call { text: call_name.to_owned() })?;
    let operation = field(record, "operation");
    let created = operation == Operation::Create.name() && call.operation() == Operation::Open;
    if !created && operation != call.operation().name() {
        return Err(LineFault::Operation { text: operation.to_owned(), call: call.name() });
    }
    let hash = field(record, "communicator");
    let communicator = if hash.is_empty() {
        None
    } else {
        let parsed = u64::from_str_radix(hash, 16);
        Some(parsed.map_err(|_| LineFault::Number { field: "communicator", text: hash.to_owned() })?)
    };
    let errno: u32 = optional(record, "errno")?.unwrap_or(0);
    let bytes: u64 = number(record, "bytes")?;
    if errno != 0 && bytes != 0 {
        return Err(LineFault::Bytes { bytes, errno });
    }
    let (start_ns, end_ns) = (number(record, "start_ns")?, number(record, "end_ns")?);
    if end_ns < start_ns {
        return Err(LineFault::Times {
            start: field(record, "start_ns").to_owned(),
            end: field(record, "end_ns").to_owned(),
        });
    }
    let offset = optional(record, "offset")?.map_or(NO_OFFSET, FileOffset);
    let mut event = RawEvent::new(call, FileKey(0), offset, bytes, Ticks(0), Ticks(0));
    (event.errno, event.created) = (errno, created);
    gatherer.add(
        &name,
        &Row {
            event,
            path: field(record, "path"),
            renamed_to: field(record, "renamed_to"),
            communicator,
            start_ns,
            end_ns,
            mpi_size: optional(record, "mpi_size")?.unwrap_or(0),
        },
    );
    Ok(())
}
