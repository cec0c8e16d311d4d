//! What a new program needs in its environment to have this library.
//!
//! A program that gives another one an environment without `LD_PRELOAD` (`env -i`, `subprocess` with a dictionary) does so to be rid of everything, not
//! of this library: the new program would read stubs. It gets the variables of its parent that are missing. Who names other libraries in `LD_PRELOAD`,
//! or sets `STRIPEWISE_DISABLE`, has chosen.

use super::{Strings, count, with_pointers};
use crate::process;
use std::ffi::{CStr, CString, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The first decides.
const NAMES: [&CStr; 8] = [
    c"LD_PRELOAD",
    c"STRIPEWISE_STATE",
    c"STRIPEWISE_AGENT",
    c"STRIPEWISE_CLUSTER",
    c"STRIPEWISE_TRACE",
    c"STRIPEWISE_LOG",
    c"STRIPEWISE_MARKS",
    c"STRIPEWISE_ALLOW_UNREDIRECTED",
];

/// `NAME=value` of this process as it began, strings that stay; null where it had none.
static OWN: [AtomicPtr<c_char>; NAMES.len()] = [const { AtomicPtr::new(std::ptr::null_mut()) }; NAMES.len()];

/// Keeps what the new programs need.
pub(super) fn prepare() {
    for (name, place) in NAMES.iter().zip(&OWN) {
        if let Some(value) = process::variable(name)
            && let Ok(own) = CString::new([name.to_bytes(), b"=", value.to_bytes()].concat())
        {
            place.store(own.into_raw(), Ordering::Release);
        }
    }
}

/// Calls `then` with the environment, and with what it lacks of ours if it has no `LD_PRELOAD`.
///
/// # Safety
/// `environment` is null or a list of strings.
pub(super) unsafe fn with_library<T>(environment: Strings, then: impl FnOnce(Strings) -> T) -> T {
    // SAFETY: the caller's promise.
    let given = unsafe { count(environment) };
    // SAFETY: within the list.
    let variable = |index: usize| unsafe { CStr::from_ptr(*environment.add(index)) }.to_bytes();
    let has = |name: &CStr| {
        let is_it = |index| variable(index).strip_prefix(name.to_bytes()).is_some_and(|rest| rest.starts_with(b"="));
        (0..given).any(is_it)
    };
    if OWN[0].load(Ordering::Acquire).is_null() || has(NAMES[0]) || has(c"STRIPEWISE_DISABLE") {
        return then(environment);
    }
    with_pointers(given + NAMES.len() + 1, |pointers| {
        for (index, place) in pointers[..given].iter_mut().enumerate() {
            // SAFETY: within the list.
            *place = unsafe { *environment.add(index) };
        }
        let own = NAMES.iter().zip(&OWN).filter(|(name, _)| !has(name)).map(|(_, own)| own.load(Ordering::Acquire));
        for (place, own) in pointers[given..].iter_mut().zip(own.filter(|own| !own.is_null())) {
            *place = own;
        }
        then(pointers.as_ptr())
    })
}
