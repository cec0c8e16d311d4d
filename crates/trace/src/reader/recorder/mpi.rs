//! Calls of MPI-IO: handles, views and the individual file pointer.
//!
//! A call names the handle that an open made, and datatypes by their names. The size of a derived one is not in the trace.

use super::super::positions::{Action, Begin, FileNumber, Paths};
use std::collections::HashMap;
use stripewise_capture::call::{Call as Called, Operation};

/// Where a call begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// Units of the view's elementary type.
    At(u64),
    Pointer,
    /// That of all ranks, which is not followed.
    Shared,
}

#[derive(Clone, Debug)]
enum What {
    Open(FileNumber),
    Close,
    View {
        begin_bytes: Option<u64>,
        unit_bytes: Option<u64>,
        is_dense: bool,
    },
    /// `None`: from the end.
    Seek {
        to: Option<u64>,
    },
    SeekBy(i64),
    Move {
        place: Place,
        bytes: Option<u64>,
    },
    Truncate(Option<u64>),
    Other,
}

/// What a signature of MPI-IO says.
#[derive(Clone, Debug)]
pub(super) struct Said {
    called: Called,
    handle: Box<str>,
    what: What,
}

impl Said {
    pub(super) fn is_data(&self) -> bool {
        self.called.operation().is_data()
    }
}

pub(super) fn said(name: &str, arguments: &[&str], paths: &mut Paths) -> Option<Said> {
    let called = Called::from_name(name)?;
    let text = |at: usize| arguments.get(at).copied();
    let number = |at: usize| text(at).and_then(|text| text.parse::<i64>().ok());
    let unsigned = |at: usize| number(at).and_then(|number| u64::try_from(number).ok());
    let mut handle = text(0)?;
    let what = match called {
        Called::MpiOpen => {
            handle = text(4)?;
            What::Open(paths.number(text(1)?))
        }
        Called::MpiClose => What::Close,
        Called::MpiSetView => {
            What::View { begin_bytes: unsigned(1), unit_bytes: text(2).and_then(size_of), is_dense: text(2) == text(3) }
        }
        Called::MpiSeek => match text(2)? {
            "MPI_SEEK_SET" => What::Seek { to: unsigned(1) },
            "MPI_SEEK_CUR" => What::SeekBy(number(1)?),
            _ => What::Seek { to: None },
        },
        Called::MpiSetSize => What::Truncate(unsigned(1)),
        called if called.operation().is_data() => {
            let is_at = name.contains("_at");
            let place = match name {
                _ if is_at => Place::At(unsigned(1)?),
                _ if name.contains("_shared") || name.contains("_ordered") => Place::Shared,
                _ => Place::Pointer,
            };
            let count = if is_at { 3 } else { 2 };
            let size = text(count + 1).and_then(size_of);
            What::Move { place, bytes: unsigned(count).zip(size).and_then(|(count, size)| count.checked_mul(size)) }
        }
        // By its name, not by a handle.
        called if called.operation() == Operation::Unlink => return None,
        _ => What::Other,
    };
    Some(Said { called, handle: handle.into(), what })
}

/// Bytes of a predefined datatype on 64-bit Linux; none for a derived one.
fn size_of(name: &str) -> Option<u64> {
    const SIZES: [(u64, &[&str]); 5] = [
        (1, &["BYTE", "CHAR", "SIGNED_CHAR", "UNSIGNED_CHAR", "PACKED", "INT8_T", "UINT8_T", "C_BOOL", "CHARACTER"]),
        (2, &["SHORT", "UNSIGNED_SHORT", "INT16_T", "UINT16_T", "INTEGER2"]),
        (
            4,
            &[
                "INT",
                "UNSIGNED",
                "UNSIGNED_INT",
                "FLOAT",
                "INT32_T",
                "UINT32_T",
                "WCHAR",
                "INTEGER",
                "INTEGER4",
                "LOGICAL",
                "REAL",
                "REAL4",
            ],
        ),
        (
            8,
            &[
                "LONG",
                "UNSIGNED_LONG",
                "LONG_LONG",
                "LONG_LONG_INT",
                "UNSIGNED_LONG_LONG",
                "DOUBLE",
                "INT64_T",
                "UINT64_T",
                "AINT",
                "OFFSET",
                "COUNT",
                "DOUBLE_PRECISION",
                "INTEGER8",
                "REAL8",
                "COMPLEX",
                "COMPLEX8",
                "C_COMPLEX",
                "C_FLOAT_COMPLEX",
            ],
        ),
        (16, &["LONG_DOUBLE", "C_DOUBLE_COMPLEX", "DOUBLE_COMPLEX", "COMPLEX16", "REAL16"]),
    ];
    let name = name.strip_prefix("MPI_")?;
    SIZES.iter().find(|(_, names)| names.contains(&name)).map(|(size, _)| *size)
}

struct Opened {
    file: FileNumber,
    begin_bytes: Option<u64>,
    unit_bytes: Option<u64>,
    /// Whether the view shows every byte.
    is_dense: bool,
    /// Units of the view; `None`: not known.
    pointer: Option<u64>,
}

impl Opened {
    fn byte(&self, units: Option<u64>) -> Option<u64> {
        let (begin, unit) = self.begin_bytes.zip(self.unit_bytes).filter(|_| self.is_dense)?;
        units?.checked_mul(unit)?.checked_add(begin)
    }
}

/// The open files of a rank, by handle.
#[derive(Default)]
pub(super) struct Files {
    open: HashMap<Box<str>, Opened>,
}

impl Files {
    /// What a call did to which file; none where the trace does not say it.
    pub(super) fn call(&mut self, said: &Said) -> Option<(Called, FileNumber, Action)> {
        if let What::Open(file) = said.what {
            let opened = Opened { file, begin_bytes: Some(0), unit_bytes: Some(1), is_dense: true, pointer: Some(0) };
            self.open.insert(said.handle.clone(), opened);
            return Some((said.called, file, Action::Other));
        }
        let opened = self.open.get_mut(&said.handle)?;
        let file = opened.file;
        let action = match said.what {
            What::Open(_) | What::Other => Action::Other,
            What::Close => {
                self.open.remove(&said.handle);
                Action::Other
            }
            What::View { begin_bytes, unit_bytes, is_dense } => {
                *opened = Opened { file, begin_bytes, unit_bytes, is_dense, pointer: Some(0) };
                Action::Other
            }
            What::Seek { to } => {
                opened.pointer = to;
                Action::Other
            }
            What::SeekBy(units) => {
                opened.pointer = opened.pointer.and_then(|pointer| pointer.checked_add_signed(units));
                Action::Other
            }
            What::Truncate(length) => Action::Truncate { length },
            What::Move { place, bytes } => {
                let begin = match place {
                    Place::At(units) => opened.byte(Some(units)),
                    Place::Pointer => opened.byte(opened.pointer),
                    Place::Shared => None,
                };
                if place == Place::Pointer {
                    let units = bytes.zip(opened.unit_bytes).filter(|(bytes, unit)| bytes % unit == 0);
                    let moved = units.map(|(bytes, unit)| bytes / unit);
                    opened.pointer = opened.pointer.zip(moved).and_then(|(pointer, moved)| pointer.checked_add(moved));
                }
                Action::Move { begin: begin.map_or(Begin::Unknown, Begin::At), bytes: bytes? }
            }
        };
        Some((said.called, file, action))
    }
}
