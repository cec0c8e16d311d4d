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
use stripewise_store::client::{BegunChange, Name, NameChange, Standing};
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
    let noted = begin(managed, NameCall::Remove, None, target)?;
    end(noted, rustix::fs::unlinkat(target.parent, target.name, AtFlags::empty()))
}

/// Renames, over what stands at the target or in exchange with it, as `flags` say.
pub(crate) fn rename(managed: &Managed, from: Place<'_>, to: Place<'_>, flags: RenameFlags) -> Result<(), Errno> {
    let call = if flags.contains(RenameFlags::EXCHANGE) { NameCall::Exchange } else { NameCall::Rename };
    let noted = begin(managed, call, Some(from), to)?;
    let renamed = if flags.is_empty() {
        rustix::fs::renameat(from.parent, from.name, to.parent, to.name)
    } else {
        rustix::fs::renameat_with(from.parent, from.name, to.parent, to.name, flags)
    };
    end(noted, renamed)
}

fn end(noted: Option<BegunChange>, done: rustix::io::Result<()>) -> Result<(), Errno> {
    if let Some(noted) = noted
        && let Err(error) = noted.end(done.is_ok())
    {
        // The next broker is told; the call itself has returned.
        failed(&error);
    }
    done
}

/// Says to the broker that a call is about to change names, if that concerns a managed file. A managed file does not lose its name unnoted.
fn begin(
    managed: &Managed,
    call: NameCall,
    source: Option<Place<'_>>,
    target: Place<'_>,
) -> Result<Option<BegunChange>, Errno> {
    for _ in 0..MAX_ROUNDS {
        match try_begin(managed, call, source, target) {
            Err(Errno::STALE) => {}
            result => return result,
        }
    }
    Err(Errno::BUSY)
}

/// `STALE`: other files stand there by now.
fn try_begin(
    managed: &Managed,
    call: NameCall,
    source: Option<Place<'_>>,
    target: Place<'_>,
) -> Result<Option<BegunChange>, Errno> {
    let at = |place: Place<'_>| -> Result<Option<(OwnedFd, Option<FileId>)>, Errno> {
        match hold_at(place.parent, place.name) {
            Ok(held) => {
                let file = managed.file_behind(held.as_fd())?;
                Ok(Some((held, file)))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(errno),
        }
    };
    let victim = at(target)?;
    let mover = source.map(at).transpose()?.flatten();
    let victim = victim.as_ref().map(|(held, file)| Standing { file: held.as_fd(), managed: *file });
    let mover = mover.as_ref().map(|(held, file)| Standing { file: held.as_fd(), managed: *file });
    let source = source.map(|source| (source.as_name(), mover));
    let Some(change) = NameChange::concerning(call, target.as_name(), victim, source) else { return Ok(None) };
    change.note(managed.client(), failed)
}
