//! Questions of this side that have no answer yet.

use super::frame::MAX_FRAME_BYTES;
use crate::guard;
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Unanswered questions of one side of a link. The other side has a worker thread for each.
pub const MAX_QUESTIONS: usize = 128;
/// Bytes of all unanswered questions of one side of a link together; one question always fits.
pub const MAX_QUESTION_BYTES: usize = 2 * MAX_FRAME_BYTES;

/// What comes back: the answer, or why there is none.
pub(super) type Answer = Result<Vec<u8>, String>;

/// The same, and when it came.
pub(super) type Answered = (Instant, Answer);

/// Why a question was not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotBegun {
    /// Too many were unanswered until the time that was given.
    Late,
    Ended,
}

struct Question {
    bytes: usize,
    /// `None` when nobody waits any more. The question counts all the same until it is answered: the other side still works on it.
    asker: Option<SyncSender<Answered>>,
}

#[derive(Default)]
struct State {
    last: u64,
    questions: HashMap<u64, Question>,
    bytes: usize,
    has_ended: bool,
}

/// Questions of this side that have no answer yet.
#[derive(Default)]
pub(super) struct Asked {
    state: Mutex<State>,
    fewer: Condvar,
}

impl Asked {
    /// Begins a question of so many bytes, when there are few enough. Returns its number, and what receives the answer; that is disconnected when the link ends.
    pub(super) fn begin(&self, bytes: usize, deadline: Option<Instant>) -> Result<(u64, Receiver<Answered>), NotBegun> {
        let mut state = guard(&self.state);
        loop {
            if state.has_ended {
                return Err(NotBegun::Ended);
            }
            let fits = state.questions.len() < MAX_QUESTIONS && state.bytes + bytes <= MAX_QUESTION_BYTES;
            if fits || state.questions.is_empty() {
                break;
            }
            state = match deadline {
                None => self.fewer.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(NotBegun::Late);
                    }
                    self.fewer.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.last += 1;
        state.bytes += bytes;
        let (asker, answer) = sync_channel(1);
        let number = state.last;
        state.questions.insert(number, Question { bytes, asker: Some(asker) });
        Ok((number, answer))
    }

    /// Takes an answer to whoever waits for it. Returns whether there was such a question.
    pub(super) fn answer(&self, number: u64, answer: Answer) -> bool {
        let Some(question) = self.remove(number) else { return false };
        if let Some(asker) = question.asker {
            // One place for one answer. The asker may have given up just now.
            let _ = asker.try_send((Instant::now(), answer));
        }
        true
    }

    /// Nobody waits for this answer any more.
    pub(super) fn give_up(&self, number: u64) {
        if let Some(question) = guard(&self.state).questions.get_mut(&number) {
            question.asker = None;
        }
    }

    /// This question was not sent.
    pub(super) fn withdraw(&self, number: u64) {
        let _ = self.remove(number);
    }

    /// No answer will come.
    pub(super) fn end(&self) {
        let mut state = guard(&self.state);
        state.has_ended = true;
        state.bytes = 0;
        let questions = std::mem::take(&mut state.questions);
        drop(state);
        drop(questions);
        self.fewer.notify_all();
    }

    fn remove(&self, number: u64) -> Option<Question> {
        let mut state = guard(&self.state);
        let question = state.questions.remove(&number)?;
        state.bytes -= question.bytes;
        drop(state);
        self.fewer.notify_all();
        Some(question)
    }
}
