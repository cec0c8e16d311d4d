//! Frames that are to be sent, in order.

use super::frame::MAX_FRAME_BYTES;
use crate::guard;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

const MAX_FRAMES: usize = 1024;
/// Of all frames together; one frame always fits.
const MAX_BYTES: usize = MAX_FRAME_BYTES;

/// Why a frame was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// No space until the time that was given.
    Full,
    Closed,
}

struct Queued {
    /// The question's number; 0 for all else.
    question: u64,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    frames: VecDeque<Queued>,
    bytes: usize,
    is_closed: bool,
}

/// Frames that are to be sent, in order.
#[derive(Default)]
pub(super) struct Outgoing {
    state: Mutex<State>,
    space: Condvar,
}

impl Outgoing {
    /// Queues an encoded frame; waits for space until `deadline`, or for as long as it takes. `question` is 0 for all but questions.
    pub(super) fn push(&self, question: u64, bytes: Vec<u8>, deadline: Option<Instant>) -> Result<(), NotQueued> {
        let mut state = guard(&self.state);
        loop {
            if state.is_closed {
                return Err(NotQueued::Closed);
            }
            let fits = state.frames.len() < MAX_FRAMES && state.bytes + bytes.len() <= MAX_BYTES;
            if fits || state.frames.is_empty() {
                state.bytes += bytes.len();
                state.frames.push_back(Queued { question, bytes });
                return Ok(());
            }
            state = match deadline {
                None => self.space.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(NotQueued::Full);
                    }
                    self.space.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    pub(super) fn pop(&self) -> Option<Vec<u8>> {
        let mut state = guard(&self.state);
        let queued = state.frames.pop_front()?;
        state.bytes -= queued.bytes.len();
        drop(state);
        self.space.notify_all();
        Some(queued.bytes)
    }

    /// Removes a question that has not been begun to be sent; returns whether it was there.
    pub(super) fn withdraw(&self, question: u64) -> bool {
        let mut state = guard(&self.state);
        let Some(index) = state.frames.iter().position(|queued| queued.question == question) else { return false };
        let removed = state.frames.remove(index).map_or(0, |queued| queued.bytes.len());
        state.bytes -= removed;
        drop(state);
        self.space.notify_all();
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        guard(&self.state).frames.is_empty()
    }

    /// Takes no more frames. Those that are queued stay.
    pub(super) fn close(&self) {
        guard(&self.state).is_closed = true;
        self.space.notify_all();
    }
}
