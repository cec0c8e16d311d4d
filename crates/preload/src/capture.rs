//! Records of what the program does, through the trace's [`Recorder`].
//!
//! Only regular files are recorded, not those of `/proc` and `/sys`. An open that fails touches no file and leaves no
//! record; any other failed call leaves one with its error. A file's name is the kernel's for the open descriptor
//! (absolute, links resolved), asked for once at its open. The offset of a call without one is the kernel's position
//! after the call, less what was moved: right for appends too, and exact unless threads share a position at that
//! instant.

use crate::borrow::borrow;
use crate::process::{self, Level};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, Stat};
use std::ffi::{CStr, CString, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};
use stripewise_capture::call::{Call, Operation};
use stripewise_capture::clock::{self, Ticks};
use stripewise_capture::format::{FileKey, NO_OFFSET, RawEvent};
use stripewise_capture::recorder::{Meta, Recorder};
use stripewise_layout::{FileOffset, WriteClass};

static RECORDER: AtomicPtr<Recorder> = AtomicPtr::new(std::ptr::null_mut());
static DIRECTORY: AtomicPtr<CString> = AtomicPtr::new(std::ptr::null_mut());

/// Where a data call takes place.
#[derive(Clone, Copy)]
pub(crate) enum At {
    Given(i64),
    /// At the position of the descriptor, which moves on.
    Position,
}

/// A file of the trace, as a record names it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Captured {
    pub(crate) key: FileKey,
    /// What writes through the descriptor wait for; `None` where no descriptor was used.
    pub(crate) write_class: Option<WriteClass>,
}

/// Bits of [`Captured::word`].
pub(crate) const CAPTURED_BITS: u32 = u32::BITS + 2;

impl Captured {
    /// In [`CAPTURED_BITS`] bits, which [`Self::from_word`] reads.
    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        let class: u64 = match self.write_class {
            None => 0,
            Some(WriteClass::Buffered) => 1,
            Some(WriteClass::Direct) => 2,
            Some(WriteClass::Synchronous) => 3,
        };
        class << u32::BITS | u64::from(self.key.0)
    }

    #[inline(always)]
    pub(crate) fn from_word(word: u64) -> Self {
        let write_class = match word >> u32::BITS & 3 {
            0 => None,
            1 => Some(WriteClass::Buffered),
            2 => Some(WriteClass::Direct),
            _ => Some(WriteClass::Synchronous),
        };
        Self { key: FileKey(word as u32), write_class }
    }

    /// As it is for one call with these `RWF_*` flags.
    pub(crate) fn with_call_flags(self, flags: c_int) -> Self {
        let synchronous = flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0;
        if synchronous { Self { write_class: Some(WriteClass::Synchronous), ..self } } else { self }
    }
}

impl From<FileKey> for Captured {
    fn from(key: FileKey) -> Self {
        Self { key, write_class: None }
    }
}

/// What writes through a descriptor with these flags wait for.
pub(crate) fn write_class_of(flags: OFlags) -> WriteClass {
    if flags.intersects(OFlags::SYNC | OFlags::DSYNC) {
        WriteClass::Synchronous
    } else if flags.contains(OFlags::DIRECT) {
        WriteClass::Direct
    } else {
        WriteClass::Buffered
    }
}

/// As [`write_class_of`], by the flags that the kernel has for the descriptor.
pub(crate) fn write_class_of_descriptor(descriptor: BorrowedFd<'_>) -> Option<WriteClass> {
    rustix::fs::fcntl_getfl(descriptor).ok().map(write_class_of)
}

/// A record; the class of writes stands in those on which it depends.
#[inline(always)]
fn record_of(call: Call, file: Captured, offset: FileOffset, bytes: u64, start: Ticks, end: Ticks) -> RawEvent {
    let has_class = matches!(call.operation(), Operation::Write | Operation::Open | Operation::SetFlags);
    let write_class = if has_class { file.write_class } else { None };
    RawEvent { write_class, ..RawEvent::new(call, file.key, offset, bytes, start, end) }
}

/// The recorder, if the program is captured.
#[inline(always)]
pub(crate) fn recorder() -> Option<&'static Recorder> {
    // SAFETY: set once, to a recorder that stays mapped.
    unsafe { RECORDER.load(Ordering::Relaxed).as_ref() }
}

/// This process, a helper of ours, leaves no trace.
pub(crate) fn leave_out() {
    RECORDER.store(std::ptr::null_mut(), Ordering::Release);
}

/// Reads the environment; true when the program is to be captured.
pub(crate) fn prepare() -> bool {
    let Some(directory) = process::variable(c"STRIPEWISE_TRACE") else { return false };
    if directory.to_bytes().first() != Some(&b'/') {
        process::say(&[b"STRIPEWISE_TRACE must be an absolute path, not ", directory.to_bytes()]);
        return false;
    }
    let Ok(recorder) = Recorder::in_wiped_memory() else {
        process::say(&[b"no memory for the trace; nothing is captured"]);
        return false;
    };
    DIRECTORY.store(Box::into_raw(Box::new(directory.to_owned())), Ordering::Release);
    RECORDER.store(std::ptr::from_ref(recorder).cast_mut(), Ordering::Release);
    true
}

