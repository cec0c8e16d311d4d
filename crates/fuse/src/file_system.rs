//! What the kernel may ask, in one place: each operation finds the nodes and opens that its numbers mean and calls the module that knows how.

use crate::attributes;
use crate::data;
use crate::extended;
use crate::failure::to_fuse;
use crate::locks::{Asked, Locker};
use crate::making::Owner;
use crate::moments::of_attributes;
use crate::operations::{Found, Opened, Operations};
use crate::setting::Changes;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// Requests of one kind that may wait at once.
const MAX_BACKGROUND: u16 = 64;

/// Asked of the kernel as far as it has them.
const WANTED: [InitFlags; 8] = [
    // Lookups and lists of one directory side by side.
    InitFlags::FUSE_PARALLEL_DIROPS,
    // The parts of a large direct request side by side.
    InitFlags::FUSE_ASYNC_DIO,
    // Shared mappings of files whose reads and writes go past the page cache.
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    // Record locks come here rather than being the kernel's own.
    InitFlags::FUSE_POSIX_LOCKS,
    // Set-user bits are dropped here: the kernel would ask for an extended attribute before every write.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // By a server of NFS.
    InitFlags::FUSE_EXPORT_SUPPORT,
    // The kernel permits by the files' ACLs too, and lets their owners alone change them.
    InitFlags::FUSE_POSIX_ACL,
    // A directory's default ACL takes the place of a program's mask, which so comes here.
    InitFlags::FUSE_DONT_MASK,
];

/// What programs miss on a kernel that has no more than these.
fn lacks(supported: InitFlags) -> Vec<&'static str> {
    let missing = [
        (InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP, "no file can be mapped shared (ENODEV), which takes Linux 6.6"),
        (
            InitFlags::FUSE_PASSTHROUGH,
            "bytes of ordinary files go through this process, where Linux 6.9 reads and writes them itself for a mount of root's",
        ),
    ];
    missing.into_iter().filter(|(needed, _)| !supported.contains(*needed)).map(|(_, lack)| lack).collect()
}

/// File systems that this one may be stacked on, itself included, where the kernel reads and writes the files below.
const BACKING_DEPTH: u32 = 1;

pub(crate) struct FileSystem(Operations);

impl FileSystem {
    pub(crate) fn new(operations: Operations) -> Self {
        Self(operations)
    }

