//! The stub of an open file, as the client keeps it.
//!
//! The client needs the stub for as long as the file is open: to open the file again with a successor of the broker, and to sync the stub itself. It
//! keeps a descriptor with `O_PATH`, which to the kernel is no open file. An ordinary one would harm the program: to close it, as `exec` does too, drops
//! the record locks that the process holds on the inode, and a duplicate keeps `flock` locks past the program's own close. Access is proved by a
//! descriptor that the process has open anyway; where it has none, the stub is opened for the moment.

use super::record_locks;
use crate::descriptors::{Descriptor, Received, open_numbers, with_raised_limit};
use crate::{nameless, times};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

/// Descriptors that another thread may close or replace while they are used, one after the other.
const MAX_ROUNDS: usize = 8;

pub(crate) struct KeptStub {
    handle: Descriptor,
    /// Device and inode.
    identity: (u64, u64),
    writable: bool,
    /// A descriptor that led to the stub when it was last looked for.
    seen: AtomicI32,
}

/// What a descriptor of the stub permits, the more the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Permits {
    /// Less than the open of the file.
    Less,
    Enough,
    Everything,
}

impl KeptStub {
    /// Of the stub that a descriptor is open on.
    pub(crate) fn new(stub: BorrowedFd<'_>, identity: (u64, u64), writable: bool, base: RawFd) -> Result<Self, Errno> {
        let handle = nameless::hold(stub)?;
        let seen = AtomicI32::new(stub.as_raw_fd());
        Ok(Self { handle: Descriptor::raise(handle, base), identity, writable, seen })
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Whether the stub has a name left.
    pub(crate) fn is_named(&self) -> bool {
        rustix::fs::fstat(&self.handle).is_ok_and(|status| status.st_nlink > 0)
    }

    /// Gives the stub this modification time, in ns since 1970.
    pub(crate) fn set_modified_ns(&self, modified_ns: u64) -> Result<(), Errno> {
        times::set_modified_ns(&self.handle, modified_ns)
    }

    /// Does `action`, which may be repeated, with a descriptor of the stub that permits what the open of the file does.
    pub(crate) fn with_open<T>(&self, mut action: impl FnMut(BorrowedFd<'_>) -> T) -> Result<T, Errno> {
        for _ in 0..MAX_ROUNDS {
            let Some(number) = self.find()? else { break };
            // SAFETY: the process's own; if it is closed or replaced meanwhile, the look afterwards says so.
            let result = action(unsafe { BorrowedFd::borrow_raw(number) });
            if self.permits(number).is_some() {
                self.seen.store(number, Relaxed);
                return Ok(result);
            }
        }
        let opened = self.open()?;
        let result = action(opened.as_fd());
        Ok(result)
    }

    /// A descriptor of this process that leads to the stub.
    fn find(&self) -> Result<Option<RawFd>, Errno> {
        let seen = self.seen.load(Relaxed);
        if self.permits(seen) == Some(Permits::Everything) {
            return Ok(Some(seen));
        }
        let permitting = |number| self.permits(number).map(|permits| (permits, number));
        Ok(match open_numbers()?.into_iter().filter_map(permitting).max() {
            // To open the stub and close it again would cost the process its locks. What permits less is enough for a sync.
            Some((Permits::Less, number)) if record_locks::are_held_on(self.identity.1) => Some(number),
            Some((Permits::Less, _)) | None => None,
            Some((_, number)) => Some(number),
        })
    }

    /// None: it is not open, on another inode, or of `O_PATH`.
    fn permits(&self, number: RawFd) -> Option<Permits> {
        if number < 0 {
            return None;
        }
        // SAFETY: if it is not open, the kernel says so.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        let status = rustix::fs::fstat(descriptor).ok()?;
        let flags = rustix::fs::fcntl_getfl(descriptor).ok()?;
        if (status.st_dev, status.st_ino) != self.identity || flags.contains(OFlags::PATH) {
            return None;
        }
        let access = flags & OFlags::RWMODE;
        Some(match (self.writable, access) {
            (true, OFlags::RDWR) | (false, OFlags::RDONLY) => Permits::Everything,
            (true, OFlags::WRONLY) | (false, OFlags::RDWR) => Permits::Enough,
            _ => Permits::Less,
        })
    }

    fn open(&self) -> Result<Received, Errno> {
        let link = link_of(self.handle.as_fd());
        let open = |access| {
            rustix::fs::open(&link, access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK, Mode::empty())
        };
        let opened = with_raised_limit(|| match self.writable {
            true => open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY)),
            false => open(OFlags::RDONLY),
        });
        opened.map(Received::from)
    }
}

fn link_of(descriptor: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}
