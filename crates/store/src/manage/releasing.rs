//! A managed file becomes an ordinary one.

use super::copying::Source;
use super::lease::Lease;
use super::likeness::Likeness;
use super::replacement::Replacement;
use super::{ManageError, Moved, Moving, client_fault, elsewhere, entry_of, file_fault, os, read_stub};
use crate::client::{Client, ClientError};
use crate::entry::DirectoryEntry;
use crate::file::StripedFile;
use crate::protocol::{Admin, Refusal, Request};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

/// Turns the managed file at `path` back into an ordinary one with the same bytes, mode, owner, times and extended attributes, and frees its
/// objects. On any error the managed file is as it was.
///
/// # Errors
///
/// [`ManageError::NotManaged`] or [`ManageError::OtherCluster`]; [`ManageError::OpenElsewhere`];
/// [`ManageError::Disturbed`], [`ManageError::Differs`] or [`ManageError::Cancelled`];
/// [`ManageError::Os`] or [`ManageError::File`] where file system or servers fail.
pub fn release(client: &Client, path: &Path, moving: &Moving<'_>) -> Result<Moved, ManageError> {
    let entry = entry_of(path)?;
    let path = &entry.path().to_owned();
    let descriptor = entry.open_regular(OFlags::RDONLY).map_err(|errno| match errno {
        Errno::ISDIR | Errno::NXIO => ManageError::NotManaged { path: path.clone() },
        errno => os(path, "open it")(errno),
    })?;
    let likeness = Likeness::of(&descriptor).map_err(os(path, "look at it"))?;
    moving.check_identity(&likeness.stat, path)?;
    let mut stub = StandingStub { descriptor: &descriptor, entry: &entry, likeness, lease: None };
    if moving.unattended.is_some() {
        // Before the broker is asked: a program may have the stub open that has not told the broker yet, as after `exec`.
        let lease = Lease::take(&descriptor, path)?;
        moving.check_lease(&lease, path)?;
        stub.lease = Some(lease);
    }
    let file = match read_stub(&descriptor, path) {
        Ok(Some(stub)) if stub.cluster != client.cluster() => {
            let expected = client.cluster().to_owned();
            return Err(ManageError::OtherCluster { path: path.clone(), found: stub.cluster, expected });
        }
        Ok(Some(stub)) => stub.file,
        // Its text was cut or written over; the inode tells.
        Ok(None) | Err(ManageError::Stub { .. }) => {
            let found = client.find(descriptor.as_fd()).map_err(client_fault(path))?;
            found.ok_or_else(|| ManageError::NotManaged { path: path.clone() })?
        }
        Err(error) => return Err(error),
    };
    let striped = client.open(descriptor.as_fd(), file).map_err(client_fault(path))?;
    let file = striped.id();
    let mut replacement = Replacement::new(&entry)?;
    let temporary = replacement.temporary().to_string_lossy().into_owned();
    let request = Request::Admin(Admin::BeginRelease { file, temporary });
    let begin = |replacement: &Replacement| {
        client.request(&request, &[replacement.descriptor().as_fd()]).map(|_| ()).map_err(|error| match error {
            ClientError::Refused(Refusal::Busy { holder, .. } | Refusal::Held { holder, .. }) => {
                ManageError::OpenElsewhere { path: path.clone(), holders: holder }
            }
            source => client_fault(path)(source),
        })
    };
    // On a file system without nameless files it has its name already.
    begin(&replacement).inspect_err(|_| replacement.discard())?;
    let taken = moving
        .check_size(striped.size_bytes(), path)
        .and_then(|()| stub.refuse_elsewhere(client, moving))
        .and_then(|()| take_out(client, path, stub, &mut replacement, &striped, moving, &begin));
    if taken.is_err() {
        replacement.discard();
        // If the broker is gone, its successor undoes the same.
        let _ = client.request(&Request::Admin(Admin::CancelRelease { file }), &[]);
    }
    let closed = striped.close().map_err(file_fault(path));
    let mut moved = taken?;
    moving.step("release: closed");
    let ended = client.request(&Request::Admin(Admin::EndRelease { file }), &[]);
    if let Err(error) = ended {
        moved.note.get_or_insert(format!("{error}; the next stripewise command frees the data"));
    } else if let Err(error) = closed {
        moved.note.get_or_insert(error.to_string());
    }
    Ok(moved)
}

