//! A process's side of the store: its connection to the broker, its process slot, its open files and objects.
//!
//! One [`Client`] per cluster and process. Control operations (open, create, place, truncate, sync) are requests to the broker over
//! one socket behind one lock; reads and writes use mapped memory and the servers only. A broker that went away is looked for
//! again with growing pauses, up to [`ClientOptions::patience`]; the client then says hello to the successor, opens its files again and
//! repeats the request that was not answered. Where none comes soon, [`ClientOptions::start_broker`] may start one. Once patience has come to its end, further requests try only once, until a broker answers again.
//!
//! Whether this process lives, others see from its process slot (`shared::processes`), a lock that the kernel keeps on a descriptor
//! that is never closed. Closing any other of that file would drop the lock as well, so a process asks for one only if it has none.

mod agent;
mod connection;
mod error;
mod expected;
mod fork;
mod handle;
mod name_changes;
pub(crate) mod objects;
mod open_file;
mod options;
mod process_table;
pub mod record_locks;
pub(crate) mod rings;
pub(crate) mod servers;
#[cfg(test)]
pub(crate) mod stand_in;
pub(crate) mod stub;

pub use connection::SOCKET_NAME;
pub use error::ClientError;
pub use fork::{Child, after_fork_in_child, after_fork_in_parent, before_fork};
pub use handle::Lookup;
pub use name_changes::{BegunChange, Name, NameChange, Standing, rename_to_free};
pub(crate) use open_file::OpenFile;
pub use options::{ClientOptions, OpenServer};
pub use rings::is_making_ring;

use crate::descriptors::{self, Descriptor, Received};
use crate::lock::{Guard, Lock};
use crate::packet::PacketError;
use crate::protocol::{Event, Refusal, Reply, Request};
use crate::server::stations::Stations;
use crate::shared::process_slot::{Incarnation, ProcessSlot};
use crate::shared::processes::Processes;
use crate::state::AGENT;
use connection::{Answer, Connection};
use objects::ObjectCache;
use open_file::OpenEntry;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec};
use servers::Seat;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;
use stripewise_layout::FileId;

/// A successor that stood ready has taken over before pauses grow to this; otherwise one is started, where the options say how.
const SUCCESSORS_PAUSE: Duration = Duration::from_millis(64);

/// A handle on the process's client; clones share it.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

/// What the handles and the open files share.
pub(crate) struct Core {
    state_directory: PathBuf,
    /// `run/` of the state directory.
    run: Descriptor,
    options: ClientOptions,
    base: RawFd,
    cluster: String,
    seats: Box<[Seat]>,
    names: ManagedNames,
    /// Other hosts use the cluster too, as of the connection.
    shared: bool,
    /// Requests sent to the broker and waited for.
    requests: AtomicU64,
    pub(crate) stations: Option<Arc<Stations>>,
    pub(crate) processes: Processes,
    /// Process slot + 1 in the low 16 bits, incarnation above; 0: none (a child that found no free slot).
    identity: AtomicU64,
    pub(crate) objects: ObjectCache,
    pub(crate) rings: rings::Rings,
    /// To servers whose I/O runs in the broker.
    agent: Arc<agent::Agent>,
    control: Lock<Control>,
}

/// Which files are managed, as of the connection.
struct ManagedNames {
    managed: Vec<String>,
    expected: Vec<String>,
    min_sizes: Vec<(String, u64)>,
}

struct Control {
    connection: Option<Connection>,
    open: BTreeMap<(FileId, bool), OpenEntry>,
    fork: fork::Pending,
    /// Files made here of which no broker knows yet that they have their names; see [`Core::say_linked`].
    linked: Vec<FileId>,
    /// Calls on names that returned while no broker could be told.
    untold: Vec<name_changes::Untold>,
    /// Calls on names that were reported on this connection without an answer. The next answer says that the broker has taken them in.
    unconfirmed: Vec<name_changes::Untold>,
    /// A request has waited in vain for a broker; the next ones do not wait again until one answers.
    given_up: bool,
}

