//! Whether a file's small parts are worth logs: what they cost while it has none.
//!
//! Logs cost objects, records and shared memory of every file, and a look at every request. So a file begins without
//! them, and its first ones are made once its small parts have cost the disks more than logs cost. Where the page cache
//! serves a file's small requests, and of a file that is written by a few requests, that never happens.

use crate::client::now;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// No disk comes to a place, nor waits for half a revolution, in less: shorter times of real servers are those of the page cache, and say
/// nothing of the disk.
pub(super) const MIN_DISK_NS: u64 = 200_000;

/// What small parts have to cost before they are worth logs: about what the logs of a file on many disks cost to make, fill and remove.
const LOGS_COST_NS: u64 = 100_000_000;
/// The most that one request adds. One that took longer waited for a processor or for other requests.
const MAX_COST_NS: u64 = 10_000_000;
/// What a request without a disk's time takes off, so that the delays of a busy host do not add up.
const FAST_CREDIT_NS: u64 = 50_000;

/// Requests with small parts that `LOGS_COST_NS` takes at least: a file with fewer has no logs, however slow the disks are.
const _: () = assert!(LOGS_COST_NS / MAX_COST_NS >= 10);

/// What the small parts of one open file have cost its disks so far, by this process.
#[derive(Debug, Default)]
pub(super) struct Trial {
    cost_ns: AtomicU64,
}

impl Trial {
    /// Whether logs would have been worth their cost.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.cost_ns.load(Relaxed) >= LOGS_COST_NS
    }

    /// A request of `bytes` with small parts began at `begun` and is over.
    #[inline]
    pub(super) fn note(&self, bytes: u64, begun: Duration) {
        self.add(bytes, (now() - begun).as_nanos() as u64);
    }

    /// Of two threads at once one may lose its part.
    fn add(&self, bytes: u64, took_ns: u64) {
        let cost_ns = self.cost_ns.load(Relaxed);
        // A nanosecond for each byte is what memory takes at most.
        if took_ns < MIN_DISK_NS + bytes {
            if cost_ns > 0 {
                self.cost_ns.store(cost_ns.saturating_sub(FAST_CREDIT_NS), Relaxed);
            }
            return;
        }
        self.cost_ns.store(cost_ns.saturating_add(took_ns.min(MAX_COST_NS)), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests_until_over(took_ns: impl Fn(u64) -> u64) -> Option<u64> {
        let trial = Trial::default();
        (1..=100_000).find(|number| {
            trial.add(4096, took_ns(*number));
            trial.is_over()
        })
    }

    #[test]
    fn disks_that_seek_are_worth_logs_after_some_requests_and_memory_never_is() {
        assert_eq!(requests_until_over(|_| 8_000_000), Some(13));
        // Of ten requests one seeks.
        let mixed = requests_until_over(|number| if number % 10 == 0 { 8_000_000 } else { 2_000 });
        assert_eq!(mixed, Some(140));
        assert_eq!(requests_until_over(|_| 2_000), None);
        // Descheduled for 4 ms of every 4 ms that it had.
        assert_eq!(requests_until_over(|number| if number % 2_000 == 0 { 4_000_000 } else { 2_000 }), None);
    }

    #[test]
    fn a_few_requests_are_not_worth_logs_however_long_they_took() {
        assert_eq!(requests_until_over(|_| u64::MAX), Some(10));
        // A long request takes its time in memory.
        let trial = Trial::default();
        (0..100_000).for_each(|_| trial.add(8 << 20, 8_000_000));
        assert!(!trial.is_over());
    }
}
