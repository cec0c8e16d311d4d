//! The thread of a link: it reads, sends what others could not send at once, and notices the end.

use super::error::LinkError;
use super::frame::{Frame, Kind, Received};
use super::hears::Hears;
use super::inbox::Inbox;
use super::limits::Limits;
use super::peer::Peer;
use super::socket::{Ready, wait};
use super::wire::{Progress, WireFault};
use crate::guard;
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how long a link that this side closed sends what was queued and waits for the other side's end.
const CLOSING: Duration = Duration::from_secs(2);

/// A link that both sides have accepted.
pub(super) struct Link {
    pub(super) peer: Arc<Peer>,
    pub(super) socket: Arc<TcpStream>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) hears: Arc<dyn Hears>,
    pub(super) limits: Limits,
    /// What came together with the other side's welcome.
    pub(super) first: Vec<Received>,
}

impl Link {
    /// Runs until the link has ended and all that came has been heard.
    pub(super) fn run(mut self) {
        self.peer.open();
        let why = self.exchange();
        let was_closed_here = self.peer.why_ended().is_some();
        let why = self.peer.end(why);
        if was_closed_here {
            self.close();
        }
        self.peer.drop_wire();
        let _ = self.socket.shutdown(Shutdown::Both);
        self.inbox.finish();
        leave(&self.hears, &self.peer, &why);
    }

    /// Sends and receives until the link ends; returns why.
    fn exchange(&mut self) -> LinkError {
        let first = std::mem::take(&mut self.first);
        if let Err(why) = self.hear_all(first) {
            return why;
        }
        if let Some(fault) = guard(&self.peer.wire).as_mut().and_then(|wire| wire.take_deferred()) {
            return self.fault(fault);
        }
        let mut next_ping = Instant::now() + self.limits.ping();
        loop {
            if let Some(why) = self.peer.why_ended() {
                return why;
            }
            let mut is_blocked = false;
            if let Some(wire) = guard(&self.peer.wire).as_mut() {
                if let Err(fault) = wire.flush(Some(&self.peer.outgoing)) {
                    return self.fault(fault);
                }
                is_blocked = wire.is_blocked();
            }
            let reads = !self.inbox.is_full();
            if !reads {
                // Its silence is our deafness.
                self.peer.mark_heard();
            }
            let silent_at = self.peer.last_heard() + self.limits.silence;
            let wanted = Ready { read: reads, write: is_blocked };
            let ready = match wait(&*self.socket, wanted, Some(&self.peer.wake), Some(next_ping.min(silent_at))) {
                Ok(ready) => ready,
                Err(source) => return LinkError::Os { action: "waiting for a host", source },
            };
            if ready.read
                && reads
                && let Err(why) = self.receive()
            {
                return why;
            }
            let mut now = Instant::now();
            if reads && now >= self.peer.last_heard() + self.limits.silence {
                // Perhaps it was this process that stood still: what has come meanwhile is read first.
                match wait(&*self.socket, Ready { read: true, write: false }, None, Some(now)) {
                    Ok(Ready { read: true, .. }) => {
                        if let Err(why) = self.receive() {
                            return why;
                        }
                        now = Instant::now();
                    }
                    Ok(_) => {}
                    Err(source) => return LinkError::Os { action: "waiting for a host", source },
                }
            }
            if reads && now >= self.peer.last_heard() + self.limits.silence {
                return LinkError::Silent { host: self.peer.name(), limit: self.limits.silence };
            }
            if now >= next_ping {
                next_ping = now + self.limits.ping();
                if self.peer.outgoing.is_empty() && !is_blocked {
                    // With something queued meanwhile it would not be needed.
                    let _ = self.peer.outgoing.push(0, Frame::encode(Kind::Ping, 0, &[]), Some(now));
                }
            }
        }
    }