/// The stub that is to be replaced.
struct StandingStub<'a> {
    descriptor: &'a OwnedFd,
    entry: &'a DirectoryEntry,
    likeness: Likeness,
    /// Of a move that nobody ordered.
    lease: Option<Lease<'a>>,
}

impl StandingStub<'_> {
    /// An error where a program of another host has it that its agent was not told of, as after `exec`.
    fn refuse_elsewhere(&self, client: &Client, moving: &Moving<'_>) -> Result<(), ManageError> {
        elsewhere::refuse_holders(client, (self.entry, self.entry), &self.likeness.stat, true, moving)
    }

    /// An error once somebody else opens it, or wants to, where that is asked for.
    fn check_undisturbed(&self, path: &Path) -> Result<(), ManageError> {
        match &self.lease {
            Some(lease) if !lease.holds() => Err(ManageError::Disturbed { path: path.to_owned() }),
            _ => Ok(()),
        }
    }
}

fn take_out(
    client: &Client,
    path: &Path,
    mut stub: StandingStub<'_>,
    replacement: &mut Replacement,
    striped: &Arc<StripedFile>,
    moving: &Moving<'_>,
    begin: &dyn Fn(&Replacement) -> Result<(), ManageError>,
) -> Result<Moved, ManageError> {
    moving.step("release: noted");
    replacement.name().map_err(os(path, "name the copy next to it"))?;
    moving.step("release: copy named");
    // Once more: a broker that began in between has let others use the file. From here on one that does so takes the copy's name away first.
    begin(replacement)?;
    let target = Source::of_striped(striped).map_err(file_fault(path))?;
    target.copy_out(striped, replacement.descriptor(), path, moving)?;
    moving.step("release: copied");
    stub.likeness.give_owner_and_mode(replacement.descriptor()).map_err(os(path, "give the copy its owner"))?;
    stub.likeness.give_attributes(replacement.descriptor()).map_err(os(path, "give the copy its attributes"))?;
    rustix::fs::fsync(replacement.descriptor()).map_err(os(path, "make the copy durable"))?;
    stub.check_undisturbed(path)?;
    target.compare_with(striped, replacement.descriptor(), path, moving)?;
    if let Some(modified_ns) = striped.modified_ns() {
        stub.likeness.set_modified_ns(modified_ns);
    }
    stub.likeness.give_times(replacement.descriptor()).map_err(os(path, "give the copy its times"))?;
    rustix::fs::fsync(replacement.descriptor()).map_err(os(path, "make the copy durable"))?;
    moving.step("release: verified");
    moving.check(path)?;
    stub.check_undisturbed(path)?;
    stub.refuse_elsewhere(client, moving)?;
    if !replacement.stands(stub.descriptor) {
        return Err(ManageError::Disturbed { path: path.to_owned() });
    }
    moving.step("release: before the exchange");
    let names = replacement.begin_exchange(client, None, Some((stub.descriptor.as_fd(), striped.id())))?;
    moving.step("release: exchange noted");
    let exchanged = exchange_with_stub(path, &stub, replacement, moving);
    let unremoved = exchanged.is_ok().then(|| replacement.finish().err()).flatten();
    let mut note = unremoved.map(|errno| format!("the stub's temporary name could not be removed: {errno}"));
    moving.step("release: stub removed");
    let ended = names.end(exchanged.is_ok());
    exchanged?;
    if let Err(error) = ended {
        note.get_or_insert(format!("{error}; the next stripewise command completes it"));
    }
    Ok(Moved { file: striped.id(), size_bytes: target.size_bytes(), copied_bytes: target.data_bytes(), note })
}

/// Gives the copy the stub's place, unless another file stands there.
fn exchange_with_stub(
    path: &Path,
    stub: &StandingStub<'_>,
    replacement: &mut Replacement,
    moving: &Moving<'_>,
) -> Result<(), ManageError> {
    replacement.exchange(stub.descriptor, false, &|| moving.step("release: stub linked"))?;
    moving.step("release: exchanged");
    if !replacement.displaced(stub.descriptor) || stub.check_undisturbed(path).is_err() {
        replacement.exchange_back().map_err(os(path, "take the copy back"))?;
        return Err(ManageError::Disturbed { path: path.to_owned() });
    }
    Ok(())
}
