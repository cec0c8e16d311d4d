//! Finding the directory of objects, and telling whether it is still the one that was found first.
//!
//! A server keeps the directory open. Before it makes objects it compares inodes and the marker's times with those that it knows, and looks at everything
//! again only where they differ.

use super::super::ServerError;
use super::marker::{MARKER, MarkerFault, OBJECTS, version_of};
use super::{DIRECTORY, DirectoryServer, ROOT};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode};
use rustix::io::Errno;
use std::sync::PoisonError;

impl DirectoryServer {
    /// The directory of objects as it is now, found by path, with the marker checked.
    pub(super) fn open_objects(&self) -> Result<OwnedFd, ServerError> {
        let gone = || {
            self.unusable(format!(
                "{} is not mounted or was emptied; mount it again, or bring its contents back",
                self.directory.display()
            ))
        };
        let root = rustix::fs::open(&self.directory, ROOT, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => gone(),
            errno => self.fault("opening the server directory", errno),
        })?;
        self.check_marker(&root).map_err(|fault| match fault {
            MarkerFault::Absent => gone(),
            MarkerFault::Other(error) => error,
        })?;
        let objects = rustix::fs::openat(&root, OBJECTS, DIRECTORY, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT => gone(),
            errno => self.fault("opening the directory of objects", errno),
        })?;
        if rustix::process::geteuid().is_root() {
            let owner = rustix::fs::fstat(&objects)
                .map_err(|errno| self.fault("looking at the directory of objects", errno))?;
            if owner.st_uid != 0 {
                return Err(self.unusable(format!(
                    "the objects in {} belong to user {}, and root follows nobody's directories; be that user (--as-owner)",
                    self.directory.display(),
                    owner.st_uid
                )));
            }
        }
        Ok(objects)
    }

    /// Runs `action`, which names an object, on the directory of objects. When it finds something missing, the directory itself may have gone or be another
    /// by now: then the answer is that of the directory that stands at the path, or that there is none.
    pub(super) fn with_objects<T>(
        &self,
        action: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<T>,
    ) -> Result<rustix::io::Result<T>, ServerError> {
        if let Some(objects) = &self.objects {
            match action(objects.as_fd()) {
                Err(Errno::NOENT | Errno::STALE) => {}
                result => return Ok(result),
            }
        }
        Ok(action(self.open_objects()?.as_fd()))
    }

    /// The directory of objects that this server holds, if it still stands at the path, and the marker beside it is as it was when it was found right.
    fn held_objects(&self) -> Option<BorrowedFd<'_>> {
        let held = self.objects.as_ref()?;
        let at = |name| rustix::fs::statat(CWD, self.directory.join(name), AtFlags::SYMLINK_NOFOLLOW).ok();
        let (objects, marker) = (at(OBJECTS)?, at(MARKER)?);
        let own = rustix::fs::fstat(held).ok()?;
        let known = *self.marker.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = (objects.st_dev, objects.st_ino) == (own.st_dev, own.st_ino) && own.st_nlink > 0;
        let is_owned = own.st_uid == 0 || !rustix::process::geteuid().is_root();
        (is_same && is_owned && known == Some(version_of(&marker))).then(|| held.as_fd())
    }

    /// The directory of objects that stands at the path.
    pub(super) fn present_objects(&self) -> Result<Objects<'_>, ServerError> {
        match self.held_objects() {
            Some(held) => Ok(Objects::Held(held)),
            None => self.open_objects().map(Objects::Found),
        }
    }

    /// The directory of objects, in which new ones can be made.
    pub(super) fn probe_objects(&self) -> Result<Objects<'_>, ServerError> {
        let objects = match self.held_objects() {
            Some(held) => Objects::Held(held),
            None => Objects::Found(self.find_objects()?),
        };
        rustix::fs::accessat(&objects, ".", rustix::fs::Access::WRITE_OK, AtFlags::EACCESS)
            .map_err(|errno| self.not_writable(errno))?;
        Ok(objects)
    }

    /// The directory of objects, which must be the one that this server holds.
    fn find_objects(&self) -> Result<OwnedFd, ServerError> {
        let objects = self.open_objects()?;
        let inode = |directory: BorrowedFd<'_>| rustix::fs::fstat(directory).map(|found| (found.st_dev, found.st_ino));
        if self.objects.as_ref().is_some_and(|first| inode(first.as_fd()) != inode(objects.as_fd())) {
            return Err(self.unusable(format!(
                "{} is another directory than it was; put the first one back, or end every process that uses this cluster",
                self.directory.display()
            )));
        }
        Ok(objects)
    }

    /// What the file system has free, and its size.
    pub(super) fn space_of(&self, objects: impl AsFd) -> Result<(u64, u64), ServerError> {
        let found = rustix::fs::fstatvfs(objects)
            .map_err(|errno| self.fault("asking the file system for its free space", errno))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Ok((bytes(found.f_bavail), bytes(found.f_blocks)))
    }
}

/// A directory of objects.
pub(super) enum Objects<'a> {
    Held(BorrowedFd<'a>),
    Found(OwnedFd),
}

impl AsFd for Objects<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Objects::Held(held) => *held,
            Objects::Found(found) => found.as_fd(),
        }
    }
}
