//! Mapping managed files: a filled copy, never the stub.
//!
//! A private mapping is anonymous memory with the file's bytes; a shared one that only reads is a sealed copy in a
//! memory file opened for reading, so that `mprotect` cannot make it writable later. A shared writable one would need
//! the data's pages themselves: it is refused with ENODEV, as by file systems without mapping. A copy does not see
//! later writes, and beyond the end it is zero where a file would raise SIGBUS.
//!
//! The memory that the program gets is mapped by the function behind ours, so that a library that patched it to watch
//! mappings (UCX) sees this one.

use super::Open;
use super::data::failed;
use crate::process::{self, Inside};
use libc::{c_int, c_void};
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use std::io::IoSliceMut;
use stripewise_layout::FileOffset;
use stripewise_store::file::StripedFile;

/// The function behind ours.
type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

/// # Safety
/// As `mmap`: with `MAP_FIXED` the program gives up what was at `address`.
pub(crate) unsafe fn map(
    open: &Open,
    real: Map,
    address: *mut c_void,
    length: usize,
    protection: c_int,
    flags: c_int,
    offset: i64,
) -> Result<*mut c_void, Errno> {
    let file = open.file()?;
    let offset = u64::try_from(offset).ok().filter(|offset| offset.is_multiple_of(4096)).ok_or(Errno::INVAL)?;
    if length == 0 {
        return Err(Errno::INVAL);
    }
    if !open.is_readable() {
        return Err(Errno::ACCESS);
    }
    let kind = flags & libc::MAP_TYPE;
    let kept = flags & !(libc::MAP_TYPE | libc::MAP_POPULATE | libc::MAP_LOCKED);
    let wanted = ProtFlags::from_bits_retain(protection as u32);
    match kind {
        libc::MAP_PRIVATE => {
            // SAFETY: the caller's promise; filled before the program knows of it.
            unsafe {
                let (both, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let memory = checked(real(address, length, both, kept | kind, -1, 0))?;
                let filled = fill(file, memory, length, offset).and_then(|()| {
                    rustix::mm::mprotect(memory, length, MprotectFlags::from_bits_retain(wanted.bits()))
                });
                if let Err(errno) = filled {
                    let _ = rustix::mm::munmap(memory, length);
                    return Err(errno);
                }
                Ok(memory)
            }
        }
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE if wanted.contains(ProtFlags::WRITE) => Err(Errno::NODEV),
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => {
            // SAFETY: as above.
            unsafe { map_sealed(file, real, address, length, protection, kept, offset) }
        }
        _ => Err(Errno::INVAL),
    }
}

/// # Safety
/// As [`map`].
unsafe fn map_sealed(
    file: &StripedFile,
    real: Map,
    address: *mut c_void,
    length: usize,
    protection: c_int,
    kept: c_int,
    offset: u64,
) -> Result<*mut c_void, Errno> {
    use rustix::fd::AsRawFd;
    let memory_file = super::Closing(Some(rustix::fs::memfd_create(c"stripewise-copy", MemfdFlags::CLOEXEC)?));
    rustix::fs::ftruncate(memory_file.borrow(), length as u64)?;
    // SAFETY: a mapping of our own at the kernel's choice, gone before this returns.
    unsafe {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let scratch = rustix::mm::mmap(std::ptr::null_mut(), length, both, MapFlags::SHARED, memory_file.borrow(), 0)?;
        let filled = fill(file, scratch, length, offset);
        rustix::mm::munmap(scratch, length)?;
        filled?;
    }
    let link = format!("/proc/self/fd/{}", memory_file.borrow().as_raw_fd());
    let reading =
        super::Closing(Some(rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?));
    // A hook that comes back by `syscall` must not enter our descriptor in the table.
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe { checked(real(address, length, protection, kept | libc::MAP_SHARED, reading.borrow().as_raw_fd(), 0)) }
}

fn checked(memory: *mut c_void) -> Result<*mut c_void, Errno> {
    if memory == libc::MAP_FAILED { Err(Errno::from_raw_os_error(process::errno())) } else { Ok(memory) }
}

/// # Safety
/// `memory` is `length` writable bytes that nobody else uses.
unsafe fn fill(file: &StripedFile, memory: *mut c_void, length: usize, offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < length {
        // SAFETY: the caller's promise.
        let rest = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>().add(done), length - done) };
        let place = FileOffset(offset + done as u64);
        match file.read_at(place, &mut [IoSliceMut::new(rest)]).map_err(|error| failed(&error))? {
            0 => break,
            bytes => done += bytes,
        }
    }
    Ok(())
}
