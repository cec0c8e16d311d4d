//! What a file is: the `stat` and `statfs` families.
//!
//! libc answers about the stub; its size, blocks and times are then replaced by the data's. Only an answer about a
//! regular file of a stub's size is looked at further.

use crate::process::{self, Inside};
use crate::real::interpose;
use crate::redirect::status as redirected;
use libc::{AT_FDCWD, c_char, c_int, c_uint};

type Stat = libc::stat;
type Statfs = libc::statfs;
type Statx = libc::statx;

/// # Safety
/// `answer` is what the program passed for the answer; libc filled it in if `result` is 0.
unsafe fn correct(result: c_int, answer: *mut Stat, of: redirected::Of) -> c_int {
    if result != 0 || answer.is_null() {
        return result;
    }
    // SAFETY: the caller's promise.
    let answer = unsafe { &mut *answer };
    if answer.st_size != stripewise_store::stub::STUB_BYTES as i64 || !crate::redirect::is_on() {
        return result;
    }
    let _errno = process::Errno::keep();
    if let Some(_inside) = Inside::enter() {
        redirected::correct(answer, of);
    }
    result
}

use redirected::Of;

fn follows(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

interpose! {
    fn stat[stat64] (path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(real(path, answer), answer, Of::Path(AT_FDCWD, path, true))
    }

    fn lstat[lstat64] (path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(real(path, answer), answer, Of::Path(AT_FDCWD, path, false))
    }

    fn fstat[fstat64] (fd: c_int, answer: *mut Stat) -> c_int |real| {
        correct(real(fd, answer), answer, Of::Descriptor(fd))
    }

    fn fstatat[fstatat64] (directory: c_int, path: *const c_char, answer: *mut Stat, flags: c_int) -> c_int |real| {
        correct(real(directory, path, answer, flags), answer, Of::at(directory, path, follows(flags)))
    }

    fn __xstat[__xstat64] (version: c_int, path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(real(version, path, answer), answer, Of::Path(AT_FDCWD, path, true))
    }

    fn __lxstat[__lxstat64] (version: c_int, path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(real(version, path, answer), answer, Of::Path(AT_FDCWD, path, false))
    }

    fn __fxstat[__fxstat64] (version: c_int, fd: c_int, answer: *mut Stat) -> c_int |real| {
        correct(real(version, fd, answer), answer, Of::Descriptor(fd))
    }

    fn __fxstatat[__fxstatat64] (
        version: c_int, directory: c_int, path: *const c_char, answer: *mut Stat, flags: c_int,
    ) -> c_int |real| {
        correct(real(version, directory, path, answer, flags), answer, Of::at(directory, path, follows(flags)))
    }

    fn statx[] (directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, answer: *mut Statx) -> c_int |real| {
        let result = real(directory, path, flags, mask, answer);
        if result != 0 || answer.is_null() || !crate::redirect::is_on() {
            return result;
        }
        let answer = &mut *answer;
        if answer.stx_mask & libc::STATX_SIZE == 0 || answer.stx_size == stripewise_store::stub::STUB_BYTES as u64 {
            let _errno = process::Errno::keep();
            if let Some(_inside) = Inside::enter() {
                redirected::correct_extended(answer, Of::at(directory, path, follows(flags)));
            }
        }
        result
    }

    fn statfs[statfs64, __statfs] (path: *const c_char, answer: *mut Statfs) -> c_int |real| {
        let result = real(path, answer);
        if result == 0 && !answer.is_null() && redirected::is_parallel((*answer).f_type) && crate::redirect::is_on() {
            let _errno = process::Errno::keep();
            if let Some(_inside) = Inside::enter() && redirected::is_managed(Of::Path(AT_FDCWD, path, true)) {
                (*answer).f_type = redirected::LOCAL_TYPE;
            }
        }
        result
    }

    fn fstatfs[fstatfs64] (fd: c_int, answer: *mut Statfs) -> c_int |real| {
        let result = real(fd, answer);
        if result == 0 && !answer.is_null() && redirected::is_parallel((*answer).f_type) && crate::redirect::is_on() {
            let _errno = process::Errno::keep();
            if let Some(_inside) = Inside::enter() && redirected::is_managed(Of::Descriptor(fd)) {
                (*answer).f_type = redirected::LOCAL_TYPE;
            }
        }
        result
    }
}
