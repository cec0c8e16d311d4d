//! Darshan's logs with DXT segments; those without have no requests, and only plans are made from their counters.

use super::{ReadError, Reader, has_extension};
use crate::darshan::DarshanLog;
use crate::trace::Trace;
use std::path::Path;

pub(super) const READER: Reader =
    Reader { expects: "a log of Darshan", in_directory: |_, _| None, is_file: is_log, read: |path, _| read(path) };

/// Whether a file is a log of Darshan: by its name, also that of a run that was ended early, or by its first bytes.
#[must_use]
pub fn is_log(path: &Path) -> bool {
    has_extension(path, "darshan") || has_extension(path, "darshan_partial") || stripewise_darshan::is_log(path)
}

fn read(path: &Path) -> Result<Trace, ReadError> {
    let log = DarshanLog::read(path)?;
    log.trace.ok_or_else(|| ReadError::NoSegments { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_known_by_their_names_and_under_any_other_by_their_first_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let is_log_named = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            is_log(&path)
        };
        assert!(is_log_named("a.darshan", b"") && is_log_named("a.darshan_partial", b""));
        let head = [&b"3.41\0\0\0\0"[..], &6_567_223u64.to_le_bytes()].concat();
        assert!(is_log_named("renamed.log", &head) && !is_log_named("other.log", &head[..15]));
        assert!(!is_log_named("text.csv", b"node,pid,mpi_rank,mpi_size,level"));
    }
}
