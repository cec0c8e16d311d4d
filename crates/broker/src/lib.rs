//! The broker: the one process of a state directory that owns the mapping table, makes and frees objects, and writes control blocks.
//!
//! It runs as threads inside a `stripewise` command (or the parent of `stripewise run`), serves clients over a Unix socket, and is the broker for as
//! long as it holds `broker.lock`; a successor that waits for the lock takes over. Nothing that matters is in its memory alone: the
//! table is durable, sizes and slots are in shared memory, and every request may be repeated.
//!
//! It is made of parts, each with its own state behind private fields. A part uses those below it alone; what a lower one needs of a higher one is registered at the
//! start (`Load`). From the bottom up:
//!
//! | module | part | what |
//! |---|---|---|
//! | `context` | `Context` | cluster, servers, state directory, mapping table, processes |
//! | `rmt`, `table`, `description` | | the mapping table; what is done with it at a start and a stop; what servers are told |
//! | `coordination`, `etcd` | | the table that hosts share, and the election of its writer; both in etcd or (`rados::coordination`) a pool of Ceph |
//! | `engine` | | which of these the cluster file names |
//! | `hosts` | | links between the agents of a cluster's hosts |
//! | `host_keys`, `rekeying` | `HostKeys` | the keys by which hosts know each other, and their replacement |
//! | `host_messages` | | what agents of hosts and their master ask each other |
//! | `others` | `Others` | the other hosts, as the master sees them |
//! | `flushing` | `Flusher` | makes the table's changes durable that nobody has synced |
//! | `agent_counts` | `AgentCounts` | what the process that serves a host counts |
//! | `under_way` | `UnderWay` | I/O that the broker does for processes |
//! | `proof`, `ancestors`, `aside`, `connection`, `permission` | | what a descriptor proves; a client's connection, and what its user may do |
//! | `rados`, `orangefs` | | Ceph's pools, OrangeFS's I/O servers: librados and libpvfs2, loaded where they are needed |
//! | `by_agent` | | the kinds of servers that the broker reaches |
//! | `agent_lanes` | `AgentLanes` | what processes ask of servers whose I/O runs in the broker |
//! | `rechecks` | `Rechecks` | files to look at again |
//! | `capacity`, `standing` | `Capacity` | promises and capacities; which servers can be used |
//! | `drained` | `Drained` | servers that are being emptied |
//! | `names`, `inodes` | `ManagedNames`, `StubInodes` | managed directories and expected paths; inodes of stubs, published |
//! | `min_size` | `MinSizes` | files that become ordinary or managed for their size |
//! | `managed` | | a loaded file: record, shared memory, active moves, memory of its logs |
//! | `file_memory` | `FileMemory` | a file's shared memory: made, taken over, handed out |
//! | `quiescing` | `Quiescing` | nobody does I/O on a region or a file, or everybody marks it |
//! | `describing`, `objects` | `Describing`, `Objects` | servers are told of layouts; objects as their owner |
//! | `sizes` | | how long a file is by its objects, where a host cannot be asked |
//! | `files` | `Files` | the files that are loaded |
//! | `occupancy` | `Occupancy` | what objects occupy on servers |
//! | `discards` | `Discards` | objects that belong to no region, and their freeing |
//! | `throttle`, `idleness`, `move_queue` | `MoveQueue` | how fast movers copy; files that nobody writes; moves that are ordered |
//! | `replicas` | `Replicas` | further copies of regions |
//! | `placing` | `Placer` | objects for regions |
//! | `fragments` | `Fragments`, `FragmentLogs`, `WriteBack` | small parts of requests on SSDs |
//! | `truncation` | `Truncation` | sizes, and cutting what lies beyond |
//! | `moves` | `Moves` | regions to other places while programs use them |
//! | `loading` | `Loader` | files from their records and shared memory |
//! | `identities`, `search` | `Identities`, `StubSearch` | which file a stub stands for; where a stub went |
//! | `accesses` | `Accesses` | what programs of this host access, for a daemon on any host |
//! | `observing` | `Observers` | letting others watch what programs access |
//! | `guiding` | `Guiding` | which daemon decides about moves, of a cluster of many hosts |
//! | `name_notes` | `NameNotes` | changes of names that are not settled |
//! | `lifecycle` | `Lifecycle` | files: making, opening, closing, freeing |
//! | `name_changes` | `NameChanges` | unlink, rename and exchange of managed names: noted, then settled |
//! | `check` | `Checks` | orphans, lost stubs, and their repair |
//! | `recovery`, `rebuilding` | `Recovery` | what a predecessor left unfinished; a new mapping table from what is left |
//! | `parts` | `Parts` | all of them put together, and what each request means |
//! | `serving`, `service` | | the socket, connections, worker threads, and what they are served by |
//! | `agent` | `Agent` | of a cluster of many hosts: the master, or who follows it |
//!
//! Locks, in the order in which they may be taken: that of a file's fragments (`FileFragments::hold`), the file's (`Managed::inner`), then that of a
//! part: capacity's, the queue's, the discards', the name notes'; the names', the inodes' and the files' alone. No part holds its own while it calls another, but for capacity,
//! which is held while a request's regions are chosen. A file's lock is held across its slow work, so a slow truncation delays that file's requests and no others.
#![deny(clippy::print_stdout)]

