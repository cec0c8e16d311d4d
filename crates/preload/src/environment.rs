//! What the environment asks for.

use libc::c_char;
use std::ffi::CStr;

unsafe extern "C" {
    static mut environ: *const *const c_char;
}

/// Before libc's own constructor, which sets the same: `environment` is what the loader gives to constructors.
pub(crate) fn begin(environment: *const *const c_char) {
    // SAFETY: libc's variable; no other thread is there yet, unless it is set.
    unsafe {
        if environ.is_null() {
            environ = environment;
        }
    }
}

/// A variable of the environment, unless empty.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends in a zero byte; a value lives as long as the program leaves it alone, and it is read at
    // the start.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: getenv answers a string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}
