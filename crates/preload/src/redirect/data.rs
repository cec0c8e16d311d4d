//! Reads, writes and the position.
//!
//! The position is the kernel's own offset of the stub's open file description, which may lie far beyond the stub's
//! end. A call at the position first moves the offset on by what it wants, in one `lseek`, which the kernel does for
//! one caller at a time: so threads and processes that share a description get different bytes without any lock of
//! ours. What then was not to be had (the end of the file, an error) is given back; by a write only if nobody has taken
//! what follows meanwhile.

use super::failure::failed;
use super::{Moved, Open, limit};
use crate::capture::At;
use libc::{c_int, c_void, iovec};
use rustix::fd::BorrowedFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::FileOffset;
use stripewise_store::file::{FileError, IoMode, StripedFile};

/// Vectors of a call that need no memory but the stack's.
const FEW: usize = 16;

/// Most bytes of one call, as in Linux.
const MAX_BYTES: u64 = 0x7fff_f000;

/// The vectors of a call, as the kernel checks them.
///
/// # Safety
/// `vector` leads to `count` vectors if `count` is allowed.
pub(crate) unsafe fn vectors<'a>(vector: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    match usize::try_from(count) {
        Ok(0) => Ok(&[]),
        Ok(count @ 1..=1024) if vector.is_null() => Err(if count == 0 { Errno::INVAL } else { Errno::FAULT }),
        // SAFETY: the caller's promise.
        Ok(count @ 1..=1024) => Ok(unsafe { std::slice::from_raw_parts(vector, count) }),
        _ => Err(Errno::INVAL),
    }
}

/// `EFAULT`: one of them leads nowhere.
fn total(vectors: &[iovec]) -> Result<u64, Errno> {
    let mut sum = 0u64;
    for vector in vectors {
        if vector.iov_len > isize::MAX as usize {
            return Err(Errno::INVAL);
        }
        if vector.iov_base.is_null() && vector.iov_len > 0 {
            return Err(Errno::FAULT);
        }
        sum = sum.checked_add(vector.iov_len as u64).filter(|sum| i64::try_from(*sum).is_ok()).ok_or(Errno::INVAL)?;
    }
    Ok(sum.min(MAX_BYTES))
}

/// `RWF_*` flags of `preadv2` and `pwritev2`: which mean here what they mean in Linux.
pub(crate) fn check_flags(flags: c_int, writing: bool) -> Result<(), Errno> {
    let allowed = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | if writing { libc::RWF_APPEND } else { 0 };
    if flags & !allowed != 0 { Err(Errno::OPNOTSUPP) } else { Ok(()) }
}

/// Whether a write is synced, by the open or by its own flags, and if so whether that is of the data alone.
fn syncs_data_only(open: &Open, flags: c_int) -> Option<bool> {
    let by_flags = (flags & (libc::RWF_DSYNC | libc::RWF_SYNC) != 0).then_some(flags & libc::RWF_SYNC == 0);
    match (open.syncs_data_only(), by_flags) {
        (Some(by_open), Some(by_flags)) => Some(by_open && by_flags),
        (by_open, by_flags) => by_open.or(by_flags),
    }
}

/// What a write has to do once it is done, as the open or its flags asked for.
fn sync_after_write(open: &Open, moved: &Moved, flags: c_int) -> Result<(), Errno> {
    match syncs_data_only(open, flags) {
        Some(data_only) if moved.bytes > 0 => {
            let (offset, bytes) = (FileOffset(moved.offset), moved.bytes as u64);
            open.file()?.sync_written(offset, bytes, data_only).map_err(|error| failed(&error))
        }
        _ => Ok(()),
    }
}

/// Runs a request, and once more with space for descriptors where the program is at its limit of open files.
#[inline]
fn attempt<T>(mut request: impl FnMut() -> Result<T, FileError>) -> Result<T, FileError> {
    match request() {
        Err(error) if error.lacks_descriptors() => super::with_raised_limit(request),
        result => result,
    }
}

fn borrow(descriptor: c_int) -> BorrowedFd<'static> {
    // SAFETY: the program's descriptor, of the call under way.
    unsafe { crate::borrow::borrow(descriptor) }
}

/// Takes `bytes` at the position: where they begin.
fn take(descriptor: c_int, bytes: u64) -> Result<u64, Errno> {
    let after = rustix::fs::seek(borrow(descriptor), SeekFrom::Current(bytes as i64))?;
    Ok(after.saturating_sub(bytes))
}

fn give_back(descriptor: c_int, bytes: u64) {
    if bytes > 0 {
        let _ = rustix::fs::seek(borrow(descriptor), SeekFrom::Current(-(bytes as i64)));
    }
}

