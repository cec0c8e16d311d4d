//! The socket, the connections, and the threads that serve them.
//!
//! All worker threads wait on one epoll set whose entries fire once and are armed again when their packet is answered: a connection
//! is served by one thread at a time, in order, and any thread serves any. When a thread takes work and no other is idle, one
//! more is started, so that slow requests on some files do not keep the others waiting; threads in excess end.
//!
//! To wake a thread on an idle processor takes longer than most requests. So after the answer to a client that asks again at once, the thread polls for the
//! next packet a little while before it arms the connection.

use crate::connection::{Connection, End};
use crate::log::note;
use crate::parts::is_heard_of_the_gone;
use crate::serving::Serves;
use crate::threads;
use crate::{BrokerError, guard};
use rustix::event::{EventfdFlags, epoll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_store::packet::{self, PacketError};
use stripewise_store::protocol::{Refusal, Reply, Request};

const WAKE: u64 = 0;
const LISTENER: u64 = 1;
const FIRST_CONNECTION: u64 = 2;
/// Idle threads kept.
const SPARE_THREADS: usize = 4;
/// Beyond this, requests wait for a thread.
const MAX_THREADS: usize = 128;
/// A peer that does not take its answer for this long is given up.
const SEND_PATIENCE: Duration = Duration::from_secs(30);
/// Packets of a connection that are taken one after the other, before those of others have their turn.
const MAX_IN_A_ROW: usize = 16;
/// So long the next packet of a client that asks again at once is polled for.
const POLLING: Duration = Duration::from_micros(50);
/// A packet that comes so soon after the last answer, with the waking of a thread in it, is one of a client that asks again at once.
const AT_ONCE: Duration = Duration::from_micros(150);
/// How often files whose users may have died unheard are looked at.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

type Received = Result<(Request, Vec<OwnedFd>), PacketError>;

struct Shared {
    core: Arc<dyn Serves>,
    epoll: OwnedFd,
    wake: OwnedFd,
    listener: OwnedFd,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    stopping: AtomicBool,
    idle: AtomicUsize,
    /// A thread polls for a packet: one at a time, the others leave their processors to programs.
    polling: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Service {
    shared: Arc<Shared>,
    sweeper: JoinHandle<()>,
}

impl Service {
    pub(crate) fn start(core: Arc<dyn Serves>, listener: OwnedFd) -> Result<Self, BrokerError> {
        let fault = |action| move |source| BrokerError::Os { action, source };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(fault("making an epoll set"))?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(fault("making an eventfd"))?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(fault("preparing the socket"))?;
        let add = |source: &OwnedFd, number, flags| {
            epoll::add(&epoll, source, epoll::EventData::new_u64(number), flags).map_err(fault("filling the epoll set"))
        };
        add(&wake, WAKE, epoll::EventFlags::IN)?;
        add(&listener, LISTENER, epoll::EventFlags::IN | epoll::EventFlags::ONESHOT)?;
        let shared = Arc::new(Shared {
            core,
            epoll,
            wake,
            listener,
            connections: Mutex::default(),
            next: AtomicU64::new(FIRST_CONNECTION),
            stopping: AtomicBool::new(false),
            idle: AtomicUsize::new(0),
            polling: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let sweeping = Arc::clone(&shared);
        let sweeper = threads::spawn("stripewise-sweep", move || sweeping.sweep())?;
        for _ in 0..SPARE_THREADS {
            Shared::add_thread(&shared)?;
        }
        Ok(Self { shared, sweeper })
    }

    /// Ends the threads once their requests are answered, and closes all connections.
    pub(crate) fn stop(self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Stays readable, so every thread sees it.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        loop {
            // Taken one by one: a thread that was just started may still add itself.
            let Some(thread) = guard(&self.shared.threads).pop() else { break };
            let _ = thread.join();
        }
        self.shared.core.rechecks().wake();
        let _ = self.sweeper.join();
        self.shared.core.agent_lanes().stop();
        self.shared.hear_out();
        guard(&self.shared.connections).clear();
    }
}

impl Shared {
    fn add_thread(shared: &Arc<Self>) -> Result<(), BrokerError> {
        let mut threads = guard(&shared.threads);
        threads.retain(|thread| !thread.is_finished());
        if threads.len() < MAX_THREADS && !shared.stopping.load(Ordering::SeqCst) {
            let working = Arc::clone(shared);
            // Counted here, so that two that look at once do not both see none idle.
            shared.idle.fetch_add(1, Ordering::SeqCst);
            let work = move || Self::work(&working);
            match threads::spawn("stripewise-broker", work) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    shared.idle.fetch_sub(1, Ordering::SeqCst);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn work(shared: &Arc<Self>) {
        let mut buffer = packet::Buffer::default();
        loop {
            let mut events = Vec::with_capacity(1);
            match epoll::wait(&shared.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => {
                    note!(shared.core.context().log(), error, error = %errno, "the broker cannot wait for requests");
                    return;
                }
            }
            let Some(event) = events.first() else { continue };
            let number = event.data.u64();
            if number == WAKE || shared.stopping.load(Ordering::SeqCst) {
                return;
            }
            if shared.idle.fetch_sub(1, Ordering::SeqCst) == 1 {
                // Without a further thread the request is served all the same, only others wait.
                let _ = Self::add_thread(shared);
            }
            if number == LISTENER {
                shared.accept();
            } else {
                shared.serve(number, &mut buffer);
                shared.core.in_spare_time();
            }
            if shared.idle.fetch_add(1, Ordering::SeqCst) >= 2 * SPARE_THREADS {
                shared.idle.fetch_sub(1, Ordering::SeqCst);
                return;
            }
        }
    }

    fn arm(&self, source: impl AsFd, number: u64) -> rustix::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::modify(&self.epoll, source, epoll::EventData::new_u64(number), flags)
    }

    fn accept(&self) {
        match rustix::net::accept_with(&self.listener, rustix::net::SocketFlags::CLOEXEC) {
            Ok(socket) => {
                if let Err(errno) = self.add_connection(socket) {
                    note!(self.core.context().log(), warn, error = %errno, "a connection was refused");
                }
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => {
                note!(self.core.context().log(), warn, error = %errno, "a connection cannot be accepted; raise the limit of open files");
                // Without descriptors the socket stays readable; do not spin on it.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        if let Err(errno) = self.arm(&self.listener, LISTENER) {
            note!(self.core.context().log(), error, error = %errno, "the broker takes no more connections");
        }
    }

    fn add_connection(&self, socket: OwnedFd) -> rustix::io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&socket)?;
        rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Send, Some(SEND_PATIENCE))?;
        let id = self.next.fetch_add(1, Ordering::SeqCst);
        let end = End::Program(socket);
        let connection = Arc::new(Connection {
            id,
            end,
            peer,
            groups: OnceLock::new(),
            client: Arc::default(),
            served: Mutex::default(),
        });
        guard(&self.connections).insert(id, Arc::clone(&connection));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(&self.epoll, socket_of(&connection), epoll::EventData::new_u64(id), flags).inspect_err(|_| {
            guard(&self.connections).remove(&id);
        })
    }

    /// Answers a packet of the connection, and those that come at once behind it: armed meanwhile, the connection would wake another thread for each.
    fn serve(&self, number: u64, buffer: &mut packet::Buffer) {
        let Some(connection) = guard(&self.connections).get(&number).cloned() else { return };
        // If serving panics, the client sees a closed connection instead of waiting for ever.
        let mut ending = Ending { shared: self, connection: &connection, lives: false };
        let mut asks_at_once = guard(&connection.served).is_some_and(|last| last.elapsed() < AT_ONCE);
        let mut received = packet::receive(socket_of(&connection), buffer);
        for left in (0..MAX_IN_A_ROW).rev() {
            ending.lives = false;
            ending.lives = self.serve_packet(&connection, received);
            *guard(&connection.served) = Some(Instant::now());
            if !ending.lives || left == 0 || self.stopping.load(Ordering::SeqCst) {
                return;
            }
            let polled = if asks_at_once { self.poll(&connection, buffer) } else { None };
            let Some(next) = polled.or_else(|| packet::receive_now(socket_of(&connection), buffer)) else {
                if asks_at_once {
                    // Looked for in vain: not again before a packet has come at once.
                    *guard(&connection.served) = None;
                }
                return;
            };
            received = next;
            asks_at_once = true;
        }
    }

    /// The next packet of the connection, if it comes soon.
    fn poll(&self, connection: &Connection, buffer: &mut packet::Buffer) -> Option<Received> {
        if self.polling.swap(true, Ordering::SeqCst) {
            return None;
        }
        let begun = Instant::now();
        let next = loop {
            match packet::receive_now(socket_of(connection), buffer) {
                None if begun.elapsed() < POLLING => {
                    self.core.in_spare_time();
                    // The client may be waiting for this processor.
                    rustix::thread::sched_yield();
                }
                next => break next,
            }
        };
        self.polling.store(false, Ordering::SeqCst);
        next
    }

    /// Returns whether the connection goes on.
    fn serve_packet(&self, connection: &Arc<Connection>, received: Received) -> bool {
        match received {
            // Its answer would reach nobody; the next packet may be one that is heard.
            Ok((request, _)) if !is_heard_of_the_gone(&request) && connection.has_hung_up() => true,
            Ok((request @ Request::Unanswered(_), descriptors)) => {
                let answer = self.core.answer(connection, request, descriptors);
                if let Some((reply @ Reply::Refused(refusal), _)) = &answer {
                    self.note(reply);
                    note!(self.core.context().log(), warn, error = %refusal, "what a client reported is not recorded");
                }
                answer.is_some()
            }
            Ok((request, descriptors)) => {
                let Some((reply, descriptors)) = self.core.answer(connection, request, descriptors) else {
                    return false;
                };
                self.note(&reply);
                let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
                packet::send(socket_of(connection), &reply, &borrowed).is_ok()
            }
            Err(PacketError::Malformed(error)) => {
                let what =
                    format!("the broker does not understand the request ({error}); use one version of stripewise");
                let reply = Reply::Refused(Refusal::Invalid { what });
                packet::send(socket_of(connection), &reply, &[]).is_ok()
            }
            Err(PacketError::Closed | PacketError::Truncated | PacketError::Os(_)) => false,
        }
    }

    fn note(&self, reply: &Reply) {
        if matches!(reply, Reply::Refused(_)) {
            self.core.context().counts().note_refused_request();
        }
    }

    /// Takes in that clients are gone, and what they said before, where no thread has come to it: what they left is freed now and not
    /// found by the next broker. Clients that live are left alone; they ask the next one.
    fn hear_out(&self) {
        let mut buffer = packet::Buffer::default();
        let connections: Vec<_> = guard(&self.connections).values().cloned().collect();
        for connection in connections {
            while connection.has_hung_up() && guard(&self.connections).contains_key(&connection.id) {
                self.serve(connection.id, &mut buffer);
            }
        }
    }

    /// Looks again at files whose users may have gone without a word.
    fn sweep(&self) {
        let is_over = || self.stopping.load(Ordering::SeqCst);
        while let Some(files) = self.core.rechecks().next(RECHECK_INTERVAL, is_over) {
            self.core.begin_rechecks();
            for file in files {
                if self.core.recheck_again(file) {
                    self.core.rechecks().forget(file);
                }
            }
        }
    }
}

/// Only programs of this host are served here.
fn socket_of(connection: &Connection) -> &OwnedFd {
    match &connection.end {
        End::Program(socket) => socket,
        End::Host(host) => unreachable!("host {host} has no socket"),
    }
}

/// Arms the connection again or, when it ended, tells the core.
struct Ending<'a> {
    shared: &'a Shared,
    connection: &'a Arc<Connection>,
    lives: bool,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let connection = self.connection;
        if self.lives && self.shared.arm(socket_of(connection), connection.id).is_ok() {
            return;
        }
        let _ = epoll::delete(&self.shared.epoll, socket_of(connection));
        guard(&self.shared.connections).remove(&connection.id);
        self.shared.core.connection_ended(connection);
    }
}
