//! Unlink, rename and exchange of managed names: said to the broker before they are made, and what became of them after.

use super::connection::Connection;
use super::{Client, ClientError, Core, now, random_number, sleep};
use crate::descriptors::Descriptor;
use crate::entry::DirectoryEntry;
use crate::protocol::{Event, NameCall, Refusal, Request};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stripewise_layout::FileId;

/// A name, and the directory that it is in.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    /// Open, perhaps with `O_PATH`.
    pub directory: BorrowedFd<'a>,
    /// One component, not NUL-terminated.
    pub name: &'a [u8],
}

/// A file at a name: a descriptor of it (`O_PATH` is enough) and, of a managed one, its id.
#[derive(Clone, Copy)]
pub struct Standing<'a> {
    /// Open on the file itself, not on a link to it.
    pub file: BorrowedFd<'a>,
    /// `None` of an ordinary file.
    pub managed: Option<FileId>,
}

/// What a call is about to do.
#[derive(Clone, Copy)]
pub struct NameChange<'a> {
    /// Removal, rename or exchange.
    pub call: NameCall,
    /// The name that goes or is got.
    pub target: Name<'a>,
    /// The managed file that stands at the target.
    pub victim: Option<(BorrowedFd<'a>, FileId)>,
    /// What is to get the target's name; none in a removal.
    pub mover: Option<(Name<'a>, Standing<'a>)>,
}

impl<'a> NameChange<'a> {
    /// What the broker has to hear of a call, by what stands at its names; `None` of one that fails, or that concerns no managed file. `source`: of a rename or an
    /// exchange.
    #[must_use]
    pub fn concerning(
        call: NameCall,
        target: Name<'a>,
        victim: Option<Standing<'a>>,
        source: Option<(Name<'a>, Option<Standing<'a>>)>,
    ) -> Option<Self> {
        let victim = victim.and_then(|standing| Some((standing.file, standing.managed?)));
        let mover = match source {
            None => None,
            Some((name, standing)) => Some((name, standing?)),
        };
        let concerns = victim.is_some() || mover.is_some_and(|(_, standing)| standing.managed.is_some());
        concerns.then_some(Self { call, target, victim, mover })
    }

    /// [`Client::begin_name_change`], for a program's call: `None`, it may be made unnoted. `fail` says of another error with which errno the call fails.
    ///
    /// # Errors
    ///
    /// With which the call fails: `STALE` if other files stand there by now (look again), `PERM` to who may not change the names, otherwise what `fail` says.
    pub fn note(
        &self,
        client: &Client,
        fail: impl FnOnce(&ClientError) -> Errno,
    ) -> Result<Option<BegunChange>, Errno> {
        let errno = match client.begin_name_change(self) {
            Ok(begun) => return Ok(Some(begun)),
            Err(ClientError::Refused(Refusal::NameChanged { .. })) => return Err(Errno::STALE),
            // Who asks may change the directory's names, so this is another user's file under a sticky bit.
            Err(ClientError::Refused(Refusal::NotPermitted)) => Errno::PERM,
            Err(error) => fail(&error),
        };
        if self.must_be_noted() { Err(errno) } else { Ok(None) }
    }

    /// Whether the call must not be made unless the broker has noted it. A file that only moves keeps its data wherever it is; its record follows at the next
    /// open.
    #[must_use]
    pub fn must_be_noted(&self) -> bool {
        self.victim.is_some() || self.call == NameCall::Exchange
    }
}

/// A change that the broker has noted; to be ended when the call has returned.
#[must_use = "the names are held until the change is ended"]
pub struct BegunChange {
    core: Arc<Core>,
    number: u64,
    victim: Option<Descriptor>,
}

/// What the broker could not be told.
pub(super) struct Untold {
    number: u64,
    done: bool,
    victim: Option<Descriptor>,
}

