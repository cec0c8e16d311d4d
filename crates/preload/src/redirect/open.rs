//! Making managed files, and cutting them at their open.
//!
//! A managed file is born without its name (`stripewise_store::new_stub`, with the program's flags, mode and umask), gets its
//! stub's text and its entry from the broker, and then its name, unless that was taken meanwhile: so it appears complete, and
//! `O_EXCL` holds.

use super::failure::failed;
use super::writing::{for_writing, with_open_for_writing};
use super::{Closing, client, close_raw, connected, record_locks, with_raised_limit};
use crate::borrow::borrow;
use crate::capture;
use crate::descriptors;
use crate::managed;
use crate::process::{self, Level, helper};
use libc::{c_int, mode_t};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stripewise_store::client::{Client, ClientError};
use stripewise_store::errno::ToErrno;
use stripewise_store::file::StripedFile;
use stripewise_store::new_stub::{Birth, NewStub};
use stripewise_store::protocol::Refusal;

/// Symbolic links followed to a file that is yet to be, as many as the kernel follows.
const MAX_LINKS: usize = 40;

/// What became of an open with `O_CREAT`.
pub(crate) enum Creation {
    /// A managed file was made: its descriptor.
    Made(c_int),
    /// A file stands at the managed place. It is to be opened without `O_CREAT`: by the time of that open it may be removed, and the kernel would make an
    /// ordinary file there.
    Exists,
    /// To be opened by the kernel as the program says.
    Ordinary,
}

/// Creates a managed file if the open asks for a new file in a managed place.
pub(crate) fn create(directory: c_int, path: &CStr, flags: c_int, mode: mode_t) -> Result<Creation, Errno> {
    if flags & (libc::O_DIRECTORY | libc::O_PATH) != 0 || names_directory(path) {
        return Ok(Creation::Ordinary);
    }
    if !process::owns_tables() {
        return create_by_helper(directory, path, flags, mode);
    }
    let Ok(client) = client() else { return Ok(Creation::Ordinary) };
    if client.managed_directories().is_empty() && client.expected_paths().is_empty() {
        return Ok(Creation::Ordinary);
    }
    let Some(target) = target(directory, path, flags).filter(|target| is_ours(&client, target.to_bytes())) else {
        return Ok(Creation::Ordinary);
    };
    match rustix::fs::lstat(&target) {
        Ok(_) if flags & libc::O_EXCL != 0 => return Err(Errno::EXIST),
        Ok(found) if opens_without_create(&found) => return Ok(Creation::Exists),
        Ok(_) => return Ok(Creation::Ordinary),
        Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    match make(&client, &target, flags, mode) {
        Err(Errno::EXIST) if flags & libc::O_EXCL == 0 => Ok(Creation::Exists),
        result => result.map(|made| made.map_or(Creation::Ordinary, Creation::Made)),
    }
}

/// Whether an open of this file goes the same way without `O_CREAT`: of a directory it fails only with it, and so may that of another user's file in a sticky
/// directory (`fs.protected_regular`).
fn opens_without_create(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
        && found.st_uid == rustix::process::geteuid().as_raw()
}

/// As [`create`], in a child of `vfork`: a helper makes the file, and the child opens its stub.
fn create_by_helper(directory: c_int, path: &CStr, flags: c_int, mode: mode_t) -> Result<Creation, Errno> {
    let makes_none = |client: &Client| client.managed_directories().is_empty() && client.expected_paths().is_empty();
    if connected().as_ref().is_some_and(makes_none) {
        return Ok(Creation::Ordinary);
    }
    let made = helper::run(|| match create(directory, path, flags, mode)? {
        Creation::Made(_) => Ok(()),
        Creation::Exists => Err(Errno::ALREADY),
        Creation::Ordinary => Err(Errno::NODATA),
    });
    match made {
        Err(Errno::ALREADY) => return Ok(Creation::Exists),
        Err(Errno::NODATA) => return Ok(Creation::Ordinary),
        result => result?,
    }
    let opened = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC);
    // SAFETY: AT_FDCWD or the program's descriptor; the kernel checks it.
    let base = unsafe { borrow(directory) };
    let stub = rustix::fs::openat(base, path, OFlags::from_bits_retain(opened as u32), Mode::empty())?;
    process::children::begins();
    Ok(Creation::Made(stub.into_raw_fd()))
}

