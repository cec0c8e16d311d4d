//! The bytes of a managed program, where the kernel can execute them.
//!
//! A sealed memory file is filled from the stripes. The kernel gets a nameless copy of it in the program's own directory, because a loader finds
//! `$ORIGIN`, and many a program its own files, by the directory of `/proc/self/exe`; where none can be made there (read-only, full, NFS), the memory
//! file itself.

use super::super::failure::failed;
use super::super::{Closing, with_file_at};
use crate::capture;
use crate::managed::link::descriptor_path;
use crate::process::{self, helper};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access, AtFlags, CWD, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io::IoSliceMut;
use stripewise_layout::FileOffset;
use stripewise_store::executable::{HEAD_BYTES, Head, HeadBuffer};

const PIECE_BYTES: usize = 1 << 20;

pub(crate) struct Image {
    memory: Closing,
    copy: Option<Closing>,
}

impl Image {
    /// The managed file at `path`, and the start of its bytes in `head`; scripts need no image.
    pub(super) fn of(path: &CStr, head: &mut HeadBuffer) -> Result<(Option<Self>, usize), Errno> {
        rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
        let memory = memory_file()?;
        if process::owns_tables() {
            fill(path, memory.borrow())?;
        } else {
            helper::run(|| fill(path, memory.borrow()))?;
        }
        let length = rustix::io::pread(memory.borrow(), &mut head.0[..], 0)?;
        if Head::of(&head.0[..length]) != Head::Elf {
            return Ok((None, length));
        }
        seal(memory.borrow())?;
        let copy = match copy_next_to(path, memory.borrow()) {
            Ok(copy) => Some(copy),
            Err(_) if !may_execute_below(path) => return Err(Errno::ACCESS),
            Err(_) => None,
        };
        Ok((Some(Self { memory, copy }), length))
    }

    /// What the kernel is to execute, the better one first.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.copy.iter().chain([&self.memory]).map(Closing::borrow)
    }
}

/// The bytes of the managed shared object at `path`.
pub(crate) fn of_library(path: &CStr) -> Result<Closing, Errno> {
    let memory = memory_file()?;
    fill(path, memory.borrow())?;
    seal(memory.borrow())?;
    if may_execute_below(path) { Ok(memory) } else { Err(Errno::ACCESS) }
}

fn seal(memory: BorrowedFd<'_>) -> Result<(), Errno> {
    rustix::fs::fcntl_add_seals(memory, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)
}

fn memory_file() -> Result<Closing, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know the flag, and need none.
    let memory = rustix::fs::memfd_create(c"stripewise-program", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create(c"stripewise-program", flags))?;
    Ok(Closing(Some(above(memory))))
}

/// Out of the way of numbers that a program to be spawned closes or replaces.
fn above(descriptor: OwnedFd) -> OwnedFd {
    match rustix::io::fcntl_dupfd_cloexec(&descriptor, crate::descriptors::FLOOR) {
        Ok(high) => {
            super::super::close_raw(descriptor);
            high
        }
        Err(_) => descriptor,
    }
}

/// Copies the file's bytes: all of a program, the head of anything else.
fn fill(path: &CStr, into: BorrowedFd<'_>) -> Result<(), Errno> {
    let filled = with_file_at(libc::AT_FDCWD, path, true, |_, _, file| {
        let file = file.ok_or(Errno::IO)?;
        let mut piece = vec![0u8; PIECE_BYTES];
        let (mut done, mut wanted) = (0u64, HEAD_BYTES);
        loop {
            let bytes = file
                .read_at(FileOffset(done), &mut [IoSliceMut::new(&mut piece[..wanted])])
                .map_err(|error| failed(&error))?;
            if bytes == 0 || done == 0 && !has_space_for(file.size_bytes()) {
                return if bytes == 0 { Ok(()) } else { Err(Errno::FBIG) };
            }
            write_all(into, &piece[..bytes], done)?;
            if done == 0 && Head::of(&piece[..bytes]) != Head::Elf {
                return Ok(());
            }
            done += bytes as u64;
            wanted = PIECE_BYTES;
        }
    });
    // No file behind the stub: it may not be read, or was replaced just now.
    filled.unwrap_or_else(|| rustix::fs::accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS).and(Err(Errno::STALE)))
}

/// Whether the process may write that many bytes: beyond its limit the kernel would kill it.
fn has_space_for(bytes: u64) -> bool {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current.is_none_or(|most| bytes <= most)
}

fn write_all(into: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::pwrite(into, bytes, at)?;
        if written == 0 {
            return Err(Errno::IO);
        }
        (bytes, at) = (&bytes[written..], at + written as u64);
    }
    Ok(())
}

/// A nameless copy in the directory of what `path` leads to, open only for reading: the kernel executes nothing that somebody has open for writing.
fn copy_next_to(path: &CStr, memory: BorrowedFd<'_>) -> Result<Closing, Errno> {
    let handle = Closing(Some(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?));
    let mut name: capture::PathBuffer = [0; _];
    let length = capture::name_of(handle.borrow(), &mut name);
    let slash = name[..length].iter().rposition(|byte| *byte == b'/').ok_or(Errno::NOENT)?;
    name[slash.max(1)] = 0;
    let directory = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::NAMETOOLONG)?;
    let writing = rustix::fs::open(directory, OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC, Mode::RWXU)?;
    let writing = Closing(Some(writing));
    let length = rustix::fs::fstat(memory)?.st_size as u64;
    let mut done = 0;
    while done < length {
        let rest = usize::try_from(length - done).unwrap_or(usize::MAX);
        match rustix::fs::sendfile(writing.borrow(), memory, Some(&mut done), rest)? {
            0 => return Err(Errno::IO),
            _ => continue,
        }
    }
    let link = descriptor_path(None, writing.borrow().as_raw_fd());
    let reading = rustix::fs::open(link.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Closing(Some(above(reading))))
}

/// Whether programs may be executed from the file system of `path` at all.
fn may_execute_below(path: &CStr) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|status| !status.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC))
}
