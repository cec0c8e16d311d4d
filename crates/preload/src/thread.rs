//! The calling thread: whether it is inside the library, the signals that may reach it, and its `errno`.

use std::cell::Cell;
use std::ffi::c_int;

thread_local! {
    /// No destructor: a plain value of the thread's static block.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// While one lives, calls of this thread go straight to libc: they are the library's own.
pub(crate) struct Inside;

impl Inside {
    /// `None` when the thread is inside already.
    pub(crate) fn enter() -> Option<Self> {
        INSIDE.with(|inside| {
            if inside.get() > 0 {
                return None;
            }
            inside.set(1);
            Some(Self)
        })
    }

    pub(crate) fn is_set() -> bool {
        INSIDE.with(|inside| inside.get() > 0)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(0));
    }
}

/// No signal reaches the thread while this lives: a handler may use files too, and would wait for a lock of the
/// thread that it interrupted.
pub(crate) struct NoSignals(libc::sigset_t);

impl NoSignals {
    pub(crate) fn begin() -> Self {
        // SAFETY: both sets are plain memory of this frame, which the calls fill in.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
            Self(before)
        }
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        // SAFETY: the set that `begin` got.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// Keeps libc's error number over what the library does in between.
pub(crate) struct Errno(c_int);

impl Errno {
    pub(crate) fn keep() -> Self {
        Self(errno())
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: always a valid address of this thread.
    unsafe { *libc::__errno_location() }
}

#[inline]
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Sets `errno` and gives the usual -1.
#[cold]
pub(crate) fn fail(error: rustix::io::Errno) -> c_int {
    set_errno(error.raw_os_error());
    -1
}
