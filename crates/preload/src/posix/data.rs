//! Reads, writes and the file position.

use super::managed_data;
use crate::capture::{self, At};
use crate::descriptors::{Known, lookup};
use crate::process::{self, helper};
use crate::real::interpose;
use crate::redirect::data as redirected;
use crate::redirect::{Moved, Open};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rustix::io::Errno;
use stripewise_capture::call::Call;
use stripewise_layout::FileOffset;

/// What a call reads into.
enum Into {
    Nothing,
    One(*mut c_void, size_t),
    Many(*const iovec, c_int),
}

#[inline(always)]
fn transfer(
    call: Call,
    descriptor: c_int,
    at: At,
    into: Into,
    real: impl FnOnce() -> ssize_t,
    managed: impl FnOnce(&Open) -> Result<Moved, Errno>,
) -> ssize_t {
    transfer_with_flags(call, descriptor, (at, into), 0, real, managed)
}

/// Does a call in a helper, which moves as much as `run` says, and gives what that read.
#[cold]
#[inline(never)]
fn by_helper(into: Into, run: impl FnOnce() -> Result<i64, Errno>) -> i64 {
    let (one, vectors);
    let vectors: &[iovec] = match into {
        Into::Nothing => &[],
        Into::One(start, bytes) => {
            one = self::one(start, bytes);
            &one
        }
        // SAFETY: the program's vectors.
        Into::Many(start, count) => match unsafe { redirected::vectors(start, count) } {
            Ok(given) => {
                vectors = given;
                vectors
            }
            Err(errno) => return process::fail(errno).into(),
        },
    };
    // SAFETY: what the program reads into.
    match unsafe { helper::run_into(vectors, run) } {
        Ok(answer) => answer,
        Err(errno) => process::fail(errno).into(),
    }
}

/// As [`transfer`], of a call with `RWF_*` flags.
#[inline(always)]
fn transfer_with_flags(
    call: Call,
    descriptor: c_int,
    (at, into): (At, Into),
    flags: c_int,
    real: impl FnOnce() -> ssize_t,
    managed: impl FnOnce(&Open) -> Result<Moved, Errno>,
) -> ssize_t {
    match lookup(descriptor) {
        Known::Plain => real(),
        Known::Captured(file) => capture::data(call, file.with_call_flags(flags), descriptor, at, real),
        Known::Managed(open) => managed_data(call, &open, flags, || managed(&open)),
        Known::OfChild => by_helper(into, || match lookup(descriptor) {
            Known::Managed(open) => managed(&open).map(|moved| moved.bytes as i64),
            _ => Err(Errno::IO),
        }) as ssize_t,
    }
}

/// The iovec of a call with one buffer.
fn one(buffer: *const c_void, count: size_t) -> [iovec; 1] {
    [iovec { iov_base: buffer.cast_mut(), iov_len: count }]
}

/// `preadv2` and `pwritev2` take -1 for "at the position".
fn given_or_position(offset: off_t) -> At {
    if offset == -1 { At::Position } else { At::Given(offset) }
}

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// What glibc's `_chk` twins do first: a count beyond the buffer ends the program.
fn check_buffer(count: size_t, buffer_bytes: size_t) {
    if count > buffer_bytes {
        // SAFETY: takes nothing, never returns.
        unsafe { __chk_fail() }
    }
}

