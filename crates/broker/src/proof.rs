//! What a descriptor proves: the kernel's word on a file, never the message's.

use crate::rmt::Inode;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, OFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::path::Path;
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::nameless;
use stripewise_store::protocol::Refusal;
use stripewise_store::server::Ownership;

/// The facts of one descriptor's file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    pub(crate) inode: Inode,
    pub(crate) links: u32,
    pub(crate) size_bytes: u64,
    pub(crate) is_regular: bool,
    pub(crate) ownership: Ownership,
}

impl Facts {
    pub(crate) fn of(descriptor: impl AsFd) -> rustix::io::Result<Self> {
        Self::at(descriptor, Path::new(""), AtFlags::EMPTY_PATH)
    }

    /// Of what stands at `path` itself, reached without symbolic links; `None` if nothing does. A link on the way is [`Errno::LOOP`].
    pub(crate) fn at_path(path: &Path) -> rustix::io::Result<Option<Self>> {
        match DirectoryEntry::at(path) {
            Ok(entry) => Self::at_entry(&entry),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Of what stands at `entry` itself; `None` if nothing does.
    pub(crate) fn at_entry(entry: &DirectoryEntry) -> rustix::io::Result<Option<Self>> {
        Self::at_name(entry.directory(), entry.name())
    }

    /// Of what stands at the name in the directory; `None` if nothing does.
    pub(crate) fn at_name(directory: impl AsFd, name: &OsStr) -> rustix::io::Result<Option<Self>> {
        match Self::at(directory, Path::new(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(facts) => Ok(Some(facts)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn at(directory: impl AsFd, path: &Path, flags: AtFlags) -> rustix::io::Result<Self> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::fs::statx(directory, path, flags, wanted)?;
        let born = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
        let born_ns = if born {
            (found.stx_btime.tv_sec.max(0) as u64).saturating_mul(1_000_000_000) + u64::from(found.stx_btime.tv_nsec)
        } else {
            0
        };
        let device = rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor);
        Ok(Self {
            inode: Inode { device, inode: found.stx_ino, born_ns },
            links: found.stx_nlink,
            size_bytes: found.stx_size,
            is_regular: FileType::from_raw_mode(u32::from(found.stx_mode)) == FileType::RegularFile,
            ownership: Ownership { mode: u32::from(found.stx_mode) & 0o666, uid: found.stx_uid, gid: found.stx_gid },
        })
    }
}

/// The I/O that descriptors permit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Granted {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Granted {
    /// What this or the other descriptor permits.
    pub(crate) fn add(&mut self, other: Granted) {
        self.readable |= other.readable;
        self.writable |= other.writable;
    }
}

/// A descriptor that came with a request.
pub(crate) struct Proof {
    pub(crate) descriptor: OwnedFd,
    pub(crate) facts: Facts,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Proof {
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, Refusal> {
        let read = |descriptor: &OwnedFd| Ok((Facts::of(descriptor)?, rustix::fs::fcntl_getfl(descriptor)?));
        let (facts, flags) = read(&descriptor).map_err(|errno: Errno| Refusal::Invalid {
            what: format!("the file behind the descriptor cannot be looked at ({errno})"),
        })?;
        let opened = !flags.contains(OFlags::PATH);
        let access = flags & OFlags::RWMODE;
        let (readable, writable) = (opened && access != OFlags::WRONLY, opened && access != OFlags::RDONLY);
        Ok(Self { descriptor, facts, readable, writable })
    }

    pub(crate) fn granted(&self) -> Granted {
        Granted { readable: self.readable, writable: self.writable }
    }

    /// Only a descriptor that can do I/O opens anything.
    pub(crate) fn permits_io(&self) -> Result<(), Refusal> {
        if (self.readable || self.writable) && self.facts.is_regular { Ok(()) } else { Err(Refusal::NotPermitted) }
    }

    /// Where the file stands, if it has a name and the kernel knows it: of a file that was made without one (`O_TMPFILE`) it goes on telling the
    /// number that stood for the name.
    pub(crate) fn path(&self) -> Option<String> {
        path_of(&self.descriptor).filter(|path| self.facts.links > 0 && !path.ends_with(" (deleted)"))
    }

    /// A descriptor of the same file that carries neither access nor the holder's locks.
    pub(crate) fn to_watch(&self) -> Option<OwnedFd> {
        nameless::hold(&self.descriptor).ok()
    }
}

/// The name the kernel remembers for a descriptor.
pub(crate) fn path_of(descriptor: &OwnedFd) -> Option<String> {
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new()).ok()?.into_string().ok()?;
    path.starts_with('/').then_some(path)
}
