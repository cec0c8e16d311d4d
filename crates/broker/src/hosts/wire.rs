//! A socket, TLS on it, and the frame that is being sent or received.

use super::frame::{Decoder, FrameError, Received};
use super::outgoing::Outgoing;
use rustix::io::Errno;
use rustls::Connection;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// Bytes after which sending or receiving lets others have their turn.
const TURN_BYTES: usize = 1 << 20;
const CHUNK_BYTES: usize = 64 << 10;

/// Why nothing can be sent or received any more.
#[derive(Debug)]
pub(super) enum WireFault {
    Os(Errno),
    Tls(rustls::Error),
    Frame(FrameError),
    /// The other side's end, without the words of TLS for it.
    Eof,
    /// The other side said that it sends nothing more.
    Closed,
}

/// What one turn of receiving found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Whether bytes came.
    pub(super) any: bool,
    /// The other side said that it sends nothing more.
    pub(super) has_closed: bool,
}

/// A socket, TLS on it, and the frame that is being sent or received.
pub(super) struct Wire {
    connection: Connection,
    socket: Arc<TcpStream>,
    decoder: Decoder,
    /// What is being sent, and how much of it TLS has taken.
    sending: Vec<u8>,
    taken: usize,
    is_blocked: bool,
    deferred: Option<WireFault>,
}

impl Wire {
    /// The socket does not block.
    pub(super) fn new(connection: Connection, socket: Arc<TcpStream>) -> Self {
        Self {
            connection,
            socket,
            decoder: Decoder::default(),
            sending: Vec::new(),
            taken: 0,
            is_blocked: false,
            deferred: None,
        }
    }

    /// Sends this before all that is queued. Only while a link is being made.
    pub(super) fn send_first(&mut self, bytes: &[u8]) {
        self.sending.extend_from_slice(bytes);
    }

    /// Sends what TLS and the socket take, up to [`TURN_BYTES`]: what was begun, then what is queued.
    pub(super) fn flush(&mut self, queue: Option<&Outgoing>) -> Result<(), WireFault> {
        let mut sent = 0;
        loop {
            while self.connection.wants_write() {
                match self.connection.write_tls(&mut &*self.socket) {
                    Ok(bytes) => sent += bytes,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.is_blocked = true;
                        return Ok(());
                    }
                    Err(error) => return Err(WireFault::Os(errno(&error))),
                }
            }
            self.is_blocked = false;
            if self.connection.is_handshaking() {
                return Ok(());
            }
            if sent >= TURN_BYTES {
                self.is_blocked = self.taken < self.sending.len() || queue.is_some_and(|queue| !queue.is_empty());
                return Ok(());
            }
            if self.taken == self.sending.len() {
                (self.sending, self.taken) = (Vec::new(), 0);
                match queue.and_then(Outgoing::pop) {
                    Some(bytes) => self.sending = bytes,
                    None => return Ok(()),
                }
            }
            let taken = self.connection.writer().write(&self.sending[self.taken..]);
            self.taken += taken.map_err(|error| WireFault::Os(errno(&error)))?;
        }
    }

    /// Whether more is to be sent as soon as the socket takes it.
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Whether all that was begun has been given to the socket.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_blocked && self.taken == self.sending.len() && !self.connection.wants_write()
    }

    /// Receives what the socket has, up to about [`TURN_BYTES`]. What is complete is in `into`, also when an error follows.
    pub(super) fn receive(&mut self, into: &mut Vec<Received>) -> Result<Progress, WireFault> {
        let (mut progress, mut received) = (Progress::default(), 0);
        let mut chunk = vec![0; CHUNK_BYTES];
        while received < TURN_BYTES {
            match self.connection.read_tls(&mut &*self.socket) {
                Ok(0) => return Err(WireFault::Eof),
                Ok(bytes) => received += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(WireFault::Os(errno(&error))),
            }
            let processed = self.connection.process_new_packets();
            let state = match processed {
                Ok(state) => state,
                Err(error) => {
                    // TLS has prepared an alert, so that the other side learns why.
                    while self.connection.wants_write() && self.connection.write_tls(&mut &*self.socket).is_ok() {}
                    return Err(WireFault::Tls(error));
                }
            };
            progress.any = true;
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let bytes = self.connection.reader().read(&mut chunk).map_err(|error| WireFault::Os(errno(&error)))?;
                left = left.saturating_sub(bytes);
                let mut bytes = &chunk[..bytes];
                while let Some(item) = self.decoder.take(&mut bytes).map_err(WireFault::Frame)? {
                    into.push(item);
                }
            }
            if state.peer_has_closed() {
                progress.has_closed = true;
                break;
            }
        }
        Ok(progress)
    }

    /// Keeps a fault until what came before it has been heard.
    pub(super) fn defer(&mut self, fault: WireFault) {
        self.deferred = Some(fault);
    }

    pub(super) fn take_deferred(&mut self) -> Option<WireFault> {
        self.deferred.take()
    }

    /// Says that nothing more will be sent. It goes out with the next [`Wire::flush`].
    pub(super) fn say_end(&mut self) {
        self.connection.send_close_notify();
    }

    /// Lets the socket send nothing more after what it has.
    pub(super) fn end_sending(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
