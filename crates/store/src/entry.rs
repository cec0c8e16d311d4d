//! Names in directories, reached without following symbolic links.
//!
//! The mapping table records where a stub stands, as a path from the root without links. Between the record and its use anybody who
//! may write one of the directories can rename it and put a link in its place, so the path itself proves nothing. A
//! [`DirectoryEntry`] opens the directory once, by `openat2` with `RESOLVE_NO_SYMLINKS` (component by component where the kernel has
//! none), and every later operation is relative to that descriptor and follows no link in the last name either. What stands there is
//! checked by `fstat` after it was opened, never before.
//!
//! Operations that create, rename or remove something for another user run as that user: see [`User`].

mod user;

pub use user::User;

use crate::nameless;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Nothing is read from the directory by this descriptor, and permission to pass through is enough.
const WALK: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

/// One name in one open directory. Whatever becomes of the path, the directory stays the one that was opened.
#[derive(Clone, Debug)]
pub struct DirectoryEntry {
    directory: Arc<OwnedFd>,
    name: OsString,
    path: PathBuf,
}

impl DirectoryEntry {
    /// The entry at `path`, which is absolute and has no `..`. A symbolic link on the way to its directory is [`Errno::LOOP`].
    ///
    /// # Errors
    ///
    /// `INVAL` if `path` is relative, has a `..` or no last name; `LOOP` as said; otherwise the
    /// error of opening the directory.
    pub fn at(path: &Path) -> rustix::io::Result<Self> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
        Ok(Self { directory: Arc::new(open_directory(parent)?), name: name.to_owned(), path: path.to_owned() })
    }

    /// Another name in the same directory.
    #[must_use]
    pub fn sibling(&self, name: &OsStr) -> Self {
        debug_assert!(!name.as_bytes().contains(&b'/'), "one name");
        Self { directory: self.directory.clone(), name: name.to_owned(), path: self.path.with_file_name(name) }
    }

    /// The path by which the entry was reached: for messages and records.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last name of [`Self::path`].
    #[must_use]
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The open directory (`O_PATH`).
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// What stands there itself; `None` if nothing does.
    ///
    /// # Errors
    ///
    /// That of `fstatat`, but for `NOENT`.
    pub fn stat(&self) -> rustix::io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Opens the regular file that stands there. Anything else is [`Errno::LOOP`] (a link), [`Errno::ISDIR`] or [`Errno::NXIO`], and
    /// nobody is waited for: neither the other end of a FIFO nor a device.
    ///
    /// # Errors
    ///
    /// `LOOP`, `ISDIR` or `NXIO` as said, otherwise that of `openat`.
    pub fn open_regular(&self, access: OFlags) -> rustix::io::Result<OwnedFd> {
        open_regular_at(&self.directory, &self.name, access)
    }

    /// A new, empty file that only its owner may open. What stands there already, a link or a FIFO included, is [`Errno::EXIST`].
    ///
    /// # Errors
    ///
    /// `EXIST` as said, otherwise that of `openat`.
    pub fn create(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, &self.name, flags, OWNER_ONLY)
    }

    /// A new, empty file in the directory that has no name yet ([`Self::link`] gives it one); `None` where the file system has no such.
    ///
    /// # Errors
    ///
    /// That of `openat`, but for those by which a file system says that it has no nameless files.
    pub fn create_nameless(&self) -> rustix::io::Result<Option<OwnedFd>> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        match rustix::fs::openat(&self.directory, ".", flags, OWNER_ONLY) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::ISDIR | Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Gives the open file this name, which must be free.
    ///
    /// # Errors
    ///
    /// `EXIST` if the name is taken, `XDEV` from another file system, otherwise that of `linkat`.
    pub fn link(&self, file: impl AsFd) -> rustix::io::Result<()> {
        nameless::link(file, &self.directory, &self.name)
    }

    /// Gives what stands here the name `to` as well, which must be free. A link is not followed.
    ///
    /// # Errors
    ///
    /// `EXIST` if the name is taken; `PERM`, `OPNOTSUPP` or `MLINK` where the file system gives a file no second name; otherwise that of `linkat`.
    pub fn link_as(&self, to: &Self) -> rustix::io::Result<()> {
        rustix::fs::linkat(&self.directory, &self.name, &to.directory, &to.name, AtFlags::empty())
    }

    /// Renames what stands here to `to`, whatever stands there.
    ///
    /// # Errors
    ///
    /// That of `renameat`.
    pub fn replace(&self, to: &Self) -> rustix::io::Result<()> {
        rustix::fs::renameat(&self.directory, &self.name, &to.directory, &to.name)
    }

    /// Renames what stands here to `to`, which must be free. Where the file system cannot look at that, the file has both names for a moment, and keeps both
    /// after a crash.
    ///
    /// # Errors
    ///
    /// `EXIST` if `to` is taken, otherwise that of `renameat2`, `linkat` or `unlinkat`.
    pub fn rename(&self, to: &Self) -> rustix::io::Result<()> {
        match rustix::fs::renameat_with(&self.directory, &self.name, &to.directory, &to.name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => self.link_as(to).and_then(|()| self.unlink()),
            renamed => renamed,
        }
    }

    /// As [`Self::rename`] to a name that nobody else gives, so that it is enough to look whether it is free.
    ///
    /// # Errors
    ///
    /// As [`Self::rename`].
    pub fn rename_aside(&self, to: &Self) -> rustix::io::Result<()> {
        match rustix::fs::renameat_with(&self.directory, &self.name, &to.directory, &to.name, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) if to.stat()?.is_some() => Err(Errno::EXIST),
            Err(Errno::INVAL | Errno::NOSYS) => self.replace(to),
            renamed => renamed,
        }
    }

    /// What stands here and what stands at `other` change places.
    ///
    /// # Errors
    ///
    /// `NOENT` if one of them is missing, `INVAL` where the file system cannot exchange, otherwise
    /// that of `renameat2`.
    pub fn exchange(&self, other: &Self) -> rustix::io::Result<()> {
        rustix::fs::renameat_with(&self.directory, &self.name, &other.directory, &other.name, RenameFlags::EXCHANGE)
    }

    /// Removes the name, which is not a directory's.
    ///
    /// # Errors
    ///
    /// That of `unlinkat`.
    pub fn unlink(&self) -> rustix::io::Result<()> {
        rustix::fs::unlinkat(&self.directory, &self.name, AtFlags::empty())
    }

    /// Whether what stands here is the file that `descriptor` is open on.
    #[must_use]
    pub fn is(&self, descriptor: impl AsFd) -> bool {
        match (self.stat(), rustix::fs::fstat(descriptor)) {
            (Ok(Some(a)), Ok(b)) => (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino),
            _ => false,
        }
    }

    /// Makes the names of the directory durable.
    ///
    /// # Errors
    ///
    /// That of opening the directory for reading or of `fsync`; none where the file system cannot
    /// sync directories.
    pub fn sync_directory(&self) -> rustix::io::Result<()> {
        match self.readable().and_then(rustix::fs::fsync) {
            // Some file systems cannot sync a directory, and need not.
            Err(Errno::INVAL) => Ok(()),
            result => result,
        }
    }

    /// All entries of the directory, this one among them if it is there.
    ///
    /// # Errors
    ///
    /// That of opening the directory for reading or of reading it.
    pub fn siblings(&self) -> rustix::io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in Dir::new(self.readable()?)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                found.push(self.sibling(OsStr::from_bytes(name)));
            }
        }
        Ok(found)
    }

    fn readable(&self) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.directory, ".", flags, Mode::empty())
    }
}