/// Gives back the last `bytes` of what a write took up to `end`, unless another caller has moved the position since: a
/// write that comes later would land on what that one was told is written. A gap is left then.
fn give_back_unless_passed(descriptor: c_int, end: u64, bytes: u64) {
    let position = || rustix::fs::seek(borrow(descriptor), SeekFrom::Current(0));
    if bytes == 0 || position() != Ok(end) {
        return;
    }
    let now = rustix::fs::seek(borrow(descriptor), SeekFrom::Current(-(bytes as i64)));
    if now.is_ok_and(|now| now != end - bytes) {
        // Taken between the two calls.
        let _ = rustix::fs::seek(borrow(descriptor), SeekFrom::Current(bytes as i64));
    }
}

fn start(at: At, descriptor: c_int, bytes: u64) -> Result<u64, Errno> {
    match at {
        // The last byte has an offset, too.
        At::Given(offset) => match offset.checked_add_unsigned(bytes) {
            Some(_) => u64::try_from(offset).map_err(|_| Errno::INVAL),
            None => Err(Errno::INVAL),
        },
        At::Position => take(descriptor, bytes),
    }
}

pub(crate) fn read(open: &Open, descriptor: c_int, vectors: &[iovec], at: At) -> Result<Moved, Errno> {
    let file = open.file()?;
    if !open.is_readable() {
        return Err(Errno::BADF);
    }
    let wanted = match total(vectors) {
        Err(Errno::FAULT) => return read_before_null(open, descriptor, vectors, at),
        wanted => wanted?,
    };
    let offset = start(at, descriptor, wanted)?;
    let result = if wanted == 0 { Ok(0) } else { read_vectors(file, offset, vectors, open.mode()) };
    let bytes = *result.as_ref().unwrap_or(&0);
    if let At::Position = at {
        give_back(descriptor, wanted - bytes as u64);
    }
    result.map(|bytes| Moved { offset, bytes })
}

/// The vectors before the first one that leads nowhere, if they have any bytes.
fn before_null(vectors: &[iovec]) -> &[iovec] {
    let is_null = |vector: &iovec| vector.iov_base.is_null() && vector.iov_len > 0;
    let before = &vectors[..vectors.iter().position(is_null).unwrap_or(vectors.len())];
    if before.iter().any(|vector| vector.iov_len > 0) { before } else { &[] }
}

/// As far as there is memory; where there is none, an error, unless the file has no byte there.
#[cold]
fn read_before_null(open: &Open, descriptor: c_int, vectors: &[iovec], at: At) -> Result<Moved, Errno> {
    if let before @ [_, ..] = before_null(vectors) {
        return read(open, descriptor, before, at);
    }
    let offset = start(at, descriptor, 0)?;
    let mut byte = [0];
    let one = [iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 }];
    match read_vectors(open.file()?, offset, &one, open.mode())? {
        0 => Ok(Moved { offset, bytes: 0 }),
        _ => Err(Errno::FAULT),
    }
}

fn read_vectors(file: &StripedFile, offset: u64, vectors: &[iovec], mode: IoMode) -> Result<usize, Errno> {
    if let [vector] = vectors {
        return attempt(|| file.read_with(FileOffset(offset), &mut [slice_mut(vector)], mode))
            .map_err(|error| failed(&error));
    }
    if vectors.len() <= FEW {
        let mut few: [_; FEW] =
            std::array::from_fn(|index| vectors.get(index).map_or(IoSliceMut::new(&mut []), slice_mut));
        return attempt(|| file.read_with(FileOffset(offset), &mut few[..vectors.len()], mode))
            .map_err(|error| failed(&error));
    }
    let mut slices: Vec<_> = vectors.iter().map(slice_mut).collect();
    attempt(|| file.read_with(FileOffset(offset), &mut slices, mode)).map_err(|error| failed(&error))
}

fn slice_mut(vector: &iovec) -> IoSliceMut<'static> {
    // SAFETY: the program lends this memory to the call for its time. An empty or null vector becomes an empty slice.
    IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(place(vector).cast(), length(vector)) })
}

fn slice(vector: &iovec) -> IoSlice<'static> {
    // SAFETY: as in `slice_mut`.
    IoSlice::new(unsafe { std::slice::from_raw_parts(place(vector).cast(), length(vector)) })
}

fn place(vector: &iovec) -> *mut c_void {
    if vector.iov_base.is_null() { std::ptr::dangling_mut::<u8>().cast() } else { vector.iov_base }
}

fn length(vector: &iovec) -> usize {
    if vector.iov_base.is_null() { 0 } else { vector.iov_len }
}

pub(crate) fn write(open: &Open, descriptor: c_int, vectors: &[iovec], at: At) -> Result<Moved, Errno> {
    write_with_flags(open, descriptor, vectors, at, 0)
}

/// As [`write`], with those `RWF_*` that [`check_flags`] lets through.
pub(crate) fn write_with_flags(
    open: &Open,
    descriptor: c_int,
    vectors: &[iovec],
    at: At,
    flags: c_int,
) -> Result<Moved, Errno> {
    let mode = IoMode { durable: syncs_data_only(open, flags).is_some(), ..open.mode() };
    let moved = write_in(open, descriptor, vectors, at, mode, flags & libc::RWF_APPEND != 0)?;
    sync_after_write(open, &moved, flags)?;
    Ok(moved)
}

