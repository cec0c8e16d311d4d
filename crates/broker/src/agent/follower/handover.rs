//! What programs ask of an agent without a master waits here until the next role of the agent takes them over.

use crate::guard;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a program that waits is looked at, whether it is gone.
const INTERVAL: Duration = Duration::from_millis(100);

/// Programs of a role that has lost its master.
pub(super) struct Handover {
    /// For how long a program waits.
    patience: Duration,
    has_begun: Mutex<bool>,
    begun: Condvar,
}

impl Handover {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, has_begun: Mutex::new(false), begun: Condvar::new() }
    }

    /// From here on nobody waits.
    pub(super) fn begin(&self) {
        *guard(&self.has_begun) = true;
        self.begun.notify_all();
    }

    /// Waits for that, or until the program is gone. False: it took longer than programs wait.
    pub(super) fn wait(&self, is_gone: impl Fn() -> bool) -> bool {
        let end = Instant::now() + self.patience;
        let mut has_begun = guard(&self.has_begun);
        while !*has_begun && !is_gone() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.begun.wait_timeout(has_begun, left.min(INTERVAL));
            has_begun = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    const EVER: Duration = Duration::from_secs(1 << 30);

    #[test]
    fn programs_wait_for_the_next_role_and_not_for_ever() {
        assert!(!Handover::new(Duration::from_millis(1)).wait(|| false), "nobody came");
        assert!(Handover::new(EVER).wait(|| true), "a program that is gone waits for nothing");
        let looks = AtomicUsize::new(0);
        assert!(Handover::new(EVER).wait(|| looks.fetch_add(1, SeqCst) == 2), "one that goes meanwhile is noticed");
        let handover = Handover::new(EVER);
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| handover.wait(|| false))).collect();
            handover.begin();
            assert!(waiting.into_iter().all(|program| program.join().unwrap()));
        });
        assert!(handover.wait(|| false), "and later ones go on at once");
    }
}
