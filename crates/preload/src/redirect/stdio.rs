//! Streams on managed files.
//!
//! Such a stream is one of `fopencookie`; its functions are our own `read`, `write`, `lseek` and `close` on the
//! program's descriptor, which it also tells to `fileno`. libc's `stdin`, `stdout` and `stderr` cannot be made cookie
//! streams, but they are variables: when descriptor 0, 1 or 2 is or becomes a managed file, the variable is pointed
//! at a cookie stream, and back when the descriptor becomes something else. Meanwhile the stream it pointed at has no
//! descriptor, so what still uses it by address gets EBADF and not the stub; C++'s streams are led along (`cxx`).

pub(crate) use super::streams::descriptor_of;

use super::streams::{self, forget};
use crate::descriptors::{self, Known, lookup};
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
    let stream = if matches!(lookup(descriptor), Known::Managed(_)) {
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

/// `fdopen` of a managed descriptor.
pub(crate) fn open_descriptor(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's string and descriptor.
    unsafe {
        let appends = *mode as u8 == b'a';
        if appends {
            // As libc does: the flag, and then the end.
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            if flags >= 0 && flags & libc::O_APPEND == 0 {
                libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_APPEND);
            }
            libc::lseek(descriptor, 0, libc::SEEK_END);
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
    let standard = STANDARD.iter().position(|standard| {
        // SAFETY: libc's variables.
        stream == unsafe { *standard.variable() } || stream == standard.original.load(Ordering::Acquire)
    });
    let concerns = !path.is_null() && {
        // SAFETY: the program's strings.
        let (name, mode) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(mode)) };
        let _errno = process::Errno::keep();
        let _inside = Inside::enter()?;
        let creates = flags_of(mode.to_bytes()).is_some_and(|flags| flags & libc::O_CREAT != 0);
        super::may_be_stub(libc::AT_FDCWD, name) || creates && super::open::would_create(libc::AT_FDCWD, name)
    };
    let own = descriptor_of(stream);
    if !concerns && own.is_none() {
        return None;
    }
    let Some(number) = standard else {
        let Some(descriptor) = own.filter(|_| !path.is_null()) else {
            // An ordinary stream cannot become one of ours at its address, and the address is what `freopen` promises
            // to keep.
            process::fail(rustix::io::Errno::OPNOTSUPP);
            return Some(std::ptr::null_mut());
        };
        return Some(lead_elsewhere(stream, descriptor, path, mode, opener));
    };
    if !concerns {
        restore(number);
        let original = STANDARD[number].original_or_current();
        return Some(real(original));
    }
    // SAFETY: libc's variable is a stream; then our own calls on the program's path.
    unsafe {
        libc::fflush(*STANDARD[number].variable());
        let flags = flags_of(CStr::from_ptr(mode).to_bytes())?;
        let opened = opener(path, flags);
        if opened < 0 {
            return Some(std::ptr::null_mut());
        }
        if opened != number as c_int {
            libc::dup2(opened, number as c_int);
            libc::close(opened);
        } else {
            descriptor_replaced(opened);
        }
        Some(*STANDARD[number].variable())
    }
}

/// Opens another file under a stream of ours, which goes on at its address, on its descriptor.
fn lead_elsewhere(
    stream: *mut FILE,
    descriptor: c_int,
    path: *const c_char,
    mode: *const c_char,
    opener: Opener,
) -> *mut FILE {
    // `_flags` is the first field of glibc's stream; the bits have stood since 1997.
    const NO_READS: c_int = 4;
    const NO_WRITES: c_int = 8;
    const APPENDING: c_int = 0x1000;
    // SAFETY: the program's stream and strings.
    unsafe {
        libc::fflush(stream);
        let Some(flags) = flags_of(CStr::from_ptr(mode).to_bytes()) else {
            process::fail(rustix::io::Errno::INVAL);
            return std::ptr::null_mut();
        };
        let opened = opener(path, flags);
        if opened < 0 {
            let _errno = process::Errno::keep();
            libc::fclose(stream);
            return std::ptr::null_mut();
        }
        __fpurge(stream);
        libc::dup3(opened, descriptor, flags & libc::O_CLOEXEC);
        libc::close(opened);
        libc::clearerr(stream);
        let bits = stream.cast::<c_int>();
        let access = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appending = if flags & libc::O_APPEND != 0 { APPENDING } else { 0 };
        *bits = *bits & !(NO_READS | NO_WRITES | APPENDING) | access | appending;
        libc::fseeko(stream, 0, if appending != 0 { libc::SEEK_END } else { libc::SEEK_SET });
    }
    stream
}

