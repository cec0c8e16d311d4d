//! Removals, renames and exchanges. The broker hears of those that concern managed files before they are made, and what became of them after.

use crate::failure::failed;
use crate::managed::Managed;
use crate::nodes::{Node, hold_at};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use stripewise_layout::FileId;
use stripewise_store::client::{BegunChange, Name, NameChange, Standing, rename_to_free};
use stripewise_store::protocol::NameCall;

/// How often names are looked at again that come and go.
const MAX_ROUNDS: u32 = 64;

/// A name in a directory that the kernel knows.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) parent: &'a Node,
    pub(crate) name: &'a OsStr,
}

impl<'a> Place<'a> {
    fn as_name(self) -> Name<'a> {
        Name { directory: self.parent.as_fd(), name: self.name.as_bytes() }
    }
}

/// Removes a name that is not a directory's.
pub(crate) fn remove(managed: &Managed, target: Place<'_>) -> Result<(), Errno> {
    let begun = begin(managed, NameCall::Remove, None, target)?;
    begun.end(rustix::fs::unlinkat(target.parent, target.name, AtFlags::empty()))
}

/// Renames, over what stands at the target or in exchange with it, as `flags` say.
pub(crate) fn rename(managed: &Managed, from: Place<'_>, to: Place<'_>, flags: RenameFlags) -> Result<(), Errno> {
    let call = if flags.contains(RenameFlags::EXCHANGE) { NameCall::Exchange } else { NameCall::Rename };
    for _ in 0..MAX_ROUNDS {
        let begun = begin(managed, call, Some(from), to)?;
        let replaces_none = begun.is_free && flags.is_empty();
        let renamed = match replaces_none {
            true => rename_to_free((from.parent, from.name), (to.parent, to.name)),
            // Without flags the older call, which every file system knows.
            false if flags.is_empty() => rustix::fs::renameat(from.parent, from.name, to.parent, to.name),
            false => rustix::fs::renameat_with(from.parent, from.name, to.parent, to.name, flags),
        };
        match begun.end(renamed) {
            Err(Errno::EXIST) if replaces_none => {}
            result => return result,
        }
    }
    Err(Errno::BUSY)
}

/// A call that is about to be made.
struct Begun {
    noted: Option<BegunChange>,
    /// Nothing stood at the target.
    is_free: bool,
}

impl Begun {
    fn end(self, done: rustix::io::Result<()>) -> Result<(), Errno> {
        if let Some(noted) = self.noted
            && let Err(error) = noted.end(done.is_ok())
        {
            // The next broker is told; the call itself has returned.
            failed(&error);
        }
        done
    }
}

/// Says to the broker that a call is about to change names, if that concerns a managed file. A managed file does not lose its name unnoted.
fn begin(managed: &Managed, call: NameCall, source: Option<Place<'_>>, target: Place<'_>) -> Result<Begun, Errno> {
    for _ in 0..MAX_ROUNDS {
        match try_begin(managed, call, source, target) {
            Err(Errno::STALE) => {}
            result => return result,
        }
    }
    Err(Errno::BUSY)
}

/// `STALE`: other files stand there by now.
fn try_begin(managed: &Managed, call: NameCall, source: Option<Place<'_>>, target: Place<'_>) -> Result<Begun, Errno> {
    let at = |place: Place<'_>| -> Result<Option<(OwnedFd, Option<FileId>)>, Errno> {
        match hold_at(place.parent, place.name) {
            Ok(held) => {
                let file = managed.file_behind(held.as_fd())?;
                let lost_its_name = || rustix::fs::fstat(&held).is_ok_and(|status| status.st_nlink == 0);
                if file.is_none() && lost_its_name() {
                    return Err(Errno::STALE);
                }
                Ok(Some((held, file)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    };
    let victim = at(target)?;
    let mover = source.map(at).transpose()?;
    // A managed file that is made there after this look would lose its name unnoted.
    if matches!(mover, Some(None)) || (call != NameCall::Rename && victim.is_none()) {
        return Err(Errno::NOENT);
    }
    let is_free = victim.is_none();
    let mover = mover.flatten();
    let victim = victim.as_ref().map(|(held, file)| Standing { file: held.as_fd(), managed: *file });
    let mover = mover.as_ref().map(|(held, file)| Standing { file: held.as_fd(), managed: *file });
    let source = source.map(|source| (source.as_name(), mover));
    let noted = match NameChange::concerning(call, target.as_name(), victim, source) {
        Some(change) => change.note(managed.client(), failed)?,
        None => None,
    };
    Ok(Begun { noted, is_free })
}
