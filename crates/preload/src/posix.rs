//! The wrappers of libc's calls, by kind. Each looks up its descriptor (or path), and then calls libc, or libc
//! between two readings of the clock, or [`crate::redirect`].

pub(crate) mod aio;
mod data;
mod descriptor;
mod exec;
mod extent;
mod kernel;
mod libaio;
mod load;
mod map;
mod names;
mod number;
mod open;
mod rings;
mod spawn;
mod status;
pub(crate) mod stdio;
mod walk;
mod wide;

use crate::capture;
use crate::process;
use crate::redirect::{Moved, Pinned};
use rustix::io::Errno;
use std::ffi::c_int;
use stripewise_capture::call::Call;
use stripewise_capture::format::NO_OFFSET;
use stripewise_layout::FileOffset;

/// Runs a data call with `RWF_*` flags (0: none) on a managed file, records it if the program is captured, and answers as libc would.
#[inline]
fn managed_data(call: Call, open: &Pinned, call_flags: c_int, run: impl FnOnce() -> Result<Moved, Errno>) -> isize {
    let start = capture::now();
    let result = run();
    if let Some(key) = open.captured() {
        let (offset, bytes, errno) = match &result {
            Ok(moved) => (FileOffset(moved.offset), moved.bytes as u64, 0),
            Err(errno) => (NO_OFFSET, 0, errno.raw_os_error() as u32),
        };
        capture::event_with(call, key.with_call_flags(call_flags), offset, bytes, start, errno);
    }
    match result {
        Ok(moved) => moved.bytes as isize,
        Err(errno) => process::fail(errno) as isize,
    }
}

/// As [`managed_data`], for calls that answer 0 or -1.
fn managed_unit(
    call: Call,
    open: &Pinned,
    offset: FileOffset,
    bytes: u64,
    run: impl FnOnce() -> Result<(), Errno>,
) -> c_int {
    let start = capture::now();
    let result = run();
    if let Some(key) = open.captured() {
        let errno = result.as_ref().err().map_or(0, |errno| errno.raw_os_error() as u32);
        capture::event_with(call, key, offset, bytes, start, errno);
    }
    match result {
        Ok(()) => 0,
        Err(errno) => process::fail(errno),
    }
}

pub(crate) use open::open_for_stream;
