//! Streams on managed files.
//!
//! Such a stream is one of `fopencookie`; its functions are our own `read`, `write`, `lseek` and `close` on the
//! program's descriptor, which it also tells to `fileno`. libc's `stdin`, `stdout` and `stderr` cannot be made cookie
//! streams, but they are variables: when descriptor 0, 1 or 2 is or becomes a managed file, the variable is pointed
//! at a cookie stream, and back when the descriptor becomes something else. Meanwhile the stream it pointed at has no
//! descriptor, so what still uses it by address gets EBADF and not the stub; C++'s streams are led along (`cxx`).

pub(crate) use super::foreign::number_of;
pub(crate) use super::streams::descriptor_of;

use super::foreign::{fileno_of, give_descriptor, move_pending, return_to_close, set_fileno, take_descriptor};
use super::streams::{self, forget};
use crate::descriptors::{self, Known, lookup};
use crate::managed::link::descriptor_path;
use crate::process::{self, Inside};
use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The library's own `open`, for a stream.
type Opener = unsafe fn(*const c_char, c_int) -> c_int;

#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn __fpurge(stream: *mut FILE);
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// The cookie is the descriptor itself, plus one so that it is never null.
fn of_cookie(cookie: *mut c_void) -> c_int {
    cookie.addr() as c_int - 1
}

unsafe extern "C" fn cookie_read(cookie: *mut c_void, buffer: *mut c_char, count: size_t) -> ssize_t {
    // SAFETY: the stream's buffer.
    unsafe { libc::read(of_cookie(cookie), buffer.cast(), count) }
}

/// A short write is an error to `fopencookie`'s caller: go on until all is written.
unsafe extern "C" fn cookie_write(cookie: *mut c_void, buffer: *const c_char, count: size_t) -> ssize_t {
    let mut done = 0;
    while done < count {
        // SAFETY: the stream's buffer.
        let written = unsafe { libc::write(of_cookie(cookie), buffer.add(done).cast(), count - done) };
        if written <= 0 {
            break;
        }
        done += written as size_t;
    }
    done as ssize_t
}

unsafe extern "C" fn cookie_seek(cookie: *mut c_void, offset: *mut off64_t, whence: c_int) -> c_int {
    // SAFETY: the stream's offset.
    let place = unsafe { libc::lseek(of_cookie(cookie), *offset, whence) };
    if place < 0 {
        return -1;
    }
    // SAFETY: as above.
    unsafe { *offset = place };
    0
}

unsafe extern "C" fn cookie_close(cookie: *mut c_void) -> c_int {
    forget(of_cookie(cookie));
    // SAFETY: the stream owned it.
    unsafe { libc::close(of_cookie(cookie)) }
}

fn new_stream(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    let Some(place) = streams::place_for(descriptor) else {
        process::fail(rustix::io::Errno::MFILE);
        return std::ptr::null_mut();
    };
    let functions = CookieFunctions { read: cookie_read, write: cookie_write, seek: cookie_seek, close: cookie_close };
    let cookie = std::ptr::without_provenance_mut(descriptor as usize + 1);
    // SAFETY: the mode is a string; the functions follow the interface.
    let stream = unsafe { fopencookie(cookie, mode, functions) };
    if !stream.is_null() {
        place.begin(descriptor, stream);
    }
    stream
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

/// `fopen` of a path that is, or becomes, a managed file; none when it is libc's affair.
/// `opener` opens it.
pub(crate) fn open(path: *const c_char, mode: *const c_char, opener: Opener) -> Option<*mut FILE> {
    // SAFETY: the program's strings.
    let (name, mode_text) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(mode)) };
    let flags = flags_of(mode_text.to_bytes())?;
    let concerns = {
        let _errno = process::Errno::keep();
        let _inside = Inside::enter()?;
        super::may_be_stub(libc::AT_FDCWD, name)
            || flags & libc::O_CREAT != 0 && super::open::would_create(libc::AT_FDCWD, name)
    };
    if !concerns {
        return None;
    }
    // SAFETY: our own `open`, with the program's path.
    let descriptor = unsafe { opener(path, flags) };
    if descriptor < 0 {
        return Some(std::ptr::null_mut());
    }
    let stream = if matches!(lookup(descriptor), Known::Managed(_) | Known::OfChild) {
        open_descriptor(descriptor, mode)
    } else {
        // SAFETY: an ordinary file after all; our own `fdopen` passes it on.
        unsafe { libc::fdopen(descriptor, mode) }
    };
    if stream.is_null() {
        let _errno = process::Errno::keep();
        // SAFETY: opened just now.
        unsafe { libc::close(descriptor) };
    }
    Some(stream)
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
            process::fail(rustix::io::Errno::INVAL);
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

