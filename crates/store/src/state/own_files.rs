//! Files and directories that are this user's own.
//!
//! Nothing is followed that another user could have put in their place, and a small file is replaced
//! as a whole or not at all.

use super::error::fault_of;
use super::{HOST, LOCK, StateError};
use crate::entry::{check_own_at, create_own_at, open_own_at};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How a directory is opened.
pub(super) const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

/// A directory of plain files below the state directory.
#[derive(Debug)]
pub struct OwnDirectory {
    pub(super) path: PathBuf,
    pub(super) directory: OwnedFd,
}

impl OwnDirectory {
    /// Absolute if the state directory's is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The names in it, in order; those that are not UTF-8 are nobody's here.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`].
    pub fn names(&self) -> Result<Vec<String>, StateError> {
        let list = || {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&self.directory)? {
                names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
            }
            names.sort_unstable();
            Ok(names)
        };
        list().map_err(|source| StateError::Os { path: self.path.clone(), action: "list", source })
    }

    /// Opens this user's own file `name` for reading.
    ///
    /// # Errors
    ///
    /// [`StateError::Foreign`] if what stands there is no regular file of this user with one name,
    /// otherwise [`StateError::Os`].
    pub fn open(&self, name: &str) -> Result<std::fs::File, StateError> {
        let opened = open_own_at(&self.directory, name.as_ref(), OFlags::RDONLY);
        opened.map(Into::into).map_err(|source| fault_of(self.path.join(name), "open", source))
    }

    /// Lets `name` hold `bytes`, durably and at once.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`]; the file is then as it was.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        replace_at(&self.directory, name, bytes).map_err(|source| fault_of(self.path.join(name), "write", source))
    }

    /// Removes `name`, if it is there.
    ///
    /// # Errors
    ///
    /// [`StateError::Os`].
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(source) => Err(fault_of(self.path.join(name), "remove", source)),
        }
    }
}

/// Replaces a small file, durably and as a whole; one that cannot be written leaves the old one and nothing beside it.
pub(super) fn replace_at(directory: &OwnedFd, name: &str, bytes: &[u8]) -> rustix::io::Result<()> {
    let temporary = format!(".{name}.{}", std::process::id());
    let file = create_own_at(directory, temporary.as_ref())?;
    let replace = || {
        std::fs::File::from(rustix::io::fcntl_dupfd_cloexec(&file, 0)?)
            .write_all(bytes)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        rustix::fs::fsync(&file)?;
        rustix::fs::renameat(directory, &temporary, directory, name)?;
        rustix::fs::fsync(directory)
    };
    replace().inspect_err(|_| {
        let _ = rustix::fs::unlinkat(directory, &temporary, AtFlags::empty());
    })
}

/// A small text file of this user.
pub(super) fn read_own(parent: impl AsFd, name: &str) -> rustix::io::Result<String> {
    text_of(&open_own_at(parent, name.as_ref(), OFlags::RDONLY)?)
}

/// The text of a file of at most 4096 bytes.
pub(super) fn text_of(file: &OwnedFd) -> rustix::io::Result<String> {
    let mut bytes = [0; 4096];
    let length = rustix::io::read(file, &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

/// This user's own directory, made if it is missing; no link is followed to it.
pub(super) fn own_directory(parent: impl AsFd, name: &Path) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let flags = DIRECTORY | OFlags::NOFOLLOW;
    let opened = rustix::fs::openat(&parent, name, flags, Mode::empty()).map_err(|errno| {
        let found = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        let is_link = found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
        if is_link { Errno::LOOP } else { errno }
    })?;
    if rustix::fs::fstat(&opened)?.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    Ok(opened)
}

/// The error that names another user as the owner of what stands at `path`, if one is.
pub(super) fn other_owner(path: &Path) -> Option<StateError> {
    let caller = rustix::process::geteuid().as_raw();
    let owner = rustix::fs::stat(path).ok()?.st_uid;
    (owner != caller).then(|| StateError::OtherOwner { path: path.to_owned(), owner, caller })
}

/// What a directory is that may become a state directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    State,
    Empty,
}

/// That `root` is this user's alone to write, and a state directory or empty.
pub(super) fn check_owner(root: &OwnedFd, path: &Path) -> Result<Found, StateError> {
    let fault = |source| StateError::Os { path: path.to_owned(), action: "look at it", source };
    let found = rustix::fs::fstat(root).map_err(fault)?;
    let caller = rustix::process::geteuid().as_raw();
    if found.st_uid != caller {
        return Err(StateError::OtherOwner { path: path.to_owned(), owner: found.st_uid, caller });
    }
    if found.st_mode & 0o022 != 0 {
        return Err(StateError::OpenToWriters { path: path.to_owned(), mode: found.st_mode & 0o7777 });
    }
    // A `state` that leads elsewhere, by a link or a slip of the pen, must not fill a directory of other things.
    let known = |name: &str| rustix::fs::statat(root, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let is_known = || [LOCK, "rmt", HOST].into_iter().any(known);
    if is_known() {
        return Ok(Found::State);
    }
    let mut others = rustix::fs::Dir::read_from(root).map_err(fault)?;
    match others
        .find(|entry| entry.as_ref().map_or(true, |entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")))
    {
        None => Ok(Found::Empty),
        // Another process that makes the state directory right now may have begun since.
        Some(_) if is_known() => Ok(Found::State),
        Some(_) => Err(StateError::NotState { path: path.to_owned() }),
    }
}

/// Copies of the table (`rmt.good/`, `rmt.v3/`) are opened by their paths as well: all in them is this user's own. An error comes with its name.
pub(super) fn check_copied_stubs(root: &OwnedFd) -> Result<(), (String, Errno)> {
    let names_in = |directory: &OwnedFd| -> rustix::io::Result<Vec<OsString>> {
        let entries = rustix::fs::Dir::read_from(directory)?;
        entries.map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned())).collect()
    };
    let unnamed = |errno| (String::new(), errno);
    for name in names_in(root).map_err(unnamed)?.iter().filter(|name| name.as_bytes().starts_with(b"rmt.")) {
        let shown = name.to_string_lossy().into_owned();
        let copy = own_directory(root, Path::new(name)).map_err(|errno| (shown.clone(), errno))?;
        let inside = names_in(&copy).map_err(|errno| (shown.clone(), errno))?;
        for file in inside.iter().filter(|file| !matches!(file.as_bytes(), b"." | b"..")) {
            match check_own_at(&copy, file) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err((format!("{shown}/{}", file.to_string_lossy()), errno)),
            }
        }
    }
    Ok(())
}
