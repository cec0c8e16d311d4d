//! A server whose calls are waited for only so long: a mount that never answers holds up nobody but those who need it.
//!
//! Calls run on a few threads of the server's own. One that takes longer than its patience is given up by its caller and goes on by itself; until it
//! ends, the server counts as *not answering* and every further call fails at once. So at most [`MAX_THREADS`] threads wait for a server, and no other
//! call overtakes one that was given up.
//!
//! A server that answers at once ([`ObjectStore::answers_at_once`]) is asked by the caller's own thread: two changes of threads take longer than the call.
//!
//! What a call that was given up does later must harm nobody:
//! - a new object's name is never used again: made late it is an orphan, removed late it is gone as it should be;
//! - data that movers write late goes to objects that the move's end discards;
//! - a cut could take away what is written after it. As long as one may come, [`ObjectStore::is_changing`] says so, the file stays shut, and no
//!   other broker takes over;
//! - what is written to objects that programs use ([`How::in_place`]) is waited for without limit.
//!
//! A caller for whom others wait is more impatient ([`Deadline`]).

use super::deadline::Deadline;
use super::transfer::{How, LentTransfer, Memory, ObjectHandle, Then, Transfer};
use super::{Call, Capabilities, Decorator, DeviceTime, ObjectName, ObjectStore, Operation, Outcome, ServerError};
use std::any::Any;
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, FileId, ObjectOffset};

/// Calls of one server under way together; others wait for their turn.
const MAX_THREADS: usize = 16;
/// Calls of one batch under way together, so that other callers find a thread as well.
const MAX_OF_BATCH: usize = MAX_THREADS / 2;
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

type Open = Box<dyn Fn() -> Result<Box<dyn ObjectStore>, ServerError> + Send + Sync>;

/// The server itself, opened by the first call: opening may hang as well.
struct Backend {
    open: Open,
    opened: OnceLock<Box<dyn ObjectStore>>,
}

impl Backend {
    fn get(&self) -> Result<&dyn ObjectStore, ServerError> {
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
    /// Server `name`, which `open` opens at the first call. Calls that may change what programs use
    /// keep `hold` until they end, however long.
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

    /// The server itself, if nobody has to wait for it.
    fn at_once(&self) -> Option<&dyn ObjectStore> {
        self.backend.opened.get().map(AsRef::as_ref).filter(|server| server.answers_at_once())
    }

    /// Whether the server, at work on a call that may take long, answers another one. One whose threads are all at work is not asked.
    fn answers_a_short_question(&self) -> bool {
        let is_busy = {
            let state = self.calls.state();
            state.idle == 0 && state.threads >= MAX_THREADS
        };
        is_busy || !matches!(self.free_bytes(), Err(ServerError::NotAnswering { .. }))
    }

    fn no_thread(&self, error: &std::io::Error) -> ServerError {
        ServerError::Os {
            server: self.name.clone(),
            action: "starting a thread for it",
            source: rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::AGAIN),
        }
    }

