//! Keeping emulated time on a host that is sometimes late: issue times, waiting, and the count of what went wrong.
//!
//! A thread sleeps to the absolute time at which its request is done; it never spins, since the threads that would move the
//! bytes need the processor. It wakes late by some tens of microseconds, and much more when processes outnumber processors. So its next
//! request counts as issued not when the call comes, but at the end that was scheduled for the last one plus the thread's own time
//! since it woke: lateness of the host does not become lateness of the device.

use super::stations::Stations;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::Cell;
use stripewise_device::Nanos;

/// Lateness beyond which a run does not tell of the devices any more.
pub(super) const STALL: Nanos = Nanos(20_000_000);

/// A thread that was away longer than this (a debugger, job control) starts afresh, or it would race through the time it lost.
const LONGEST_CARRY: Nanos = Nanos(1_000_000_000);

/// Which time emulated servers take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pace {
    /// That of the named device and link.
    Emulated,
    /// None but the host's own: for placing and checking data, where no time is measured.
    Host,
}

/// Where the time comes from: the host's clock, or a test's.
pub trait Clock {
    /// The present instant.
    fn now(&self) -> Nanos;
    /// Returns at `until` or later.
    fn sleep_until(&self, until: Nanos);
}

/// `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug)]
pub struct Monotonic;

impl Clock for Monotonic {
    fn now(&self) -> Nanos {
        let now = clock_gettime(ClockId::Monotonic);
        Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    fn sleep_until(&self, until: Nanos) {
        prepare_thread();
        let until = Timespec { tv_sec: (until.0 / 1_000_000_000) as i64, tv_nsec: (until.0 % 1_000_000_000) as i64 };
        // Signals interrupt the sleep, not the request.
        while rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &until)
            == Err(rustix::io::Errno::INTR)
        {}
    }
}

/// Sleeps until `due_ns`, for work that belongs to no program.
pub fn wait_in_background(due_ns: u64) {
    Monotonic.sleep_until(Nanos(due_ns));
}

/// Timers of a thread fire up to 50 us late to save power, unless its slack is set; only threads that wait here pay for precision.
fn prepare_thread() {
    thread_local!(static PREPARED: Cell<bool> = const { Cell::new(false) });
    if !PREPARED.replace(true) {
        // Refused by some sandboxes; the lateness then shows in the report.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    }
}

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

/// How well the host kept the devices' time between two resets of the counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostReport {
    /// Sub-requests that were waited for.
    pub waits: u64,
    /// Sum over all waits of wake-up after due time.
    pub late_sum: Nanos,
    /// The longest time from due time to wake-up.
    pub late_max: Nanos,
    /// Wake-ups more than 20 ms late.
    pub stalls: u64,
    /// Waits that began past their due time: moving the bytes took the host longer than the device would have.
    pub overruns: u64,
    /// Between the first issues of the earliest and the latest thread. Tells of the host only where all threads mean to start together.
    pub start_skew: Nanos,
    /// From the earliest first issue to the last due time.
    pub span: Nanos,
}

impl HostReport {
    /// Whether the run tells of the machine rather than of the emulated devices: a stall of more than 20 ms, or processes that started
    /// apart by more than 1 % of the run.
    #[must_use]
    pub fn is_host_bound(&self) -> bool {
        self.stalls > 0 || self.start_skew.0 > self.span.0 / 100
    }

    /// Mean time from due time to wake-up; 0 without waits.
    #[must_use]
    pub fn mean_late(&self) -> Nanos {
        Nanos(self.late_sum.0 / self.waits.max(1))
    }
}
