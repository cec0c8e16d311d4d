//! The files that the kernel knows.
//!
//! The kernel names a file by a number that it got from a lookup, and says when it forgets it. Until then the file is held by a descriptor with `O_PATH`, so
//! neither a rename nor a removal changes what a number means, and no file system gives the inode's number to another file. The number is the inode's own
//! where that is free, so that programs see the inodes that redirected programs see. What the kernel has forgotten it may ask for again (`handles`).

use crate::handles::{Forgotten, Handle};
use fuser::{BackingId, Generation};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use stripewise_store::common_memory::{self, Pages};
use stripewise_store::file::StripedFile;
use stripewise_store::shared::processes::is_used_here;

/// The mount's own root, by the protocol.
pub(crate) const ROOT: u64 = 1;
/// Numbers of files whose inode's number is taken: another file system's below the mounted directory.
const FIRST_OTHER: u64 = 1 << 63;

/// Directories above an open one that count as open.
const MAX_ABOVE: usize = 64;

/// Nothing is opened by this descriptor.
const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Device and inode.
type Identity = (u64, u64);

/// By which of two ways an ordinary file is read and written; the kernel takes one for all opens that there are of a file.
#[derive(Default)]
struct Backing {
    /// What the kernel has of a file that it reads and writes itself.
    live: Weak<BackingId>,
    /// Opens whose bytes come to this process.
    without: usize,
}

/// A file that the kernel knows.
pub(crate) struct Node {
    number: u64,
    held: OwnedFd,
    kind: FileType,
    /// By which it is found when the kernel has forgotten it.
    handle: Option<Handle>,
    /// Opens of a managed file, for reading and for writing.
    opens: Mutex<[Weak<StripedFile>; 2]>,
    /// Of an ordinary file.
    backing: Mutex<Backing>,
    /// By which [`Self::mark_pages`] holds its mark.
    pages_mark: Mutex<Weak<OwnedFd>>,
    /// Of a directory: the one in which it was found by its name last.
    above: Mutex<Weak<Node>>,
    /// Opens of programs; of a directory those of directories below it too.
    open_count: AtomicUsize,
    /// The size of which the kernel has heard last.
    known_size: AtomicU64,
    /// Held by who sets a time, or gives the stub that of a write.
    times: Mutex<()>,
    /// The kernel may believe the attributes that came with a name, for a moment (`moments`).
    is_believed: AtomicBool,
}

impl Node {
    fn new(number: u64, held: OwnedFd, kind: FileType, handle: Option<Handle>) -> Self {
        let (opens, backing) = (Mutex::default(), Mutex::default());
        Self {
            number,
            held,
            kind,
            handle,
            opens,
            backing,
            pages_mark: Mutex::default(),
            above: Mutex::default(),
            open_count: AtomicUsize::new(0),
            known_size: AtomicU64::new(0),
            times: Mutex::default(),
            is_believed: AtomicBool::new(false),
        }
    }

    /// What the kernel calls it.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// What tells it from a file that had its number before.
    pub(crate) fn generation(&self) -> Generation {
        Generation(self.handle.as_ref().map_or(0, Handle::generation))
    }

    pub(crate) fn kind(&self) -> FileType {
        self.kind
    }

    pub(crate) fn stat(&self) -> rustix::io::Result<Stat> {
        rustix::fs::fstat(&self.held)
    }

