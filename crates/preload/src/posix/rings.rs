//! The kernel's own asynchronous I/O: `io_submit` of libaio and rings of liburing, which name descriptors in memory.
//!
//! What a ring is given cannot be seen, and on a managed file it would read or overwrite the stub: so a redirected
//! program gets none, as on a kernel that has none, and takes its other way. libaio tells its descriptors at each call. Both
//! libraries answer the negative errno. Programs that do without the libraries call libc's `syscall`, which leads here
//! too ([`super::number`]).

use super::kernel::call_kernel;
use crate::descriptors::{Known, lookup};
use crate::process;
use crate::real::Real;
use crate::redirect;
use libc::{c_int, c_long, c_uint, c_void};

/// The kernel's control block (`linux/aio_abi.h`), as far as the descriptor.
#[repr(C)]
pub(crate) struct Block {
    data: u64,
    key_and_flags: [u32; 2],
    operation: u16,
    priority: i16,
    descriptor: u32,
}

/// # Safety
/// As of libaio's function: `blocks` are `count` addresses of control blocks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn io_submit(context: *mut c_void, count: c_long, blocks: *const *const Block) -> c_int {
    let mut taken = count;
    if count > 0 && !blocks.is_null() && process::is_active() && redirect::is_on() {
        let is_managed = |number: &c_long| {
            // SAFETY: the caller's promise; what the kernel would refuse by EFAULT is none.
            let block = unsafe { (*blocks.offset(*number as isize)).as_ref() };
            block.is_some_and(|block| matches!(lookup(block.descriptor as c_int), Known::Managed(_) | Known::OfChild))
        };
        taken = (0..count).find(is_managed).unwrap_or(count);
        if taken == 0 {
            return -libc::EINVAL;
        }
    }
    let arguments = [context.addr() as c_long, taken, blocks.addr() as c_long, 0, 0, 0];
    // SAFETY: what libaio does, with the blocks before the first that is refused, as the kernel would take them.
    unsafe { call_kernel(libc::SYS_io_submit, arguments) as c_int }
}

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
