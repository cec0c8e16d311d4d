//! Entering a file for one read or write: a lane, then the gate.

use super::{FileError, StripedFile};
use crate::client::{ClientError, now, sleep};
use crate::shared::slots::InFlight;
use rustix::thread::futex;
use rustix::time::Timespec;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Where the thread looks for a lane first. Without a destructor, so that it works at any time of a thread's life.
    static HINT: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn hint() -> usize {
    HINT.with(|hint| {
        if hint.get() == usize::MAX {
            hint.set(THREADS.fetch_add(1, Relaxed) & 0xffff);
        }
        hint.get()
    })
}

/// Inside the file until dropped.
pub(super) struct Lane<'a>(&'a AtomicU64);

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

impl StripedFile {
    /// Enters with the gate open; waits while it is shut or all lanes are taken.
    #[inline]
    pub(super) fn enter(&self, what: InFlight) -> Result<Lane<'_>, FileError> {
        let (slot, _) = self.core.identity().ok_or_else(|| self.broker(ClientError::NoProcessSlot))?;
        if let Some(word) = self.shared.slots.occupy(slot, hint(), what) {
            let lane = Lane(word);
            if !self.shared.control.gate_is_shut() {
                return Ok(lane);
            }
        }
        self.enter_slowly(what)
    }

    #[cold]
    fn enter_slowly(&self, what: InFlight) -> Result<Lane<'_>, FileError> {
        let (slot, _) = self.core.identity().ok_or_else(|| self.broker(ClientError::NoProcessSlot))?;
        let mut pause = Duration::from_micros(20);
        loop {
            self.wait_for_gate()?;
            if let Some(word) = self.shared.slots.occupy(slot, hint(), what) {
                let lane = Lane(word);
                if !self.shared.control.gate_is_shut() {
                    return Ok(lane);
                }
            } else {
                // More threads than lanes: nobody wakes us, and spinning would take the processor from those inside.
                sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(1));
            }
        }
    }

    /// Returns when the gate is open. Fails when it has been shut for longer than the client's patience and no broker lives to open it.
    fn wait_for_gate(&self) -> Result<(), FileError> {
        let control = &self.shared.control;
        let began = now();
        let look_after = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
        loop {
            self.check_not_replaced()?;
            let seen = control.gate_word().load(std::sync::atomic::Ordering::SeqCst);
            if seen & 1 == 0 {
                return Ok(());
            }
            let waited = futex::wait(control.gate_word(), futex::Flags::empty(), seen, Some(&look_after));
            if waited != Err(rustix::io::Errno::TIMEDOUT) {
                continue;
            }
            // A broker at work keeps the gate as long as it needs; a dead one's successor opens it.
            if self.core.look_after_broker().is_err() && now() - began > self.core.patience() {
                return Err(FileError::GateStuck { file: self.file, waited_s: (now() - began).as_secs() });
            }
        }
    }
}
