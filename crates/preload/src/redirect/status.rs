//! What `stat` and `statfs` say of managed files.
//!
//! Mode, owner, inode, links and access time are the stub's; size and blocks are the data's; the modification time is
//! that of the last write, unless it was set by hand afterwards. The change time is not before the modification time.

use super::with_file_at;
use crate::descriptors::{Known, look};
use libc::{c_char, c_int};
use std::ffi::CStr;
use stripewise_store::file::{FileStatus, StripedFile};
use stripewise_store::stub::size_may_be_stub;

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

fn with_file<T>(of: Of, then: impl FnOnce(&StripedFile) -> T) -> Option<T> {
    match of {
        Of::Descriptor(descriptor) => match look(descriptor) {
            Known::Managed(open) => open.file().ok().map(then),
            // An O_PATH descriptor, which is in no table: by its name in /proc.
            _ => {
                let link = std::ffi::CString::new(format!("/proc/self/fd/{descriptor}")).ok()?;
                with_file_at(libc::AT_FDCWD, &link, true, |_, _, file| file.map(then)).flatten()
            }
        },
        Of::Path(directory, path, follow) => {
            // SAFETY: the program's string.
            let path = unsafe { CStr::from_ptr(path) };
            with_file_at(directory, path, follow, |_, _, file| file.map(then)).flatten()
        }
    }
}

/// The status of an inode of a stub's size.
fn status(of: Of) -> Option<FileStatus> {
    // Blocks are counted on the objects, which may have to be opened.
    let count = |file: &StripedFile| super::with_room(|| file.status());
    with_file(of, |file| count(file).map_err(|error| super::data::failed(&error)).ok()).unwrap_or_else(|| unread(of))
}

/// As [`status`], where the stub may be looked at but not read: the broker tells.
fn unread(of: Of) -> Option<FileStatus> {
    use rustix::fs::{Access, AtFlags, Mode, OFlags};
    if !super::is_on() {
        return None;
    }
    let (directory, path, follow) = match of {
        Of::Descriptor(descriptor) => (descriptor, c"", AtFlags::EMPTY_PATH),
        Of::Path(directory, path, follow) => {
            let no_follow = if follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            // SAFETY: the program's string.
            (directory, unsafe { CStr::from_ptr(path) }, no_follow)
        }
    };
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { rustix::fd::BorrowedFd::borrow_raw(directory) };
    let ask = |stub: rustix::fd::BorrowedFd<'_>| super::client().ok()?.status_unread(stub).ok().flatten();
    if path.is_empty() {
        let is_path = rustix::fs::fcntl_getfl(base).is_ok_and(|flags| flags.contains(OFlags::PATH));
        return if is_path { ask(base) } else { None };
    }
    if rustix::fs::accessat(base, path, Access::READ_OK, follow | AtFlags::EACCESS) != Err(rustix::io::Errno::ACCESS) {
        return None;
    }
    let no_follow = if follow.is_empty() { OFlags::empty() } else { OFlags::NOFOLLOW };
    let handle = rustix::fs::openat(base, path, OFlags::PATH | OFlags::CLOEXEC | no_follow, Mode::empty()).ok()?;
    ask(super::Closing(Some(handle)).borrow())
}

pub(crate) fn is_managed(of: Of) -> bool {
    with_file(of, |_| ()).is_some()
}

/// Puts the data's size, blocks and times into an answer about a stub.
pub(crate) fn correct(answer: &mut libc::stat, of: Of) {
    if answer.st_mode & libc::S_IFMT != libc::S_IFREG || !size_may_be_stub(answer.st_size as u64) {
        return;
    }
    let Some(status) = status(of) else { return };
    answer.st_size = status.size_bytes as i64;
    answer.st_blocks = status.blocks_512 as i64;
    if let Some(modified) = status.modified_ns {
        let modified = ((modified / 1_000_000_000) as i64, (modified % 1_000_000_000) as i64);
        (answer.st_mtime, answer.st_mtime_nsec) = modified;
        if (answer.st_ctime, answer.st_ctime_nsec) < modified {
            (answer.st_ctime, answer.st_ctime_nsec) = modified;
        }
    }
}

/// As [`correct`], of `statx`.
pub(crate) fn correct_extended(answer: &mut libc::statx, of: Of) {
    if answer.stx_mask & libc::STATX_TYPE != 0 && u32::from(answer.stx_mode) & libc::S_IFMT != libc::S_IFREG {
        return;
    }
    if answer.stx_mask & libc::STATX_SIZE != 0 && !size_may_be_stub(answer.stx_size) {
        return;
    }
    let Some(status) = status(of) else { return };
    answer.stx_size = status.size_bytes;
    answer.stx_blocks = status.blocks_512;
    if let Some(modified) = status.modified_ns {
        let modified = ((modified / 1_000_000_000) as i64, (modified % 1_000_000_000) as u32);
        (answer.stx_mtime.tv_sec, answer.stx_mtime.tv_nsec) = modified;
        if (answer.stx_ctime.tv_sec, answer.stx_ctime.tv_nsec) < modified {
            (answer.stx_ctime.tv_sec, answer.stx_ctime.tv_nsec) = modified;
        }
    }
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
