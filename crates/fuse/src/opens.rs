//! Open files and directories.

use crate::nodes::{Node, hold_at, lock};
use fuser::{BackingId, FileHandle};
use rustix::fd::OwnedFd;
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use stripewise_store::file::{IoMode, StripedFile};

/// Bytes of a directory's list that are read at once.
const READ_BYTES: usize = 32 << 10;

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
    pub(crate) fn node(&self) -> &Node {
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
    pub(crate) backing: Option<Arc<BackingId>>,
    /// Says which pages its maps have, of a file that programs map as memory that they share.
    pub(crate) pages_mark: Option<Arc<OwnedFd>>,
}

impl Drop for OrdinaryOpen {
    fn drop(&mut self) {
        if self.backing.is_none() {
            self.node.end_unbacked();
        }
    }
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

/// An open directory. Offsets in its list are the file system's own, so they mean the same to every open of it: a server of NFS opens it for each part.
pub(crate) struct Directory {
    node: Arc<Node>,
    opened: OwnedFd,
    /// Those above it when it was opened, which count as open meanwhile.
    above: Vec<Arc<Node>>,
    ahead: Mutex<Ahead>,
    /// The errno of an entry that could not be looked at, since the begin; 0: of none.
    fault: AtomicI32,
}

/// Entries that were read together.
#[derive(Default)]
struct Ahead {
    /// The offset of the first; `None` before anything was read.
    start: Option<u64>,
    entries: Vec<Listed>,
}

/// An entry of a directory as its file system lists it.
pub(crate) struct Listed {
    pub(crate) name: OsString,
    pub(crate) number: u64,
    pub(crate) kind: FileType,
    /// The offset of the entry after it.
    pub(crate) next: u64,
}

impl Ahead {
    /// The entries from `offset` on; `None` if others were read. Perhaps none, after the last.
    fn rest(&self, offset: u64) -> Option<&[Listed]> {
        if self.start == Some(offset) {
            return Some(&self.entries);
        }
        let before = self.entries.iter().rposition(|entry| entry.next == offset)?;
        Some(&self.entries[before + 1..])
    }

    /// Where the directory stands after what was read.
    fn end(&self) -> Option<u64> {
        self.entries.last().map_or(self.start, |entry| Some(entry.next))
    }
}

impl Directory {
    pub(crate) fn new(node: Arc<Node>, opened: OwnedFd) -> Self {
        let above = node.all_above();
        above.iter().for_each(|node| node.note_opened());
        Self { node, opened, above, ahead: Mutex::default(), fault: AtomicI32::new(0) }
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

    /// Hands the entries from `offset` on to `take` until that returns true.
    pub(crate) fn each_from(&self, offset: u64, mut take: impl FnMut(&Listed) -> bool) -> Result<(), Errno> {
        let mut ahead = lock(&self.ahead);
        if offset == 0 {
            // What has changed since it was read first is listed when it is rewound.
            *ahead = Ahead::default();
            self.fault.store(0, Ordering::Relaxed);
        }
        let mut at = offset;
        loop {
            if ahead.rest(at).is_none_or(<[Listed]>::is_empty) {
                let stands = std::mem::take(&mut *ahead).end();
                *ahead = self.read(at, stands)?;
            }
            let entries = ahead.rest(at).unwrap_or_default();
            let Some(last) = entries.last() else { return Ok(()) };
            at = last.next;
            if entries.iter().any(&mut take) {
                return Ok(());
            }
        }
    }

    /// The next entries from `offset` on; none at the end. The directory stands at `stands`, if that is known.
    fn read(&self, offset: u64, stands: Option<u64>) -> Result<Ahead, Errno> {
        if stands != Some(offset) {
            rustix::fs::seek(&self.opened, SeekFrom::Start(offset))?;
        }
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut listing = RawDir::new(&self.opened, buffer.spare_capacity_mut());
        let mut entries = Vec::new();
        while let Some(entry) = listing.next() {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            entries.push(Listed {
                name,
                number: entry.ino(),
                kind: entry.file_type(),
                next: entry.next_entry_cookie(),
            });
            if listing.is_buffer_empty() {
                break;
            }
        }
        // Some file systems do not list the kind.
        for entry in entries.iter_mut().filter(|entry| entry.kind == FileType::Unknown) {
            let kind = hold_at(&self.opened, &entry.name).and_then(rustix::fs::fstat);
            entry.kind = kind.map_or(FileType::RegularFile, |found| FileType::from_raw_mode(found.st_mode));
        }
        Ok(Ahead { start: Some(offset), entries })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        self.above.iter().for_each(|node| node.note_released());
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
    pub(crate) fn enter(&self, open: Arc<Open>) -> FileHandle {
        open.node().note_opened();
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.last += 1;
        let number = table.last;
        table.opens.insert(number, open);
        FileHandle(number)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.opens.get(&handle.0).cloned().ok_or(Errno::BADF)
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
