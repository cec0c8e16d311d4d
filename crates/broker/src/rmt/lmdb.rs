//! The mapping table's embedded store: LMDB.
//!
//! Every commit is synced before it returns. LMDB keeps its table of readers in shared memory whose size is fixed by the first
//! process that opens it, and a reader that is killed keeps its place; so the size is generous and places of the dead are
//! cleared at opening. Its memory is allocated before LMDB maps it, which would leave it sparse.
//!
//! The map of the table starts small and grows, so that a process whose address space is limited can open it. LMDB maps a table again only while no
//! transaction is open: every transaction holds `growing` for reading.

use super::pages::{FILE, TABLE};
use super::{Audit, Batch, Entries, MappingStore, RmtError};
use heed::types::Bytes;
use heed::{CommitOrAbort, CompactionOption, Database, Env, EnvOpenOptions, WithoutTls};
use rustix::fd::BorrowedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock, mpsc};
use stripewise_store::entry::create_own_at;

/// A copy of it under way.
const COPY: &str = "data.mdb.new";
const DIRECTORY: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::RDONLY).union(OFlags::CLOEXEC);
/// Address space for the table, at least; about 400,000 regions.
const FIRST_MAP_BYTES: usize = 64 << 20;
const MAX_READERS: u32 = 1024;
/// What LMDB keeps in its lock file: 64 bytes for each reader, and a head of less than a page.
const LOCK_BYTES: u64 = MAX_READERS as u64 * 64 + 4096;
/// A write that comes up short is `EIO` to LMDB; with less room than this it was for want of space.
const LITTLE_BYTES: u64 = 1 << 20;

/// Prefix of the keys watched, and where they are told.
type Watcher = (Vec<u8>, mpsc::Sender<Vec<u8>>);

pub struct LmdbStore {
    path: PathBuf,
    env: Env<WithoutTls>,
    table: Database<'static, Bytes, Bytes>,
    /// Bytes of the map.
    growing: RwLock<usize>,
    watchers: Mutex<Vec<Watcher>>,
}

/// LMDB marks its lock file so, but not its data file: a program that this process starts would hold the table open for writing, at a
/// descriptor number that the program expects to be free.
fn close_on_exec(file: &Path) -> rustix::io::Result<()> {
    let table = rustix::fs::stat(file)?;
    let directory = rustix::fs::open("/proc/self/fd", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    for entry in rustix::fs::Dir::read_from(&directory)? {
        let Some(number) = entry?.file_name().to_str().ok().and_then(|name| name.parse().ok()) else { continue };
        // SAFETY: another thread may close it meanwhile; then the calls fail, or concern another descriptor, which the comparison passes over.
        let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
        if rustix::fs::fstat(descriptor).is_ok_and(|found| (found.st_dev, found.st_ino) == (table.st_dev, table.st_ino))
        {
            rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// Gives LMDB's lock file, which it maps, space for all that it may come to hold.
fn allocate_lock_file(directory: &Path) -> rustix::io::Result<()> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let file = rustix::fs::open(directory.join("lock.mdb"), flags, Mode::RUSR | Mode::WUSR)?;
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, LOCK_BYTES)) {
        // Where there is no such call, a file that was written has space. One that is there already may be in use, and has it.
        Err(Errno::OPNOTSUPP) if rustix::fs::fstat(&file)?.st_size == 0 => {
            let written = rustix::io::pwrite(&file, &[0; LOCK_BYTES as usize], 0)?;
            if written < LOCK_BYTES as usize { Err(Errno::NOSPC) } else { Ok(()) }
        }
        Err(Errno::OPNOTSUPP) => Ok(()),
        result => result,
    }
}

/// Whether so much address space is to be had now.
fn has_address_space(bytes: usize) -> bool {
    use rustix::mm::{MapFlags, ProtFlags};
    // SAFETY: a mapping at an address of the kernel's choice, which nothing touches, and which is given back at once.
    unsafe {
        match rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            bytes,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        ) {
            Ok(start) => rustix::mm::munmap(start, bytes).is_ok(),
            Err(_) => false,
        }
    }
}