/// A stream is about to be closed by the program.
pub(crate) fn closing(stream: *mut FILE) {
    if let Some(descriptor) = descriptor_of(stream) {
        forget(descriptor);
    }
}

/// One of the three streams that libc has from the start.
struct Standard {
    /// What the variable pointed at, while it points at ours.
    original: AtomicPtr<FILE>,
    number: usize,
}

static STANDARD: [Standard; 3] = [
    Standard { original: AtomicPtr::new(std::ptr::null_mut()), number: 0 },
    Standard { original: AtomicPtr::new(std::ptr::null_mut()), number: 1 },
    Standard { original: AtomicPtr::new(std::ptr::null_mut()), number: 2 },
];

impl Standard {
    fn variable(&self) -> *mut *mut FILE {
        match self.number {
            0 => &raw mut stdin,
            1 => &raw mut stdout,
            _ => &raw mut stderr,
        }
    }

    fn original_or_current(&self) -> *mut FILE {
        let original = self.original.load(Ordering::Acquire);
        // SAFETY: libc's variable.
        if original.is_null() { unsafe { *self.variable() } } else { original }
    }

    fn is_swapped(&self) -> bool {
        !self.original.load(Ordering::Acquire).is_null()
    }
}

/// Where glibc keeps a stream's descriptor (`_fileno` of `struct _IO_FILE`, unchanged since 1997 and part of its
/// binary interface).
const FILENO_AT: usize = 112;

/// # Safety
/// `stream` is one of libc's three.
unsafe fn set_fileno(stream: *mut FILE, descriptor: c_int) {
    // SAFETY: within the object; see above.
    unsafe { stream.cast::<u8>().add(FILENO_AT).cast::<c_int>().write(descriptor) }
}

fn swap(number: usize) {
    let standard = &STANDARD[number];
    if standard.is_swapped() {
        return;
    }
    let mode = if number == 0 { c"r" } else { c"w" };
    let stream = new_stream(number as c_int, mode.as_ptr());
    if stream.is_null() {
        return;
    }
    // SAFETY: libc's variable and stream. What the stream held was flushed when its descriptor was replaced.
    unsafe {
        if number == 2 {
            libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0);
        }
        let original = *standard.variable();
        set_fileno(original, -1);
        standard.original.store(original, Ordering::Release);
        *standard.variable() = stream;
        super::cxx::lead(original, stream);
    }
}

fn restore(number: usize) {
    let standard = &STANDARD[number];
    let original = standard.original.swap(std::ptr::null_mut(), Ordering::AcqRel);
    if original.is_null() {
        return;
    }
    forget(number as c_int);
    // SAFETY: libc's variable and stream. Our own stays allocated: the program may hold its address.
    unsafe {
        super::cxx::lead(*standard.variable(), original);
        *standard.variable() = original;
        set_fileno(original, number as c_int);
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
    let Some(standard) = STANDARD.get(to as usize).filter(|_| to >= 0) else { return };
    if standard.is_swapped() || matches!(lookup(from), Known::Managed(_)) {
        let _errno = process::Errno::keep();
        // SAFETY: libc's variable is an open stream.
        unsafe { libc::fflush(*standard.variable()) };
    }
}

/// A descriptor became another file.
pub(crate) fn descriptor_replaced(descriptor: c_int) {
    if !super::is_on() || !(0..3).contains(&descriptor) {
        return;
    }
    if descriptors::managed_open(descriptor).is_some() {
        swap(descriptor as usize);
    } else {
        restore(descriptor as usize);
    }
}
