//! Entering a file for one read or write: a lane, then the gate.

use super::core::FileCore;
use super::error::FileError;
use crate::client::{ClientError, now, sleep};
use crate::shared::control::RegionState;
use crate::shared::marking::Motion;
use crate::shared::recent::{Noted, now_ms};
use crate::shared::slots::{InFlight, Occupied};
use rustix::thread::futex;
use rustix::time::Timespec;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;
use stripewise_layout::{FileOffset, RegionIndex, RequestKind};

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
pub(super) struct Lane<'a>(Occupied<'a>);

impl Drop for Lane<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.free();
    }
}

/// The ways into a file.
#[derive(Clone, Copy)]
pub(super) struct Lanes<'f> {
    file: &'f FileCore,
}

impl<'f> Lanes<'f> {
    #[inline]
    pub(super) fn new(file: &'f FileCore) -> Self {
        Self { file }
    }

    /// Notes a request that is about to end, if anybody watches.
    #[inline]
    pub(super) fn note(&self, lane: &Lane<'_>, kind: RequestKind, offset: FileOffset, bytes: u64) {
        if let Some(observation) = self.file.control().notices().observation()
            && bytes > 0
        {
            lane.0.note(observation, Noted { kind, offset, bytes: bytes as u32, time_ms: now_ms() });
        }
    }

    /// Enters with the gate open; waits while it is shut or all lanes are taken.
    #[inline]
    pub(super) fn enter(&self, what: InFlight) -> Result<Lane<'f>, FileError> {
        let (slot, _) = self.file.core().identity().ok_or_else(|| self.file.broker(ClientError::NoProcessSlot))?;
        if let Some(word) = self.file.slots().occupy(slot, hint(), what) {
            let lane = Lane(word);
            if !self.file.control().gate().is_shut() {
                return Ok(lane);
            }
        }
        self.enter_slowly(what)
    }

    #[cold]
    fn enter_slowly(&self, what: InFlight) -> Result<Lane<'f>, FileError> {
        let (slot, _) = self.file.core().identity().ok_or_else(|| self.file.broker(ClientError::NoProcessSlot))?;
        let mut pause = Duration::from_micros(20);
        loop {
            self.wait_for_gate()?;
            if let Some(word) = self.file.slots().occupy(slot, hint(), what) {
                let lane = Lane(word);
                if !self.file.control().gate().is_shut() {
                    return Ok(lane);
                }
            } else {
                // More threads than lanes: nobody wakes us, and spinning would take the processor from those inside.
                sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(1));
            }
        }
    }

    /// Returns when the gate is open. Fails when it has been shut for longer than the client's patience and no broker lives to open it. To be called outside the lane.
    pub(super) fn wait_for_gate(&self) -> Result<(), FileError> {
        let gate = self.file.control().gate().word();
        self.wait_for_broker(gate, |seen| seen & 1 == 0)
    }

    /// Returns when the region takes writes again: its last part is being copied to another place. To be called outside the lane.
    #[cold]
    pub(super) fn wait_while_sealed(&self, region: RegionIndex) -> Result<(), FileError> {
        let control = self.file.control();
        // The count is read before the word, so that no change in between is slept through.
        self.wait_for_broker(control.regions().moves_word(), |_| {
            !matches!(control.regions().get(region), RegionState::Placed { motion: Motion::Sealed(_), .. })
        })
    }

    /// Waits on a word that the broker changes and wakes, until it `is_done`.
    fn wait_for_broker(&self, word: &AtomicU32, is_done: impl Fn(u32) -> bool) -> Result<(), FileError> {
        let began = now();
        let check_after = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
        loop {
            self.file.check_not_replaced()?;
            let seen = word.load(SeqCst);
            if is_done(seen) {
                return Ok(());
            }
            let waited = futex::wait(word, futex::Flags::empty(), seen, Some(&check_after));
            if waited != Err(rustix::io::Errno::TIMEDOUT) {
                continue;
            }
            // A broker at work takes as long as it needs; a dead one's successor ends what it left.
            if self.file.core().check_broker().is_err() && now() - began > self.file.core().patience() {
                return Err(FileError::GateStuck { file: self.file.id(), waited_s: (now() - began).as_secs() });
            }
        }
    }
}
