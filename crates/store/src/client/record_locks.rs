//! Record locks (`fcntl`) of this process. The kernel drops all that a process holds on an inode when the process closes any
//! descriptor of it; so the client opens none of a stub beside them.

use rustix::fs::{Mode, OFlags};

/// Inodes on which this process holds record locks, as `/proc/locks` has them:
/// `1: POSIX  ADVISORY  WRITE 4711 08:01:131074 0 EOF`. Of any device: two inodes of one number are held for the same, which is safe.
pub(super) fn locked_inodes() -> Vec<u64> {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let is_own = words.next() == Some("POSIX") && words.nth(2) == Some(own.as_str());
        words.next().filter(|_| is_own)?.rsplit(':').next()?.parse().ok()
    };
    String::from_utf8_lossy(&table().unwrap_or_default()).lines().filter_map(of_line).collect()
}

fn table() -> rustix::io::Result<Vec<u8>> {
    let file = rustix::fs::open(c"/proc/locks", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match rustix::io::read(&file, &mut part)? {
            0 => return Ok(text),
            bytes => text.extend_from_slice(&part[..bytes]),
        }
    }
}
