//! Operations under way that are waited for together.

use super::operation::Completion;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Operations that are waited for together.
pub(super) struct Waiting {
    state: Mutex<State>,
    over: Condvar,
}

struct State {
    left: usize,
    results: Vec<Option<Completion>>,
}

impl Waiting {
    pub(super) fn new(count: usize) -> Arc<Self> {
        let state = State { left: count, results: (0..count).map(|_| None).collect() };
        Arc::new(Self { state: Mutex::new(state), over: Condvar::new() })
    }

    /// What came of each, in their order. Call it when all are over.
    pub(super) fn take(&self) -> Vec<Completion> {
        std::mem::take(&mut self.state().results).into_iter().flatten().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, number: usize, result: Completion) {
        let mut state = self.state();
        state.results[number] = Some(result);
        state.left -= 1;
        if state.left == 0 {
            self.over.notify_all();
        }
    }
}

/// Waits when it is dropped.
pub(super) struct EndOf<'w>(pub(super) &'w Waiting);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        while state.left > 0 {
            state = self.0.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
