//! Opens for writing of what is held by another descriptor.

use super::{Closing, client, record_locks, with_raised_limit};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use stripewise_layout::FileId;
use stripewise_store::errno::ToErrno;
use stripewise_store::file::StripedFile;

/// Opens the managed file of a stub for writing, for the time of `work`.
pub(super) fn with_open_for_writing(
    stub: BorrowedFd<'_>,
    file: FileId,
    work: impl FnOnce(&StripedFile) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let inode = rustix::fs::fstat(stub)?.st_ino;
    record_locks::keeping(inode, || {
        let writing = for_writing(stub, OFlags::empty())?;
        let striped = with_raised_limit(|| client()?.open(writing.borrow(), file).map_err(|error| error.errno()))?;
        work(&striped)
    })
}
/// What is open only for reading, for writing as well, if this process might write it.
pub(crate) fn for_writing(descriptor: BorrowedFd<'_>, flags: OFlags) -> Result<Closing, Errno> {
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    Ok(Closing(Some(rustix::fs::open(link, flags | OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)))
}