impl Untold {
    pub(super) fn report(&self, connection: &mut Connection) -> Result<(), ClientError> {
        let along: Vec<_> = self.victim.iter().map(Descriptor::as_fd).collect();
        connection.call(&Request::EndNameChange { number: self.number, done: self.done }, &along)?;
        Ok(())
    }
}

impl Client {
    /// Lets the broker note the change. Waits while another process changes one of the names. Refused with [`Refusal::NameChanged`] if other
    /// files stand there by now: look again.
    ///
    /// # Errors
    ///
    /// [`ClientError::Refused`] with [`Refusal::NameChanged`] as said, [`Refusal::NameInUse`] if
    /// others take too long, [`Refusal::NotPermitted`] to who may not change the names; otherwise
    /// those of [`Client::request`].
    pub fn begin_name_change(&self, change: &NameChange<'_>) -> Result<BegunChange, ClientError> {
        let number = random_number()?;
        let request = Request::BeginNameChange {
            number,
            call: change.call,
            source: change.mover.map(|(name, _)| name.name.to_vec()),
            target: change.target.name.to_vec(),
            victim: change.victim.map(|(_, file)| file),
            mover: change.mover.and_then(|(_, standing)| standing.managed),
        };
        let mut along = vec![change.target.directory];
        along.extend(change.mover.map(|(name, _)| name.directory));
        along.extend(change.victim.map(|(stub, _)| stub));
        along.extend(change.mover.map(|(_, standing)| standing.file));
        let core = &self.core;
        let victim = change.victim.map(|(stub, _)| Descriptor::duplicate(stub, core.base)).transpose();
        let victim = victim.map_err(|source| ClientError::Os { action: "duplicating a stub's descriptor", source })?;
        let give_up_at = now() + core.options.patience;
        let mut pause = Duration::from_micros(100);
        loop {
            match core.done(&request, &along) {
                Ok(()) => return Ok(BegunChange { core: Arc::clone(core), number, victim }),
                // Not waited for under the lock: the other may be a thread of this process.
                Err(ClientError::Refused(Refusal::NameInUse { .. })) if now() < give_up_at => {
                    sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes the name of a managed file whose stub is open as `stub`.
    ///
    /// # Errors
    ///
    /// Those of [`Self::begin_name_change`]; [`ClientError::Os`] if the name stays.
    pub fn remove(&self, path: &Path, stub: BorrowedFd<'_>, file: FileId) -> Result<(), ClientError> {
        let (directory, name) = open_parent(path)?;
        let target = Name { directory: directory.as_fd(), name: name.as_bytes() };
        let change = NameChange { call: NameCall::Remove, target, victim: Some((stub, file)), mover: None };
        let begun = self.begin_name_change(&change)?;
        let removed = rustix::fs::unlinkat(&directory, name, AtFlags::empty());
        begun.end(removed.is_ok())?;
        removed.map_err(|source| ClientError::Os { action: "removing the stub", source })
    }

    /// Gives a nameless file the name `temporary`, and then that of `to` in the same directory, over what stands there: `victim`, if that is managed. Whoever
    /// dies meanwhile, the temporary name does not stay.
    ///
    /// # Errors
    ///
    /// Those of [`Self::begin_name_change`]; [`ClientError::Os`] if what stood at `to` still does.
    pub fn replace_by_nameless(
        &self,
        temporary: &DirectoryEntry,
        to: &DirectoryEntry,
        mover: Standing<'_>,
        victim: Option<(BorrowedFd<'_>, FileId)>,
    ) -> Result<(), ClientError> {
        let source = Name { directory: temporary.directory(), name: temporary.name().as_bytes() };
        let target = Name { directory: to.directory(), name: to.name().as_bytes() };
        let change = NameChange { call: NameCall::Rename, target, victim, mover: Some((source, mover)) };
        let begun = self.begin_name_change(&change)?;
        let replace = || temporary.replace(to).inspect_err(|_| _ = temporary.unlink());
        let renamed = temporary.link(mover.file).and_then(|()| replace());
        begun.end(renamed.is_ok())?;
        renamed.map_err(|source| ClientError::Os { action: "putting it in the other's place", source })
    }

    /// Renames what stands at `from` to `to` in the same directory, over the managed file `victim` that stands there, or over nothing that is managed.
    ///
    /// # Errors
    ///
    /// Those of [`Self::begin_name_change`]; [`ClientError::Os`] if the names are as they were.
    pub fn rename(
        &self,
        from: &Path,
        to: &Path,
        mover: Standing<'_>,
        victim: Option<(BorrowedFd<'_>, FileId)>,
        flags: RenameFlags,
    ) -> Result<(), ClientError> {
        let (directory, name) = open_parent(to)?;
        let source = Name { directory: directory.as_fd(), name: from.file_name().unwrap_or_default().as_bytes() };
        let target = Name { directory: directory.as_fd(), name: name.as_bytes() };
        let call = if flags.contains(RenameFlags::EXCHANGE) { NameCall::Exchange } else { NameCall::Rename };
        let begun = self.begin_name_change(&NameChange { call, target, victim, mover: Some((source, mover)) })?;
        let from = OsStr::from_bytes(source.name);
        let renamed = match rustix::fs::renameat_with(&directory, from, &directory, name, flags) {
            // A file system that cannot do that can link.
            Err(Errno::INVAL | Errno::NOSYS) if flags == RenameFlags::NOREPLACE => {
                rustix::fs::linkat(&directory, from, &directory, name, AtFlags::empty())
                    .and_then(|()| rustix::fs::unlinkat(&directory, from, AtFlags::empty()))
            }
            renamed => renamed,
        };
        begun.end(renamed.is_ok())?;
        renamed.map_err(|source| ClientError::Os { action: "renaming", source })
    }
}

/// Renames to a name at which nothing stood when it was looked at. A managed file that was made there since keeps it: a plain rename would replace the file
/// without a note. A file system that cannot tell renames plainly.
///
/// # Errors
///
/// `EXIST`: something stands there by now, look again. Otherwise the rename's own.
pub fn rename_to_free(
    (from_directory, from): (impl AsFd, impl Arg + Copy),
    (to_directory, to): (impl AsFd, impl Arg + Copy),
) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(&from_directory, from, &to_directory, to, RenameFlags::NOREPLACE) {
        // `PERM`: from a program's filter of system calls.
        Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
            rustix::fs::renameat(&from_directory, from, &to_directory, to)
        }
        renamed => renamed,
    }
}

fn open_parent(path: &Path) -> Result<(rustix::fd::OwnedFd, &OsStr), ClientError> {
    let fault = |source| ClientError::Os { action: "opening the directory of a name", source };
    let name = path.file_name().ok_or(fault(Errno::INVAL))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((rustix::fs::openat(CWD, parent, flags, Mode::empty()).map_err(fault)?, name))
}

impl BegunChange {
    /// The call returned. Where no broker can be told now, the next one is. The broker holds the names until it has heard of it: who changes one of them next waits.
    ///
    /// # Errors
    ///
    /// Those of [`Client::request`]; what is not heard by a broker that is lost is repeated to its
    /// successor.
    pub fn end(self, done: bool) -> Result<(), ClientError> {
        let mut control = self.core.control();
        if done && !self.core.shared && !self.core.options.waits_for_closes {
            self.core.report(&mut control, Event::NameChanged { number: self.number });
            if control.connection.is_some() {
                control.unconfirmed.push(Untold { number: self.number, done, victim: self.victim });
                return Ok(());
            }
        }
        let along: Vec<_> = self.victim.iter().map(Descriptor::as_fd).collect();
        let request = Request::EndNameChange { number: self.number, done };
        let reported = self.core.done_locked(&mut control, &request, &along);
        if let Err(ClientError::Lost { .. } | ClientError::Packet(_)) = reported {
            control.untold.push(Untold { number: self.number, done, victim: self.victim });
        }
        reported
    }
}