mod accesses;
mod agent;
mod agent_counts;
mod agent_identity;
mod agent_lanes;
// A fixture of the integration tests, which name this crate, serves unit tests too.
#[cfg(test)]
extern crate self as stripewise_broker;

mod ancestors;
mod aside;
pub mod by_agent;
mod capacity;
mod check;
mod complaints;
mod connection;
mod context;
pub mod coordination;
mod describing;
pub mod description;
mod discards;
mod drained;
mod engine;
pub mod etcd;
mod fencing;
mod file_memory;
mod files;
mod flushing;
mod fragments;
mod guiding;
mod held;
mod host_keys;
mod host_messages;
pub mod hosts;
mod identities;
mod idleness;
mod inodes;
mod lifecycle;
mod loading;
pub mod log;
mod lost_files;
mod managed;
mod membership;
mod min_size;
mod move_queue;
mod moves;
mod name_changes;
mod name_notes;
mod names;
mod objects;
mod observing;
mod occupancy;
pub mod orangefs;
mod others;
mod parts;
mod permission;
mod placements;
mod placing;
mod probing;
mod proof;
mod quiescing;
pub mod rados;
mod rebuilding;
mod rechecks;
mod recovery;
mod rekeying;
mod replicas;
pub mod rmt;
mod scratch;
mod search;
mod service;
mod serving;
mod sizes;
mod standing;
mod table;
mod threads;
mod throttle;
mod truncation;
mod under_way;

use crate::agent::{Agent, patience_of_leaving};
use crate::context::{Context, Sharing};
use crate::log::note;
use crate::parts::Parts;
use crate::rmt::{MappingStore, RmtError, TABLE_VERSION};
use moves::Movers;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use stripewise_layout::{Cluster, ServerUrl};
use stripewise_store::protocol::{MoveControl, MoveNumber, MoveOrder, MoveStatus, MoveTotals, Refusal, RequestCost};
use stripewise_store::server::stations::StationsError;
use stripewise_store::server::watched::Patience;
use stripewise_store::server::{ObjectStore, ServerError};
use stripewise_store::state::{BrokerLock, HostIdentity, StateDirectory, StateError};

#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Table(#[from] RmtError),
    #[error(transparent)]
    Stations(#[from] StationsError),
    #[error("cluster.toml: {what}")]
    Cluster { what: String },
    #[error(
        "{} has no mapping table, but server {server} holds {objects} objects of this cluster: the state directory was lost or is not mounted. Mount it or restore it from a backup; if neither can be done, `stripewise check --repair` makes a new table from the servers' descriptions",
        state.display()
    )]
    LostTable { state: PathBuf, server: String, objects: usize },
    #[error(
        "there is no mapping table in {table} yet, and none begins before all servers are known to hold nothing of this cluster: {what}. Make the server usable, then repeat"
    )]
    NoTable { table: String, what: String },
    #[error(
        "the mapping table {} is damaged: {}. Nothing is served from it; `stripewise check` reports what is damaged, `stripewise check --repair` rebuilds it",
        table.display(), table::first_of(damages)
    )]
    DamagedTable { table: PathBuf, damages: Vec<String> },
    #[error(
        "{table} holds no mapping table, but server {server} holds {objects} objects of this cluster. Restore the newest backup of it; if there is none, `stripewise check --repair` makes a new table from the servers' descriptions"
    )]
    LostSharedTable { table: String, server: String, objects: usize },
    #[error(
        "the mapping table in {table} is damaged: {}. Nothing is served from it; `stripewise check` reports what is damaged, `stripewise check --repair` rebuilds it",
        table::first_of(damages)
    )]
    DamagedSharedTable { table: String, damages: Vec<String> },
    #[error("the mapping table cannot be rebuilt: {what}")]
    NotRebuilt { what: String },
    #[error(
        "the mapping table has version {found} and is rewritten as version {TABLE_VERSION} once no process of the earlier stripewise uses this cluster; end process {process} first, or go on with the stripewise that it uses"
    )]
    OldUser { found: u32, process: u64 },
    #[error(
        "the file system of the state directory {} is full ({what}); free some space there and repeat. What the cluster holds is not touched by that",
        state.display()
    )]
    StateFull { state: PathBuf, what: String },
    #[error("{what}")]
    Coordinator { what: String },
    #[error("{action}: {source}")]
    Os { action: &'static str, source: rustix::io::Errno },
}

