//! Keeping emulated time on a host that is sometimes late: issue times and waiting.
//!
//! A thread sleeps to the absolute time at which its request is done; it never spins, since the threads that would move the
//! bytes need the processor. It wakes late by some tens of microseconds, and much more when processes outnumber processors. So its next
//! request counts as issued not when the call comes, but at the end that was scheduled for the last one plus the thread's own time
//! since it woke: lateness of the host does not become lateness of the device.

use super::clock::{Clock, Monotonic};
use super::stations::Stations;
use std::cell::Cell;
use stripewise_device::Nanos;

/// A thread that was away longer than this (a debugger, job control) starts afresh, or it would race through the time it lost.
const LONGEST_CARRY: Nanos = Nanos(1_000_000_000);

/// The emulated time of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pacer {
    /// How late the thread came back from its last request.
    late: Nanos,
    /// Reset of the counters that the thread has seen.
    epoch: u64,
}

impl Pacer {
    /// Of a thread that was never late.
    #[must_use]
    pub const fn new() -> Self {
        Self { late: Nanos(0), epoch: 0 }
    }

    /// When a request made now counts as issued.
    pub fn issue(&mut self, clock: &impl Clock, stations: &Stations) -> Nanos {
        let issue = clock.now().saturating_sub(self.late);
        let epoch = stations.epoch();
        if self.epoch != epoch {
            self.epoch = epoch;
            stations.count_first_issue(issue);
        }
        issue
    }

    /// Sleeps until `due`, the end of the last request, and notes how late the thread came back.
    pub fn wait(&mut self, clock: &impl Clock, stations: &Stations, due: Nanos) {
        let overrun = clock.now() > due;
        if !overrun {
            clock.sleep_until(due);
        }
        let late = clock.now().saturating_sub(due);
        self.late = if late > LONGEST_CARRY { Nanos(0) } else { late };
        stations.count_wait(due, late, overrun);
    }
}

/// Sleeps until `due_ns`, the latest of what [`super::DeviceTime::reserve`] returned for one request, and keeps the thread's
/// lateness for its next issue. Returns at once if the time is past.
pub fn wait(stations: &Stations, due_ns: u64) {
    with_thread(|pacer| pacer.wait(&Monotonic, stations, Nanos(due_ns)));
}

/// The calling thread's pacer. Kept by value, without a destructor, so that it works at any time of a thread's life.
pub(super) fn with_thread<R>(act: impl FnOnce(&mut Pacer) -> R) -> R {
    thread_local!(static PACER: Cell<Pacer> = const { Cell::new(Pacer::new()) });
    PACER.with(|cell| {
        let mut pacer = cell.get();
        let result = act(&mut pacer);
        cell.set(pacer);
        result
    })
}
