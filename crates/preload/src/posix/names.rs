//! Calls on names: unlink, rename, truncate, and who owns a file and when it was changed.

use crate::capture;
use crate::descriptors::{Known, lookup};
use crate::process::{self, Errno, Inside};
use crate::real::interpose;
use crate::redirect::names as redirected;
use crate::redirect::status::{self, Of};
use libc::{AT_FDCWD, c_char, c_int, c_uint, gid_t, mode_t, off_t, timespec, timeval, uid_t, utimbuf};
use rustix::fs::RenameFlags;
use std::ffi::CStr;
use stripewise_capture::call::Call;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::FileOffset;

/// The program's name, not null.
fn named<'a>(directory: c_int, path: *const c_char) -> Named<'a> {
    // SAFETY: the program's string, which lasts as long as its call.
    Named { directory, path: unsafe { CStr::from_ptr(path) } }
}

fn made(result: Result<c_int, rustix::io::Errno>) -> c_int {
    result.unwrap_or_else(process::fail)
}

/// A call that takes a name away: noted before, if it is a managed file's.
fn unlinking(directory: c_int, path: *const c_char, real: impl Fn() -> c_int) -> c_int {
    if !process::is_active() || path.is_null() {
        return real();
    }
    let Some(_inside) = Inside::enter() else { return real() };
    let start = capture::now();
    let key = capture::key_of_path(directory, path);
    let target = named(directory, path);
    let flags = RenameFlags::empty();
    let result = made(Changing { call: NameCall::Remove, source: None, target, flags }.make(real));
    let _errno = Errno::keep();
    if let Some(key) = key {
        capture::event(Call::Unlink, key, NO_OFFSET, 0, start, i64::from(result));
    }
    result
}

fn renaming(
    flags: RenameFlags,
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    real: impl Fn() -> c_int,
) -> c_int {
    if !process::is_active() || from.1.is_null() || to.1.is_null() {
        return real();
    }
    let Some(_inside) = Inside::enter() else { return real() };
    let start = capture::now();
    let call = if flags.contains(RenameFlags::EXCHANGE) { NameCall::Exchange } else { NameCall::Rename };
    // An exchange leaves both names.
    let key = if call == NameCall::Rename { capture::key_of_path(from.0, from.1) } else { None };
    let (source, target) = (Some(named(from.0, from.1)), named(to.0, to.1));
    let result = made(Changing { call, source, target, flags }.make(real));
    let _errno = Errno::keep();
    if let Some(key) = key {
        let new = if result == 0 { capture::key_of_path(to.0, to.1) } else { None };
        let place = new.map_or(NO_OFFSET, |new| FileOffset(u64::from(new.0)));
        capture::event(Call::Rename, key, place, 0, start, i64::from(result));
    }
    result
}

/// A call that changed mode, owner or times of what a path leads to.
fn changing(
    directory: c_int,
    path: *const c_char,
    follow: bool,
    what: redirected::Change,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let result = real();
    if result == 0 && !path.is_null() && process::is_active() && crate::redirect::is_on() {
        let _errno = Errno::keep();
        if let Some(_inside) = Inside::enter() {
            redirected::changed_at(directory, path, follow, what);
        }
    }
    result
}

/// As [`changing`], of an open descriptor. The broker is not asked where mode and owner are what they were: SQLite gives each journal the owner of its
/// database, which the journal mostly has.
fn changing_open(fd: c_int, what: redirected::Change, real: impl FnOnce() -> c_int) -> c_int {
    let attributes = || match (what, lookup(fd)) {
        (Attributes, Known::Managed(_)) => redirected::attributes_of(fd),
        _ => None,
    };
    let before = attributes();
    let result = real();
    if result == 0
        && let Known::Managed(open) = lookup(fd)
        && (before.is_none() || before != attributes())
    {
        let _errno = Errno::keep();
        redirected::changed(&open, fd, what);
    }
    result
}

use redirected::Change::{Attributes, Times};
use redirected::{Changing, NameCall, Named};

fn is_managed(path: *const c_char) -> bool {
    if path.is_null() || !process::is_active() || !crate::redirect::is_on() {
        return false;
    }
    let _errno = Errno::keep();
    let Some(_inside) = Inside::enter() else { return false };
    status::is_managed(Of::Path(AT_FDCWD, path, true))
}

