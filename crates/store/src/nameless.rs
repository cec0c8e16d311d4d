//! What is done with a file by a descriptor of it, whatever its name is or whether it has one.
//!
//! Kernels do these by the descriptor itself, some since lately only and some not for everybody; all do them by its link in `/proc`, at several times the cost.

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timestamps};
use rustix::io::Errno;
use rustix::mount::OpenTreeFlags;
use rustix::path::Arg;

fn link_of(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// A descriptor of the same file with `O_PATH`, closed on exec: it carries neither access nor the holder's locks.
///
/// # Errors
///
/// That of `open`.
pub fn hold(file: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OpenTreeFlags::AT_EMPTY_PATH | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    // Not before Linux 5.2, and not in every sandbox.
    rustix::mount::open_tree(&file, c"", flags)
        .or_else(|_| rustix::fs::open(link_of(file), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()))
}

/// Gives the open file the name `name` in `directory`, which must be free.
///
/// # Errors
///
/// `EXIST` if the name is taken, `XDEV` from another file system, otherwise that of `linkat`.
pub fn link(file: impl AsFd, directory: impl AsFd, name: impl Arg + Copy) -> rustix::io::Result<()> {
    match rustix::fs::linkat(&file, c"", &directory, name, AtFlags::EMPTY_PATH) {
        // Before Linux 6.10 for those with CAP_DAC_READ_SEARCH only. A directory that is gone is also told so.
        Err(Errno::NOENT | Errno::PERM) => {
            rustix::fs::linkat(CWD, link_of(file), directory, name, AtFlags::SYMLINK_FOLLOW)
        }
        result => result,
    }
}

/// Sets the open file's times, with `O_PATH` too.
///
/// # Errors
///
/// That of `utimensat`: `PERM` to who does not own the file.
pub(crate) fn set_times(file: impl AsFd, times: &Timestamps) -> rustix::io::Result<()> {
    match rustix::fs::utimensat(&file, c"", times, AtFlags::EMPTY_PATH) {
        // Before Linux 5.8.
        Err(Errno::INVAL | Errno::NOENT) => rustix::fs::utimensat(CWD, link_of(file), times, AtFlags::empty()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_nameless_file_is_held_timed_and_named_by_its_descriptor() {
        let directory = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(directory.path()).unwrap();
        let file = tempfile::tempfile_in(directory.path()).unwrap();
        let held = hold(&file).unwrap();
        assert!(rustix::fs::fcntl_getfl(&held).unwrap().contains(OFlags::PATH));
        assert!(rustix::io::fcntl_getfd(&held).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(rustix::fs::fstat(&held).unwrap().st_ino, rustix::fs::fstat(&file).unwrap().st_ino);
        let time = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
        set_times(&held, &Timestamps { last_access: time(7, 8), last_modification: time(5, 6) }).unwrap();
        assert_eq!(link(&file, &root, "absent/name").unwrap_err(), Errno::NOENT);
        link(&file, &root, "name").unwrap();
        assert_eq!(link(&file, &root, "name").unwrap_err(), Errno::EXIST);
        let found = std::fs::metadata(directory.path().join("name")).unwrap();
        assert_eq!((found.mtime(), found.mtime_nsec(), found.ino()), (5, 6, file.metadata().unwrap().ino()));
    }
}
