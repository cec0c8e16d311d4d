//! Refused connections in the log, so few that nobody can fill it.

use super::error::LinkError;
use crate::guard;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Lines at once.
const MAX_LINES: u32 = 10;
/// After this one more line is allowed.
const REFILL: Duration = Duration::from_secs(6);

struct State {
    lines: u32,
    refilled: Instant,
    suppressed: u64,
}

/// Refused connections in the log, and how many there were.
pub(super) struct Refusals {
    state: Mutex<State>,
    count: Arc<AtomicU64>,
}

impl Refusals {
    pub(super) fn new() -> Self {
        let state = State { lines: MAX_LINES, refilled: Instant::now(), suppressed: 0 };
        Self { state: Mutex::new(state), count: Arc::default() }
    }

    /// How many there were, which goes on counting.
    pub(super) fn count(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.count)
    }

    /// Notes a refused connection, or counts it for the next line.
    pub(super) fn note(&self, address: SocketAddr, why: &LinkError) {
        self.count.fetch_add(1, Relaxed);
        if let Some(suppressed) = self.admit(Instant::now()) {
            tracing::warn!(target: "stripewise::broker", %address, suppressed, "a connection was refused: {why}");
        }
    }

    /// How many lines were suppressed before this one; `None` if this one is too.
    fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = guard(&self.state);
        let refills = now.saturating_duration_since(state.refilled).as_nanos() / REFILL.as_nanos();
        let refills = u32::try_from(refills).unwrap_or(u32::MAX);
        state.lines = state.lines.saturating_add(refills).min(MAX_LINES);
        state.refilled += REFILL.saturating_mul(refills);
        if state.lines == 0 {
            state.suppressed += 1;
            return None;
        }
        state.lines -= 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_count_what_they_leave_out() {
        let refusals = Refusals::new();
        let start = Instant::now();
        let admitted: Vec<_> = (0..1000).filter_map(|_| refusals.admit(start)).collect();
        assert_eq!(admitted, [0; MAX_LINES as usize]);
        assert_eq!(refusals.admit(start + 2 * REFILL), Some(990));
        assert_eq!(refusals.admit(start + 2 * REFILL), Some(0));
        assert_eq!(refusals.admit(start + 2 * REFILL), None);
        let later = start + 1000 * REFILL;
        let admitted: Vec<_> = (0..100).filter_map(|_| refusals.admit(later)).collect();
        assert_eq!((admitted[0], admitted.len()), (1, MAX_LINES as usize));
    }
}