fn fault_of(path: &Path, source: heed::Error) -> RmtError {
    let errno = match &source {
        heed::Error::Io(error) => Errno::from_io_error(error),
        _ => None,
    };
    let has_little =
        || rustix::fs::statvfs(path).is_ok_and(|status| status.f_bavail.saturating_mul(status.f_frsize) < LITTLE_BYTES);
    match errno {
        Some(Errno::NOSPC | Errno::DQUOT) => RmtError::Full { path: path.to_owned() },
        Some(Errno::IO) if has_little() => RmtError::Full { path: path.to_owned() },
        _ => RmtError::Store { path: path.to_owned(), source },
    }
}

impl LmdbStore {
    /// Whether there is a table in `directory`; an empty file is none.
    #[must_use]
    pub fn exists(directory: &Path) -> bool {
        directory.join(FILE).metadata().is_ok_and(|found| found.len() > 0)
    }

    /// Opens or makes the table in `directory`, which exists and which no other broker has open.
    pub fn open(directory: &Path) -> Result<Self, RmtError> {
        Self::open_with(directory, FIRST_MAP_BYTES)
    }

    /// As [`Self::open`], with a map of `least_bytes` where the table is not larger.
    fn open_with(directory: &Path, least_bytes: usize) -> Result<Self, RmtError> {
        let fault = |source| fault_of(directory, source);
        let os_fault = |errno: Errno| fault(heed::Error::Io(errno.into()));
        let data = directory.join(FILE);
        let file_bytes = rustix::fs::stat(&data).map_or(0, |found| found.st_size as usize);
        let map_bytes = least_bytes.max(file_bytes.saturating_mul(2).next_power_of_two());
        allocate_lock_file(directory).map_err(os_fault)?;
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map_bytes).max_readers(MAX_READERS).max_dbs(1);
        // SAFETY: the file belongs to the broker, one per state directory by its lock; nothing else writes or cuts it.
        let env = unsafe { options.open(directory) }.map_err(|source| match &source {
            heed::Error::Io(error) if error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()) => {
                RmtError::AddressSpace { path: directory.to_owned(), bytes: map_bytes }
            }
            _ => fault(source),
        })?;
        close_on_exec(&data).map_err(os_fault)?;
        env.clear_stale_readers().map_err(fault)?;
        let made = env.write_txn().and_then(|change| {
            env.create_databases_and_commit(change, |opener, change| {
                opener.create_database(change, Some(TABLE)).map(CommitOrAbort::<_, ()>::Commit)
            })
        });
        let table = made.map_err(fault)?.unwrap_commit();
        let growing = RwLock::new(map_bytes);
        Ok(Self { path: directory.to_owned(), env, table, growing, watchers: Mutex::default() })
    }

    /// Where the copy of this name stands: beside the table's directory.
    #[must_use]
    pub fn copy_path(directory: &Path, name: &str) -> PathBuf {
        let mut path = directory.as_os_str().to_owned();
        path.push(".");
        path.push(name);
        path.into()
    }

    fn fault(&self, source: heed::Error) -> RmtError {
        fault_of(&self.path, source)
    }

    /// Does something in a transaction of its own.
    fn within<T>(&self, transaction: impl FnOnce() -> heed::Result<T>) -> heed::Result<T> {
        let _growing = self.growing.read().unwrap_or_else(PoisonError::into_inner);
        transaction()
    }

    /// Maps the table again, with twice the room, unless another thread did since the map had `full_bytes`.
    fn grow(&self, full_bytes: usize) -> Result<(), RmtError> {
        let mut map_bytes = self.growing.write().unwrap_or_else(PoisonError::into_inner);
        if *map_bytes > full_bytes {
            return Ok(());
        }
        let bytes = map_bytes.saturating_mul(2);
        // Asked before, since LMDB gives up the old map first and could not go on without any.
        if !has_address_space(bytes) {
            return Err(RmtError::AddressSpace { path: self.path.clone(), bytes });
        }
        // SAFETY: every transaction holds the lock for reading, so none is open.
        unsafe { self.env.resize(bytes) }.map_err(|source| self.fault(source))?;
        *map_bytes = bytes;
        Ok(())
    }

    fn try_commit(&self, batch: &Batch) -> heed::Result<bool> {
        let mut change = self.env.write_txn()?;
        for (key, expected) in &batch.expected {
            if self.table.get(&change, key)? != expected.as_deref() {
                return Ok(false);
            }
        }
        for (key, value) in &batch.changes {
            match value {
                Some(value) => self.table.put(&mut change, key, value)?,
                None => {
                    self.table.delete(&mut change, key)?;
                }
            }
        }
        change.commit()?;
        Ok(true)
    }
}

