//! The other side of a link.

use super::asked::{Answered, Asked, NotBegun};
use super::error::LinkError;
use super::frame::{Frame, Kind, MAX_FRAME_BYTES};
use super::introduction::Introduction;
use super::outgoing::{NotQueued, Outgoing};
use super::socket::Wake;
use super::wire::Wire;
use crate::{guard, try_guard};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

static LAST_NUMBER: AtomicU64 = AtomicU64::new(0);

/// The other side of a link.
///
/// The link lasts until it is closed or breaks, whoever holds this. Afterwards everything fails with the reason.
pub struct Peer {
    number: u64,
    address: SocketAddr,
    introduction: Introduction,
    is_open: AtomicBool,
    ended: OnceLock<LinkError>,
    begun: Instant,
    heard_ns: AtomicU64,
    pub(super) asked: Asked,
    pub(super) outgoing: Outgoing,
    /// `None` after the end.
    pub(super) wire: Mutex<Option<Wire>>,
    pub(super) wake: Wake,
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Peer({}, {})", self.number, self.name())
    }
}

impl Peer {
    pub(super) fn new(introduction: Introduction, address: SocketAddr, wire: Wire, wake: Wake) -> Self {
        Self {
            number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1,
            address,
            introduction,
            is_open: AtomicBool::new(false),
            ended: OnceLock::new(),
            begun: Instant::now(),
            heard_ns: AtomicU64::new(0),
            asked: Asked::default(),
            outgoing: Outgoing::default(),
            wire: Mutex::new(Some(wire)),
            wake,
        }
    }

    /// Who the other side is.
    #[must_use]
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    /// A number that no other link of this process has or had.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The address of the other side's socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// When anything last came from it. If it lives and can be reached, that is at most about a second ago.
    #[must_use]
    pub fn last_heard(&self) -> Instant {
        self.begun + Duration::from_nanos(self.heard_ns.load(Ordering::Relaxed))
    }