    /// A path that leads to the file itself, whatever its name.
    pub(crate) fn link(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.held.as_raw_fd()))
    }

    /// Where it is at the moment.
    pub(crate) fn path(&self) -> rustix::io::Result<PathBuf> {
        let path = rustix::fs::readlink(self.link(), Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(path.into_bytes())))
    }

    /// Another open of the file. Refused of the cluster's own table of processes: to close it would end the locks by which others see that this process lives.
    pub(crate) fn open(&self, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        if self.kind == FileType::RegularFile {
            let found = self.stat()?;
            if is_used_here((found.st_dev, found.st_ino)) {
                return Err(Errno::ACCESS);
            }
        }
        match self.kind {
            // By way of the link a symbolic link would be followed, and a FIFO or device be waited for.
            FileType::Directory => rustix::fs::openat(&self.held, ".", flags | OFlags::CLOEXEC, Mode::empty()),
            FileType::Symlink => Err(Errno::LOOP),
            _ => rustix::fs::open(self.link(), (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC, Mode::empty()),
        }
    }

    /// Any open of the managed file in this process.
    pub(crate) fn open_file(&self) -> Option<Arc<StripedFile>> {
        lock(&self.opens).iter().find_map(Weak::upgrade)
    }

    /// One that writes.
    pub(crate) fn writing_file(&self) -> Option<Arc<StripedFile>> {
        lock(&self.opens)[1].upgrade()
    }

    /// What the kernel has of the file, for another open of it. If there is no open yet, it is made by `back`, or not. [`Self::end_unbacked`] ends an open without.
    pub(crate) fn backing(&self, back: impl FnOnce() -> Option<BackingId>) -> Option<Arc<BackingId>> {
        let mut backing = lock(&self.backing);
        let live = backing.live.upgrade().or_else(|| (backing.without == 0).then(back).flatten().map(Arc::new));
        match &live {
            Some(live) => backing.live = Arc::downgrade(live),
            None => backing.without += 1,
        }
        live
    }

    /// Notes of the file, which programs map as memory that they share, which pages those of this mount map; until the last of what is returned is dropped.
    pub(crate) fn mark_pages(&self, pages: Pages) -> Result<Arc<OwnedFd>, Errno> {
        let mut mark = lock(&self.pages_mark);
        if let Some(live) = mark.upgrade() {
            return Ok(live);
        }
        let opened = Arc::new(self.open(OFlags::RDWR).or_else(|_| self.open(OFlags::RDONLY))?);
        common_memory::mark(opened.as_fd(), pages)?;
        *mark = Arc::downgrade(&opened);
        Ok(opened)
    }

    /// An open without a backing has ended.
    pub(crate) fn end_unbacked(&self) {
        lock(&self.backing).without -= 1;
    }

    /// The directories above a directory, as far as they are known by the names that led to it.
    pub(crate) fn all_above(&self) -> Vec<Arc<Node>> {
        let above = std::iter::successors(lock(&self.above).upgrade(), |node| lock(&node.above).upgrade());
        // Those of directories that were moved without the kernel may lead in a circle.
        above.take(MAX_ABOVE).collect()
    }

    /// A program has opened the file.
    pub(crate) fn note_opened(&self) {
        self.open_count.fetch_add(1, Ordering::SeqCst);
    }

    /// A program's open has ended.
    pub(crate) fn note_released(&self) {
        self.open_count.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open_count.load(Ordering::SeqCst) > 0
    }

    /// The size of which the kernel has heard last, as far as that is known: it leaves out what it hears too late.
    pub(crate) fn known_size(&self) -> u64 {
        self.known_size.load(Ordering::Relaxed)
    }

    /// The kernel hears of that size.
    pub(crate) fn set_known_size(&self, size_bytes: u64) {
        self.known_size.store(size_bytes, Ordering::Relaxed);
    }

    /// The kernel has the file reach up to there at least.
    pub(crate) fn raise_known_size(&self, end: u64) {
        self.known_size.fetch_max(end, Ordering::Relaxed);
    }

    /// Nobody else sets a time of the file, or gives its stub that of a write, until what is returned is dropped.
    pub(crate) fn hold_times(&self) -> MutexGuard<'_, ()> {
        lock(&self.times)
    }

    /// Says whether the kernel believes attributes of the file; returns whether it did.
    pub(crate) fn set_believed(&self, is_believed: bool) -> bool {
        self.is_believed.swap(is_believed, Ordering::SeqCst)
    }

    pub(crate) fn note_open(&self, file: &Arc<StripedFile>) {
        lock(&self.opens)[usize::from(file.is_writable())] = Arc::downgrade(file);
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.held.as_fd()
    }
}

struct Entry {
    node: Arc<Node>,
    /// Lookups that the kernel has not forgotten.
    lookups: u64,
}

#[derive(Default)]
struct Known {
    by_number: HashMap<u64, Entry>,
    by_identity: HashMap<Identity, u64>,
    forgotten: Forgotten,
    others: u64,
}

/// All files that the kernel knows.
pub(crate) struct Nodes {
    root: Arc<Node>,
    device: u64,
    /// Open on the root if files of its file system can be had by their handles.
    anchor: Option<OwnedFd>,
    known: Mutex<Known>,
}

impl Nodes {
    /// `root` is open on the mounted directory, perhaps with `O_PATH`.
    pub(crate) fn new(root: OwnedFd) -> rustix::io::Result<Self> {
        let found = rustix::fs::fstat(&root)?;
        // Its generation is 0 by the protocol, and it is never forgotten.
        let root = Arc::new(Node::new(ROOT, root, FileType::Directory, None));
        let anchor = root.open(OFlags::RDONLY | OFlags::DIRECTORY).ok();
        let anchor = anchor.filter(|anchor| Handle::of(anchor).is_some_and(|root| root.hold(anchor.as_fd()).is_ok()));
        let mut known = Known::default();
        known.by_number.insert(ROOT, Entry { node: root.clone(), lookups: 1 });
        known.by_identity.insert((found.st_dev, found.st_ino), ROOT);
        Ok(Self { root, device: found.st_dev, anchor, known: Mutex::new(known) })
    }

