//! What the log is told of a failed request. The program gets the errno.

use rustix::io::Errno;
use std::fmt::Display;
use stripewise_store::errno::ToErrno;

/// Tells the log what went wrong, and the program its number.
#[cold]
pub(crate) fn failed(error: &(impl ToErrno + Display)) -> Errno {
    tracing::warn!("{error}");
    error.errno()
}

/// As the kernel is told.
pub(crate) fn to_fuse(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}
