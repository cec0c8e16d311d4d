//! Open files and directories.

use crate::nodes::{Node, hold_at, lock};
use fuser::{BackingId, FileHandle};
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use stripewise_store::file::{IoMode, StripedFile};

/// What an open leads to.
pub(crate) enum Open {
    /// A managed file.
    Managed(ManagedOpen),
    /// Any other that is no directory.
    Ordinary(OrdinaryOpen),
    /// A directory.
    Directory(Directory),
}

impl Open {
    fn node(&self) -> &Node {
        match self {
            Open::Managed(open) => &open.node,
            Open::Ordinary(open) => &open.node,
            Open::Directory(open) => &open.node,
        }
    }
}

/// An open file that is not managed.
pub(crate) struct OrdinaryOpen {
    pub(crate) node: Arc<Node>,
    pub(crate) file: OwnedFd,
    /// Writes of programs go to the end of the file as it is then.
    pub(crate) appends: bool,
    /// While the kernel reads and writes the file itself.
    pub(crate) _backing: Option<Arc<BackingId>>,
}

/// An open managed file.
pub(crate) struct ManagedOpen {
    pub(crate) node: Arc<Node>,
    pub(crate) file: Arc<StripedFile>,
    mode: IoMode,
    /// Of `O_SYNC` or `O_DSYNC`, whether the data alone is synced.
    pub(crate) syncs_data_only: Option<bool>,
    pub(crate) appends: bool,
}

impl ManagedOpen {
    /// `flags`: of the program's open.
    pub(crate) fn new(node: Arc<Node>, file: Arc<StripedFile>, flags: i32) -> Self {
        let syncs = flags & libc::O_DSYNC != 0;
        Self {
            node,
            file,
            mode: IoMode { direct: flags & libc::O_DIRECT != 0, durable: syncs },
            syncs_data_only: syncs.then_some(flags & libc::O_SYNC != libc::O_SYNC),
            appends: flags & libc::O_APPEND != 0,
        }
    }

    pub(crate) fn mode(&self) -> IoMode {
        self.mode
    }
}

/// An open directory, read as a whole at the begin and when it is rewound.
pub(crate) struct Directory {
    node: Arc<Node>,
    opened: OwnedFd,
    entries: Mutex<Vec<Listed>>,
    /// The errno of an entry that could not be looked at, since the begin; 0: of none.
    fault: AtomicI32,
}

/// An entry of a directory as its file system lists it.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(crate) name: OsString,
    pub(crate) number: u64,
    pub(crate) kind: FileType,
}

impl Directory {
    pub(crate) fn new(node: Arc<Node>, opened: OwnedFd) -> Self {
        Self { node, opened, entries: Mutex::default(), fault: AtomicI32::new(0) }
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub(crate) fn note_fault(&self, errno: Errno) {
        self.fault.store(errno.raw_os_error(), Ordering::Relaxed);
    }

    /// Once.
    pub(crate) fn take_fault(&self) -> Result<(), Errno> {
        match self.fault.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(Errno::from_raw_os_error(errno)),
        }
    }

    pub(crate) fn opened(&self) -> &OwnedFd {
        &self.opened
    }

    /// Hands the entries from `offset` on to `take` until that returns true; the offset of an entry is that of the next.
    pub(crate) fn each_from(&self, offset: u64, mut take: impl FnMut(&Listed, u64) -> bool) -> Result<(), Errno> {
        let mut entries = lock(&self.entries);
        if offset == 0 {
            *entries = self.read()?;
            self.fault.store(0, Ordering::Relaxed);
        }
        for (place, entry) in entries.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if take(entry, place as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    fn read(&self) -> Result<Vec<Listed>, Errno> {
        let mut found = Vec::new();
        // An open of its own, whose position nobody else moves.
        for entry in Dir::read_from(&self.opened)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            found.push(Listed { name, number: entry.ino(), kind: entry.file_type() });
        }
        // Some file systems do not list the kind.
        for entry in found.iter_mut().filter(|entry| entry.kind == FileType::Unknown) {
            let kind = hold_at(&self.opened, &entry.name).and_then(rustix::fs::fstat);
            entry.kind = kind.map_or(FileType::RegularFile, |found| FileType::from_raw_mode(found.st_mode));
        }
        Ok(found)
    }
}

/// All opens, by the numbers that the kernel has for them.
#[derive(Default)]
pub(crate) struct Opens {
    table: RwLock<Table>,
}

#[derive(Default)]
struct Table {
    opens: HashMap<u64, Arc<Open>>,
    last: u64,
}

impl Opens {
    pub(crate) fn enter(&self, open: Open) -> FileHandle {
        open.node().note_opened();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.last += 1;
        let number = table.last;
        table.opens.insert(number, Arc::new(open));
        FileHandle(number)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.opens.get(&handle.0).cloned().ok_or(Errno::BADF)
    }

    /// Whether a file that the kernel knows by this number is open.
    pub(crate) fn has_any(&self, number: u64) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.opens.values().any(|open| open.node().number() == number)
    }

    /// The open has ended. What it leads to is closed here, without the lock.
    pub(crate) fn release(&self, handle: FileHandle) {
        let released = self.table.write().unwrap_or_else(PoisonError::into_inner).opens.remove(&handle.0);
        if let Some(released) = &released {
            released.node().note_released();
        }
        drop(released);
    }
}
