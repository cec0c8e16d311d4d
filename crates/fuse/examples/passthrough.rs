//! A plain pass-through by `fuser`, the floor of the mount's benchmarks: `passthrough DIRECTORY MOUNT_POINT THREADS` shows the files of one directory, reads and writes
//! them past the kernel's cache, and knows nothing of Stripewise. It ends with `umount`.

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::fs::{DirEntryExt, FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, UNIX_EPOCH};

const MAX_BYTES: u32 = 1 << 20;
const DIRECT: FopenFlags = FopenFlags::FOPEN_DIRECT_IO.union(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);

struct Passthrough {
    directory: PathBuf,
    paths: Mutex<HashMap<u64, PathBuf>>,
    files: RwLock<HashMap<u64, Arc<File>>>,
    last: AtomicU64,
}

fn attributes(number: u64, found: &Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: found.len(),
        blocks: found.blocks(),
        atime: UNIX_EPOCH,
        mtime: found.modified().unwrap_or(UNIX_EPOCH),
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if found.is_dir() { FileType::Directory } else { FileType::RegularFile },
        perm: (found.mode() & 0o7777) as u16,
        nlink: 1,
        uid: found.uid(),
        gid: found.gid(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Passthrough {
    fn path(&self, number: INodeNo) -> PathBuf {
        let known = self.paths.lock().unwrap().get(&number.0).cloned();
        known.unwrap_or_else(|| self.directory.clone())
    }

    fn file(&self, handle: FileHandle) -> Option<Arc<File>> {
        self.files.read().unwrap().get(&handle.0).cloned()
    }
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.set_max_write(MAX_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let path = self.path(parent).join(name);
        let Ok(found) = std::fs::metadata(&path) else { return reply.error(Errno::ENOENT) };
        self.paths.lock().unwrap().insert(found.ino(), path);
        reply.entry(&Duration::ZERO, &attributes(found.ino(), &found), Generation(0));
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match std::fs::metadata(self.path(number)) {
            Ok(found) => reply.attr(&Duration::ZERO, &attributes(number.0, &found)),
            Err(_) => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let Ok(file) = File::options().read(true).write(writes).open(self.path(number)) else {
            return reply.error(Errno::EACCES);
        };
        let handle = self.last.fetch_add(1, Ordering::Relaxed);
        self.files.write().unwrap().insert(handle, Arc::new(file));
        reply.opened(FileHandle(handle), DIRECT);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        thread_local! {
            static BUFFER: std::cell::RefCell<Vec<u8>> = std::cell::RefCell::new(vec![0; MAX_BYTES as usize]);
        }
        let Some(file) = self.file(handle) else { return reply.error(Errno::EBADF) };
        BUFFER.with_borrow_mut(|buffer| match file.read_at(&mut buffer[..bytes as usize], offset) {
            Ok(read) => reply.data(&buffer[..read]),
            Err(_) => reply.error(Errno::EIO),
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let Some(file) = self.file(handle) else { return reply.error(Errno::EBADF) };
        match file.write_at(bytes, offset) {
            Ok(written) => reply.written(written as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn readdir(&self, _: &Request, number: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let Ok(entries) = std::fs::read_dir(self.path(number)) else { return reply.error(Errno::EIO) };
        // In an order of its own, so that an offset means the same in every call.
        let mut entries: Vec<_> = entries.flatten().map(|entry| (entry.file_name(), entry.ino())).collect();
        entries.sort();
        for (place, (name, inode)) in entries.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(*inode), place as u64 + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.files.write().unwrap().remove(&handle.0);
        reply.ok();
    }
}

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ([directory, mount_point, _], Some(threads)) = (&words[..], words.last().and_then(|last| last.parse().ok()))
    else {
        return Err(std::io::Error::other("usage: passthrough DIRECTORY MOUNT_POINT THREADS"));
    };
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config.clone_fd = true;
    let (paths, files, last) = (Mutex::default(), RwLock::default(), AtomicU64::new(1));
    fuser::mount(Passthrough { directory: directory.into(), paths, files, last }, mount_point, &config)
}
