//! Locks in shared memory that outlive their holder's death.
//!
//! One word: 0, or the holder's process slot + 1 (low 32 bits), 31 bits of its incarnation above, and on top a mark that someone
//! waits. Waiters sleep on the upper half as a futex and look every few milliseconds whether the holder still lives; a dead
//! one's lock is taken over by compare-and-swap. What the lock guards must be right after any prefix of the holder's work.

use super::process_slot::{Incarnation, ProcessSlot};
use super::processes::Processes;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(not(target_endian = "little"))]
compile_error!("the futex is the upper half of a little-endian word");

const AWAITED: u64 = 1 << 63;
const CHECK_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Holds the lock until dropped.
#[derive(Debug)]
#[must_use]
pub struct RobustGuard<'a> {
    word: &'a AtomicU64,
}

fn word_of(slot: ProcessSlot, incarnation: Incarnation) -> u64 {
    (incarnation.0 & 0x7fff_ffff) << 32 | (u64::from(slot.0) + 1)
}

fn upper_half(word: &AtomicU64) -> &AtomicU32 {
    // SAFETY: the upper half lies within the word and is aligned; the futex call only compares it.
    unsafe { &*std::ptr::from_ref(word).cast::<AtomicU32>().add(1) }
}

fn is_dead(held: u64, slot: ProcessSlot, incarnation: Incarnation, processes: &Processes) -> bool {
    let Some(holder) = (held as u32).checked_sub(1).and_then(|number| u16::try_from(number).ok()) else { return true };
    if held & !AWAITED == word_of(slot, incarnation) {
        // Another thread of this process; its own lock never shows to a process.
        return false;
    }
    let latest = processes.incarnation(ProcessSlot(holder));
    word_of(ProcessSlot(holder), latest) != held & !AWAITED || !processes.is_alive(ProcessSlot(holder), latest)
}

/// Waits until no living process holds `word`, and takes it. `slot` and `incarnation` are the caller's own.
pub fn lock<'a>(
    word: &'a AtomicU64,
    slot: ProcessSlot,
    incarnation: Incarnation,
    processes: &Processes,
) -> RobustGuard<'a> {
    let mut mine = word_of(slot, incarnation);
    loop {
        let held = match word.compare_exchange(0, mine, Acquire, Relaxed) {
            Ok(_) => return RobustGuard { word },
            Err(held) => held,
        };
        if held & AWAITED == 0 && word.compare_exchange(held, held | AWAITED, Relaxed, Relaxed).is_err() {
            continue;
        }
        // Whoever has waited takes the lock as awaited: others may wait still.
        mine |= AWAITED;
        let expected = ((held | AWAITED) >> 32) as u32;
        let woken = futex::wait(upper_half(word), futex::Flags::empty(), expected, Some(&CHECK_AFTER));
        if woken == Err(rustix::io::Errno::TIMEDOUT) {
            let held = word.load(Acquire);
            if held != 0
                && is_dead(held, slot, incarnation, processes)
                && word.compare_exchange(held, mine, AcqRel, Relaxed).is_ok()
            {
                return RobustGuard { word };
            }
        }
    }
}

impl Drop for RobustGuard<'_> {
    fn drop(&mut self) {
        if self.word.swap(0, Release) & AWAITED != 0 {
            let _ = futex::wake(upper_half(self.word), futex::Flags::empty(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    fn processes() -> (Processes, ProcessSlot, Incarnation) {
        let processes = Processes::build(tempfile::tempfile().unwrap().into()).unwrap();
        let (slot, incarnation) = processes.claim().unwrap();
        (processes, slot, incarnation)
    }

    struct Count(UnsafeCell<u64>);
    // SAFETY: reached under the lock only; the test would tear otherwise.
    unsafe impl Sync for Count {}

    #[test]
    fn threads_take_turns() {
        let (processes, slot, incarnation) = processes();
        let (word, count) = (AtomicU64::new(0), Count(UnsafeCell::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (word, count, processes) = (&word, &count, &processes);
                scope.spawn(move || {
                    for _ in 0..5_000 {
                        let _guard = lock(word, slot, incarnation, processes);
                        // SAFETY: the guard is held.
                        unsafe { *count.0.get() += 1 };
                    }
                });
            }
        });
        assert_eq!((count.0.into_inner(), word.into_inner() & !AWAITED), (20_000, 0));
    }

    #[test]
    fn a_dead_holders_lock_is_taken_over() {
        let (processes, slot, incarnation) = processes();
        for left in [
            word_of(ProcessSlot(slot.0 ^ 1), Incarnation(9)),
            word_of(slot, Incarnation(incarnation.0 + 1)) | AWAITED,
            0xdead_beef_0000_0000,
        ] {
            let word = AtomicU64::new(left);
            drop(lock(&word, slot, incarnation, &processes));
            assert_eq!(word.load(Relaxed), 0);
        }
    }
}
