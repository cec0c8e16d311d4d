//! Size, room and durability; and the calls that move bytes between two descriptors inside the kernel.

use super::managed_unit;
use crate::capture;
use crate::descriptors::{Known, lookup};
use crate::process;
use crate::real::interpose;
use crate::redirect::{self, extent as redirected};
use libc::{c_int, c_uint, off_t, size_t, ssize_t};
use rustix::io::Errno;
use stripewise_capture::call::Call;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::FileOffset;

/// Calls `real` and records it with a fixed place and length.
fn recorded(call: Call, fd: c_int, offset: u64, bytes: u64, real: impl FnOnce() -> c_int) -> c_int {
    match lookup(fd) {
        Known::Captured(key) => {
            let start = capture::now();
            let result = real();
            capture::event(call, key, FileOffset(offset), bytes, start, i64::from(result));
            result
        }
        _ => real(),
    }
}

macro_rules! managed_or {
    ($fd:expr, $call:expr, $offset:expr, $bytes:expr, |$open:ident| $run:expr, $real:expr) => {
        match lookup($fd) {
            Known::Plain => $real,
            Known::Managed($open) => managed_unit($call, &$open, FileOffset($offset), $bytes, || $run),
            Known::Captured(_) => recorded($call, $fd, $offset, $bytes, || $real),
            Known::OfChild => by_helper(|| match lookup($fd) {
                Known::Managed($open) => $run,
                _ => Err(Errno::IO),
            }),
        }
    };
}

/// Does in a helper what answers 0 or -1.
#[cold]
fn by_helper(run: impl FnOnce() -> Result<(), Errno>) -> c_int {
    process::helper::run(run).map_or_else(process::fail, |()| 0)
}

/// Records a call between two files as a read of the one and a write of the other.
fn between(
    calls: (Call, Call),
    from: (c_int, Option<i64>),
    to: (c_int, Option<i64>),
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let keys = [from.0, to.0].map(|fd| match lookup(fd) {
        Known::Captured(key) => Some(key),
        _ => None,
    });
    if keys == [None, None] {
        return real();
    }
    let start = capture::now();
    let result = real();
    for ((key, call), (fd, offset)) in keys.into_iter().zip([calls.0, calls.1]).zip([from, to]) {
        if let Some(key) = key {
            let place = offset
                .map_or_else(|| capture::position_before_of(fd, result.max(0) as u64), |at| FileOffset(at as u64));
            capture::event(call, key, place, result.max(0) as u64, start, result as i64);
        }
    }
    result
}

fn is_managed(fd: c_int) -> bool {
    matches!(lookup(fd), Known::Managed(_) | Known::OfChild)
}

/// Refuses a call between two descriptors, as the kernel would: bad descriptors first.
fn refuse(from: c_int, to: c_int, errno: Errno) -> ssize_t {
    use rustix::fs::OFlags;
    let access = |fd: c_int| {
        // SAFETY: the program's descriptor; if it is not open the kernel says so.
        rustix::fs::fcntl_getfl(unsafe { crate::borrow::borrow(fd) }).map(|flags| flags & OFlags::RWMODE)
    };
    let bad = from < 0
        || to < 0
        || access(from).is_ok_and(|access| access == OFlags::WRONLY)
        || access(to).is_ok_and(|access| access == OFlags::RDONLY)
        || access(from).is_err()
        || access(to).is_err();
    process::fail(if bad { Errno::BADF } else { errno }) as ssize_t
}

/// The broker does its part before the kernel, which then makes durable what it wrote.
pub(crate) fn before_sync() {
    if redirect::is_on()
        && let Some(_inside) = process::Inside::enter()
    {
        redirected::before_sync_of_all();
    }
}

/// # Safety
/// Null, or a valid offset.
unsafe fn offset_at(pointer: *const off_t) -> Option<i64> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref().copied() }
}

