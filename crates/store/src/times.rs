//! Modification times, which stubs take over from shared memory.

use crate::nameless;
use rustix::fd::AsFd;
use rustix::fs::{Timespec, Timestamps, UTIME_OMIT};

/// A time in ns since 1970.
#[must_use]
pub(crate) fn timespec(ns: u64) -> Timespec {
    Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// Gives an open file, with `O_PATH` too, this modification time, in ns since 1970.
///
/// # Errors
///
/// That of `utimensat`: `PERM` to who does not own the file.
pub fn set_modified_ns(file: impl AsFd, modified_ns: u64) -> rustix::io::Result<()> {
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT as _ };
    let times = Timestamps { last_access: unchanged, last_modification: timespec(modified_ns) };
    nameless::set_times(file, &times)
}
