//! What calls mean on managed files.

pub(crate) mod aio;
pub(crate) mod closing;
mod cookie;
mod cxx;
pub(crate) mod data;
pub(crate) mod exec;
pub(crate) mod extent;
mod failure;
mod foreign;
pub(crate) mod libaio;
pub(crate) mod limit;
pub(crate) mod load;
pub(crate) mod map;
pub(crate) mod names;
pub(crate) mod open;
mod standard;
pub(crate) mod status;
pub(crate) mod stdio;
mod streams;
pub(crate) mod wide;
mod writing;

pub(crate) use crate::managed::record_locks;
pub(crate) use crate::managed::stub::{
    find, is_known, is_stub, may_be_managed, open_file, open_stub, reopen_stub, stub_file, was_removed,
};
pub(crate) use crate::managed::{
    Closing, Open, Pinned, client, close_raw, connected, inodes, is_on, open_of_inode, owns_descriptor,
    with_raised_limit,
};

use crate::borrow::borrow;
use crate::capture;
use crate::descriptors;
use crate::process::{self, Level};
use libc::{c_int, c_uint, c_ulong, c_void};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use stripewise_layout::FileId;
use stripewise_store::file::{FileError, StripedFile};
use stripewise_store::shared::processes::is_used_here;
use stripewise_store::stub::size_may_be_stub;

/// Bytes that a call moved, and where.
pub(crate) struct Moved {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

/// Before the close of a managed file that may be written: says so if something changed the size of its stub past the
/// library, which nothing but a system call of the program's own can do through this descriptor. Returns whether the file has no name any more.
pub(crate) fn check_stub(open: &Open, descriptor: c_int) -> bool {
    let _errno = process::Errno::keep();
    // SAFETY: the program's own, which it is about to close.
    let borrowed = unsafe { borrow(descriptor) };
    let Ok(status) = rustix::fs::fstat(borrowed) else { return false };
    if (status.st_dev, status.st_ino) != open.identity() {
        return false;
    }
    if status.st_nlink > 0
        && !size_may_be_stub(status.st_size as u64)
        && open.file().is_ok_and(StripedFile::is_writable)
    {
        let mut name: capture::PathBuffer = [0; _];
        let length = capture::name_of(borrowed, &mut name);
        let what = b": something wrote over the stub past the library; the data is whole; \
            `stripewise check --repair` restores the stub";
        process::log_once(Level::Warn, &[&name[..length], what]);
    }
    status.st_nlink == 0
}

/// Whether a path leads to a regular file of a stub's size, or to one that is not to be opened at all (`posix::open`).
pub(crate) fn may_be_stub(directory: c_int, path: &CStr) -> bool {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { borrow(directory) };
    rustix::fs::statat(base, path, rustix::fs::AtFlags::empty()).is_ok_and(|status| {
        FileType::from_raw_mode(status.st_mode) == FileType::RegularFile
            && (may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino))
                || is_used_here((status.st_dev, status.st_ino)))
    })
}

/// Whether a file just opened lost its last name after the kernel had looked up its path, because it became managed: what was written to it now would
/// be lost.
pub(crate) fn was_replaced(directory: c_int, path: &CStr, opened: &Stat) -> bool {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { borrow(directory) };
    is_on()
        && rustix::fs::statat(base, path, rustix::fs::AtFlags::empty()).is_ok_and(|found| {
            let identity = (found.st_dev, found.st_ino);
            let may_be_stub = || match inodes::asks_by_text() {
                true => may_be_managed(found.st_size as u64, identity),
                false => inodes::holds(identity),
            };
            identity != (opened.st_dev, opened.st_ino) && may_be_stub()
        })
}

/// A link was made to what `path` leads to: a file without a name may have got one.
pub(crate) fn linked(directory: c_int, path: &CStr) {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { borrow(directory) };
    let Ok(status) = rustix::fs::statat(base, path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) else { return };
    if let Some(open) = open_of_inode((status.st_dev, status.st_ino))
        && open.take_unnamed()
        && let (Ok(file), Some(client)) = (open.file(), connected())
        && let Err(error) = client.linked(file.id())
    {
        process::log(Level::Error, &[path.to_bytes(), b": ", error.to_string().as_bytes()]);
    }
}

