//! A lock that survives `fork`: its owner may take it before and free it on both sides after.
//!
//! The standard library's locks cannot be freed by another guard than the one that took them, and must not be in a child. This one is a futex of three
//! states (free, taken, taken with waiters). It guards control operations only; no read or write of a file takes it.
//!
//! While a guard lives the thread takes no signals ([`crate::signals`]).

use crate::signals::NoSignals;
use rustix::thread::futex;
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const AWAITED: u32 = 2;

#[derive(Debug)]
pub(crate) struct Lock<T> {
    state: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one guard at a time.
unsafe impl<T: Send> Sync for Lock<T> {}

pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// Ends after the lock is free.
    _signals: NoSignals,
}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(FREE), value: UnsafeCell::new(value) }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let signals = NoSignals::begin();
        self.take();
        Guard { lock: self, _signals: signals }
    }

    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let signals = NoSignals::begin();
        let is_taken = self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok();
        is_taken.then(|| Guard { lock: self, _signals: signals })
    }

    /// In a forked child, where no other thread is: replaces the value, without a look at the old one, and frees the lock whoever held it.
    pub(crate) fn replace_in_child(&self, value: T) {
        // SAFETY: no other thread is there to reach the value, and the old one, perhaps half changed, is not dropped.
        unsafe { self.value.get().write(value) };
        self.state.store(FREE, Release);
    }

    fn take(&self) {
        if self.state.compare_exchange(FREE, TAKEN, Acquire, Relaxed).is_ok() {
            return;
        }
        while self.state.swap(AWAITED, Acquire) != FREE {
            let _ = futex::wait(&self.state, futex::Flags::PRIVATE, AWAITED, None);
        }
    }

    fn free(&self) {
        if self.state.swap(FREE, Release) == AWAITED {
            let _ = futex::wake(&self.state, futex::Flags::PRIVATE, 1);
        }
    }

    /// Takes the lock without a guard, so that nobody holds it while the process forks.
    pub(crate) fn take_for_fork(&self) {
        self.take();
    }

    /// The value, between [`Self::take_for_fork`] and [`Self::free_after_fork`].
    ///
    /// # Safety
    /// The calling thread took the lock by [`Self::take_for_fork`], and holds no other reference into the value.
    #[expect(clippy::mut_from_ref, reason = "the lock, which the caller holds, makes it the only reference")]
    pub(crate) unsafe fn held_for_fork(&self) -> &mut T {
        // SAFETY: the caller holds the lock.
        unsafe { &mut *self.value.get() }
    }

    /// Undoes [`Self::take_for_fork`], in the parent or in the child.
    pub(crate) fn free_after_fork(&self) {
        self.free();
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.free();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guard_at_a_time() {
        let lock = Lock::new(0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock() += 1));
            }
        });
        assert_eq!(*lock.lock(), 40_000);
        lock.take_for_fork();
        lock.free_after_fork();
        assert_eq!(lock.state.load(Relaxed), FREE);
    }
}
