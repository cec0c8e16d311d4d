//! Descriptors: closing, duplicating, their flags.

use crate::capture;
use crate::descriptors::{self, Known, lookup};
use crate::managed;
use crate::process;
use crate::real::interpose;
use crate::redirect;
use libc::{c_int, c_uint, c_ulong};
use rustix::io::Errno;
use std::ffi::c_void;
use stripewise_capture::call::Call;
use stripewise_capture::clock::Ticks;
use stripewise_capture::format::NO_OFFSET;

/// Whether the descriptor is one that the library keeps for itself. A program that closes everything it finds must
/// not close these; to it they are not open.
fn is_own(descriptor: c_int) -> bool {
    descriptor >= 0
        && !process::Inside::is_set()
        && (process::log_descriptor() == Some(descriptor)
            || capture::recorder().is_some_and(|recorder| recorder.descriptor() == Some(descriptor))
            || redirect::owns_descriptor(descriptor))
}

/// The first of the library's own descriptors from `start` on.
fn next_own(start: c_uint) -> Option<c_uint> {
    let recorder = capture::recorder().and_then(|recorder| recorder.descriptor());
    let client = if redirect::is_on() {
        stripewise_store::descriptors::owned_descriptors(start.min(c_int::MAX as c_uint) as c_int).next()
    } else {
        None
    };
    let own = [recorder, client, process::log_descriptor()];
    own.into_iter().flatten().filter_map(|own| c_uint::try_from(own).ok()).filter(|own| *own >= start).min()
}

/// Before a descriptor is closed or replaced: what it was in the table is forgotten, so that nobody finds the old
/// file under a new descriptor of that number.
fn forget(descriptor: c_int) {
    if process::owns_tables() {
        descriptors::forget(descriptor);
    } else {
        process::children::begins();
    }
}

/// After `to` became another name of `from`.
fn copy(from: c_int, to: c_int) {
    if to < 0 {
        return;
    }
    if !process::owns_tables() {
        return process::children::begins();
    }
    descriptors::copy(from, to);
    redirect::stdio::descriptor_replaced(to);
}

/// After `to` was to become another name of `from`, with this result.
fn replaced(from: c_int, to: c_int, result: c_int) {
    if result >= 0 {
        copy(from, result);
    } else {
        redirect::stdio::not_replaced(to);
    }
}

/// After `F_SETFL`, which answered `result`. What writes wait for is recorded where it changed.
fn flags_set(descriptor: c_int, flags: c_int, result: c_int, start: Ticks) {
    if result != 0 {
        return;
    }
    let _errno = process::Errno::keep();
    let captured = match lookup(descriptor) {
        Known::Plain | Known::OfChild => return,
        Known::Captured(before) => {
            if process::owns_tables() {
                descriptors::captured_flags_changed(before);
            }
            let Known::Captured(now) = lookup(descriptor) else { return };
            (now != before).then_some(now)
        }
        Known::Managed(open) => {
            let before = open.captured();
            redirect::flags_changed(&open, flags);
            open.captured().filter(|_| open.captured() != before)
        }
    };
    if let Some(file) = captured {
        capture::event(Call::SetFlags, file, NO_OFFSET, 0, start, 0);
    }
}

/// Moves the library's own descriptor out of the way of a program that asks for this number.
fn make_way(descriptor: c_int) -> Result<(), Errno> {
    if is_own(descriptor) { Err(Errno::BUSY) } else { Ok(()) }
}

