//! Bringing ordinary files under management, and back: `apply` and `release`.
//!
//! Both build the new file beside the old one under a temporary name, verify it, make it durable, and only then let it take the old
//! one's place by a rename. The broker notes what is under way before it begins; whoever is the broker next undoes or finishes
//! what a killed command left, so at every moment one of the two files is whole and stands at the path.
//!
//! `apply` holds a write lease on the original: the kernel refuses it while anybody has the file open, and tells when somebody
//! wants to. The original is exchanged with the stub rather than replaced, looked at once more, and only then removed.

mod copying;
mod error;
mod lease;
mod likeness;
mod replacement;

use crate::client::{Client, ClientError};
use crate::entry::DirectoryEntry;
use crate::file::StripedFile;
use crate::protocol::{Admin, Refusal, Request};
use crate::stub::{STUB_BYTES, Stub};
use copying::Source;
pub use error::ManageError;
use error::{client_fault, file_fault, os};
use lease::Lease;
use likeness::Likeness;
use replacement::Replacement;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, IFlags, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::{FileId, Placement};

/// How a move is watched and stopped.
#[derive(Clone, Copy, Default)]
pub struct Moving<'a> {
    /// When it becomes true (Ctrl-C), the move stops at the next chunk and undoes itself.
    pub cancelled: Option<&'a AtomicBool>,
    /// Called with bytes done and bytes in all; copying and verifying each count once.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
    /// Called with the name of every step that a crash could separate from the next; a test ends the process there.
    pub steps: Option<&'a dyn Fn(&'static str)>,
    /// Nobody ordered the move: it is given up unless the file is this one, and the kernel vouches by a lease that nobody has it open.
    pub unattended: Option<Unattended>,
}

/// The file that a move without an order is meant for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unattended {
    /// Device and number of the inode at the path: of the original, or of the stub.
    pub identity: (u64, u64),
    /// The least size at which the file is to be moved, in bytes.
    pub min_bytes: u64,
    /// The greatest.
    pub max_bytes: u64,
}

/// What was moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Moved {
    /// The file that is managed now, or was until now.
    pub file: FileId,
    /// Logical size.
    pub size_bytes: u64,
    /// Bytes copied; holes are not.
    pub copied_bytes: u64,
    /// What did not go as it should after the new file took its place, though the move is complete.
    pub note: Option<String>,
}

