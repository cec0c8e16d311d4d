//! What `stat` shows: mode, owner, inode, links and access time of the stub; size, blocks and modification time of the data. The change time is not before the
//! modification time.

use crate::managed::Managed;
use crate::nodes::Node;
use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::Stat;
use rustix::io::Errno;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The attributes of a file that was found as `found`, for the kernel.
pub(crate) fn attributes_of(managed: &Managed, node: &Node, found: &Stat) -> Result<FileAttr, Errno> {
    let mut shown = attributes(node.number(), found);
    let status = managed.status(node, found).or_else(|errno| {
        // Removed with its data since it was found.
        if node.stat().is_ok_and(|now| now.st_nlink == 0) { Ok(None) } else { Err(errno) }
    })?;
    if let Some(status) = status {
        (shown.size, shown.blocks) = (status.size_bytes, status.blocks_512);
        if let Some(modified_ns) = status.modified_ns {
            shown.mtime = UNIX_EPOCH + Duration::from_nanos(modified_ns);
            shown.ctime = shown.ctime.max(shown.mtime);
        } else {
            // The stub may have got the time of a write since it was found.
            let Times { accessed, modified, changed } = times(&node.stat()?);
            (shown.atime, shown.mtime, shown.ctime) = (accessed, modified, changed);
        }
    }
    node.set_known_size(shown.size);
    Ok(shown)
}

struct Times {
    accessed: SystemTime,
    modified: SystemTime,
    changed: SystemTime,
}

fn times(found: &Stat) -> Times {
    Times {
        accessed: time(found.st_atime, found.st_atime_nsec),
        modified: time(found.st_mtime, found.st_mtime_nsec),
        changed: time(found.st_ctime, found.st_ctime_nsec),
    }
}

fn attributes(number: u64, found: &Stat) -> FileAttr {
    let Times { accessed, modified, changed } = times(found);
    FileAttr {
        ino: INodeNo(number),
        size: found.st_size as u64,
        blocks: found.st_blocks as u64,
        atime: accessed,
        mtime: modified,
        ctime: changed,
        crtime: UNIX_EPOCH,
        kind: kind(rustix::fs::FileType::from_raw_mode(found.st_mode)),
        perm: (found.st_mode & 0o7777) as u16,
        nlink: u32::try_from(found.st_nlink).unwrap_or(u32::MAX),
        uid: found.st_uid,
        gid: found.st_gid,
        // As the protocol has it: the kernel's own coding in 32 bits.
        rdev: device(found.st_rdev),
        blksize: u32::try_from(found.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

/// Seconds may be negative; nanoseconds count upwards all the same.
fn time(seconds: i64, nanoseconds: impl TryInto<u32>) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    start + Duration::from_nanos(nanoseconds.try_into().unwrap_or(0).into())
}

/// A device number in the kernel's coding of 32 bits.
fn device(number: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

pub(crate) fn kind(of: rustix::fs::FileType) -> FileType {
    match of {
        rustix::fs::FileType::Directory => FileType::Directory,
        rustix::fs::FileType::Symlink => FileType::Symlink,
        rustix::fs::FileType::Fifo => FileType::NamedPipe,
        rustix::fs::FileType::Socket => FileType::Socket,
        rustix::fs::FileType::CharacterDevice => FileType::CharDevice,
        rustix::fs::FileType::BlockDevice => FileType::BlockDevice,
        rustix::fs::FileType::RegularFile | rustix::fs::FileType::Unknown => FileType::RegularFile,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_have_their_nanoseconds_after_their_seconds() {
        let before = |time: SystemTime| UNIX_EPOCH.duration_since(time).unwrap();
        assert_eq!(before(time(-2, 500_000_000u32)), Duration::from_millis(1500));
        assert_eq!(time(3, 7u32), UNIX_EPOCH + Duration::new(3, 7));
    }

    #[test]
    fn device_numbers_are_in_the_protocols_coding() {
        assert_eq!(device(rustix::fs::makedev(8, 17)), 0x0811);
        assert_eq!(device(rustix::fs::makedev(259, 0x12345)), 0x1231_0345);
    }
}
