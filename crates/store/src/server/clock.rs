//! Where time comes from: the host's clock, or a test's.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::Cell;
use stripewise_device::Nanos;

/// A clock that can be slept by.
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
