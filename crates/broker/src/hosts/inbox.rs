//! What came from a peer and is to be heard, and the threads that do so.

use super::asked::{MAX_QUESTION_BYTES, MAX_QUESTIONS};
use super::error::LinkError;
use super::frame::{Frame, Kind, MAX_FRAME_BYTES};
use super::hears::Hears;
use super::peer::Peer;
use super::threads;
use crate::guard;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::dispatcher::Dispatch;

/// One for each question and one for notices.
const MAX_WORKERS: usize = MAX_QUESTIONS + 1;
/// Notices that wait, above which nothing more is read.
const MAX_NOTICES: usize = 4096;
const MAX_NOTICE_BYTES: usize = MAX_FRAME_BYTES;
/// After this an idle worker ends, but for the last one.
const IDLE: Duration = Duration::from_secs(10);

enum Item {
    Question { number: u64, body: Vec<u8> },
    Notice { body: Vec<u8> },
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    notices: usize,
    notice_bytes: usize,
    /// Questions that wait or are being heard.
    questions: usize,
    question_bytes: usize,
    /// A notice is being taken; nothing behind it may be begun.
    is_taking: bool,
    workers: usize,
    idle: usize,
    has_ended: bool,
}

impl State {
    fn is_full(&self) -> bool {
        self.notices > MAX_NOTICES || self.notice_bytes > MAX_NOTICE_BYTES
    }
}

/// What came from a peer and is to be heard, and the threads that do so.
pub(super) struct Inbox {
    peer: Arc<Peer>,
    hears: Arc<dyn Hears>,
    events: Dispatch,
    state: Mutex<State>,
    work: Condvar,
    fewer_workers: Condvar,
}

impl Inbox {
    /// Starts the first worker; without it nothing could be heard.
    pub(super) fn start(peer: &Arc<Peer>, hears: &Arc<dyn Hears>, events: &Dispatch) -> Result<Arc<Self>, LinkError> {
        let inbox = Arc::new(Self {
            peer: Arc::clone(peer),
            hears: Arc::clone(hears),
            events: events.clone(),
            state: Mutex::default(),
            work: Condvar::new(),
            fewer_workers: Condvar::new(),
        });
        guard(&inbox.state).workers = 1;
        inbox.add_worker()?;
        Ok(inbox)
    }

    /// Whether so much waits that nothing more should be read. When that ends, the link's thread is woken.
    pub(super) fn is_full(&self) -> bool {
        guard(&self.state).is_full()
    }

    /// Takes a question. An error if the peer asks more at once than it may.
    pub(super) fn question(self: &Arc<Self>, number: u64, body: Vec<u8>) -> Result<(), String> {
        let mut state = guard(&self.state);
        let bytes = state.question_bytes + body.len();
        if state.questions >= MAX_QUESTIONS || (state.questions > 0 && bytes > MAX_QUESTION_BYTES) {
            return Err(format!("{} questions of {bytes} bytes at once", state.questions + 1));
        }
        state.questions += 1;
        state.question_bytes = bytes;
        state.items.push_back(Item::Question { number, body });
        drop(self.hand_out(state));
        Ok(())
    }

    pub(super) fn notice(self: &Arc<Self>, body: Vec<u8>) {
        let mut state = guard(&self.state);
        state.notices += 1;
        state.notice_bytes += body.len();
        state.items.push_back(Item::Notice { body });
        drop(self.hand_out(state));
    }

    /// Returns when all that came has been heard and no worker is left.
    pub(super) fn finish(&self) {
        let mut state = guard(&self.state);
        state.has_ended = true;
        self.work.notify_all();
        while state.workers > 0 {
            state = self.fewer_workers.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets a worker begin what is first. Whoever takes a question hands out what is behind it; whoever takes a notice goes on with that itself.
    fn hand_out<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.is_taking || state.items.is_empty() {
            return state;
        }
        if state.idle > 0 {
            self.work.notify_one();
        } else if state.workers < MAX_WORKERS {
            match self.add_worker() {
                Ok(()) => state.workers += 1,
                // Those that there are will hear it later.
                Err(error) => {
                    tracing::warn!(target: "stripewise::broker", host = %self.peer.name(), "a question waits: {error}");
                }
            }
        }
        state
    }

    fn add_worker(self: &Arc<Self>) -> Result<(), LinkError> {
        let inbox = Arc::clone(self);
        threads::spawn("stripewise-hear", self.events.clone(), move || inbox.work())
    }

    fn work(self: Arc<Self>) {
        let mut state = guard(&self.state);
        loop {
            if !state.is_taking
                && let Some(item) = state.items.pop_front()
            {
                state = self.hear(state, item);
                continue;
            }
            if state.has_ended && state.items.is_empty() {
                break;
            }
            state.idle += 1;
            let (woken, timeout) = self.work.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.items.is_empty() && state.workers > 1 {
                break;
            }
        }
        state.workers -= 1;
        // At the end all others have to see that nothing is left.
        if state.has_ended {
            self.work.notify_all();
        }
        drop(state);
        self.fewer_workers.notify_all();
    }

    /// Hears one item without the lock.
    fn hear<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, item: Item) -> MutexGuard<'a, State> {
        match item {
            Item::Question { number, body } => {
                drop(self.hand_out(state));
                let bytes = body.len();
                let frame = self.answer(number, body);
                // Before the answer goes out, because the peer may ask again as soon as it has it.
                let mut state = guard(&self.state);
                state.questions -= 1;
                state.question_bytes -= bytes;
                drop(state);
                self.peer.reply(frame);
                guard(&self.state)
            }
            Item::Notice { body } => {
                state.is_taking = true;
                drop(state);
                let bytes = body.len();
                let taken = catch_unwind(AssertUnwindSafe(|| self.hears.notified(&self.peer, body)));
                if taken.is_err() {
                    tracing::error!(target: "stripewise::broker", host = %self.peer.name(), "a notice was not taken: a thread panicked");
                }
                let mut state = guard(&self.state);
                let was_full = state.is_full();
                state.is_taking = false;
                state.notices -= 1;
                state.notice_bytes -= bytes;
                if was_full && !state.is_full() {
                    self.peer.wake.wake();
                }
                state
            }
        }
    }

    fn answer(&self, number: u64, question: Vec<u8>) -> Vec<u8> {
        match catch_unwind(AssertUnwindSafe(|| self.hears.hear(&self.peer, question))) {
            Ok(answer) if answer.len() <= MAX_FRAME_BYTES => Frame::encode(Kind::Answer, number, &answer),
            Ok(answer) => {
                let what = format!("its answer of {} bytes is longer than {MAX_FRAME_BYTES}", answer.len());
                Frame::encode_text(Kind::Failure, number, &what)
            }
            Err(_) => {
                tracing::error!(target: "stripewise::broker", host = %self.peer.name(), "a question was not answered: a thread panicked");
                Frame::encode_text(Kind::Failure, number, "a thread panicked, see its log")
            }
        }
    }
}