impl Core {
    fn connect(state_directory: &Path, options: ClientOptions) -> Result<Self, ClientError> {
        let base = options.descriptor_base.unwrap_or_else(descriptors::default_base);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let run = rustix::fs::open(state_directory.join("run"), flags, Mode::empty())
            .map_err(|source| ClientError::StateDirectory { path: state_directory.to_owned(), source })?;
        let run = Descriptor::raise(run, base);
        let (connection, welcome, processes) = first_connection(&run, base, &options).map_err(|error| {
            let path = state_directory.to_owned();
            match (error, agent_patience(&run)) {
                (ClientError::Packet(PacketError::Os(_) | PacketError::Closed), Some(_)) => {
                    ClientError::NoAgent { path, waited_s: patience_with(&run, &options).as_secs() }
                }
                (ClientError::Packet(PacketError::Os(source)), None) => ClientError::Unreachable { path, source },
                (other, _) => other,
            }
        })?;
        // What waits for a successor waits for a change of master too.
        let patience = options.patience.max(agent_patience(&run).unwrap_or_default());
        let options = ClientOptions { patience, ..options };
        let Reply::Welcome { cluster, servers, managed, expected, min_sizes, shared } = welcome.reply else {
            return Err(unexpected("Hello", &welcome.reply));
        };
        let names = ManagedNames { managed, expected, min_sizes };
        let stations = match welcome.descriptors.into_iter().next() {
            Some(descriptor) => Some(Arc::new(
                Stations::open(&descriptor, servers.len())
                    .map_err(|error| ClientError::Unexpected { request: "Hello", what: error.to_string() })?,
            )),
            None => None,
        };
        let (slot, incarnation) = processes.claim().ok_or(ClientError::NoProcessSlot)?;
        let limit = options.object_descriptors.min(descriptors::space_above(base) / 2);
        let core = Self {
            state_directory: state_directory.to_owned(),
            run,
            base,
            cluster,
            seats: servers.into_iter().map(Seat::new).collect(),
            names,
            shared,
            requests: AtomicU64::new(0),
            stations,
            processes,
            identity: AtomicU64::new(to_identity(slot, incarnation)),
            objects: ObjectCache::new(limit),
            rings: rings::Rings::new(base),
            agent: Arc::default(),
            control: Lock::new(Control {
                connection: Some(connection),
                open: BTreeMap::new(),
                linked: Vec::new(),
                fork: fork::Pending::default(),
                untold: Vec::new(),
                unconfirmed: Vec::new(),
                given_up: false,
            }),
            options,
        };
        core.report(&mut core.control(), Event::Claimed { slot: slot.0, incarnation: incarnation.0 });
        Ok(core)
    }

    /// The slot and incarnation of this process.
    #[inline]
    pub(crate) fn identity(&self) -> Option<(ProcessSlot, Incarnation)> {
        let word = self.identity.load(Acquire);
        (word != 0).then(|| (ProcessSlot((word & 0xffff) as u16 - 1), Incarnation(word >> 16)))
    }

    fn set_identity(&self, identity: Option<(ProcessSlot, Incarnation)>) {
        self.identity.store(identity.map_or(0, |(slot, incarnation)| to_identity(slot, incarnation)), Release);
    }

    pub(crate) fn patience(&self) -> Duration {
        self.options.patience
    }

    pub(crate) fn base(&self) -> RawFd {
        self.base
    }

