//! Names of managed files going away, and changes of mode, owner and times.

use super::data::failed;
use super::{Closing, Open, client, is_on, open_of_inode, with_file_at};
use crate::process::{self, Level};
use libc::{c_char, c_int, timespec};
use rustix::fd::BorrowedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::CStr;
use stripewise_layout::FileId;
use stripewise_store::errno::ToErrno;

/// What changed of a stub.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// Mode or owner: the objects take them over.
    Attributes,
    /// Times, the modification time among them: the stub's holds from now on.
    Times,
    /// Nothing that concerns the data.
    Nothing,
}

/// Whether a `utimensat` sets the modification time.
pub(crate) fn of_times(times: *const timespec) -> Change {
    const UTIME_OMIT: i64 = (1 << 30) - 2;
    // SAFETY: null, or the program's two times.
    let omitted = !times.is_null() && unsafe { (*times.add(1)).tv_nsec } == UTIME_OMIT;
    if omitted { Change::Nothing } else { Change::Times }
}

/// A managed file whose name is about to go: held by its inode.
pub(crate) struct Victim {
    handle: Closing,
    file: FileId,
}

/// What a name leads to, if to a stub (links are not followed).
pub(crate) fn victim(directory: c_int, path: *const c_char) -> Option<Victim> {
    if !is_on() {
        return None;
    }
    // SAFETY: the program's string.
    let path = unsafe { CStr::from_ptr(path) };
    with_file_at(directory, path, false, |handle, file, _| {
        let kept = rustix::io::fcntl_dupfd_cloexec(handle, crate::descriptors::FLOOR).ok()?;
        Some(Victim { handle: Closing(Some(kept)), file })
    })
    .flatten()
}

/// The name is gone.
pub(crate) fn unlinked(victim: Victim) {
    let _ = client().and_then(|client| {
        client.unlinked(victim.handle.borrow(), victim.file).map_err(|error| {
            process::log(
                Level::Warn,
                &[b"stripewise: a deleted file's data stays until `stripewise check`: ", error.to_string().as_bytes()],
            );
            error.errno()
        })
    });
}

fn tell(stub: BorrowedFd<'_>, file: FileId, striped: Option<&stripewise_store::file::StripedFile>, what: Change) {
    match what {
        Change::Nothing => {}
        Change::Attributes => {
            let _ = client().and_then(|client| {
                client.attributes_changed(stub, file).map_err(|error| {
                    process::log(
                        Level::Warn,
                        &[b"stripewise: objects keep their mode and owner: ", error.to_string().as_bytes()],
                    );
                    error.errno()
                })
            });
        }
        Change::Times => {
            // A file open only for reading cannot say so itself; a second, writing open does.
            if let Some(striped) = striped
                && striped.is_writable()
                && let Err(error) = striped.set_modified_ns(None)
            {
                failed(&error);
            }
        }
    }
}

/// Mode, owner or times of what a path leads to were changed.
pub(crate) fn changed_at(directory: c_int, path: *const c_char, follow: bool, what: Change) {
    if what == Change::Nothing {
        return;
    }
    // SAFETY: the program's string.
    let path = unsafe { CStr::from_ptr(path) };
    with_file_at(directory, path, follow, |stub, file, striped| {
        if what == Change::Times && striped.is_none_or(|striped| !striped.is_writable()) {
            return set_time_writing(stub, file);
        }
        tell(stub, file, striped, what);
    });
}

/// Through an open for writing, which the change of times does not need but the shared size and times do.
fn set_time_writing(stub: BorrowedFd<'_>, file: FileId) {
    use rustix::fd::{AsFd, AsRawFd};
    let link = format!("/proc/self/fd/{}", stub.as_raw_fd());
    let Ok(writing) = rustix::fs::open(link, OFlags::WRONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty()) else {
        return;
    };
    let writing = Closing(Some(writing));
    if let Ok(striped) =
        client().and_then(|client| client.open(writing.borrow().as_fd(), file).map_err(|error| error.errno()))
    {
        tell(stub, file, Some(&striped), Change::Times);
    }
}

/// As [`changed_at`], of an open file.
pub(crate) fn changed(open: &Open, descriptor: c_int, what: Change) {
    // SAFETY: the program's descriptor, of the call under way.
    let stub = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let Ok(file) = open.file() else { return };
    if what == Change::Times && !file.is_writable() {
        return set_time_writing(stub, file.id());
    }
    tell(stub, file.id(), Some(file), what);
}

/// `truncate` of a path; none when it leads to no managed file.
pub(crate) fn truncate(path: *const c_char, length: i64) -> Option<Result<(), Errno>> {
    if !is_on() {
        return None;
    }
    // SAFETY: the program's string.
    let path = unsafe { CStr::from_ptr(path) };
    with_file_at(libc::AT_FDCWD, path, true, |stub, file, _| {
        use rustix::fd::{AsFd, AsRawFd};
        let length = u64::try_from(length).map_err(|_| Errno::INVAL)?;
        // An open of ours that writes is no permission for a call that goes by the name.
        rustix::fs::accessat(rustix::fs::CWD, path, rustix::fs::Access::WRITE_OK, rustix::fs::AtFlags::EACCESS)?;
        super::limit::check_size(length)?;
        let status = rustix::fs::fstat(stub)?;
        if let Some(open) = open_of_inode((status.st_dev, status.st_ino))
            && let Ok(striped) = open.file()
            && striped.is_writable()
        {
            return striped.truncate(length).map_err(|error| failed(&error));
        }
        let link = format!("/proc/self/fd/{}", stub.as_raw_fd());
        let writing =
            Closing(Some(rustix::fs::open(link, OFlags::WRONLY | OFlags::CLOEXEC, rustix::fs::Mode::empty())?));
        let striped = client()?.open(writing.borrow().as_fd(), file).map_err(|error| error.errno())?;
        striped.truncate(length).map_err(|error| failed(&error))
    })
}
