//! Output files that are replaced as a whole: a reader sees the old file or the new one, also when the writer is killed.
//!
//! The new file is made under a random name beside the old one, for its owner only and never at a name that is taken, so that nothing
//! another user put into a shared directory is written, followed or waited for. It gets its mode last, and then its name.
//!
//! A link at the output's own path is followed, as any program that opens its output follows it: the file that it names is replaced and
//! the link stays. A device or a pipe (`/dev/stdout`, `/dev/null`, `>(command)`) is written, since it cannot be replaced. In a directory in which
//! everybody may make names and nobody may take another's (sticky, such as `/tmp`), none of this holds for what another user made: it is
//! refused, as Linux refuses it to open files where `fs.protected_symlinks` and its like are set.

use rustix::fs::{Access, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::{File, Permissions};
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Links that are followed one after the other, as many as the kernel follows.
const MAX_LINKS: usize = 40;
/// Sticky, and others than the owner may make names.
const STICKY: u32 = 0o1000;
const OTHERS_WRITE: u32 = 0o022;
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// Replaces the file at `path` by `bytes`.
///
/// # Errors
///
/// As [`write_with`].
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    write_with(path, |mut file| file.write_all(bytes.as_ref()))
}

/// Replaces the file at `path` by what `fill` writes, unless that fails.
///
/// # Errors
///
/// The error of `fill`, after which the old file stands, or that of making, syncing or renaming the
/// new one. `PermissionDenied` if `path` or a link on its way belongs to another user in a sticky
/// directory.
pub fn write_with<E: From<Error>>(
    path: &Path,
    fill: impl FnOnce(&File) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    match destination(path)? {
        Destination::Stream(file) => fill(&file),
        Destination::File { path, replaced } => replace(&path, replaced.as_ref(), fill),
    }
}

/// Whether a file can be written at `path`, as far as that is known before: for what takes long before it writes. A device or a pipe is not opened.
///
/// # Errors
///
/// As [`write_with`].
pub fn check(path: &Path) -> Result<()> {
    match find(path)? {
        Found::Standard(_) => Ok(()),
        Found::Stream { path, .. } => Ok(rustix::fs::access(&path, Access::WRITE_OK)?),
        Found::File { path, .. } => temporary_for(&path).map(drop),
    }
}

/// As [`check`], of a directory in which files are to be written and which is made if it is not there.
///
/// # Errors
///
/// `NotADirectory` if something else stands at `path`, otherwise that of making a file or a directory there.
pub fn check_directory(path: &Path) -> Result<()> {
    let standing = |path: &&Path| path.as_os_str().is_empty() || path.symlink_metadata().is_ok();
    let nearest = path.ancestors().find(standing).unwrap_or(path);
    let nearest = if nearest.as_os_str().is_empty() { Path::new(".") } else { nearest };
    if !nearest.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    temporary_for(&nearest.join("new")).map(drop)
}

/// Makes the file `path`, where nothing may stand yet; it appears complete.
///
/// # Errors
///
/// `AlreadyExists` if anything stands at `path`, otherwise the error of making, writing or syncing
/// the file.
pub fn create(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    let mut temporary = temporary_for(path)?;
    temporary.write_all(bytes.as_ref())?;
    temporary.as_file().set_permissions(Permissions::from_mode(0o666 & !umask()))?;
    temporary.as_file().sync_all()?;
    temporary.persist_noclobber(path).map_err(|error| error.error)?;
    Ok(())
}

enum Destination {
    /// A device, a pipe or an open descriptor, which keeps its place.
    Stream(File),
    /// A regular file, or nothing yet, at a path whose last name is no link.
    File { path: PathBuf, replaced: Option<Stat> },
}

/// What stands at a path, before it is opened.
enum Found {
    /// Standard output or error.
    Standard(File),
    /// A device, a pipe or an open descriptor.
    Stream {
        path: PathBuf,
        /// Keeps `path` what it is.
        _held: OwnedFd,
    },
    /// As [`Destination::File`].
    File { path: PathBuf, replaced: Option<Stat> },
}

fn destination(path: &Path) -> Result<Destination> {
    match find(path)? {
        Found::Standard(open) => Ok(Destination::Stream(open)),
        Found::Stream { path, _held } => stream(&path),
        Found::File { path, replaced } => Ok(Destination::File { path, replaced }),
    }
}

