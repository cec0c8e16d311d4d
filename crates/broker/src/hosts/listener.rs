//! What others connect to.

use super::error::LinkError;
use super::greeting::{Greeting, Side};
use super::hears::Hears;
use super::introduction::Introduction;
use super::key::ClusterKey;
use super::limits::Limits;
use super::peer::Peer;
use super::refusals::Refusals;
use super::socket::{Ready, Wake, wait};
use super::{threads, tls};
use crate::guard;
use rustix::io::Errno;
use rustls::ServerConfig;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::dispatcher::Dispatch;

/// Connections that have not introduced themselves yet, and how many of them from one address.
const MAX_GREETINGS: usize = 64;
const MAX_GREETINGS_OF_ADDRESS: usize = 16;
/// When no connection can be taken for want of descriptors or memory.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    is_stopping: bool,
    last: u64,
    greetings: HashMap<u64, (IpAddr, Arc<TcpStream>)>,
    peers: HashMap<u64, Arc<Peer>>,
    /// Threads of links and the one that accepts.
    threads: usize,
}

struct Shared {
    address: SocketAddr,
    introduction: Introduction,
    hears: Arc<dyn Hears>,
    limits: Limits,
    config: Mutex<Arc<ServerConfig>>,
    events: Dispatch,
    refusals: Refusals,
    wake: Wake,
    state: Mutex<State>,
    fewer_threads: Condvar,
}

/// Accepts links. Dropping it ends it and them, and waits until all that came was heard, unless it is dropped by a thread of a link.
pub struct Listener(Arc<Shared>);

impl Listener {
    /// Listens, with the usual limits. Port 0 is a free one, see [`Listener::address`].
    pub fn start(
        address: SocketAddr,
        key: &ClusterKey,
        introduction: Introduction,
        hears: Arc<dyn Hears>,
    ) -> Result<Self, LinkError> {
        Self::start_with(address, key, introduction, hears, Limits::default())
    }

