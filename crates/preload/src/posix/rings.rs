//! Rings of liburing, which name descriptors in memory.
//!
//! What a ring is given cannot be seen, and on a managed file it would read or overwrite the stub: so a redirected
//! program gets none, as on a kernel that has none, and takes its other way. liburing's functions answer the negative
//! errno. Programs that do without the library call libc's `syscall`, which leads here too ([`super::number`]).

use crate::process;
use crate::real::Real;
use crate::redirect;
use libc::{c_int, c_uint, c_void};

type Init<T> = unsafe extern "C" fn(c_uint, *mut c_void, T) -> c_int;
type Setup = unsafe extern "C" fn(c_uint, *mut c_void) -> c_int;
type InitIn = unsafe extern "C" fn(c_uint, *mut c_void, *mut c_void, *mut c_void, usize) -> c_int;

/// liburing's function, unless the program is redirected or loaded liburing where it cannot be found.
fn of_liburing<F: Copy>(real: &Real<F>) -> Option<F> {
    if process::is_active() && redirect::is_on() { None } else { real.lookup() }
}

/// # Safety
/// As of liburing's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
    // SAFETY: the type of the C declaration.
    static REAL: Real<Init<c_uint>> = unsafe { Real::new(c"io_uring_queue_init") };
    // SAFETY: the caller's promise.
    of_liburing(&REAL).map_or(-libc::ENOSYS, |real| unsafe { real(entries, ring, flags) })
}

/// # Safety
/// As of liburing's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
) -> c_int {
    // SAFETY: the type of the C declaration.
    static REAL: Real<Init<*mut c_void>> = unsafe { Real::new(c"io_uring_queue_init_params") };
    // SAFETY: the caller's promise.
    of_liburing(&REAL).map_or(-libc::ENOSYS, |real| unsafe { real(entries, ring, parameters) })
}

/// # Safety
/// As of liburing's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn io_uring_queue_init_mem(
    entries: c_uint,
    ring: *mut c_void,
    parameters: *mut c_void,
    memory: *mut c_void,
    bytes: usize,
) -> c_int {
    // SAFETY: the type of the C declaration.
    static REAL: Real<InitIn> = unsafe { Real::new(c"io_uring_queue_init_mem") };
    // SAFETY: the caller's promise.
    of_liburing(&REAL).map_or(-libc::ENOSYS, |real| unsafe { real(entries, ring, parameters, memory, bytes) })
}

/// # Safety
/// As of liburing's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    // SAFETY: the type of the C declaration.
    static REAL: Real<Setup> = unsafe { Real::new(c"io_uring_setup") };
    // SAFETY: the caller's promise.
    of_liburing(&REAL).map_or(-libc::ENOSYS, |real| unsafe { real(entries, parameters) })
}
