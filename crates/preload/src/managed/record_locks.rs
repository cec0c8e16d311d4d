//! Looking at files without dropping the program's record locks.
//!
//! The kernel drops all record locks that a process holds on an inode when the process closes any descriptor of it, of whatever open. So where it holds
//! some, a look that has to open the file is left to a helper: a process with descriptors of its own, which holds no locks.

use super::close_raw;
use crate::process::helper;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CStr;
pub(crate) use stripewise_store::client::record_locks::are_held_on;

/// Does `work`, which opens and closes the file of that inode and leaves nothing in memory behind, in a helper if need be.
pub(crate) fn keeping(inode: u64, work: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
    if are_held_on(inode) { helper::run(work) } else { work() }
}

/// Reads the start of the file of that inode at `path`, which moves no access time where the kernel allows that.
pub(crate) fn read_start(path: &CStr, inode: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
    if !are_held_on(inode) {
        return read(path, bytes);
    }
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    let place = std::ptr::null_mut();
    // SAFETY: a new mapping, which this function alone knows and gives back, shared with the helper, which has ended when it is looked at here.
    unsafe {
        let memory = rustix::mm::mmap_anonymous(place, size_of::<usize>() + bytes.len(), access, flags)?;
        let (length, text) = (memory.cast::<usize>(), memory.cast::<u8>().add(size_of::<usize>()));
        let result = helper::run(|| {
            *length = read(path, std::slice::from_raw_parts_mut(text, bytes.len()))?;
            Ok(())
        });
        let result = result.map(|()| {
            bytes.copy_from_slice(std::slice::from_raw_parts(text, bytes.len()));
            *length
        });
        rustix::mm::munmap(memory, size_of::<usize>() + bytes.len())?;
        result
    }
}

fn read(path: &CStr, bytes: &mut [u8]) -> Result<usize, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |more| rustix::fs::open(path, flags | more, Mode::empty());
    let opened = open(OFlags::NOATIME).or_else(|_| open(OFlags::empty()))?;
    let length = rustix::io::pread(&opened, bytes, 0);
    close_raw(opened);
    length
}
