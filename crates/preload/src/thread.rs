//! The calling thread: whether it is inside the library, and its `errno`.

use std::cell::Cell;
use std::ffi::c_int;
use stripewise_store::signals::NoSignals;

thread_local! {
    /// No destructor: a plain value of the thread's static block.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// While one lives, calls of this thread go straight to libc: they are the library's own. No signal reaches the thread
/// meanwhile: the files that a handler opens are the program's, and a handler may leave by `siglongjmp`.
pub(crate) struct Inside {
    /// Dropped after this: when handlers run again, the thread is outside.
    _signals: NoSignals,
}

impl Inside {
    /// `None` when the thread is inside already.
    pub(crate) fn enter() -> Option<Self> {
        if Self::is_set() {
            return None;
        }
        let signals = NoSignals::begin();
        INSIDE.with(|inside| inside.set(1));
        Some(Self { _signals: signals })
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