    fn control(&self) -> Guard<'_, Control> {
        let mut control = self.control.lock();
        self.settle_forks(&mut control);
        control
    }

    fn call(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<Answer, ClientError> {
        self.call_locked(&mut self.control(), request, descriptors)
    }

    /// Sets a file's size. Repeated to a successor of the broker, or to the next master, it takes effect once.
    pub(crate) fn truncate(&self, file: FileId, size_bytes: u64) -> Result<(), ClientError> {
        let number = if self.shared { random_number()? } else { 0 };
        // Held for numbering and asking, so that the number is this truncation's.
        let mut control = self.control();
        if let Some((slot, _)) = self.identity() {
            self.processes.number_truncation(slot);
        }
        self.done_locked(&mut control, &Request::Truncate { file, size_bytes, number }, &[])
    }

    /// Tells the broker what happened, without waiting. A broker that is gone need not know: its successor learns what matters from the next open.
    fn report(&self, control: &mut Control, event: Event) {
        self.say_linked(control, &Request::Unanswered(event));
        self.send(control, event);
    }

    fn send(&self, control: &mut Control, event: Event) {
        if control.connection.as_ref().is_some_and(|connection| connection.report(event).is_err()) {
            control.connection = None;
        }
    }

    /// Reports that new files have their names, before `request`. It is not reported at once: the first write of a file says it along with what it
    /// asks for, and so does its close.
    fn say_linked(&self, control: &mut Control, request: &Request) -> Option<Request> {
        let mut along = None;
        for file in std::mem::take(&mut control.linked) {
            match request {
                Request::Begin { file: begun, bytes } if *begun == file => {
                    along = Some(Request::LinkedAndBegin { file, bytes: *bytes });
                }
                Request::Close { file: closed } | Request::Unanswered(Event::Closed { file: closed })
                    if *closed == file => {}
                _ => self.send(control, Event::Linked { file }),
            }
        }
        along
    }

    /// A request whose answer carries nothing.
    pub(crate) fn done(&self, request: &Request, descriptors: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        self.done_locked(&mut self.control(), request, descriptors)
    }

    fn done_locked(
        &self,
        control: &mut Control,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        match self.call_locked(control, request, descriptors)?.reply {
            Reply::Done => Ok(()),
            reply => Err(unexpected(name_of(request), &reply)),
        }
    }

    /// An answer with the descriptors that came along.
    pub(crate) fn with_descriptors(
        &self,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Reply, Vec<OwnedFd>), ClientError> {
        let answer = self.call(request, descriptors)?;
        Ok((answer.reply, answer.descriptors.into_iter().map(into_owned).collect()))
    }

    pub(crate) fn server_count(&self) -> usize {
        self.seats.len()
    }

    /// A descriptor of an object whose mode refuses this process, by way of the broker.
    pub(crate) fn object_from_broker(&self, request: &Request) -> Result<Descriptor, ClientError> {
        let answer = self.call(request, &[])?;
        match (answer.reply, answer.descriptors.into_iter().next()) {
            (Reply::Object, Some(descriptor)) => Ok(Descriptor::raise(into_owned(descriptor), self.base)),
            (reply, _) => Err(unexpected("OpenObject", &reply)),
        }
    }

    /// Sends `request` until a broker has answered it or patience is at its end. Refusals are errors.
    fn call_locked(
        &self,
        control: &mut Control,
        request: &Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answer, ClientError> {
        let along = if control.linked.is_empty() { None } else { self.say_linked(control, request) };
        let request = along.as_ref().unwrap_or(request);
        self.requests.fetch_add(1, Relaxed);
        let mut give_up_at = if control.given_up { now() } else { now() + self.options.patience };
        let mut pause = Duration::from_millis(1);
        let mut start_broker = self.options.start_broker;
        loop {
            let result = match &mut control.connection {
                Some(connection) => connection.call(request, descriptors).map_err(ClientError::Packet),
                None => self.reconnect(control).and_then(|()| match &mut control.connection {
                    Some(connection) => connection.call(request, descriptors).map_err(ClientError::Packet),
                    None => Err(ClientError::Packet(PacketError::Closed)),
                }),
            };
            control.given_up &= result.is_err();
            if result.is_ok() {
                control.unconfirmed.clear();
            }
            match result {
                Ok(Answer { reply: Reply::Refused(refusal), .. }) => return Err(ClientError::Refused(refusal)),
                Ok(answer) => return Ok(answer),
                Err(ClientError::Packet(PacketError::Closed) | ClientError::Unreachable { .. }) => {
                    control.connection = None;
                    if (pause >= SUCCESSORS_PAUSE || now() >= give_up_at)
                        && start_broker.take().is_some_and(|start| start(&self.state_directory))
                    {
                        give_up_at = now() + self.options.patience;
                    }
                    if now() >= give_up_at {
                        control.given_up = true;
                        let waited_s = self.options.patience.as_secs();
                        return Err(ClientError::Lost { path: self.state_directory.clone(), waited_s });
                    }
                    sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(100));
                }
                Err(error) => {
                    // Request and answer may be out of step now.
                    control.connection = None;
                    return Err(error);
                }
            }
        }
    }

    /// Connects to a successor (or, in a child, to the broker) and tells it who this is and what it has open.
    fn reconnect(&self, control: &mut Control) -> Result<(), ClientError> {
        // Whether a broker that is lost has heard of them nobody knows.
        let unconfirmed = std::mem::take(&mut control.unconfirmed);
        control.untold.extend(unconfirmed);
        let unreachable = |source| ClientError::Unreachable { path: self.state_directory.clone(), source };
        let mut connection = Connection::open(self.run.as_fd(), self.base).map_err(unreachable)?;
        match connection.hello_again()? {
            Reply::Welcome { cluster, .. } if cluster == self.cluster => {}
            Reply::Welcome { .. } => return Err(ClientError::OtherState { path: self.state_directory.clone() }),
            Reply::Refused(refusal) => return Err(connection.not_welcome(refusal)),
            reply => return Err(unexpected("Hello", &reply)),
        }
        let table = rustix::fs::statat(&self.run, "processes", AtFlags::empty())
            .map_err(|source| ClientError::Os { action: "looking at the table of processes", source })?;
        if (table.st_dev, table.st_ino) != identity_of(self.processes.descriptor())? {
            return Err(ClientError::OtherState { path: self.state_directory.clone() });
        }
        if let Some((slot, incarnation)) = self.identity() {
            connection.report(Event::Claimed { slot: slot.0, incarnation: incarnation.0 })?;
        }
        for ((file, _), entry) in &control.open {
            let request = Request::Open { file: *file };
            // A right that this process can prove no more costs it this file, and not the others.
            let answer = entry.stub.with_open(|stub| connection.call(&request, &[stub])).ok().transpose()?;
            let same = match answer.as_ref().map(|answer| (&answer.reply, answer.descriptors.first())) {
                Some((Reply::Opened { .. }, Some(block))) => identity_of(block.as_fd())? == entry.control_identity,
                _ => false,
            };
            entry.shared.replaced.store(!same, Release);
        }
        // After the files, for which the lane's requests are.
        if let Some(file) = self.agent.lane_file() {
            connection.call(&Request::Lane, &[file])?;
        }
        while let Some(untold) = control.untold.last() {
            untold.report(&mut connection)?;
            control.untold.pop();
        }
        control.connection = Some(connection);
        Ok(())
    }

    /// Looks whether the broker is there, and for a successor if not. For those who wait for something that a broker must do.
    pub(crate) fn check_broker(&self) -> Result<(), ClientError> {
        self.check_broker_locked(&mut self.control())
    }

    fn check_broker_locked(&self, control: &mut Control) -> Result<(), ClientError> {
        if control.connection.as_ref().is_some_and(|connection| !connection.is_lost()) {
            return Ok(());
        }
        control.connection = None;
        self.reconnect(control)
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if let Some((slot, _)) = self.identity() {
            self.processes.release(slot);
        }
    }
}

