//! Whether an open file is a stub, and which managed file it stands for.

use super::link::descriptor_path;
use super::{Open, client, enter, inodes, is_on, open_of_inode, record_locks, with_raised_limit};
use crate::capture;
use crate::process::{self, Level};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{OFlags, Stat};
use rustix::io::Errno;
use std::sync::Arc;
use stripewise_layout::FileId;
use stripewise_store::client::{Client, ClientError};
use stripewise_store::errno::ToErrno;
use stripewise_store::file::{FileError, StripedFile};
use stripewise_store::protocol::Refusal;
use stripewise_store::stub::{STUB_BYTES, Stub, size_may_be_stub};

/// Room for a stub's text, aligned as reads through an `O_DIRECT` descriptor must be.
#[repr(align(4096))]
struct Page([u8; 4096]);

const _: () = assert!(STUB_BYTES < 4096);

/// The text of a stub, if that is what an open file holds. The file is known to have a stub's size.
fn read_stub(descriptor: BorrowedFd<'_>) -> Result<Option<Stub>, Errno> {
    let Page(mut bytes) = Page([0; _]);
    let length = match rustix::io::pread(descriptor, &mut bytes[..], 0) {
        // Only writes; or wants more alignment than a page's (`O_DIRECT` on sectors of 16 KiB).
        Err(Errno::BADF | Errno::INVAL) => return reopen_stub(descriptor),
        result => result?,
    };
    parse_stub(descriptor, &bytes[..length])
}

/// As [`read_stub`], by another open of the file, which may be held by `O_PATH` alone.
pub(crate) fn reopen_stub(descriptor: BorrowedFd<'_>) -> Result<Option<Stub>, Errno> {
    let mut bytes = [0; STUB_BYTES + 1];
    let link = descriptor_path(None, descriptor.as_raw_fd());
    let inode = rustix::fs::fstat(descriptor)?.st_ino;
    let length = record_locks::read_start(link.as_c_str(), inode, &mut bytes)?;
    parse_stub(descriptor, &bytes[..length])
}

fn parse_stub(descriptor: BorrowedFd<'_>, text: &[u8]) -> Result<Option<Stub>, Errno> {
    Stub::parse(text).map_err(|error| {
        let mut name: capture::PathBuffer = [0; _];
        let name_length = capture::name_of(descriptor, &mut name);
        process::log(Level::Error, &[&name[..name_length], b": ", error.to_string().as_bytes()]);
        Errno::IO
    })
}

/// Whether a regular file may be managed: by a stub's size, or by its inode, which a stub keeps whatever is written over it.
pub(crate) fn may_be_managed(size_bytes: u64, identity: (u64, u64)) -> bool {
    size_may_be_stub(size_bytes) || inodes::holds(identity)
}

/// The managed file that an open regular file is the stub of: by its text if it has one, else by the broker's word on its inode. Better an error than a
/// stub's text for data, or a stub written over.
pub(crate) fn stub_file(descriptor: BorrowedFd<'_>, status: &Stat) -> Result<Option<FileId>, Errno> {
    let text = match size_may_be_stub(status.st_size as u64) {
        true => read_stub(descriptor),
        false => Ok(None),
    };
    match text {
        Ok(Some(stub)) => check_cluster(&stub).map(|()| Some(stub.file)),
        Ok(None) if !inodes::holds((status.st_dev, status.st_ino)) => Ok(None),
        // Damaged, or not to be read by this process.
        Ok(None) | Err(Errno::ACCESS | Errno::IO) => find(descriptor),
        Err(errno) => Err(errno),
    }
}

/// Whether an open regular file is a stub, of this cluster or another. Also for a child of `vfork`.
pub(crate) fn is_stub(descriptor: BorrowedFd<'_>, status: &Stat) -> bool {
    let identity = (status.st_dev, status.st_ino);
    if !is_on() || !may_be_managed(status.st_size as u64, identity) {
        return false;
    }
    let has_text = size_may_be_stub(status.st_size as u64) && read_stub(descriptor).is_ok_and(|stub| stub.is_some());
    has_text || inodes::holds(identity) && is_known(descriptor).unwrap_or(true)
}

