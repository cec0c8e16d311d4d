//! libc's own streams, as far as they are looked at and changed from outside.
//!
//! Such a stream reads and writes its descriptor from inside libc. When `dup2` makes that a managed file's, the stream
//! would read and write the stub. It cannot become one of ours at its address, so it has no descriptor until the number
//! is an ordinary file's again, and who uses it meanwhile gets EBADF.

use crate::process;
use libc::{FILE, c_int, c_void, size_t};
use rustix::io::Errno;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where glibc keeps what of a stream (`struct _IO_FILE`, unchanged since 1997 and part of its binary interface): the
/// begin of what waits to be written, the next stream, the descriptor.
const WRITE_BASE_AT: usize = 32;
const CHAIN_AT: usize = 104;
const FILENO_AT: usize = 112;

/// What a stream has in place of descriptor 0 while that is a managed file's; of others, less by the number. libc's own
/// are -1 for a closed stream and -2 for one without a descriptor.
const AWAY: c_int = -1000;

/// At least as many as there are streams without their descriptor.
static AWAY_STREAMS: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" {
    static mut _IO_list_all: *mut FILE;
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
    fn fwide(stream: *mut FILE, mode: c_int) -> c_int;
}

/// # Safety
/// An open stream.
pub(super) unsafe fn fileno_of(stream: *mut FILE) -> c_int {
    // SAFETY: within the object; see above.
    unsafe { stream.cast::<u8>().add(FILENO_AT).cast::<c_int>().read_volatile() }
}

/// # Safety
/// An open stream of libc's.
pub(super) unsafe fn set_fileno(stream: *mut FILE, descriptor: c_int) {
    // SAFETY: within the object; see above.
    unsafe { stream.cast::<u8>().add(FILENO_AT).cast::<c_int>().write_volatile(descriptor) }
}

/// Moves what waits to be written in one stream to another.
///
/// # Safety
/// Open streams.
pub(super) unsafe fn move_pending(from: *mut FILE, to: *mut FILE) {
    // SAFETY: the caller's promise; so many bytes wait from the base on.
    unsafe {
        let pending = __fpending(from);
        // Wide characters stand elsewhere.
        if pending > 0 && fwide(from, 0) <= 0 {
            let base = from.cast::<u8>().add(WRITE_BASE_AT).cast::<*const c_void>().read();
            libc::fwrite(base, 1, pending, to);
            __fpurge(from);
        }
    }
}

/// Streams that have a number for their descriptor: a few of them, more of one descriptor are not to be expected.
fn streams_with(fileno: c_int) -> impl Iterator<Item = *mut FILE> {
    let mut found = [std::ptr::null_mut(); 8];
    let mut count = 0;
    // SAFETY: libc's list, which changes only under its lock.
    unsafe {
        _IO_list_lock();
        let mut stream = _IO_list_all;
        while !stream.is_null() && count < found.len() {
            if fileno_of(stream) == fileno {
                found[count] = stream;
                count += 1;
            }
            stream = stream.cast::<u8>().add(CHAIN_AT).cast::<*mut FILE>().read();
        }
        _IO_list_unlock();
    }
    found.into_iter().take(count)
}

/// A file is about to be put on a descriptor. If it is managed, what streams on the descriptor hold goes where it was
/// meant to go, and they have no descriptor from now on. `but` is left alone.
pub(super) fn take_descriptor(descriptor: c_int, but: *mut FILE, is_managed: impl FnOnce() -> bool) {
    // Asked first: libc's list is locked by whoever flushes all streams, which may take as long as a program reads.
    if descriptor < 0 || !is_managed() {
        return;
    }
    let _errno = process::Errno::keep();
    for stream in streams_with(descriptor).filter(|stream| *stream != but) {
        // SAFETY: an open stream. One that reads is not flushed, which would move the position.
        unsafe {
            if __fpending(stream) > 0 {
                libc::fflush(stream);
            }
            set_fileno(stream, AWAY - descriptor);
        }
        AWAY_STREAMS.fetch_add(1, Ordering::AcqRel);
    }
}

/// A descriptor is an ordinary file's again.
#[inline]
pub(super) fn give_descriptor(descriptor: c_int) {
    if AWAY_STREAMS.load(Ordering::Acquire) == 0 || descriptor < 0 {
        return;
    }
    for stream in streams_with(AWAY - descriptor) {
        // SAFETY: an open stream.
        unsafe { set_fileno(stream, descriptor) };
        AWAY_STREAMS.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The number whose descriptor a stream would have.
pub(crate) fn number_of(stream: *mut FILE) -> Option<c_int> {
    if AWAY_STREAMS.load(Ordering::Acquire) == 0 || stream.is_null() {
        return None;
    }
    // SAFETY: the program's stream.
    let fileno = unsafe { fileno_of(stream) };
    (fileno <= AWAY).then(|| AWAY - fileno)
}

/// A stream is about to be closed: it gets its descriptor back, to close it, and nothing to write there. Says whether
/// anything was to be written.
pub(super) fn return_to_close(stream: *mut FILE) -> Result<(), Errno> {
    let Some(descriptor) = number_of(stream) else { return Ok(()) };
    let _errno = process::Errno::keep();
    // SAFETY: the program's stream.
    unsafe {
        let lost = __fpending(stream) > 0;
        __fpurge(stream);
        set_fileno(stream, descriptor);
        AWAY_STREAMS.fetch_sub(1, Ordering::AcqRel);
        if lost { Err(Errno::BADF) } else { Ok(()) }
    }
}
