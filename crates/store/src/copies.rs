//! Whether this process has another copy of this code: a redirected program with the Python module has two of it, and so has a redirected `stripewise`.
//!
//! Copies share the process's locks, so each has to know of the others' descriptors of tables of processes ([`crate::shared::processes`]). To look for
//! them takes calls for every open descriptor. The preload library, which is there before any other copy, need not look: it defines a C function that
//! every other copy calls before it opens a table.

use crate::descriptors::open_numbers;
use rustix::fd::{BorrowedFd, RawFd};
use rustix::fs::OFlags;
use std::ffi::{CStr, c_void};
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// The function by which other copies make themselves known. It has neither arguments nor a result, and calls [`note_other`].
pub const SYMBOL: &CStr = c"stripewise_has_other_copy";

/// Other copies call this one's function.
static IS_CALLED: AtomicBool = AtomicBool::new(false);
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);

/// The function of the preload library that was loaded first, if there is one.
fn function() -> *mut c_void {
    // SAFETY: the name ends in a zero byte.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, SYMBOL.as_ptr()) }
}

/// The library of this copy defines [`SYMBOL`]. Where another one that was loaded earlier does too, that one is called, and this copy looks for itself.
pub fn expect_calls() {
    // Not by the function's own name, which leads to the earlier library too.
    let own = (&raw const HAS_OTHERS).cast();
    IS_CALLED.store(library_of(function()).is_some_and(|library| library_of(own) == Some(library)), SeqCst);
}

/// Where the library or program is mapped that `address` lies in.
fn library_of(address: *const c_void) -> Option<*mut c_void> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: any address may be asked for; the answer is complete unless it is 0.
    unsafe { (libc::dladdr(address, found.as_mut_ptr()) != 0).then(|| found.assume_init().dli_fbase) }
}

/// Another copy of this code is about to open a table of processes.
pub fn note_other() {
    HAS_OTHERS.store(true, SeqCst);
}

/// Whether another copy may have opened a table of processes. A copy that is not called itself makes itself known by this.
fn may_be() -> bool {
    static CALLING: Once = Once::new();
    if IS_CALLED.load(SeqCst) {
        return HAS_OTHERS.load(SeqCst);
    }
    CALLING.call_once(|| {
        let function = function();
        if !function.is_null() {
            // SAFETY: the preload library's function of that name, which is never unloaded.
            let call = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(function) };
            call();
        }
    });
    true
}

/// Descriptors of a file in this process whose close ends locks, as far as this code or another copy of it may have made them.
pub(crate) fn descriptors_of(file: (u64, u64)) -> rustix::io::Result<Vec<RawFd>> {
    let numbers = if may_be() { open_numbers()? } else { Vec::new() };
    Ok(numbers.into_iter().filter(|number| leads_to(*number, file)).collect())
}

/// Whether locks can be taken by the descriptor.
pub(crate) fn permits_locks(number: RawFd) -> bool {
    // SAFETY: looked at only; a number that is none is an error.
    let flags = rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(number) });
    flags.is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR)
}

/// Whether the number is a descriptor of this file whose close ends locks.
pub(crate) fn leads_to(number: RawFd, file: (u64, u64)) -> bool {
    // SAFETY: looked at only; a number that is none is an error.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::fs::fstat(descriptor).is_ok_and(|found| (found.st_dev, found.st_ino) == file)
        && rustix::fs::fcntl_getfl(descriptor).is_ok_and(|flags| !flags.contains(OFlags::PATH))
}