impl BrokerError {
    /// Says of an error for want of space in which directory to free some.
    fn of_state(self, state: &Path) -> Self {
        let is_full = match &self {
            Self::State(StateError::Os { source, .. })
            | Self::Stations(StationsError::Os { source, .. } | StationsError::Map(source))
            | Self::Os { source, .. } => StateError::is_full(*source),
            Self::Table(error) => error.is_full(),
            _ => false,
        };
        if is_full { Self::StateFull { state: state.to_owned(), what: self.to_string() } } else { self }
    }
}

/// Opens a server whose I/O runs in the broker: cluster, name and URL.
pub type OpenByAgent = fn(&str, &str, &ServerUrl) -> Result<Box<dyn ObjectStore>, ServerError>;

/// How a broker is started, beside its cluster.
#[derive(Clone, Default)]
pub struct BrokerOptions {
    /// The host to be, instead of the one that this process runs on.
    pub host: Option<HostIdentity>,
    /// Called with the name of every step that a crash could separate from the next; a test ends the process there.
    pub steps: Option<StepHook>,
    /// Put around every server as it is opened; a test lets servers fail with it.
    pub wrap_server: Option<WrapServer>,
    /// Opens servers whose I/O runs in the broker; [`by_agent::open`] unless a test has others.
    pub open_by_agent: Option<OpenByAgent>,
    /// The same of the mapping table.
    pub wrap_table: Option<WrapTable>,
    /// How long nobody must have written a file before its replicas are rebuilt, and how long after its last close it becomes managed or ordinary for its
    /// size; 2 s unless given.
    pub idle_after: Option<Duration>,
    /// How long programs must have left a disk alone before what its logs of fragments are newer in is written back; 50 ms unless given.
    pub quiet_after: Option<Duration>,
    /// What reads were measured to take, by server; [`RequestCost::usual`] where nothing is given.
    pub read_costs: Vec<Option<RequestCost>>,
    /// The same of writes.
    pub write_costs: Vec<Option<RequestCost>>,
    /// How long calls of servers are waited for.
    pub patience: Patience,
    /// Whether programs are told that other hosts use the cluster too.
    pub shared: bool,
}

pub type WrapServer = Arc<dyn Fn(Box<dyn ObjectStore>) -> Box<dyn ObjectStore> + Send + Sync>;

pub type WrapTable = Arc<dyn Fn(Box<dyn MappingStore>) -> Box<dyn MappingStore> + Send + Sync>;