/// For how long the broker's place may be empty, as the agent of this host says; `None`: a broker serves one host alone, or there was no agent here yet.
fn agent_patience(run: &Descriptor) -> Option<Duration> {
    rustix::fs::statat(run, AGENT, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let note = rustix::fs::openat(run, AGENT, flags, Mode::empty());
    let mut seconds = [0; 8];
    let read = note.and_then(|note| rustix::io::pread(&note, &mut seconds, 0));
    Some(Duration::from_secs(if read == Ok(seconds.len()) { u64::from_le_bytes(seconds) } else { 0 }))
}

/// For how long a first connection is tried. An agent may be about to come: it says so when it begins to look for a master.
fn patience_with(run: &Descriptor, options: &ClientOptions) -> Duration {
    let usual = options.connect_patience;
    agent_patience(run).map_or(usual, |agents| usual.max(options.patience).max(agents))
}

/// A broker that dies before all was said is one that was not there yet.
fn first_connection(
    run: &Descriptor,
    base: RawFd,
    options: &ClientOptions,
) -> Result<(Connection, Answer, Processes), ClientError> {
    let begun = now();
    let welcomed = || {
        let opened = Connection::open(run.as_fd(), base).map_err(PacketError::Os);
        let mut connection = opened.map_err(ClientError::Packet)?;
        let (welcome, processes) = process_table::open(&mut connection, run, base)?;
        Ok((connection, welcome, processes))
    };
    loop {
        match welcomed() {
            Err(ClientError::Packet(
                PacketError::Closed | PacketError::Os(Errno::CONNREFUSED | Errno::NOENT | Errno::AGAIN),
            )) if now() < begun + patience_with(run, options) => sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
}

fn to_identity(slot: ProcessSlot, incarnation: Incarnation) -> u64 {
    incarnation.0 << 16 | (u64::from(slot.0) + 1)
}

fn into_owned(received: Received) -> OwnedFd {
    // SAFETY: taken out of its owner.
    unsafe { <OwnedFd as rustix::fd::FromRawFd>::from_raw_fd(received.into_raw()) }
}

fn identity_of(descriptor: BorrowedFd<'_>) -> Result<(u64, u64), ClientError> {
    let status = rustix::fs::fstat(descriptor)
        .map_err(|source| ClientError::Os { action: "looking at a descriptor", source })?;
    Ok((status.st_dev, status.st_ino))
}

fn utf8(path: &Path) -> Result<String, ClientError> {
    path.to_str().map(str::to_owned).ok_or_else(|| {
        let what = format!("{}: managed files need a path in UTF-8", path.display());
        ClientError::Refused(Refusal::Invalid { what })
    })
}

fn unexpected(request: &'static str, reply: &Reply) -> ClientError {
    ClientError::Unexpected { request, what: format!("{reply:?}") }
}

fn missing_descriptors(request: &'static str) -> ClientError {
    ClientError::Unexpected { request, what: "too few descriptors".to_owned() }
}

fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Hello { .. } => "Hello",
        Request::Processes => "Processes",
        Request::Lane => "Lane",
        Request::Claimed { .. } => "Claimed",
        Request::Open { .. } => "Open",
        Request::Create { .. } => "Create",
        Request::Linked { .. } => "Linked",
        Request::Abandon { .. } => "Abandon",
        Request::Place { .. } => "Place",
        Request::Rescue { .. } => "Rescue",
        Request::Pin { .. } => "Pin",
        Request::Truncate { .. } => "Truncate",
        Request::Tidy { .. } => "Tidy",
        Request::Fragments { .. } => "Fragments",
        Request::Flush { .. } => "Flush",
        Request::Sync { .. } => "Sync",
        Request::Attributes { .. } => "Attributes",
        Request::Close { .. } => "Close",
        Request::BeginNameChange { .. } => "BeginNameChange",
        Request::EndNameChange { .. } => "EndNameChange",
        Request::OpenObject { .. } => "OpenObject",
        Request::Find => "Find",
        Request::IsExpected { .. } => "IsExpected",
        Request::Admin(_) => "Admin",
        Request::Begin { .. } => "Begin",
        Request::Unanswered(_) => "Unanswered",
        Request::Closing => "Closing",
        Request::LinkedAndBegin { .. } => "LinkedAndBegin",
        Request::Refresh { .. } => "Refresh",
        Request::SyncAll => "SyncAll",
    }
}

/// `CLOCK_MONOTONIC`, by the vDSO and not by libc.
/// A number by which a request is known when it is asked for again.
fn random_number() -> Result<u64, ClientError> {
    let mut number = [0; 8];
    rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty())
        .map_err(|source| ClientError::Os { action: "choosing a number", source })?;
    Ok(u64::from_ne_bytes(number))
}

pub(crate) fn now() -> Duration {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

pub(crate) fn sleep(time: Duration) {
    let _ = rustix::thread::nanosleep(&Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() });
}