/// The file of a managed path, for calls that only look.
pub(crate) fn with_file_at<T>(
    directory: c_int,
    path: &CStr,
    follow: bool,
    then: impl FnOnce(BorrowedFd<'_>, FileId, Option<&StripedFile>) -> T,
) -> Option<T> {
    with_raised_limit(|| find_file_at(directory, path, follow, then))
}

fn find_file_at<T>(
    directory: c_int,
    path: &CStr,
    follow: bool,
    then: impl FnOnce(BorrowedFd<'_>, FileId, Option<&StripedFile>) -> T,
) -> Option<T> {
    let handle = hold(directory, path, follow).ok()?;
    let borrowed = handle.borrow();
    let status = rustix::fs::fstat(borrowed).ok()?;
    if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile
        || !may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino))
    {
        return None;
    }
    if let Some(open) = open_of_inode((status.st_dev, status.st_ino)) {
        let file = open.file().ok()?;
        return Some(then(borrowed, file.id(), Some(file)));
    }
    if record_locks::are_held_on(status.st_ino) {
        // By a descriptor that came through `exec` and that nobody has looked at yet.
        descriptors::identify_all();
        if let Some(open) = open_of_inode((status.st_dev, status.st_ino)) {
            let file = open.file().ok()?;
            return Some(then(borrowed, file.id(), Some(file)));
        }
    }
    let opened = match reopen(borrowed) {
        Ok(opened) => opened,
        Err(Errno::ACCESS) => return find(borrowed).ok()?.map(|file| then(borrowed, file, None)),
        Err(_) => return None,
    };
    let file = stub_file(opened.borrow(), &status).ok()??;
    match open_file(opened.borrow(), file) {
        // Released or removed meanwhile: another file is at the path now, or none.
        Err(error) if was_removed(opened.borrow(), error) => None,
        Ok(striped) => Some(then(borrowed, striped.id(), Some(&striped))),
        Err(_) => Some(then(borrowed, file, None)),
    }
}

