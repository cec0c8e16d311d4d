//! Traces as CSV: what `export` writes, and what other tools can be made to write. The columns are in [`crate::export`].

use super::gather::{Gatherer, MAX_TIME_NS, ProcessName, Row};
use super::{LineFault, ReadError, Reader, has_extension};
use crate::export::{COLUMNS, COLUMNS_WITHOUT_CLASS};
use crate::trace::Trace;
use csv::StringRecord;
use std::cell::Cell;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::rc::Rc;
use std::str::FromStr;
use stripewise_capture::call::{Call, Operation};
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::{FileKey, NO_OFFSET, RawEvent};
use stripewise_layout::input::{MAX_LINE_BYTES, open_regular};
use stripewise_layout::{FileOffset, WriteClass};

pub(super) const READER: Reader = Reader {
    expects: "a .csv file that `stripewise` exported",
    in_directory: |_, _| None,
    is_file: |path| has_extension(path, "csv"),
    read: |path, _| read(path),
};

fn read(path: &Path) -> Result<Trace, ReadError> {
    let io = |source| ReadError::Io { path: path.to_owned(), source };
    let since_record = Rc::default();
    let file = LimitedLines { file: open_regular(path).map_err(io)?, since_record: Rc::clone(&since_record) };
    let mut reader = csv::ReaderBuilder::new().from_reader(file);
    let found: Vec<String> = reader.headers().map_err(|error| of_csv(path, error))?.iter().map(str::to_owned).collect();
    if found != COLUMNS && found != COLUMNS[..COLUMNS_WITHOUT_CLASS] {
        return Err(ReadError::Columns { path: path.to_owned(), found: found.join(",") });
    }
    let mut gatherer = Gatherer::default();
    let mut record = StringRecord::new();
    while reader.read_record(&mut record).map_err(|error| of_csv(path, error))? {
        since_record.set(0);
        let line = record.position().map_or(0, csv::Position::line);
        take(&mut gatherer, &record).map_err(|fault| ReadError::Line { path: path.to_owned(), line, fault })?;
    }
    Ok(Trace::assemble(None, gatherer.finish(path), Vec::new()))
}

/// A file of lines, none of which fills the memory. A line that ends within a quoted field is one line with the next.
struct LimitedLines {
    file: File,
    /// Bytes read since the last record, which the reader sets to zero.
    since_record: Rc<Cell<u64>>,
}

impl Read for LimitedLines {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.since_record.set(self.since_record.get() + length as u64);
        if self.since_record.get() > MAX_LINE_BYTES.0 {
            let what = format!("a line has more than {MAX_LINE_BYTES}, the most that is read");
            return Err(std::io::Error::new(ErrorKind::FileTooLarge, what));
        }
        Ok(length)
    }
}

fn of_csv(path: &Path, error: csv::Error) -> ReadError {
    let line = error.position().map_or(0, csv::Position::line);
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(source) => ReadError::Io { path: path.to_owned(), source },
        _ => ReadError::Line { path: path.to_owned(), line, fault: LineFault::Syntax { text } },
    }
}

/// A name as it stands there, since names may begin and end with spaces. [`COLUMNS`] is checked against the file before.
fn text<'a>(record: &'a StringRecord, name: &'static str) -> &'a str {
    COLUMNS.iter().position(|column| *column == name).and_then(|index| record.get(index)).unwrap_or("")
}

fn field<'a>(record: &'a StringRecord, name: &'static str) -> &'a str {
    text(record, name).trim()
}

fn number<T: FromStr>(record: &StringRecord, name: &'static str) -> Result<T, LineFault> {
    let text = field(record, name);
    text.parse().map_err(|_| LineFault::Number { field: name, text: text.to_owned() })
}

fn time(record: &StringRecord, name: &'static str) -> Result<u64, LineFault> {
    let ns = number(record, name)?;
    if ns <= MAX_TIME_NS { Ok(ns) } else { Err(LineFault::Number { field: name, text: ns.to_string() }) }
}

fn optional<T: FromStr>(record: &StringRecord, name: &'static str) -> Result<Option<T>, LineFault> {
    if field(record, name).is_empty() { Ok(None) } else { number(record, name).map(Some) }
}

/// Absent in exports of earlier versions, whose records have no such column.
fn write_class(record: &StringRecord) -> Result<Option<WriteClass>, LineFault> {
    let text = field(record, "write_class");
    if text.is_empty() {
        return Ok(None);
    }
    let known = WriteClass::ALL.into_iter().find(|class| class.name() == text);
    known.map(Some).ok_or_else(|| LineFault::WriteClass { text: text.to_owned() })
}

fn take(gatherer: &mut Gatherer, record: &StringRecord) -> Result<(), LineFault> {
    let name = ProcessName {
        node: text(record, "node").to_owned(),
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
    let (start_ns, end_ns) = (time(record, "start_ns")?, time(record, "end_ns")?);
    if end_ns < start_ns {
        return Err(LineFault::Times {
            start: field(record, "start_ns").to_owned(),
            end: field(record, "end_ns").to_owned(),
        });
    }
    let offset = optional(record, "offset")?.map_or(NO_OFFSET, FileOffset);
    let mut event = RawEvent::new(call, FileKey(0), offset, bytes, Ticks(0), Ticks(0));
    (event.errno, event.created, event.write_class) = (errno, created, write_class(record)?);
    gatherer.add(
        &name,
        &Row {
            event,
            path: text(record, "path"),
            renamed_to: text(record, "renamed_to"),
            communicator,
            start_ns,
            end_ns,
            mpi_size: optional(record, "mpi_size")?.unwrap_or(0),
        },
    );
    Ok(())
}