    /// `STALE` of a number that was forgotten.
    pub(crate) fn get(&self, number: u64) -> rustix::io::Result<Arc<Node>> {
        if number == ROOT {
            return Ok(self.root.clone());
        }
        lock(&self.known).by_number.get(&number).map(|entry| entry.node.clone()).ok_or(Errno::STALE)
    }

    /// What stands at the name; counts as a lookup.
    pub(crate) fn find(&self, parent: &Arc<Node>, name: &OsStr) -> rustix::io::Result<(Arc<Node>, Stat)> {
        let is_above_root = name == ".." && parent.number == ROOT;
        let name = if is_above_root { OsStr::new(".") } else { name };
        let found = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let (node, found) = match self.find_known(&found) {
            Some(node) => (node, found),
            None => self.enter(rustix::fs::openat(parent, name, HOLD, Mode::empty())?)?,
        };
        if node.kind == FileType::Directory && name != "." && name != ".." {
            *lock(&node.above) = Arc::downgrade(parent);
        }
        Ok((node, found))
    }

    /// A file that is known; counts as a lookup. While its node holds it no other file gets its inode's number.
    fn find_known(&self, found: &Stat) -> Option<Arc<Node>> {
        let mut known = lock(&self.known);
        let number = known.by_identity.get(&(found.st_dev, found.st_ino)).copied()?;
        let entry = known.by_number.get_mut(&number)?;
        entry.lookups += 1;
        Some(entry.node.clone())
    }

    /// The file of a number, even if the kernel has forgotten it; counts as a lookup. `STALE`: it is gone, or was forgotten too long ago.
    pub(crate) fn find_again(&self, number: u64) -> rustix::io::Result<(Arc<Node>, Stat)> {
        if let Ok(node) = self.get(number) {
            return self.enter(rustix::io::fcntl_dupfd_cloexec(&node.held, 0)?);
        }
        let anchor = self.anchor.as_ref().ok_or(Errno::STALE)?;
        let handle = lock(&self.known).forgotten.get(number).cloned().ok_or(Errno::STALE)?;
        self.enter(handle.hold(anchor.as_fd())?)
    }

    /// The node of a file that is held by `held`; counts as a lookup.
    pub(crate) fn enter(&self, held: OwnedFd) -> rustix::io::Result<(Arc<Node>, Stat)> {
        let found = rustix::fs::fstat(&held)?;
        let identity = (found.st_dev, found.st_ino);
        let has_handle = self.anchor.is_some() && found.st_dev == self.device;
        if let Some(node) = self.find_known(&found) {
            return Ok((node, found));
        }
        let handle = has_handle.then(|| Handle::of(&held)).flatten();
        let mut known = lock(&self.known);
        // Entered meanwhile by another thread.
        if let Some(number) = known.by_identity.get(&identity).copied()
            && let Some(entry) = known.by_number.get_mut(&number)
        {
            entry.lookups += 1;
            return Ok((entry.node.clone(), found));
        }
        let is_free = |number: u64| number > ROOT && number < FIRST_OTHER && !known.by_number.contains_key(&number);
        let number = if found.st_dev == self.device && is_free(found.st_ino) {
            found.st_ino
        } else {
            known.others += 1;
            FIRST_OTHER + known.others
        };
        let kind = FileType::from_raw_mode(found.st_mode);
        let node = Arc::new(Node::new(number, held, kind, handle));
        known.by_identity.insert(identity, number);
        known.by_number.insert(number, Entry { node: node.clone(), lookups: 1 });
        Ok((node, found))
    }

    /// The kernel forgets so many lookups.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut known = lock(&self.known);
        let Some(entry) = known.by_number.get_mut(&number).filter(|_| number != ROOT) else { return };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        if entry.lookups > 0 {
            return;
        }
        let gone = known.by_number.remove(&number);
        if let Some(gone) = &gone
            && let Ok(found) = gone.node.stat()
        {
            known.by_identity.remove(&(found.st_dev, found.st_ino));
            if let Some(handle) = gone.node.handle.clone().filter(|_| found.st_nlink > 0) {
                known.forgotten.note(number, handle);
            }
        }
        // A descriptor may take long to be closed.
        drop(known);
        drop(gone);
    }
}

/// What stands at the name, held and not counted as a lookup.
pub(crate) fn hold_at(directory: impl AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(directory, name, HOLD, Mode::empty())
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