    /// Listens.
    pub fn start_with(
        address: SocketAddr,
        key: &ClusterKey,
        introduction: Introduction,
        hears: Arc<dyn Hears>,
        limits: Limits,
    ) -> Result<Self, LinkError> {
        introduction.check().map_err(|what| LinkError::Introduction { what })?;
        let config = config(key, address)?;
        let fault = |error: std::io::Error| LinkError::Listen {
            address,
            source: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        let socket = TcpListener::bind(address).map_err(fault)?;
        socket.set_nonblocking(true).map_err(fault)?;
        let shared = Arc::new(Shared {
            address: socket.local_addr().map_err(fault)?,
            introduction,
            hears,
            limits,
            config: Mutex::new(config),
            events: threads::events(),
            refusals: Refusals::new(),
            wake: Wake::new().map_err(|source| LinkError::Listen { address, source })?,
            state: Mutex::new(State { threads: 1, ..State::default() }),
            fewer_threads: Condvar::new(),
        });
        let accepting = Arc::clone(&shared);
        let accept = move || {
            accepting.accept(&socket);
            drop(socket);
            accepting.end_thread();
        };
        threads::spawn("stripewise-join", shared.events.clone(), accept)?;
        Ok(Self(shared))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Connections that were refused, which goes on counting.
    #[must_use]
    pub fn refused(&self) -> Arc<AtomicU64> {
        self.0.refusals.count()
    }

    /// New connections need this key from now on. Links that there are go on.
    pub fn use_key(&self, key: &ClusterKey) -> Result<(), LinkError> {
        *guard(&self.0.config) = config(key, self.0.address)?;
        Ok(())
    }
}

impl Listener {
    /// Ends the links that there are. Those who made them may come back.
    pub fn close_links(&self) {
        let peers: Vec<_> = guard(&self.0.state).peers.values().cloned().collect();
        peers.iter().for_each(|peer| peer.close());
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut state = guard(&self.0.state);
        state.is_stopping = true;
        let peers: Vec<_> = state.peers.values().cloned().collect();
        for (_, socket) in state.greetings.values() {
            let _ = socket.shutdown(Shutdown::Both);
        }
        drop(state);
        self.0.wake.wake();
        peers.iter().for_each(|peer| peer.close());
        if threads::is_of_a_link() {
            return;
        }
        let mut state = guard(&self.0.state);
        while state.threads > 0 {
            state = self.0.fewer_threads.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn config(key: &ClusterKey, address: SocketAddr) -> Result<Arc<ServerConfig>, LinkError> {
    tls::server(key).map_err(|error| LinkError::Handshake { address, what: error.to_string() })
}

impl Shared {
    fn accept(self: &Arc<Self>, socket: &TcpListener) {
        loop {
            if guard(&self.state).is_stopping {
                return;
            }
            match socket.accept() {
                Ok((connection, address)) => self.begin(connection, address),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let _ = wait(socket, Ready { read: true, write: false }, Some(&self.wake), None);
                }
                // The connection is gone already.
                Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    let source = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                    self.refusals.note(self.address, &LinkError::Os { action: "taking a connection", source });
                    let _ = wait(socket, Ready::default(), Some(&self.wake), Some(Instant::now() + PAUSE));
                }
            }
        }
    }

    /// Greets in a thread that then runs the link.
    fn begin(self: &Arc<Self>, connection: TcpStream, address: SocketAddr) {
        let connection = Arc::new(connection);
        let number = match self.admit(&connection, address) {
            Ok(number) => number,
            Err(what) => {
                self.refusals.note(address, &LinkError::Handshake { address, what });
                return;
            }
        };
        let shared = Arc::clone(self);
        let run = move || {
            shared.serve(number, &connection, address);
            drop(connection);
            shared.end_thread();
        };
        if let Err(error) = threads::spawn("stripewise-link", self.events.clone(), run) {
            self.refusals.note(address, &error);
            guard(&self.state).greetings.remove(&number);
            self.end_thread();
        }
    }

    fn admit(&self, connection: &Arc<TcpStream>, address: SocketAddr) -> Result<u64, String> {
        let mut state = guard(&self.state);
        let of_address = state.greetings.values().filter(|(other, _)| *other == address.ip()).count();
        if state.greetings.len() >= MAX_GREETINGS || of_address >= MAX_GREETINGS_OF_ADDRESS {
            return Err(format!(
                "{} connections have not introduced themselves yet, {of_address} of them from there",
                state.greetings.len()
            ));
        }
        state.last += 1;
        state.threads += 1;
        let number = state.last;
        state.greetings.insert(number, (address.ip(), Arc::clone(connection)));
        Ok(number)
    }

    fn serve(&self, number: u64, connection: &Arc<TcpStream>, address: SocketAddr) {
        let patience = self.limits.handshake;
        let config = Arc::clone(&guard(&self.config));
        let greeting = Greeting {
            address,
            introduction: &self.introduction,
            hears: &self.hears,
            limits: self.limits,
            deadline: Instant::now() + patience,
            patience,
        };
        let greeted = tls::accept(&config)
            .map_err(|error| LinkError::Handshake { address, what: error.to_string() })
            .and_then(|tls| greeting.greet(tls, connection, Side::Listening, |peer| self.add(number, peer)));
        guard(&self.state).greetings.remove(&number);
        match greeted {
            Ok(link) => link.run(),
            Err(why) => {
                // A stop is no refusal.
                if !guard(&self.state).is_stopping {
                    self.refusals.note(address, &why);
                }
            }
        }
        guard(&self.state).peers.remove(&number);
    }

    /// Adds a peer, unless a connected one has its name on another machine.
    fn add(&self, number: u64, peer: &Arc<Peer>) -> Result<(), LinkError> {
        let mut state = guard(&self.state);
        if state.is_stopping {
            return Err(LinkError::Unwanted { host: peer.name(), what: "this host is stopping".to_owned() });
        }
        for other in state.peers.values().filter(|other| other.why_ended().is_none()) {
            let (here, there) = (other.address().to_string(), peer.address().to_string());
            other.introduction().differs_from(peer.introduction(), &here, &there)?;
        }
        state.peers.insert(number, Arc::clone(peer));
        Ok(())
    }

    fn end_thread(&self) {
        guard(&self.state).threads -= 1;
        self.fewer_threads.notify_all();
    }
}
