//! The mask of new files' modes. A program's own comes with what it asks for, and is applied by the file system that makes the file, which alone knows whether the
//! directory's default ACL takes its place. But a mask is the process's, in which a broker may make private files. So a thread that makes files for programs gets a
//! mask of its own.

#![allow(unsafe_code, reason = "a thread leaves what it shares with the others by a system call")]

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::cell::Cell;

thread_local! {
    static HAS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Makes something for a program with that mask. No other thread's changes, and this one has none afterwards.
pub(crate) fn with<T>(mask: Mode, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    if !HAS_OWN.get() {
        // SAFETY: the thread gets its own mask, root and working directory, equal to the process's; descriptors stay shared.
        unsafe { unshare_unsafe(UnshareFlags::FS)? };
        HAS_OWN.set(true);
    }
    rustix::process::umask(mask);
    let made = make();
    rustix::process::umask(Mode::empty());
    made
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
                let masked = with(Mode::from_raw_mode(0o137), || Ok(mode_of("masked"))).unwrap();
                (masked, mode_of("unmasked"), with(Mode::empty(), || Ok(mode_of("made"))).unwrap())
            });
            maker.join().unwrap()
        });
        assert_eq!((made, mode_of("after")), ((0o640, 0o666, 0o666), before));
    }
}
