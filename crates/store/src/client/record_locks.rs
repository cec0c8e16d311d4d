//! Record locks (`fcntl`) of this process. The kernel drops all that a process holds on an inode when the process closes any
//! descriptor of it, but one of `O_PATH`; so none is opened for a look beside them.

use super::descriptors::Received;
use rustix::fs::{Mode, OFlags};

/// Whether this process holds record locks on an inode of that number, as `/proc/locks` has it:
/// `1: POSIX  ADVISORY  WRITE 4711 08:01:131074 0 EOF`. On any device: two inodes of one number are taken for the same, which is safe.
#[must_use]
pub fn are_held_on(inode: u64) -> bool {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let is_own = words.next() == Some("POSIX") && words.nth(2) == Some(own.as_str());
        words.next().filter(|_| is_own)?.rsplit(':').next()?.parse::<u64>().ok()
    };
    String::from_utf8_lossy(&table().unwrap_or_default()).lines().any(|line| of_line(line) == Some(inode))
}

fn table() -> rustix::io::Result<Vec<u8>> {
    let file = Received::from(rustix::fs::open(c"/proc/locks", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?);
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(&file, &mut part)? {
            0 => return Ok(text),
            bytes => text.extend_from_slice(&part[..bytes]),
        }
    }
}
