//! New processes and the end of this one.
//!
//! A file that `posix_spawn` is to open in the child is opened inside libc, where `O_TRUNC` would cut a stub: if it
//! is, or becomes, a managed one, it is opened here and now, and the child gets a duplicate. Otherwise `posix_spawn`,
//! `system`, `popen` and the variadic `execl` need no wrapper: the new program loads this library itself and finds
//! its descriptors at their first use. The other `exec`s only cut the trace to its length first. `fork` calls the
//! handlers that `process` registered; a child made by `clone` or `_Fork` finds the page of `process` zeroed. A child
//! of `vfork` is told apart by its number.

use crate::process;
use crate::real::interpose;
use crate::redirect;
use libc::{c_char, c_int, mode_t};
use std::ffi::CStr;
use std::sync::{Mutex, PoisonError};

/// Before this process becomes another program; if that fails, the trace goes on.
pub(super) fn leave() {
    if process::is_active() {
        process::at_end();
    }
}

type Strings = *const *const c_char;

type Actions = libc::posix_spawn_file_actions_t;

/// Descriptors opened for a list of actions, until the list is destroyed.
static PREPARED: Mutex<Vec<(usize, Descriptor)>> = Mutex::new(Vec::new());

/// A descriptor of ours that a program must not close by accident.
struct Descriptor(c_int);

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: opened for the list, and forgotten with it.
        unsafe { libc::close(self.0) };
    }
}

/// Opens what an action names, if it concerns us, high up and closed on exec.
///
/// # Safety
/// `path` is null or a string.
unsafe fn prepare(path: *const c_char, flags: c_int, mode: mode_t) -> Option<c_int> {
    if path.is_null() || !process::is_active() || !redirect::is_on() {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(path) };
    let concerns = {
        let _inside = process::Inside::enter()?;
        redirect::may_be_stub(libc::AT_FDCWD, name)
            || flags & libc::O_CREAT != 0 && redirect::open::would_create(libc::AT_FDCWD, name)
    };
    if !concerns {
        return None;
    }
    // SAFETY: as above.
    let low = unsafe { libc::open(path, flags | libc::O_CLOEXEC, mode) };
    if low < 0 {
        return None;
    }
    // SAFETY: a descriptor of ours.
    unsafe {
        let high = libc::fcntl(low, libc::F_DUPFD_CLOEXEC, crate::descriptors::FLOOR);
        libc::close(low);
        (high >= 0).then_some(high)
    }
}

interpose! {
    fn posix_spawn_file_actions_addopen[] (
        actions: *mut Actions, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t,
    ) -> c_int |real| {
        match prepare(path, flags, mode) {
            Some(opened) => {
                PREPARED.lock().unwrap_or_else(PoisonError::into_inner).push((actions as usize, Descriptor(opened)));
                libc::posix_spawn_file_actions_adddup2(actions, opened, fd)
            }
            None => real(actions, fd, path, flags, mode),
        }
    }

    fn posix_spawn_file_actions_destroy[] (actions: *mut Actions) -> c_int |real| {
        if redirect::is_on() {
            PREPARED.lock().unwrap_or_else(PoisonError::into_inner).retain(|(owner, _)| *owner != actions as usize);
        }
        real(actions)
    }

    fn _exit[_Exit] (status: c_int) -> ! |real| {
        leave();
        real(status)
    }

    fn execve[] (path: *const c_char, arguments: Strings, environment: Strings) -> c_int |real| {
        leave();
        real(path, arguments, environment)
    }

    fn execv[] (path: *const c_char, arguments: Strings) -> c_int |real| {
        leave();
        real(path, arguments)
    }

    fn execvp[] (name: *const c_char, arguments: Strings) -> c_int |real| {
        leave();
        real(name, arguments)
    }

    fn execvpe[] (name: *const c_char, arguments: Strings, environment: Strings) -> c_int |real| {
        leave();
        real(name, arguments, environment)
    }

    fn fexecve[] (fd: c_int, arguments: Strings, environment: Strings) -> c_int |real| {
        leave();
        real(fd, arguments, environment)
    }

    fn execveat[] (
        directory: c_int, path: *const c_char, arguments: Strings, environment: Strings, flags: c_int,
    ) -> c_int |real| {
        leave();
        real(directory, path, arguments, environment, flags)
    }
}
