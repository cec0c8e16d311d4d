//! What a host does in a directory for a probe: one act after the other, on files that stay open in between.

use crate::guard;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use stripewise_store::entry::open_directory;

/// Probes that a host may have begun and not ended; the files of earlier ones are closed.
const MAX_OPEN: usize = 64;

/// One act, on the file `name` of the directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Act {
    pub(crate) directory: String,
    /// Inode number of the directory, by which hosts know that it is one.
    pub(crate) inode: u64,
    pub(crate) name: String,
    pub(crate) what: What,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum What {
    /// Make the file and open it.
    Create,
    Open,
    /// Whether the name leads to anything.
    Exists,
    /// By the open file, and by the name.
    Sizes,
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    Read {
        offset: u64,
        length: u32,
    },
    /// Take the lock for writing, without waiting.
    Lock,
    Unlock,
    Rename {
        to: String,
    },
    /// Close it, whether or not it is open, and remove the name, if it is there.
    Remove,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Seen {
    Done,
    Is(bool),
    Sizes { open: u64, named: u64 },
    Bytes(Vec<u8>),
}

/// Files that probes have open on this host.
#[derive(Default)]
pub(crate) struct Actor {
    open: Mutex<HashMap<(String, String), OwnedFd>>,
}

impl Actor {
    /// An error says in words what went wrong here.
    pub(crate) fn perform(&self, act: &Act) -> Result<Seen, String> {
        self.try_perform(act).map_err(|errno| match (&act.what, errno) {
            (What::Lock | What::Unlock, Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::INVAL) => {
                format!("locks of files are not to be had there ({errno})")
            }
            _ => format!("{} in {}: {errno}", describe(&act.what), act.directory),
        })
    }

    fn try_perform(&self, act: &Act) -> rustix::io::Result<Seen> {
        let directory = open_directory(Path::new(&act.directory))?;
        if rustix::fs::fstat(&directory)?.st_ino != act.inode {
            // Another directory at that path.
            return Err(Errno::STALE);
        }
        let mut open = guard(&self.open);
        let key = (act.directory.clone(), act.name.clone());
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let mut add = |file: OwnedFd| {
            if open.len() >= MAX_OPEN {
                open.clear();
            }
            open.insert(key.clone(), file);
            Ok(Seen::Done)
        };
        match &act.what {
            What::Create => {
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                add(rustix::fs::openat(&directory, &act.name, flags, Mode::RUSR | Mode::WUSR)?)
            }
            What::Open => add(rustix::fs::openat(&directory, &act.name, flags, Mode::empty())?),
            What::Exists => match rustix::fs::statat(&directory, &act.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Ok(Seen::Is(true)),
                Err(Errno::NOENT) => Ok(Seen::Is(false)),
                Err(errno) => Err(errno),
            },
            What::Rename { to } => rustix::fs::renameat(&directory, &act.name, &directory, to).map(|()| Seen::Done),
            What::Remove => {
                open.remove(&key);
                match rustix::fs::unlinkat(&directory, &act.name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => Ok(Seen::Done),
                    Err(errno) => Err(errno),
                }
            }
            on_open => {
                let file = open.get(&key).ok_or(Errno::BADF)?;
                let named = || rustix::fs::statat(&directory, &act.name, AtFlags::SYMLINK_NOFOLLOW);
                use_open(file, on_open, &|| named().map(|found| found.st_size as u64))
            }
        }
    }
}

fn use_open(file: &OwnedFd, what: &What, named: &dyn Fn() -> rustix::io::Result<u64>) -> rustix::io::Result<Seen> {
    match what {
        What::Sizes => Ok(Seen::Sizes { open: rustix::fs::fstat(file)?.st_size as u64, named: named()? }),
        What::Write { offset, bytes } => match rustix::io::pwrite(file, bytes, *offset)? {
            written if written == bytes.len() => Ok(Seen::Done),
            _ => Err(Errno::IO),
        },
        What::Read { offset, length } => {
            let mut bytes = vec![0; *length as usize];
            let read = rustix::io::pread(file, &mut bytes[..], *offset)?;
            bytes.truncate(read);
            Ok(Seen::Bytes(bytes))
        }
        What::Lock => match rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Seen::Is(true)),
            Err(Errno::AGAIN | Errno::ACCESS) => Ok(Seen::Is(false)),
            Err(errno) => Err(errno),
        },
        What::Unlock => rustix::fs::fcntl_lock(file, FlockOperation::Unlock).map(|()| Seen::Done),
        What::Create | What::Open | What::Exists | What::Rename { .. } | What::Remove => Err(Errno::INVAL),
    }
}

fn describe(what: &What) -> &'static str {
    match what {
        What::Create => "making a file",
        What::Open => "opening a file",
        What::Exists | What::Sizes => "looking at a file",
        What::Write { .. } => "writing a file",
        What::Read { .. } => "reading a file",
        What::Lock | What::Unlock => "locking a file",
        What::Rename { .. } => "renaming a file",
        What::Remove => "removing a file",
    }
}

/// Absolute and without links, as hosts are to open it, and its inode number.
pub(crate) fn directory_here(path: &str) -> Result<(PathBuf, u64), String> {
    let fault = |what: String| format!("cannot open the directory {path} ({what})");
    let real = std::fs::canonicalize(path).map_err(|error| fault(error.to_string()))?;
    let directory = open_directory(&real).map_err(|errno| fault(errno.to_string()))?;
    let found = rustix::fs::fstat(&directory).map_err(|errno| fault(errno.to_string()))?;
    Ok((real, found.st_ino))
}