    /// Whether both sides have accepted the link and it has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire) && self.ended.get().is_none()
    }

    /// Why the link ended, if it has.
    #[must_use]
    pub fn why_ended(&self) -> Option<LinkError> {
        self.ended.get().cloned()
    }

    /// Asks, and waits for the answer for at most `patience`. A late answer is dropped. While too many questions are unanswered, or too much is to be sent, this waits too.
    ///
    /// After an error, the other side may have heard the question or hear it still, unless the error is [`LinkError::TooLong`]. A question that is asked before both sides
    /// have accepted the link is sent when they have.
    pub fn ask(&self, question: &[u8], patience: Duration) -> Result<Vec<u8>, LinkError> {
        let begun = Instant::now();
        match self.begin_until(question, begun, patience, begun.checked_add(patience)) {
            Ok(asked) => asked.wait().1,
            Err(NotAsked::Fault(error)) => Err(error),
            Err(NotAsked::Late) => Err(LinkError::Late { host: self.name(), patience }),
        }
    }

    /// Asks, and goes on: [`Question::wait`] waits for the answer. `None`: so much is under way that asking would wait.
    pub fn begin(&self, question: &[u8], patience: Duration) -> Option<Result<Question<'_>, LinkError>> {
        let begun = Instant::now();
        match self.begin_until(question, begun, patience, Some(begun)) {
            Ok(asked) => Some(Ok(asked)),
            Err(NotAsked::Fault(error)) => Some(Err(error)),
            Err(NotAsked::Late) => None,
        }
    }

    /// `last`: until when it waits to be asked.
    fn begin_until(
        &self,
        question: &[u8],
        begun: Instant,
        patience: Duration,
        last: Option<Instant>,
    ) -> Result<Question<'_>, NotAsked> {
        self.check(question).map_err(NotAsked::Fault)?;
        let (number, answer) = self.asked.begin(question.len(), last).map_err(|error| match error {
            NotBegun::Late => NotAsked::Late,
            NotBegun::Ended => NotAsked::Fault(self.end_reason()),
        })?;
        if let Err(error) = self.outgoing.push(number, Frame::encode(Kind::Question, number, question), last) {
            self.asked.withdraw(number);
            return Err(match error {
                NotQueued::Full => NotAsked::Late,
                NotQueued::Closed => NotAsked::Fault(self.end_reason()),
            });
        }
        let asked = Question { peer: self, number, answer, begun, patience };
        self.send_queued();
        Ok(asked)
    }

    /// Sends a notice, or queues it: no error means that it was not lost here. While too much is to be sent, this waits.
    pub fn notify(&self, notice: &[u8]) -> Result<(), LinkError> {
        self.check(notice)?;
        // Until both sides have accepted the link nothing is sent, so nobody should wait for space.
        let deadline = if self.is_open.load(Ordering::Acquire) { None } else { Some(Instant::now()) };
        let queued = self.outgoing.push(0, Frame::encode(Kind::Notice, 0, notice), deadline);
        queued.map_err(|error| match error {
            NotQueued::Full => LinkError::NotYet { host: self.name() },
            NotQueued::Closed => self.end_reason(),
        })?;
        self.send_queued();
        Ok(())
    }

    /// Ends the link. What was queued is still sent, if the other side takes it soon; nothing that comes is heard any more. Does not wait for the end.
    pub fn close(&self) {
        self.end(LinkError::Closed { host: self.name() });
        self.wake.wake();
    }

    /// The host's name and address, for messages.
    #[must_use]
    pub fn name(&self) -> String {
        name(&self.introduction, self.address)
    }

    /// Both sides have accepted the link; from now on what is queued is sent.
    pub(super) fn open(&self) {
        self.mark_heard();
        self.is_open.store(true, Ordering::Release);
    }

    pub(super) fn mark_heard(&self) {
        let passed = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.heard_ns.store(passed, Ordering::Relaxed);
    }

    /// Records why the link ends, unless it is recorded already, and wakes all who wait.
    pub(super) fn end(&self, why: LinkError) -> LinkError {
        let why = self.ended.get_or_init(|| why).clone();
        self.outgoing.close();
        self.asked.end();
        why
    }

    /// Queues a frame that answers a question; waits while too much is to be sent.
    pub(super) fn reply(&self, frame: Vec<u8>) {
        // When the link has ended, nobody waits for an answer.
        if self.outgoing.push(0, frame, None).is_ok() {
            self.send_queued();
        }
    }

    fn check(&self, message: &[u8]) -> Result<(), LinkError> {
        if message.len() > MAX_FRAME_BYTES {
            let (bytes, limit) = (message.len(), MAX_FRAME_BYTES);
            return Err(LinkError::TooLong { host: self.name(), bytes, limit });
        }
        self.ended.get().map_or(Ok(()), |why| Err(why.clone()))
    }

    /// Sends what is queued, if nobody else uses the socket now; otherwise the link's thread does.
    fn send_queued(&self) {
        if !self.is_open.load(Ordering::Acquire) {
            return;
        }
        if let Some(mut wire) = try_guard(&self.wire) {
            let Some(wire) = wire.as_mut() else { return };
            // An error comes again in the link's thread.
            if wire.flush(Some(&self.outgoing)).is_ok() && !wire.is_blocked() {
                return;
            }
        }
        self.wake.wake();
    }

    fn end_reason(&self) -> LinkError {
        self.ended.get().cloned().unwrap_or_else(|| LinkError::Closed { host: self.name() })
    }

    /// Drops socket and keys.
    pub(super) fn drop_wire(&self) {
        drop(guard(&self.wire).take());
    }
}

/// Why a question was not asked.
enum NotAsked {
    /// Too much was under way.
    Late,
    Fault(LinkError),
}

/// A question that was asked; dropped, nobody waits for its answer.
#[derive(Debug)]
pub struct Question<'p> {
    peer: &'p Peer,
    number: u64,
    answer: Receiver<Answered>,
    begun: Instant,
    patience: Duration,
}

impl Question<'_> {
    /// Waits for the answer, until the patience that it was asked with is over. Returns as well how long it took.
    pub fn wait(self) -> (Duration, Result<Vec<u8>, LinkError>) {
        let received = match self.begun.checked_add(self.patience) {
            Some(deadline) => self.answer.recv_timeout(deadline.saturating_duration_since(Instant::now())),
            None => self.answer.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let host = || self.peer.name();
        match received {
            Ok((came, answer)) => {
                let answer = answer.map_err(|what| LinkError::Failed { host: host(), what });
                (came.saturating_duration_since(self.begun), answer)
            }
            Err(RecvTimeoutError::Disconnected) => (self.begun.elapsed(), Err(self.peer.end_reason())),
            Err(RecvTimeoutError::Timeout) => {
                (self.begun.elapsed(), Err(LinkError::Late { host: host(), patience: self.patience }))
            }
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        // Of one that has its answer nothing is left.
        match self.peer.outgoing.withdraw(self.number) {
            true => self.peer.asked.withdraw(self.number),
            false => self.peer.asked.give_up(self.number),
        }
    }
}

/// A host in messages.
pub(super) fn name(introduction: &Introduction, address: SocketAddr) -> String {
    format!("{} ({address})", introduction.host)
}
