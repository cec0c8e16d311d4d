//! Bringing ordinary files under management, and back: `apply` and `release`.
//!
//! Both build the new file beside the old one under a temporary name, verify it, make it durable, and only then let it take the old
//! one's place by a rename. The broker notes what is under way before it begins; whoever is the broker next undoes or finishes
//! what a killed command left, so at every moment one of the two files is whole and stands at the path.
//!
//! `apply` holds a write lease on the original: the kernel refuses it while anybody has the file open, and tells when somebody
//! wants to. The original is exchanged with the stub rather than replaced, looked at once more, and only then removed.
//!
//! A lease does not reach other hosts, and not every mount has it. Then the open files of all hosts are looked through ([`elsewhere`]), before the
//! exchange and after it, when the file cannot be opened by its name any more. The original stays under a second name until it was compared with
//! what was copied; until then a broker that finds this unfinished puts it back. Where names cannot be exchanged either, the original gets its
//! second name by a link, and the stub is renamed over the first: at no time does the path lead to nothing.

mod applying;
mod copying;
pub mod elsewhere;
mod error;
mod lease;
mod likeness;
mod releasing;
mod replacement;

use crate::client::Client;
use crate::entry::DirectoryEntry;
use crate::holders::Wanted;
use crate::stub::{STUB_BYTES, Stub};
pub use applying::apply;
pub use error::ManageError;
use error::{client_fault, file_fault, os};
use lease::Lease;
pub use lease::is_open;
use likeness::Likeness;
pub use releasing::release;
pub use replacement::second_name;
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, IFlags, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use stripewise_layout::FileId;

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
    /// Hosts that are not asked for programs that have the file open: who names them vouches that no program there has.
    pub unchecked_hosts: &'a [String],
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
        if let Some(holders) = Wanted::of(&found).holder_of_lease() {
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

/// Whether [`apply`] would take the file now, room and other hosts apart. Changes nothing. Returns its size in bytes.
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

/// That no program of another host has the file open, as [`apply`] asks it; nothing where the cluster has one host.
///
/// # Errors
///
/// [`ManageError::OpenElsewhere`], or [`ManageError::Client`] that names a host which cannot say.
pub fn examine_elsewhere(client: &Client, path: &Path, unchecked_hosts: &[String]) -> Result<(), ManageError> {
    let original = Original::open(path)?;
    let moving = Moving { unchecked_hosts, ..Moving::default() };
    elsewhere::refuse_holders(client, (&original.entry, &original.entry), &original.likeness.stat, false, &moving)
}
