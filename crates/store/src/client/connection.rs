//! One connection to the broker: its socket, and one request with its answer.

use super::{ClientError, now};
use crate::descriptors::{Descriptor, Received};
use crate::packet::{self, PacketError};
use crate::protocol::{Event, PROTOCOL_VERSION, Refusal, Reply, Request};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::time::Duration;

/// The broker's socket, in `run/` of the state directory.
pub const SOCKET_NAME: &str = "broker.sock";

/// So long an answer is polled for before its requester sleeps. Most come within it, and to fall asleep and be woken on an idle processor takes longer than
/// most requests.
const POLLING: Duration = Duration::from_micros(100);
/// Answers waited for asleep after one that did not come within that time: the broker is busy, or shares a processor with this process.
const ASLEEP_AFTER_A_MISS: u32 = 15;

#[derive(Debug)]
pub(super) struct Connection {
    socket: Descriptor,
    buffer: packet::Buffer,
    /// The next answers to be waited for asleep.
    asleep: u32,
}

/// An answer with the descriptors that came along.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) reply: Reply,
    pub(super) descriptors: Vec<Received>,
}

impl Connection {
    /// Connects to the broker whose `run/` directory `run` is open on. By way of the descriptor, since a socket's path may have 107 bytes only,
    /// and since a process that changed its user may not pass through the directory above any more.
    pub(super) fn open(run: BorrowedFd<'_>, base: RawFd) -> Result<Self, Errno> {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let socket = Descriptor::raise(socket, base);
        let path = format!("/proc/self/fd/{}/{SOCKET_NAME}", run.as_raw_fd());
        let address = SocketAddrUnix::new(path.as_str())?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Err(Errno::INTR) => {}
                result => break result?,
            }
        }
        Ok(Self { socket, buffer: packet::Buffer::default(), asleep: 0 })
    }

    pub(super) fn call(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Answer, PacketError> {
        packet::send(&self.socket, request, descriptors)?;
        self.receive()
    }

    fn receive(&mut self) -> Result<Answer, PacketError> {
        let (reply, descriptors) = self.received()?;
        Ok(Answer { reply, descriptors: descriptors.into_iter().map(Received::from).collect() })
    }

    fn received(&mut self) -> Result<(Reply, Vec<OwnedFd>), PacketError> {
        if let Some(left) = self.asleep.checked_sub(1) {
            self.asleep = left;
            return packet::receive(&self.socket, &mut self.buffer);
        }
        let until = now() + POLLING;
        loop {
            if let Some(received) = packet::receive_now(&self.socket, &mut self.buffer) {
                return received;
            }
            if now() >= until {
                self.asleep = ASLEEP_AFTER_A_MISS;
                return packet::receive(&self.socket, &mut self.buffer);
            }
            // The broker may be waiting for this processor.
            rustix::thread::sched_yield();
        }
    }

    /// Sends what has no answer.
    pub(super) fn report(&self, event: Event) -> Result<(), PacketError> {
        packet::send(&self.socket, &Request::Unanswered(event), &[])
    }

    /// The answers to the greeting and to what is asked along with it, which a refused greeting leaves open.
    pub(super) fn hello(&mut self, along: Option<&Request>) -> Result<(Answer, Option<Answer>), PacketError> {
        packet::send(&self.socket, &Request::Hello { version: PROTOCOL_VERSION }, &[])?;
        let asked = along.map(|request| packet::send(&self.socket, request, &[]));
        let welcome = match self.receive() {
            // A broker that refuses the greeting may close with the other request unheard. What it said comes after the error.
            Err(PacketError::Closed) if asked.is_some() => self.receive()?,
            received => received?,
        };
        // The broker had to take the connection first.
        self.asleep = 0;
        let answer = match &welcome.reply {
            Reply::Refused(_) => None,
            _ => asked.map(|asked| asked.and_then(|()| self.receive())).transpose()?,
        };
        Ok((welcome, answer))
    }

    /// The greeting of a client that had been welcomed: descriptors that come along again are not let in.
    pub(super) fn hello_again(&mut self) -> Result<Reply, PacketError> {
        packet::send(&self.socket, &Request::Hello { version: PROTOCOL_VERSION }, &[])?;
        packet::receive_message(&self.socket, &mut self.buffer)
    }

    /// What a refused greeting is to the client.
    pub(super) fn not_welcome(&self, refusal: Refusal) -> ClientError {
        match (refusal, rustix::net::sockopt::socket_peercred(&self.socket)) {
            (Refusal::Version { broker, client }, Ok(peer)) => {
                ClientError::OtherVersion { process: peer.pid.as_raw_nonzero().get().unsigned_abs(), broker, client }
            }
            (refusal, _) => ClientError::Refused(refusal),
        }
    }

    /// Whether the other side has closed.
    pub(super) fn is_lost(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::empty())];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }
}
