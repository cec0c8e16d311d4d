//! Reads, writes and what else is done to an open file.

use crate::failure::failed;
use crate::opens::{ManagedOpen, Open};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};
use std::cell::RefCell;
use std::io::{IoSlice, IoSliceMut};
use stripewise_layout::FileOffset;
use stripewise_store::file::SpaceChange;

/// Bytes of one request at most; the kernel asks for no more.
pub(crate) const MAX_BYTES: u32 = 1 << 20;
/// Bytes that are copied by one request, so that it is not long under way.
const MAX_COPY_BYTES: u64 = 16 << 20;

thread_local! {
    /// What a thread reads into, kept from request to request.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads up to `length` bytes and hands them to `take`.
pub(crate) fn read(open: &Open, offset: u64, length: u32, take: impl FnOnce(Result<&[u8], Errno>)) {
    BUFFER.with_borrow_mut(|buffer| {
        let length = length as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let read = read_at(open, offset, &mut buffer[..length]);
        take(read.map(|bytes| &buffer[..bytes]));
    });
}

/// Fills the buffer up to the end of the file.
fn read_at(open: &Open, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        let (at, rest) = (offset + done as u64, &mut buffer[done..]);
        let read = match open {
            Open::Managed(open) => open
                .file
                .read_with(FileOffset(at), &mut [IoSliceMut::new(rest)], open.mode())
                .map_err(|error| failed(&error)),
            Open::Ordinary(open) => rustix::io::pread(&open.file, rest, at),
            Open::Directory(_) => Err(Errno::ISDIR),
        };
        match read {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(Errno::INTR) => {}
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Where the bytes of a write come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A program's write. Through an open that appends it goes to the end of the file.
    Program,
    /// Another file.
    Copy,
    /// A page that programs have mapped. Mappings extend no file: what others have cut off is left out.
    Mapping,
}

/// Writes at `offset`, as the origin says. Returns the bytes written.
pub(crate) fn write(open: &Open, offset: u64, bytes: &[u8], origin: Origin) -> Result<u32, Errno> {
    let written = match open {
        Open::Managed(open) => write_managed(open, offset, bytes, origin)?,
        // The kernel's offset is the size that it knows of, which others may have passed.
        Open::Ordinary(open) if open.appends && origin == Origin::Program => rustix::io::retry_on_intr(|| {
            rustix::io::pwritev2(&open.file, &[IoSlice::new(bytes)], offset, ReadWriteFlags::APPEND)
        })?,
        Open::Ordinary(ordinary) => {
            let within = if origin == Origin::Mapping { size_bytes(open)?.saturating_sub(offset) } else { u64::MAX };
            let bytes = &bytes[..bytes.len().min(usize::try_from(within).unwrap_or(usize::MAX))];
            rustix::io::retry_on_intr(|| rustix::io::pwrite(&ordinary.file, bytes, offset))?
        }
        Open::Directory(_) => return Err(Errno::ISDIR),
    };
    Ok(written as u32)
}

/// The present size of an open file, as this host knows it.
pub(crate) fn size_bytes(open: &Open) -> Result<u64, Errno> {
    match open {
        Open::Managed(open) => Ok(open.file.size_bytes()),
        Open::Ordinary(open) => Ok(rustix::fs::fstat(&open.file)?.st_size as u64),
        Open::Directory(_) => Err(Errno::ISDIR),
    }
}

fn write_managed(open: &ManagedOpen, offset: u64, bytes: &[u8], origin: Origin) -> Result<usize, Errno> {
    let (at, buffers, mode) = (FileOffset(offset), [IoSlice::new(bytes)], open.mode());
    let (at, written) = match origin {
        Origin::Program if open.appends => open.file.append_with(&buffers, mode),
        Origin::Program | Origin::Copy => open.file.write_with(at, &buffers, mode).map(|written| (at, written)),
        Origin::Mapping => open.file.write_within(at, &buffers, mode).map(|written| (at, written)),
    }
    .map_err(|error| failed(&error))?;
    if let Some(data_only) = open.syncs_data_only
        && written > 0
    {
        open.file.sync_written(at, written as u64, data_only).map_err(|error| failed(&error))?;
    }
    Ok(written)
}

pub(crate) fn sync(open: &Open, data_only: bool) -> Result<(), Errno> {
    match open {
        Open::Managed(open) => open.file.sync(data_only).map_err(|error| failed(&error)),
        Open::Ordinary(open) if data_only => rustix::fs::fdatasync(&open.file),
        Open::Ordinary(open) => rustix::fs::fsync(&open.file),
        // Some file systems cannot sync a directory, and need not.
        Open::Directory(directory) => match rustix::fs::fsync(directory.opened()) {
            Err(Errno::INVAL) => Ok(()),
            synced => synced,
        },
    }
}

/// A descriptor is closed. Where other hosts use the file too, an open there after this close is to find what was written here.
pub(crate) fn flush(open: &Open) -> Result<(), Errno> {
    match open {
        Open::Managed(managed) if managed.file.is_shared() && managed.file.is_writable() => sync(open, true),
        _ => Ok(()),
    }
}

/// Room for a range, or zeros in it, as the mode of `fallocate` says.
pub(crate) fn allocate(open: &Open, offset: u64, length: u64, mode: i32) -> Result<(), Errno> {
    match open {
        Open::Managed(open) => {
            let change = SpaceChange::of_mode(mode).ok_or(Errno::OPNOTSUPP)?;
            open.file.change_space(change, FileOffset(offset), length).map_err(|error| failed(&error))
        }
        Open::Ordinary(open) => {
            rustix::fs::fallocate(&open.file, FallocateFlags::from_bits_retain(mode as u32), offset, length)
        }
        Open::Directory(_) => Err(Errno::ISDIR),
    }
}

/// Where data or a hole begins. The kernel asks for nothing else.
pub(crate) fn seek(open: &Open, offset: i64, whence: i32) -> Result<i64, Errno> {
    let start = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
    let found = match (open, whence) {
        (Open::Managed(open), libc::SEEK_DATA) => open.file.next_data(FileOffset(start)),
        (Open::Managed(open), libc::SEEK_HOLE) => open.file.next_hole(FileOffset(start)),
        (Open::Ordinary(open), libc::SEEK_DATA) => {
            return Ok(rustix::fs::seek(&open.file, SeekFrom::Data(start))? as i64);
        }
        (Open::Ordinary(open), libc::SEEK_HOLE) => {
            return Ok(rustix::fs::seek(&open.file, SeekFrom::Hole(start))? as i64);
        }
        _ => return Err(Errno::INVAL),
    };
    found.map_err(|error| failed(&error))?.map(|at| at.0 as i64).ok_or(Errno::NXIO)
}

/// A range between two open files.
pub(crate) struct Copy<'a> {
    pub(crate) from: &'a Open,
    pub(crate) from_offset: u64,
    pub(crate) to: &'a Open,
    pub(crate) to_offset: u64,
    pub(crate) bytes: u64,
}

impl Copy<'_> {
    /// Copies the begin of the range; returns the bytes copied, 0 at the end of the source.
    pub(crate) fn make(&self) -> Result<u32, Errno> {
        if let (Open::Ordinary(from), Open::Ordinary(to)) = (self.from, self.to) {
            let (mut from_offset, mut to_offset) = (self.from_offset, self.to_offset);
            let bytes = usize::try_from(self.bytes.min(MAX_COPY_BYTES)).unwrap_or(usize::MAX);
            let copied =
                rustix::fs::copy_file_range(&from.file, Some(&mut from_offset), &to.file, Some(&mut to_offset), bytes)?;
            return Ok(copied as u32);
        }
        let (mut done, all) = (0, self.bytes.min(MAX_COPY_BYTES));
        let mut buffer = vec![0; usize::try_from(all.min(MAX_BYTES.into())).unwrap_or(0)];
        while done < all {
            let wanted = usize::try_from(all - done).unwrap_or(usize::MAX).min(buffer.len());
            match self.copy_piece(done, &mut buffer[..wanted]) {
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done as u32)
    }

    fn copy_piece(&self, done: u64, buffer: &mut [u8]) -> Result<u64, Errno> {
        let read = read_at(self.from, self.from_offset + done, buffer)?;
        let mut written = 0;
        while written < read {
            let at = self.to_offset + done + written as u64;
            match write(self.to, at, &buffer[written..read], Origin::Copy) {
                Ok(0) => break,
                Ok(bytes) => written += bytes as usize,
                Err(errno) if written == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(written as u64)
    }
}
