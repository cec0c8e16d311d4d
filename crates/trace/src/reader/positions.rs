//! Calls of formats whose reads and writes need not say where, and the offsets that follow from the calls before them.

use super::gather::{Gatherer, ProcessName, Row};
use std::collections::HashMap;
use stripewise_capture::call::{Call as Called, Level, Operation};
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::{FileKey, NO_OFFSET, RawEvent};
use stripewise_layout::{FileOffset, WriteClass};

/// errno of calls that failed for a reason that the trace does not say: EIO.
const UNKNOWN_ERROR: u32 = 5;
/// Flags of `open` on Linux: those of x86-64, of which DIRECT is another one on some machines.
pub(super) const CREATE: i64 = 0o100;
const APPEND: i64 = 0o2000;
const DSYNC: i64 = 0o10000;
const DIRECT: i64 = 0o40000;

/// A file's number in [`Paths`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FileNumber(u32);

/// The files that a trace names.
#[derive(Default)]
pub(super) struct Paths {
    numbers: HashMap<String, FileNumber>,
    paths: Vec<String>,
}

impl Paths {
    pub(super) fn number(&mut self, path: &str) -> FileNumber {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let number = FileNumber(self.paths.len() as u32);
        self.paths.push(path.to_owned());
        self.numbers.insert(path.to_owned(), number);
        number
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.numbers.contains_key(path)
    }

    pub(super) fn path(&self, file: FileNumber) -> &str {
        &self.paths[file.0 as usize]
    }
}

/// Where a read or write begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum Begin {
    At(u64),
    /// At the file's position, which moves.
    Position,
    /// The trace does not say it, and the position of the descriptor is another one.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Open {
        appends: bool,
        write_class: Option<WriteClass>,
    },
    Close,
    /// Reads and writes.
    Move {
        begin: Begin,
        bytes: u64,
    },
    /// `None`: to a place that the trace does not say.
    Seek {
        to: Option<u64>,
    },
    SeekBy {
        bytes: i64,
    },
    Truncate {
        length: Option<u64>,
    },
    Rename {
        to: FileNumber,
    },
    Other,
}

impl Action {
    /// An open with these flags, of a descriptor, or this mode, of a stream.
    pub(super) fn opened(flags: Option<i64>, mode: Option<&str>) -> Self {
        let has = |flag: i64| flags.is_some_and(|flags| flags & flag != 0);
        let write_class = match flags {
            None => None,
            Some(_) if has(DSYNC) => Some(WriteClass::Synchronous),
            Some(_) if has(DIRECT) => Some(WriteClass::Direct),
            Some(_) => Some(WriteClass::Buffered),
        };
        Self::Open { appends: has(APPEND) || mode.is_some_and(|mode| mode.starts_with('a')), write_class }
    }
}

/// A call of a process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    /// `None`: leaves no event.
    pub(super) called: Option<Called>,
    pub(super) file: FileNumber,
    pub(super) descriptor: Option<i32>,
    pub(super) is_failed: bool,
    pub(super) action: Action,
}

#[derive(PartialEq, Eq, Hash)]
enum Handle {
    Descriptor(i32),
    /// Streams, and what formats without descriptors have.
    Of(FileNumber),
}

#[derive(Clone, Copy, Default)]
struct Opened {
    /// `None`: not known.
    position: Option<u64>,
    /// Opens without a close. Of several with one handle nobody knows whose a position is.
    times: u32,
    appends: bool,
    write_class: Option<WriteClass>,
}

/// Offset, bytes and class of a call, by what came before it.
#[derive(Default)]
struct Facts {
    offset: Option<u64>,
    bytes: u64,
    write_class: Option<WriteClass>,
}

#[derive(Default)]
struct Positions {
    open: HashMap<Handle, Opened>,
    without_offset: u64,
}

impl Positions {
    fn follow(&mut self, call: &Call) -> Facts {
        let handle = call.descriptor.map_or(Handle::Of(call.file), Handle::Descriptor);
        let of_file = matches!(handle, Handle::Of(_));
        let mut facts = Facts::default();
        match call.action {
            _ if call.is_failed => {}
            Action::Open { appends, write_class } => {
                let opened = self.open.entry(handle).or_default();
                opened.times = if of_file { opened.times + 1 } else { 1 };
                (opened.position, opened.appends) = ((!appends).then_some(0), appends);
                opened.write_class = write_class;
                facts.write_class = write_class;
            }
            Action::Close => {
                let opened = self.open.entry(handle).or_default();
                *opened = match opened.times {
                    0 | 1 => Opened::default(),
                    times => Opened { times: times - 1, position: None, ..*opened },
                };
            }
            Action::Move { begin: Begin::Unknown, bytes } => facts.bytes = bytes,
            Action::Move { begin, bytes } => facts = self.moved(handle, call, begin, bytes),
            Action::Seek { to } => self.open.entry(handle).or_default().position = to,
            Action::SeekBy { bytes } => {
                let opened = self.open.entry(handle).or_default();
                opened.position = opened.position.and_then(|position| position.checked_add_signed(bytes));
            }
            Action::Truncate { length } => facts.offset = length,
            Action::Rename { .. } | Action::Other => {}
        }
        facts
    }

    fn moved(&mut self, handle: Handle, call: &Call, begin: Begin, bytes: u64) -> Facts {
        if let (Begin::At(offset), Some(Level::MpiIo)) = (begin, call.called.map(Called::level)) {
            return Facts { offset: Some(offset), bytes, write_class: None };
        }
        let is_write = call.called.is_some_and(|called| called.operation() == Operation::Write);
        let opened = self.open.entry(handle).or_default();
        let offset = match begin {
            Begin::At(offset) => Some(offset),
            _ => opened.position.filter(|_| opened.times < 2 && !(is_write && opened.appends)),
        };
        if matches!(begin, Begin::Position) {
            opened.position = offset.and_then(|offset| offset.checked_add(bytes));
        }
        self.without_offset += u64::from(offset.is_none() && bytes > 0);
        Facts { offset, bytes, write_class: opened.write_class.filter(|_| is_write) }
    }
}

/// Adds the calls of one process of `mpi_size` ranks (0 when unknown). Returns how many reads and writes are at offsets that nobody knows.
pub(super) fn emit(
    gatherer: &mut Gatherer,
    name: &ProcessName,
    mpi_size: u32,
    mut calls: Vec<Call>,
    paths: &Paths,
) -> u64 {
    // Splits of a trace come in any order.
    calls.sort_by_key(|call| call.start_ns);
    let mut positions = Positions::default();
    let mut events: Vec<(&Call, RawEvent, &str)> = Vec::with_capacity(calls.len());
    for call in &calls {
        let Facts { offset, bytes, write_class } = positions.follow(call);
        let Some(called) = call.called else { continue };
        let offset = offset.map_or(NO_OFFSET, FileOffset);
        let mut event = RawEvent::new(called, FileKey(0), offset, bytes, Ticks(0), Ticks(0));
        event.errno = if call.is_failed { UNKNOWN_ERROR } else { 0 };
        event.write_class = write_class;
        let renamed_to = if let Action::Rename { to } = call.action { paths.path(to) } else { "" };
        events.push((call, event, renamed_to));
    }
    // Threads may end in another order.
    events.sort_by_key(|(call, ..)| call.end_ns);
    for (call, event, renamed_to) in events {
        let (path, start_ns, end_ns) = (paths.path(call.file), call.start_ns, call.end_ns);
        gatherer.add(name, &Row { event, path, renamed_to, communicator: None, start_ns, end_ns, mpi_size });
    }
    positions.without_offset
}
