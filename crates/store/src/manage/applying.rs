//! An ordinary file becomes a managed one.

use super::copying::Source;
use super::lease::Lease;
use super::likeness::Likeness;
use super::replacement::Replacement;
use super::{ManageError, Moved, Moving, Original, client_fault, elsewhere, file_fault, os};
use crate::client::Client;
use crate::entry::DirectoryEntry;
use crate::file::StripedFile;
use rustix::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::Placement;

/// Makes the ordinary file at `path` a managed one, placed by `placement`, with the same bytes, mode, owner, times and extended attributes. On any
/// error the file is as it was.
///
/// # Errors
///
/// What the file is or who has it open, by variant; [`ManageError::Disturbed`] or
/// [`ManageError::Differs`] if it changed meanwhile; [`ManageError::Cancelled`];
/// [`ManageError::Client`] and [`ManageError::File`] where broker or servers fail, also for want of
/// space.
pub fn apply(client: &Client, path: &Path, placement: &Placement, moving: &Moving<'_>) -> Result<Moved, ManageError> {
    let original = Original::open(path)?;
    moving.check_identity(&original.likeness.stat, original.path())?;
    let lease = Lease::take(&original.descriptor, original.path())?;
    moving.check_lease(&lease, original.path())?;
    moving.check_size(original.likeness.stat.st_size as u64, original.path())?;
    let users = Users { client, original: &original, lease: &lease, moving };
    users.refuse_elsewhere(&original.entry)?;
    let mut replacement = Replacement::new(&original.entry)?;
    let path = original.path();
    original.likeness.give_owner_and_mode(replacement.descriptor()).map_err(os(path, "give the stub its owner"))?;
    let imported = client.import(
        path,
        placement.clone(),
        replacement.temporary(),
        replacement.descriptor().as_fd(),
        original.descriptor.as_fd(),
    );
    // On a file system without nameless files it has its name already.
    let striped = imported.map_err(client_fault(path)).inspect_err(|_| replacement.discard())?;
    let file = striped.id();
    let moved = bring_in(&users, &mut replacement, &striped);
    if moved.is_err() && !replacement.has_replaced() {
        replacement.discard();
        // If the broker is gone, its successor undoes the same.
        let _ = client.abandon(file);
    }
    let closed = striped.close().map_err(file_fault(path));
    let mut moved = moved?;
    if let Err(error) = closed {
        moved.note.get_or_insert(error.to_string());
    }
    Ok(moved)
}

/// Who may have the original open, and what is known of that.
struct Users<'a> {
    client: &'a Client,
    original: &'a Original,
    lease: &'a Lease<'a>,
    moving: &'a Moving<'a>,
}

impl Users<'_> {
    fn path(&self) -> &Path {
        self.original.path()
    }

    /// Whether the kernel vouches for all hosts, as long as the lease holds: it keeps everybody from opening the file.
    fn are_excluded(&self) -> bool {
        self.lease.is_real() && !self.client.is_shared()
    }

    /// An error while a program of another host has the original open, which stands there now.
    fn refuse_elsewhere(&self, stands_at: &DirectoryEntry) -> Result<(), ManageError> {
        let Self { client, original, moving, .. } = self;
        elsewhere::refuse_holders(client, (&original.entry, stands_at), &original.likeness.stat, false, moving)
    }

    fn disturbed(&self) -> ManageError {
        ManageError::Disturbed { path: self.path().to_owned() }
    }

    /// An error once another program of this host has it open, or wants to.
    fn check_here(&self) -> Result<(), ManageError> {
        if self.lease.holds() { Ok(()) } else { Err(self.disturbed()) }
    }
}

