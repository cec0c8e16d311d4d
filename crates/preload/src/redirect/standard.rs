//! The three streams that libc has from the start, and what happens to them when their descriptors become other files.
//!
//! libc's `stdin`, `stdout` and `stderr` cannot be made cookie streams, but they are variables: when descriptor 0, 1 or 2
//! is or becomes a managed file, the variable is pointed at a cookie stream, and back when the descriptor becomes
//! something else. Meanwhile the stream it pointed at has no descriptor, so what still uses it by address gets EBADF and
//! not the stub; C++'s streams are led along (`cxx`).

use super::cookie::new_stream;
use super::foreign::{fileno_of, give_descriptor, move_pending, set_fileno, take_descriptor};
use super::streams::forget;
use crate::descriptors::{self, Known, lookup};
use crate::process::{self, Inside};
use libc::{FILE, c_int};
use std::sync::atomic::{AtomicPtr, Ordering};

unsafe extern "C" {
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

/// One of the three streams that libc has from the start.
pub(super) struct Standard {
    /// What the variable pointed at, while it points at ours.
    original: AtomicPtr<FILE>,
    /// Ours meanwhile.
    pub(super) stand_in: AtomicPtr<FILE>,
    number: usize,
}

pub(super) static STANDARD: [Standard; 3] = [Standard::new(0), Standard::new(1), Standard::new(2)];

impl Standard {
    const fn new(number: usize) -> Self {
        let (original, stand_in) = (AtomicPtr::new(std::ptr::null_mut()), AtomicPtr::new(std::ptr::null_mut()));
        Self { original, stand_in, number }
    }

    fn variable(&self) -> *mut *mut FILE {
        match self.number {
            0 => &raw mut stdin,
            1 => &raw mut stdout,
            _ => &raw mut stderr,
        }
    }

    /// Whether a program that uses `stream` means this one. The variable may point at a stream of another descriptor, if
    /// the program has set it.
    pub(super) fn is_reached_by(&self, stream: *mut FILE) -> bool {
        if self.is_swapped() {
            return [&self.original, &self.stand_in].iter().any(|known| known.load(Ordering::Acquire) == stream);
        }
        // SAFETY: libc's variable, and with that an open stream, or one of libc's that was closed, which has -1.
        unsafe { stream == *self.variable() && (fileno_of(stream) == self.number as c_int || fileno_of(stream) == -1) }
    }

    /// The stream that the descriptor is used by.
    pub(super) fn current(&self) -> *mut FILE {
        // SAFETY: libc's variable.
        if self.is_swapped() { self.stand_in.load(Ordering::Acquire) } else { unsafe { *self.variable() } }
    }

    /// libc's own.
    pub(super) fn original_or_current(&self) -> *mut FILE {
        if self.is_swapped() { self.original.load(Ordering::Acquire) } else { self.current() }
    }

    /// The variable leads to libc's own stream again: this and ours, which nothing leads to any more; none if it did
    /// already.
    pub(super) fn end(&self) -> Option<(*mut FILE, *mut FILE)> {
        let original = self.original.swap(std::ptr::null_mut(), Ordering::AcqRel);
        let stand_in = self.stand_in.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if original.is_null() {
            return None;
        }
        // SAFETY: libc's variable. A program that has set it means what it set.
        unsafe {
            if *self.variable() == stand_in {
                *self.variable() = original;
            }
        }
        super::cxx::lead(stand_in, original);
        Some((original, stand_in))
    }

    pub(super) fn is_swapped(&self) -> bool {
        !self.original.load(Ordering::Acquire).is_null()
    }
}

fn swap(number: usize) {
    let standard = &STANDARD[number];
    if standard.is_swapped() {
        return;
    }
    // SAFETY: libc's variable; a stream that `fclose` closed stays where it is.
    let is_its = unsafe {
        let original = *standard.variable();
        !original.is_null() && fileno_of(original) == number as c_int
    };
    // Closed by `fclose`, or set by the program to another stream: libc does not use the number either.
    if !is_its {
        return;
    }
    let mode = if number == 0 { c"r" } else { c"w" };
    let stream = new_stream(number as c_int, mode.as_ptr());
    if stream.is_null() {
        return;
    }
    // SAFETY: libc's variable and stream.
    unsafe {
        if number == 2 {
            libc::setvbuf(stream, std::ptr::null_mut(), libc::_IONBF, 0);
        }
        let original = *standard.variable();
        // Flushed, if the descriptor was replaced; not if it was closed before.
        move_pending(original, stream);
        set_fileno(original, -1);
        standard.stand_in.store(stream, Ordering::Release);
        standard.original.store(original, Ordering::Release);
        *standard.variable() = stream;
        super::cxx::lead(original, stream);
    }
}

pub(super) fn restore(number: usize) {
    let Some((original, stand_in)) = STANDARD[number].end() else { return };
    forget(number as c_int);
    // SAFETY: open streams. Our own stays allocated, and empty, for it is flushed at the end: the program may hold its
    // address.
    unsafe {
        set_fileno(original, number as c_int);
        move_pending(stand_in, original);
    }
}

/// At load: descriptors 0, 1 and 2 as they were inherited.
pub(crate) fn adopt_standard_streams() {
    if !super::is_on() {
        return;
    }
    for number in 0..3 {
        if matches!(lookup(number), Known::Managed(_)) {
            swap(number as usize);
        }
    }
}

/// `to` is about to become `from`: what the stream on it holds goes where it was meant to go.
pub(crate) fn before_replacing(from: c_int, to: c_int) {
    if !super::is_on() || Inside::is_set() || !process::owns_tables() {
        return;
    }
    let is_managed = || matches!(lookup(from), Known::Managed(_));
    let standard = STANDARD.get(to as usize);
    if let Some(standard) = standard
        && (standard.is_swapped() || is_managed())
    {
        let _errno = process::Errno::keep();
        // SAFETY: libc's variable is an open stream.
        unsafe { libc::fflush(*standard.variable()) };
    }
    // The standard stream of that number has its turn when the descriptor is replaced.
    let but = standard.map_or(std::ptr::null_mut(), Standard::current);
    take_descriptor(to, but, is_managed);
}

/// A descriptor did not become another file, after [`before_replacing`].
pub(crate) fn not_replaced(descriptor: c_int) {
    if process::owns_tables() && descriptors::managed_open(descriptor).is_none() {
        give_descriptor(descriptor);
    }
}

/// A descriptor became another file.
pub(crate) fn descriptor_replaced(descriptor: c_int) {
    if !super::is_on() {
        return;
    }
    if descriptors::managed_open(descriptor).is_none() {
        give_descriptor(descriptor);
        if (0..3).contains(&descriptor) {
            restore(descriptor as usize);
        }
    } else if (0..3).contains(&descriptor) {
        swap(descriptor as usize);
    }
}
