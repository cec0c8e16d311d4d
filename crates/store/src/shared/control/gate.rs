//! The gate of a file: shut while somebody holds the file exclusively (truncation, release).

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

/// One word: odd while the gate is shut.
#[derive(Clone, Copy, Debug)]
pub struct Gate<'a> {
    word: &'a AtomicU32,
}

impl<'a> Gate<'a> {
    #[inline]
    pub(super) fn new(word: &'a AtomicU32) -> Self {
        Self { word }
    }

    /// True while someone holds the file exclusively: take the slot back and wait.
    #[must_use]
    #[inline]
    pub fn is_shut(&self) -> bool {
        self.word.load(SeqCst) & 1 == 1
    }

    /// Broker only: no I/O begins from here on; those under way are in the slots' lanes.
    pub fn shut(&self) {
        self.word.fetch_or(1, SeqCst);
    }

    /// Broker only: I/O may begin again, and whoever waits on [`Self::word`] is woken.
    pub fn open(&self) {
        // The value changes with every opening, so that a waiter on it cannot miss one.
        self.word.store((self.word.load(SeqCst) | 1).wrapping_add(1), SeqCst);
        let _ = rustix::thread::futex::wake(self.word, rustix::thread::futex::Flags::empty(), i32::MAX as u32);
    }

    /// The word that a waiter may use as a futex.
    #[must_use]
    pub fn word(&self) -> &'a AtomicU32 {
        self.word
    }
}
