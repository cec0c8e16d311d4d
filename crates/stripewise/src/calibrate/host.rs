//! How busy this machine's processors are while servers are measured.
//!
//! The kernel sums the time in which some task waited for a processor (pressure stall information). Such waits are part
//! of every measured time, and small requests consist of little else on a busy machine.

use std::cell::OnceCell;
use std::time::Instant;

/// Above this share of the time, times of small requests say more of the machine than of the server.
const BUSY_ABOVE: f64 = 0.3;

/// The processors' load since a point in time; it is read at its first use.
pub(super) struct HostLoad {
    begin: Instant,
    stalled_us: Option<u64>,
    share: OnceCell<Option<f64>>,
}

impl HostLoad {
    pub(super) fn begin() -> Self {
        Self { begin: Instant::now(), stalled_us: stalled_us(), share: OnceCell::new() }
    }

    /// Share of the time since [`Self::begin`] in which some task waited; `None` on kernels that do not count it.
    pub(super) fn share(&self) -> Option<f64> {
        *self.share.get_or_init(|| {
            let stalled = stalled_us()?.saturating_sub(self.stalled_us?);
            Some((stalled as f64 * 1e-6 / self.begin.elapsed().as_secs_f64()).min(1.0))
        })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.share().is_some_and(|share| share > BUSY_ABOVE)
    }
}

fn stalled_us() -> Option<u64> {
    total_us(&std::fs::read_to_string("/proc/pressure/cpu").ok()?)
}

/// `total` of the line `some`, in microseconds.
fn total_us(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    line.split(' ').find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_sum_is_read() {
        let text = "some avg10=95.78 avg60=95.98 avg300=96.06 total=23518672652\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(total_us(text), Some(23_518_672_652));
        assert_eq!(total_us("full avg10=0.00 total=1\n"), None);
        assert!(HostLoad::begin().share().is_none_or(|share| (0.0..=1.0).contains(&share)));
    }
}
