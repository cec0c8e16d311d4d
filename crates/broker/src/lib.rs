//! The broker: the one process of a state directory that owns the mapping table, makes and frees objects, and writes control blocks.
//!
//! It runs as threads inside a `stripewise` command (or the parent of `stripewise run`), serves clients over a Unix socket, and is the broker for as
//! long as it holds `broker.lock`; a successor that waits for the lock takes over. Nothing that matters is in its memory alone: the
//! table is durable, sizes and slots are in shared memory, and every request may be repeated.
//!
//! | module | what |
//! |---|---|
//! | `service` | the socket, connections, worker threads |
//! | `requests` | what each request means |
//! | `proof` | what a descriptor proves |
//! | `loading` | a file's record and shared memory |
//! | `files` | managed files: opening, making, freeing |
//! | `placing` | objects for regions |
//! | `describing` | what servers are told of layouts |
//! | `room` | promises and capacities |
//! | `standing` | which servers can be used |
//! | `drained` | servers that are being emptied |
//! | `truncation` | the gate, draining, cutting |
//! | `moves` | regions to other places while programs use them |
//! | `replicas` | further copies of regions |
//! | `fragments` | small parts of requests on SSDs |
//! | `switch` | whether a file has them, and what became of them |
//! | `inodes` | the inodes of stubs, published |
//! | `names` | managed directories and expected paths |
//! | `name_changes` | unlink, rename and exchange of managed names: noted, then settled |
//! | `search` | stubs that are not where they were: where they are |
//! | `observing` | letting others watch what programs access |
//! | `table` | the mapping table at a start, and the last good copy of it |
//! | `rebuilding` | a new mapping table from what is left |
//! | `recovery` | what a predecessor left unfinished |
//! | `admin` | requests of the `stripewise` command |
//! | `check` | orphans, lost stubs, and their repair |
//!
//! Locks, in the order in which they may be taken: that of a file's fragments, the file's, then the room's or the moves'; the names', the inodes' and the maps' alone. A file's lock
//! is held across its slow work, so a slow truncation delays that file's requests and no others.
#![deny(clippy::print_stdout)]

mod admin;
mod ancestors;
mod aside;
mod capacity;
mod check;
mod context;
mod describing;
pub mod description;
mod drained;
mod files;
mod fragments;
mod inodes;
mod loading;
mod managed;
mod moves;
mod name_changes;
mod names;
mod observing;
mod permission;
mod placing;
mod proof;
mod quiescing;
mod rebuilding;
mod rechecks;
mod recovery;
mod replicas;
mod requests;
pub mod rmt;
mod search;
mod service;
mod standing;
mod switch;
mod table;
mod truncation;

use crate::description::Sequence;
use crate::rmt::{MappingStore, RmtError, TABLE_VERSION};
use capacity::Capacity;
use context::Context;
use drained::Drained;
use fragments::LogCapacity;
use loading::Entry;
use moves::{Movers, Moves, Throttle};
use names::Names;
use quiescing::Quiescing;
use rechecks::Rechecks;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::TryLockError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use stripewise_layout::{Cluster, FileId};
use stripewise_store::protocol::{MoveControl, MoveNumber, MoveOrder, MoveStatus, MoveTotals, ReadCost, Refusal};
use stripewise_store::server::ObjectStore;
use stripewise_store::server::stations::StationsError;
use stripewise_store::server::watched::Patience;
use stripewise_store::shared::inodes::Inodes;
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
        "the mapping table {} is damaged: {}. Nothing is served from it; `stripewise check` tells what is damaged, `stripewise check --repair` makes it anew",
        table.display(), table::first_of(damages)
    )]
    DamagedTable { table: PathBuf, damages: Vec<String> },
    #[error("the mapping table cannot be made anew: {what}")]
    NotRebuilt { what: String },
    #[error(
        "the mapping table has version {found} and is rewritten as version {TABLE_VERSION} once no process of the earlier stripewise uses this cluster; end process {process} first, or go on with the stripewise that it uses"
    )]
    OldUser { found: u32, process: u64 },
    #[error(
        "the file system of the state directory {} is full ({what}); free some room there and repeat. What the cluster holds is not touched by that",
        state.display()
    )]
    StateFull { state: PathBuf, what: String },
    #[error("{action}: {source}")]
    Os { action: &'static str, source: rustix::io::Errno },
}