    /// Hands a call to a thread.
    fn begin<T: Send + 'static>(
        &self,
        truncates: Option<FileId>,
        act: impl FnOnce(&dyn ObjectStore) -> Result<T, ServerError> + Send + 'static,
    ) -> Result<Begun<T>, ServerError> {
        self.check_answering()?;
        if Deadline::of_this_thread().is_some_and(|deadline| deadline.is_over()) {
            return Err(self.not_answering(Instant::now(), Duration::ZERO));
        }
        let ticket = Arc::new(Ticket { result: Mutex::new(None), done: Condvar::new() });
        let (at, backend, calls) = (Instant::now(), Arc::clone(&self.backend), Arc::clone(&self.calls));
        let (left, hold) = (Arc::clone(&ticket), truncates.map(|_| Arc::clone(&self.hold)));
        let job = |number| -> Job {
            Box::new(move || {
                let result = backend.get().and_then(act);
                // Before the result can be seen: who sees it may call at once, or end and make way for a successor.
                drop(hold);
                let mut state = calls.state();
                state.overdue.retain(|(overdue, ..)| *overdue != number);
                *left.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                drop(state);
                left.done.notify_all();
            })
        };
        let number = self.calls.submit(job).map_err(|error| self.no_thread(&error))?;
        Ok(Begun { number, at, ticket, truncates })
    }

    fn patience_for(&self, operation: &Operation<'_>) -> Duration {
        match operation {
            Operation::Sync(_)
            | Operation::SyncNames(_)
            | Operation::RemoveFile(_)
            | Operation::SyncDescription(_)
            | Operation::Descriptions
            | Operation::Objects => self.patience.bulk,
            Operation::InTurn(operations) => {
                let longest = operations.iter().map(|operation| self.patience_for(operation)).max();
                longest.unwrap_or(self.patience.call)
            }
            _ => self.patience.call,
        }
    }

    fn begin_operation(&self, operation: Operation<'_>) -> Result<Begun<Outcome>, ServerError> {
        let truncates = truncated_file(&operation);
        let kept = operation.into_kept().map_err(|source| ServerError::Os {
            server: self.name.clone(),
            action: "duplicating an object's descriptor",
            source,
        })?;
        self.begin(truncates, move |server| kept.run_on(server))
    }

    /// Waits for a call, and gives it up when it takes longer than `patience`.
    fn finish<T>(&self, begun: &Begun<T>, patience: Duration) -> Result<T, ServerError> {
        let Begun { number, at, ticket, truncates } = begun;
        let wanted = Deadline::of_this_thread().map_or(patience, |deadline| deadline.patience_since(*at));
        let patience = patience.min(wanted);
        let mut piece = if patience > self.patience.call { self.patience.call / 5 } else { patience };
        loop {
            let left = patience.saturating_sub(at.elapsed());
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
        state.waiting.retain(|(waiting, _)| waiting != number);
        if state.waiting.len() == queued {
            state.overdue.push((*number, Instant::now(), *truncates));
        }
        drop(state);
        Err(self.not_answering(*at, Duration::ZERO))
    }

    /// Transfers with memory of their own: a call that was given up must not meet the caller's.
    fn own(&self, batch: &[Transfer<'_>]) -> Result<Vec<Owned>, ServerError> {
        let own = |transfer: &Transfer<'_>| {
            let handle = transfer.handle.to_owned_handle().map_err(|source| ServerError::Os {
                server: self.name.clone(),
                action: "duplicating an object's descriptor",
                source,
            })?;
            let direction = transfer.memory.direction();
            let bytes = match direction {
                Direction::Read => vec![0; transfer.memory.bytes()],
                Direction::Write => {
                    transfer.memory.slices_to_take().iter().flat_map(|slice| slice.iter().copied()).collect()
                }
            };
            Ok(Owned { handle, direction, offset: transfer.offset, how: transfer.how, bytes })
        };
        batch.iter().map(own).collect()
    }

    /// Begins something on the server itself. One that was not opened yet is opened by a thread of its own, because that may take long; it keeps `hold`, since
    /// opening may shut out whoever follows.
    fn with_backend(&self, then: Then, begin: impl FnOnce(&dyn ObjectStore, Then) + Send + 'static) {
        if let Some(opened) = self.backend.opened.get() {
            return begin(&**opened, then);
        }
        // Both stay here where no thread can be had.
        let kept = Arc::new(Mutex::new(Some((then, begin))));
        let (backend, taken, hold) = (Arc::clone(&self.backend), Arc::clone(&kept), Arc::clone(&self.hold));
        let open = move || {
            let Some((then, begin)) = taken.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
            let opened = backend.get();
            // Before the result can be seen, as in `begin`.
            drop(hold);
            match opened {
                Ok(opened) => begin(opened, then),
                Err(error) => then(Err(error)),
            }
        };
        let spawned = std::thread::Builder::new().name("stripewise-opening".into()).stack_size(STACK_BYTES).spawn(open);
        if let Err(error) = spawned
            && let Some((then, _)) = kept.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            then(Err(self.no_thread(&error)));
        }
    }

    fn submit_in_place(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        match self.check_answering().and_then(|()| self.backend.get()) {
            Ok(backend) => backend.submit(batch, others),
            Err(error) => {
                fail_first(batch, error);
                others();
            }
        }
    }
}

/// The file that the call may cut.
fn truncated_file(operation: &Operation<'_>) -> Option<FileId> {
    match operation {
        Operation::Truncate(object, _) => Some(object.file),
        Operation::InTurn(operations) => operations.iter().find_map(truncated_file),
        _ => None,
    }
}

/// A call on its way.
struct Begun<T> {
    number: u64,
    at: Instant,
    ticket: Arc<Ticket<Result<T, ServerError>>>,
    truncates: Option<FileId>,
}

/// A transfer that borrows nothing.
struct Owned {
    handle: ObjectHandle,
    direction: Direction,
    offset: ObjectOffset,
    how: How,
    bytes: Vec<u8>,
}

