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

const REPLACE: &str = "put the new file in its place";

/// Whether the file system says that it has no such call.
fn cannot(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// Nameless at first where the file system can have that, so that a crash before the broker knows of it leaves nothing.
pub(super) struct Replacement {
    target: DirectoryEntry,
    temporary: DirectoryEntry,
    descriptor: OwnedFd,
    is_named: bool,
    has_replaced: bool,
    old: Old,
}

/// Where the file is that stood at the path.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Old {
    /// Still there.
    AtPath,
    /// At the temporary name: they were exchanged.
    AtTemporary,
    /// At the second name that it was given before the new file was renamed over its first.
    AtSecond,
    /// It has no name: the new file was renamed over it.
    Gone,
}

/// The second name of a file whose place the file at `temporary` takes by a rename, where names cannot be exchanged.
#[must_use]
pub fn second_name(temporary: &str) -> String {
    format!("{temporary}.old")
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
        Ok(Self { target: target.clone(), temporary, descriptor, is_named, has_replaced: false, old: Old::AtPath })
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

    /// Changes places with `old`, which stands at the path. Between a look at the path and this somebody may have put another file there: ask
    /// [`Self::displaced`] before anything is removed.
    ///
    /// Where the file system cannot exchange, `old` gets a second name (`linked` is called then) and loses its first to the new file. Where it has no second
    /// names either, that is refused, or `old` is replaced at once if it `may_go`.
    pub(super) fn exchange(&mut self, old: &OwnedFd, may_go: bool, linked: &dyn Fn()) -> Result<(), ManageError> {
        let path = || self.target.path().to_owned();
        match self.temporary.exchange(&self.target) {
            Ok(()) => self.old = Old::AtTemporary,
            Err(errno) if cannot(errno) => {
                let second = self.second();
                match self.target.link_as(&second) {
                    Ok(()) => {
                        linked();
                        self.replace_linked(old, &second)?;
                        self.old = Old::AtSecond;
                    }
                    Err(errno) if cannot(errno) || matches!(errno, Errno::PERM | Errno::MLINK) => {
                        if !may_go {
                            return Err(ManageError::NoSecondName { path: path() });
                        }
                        self.temporary.replace(&self.target).map_err(os(&path(), REPLACE))?;
                        self.old = Old::Gone;
                    }
                    Err(errno) => return Err(os(&path(), "give it a second name")(errno)),
                }
            }
            Err(errno) => return Err(os(&path(), REPLACE)(errno)),
        }
        self.has_replaced = true;
        Ok(())
    }

    /// `old` has the name `second` as well.
    fn replace_linked(&self, old: &OwnedFd, second: &DirectoryEntry) -> Result<(), ManageError> {
        let path = self.target.path();
        let replaced = match second.is(old) && self.target.is(old) {
            true => self.temporary.replace(&self.target).map_err(os(path, REPLACE)),
            // Nobody will see that another file stood there once this has replaced it.
            false => Err(ManageError::Disturbed { path: path.to_owned() }),
        };
        if replaced.is_err() {
            // What stays is removed when the broker settles the move.
            let _ = second.unlink();
        }
        replaced
    }

    fn second(&self) -> DirectoryEntry {
        self.temporary.sibling(second_name(&self.temporary.name().to_string_lossy()).as_ref())
    }

    /// Where the old file is, if it has a name.
    pub(super) fn displaced_entry(&self) -> Option<DirectoryEntry> {
        match self.old {
            Old::AtTemporary => Some(self.temporary.clone()),
            Old::AtSecond => Some(self.second()),
            Old::AtPath | Old::Gone => None,
        }
    }

    /// Whether what changed places is the file behind `old`. True where it was replaced, since nothing is left to look at.
    pub(super) fn displaced(&self, old: &OwnedFd) -> bool {
        self.displaced_entry().is_none_or(|entry| entry.is(old))
    }

    pub(super) fn exchange_back(&mut self) -> rustix::io::Result<()> {
        match self.old {
            Old::AtTemporary => self.temporary.exchange(&self.target)?,
            Old::AtSecond => {
                self.second().replace(&self.target)?;
                self.is_named = false;
            }
            Old::AtPath | Old::Gone => return Err(Errno::NOTSUP),
        }
        (self.old, self.has_replaced) = (Old::AtPath, false);
        Ok(())
    }

    /// Makes the change of places durable and removes the old file.
    pub(super) fn finish(&mut self) -> rustix::io::Result<()> {
        self.target.sync_directory()?;
        if let Some(displaced) = self.displaced_entry() {
            displaced.unlink()?;
            self.old = Old::Gone;
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