impl BrokerError {
    /// Says of an error for want of room in which directory to free some.
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

/// How a broker is started, beside its cluster.
#[derive(Clone, Default)]
pub struct BrokerOptions {
    /// The host to be, instead of the one that this process runs on.
    pub host: Option<HostIdentity>,
    /// Called with the name of every step that a crash could separate from the next; a test ends the process there.
    pub steps: Option<StepHook>,
    /// Put around every server as it is opened; a test lets servers fail with it.
    pub wrap_server: Option<WrapServer>,
    /// The same of the mapping table.
    pub wrap_table: Option<WrapTable>,
    /// How long nobody must have written a file before its replicas are made anew; 2 s unless given.
    pub idle_after: Option<Duration>,
    /// What reads were measured to take, by server; [`ReadCost::usual`] where nothing is given.
    pub read_costs: Vec<Option<ReadCost>>,
    /// How long calls of servers are waited for.
    pub patience: Patience,
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
    core: Arc<Core>,
    service: Option<service::Service>,
    movers: Option<Movers>,
    keeper: Option<fragments::Keeper>,
    cleaned: Vec<String>,
}

/// Serves as soon as no other process does; see [`Broker::serve_or_wait`].
pub struct Standby {
    shared: Arc<StandbyState>,
}

#[derive(Default)]
struct StandbyState {
    cancelled: AtomicBool,
    outcome: Mutex<Option<Result<BrokerHandle, BrokerError>>>,
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
            Some(lock) => Self::serve(cluster, state, lock, options).map(Started::Serving),
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
            *guard(&shared.outcome) = Some(Ok(Self::serve(cluster, state, lock, options)?));
            return Ok(Standby { shared });
        }
        let (cluster, waiting) = (cluster.clone(), Arc::clone(&shared));
        let wait = move || {
            let result = state.wait_for_lock().map_err(BrokerError::from).and_then(|lock| {
                // Held through the start, so that a cancelled standby never begins to serve.
                let mut outcome = guard(&waiting.outcome);
                if !waiting.cancelled.load(Ordering::SeqCst) {
                    *outcome = Some(Ok(Self::serve(&cluster, state, lock, options)?));
                }
                Ok(())
            });
            if let Err(error) = result {
                *guard(&waiting.outcome) = Some(Err(error.of_state(&cluster.state)));
            }
        };
        // Not joined: a blocked lock cannot be called off. It ends with the process, or lets go at once when cancelled.
        std::thread::Builder::new().name("stripewise-standby".into()).spawn(wait).map_err(|error| BrokerError::Os {
            action: "starting a thread",
            source: rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN),
        })?;
        Ok(Standby { shared })
    }

    fn state_of(cluster: &Cluster, options: &BrokerOptions) -> Result<StateDirectory, BrokerError> {
        cluster.check().map_err(|what| BrokerError::Cluster { what })?;
        let state = StateDirectory::open(&cluster.state)?;
        let host = options.host.clone().map_or_else(HostIdentity::of_this_host, Ok)?;
        state.claim_for(&host)?;
        Ok(state)
    }

    fn serve(
        cluster: &Cluster,
        state: StateDirectory,
        lock: BrokerLock,
        options: BrokerOptions,
    ) -> Result<BrokerHandle, BrokerError> {
        let listener = state.listen()?;
        let core = Arc::new(Core::new(cluster, state, lock, options)?);
        let cleaned = core.recover()?;
        core.context.state().note("broker started");
        for line in &cleaned {
            core.context.state().note(line);
        }
        let movers = Some(Movers::start(&core)?);
        let keeper = Some(fragments::Keeper::start(&core)?);
        let service = Some(service::Service::start(Arc::clone(&core), listener)?);
        Ok(BrokerHandle { core, service, movers, keeper, cleaned })
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
        self.core.queue_moves(orders)
    }

    /// Pauses, resumes or cancels moves, or sets their bandwidth.
    pub fn control_moves(&self, control: MoveControl) {
        self.core.moves.control(control);
    }

    #[must_use]
    pub fn move_totals(&self) -> MoveTotals {
        self.core.moves.totals()
    }

    /// Moves from behind `after` in the order of their numbers, and whether there are more. Of ended ones the last are kept.
    #[must_use]
    pub fn moves(&self, after: Option<MoveNumber>) -> (Vec<MoveStatus>, bool) {
        self.core.moves.list(after)
    }

    /// Stops serving: moves are given up where they are not committed, requests under way are finished, sizes made durable, and the lock given up.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // First, so that no client waits for a sealed region meanwhile.
        drop(self.movers.take());
        drop(self.keeper.take());
        if let Some(service) = self.service.take() {
            service.stop();
            self.core.settle_all();
            table::keep_good_copy(&self.core.context.table(), &self.core.context.state());
            self.core.context.state().note("broker stopped");
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

    /// What the start cleaned up; empty while another serves.
    #[must_use]
    pub fn cleaned(&self) -> Vec<String> {
        match &*guard(&self.shared.outcome) {
            Some(Ok(handle)) => handle.cleaned.clone(),
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
        *guard(&self.shared.outcome) = None;
    }
}

/// What all requests share: the parts.
pub(crate) struct Core {
    context: Arc<Context>,
    rechecks: Arc<Rechecks>,
    capacity: Arc<Capacity>,
    drained: Arc<Drained>,
    quiescing: Arc<Quiescing>,
    log_capacity: LogCapacity,
    keeping: fragments::Keeping,
    moves: Moves,
    observing: Mutex<observing::Observing>,
    pub(crate) files: Mutex<HashMap<FileId, Arc<Entry>>>,
    pub(crate) names: RwLock<Names>,
    /// None until recovery makes it.
    inodes: Mutex<Option<Inodes>>,
    name_changes: Mutex<name_changes::NameChanges>,
    /// Copies of stubs that were opened in vain, for `check`.
    pub(crate) copies: Mutex<BTreeMap<String, FileId>>,
    /// The last line told to servers.
    described: Mutex<Sequence>,
}

impl Core {
    fn new(
        cluster: &Cluster,
        state: StateDirectory,
        lock: BrokerLock,
        options: BrokerOptions,
    ) -> Result<Self, BrokerError> {
        let idle = replicas::Idle::new(options.idle_after);
        let context = Arc::new(Context::open(cluster, state, lock, options)?);
        let throttle = Throttle::new(cluster, context.devices()?)
            .map_err(|error| BrokerError::Cluster { what: error.to_string() })?;
        let rechecks = Arc::new(Rechecks::default());
        Ok(Self {
            moves: Moves::new(throttle, idle),
            capacity: Arc::new(Capacity::new(cluster)),
            log_capacity: LogCapacity::new(cluster),
            keeping: fragments::Keeping::default(),
            drained: Arc::new(Drained::load(&context)?),
            quiescing: Arc::new(Quiescing::new(&context, &rechecks)),
            names: RwLock::new(Names::load(context.table())?),
            inodes: Mutex::default(),
            observing: Mutex::default(),
            files: Mutex::default(),
            name_changes: Mutex::default(),
            copies: Mutex::default(),
            described: Mutex::default(),
            rechecks,
            context,
        })
    }
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
