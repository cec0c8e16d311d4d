//! How a link begins: keys, introductions, and the word of both sides that they accept it.

use super::error::LinkError;
use super::frame::{FRAMES_VERSION, Frame, Kind, Received, encode_hello};
use super::hears::Hears;
use super::inbox::Inbox;
use super::introduction::Introduction;
use super::key::ClusterKey;
use super::limits::Limits;
use super::link::{Link, leave};
use super::peer::{Peer, name};
use super::socket::{Ready, Wake, wait};
use super::wire::{Progress, Wire, WireFault};
use super::{threads, tls};
use crate::guard;
use rustix::io::Errno;
use rustls::{AlertDescription, CertificateError, Connection, Error};
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So that no sum of times overflows.
const MAX_PATIENCE: Duration = Duration::from_secs(1 << 30);
/// For how long a refusal waits until the other side has read it.
const FAREWELL: Duration = Duration::from_secs(2);
/// Dropped of what a refused one still sends.
const FAREWELL_BYTES: usize = 1 << 20;

/// Connects to a listener, with the usual limits.
pub fn connect(
    address: SocketAddr,
    key: &ClusterKey,
    introduction: &Introduction,
    hears: Arc<dyn Hears>,
    patience: Duration,
) -> Result<Arc<Peer>, LinkError> {
    connect_with(address, key, introduction, hears, patience, Limits::default())
}

/// Connects to a listener. When this returns, both sides have accepted the link. It takes `patience` at most.
pub fn connect_with(
    address: SocketAddr,
    key: &ClusterKey,
    introduction: &Introduction,
    hears: Arc<dyn Hears>,
    patience: Duration,
    limits: Limits,
) -> Result<Arc<Peer>, LinkError> {
    introduction.check().map_err(|what| LinkError::Introduction { what })?;
    let patience = patience.min(MAX_PATIENCE);
    let deadline = Instant::now() + patience;
    let connection = tls::connect(key).map_err(|error| LinkError::Handshake { address, what: error.to_string() })?;
    // A time-out of zero is an error of its own.
    let socket = TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)))
        .map_err(|error| LinkError::Connect { address, source: connect_error(&error) })?;
    let greeting = Greeting { address, introduction, hears: &hears, limits, deadline, patience };
    let link = greeting.greet(connection, &Arc::new(socket), Side::Connecting, |_| Ok(()))?;
    let peer = Arc::clone(&link.peer);
    start(link)?;
    Ok(peer)
}

fn connect_error(error: &std::io::Error) -> Errno {
    match error.kind() {
        std::io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

fn start(link: Link) -> Result<(), LinkError> {
    let (peer, hears) = (Arc::clone(&link.peer), Arc::clone(&link.hears));
    let inbox = Arc::clone(&link.inbox);
    threads::spawn("stripewise-link", threads::events(), move || link.run()).inspect_err(|why| {
        peer.end(why.clone());
        inbox.finish();
        leave(&hears, &peer, why);
    })
}

/// Which side this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Listening,
    Connecting,
}

/// What a link is begun with.
pub(super) struct Greeting<'a> {
    pub(super) address: SocketAddr,
    pub(super) introduction: &'a Introduction,
    pub(super) hears: &'a Arc<dyn Hears>,
    pub(super) limits: Limits,
    pub(super) deadline: Instant,
    /// How long before the deadline this began.
    pub(super) patience: Duration,
}

