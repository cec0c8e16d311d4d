//! What a file is: the `stat` and `statfs` families.
//!
//! libc answers about the stub; its size, blocks and times are then replaced by the data's. Only an answer about a
//! regular file of a stub's size is looked at further.

use crate::process::{self, Inside, helper};
use crate::real::interpose;
use crate::redirect::status::{self as redirected, Corrected, Of};
use libc::{AT_FDCWD, c_char, c_int, c_uint};

type Stat = libc::stat;
type Statfs = libc::statfs;
type Statx = libc::statx;

/// Answers about a stub that another inode took the place of meanwhile, one after the other, before the call fails.
const MAX_CHANGED: usize = 64;

/// Asks libc by `real` and corrects its answer, if `concerns` says that it may be about a stub.
///
/// # Safety
/// `answer` is what the program passed for the answer; `real` fills it in if it returns 0.
unsafe fn corrected<A>(
    answer: *mut A,
    concerns: impl Fn(&A) -> bool,
    correct: impl Fn(&mut A) -> Corrected,
    real: impl Fn() -> c_int,
) -> c_int {
    if process::children::are_there() && !process::owns_tables() && !answer.is_null() {
        return by_helper(answer, concerns, correct, real);
    }
    // SAFETY: the caller's promise.
    unsafe { corrected_here(answer, &concerns, &correct, &real) }
}

/// As [`corrected`], in a child of `vfork`, which has no client.
#[cold]
fn by_helper<A>(
    answer: *mut A,
    concerns: impl Fn(&A) -> bool,
    correct: impl Fn(&mut A) -> Corrected,
    real: impl Fn() -> c_int,
) -> c_int {
    let result = real();
    // SAFETY: filled in by the call.
    if result != 0 || !crate::redirect::is_on() || !concerns(unsafe { &*answer }) {
        return result;
    }
    let whole = [libc::iovec { iov_base: answer.cast(), iov_len: size_of::<A>() }];
    let ask = || {
        // SAFETY: the caller's promise, in the helper's memory.
        match unsafe { corrected_here(answer, &concerns, &correct, &real) } {
            0 => Ok(size_of::<A>() as i64),
            _ => Err(rustix::io::Errno::from_raw_os_error(process::errno())),
        }
    };
    // SAFETY: where the program wants the answer.
    match unsafe { helper::run_into(&whole, ask) } {
        Ok(_) => 0,
        Err(errno) => process::fail(errno),
    }
}

/// # Safety
/// As [`corrected`].
unsafe fn corrected_here<A>(
    answer: *mut A,
    concerns: &impl Fn(&A) -> bool,
    correct: &impl Fn(&mut A) -> Corrected,
    real: &impl Fn() -> c_int,
) -> c_int {
    for _ in 0..MAX_CHANGED {
        let result = real();
        if result != 0 || answer.is_null() {
            return result;
        }
        // SAFETY: the caller's promise.
        let answer = unsafe { &mut *answer };
        if !crate::redirect::is_on() || !concerns(answer) {
            return result;
        }
        let errno = process::Errno::keep();
        // A handler's call may find the thread inside; no lock is held then, since signals wait for its end.
        let inside = Inside::enter();
        let corrected = correct(answer);
        drop(inside);
        drop(errno);
        match corrected {
            Corrected::Done => return result,
            Corrected::Again => {}
            Corrected::Fault(errno) => return process::fail(errno),
        }
    }
    process::fail(rustix::io::Errno::IO)
}

/// # Safety
/// As [`corrected`].
unsafe fn correct(answer: *mut Stat, of: impl Fn() -> Of, real: impl Fn() -> c_int) -> c_int {
    let concerns = |answer: &Stat| {
        answer.st_mode & libc::S_IFMT == libc::S_IFREG
            && crate::redirect::may_be_managed(answer.st_size as u64, (answer.st_dev, answer.st_ino))
    };
    // SAFETY: the caller's promise.
    unsafe { corrected(answer, concerns, |answer| redirected::correct(answer, of()), real) }
}

/// # Safety
/// As [`corrected`].
unsafe fn correct_extended(answer: *mut Statx, asked: u32, of: impl Fn() -> Of, real: impl Fn() -> c_int) -> c_int {
    // What it concerns takes more to say than its size.
    let concerns = |_: &Statx| true;
    // SAFETY: the caller's promise.
    unsafe { corrected(answer, concerns, |answer| redirected::correct_extended(answer, asked, of()), real) }
}

fn follows(flags: c_int) -> bool {
    flags & libc::AT_SYMLINK_NOFOLLOW == 0
}

interpose! {
    fn stat[stat64] (path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(answer, || Of::Path(AT_FDCWD, path, true), || real(path, answer))
    }

    fn lstat[lstat64] (path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(answer, || Of::Path(AT_FDCWD, path, false), || real(path, answer))
    }

    fn fstat[fstat64] (fd: c_int, answer: *mut Stat) -> c_int |real| {
        correct(answer, || Of::Descriptor(fd), || real(fd, answer))
    }

    fn fstatat[fstatat64] (directory: c_int, path: *const c_char, answer: *mut Stat, flags: c_int) -> c_int |real| {
        correct(answer, || Of::at(directory, path, follows(flags)), || real(directory, path, answer, flags))
    }

    fn __xstat[__xstat64] (version: c_int, path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(answer, || Of::Path(AT_FDCWD, path, true), || real(version, path, answer))
    }

    fn __lxstat[__lxstat64] (version: c_int, path: *const c_char, answer: *mut Stat) -> c_int |real| {
        correct(answer, || Of::Path(AT_FDCWD, path, false), || real(version, path, answer))
    }

    fn __fxstat[__fxstat64] (version: c_int, fd: c_int, answer: *mut Stat) -> c_int |real| {
        correct(answer, || Of::Descriptor(fd), || real(version, fd, answer))
    }

    fn __fxstatat[__fxstatat64] (
        version: c_int, directory: c_int, path: *const c_char, answer: *mut Stat, flags: c_int,
    ) -> c_int |real| {
        correct(answer, || Of::at(directory, path, follows(flags)), || real(version, directory, path, answer, flags))
    }

    fn statx[] (directory: c_int, path: *const c_char, flags: c_int, mask: c_uint, answer: *mut Statx) -> c_int |real| {
        correct_extended(
            answer,
            mask,
            || Of::at(directory, path, follows(flags)),
            || real(directory, path, flags, mask, answer),
        )
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
