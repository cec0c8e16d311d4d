//! A server whose calls are waited for only so long: a mount that never answers holds up nobody but those who need it.
//!
//! Calls run on a few threads of the server's own. One that takes longer than its patience is given up by its caller and goes on by itself; until it
//! ends, the server counts as *not answering* and every further call fails at once. So at most [`MAX_THREADS`] threads wait for a server, and no other
//! call overtakes one that was given up.
//!
//! What a call that was given up does later must harm nobody:
//! - a new object's name is never used again: made late it is an orphan, removed late it is gone as it should be;
//! - data that movers write late goes to objects that the move's end discards;
//! - a cut could take away what is written after it. As long as one may come, [`ServerBackend::is_changing`] says so, the file stays shut, and no
//!   other broker takes over;
//! - what is written to objects that programs use ([`ServerBackend::write_in_place`]) is waited for without limit.

use super::{Due, ObjectHandle, ObjectName, ObjectSize, Ownership, Predicted, ServerBackend, ServerError, Standing};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::any::Any;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, FileId, ObjectOffset};

/// Calls of one server under way together; others wait for their turn.
const MAX_THREADS: usize = 16;
/// For one call of a server each.
const STACK_BYTES: usize = 512 << 10;
/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// How long calls are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// Those that look at or change one name.
    pub call: Duration,
    /// Those that move data or go through many names, which a slow server may be at for long. As long as it answers others.
    pub bulk: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { call: Duration::from_secs(5), bulk: Duration::from_secs(60) }
    }
}

type Open = Box<dyn Fn() -> Result<Box<dyn ServerBackend>, ServerError> + Send + Sync>;

/// The server itself, opened by the first call: opening may hang as well.
struct Backend {
    open: Open,
    opened: OnceLock<Box<dyn ServerBackend>>,
}

impl Backend {
    fn get(&self) -> Result<&dyn ServerBackend, ServerError> {
        if let Some(opened) = self.opened.get() {
            return Ok(&**opened);
        }
        let opened = (self.open)()?;
        Ok(&**self.opened.get_or_init(|| opened))
    }
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(u64, Job)>,
    next: u64,
    threads: usize,
    idle: usize,
    /// Calls that go on though they were given up, since when, and the file that they may yet cut.
    overdue: Vec<(u64, Instant, Option<FileId>)>,
    closing: bool,
}

#[derive(Default)]
struct Calls {
    state: Mutex<State>,
    changed: Condvar,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A thread's life.
    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some((_, job)) = state.waiting.pop_front() {
                drop(state);
                job();
                state = self.state();
                continue;
            }
            if state.closing {
                break;
            }
            state.idle += 1;
            let (woken, waited) = self.changed.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if waited.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Queues a job and sees to it that a thread takes it.
    fn submit(self: &Arc<Self>, job: impl FnOnce(u64) -> Job) -> std::io::Result<u64> {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        if state.idle <= state.waiting.len() && state.threads < MAX_THREADS {
            let working = Arc::clone(self);
            let spawned = std::thread::Builder::new()
                .name("stripewise-server".into())
                .stack_size(STACK_BYTES)
                .spawn(move || working.work());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        state.waiting.push_back((number, job(number)));
        drop(state);
        self.changed.notify_one();
        Ok(number)
    }
}

/// Where a call's result is left; `None` until then.
struct Ticket<T> {
    result: Mutex<Option<T>>,
    done: Condvar,
}

/// See the module.
pub struct WatchedServer {
    name: String,
    patience: Patience,
    backend: Arc<Backend>,
    calls: Arc<Calls>,
    /// Kept by calls that may change what programs use, until they end: the broker's lock.
    hold: Arc<dyn Any + Send + Sync>,
}

impl WatchedServer {
    pub fn new(name: &str, patience: Patience, hold: Arc<dyn Any + Send + Sync>, open: Open) -> Self {
        let backend = Arc::new(Backend { open, opened: OnceLock::new() });
        Self { name: name.to_owned(), patience, backend, calls: Arc::default(), hold }
    }

    fn not_answering(&self, since: Instant, patience: Duration) -> ServerError {
        let waited_s = (since.elapsed() + patience).as_secs();
        ServerError::NotAnswering { server: self.name.clone(), waited_s }
    }

