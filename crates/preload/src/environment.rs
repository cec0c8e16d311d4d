//! What the environment asks for.

use std::ffi::CStr;

/// A variable of the environment, unless empty.
pub(crate) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends in a zero byte; a value lives as long as the program leaves it alone, and it is read at
    // the start.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: getenv answers a string.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }).filter(|value| !value.is_empty())
}