/// Does these transfers and returns what became of each, with the bytes that were read.
fn transfer_all(server: &dyn ObjectStore, mut all: Vec<Owned>) -> Vec<(Result<usize, ServerError>, Vec<u8>)> {
    let mut results = Vec::with_capacity(all.len());
    {
        let mut vectors: Vec<_> = all
            .iter_mut()
            .map(|owned| (&owned.handle, owned.direction, owned.offset, owned.how, &mut owned.bytes))
            .map(|(handle, direction, offset, how, bytes)| {
                let vector = match direction {
                    Direction::Read => Vector::Fill([IoSliceMut::new(bytes)]),
                    Direction::Write => Vector::Take([IoSlice::new(bytes)]),
                };
                (handle, offset, how, vector)
            })
            .collect();
        let mut batch: Vec<Transfer<'_>> = vectors
            .iter_mut()
            .map(|(handle, offset, how, vector)| {
                let memory = match vector {
                    Vector::Fill(buffers) => Memory::to_fill(buffers),
                    Vector::Take(buffers) => Memory::to_take(buffers),
                };
                Transfer::new(handle.as_handle(), *offset, memory, *how)
            })
            .collect();
        server.submit(&mut batch, &mut || ());
        results.extend(batch.into_iter().map(|transfer| transfer.into_result(server.name())));
    }
    results.into_iter().zip(all.into_iter().map(|owned| owned.bytes)).collect()
}

enum Vector<'a> {
    Fill([IoSliceMut<'a>; 1]),
    Take([IoSlice<'a>; 1]),
}

/// Gives what was read to the caller's buffers.
fn scatter(bytes: &[u8], buffers: &mut [IoSliceMut<'_>]) {
    let mut rest = bytes;
    for buffer in buffers {
        let (filled, after) = rest.split_at(rest.len().min(buffer.len()));
        buffer[..filled.len()].copy_from_slice(filled);
        rest = after;
    }
}

/// The batch was not done, because of `error`, which its first transfer says.
fn fail_first(batch: &mut [Transfer<'_>], error: ServerError) {
    if let Some(first) = batch.first_mut() {
        first.completion = Some(Err(error));
    }
}

impl Drop for WatchedServer {
    fn drop(&mut self) {
        self.calls.state().closing = true;
        self.calls.changed.notify_all();
    }
}

impl Decorator for WatchedServer {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        self.backend.get()
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// The server itself may be asked past this one only where nobody would wait for ever.
    fn capabilities(&self) -> Capabilities {
        let known = self.backend.opened.get().map_or(Capabilities::UNKNOWN, |server| server.capabilities());
        Capabilities { plain_descriptors: false, overlaps: self.at_once().is_none(), ..known }
    }

    fn perform(&self, operation: Operation<'_>) -> Result<Outcome, ServerError> {
        if let Some(server) = self.at_once() {
            return operation.run_on(server);
        }
        let patience = self.patience_for(&operation);
        let begun = self.begin_operation(operation)?;
        self.finish(&begun, patience)
    }

    /// At most [`MAX_OF_BATCH`] at a time: the next begins when the oldest is over, and patience counts from its beginning.
    fn perform_batch(&self, batch: &mut [Call<'_>], others: &mut dyn FnMut()) {
        if let Some(server) = self.at_once() {
            return server.perform_batch(batch, others);
        }
        let begin =
            |call: &Call<'_>| (self.patience_for(&call.operation), self.begin_operation(call.operation.clone()));
        let mut under_way: VecDeque<_> = batch.iter().take(MAX_OF_BATCH).map(begin).collect();
        others();
        for number in 0..batch.len() {
            let Some((patience, begun)) = under_way.pop_front() else { break };
            batch[number].completion = Some(begun.and_then(|begun| self.finish(&begun, patience)));
            under_way.extend(batch.get(number + MAX_OF_BATCH).map(begin));
        }
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        if batch.iter().any(|transfer| transfer.how.in_place) {
            return self.submit_in_place(batch, others);
        }
        let begun = self.own(batch).and_then(|own| self.begin(None, move |server| Ok(transfer_all(server, own))));
        others();
        match begun.and_then(|begun| self.finish(&begun, self.patience.bulk)) {
            Ok(results) => {
                for (transfer, (result, bytes)) in batch.iter_mut().zip(results) {
                    if let Ok(count) = result {
                        scatter(&bytes[..count.min(bytes.len())], transfer.memory.slices_to_fill());
                    }
                    transfer.completion = Some(result);
                }
            }
            Err(error) => fail_first(batch, error),
        }
    }

    /// Of an object in use: waited for without limit, whatever other calls were given up.
    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        // SAFETY: the caller's promise.
        self.with_backend(then, move |backend, then| unsafe { backend.begin(transfer, then) });
    }

    /// As [`Self::begin`].
    fn begin_size(&self, object: ObjectName, then: Then) {
        self.with_backend(then, move |backend, then| backend.begin_size(object, then));
    }

    fn is_changing(&self, file: FileId) -> bool {
        self.calls.state().overdue.iter().any(|(.., truncates)| *truncates == Some(file))
    }

    /// Asked of a server that is open; opening one may hang.
    fn is_shut_out(&self) -> bool {
        self.backend.opened.get().is_some_and(|server| server.is_shut_out())
    }

    /// Asked of a server that is open; opening one may hang.
    fn device_time(&self) -> Option<&dyn DeviceTime> {
        self.backend.opened.get()?.device_time()
    }
}
