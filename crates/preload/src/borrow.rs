//! Descriptors as programs pass them.

use libc::c_int;
use rustix::fd::BorrowedFd;

/// What a program passed for a descriptor, `AT_FDCWD` among it. A program may pass -1, beside an absolute path even rightly, which
/// the type excludes: other negative numbers become the one that leaves absolute paths alone and is `EBADF` elsewhere.
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