/// `freopen` where our streams or managed files are concerned; none when it is libc's affair alone. `real` is libc's.
pub(crate) fn reopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
    opener: Opener,
    real: impl FnOnce(*mut FILE) -> *mut FILE,
) -> Option<*mut FILE> {
    let standard = STANDARD.iter().position(|standard| standard.is_reached_by(stream));
    let own = match standard {
        Some(number) if STANDARD[number].is_swapped() => Some(number as c_int),
        _ => descriptor_of(stream),
    };
    // SAFETY: the program's string.
    let flags = flags_of(unsafe { CStr::from_ptr(mode) }.to_bytes());
    if path.is_null() {
        // The same file once more, as libc does it, but by our own open.
        let Some(descriptor) = own else {
            let _ = return_to_close(stream);
            return None;
        };
        let link = descriptor_path(None, descriptor);
        // It is there, if maybe no longer under the name that the link shows: nothing is to be created.
        let creates = |flags: c_int| if flags & libc::O_EXCL == 0 { libc::O_CREAT } else { 0 };
        let wanted =
            Wanted { path: link.as_c_str().as_ptr(), flags: flags.map(|flags| flags & !creates(flags)), opener };
        return Some(match standard {
            Some(number) => lead_standard(number, &wanted),
            None => lead_elsewhere(stream, descriptor, &wanted),
        });
    }
    let concerns = {
        // SAFETY: the program's string.
        let name = unsafe { CStr::from_ptr(path) };
        let _errno = process::Errno::keep();
        let _inside = Inside::enter()?;
        let creates = flags.is_some_and(|flags| flags & libc::O_CREAT != 0);
        super::may_be_stub(libc::AT_FDCWD, name) || creates && super::open::would_create(libc::AT_FDCWD, name)
    };
    let wanted = Wanted { path, flags, opener };
    match (standard, own) {
        (Some(number), _) if concerns => Some(lead_standard(number, &wanted)),
        (Some(number), Some(_)) => Some(lead_back(number, real)),
        (None, Some(descriptor)) => Some(lead_elsewhere(stream, descriptor, &wanted)),
        (None, None) if concerns => {
            // An ordinary stream cannot become one of ours at its address, and the address is what `freopen` promises
            // to keep.
            process::fail(rustix::io::Errno::OPNOTSUPP);
            Some(std::ptr::null_mut())
        }
        (_, None) => {
            let _ = return_to_close(stream);
            None
        }
    }
}

/// What `freopen` is to open.
struct Wanted {
    path: *const c_char,
    /// None where the mode is none.
    flags: Option<c_int>,
    opener: Opener,
}

impl Wanted {
    /// The descriptor and its flags; none, and `errno`, where there is none.
    fn open(&self) -> Option<(c_int, c_int)> {
        let Some(flags) = self.flags else {
            process::fail(rustix::io::Errno::INVAL);
            return None;
        };
        // SAFETY: our own open, with the program's path or one of this process's links.
        let opened = unsafe { (self.opener)(self.path, flags) };
        (opened >= 0).then_some((opened, flags))
    }
}

