//! Files that the kernel has forgotten and may ask for again by their number.
//!
//! A server of NFS gives its clients handles that outlive what the kernel remembers: number and generation of a file. It hands them to the kernel, which asks for
//! a file that it has forgotten by its number alone, and compares the generation that comes back. So a forgotten file's own handle, by which its file system
//! finds it whatever its name, is kept for a while. The generation is a digest of that handle: of a file that got the number of a removed one it is another.

#![allow(unsafe_code, reason = "handles of files are had and opened by system calls")]

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;

/// Bytes of a handle at most (`MAX_HANDLE_SZ`).
const MAX_BYTES: usize = 128;
/// Forgotten files that are remembered at least; twice as many at most.
const MIN_REMEMBERED: usize = 1 << 17;

/// `struct file_handle`, with room.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; MAX_BYTES],
}

/// By which a file system finds a file of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    kind: i32,
    bytes: Box<[u8]>,
}

impl Handle {
    /// That of an open file; `None` where its file system has none.
    pub(crate) fn of(file: impl AsFd) -> Option<Self> {
        let mut raw = RawHandle { bytes: MAX_BYTES as u32, kind: 0, handle: [0; MAX_BYTES] };
        let mut mount = 0;
        // SAFETY: the path is an empty string, and the handle has the room that it names; both live until the call returns.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                file.as_fd().as_raw_fd(),
                c"".as_ptr(),
                &raw mut raw,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        };
        let bytes = raw.handle.get(..raw.bytes as usize).filter(|_| result == 0)?;
        Some(Self { kind: raw.kind, bytes: bytes.into() })
    }

    /// The file, held by `O_PATH`; `anchor` is open on any file of its file system. Takes the right to search every directory (root).
    pub(crate) fn hold(&self, anchor: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
        let mut raw = RawHandle { bytes: self.bytes.len() as u32, kind: self.kind, handle: [0; MAX_BYTES] };
        raw.handle[..self.bytes.len()].copy_from_slice(&self.bytes);
        let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: the handle lives until the call returns.
        let result = unsafe { libc::syscall(libc::SYS_open_by_handle_at, anchor.as_raw_fd(), &raw mut raw, flags) };
        let Ok(number @ 0..) = i32::try_from(result) else {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::STALE));
        };
        // SAFETY: the kernel has just opened it for this call.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Of 32 bits, as the kernel keeps it (FNV-1a).
    pub(crate) fn generation(&self) -> u64 {
        let kind = self.kind.to_le_bytes();
        let bytes = kind.iter().chain(self.bytes.iter());
        bytes.fold(0x811c_9dc5_u32, |digest, byte| (digest ^ u32::from(*byte)).wrapping_mul(0x0100_0193)).into()
    }
}

/// Handles of forgotten files by their numbers. Those that were forgotten longest ago go first.
#[derive(Default)]
pub(crate) struct Forgotten {
    recent: HashMap<u64, Handle>,
    before: HashMap<u64, Handle>,
}

impl Forgotten {
    pub(crate) fn note(&mut self, number: u64, handle: Handle) {
        if self.recent.len() >= MIN_REMEMBERED {
            self.before = std::mem::take(&mut self.recent);
        }
        self.recent.insert(number, handle);
    }

    pub(crate) fn get(&self, number: u64) -> Option<&Handle> {
        self.recent.get(&number).or_else(|| self.before.get(&number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_its_handle_whatever_its_name_and_never_when_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let (old, new) = (directory.path().join("old"), directory.path().join("new"));
        std::fs::write(&old, "text").unwrap();
        let anchor = std::fs::File::open(directory.path()).unwrap();
        let Some(handle) = Handle::of(std::fs::File::open(&old).unwrap()) else {
            return eprintln!("SKIPPED: this file system has no handles");
        };
        std::fs::rename(&old, &new).unwrap();
        let held = match handle.hold(anchor.as_fd()) {
            Err(Errno::PERM) => return eprintln!("SKIPPED: opening by a handle takes root"),
            held => held.unwrap(),
        };
        assert_eq!(std::fs::read(format!("/proc/self/fd/{}", held.as_raw_fd())).unwrap(), b"text");
        drop(held);
        std::fs::remove_file(&new).unwrap();
        assert_eq!(handle.hold(anchor.as_fd()).unwrap_err(), Errno::STALE);
        // One that may have got its inode.
        let other = Handle::of(std::fs::File::create(&new).unwrap()).unwrap();
        assert!(other != handle && other.generation() != handle.generation());
    }

    #[test]
    fn the_last_forgotten_are_remembered_and_the_first_are_not() {
        let handle = |number: u64| Handle { kind: 1, bytes: number.to_le_bytes().into() };
        let mut forgotten = Forgotten::default();
        let all = 3 * MIN_REMEMBERED as u64;
        (0..all).for_each(|number| forgotten.note(number, handle(number)));
        assert_eq!(forgotten.get(0), None);
        let last = all - MIN_REMEMBERED as u64;
        assert!((last..all).all(|number| forgotten.get(number) == Some(&handle(number))));
        assert!(forgotten.recent.len() + forgotten.before.len() <= 2 * MIN_REMEMBERED);
    }
}
