//! How well the host kept the devices' time.

use stripewise_device::Nanos;

/// Lateness beyond which a run does not tell of the devices any more.
pub(super) const STALL: Nanos = Nanos(20_000_000);

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