fn write_in(
    open: &Open,
    descriptor: c_int,
    vectors: &[iovec],
    at: At,
    mode: IoMode,
    appends: bool,
) -> Result<Moved, Errno> {
    if appends || open.appends() {
        return append(open, descriptor, vectors, at, mode);
    }
    let file = open.file()?;
    if !file.is_writable() {
        return Err(Errno::BADF);
    }
    let wanted = match total(vectors) {
        Err(Errno::FAULT) => match before_null(vectors) {
            [] => return Err(Errno::FAULT),
            before => return write_in(open, descriptor, before, at, mode, appends),
        },
        wanted => wanted?,
    };
    let offset = start(at, descriptor, wanted)?;
    let result = match limit::allowed(offset, wanted) {
        Ok(0) => Ok(0),
        Ok(allowed) if allowed < wanted => write_vectors(file, offset, &limit::first_bytes(vectors, allowed), mode),
        Ok(_) => write_vectors(file, offset, vectors, mode),
        Err(errno) => Err(errno),
    };
    let bytes = *result.as_ref().unwrap_or(&0);
    if let At::Position = at {
        give_back_unless_passed(descriptor, offset + wanted, wanted - bytes as u64);
    }
    result.map(|bytes| Moved { offset, bytes })
}

fn write_vectors(file: &StripedFile, offset: u64, vectors: &[iovec], mode: IoMode) -> Result<usize, Errno> {
    if let [vector] = vectors {
        return attempt(|| file.write_with(FileOffset(offset), &[slice(vector)], mode)).map_err(|error| failed(&error));
    }
    if vectors.len() <= FEW {
        let few: [_; FEW] = std::array::from_fn(|index| vectors.get(index).map_or(IoSlice::new(&[]), slice));
        return attempt(|| file.write_with(FileOffset(offset), &few[..vectors.len()], mode))
            .map_err(|error| failed(&error));
    }
    let slices: Vec<_> = vectors.iter().map(slice).collect();
    attempt(|| file.write_with(FileOffset(offset), &slices, mode)).map_err(|error| failed(&error))
}

/// Writes at the end, wherever that is, even when an offset was given (as Linux does); the position, if it was asked
/// for, follows.
fn append(open: &Open, descriptor: c_int, vectors: &[iovec], at: At, mode: IoMode) -> Result<Moved, Errno> {
    let file = open.file()?;
    if !file.is_writable() {
        return Err(Errno::BADF);
    }
    if let At::Given(..=-1) = at {
        return Err(Errno::INVAL);
    }
    let wanted = total(vectors)?;
    if wanted == 0 {
        return Ok(Moved { offset: file.size_bytes(), bytes: 0 });
    }
    let allowed = limit::allowed(file.size_bytes(), wanted)?;
    let first_bytes = if allowed < wanted { limit::first_bytes(vectors, allowed) } else { Vec::new() };
    let slices: Vec<_> = if first_bytes.is_empty() { vectors } else { &first_bytes }.iter().map(slice).collect();
    // A handler that appends to the same file would wait for the lock that this call holds.
    let signals = crate::process::NoSignals::begin();
    let (offset, bytes) = attempt(|| file.append_with(&slices, mode)).map_err(|error| failed(&error))?;
    drop(signals);
    if let At::Position = at {
        rustix::fs::seek(borrow(descriptor), SeekFrom::Start(offset.0 + bytes as u64))?;
    }
    Ok(Moved { offset: offset.0, bytes })
}

/// Sets the position.
pub(crate) fn seek(open: &Open, descriptor: c_int, offset: i64, whence: c_int) -> Result<u64, Errno> {
    let file = open.file()?;
    let size = || file.latest_size_bytes().map_err(|error| failed(&error));
    let found = |at: Result<Option<FileOffset>, FileError>| {
        at.map_err(|error| failed(&error))?.map(|at| at.0 as i64).ok_or(Errno::NXIO)
    };
    let to_start = |place: i64| {
        let place = u64::try_from(place).map_err(|_| Errno::INVAL)?;
        rustix::fs::seek(borrow(descriptor), SeekFrom::Start(place))
    };
    match whence {
        libc::SEEK_SET => to_start(offset),
        libc::SEEK_CUR => rustix::fs::seek(borrow(descriptor), SeekFrom::Current(offset)),
        libc::SEEK_END => to_start((size()? as i64).checked_add(offset).ok_or(Errno::OVERFLOW)?),
        libc::SEEK_DATA | libc::SEEK_HOLE if offset < 0 => Err(Errno::NXIO),
        libc::SEEK_DATA => to_start(found(file.next_data(FileOffset(offset as u64)))?),
        libc::SEEK_HOLE => to_start(found(file.next_hole(FileOffset(offset as u64)))?),
        _ => Err(Errno::INVAL),
    }
}
