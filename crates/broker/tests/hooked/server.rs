//! A server whose calls a test sees before they are made and after, and can have fail: the one wrapper of all tests.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use stripewise_broker::rmt::{Batch, Entries, MappingStore, RmtError};
use stripewise_broker::{WrapServer, WrapTable};
use stripewise_layout::{Direction, FileId, ObjectOffset};
use stripewise_store::client::OpenServer;
use stripewise_store::server::{
    Due, ObjectHandle, ObjectName, ObjectSize, Ownership, Predicted, ServerBackend, ServerError,
};

/// What a server is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    Probe,
    Create(ObjectName),
    Open(ObjectName),
    /// With the number of bytes asked for.
    Read(BorrowedFd<'a>, usize),
    Write(BorrowedFd<'a>, usize),
    Size(ObjectName),
    Cut(ObjectName),
    Sync(BorrowedFd<'a>),
    SyncNames(FileId),
    SetOwnership(ObjectName),
    Remove(ObjectName),
    RemoveFile(FileId),
    Describe(FileId),
    SyncDescription(FileId),
    Objects,
    FreeBytes,
}

/// What a test does with a server's calls.
pub trait Hook: Send + Sync {
    /// Before a call of the server with this name. An error is the call's; else the most bytes that a read or write moves.
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError>;

    /// After one that succeeded. An error is the call's all the same.
    fn after(&self, server: &str, call: Call<'_>) -> Result<(), ServerError> {
        let _ = (server, call);
        Ok(())
    }
}

impl<H: Hook + ?Sized> Hook for Arc<H> {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        H::before(self, server, call)
    }

    fn after(&self, server: &str, call: Call<'_>) -> Result<(), ServerError> {
        H::after(self, server, call)
    }
}

/// A server with a hook. Its handles do not count as plain ones, so that every access comes this way.
pub struct Hooked<H> {
    pub inner: Box<dyn ServerBackend>,
    pub hook: H,
}

impl<H: Hook> Hooked<H> {
    fn call<T>(
        &self,
        call: Call<'_>,
        act: impl FnOnce(&dyn ServerBackend, usize) -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        let most = self.hook.before(self.inner.name(), call)?;
        let done = act(self.inner.as_ref(), most)?;
        self.hook.after(self.inner.name(), call)?;
        Ok(done)
    }
}

impl<H: Hook> ServerBackend for Hooked<H> {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn probe(&self) -> Result<(), ServerError> {
        self.call(Call::Probe, |inner, _| inner.probe())
    }
    fn create(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.call(Call::Create(object), |inner, _| inner.create(object, ownership))
    }
    fn open(&self, object: ObjectName, writable: bool) -> Result<ObjectHandle, ServerError> {
        self.call(Call::Open(object), |inner, _| inner.open(object, writable))
    }
    fn reserve(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, length: u64) -> Due {
        self.inner.reserve(direction, object, offset, length)
    }
    fn predict(
        &self,
        direction: Direction,
        object: ObjectName,
        offset: ObjectOffset,
        length: u64,
    ) -> Option<Predicted> {
        self.inner.predict(direction, object, offset, length)
    }
    fn read_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize, ServerError> {
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        self.call(Call::Read(handle, bytes), |inner, most| {
            let mut left = most;
            let mut cut: Vec<IoSliceMut<'_>> = Vec::with_capacity(buffers.len());
            for buffer in buffers {
                let length = buffer.len().min(left);
                left -= length;
                cut.push(IoSliceMut::new(&mut buffer[..length]));
            }
            inner.read_at(handle, offset, &mut cut)
        })
    }
    fn write_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, ServerError> {
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        self.call(Call::Write(handle, bytes), |inner, most| {
            let mut left = most;
            let cut: Vec<IoSlice<'_>> = buffers
                .iter()
                .map(|buffer| {
                    let length = buffer.len().min(left);
                    left -= length;
                    IoSlice::new(&buffer[..length])
                })
                .collect();
            inner.write_at(handle, offset, &cut)
        })
    }
    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        self.call(Call::Size(object), |inner, _| inner.size(object))
    }
    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        self.call(Call::Cut(object), |inner, _| inner.truncate(object, length))
    }
    fn sync(&self, handle: BorrowedFd<'_>) -> Result<(), ServerError> {
        self.call(Call::Sync(handle), |inner, _| inner.sync(handle))
    }
    fn sync_names(&self, file: FileId) -> Result<(), ServerError> {
        self.call(Call::SyncNames(file), |inner, _| inner.sync_names(file))
    }
    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.call(Call::SetOwnership(object), |inner, _| inner.set_ownership(object, ownership))
    }
    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        self.call(Call::Remove(object), |inner, _| inner.remove(object))
    }
    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        self.call(Call::RemoveFile(file), |inner, _| inner.remove_file(file))
    }
    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        self.call(Call::Describe(file), |inner, _| inner.describe(file, head, lines))
    }
    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        self.call(Call::Describe(file), |inner, _| inner.describe_again(file, text))
    }
    fn sync_description(&self, file: FileId) -> Result<(), ServerError> {
        self.call(Call::SyncDescription(file), |inner, _| inner.sync_description(file))
    }
    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        self.call(Call::Objects, |inner, _| inner.descriptions())
    }
    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        self.call(Call::Objects, |inner, _| inner.objects())
    }
    fn free_bytes(&self) -> Result<u64, ServerError> {
        self.call(Call::FreeBytes, |inner, _| inner.free_bytes())
    }
}

