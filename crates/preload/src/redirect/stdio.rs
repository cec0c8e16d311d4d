//! Streams on managed files.
//!
//! Such a stream is a cookie stream (`cookie`) on the program's descriptor, which it also tells to `fileno`. Every file is
//! opened by the library's own open first: what stands at a path may change between a look at it and libc's own open inside
//! `fopen`, which would read and write a stub. An ordinary file's descriptor is then given to a stream of libc's.

pub(crate) use super::foreign::number_of;
pub(crate) use super::streams::descriptor_of;

use super::cookie::new_stream;
use super::foreign::{fileno_of, return_to_close, set_fileno};
use super::standard::{STANDARD, restore};
pub(crate) use super::standard::{adopt_standard_streams, before_replacing, descriptor_replaced, not_replaced};
use super::streams::{self, forget};
use crate::descriptors::{self, Known, lookup};
use crate::managed::link::descriptor_path;
use crate::process::{self, Inside};
use libc::{FILE, c_char, c_int};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::sync::atomic::Ordering;

/// The library's own `open`, for a stream.
type Opener = unsafe fn(*const c_char, c_int) -> c_int;

unsafe extern "C" {
    fn __fpurge(stream: *mut FILE);
}

/// The flags of `fopen`'s mode; none for one that it would not take.
fn flags_of(mode: &[u8]) -> Option<c_int> {
    let (first, rest) = mode.split_first()?;
    let rest = &rest[..rest.iter().position(|byte| *byte == b',').unwrap_or(rest.len())];
    let both = rest.contains(&b'+');
    let mut flags = match (first, both) {
        (b'r', false) => libc::O_RDONLY,
        (b'r', true) => libc::O_RDWR,
        (b'w', false) => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        (b'w', true) => libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
        (b'a', false) => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        (b'a', true) => libc::O_RDWR | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    if rest.contains(&b'x') {
        flags |= libc::O_EXCL;
    }
    if rest.contains(&b'e') {
        flags |= libc::O_CLOEXEC;
    }
    Some(flags)
}

/// What `fopen` is to make a stream of.
pub(crate) enum Opened {
    /// Nothing: `errno` says why.
    Failed,
    /// The stream of a managed file.
    Managed(*mut FILE),
    Ordinary(Ordinary),
}

/// Opens a file for `fopen` by `opener`, the library's own open. None for a mode that is none.
pub(crate) fn open(path: *const c_char, mode: *const c_char, opener: Opener) -> Option<Opened> {
    // SAFETY: the program's string.
    let flags = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes())?;
    // SAFETY: our own `open`, with the program's path.
    let descriptor = unsafe { opener(path, flags) };
    if descriptor < 0 {
        return Some(Opened::Failed);
    }
    if !is_managed(descriptor) {
        return Some(Opened::Ordinary(Ordinary { descriptor, flags, mode }));
    }
    let stream = open_descriptor(descriptor, mode);
    if stream.is_null() {
        let _errno = process::Errno::keep();
        // SAFETY: opened just now.
        unsafe { libc::close(descriptor) };
        return Some(Opened::Failed);
    }
    Some(Opened::Managed(stream))
}

fn is_managed(descriptor: c_int) -> bool {
    matches!(lookup(descriptor), Known::Managed(_) | Known::OfChild)
}

/// Whether a descriptor of these flags can do what a stream of the other ones does.
fn gives(flags: c_int, wanted: c_int) -> bool {
    let access = flags & libc::O_ACCMODE;
    flags < 0 || access == libc::O_RDWR || access == wanted & libc::O_ACCMODE
}

/// `fdopen` of a managed descriptor.
pub(crate) fn open_descriptor(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's string and descriptor.
    unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        let wanted = flags_of(CStr::from_ptr(mode).to_bytes()).filter(|wanted| gives(flags, *wanted));
        let Some(wanted) = wanted else {
            process::fail(Errno::INVAL);
            return std::ptr::null_mut();
        };
        if wanted & libc::O_APPEND != 0 {
            // As libc does: the flag, and then the end, unless the stream reads as well.
            if flags >= 0 && flags & libc::O_APPEND == 0 {
                libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_APPEND);
            }
            if wanted & libc::O_ACCMODE == libc::O_WRONLY {
                libc::lseek(descriptor, 0, libc::SEEK_END);
            }
        }
    }
    new_stream(descriptor, mode)
}