pub type StepHook = Arc<dyn Fn(&'static str) + Send + Sync>;

/// What became of a start.
pub enum Started {
    Serving(BrokerHandle),
    /// Another process is the broker; this is its id, if it has noted it.
    AlreadyRunning {
        process: Option<u32>,
    },
}

/// A serving broker; dropping it stops it.
pub struct BrokerHandle {
    core: Arc<Parts>,
    service: Option<service::Service>,
    movers: Option<Movers>,
    keeper: Option<fragments::Keeper>,
    flusher: Option<flushing::Flusher>,
    converter: Option<min_size::Converter>,
    cleaned: Vec<String>,
}

/// Serves as soon as no other process does; see [`Broker::serve_or_wait`].
pub struct Standby {
    shared: Arc<StandbyState>,
}

#[derive(Default)]
struct StandbyState {
    cancelled: AtomicBool,
    outcome: Mutex<Option<Result<Serving, BrokerError>>>,
    /// Of a cluster of many hosts whose agent is another process.
    waiting_for: OnceLock<(Cluster, BrokerOptions)>,
}

/// Who serves the programs of this host.
enum Serving {
    /// Of a cluster of one host.
    Broker(BrokerHandle),
    /// Of a cluster of many.
    Agent(Agent),
}

impl Serving {
    fn cleaned(&self) -> Vec<String> {
        match self {
            Self::Broker(broker) => broker.cleaned.clone(),
            Self::Agent(agent) => agent.cleaned(),
        }
    }
}

/// Starts brokers.
pub struct Broker;

impl Broker {
    /// Becomes the broker of the cluster's state directory, if there is none. When this returns, clients can connect.
    pub fn start(cluster: &Cluster, options: BrokerOptions) -> Result<Started, BrokerError> {
        Self::try_start(cluster, options).map_err(|error| error.of_state(&cluster.state))
    }

    fn try_start(cluster: &Cluster, options: BrokerOptions) -> Result<Started, BrokerError> {
        let state = Self::state_of(cluster, &options)?;
        match state.try_lock()? {
            Some(_) if cluster.coordinator.is_some() => {
                Err(BrokerError::Cluster { what: "a cluster of many hosts is served by an agent".to_owned() })
            }
            Some(lock) => Self::serve(cluster, state, Arc::new(lock), options, None).map(Started::Serving),
            None => Ok(Started::AlreadyRunning { process: state.holder() }),
        }
    }

    /// Becomes the broker now or, in a thread, when the present one goes. Errors of a later start are in [`Standby::fault`].
    pub fn serve_or_wait(cluster: &Cluster, options: BrokerOptions) -> Result<Standby, BrokerError> {
        Self::try_serve_or_wait(cluster, options).map_err(|error| error.of_state(&cluster.state))
    }

    fn try_serve_or_wait(cluster: &Cluster, options: BrokerOptions) -> Result<Standby, BrokerError> {
        let shared = Arc::new(StandbyState::default());
        let state = Self::state_of(cluster, &options)?;
        if let Some(lock) = state.try_lock()? {
            *guard(&shared.outcome) = Some(Ok(Self::begin(cluster, state, lock, options)?));
            return Ok(Standby { shared });
        }
        if cluster.coordinator.is_some() {
            let _ = shared.waiting_for.set((cluster.clone(), options.clone()));
        }
        let (cluster, waiting) = (cluster.clone(), Arc::clone(&shared));
        let wait = move || {
            let result = state.wait_for_lock().map_err(BrokerError::from).and_then(|lock| {
                // Held through the start, so that a cancelled standby never begins to serve.
                let mut outcome = guard(&waiting.outcome);
                if !waiting.cancelled.load(Ordering::SeqCst) {
                    *outcome = Some(Ok(Self::begin(&cluster, state, lock, options)?));
                }
                Ok(())
            });
            if let Err(error) = result {
                *guard(&waiting.outcome) = Some(Err(error.of_state(&cluster.state)));
            }
        };
        // Not joined: a blocked lock cannot be called off. It ends with the process, or lets go at once when cancelled.
        threads::spawn("stripewise-standby", wait)?;
        Ok(Standby { shared })
    }

    fn begin(
        cluster: &Cluster,
        state: StateDirectory,
        lock: BrokerLock,
        options: BrokerOptions,
    ) -> Result<Serving, BrokerError> {
        let lock = Arc::new(lock);
        match &cluster.coordinator {
            Some(coordinator) => Agent::start(cluster, coordinator, lock, options).map(Serving::Agent),
            None => Self::serve(cluster, state, lock, options, None).map(Serving::Broker),
        }
    }

    fn state_of(cluster: &Cluster, options: &BrokerOptions) -> Result<StateDirectory, BrokerError> {
        cluster.check().map_err(|what| BrokerError::Cluster { what })?;
        let state = StateDirectory::of(cluster)?;
        let host = options.host.clone().map_or_else(HostIdentity::of_this_host, Ok)?;
        state.claim_for(&host)?;
        Ok(state)
    }

    fn serve(
        cluster: &Cluster,
        state: StateDirectory,
        lock: Arc<BrokerLock>,
        options: BrokerOptions,
        sharing: Option<Sharing>,
    ) -> Result<BrokerHandle, BrokerError> {
        let listener = state.listen()?;
        let idle_after = options.idle_after;
        let context = Context::open(cluster, state, lock, options, sharing)?;
        let core = Arc::new(Parts::new(cluster, context, idle_after)?);
        let cleaned = core.recover()?;
        note!(core.context().log(), info, "broker started");
        for line in &cleaned {
            note!(core.context().log(), info, "{line}");
        }
        let movers = Some(Movers::start(core.moves())?);
        let keeper = Some(fragments::Keeper::start(core.fragments())?);
        let flusher = Some(flushing::Flusher::start(core.context())?);
        let service = Some(service::Service::start(Arc::clone(&core) as _, listener)?);
        let converter = Some(min_size::Converter::start(core.context(), core.min_sizes())?);
        Ok(BrokerHandle { core, service, movers, keeper, flusher, converter, cleaned })
    }
}

impl BrokerHandle {
    /// What this start found unfinished, and whether it could be cleaned up, in sentences for the user.
    #[must_use]
    pub fn cleaned(&self) -> &[String] {
        &self.cleaned
    }

    /// Queues moves of regions; see [`stripewise_store::protocol::Admin::Move`]. Returns the number of the first and how many there are.
    pub fn queue_moves(&self, orders: &[MoveOrder]) -> Result<(MoveNumber, u64), Refusal> {
        self.core.moves().queue_moves(orders)
    }

    /// Pauses, resumes or cancels moves, or sets their bandwidth.
    pub fn control_moves(&self, control: MoveControl) {
        self.core.queue().control(control);
    }

    #[must_use]
    pub fn move_totals(&self) -> MoveTotals {
        self.core.queue().totals()
    }

    /// Moves from behind `after` in the order of their numbers, and whether there are more. Of ended ones the last are kept.
    #[must_use]
    pub fn moves(&self, after: Option<MoveNumber>) -> (Vec<MoveStatus>, bool) {
        self.core.queue().list(after)
    }

    /// Stops serving: moves are given up where they are not committed, requests under way are finished, sizes made durable, and the lock given up.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Before all others, which it uses.
        drop(self.converter.take());
        // Then these, so that no client waits for a sealed region meanwhile.
        drop(self.movers.take());
        drop(self.keeper.take());
        if let Some(service) = self.service.take() {
            service.stop();
            self.core.settle_all();
            drop(self.flusher.take());
            let context = self.core.context();
            if !context.is_shared() {
                table::keep_good_copy(context.table(), context.state(), context.log());
            }
            note!(self.core.context().log(), info, "broker stopped");
        }
    }
}