interpose! {
    fn close[__close] (fd: c_int) -> c_int |real| {
        if !process::is_active() || process::Inside::is_set() {
            return real(fd);
        }
        if is_own(fd) {
            return process::fail(Errno::BADF);
        }
        if process::children::are_there() && !process::owns_tables() {
            return real(fd);
        }
        let start = capture::now();
        // The broker frees a file without a name when nobody has its stub open: it hears of the close after the kernel.
        let mut nameless = None;
        let key = match lookup(fd) {
            Known::Captured(key) => {
                redirect::closing::before_close(fd);
                Some(key)
            }
            Known::Managed(open) => {
                let key = open.captured();
                if redirect::check_stub(&open, fd) {
                    nameless = Some(open);
                }
                key
            }
            Known::Plain | Known::OfChild => {
                redirect::closing::before_close(fd);
                None
            }
        };
        let _ = managed::take_close_failure();
        forget(fd);
        let result = real(fd);
        drop(nameless);
        let result = match (result, managed::take_close_failure()) {
            (0, Some(errno)) => process::fail(errno),
            (result, _) => result,
        };
        if let Some(key) = key {
            capture::event(Call::Close, key, NO_OFFSET, 0, start, i64::from(result));
        }
        result
    }

    fn close_range[] (first: c_uint, last: c_uint, flags: c_int) -> c_int |real| {
        if !process::is_active() {
            return real(first, last, flags);
        }
        // Only marking, or a table of its own for the thread: nothing is closed under anybody's name in our table.
        if flags & libc::CLOSE_RANGE_CLOEXEC as c_int != 0 {
            return real(first, last, flags);
        }
        if first > last {
            return process::fail(Errno::INVAL);
        }
        let end = descriptors::range().end.max(0) as u32;
        for descriptor in first..last.saturating_add(1).min(end) {
            if !is_own(descriptor as c_int) {
                redirect::closing::before_any_close(descriptor as c_int);
                forget(descriptor as c_int);
            }
        }
        // Around the library's own descriptors.
        let mut start = first;
        while let Some(own) = next_own(start).filter(|own| *own <= last) {
            if start < own {
                let result = real(start, own - 1, flags);
                if result != 0 {
                    return result;
                }
            }
            start = own + 1;
        }
        if start > last { 0 } else { real(start, last, flags) }
    }

    fn closefrom[] (first: c_int) -> () |_real| {
        close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    }

    fn dup[] (from: c_int) -> c_int |real| {
        let to = real(from);
        if process::is_active() {
            let _errno = process::Errno::keep();
            copy(from, to);
        }
        to
    }

    fn dup2[__dup2] (from: c_int, to: c_int) -> c_int |real| {
        if !process::is_active() || from == to {
            return real(from, to);
        }
        if let Err(errno) = make_way(to) {
            return process::fail(errno);
        }
        redirect::closing::before_any_close(to);
        redirect::stdio::before_replacing(from, to);
        let result = real(from, to);
        let _errno = process::Errno::keep();
        replaced(from, to, result);
        result
    }

    fn dup3[] (from: c_int, to: c_int, flags: c_int) -> c_int |real| {
        if !process::is_active() {
            return real(from, to, flags);
        }
        if let Err(errno) = make_way(to) {
            return process::fail(errno);
        }
        redirect::closing::before_any_close(to);
        redirect::stdio::before_replacing(from, to);
        let result = real(from, to, flags);
        let _errno = process::Errno::keep();
        replaced(from, to, result);
        result
    }

    /// The argument is an integer, a pointer or absent, by command; see `real` on variadic functions.
    fn fcntl[fcntl64, __fcntl] (fd: c_int, command: c_int, argument: usize) -> c_int |real| {
        if !matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC | libc::F_SETFL | libc::F_GETFL) || !process::is_active() {
            return real(fd, command, argument);
        }
        if command == libc::F_SETFL && let Some(errno) = redirect::refuses_flags(fd, argument as c_int) {
            return process::fail(errno);
        }
        let start = capture::now();
        let result = real(fd, command, argument);
        if command == libc::F_GETFL {
            return match lookup(fd) {
                Known::Managed(open) if result >= 0 => open.flags_shown(result),
                _ => result,
            };
        }
        if command == libc::F_SETFL {
            flags_set(fd, argument as c_int, result, start);
        } else {
            let _errno = process::Errno::keep();
            copy(fd, result);
        }
        result
    }

    fn ioctl[] (fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int |real| {
        // Nearly all are terminals and sockets: only what concerns the bytes of a file is looked at.
        if redirect::concerns_bytes(request)
            && let Some(result) = redirect::control(fd, request, argument)
        {
            return match result {
                Ok(()) => 0,
                Err(errno) => process::fail(errno),
            };
        }
        real(fd, request, argument)
    }

    /// A directory's stream closes its descriptor inside libc.
    fn closedir[] (stream: *mut libc::DIR) -> c_int |real| {
        if process::is_active() && !stream.is_null() {
            forget(libc::dirfd(stream));
        }
        real(stream)
    }
}