interpose! {
    /// The kernel sees what is read and written at the objects alone. With this error programs look by themselves, as `tail -f` does, where they would wait
    /// for ever.
    fn inotify_add_watch[] (instance: c_int, path: *const c_char, mask: u32) -> c_int |real| {
        if mask & (libc::IN_MODIFY | libc::IN_ACCESS) != 0 && is_managed(path) {
            return process::fail(rustix::io::Errno::NOSPC);
        }
        real(instance, path, mask)
    }

    fn unlink[] (path: *const c_char) -> c_int |real| {
        unlinking(AT_FDCWD, path, || real(path))
    }

    fn unlinkat[] (directory: c_int, path: *const c_char, flags: c_int) -> c_int |real| {
        // A directory, or flags that the kernel refuses.
        if flags != 0 {
            return real(directory, path, flags);
        }
        unlinking(directory, path, || real(directory, path, flags))
    }

    fn remove[] (path: *const c_char) -> c_int |real| {
        unlinking(AT_FDCWD, path, || real(path))
    }

    fn rename[] (from: *const c_char, to: *const c_char) -> c_int |real| {
        renaming(RenameFlags::empty(), (AT_FDCWD, from), (AT_FDCWD, to), || real(from, to))
    }

    fn renameat[] (from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int |real| {
        let real = || real(from_directory, from, to_directory, to);
        renaming(RenameFlags::empty(), (from_directory, from), (to_directory, to), real)
    }

    fn renameat2[] (
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint,
    ) -> c_int |real| {
        let real = || real(from_directory, from, to_directory, to, flags);
        renaming(RenameFlags::from_bits_retain(flags), (from_directory, from), (to_directory, to), real)
    }

    fn linkat[] (
        from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_int,
    ) -> c_int |real| {
        let result = real(from_directory, from, to_directory, to, flags);
        if result == 0 && crate::redirect::is_on() && process::is_active() {
            let _errno = Errno::keep();
            if let Some(_inside) = Inside::enter() {
                crate::redirect::linked(to_directory, std::ffi::CStr::from_ptr(to));
            }
        }
        result
    }

    fn truncate[truncate64] (path: *const c_char, length: off_t) -> c_int |real| {
        if !process::is_active() || path.is_null() {
            return real(path, length);
        }
        let Some(_inside) = Inside::enter() else { return real(path, length) };
        let start = capture::now();
        let key = capture::key_of_path(AT_FDCWD, path);
        let result = match u64::try_from(length) {
            Ok(bytes) if crate::redirect::is_on() => {
                match redirected::truncate(CStr::from_ptr(path), bytes, |path| real(path.as_ptr(), length)) {
                    Ok(()) => 0,
                    Err(errno) => process::fail(errno),
                }
            }
            _ => real(path, length),
        };
        if let Some(key) = key {
            capture::event(Call::Truncate, key, FileOffset(length as u64), 0, start, i64::from(result));
        }
        result
    }

    fn chmod[] (path: *const c_char, mode: mode_t) -> c_int |real| {
        changing(AT_FDCWD, path, true, Attributes, || real(path, mode))
    }

    fn lchmod[] (path: *const c_char, mode: mode_t) -> c_int |real| {
        changing(AT_FDCWD, path, false, Attributes, || real(path, mode))
    }

    fn fchmod[] (fd: c_int, mode: mode_t) -> c_int |real| {
        changing_open(fd, Attributes, || real(fd, mode))
    }

    fn fchmodat[] (directory: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int |real| {
        changing(directory, path, flags & libc::AT_SYMLINK_NOFOLLOW == 0, Attributes, || real(directory, path, mode, flags))
    }

    fn chown[] (path: *const c_char, user: uid_t, group: gid_t) -> c_int |real| {
        changing(AT_FDCWD, path, true, Attributes, || real(path, user, group))
    }

    fn lchown[] (path: *const c_char, user: uid_t, group: gid_t) -> c_int |real| {
        changing(AT_FDCWD, path, false, Attributes, || real(path, user, group))
    }

    fn fchown[] (fd: c_int, user: uid_t, group: gid_t) -> c_int |real| {
        changing_open(fd, Attributes, || real(fd, user, group))
    }

    fn fchownat[] (directory: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int |real| {
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        changing(directory, path, follow, Attributes, || real(directory, path, user, group, flags))
    }

    fn utime[] (path: *const c_char, times: *const utimbuf) -> c_int |real| {
        changing(AT_FDCWD, path, true, Times, || real(path, times))
    }

    fn utimes[] (path: *const c_char, times: *const timeval) -> c_int |real| {
        changing(AT_FDCWD, path, true, Times, || real(path, times))
    }

    fn lutimes[] (path: *const c_char, times: *const timeval) -> c_int |real| {
        changing(AT_FDCWD, path, false, Times, || real(path, times))
    }

    fn futimes[] (fd: c_int, times: *const timeval) -> c_int |real| {
        changing_open(fd, Times, || real(fd, times))
    }

    fn futimens[] (fd: c_int, times: *const timespec) -> c_int |real| {
        changing_open(fd, redirected::of_times(times), || real(fd, times))
    }

    fn futimesat[] (directory: c_int, path: *const c_char, times: *const timeval) -> c_int |real| {
        if path.is_null() {
            return changing_open(directory, Times, || real(directory, path, times));
        }
        changing(directory, path, true, Times, || real(directory, path, times))
    }

    fn utimensat[] (directory: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int |real| {
        if path.is_null() {
            return changing_open(directory, redirected::of_times(times), || real(directory, path, times, flags));
        }
        let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
        changing(directory, path, follow, redirected::of_times(times), || real(directory, path, times, flags))
    }
}
