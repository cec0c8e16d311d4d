//! What the log is told of a failed request, and the program's `errno`.

use crate::log::{Level, log_once};
use rustix::io::Errno;
use stripewise_store::client::ClientError;
use stripewise_store::errno::ToErrno;
use stripewise_store::file::FileError;

/// Tells the log what went wrong, and the program its number.
#[cold]
pub(crate) fn failed(error: &FileError) -> Errno {
    let errno = error.errno();
    // The program's own mistake.
    if errno != Errno::FAULT {
        log_once(Level::Error, &[error.to_string().as_bytes()]);
    }
    errno
}

/// The same where the broker could not be asked, or refused.
#[cold]
pub(crate) fn out_of_reach(error: &ClientError) -> Errno {
    log_once(Level::Error, &[error.to_string().as_bytes()]);
    error.errno()
}
