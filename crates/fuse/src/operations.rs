//! What is done for an operation: the nodes and opens that its numbers mean, and the module that knows how.

use crate::attributes::attributes_of;
use crate::data::{self, Copy, Origin};
use crate::extended;
use crate::failure::to_fuse;
use crate::locks::{Asked, Locker, Locks};
use crate::making::{self, Made, Owner};
use crate::managed::Managed;
use crate::mapped::Mapped;
use crate::moments::{self, Moments};
use crate::names::{self, Place};
use crate::nodes::{Node, Nodes};
use crate::opens::{Directory, Listed, ManagedOpen, Open, Opens, OrdinaryOpen};
use crate::setting::{self, Changes};
use crate::sizes::Sizes;
use fuser::{BackingId, FileAttr, FileHandle, Generation, INodeNo, LockOwner, RenameFlags, ReplyEmpty, WriteFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use stripewise_store::client::Client;
use stripewise_store::common_memory::{Pages, is_common_memory};
use stripewise_store::file::StripedFile;

/// How often it is tried to make a file that was there, and was gone when it was to be opened.
const MAX_CREATES: u32 = 16;

/// How a directory is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// For how long the kernel may believe what it has heard of names and attributes.
    pub(crate) cache: Duration,
    /// Reads and writes of ordinary files may be the kernel's affair, if it can.
    pub(crate) may_pass_through: bool,
}

/// What programs miss on this kernel.
pub(crate) type Lacks = Arc<OnceLock<Vec<&'static str>>>;

/// A file that was looked up, as the kernel is told of it.
pub(crate) struct Found {
    pub(crate) attributes: FileAttr,
    pub(crate) generation: Generation,
    /// For how long the kernel may believe the attributes.
    pub(crate) believed: Duration,
    /// And that the file has this name.
    pub(crate) name_believed: Duration,
    node: Arc<Node>,
}

/// An open as the kernel is told of it.
pub(crate) struct Opened {
    pub(crate) handle: FileHandle,
    /// The file that the kernel is to read and write itself.
    pub(crate) backing: Option<Arc<BackingId>>,
}

fn note_other_pages(node: &Node) {
    let path = node.path().unwrap_or_default();
    tracing::warn!(
        path = %path.display(),
        "memory that programs share is mapped by others than this mount, which has no passthrough and so pages of its own; use the database by one of them only"
    );
}