/// `freopen`; none where it is libc's affair alone. `real` is libc's own.
pub(crate) fn reopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
    opener: Opener,
    real: &dyn Fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE,
) -> Option<*mut FILE> {
    let standard = STANDARD.iter().position(|standard| standard.is_reached_by(stream));
    let own = match standard {
        Some(number) if STANDARD[number].is_swapped() => Some(number as c_int),
        _ => descriptor_of(stream),
    };
    // SAFETY: the program's string.
    let flags = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes());
    let (Some(flags), true) = (flags, own.is_some() || !path.is_null()) else {
        let _ = return_to_close(stream);
        return None;
    };
    if standard.is_none() && own.is_none() && concerns(path, flags) {
        // An ordinary stream cannot become one of ours at its address, and the address is what `freopen` promises
        // to keep.
        process::fail(Errno::OPNOTSUPP);
        return Some(std::ptr::null_mut());
    }
    let current = own.and(standard).map_or(stream, |number| STANDARD[number].current());
    // What it holds is written before anything is opened, which may be the same file. SAFETY: the program's stream.
    unsafe { libc::fflush(current) };
    let opened = match own {
        // The same file once more: it is there, if maybe no longer under the name that the link shows, so nothing is
        // to be created.
        Some(descriptor) if path.is_null() => {
            let link = descriptor_path(None, descriptor);
            let creates = if flags & libc::O_EXCL == 0 { libc::O_CREAT } else { 0 };
            // SAFETY: our own open, of one of this process's links.
            unsafe { opener(link.as_c_str().as_ptr(), flags & !creates) }
        }
        // SAFETY: our own open, with the program's path.
        _ => unsafe { opener(path, flags) },
    };
    let ordinary = Ordinary { descriptor: opened, flags, mode };
    let is_ordinary = opened >= 0 && !is_managed(opened);
    let fails = |errno| {
        // libc closes the stream, as it does whenever it cannot open.
        let _ = return_to_close(stream);
        real(c"".as_ptr(), mode, stream);
        process::set_errno(errno);
        std::ptr::null_mut()
    };
    Some(match (standard, own) {
        (Some(number), Some(_)) if is_ordinary => {
            lead_back(number, |original| ordinary.lead(original, &|mode| real(NOWHERE, mode, original)))
        }
        (_, None) if is_ordinary => {
            let _ = return_to_close(stream);
            ordinary.lead(stream, &|mode| real(NOWHERE, mode, stream))
        }
        (None, Some(descriptor)) => lead_elsewhere(stream, descriptor, opened, flags),
        (_, None) if opened < 0 => fails(process::errno()),
        (Some(number), _) => lead_standard(number, opened, flags),
        (None, None) => {
            // It became managed since it was looked at. SAFETY: opened just now.
            unsafe { libc::close(opened) };
            fails(libc::EOPNOTSUPP)
        }
    })
}

/// Whether a path leads to a managed file, or would once it is opened.
fn concerns(path: *const c_char, flags: c_int) -> bool {
    // SAFETY: the program's string.
    let name = unsafe { CStr::from_ptr(path) };
    let _errno = process::Errno::keep();
    let Some(_inside) = Inside::enter() else { return false };
    super::may_be_stub(libc::AT_FDCWD, name)
        || flags & libc::O_CREAT != 0 && super::open::would_create(libc::AT_FDCWD, name)
}

const NOWHERE: *const c_char = c"/dev/null".as_ptr();

/// An ordinary file, opened already, for a stream of libc's.
pub(crate) struct Ordinary {
    descriptor: c_int,
    flags: c_int,
    mode: *const c_char,
}

impl Ordinary {
    /// libc makes its stream of `/dev/null` by `real`, with all that the mode asks for, and the stream gets the file's descriptor then. `stream` is the one to
    /// be led, null for a new one.
    fn lead(&self, stream: *mut FILE, real: &dyn Fn(*const c_char) -> *mut FILE) -> *mut FILE {
        // SAFETY: the program's string.
        let mode = unsafe { CStr::from_ptr(self.mode) }.to_bytes();
        let comma = mode.iter().position(|byte| *byte == b',').unwrap_or(mode.len());
        // Not exclusively: `/dev/null` is there.
        let mode = mode.iter().enumerate().filter(|(at, byte)| **byte != b'x' || *at > comma).map(|(_, byte)| *byte);
        let mode = CString::new(mode.collect::<Vec<_>>()).unwrap_or_default();
        // SAFETY: the program's stream, and one of libc's whose descriptor nobody else knows of yet.
        unsafe {
            let before = if stream.is_null() { -1 } else { fileno_of(stream) };
            // A stream whose descriptor was closed under it: libc closes the number once more.
            let held = match before == self.descriptor {
                true => libc::fcntl(self.descriptor, libc::F_DUPFD_CLOEXEC, 3),
                false => self.descriptor,
            };
            let led = real(mode.as_ptr());
            let _errno = process::Errno::keep();
            if led.is_null() {
                libc::close(held);
                return led;
            }
            let placeholder = fileno_of(led);
            if placeholder == before {
                libc::dup3(held, before, self.flags & libc::O_CLOEXEC);
                libc::close(held);
            } else {
                set_fileno(led, held);
                libc::close(placeholder);
            }
            if self.flags & (libc::O_APPEND | libc::O_ACCMODE) == libc::O_APPEND | libc::O_WRONLY {
                libc::lseek(fileno_of(led), 0, libc::SEEK_END);
            }
            led
        }
    }

