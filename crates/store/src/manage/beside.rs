//! A new file beside the one that it will replace.

use super::{ManageError, os};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Nameless at first where the file system can have that, so that a crash before the broker knows of it leaves nothing.
pub(super) struct Beside {
    path: PathBuf,
    temporary: PathBuf,
    directory: OwnedFd,
    descriptor: OwnedFd,
    is_named: bool,
    has_replaced: bool,
    /// The old file stands at the temporary name.
    is_exchanged: bool,
}

impl Beside {
    /// For the file at `path`; empty, readable by the owner only.
    pub(super) fn new(path: &Path) -> Result<Self, ManageError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let parent = path.parent().unwrap_or(Path::new("/"));
        let directory = rustix::fs::open(parent, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(os(parent, "open the directory"))?;
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(os(path, "choose a temporary name"))?;
        // A long name is cut: the limit is 255 bytes.
        let short: String = name.chars().take(50).collect();
        let temporary = parent.join(format!(".{short}.stripewise-{:08x}", u32::from_ne_bytes(random)));
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let (descriptor, is_named) = match rustix::fs::open(parent, flags | OFlags::TMPFILE, mode) {
            Ok(descriptor) => (descriptor, false),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR | Errno::NOENT) => {
                let made = rustix::fs::open(&temporary, flags | OFlags::CREATE | OFlags::EXCL, mode);
                (made.map_err(os(parent, "make a file in the directory"))?, true)
            }
            Err(errno) => return Err(os(parent, "make a file in the directory")(errno)),
        };
        Ok(Self {
            path: path.to_owned(),
            temporary,
            directory,
            descriptor,
            is_named,
            has_replaced: false,
            is_exchanged: false,
        })
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(super) fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Whether the new file stands at the path.
    pub(super) fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// Gives it its temporary name.
    pub(super) fn name(&mut self) -> rustix::io::Result<()> {
        if !self.is_named {
            let link = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
            rustix::fs::linkat(CWD, link, CWD, &self.temporary, AtFlags::SYMLINK_FOLLOW)?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Whether what stands at the path is the file behind `old`.
    pub(super) fn stands(&self, old: &OwnedFd) -> bool {
        same_file(&self.path, old)
    }

    /// Changes places with what stands at the path; where the file system cannot exchange, that is replaced. Between a look at the path and this
    /// somebody may have put another file there: ask [`Self::displaced`] before anything is removed.
    pub(super) fn exchange(&mut self) -> rustix::io::Result<()> {
        match rustix::fs::renameat_with(CWD, &self.temporary, CWD, &self.path, RenameFlags::EXCHANGE) {
            Ok(()) => self.is_exchanged = true,
            Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::rename(&self.temporary, &self.path)?,
            Err(errno) => return Err(errno),
        }
        self.has_replaced = true;
        Ok(())
    }

    /// Whether what changed places is the file behind `old`. True where it was replaced, since nothing is left to look at.
    pub(super) fn displaced(&self, old: &OwnedFd) -> bool {
        !self.is_exchanged || same_file(&self.temporary, old)
    }

    pub(super) fn exchange_back(&mut self) -> rustix::io::Result<()> {
        if !self.is_exchanged {
            return Err(Errno::NOTSUP);
        }
        rustix::fs::renameat_with(CWD, &self.temporary, CWD, &self.path, RenameFlags::EXCHANGE)?;
        (self.is_exchanged, self.has_replaced) = (false, false);
        Ok(())
    }

    /// Makes the change of places durable and removes the old file.
    pub(super) fn finish(&mut self) -> rustix::io::Result<()> {
        self.sync_directory()?;
        if self.is_exchanged {
            rustix::fs::unlink(&self.temporary)?;
            self.is_exchanged = false;
            self.sync_directory()?;
        }
        Ok(())
    }

    fn sync_directory(&self) -> rustix::io::Result<()> {
        match rustix::fs::fsync(&self.directory) {
            // Some file systems cannot sync a directory, and need not.
            Err(Errno::INVAL) => Ok(()),
            result => result,
        }
    }

    /// Removes the new file, if it has not taken its place.
    pub(super) fn discard(&mut self) {
        if self.is_named && !self.has_replaced && same_file(&self.temporary, &self.descriptor) {
            // What stays is removed when the broker settles the move.
            let _ = rustix::fs::unlink(&self.temporary);
        }
        self.is_named = false;
    }
}

fn same_file(path: &Path, descriptor: &OwnedFd) -> bool {
    match (rustix::fs::lstat(path), rustix::fs::fstat(descriptor)) {
        (Ok(a), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
        _ => false,
    }
}
