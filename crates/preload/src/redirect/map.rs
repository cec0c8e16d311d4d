//! Mapping managed files: a filled copy, never the stub.
//!
//! The bytes lie in a memory file. A shared mapping by a descriptor that may write is refused with ENODEV, as by file
//! systems without mapping: written to, it would need the data's pages themselves, and if it only reads, its program
//! expects to see there what it writes by calls (LMDB, SQLite). One by a descriptor that only reads is of a descriptor of
//! the memory file that only reads, so that `mprotect` cannot make it writable later. A copy does not see later writes,
//! and beyond the end it is zero where a file would raise SIGBUS. It has no bytes to grow by, so it does not grow; it is
//! known by its name in `/proc`.
//!
//! The memory that the program gets is mapped by the function behind ours, so that a library that patched it to watch
//! mappings (UCX) sees this one.

use super::failure::failed;
use super::{Closing, Open};
use crate::process::{self, Inside};
use libc::{c_int, c_void};
use rustix::fd::AsRawFd;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::CStr;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::FileOffset;
use stripewise_store::file::StripedFile;
use stripewise_store::size_limit::with_size;

/// `/proc/self/maps` calls a copy `/memfd:NAME`.
const NAME: &CStr = c"stripewise-copy";

/// Whether this process, or one that it was forked from, ever mapped a managed file.
static MAPPED: AtomicBool = AtomicBool::new(false);

/// Whether a copy of a managed file is mapped at an address.
pub(crate) fn is_copy(address: *const c_void) -> bool {
    if !MAPPED.load(Ordering::Relaxed) {
        return false;
    }
    let _errno = process::Errno::keep();
    let _inside = Inside::enter();
    maps().is_ok_and(|text| {
        text.split(|byte| *byte == b'\n').any(|line| {
            let text = String::from_utf8_lossy(line);
            let range = text.split(' ').next().and_then(|range| range.split_once('-'));
            let number = |hexadecimal| usize::from_str_radix(hexadecimal, 16).unwrap_or(0);
            range.is_some_and(|(start, end)| (number(start)..number(end)).contains(&address.addr()))
                && text.contains("/memfd:stripewise-copy")
        })
    })
}

fn maps() -> Result<Vec<u8>, Errno> {
    let file = rustix::fs::open(c"/proc/self/maps", OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?;
    let file = Closing(Some(file));
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(file.borrow(), &mut part)? {
            0 => return Ok(text),
            bytes => text.extend_from_slice(&part[..bytes]),
        }
    }
}

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
    let kind = match flags & libc::MAP_TYPE {
        libc::MAP_PRIVATE => libc::MAP_PRIVATE,
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE if protection & libc::PROT_WRITE != 0 || file.is_writable() => {
            return Err(Errno::NODEV);
        }
        libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => libc::MAP_SHARED,
        _ => return Err(Errno::INVAL),
    };
    let kept = flags & !(libc::MAP_TYPE | libc::MAP_POPULATE | libc::MAP_LOCKED);
    let copy = super::with_raised_limit(|| {
        let copy = copy(file, length, offset)?;
        if kind == libc::MAP_SHARED { for_reading(&copy) } else { Ok(copy) }
    })?;
    MAPPED.store(true, Ordering::Relaxed);
    // A hook that comes back by `syscall` must not enter our descriptor in the table.
    let _inside = Inside::enter();
    // SAFETY: the caller's promise.
    unsafe { checked(real(address, length, protection, kept | kind, copy.borrow().as_raw_fd(), 0)) }
}

/// A memory file with `length` bytes of the file from `offset` on.
fn copy(file: &StripedFile, length: usize, offset: u64) -> Result<Closing, Errno> {
    let copy = Closing(Some(rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC)?));
    // The kernel holds the program's limit on the size of files against memory files, too.
    with_size(length as u64, || rustix::fs::ftruncate(copy.borrow(), length as u64))?;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a mapping of our own at the kernel's choice, gone before this returns.
    unsafe {
        let scratch = rustix::mm::mmap(std::ptr::null_mut(), length, both, MapFlags::SHARED, copy.borrow(), 0)?;
        let filled = fill(file, scratch, length, offset);
        rustix::mm::munmap(scratch, length)?;
        filled?;
    }
    Ok(copy)
}

fn for_reading(copy: &Closing) -> Result<Closing, Errno> {
    let link = format!("/proc/self/fd/{}", copy.borrow().as_raw_fd());
    Ok(Closing(Some(rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?)))
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
