//! What `stat` and `statfs` say of managed files.
//!
//! Mode, owner, inode, links and access time are the stub's; size and blocks are the data's; the modification time is
//! that of the last write, unless it was set by hand afterwards. The change time is not before the modification time.
//!
//! Size and blocks come from shared memory where the file is open, else from the broker, which asks no server either. Where
//! neither can be had, the call fails: a program that trusted the stub's own size would cut its file to that.

use super::with_file_at;
use crate::borrow::borrow;
use crate::descriptors::{self, Known, lookup};
use libc::{c_char, c_int};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use stripewise_store::client::Lookup;
use stripewise_store::file::StripedFile;
use stripewise_store::protocol::FileStatus;
use stripewise_store::shared::inodes::ClosedStatus;

/// What a status was asked of.
#[derive(Clone, Copy)]
pub(crate) enum Of {
    Path(c_int, *const c_char, bool),
    Descriptor(c_int),
}

impl Of {
    /// A path in a directory; an empty or null one means the directory's descriptor itself (`AT_EMPTY_PATH`).
    pub(crate) fn at(directory: c_int, path: *const c_char, follow: bool) -> Self {
        // SAFETY: null, or the program's string, which the kernel has just read.
        let is_empty = path.is_null() || unsafe { *path } == 0;
        if is_empty { Self::Descriptor(directory) } else { Self::Path(directory, path, follow) }
    }
}

/// What stands behind an answer of a stub's size.
enum Behind {
    /// A file that only happens to have that size.
    Ordinary,
    Data(FileStatus),
    /// Another inode, or none, is there by now: libc has to be asked again.
    Changed,
    /// A stub whose data's size is out of reach. Its own size is nobody's.
    Fault(Errno),
}

fn behind(of: Of, identity: (u64, u64)) -> Behind {
    match of {
        Of::Descriptor(descriptor) => {
            // SAFETY: the program's descriptor, of the call under way.
            let stub = unsafe { borrow(descriptor) };
            match lookup(descriptor) {
                Known::Managed(open) => match open.file() {
                    Ok(file) => of_open(file),
                    Err(refusal) => reported_by_broker(stub, Some(refusal)),
                },
                // One of `O_PATH` is in no table; others may not have been looked at yet.
                _ if descriptors::is_undecided(descriptor)
                    || rustix::fs::fcntl_getfl(stub).is_ok_and(|flags| flags.contains(OFlags::PATH)) =>
                {
                    behind_handle(stub)
                }
                _ => Behind::Ordinary,
            }
        }
        Of::Path(directory, path, follow) => {
            // SAFETY: the program's string.
            let path = unsafe { CStr::from_ptr(path) };
            if let Some(status) = closed_status(directory, path, follow, identity) {
                return Behind::Data(status);
            }
            let handle = match super::hold(directory, path, follow) {
                Ok(handle) => handle,
                Err(Errno::NFILE | Errno::NOMEM) => return Behind::Fault(Errno::IO),
                Err(_) => return Behind::Changed,
            };
            match rustix::fs::fstat(handle.borrow()) {
                Ok(found) if (found.st_dev, found.st_ino) == identity => {}
                _ => return Behind::Changed,
            }
            match behind_handle(handle.borrow()) {
                // Removed since, with its data: then there was none.
                Behind::Fault(_) if rustix::fs::fstat(handle.borrow()).is_ok_and(|found| found.st_nlink == 0) => {
                    Behind::Changed
                }
                found => found,
            }
        }
    }
}

/// Of a file that this process has open.
fn of_open(file: &StripedFile) -> Behind {
    file.status().map_or_else(|error| Behind::Fault(super::failure::failed(&error)), Behind::Data)
}

/// By shared memory, of a file that nobody has open.
fn closed_status(directory: c_int, path: &CStr, follow: bool, identity: (u64, u64)) -> Option<FileStatus> {
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { borrow(directory) };
    let flags = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let ClosedStatus { size_bytes, blocks_512, .. } = closed(base, path, flags, identity)?;
    Some(FileStatus { size_bytes, blocks_512, modified_ns: None })
}

/// What the broker says of the file of this device and inode that stands at the path, if nobody has it open.
pub(super) fn closed(base: BorrowedFd<'_>, path: &CStr, flags: AtFlags, identity: (u64, u64)) -> Option<ClosedStatus> {
    let closed = super::inodes::status(identity)?;
    // A broker has answered this process, so the table is not that of an earlier boot, whose sizes may be gone.
    super::client().ok()?;
    closed.is_of(base, path, flags, identity).then_some(closed)
}

/// Of an inode that may be a stub's, held and not open.
fn behind_handle(handle: BorrowedFd<'_>) -> Behind {
    let Ok(found) = rustix::fs::fstat(handle) else { return Behind::Fault(Errno::IO) };
    if let Some(open) = super::open_of_inode((found.st_dev, found.st_ino))
        && let Ok(file) = open.file()
    {
        return of_open(file);
    }
    // A stub whose text is another's, or none; the broker knows.
    if super::inodes::holds((found.st_dev, found.st_ino)) {
        return reported_by_broker(handle, None);
    }
    match super::reopen_stub(handle) {
        Ok(None) => Behind::Ordinary,
        // Another cluster's text, or a damaged one, may still stand in a stub of ours: the inode counts.
        Ok(Some(_)) | Err(Errno::IO) => reported_by_broker(handle, Some(Errno::IO)),
        // Not to be read: only the broker knows whether it is one.
        Err(Errno::ACCESS | Errno::PERM) => reported_by_broker(handle, None),
        Err(_) => Behind::Fault(Errno::IO),
    }
}

