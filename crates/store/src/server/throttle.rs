//! What slows a server down on purpose, for experiments on machines whose servers are all alike.
//!
//! A throttled server takes one request after the other, each for a startup and for its bytes at a rate. A request is over then, or when the server
//! itself has answered, whichever is later. The queue is one word, the time at which the server is next free by `CLOCK_MONOTONIC`: in the memory of the
//! agent, or in a file that the agents of several hosts share. Such hosts have one clock, so they are namespaces of one machine.

use super::clock::{Clock, Monotonic, wait_in_background};
use super::{ObjectStore, Transfer};
use crate::shared::map::{self, SharedMap};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;
use stripewise_layout::ByteRate;

const QUEUE_BYTES: usize = 4096;
/// No queue is that long: a word further ahead is of an earlier boot, whose clock had run longer.
const MAX_AHEAD_NS: u64 = 3600 * 1_000_000_000;
/// Longest startup in a URL.
const MAX_STARTUP: Duration = Duration::from_secs(60);

/// What a throttled server takes for a request: `8ms+100MB/s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slowness {
    /// Of every request.
    pub startup: Duration,
    /// Of its bytes.
    pub rate: ByteRate,
}

impl FromStr for Slowness {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || format!("`{text}`: write what each request takes and at which rate, as in 8ms+100MB/s");
        let (startup, rate) = text.split_once('+').ok_or_else(refuse)?;
        let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
        let (number, unit) =
            units.iter().find_map(|(unit, s)| Some((startup.strip_suffix(unit)?, *s))).ok_or_else(refuse)?;
        let startup: f64 = number.parse().map_err(|_| refuse())?;
        let startup = Duration::try_from_secs_f64(startup * unit).map_err(|_| refuse())?;
        let rate: ByteRate = rate.parse().map_err(|_| refuse())?;
        (startup <= MAX_STARTUP && rate.0 > 0).then_some(Self { startup, rate }).ok_or_else(refuse)
    }
}

impl fmt::Display for Slowness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.startup.as_micros() {
            whole if whole.is_multiple_of(1000) => write!(f, "{}ms+{}", whole / 1000, self.rate),
            micros => write!(f, "{micros}us+{}", self.rate),
        }
    }
}

impl Slowness {
    fn service_ns(self, bytes: usize) -> u64 {
        let transfer_ns = bytes as u128 * 1_000_000_000 / u128::from(self.rate.0);
        u64::try_from(self.startup.as_nanos() + transfer_ns).unwrap_or(MAX_AHEAD_NS)
    }
}

/// What stands before a throttled server.
#[derive(Debug)]
pub struct Throttle {
    slowness: Slowness,
    queue: SharedMap,
}

impl Throttle {
    /// With the queue in the file of this path, which is made if need be; without one in memory of its own.
    ///
    /// # Errors
    /// The file, and why it cannot be used.
    pub fn open(slowness: Slowness, queue: Option<&str>) -> Result<Self, String> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = match queue {
            Some(path) => rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR),
            None => rustix::fs::memfd_create("stripewise-throttle", MemfdFlags::CLOEXEC),
        };
        let queue = file.and_then(|file| map::make(&file, QUEUE_BYTES, QUEUE_BYTES)).map_err(|errno| {
            format!("the queue of its throttle, {}, cannot be used: {errno}", queue.unwrap_or("in memory"))
        })?;
        Ok(Self { slowness, queue })
    }

    /// Takes a place in the queue for a request of so many bytes; returns when it is over, by `CLOCK_MONOTONIC` in ns.
    pub fn reserve(&self, bytes: usize) -> u64 {
        let (now, service_ns) = (Monotonic.now().0, self.slowness.service_ns(bytes));
        let word = self.queue.word(0);
        let mut found = word.load(Acquire);
        loop {
            let free = if found > now + MAX_AHEAD_NS { now } else { found.max(now) };
            match word.compare_exchange_weak(found, free + service_ns, AcqRel, Acquire) {
                Ok(_) => return free + service_ns,
                Err(other) => found = other,
            }
        }
    }

    /// [`ObjectStore::submit`] on a throttled server.
    pub fn submit(&self, store: &dyn ObjectStore, batch: &mut [Transfer<'_>], others: &mut dyn FnMut()) {
        let due = batch.iter().map(|transfer| self.reserve(transfer.memory.bytes())).max();
        store.submit(batch, others);
        if let Some(due) = due {
            wait_in_background(due);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_is_read_and_written() {
        let slow = Slowness { startup: Duration::from_millis(8), rate: ByteRate(100_000_000) };
        for text in ["8ms+100MB/s", "8000us+100MB/s", "0.008s+100MB/s"] {
            assert_eq!(text.parse(), Ok(slow), "{text}");
        }
        assert_eq!(slow.to_string().parse(), Ok(slow));
        for text in ["", "8ms", "+100MB/s", "8+100MB/s", "8ms+100", "8ms+0MB/s", "-1ms+1MB/s", "61s+1MB/s", "8h+1MB/s"]
        {
            let said = text.parse::<Slowness>().unwrap_err();
            assert!(said.contains(&format!("`{text}`")) && said.contains("8ms+100MB/s"), "{said}");
        }
    }

    #[test]
    fn requests_of_all_who_share_a_queue_are_served_one_after_the_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("queue");
        let slowness: Slowness = "2ms+1MB/s".parse().unwrap();
        let open = |path: Option<&str>| Throttle::open(slowness, path).unwrap();
        let (one, other) = (open(path.to_str()), open(path.to_str()));
        let begin = Monotonic.now().0;
        // Far ahead, so that the others find a queue however late this thread is.
        let first = one.reserve(20_000_000);
        assert!(first >= begin + 20_002_000_000, "2 ms, and 20 MB at 1 MB/s");
        let last = (0..100).fold(first, |before, number| {
            let due = if number % 2 == 0 { other.reserve(0) } else { one.reserve(0) };
            assert_eq!(due, before + 2_000_000);
            due
        });
        assert!(open(None).reserve(0) < last, "a queue of its own");
        one.queue.word(0).store(begin + 2 * MAX_AHEAD_NS, std::sync::atomic::Ordering::Release);
        assert!(other.reserve(0) < last, "what an earlier boot left is no queue");
        let missing = Throttle::open(slowness, Some("/nowhere/queue")).unwrap_err();
        assert!(missing.contains("/nowhere/queue"), "{missing}");
    }
}
