//! A new file beside the one that it will replace.

use super::{ManageError, os};
use crate::client::{BegunChange, Client, ClientError, Name, NameChange, Standing};
use crate::entry::DirectoryEntry;
use crate::protocol::{NameCall, Refusal};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stripewise_layout::FileId;

/// Nameless at first where the file system can have that, so that a crash before the broker knows of it leaves nothing.
pub(super) struct Replacement {
    target: DirectoryEntry,
    temporary: DirectoryEntry,
    descriptor: OwnedFd,
    is_named: bool,
    has_replaced: bool,
    /// The old file stands at the temporary name.
    is_exchanged: bool,
}

impl Replacement {
    /// For the file at `target`; empty, readable by the owner only.
    pub(super) fn new(target: &DirectoryEntry) -> Result<Self, ManageError> {
        let path = target.path();
        let parent = path.parent().unwrap_or(Path::new("/"));
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(os(path, "choose a temporary name"))?;
        let name = target.name().to_string_lossy();
        // A long name is cut: the limit is 255 bytes.
        let short: String = name.chars().take(50).collect();
        let temporary = target.sibling(format!(".{short}.stripewise-{:08x}", u32::from_ne_bytes(random)).as_ref());
        let make = || match temporary.create_nameless()? {
            Some(descriptor) => Ok((descriptor, false)),
            None => Ok((temporary.create()?, true)),
        };
        let (descriptor, is_named) = make().map_err(os(parent, "make a file in the directory"))?;
        Ok(Self { target: target.clone(), temporary, descriptor, is_named, has_replaced: false, is_exchanged: false })
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(super) fn temporary(&self) -> &Path {
        self.temporary.path()
    }

    /// Whether the new file stands at the path.
    pub(super) fn has_replaced(&self) -> bool {
        self.has_replaced
    }

    /// Gives it its temporary name.
    pub(super) fn name(&mut self) -> rustix::io::Result<()> {
        if !self.is_named {
            self.temporary.link(&self.descriptor)?;
            self.is_named = true;
        }
        Ok(())
    }

    /// Nobody else changes its names until the change is ended, and a broker knows what is about to happen. `new` and `old` are the managed files
    /// among the two.
    pub(super) fn begin_exchange(
        &self,
        client: &Client,
        new: Option<FileId>,
        old: Option<(BorrowedFd<'_>, FileId)>,
    ) -> Result<BegunChange, ManageError> {
        let directory = self.target.directory();
        let mover = Standing { file: self.descriptor.as_fd(), managed: new };
        let change = NameChange {
            call: NameCall::Exchange,
            target: Name { directory, name: self.target.name().as_bytes() },
            victim: old,
            mover: Some((Name { directory, name: self.temporary.name().as_bytes() }, mover)),
        };
        client.begin_name_change(&change).map_err(|error| match error {
            ClientError::Refused(Refusal::NameChanged { .. }) => {
                ManageError::Disturbed { path: self.target.path().to_owned() }
            }
            source => ManageError::Client { path: self.target.path().to_owned(), source },
        })
    }

    /// Whether what stands at the path is the file behind `old`, and the directory at its path, where a broker looks for the temporary file.
    pub(super) fn stands(&self, old: &OwnedFd) -> bool {
        self.target.is(old) && DirectoryEntry::at(self.target.path()).is_ok_and(|entry| entry.is(old))
    }

    /// Changes places with what stands at the path; where the file system cannot exchange, that is replaced. Between a look at the path and this
    /// somebody may have put another file there: ask [`Self::displaced`] before anything is removed.
    pub(super) fn exchange(&mut self) -> rustix::io::Result<()> {
        match self.temporary.exchange(&self.target) {
            Ok(()) => self.is_exchanged = true,
            Err(Errno::INVAL | Errno::NOSYS) => self.temporary.replace(&self.target)?,
            Err(errno) => return Err(errno),
        }
        self.has_replaced = true;
        Ok(())
    }

    /// Whether what changed places is the file behind `old`. True where it was replaced, since nothing is left to look at.
    pub(super) fn displaced(&self, old: &OwnedFd) -> bool {
        !self.is_exchanged || self.temporary.is(old)
    }

    pub(super) fn exchange_back(&mut self) -> rustix::io::Result<()> {
        if !self.is_exchanged {
            return Err(Errno::NOTSUP);
        }
        self.temporary.exchange(&self.target)?;
        (self.is_exchanged, self.has_replaced) = (false, false);
        Ok(())
    }

    /// Makes the change of places durable and removes the old file.
    pub(super) fn finish(&mut self) -> rustix::io::Result<()> {
        self.target.sync_directory()?;
        if self.is_exchanged {
            self.temporary.unlink()?;
            self.is_exchanged = false;
            self.target.sync_directory()?;
        }
        Ok(())
    }

    /// Removes the new file, if it has not taken its place.
    pub(super) fn discard(&mut self) {
        if self.is_named && !self.has_replaced && self.temporary.is(&self.descriptor) {
            // What stays is removed when the broker settles the move.
            let _ = self.temporary.unlink();
        }
        self.is_named = false;
    }
}
