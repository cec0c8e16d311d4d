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

mod admin;
mod ancestors;
mod aside;
mod check;
mod describing;
pub mod description;
mod drained;
mod files;
mod fragments;
mod inodes;
mod loading;
mod moves;
mod name_changes;
mod names;
mod observing;
mod permission;
mod placing;
mod proof;
mod rebuilding;
mod recovery;
mod replicas;
mod requests;
pub mod rmt;
mod room;
mod search;
mod service;
mod standing;
mod switch;
mod table;
mod truncation;

use crate::description::Sequence;
use crate::rmt::{ClusterRecord, MappingStore, RmtError, TABLE_VERSION, Table};
use loading::Entry;
use moves::{Movers, Moves, Throttle};
use names::Names;
use room::Room;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use stripewise_layout::{Cluster, FileId, Server, ServerId};
use stripewise_store::protocol::{MoveControl, MoveNumber, MoveOrder, MoveStatus, MoveTotals, ReadCost, Refusal};
use stripewise_store::server::stations::{Stations, StationsError};
use stripewise_store::server::watched::{Patience, WatchedServer};
use stripewise_store::server::{self, ObjectStore};
use stripewise_store::shared::inodes::Inodes;
use stripewise_store::shared::processes::{Incarnation, ProcessSlot, Processes};
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
        core.state.note("broker started");
        for line in &cleaned {
            core.state.note(line);
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
            table::keep_good_copy(&self.core.table, &self.core.state);
            self.core.state.note("broker stopped");
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

/// What all requests share.
pub(crate) struct Core {
    pub(crate) cluster: Cluster,
    pub(crate) state: StateDirectory,
    pub(crate) boot: [u8; 16],
    pub(crate) table: Table,
    pub(crate) servers: Vec<Box<dyn ObjectStore>>,
    pub(crate) processes: &'static Processes,
    pub(crate) stations: Option<OwnedFd>,
    pub(crate) room: Mutex<Room>,
    log_room: Mutex<fragments::LogRoom>,
    keeping: fragments::Keeping,
    drained: RwLock<BTreeSet<ServerId>>,
    moves: Moves,
    observing: Mutex<observing::Observing>,
    pub(crate) files: Mutex<HashMap<FileId, Arc<Entry>>>,
    pub(crate) names: RwLock<Names>,
    /// None until recovery makes it.
    inodes: Mutex<Option<Inodes>>,
    name_changes: Mutex<name_changes::NameChanges>,
    /// Files to look at again, since nothing may announce that their last user died.
    pub(crate) to_recheck: Mutex<HashSet<FileId>>,
    pub(crate) recheck: Condvar,
    /// Copies of stubs that were opened in vain, for `check`.
    pub(crate) copies: Mutex<BTreeMap<String, FileId>>,
    /// The last line told to servers.
    described: Mutex<Sequence>,
    /// By server.
    read_costs: Vec<ReadCost>,
    steps: Option<StepHook>,
    /// Calls of servers that may yet change what programs use hold it as well.
    _lock: Arc<BrokerLock>,
}

impl Core {
    fn new(
        cluster: &Cluster,
        state: StateDirectory,
        lock: BrokerLock,
        options: BrokerOptions,
    ) -> Result<Self, BrokerError> {
        let host = options.host.clone().map_or_else(HostIdentity::of_this_host, Ok)?;
        let processes = processes_of(&state)?;
        processes.forget_reads_of_the_dead();
        let emulated = cluster.servers.iter().any(|server| server.url.is_emulated());
        let stations =
            if emulated { Some(Stations::establish_at(state.run(), "stations", cluster.servers.len())?) } else { None };
        let lock = Arc::new(lock);
        let servers = watched_servers(cluster, &lock, &options);
        let table = table::open(&state, &servers, processes, |table| match &options.wrap_table {
            Some(wrap) => wrap(table),
            None => table,
        })?;
        table.belong_to(&ClusterRecord {
            id: cluster.id.clone(),
            servers: cluster.servers.iter().map(|server| server.name.clone()).collect(),
        })?;
        let devices = match &stations {
            Some(file) => Some(Arc::new(Stations::open(file, cluster.servers.len())?)),
            None => None,
        };
        let throttle =
            Throttle::new(cluster, devices).map_err(|error| BrokerError::Cluster { what: error.to_string() })?;
        Ok(Self {
            moves: Moves::new(throttle, replicas::Idle::new(options.idle_after)),
            room: Mutex::new(Room::new(cluster)),
            log_room: Mutex::new(fragments::LogRoom::new(cluster)),
            keeping: fragments::Keeping::default(),
            drained: RwLock::new(drained::numbers(cluster, &state.drained()?)),
            names: RwLock::new(Names::load(&table)?),
            inodes: Mutex::default(),
            cluster: cluster.clone(),
            state,
            boot: host.boot,
            table,
            servers,
            processes,
            stations,
            observing: Mutex::default(),
            files: Mutex::default(),
            name_changes: Mutex::default(),
            to_recheck: Mutex::default(),
            recheck: Condvar::new(),
            copies: Mutex::default(),
            described: Mutex::default(),
            read_costs: (0..)
                .zip(&cluster.servers)
                .map(|(number, server): (usize, _)| {
                    let measured = options.read_costs.get(number).copied().flatten();
                    measured.unwrap_or_else(|| ReadCost::usual(server.class))
                })
                .collect(),
            steps: options.steps,
            _lock: lock,
        })
    }

    /// Marks a boundary that a crash may fall on.
    pub(crate) fn step(&self, name: &'static str) {
        if let Some(hook) = &self.steps {
            hook(name);
        }
    }

    pub(crate) fn server(&self, server: ServerId) -> Result<&dyn ObjectStore, Refusal> {
        self.servers.get(usize::from(server.0)).map(AsRef::as_ref).ok_or_else(|| Refusal::Invalid {
            what: format!("server {server} is not in cluster.toml, which names {}; restore it", self.servers.len()),
        })
    }

    /// Whether a cut of the file, of which somebody was told that it failed, may yet happen.
    pub(crate) fn is_changing(&self, file: FileId) -> bool {
        self.servers.iter().any(|server| server.is_changing(file))
    }

    pub(crate) fn is_alive(&self, slot: ProcessSlot, incarnation: Incarnation) -> bool {
        self.processes.is_alive(slot, incarnation)
    }

    pub(crate) fn recheck(&self, file: FileId) {
        guard(&self.to_recheck).insert(file);
        self.recheck.notify_all();
    }
}

/// The cluster's servers, none of them opened yet: a mount that does not answer is met by those who need it.
fn watched_servers(cluster: &Cluster, lock: &Arc<BrokerLock>, options: &BrokerOptions) -> Vec<Box<dyn ObjectStore>> {
    let watched = |(number, server): (u16, &Server)| -> Box<dyn ObjectStore> {
        let (id, name, url) = (cluster.id.clone(), server.name.clone(), server.url.clone());
        let wrap = options.wrap_server.clone();
        let open = move || {
            let opened = server::open(&id, ServerId(number), &name, &url, None)?;
            Ok(match &wrap {
                Some(wrap) => wrap(opened),
                None => opened,
            })
        };
        Box::new(WatchedServer::new(&server.name, options.patience, Arc::clone(lock) as _, Box::new(open)))
    };
    (0..).zip(&cluster.servers).map(watched).collect()
}

/// The processes file of this state directory. One descriptor for the life of this process: closing any would drop the locks that a client in
/// this process holds on it.
fn processes_of(state: &StateDirectory) -> Result<&'static Processes, BrokerError> {
    static KEPT: Mutex<Vec<((u64, u64), &'static Processes)>> = Mutex::new(Vec::new());
    let fault = |action| move |source| BrokerError::Os { action, source };
    let mut kept = guard(&KEPT);
    let name = "processes";
    if let Ok(found) = rustix::fs::statat(state.run(), name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)
        && let Some((_, processes)) = kept.iter().find(|(inode, _)| *inode == (found.st_dev, found.st_ino))
    {
        return Ok(processes);
    }
    let file = state.open_shared(name, OFlags::RDWR | OFlags::CREATE).map_err(fault("opening run/processes"))?;
    let found = rustix::fs::fstat(&file).map_err(fault("looking at run/processes"))?;
    let processes: &'static Processes =
        Box::leak(Box::new(Processes::build(file).map_err(fault("mapping run/processes"))?));
    kept.push(((found.st_dev, found.st_ino), processes));
    Ok(processes)
}

/// Locks; a thread that panicked with the lock left nothing half done that matters (durable first, memory after).
pub(crate) fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
