//! New processes and the end of this one.
//!
//! A file that `posix_spawn` is to open in the child is opened inside libc, where `O_TRUNC` would cut a stub: if it
//! is, or becomes, a managed one, it is opened here and now, and the child gets a duplicate. What the child executes
//! is `exec`'s affair. `system` and `popen` need no wrapper: the shell loads this library itself and finds its
//! descriptors at their first use. `fork` calls the handlers that `process` registered; a child made by `clone` or
//! `_Fork` finds the page of `process` zeroed. A child of `vfork` is told apart by its number.

use crate::process;
use crate::real::interpose;
use crate::redirect;
use libc::{c_char, c_int, mode_t};
use rustix::fd::BorrowedFd;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

pub(super) type Actions = libc::posix_spawn_file_actions_t;

/// Of lists of actions, those by which the child gets a descriptor of a managed file, and the directory that the child goes to.
static NOTES: Mutex<Vec<(usize, Note)>> = Mutex::new(Vec::new());

enum Note {
    Managed,
    Directory(CString),
}

fn note(actions: *mut Actions, note: Note) {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push((actions as usize, note));
}

/// Whether a list of actions leads descriptors of the child to managed files.
pub(super) fn leads_to_managed(actions: *const Actions) -> bool {
    let owner = actions as usize;
    PREPARED.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|(list, _)| *list == owner)
        || NOTES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .any(|(list, note)| *list == owner && matches!(note, Note::Managed))
}

/// The directories that a child goes to, one after the other.
pub(super) fn directories(actions: *const Actions) -> Vec<CString> {
    let notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_list = notes.iter().filter(|(list, _)| *list == actions as usize);
    of_list
        .filter_map(|(_, note)| match note {
            Note::Directory(path) => Some(path.clone()),
            Note::Managed => None,
        })
        .collect()
}

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

    fn posix_spawn_file_actions_adddup2[] (actions: *mut Actions, fd: c_int, to: c_int) -> c_int |real| {
        let result = real(actions, fd, to);
        if result == 0 && redirect::is_on() && redirect::exec::is_managed(BorrowedFd::borrow_raw(fd)) {
            note(actions, Note::Managed);
        }
        result
    }

    fn posix_spawn_file_actions_addchdir_np[] (actions: *mut Actions, path: *const c_char) -> c_int |real| {
        let result = real(actions, path);
        if result == 0 && redirect::is_on() {
            note(actions, Note::Directory(CStr::from_ptr(path).to_owned()));
        }
        result
    }

    fn posix_spawn_file_actions_addfchdir_np[] (actions: *mut Actions, fd: c_int) -> c_int |real| {
        let result = real(actions, fd);
        if result == 0 && redirect::is_on() {
            note(actions, Note::Directory(redirect::exec::descriptor_path(None, fd).as_c_str().to_owned()));
        }
        result
    }

    fn posix_spawn_file_actions_destroy[] (actions: *mut Actions) -> c_int |real| {
        if redirect::is_on() {
            NOTES.lock().unwrap_or_else(PoisonError::into_inner).retain(|(owner, _)| *owner != actions as usize);
            PREPARED.lock().unwrap_or_else(PoisonError::into_inner).retain(|(owner, _)| *owner != actions as usize);
        }
        real(actions)
    }

    fn _exit[_Exit] (status: c_int) -> ! |real| {
        super::exec::leave();
        real(status)
    }
}
