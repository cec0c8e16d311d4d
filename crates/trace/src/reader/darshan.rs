//! Darshan's logs with DXT segments; those without have no requests, and only plans are made from their counters.

use super::{ReadError, Reader, has_extension};
use crate::darshan::DarshanLog;
use crate::trace::Trace;
use std::path::Path;

pub(super) const READER: Reader = Reader {
    expects: "a .darshan log with DXT segments",
    in_directory: |_, _| None,
    is_file: is_log,
    read: |path, _| read(path),
};

/// Whether a file is a log of Darshan by its name.
#[must_use]
pub fn is_log(path: &Path) -> bool {
    has_extension(path, "darshan")
}

fn read(path: &Path) -> Result<Trace, ReadError> {
    let log = DarshanLog::read(path)?;
    log.trace.ok_or_else(|| ReadError::NoSegments { path: path.to_owned() })
}