    fn receive(&mut self) -> Result<(), LinkError> {
        let mut received = Vec::new();
        let progress = match guard(&self.peer.wire).as_mut() {
            Some(wire) => wire.receive(&mut received),
            None => Ok(Progress::default()),
        };
        if matches!(progress, Ok(Progress { any: true, .. })) || !received.is_empty() {
            self.peer.mark_heard();
        }
        self.hear_all(received)?;
        match progress {
            Ok(Progress { has_closed: true, .. }) => Err(LinkError::ClosedThere { host: self.peer.name() }),
            Ok(_) => Ok(()),
            Err(fault) => Err(self.fault(fault)),
        }
    }

    fn hear_all(&mut self, received: Vec<Received>) -> Result<(), LinkError> {
        received.into_iter().try_for_each(|received| self.hear(received))
    }

    fn hear(&self, received: Received) -> Result<(), LinkError> {
        let rubbish = |what: String| LinkError::Rubbish { host: self.peer.name(), what };
        let Received::Frame(frame) = received else { return Err(rubbish("a second introduction".to_owned())) };
        match frame.kind {
            Kind::Question => self.inbox.question(frame.number, frame.body).map_err(rubbish),
            Kind::Notice => {
                self.inbox.notice(frame.body);
                Ok(())
            }
            Kind::Answer | Kind::Failure => {
                let number = frame.number;
                let answer = if frame.kind == Kind::Answer { Ok(frame.body) } else { Err(frame.text()) };
                match self.peer.asked.answer(number, answer) || self.peer.why_ended().is_some() {
                    true => Ok(()),
                    false => Err(rubbish(format!("an answer to question {number}, which has none to come"))),
                }
            }
            Kind::Ping => Ok(()),
            Kind::Refusal => Err(LinkError::Refused { host: self.peer.name(), what: frame.text() }),
            Kind::Welcome => Err(rubbish("a second welcome".to_owned())),
        }
    }

    fn fault(&self, fault: WireFault) -> LinkError {
        let host = self.peer.name();
        match fault {
            WireFault::Frame(error) => LinkError::Rubbish { host, what: error.to_string() },
            WireFault::Os(error) => LinkError::Broken { host, what: error.to_string() },
            WireFault::Tls(error) => LinkError::Broken { host, what: error.to_string() },
            WireFault::Closed => LinkError::ClosedThere { host },
            WireFault::Eof => LinkError::Broken { host, what: "it closed the connection without saying so".to_owned() },
        }
    }

    /// Sends what was queued, says that this is the end, and waits for the other side's: a socket that is closed with unread data
    /// takes back what was sent last.
    fn close(&self) {
        let deadline = Instant::now() + CLOSING.min(self.limits.silence);
        let mut wire = guard(&self.peer.wire);
        let Some(wire) = wire.as_mut() else { return };
        let (mut has_said, mut dropped) = (false, Vec::new());
        while Instant::now() < deadline {
            if wire.flush(Some(&self.peer.outgoing)).is_err() {
                return;
            }
            if wire.is_idle() && self.peer.outgoing.is_empty() {
                if has_said {
                    wire.end_sending();
                } else {
                    has_said = true;
                    wire.say_end();
                    continue;
                }
            }
            let wanted = Ready { read: true, write: wire.is_blocked() };
            let Ok(ready) = wait(&*self.socket, wanted, None, Some(deadline)) else { return };
            if ready.read {
                match wire.receive(&mut dropped) {
                    Ok(Progress { has_closed: false, .. }) => dropped.clear(),
                    Ok(_) | Err(_) => return,
                }
            }
        }
    }
}

/// Reports the end of a link.
pub(super) fn leave(hears: &Arc<dyn Hears>, peer: &Arc<Peer>, why: &LinkError) {
    if catch_unwind(AssertUnwindSafe(|| hears.left(peer, why))).is_err() {
        tracing::error!(target: "stripewise::broker", host = %peer.name(), "the end of a link was not taken: a thread panicked");
    }
}
