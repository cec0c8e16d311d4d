//! The program's limit on the size of files (`RLIMIT_FSIZE`), which the kernel would hold against each object instead
//! of the file.
//!
//! Read at the start and whenever the program sets it; a limit that another process sets (`prlimit`) is not seen.

use libc::iovec;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::sync::atomic::{AtomicU64, Ordering};

static LIMIT_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

/// Asks the kernel for the limit.
pub(crate) fn refresh() {
    LIMIT_BYTES.store(getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// What the kernel does at the limit: a signal, and an error for who survives it.
#[cold]
fn exceeded() -> Errno {
    // SAFETY: to this thread, as the kernel's own would be.
    unsafe { libc::raise(libc::SIGXFSZ) };
    Errno::FBIG
}

/// The bytes of a write at `offset` that the limit allows.
#[inline]
pub(crate) fn allowed(offset: u64, wanted: u64) -> Result<u64, Errno> {
    let limit = LIMIT_BYTES.load(Ordering::Relaxed);
    match limit.checked_sub(offset) {
        _ if wanted == 0 => Ok(0),
        None | Some(0) => Err(exceeded()),
        Some(left) => Ok(wanted.min(left)),
    }
}

/// Whether a file may be made `size_bytes` long.
pub(crate) fn check_size(size_bytes: u64) -> Result<(), Errno> {
    if size_bytes > LIMIT_BYTES.load(Ordering::Relaxed) { Err(exceeded()) } else { Ok(()) }
}

/// The first `bytes` of some vectors.
pub(crate) fn first_bytes(vectors: &[iovec], bytes: u64) -> Vec<iovec> {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut first_bytes = Vec::with_capacity(vectors.len());
    for vector in vectors {
        let length = vector.iov_len.min(left);
        left -= length;
        first_bytes.push(iovec { iov_base: vector.iov_base, iov_len: length });
    }
    first_bytes
}
