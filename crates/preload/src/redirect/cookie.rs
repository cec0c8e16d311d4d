//! Streams made by `fopencookie`, whose functions are our own `read`, `write`, `lseek` and `close` on the program's descriptor.

use super::streams::{self, forget};
use crate::process;
use libc::{FILE, c_char, c_int, c_void, off64_t, size_t, ssize_t};
use rustix::io::Errno;

#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
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

/// A new stream on a managed descriptor; null, and `errno`, if there is none.
pub(super) fn new_stream(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    let Some(place) = streams::place_for(descriptor) else {
        process::fail(Errno::MFILE);
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
