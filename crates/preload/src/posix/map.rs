//! Mapping files into memory.
//!
//! What a program then reads and writes there passes no call, so it cannot be recorded: the mapping itself is, with
//! its place and length.

use crate::capture;
use crate::descriptors::{Known, lookup};
use crate::process;
use crate::real::interpose;
use crate::redirect::map as redirected;
use libc::{c_int, c_void, off_t, size_t};
use rustix::io::Errno;
use stripewise_capture::call::Call;
use stripewise_layout::FileOffset;

interpose! {
    fn mmap[mmap64] (
        address: *mut c_void, length: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off_t,
    ) -> *mut c_void |real| {
        if flags & libc::MAP_ANONYMOUS != 0 {
            return real(address, length, protection, flags, fd, offset);
        }
        match lookup(fd) {
            Known::Plain => real(address, length, protection, flags, fd, offset),
            Known::OfChild => {
                process::fail(rustix::io::Errno::NODEV);
                libc::MAP_FAILED
            }
            Known::Captured(key) => {
                let start = capture::now();
                let result = real(address, length, protection, flags, fd, offset);
                let failed = if result == libc::MAP_FAILED { -1 } else { 0 };
                capture::event(Call::Mmap, key, FileOffset(offset as u64), length as u64, start, failed);
                result
            }
            Known::Managed(open) => {
                let start = capture::now();
                let result = redirected::map(&open, real, address, length, protection, flags, offset);
                if let Some(key) = open.captured() {
                    let errno = result.as_ref().err().map_or(0, |errno| errno.raw_os_error() as u32);
                    capture::event_with(Call::Mmap, key, FileOffset(offset as u64), length as u64, start, errno);
                }
                result.unwrap_or_else(|errno| {
                    process::fail(errno);
                    libc::MAP_FAILED
                })
            }
        }
    }

    /// A copy that grew would show zeros, or raise SIGBUS, where a mapping of the file shows what follows.
    fn mremap[] (
        address: *mut c_void, length: size_t, wanted: size_t, flags: c_int, to: *mut c_void,
    ) -> *mut c_void |real| {
        if wanted > length && redirected::is_copy(address) {
            process::fail(Errno::NOMEM);
            return libc::MAP_FAILED;
        }
        real(address, length, wanted, flags, to)
    }
}