    /// An error while a call that was given up goes on.
    fn check_answering(&self) -> Result<(), ServerError> {
        match self.calls.state().overdue.first() {
            Some((_, since, _)) => Err(self.not_answering(*since, self.patience.call)),
            None => Ok(()),
        }
    }

    /// Whether the server, at work on a call that may take long, answers another one. One whose threads are all at work is not asked.
    fn answers_a_short_question(&self) -> bool {
        let is_busy = {
            let state = self.calls.state();
            state.idle == 0 && state.threads >= MAX_THREADS
        };
        is_busy || !matches!(self.quick(|server| server.free_bytes()), Err(ServerError::NotAnswering { .. }))
    }

    fn call<T: Send + 'static>(
        &self,
        patience: Duration,
        cuts: Option<FileId>,
        act: impl FnOnce(&dyn ServerBackend) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        self.check_answering()?;
        let ticket = Arc::new(Ticket { result: Mutex::new(None), done: Condvar::new() });
        let (begun, backend, calls) = (Instant::now(), Arc::clone(&self.backend), Arc::clone(&self.calls));
        let (left, hold) = (Arc::clone(&ticket), cuts.map(|_| Arc::clone(&self.hold)));
        let job = |number| -> Job {
            Box::new(move || {
                let result = backend.get().and_then(act);
                // Before the result can be seen: who sees it may call at once.
                let mut state = calls.state();
                state.overdue.retain(|(overdue, ..)| *overdue != number);
                *left.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                drop(state);
                left.done.notify_all();
                drop(hold);
            })
        };
        let number = self.calls.submit(job).map_err(|error| ServerError::Os {
            server: self.name.clone(),
            action: "starting a thread for it",
            source: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
        })?;
        let mut piece = if patience > self.patience.call { self.patience.call / 5 } else { patience };
        loop {
            let left = patience.saturating_sub(begun.elapsed());
            let result = ticket.result.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = ticket.done.wait_timeout_while(result, piece.min(left), |result| result.is_none());
            if let Some(result) = waited.unwrap_or_else(PoisonError::into_inner).0.take() {
                return result;
            }
            if piece >= left || !self.answers_a_short_question() {
                break;
            }
            piece = self.patience.call;
        }
        let mut state = self.calls.state();
        // With the state locked no result is left: it is there, or comes when the call counts as overdue.
        if let Some(result) = ticket.result.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return result;
        }
        let queued = state.waiting.len();
        state.waiting.retain(|(waiting, _)| *waiting != number);
        if state.waiting.len() == queued {
            state.overdue.push((number, Instant::now(), cuts));
        }
        drop(state);
        Err(self.not_answering(begun, Duration::ZERO))
    }

    fn quick<T: Send + 'static>(
        &self,
        act: impl FnOnce(&dyn ServerBackend) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        self.call(self.patience.call, None, act)
    }

    fn bulk<T: Send + 'static>(
        &self,
        act: impl FnOnce(&dyn ServerBackend) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<T, ServerError> {
        self.call(self.patience.bulk, None, act)
    }

    /// A descriptor that outlives the caller's.
    fn own(&self, handle: BorrowedFd<'_>) -> Result<OwnedFd, ServerError> {
        let server = || self.name.clone();
        rustix::io::fcntl_dupfd_cloexec(handle, 0).map_err(|source| ServerError::Os {
            server: server(),
            action: "duplicating an object's descriptor",
            source,
        })
    }
}

impl Drop for WatchedServer {
    fn drop(&mut self) {
        self.calls.state().closing = true;
        self.calls.changed.notify_all();
    }
}

impl ServerBackend for WatchedServer {
    fn name(&self) -> &str {
        &self.name
    }

    fn probe(&self) -> Result<(), ServerError> {
        self.quick(|server| server.probe())
    }

    fn standing(&self) -> Result<Standing, ServerError> {
        self.quick(|server| server.standing())
    }

    fn create(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.quick(move |server| server.create(object, ownership))
    }

    fn open(&self, object: ObjectName, writable: bool) -> Result<ObjectHandle, ServerError> {
        self.quick(move |server| server.open(object, writable))
    }