impl Moving<'_> {
    /// Refuses another file than the one that the move is meant for.
    fn check_identity(&self, found: &rustix::fs::Stat, path: &Path) -> Result<(), ManageError> {
        match self.unattended {
            Some(meant) if meant.identity != (found.st_dev, found.st_ino) => {
                Err(ManageError::Unsuitable { path: path.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a size that the move is not meant for.
    fn check_size(&self, size_bytes: u64, path: &Path) -> Result<(), ManageError> {
        match self.unattended {
            Some(meant) if !(meant.min_bytes..=meant.max_bytes).contains(&size_bytes) => {
                Err(ManageError::Unsuitable { path: path.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Refuses a lease that the kernel does not vouch for.
    fn check_lease(&self, lease: &Lease<'_>, path: &Path) -> Result<(), ManageError> {
        match self.unattended {
            Some(_) if !lease.is_real() => Err(ManageError::NoLease { path: path.to_owned() }),
            _ => Ok(()),
        }
    }

    fn step(&self, name: &'static str) {
        if let Some(steps) = self.steps {
            steps(name);
        }
    }

    fn check(&self, path: &Path) -> Result<(), ManageError> {
        match self.cancelled {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(ManageError::Cancelled { path: path.to_owned() }),
            _ => Ok(()),
        }
    }
}

/// The name that `path` leads to now, links followed once; from here on the directory is the one that was found.
fn entry_of(path: &Path) -> Result<DirectoryEntry, ManageError> {
    let real = std::fs::canonicalize(path)
        .map_err(|error| os(path, "open it")(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    DirectoryEntry::at(&real).map_err(os(path, "open its directory"))
}

/// A file that `apply` would take, open and looked at.
struct Original {
    /// Reached without symbolic links.
    entry: DirectoryEntry,
    descriptor: OwnedFd,
    likeness: Likeness,
}

impl Original {
    fn open(path: &Path) -> Result<Self, ManageError> {
        let entry = entry_of(path)?;
        let path = entry.path().to_owned();
        let found = entry.stat().and_then(|found| found.ok_or(Errno::NOENT)).map_err(os(&path, "look at it"))?;
        // Looked at before it is opened: opening a FIFO waits, opening a device acts.
        let what = match FileType::from_raw_mode(found.st_mode) {
            FileType::RegularFile => None,
            FileType::Directory => Some("a directory"),
            FileType::Fifo => Some("a FIFO"),
            FileType::Socket => Some("a socket"),
            FileType::CharacterDevice | FileType::BlockDevice => Some("a device"),
            FileType::Symlink | FileType::Unknown => Some("no regular file"),
        };
        if let Some(what) = what {
            return Err(ManageError::NotRegular { path, what });
        }
        if let Some(holders) = lease::holder_of_lease(&found) {
            return Err(ManageError::OpenElsewhere { path, holders });
        }
        let descriptor = match entry.open_regular(OFlags::RDONLY | OFlags::NOATIME) {
            Err(Errno::PERM) => entry.open_regular(OFlags::RDONLY),
            result => result,
        };
        let descriptor = descriptor.map_err(|errno| match errno {
            Errno::AGAIN => {
                let holders = "by a program that holds a lease on it".to_owned();
                ManageError::OpenElsewhere { path: path.clone(), holders }
            }
            errno => os(&path, "open it for reading")(errno),
        })?;
        let likeness = Likeness::of(&descriptor).map_err(os(&path, "look at it"))?;
        let original = Self { entry, descriptor, likeness };
        original.check()?;
        Ok(original)
    }

    /// Absolute, without symbolic links.
    fn path(&self) -> &Path {
        self.entry.path()
    }

    fn check(&self) -> Result<(), ManageError> {
        let path = || self.path().to_owned();
        let found = &self.likeness.stat;
        #[allow(clippy::unnecessary_cast, reason = "of 32 bits on some architectures")]
        let links = found.st_nlink as u64;
        if links > 1 {
            return Err(ManageError::HardLinked { path: path(), links });
        }
        if found.st_mode & 0o6000 != 0 {
            return Err(ManageError::SetId { path: path() });
        }
        // Not every file system has these flags.
        let flags = rustix::fs::ioctl_getflags(&self.descriptor).unwrap_or(IFlags::empty());
        if flags.intersects(IFlags::IMMUTABLE | IFlags::APPEND) {
            return Err(ManageError::Immutable { path: path() });
        }
        match read_stub(&self.descriptor, self.path()) {
            Ok(Some(stub)) => Err(ManageError::AlreadyManaged { path: path(), file: stub.file }),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What the file's text says, if it is a stub.
fn read_stub(descriptor: &OwnedFd, path: &Path) -> Result<Option<Stub>, ManageError> {
    // One byte more, so that a longer file is seen not to be one.
    let mut bytes = [0; STUB_BYTES + 1];
    let length = rustix::io::pread(descriptor, &mut bytes[..], 0).map_err(os(path, "read it"))?;
    Stub::parse(&bytes[..length]).map_err(|source| ManageError::Stub { path: path.to_owned(), source })
}

/// Whether [`apply`] would take the file now, room apart. Changes nothing. Returns its size in bytes.
///
/// # Errors
///
/// Those of [`apply`] that it meets before it changes anything.
pub fn examine(path: &Path) -> Result<u64, ManageError> {
    let original = Original::open(path)?;
    let lease = Lease::take(&original.descriptor, original.path())?;
    drop(lease);
    Ok(original.likeness.stat.st_size as u64)
}

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
    let mut replacement = Replacement::new(&original.entry)?;
    let path = original.path();
    original.likeness.give_owner_and_mode(replacement.descriptor()).map_err(os(path, "give the stub its owner"))?;
    let striped = client
        .import(
            path,
            placement.clone(),
            replacement.temporary(),
            replacement.descriptor().as_fd(),
            original.descriptor.as_fd(),
        )
        .map_err(client_fault(path))?;
    let file = striped.id();
    let moved = bring_in(client, &original, &lease, &mut replacement, &striped, moving);
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

fn bring_in(
    client: &Client,
    original: &Original,
    lease: &Lease<'_>,
    replacement: &mut Replacement,
    striped: &Arc<StripedFile>,
    moving: &Moving<'_>,
) -> Result<Moved, ManageError> {
    let path = original.path();
    moving.step("apply: noted");
    replacement.name().map_err(os(path, "name the stub next to it"))?;
    moving.step("apply: stub named");
    let source = Source::of(&original.descriptor, path)?;
    // All room is promised before the first byte is copied.
    for segment in source.segments() {
        striped.allocate(segment.start, segment.length, true).map_err(file_fault(path))?;
    }
    moving.step("apply: placed");
    let undisturbed = || if lease.holds() { Ok(()) } else { Err(ManageError::Disturbed { path: path.to_owned() }) };
    source.copy_in(striped, moving, &undisturbed)?;
    striped.truncate(source.size_bytes()).map_err(file_fault(path))?;
    moving.step("apply: copied");
    striped.sync(false).map_err(file_fault(path))?;
    source.compare(striped, moving, &undisturbed)?;
    moving.step("apply: verified");
    client.request(&Request::Admin(Admin::Imported { file: striped.id() }), &[]).map_err(client_fault(path))?;
    moving.step("apply: complete");
    original.likeness.give_attributes(replacement.descriptor()).map_err(os(path, "give the stub its attributes"))?;
    striped.set_modified_ns(None).map_err(file_fault(path))?;
    original.likeness.give_times(replacement.descriptor()).map_err(os(path, "give the stub its times"))?;
    rustix::fs::fsync(replacement.descriptor()).map_err(os(path, "make the stub durable"))?;
    moving.check(path)?;
    if !original.likeness.is_still_of(&original.descriptor) {
        return Err(ManageError::Disturbed { path: path.to_owned() });
    }
    undisturbed()?;
    if !replacement.stands(&original.descriptor) {
        return Err(ManageError::Disturbed { path: path.to_owned() });
    }
    moving.step("apply: before the exchange");
    let names = replacement.begin_exchange(client, Some(striped.id()), None)?;
    moving.step("apply: exchange noted");
    let exchanged = exchange_with_original(original, lease, replacement, moving);
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

/// Gives the stub the original's place, unless that was disturbed.
fn exchange_with_original(
    original: &Original,
    lease: &Lease<'_>,
    replacement: &mut Replacement,
    moving: &Moving<'_>,
) -> Result<(), ManageError> {
    let path = original.path();
    replacement.exchange().map_err(os(path, "put the stub in its place"))?;
    moving.step("apply: exchanged");
    let still_whole = original.likeness.is_still_of_renamed(&original.descriptor);
    if !lease.holds() || !still_whole || !replacement.displaced(&original.descriptor) {
        replacement.exchange_back().map_err(os(path, "take the stub back"))?;
        return Err(ManageError::Disturbed { path: path.to_owned() });
    }
    Ok(())
}

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
    let mut stub = StandingStub { descriptor: &descriptor, likeness, lease: None };
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
    begin(&replacement)?;
    let taken = moving
        .check_size(striped.size_bytes(), path)
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
    likeness: Likeness,
    /// Of a move that nobody ordered.
    lease: Option<Lease<'a>>,
}

impl StandingStub<'_> {
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
    replacement.exchange().map_err(os(path, "put the copy in its place"))?;
    moving.step("release: exchanged");
    if !replacement.displaced(stub.descriptor) || stub.check_undisturbed(path).is_err() {
        replacement.exchange_back().map_err(os(path, "take the copy back"))?;
        return Err(ManageError::Disturbed { path: path.to_owned() });
    }
    Ok(())
}