/// By the broker's records and shared memory, which no server's absence touches. `is_stub`: that it is one, and the errno if the broker does not know it.
fn reported_by_broker(inode: BorrowedFd<'_>, is_stub: Option<Errno>) -> Behind {
    match super::client().and_then(|client| client.lookup(inode).map_err(|error| super::failure::out_of_reach(&error)))
    {
        Ok(Lookup::Data(status)) => Behind::Data(status),
        Ok(Lookup::Copy(_)) => Behind::Fault(Errno::STALE),
        Ok(Lookup::NoStub) => is_stub.map_or(Behind::Ordinary, Behind::Fault),
        Err(_) => Behind::Fault(Errno::IO),
    }
}

pub(crate) fn is_managed(of: Of) -> bool {
    match of {
        Of::Descriptor(descriptor) if matches!(lookup(descriptor), Known::Managed(_) | Known::OfChild) => true,
        // An O_PATH descriptor, which is in no table: by its name in /proc.
        Of::Descriptor(descriptor) => std::ffi::CString::new(format!("/proc/self/fd/{descriptor}"))
            .is_ok_and(|link| with_file_at(libc::AT_FDCWD, &link, true, |_, _, _| ()).is_some()),
        Of::Path(directory, path, follow) => {
            // SAFETY: the program's string.
            let path = unsafe { CStr::from_ptr(path) };
            with_file_at(directory, path, follow, |_, _, _| ()).is_some()
        }
    }
}

/// What is to be done with libc's answer.
#[must_use]
pub(crate) enum Corrected {
    /// It is the program's, with the data's size where there is data.
    Done,
    /// Ask libc again.
    Again,
    Fault(Errno),
}

fn apply(found: Behind, set: impl FnOnce(FileStatus)) -> Corrected {
    match found {
        Behind::Ordinary => {}
        Behind::Data(status) => set(status),
        Behind::Changed => return Corrected::Again,
        Behind::Fault(errno) => return Corrected::Fault(errno),
    }
    Corrected::Done
}

/// Puts the data's size, blocks and times into an answer about a stub.
pub(crate) fn correct(answer: &mut libc::stat, of: Of) -> Corrected {
    if answer.st_mode & libc::S_IFMT != libc::S_IFREG
        || !super::may_be_managed(answer.st_size as u64, (answer.st_dev, answer.st_ino))
    {
        return Corrected::Done;
    }
    let found = super::with_raised_limit(|| behind(of, (answer.st_dev, answer.st_ino)));
    apply(found, |status| {
        answer.st_size = status.size_bytes as i64;
        answer.st_blocks = status.blocks_512 as i64;
        if let Some(modified) = status.modified_ns {
            let modified = ((modified / 1_000_000_000) as i64, (modified % 1_000_000_000) as i64);
            (answer.st_mtime, answer.st_mtime_nsec) = modified;
            if (answer.st_ctime, answer.st_ctime_nsec) < modified {
                (answer.st_ctime, answer.st_ctime_nsec) = modified;
            }
        }
    })
}

/// As [`correct`], of `statx`; `asked`: the fields that the program wants.
pub(crate) fn correct_extended(answer: &mut libc::statx, asked: u32, of: Of) -> Corrected {
    if answer.stx_mask & libc::STATX_TYPE != 0 && u32::from(answer.stx_mode) & libc::S_IFMT != libc::S_IFREG {
        return Corrected::Done;
    }
    let identity = (rustix::fs::makedev(answer.stx_dev_major, answer.stx_dev_minor), answer.stx_ino);
    if answer.stx_mask & libc::STATX_SIZE != 0 && !super::may_be_managed(answer.stx_size, identity) {
        return Corrected::Done;
    }
    let found = super::with_raised_limit(|| behind(of, identity));
    const OF_DATA: u32 = libc::STATX_SIZE | libc::STATX_BLOCKS;
    if matches!(found, Behind::Fault(_)) && asked & (OF_DATA | libc::STATX_MTIME | libc::STATX_CTIME) == 0 {
        // The kernel answers more than it is asked for.
        answer.stx_mask &= !OF_DATA;
        (answer.stx_size, answer.stx_blocks) = (0, 0);
        return Corrected::Done;
    }
    apply(found, |status| {
        answer.stx_size = status.size_bytes;
        answer.stx_blocks = status.blocks_512;
        // The stub's file system may keep a write whole; several servers do not.
        answer.stx_mask &= !libc::STATX_WRITE_ATOMIC;
        answer.stx_attributes &= !(libc::STATX_ATTR_WRITE_ATOMIC as u64);
        (answer.stx_atomic_write_unit_min, answer.stx_atomic_write_unit_max) = (0, 0);
        answer.stx_atomic_write_segments_max = 0;
        if let Some(modified) = status.modified_ns {
            let modified = ((modified / 1_000_000_000) as i64, (modified % 1_000_000_000) as u32);
            (answer.stx_mtime.tv_sec, answer.stx_mtime.tv_nsec) = modified;
            if (answer.stx_ctime.tv_sec, answer.stx_ctime.tv_nsec) < modified {
                (answer.stx_ctime.tv_sec, answer.stx_ctime.tv_nsec) = modified;
            }
        }
    })
}

/// ext4's: a type that makes no library choose a driver of its own.
pub(crate) const LOCAL_TYPE: libc::__fsword_t = 0xef53;

/// File systems for which ROMIO has a driver: Lustre, NFS, PVFS2, GPFS, PanFS, BeeGFS, DAOS.
pub(crate) fn is_parallel(kind: libc::__fsword_t) -> bool {
    matches!(
        kind & 0xffff_ffff,
        0x0bd0_0bd0 | 0x6969 | 0x2003_0528 | 0x4750_4653 | 0xaad7_aaea | 0x1983_0326 | 0xda05_ad10
    )
}