impl Drop for BrokerHandle {
    fn drop(&mut self) {
        self.end();
    }
}

impl Standby {
    /// Whether this process is the broker by now.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        matches!(*guard(&self.shared.outcome), Some(Ok(_)))
    }

    /// Whether any program of this host uses the cluster; true also where that is not known.
    #[must_use]
    pub fn is_used(&self) -> bool {
        match &*guard(&self.shared.outcome) {
            Some(Ok(Serving::Broker(broker))) => is_used(broker.core.context()),
            Some(Ok(Serving::Agent(agent))) => agent.is_used(),
            _ => true,
        }
    }

    /// What the start cleaned up; empty while another serves.
    #[must_use]
    pub fn cleaned(&self) -> Vec<String> {
        match &*guard(&self.shared.outcome) {
            Some(Ok(serving)) => serving.cleaned(),
            _ => Vec::new(),
        }
    }

    /// Why a start failed after the wait.
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        match &*guard(&self.shared.outcome) {
            Some(Err(error)) => Some(error.to_string()),
            _ => None,
        }
    }
}

impl Drop for Standby {
    fn drop(&mut self) {
        self.shared.cancelled.store(true, Ordering::SeqCst);
        let outcome = guard(&self.shared.outcome).take();
        if outcome.is_none()
            && let Some((cluster, options)) = self.shared.waiting_for.get()
        {
            leave_for_another(cluster, options);
        }
    }
}

/// The agent that was waited for may have ended while programs of this process's command had files open, which they have no more: an agent that begins and
/// ends says so to the other hosts. A successor that serves this host by now says it at its own end.
fn leave_for_another(cluster: &Cluster, options: &BrokerOptions) {
    let (Ok(state), Some(coordination)) = (StateDirectory::of(cluster), &cluster.coordinator) else { return };
    let deadline = Instant::now() + patience_of_leaving(coordination.host_timeout());
    while state.is_leaving() && Instant::now() < deadline {
        if let Ok(Some(lock)) = state.try_lock() {
            drop(Broker::begin(cluster, state, lock, options.clone()));
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether any program of this host has a place among the processes, as those have that have looked at a managed file.
fn is_used(context: &Context) -> bool {
    context.processes().any_living().is_some()
}

/// Locks; a thread that panicked with the lock left nothing half done that matters (durable first, memory after).
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`guard`], if nobody else has it.
pub(crate) fn try_guard<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guarded) => Some(guarded),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