/// A file that has no name yet (`O_TMPFILE`): managed if its directory is; `linkat` gives it its name, and the last
/// close without one ends it.
pub(crate) fn create_unnamed(
    directory: c_int,
    path: &CStr,
    flags: c_int,
    mode: mode_t,
) -> Option<Result<c_int, Errno>> {
    let client = client().ok()?;
    if client.managed_directories().is_empty() || !process::owns_tables() {
        return None;
    }
    let mut buffer: capture::PathBuffer = [0; _];
    let inside = CString::new([path.to_bytes(), b"/."].concat()).ok()?;
    let length = capture::name_at(directory, &inside, &mut buffer);
    // The name ends in the dot.
    let parent = buffer.get(..length)?.strip_suffix(b"/.")?;
    static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let name = format!("/.unnamed-{}-{number}", rustix::process::getpid().as_raw_nonzero());
    let target = CString::new([parent, name.as_bytes()].concat()).ok()?;
    if is_ours(&client, target.to_bytes()) { make(&client, &target, flags, mode).transpose() } else { None }
}

/// Whether an open of this path with `O_CREAT` would make a managed file.
pub(crate) fn would_create(directory: c_int, path: &CStr) -> bool {
    let Ok(client) = client() else { return false };
    !names_directory(path)
        && target(directory, path, libc::O_CREAT)
            .is_some_and(|target| is_ours(&client, target.to_bytes()) && rustix::fs::lstat(&target).is_err())
}

/// Whether a path can only be a directory's, by the slash at its end: of a new file libc says what is wrong.
fn names_directory(path: &CStr) -> bool {
    path.to_bytes().ends_with(b"/")
}

/// Where the file would appear: absolute, links followed.
fn target(directory: c_int, path: &CStr, flags: c_int) -> Option<CString> {
    let mut buffer: capture::PathBuffer = [0; _];
    let length = capture::name_at(directory, path, &mut buffer);
    if length == 0 {
        return None;
    }
    let mut target = CString::new(&buffer[..length]).ok()?;
    if flags & (libc::O_EXCL | libc::O_NOFOLLOW) != 0 {
        return Some(target);
    }
    for _ in 0..MAX_LINKS {
        let Ok(link) = rustix::fs::readlinkat(rustix::fs::CWD, &target, Vec::new()) else { return Some(target) };
        if names_directory(&link) {
            return None;
        }
        let next = if link.to_bytes().starts_with(b"/") {
            link
        } else {
            let bytes = target.to_bytes();
            let parent = &bytes[..=bytes.iter().rposition(|byte| *byte == b'/')?];
            CString::new([parent, link.to_bytes()].concat()).ok()?
        };
        let length = capture::name_at(libc::AT_FDCWD, &next, &mut buffer);
        target = CString::new(buffer.get(..length).filter(|name| !name.is_empty())?).ok()?;
    }
    None
}

fn is_ours(client: &Client, path: &[u8]) -> bool {
    client.takes(Path::new(OsStr::from_bytes(path)))
}

/// Makes a managed file, named `target` unless `O_TMPFILE` is among the flags, and enters its descriptor in the table. `None`: no file is managed there any more.
fn make(client: &Client, target: &CStr, flags: c_int, mode: mode_t) -> Result<Option<c_int>, Errno> {
    let unnamed = flags & libc::O_TMPFILE == libc::O_TMPFILE;
    let flags = if unnamed { flags & !libc::O_TMPFILE } else { flags };
    if client.is_shared() && flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY {
        let what = b": a new file cannot be opened for appending: its cluster is used by several hosts, which do not take turns at the end of a file";
        process::log_once(Level::Error, &[target.to_bytes(), what]);
        return Err(Errno::OPNOTSUPP);
    }
    let kept =
        flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_DIRECT | libc::O_ACCMODE);
    // The broker needs a descriptor that writes.
    let access = if flags & libc::O_ACCMODE == libc::O_RDONLY { libc::O_RDWR } else { flags & libc::O_ACCMODE };
    // A file without a name may be one that never gets any.
    let never_named = if unnamed { flags & libc::O_EXCL } else { 0 };
    let born = OFlags::from_bits_retain((kept | access | never_named) as u32);
    let bytes = target.to_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'/').ok_or(Errno::INVAL)?;
    let parent = CString::new(&bytes[..at.max(1)]).map_err(|_| Errno::INVAL)?;
    let birth = match (unnamed, client.is_shared()) {
        // The program wants a file without a name, which only the file system can give it.
        (true, _) => Birth::Nameless,
        // Other hosts look at it by a name.
        (false, true) => Birth::Named,
        (false, false) => Birth::Either,
    };
    let (descriptor, mut stub) = NewStub::make(CWD, &parent, born, Mode::from_raw_mode(mode), birth)?;
    let mut descriptor = Closing(Some(descriptor));
    let path = Path::new(OsStr::from_bytes(target.to_bytes()));
    let file = match with_raised_limit(|| client.create(path, descriptor.borrow())) {
        Ok(file) => file,
        // The directory was managed when the process connected.
        Err(ClientError::Refused(Refusal::NotManaged { .. })) => return Ok(None),
        Err(error) => {
            process::log(Level::Error, &[b"creating ", target.to_bytes(), b": ", error.to_string().as_bytes()]);
            return Err(error.errno());
        }
    };
    if !unnamed {
        name(client, target, stub.link(descriptor.borrow(), target), &file)?;
    }
    let descriptor = descriptor.0.take().ok_or(Errno::BADF)?;
    let (descriptor, file) = with_access(client, descriptor, file, flags, kept)?;
    if flags & libc::O_DIRECT != 0 {
        let _ = rustix::fs::fcntl_setfl(&descriptor, OFlags::from_bits_retain((kept | libc::O_DIRECT) as u32));
    }
    let status = rustix::fs::fstat(&descriptor)?;
    descriptors::forget(descriptor.as_raw_fd());
    let open = managed::enter(descriptor.as_fd(), (status.st_dev, status.st_ino), Ok(file));
    descriptors::set_managed(descriptor.as_raw_fd(), open);
    if let Some(open) = descriptors::managed_open(descriptor.as_raw_fd()) {
        open.set_asked(flags & libc::O_NOFOLLOW | if unnamed { libc::O_TMPFILE } else { 0 });
        if unnamed {
            open.set_unnamed();
        }
    }
    Ok(Some(descriptor.into_raw_fd()))
}