impl MappingStore for LmdbStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        let read = || {
            let view = self.env.read_txn()?;
            Ok(self.table.get(&view, key)?.map(<[u8]>::to_vec))
        };
        self.within(read).map_err(|source| self.fault(source))
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        let applied = loop {
            let map_bytes = *self.growing.read().unwrap_or_else(PoisonError::into_inner);
            match self.within(|| self.try_commit(batch)) {
                Err(heed::Error::Mdb(heed::MdbError::MapFull)) => self.grow(map_bytes)?,
                result => break result.map_err(|source| self.fault(source))?,
            }
        };
        if applied {
            let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
            watchers.retain(|(prefix, watcher)| {
                batch
                    .changes
                    .iter()
                    .filter(|(key, _)| key.starts_with(prefix))
                    .all(|(key, _)| watcher.send(key.clone()).is_ok())
            });
        }
        Ok(applied)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        use std::ops::Bound;
        let start = match (after, prefix) {
            (Some(after), _) => Bound::Excluded(after),
            // LMDB knows no empty key.
            (None, []) => Bound::Unbounded,
            (None, prefix) => Bound::Included(prefix),
        };
        let read = || {
            let view = self.env.read_txn()?;
            let mut found = Vec::new();
            for entry in self.table.range(&view, &(start, Bound::Unbounded))? {
                let (key, value) = entry?;
                if !key.starts_with(prefix) || found.len() == limit {
                    break;
                }
                found.push((key.to_vec(), value.to_vec()));
            }
            Ok(found)
        };
        self.within(read).map_err(|source| self.fault(source))
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        let directory = Self::copy_path(&self.path, name);
        let copy = || -> heed::Result<()> {
            let fault = |errno: rustix::io::Errno| heed::Error::Io(errno.into());
            match rustix::fs::mkdir(&directory, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(fault(errno)),
            }
            let temporary = directory.join(COPY);
            let opened = rustix::fs::open(&directory, DIRECTORY, Mode::empty()).map_err(fault)?;
            let mut file = std::fs::File::from(create_own_at(&opened, COPY.as_ref()).map_err(fault)?);
            self.env.copy_to_file(&mut file, CompactionOption::Enabled)?;
            file.sync_all()?;
            let damages = Audit::of_file(&temporary).map_err(|error| heed::Error::Io(std::io::Error::other(error)))?;
            if let Some(damage) = damages.damages.first() {
                return Err(heed::Error::Io(std::io::Error::other(format!("the copy is damaged: {damage}"))));
            }
            std::fs::rename(&temporary, directory.join(FILE))?;
            for directory in [Some(directory.as_path()), directory.parent()].into_iter().flatten() {
                std::fs::File::open(directory)?.sync_all()?;
            }
            Ok(())
        };
        self.within(copy).map_err(|source| fault_of(&directory, source))
    }

    fn watch(&self, prefix: &[u8]) -> mpsc::Receiver<Vec<u8>> {
        let (sender, receiver) = mpsc::channel();
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.push((prefix.to_vec(), sender));
        receiver
    }
}

impl Drop for LmdbStore {
    fn drop(&mut self) {
        // The file is closed with the last clone of `env`; a successor in this process may open it right after.
        self.env.clone().prepare_for_closing();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_grows_beyond_its_map_while_others_read() {
        const MIN: usize = 256 << 10;
        let directory = tempfile::tempdir().unwrap();
        let store = LmdbStore::open_with(directory.path(), MIN).unwrap();
        let value = vec![7; 20_000];
        let key = |number: u32| [b"k", &number.to_be_bytes()[..]].concat();
        let put = |number| Batch { expected: Vec::new(), changes: vec![(key(number), Some(value.clone()))] };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while store.get(&key(99)).unwrap().is_none() {
                    assert!(store.scan(b"k", None, usize::MAX).unwrap().iter().all(|(_, found)| *found == value));
                }
            });
            (0..100).for_each(|number| assert!(store.commit(&put(number)).unwrap()));
            reader.join().unwrap();
        });
        assert!(*store.growing.read().unwrap() >= 8 * MIN);
        drop(store);
        let store = LmdbStore::open_with(directory.path(), MIN).unwrap();
        assert_eq!(store.scan(b"k", None, usize::MAX).unwrap().len(), 100);
        assert!(store.commit(&put(100)).unwrap());
    }
}
