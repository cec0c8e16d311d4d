//! One connection to the broker: its socket, and one request with its answer.

use super::ClientError;
use crate::descriptors::{Descriptor, Received};
use crate::packet::{self, PacketError};
use crate::protocol::{Event, PROTOCOL_VERSION, Refusal, Reply, Request};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The broker's socket, in `run/` of the state directory.
pub const SOCKET_NAME: &str = "broker.sock";

#[derive(Debug)]
pub(super) struct Connection {
    socket: Descriptor,
    buffer: packet::Buffer,
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
        Ok(Self { socket, buffer: packet::Buffer::default() })
    }

    pub(super) fn call(&mut self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Answer, PacketError> {
        packet::send(&self.socket, request, descriptors)?;
        let (reply, descriptors) = packet::receive(&self.socket, &mut self.buffer)?;
        Ok(Answer { reply, descriptors: descriptors.into_iter().map(Received::from).collect() })
    }

    /// Sends what has no answer.
    pub(super) fn report(&self, event: Event) -> Result<(), PacketError> {
        packet::send(&self.socket, &Request::Unanswered(event), &[])
    }

    pub(super) fn hello(&mut self) -> Result<Answer, PacketError> {
        self.call(&Request::Hello { version: PROTOCOL_VERSION }, &[])
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