/// Starts the trace of this process.
pub(crate) fn start() {
    let Some(recorder) = recorder() else { return };
    // SAFETY: set by `prepare` and never freed.
    let Some(directory) = (unsafe { DIRECTORY.load(Ordering::Acquire).as_ref() }) else { return };
    let (mpi_rank, mpi_size) = mpi_from_environment();
    let meta = Meta { mpi_rank, mpi_size, ..Meta::new(directory) };
    if let Err(error) = recorder.start(&meta) {
        // Not in the middle of a fork from many threads: the message is made without allocation where it can be.
        let text: &[u8] = match error {
            stripewise_capture::recorder::StartError::Directory => b"the directory's path is too long",
            stripewise_capture::recorder::StartError::Create(_) => {
                b"the trace file cannot be made; is the directory there and writable?"
            }
            stripewise_capture::recorder::StartError::Space(_) => b"the trace file got no space; is the disk full?",
            stripewise_capture::recorder::StartError::Started => return,
        };
        process::log(Level::Error, &[b"nothing is captured in ", directory.to_bytes(), b": ", text]);
    }
}

/// Rank and size as the launchers of MPICH, OpenMPI and Slurm announce them.
fn mpi_from_environment() -> (Option<u32>, u32) {
    let number = |name: &CStr| process::variable(name)?.to_str().ok()?.parse::<u32>().ok();
    for (rank, size) in
        [(c"OMPI_COMM_WORLD_RANK", c"OMPI_COMM_WORLD_SIZE"), (c"PMI_RANK", c"PMI_SIZE"), (c"PMIX_RANK", c"PMIX_SIZE")]
    {
        if let Some(rank) = number(rank) {
            return (Some(rank), number(size).unwrap_or(0));
        }
    }
    (None, 0)
}

/// Cuts the trace file to its length; later records are still kept.
pub(crate) fn finish() {
    let Some(recorder) = recorder() else { return };
    if process::is_begun() && process::owns_tables() {
        let lost = recorder.lost();
        recorder.finish();
        if lost > 0 {
            let mut digits = [0u8; 20];
            process::log(
                Level::Warn,
                &[b"records that found no space in the trace: ", process::decimal(lost, &mut digits)],
            );
        }
    }
}

/// The moment, if the program is captured.
#[inline]
pub(crate) fn now() -> Ticks {
    if recorder().is_some() { clock::now() } else { Ticks(0) }
}

/// Calls `real` and records it. `real` answers -1 with `errno` set, or the bytes moved.
#[inline(always)]
pub(crate) fn data(call: Call, file: Captured, descriptor: c_int, at: At, real: impl FnOnce() -> isize) -> isize {
    let start = clock::now();
    let result = real();
    let end = clock::now();
    let Some(recorder) = recorder() else { return result };
    if result < 0 {
        failed(recorder, call, file, at, start, end);
        return result;
    }
    let offset = match at {
        At::Given(offset) => FileOffset(offset as u64),
        At::Position => position_before_of(descriptor, result as u64),
    };
    recorder.record(&record_of(call, file, offset, result as u64, start, end));
    result
}

#[cold]
#[inline(never)]
fn failed(recorder: &Recorder, call: Call, file: Captured, at: At, start: Ticks, end: Ticks) {
    let offset = match at {
        At::Given(offset) => FileOffset(offset as u64),
        At::Position => NO_OFFSET,
    };
    let errno = process::errno() as u32;
    recorder.record(&RawEvent { errno, ..record_of(call, file, offset, 0, start, end) });
}

pub(crate) fn position_before_of(descriptor: c_int, moved: u64) -> FileOffset {
    // SAFETY: the descriptor was used just now; if it was closed meanwhile the answer is an error.
    let borrowed = unsafe { borrow(descriptor) };
    rustix::fs::tell(borrowed).map_or(NO_OFFSET, |position| FileOffset(position.saturating_sub(moved)))
}

/// Records a call that moved no bytes, or whose bytes are known; `result` is 0 or more, or -1 with `errno`.
pub(crate) fn event(call: Call, file: impl Into<Captured>, offset: FileOffset, bytes: u64, start: Ticks, result: i64) {
    let Some(recorder) = recorder() else { return };
    let mut event = record_of(call, file.into(), offset, bytes, start, clock::now());
    if result < 0 {
        event.errno = process::errno() as u32;
        event.bytes = 0;
    }
    recorder.record(&event);
}

/// As [`event`], with the error as a number (0: none).
pub(crate) fn event_with(
    call: Call,
    file: impl Into<Captured>,
    offset: FileOffset,
    bytes: u64,
    start: Ticks,
    errno: u32,
) {
    let Some(recorder) = recorder() else { return };
    let bytes = if errno == 0 { bytes } else { 0 };
    recorder.record(&RawEvent { errno, ..record_of(call, file.into(), offset, bytes, start, clock::now()) });
}