    fn reserve(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, length: u64) -> Due {
        self.backend.opened.get().and_then(|server| server.reserve(direction, object, offset, length))
    }

    fn predict(&self, direction: Direction, object: ObjectName, offset: ObjectOffset, bytes: u64) -> Option<Predicted> {
        self.backend.opened.get().and_then(|server| server.predict(direction, object, offset, bytes))
    }

    fn read_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Result<usize, ServerError> {
        use rustix::fd::AsFd;
        let (handle, length) = (self.own(handle)?, buffers.iter().map(|buffer| buffer.len()).sum());
        let bytes = self.bulk(move |server| {
            let mut bytes = vec![0; length];
            let read = server.read_at(handle.as_fd(), offset, &mut [IoSliceMut::new(&mut bytes)])?;
            bytes.truncate(read);
            Ok(bytes)
        })?;
        let mut rest = bytes.as_slice();
        for buffer in buffers {
            let (filled, after) = rest.split_at(rest.len().min(buffer.len()));
            buffer[..filled.len()].copy_from_slice(filled);
            rest = after;
        }
        Ok(bytes.len())
    }

    fn write_at(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, ServerError> {
        use rustix::fd::AsFd;
        let (handle, bytes) = (self.own(handle)?, buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect());
        let bytes: Vec<u8> = bytes;
        self.bulk(move |server| server.write_at(handle.as_fd(), offset, &[IoSlice::new(&bytes)]))
    }

    fn write_in_place(
        &self,
        handle: BorrowedFd<'_>,
        offset: ObjectOffset,
        buffers: &[IoSlice<'_>],
    ) -> Result<usize, ServerError> {
        self.check_answering()?;
        self.backend.get()?.write_at(handle, offset, buffers)
    }

    fn has_plain_handles(&self) -> bool {
        self.backend.opened.get().is_some_and(|server| server.has_plain_handles())
    }

    fn size(&self, object: ObjectName) -> Result<ObjectSize, ServerError> {
        self.quick(move |server| server.size(object))
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), ServerError> {
        self.call(self.patience.call, Some(object.file), move |server| server.truncate(object, length))
    }

    fn sync(&self, handle: BorrowedFd<'_>) -> Result<(), ServerError> {
        use rustix::fd::AsFd;
        let handle = self.own(handle)?;
        self.bulk(move |server| server.sync(handle.as_fd()))
    }

    fn sync_names(&self, file: FileId) -> Result<(), ServerError> {
        self.bulk(move |server| server.sync_names(file))
    }

    fn set_ownership(&self, object: ObjectName, ownership: Ownership) -> Result<(), ServerError> {
        self.quick(move |server| server.set_ownership(object, ownership))
    }

    fn remove(&self, object: ObjectName) -> Result<(), ServerError> {
        self.quick(move |server| server.remove(object))
    }

    fn remove_file(&self, file: FileId) -> Result<(), ServerError> {
        self.bulk(move |server| server.remove_file(file))
    }

    fn describe(&self, file: FileId, head: &str, lines: &str) -> Result<u64, ServerError> {
        let (head, lines) = (head.to_owned(), lines.to_owned());
        self.quick(move |server| server.describe(file, &head, &lines))
    }

    fn describe_again(&self, file: FileId, text: &str) -> Result<(), ServerError> {
        let text = text.to_owned();
        self.quick(move |server| server.describe_again(file, &text))
    }

    fn sync_description(&self, file: FileId) -> Result<(), ServerError> {
        self.bulk(move |server| server.sync_description(file))
    }

    fn descriptions(&self) -> Result<Vec<(FileId, String)>, ServerError> {
        self.bulk(|server| server.descriptions())
    }

    fn objects(&self) -> Result<Vec<ObjectName>, ServerError> {
        self.bulk(|server| server.objects())
    }

    fn free_bytes(&self) -> Result<u64, ServerError> {
        self.quick(|server| server.free_bytes())
    }

    fn is_changing(&self, file: FileId) -> bool {
        self.calls.state().overdue.iter().any(|(.., cuts)| *cuts == Some(file))
    }
}