impl Greeting<'_> {
    /// Greets over a socket. `admit` sees the peer before [`Hears::met`] and may refuse it. Blocks until the deadline at most, besides what `met` takes.
    pub(super) fn greet(
        &self,
        connection: Connection,
        socket: &Arc<TcpStream>,
        side: Side,
        admit: impl FnOnce(&Arc<Peer>) -> Result<(), LinkError>,
    ) -> Result<Link, LinkError> {
        let os = |action| move |source| LinkError::Os { action, source };
        let io = |error: std::io::Error| os("preparing a socket")(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        socket.set_nonblocking(true).and_then(|()| socket.set_nodelay(true)).map_err(io)?;
        let wake = Wake::new().map_err(os("making an eventfd"))?;
        let mut wire = Wire::new(connection, Arc::clone(socket));
        wire.send_first(&encode_hello(self.introduction));
        let mut received = Vec::new();
        let theirs = match self.introduced(&mut wire, socket, &mut received) {
            Ok(theirs) => theirs,
            Err(error) => return Err(self.refuse(&mut wire, socket, None, error)),
        };
        if let Err(error) = self.introduction.accepts(&theirs, self.address) {
            // The other side has our introduction and says so itself.
            return Err(self.refuse(&mut wire, socket, None, error));
        }
        let peer = Arc::new(Peer::new(theirs, self.address, wire, wake));
        if side == Side::Connecting {
            self.welcomed(&peer, socket, &mut received)?;
        }
        if let Err(error) = admit(&peer).and_then(|()| self.meet(&peer)) {
            let text = match &error {
                LinkError::Unwanted { what, .. } => what.clone(),
                error => error.to_string(),
            };
            peer.end(error.clone());
            let refusal = Frame::encode_text(Kind::Refusal, 0, &text);
            return match guard(&peer.wire).as_mut() {
                Some(wire) => Err(self.refuse(wire, socket, Some(&refusal), error)),
                None => Err(error),
            };
        }
        let link = self.accepted(&peer, socket, side, &mut received);
        link.inspect_err(|why| {
            peer.end(why.clone());
            peer.drop_wire();
            leave(self.hears, &peer, why);
        })
    }

    /// The rest, after this side has accepted.
    fn accepted(
        &self,
        peer: &Arc<Peer>,
        socket: &Arc<TcpStream>,
        side: Side,
        received: &mut Vec<Received>,
    ) -> Result<Link, LinkError> {
        if let Some(wire) = guard(&peer.wire).as_mut() {
            wire.send_first(&Frame::encode(Kind::Welcome, 0, &[]));
            wire.flush(None).map_err(|fault| self.fault(fault, Some(peer)))?;
        }
        if side == Side::Listening {
            self.welcomed(peer, socket, received)?;
        }
        Ok(Link {
            peer: Arc::clone(peer),
            socket: Arc::clone(socket),
            inbox: Inbox::start(peer, self.hears, &threads::events())?,
            hears: Arc::clone(self.hears),
            limits: self.limits,
            first: std::mem::take(received),
        })
    }

    /// Waits for the other side's introduction.
    fn introduced(
        &self,
        wire: &mut Wire,
        socket: &TcpStream,
        received: &mut Vec<Received>,
    ) -> Result<Introduction, LinkError> {
        match self.next(wire, socket, received, None)? {
            Received::Hello { version: FRAMES_VERSION, introduction } => Ok(introduction),
            Received::Hello { version, introduction } => Err(LinkError::OtherFrames {
                host: name(&introduction, self.address),
                theirs: version,
                ours: FRAMES_VERSION,
            }),
            Received::Frame(_) => unreachable!("a decoder begins with a hello"),
        }
    }

    /// Waits until the other side accepts.
    fn welcomed(&self, peer: &Arc<Peer>, socket: &TcpStream, received: &mut Vec<Received>) -> Result<(), LinkError> {
        let mut wire = guard(&peer.wire);
        let Some(wire) = wire.as_mut() else { return Err(LinkError::Closed { host: peer.name() }) };
        let host = peer.name();
        match self.next(wire, socket, received, Some(peer))? {
            Received::Frame(frame) if frame.kind == Kind::Welcome => Ok(()),
            Received::Frame(frame) if frame.kind == Kind::Refusal => {
                Err(LinkError::Refused { host, what: frame.text() })
            }
            other => {
                let what = match other {
                    Received::Frame(frame) => format!("a frame of kind {:?} before it accepted the link", frame.kind),
                    Received::Hello { .. } => "a second introduction".to_owned(),
                };
                Err(LinkError::Rubbish { host, what })
            }
        }
    }

    /// What comes next, of what was received before or comes now.
    fn next(
        &self,
        wire: &mut Wire,
        socket: &TcpStream,
        received: &mut Vec<Received>,
        peer: Option<&Arc<Peer>>,
    ) -> Result<Received, LinkError> {
        while received.is_empty() {
            if let Some(fault) = wire.take_deferred() {
                return Err(self.fault(fault, peer));
            }
            wire.flush(None).map_err(|fault| self.fault(fault, peer))?;
            if Instant::now() >= self.deadline {
                return Err(LinkError::HandshakeTime { address: self.address, patience: self.patience });
            }
            let wanted = Ready { read: true, write: wire.is_blocked() };
            let ready = wait(socket, wanted, None, Some(self.deadline))
                .map_err(|source| LinkError::Os { action: "waiting for a host", source })?;
            if ready.read {
                match wire.receive(received) {
                    Ok(Progress { has_closed: true, .. }) => wire.defer(WireFault::Closed),
                    Ok(_) => {}
                    // After a hello, what another version sends cannot be read.
                    Err(fault) => wire.defer(fault),
                }
            }
        }
        Ok(received.remove(0))
    }

    fn meet(&self, peer: &Arc<Peer>) -> Result<(), LinkError> {
        let met = catch_unwind(AssertUnwindSafe(|| self.hears.met(peer)));
        let met = met.unwrap_or_else(|_| Err("a thread panicked, see the log".to_owned()));
        met.map_err(|what| LinkError::Unwanted { host: peer.name(), what })
    }

    /// Ends a link that is refused: sends what is prepared, and waits until the other side has read it, because a socket that is closed with
    /// unread data takes back what was sent last.
    fn refuse(&self, wire: &mut Wire, socket: &TcpStream, refusal: Option<&[u8]>, error: LinkError) -> LinkError {
        if let Some(refusal) = refusal {
            wire.send_first(refusal);
        }
        let deadline = Instant::now() + FAREWELL;
        let mut has_said = false;
        while wire.flush(None).is_ok() {
            if !wire.is_blocked() {
                if has_said {
                    break;
                }
                // Behind what was to be sent before, this side's introduction at least.
                has_said = true;
                wire.say_end();
                continue;
            }
            let wanted = Ready { read: false, write: true };
            if wait(socket, wanted, None, Some(deadline)).is_err() || Instant::now() >= deadline {
                return error;
            }
        }
        wire.end_sending();
        let (mut dropped, mut chunk) = (0, [0; 4096]);
        while dropped < FAREWELL_BYTES && Instant::now() < deadline {
            match (&mut &*socket).read(&mut chunk) {
                Ok(0) => break,
                Ok(bytes) => dropped += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if wait(socket, Ready { read: true, write: false }, None, Some(deadline)).is_err() {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        error
    }

    fn fault(&self, fault: WireFault, peer: Option<&Arc<Peer>>) -> LinkError {
        let address = self.address;
        if let Some(peer) = peer {
            let host = peer.name();
            return match fault {
                WireFault::Frame(error) => LinkError::Rubbish { host, what: error.to_string() },
                WireFault::Os(error) => LinkError::Broken { host, what: error.to_string() },
                WireFault::Tls(error) => LinkError::Broken { host, what: error.to_string() },
                WireFault::Eof => LinkError::Broken { host, what: "it closed the connection".to_owned() },
                WireFault::Closed => LinkError::ClosedThere { host },
            };
        }
        match fault {
            WireFault::Tls(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)) => {
                LinkError::OtherKey { address }
            }
            WireFault::Tls(Error::AlertReceived(AlertDescription::AccessDenied)) => LinkError::KeyRefused { address },
            WireFault::Tls(error) => LinkError::Handshake { address, what: error.to_string() },
            WireFault::Frame(error) => LinkError::Handshake { address, what: error.to_string() },
            WireFault::Os(error) => LinkError::Handshake { address, what: error.to_string() },
            WireFault::Eof | WireFault::Closed => {
                LinkError::Handshake { address, what: "it closed the connection without an introduction".to_owned() }
            }
        }
    }
}