    fn reply_entry(&self, reply: ReplyEntry, found: Result<Found, Errno>) {
        match found {
            Ok(found) => {
                reply.entry_with_ttls(&found.believed, &found.name_believed, &found.attributes, found.generation);
                self.0.end_lookup(&found);
            }
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn reply_attributes(&self, reply: ReplyAttr, found: Result<FileAttr, Errno>) {
        match found {
            Ok(found) => reply.attr(&of_attributes(self.0.cache(), &found), &found),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }
}

/// Whether a file that the caller changes loses its set-user and set-group bits.
fn drops_privileges(request: &Request) -> bool {
    request.uid() != 0
}

fn reply_empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(to_fuse(errno)),
    }
}

fn reply_xattr(reply: ReplyXattr, size: u32, ask: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) {
    let mut value = vec![0; size as usize];
    match ask(&mut value) {
        // With no room the length is asked for.
        Ok(length) if size == 0 => reply.size(length as u32),
        Ok(length) => reply.data(&value[..length]),
        Err(errno) => reply.error(to_fuse(errno)),
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // The kernel asks for ACLs at each look at a file of somebody else's.
        let is_useful = |wanted: &InitFlags| *wanted != InitFlags::FUSE_POSIX_ACL || self.0.has_acls();
        for wanted in WANTED.into_iter().filter(is_useful) {
            let _ = config.add_capabilities(wanted);
        }
        // Attributes that come along with names are for those who may be believed for a while.
        if !self.0.cache().is_zero() {
            let _ = config.add_capabilities(InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO);
        }
        self.0.set_lacks(lacks(config.capabilities()));
        let settings = self.0.settings_mut();
        settings.may_pass_through &= config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(BACKING_DEPTH).is_ok()
            // The kernel lets nobody else.
            && rustix::process::geteuid().is_root();
        let _ = config.set_max_write(data::MAX_BYTES);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(reply, self.0.find(parent, name));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        self.0.forget(number, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.reply_attributes(reply, self.0.attributes(number));
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size_bytes: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if let (Some(handle), Some(size_bytes)) = (handle, size_bytes) {
            let open = self.0.open(handle);
            match open.and_then(|open| self.0.notices().sizes.takes_back(handle, &open, request.pid(), size_bytes)) {
                Ok(false) => {}
                Ok(true) => return self.reply_attributes(reply, self.0.attributes(number)),
                Err(errno) => return reply.error(to_fuse(errno)),
            }
        }
        let drops_privileges = drops_privileges(request);
        let changes = Changes { mode, uid, gid, size_bytes, drops_privileges, accessed, modified };
        self.reply_attributes(reply, self.0.change(number, handle, changes));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.0.node(number).and_then(|node| rustix::fs::readlinkat(&*node, c"", Vec::new())) {
            Ok(target) => reply.data(target.to_bytes()),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        self.reply_entry(reply, self.0.make((parent, name), mode, device, Owner::of(request, mask)));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, mask: u32, reply: ReplyEntry) {
        self.reply_entry(reply, self.0.make_directory(parent, name, mode, Owner::of(request, mask)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.0.remove(parent, name));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.0.remove_directory(parent, name));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.reply_entry(reply, self.0.make_symlink(parent, name, target.as_os_str(), Owner::of(request, 0)));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.0.rename((parent, name), (new_parent, new_name), flags));
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.reply_entry(reply, self.0.link(number, parent, name));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.0.open_node(number, flags.0, &|file| reply.open_backing(file)) {
            Ok(Opened { handle, backing: None }) => reply.opened(handle, UNCACHED),
            Ok(Opened { handle, backing: Some(backing) }) => {
                reply.opened_passthrough(handle, FopenFlags::empty(), &backing);
            }
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        mask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let back = |file: rustix::fd::BorrowedFd<'_>| reply.open_backing(file);
        match self.0.create((parent, name), mode, flags, Owner::of(request, mask), &back) {
            Ok((found, Opened { handle, backing: None })) => {
                reply.created(&self.0.cache(), &found.attributes, found.generation, handle, UNCACHED);
            }
            Ok((found, Opened { handle, backing: Some(backing) })) => {
                let Found { attributes, generation, .. } = found;
                let none = FopenFlags::empty();
                reply.created_passthrough(&self.0.cache(), &attributes, generation, handle, none, &backing);
            }
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.open(handle) {
            Ok(open) => {
                if owner.is_none() {
                    self.0.note_mapped(&open);
                }
                data::read(&open, offset, bytes, |read| match read {
                    Ok(bytes) => reply.data(bytes),
                    Err(errno) => reply.error(to_fuse(errno)),
                });
            }
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let open = match self.0.open(handle) {
            Ok(open) => open,
            Err(errno) => return reply.error(to_fuse(errno)),
        };
        let written = self.0.write(&open, offset, bytes, write_flags);
        let answer = move || match written {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(to_fuse(errno)),
        };
        let is_whole = written.is_ok_and(|written| written as usize == bytes.len());
        if is_whole || write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            self.0.notices().sizes.forget_failure(handle);
            answer();
        } else {
            self.0.notices().sizes.end_failed_write(handle, open, request.pid(), answer);
        }
    }

    fn flush(&self, _: &Request, number: INodeNo, handle: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        reply_empty(reply, self.0.flush(number, handle, owner));
    }

    fn release(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.0.release(number, handle);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.0.open(handle).and_then(|open| data::sync(&open, data_only)));
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.0.open_directory(number) {
            Ok(handle) => reply.opened(handle, FopenFlags::empty()),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut has_any = false;
        let listed = self.0.list(handle, offset, |_, entry| {
            let is_full = reply.add(INodeNo(entry.number), entry.next, attributes::kind(entry.kind), &entry.name);
            has_any |= !is_full;
            is_full
        });
        // The kernel may have begun with attributes and end without.
        match listed.and_then(|()| if has_any { Ok(()) } else { self.0.listing_fault(handle) }) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn readdirplus(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let mut has_any = false;
        let listed = self.0.list(handle, offset, |directory, entry| {
            let parent = INodeNo(directory.node().number());
            // These two are not looked up.
            let dot = |attributes| (attributes, directory.node().generation());
            let named = |found: Found| (found.attributes, found.generation);
            let is_dot = matches!(entry.name.as_bytes(), b"." | b"..");
            let found = match is_dot {
                true => self.0.attributes(parent).map(dot),
                false => self.0.find(parent, &entry.name).map(named),
            };
            let (found, generation) = match found {
                Ok(found) => found,
                // What went meanwhile is not listed.
                Err(Errno::NOENT | Errno::STALE) => return false,
                Err(errno) => {
                    directory.note_fault(errno);
                    return false;
                }
            };
            let is_full = reply.add(found.ino, entry.next, &entry.name, &self.0.cache(), &found, generation);
            has_any |= !is_full;
            if is_full && !is_dot {
                self.0.forget(found.ino, 1);
            }
            is_full
        });
        // What could be looked at is listed first, and a fault told at the end.
        match listed.and_then(|()| if has_any { Ok(()) } else { self.0.listing_fault(handle) }) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn releasedir(&self, _: &Request, number: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.release(number, handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        reply_empty(reply, self.0.open(handle).and_then(|open| data::sync(&open, data_only)));
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        match self.0.node(number).and_then(|node| rustix::fs::fstatvfs(&*node)) {
            Ok(found) => reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                u32::try_from(found.f_bsize).unwrap_or(4096),
                u32::try_from(found.f_namemax).unwrap_or(255),
                u32::try_from(found.f_frsize).unwrap_or(4096),
            ),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.0.set_extended(number, name, Some((value, flags)), (request.uid(), request.gid())));
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, |value| extended::get(&*self.0.node(number)?, name, value));
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, |names| extended::list(&*self.0.node(number)?, names));
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.0.set_extended(number, name, None, (request.uid(), request.gid())));
    }

    fn getlk(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        reply: ReplyLock,
    ) {
        match self.0.find_lock(number, Locker { owner, handle }, Asked { start, end, kind }) {
            Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
            Ok(Some((found, process))) => reply.locked(found.start, found.end, found.kind, process),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        _: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let waiting = waits.then(|| request.pid());
        self.0.lock(number, Locker { owner, handle }, Asked { start, end, kind }, waiting, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.0.allocate(handle, (offset, length), mode, drops_privileges(request)));
    }

    fn lseek(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.0.open(handle).and_then(|open| data::seek(&open, offset, whence)) {
            Ok(offset) => reply.offset(offset),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        bytes: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        match self.0.copy((from, from_offset), (to, to_offset), bytes, drops_privileges(request)) {
            Ok(copied) => reply.written(copied),
            Err(errno) => reply.error(to_fuse(errno)),
        }
    }
}

/// Every read and write comes here, so that nothing stands in the page cache that a redirected program changes; those of one file go on side by side.
const UNCACHED: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_kernel_lacks_is_named_with_the_version_that_has_it() {
        assert!(lacks(InitFlags::all()).is_empty());
        let of_6_6 = lacks(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        assert!(of_6_6.len() == 1 && of_6_6[0].contains("Linux 6.9"), "{of_6_6:?}");
        let older = lacks(InitFlags::FUSE_ASYNC_DIO);
        assert!(older.len() == 2 && older[0].contains("ENODEV") && older[0].contains("Linux 6.6"), "{older:?}");
    }
}
