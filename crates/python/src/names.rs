//! Status, removal and renaming of managed files, for file systems made of Python objects.

use crate::connection::{Caller, with_cluster};
use crate::failure::{of_file, of_system, os_error};
use crate::opening::{Found, find, find_unread};
use pyo3::prelude::*;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File as Ordinary;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use stripewise_store::client::{Lookup, Name, NameChange, Standing, rename_to_free};
use stripewise_store::errno::ToErrno;
use stripewise_store::protocol::NameCall;
use stripewise_store::shared::processes::is_used_here;

/// How often names that come and go are examined again.
const MAX_ROUNDS: u32 = 64;

/// What stands at `path`, with `NOFOLLOW` in `flags` at the name itself, not where a link leads; `None`: nothing. It is not opened, which might wait or not be
/// permitted.
fn hold(path: &Path, flags: OFlags) -> PyResult<Option<OwnedFd>> {
    match rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty()) {
        Ok(held) => Ok(Some(held)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(of_system(errno, path)),
    }
}

/// The managed file that is held; `None` of anything else.
fn managed(held: &OwnedFd, path: &Path, caller: &Caller) -> PyResult<Option<Found>> {
    let found = rustix::fs::fstat(held).map_err(|errno| of_system(errno, path))?;
    // To open the table of processes and close it would end this process's own locks.
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile || is_used_here((found.st_dev, found.st_ino)) {
        return Ok(None);
    }
    match Ordinary::open(format!("/proc/self/fd/{}", held.as_raw_fd())) {
        Ok(file) => find(&file, path, caller),
        Err(_) => find_unread(held.as_fd(), path, caller),
    }
}

/// `(size, blocks of 512 bytes, modification time in ns or None)` of the managed file at `path`; None of anything else.
#[pyfunction]
#[pyo3(signature = (path, cluster=None))]
pub(crate) fn status(
    py: Python<'_>,
    path: PathBuf,
    cluster: Option<PathBuf>,
) -> PyResult<Option<(u64, u64, Option<u64>)>> {
    with_cluster(py, cluster, |caller| {
        let Some(held) = hold(&path, OFlags::empty())? else { return Ok(None) };
        let Some(Found { client, .. }) = managed(&held, &path, caller)? else { return Ok(None) };
        match client.lookup(held.as_fd()).map_err(|error| of_file(&error, &path))? {
            Lookup::Data(status) => Ok(Some((status.size_bytes, status.blocks_512, status.modified_ns))),
            Lookup::Copy(file) => {
                let what = format!("a copy of the stub of file {file}, not the stub itself; run `stripewise check`");
                Err(os_error(Errno::STALE, &what, &path))
            }
            Lookup::NoStub => {
                let what = "the text of a stub that its cluster does not have; run `stripewise check`";
                Err(os_error(Errno::IO, what, &path))
            }
        }
    })
}

/// Removes the managed file at `path`, name and data; False of anything else, which stays.
#[pyfunction]
#[pyo3(signature = (path, cluster=None))]
pub(crate) fn remove(py: Python<'_>, path: PathBuf, cluster: Option<PathBuf>) -> PyResult<bool> {
    with_cluster(py, cluster, |caller| {
        let Some(held) = hold(&path, OFlags::NOFOLLOW)? else { return Ok(false) };
        let Some(Found { client, id }) = managed(&held, &path, caller)? else { return Ok(false) };
        client.remove(&path, held.as_fd(), id).map_err(|error| of_file(&error, &path))?;
        Ok(true)
    })
}

/// Renames `source` to `target`, over what stands there, if either is managed; False otherwise, and nothing is done.
#[pyfunction]
#[pyo3(signature = (source, target, cluster=None))]
pub(crate) fn rename(py: Python<'_>, source: PathBuf, target: PathBuf, cluster: Option<PathBuf>) -> PyResult<bool> {
    with_cluster(py, cluster, |caller| {
        for _ in 0..MAX_ROUNDS {
            match Renaming::new(&source, &target, caller)?.make()? {
                Renamed::Done => return Ok(true),
                Renamed::NotManaged => return Ok(false),
                Renamed::Changed => {}
            }
        }
        Err(of_system(Errno::BUSY, &target))
    })
}

/// What stands at a name, and whether it is managed.
type Named = (OwnedFd, Option<Found>);

enum Renamed {
    Done,
    NotManaged,
    /// Other files stand there by now.
    Changed,
}

struct Renaming<'a> {
    source: &'a Path,
    target: &'a Path,
    mover: Named,
    victim: Option<Named>,
}

impl<'a> Renaming<'a> {
    fn new(source: &'a Path, target: &'a Path, caller: &Caller) -> PyResult<Self> {
        let at = |path: &Path| -> PyResult<Option<Named>> {
            let Some(held) = hold(path, OFlags::NOFOLLOW)? else { return Ok(None) };
            let found = managed(&held, path, caller)?;
            Ok(Some((held, found)))
        };
        let victim = at(target)?;
        let mover = at(source)?.ok_or_else(|| of_system(Errno::NOENT, source))?;
        Ok(Self { source, target, mover, victim })
    }

    fn make(&self) -> PyResult<Renamed> {
        let of_victim = self.victim.as_ref().and_then(|(_, found)| found.as_ref());
        let Some(Found { client, .. }) = of_victim.or(self.mover.1.as_ref()) else { return Ok(Renamed::NotManaged) };
        let (from, from_name) = parent(self.source)?;
        let (to, to_name) = parent(self.target)?;
        let source = Name { directory: from.as_fd(), name: from_name };
        let target = Name { directory: to.as_fd(), name: to_name };
        let victim = self.victim.as_ref().map(standing);
        let mover = Some(standing(&self.mover));
        let change = NameChange::concerning(NameCall::Rename, target, victim, Some((source, mover)));
        let Some(change) = change else { return Ok(Renamed::NotManaged) };
        let begun = match change.note(client, |error| error.errno()) {
            Ok(begun) => begun,
            Err(Errno::STALE) => return Ok(Renamed::Changed),
            Err(errno) => return Err(of_system(errno, self.target)),
        };
        let renamed = match self.victim {
            Some(_) => rustix::fs::renameat(&from, from_name, &to, to_name),
            None => rename_to_free((&from, from_name), (&to, to_name)),
        };
        if let Some(begun) = begun {
            begun.end(renamed.is_ok()).map_err(|error| of_file(&error, self.target))?;
        }
        if self.victim.is_none() && renamed == Err(Errno::EXIST) {
            return Ok(Renamed::Changed);
        }
        renamed.map_err(|errno| of_system(errno, self.source))?;
        Ok(Renamed::Done)
    }
}

fn standing((held, found): &Named) -> Standing<'_> {
    Standing { file: held.as_fd(), managed: found.as_ref().map(|found| found.id) }
}

/// The directory of a path, and the name in it.
fn parent(path: &Path) -> PyResult<(OwnedFd, &[u8])> {
    let name = path.file_name().ok_or_else(|| of_system(Errno::INVAL, path))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let held = rustix::fs::openat(CWD, parent, flags, Mode::empty()).map_err(|errno| of_system(errno, path))?;
    Ok((held, name.as_bytes()))
}
