//! Files' descriptions in `DIR/stripewise-descriptions/<file id>`, beside the directory of objects; the broker's alone to read and write.

use super::super::FIRST_LINE_OF_DESCRIPTIONS as FIRST_LINE;
use super::{DIRECTORY, directory_of, entries};
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result};
use std::io::{Read, Write};
use stripewise_layout::FileId;

/// As seen from the directory of objects.
const ALL: &str = "../stripewise-descriptions";
const OWN: Mode = Mode::from_raw_mode(0o600);

fn path_of(file: FileId) -> String {
    format!("{ALL}/{}", directory_of(file))
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn directory(objects: BorrowedFd<'_>) -> Result<OwnedFd> {
    rustix::fs::openat(objects, ALL, DIRECTORY, Mode::empty())
}

/// Opens a file in the directory of descriptions, which is made if it is not there.
fn open(objects: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd> {
    let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(objects, path, flags, OWN) {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(objects, ALL, Mode::RWXU) {
                // Durable before anything in it is.
                Ok(()) => rustix::fs::fsync(rustix::fs::openat(objects, "..", DIRECTORY, Mode::empty())?)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            rustix::fs::openat(objects, path, flags, OWN)
        }
        result => result,
    }
}

/// Returns how long the text is now.
pub(super) fn append(objects: BorrowedFd<'_>, file: FileId, head: &str, lines: &str) -> Result<u64> {
    let mut file = std::fs::File::from(open(objects, &path_of(file), OFlags::APPEND)?);
    let before = file.metadata().map_err(|error| errno_of(&error))?.len();
    let text = if before == 0 { format!("{FIRST_LINE}\n{head}{lines}") } else { lines.to_owned() };
    file.write_all(text.as_bytes()).map_err(|error| {
        // What did not fit would look like damage to those who read on; if it cannot be taken back, it is told as such.
        let _ = file.set_len(before);
        errno_of(&error)
    })?;
    Ok(before + text.len() as u64)
}

/// Durable when it returns.
pub(super) fn replace(objects: BorrowedFd<'_>, file: FileId, text: &str) -> Result<()> {
    let (path, temporary) = (path_of(file), format!("{}.new", path_of(file)));
    let mut new = std::fs::File::from(open(objects, &temporary, OFlags::TRUNC)?);
    let written = new.write_all(format!("{FIRST_LINE}\n{text}").as_bytes()).and_then(|()| new.sync_all());
    written.map_err(|error| errno_of(&error))?;
    rustix::fs::renameat(objects, &temporary, objects, &path)?;
    rustix::fs::fsync(directory(objects)?)
}

/// What was appended, and its name.
pub(super) fn sync(objects: BorrowedFd<'_>, file: FileId) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(objects, path_of(file), flags, Mode::empty()) {
        Ok(file) => rustix::fs::fsync(file)?,
        // Nothing was said of it here.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    }
    rustix::fs::fsync(directory(objects)?)
}

pub(super) fn remove(objects: BorrowedFd<'_>, file: FileId) -> Result<()> {
    match rustix::fs::unlinkat(objects, path_of(file), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

pub(super) fn all(objects: BorrowedFd<'_>) -> Result<Vec<(FileId, String)>> {
    let names = match directory(objects) {
        Ok(directory) => entries(&directory)?,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(errno),
    };
    let files = names.iter().filter_map(|name| name.to_str().ok()?.parse::<FileId>().ok());
    let texts = files.filter_map(|file| match read(objects, file) {
        // Freed meanwhile.
        Err(Errno::NOENT) => None,
        text => Some(text.map(|text| (file, text))),
    });
    texts.collect()
}

/// What is no text any more is read as far as it is.
fn read(objects: BorrowedFd<'_>, file: FileId) -> Result<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = std::fs::File::from(rustix::fs::openat(objects, path_of(file), flags, Mode::empty())?);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| errno_of(&error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
