//! New processes and the end of this one.
//!
//! A file that `posix_spawn` is to open in the child is opened inside libc, where `O_TRUNC` would cut a stub and
//! `O_CREAT` make an ordinary file. So if it is, or becomes, a managed one, a helper makes and cuts it just before the
//! child is made, and the child opens what is there. What the child executes
//! is `exec`'s affair. `system` and `popen` need no wrapper: the shell loads this library itself and finds its
//! descriptors at their first use. `fork` calls the handlers that `process` registered; a child made by `clone` or
//! `_Fork` finds the page of `process` zeroed. A child of `vfork` is counted before it is made (`process::children`).

use crate::borrow::borrow;
use crate::process::{self, helper};
use crate::real::{Real, interpose};
use crate::redirect;
use libc::{c_char, c_int, mode_t};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

pub(super) type Actions = libc::posix_spawn_file_actions_t;

/// Of lists of actions, those by which the child gets a descriptor of a managed file, the files that are to be made or cut, and the directories that the
/// child goes to.
static NOTES: Mutex<Vec<(usize, Note)>> = Mutex::new(Vec::new());

enum Note {
    Managed,
    Directory(CString),
    Opens(Opening),
}

/// An open that may make or cut a managed file.
#[derive(Clone)]
struct Opening {
    path: CString,
    flags: c_int,
    mode: mode_t,
}

fn note(actions: *mut Actions, note: Note) {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push((actions as usize, note));
}

/// What `choose` finds in the notes of a list, in the order in which they were made.
fn noted<T>(actions: *const Actions, choose: impl Fn(&Note) -> Option<T>) -> Vec<T> {
    let notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    let of_list = notes.iter().filter(|(list, _)| *list == actions as usize);
    of_list.filter_map(|(_, note)| choose(note)).collect()
}

/// Whether a list of actions leads descriptors of the child to managed files.
pub(super) fn leads_to_managed(actions: *const Actions) -> bool {
    !noted(actions, |note| matches!(note, Note::Managed).then_some(())).is_empty()
}

/// The directories that a child goes to, one after the other.
pub(super) fn directories(actions: *const Actions) -> Vec<CString> {
    noted(actions, |note| match note {
        Note::Directory(path) => Some(path.clone()),
        _ => None,
    })
}

/// Makes and cuts the managed files that the child is to open. In a helper, because to open and close them here would drop this process's record locks.
pub(super) fn make_files(actions: *const Actions) -> Result<(), Errno> {
    let openings = noted(actions, |note| match note {
        Note::Opens(opening) => Some(opening.clone()),
        _ => None,
    });
    if openings.is_empty() {
        return Ok(());
    }
    helper::run(|| {
        openings.iter().try_for_each(|Opening { path, flags, mode }| {
            // SAFETY: a string.
            let opened = unsafe { libc::open(path.as_ptr(), *flags | libc::O_CLOEXEC, *mode) };
            if opened < 0 {
                return Err(Errno::from_raw_os_error(process::errno()));
            }
            // SAFETY: opened here.
            unsafe { libc::close(opened) };
            Ok(())
        })
    })
}

/// The name of what an action opens, if that concerns us.
///
/// # Safety
/// `path` is null or a string.
unsafe fn concerned(actions: *const Actions, path: *const c_char, flags: c_int) -> Option<CString> {
    if path.is_null() || !process::is_active() || !redirect::is_on() || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return None;
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(path) };
    let directories = directories(actions);
    let name = if directories.is_empty() { name.to_owned() } else { crate::capture::seen_from(&directories, name)? };
    let _inside = process::Inside::enter()?;
    let concerns = redirect::may_be_stub(libc::AT_FDCWD, &name)
        || flags & libc::O_CREAT != 0 && redirect::open::would_create(libc::AT_FDCWD, &name);
    concerns.then_some(name)
}

interpose! {
    fn posix_spawn_file_actions_addopen[] (
        actions: *mut Actions, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t,
    ) -> c_int |real| {
        let Some(name) = concerned(actions, path, flags) else { return real(actions, fd, path, flags, mode) };
        let changes = flags & (libc::O_CREAT | libc::O_TRUNC) != 0;
        let result = real(actions, fd, path, flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC), mode);
        if result == 0 {
            note(actions, Note::Managed);
            if changes {
                note(actions, Note::Opens(Opening { path: name, flags, mode }));
            }
        }
        result
    }

    fn posix_spawn_file_actions_adddup2[] (actions: *mut Actions, fd: c_int, to: c_int) -> c_int |real| {
        let result = real(actions, fd, to);
        if result == 0 && redirect::is_on() && redirect::exec::is_managed(borrow(fd)) {
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
            note(actions, Note::Directory(crate::managed::link::descriptor_path(None, fd).as_c_str().to_owned()));
        }
        result
    }

    fn posix_spawn_file_actions_destroy[] (actions: *mut Actions) -> c_int |real| {
        if redirect::is_on() {
            NOTES.lock().unwrap_or_else(PoisonError::into_inner).retain(|(owner, _)| *owner != actions as usize);
        }
        real(actions)
    }

    fn _exit[_Exit] (status: c_int) -> ! |real| {
        process::children::ends();
        process::leave();
        real(status)
    }
}

type Vfork = unsafe extern "C" fn() -> libc::pid_t;

// SAFETY: the type of `vfork`.
static VFORK: Real<Vfork> = unsafe { Real::new(c"vfork") };

/// Counts the child that is about to be made, and says where libc makes it.
extern "C" fn before_vfork() -> Vfork {
    if process::is_active() {
        process::children::begins();
    }
    VFORK.get()
}

/// Returns twice, the second time when the child has written over its part of the stack: so no function of Rust can stand for it. This one goes on in libc's,
/// which returns to the caller.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork() {
    std::arch::naked_asm!("sub rsp, 8", "call {before}", "add rsp, 8", "jmp rax", before = sym before_vfork)
}

/// As `vfork`.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn __vfork() {
    std::arch::naked_asm!("jmp {vfork}", vfork = sym vfork)
}
