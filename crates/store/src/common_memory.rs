//! Files that programs map as memory which they share: SQLite's `NAME-shm` beside a write-ahead log.
//!
//! All who map such a file must map the same pages. Redirected programs do, and users of a mount whose kernel reads and writes ordinary files itself. A mount
//! without that has pages of its own, which follow the file too late: a database was destroyed by writers on both sides. So an open of such a file is marked
//! by a lock far behind its bytes, shared by those who map the file's own pages, and exclusive of everybody else for a mount that has its own. The lock belongs to
//! the open file description, so it goes with the last descriptor of that.

use crate::byte_lock::byte_lock;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Behind all that is locked by programs, which lock parts of the first pages.
const MARK_AT: i64 = (1 << 62) - 1;
/// The close of a file on a mount ends its open a moment later.
const PATIENCE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_millis(1);

/// Which pages an open maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Those of the file itself.
    Common,
    /// A mount's, which nobody else has.
    OfMount,
}

/// Whether a file of this path is memory that programs share.
#[must_use]
pub fn is_common_memory(path: &[u8]) -> bool {
    path.ends_with(b"-shm")
}

/// Notes of the open `file` which pages it maps, until its description ends.
///
/// # Errors
///
/// `BUSY` while others map other pages of it. A file system without locks, or an open that cannot have this one, has no mark, and no error.
pub fn mark(file: BorrowedFd<'_>, pages: Pages) -> Result<(), Errno> {
    let kind = match pages {
        Pages::Common => libc::F_RDLCK,
        Pages::OfMount => libc::F_WRLCK,
    };
    let begun = Instant::now();
    loop {
        match byte_lock(file, MARK_AT, libc::F_OFD_SETLK, kind) {
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN | Errno::ACCESS) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Err(Errno::AGAIN | Errno::ACCESS) => return Err(Errno::BUSY),
            Err(_) => return Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::fs::File;

    #[test]
    fn who_maps_the_files_own_pages_excludes_a_mount_with_other_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("db-shm");
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (program, other, mount) = (open(), open(), open());
        mark(program.as_fd(), Pages::Common).unwrap();
        mark(other.as_fd(), Pages::Common).unwrap();
        assert_eq!(mark(mount.as_fd(), Pages::OfMount), Err(Errno::BUSY));
        drop(program);
        assert_eq!(mark(mount.as_fd(), Pages::OfMount), Err(Errno::BUSY));
        drop(other);
        mark(mount.as_fd(), Pages::OfMount).unwrap();
        for pages in [Pages::Common, Pages::OfMount] {
            assert_eq!(mark(open().as_fd(), pages), Err(Errno::BUSY));
        }
        drop(mount);
        mark(open().as_fd(), Pages::Common).unwrap();
        // One that cannot have a lock is not kept from its file.
        mark(File::options().write(true).open(&path).unwrap().as_fd(), Pages::Common).unwrap();
    }
}