/// Opens the regular file `name` in `directory`: see [`DirectoryEntry::open_regular`].
pub(crate) fn open_regular_at(directory: impl AsFd, name: &OsStr, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let file = open_at(directory, name, access)?;
    match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::NXIO),
    }
}

fn open_at(directory: impl AsFd, name: &OsStr, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, access | flags, OWNER_ONLY)
}

/// Opens this user's own regular file `name` in `directory`, or creates it (0600) if `access` says so. A link is [`Errno::LOOP`], a directory
/// [`Errno::ISDIR`], a FIFO or device [`Errno::NXIO`], another user's file [`Errno::PERM`], one that has other names too
/// [`Errno::MLINK`]: see [`what_stands`].
pub(crate) fn open_own_at(directory: impl AsFd, name: &OsStr, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let file = open_at(directory, name, access)?;
    check_own(&rustix::fs::fstat(&file)?)?;
    Ok(file)
}

/// As [`open_own_at`] finds it, without opening it; [`Errno::NOENT`] if nothing is there.
pub(crate) fn check_own_at(directory: impl AsFd, name: &OsStr) -> rustix::io::Result<()> {
    check_own(&rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn check_own(found: &Stat) -> rustix::io::Result<()> {
    match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => {}
        FileType::Symlink => return Err(Errno::LOOP),
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::NXIO),
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Errno::PERM);
    }
    if found.st_nlink > 1 {
        return Err(Errno::MLINK);
    }
    Ok(())
}

/// Creates this user's own file `name` in `directory` (0600); what stands there is unlinked, never opened.
///
/// # Errors
///
/// That of unlinking or creating it.
pub fn create_own_at(directory: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&directory, name, flags, OWNER_ONLY) {
        Err(Errno::EXIST) => {}
        result => return result,
    }
    match rustix::fs::unlinkat(&directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::openat(directory, name, flags, OWNER_ONLY)
}

/// In words, what [`open_own_at`] found in the place of a file; `None` for any other failure.
pub(crate) fn what_stands(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::LOOP => Some("a symbolic link"),
        Errno::ISDIR => Some("a directory"),
        Errno::NOTDIR => Some("no directory"),
        Errno::NXIO => Some("a FIFO, a socket or a device"),
        Errno::PERM => Some("another user's file"),
        Errno::MLINK => Some("a file that has other names too"),
        _ => None,
    }
}

/// Opens the directory at `path`, to pass through (`O_PATH`). A symbolic link anywhere in the path, its last name included, is
/// [`Errno::LOOP`].
///
/// # Errors
///
/// `INVAL` if `path` is relative or has a `..`, `LOOP` as said, otherwise that of `openat2`.
pub fn open_directory(path: &Path) -> rustix::io::Result<OwnedFd> {
    if !path.is_absolute() || path.components().any(|component| component == Component::ParentDir) {
        return Err(Errno::INVAL);
    }
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(CWD, path, WALK, Mode::empty(), resolve) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => walk(path),
        // A link that is told to be no directory, because it is not followed.
        Err(Errno::NOTDIR) if is_link(path) => Err(Errno::LOOP),
        result => result,
    }
}

/// Component by component.
fn walk(path: &Path) -> rustix::io::Result<OwnedFd> {
    let mut at = rustix::fs::open("/", WALK, Mode::empty())?;
    for component in path.components() {
        let Component::Normal(name) = component else { continue };
        at = rustix::fs::openat(&at, name, WALK, Mode::empty()).map_err(|errno| {
            let found = rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW);
            let is_link = found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
            if is_link { Errno::LOOP } else { errno }
        })?;
    }
    Ok(at)
}

/// For the choice of an errno only.
fn is_link(path: &Path) -> bool {
    rustix::fs::lstat(path).is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

#[cfg(test)]
mod tests;