/// Asks the kernel to read and write a file itself.
pub(crate) type Back<'a> = &'a dyn Fn(BorrowedFd<'_>) -> std::io::Result<BackingId>;

/// What the kernel hears without asking.
#[derive(Clone, Default)]
pub(crate) struct Notices {
    pub(crate) mapped: Arc<Mapped>,
    pub(crate) moments: Arc<Moments>,
    pub(crate) sizes: Arc<Sizes>,
}

impl Notices {
    /// No thread watches for changes after it.
    pub(crate) fn end(&self) {
        self.mapped.end();
        self.sizes.end();
    }
}

pub(crate) struct Operations {
    managed: Managed,
    nodes: Nodes,
    opens: Opens,
    locks: Arc<Locks>,
    notices: Notices,
    lacks: Lacks,
    settings: Settings,
}

impl Operations {
    /// `root` is open on the mounted directory.
    pub(crate) fn new(client: Client, root: OwnedFd, settings: Settings) -> rustix::io::Result<Self> {
        let (managed, nodes) = (Managed::new(client), Nodes::new(root)?);
        let (opens, locks, notices) = (Opens::default(), Arc::default(), Notices::default());
        Ok(Self { managed, nodes, opens, locks, notices, lacks: Lacks::default(), settings })
    }

    pub(crate) fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    pub(crate) fn cache(&self) -> Duration {
        self.settings.cache
    }

    pub(crate) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// Known once the kernel has said what it has.
    pub(crate) fn lacks(&self) -> Lacks {
        self.lacks.clone()
    }

    pub(crate) fn set_lacks(&self, lacks: Vec<&'static str>) {
        let _ = self.lacks.set(lacks);
    }

    pub(crate) fn node(&self, number: INodeNo) -> Result<Arc<Node>, Errno> {
        self.nodes.get(number.0)
    }

    pub(crate) fn open(&self, handle: FileHandle) -> Result<Arc<Open>, Errno> {
        self.opens.get(handle)
    }

    pub(crate) fn forget(&self, number: INodeNo, lookups: u64) {
        self.nodes.forget(number.0, lookups);
    }

    /// What stands at the name, with its attributes. By `.` a server of NFS asks for the file itself, which the kernel may have forgotten.
    pub(crate) fn find(&self, parent: INodeNo, name: &OsStr) -> Result<Found, Errno> {
        let (node, found) =
            if name == "." { self.nodes.find_again(parent.0)? } else { self.nodes.find(&self.node(parent)?, name)? };
        self.show(&node, &found)
    }

    /// A lookup that fails after it found the file is none.
    fn show(&self, node: &Arc<Node>, found: &Stat) -> Result<Found, Errno> {
        let attributes = attributes_of(&self.managed, node, found);
        let attributes = attributes.inspect_err(|_| self.nodes.forget(node.number(), 1))?;
        let cache = self.settings.cache;
        let (believed, name_believed) = match cache.is_zero() {
            true => (self.notices.moments.of(node), moments::of_name(node)),
            false => (cache, cache),
        };
        Ok(Found { attributes, generation: node.generation(), believed, name_believed, node: node.clone() })
    }

    /// The kernel has been told.
    pub(crate) fn end_lookup(&self, found: &Found) {
        if self.settings.cache.is_zero() {
            self.notices.moments.check(&found.node);
        }
    }

    pub(crate) fn attributes(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        let node = self.node(number)?;
        attributes_of(&self.managed, &node, &node.stat()?)
    }

    pub(crate) fn open_node(&self, number: INodeNo, flags: i32, back: Back<'_>) -> Result<Opened, Errno> {
        let node = self.node(number)?;
        let writable = flags & libc::O_ACCMODE != libc::O_RDONLY;
        match self.managed.open(&node, writable)? {
            Some(file) => Ok(self.enter_managed(node, file, flags)),
            None => {
                let file = node.open(own_flags(flags))?;
                self.enter_ordinary(node, file, flags, back)
            }
        }
    }

    fn enter_managed(&self, node: Arc<Node>, file: Arc<StripedFile>, flags: i32) -> Opened {
        let open = Arc::new(Open::Managed(ManagedOpen::new(node.clone(), file, flags)));
        self.notices.sizes.watch(&open);
        let handle = self.opens.enter(open);
        self.notices.moments.end(&node);
        Opened { handle, backing: None }
    }

    /// `BUSY`: the file is memory that programs share, and others map other pages of it.
    fn enter_ordinary(&self, node: Arc<Node>, file: OwnedFd, flags: i32, back: Back<'_>) -> Result<Opened, Errno> {
        let may_pass_through = self.settings.may_pass_through && node.kind() == FileType::RegularFile;
        let backing = node.backing(|| {
            // Writes that the kernel makes itself would leave the set-user bits.
            let is_plain = node.stat().is_ok_and(|found| found.st_mode & (libc::S_ISUID | libc::S_ISGID) == 0);
            // Refused of files on file systems that are stacks themselves; then they are read and written here.
            if may_pass_through && is_plain { back(file.as_fd()).ok() } else { None }
        });
        let appends = flags & libc::O_APPEND != 0;
        let mut open = OrdinaryOpen { node: node.clone(), file, appends, backing: backing.clone(), pages_mark: None };
        if node.kind() == FileType::RegularFile && is_common_memory(node.path()?.as_os_str().as_bytes()) {
            let pages = if backing.is_some() { Pages::Common } else { Pages::OfMount };
            open.pages_mark = Some(node.mark_pages(pages).inspect_err(|_| note_other_pages(&node))?);
        }
        let open = Arc::new(Open::Ordinary(open));
        if backing.is_none() {
            self.notices.sizes.watch(&open);
        }
        let handle = self.opens.enter(open);
        self.notices.moments.end(&node);
        Ok(Opened { handle, backing })
    }

    /// `STALE`: the kernel is to look the name up once more, and to open what it finds there.
    pub(crate) fn create(
        &self,
        (parent, name): (INodeNo, &OsStr),
        mode: u32,
        flags: i32,
        owner: Owner,
        back: Back<'_>,
    ) -> Result<(Found, Opened), Errno> {
        let parent_node = self.node(parent)?;
        let mode = Mode::from_raw_mode(mode);
        for _ in 0..MAX_CREATES {
            match making::make(&self.managed, &parent_node, name, mode, own_flags(flags), owner) {
                Ok(made) => return self.open_made(made, flags, back),
                // Made meanwhile by a program that does not use the mount.
                Err(Errno::EXIST) if flags & libc::O_EXCL == 0 => {}
                Err(errno) => return Err(errno),
            }
            match self.find(parent, name) {
                Ok(found) => {
                    let number = found.attributes.ino.0;
                    return self.open_older(found, flags, owner, back).inspect_err(|_| self.nodes.forget(number, 1));
                }
                // And removed.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::STALE)
    }

    fn open_made(&self, made: Made, flags: i32, back: Back<'_>) -> Result<(Found, Opened), Errno> {
        let Made { file, striped } = made;
        let (node, found) = self.nodes.enter(stripewise_store::nameless::hold(&file)?)?;
        let opened = match striped {
            Some(striped) => {
                node.note_open(&striped);
                self.enter_managed(node.clone(), striped, flags)
            }
            None => self.enter_ordinary(node.clone(), file, flags, back)?,
        };
        // What stands there since it was entered: the opening may have changed it.
        let found = node.stat().unwrap_or(found);
        let shown = self.show(&node, &found).inspect_err(|_| self.opens.release(opened.handle))?;
        Ok((shown, opened))
    }

    /// Opens another's file in place of a new one. The kernel takes it for new: it neither checks whether the program may open it nor truncates it. So both are
    /// done here where the file is the program's own, and left to the kernel's second try (`STALE`) elsewhere. A program has that error only of another user's name
    /// that comes and goes, if the second try meets the same.
    fn open_older(&self, mut found: Found, flags: i32, owner: Owner, back: Back<'_>) -> Result<(Found, Opened), Errno> {
        if !owner.may_open(&found.attributes, flags) {
            return Err(Errno::STALE);
        }
        let number = found.attributes.ino;
        let opened = self.open_node(number, flags, back)?;
        if flags & libc::O_TRUNC != 0 {
            let drops_privileges = owner.drops_privileges();
            let changes = Changes { size_bytes: Some(0), drops_privileges, ..Changes::default() };
            let changed = self.change(number, None, changes);
            found.attributes = changed.inspect_err(|_| self.opens.release(opened.handle))?;
        }
        Ok((found, opened))
    }

    /// Makes a file without opening it; of a kind in `mode`.
    pub(crate) fn make(
        &self,
        (parent, name): (INodeNo, &OsStr),
        mode: u32,
        device: u32,
        owner: Owner,
    ) -> Result<Found, Errno> {
        let node = self.node(parent)?;
        match mode & libc::S_IFMT {
            0 | libc::S_IFREG => {
                making::make(&self.managed, &node, name, Mode::from_raw_mode(mode), OFlags::empty(), owner)?;
            }
            _ => making::make_special(&node, name, mode, device, owner)?,
        }
        self.find(parent, name)
    }

    pub(crate) fn make_directory(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        owner: Owner,
    ) -> Result<Found, Errno> {
        making::make_directory(&*self.node(parent)?, name, mode, owner)?;
        self.find(parent, name)
    }

    pub(crate) fn make_symlink(
        &self,
        parent: INodeNo,
        name: &OsStr,
        target: &OsStr,
        owner: Owner,
    ) -> Result<Found, Errno> {
        making::make_link(&*self.node(parent)?, name, target, owner)?;
        self.find(parent, name)
    }

    pub(crate) fn link(&self, number: INodeNo, parent: INodeNo, name: &OsStr) -> Result<Found, Errno> {
        stripewise_store::nameless::link(&*self.node(number)?, &*self.node(parent)?, name)?;
        self.find(parent, name)
    }

    pub(crate) fn remove(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        names::remove(&self.managed, Place { parent: &*self.node(parent)?, name })
    }

    pub(crate) fn remove_directory(&self, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        rustix::fs::unlinkat(&*self.node(parent)?, name, AtFlags::REMOVEDIR)
    }

    pub(crate) fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let (from_parent, to_parent) = (self.node(from.0)?, self.node(to.0)?);
        let from = Place { parent: &from_parent, name: from.1 };
        let to = Place { parent: &to_parent, name: to.1 };
        names::rename(&self.managed, from, to, rustix::fs::RenameFlags::from_bits_retain(flags.bits()))
    }

    pub(crate) fn change(
        &self,
        number: INodeNo,
        handle: Option<FileHandle>,
        changes: Changes,
    ) -> Result<FileAttr, Errno> {
        let node = self.node(number)?;
        let open = handle.map(|handle| self.opens.get(handle)).transpose()?;
        changes.make(&self.managed, &node, open.as_deref())?;
        attributes_of(&self.managed, &node, &node.stat()?)
    }

    /// A read that no program called for fills mapped pages.
    pub(crate) fn note_mapped(&self, open: &Arc<Open>) {
        self.notices.mapped.note(open);
    }

    pub(crate) fn write(&self, open: &Arc<Open>, offset: u64, bytes: &[u8], flags: WriteFlags) -> Result<u32, Errno> {
        let is_cached = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if is_cached {
            self.note_mapped(open);
        }
        if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            setting::drop_privileges(&self.managed, open.node())?;
        }
        let origin = if is_cached { Origin::Mapping } else { Origin::Program };
        let written = data::write(open, offset, bytes, origin)?;
        let end = offset + u64::from(written);
        if written > 0 {
            open.node().raise_known_size(end);
        }
        // Of a page that others have cut off or within nothing more is to be written.
        if is_cached && (written as usize) < bytes.len() && end >= data::size_bytes(open)? {
            self.notices.mapped.expire(open);
            return Ok(bytes.len() as u32);
        }
        Ok(written)
    }

    /// As `fallocate`.
    pub(crate) fn allocate(
        &self,
        handle: FileHandle,
        (offset, length): (u64, u64),
        mode: i32,
        drops_privileges: bool,
    ) -> Result<(), Errno> {
        let open = self.opens.get(handle)?;
        if drops_privileges {
            setting::drop_privileges(&self.managed, open.node())?;
        }
        data::allocate(&open, offset, length, mode)
    }

    pub(crate) fn flush(&self, number: INodeNo, handle: FileHandle, owner: LockOwner) -> Result<(), Errno> {
        self.locks.drop_owner(number.0, owner);
        let open = self.opens.get(handle)?;
        settle(&open);
        data::flush(&open)
    }

    pub(crate) fn release(&self, number: INodeNo, handle: FileHandle) {
        // What a mapping wrote since the last close.
        if let Ok(open) = self.opens.get(handle) {
            settle(&open);
        }
        self.opens.release(handle);
        self.notices.sizes.forget_failure(handle);
        self.locks.drop_handle(number.0, handle);
    }

    /// `caller`: the user who asks, and the group.
    pub(crate) fn set_extended(
        &self,
        number: INodeNo,
        name: &OsStr,
        value: Option<(&[u8], i32)>,
        caller: (u32, u32),
    ) -> Result<(), Errno> {
        let node = self.node(number)?;
        extended::check_caller(&node, name, caller.0)?;
        match value {
            Some((value, flags)) => extended::set(&node, name, value, flags)?,
            None => extended::remove(&node, name)?,
        }
        if extended::is_acl(name) && value.is_some() {
            setting::drop_group_privilege(&self.managed, &node, caller)?;
        }
        // Its mode goes with it.
        if extended::is_acl(name) { setting::report_attributes(&self.managed, &node) } else { Ok(()) }
    }

    pub(crate) fn find_lock(
        &self,
        number: INodeNo,
        locker: Locker,
        asked: Asked,
    ) -> Result<Option<(Asked, u32)>, Errno> {
        self.locks.get(&*self.node(number)?, locker, asked)
    }

    /// `waiting`: the thread of a program that waits for the lock.
    pub(crate) fn lock(&self, number: INodeNo, locker: Locker, asked: Asked, waiting: Option<u32>, reply: ReplyEmpty) {
        let node = match self.node(number) {
            Ok(node) => node,
            Err(errno) => return reply.error(to_fuse(errno)),
        };
        match (self.locks.set(&node, locker, asked), waiting) {
            (Err(Errno::AGAIN | Errno::ACCESS), Some(thread)) => self.locks.wait(node, locker, asked, thread, reply),
            (Ok(()), _) => reply.ok(),
            (Err(errno), _) => reply.error(to_fuse(errno)),
        }
    }

    pub(crate) fn open_directory(&self, number: INodeNo) -> Result<FileHandle, Errno> {
        let node = self.node(number)?;
        let opened = node.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(self.opens.enter(Arc::new(Open::Directory(Directory::new(node, opened)))))
    }

    /// Hands the entries from `offset` on to `take` until that returns true.
    pub(crate) fn list(
        &self,
        handle: FileHandle,
        offset: u64,
        mut take: impl FnMut(&Directory, &Listed) -> bool,
    ) -> Result<(), Errno> {
        match &*self.opens.get(handle)? {
            Open::Directory(directory) => directory.each_from(offset, |entry| take(directory, entry)),
            Open::Managed(_) | Open::Ordinary(_) => Err(Errno::NOTDIR),
        }
    }

    /// What kept an entry of an open directory out of its list, once.
    pub(crate) fn listing_fault(&self, handle: FileHandle) -> Result<(), Errno> {
        match &*self.opens.get(handle)? {
            Open::Directory(directory) => directory.take_fault(),
            Open::Managed(_) | Open::Ordinary(_) => Err(Errno::NOTDIR),
        }
    }

    /// Whether the mounted directory's file system has ACLs.
    pub(crate) fn has_acls(&self) -> bool {
        self.node(INodeNo::ROOT).is_ok_and(|root| extended::has_acls(&root))
    }

    pub(crate) fn copy(
        &self,
        from: (FileHandle, u64),
        to: (FileHandle, u64),
        bytes: u64,
        drops_privileges: bool,
    ) -> Result<u32, Errno> {
        let (source, target) = (self.opens.get(from.0)?, self.opens.get(to.0)?);
        if drops_privileges {
            setting::drop_privileges(&self.managed, target.node())?;
        }
        Copy { from: &source, from_offset: from.1, to: &target, to_offset: to.1, bytes }.make()
    }
}

/// See [`setting::settle_time`].
fn settle(open: &Open) {
    if let Open::Managed(managed) = open {
        setting::settle_time(&managed.node, &managed.file);
    }
}

/// What of a program's flags is for the open of the file itself. Appending is not: what is written back of mapped pages has its place.
fn own_flags(flags: i32) -> OFlags {
    let kept = libc::O_ACCMODE | libc::O_DSYNC | libc::O_SYNC | libc::O_NOATIME | libc::O_NONBLOCK;
    OFlags::from_bits_retain((flags & kept) as u32) | OFlags::NOCTTY
}