fn bring_in(
    users: &Users<'_>,
    replacement: &mut Replacement,
    striped: &Arc<StripedFile>,
) -> Result<Moved, ManageError> {
    let Users { client, original, moving, .. } = users;
    let path = users.path();
    moving.step("apply: noted");
    replacement.name().map_err(os(path, "name the stub next to it"))?;
    moving.step("apply: stub named");
    let source = Source::of(&original.descriptor, path)?;
    // All room is promised before the first byte is copied.
    for segment in source.segments() {
        striped.allocate(segment.start, segment.length, true).map_err(file_fault(path))?;
    }
    moving.step("apply: placed");
    source.copy_in(striped, moving, &|| users.check_here())?;
    striped.truncate(source.size_bytes()).map_err(file_fault(path))?;
    moving.step("apply: copied");
    striped.sync(false).map_err(file_fault(path))?;
    if users.are_excluded() {
        source.compare(striped, moving, &|| users.check_here())?;
        moving.step("apply: verified");
        client.imported(striped.id()).map_err(client_fault(path))?;
        moving.step("apply: complete");
    }
    original.likeness.give_attributes(replacement.descriptor()).map_err(os(path, "give the stub its attributes"))?;
    striped.set_modified_ns(None).map_err(file_fault(path))?;
    original.likeness.give_times(replacement.descriptor()).map_err(os(path, "give the stub its times"))?;
    rustix::fs::fsync(replacement.descriptor()).map_err(os(path, "make the stub durable"))?;
    moving.check(path)?;
    if !original.likeness.is_still_of(&original.descriptor) {
        return Err(users.disturbed());
    }
    users.check_here()?;
    users.refuse_elsewhere(&original.entry)?;
    if !replacement.stands(&original.descriptor) {
        return Err(users.disturbed());
    }
    moving.step("apply: before the exchange");
    let names = replacement.begin_exchange(client, Some(striped.id()), None)?;
    moving.step("apply: exchange noted");
    let exchanged = match users.are_excluded() {
        true => exchange_with_original(users, replacement),
        false => exchange_and_compare(users, replacement, striped, &source),
    };
    // From here on the managed file stands at the path; what fails is said but not undone.
    let unremoved = exchanged.is_ok().then(|| replacement.finish().err()).flatten();
    let mut note = unremoved.map(|errno| format!("the original's temporary name could not be removed: {errno}"));
    moving.step("apply: original removed");
    let ended = names.end(exchanged.is_ok());
    exchanged?;
    if let Err(error) = ended {
        note.get_or_insert(format!("{error}; the next stripewise command completes it"));
    }
    if let Err(error) = client.linked(striped.id()) {
        note.get_or_insert(format!("{error}; the next stripewise command completes it"));
    }
    Ok(Moved { file: striped.id(), size_bytes: source.size_bytes(), copied_bytes: source.data_bytes(), note })
}

/// Gives the stub the original's place, unless that was disturbed. The managed file is complete.
fn exchange_with_original(users: &Users<'_>, replacement: &mut Replacement) -> Result<(), ManageError> {
    let Users { original, moving, lease, .. } = users;
    let path = users.path();
    replacement.exchange(&original.descriptor, true, &|| moving.step("apply: original linked"))?;
    moving.step("apply: exchanged");
    let still_whole = original.likeness.is_still_of_renamed(&original.descriptor);
    if !lease.holds() || !still_whole || !replacement.displaced(&original.descriptor) {
        replacement.exchange_back().map_err(os(path, "take the stub back"))?;
        return Err(users.disturbed());
    }
    Ok(())
}

/// Gives the stub the original's place, and makes sure afterwards that nobody has the original and that nobody wrote it. Whatever is found, or a crash, is
/// undone by the broker alone, which knows whether this command or another host came first: what it finds incomplete it puts back.
fn exchange_and_compare(
    users: &Users<'_>,
    replacement: &mut Replacement,
    striped: &Arc<StripedFile>,
    source: &Source<'_>,
) -> Result<(), ManageError> {
    let Users { client, original, moving, .. } = users;
    let exchanged = replacement.exchange(&original.descriptor, false, &|| moving.step("apply: original linked"));
    let compared = exchanged.and_then(|()| compare_with_displaced(users, replacement, striped, source));
    if compared.is_err() {
        // While the names are held. If the broker is gone, its successor does the same.
        let _ = client.abandon(striped.id());
    }
    compared
}

fn compare_with_displaced(
    users: &Users<'_>,
    replacement: &Replacement,
    striped: &Arc<StripedFile>,
    source: &Source<'_>,
) -> Result<(), ManageError> {
    let Users { client, original, moving, .. } = users;
    let path = users.path();
    moving.step("apply: exchanged");
    let renamed = Likeness::of(&original.descriptor).map_err(os(path, "look at it"))?;
    let is_whole = || {
        replacement.displaced(&original.descriptor)
            && original.likeness.is_still_of_renamed(&original.descriptor)
            && renamed.is_still_of(&original.descriptor)
    };
    // Who has it open now can have opened it before; nobody can open it by its name any more.
    users.check_here()?;
    users.refuse_elsewhere(&replacement.displaced_entry().unwrap_or_else(|| original.entry.clone()))?;
    let compared = source.compare(striped, moving, &|| if is_whole() { Ok(()) } else { Err(users.disturbed()) });
    compared.map_err(|error| match error {
        _ if !is_whole() => users.disturbed(),
        // Who wrote it had it open before anybody was asked, and set its times back.
        ManageError::Differs { path, offset } => ManageError::Changed { path, offset },
        error => error,
    })?;
    if !is_whole() {
        return Err(users.disturbed());
    }
    moving.step("apply: verified");
    client.imported(striped.id()).map_err(client_fault(path))?;
    moving.step("apply: complete");
    Ok(())
}