/// An open succeeded.
pub(crate) fn opened(call: Call, file: Captured, created: bool, start: Ticks) {
    let Some(recorder) = recorder() else { return };
    recorder.record(&RawEvent { created, ..record_of(call, file, NO_OFFSET, 0, start, clock::now()) });
}

/// Room for a path.
pub(crate) type PathBuffer = [u8; 4352];

/// The kernel's name of an open file.
pub(crate) fn name_of(descriptor: BorrowedFd<'_>, buffer: &mut PathBuffer) -> usize {
    use std::os::fd::AsRawFd;
    let mut link = [0u8; 40];
    let mut digits = [0u8; 20];
    let prefix = b"/proc/self/fd/";
    let number = process::decimal(descriptor.as_raw_fd() as u64, &mut digits);
    link[..prefix.len()].copy_from_slice(prefix);
    link[prefix.len()..prefix.len() + number.len()].copy_from_slice(number);
    let Ok(link) = CStr::from_bytes_until_nul(&link) else { return 0 };
    rustix::fs::readlinkat_raw(rustix::fs::CWD, link, &mut buffer[..]).unwrap_or(0)
}

/// Whether `directory` is one and its own absolute name: the kernel's answer for a path without links is had without `/proc`.
fn is_resolved(directory: &[u8]) -> bool {
    let Some(rest) = directory.strip_prefix(b"/") else { return false };
    if rest.split(|byte| *byte == b'/').any(|name| matches!(name, b"" | b"." | b"..")) {
        return false;
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok()
}

/// The absolute name of something in a directory, whether it exists or not: the directory's links are resolved, the
/// last component's are not.
pub(crate) fn name_at(directory: c_int, path: &CStr, buffer: &mut PathBuffer) -> usize {
    let bytes = path.to_bytes();
    let trimmed = bytes.len() - bytes.iter().rev().take_while(|byte| **byte == b'/').count();
    let bytes = &bytes[..trimmed];
    let split = bytes.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = match split {
        Some(0) => (&b"/"[..], &bytes[1..]),
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (&b"."[..], bytes),
    };
    if parent.len() >= 4096 || name.is_empty() {
        return 0;
    }
    // SAFETY: either AT_FDCWD or what the program passed; the kernel checks it.
    let base = unsafe { borrow(directory) };
    let mut length = if is_resolved(parent) {
        buffer[..parent.len()].copy_from_slice(parent);
        parent.len()
    } else {
        match rustix::fs::openat(base, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(opened) => name_of(opened.as_fd(), buffer),
            Err(_) => return 0,
        }
    };
    if length == 0 || length + 1 + name.len() > buffer.len() {
        return 0;
    }
    if buffer[length - 1] != b'/' {
        buffer[length] = b'/';
        length += 1;
    }
    buffer[length..length + name.len()].copy_from_slice(name);
    length + name.len()
}

/// The absolute name of what `path` is to a child that goes to other directories first.
pub(crate) fn seen_from(directories: &[CString], path: &CStr) -> Option<CString> {
    let mut whole = Vec::new();
    for part in directories.iter().map(CString::as_c_str).chain([path]).map(CStr::to_bytes) {
        if part.starts_with(b"/") {
            whole.clear();
        } else if !whole.is_empty() {
            whole.push(b'/');
        }
        whole.extend_from_slice(part);
    }
    let mut name: PathBuffer = [0; _];
    let length = name_at(libc::AT_FDCWD, &CString::new(whole).ok()?, &mut name);
    CString::new(name.get(..length).filter(|name| !name.is_empty())?).ok()
}

fn is_kernels(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") || path.starts_with(b"/sys/")
}

/// Gives an open regular file its number in the trace; none when nothing is captured, or not this file.
pub(crate) fn key_of_open(descriptor: BorrowedFd<'_>, status: &Stat) -> Option<FileKey> {
    let recorder = recorder()?;
    let mut buffer: PathBuffer = [0; _];
    let length = name_of(descriptor, &mut buffer);
    let path = &buffer[..length];
    (length > 0 && !is_kernels(path)).then(|| recorder.define_file(path, status.st_dev, status.st_ino))
}

/// Gives the regular file at a path its number; for calls that take a path.
pub(crate) fn key_of_path(directory: c_int, path: *const libc::c_char) -> Option<FileKey> {
    let recorder = recorder()?;
    if path.is_null() {
        return None;
    }
    // SAFETY: the program passed it to a call that wants a string.
    let path = unsafe { CStr::from_ptr(path) };
    // SAFETY: as in `name_at`.
    let base = unsafe { borrow(directory) };
    let status = rustix::fs::statat(base, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::RegularFile {
        return None;
    }
    let mut buffer: PathBuffer = [0; _];
    let length = name_at(directory, path, &mut buffer);
    let path = &buffer[..length];
    (length > 0 && !is_kernels(path)).then(|| recorder.define_file(path, status.st_dev, status.st_ino))
}
