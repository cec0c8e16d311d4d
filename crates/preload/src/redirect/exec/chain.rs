//! From the path that is to be executed over the interpreters of scripts to the program that will run.

use super::image::Image;
use super::{Given, Strings, count, with_pointers};
use crate::process;
use crate::redirect::{Closing, inodes, is_known, is_on, may_be_managed, open_of_inode, record_locks};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::raw::c_char;
use stripewise_store::executable::{Head, HeadBuffer, MAX_INTERPRETERS, Script};
use stripewise_store::stub::{STUB_BYTES, Stub};

/// A script's first line: its interpreter, ended by a zero byte, then its argument, ended likewise.
#[derive(Clone, Copy)]
struct Line {
    text: [u8; 258],
    argument: Option<usize>,
}

impl Line {
    fn of(script: &Script, head: &[u8]) -> Self {
        let mut line = Self { text: [0; 258], argument: None };
        let interpreter = &head[script.interpreter.clone()];
        line.text[..interpreter.len()].copy_from_slice(interpreter);
        if let Some(argument) = &script.argument {
            let start = interpreter.len() + 1;
            line.text[start..start + argument.len()].copy_from_slice(&head[argument.clone()]);
            line.argument = Some(start);
        }
        line
    }

    fn interpreter(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.text).unwrap_or(c"")
    }

    fn argument(&self) -> Option<&CStr> {
        self.argument.and_then(|start| CStr::from_bytes_until_nul(&self.text[start..]).ok())
    }
}

/// The program at the end of a chain, as far as it can be looked at.
pub(super) enum Program {
    /// Nothing that this library knows: the kernel says what is due.
    Unknown,
    Ordinary(Stat),
    Managed(Image),
}

pub(super) struct Chain {
    lines: [Line; MAX_INTERPRETERS],
    depth: usize,
    is_managed: bool,
    program: Program,
    head: HeadBuffer,
    head_bytes: usize,
}

/// What a path leads to.
enum Found {
    Nothing,
    Ordinary(Stat, usize),
    Managed,
}

/// Device and inode of the stub that a path leads to, if to one.
pub(crate) fn is_managed_path(path: &CStr) -> Option<(u64, u64)> {
    let status = rustix::fs::stat(path).ok()?;
    if !may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino)) {
        return None;
    }
    match find(path, &mut HeadBuffer::new()) {
        Ok(Found::Managed) => Some((status.st_dev, status.st_ino)),
        _ => None,
    }
}

impl Chain {
    pub(super) fn new() -> Self {
        Self {
            lines: [Line { text: [0; 258], argument: None }; MAX_INTERPRETERS],
            depth: 0,
            is_managed: false,
            program: Program::Unknown,
            head: HeadBuffer::new(),
            head_bytes: 0,
        }
    }

    /// Follows the first lines from `path` on.
    pub(super) fn follow(&mut self, path: &CStr) -> Result<(), Errno> {
        loop {
            let from = if self.depth == 0 { path } else { self.lines[self.depth - 1].interpreter() };
            let (program, length) = match find(from, &mut self.head)? {
                Found::Nothing => return Ok(()),
                Found::Ordinary(status, length) => (Program::Ordinary(status), length),
                Found::Managed => {
                    self.is_managed = true;
                    let (image, length) = Image::of(from, &mut self.head)?;
                    (image.map_or(Program::Unknown, Program::Managed), length)
                }
            };
            let is_managed = !matches!(program, Program::Ordinary(_));
            match Head::of(&self.head.0[..length]) {
                Head::Script(_) if self.depth == MAX_INTERPRETERS => {
                    return if self.is_managed { Err(Errno::LOOP) } else { Ok(()) };
                }
                Head::Script(script) => {
                    self.lines[self.depth] = Line::of(&script, &self.head.0);
                    self.depth += 1;
                }
                Head::Elf => {
                    (self.program, self.head_bytes) = (program, length);
                    return Ok(());
                }
                Head::Other if is_managed => return Err(Errno::NOEXEC),
                Head::Other => return Ok(()),
            }
        }
    }

    /// Whether the kernel would meet a stub on the way.
    pub(super) fn is_managed(&self) -> bool {
        self.is_managed
    }

    pub(super) fn is_script(&self) -> bool {
        self.depth > 0
    }

    pub(super) fn last_interpreter(&self) -> Option<&CStr> {
        self.depth.checked_sub(1).map(|last| self.lines[last].interpreter())
    }

    pub(super) fn image(&self) -> Option<&Image> {
        match &self.program {
            Program::Managed(image) => Some(image),
            _ => None,
        }
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// The start of the program at the end.
    pub(super) fn head(&self) -> &[u8] {
        &self.head.0[..self.head_bytes]
    }

    /// The arguments that the kernel would give: of each script, the last first, the interpreter, its argument, and at last the path and the
    /// arguments that the program gave, without the first.
    ///
    /// # Safety
    /// `given` has lists of strings.
    pub(super) unsafe fn with_arguments<T>(&self, given: Given<'_>, then: impl FnOnce(Strings) -> T) -> T {
        if self.depth == 0 {
            return then(given.arguments);
        }
        // SAFETY: the caller's promise.
        let given_count = unsafe { count(given.arguments) };
        with_pointers(2 * self.depth + given_count + 2, |pointers| {
            let lines = self.lines[..self.depth].iter().rev();
            let words = lines.flat_map(|line| [Some(line.interpreter()), line.argument()]).flatten();
            let path = std::iter::once(given.path);
            // SAFETY: within the list.
            let rest = (1..given_count).map(|index| unsafe { *given.arguments.add(index) });
            let all = words.chain(path).map(CStr::as_ptr).chain(rest);
            for (place, word) in pointers.iter_mut().zip(all) {
                *place = word;
            }
            then(pointers.as_ptr().cast::<*const c_char>())
        })
    }
}

/// Whether a path leads to a stub, or to what may be one and cannot be told.
pub(super) fn leads_to_stub(path: &CStr) -> bool {
    let may_be = rustix::fs::stat(path).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino))
    });
    may_be && !matches!(find(path, &mut HeadBuffer::new()), Ok(Found::Nothing | Found::Ordinary(..)))
}

/// Looks at what `path` leads to, and reads the start of an ordinary file.
fn find(path: &CStr, head: &mut HeadBuffer) -> Result<Found, Errno> {
    let Ok(status) = rustix::fs::statat(CWD, path, rustix::fs::AtFlags::empty()) else { return Ok(Found::Nothing) };
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
        return Ok(Found::Nothing);
    }
    let identity = (status.st_dev, status.st_ino);
    let may_be_stub = is_on() && may_be_managed(status.st_size as u64, identity);
    if may_be_stub && process::owns_tables() && open_of_inode(identity).is_some() {
        return Ok(Found::Managed);
    }
    let read = record_locks::read_start(path, status.st_ino, &mut head.0);
    let text = match read {
        Ok(STUB_BYTES) if may_be_stub => Stub::parse(&head.0[..STUB_BYTES]).map_err(|_| Errno::IO),
        _ => Ok(None),
    };
    if matches!(text, Ok(Some(_))) || may_be_stub && inodes::holds(identity) && is_known(held(path)?.borrow())? {
        return Ok(Found::Managed);
    }
    text?;
    Ok(read.map_or(Found::Nothing, |length| Found::Ordinary(status, length)))
}

fn held(path: &CStr) -> Result<Closing, Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map(|handle| Closing(Some(handle)))
}