/// Opens a file under a standard stream, which may have been ours before.
fn lead_standard(number: usize, wanted: &Wanted) -> *mut FILE {
    let standard = &STANDARD[number];
    let descriptor = number as c_int;
    // SAFETY: an open stream; then our own calls.
    unsafe {
        libc::fflush(standard.current());
        if !standard.is_swapped() {
            // It may have been closed, and is opened again here.
            set_fileno(standard.current(), descriptor);
        }
        let opened = wanted.open();
        // What could not be written, or was read ahead, is not the new file's.
        __fpurge(standard.current());
        let Some((opened, flags)) = opened else {
            // Closed, as libc leaves a stream that it could not open again.
            let _errno = process::Errno::keep();
            let original = standard.original_or_current();
            restore(number);
            set_fileno(original, -1);
            libc::close(descriptor);
            return std::ptr::null_mut();
        };
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

/// An ordinary file for a standard stream of ours: libc opens it under its own.
fn lead_back(number: usize, real: impl FnOnce(*mut FILE) -> *mut FILE) -> *mut FILE {
    let standard = &STANDARD[number];
    // libc replaces the descriptor by calls of its own, so the table learns of it here; again afterwards, because
    // another thread may have looked at it in between.
    let forget_descriptor = || {
        if process::owns_tables() {
            descriptors::forget(number as c_int);
        }
    };
    let original = standard.original_or_current();
    // SAFETY: an open stream.
    unsafe {
        libc::fflush(standard.current());
        __fpurge(standard.current());
    }
    restore(number);
    forget_descriptor();
    let stream = real(original);
    let _errno = process::Errno::keep();
    forget_descriptor();
    stream
}

/// Opens another file under a stream of ours, which goes on at its address, on its descriptor.
fn lead_elsewhere(stream: *mut FILE, descriptor: c_int, wanted: &Wanted) -> *mut FILE {
    // SAFETY: the program's stream.
    unsafe {
        libc::fflush(stream);
        let Some((opened, flags)) = wanted.open() else {
            let _errno = process::Errno::keep();
            libc::fclose(stream);
            return std::ptr::null_mut();
        };
        __fpurge(stream);
        libc::dup3(opened, descriptor, flags & libc::O_CLOEXEC);
        libc::close(opened);
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

/// One of the three streams that libc has from the start.
struct Standard {
    /// What the variable pointed at, while it points at ours.
    original: AtomicPtr<FILE>,
    /// Ours meanwhile.
    stand_in: AtomicPtr<FILE>,
    number: usize,
}

static STANDARD: [Standard; 3] = [Standard::new(0), Standard::new(1), Standard::new(2)];

impl Standard {
    const fn new(number: usize) -> Self {
        let (original, stand_in) = (AtomicPtr::new(std::ptr::null_mut()), AtomicPtr::new(std::ptr::null_mut()));
        Self { original, stand_in, number }
    }

    fn variable(&self) -> *mut *mut FILE {
        match self.number {
            0 => &raw mut stdin,
            1 => &raw mut stdout,
            _ => &raw mut stderr,
        }
    }

    /// Whether a program that uses `stream` means this one. The variable may point at a stream of another descriptor, if
    /// the program has set it.
    fn is_reached_by(&self, stream: *mut FILE) -> bool {
        if self.is_swapped() {
            return [&self.original, &self.stand_in].iter().any(|known| known.load(Ordering::Acquire) == stream);
        }
        // SAFETY: libc's variable, and with that an open stream, or one of libc's that was closed, which has -1.
        unsafe { stream == *self.variable() && (fileno_of(stream) == self.number as c_int || fileno_of(stream) == -1) }
    }

    /// The stream that the descriptor is used by.
    fn current(&self) -> *mut FILE {
        // SAFETY: libc's variable.
        if self.is_swapped() { self.stand_in.load(Ordering::Acquire) } else { unsafe { *self.variable() } }
    }

    /// libc's own.
    fn original_or_current(&self) -> *mut FILE {
        if self.is_swapped() { self.original.load(Ordering::Acquire) } else { self.current() }
    }

    /// The variable leads to libc's own stream again: this and ours, which nothing leads to any more; none if it did
    /// already.
    fn end(&self) -> Option<(*mut FILE, *mut FILE)> {
        let original = self.original.swap(std::ptr::null_mut(), Ordering::AcqRel);
        let stand_in = self.stand_in.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if original.is_null() {
            return None;
        }
        // SAFETY: libc's variable. A program that has set it means what it set.
        unsafe {
            if *self.variable() == stand_in {
                *self.variable() = original;
            }
        }
        super::cxx::lead(stand_in, original);
        Some((original, stand_in))
    }

    fn is_swapped(&self) -> bool {
        !self.original.load(Ordering::Acquire).is_null()
    }
}

fn swap(number: usize) {
    let standard = &STANDARD[number];
    if standard.is_swapped() {
        return;
    }
    // SAFETY: libc's variable; a stream that `fclose` closed stays where it is.
    let is_its = unsafe {
        let original = *standard.variable();
        !original.is_null() && fileno_of(original) == number as c_int
    };
    // Closed by `fclose`, or set by the program to another stream: libc does not use the number either.
    if !is_its {
        return;
    }
    let mode = if number == 0 { c"r" } else { c"w" };
    let stream = new_stream(number as c_int, mode.as_ptr());
    if stream.is_null() {
        return;
    }
    // SAFETY: libc's variable and stream.
    unsafe {
        if number == 2 {
            libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0);
        }
        let original = *standard.variable();
        // Flushed, if the descriptor was replaced; not if it was closed before.
        move_pending(original, stream);
        set_fileno(original, -1);
        standard.stand_in.store(stream, Ordering::Release);
        standard.original.store(original, Ordering::Release);
        *standard.variable() = stream;
        super::cxx::lead(original, stream);
    }
}

fn restore(number: usize) {
    let Some((original, stand_in)) = STANDARD[number].end() else { return };
    forget(number as c_int);
    // SAFETY: open streams. Our own stays allocated, and empty, for it is flushed at the end: the program may hold its
    // address.
    unsafe {
        set_fileno(original, number as c_int);
        move_pending(stand_in, original);
    }
}

/// At load: descriptors 0, 1 and 2 as they were inherited.
pub(crate) fn adopt_standard_streams() {
    if !super::is_on() {
        return;
    }
    for number in 0..3 {
        if matches!(lookup(number), Known::Managed(_)) {
            swap(number as usize);
        }
    }
}

/// `to` is about to become `from`: what the stream on it holds goes where it was meant to go.
pub(crate) fn before_replacing(from: c_int, to: c_int) {
    if !super::is_on() || Inside::is_set() || !process::owns_tables() {
        return;
    }
    let is_managed = || matches!(lookup(from), Known::Managed(_));
    let standard = STANDARD.get(to as usize);
    if let Some(standard) = standard
        && (standard.is_swapped() || is_managed())
    {
        let _errno = process::Errno::keep();
        // SAFETY: libc's variable is an open stream.
        unsafe { libc::fflush(*standard.variable()) };
    }
    // The standard stream of that number has its turn when the descriptor is replaced.
    let but = standard.map_or(std::ptr::null_mut(), Standard::current);
    take_descriptor(to, but, is_managed);
}

/// A descriptor did not become another file, after [`before_replacing`].
pub(crate) fn not_replaced(descriptor: c_int) {
    if process::owns_tables() && descriptors::managed_open(descriptor).is_none() {
        give_descriptor(descriptor);
    }
}

/// A descriptor became another file.
pub(crate) fn descriptor_replaced(descriptor: c_int) {
    if !super::is_on() {
        return;
    }
    if descriptors::managed_open(descriptor).is_none() {
        give_descriptor(descriptor);
        if (0..3).contains(&descriptor) {
            restore(descriptor as usize);
        }
    } else if (0..3).contains(&descriptor) {
        swap(descriptor as usize);
    }
}
