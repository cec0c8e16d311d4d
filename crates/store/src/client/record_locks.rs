//! Record locks (`fcntl`) of this process. The kernel drops all that a process holds on an inode when the process closes any
//! descriptor of it, but one of `O_PATH`; so none is opened for a look beside them.

use crate::descriptors::Received;
use rustix::fs::{Mode, OFlags};

/// Whether this process holds record locks on an inode of that number, by the kernel's table of locks. On any device: two inodes of one number are taken for
/// the same, which is safe.
#[must_use]
pub fn are_held_on(inode: u64) -> bool {
    let mut tries = 0..TRIES;
    loop {
        match search(inode) {
            Ok(Found::NotInPieces) if tries.next().is_some() => {}
            found => return found == Ok(Found::Held),
        }
    }
}

/// Searches of a table that takes several reads: locks that others take and release meanwhile shift it, and one may be passed over.
const TRIES: usize = 3;

#[derive(PartialEq, Eq)]
enum Found {
    Held,
    Not,
    /// By several reads.
    NotInPieces,
}

fn search(inode: u64) -> rustix::io::Result<Found> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let table = Received::from(rustix::fs::open(c"/proc/locks", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    // Nothing is allocated: this is asked at every `exec`.
    let (mut text, mut kept) = ([0; 4096], 0);
    for reads in 0_u64.. {
        let end = kept + rustix::io::read(&table, &mut text[kept..])?;
        if end == kept {
            return Ok(if reads > 1 { Found::NotInPieces } else { Found::Not });
        }
        let lines = text[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if text[..lines].split(|byte| *byte == b'\n').any(|line| held_by(own, line) == Some(inode)) {
            return Ok(Found::Held);
        }
        text.copy_within(lines..end, 0);
        kept = end - lines;
    }
    unreachable!("a table ends")
}

/// The inode of a line such as `1: POSIX  ADVISORY  WRITE 4711 08:01:131074 0 EOF`, if it tells of a record lock of that process.
fn held_by(process: i32, line: &[u8]) -> Option<u64> {
    let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
    let is_record_lock = words.next()? == "POSIX";
    let is_own = words.nth(2)?.parse() == Ok(process);
    words.next().filter(|_| is_record_lock && is_own)?.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn own_record_locks_are_found_in_a_table_of_any_length() {
        let lock = |file: &std::fs::File, start: i64| {
            let range = libc::flock {
                l_type: libc::F_WRLCK as i16,
                l_whence: libc::SEEK_SET as i16,
                l_start: start,
                l_len: 1,
                l_pid: 0,
            };
            // SAFETY: a lock of this frame's.
            assert_eq!(unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(file), libc::F_SETLK, &range) }, 0);
        };
        let [first, second, free] = [(); 3].map(|()| tempfile::tempfile().unwrap());
        let inode = |file: &std::fs::File| file.metadata().unwrap().ino();
        for turn in 0..300 {
            lock(&first, turn * 2);
            if turn == 150 {
                lock(&second, 0);
            }
            assert!(are_held_on(inode(&first)));
            assert_eq!(are_held_on(inode(&second)), turn >= 150);
            assert!(!are_held_on(inode(&free)));
        }
    }

    #[test]
    fn lines_of_others_and_of_other_locks_are_none() {
        assert_eq!(held_by(4711, b"1: POSIX  ADVISORY  WRITE 4711 08:01:131074 0 EOF"), Some(131_074));
        for line in [
            "1: POSIX  ADVISORY  WRITE 471 08:01:131074 0 EOF",
            "2: FLOCK  ADVISORY  WRITE 4711 08:01:131074 0 EOF",
            "3: OFDLCK ADVISORY  READ -1 08:01:131074 0 EOF",
            "1: -> POSIX  ADVISORY  WRITE 4711 08:01:131074 0 EOF",
            "",
        ] {
            assert_eq!(held_by(4711, line.as_bytes()), None, "{line}");
        }
    }
}
