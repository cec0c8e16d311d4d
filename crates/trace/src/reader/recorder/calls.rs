//! What a signature says, and the calls of one rank.
//!
//! No result is recorded: a read or write is taken to move what was asked for. An open that found nothing leaves an open file behind, unless the next call on that
//! file is an open that creates it.

use super::super::positions::{Action, Begin, CREATE, Call, FileNumber, Paths};
use super::mpi::{self, Files};
use std::collections::HashMap;
use stripewise_capture::call::{Call as Called, Level, Operation};

const EXCLUSIVE: i64 = 0o200;
/// Flags of `creat`: to write, create, and truncate.
const CREAT: i64 = 0o1 | CREATE | 0o1000;

/// Whether an open creates its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Creates {
    No,
    Yes,
    /// Or fails, where there is one.
    Exclusively,
}

/// What a signature says.
#[derive(Clone, Debug)]
pub(super) enum Said {
    /// Nothing that traces have.
    Nothing,
    Posix {
        called: Option<Called>,
        file: FileNumber,
        action: Action,
        /// Of opens.
        creates: Option<Creates>,
    },
    Mpi(mpi::Said),
}

/// Of functions of the C library, by Recorder's names of them.
fn posix(name: &str, arguments: &[&str], paths: &mut Paths) -> Option<Said> {
    let text = |at: usize| arguments.get(at).copied();
    let number = |at: usize| text(at).and_then(|text| text.parse::<i64>().ok());
    let unsigned = |at: usize| number(at).and_then(|number| u64::try_from(number).ok());
    let name = name.strip_suffix("64").unwrap_or(name);
    let (called, path, action) = match name {
        "fseek" | "fseeko" | "lseek" => {
            let action = match number(2)? {
                0 => Action::Seek { to: unsigned(1) },
                1 => Action::SeekBy { bytes: number(1)? },
                _ => Action::Seek { to: None },
            };
            (Called::Lseek, 0, action)
        }
        // The length has the end of the text in it.
        "vfprintf" => (Called::Fwrite, 0, moved(Begin::Position, unsigned(1)?.checked_sub(1)?)),
        "remove" => (Called::Unlink, 0, Action::Other),
        name => {
            let called = Called::from_name(name).filter(|called| called.level() == Level::Posix)?;
            let action = match called {
                Called::Open => Action::opened(number(1), None),
                Called::Creat => Action::opened(Some(CREAT), None),
                Called::Fopen => Action::opened(None, text(1)),
                Called::Read | Called::Write => moved(Begin::Position, unsigned(2)?),
                Called::Readv | Called::Writev => moved(Begin::Position, unsigned(1)?),
                Called::Pread | Called::Pwrite => moved(Begin::At(unsigned(3)?), unsigned(2)?),
                Called::Fread | Called::Fwrite => moved(Begin::Position, unsigned(1)?.checked_mul(unsigned(2)?)?),
                Called::Ftruncate | Called::Truncate => Action::Truncate { length: unsigned(1) },
                Called::Rename => Action::Rename { to: paths.number(text(1)?) },
                Called::Close | Called::Fclose => Action::Close,
                // It names an address.
                Called::Msync => return None,
                _ => Action::Other,
            };
            let path = match called {
                Called::Fread | Called::Fwrite => 3,
                Called::Mmap => 4,
                _ => 0,
            };
            (called, path, action)
        }
    };
    let creates = (called.operation() == Operation::Open).then(|| creates(called, number(1), text(1)));
    let path = text(path).filter(|path| !path.is_empty() && *path != "???")?;
    Some(Said::Posix { called: Some(called), file: paths.number(path), action, creates })
}

fn moved(begin: Begin, bytes: u64) -> Action {
    Action::Move { begin, bytes }
}

fn creates(called: Called, flags: Option<i64>, mode: Option<&str>) -> Creates {
    let flags = flags.unwrap_or(0);
    match called {
        Called::Creat => Creates::Yes,
        Called::Fopen if mode.is_some_and(|mode| mode.starts_with(['w', 'a'])) => Creates::Yes,
        Called::Fopen => Creates::No,
        _ if flags & CREATE == 0 => Creates::No,
        _ if flags & EXCLUSIVE == 0 => Creates::Yes,
        _ => Creates::Exclusively,
    }
}

/// What a call of that function with these arguments says.
pub(super) fn said(name: &str, arguments: &[&str], paths: &mut Paths) -> Said {
    if name.starts_with("MPI_") {
        return mpi::said(name, arguments, paths).map_or(Said::Nothing, Said::Mpi);
    }
    posix(name, arguments, paths).unwrap_or(Said::Nothing)
}

/// The calls of one rank.
#[derive(Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// Opens of a file by position, as long as nothing else was called on it.
    unused: HashMap<FileNumber, Vec<(usize, Creates)>>,
    files: Files,
    /// Calls of MPI-IO that do not say what they moved.
    pub(super) without_facts: u64,
}

impl Calls {
    pub(super) fn add(&mut self, said: &Said, start_ns: u64, end_ns: u64) {
        let (called, file, action) = match said {
            Said::Nothing => return,
            Said::Posix { called, file, action, creates } => {
                self.note(*file, *creates);
                (*called, *file, *action)
            }
            Said::Mpi(said) => match self.files.call(said) {
                Some((called, file, action)) => (Some(called), file, action),
                None => {
                    self.without_facts += u64::from(said.is_data());
                    return;
                }
            },
        };
        self.calls.push(Call { start_ns, end_ns, called, file, descriptor: None, is_failed: false, action });
    }

    /// Of two opens of a file without anything between them, the first has failed where it found nothing that the second then makes, or found
    /// what it would have made.
    fn note(&mut self, file: FileNumber, creates: Option<Creates>) {
        let at = self.calls.len();
        let Some(creates) = creates else {
            self.unused.remove(&file);
            return;
        };
        let unused = self.unused.entry(file).or_default();
        unused.retain(|(before, created)| {
            let has_failed = matches!(
                (created, creates),
                (Creates::No, Creates::Yes | Creates::Exclusively) | (Creates::Exclusively, Creates::No)
            );
            self.calls[*before].is_failed |= has_failed;
            !has_failed
        });
        unused.push((at, creates));
    }

    pub(super) fn finish(self) -> Vec<Call> {
        self.calls
    }
}