interpose! {
    fn read[__read] (fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t |real| {
        transfer(Call::Read, fd, At::Position, Into::One(buffer, count), || real(fd, buffer, count), |open| {
            redirected::read(open, fd, &one(buffer, count), At::Position)
        })
    }

    fn pread[pread64, __pread64] (fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t) -> ssize_t |real| {
        transfer(Call::Pread, fd, At::Given(offset), Into::One(buffer, count), || real(fd, buffer, count, offset), |open| {
            redirected::read(open, fd, &one(buffer, count), At::Given(offset))
        })
    }

    fn __read_chk[] (fd: c_int, buffer: *mut c_void, count: size_t, buffer_bytes: size_t) -> ssize_t |_real| {
        check_buffer(count, buffer_bytes);
        read(fd, buffer, count)
    }

    fn __pread_chk[__pread64_chk] (
        fd: c_int, buffer: *mut c_void, count: size_t, offset: off_t, buffer_bytes: size_t,
    ) -> ssize_t |_real| {
        check_buffer(count, buffer_bytes);
        pread(fd, buffer, count, offset)
    }

    fn readv[] (fd: c_int, vector: *const iovec, count: c_int) -> ssize_t |real| {
        transfer(Call::Readv, fd, At::Position, Into::Many(vector, count), || real(fd, vector, count), |open| {
            redirected::read(open, fd, redirected::vectors(vector, count)?, At::Position)
        })
    }

    fn preadv[preadv64] (fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t |real| {
        transfer(Call::Preadv, fd, At::Given(offset), Into::Many(vector, count), || real(fd, vector, count, offset), |open| {
            redirected::read(open, fd, redirected::vectors(vector, count)?, At::Given(offset))
        })
    }

    fn preadv2[preadv64v2] (fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t |real| {
        let at = given_or_position(offset);
        transfer(Call::Preadv2, fd, at, Into::Many(vector, count), || real(fd, vector, count, offset, flags), |open| {
            redirected::check_flags(flags, false)?;
            redirected::read(open, fd, redirected::vectors(vector, count)?, at)
        })
    }

    fn write[__write] (fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t |real| {
        transfer(Call::Write, fd, At::Position, Into::Nothing, || real(fd, buffer, count), |open| {
            redirected::write(open, fd, &one(buffer, count), At::Position)
        })
    }

    fn pwrite[pwrite64, __pwrite64] (fd: c_int, buffer: *const c_void, count: size_t, offset: off_t) -> ssize_t |real| {
        transfer(Call::Pwrite, fd, At::Given(offset), Into::Nothing, || real(fd, buffer, count, offset), |open| {
            redirected::write(open, fd, &one(buffer, count), At::Given(offset))
        })
    }

    fn writev[] (fd: c_int, vector: *const iovec, count: c_int) -> ssize_t |real| {
        transfer(Call::Writev, fd, At::Position, Into::Nothing, || real(fd, vector, count), |open| {
            redirected::write(open, fd, redirected::vectors(vector, count)?, At::Position)
        })
    }

    fn pwritev[pwritev64] (fd: c_int, vector: *const iovec, count: c_int, offset: off_t) -> ssize_t |real| {
        transfer(Call::Pwritev, fd, At::Given(offset), Into::Nothing, || real(fd, vector, count, offset), |open| {
            redirected::write(open, fd, redirected::vectors(vector, count)?, At::Given(offset))
        })
    }

    fn pwritev2[pwritev64v2] (fd: c_int, vector: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t |real| {
        let at = given_or_position(offset);
        transfer_with_flags(Call::Pwritev2, fd, (at, Into::Nothing), flags, || real(fd, vector, count, offset, flags), |open| {
            redirected::check_flags(flags, true)?;
            redirected::write_with_flags(open, fd, redirected::vectors(vector, count)?, at, flags)
        })
    }

    fn lseek[lseek64, llseek, __lseek] (fd: c_int, offset: off_t, whence: c_int) -> off_t |real| {
        match lookup(fd) {
            Known::Plain => real(fd, offset, whence),
            Known::Captured(key) => {
                let start = capture::now();
                let result = real(fd, offset, whence);
                capture::event(Call::Lseek, key, FileOffset(result.max(0) as u64), 0, start, result);
                result
            }
            Known::Managed(open) => {
                let mut place = 0;
                let done = super::managed_unit(Call::Lseek, &open, stripewise_capture::format::NO_OFFSET, 0, || {
                    place = redirected::seek(&open, fd, offset, whence)?;
                    Ok(())
                });
                if done == 0 { place as off_t } else { -1 }
            }
            Known::OfChild => by_helper(Into::Nothing, || match lookup(fd) {
                Known::Managed(open) => redirected::seek(&open, fd, offset, whence).map(|place| place as i64),
                _ => Err(Errno::IO),
            }),
        }
    }
}
