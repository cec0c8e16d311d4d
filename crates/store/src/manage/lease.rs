//! A write lease: proof that nobody else has a file open, and word when somebody wants to.
//!
//! `fcntl(F_SETLEASE, F_WRLCK)` fails while the file is open elsewhere. While it holds, an `open` by anybody waits (45 s at most, by default) until the
//! lease is given up; the holder sees the break by asking. The signal that announces a break is set to one that is ignored.
//! Where the file system has no leases, the open files of all processes are looked through instead, which sees those of other users only as root.

use super::{ManageError, os};
use crate::holders::Wanted;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Linux's number, on every architecture.
const F_SETSIG: i32 = 10;

/// A process that is just being started may hold a copy of a descriptor that its parent has closed: one that nobody is seen to hold is waited for.
const UNSEEN_TRIES: u32 = 20;
const UNSEEN_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

pub(super) struct Lease<'a> {
    descriptor: &'a OwnedFd,
    is_real: bool,
}

impl<'a> Lease<'a> {
    /// Of the file behind `descriptor`, which must be this process's only one of it.
    pub(super) fn take(descriptor: &'a OwnedFd, path: &Path) -> Result<Self, ManageError> {
        let _ = fcntl(descriptor, F_SETSIG, libc::SIGURG as usize);
        let mut tries = 0;
        loop {
            let refused = match fcntl(descriptor, libc::F_SETLEASE, libc::F_WRLCK as usize) {
                Ok(_) => return Ok(Self { descriptor, is_real: true }),
                Err(errno) => errno,
            };
            let mut holders = holders(descriptor);
            match refused {
                Errno::AGAIN if holders.is_empty() && refuses_for_want_of_a_delegation(descriptor) => {
                    return Ok(Self { descriptor, is_real: false });
                }
                Errno::AGAIN if holders.is_empty() && tries < UNSEEN_TRIES => {
                    tries += 1;
                    std::thread::sleep(UNSEEN_PAUSE);
                    continue;
                }
                Errno::AGAIN if holders.is_empty() => {
                    holders.push("by a process that cannot be seen from here".to_owned());
                }
                Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP | Errno::ACCESS if holders.is_empty() => {
                    return Ok(Self { descriptor, is_real: false });
                }
                Errno::AGAIN | Errno::INVAL | Errno::NOLCK | Errno::OPNOTSUPP | Errno::ACCESS => {}
                errno => return Err(os(path, "take a lease on it")(errno)),
            }
            return Err(ManageError::OpenElsewhere { path: path.to_owned(), holders: holders.join(", ") });
        }
    }

    /// Whether the kernel keeps it; else only open files that can be seen are known.
    pub(super) fn is_real(&self) -> bool {
        self.is_real
    }

    /// False once somebody else opens the file, or wants to.
    pub(super) fn holds(&self) -> bool {
        if self.is_real {
            fcntl(self.descriptor, libc::F_GETLEASE, 0) == Ok(libc::F_WRLCK as usize)
        } else {
            holders(self.descriptor).is_empty()
        }
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if self.is_real {
            let _ = fcntl(self.descriptor, libc::F_SETLEASE, libc::F_UNLCK as usize);
        }
    }
}

/// Whether a process has the file open by a descriptor that can do I/O, or has it mapped or locked; `held` is this process's only descriptor of it, with
/// `O_PATH`. Where neither a lease nor `/proc` tells, nobody has.
#[must_use]
pub fn is_open(held: BorrowedFd<'_>) -> bool {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if let Ok(opened) = rustix::fs::open(format!("/proc/self/fd/{}", held.as_raw_fd()), flags, Mode::empty()) {
        let _ = fcntl(&opened, F_SETSIG, libc::SIGURG as usize);
        match fcntl(&opened, libc::F_SETLEASE, libc::F_WRLCK as usize) {
            Ok(_) => return false,
            Err(Errno::AGAIN) if !refuses_for_want_of_a_delegation(&opened) => return true,
            Err(_) => {}
        }
    }
    rustix::fs::fstat(held)
        .is_ok_and(|found| !Wanted { counts_paths: false, ..Wanted::of(&found) }.find().holders.is_empty())
}

fn fcntl(descriptor: &OwnedFd, command: i32, argument: usize) -> rustix::io::Result<usize> {
    // SAFETY: the descriptor is open, and these commands take a plain number.
    let result = unsafe { libc::syscall(libc::SYS_fcntl, descriptor.as_raw_fd(), command, argument) };
    // SAFETY: errno is this thread's.
    let errno = || unsafe { *libc::__errno_location() };
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(errno()))
}

/// Other processes that have the file open, mapped or locked, as far as they can be seen.
fn holders(descriptor: &OwnedFd) -> Vec<String> {
    rustix::fs::fstat(descriptor).map_or_else(|_| Vec::new(), |found| Wanted::of(&found).find().holders)
}

/// File systems of another machine, which refuse a lease also where they cannot give one.
fn refuses_for_want_of_a_delegation(descriptor: &OwnedFd) -> bool {
    const NFS: u64 = 0x6969;
    const SMB: u64 = 0x517b;
    const CIFS: u64 = 0xff53_4d42;
    const SMB2: u64 = 0xfe53_4d42;
    #[allow(clippy::unnecessary_cast, reason = "signed and of other widths on other architectures")]
    rustix::fs::fstatfs(descriptor).is_ok_and(|found| matches!(found.f_type as u32 as u64, NFS | SMB | CIFS | SMB2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_without_a_name_is_open_until_its_last_descriptor_is_closed() {
        let file = tempfile::tempfile().unwrap();
        let held = crate::nameless::hold(&file).unwrap();
        assert!(is_open(held.as_fd()));
        let reading = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        drop(file);
        assert!(is_open(held.as_fd()));
        drop(reading);
        assert!(!is_open(held.as_fd()));
    }

    #[test]
    fn a_lease_is_refused_while_the_file_is_open_and_ends_when_it_is_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, b"x").unwrap();
        let own = OwnedFd::from(File::open(&path).unwrap());
        let other = File::open(&path).unwrap();
        assert!(matches!(Lease::take(&own, &path), Err(ManageError::OpenElsewhere { .. })));
        drop(other);
        let lease = Lease::take(&own, &path).unwrap();
        assert!(lease.is_real && lease.holds());
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        assert_eq!(rustix::fs::open(&path, flags, rustix::fs::Mode::empty()).err(), Some(Errno::AGAIN));
        assert!(!lease.holds());
        drop(lease);
        File::options().write(true).open(&path).unwrap();
    }
}
