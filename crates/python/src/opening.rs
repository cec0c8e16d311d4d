//! Which files are managed, and how they are opened and made.
//!
//! An existing file is managed if its text is a stub's, which says where its cluster's state is, or if its inode is in the table of stubs of the cluster
//! that is meant (a stub's text may have been truncated or written over). A new one is, if that cluster takes it. For all others Python's own `open` is called.

use crate::connection::{Caller, client, state_of, with_cluster};
use crate::failure::{of_file, of_system, os_error};
use crate::file::{Access, File};
use pyo3::prelude::*;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File as Ordinary;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise::messages::chain;
use stripewise::store::{StoreError, read_stub};
use stripewise_layout::FileId;
use stripewise_store::client::Client;
use stripewise_store::file::StripedFile;
use stripewise_store::new_stub::{Birth, NewStub};
use stripewise_store::shared::inodes::Inodes;
use stripewise_store::shared::processes::is_used_here;
use stripewise_store::state::INODES;
use stripewise_store::stub::size_may_be_stub;

/// How often a file is looked for again that others make and remove.
const MAX_ROUNDS: usize = 64;

/// A managed file, and who knows it.
pub(crate) struct Found {
    pub(crate) client: Client,
    pub(crate) id: FileId,
}

/// The managed file that is open as `held`, which the path leads to; `None` of an ordinary one.
pub(crate) fn find(held: &Ordinary, path: &Path, caller: &Caller) -> Result<Option<Found>, PyErr> {
    let stub = read_stub(held, path);
    if let Ok(Some(stub)) = &stub {
        let client = client(&stub.state, caller)?;
        if client.cluster() != stub.cluster {
            let what = format!(
                "it belongs to cluster {}, but {} is cluster {}'s",
                stub.cluster,
                stub.state.display(),
                client.cluster()
            );
            return Err(os_error(Errno::STALE, &what, path));
        }
        return Ok(Some(Found { client, id: stub.file }));
    }
    let metadata = held.metadata().map_err(|source| of_io(&source, path))?;
    if metadata.is_file()
        && let Some(state) = state_of(&caller.session)?
        && (stub.is_err() || holds(&state, (metadata.dev(), metadata.ino())))
    {
        let client = client(&state, caller)?;
        if let Some(id) = client.find(held.as_fd()).map_err(|error| of_file(&error, path))? {
            return Ok(Some(Found { client, id }));
        }
    }
    // A damaged text of no known stub.
    stub.map(|_| None).map_err(|error| unread(&error, path))
}

/// Of a stub that cannot be read, or whose text is damaged.
fn unread(error: &StoreError, path: &Path) -> PyErr {
    match error {
        StoreError::Path(refused) => of_io(&refused.source, path),
        StoreError::Stub { source, .. } => os_error(Errno::IO, &chain(source), path),
        _ => os_error(Errno::IO, &chain(error), path),
    }
}

/// As [`find`], of a regular file that this process may not read, so that only the cluster that is meant can say. `held` may be open with `O_PATH`.
pub(crate) fn find_unread(held: BorrowedFd<'_>, path: &Path, caller: &Caller) -> Result<Option<Found>, PyErr> {
    let found = rustix::fs::fstat(held).map_err(|errno| of_system(errno, path))?;
    let may_be_stub = size_may_be_stub(found.st_size as u64);
    let Some(state) = state_of(&caller.session)? else {
        if !may_be_stub {
            return Ok(None);
        }
        // What is written over a stub's text is lost, and so may be the file.
        let what = "it may not be read and has the size of a stub, so that its cluster alone knows whether it is managed; name the cluster file (cluster=, or STRIPEWISE_CLUSTER)";
        return Err(os_error(Errno::ACCESS, what, path));
    };
    if !may_be_stub && !holds(&state, (found.st_dev, found.st_ino)) {
        return Ok(None);
    }
    let client = client(&state, caller)?;
    let id = client.find(held).map_err(|error| of_file(&error, path))?;
    Ok(id.map(|id| Found { client, id }))
}

