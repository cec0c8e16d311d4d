//! Size, room and durability of managed files.

use super::failure::failed;
use super::{Open, client};
use crate::process::{self, Level};
use libc::{c_int, c_uint};
use rustix::io::Errno;
use stripewise_layout::FileOffset;
use stripewise_store::file::SpaceChange;
use stripewise_store::protocol::Request;

/// `fsync`, or `fdatasync`.
pub(crate) fn sync(open: &Open, data_only: bool) -> Result<(), Errno> {
    open.file()?.sync(data_only).map_err(|error| failed(&error))
}

/// What the kernel's `sync` lacks for managed files. It answers no error, so a fault is logged.
pub(crate) fn before_sync_of_all() {
    let _errno = process::Errno::keep();
    // A process that cannot connect has said why.
    let Ok(client) = client() else { return };
    if let Err(error) = client.request(&Request::SyncAll, &[]) {
        process::log(
            Level::Error,
            &[b"sync: not all of the managed files may be durable: ", error.to_string().as_bytes()],
        );
    }
}

/// Promises more than `sync_file_range` does: all of the file.
pub(crate) fn sync_range(open: &Open, offset: i64, bytes: i64, flags: c_uint) -> Result<(), Errno> {
    if offset < 0 || bytes < 0 || offset.checked_add(bytes).is_none() || flags > 7 {
        return Err(Errno::INVAL);
    }
    sync(open, true)
}

pub(crate) fn truncate(open: &Open, length: i64) -> Result<(), Errno> {
    let file = open.file()?;
    let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
    if !file.is_writable() {
        return Err(Errno::INVAL);
    }
    super::limit::check_size(length)?;
    file.truncate(length).map_err(|error| failed(&error))
}

/// Allocation, with or without a longer file, and zeros. Ranges cannot be moved.
pub(crate) fn allocate(open: &Open, mode: c_int, offset: i64, bytes: i64) -> Result<(), Errno> {
    let file = open.file()?;
    let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0).ok_or(Errno::INVAL)?;
    if !file.is_writable() {
        return Err(Errno::BADF);
    }
    if offset.checked_add(bytes).is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(Errno::FBIG);
    }
    super::limit::check_size(offset + bytes)?;
    let change = SpaceChange::of_mode(mode).ok_or(Errno::OPNOTSUPP)?;
    file.change_space(change, FileOffset(offset), bytes).map_err(|error| failed(&error))
}
