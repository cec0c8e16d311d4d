//! The mask of new files' modes. The kernel has applied the program's own before it asks, so none may be applied here; but the mask is the process's, in which
//! a broker may make private files. So a thread that makes files for programs gets a mask of its own.

#![allow(unsafe_code, reason = "a thread leaves what it shares with the others by a system call")]

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::cell::Cell;

thread_local! {
    static HAS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// From here on this thread makes files with the modes that are asked for, and no other thread does.
pub(crate) fn drop_for_this_thread() -> Result<(), Errno> {
    if HAS_OWN.get() {
        return Ok(());
    }
    // SAFETY: the thread gets its own mask, root and working directory, equal to the process's; descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::FS)? };
    rustix::process::umask(Mode::empty());
    HAS_OWN.set(true);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

    #[test]
    fn a_thread_that_makes_files_for_programs_leaves_the_mask_of_the_others_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let mode_of = |name: &str| {
            let path = directory.path().join(name);
            std::fs::File::options().write(true).create(true).truncate(true).mode(0o666).open(&path).unwrap();
            path.metadata().unwrap().mode() & 0o777
        };
        let before = mode_of("before");
        let made = std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                drop_for_this_thread().unwrap();
                mode_of("made")
            });
            maker.join().unwrap()
        });
        assert_eq!((made, mode_of("after")), (0o666, before));
    }
}