    /// A new stream. `fdopen` and `fopen` are libc's own.
    pub(crate) fn begin(
        &self,
        fdopen: impl FnOnce(c_int, *const c_char) -> *mut FILE,
        fopen: &dyn Fn(*const c_char, *const c_char) -> *mut FILE,
    ) -> *mut FILE {
        // SAFETY: the program's string.
        if unsafe { CStr::from_ptr(self.mode) }.to_bytes().contains(&b',') {
            // `fdopen` knows no `ccs=`.
            return self.lead(std::ptr::null_mut(), &|mode| fopen(NOWHERE, mode));
        }
        let stream = fdopen(self.descriptor, self.mode);
        if stream.is_null() {
            let _errno = process::Errno::keep();
            // SAFETY: opened just now.
            unsafe { libc::close(self.descriptor) };
        }
        stream
    }
}

/// Puts a file opened with these flags, or none, under a standard stream, which may have been ours before and is flushed.
fn lead_standard(number: usize, opened: c_int, flags: c_int) -> *mut FILE {
    let standard = &STANDARD[number];
    let descriptor = number as c_int;
    // SAFETY: an open stream; then our own calls.
    unsafe {
        if !standard.is_swapped() {
            // It may have been closed, and is opened again here.
            set_fileno(standard.current(), descriptor);
        }
        // What could not be written, or was read ahead, is not the new file's.
        __fpurge(standard.current());
        if opened < 0 {
            // Closed, as libc leaves a stream that it could not open again.
            let _errno = process::Errno::keep();
            let original = standard.original_or_current();
            restore(number);
            set_fileno(original, -1);
            libc::close(descriptor);
            return std::ptr::null_mut();
        }
        if opened == descriptor {
            descriptor_replaced(opened);
        } else {
            libc::dup3(opened, descriptor, flags & libc::O_CLOEXEC);
            libc::close(opened);
        }
        let stream = standard.current();
        if !standard.is_swapped() {
            // An ordinary file after all, under a stream that may have been closed.
            set_fileno(stream, descriptor);
        }
        begin_again(stream, flags);
        stream
    }
}

/// An ordinary file for a standard stream of ours: libc's own stream, which is led to it, stands in its place again.
fn lead_back(number: usize, lead: impl FnOnce(*mut FILE) -> *mut FILE) -> *mut FILE {
    let standard = &STANDARD[number];
    // libc replaces the descriptor by calls of its own, so the table learns of it here; again afterwards, because
    // another thread may have looked at it in between.
    let forget_descriptor = || {
        if process::owns_tables() {
            descriptors::forget(number as c_int);
        }
    };
    let original = standard.original_or_current();
    // SAFETY: an open stream, flushed.
    unsafe { __fpurge(standard.current()) };
    restore(number);
    forget_descriptor();
    let stream = lead(original);
    let _errno = process::Errno::keep();
    forget_descriptor();
    stream
}

/// Puts another file, opened with these flags, or none, under a stream of ours, which is flushed and goes on at its address, on its descriptor.
fn lead_elsewhere(stream: *mut FILE, descriptor: c_int, opened: c_int, flags: c_int) -> *mut FILE {
    // SAFETY: the program's stream.
    unsafe {
        if opened < 0 {
            let _errno = process::Errno::keep();
            libc::fclose(stream);
            return std::ptr::null_mut();
        }
        __fpurge(stream);
        if opened != descriptor {
            libc::dup3(opened, descriptor, flags & libc::O_CLOEXEC);
            libc::close(opened);
        }
        begin_again(stream, flags);
    }
    stream
}

/// A stream without anything in its buffer goes on with another file, opened with these flags.
///
/// # Safety
/// An open stream.
unsafe fn begin_again(stream: *mut FILE, flags: c_int) {
    // `_flags` is the first field of glibc's stream; the bits have stood since 1997.
    const NO_READS: c_int = 4;
    const NO_WRITES: c_int = 8;
    const APPENDING: c_int = 0x1000;
    // SAFETY: the caller's promise.
    unsafe {
        libc::clearerr(stream);
        let bits = stream.cast::<c_int>();
        let access = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appending = if flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
        *bits = *bits & !(NO_READS | NO_WRITES | APPENDING) | access | appending;
        let begins_at_end = appending != 0 && access == NO_READS;
        libc::fseeko(stream, 0, if begins_at_end { libc::SEEK_END } else { libc::SEEK_SET });
    }
    if let Some(descriptor) = descriptor_of(stream)
        && let Some(place) = streams::place(descriptor)
    {
        // Neither oriented nor within a character.
        place.begin(descriptor, stream);
    }
}

/// A stream is about to be closed by the program; an error if that loses what was to be written.
pub(crate) fn closing(stream: *mut FILE) -> Result<(), rustix::io::Errno> {
    if let Some(standard) = STANDARD.iter().find(|standard| standard.stand_in.load(Ordering::Acquire) == stream) {
        // It is gone after this. libc's has no descriptor: it is closed, too.
        standard.end();
    }
    if let Some(descriptor) = descriptor_of(stream) {
        forget(descriptor);
    }
    return_to_close(stream)
}
