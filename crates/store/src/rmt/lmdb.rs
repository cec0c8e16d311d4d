//! The mapping table's embedded store: LMDB.
//!
//! Every commit is synced before it returns. LMDB keeps its table of readers in shared memory whose size is fixed by the first
//! process that opens it, and a reader that is killed keeps its place; so the size is generous and places of the dead are
//! cleared at opening.

use super::{Audit, Batch, Entries, MappingStore, RmtError};
use heed::types::Bytes;
use heed::{CommitOrAbort, CompactionOption, Database, Env, EnvOpenOptions, WithoutTls};
use rustix::fd::BorrowedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::FdFlags;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, mpsc};

/// Address space kept for the table; its file grows only as it is filled. About 100 million regions.
const MAP_BYTES: usize = 16 << 30;
/// The table's file in its directory, and its name in that.
pub(super) const FILE: &str = "data.mdb";
pub(super) const TABLE: &str = "rmt";
const MAX_READERS: u32 = 1024;

/// Prefix of the keys watched, and where they are told.
type Watcher = (Vec<u8>, mpsc::Sender<Vec<u8>>);

pub struct LmdbStore {
    path: PathBuf,
    env: Env<WithoutTls>,
    table: Database<'static, Bytes, Bytes>,
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

impl LmdbStore {
    /// Whether there is a table in `directory`; an empty file is none.
    #[must_use]
    pub fn exists(directory: &Path) -> bool {
        directory.join(FILE).metadata().is_ok_and(|found| found.len() > 0)
    }

    /// Opens or makes the table in `directory`, which exists and which no other broker has open.
    pub fn open(directory: &Path) -> Result<Self, RmtError> {
        let fault = |source| RmtError::Store { path: directory.to_owned(), source };
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(MAP_BYTES).max_readers(MAX_READERS).max_dbs(1);
        // SAFETY: the file belongs to the broker, one per state directory by its lock; nothing else writes or cuts it.
        let env = unsafe { options.open(directory) }.map_err(fault)?;
        close_on_exec(&directory.join(FILE)).map_err(|errno| fault(heed::Error::Io(errno.into())))?;
        env.clear_stale_readers().map_err(fault)?;
        let made = env.write_txn().and_then(|change| {
            env.create_databases_and_commit(change, |opener, change| {
                opener.create_database(change, Some(TABLE)).map(CommitOrAbort::<_, ()>::Commit)
            })
        });
        let table = made.map_err(fault)?.unwrap_commit();
        Ok(Self { path: directory.to_owned(), env, table, watchers: Mutex::default() })
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
        RmtError::Store { path: self.path.clone(), source }
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
        read().map_err(|source| self.fault(source))
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        let applied = self.try_commit(batch).map_err(|source| self.fault(source))?;
        if applied {
            let mut watchers = self.watchers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
        read().map_err(|source| self.fault(source))
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        let directory = Self::copy_path(&self.path, name);
        let copy = || -> heed::Result<()> {
            let fault = |errno: rustix::io::Errno| heed::Error::Io(errno.into());
            match rustix::fs::mkdir(&directory, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(fault(errno)),
            }
            let temporary = directory.join("data.mdb.new");
            let mut file = std::fs::File::create(&temporary)?;
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
        copy().map_err(|source| RmtError::Store { path: directory.clone(), source })
    }

    fn watch(&self, prefix: &[u8]) -> mpsc::Receiver<Vec<u8>> {
        let (sender, receiver) = mpsc::channel();
        let mut watchers = self.watchers.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
