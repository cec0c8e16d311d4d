//! The threads that count, plan and simulate.
//!
//! Each call has a pool of its own, which ends with it. A child of `fork` has none of its parent's threads: in a pool that the process keeps it would wait
//! for them for ever.

use crate::failure::failed;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long Ctrl-C waits at most.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `call` on threads of its own while the interpreter's other threads go on. Ctrl-C ends the wait; the threads then go on to the end of `call`, which
/// nobody can stop in the middle, and its answer is dropped.
pub(crate) fn on_workers<T: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce() -> PyResult<T> + Send + 'static,
) -> PyResult<T> {
    let pool = rayon::ThreadPoolBuilder::new().build().map_err(failed)?;
    let (sender, receiver) = sync_channel(1);
    pool.spawn(move || {
        // Nobody receives it after Ctrl-C.
        let _ = sender.send(catch_unwind(AssertUnwindSafe(call)));
    });
    let receiver = Mutex::new(receiver);
    loop {
        let waited =
            py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNAL_INTERVAL));
        match waited {
            Ok(answer) => return answer.unwrap_or_else(|panic| resume_unwind(panic)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends before it drops the sender"),
        }
    }
}