/// What a path leads to, held without being opened.
fn hold(directory: c_int, path: &CStr, follow: bool) -> Result<Closing, Errno> {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { borrow(directory) };
    let no_follow = if follow { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::PATH | OFlags::CLOEXEC | no_follow;
    rustix::fs::openat(base, path, flags, rustix::fs::Mode::empty()).map(|handle| Closing(Some(handle)))
}

/// A reading open of the same inode, which moves no access time where the kernel allows that. Closing it drops the record locks that the
/// process holds on the inode: ask [`open_of_inode`] first.
fn reopen(handle: BorrowedFd<'_>) -> Result<Closing, Errno> {
    let link = format!("/proc/self/fd/{}", handle.as_raw_fd());
    let open = |more| rustix::fs::open(&link, OFlags::RDONLY | OFlags::CLOEXEC | more, rustix::fs::Mode::empty());
    open(OFlags::NOATIME).or_else(|_| open(OFlags::empty())).map(|opened| Closing(Some(opened)))
}

/// Why `F_SETFL` cannot have these flags, if it cannot: nobody appends to a file that other hosts use too.
pub(crate) fn refuses_flags(descriptor: c_int, flags: c_int) -> Option<Errno> {
    if flags & libc::O_APPEND == 0 {
        return None;
    }
    let descriptors::Known::Managed(open) = descriptors::lookup(descriptor) else { return None };
    let file = open.file().ok().filter(|file| file.is_shared() && file.is_writable())?;
    Some(failure::failed(&FileError::AppendShared { file: file.id() }))
}

/// `F_SETFL` succeeded.
pub(crate) fn flags_changed(open: &Open, flags: c_int) {
    open.flags_changed(flags);
    if process::owns_tables() {
        descriptors::managed_flags_changed(open.identity());
    }
}

const FICLONE: c_uint = 0x4004_9409;
const FICLONERANGE: c_uint = 0x4020_940d;
const FIDEDUPERANGE: c_uint = 0xc018_9436;
const FIONREAD: c_uint = 0x541b;
const FIBMAP: c_uint = 1;
const FS_IOC_FIEMAP: c_uint = 0xc020_660b;
/// A loop device takes the file of a descriptor, which is the argument or its first field: the kernel would show the stub as a device.
const LOOP_SET_FD: c_uint = 0x4c00;
const LOOP_CHANGE_FD: c_uint = 0x4c06;
const LOOP_CONFIGURE: c_uint = 0x4c0a;
/// The ways to allocate and free space that came from XFS, with offsets of 32 and of 64 bits.
const FS_IOC_RESVSP: c_uint = 0x4030_5828;
const FS_IOC_UNRESVSP: c_uint = 0x4030_5829;
const FS_IOC_RESVSP64: c_uint = 0x4030_582a;
const FS_IOC_UNRESVSP64: c_uint = 0x4030_582b;
const FS_IOC_ZERO_RANGE: c_uint = 0x4030_5839;

/// Whether a request of `ioctl` concerns the bytes of a file. The kernel takes the lower half of the register.
pub(crate) fn concerns_bytes(request: c_ulong) -> bool {
    matches!(
        request as c_uint,
        FICLONE
            | FICLONERANGE
            | FIDEDUPERANGE
            | FIONREAD
            | FIBMAP
            | FS_IOC_FIEMAP
            | LOOP_SET_FD
            | LOOP_CHANGE_FD
            | LOOP_CONFIGURE
            | FS_IOC_RESVSP
            | FS_IOC_UNRESVSP
            | FS_IOC_RESVSP64
            | FS_IOC_UNRESVSP64
            | FS_IOC_ZERO_RANGE
    )
}

/// As of a file that is none a device can be made of.
fn refuse_loop_device(file: c_int) -> Option<Result<(), Errno>> {
    use descriptors::{Known, lookup};
    if !matches!(lookup(file), Known::Managed(_) | Known::OfChild) {
        return None;
    }
    let mut name: capture::PathBuffer = [0; _];
    // SAFETY: the program's own descriptor, which was found open.
    let length = capture::name_of(unsafe { borrow(file) }, &mut name);
    let what = b": a loop device would show the stub of this managed file; make the device of the file's path on a mount (`stripewise mount`)";
    process::log_once(Level::Error, &[&name[..length], what]);
    Some(Err(Errno::INVAL))
}

/// An `ioctl` that [`concerns_bytes`]; none when no managed file is meant.
///
/// # Safety
/// `argument` is what the request asks for.
pub(crate) unsafe fn control(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> Option<Result<(), Errno>> {
    use descriptors::{Known, lookup};
    let managed = |descriptor| match lookup(descriptor) {
        Known::Managed(open) => Some(open),
        _ => None,
    };
    if matches!(lookup(descriptor), Known::OfChild) {
        return Some(Err(Errno::OPNOTSUPP));
    }
    let request = request as c_uint;
    match request {
        // The stub's extents are not the file's: as a file system that has no such call says it.
        FIBMAP => managed(descriptor).map(|_| Err(Errno::INVAL)),
        FS_IOC_FIEMAP | FS_IOC_RESVSP | FS_IOC_UNRESVSP | FS_IOC_RESVSP64 | FS_IOC_UNRESVSP64 | FS_IOC_ZERO_RANGE => {
            managed(descriptor).map(|_| Err(Errno::OPNOTSUPP))
        }
        LOOP_SET_FD | LOOP_CHANGE_FD => refuse_loop_device(argument as usize as c_int),
        // SAFETY: a `loop_config` starts with the file's descriptor, 32 bits wide.
        LOOP_CONFIGURE if !argument.is_null() => refuse_loop_device(unsafe { *argument.cast::<c_int>() }),
        LOOP_CONFIGURE => None,
        // The source is the argument itself, or its first field.
        FICLONE => (managed(descriptor).is_some() || managed(argument as usize as c_int).is_some())
            .then_some(Err(Errno::OPNOTSUPP)),
        FICLONERANGE | FIDEDUPERANGE => {
            let source = if request == FICLONERANGE && !argument.is_null() {
                // SAFETY: a `file_clone_range` starts with the source's descriptor, 64 bits wide.
                (unsafe { *argument.cast::<i64>() }) as c_int
            } else {
                -1
            };
            (managed(descriptor).is_some() || managed(source).is_some()).then_some(Err(Errno::OPNOTSUPP))
        }
        _ => managed(descriptor).map(|open| {
            // SAFETY: the program's descriptor.
            let position = rustix::fs::tell(unsafe { borrow(descriptor) })?;
            let size_bytes = open.file()?.latest_size_bytes().map_err(|error| failure::failed(&error))?;
            let left = size_bytes.saturating_sub(position);
            // SAFETY: FIONREAD wants an int.
            unsafe { *argument.cast::<c_int>() = c_int::try_from(left).unwrap_or(c_int::MAX) };
            Ok(())
        }),
    }
}
