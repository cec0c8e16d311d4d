//! The marker of a server's directory: which server of which cluster it is.

use super::{DirectoryServer, ROOT, ServerError, make_directory};
use crate::entry::{create_own_at, open_regular_at};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::PoisonError;

/// The file that says which server of which cluster a directory is.
pub const MARKER: &str = "stripewise-server";
/// The directory of objects, beside the marker.
pub(super) const OBJECTS: &str = "stripewise-objects";
const FIRST_LINE: &str = "stripewise server 1";

pub(super) enum MarkerFault {
    Absent,
    Other(ServerError),
}

/// What [`prepare`] made in a directory that it found.
#[derive(Debug)]
pub struct Prepared {
    root: OwnedFd,
    made: Vec<(&'static str, AtFlags)>,
}

impl Prepared {
    /// Removes it again; a directory that holds objects by now stays.
    pub fn undo(self) {
        for (name, how) in self.made.iter().rev() {
            let _ = rustix::fs::unlinkat(&self.root, *name, *how);
        }
    }
}

/// Makes `directory`, which must exist, the server `name` of cluster `cluster`: writes the marker and makes the directory of objects. Doing it
/// again changes nothing; a directory of another cluster or server is refused.
///
/// # Errors
///
/// [`ServerError::Unusable`] if `directory` is none, cannot be written, or belongs to another
/// cluster or server; otherwise [`ServerError::Os`]. Nothing was made then.
pub fn prepare(cluster: &str, name: &str, directory: &Path) -> Result<Prepared, ServerError> {
    let server = DirectoryServer::new(cluster, name, directory);
    let root = rustix::fs::open(directory, ROOT, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => server.unusable(format!(
            "{} is no directory; create it or mount what belongs there, then prepare the server again",
            directory.display()
        )),
        errno => server.fault("opening the server directory", errno),
    })?;
    let mut prepared = Prepared { root, made: Vec::new() };
    match make_parts(&server, &mut prepared) {
        Ok(()) => Ok(prepared),
        Err(error) => {
            prepared.undo();
            Err(error)
        }
    }
}

fn make_parts(server: &DirectoryServer, Prepared { root, made }: &mut Prepared) -> Result<(), ServerError> {
    match server.check_marker(root) {
        Ok(()) => {}
        Err(MarkerFault::Absent) => {
            let text = format!("{FIRST_LINE}\ncluster {}\nserver {}\n", server.cluster, server.name);
            write_new(root, MARKER, text.as_bytes()).map_err(|errno| server.not_writable(errno))?;
            made.push((MARKER, AtFlags::empty()));
        }
        Err(MarkerFault::Other(error)) => return Err(error),
    }
    if rustix::fs::statat(&*root, OBJECTS, AtFlags::SYMLINK_NOFOLLOW).is_err() {
        made.push((OBJECTS, AtFlags::REMOVEDIR));
    }
    make_directory(&*root, OBJECTS).map_err(|errno| server.not_writable(errno))?;
    rustix::fs::fsync(&*root).map_err(|errno| server.fault("making the marker durable", errno))
}

/// Completes before it appears: a marker is whole or absent.
fn write_new(root: &OwnedFd, name: &str, bytes: &[u8]) -> rustix::io::Result<()> {
    let temporary = format!(".{name}.new");
    let file = create_own_at(root, temporary.as_ref())?;
    let write = || {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = &rest[rustix::io::write(&file, rest)?..];
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        rustix::fs::fsync(&file)?;
        rustix::fs::renameat(root, &temporary, root, name)
    };
    write().inspect_err(|_| {
        let _ = rustix::fs::unlinkat(root, &temporary, AtFlags::empty());
    })
}

impl DirectoryServer {
    /// `Ok`: `root` is this server.
    pub(super) fn check_marker(&self, root: &OwnedFd) -> Result<(), MarkerFault> {
        let marker = match open_regular_at(root, MARKER.as_ref(), OFlags::RDONLY) {
            Ok(marker) => marker,
            Err(Errno::NOENT) => return Err(MarkerFault::Absent),
            Err(errno) => return Err(MarkerFault::Other(self.fault("reading the server's marker", errno))),
        };
        // Before it is read: a change meanwhile makes it another version.
        let version = rustix::fs::fstat(&marker).map(|found| version_of(&found)).ok();
        let mut bytes = [0; 1024];
        let length = rustix::io::read(&marker, &mut bytes)
            .map_err(|errno| MarkerFault::Other(self.fault("reading the server's marker", errno)))?;
        let text = String::from_utf8_lossy(&bytes[..length]);
        if text == format!("{FIRST_LINE}\ncluster {}\nserver {}\n", self.cluster, self.name) {
            *self.marker.lock().unwrap_or_else(PoisonError::into_inner) = version;
            return Ok(());
        }
        let found = text.lines().collect::<Vec<_>>().join(", ");
        Err(MarkerFault::Other(self.unusable(format!(
            "{} belongs to another server ({found}); expected cluster {}, server {}: correct cluster.toml, or mount the right directory there",
            self.directory.display(),
            self.cluster,
            self.name
        ))))
    }
}

/// What tells a file from another, and from itself after a change.
pub(super) type Version = (u64, u64, i64, i64, u64);

pub(super) fn version_of(found: &rustix::fs::Stat) -> Version {
    (found.st_dev, found.st_ino, found.st_ctime, found.st_ctime_nsec as i64, found.st_size as u64)
}
