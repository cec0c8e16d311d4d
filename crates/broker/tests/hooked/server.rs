//! A server whose calls a test sees before they are made and after, and can have fail: the one wrapper of all tests.

use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use stripewise_broker::rmt::{Batch, Entries, MappingStore, RmtError};
use stripewise_broker::{OpenByAgent, WrapServer, WrapTable};
use stripewise_layout::{Direction, FileId, ObjectOffset};
use stripewise_store::client::OpenServer;
use stripewise_store::server::memory::MemoryServer;
use stripewise_store::server::{
    Capabilities, Decorator, Handle, ObjectName, ObjectStore, Operation, Outcome, ServerError, Transfer,
};

/// What a server is asked for.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    Probe,
    Create(ObjectName),
    Open(ObjectName),
    /// With the number of bytes asked for.
    Read(Handle<'a>, usize),
    Write(Handle<'a>, usize),
    /// A write whose bytes are durable when it is over.
    WriteDurably(Handle<'a>, ObjectOffset, usize),
    Size(ObjectName),
    Cut(ObjectName),
    Sync(Handle<'a>),
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
    pub inner: Box<dyn ObjectStore>,
    pub hook: H,
}

impl<'a> Call<'a> {
    /// What a test may want to know of an operation; nothing of those that ask no more than what the store is.
    fn of(operation: &Operation<'a>) -> Self {
        match operation {
            Operation::Probe | Operation::FenceHost { .. } => Call::Probe,
            Operation::Standing | Operation::FreeBytes => Call::FreeBytes,
            Operation::Create { object, .. } => Call::Create(*object),
            Operation::Open(object, _) => Call::Open(*object),
            Operation::Size(object) => Call::Size(*object),
            Operation::Truncate(object, _) => Call::Cut(*object),
            Operation::Sync(handle) => Call::Sync(*handle),
            Operation::SyncNames(file) => Call::SyncNames(*file),
            Operation::SetOwnership(object, _) => Call::SetOwnership(*object),
            Operation::Remove(object) => Call::Remove(*object),
            Operation::RemoveFile(file) => Call::RemoveFile(*file),
            Operation::Describe { file, .. } | Operation::DescribeAgain { file, .. } => Call::Describe(*file),
            Operation::SyncDescription(file) => Call::SyncDescription(*file),
            Operation::Descriptions | Operation::Objects => Call::Objects,
            Operation::InTurn(_) => unreachable!("each of its calls is performed alone"),
        }
    }
}

/// The first `most` bytes of a transfer's memory, moved by the inner store.
fn move_at_most(inner: &dyn ObjectStore, transfer: &mut Transfer<'_>, most: usize) -> Result<usize, ServerError> {
    let (mut left, handle, offset, how) = (most, transfer.handle, transfer.offset, transfer.how);
    let mut take = |length: usize| {
        let taken = length.min(left);
        left -= taken;
        taken
    };
    match transfer.memory.direction() {
        Direction::Read => {
            let buffers = transfer.memory.slices_to_fill().iter_mut();
            let mut truncated: Vec<IoSliceMut<'_>> = buffers
                .map(|buffer| {
                    let length = take(buffer.len());
                    IoSliceMut::new(&mut buffer[..length])
                })
                .collect();
            inner.read_at(handle, offset, &mut truncated)
        }
        Direction::Write => {
            let buffers = transfer.memory.slices_to_take().iter();
            let truncated: Vec<IoSlice<'_>> =
                buffers.map(|buffer| IoSlice::new(&buffer[..take(buffer.len())])).collect();
            inner.write_at(handle, offset, &truncated, how)
        }
    }
}

impl<H: Hook> Hooked<H> {
    fn call<T>(
        &self,
        call: Call<'_>,
        act: impl FnOnce(&dyn ObjectStore, usize) -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        let most = self.hook.before(self.inner.name(), call)?;
        let done = act(self.inner.as_ref(), most)?;
        self.hook.after(self.inner.name(), call)?;
        Ok(done)
    }
}

impl<H: Hook> Decorator for Hooked<H> {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(self.inner.as_ref())
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { plain_descriptors: false, ..self.inner.capabilities() }
    }

    fn perform(&self, operation: Operation<'_>) -> Result<Outcome, ServerError> {
        if let Operation::InTurn(operations) = operation {
            let outcomes = operations.into_iter().map(|operation| self.perform(operation));
            return outcomes.collect::<Result<_, _>>().map(Outcome::InTurn);
        }
        // Asked as two questions, of which a test may fail either.
        if let Operation::Standing = operation {
            self.call(Call::Probe, |inner, _| inner.probe())?;
        }
        self.call(Call::of(&operation), |inner, _| operation.run_on(inner))
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        for transfer in batch {
            let (handle, bytes) = (transfer.handle, transfer.memory.bytes());
            let call = match transfer.memory.direction() {
                Direction::Read => Call::Read(handle, bytes),
                Direction::Write if transfer.how.durable => Call::WriteDurably(handle, transfer.offset, bytes),
                Direction::Write => Call::Write(handle, bytes),
            };
            transfer.completion = Some(self.call(call, |inner, most| move_at_most(inner, transfer, most)));
        }
        others();
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

/// The error of a table whose file system fails.
pub fn failing_table(errno: Errno) -> RmtError {
    let source = heed::Error::Io(std::io::Error::from_raw_os_error(errno.raw_os_error()));
    RmtError::Store { path: "the table of a test".into(), source }
}

impl<F: Fn() -> Result<(), RmtError> + Send + Sync> MappingStore for HookedTable<F> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RmtError> {
        self.inner.get(key)
    }

    fn commit(&self, batch: &Batch) -> Result<bool, RmtError> {
        (self.before_commit)()?;
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
pub fn wrap_table(before_commit: impl Fn() -> Result<(), RmtError> + Clone + Send + Sync + 'static) -> WrapTable {
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

/// By the same directory and the server's name.
static IN_MEMORY: Mutex<BTreeMap<(PathBuf, String), MemoryServer>> = Mutex::new(BTreeMap::new());

fn in_memory(root: &Path, name: &str) -> MemoryServer {
    let mut known = IN_MEMORY.lock().unwrap();
    known.entry((root.to_owned(), name.to_owned())).or_insert_with(|| MemoryServer::new(name)).clone()
}

/// A client's servers in memory, in the place of their directories; the broker's have to be [`wrap_in_memory`].
pub const OPEN_IN_MEMORY: OpenServer =
    |_, _, name, url, _| Ok(Box::new(in_memory(url.directory().parent().unwrap(), name)));

/// The broker's servers in memory whose I/O runs in the broker, of the cluster whose directories they would lie in.
pub const OPEN_BY_AGENT_IN_MEMORY: OpenByAgent =
    |_, name, url| Ok(Box::new(in_memory(url.directory().parent().unwrap(), name)));

/// For [`stripewise_broker::BrokerOptions::wrap_server`], of the cluster in `root`.
pub fn wrap_in_memory(root: &Path) -> WrapServer {
    let root = root.to_owned();
    Arc::new(move |inner| Box::new(in_memory(&root, inner.name())))
}

/// Called when a transfer or a call of a [`Held`] server begins; it ends when what this returns has returned.
pub type Hold = Arc<dyn Fn() -> Held + Send + Sync>;
/// What waits for the end.
pub type Held = Box<dyn FnOnce() + Send>;

/// A server that has all its transfers under way at once, and with those of other servers of its kind.
pub struct HeldServer {
    pub inner: Box<dyn ObjectStore>,
    pub hold: Hold,
    /// False: bytes stay where they are, for measurements of nothing but the waiting.
    pub moves_bytes: bool,
}

impl Decorator for HeldServer {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(self.inner.as_ref())
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { plain_descriptors: false, overlaps: true, ..self.inner.capabilities() }
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        let held: Vec<Held> = batch.iter().map(|_| (self.hold)()).collect();
        others();
        held.into_iter().for_each(|held| held());
        if self.moves_bytes {
            return self.inner.submit(batch, &mut || ());
        }
        for transfer in batch {
            transfer.completion = Some(Ok(transfer.memory.bytes()));
        }
    }
}

/// Holds each call until `count` of them have begun, and the next `count` until these have: calls made one after the other would never end.
#[derive(Clone, Default)]
pub struct AllIn(Arc<(Mutex<usize>, Condvar)>);

impl AllIn {
    /// How many have begun.
    pub fn begun(&self) -> usize {
        *self.0.0.lock().unwrap()
    }

    /// Counts one in and returns what waits for the others of its `count`.
    pub fn enter(&self, count: usize) -> Held {
        let shared = Arc::clone(&self.0);
        let mut begun = shared.0.lock().unwrap();
        *begun += 1;
        let awaited = begun.next_multiple_of(count);
        shared.1.notify_all();
        drop(begun);
        Box::new(move || {
            let begun = shared.0.lock().unwrap();
            let waited = shared.1.wait_timeout_while(begun, Duration::from_secs(60), |begun| *begun < awaited).unwrap();
            assert!(!waited.1.timed_out(), "a call waited for the others in vain");
        })
    }
}

/// By directory, as [`REGISTERED`].
static HELD: Mutex<BTreeMap<PathBuf, (Hold, bool)>> = Mutex::new(BTreeMap::new());

/// Makes clients' servers of the cluster in `root` [`HeldServer`]s, where they are opened by [`OPEN_HELD`].
pub fn hold(root: &Path, hold: Hold, moves_bytes: bool) {
    HELD.lock().unwrap().insert(root.to_owned(), (hold, moves_bytes));
}

pub const OPEN_HELD: OpenServer = |cluster, number, name, url, stations| {
    let inner = stripewise_store::server::open(cluster, number, name, url, stations)?;
    let (hold, moves_bytes) = HELD.lock().unwrap()[url.directory().parent().unwrap()].clone();
    Ok(Box::new(HeldServer { inner, hold, moves_bytes }))
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
