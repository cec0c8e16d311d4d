//! A server whose requests take a while at least: [`Throttle`] before any store, in the agent of the host.
//!
//! An operation that begins takes its place in the server's queue and goes to the store. Once that has answered, a thread of the server ends the operation at its time, so
//! that neither lanes nor librados wait meanwhile. Errors are reported at once.

use crate::{guard, threads};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use stripewise_store::server::clock::{Clock as _, Monotonic};
use stripewise_store::server::throttle::Throttle;
use stripewise_store::server::{Decorator, LentTransfer, ObjectName, ObjectStore, ServerError, Then, Transfer};

/// A store behind its throttle.
pub(crate) struct Throttled<S> {
    inner: S,
    throttle: Throttle,
    ends: Arc<Ends>,
}

/// What the store has done, and is not over yet.
#[derive(Default)]
struct Ends {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: BinaryHeap<Reverse<End>>,
    next: u64,
    is_closed: bool,
}

/// An operation that is over at `due`. `number` tells those of one time apart.
struct End {
    due: u64,
    number: u64,
    bytes: usize,
    then: Then,
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for End {}

impl PartialOrd for End {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for End {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl Ends {
    fn put(&self, due: u64, bytes: usize, then: Then) {
        let mut state = guard(&self.state);
        let number = state.next;
        state.next += 1;
        state.waiting.push(Reverse(End { due, number, bytes, then }));
        self.changed.notify_one();
    }

    /// The thread's life: it ends when the server is closed and nothing waits.
    fn work(&self) {
        let mut state = guard(&self.state);
        loop {
            let now = Monotonic.now().0;
            match state.waiting.peek().map(|Reverse(first)| first.due) {
                Some(due) if due <= now => {
                    let Some(Reverse(end)) = state.waiting.pop() else { continue };
                    drop(state);
                    (end.then)(Ok(end.bytes));
                    state = guard(&self.state);
                }
                Some(due) => {
                    let wait = self.changed.wait_timeout(state, Duration::from_nanos(due - now));
                    state = wait.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                }
                None if state.is_closed => return,
                None => state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner),
            }
        }
    }
}

impl<S: ObjectStore> Throttled<S> {
    /// # Errors
    /// [`ServerError::Unusable`] where no thread can be had.
    pub(crate) fn new(inner: S, throttle: Throttle) -> Result<Self, ServerError> {
        let ends = Arc::new(Ends::default());
        let working = Arc::clone(&ends);
        threads::spawn("stripewise-slow", move || working.work())
            .map_err(|error| ServerError::Unusable { server: inner.name().to_owned(), what: error.to_string() })?;
        Ok(Self { inner, throttle, ends })
    }
}

impl<S> Drop for Throttled<S> {
    fn drop(&mut self) {
        guard(&self.ends.state).is_closed = true;
        self.ends.changed.notify_one();
    }
}

impl<S: ObjectStore> Decorator for Throttled<S> {
    fn inner(&self) -> Result<&dyn ObjectStore, ServerError> {
        Ok(&self.inner)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn submit(&self, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        self.throttle.submit(&self.inner, batch, others);
    }

    unsafe fn begin(&self, transfer: LentTransfer, then: Then) {
        let (due, ends) = (self.throttle.reserve(transfer.length), Arc::clone(&self.ends));
        let at_its_time = Box::new(move |result| match result {
            Ok(bytes) => ends.put(due, bytes, then),
            Err(error) => then(Err(error)),
        });
        // SAFETY: the memory is lent until `then` is called, which is later.
        unsafe { self.inner.begin(transfer, at_its_time) };
    }

    fn begin_size(&self, object: ObjectName, then: Then) {
        self.inner.begin_size(object, then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use stripewise_layout::{Direction, FileId, Generation, ObjectOffset, RegionIndex};
    use stripewise_store::server::Ownership;
    use stripewise_store::server::memory::MemoryServer;

    const STARTUP_NS: u64 = 20_000_000;

    fn object(number: u32) -> ObjectName {
        ObjectName { file: FileId(1), region: RegionIndex(number), generation: Generation(1) }
    }

    /// A server with object 0, and what it is throttled to.
    fn server() -> Throttled<MemoryServer> {
        let inner = MemoryServer::new("s");
        inner.create(object(0), Ownership { mode: 0o600, uid: 0, gid: 0 }).unwrap();
        Throttled::new(inner, Throttle::open("20ms+1GB/s".parse().unwrap(), None).unwrap()).unwrap()
    }

    /// Begins a write; the result comes with the time at which it was reported.
    fn begin(server: &Throttled<MemoryServer>, of: u32, data: &'static mut [u8]) -> mpsc::Receiver<(bool, u64)> {
        let (sender, receiver) = mpsc::channel();
        let then = Box::new(move |result: Result<usize, ServerError>| {
            sender.send((result.is_ok(), Monotonic.now().0)).unwrap();
        });
        let (object, start, length) = (object(of), data.as_mut_ptr(), data.len());
        let transfer = LentTransfer { object, offset: ObjectOffset(0), start, length, direction: Direction::Write };
        // SAFETY: the memory is never freed, and nobody else has it.
        unsafe { ObjectStore::begin(server, transfer, then) };
        receiver
    }

    fn memory() -> &'static mut [u8] {
        Box::leak(vec![7; 1000].into_boxed_slice())
    }

    #[test]
    fn operations_begin_together_and_end_one_startup_after_the_other() {
        let server = server();
        let begun = Monotonic.now().0;
        let all: Vec<_> = (0..4).map(|_| begin(&server, 0, memory())).collect();
        for (number, one) in (1..).zip(all) {
            let (is_done, at) = one.recv().unwrap();
            assert!(is_done && at >= begun + number * STARTUP_NS, "number {number} after {} ns", at - begun);
        }
        assert_eq!(server.size(object(0)).unwrap().end_bytes, 1000);
    }

    #[test]
    fn an_error_is_reported_at_once_and_what_waits_ends_after_the_server_was_closed() {
        let server = server();
        let begun = Monotonic.now().0;
        let waiting = begin(&server, 0, memory());
        assert!(!begin(&server, 1, memory()).try_recv().unwrap().0, "there is no object 1");
        drop(server);
        let (is_done, at) = waiting.recv().unwrap();
        assert!(is_done && at >= begun + STARTUP_NS);
    }
}
