//! Descriptors as programs pass them.

use libc::c_int;
use rustix::fd::BorrowedFd;

/// Returns what a program passed for a descriptor, which may be `AT_FDCWD`. A program may pass -1, and with an absolute path the
/// kernel takes it, but the type excludes it. So other negative numbers become one that works with absolute paths too, and is
/// `EBADF` otherwise.
///
/// # Safety
/// If the descriptor is open, it stays so while the result is used, or whoever closes it breaks the program's own promise.
#[inline(always)]
pub(crate) unsafe fn borrow<'a>(descriptor: c_int) -> BorrowedFd<'a> {
    if descriptor < 0 && descriptor != libc::AT_FDCWD {
        return rustix::fs::ABS;
    }
    // SAFETY: the caller's promise; and it is not -1.
    unsafe { BorrowedFd::borrow_raw(descriptor) }
}