interpose! {
    fn fsync[] (fd: c_int) -> c_int |real| {
        managed_or!(fd, Call::Fsync, NO_OFFSET.0, 0, |open| redirected::sync(&open, false), real(fd))
    }

    fn fdatasync[] (fd: c_int) -> c_int |real| {
        managed_or!(fd, Call::Fdatasync, NO_OFFSET.0, 0, |open| redirected::sync(&open, true), real(fd))
    }

    fn sync_file_range[] (fd: c_int, offset: off_t, bytes: off_t, flags: c_uint) -> c_int |real| {
        managed_or!(fd, Call::SyncFileRange, offset as u64, bytes as u64,
            |open| redirected::sync_range(&open, offset, bytes, flags), real(fd, offset, bytes, flags))
    }

    fn syncfs[] (fd: c_int) -> c_int |real| {
        if let Known::Managed(open) = lookup(fd) {
            return managed_unit(Call::Fsync, &open, NO_OFFSET, 0, || redirected::sync(&open, false));
        }
        real(fd)
    }

    fn sync[] () -> () |real| {
        before_sync();
        real()
    }

    fn ftruncate[ftruncate64] (fd: c_int, length: off_t) -> c_int |real| {
        managed_or!(fd, Call::Ftruncate, length as u64, 0, |open| redirected::truncate(&open, length), real(fd, length))
    }

    fn fallocate[fallocate64] (fd: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int |real| {
        managed_or!(fd, Call::Fallocate, offset as u64, bytes as u64,
            |open| redirected::allocate(&open, mode, offset, bytes), real(fd, mode, offset, bytes))
    }

    /// Answers the error itself and leaves `errno` alone.
    fn posix_fallocate[posix_fallocate64] (fd: c_int, offset: off_t, bytes: off_t) -> c_int |real| {
        match lookup(fd) {
            Known::Plain => real(fd, offset, bytes),
            Known::OfChild => libc::EOPNOTSUPP,
            Known::Captured(key) => {
                let start = capture::now();
                let result = real(fd, offset, bytes);
                capture::event_with(Call::PosixFallocate, key, FileOffset(offset as u64), bytes as u64, start, result as u32);
                result
            }
            Known::Managed(open) => {
                let _errno = process::Errno::keep();
                let mut error = 0;
                managed_unit(Call::PosixFallocate, &open, FileOffset(offset as u64), bytes as u64, || {
                    redirected::allocate(&open, 0, offset, bytes).inspect_err(|errno| error = errno.raw_os_error())
                });
                error
            }
        }
    }

    fn posix_fadvise[posix_fadvise64] (fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int |real| {
        // About a managed file there is nothing to advise; the kernel checks the arguments on the stub all the same.
        real(fd, offset, bytes, advice)
    }

    fn readahead[] (fd: c_int, offset: off_t, bytes: size_t) -> ssize_t |real| {
        if is_managed(fd) { 0 } else { real(fd, offset, bytes) }
    }

    fn copy_file_range[] (
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint,
    ) -> ssize_t |real| {
        if is_managed(from) || is_managed(to) {
            return refuse(from, to, Errno::XDEV);
        }
        let places = (offset_at(from_at), offset_at(to_at));
        between((Call::CopyFileRangeRead, Call::CopyFileRangeWrite), (from, places.0), (to, places.1), || {
            real(from, from_at, to, to_at, bytes, flags)
        })
    }

    fn sendfile[sendfile64] (to: c_int, from: c_int, from_at: *mut off_t, bytes: size_t) -> ssize_t |real| {
        if is_managed(from) || is_managed(to) {
            return refuse(from, to, Errno::INVAL);
        }
        let place = offset_at(from_at);
        between((Call::SendfileRead, Call::SendfileWrite), (from, place), (to, None), || real(to, from, from_at, bytes))
    }

    fn splice[] (
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, bytes: size_t, flags: c_uint,
    ) -> ssize_t |real| {
        if is_managed(from) || is_managed(to) {
            return refuse(from, to, Errno::INVAL);
        }
        let places = (offset_at(from_at), offset_at(to_at));
        between((Call::SpliceRead, Call::SpliceWrite), (from, places.0), (to, places.1), || {
            real(from, from_at, to, to_at, bytes, flags)
        })
    }

    fn setrlimit[setrlimit64] (resource: c_int, limit: *const libc::rlimit) -> c_int |real| {
        let result = real(resource, limit);
        if result == 0 && resource == libc::RLIMIT_FSIZE as c_int {
            crate::redirect::limit::refresh();
        }
        result
    }

    fn prlimit[prlimit64] (
        process: libc::pid_t, resource: c_int, limit: *const libc::rlimit, before: *mut libc::rlimit,
    ) -> c_int |real| {
        let result = real(process, resource, limit, before);
        if result == 0 && resource == libc::RLIMIT_FSIZE as c_int && !limit.is_null() {
            crate::redirect::limit::refresh();
        }
        result
    }
}