/// Whether the cluster's table of stubs has the inode.
fn holds(state: &Path, identity: (u64, u64)) -> bool {
    let opened = rustix::fs::open(state.join("run").join(INODES), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let table = opened.and_then(|file| Inodes::open(&file, false));
    table.is_ok_and(|table| table.holds(identity))
}

pub(crate) fn of_io(error: &std::io::Error, path: &Path) -> PyErr {
    of_system(Errno::from_io_error(error).unwrap_or(Errno::IO), path)
}

/// What is opened, and how.
struct Opening {
    path: PathBuf,
    access: Access,
    creates: bool,
    exclusive: bool,
    truncates: bool,
}

/// Opens the managed file at `path`, or makes one where the cluster takes it; None of any other file, which is left as it is.
///
/// `mode` is Python's, without what is said of text: "r", "w", "a" or "x", with or without "+".
#[pyfunction]
#[pyo3(signature = (path, mode, cluster=None))]
pub(crate) fn open_managed(
    py: Python<'_>,
    path: PathBuf,
    mode: &str,
    cluster: Option<PathBuf>,
) -> PyResult<Option<File>> {
    let (kind, both) = (mode.chars().next(), mode.contains('+'));
    let opening = Opening {
        path,
        access: Access {
            reads: kind == Some('r') || both,
            writes: kind != Some('r') || both,
            appends: kind == Some('a'),
        },
        creates: kind != Some('r'),
        exclusive: kind == Some('x'),
        truncates: kind == Some('w'),
    };
    with_cluster(py, cluster, |caller| opening.open(caller))
}

impl Opening {
    fn open(&self, caller: &Caller) -> PyResult<Option<File>> {
        for _ in 0..MAX_ROUNDS {
            let found = std::fs::metadata(&self.path);
            // Opening a FIFO or a device may wait or do something.
            if found.as_ref().is_ok_and(|found| !found.is_file()) {
                return Ok(None);
            }
            // To close it would end the locks by which others see that this process lives.
            if found.is_ok_and(|found| is_used_here((found.dev(), found.ino()))) {
                return Err(of_system(Errno::ACCESS, &self.path));
            }
            let mut options = Ordinary::options();
            // The stub is never written; that this process may write it is what counts.
            options.read(true).write(self.access.writes);
            match options.open(&self.path) {
                Ok(held) => {
                    let found = find(&held, &self.path, caller)?;
                    return self.open_existing(held, found);
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.creates => {}
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && self.access.writes => {
                    // It may be one that this process may write and not read.
                    let Ok(held) = Ordinary::options().write(true).open(&self.path) else { return Ok(None) };
                    let found = find_unread(held.as_fd(), &self.path, caller)?;
                    return self.open_existing(held, found);
                }
                // A directory, a file that may not be read, or none: Python's own open says what it always says.
                Err(_) => return Ok(None),
            }
            match self.make(caller) {
                // Somebody made it meanwhile.
                Err(Failed::Errno(Errno::EXIST)) if !self.exclusive => {}
                Err(Failed::Errno(errno)) => return Err(of_system(errno, &self.path)),
                Err(Failed::Other(error)) => return Err(error),
                Ok(made) => return Ok(made),
            }
        }
        Err(of_system(Errno::BUSY, &self.path))
    }

    fn open_existing(&self, held: Ordinary, found: Option<Found>) -> PyResult<Option<File>> {
        let Some(Found { client, id }) = found else { return Ok(None) };
        if self.exclusive {
            return Err(of_system(Errno::EXIST, &self.path));
        }
        let striped = client.open(held.as_fd(), id).map_err(|error| of_file(&error, &self.path))?;
        if self.truncates {
            striped.truncate(0).map_err(|error| of_file(&error, &self.path))?;
        }
        self.opened(held, striped).map(Some)
    }

    fn opened(&self, stub: Ordinary, striped: Arc<StripedFile>) -> PyResult<File> {
        let position = if self.access.appends {
            striped.latest_size_bytes().map_err(|error| of_file(&error, &self.path))?
        } else {
            0
        };
        Ok(File::new(self.path.clone(), self.access, stub, striped, position))
    }

    /// A new managed file; `None` where an ordinary one is to be made.
    fn make(&self, caller: &Caller) -> Result<Option<File>, Failed> {
        let path = self.target()?;
        let Some(state) = state_of(&caller.session)? else { return Ok(None) };
        let client = client(&state, caller)?;
        if !client.takes(&path) {
            return Ok(None);
        }
        if client.is_shared() && self.access.appends {
            let what = "a new file cannot be opened for appending: its cluster is used by several hosts, which do not take turns at the end of a file";
            return Err(os_error(Errno::OPNOTSUPP, what, &self.path).into());
        }
        // Other hosts look at it by a name.
        let birth = if client.is_shared() { Birth::Named } else { Birth::Either };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL.into()) };
        let parent =
            rustix::fs::openat(CWD, parent, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let name = CString::new(name.as_bytes()).map_err(|_| Errno::INVAL)?;
        let mode = Mode::from_raw_mode(0o666);
        let (stub, mut born) = NewStub::make(parent.as_fd(), c".", OFlags::RDWR | OFlags::CLOEXEC, mode, birth)?;
        let striped = client.create(&path, stub.as_fd()).map_err(|error| of_file(&error, &self.path))?;
        if let Err(errno) = born.link(stub.as_fd(), &name) {
            // It is dropped by the broker when this process ends, if it cannot be told now.
            let _ = client.abandon(striped.id());
            return Err(errno.into());
        }
        client.report_linked(striped.id());
        Ok(Some(self.opened(stub.into(), striped)?))
    }

    /// The absolute path of the file that the open would make: with a directory that is no link, and through links that lead nowhere.
    fn target(&self) -> Result<PathBuf, Failed> {
        let mut path = self.path.clone();
        for _ in 0..MAX_ROUNDS {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let parent = parent
                .canonicalize()
                .map_err(|source| Failed::Errno(Errno::from_io_error(&source).unwrap_or(Errno::IO)))?;
            let target = parent.join(path.file_name().ok_or(Errno::ISDIR)?);
            match std::fs::read_link(&target) {
                Ok(link) if self.exclusive => return Err(Failed::Other(of_system(Errno::EXIST, &link))),
                Ok(link) => path = parent.join(link),
                Err(_) => return Ok(target),
            }
        }
        Err(Errno::LOOP.into())
    }
}

/// Of a file being made.
enum Failed {
    Errno(Errno),
    Other(PyErr),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<PyErr> for Failed {
    fn from(error: PyErr) -> Self {
        Self::Other(error)
    }
}