/// For [`stripewise_broker::BrokerOptions::wrap_server`]: what `hook` says of each server's name.
pub fn wrap<H: Hook + 'static>(hook: impl Fn(&str) -> H + Send + Sync + 'static) -> WrapServer {
    Arc::new(move |inner| {
        let hook = hook(inner.name());
        Box::new(Hooked { inner, hook })
    })
}

/// A mapping table of which a test can have commits fail.
struct HookedTable<F> {
    inner: Box<dyn MappingStore>,
    before_commit: F,
}

impl<F: Fn() -> Result<(), Errno> + Send + Sync> MappingStore for HookedTable<F> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        self.inner.get(key)
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        (self.before_commit)().map_err(|errno| {
            let source = heed::Error::Io(std::io::Error::from_raw_os_error(errno.raw_os_error()));
            RmtError::Store { path: "the table of a test".into(), source }
        })?;
        self.inner.commit(batch)
    }

    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Entries, RmtError> {
        self.inner.scan(prefix, after, limit)
    }

    fn keep_copy(&self, name: &str) -> Result<(), RmtError> {
        self.inner.keep_copy(name)
    }

    fn watch(&self, prefix: &[u8]) -> Receiver<Vec<u8>> {
        self.inner.watch(prefix)
    }
}

/// For [`stripewise_broker::BrokerOptions::wrap_table`].
pub fn wrap_table(before_commit: impl Fn() -> Result<(), Errno> + Clone + Send + Sync + 'static) -> WrapTable {
    Arc::new(move |inner| Box::new(HookedTable { inner, before_commit: before_commit.clone() }))
}

/// By the directory that the servers' directories lie in: a client's servers are opened by a plain function.
static REGISTERED: Mutex<BTreeMap<PathBuf, Arc<dyn Hook>>> = Mutex::new(BTreeMap::new());

/// Puts this hook before all servers of the cluster in `root`, where a client opens them by [`OPEN_REGISTERED`].
pub fn register(root: &Path, hook: Arc<dyn Hook>) {
    REGISTERED.lock().unwrap().insert(root.to_owned(), hook);
}

pub const OPEN_REGISTERED: OpenServer = |cluster, number, name, url, stations| {
    let inner = stripewise_store::server::open(cluster, number, name, url, stations)?;
    let root = url.directory().parent().unwrap();
    let hook = Arc::clone(&REGISTERED.lock().unwrap()[root]);
    Ok(Box::new(Hooked { inner, hook }))
};

/// Fails one call, with EIO; and is full after so many bytes.
pub struct FailOnce {
    /// Counted down by all who share it; far below zero, that is above the middle, after the failure.
    pub calls_left: Arc<AtomicUsize>,
    pub bytes_left: Arc<AtomicUsize>,
}

impl Hook for FailOnce {
    fn before(&self, server: &str, call: Call<'_>) -> Result<usize, ServerError> {
        if self.calls_left.fetch_sub(1, Ordering::SeqCst) == 0 {
            let (server, action) = (server.to_owned(), "doing what a test forbids");
            return Err(ServerError::Os { server, action, source: Errno::IO });
        }
        match (call, self.bytes_left.load(Ordering::SeqCst)) {
            (Call::Write(..), 0) => Err(ServerError::NoSpace { server: server.to_owned() }),
            (Call::Write(_, bytes), left) => {
                self.bytes_left.store(left.saturating_sub(bytes), Ordering::SeqCst);
                Ok(left)
            }
            _ => Ok(usize::MAX),
        }
    }
}
