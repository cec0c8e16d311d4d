//! The time limit of a search.

use std::time::{Duration, Instant};

/// When to stop. Without a limit no clock is read, and the same input gives the same plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    end: Option<Instant>,
}

impl Budget {
    pub(crate) fn new(limit_s: Option<f64>) -> Self {
        let limit = limit_s.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        Self { end: limit.and_then(|limit| Instant::now().checked_add(limit)) }
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }
}