/// Tells the broker whether a new file got its name.
fn name(client: &Client, target: &CStr, linked: Result<(), Errno>, file: &StripedFile) -> Result<(), Errno> {
    if linked == Err(Errno::OPNOTSUPP) {
        let what = b": its file system can give a name neither by a hard link nor by a rename that replaces nothing, \
            so no managed file can be created there; keep the stubs on another one";
        process::log_once(Level::Error, &[target.to_bytes(), what]);
    }
    if linked.is_ok() {
        client.report_linked(file.id());
    } else if let Err(error) = client.abandon(file.id()) {
        process::log(Level::Error, &[target.to_bytes(), b": ", error.to_string().as_bytes()]);
    }
    linked
}

type Opened = (OwnedFd, std::sync::Arc<StripedFile>);

/// A program that creates a file only to read it gets a descriptor that only reads, of the same number.
fn with_access(
    client: &Client,
    descriptor: OwnedFd,
    file: std::sync::Arc<StripedFile>,
    flags: c_int,
    kept: c_int,
) -> Result<Opened, Errno> {
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Ok((descriptor, file));
    }
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let reading = rustix::fs::open(link, OFlags::from_bits_retain((kept | libc::O_RDONLY) as u32), Mode::empty())?;
    let id = file.id();
    let read_only = with_raised_limit(|| client.open(reading.as_fd(), id)).map_err(|error| error.errno())?;
    drop(file);
    let number = descriptor.into_raw_fd();
    // SAFETY: the number is ours until the program learns of it.
    let mut place = unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(number) };
    let close_on_exec =
        if flags & libc::O_CLOEXEC != 0 { rustix::io::DupFlags::CLOEXEC } else { rustix::io::DupFlags::empty() };
    rustix::io::dup3(&reading, &mut place, close_on_exec)?;
    close_raw(reading);
    Ok((place, read_only))
}

/// `O_TRUNC` of an open that found a managed file; and whether the file can be used at all.
pub(crate) fn truncate(descriptor: c_int) -> Result<(), Errno> {
    let open = descriptors::managed_open(descriptor).ok_or(Errno::IO)?;
    let file = open.file()?;
    if file.is_writable() {
        let size_bytes = file.latest_size_bytes().map_err(|error| failed(&error))?;
        return if size_bytes > 0 { file.truncate(0).map_err(|error| failed(&error)) } else { Ok(()) };
    }
    // SAFETY: just opened by the call under way.
    let stub = unsafe { borrow(descriptor) };
    with_open_for_writing(stub, file.id(), |writing| writing.truncate(0).map_err(|error| failed(&error)))
}

/// Cuts an ordinary file that is open only for reading, as Linux does where the process might write it.
pub(crate) fn truncate_ordinary(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    let inode = rustix::fs::fstat(descriptor)?.st_ino;
    record_locks::keeping(inode, || for_writing(descriptor, OFlags::TRUNC).map(drop))
}

/// Why a managed file just opened cannot be used, if it cannot.
pub(crate) fn check(descriptor: c_int) -> Result<(), Errno> {
    descriptors::managed_open(descriptor).map_or(Ok(()), |open| open.file().map(|_| ()))
}

/// As [`truncate`], in a child of `vfork`, where what the client opened would stand in the parent's tables.
pub(crate) fn truncate_unadopted(descriptor: BorrowedFd<'_>) -> Result<(), Errno> {
    helper::run(|| super::open_stub(descriptor)?.truncate(0).map_err(|error| failed(&error)))
}