fn find(path: &Path) -> Result<Found> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(Found::File { path, replaced: None }),
            Err(errno) => return Err(errno.into()),
        };
        let stat = rustix::fs::fstat(&found)?;
        check_maker(&path, &stat)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => return Ok(Found::File { path, replaced: Some(stat) }),
            FileType::Directory => return Err(ErrorKind::IsADirectory.into()),
            // Of an open descriptor (`/dev/stdout`), which may have no name or lead to a file that others write as well.
            FileType::Symlink if is_of_proc(&found) => {
                return match standard(&path) {
                    Some(open) => open.map(Found::Standard),
                    None => Ok(Found::Stream { path, _held: found }),
                };
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(&found, "", Vec::new())?.into_bytes();
                path = directory_of(&path).join(std::ffi::OsString::from_vec(target));
            }
            // By the descriptor, so that it is what was looked at.
            _ => {
                let path = format!("/proc/self/fd/{}", found.as_raw_fd()).into();
                return Ok(Found::Stream { path, _held: found });
            }
        }
    }
    Err(Errno::LOOP.into())
}

/// What is there already stays before what is written.
fn stream(path: &Path) -> Result<Destination> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(Destination::Stream(rustix::fs::open(path, flags, Mode::empty())?.into()))
}

/// Standard output or error, if `path` is its link: opened again it would have a position of its own, and what is printed would go over it.
fn standard(path: &Path) -> Option<Result<File>> {
    let own = std::fs::canonicalize("/proc/self/fd").ok()?;
    let open = match path.file_name()?.to_str()? {
        "1" => std::io::stdout().as_fd().try_clone_to_owned(),
        "2" => std::io::stderr().as_fd().try_clone_to_owned(),
        _ => return None,
    };
    (std::fs::canonicalize(directory_of(path)).ok()? == own).then(|| open.map(File::from))
}

fn is_of_proc(link: &OwnedFd) -> bool {
    rustix::fs::fstatfs(link).is_ok_and(|found| found.f_type as u64 == PROC_SUPER_MAGIC)
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

/// Refuses what another user put into a directory in which everybody may make names.
fn check_maker(path: &Path, found: &Stat) -> Result<()> {
    let directory = rustix::fs::stat(directory_of(path))?;
    let is_shared = directory.st_mode & STICKY != 0 && directory.st_mode & OTHERS_WRITE != 0;
    let makers = [rustix::process::geteuid().as_raw(), directory.st_uid];
    if !is_shared || makers.contains(&found.st_uid) {
        return Ok(());
    }
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => "a file",
        FileType::Symlink => "a symbolic link",
        FileType::Directory => "a directory",
        _ => "a FIFO, a socket or a device",
    };
    let message = format!(
        "{kind} of user {} stands there, in a directory in which everybody may make names; name a file in a directory of your own",
        found.st_uid
    );
    Err(Error::new(ErrorKind::PermissionDenied, message))
}

/// How the names of files begin that are not finished.
const UNFINISHED: &str = ".stripewise-";

/// Whether the file is one that a process of ours is just writing under a temporary name, or has left when it was killed.
#[must_use]
pub fn is_unfinished(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNFINISHED.as_bytes()))
}

/// A new file beside `path`, made exclusively and with mode 0600; dropped unfinished, it is removed.
fn temporary_for(path: &Path) -> Result<NamedTempFile> {
    let made = tempfile::Builder::new().prefix(UNFINISHED).rand_bytes(12).tempfile_in(directory_of(path));
    made.map_err(|error| Error::new(error.kind(), format!("no new file can be made next to it: {error}")))
}

fn replace<E: From<Error>>(
    path: &Path,
    replaced: Option<&Stat>,
    fill: impl FnOnce(&File) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let temporary = temporary_for(path)?;
    fill(temporary.as_file())?;
    let file = temporary.as_file();
    let mode = match replaced {
        Some(replaced) => take_owner(file, replaced),
        None => 0o666 & !umask(),
    };
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Gives `file` the owner and group of the file that it replaces; its mode.
fn take_owner(file: &File, replaced: &Stat) -> u32 {
    let mode = replaced.st_mode & 0o777;
    let (uid, gid) = (rustix::fs::Uid::from_raw(replaced.st_uid), rustix::fs::Gid::from_raw(replaced.st_gid));
    let is_same = |found: &Stat| (found.st_uid, found.st_gid) == (replaced.st_uid, replaced.st_gid);
    let taken = rustix::fs::fstat(file).is_ok_and(|found| is_same(&found))
        || rustix::fs::fchown(file, Some(uid), Some(gid)).is_ok()
        || rustix::fs::fchown(file, None, Some(gid)).is_ok();
    // Another group gets no more than everybody.
    if taken { mode } else { mode & !0o070 | (mode & 0o007) << 3 }
}

/// Asked without changing it, which other threads would notice.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|value| u32::from_str_radix(value.trim(), 8).ok()).unwrap_or(0o077)
}

#[cfg(test)]
mod tests;
