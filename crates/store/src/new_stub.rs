//! A new stub before it has its name.
//!
//! It is born nameless (`O_TMPFILE`) and gets its name by `linkat` when it is complete, which fails if the name was taken meanwhile. Where the file system has
//! no nameless files (NFS), or others have to look at it by a name, it is born under a temporary one; where there are no hard links either, that is renamed, which
//! must not replace anything.

use crate::nameless;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicU32, Ordering};

/// Temporary names that are tried.
const MAX_NAMES: u32 = 1000;

/// How a stub comes into being.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Birth {
    /// Without a name; an error where the file system cannot.
    Nameless,
    /// Under a temporary name.
    Named,
    /// Without a name where the file system can, else under a temporary one.
    Either,
}

/// What a new stub's descriptor does not say: its temporary name, which is removed when this is dropped.
#[derive(Debug)]
pub struct NewStub<'a> {
    directory: BorrowedFd<'a>,
    temporary: Option<CString>,
}

impl Drop for NewStub<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = rustix::fs::unlinkat(self.directory, temporary.as_c_str(), AtFlags::empty());
        }
    }
}

impl<'a> NewStub<'a> {
    /// Makes an empty file in the directory at `parent`, a path from `directory` on. It is the caller's to close.
    ///
    /// # Errors
    ///
    /// That of `open`; `EXIST` if all temporary names are taken.
    pub fn make(
        directory: BorrowedFd<'a>,
        parent: &CStr,
        flags: OFlags,
        mode: Mode,
        birth: Birth,
    ) -> rustix::io::Result<(OwnedFd, Self)> {
        if birth != Birth::Named {
            match rustix::fs::openat(directory, parent, flags | OFlags::TMPFILE, mode) {
                Ok(file) => return Ok((file, Self { directory, temporary: None })),
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) if birth == Birth::Either => {}
                Err(errno) => return Err(errno),
            }
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        for _ in 0..MAX_NAMES {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("/.stripewise-{}-{number}", rustix::process::getpid().as_raw_nonzero());
            let temporary = CString::new([parent.to_bytes(), name.as_bytes()].concat()).map_err(|_| Errno::INVAL)?;
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            match rustix::fs::openat(directory, temporary.as_c_str(), flags, mode) {
                Ok(file) => return Ok((file, Self { directory, temporary: Some(temporary) })),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EXIST)
    }

    /// Gives the stub, open as `file`, its name: a path from the same directory on.
    ///
    /// # Errors
    ///
    /// `EXIST` if the name is taken; `OPNOTSUPP` where the file system can give a name neither by a hard link nor by a rename that replaces nothing; otherwise
    /// that of `linkat`.
    pub fn link(&mut self, file: BorrowedFd<'_>, target: &CStr) -> rustix::io::Result<()> {
        let Some(temporary) = &self.temporary else { return nameless::link(file, self.directory, target) };
        let temporary = temporary.as_c_str();
        match rustix::fs::linkat(self.directory, temporary, self.directory, target, AtFlags::empty()) {
            // A server that is asked again after its answer was lost says so of the name that it has given.
            Err(Errno::EXIST) if self.stands_at(file, target) => Ok(()),
            // No hard links here.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(self.directory, temporary, self.directory, target, flags) {
                    Ok(()) => self.temporary = None,
                    Err(Errno::INVAL | Errno::NOSYS) => return Err(Errno::OPNOTSUPP),
                    Err(errno) => return Err(errno),
                }
                Ok(())
            }
            result => result,
        }
    }

    fn stands_at(&self, file: BorrowedFd<'_>, target: &CStr) -> bool {
        let identity = |status: rustix::fs::Stat| (status.st_dev, status.st_ino);
        let found = rustix::fs::statat(self.directory, target, AtFlags::SYMLINK_NOFOLLOW);
        match (found, rustix::fs::fstat(file)) {
            (Ok(found), Ok(own)) => identity(found) == identity(own),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    #[test]
    fn a_new_stub_gets_a_free_name_and_leaves_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(directory.path()).unwrap();
        let listed = || std::fs::read_dir(directory.path()).unwrap().count();
        for (number, birth) in [Birth::Nameless, Birth::Named, Birth::Either].into_iter().enumerate() {
            let make = || NewStub::make(root.as_fd(), c".", OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR, birth).unwrap();
            let target = CString::new(format!("stub-{number}")).unwrap();
            let (file, mut stub) = make();
            assert_eq!(listed(), number + usize::from(birth == Birth::Named), "{birth:?}");
            stub.link(file.as_fd(), &target).unwrap();
            // The answer to the first was lost.
            assert!(birth != Birth::Named || stub.link(file.as_fd(), &target).is_ok());
            drop(stub);
            let (other, mut stub) = make();
            assert_eq!(stub.link(other.as_fd(), &target), Err(Errno::EXIST));
            drop(stub);
            assert_eq!(listed(), number + 1, "{birth:?}");
        }
    }
}