/// Whether the broker knows what a descriptor leads to for a managed file. A child of `vfork` asks by a helper.
pub(crate) fn is_known(descriptor: BorrowedFd<'_>) -> Result<bool, Errno> {
    if process::owns_tables() {
        return Ok(find(descriptor)?.is_some());
    }
    match process::helper::run(|| find(descriptor)?.map(|_| ()).ok_or(Errno::NODATA)) {
        Err(Errno::NODATA) => Ok(false),
        result => result.map(|()| true),
    }
}

/// The open of a descriptor that is a stub's; none for another's. Called once for each open file description that appears.
pub(crate) fn open_behind(descriptor: BorrowedFd<'_>, status: &Stat) -> Option<&'static Open> {
    if !is_on() || !may_be_managed(status.st_size as u64, (status.st_dev, status.st_ino)) {
        return None;
    }
    // Once for all that is done here, each of which would block them for itself.
    let _signals = process::NoSignals::begin();
    let identity = (status.st_dev, status.st_ino);
    // Where this process has it open already, without a look at its text.
    let known = open_of_inode(identity).and_then(|open| open.file().ok().map(StripedFile::id));
    if let Some(file) = known {
        let opened = client().and_then(|client| open_with(&client, descriptor, file));
        return Some(enter(descriptor, identity, opened));
    }
    let file = match stub_file(descriptor, status) {
        Ok(None) => return None,
        Ok(Some(file)) => open_file(descriptor, file),
        Err(errno) => Err(errno),
    };
    Some(enter(descriptor, identity, file))
}

/// Refuses the stub of another cluster; says so.
fn check_cluster(stub: &Stub) -> Result<(), Errno> {
    let client = client()?;
    if stub.cluster != client.cluster() {
        let text = format!(
            "file {} belongs to cluster {} in {}; this program runs on {}",
            stub.file,
            stub.cluster,
            stub.state.display(),
            client.cluster()
        );
        process::log(Level::Error, &[text.as_bytes()]);
        return Err(Errno::IO);
    }
    Ok(())
}

/// The file behind a stub; says why not.
pub(crate) fn open_file(descriptor: BorrowedFd<'_>, file: FileId) -> Result<Arc<StripedFile>, Errno> {
    open_with(&client()?, descriptor, file)
}

/// As [`open_file`], of whatever stub the descriptor is open on.
pub(crate) fn open_stub(descriptor: BorrowedFd<'_>) -> Result<Arc<StripedFile>, Errno> {
    let status = rustix::fs::fstat(descriptor)?;
    open_file(descriptor, stub_file(descriptor, &status)?.ok_or(Errno::IO)?)
}

fn open_with(client: &Client, descriptor: BorrowedFd<'_>, file: FileId) -> Result<Arc<StripedFile>, Errno> {
    let opened = with_raised_limit(|| client.open(descriptor, file)).map_err(|error| {
        if was_removed(descriptor, error.errno()) {
            return error.errno();
        }
        process::log(Level::Error, &[error.to_string().as_bytes()]);
        match error {
            // It has its name: the record is gone, as a power failure leaves a file that was never synced.
            ClientError::Refused(Refusal::UnknownFile { .. }) => Errno::IO,
            error => error.errno(),
        }
    })?;
    let appends = || rustix::fs::fcntl_getfl(descriptor).is_ok_and(|flags| flags.contains(OFlags::APPEND));
    if opened.is_shared() && opened.is_writable() && appends() {
        let error = FileError::AppendShared { file };
        process::log_once(Level::Error, &[error.to_string().as_bytes()]);
        return Err(error.errno());
    }
    Ok(opened)
}

/// Whether the broker does not know the file of a stub, as its error says, because the stub lost its last name after the kernel opened it.
pub(crate) fn was_removed(stub: BorrowedFd<'_>, error: Errno) -> bool {
    error == Errno::STALE && rustix::fs::fstat(stub).is_ok_and(|status| status.st_nlink == 0)
}

/// The managed file that an open file of a stub's size is the stub of, if any, by the broker's word.
pub(crate) fn find(descriptor: BorrowedFd<'_>) -> Result<Option<FileId>, Errno> {
    client()?.find(descriptor).map_err(|error| {
        process::log(Level::Error, &[error.to_string().as_bytes()]);
        error.errno()
    })
}
