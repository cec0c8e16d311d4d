//! Closes of ordinary files in managed directories with a minimum size: the broker is asked to make those managed that have outgrown it.
//!
//! Without such a directory this costs one load. With one, the close of an ordinary descriptor costs an `fstat`, and more only where the file is large
//! enough. The broker does the work later, when nobody has the file open.

use super::{client, inodes, is_on};
use crate::borrow::borrow;
use crate::capture;
use crate::descriptors::{self, Known, lookup};
use crate::process::{self, Inside, Level};
use libc::c_int;
use rustix::fs::{FileType, OFlags};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Before a descriptor that leads to no managed file is closed or replaced.
#[inline]
pub(crate) fn before_close(descriptor: c_int) {
    if is_on()
        && let Some(least) = inodes::least_min_size()
    {
        report_if_large(descriptor, least);
    }
}

/// As [`before_close`], where it is not known what the descriptor leads to.
#[inline]
pub(crate) fn before_any_close(descriptor: c_int) {
    if is_on()
        && let Some(least) = inodes::least_min_size()
        && !matches!(lookup(descriptor), Known::Managed(_))
    {
        report_if_large(descriptor, least);
    }
}

/// Before the process ends and the kernel closes all.
pub(crate) fn before_end() {
    if is_on() && inodes::least_min_size().is_some() {
        descriptors::range().for_each(before_any_close);
    }
}

/// Whether any close may have to be looked at.
pub(crate) fn is_watched() -> bool {
    is_on() && inodes::least_min_size().is_some()
}

#[cold]
fn report_if_large(descriptor: c_int, least: u64) {
    if descriptor < 0 || !process::owns_tables() {
        return;
    }
    let _errno = process::Errno::keep();
    let Some(_inside) = Inside::enter() else { return };
    // SAFETY: the program's own, which it is about to close; if it is not open, the kernel says so.
    let borrowed = unsafe { borrow(descriptor) };
    let Ok(status) = rustix::fs::fstat(borrowed) else { return };
    let size_bytes = status.st_size as u64;
    let is_candidate = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
        && size_bytes > least
        && status.st_nlink == 1
        && !inodes::holds((status.st_dev, status.st_ino));
    if !is_candidate {
        return;
    }
    let Ok(flags) = rustix::fs::fcntl_getfl(borrowed) else { return };
    if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == OFlags::RDONLY {
        return;
    }
    let mut buffer: capture::PathBuffer = [0; _];
    let length = capture::name_of(borrowed, &mut buffer);
    let path = Path::new(OsStr::from_bytes(&buffer[..length]));
    let Ok(client) = client() else { return };
    if client.min_size_above(path).is_some_and(|(_, min_bytes)| size_bytes > min_bytes)
        && let Err(error) = client.closing(borrowed)
    {
        process::log(Level::Warn, &[&buffer[..length], b" stays an ordinary file: ", error.to_string().as_bytes()]);
    }
}
