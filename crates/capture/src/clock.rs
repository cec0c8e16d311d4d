//! The clock of trace records: the processor's time stamp counter where it runs evenly, the kernel's monotonic clock otherwise.
//!
//! Reading the counter costs a few nanoseconds, a tenth of the kernel's clock. It is used only where it neither changes its rate nor
//! stops (x86-64: the kernel lists `constant_tsc` and `nonstop_tsc`; aarch64: always). Which clock a process uses is decided once, at
//! the first reading; pairs of (ticks, monotonic nanoseconds) in the trace turn ticks into time.
#![allow(unsafe_code, reason = "the time stamp counter is read by instructions")]

use rustix::fs::{Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, Ordering};

/// A reading of the trace clock. Comparable within one machine and boot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Ticks(pub u64);

/// What one tick is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Clock {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    Monotonic = 1,
    /// The x86-64 time stamp counter.
    Tsc = 2,
    /// The aarch64 virtual counter.
    Cntvct = 3,
}

/// 0 until decided, then a [`Clock`].
static CHOSEN: AtomicU32 = AtomicU32::new(0);

impl Clock {
    /// The clock with that number in a trace header.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Monotonic),
            2 => Some(Self::Tsc),
            3 => Some(Self::Cntvct),
            _ => None,
        }
    }

    /// The clock of this process; decides it if nothing has been read yet.
    #[must_use]
    pub fn of_process() -> Self {
        match Self::from_code(CHOSEN.load(Ordering::Relaxed)) {
            Some(clock) => clock,
            None => decide(),
        }
    }

    /// Fixes the clock of this process to `CLOCK_MONOTONIC`; answers whether it is. False: another clock has been read already.
    pub fn use_monotonic() -> bool {
        let wish = Self::Monotonic as u32;
        match CHOSEN.compare_exchange(0, wish, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(other) => other == wish,
        }
    }
}

/// Reads the clock of this process. A few nanoseconds; no lock, no allocation; usable in signal handlers.
#[inline]
#[must_use]
pub fn now() -> Ticks {
    if CHOSEN.load(Ordering::Relaxed) == COUNTER as u32 {
        return counter();
    }
    now_otherwise()
}

#[cfg(target_arch = "x86_64")]
const COUNTER: Clock = Clock::Tsc;
#[cfg(target_arch = "aarch64")]
const COUNTER: Clock = Clock::Cntvct;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const COUNTER: Clock = Clock::Monotonic;

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> Ticks {
    // SAFETY: every x86-64 processor has the instruction, and it touches no memory.
    Ticks(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn counter() -> Ticks {
    let ticks: u64;
    // SAFETY: Linux lets user space read the virtual counter; the instruction touches no memory.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    Ticks(ticks)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn counter() -> Ticks {
    Ticks(monotonic_ns())
}

#[cold]
fn now_otherwise() -> Ticks {
    if Clock::of_process() == Clock::Monotonic { Ticks(monotonic_ns()) } else { counter() }
}

#[cold]
fn decide() -> Clock {
    let found = if counter_is_even() { COUNTER } else { Clock::Monotonic };
    match CHOSEN.compare_exchange(0, found as u32, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => found,
        Err(other) => Clock::from_code(other).unwrap_or(Clock::Monotonic),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn counter_is_even() -> bool {
    cfg!(target_arch = "aarch64")
}

/// The flags of the first processor stand within the first few thousand bytes.
#[cfg(target_arch = "x86_64")]
fn counter_is_even() -> bool {
    let Ok(file) = rustix::fs::open(c"/proc/cpuinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        return false;
    };
    let mut text = [0u8; 8192];
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..) {
        match rustix::io::read(&file, rest) {
            Ok(0) | Err(_) => break,
            Ok(count) => length += count,
        }
    }
    let text = text.get(..length).unwrap_or(&[]);
    has_flag(text, b"constant_tsc") && has_flag(text, b"nonstop_tsc")
}

#[cfg(target_arch = "x86_64")]
fn has_flag(cpuinfo: &[u8], flag: &[u8]) -> bool {
    let flags = cpuinfo.split(|byte| *byte == b'\n').find(|line| line.starts_with(b"flags"));
    flags.is_some_and(|line| line.split(|byte| *byte == b' ').any(|word| word == flag))
}

fn ns_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Nanoseconds of `CLOCK_MONOTONIC`.
#[must_use]
pub fn monotonic_ns() -> u64 {
    ns_of(ClockId::Monotonic)
}

/// Nanoseconds since 1970-01-01 UTC.
#[must_use]
pub fn wall_ns() -> u64 {
    ns_of(ClockId::Realtime)
}

/// One instant on both clocks: the ticks halfway between two readings around the kernel's clock.
#[must_use]
pub fn pair() -> (Ticks, u64) {
    // A reading that the scheduler interrupts is far off; the tightest of three is not.
    let mut best = (u64::MAX, Ticks(0), 0);
    for _ in 0..3 {
        let before = now();
        let ns = monotonic_ns();
        let width = now().0.wrapping_sub(before.0);
        if width < best.0 {
            best = (width, Ticks(before.0.wrapping_add(width / 2)), ns);
        }
    }
    if Clock::of_process() == Clock::Monotonic { (Ticks(best.2), best.2) } else { (best.1, best.2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_runs_forward_and_is_decided_once() {
        let clock = Clock::of_process();
        let (first, second) = (now(), now());
        assert!(second >= first);
        assert_eq!(clock, Clock::of_process());
        let (early, late) = (pair(), pair());
        assert!(late.0 >= early.0 && late.1 >= early.1);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn flags_are_whole_words_of_the_flags_line() {
        let text = b"model name\t: X nonstop_tsc\nflags\t\t: fpu constant_tsc rep_good\nbugs : nonstop_tsc\n";
        assert!(has_flag(text, b"constant_tsc") && has_flag(text, b"rep_good") && has_flag(text, b"fpu"));
        assert!(!has_flag(text, b"nonstop_tsc") && !has_flag(text, b"constant"));
    }
}
