//! What every part of the broker needs: the cluster and its servers, the state directory, the mapping table, and who is alive.

use crate::agent_counts::AgentCounts;
use crate::agent_identity::AgentIdentity;
use crate::by_agent;
use crate::coordination::NUMBERS_OF_A_TERM;
use crate::host_keys::HostKeys;
use crate::log::Log;
use crate::lost_files::LostFiles;
use crate::membership::Membership;
use crate::others::Others;
use crate::rmt::{MappingStore, Table, let_devices_differ};
use crate::table::Opener;
use crate::under_way::UnderWay;
use crate::{BrokerError, BrokerOptions, StepHook, guard, table};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stripewise_layout::{Cluster, Coordinator, FileId, Server, ServerId};
use stripewise_store::descriptors;
use stripewise_store::protocol::{Refusal, RequestCost};
use stripewise_store::server::emulated::is_emulated;
use stripewise_store::server::stations::Stations;
use stripewise_store::server::watched::WatchedServer;
use stripewise_store::server::{self, ObjectStore, Operation, Outcome, ServerError};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};
use stripewise_store::shared::processes::Processes;
use stripewise_store::state::{BrokerLock, HostIdentity, StateDirectory};

/// So many numbers are left when a master gives its role up: they are for what is under way until it has. Numbers of the next term would not be higher
/// than those beyond the last.
pub(crate) const LAST_NUMBERS: u64 = 1 << 20;

/// In the order of cluster.toml.
pub(crate) type Servers = Vec<Box<dyn ObjectStore>>;

/// What a cluster of many hosts shares.
pub(crate) struct Sharing {
    pub(crate) table: Box<dyn MappingStore>,
    /// Of the master.
    pub(crate) others: Option<Arc<Others>>,
    /// Cuts of files are numbered from here on; higher under every later master.
    pub(crate) first_number: u64,
    pub(crate) membership: Arc<Membership>,
    pub(crate) counts: Arc<AgentCounts>,
    pub(crate) keys: Arc<HostKeys>,
    /// Of all roles of this agent.
    pub(crate) under_way: Arc<UnderWay>,
    /// Who this agent is.
    pub(crate) agent: AgentIdentity,
}

/// Shared by all parts; nothing in it changes but the table.
pub(crate) struct Context {
    cluster: Cluster,
    state: Arc<StateDirectory>,
    log: Log,
    boot: [u8; 16],
    table: Table,
    servers: Arc<Servers>,
    processes: &'static Processes,
    /// Of emulated servers.
    stations: Option<OwnedFd>,
    /// By server.
    read_costs: Vec<RequestCost>,
    write_costs: Vec<RequestCost>,
    quiet_after: Option<Duration>,
    steps: Option<StepHook>,
    under_way: Arc<UnderWay>,
    is_shared: bool,
    others: Option<Arc<Others>>,
    first_number: u64,
    /// Of a cluster of many hosts.
    membership: Option<Arc<Membership>>,
    lost: LostFiles,
    counts: Arc<AgentCounts>,
    /// Of a cluster of many hosts.
    keys: Option<Arc<HostKeys>>,
    /// Of a cluster of many hosts.
    agent: Option<AgentIdentity>,
    /// Calls of servers that may yet change what programs use hold it as well.
    _lock: Arc<BrokerLock>,
}

impl Context {
    /// Opens the table: that of the state directory, which is read from end to end first, or the one that hosts share.
    pub(crate) fn open(
        cluster: &Cluster,
        state: StateDirectory,
        lock: Arc<BrokerLock>,
        options: BrokerOptions,
        sharing: Option<Sharing>,
    ) -> Result<Self, BrokerError> {
        let state = Arc::new(state);
        let log = Log::new(&state);
        let host = options.host.clone().map_or_else(HostIdentity::of_this_host, Ok)?;
        let processes = processes_of(&state)?;
        processes.forget_reads_of_the_dead();
        let emulated = cluster.servers.iter().any(|server| is_emulated(&server.url));
        let stations =
            if emulated { Some(Stations::establish_at(state.run(), "stations", cluster.servers.len())?) } else { None };
        let membership = sharing.as_ref().map(|sharing| Arc::clone(&sharing.membership));
        let servers = Arc::new(watched_servers(cluster, &lock, &options, membership.as_ref()));
        let (others, first_number) =
            sharing.as_ref().map_or((None, 0), |sharing| (sharing.others.clone(), sharing.first_number));
        let counts = sharing.as_ref().map(|sharing| Arc::clone(&sharing.counts));
        let counts = counts.unwrap_or_else(|| Arc::new(AgentCounts::new(cluster.servers.len(), Arc::default())));
        let keys = sharing.as_ref().map(|sharing| Arc::clone(&sharing.keys));
        let agent = sharing.as_ref().map(|sharing| sharing.agent.clone());
        let under_way = sharing.as_ref().map(|sharing| Arc::clone(&sharing.under_way)).unwrap_or_default();
        let is_shared = options.shared || sharing.is_some();
        if sharing.is_some() {
            let_devices_differ();
        }
        let table = match sharing {
            Some(sharing) => table::open_shared(sharing.table, &state, (cluster, &servers), sharing.others.is_some())?,
            None => table::open(&state, &log, &servers, processes, |table| match &options.wrap_table {
                Some(wrap) => wrap(table),
                None => table,
            })?,
        };
        let opener = match (&agent, &others) {
            (None, _) => Opener::Alone,
            (Some(_), None) => Opener::Follower,
            (Some(_), Some(_)) => Opener::Master(&host.name),
        };
        table::belong_to(&table, cluster, opener, (&state, &log, processes))?;
        let costs = |measured: &[Option<RequestCost>]| {
            let measured = |number: usize| measured.get(number).copied().flatten();
            let servers = cluster.servers.iter().enumerate();
            servers.map(|(number, server)| measured(number).unwrap_or(RequestCost::usual(server.class))).collect()
        };
        let (read_costs, write_costs) = (costs(&options.read_costs), costs(&options.write_costs));
        let lost = LostFiles::load(&state, processes)
            .map_err(|source| BrokerError::Os { action: "reading the memory of lost files in run/", source })?;
        let (cluster, boot, steps) = (cluster.clone(), host.boot, options.steps);
        Ok(Self {
            cluster,
            state,
            log,
            boot,
            table,
            servers,
            processes,
            stations,
            read_costs,
            write_costs,
            quiet_after: options.quiet_after,
            steps,
            under_way,
            is_shared,
            others,
            first_number,
            membership,
            lost,
            counts,
            keys,
            agent,
            _lock: lock,
        })
    }

    /// Whether other hosts use the cluster too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// The other hosts, on the master of a cluster that has many.
    pub(crate) fn others(&self) -> Option<&Arc<Others>> {
        self.others.as_ref()
    }

    /// Whether another host may have the file open.
    pub(crate) fn is_elsewhere(&self, file: FileId) -> bool {
        self.others.as_ref().is_some_and(|others| others.has(file))
    }

    /// See [`Sharing::first_number`].
    pub(crate) fn first_number(&self) -> u64 {
        self.first_number
    }

    /// The term of this master's election; `None`: this host is not the master of a cluster that has many.
    pub(crate) fn term(&self) -> Option<u64> {
        self.others.is_some().then_some(self.first_number >> NUMBERS_OF_A_TERM)
    }

    /// Whether this master is to give its role up because it has given out most numbers of its term; the next term has others.
    pub(crate) fn is_term_used_up(&self) -> bool {
        let last = self.others.as_ref().map_or(self.first_number, |others| others.last_turn());
        last.saturating_sub(self.first_number) >= (1 << NUMBERS_OF_A_TERM) - LAST_NUMBERS
    }

    /// After which a host counts as silent, and for which no host is held up for another; `None`: the cluster has one host.
    pub(crate) fn host_timeout(&self) -> Option<Duration> {
        self.cluster.coordinator.as_ref().map(Coordinator::host_timeout)
    }

    /// What this process counts.
    pub(crate) fn counts(&self) -> &Arc<AgentCounts> {
        &self.counts
    }

    /// By which hosts know each other; `None`: the cluster has one host.
    pub(crate) fn keys(&self) -> Option<&HostKeys> {
        self.keys.as_deref()
    }

    /// This host as one that shares servers; `None`: the cluster has one host.
    pub(crate) fn membership(&self) -> Option<&Membership> {
        self.membership.as_deref()
    }

    /// Who this agent is; `None`: the cluster has one host.
    pub(crate) fn agent(&self) -> Option<&AgentIdentity> {
        self.agent.as_ref()
    }

    /// Files of which programs here still use memory that is none any more.
    pub(crate) fn lost(&self) -> &LostFiles {
        &self.lost
    }

    /// Whether another host has shut this one out of a server.
    pub(crate) fn is_shut_out(&self) -> bool {
        self.servers.iter().any(|server| server.is_shut_out())
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub(crate) fn state(&self) -> &StateDirectory {
        &self.state
    }

    /// Where events go: [`crate::log::note`].
    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn boot(&self) -> [u8; 16] {
        self.boot
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// In the order of cluster.toml.
    pub(crate) fn servers(&self) -> &[Box<dyn ObjectStore>] {
        &self.servers
    }

    /// The same, for whoever needs them for longer than this.
    pub(crate) fn all_servers(&self) -> &Arc<Servers> {
        &self.servers
    }

    pub(crate) fn processes(&self) -> &'static Processes {
        self.processes
    }

    /// The memory of emulated devices, to be handed to clients; `None` if no server is emulated.
    pub(crate) fn stations(&self) -> Option<&OwnedFd> {
        self.stations.as_ref()
    }

    /// The same, mapped by the broker itself.
    pub(crate) fn devices(&self) -> Result<Option<Arc<Stations>>, BrokerError> {
        let open = |file| Ok(Arc::new(Stations::open(file, self.cluster.servers.len())?));
        self.stations.as_ref().map(open).transpose()
    }

    /// Of processes whose I/O runs here.
    pub(crate) fn under_way(&self) -> &Arc<UnderWay> {
        &self.under_way
    }

    /// What reads take, by server.
    pub(crate) fn read_costs(&self) -> &[RequestCost] {
        &self.read_costs
    }

    /// What writes take, by server.
    pub(crate) fn write_costs(&self) -> &[RequestCost] {
        &self.write_costs
    }

    /// How long a disk must be left alone before its logs are written back, where that is not as usual.
    pub(crate) fn quiet_after(&self) -> Option<Duration> {
        self.quiet_after
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

    /// See [`server_name`].
    pub(crate) fn server_name(&self, server: ServerId) -> String {
        server_name(&self.servers, server)
    }

    /// See [`perform_together`].
    pub(crate) fn perform_together<'a>(
        &'a self,
        calls: impl IntoIterator<Item = (ServerId, Operation<'a>)>,
    ) -> Vec<Result<Outcome, ServerError>> {
        perform_together(&self.servers, calls)
    }

    /// Whether a cut of the file, of which somebody was told that it failed, may yet happen.
    pub(crate) fn is_changing(&self, file: FileId) -> bool {
        self.servers.iter().any(|server| server.is_changing(file))
    }

    pub(crate) fn is_alive(&self, slot: ProcessSlot, incarnation: Incarnation) -> bool {
        self.processes.is_alive(slot, incarnation) || self.under_way.is_any_of(slot, incarnation)
    }
}

impl Drop for Context {
    /// Also where the role did not begin.
    fn drop(&mut self) {
        if let Some(membership) = &self.membership {
            membership.end();
        }
    }
}

/// One of the cluster's servers by its number.
pub(crate) fn server_in(servers: &[Box<dyn ObjectStore>], server: ServerId) -> Result<&dyn ObjectStore, ServerError> {
    servers.get(usize::from(server.0)).map(AsRef::as_ref).ok_or_else(|| ServerError::Unusable {
        server: format!("number {server}"),
        what: format!("cluster.toml names {} servers only; restore it", servers.len()),
    })
}

/// Its name in cluster.toml, or its number where that does not list it.
pub(crate) fn server_name(servers: &[Box<dyn ObjectStore>], server: ServerId) -> String {
    servers.get(usize::from(server.0)).map_or_else(|| format!("number {server}"), |store| store.name().to_owned())
}

/// Has these calls under way together and returns what became of each, in their order.
pub(crate) fn perform_together<'a>(
    servers: &'a [Box<dyn ObjectStore>],
    calls: impl IntoIterator<Item = (ServerId, Operation<'a>)>,
) -> Vec<Result<Outcome, ServerError>> {
    let (mut results, mut known) = (Vec::new(), Vec::new());
    for (server, operation) in calls {
        match server_in(servers, server) {
            Ok(store) => {
                known.push((store, operation));
                results.push(None);
            }
            Err(error) => results.push(Some(Err(error))),
        }
    }
    let mut performed = server::perform_together(known).into_iter();
    results.into_iter().filter_map(|result| result.or_else(|| performed.next())).collect()
}

/// The cluster's servers, none of them opened yet: a mount that does not answer is met by those who need it.
///
/// `hold` is held by calls that go on after they were given up.
pub(crate) fn watched_servers(
    cluster: &Cluster,
    hold: &Arc<impl Any + Send + Sync>,
    options: &BrokerOptions,
    membership: Option<&Arc<Membership>>,
) -> Vec<Box<dyn ObjectStore>> {
    let watched = |(number, server): (u16, &Server)| -> Box<dyn ObjectStore> {
        let (id, name, url) = (cluster.id.clone(), server.name.clone(), server.url.clone());
        let wrap = options.wrap_server.clone();
        let (open_by_agent, membership) = (options.open_by_agent, membership.cloned());
        let open = move || {
            let opened = match (server::is_by_agent(&url), open_by_agent, &membership) {
                (false, ..) => server::open(&id, ServerId(number), &name, &url, None)?,
                (true, Some(open), _) => open(&id, &name, &url)?,
                (true, None, Some(membership)) => by_agent::open_shared(&id, &name, &url, membership)?,
                (true, None, None) => by_agent::open(&id, &name, &url)?,
            };
            Ok(match &wrap {
                Some(wrap) => wrap(opened),
                None => opened,
            })
        };
        Box::new(WatchedServer::new(&server.name, options.patience, Arc::clone(hold) as _, Box::new(open)))
    };
    (0..).zip(&cluster.servers).map(watched).collect()
}

/// The processes file of this state directory, opened once for the life of this process.
pub(crate) fn processes_of(state: &StateDirectory) -> Result<&'static Processes, BrokerError> {
    static KEPT: Mutex<Vec<((u64, u64), &'static Processes)>> = Mutex::new(Vec::new());
    let fault = |action| move |source| BrokerError::Os { action, source };
    let mut kept = guard(&KEPT);
    let name = "processes";
    let mapping = fault("mapping run/processes");
    if let Ok(found) = rustix::fs::statat(state.run(), name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
        let table = (found.st_dev, found.st_ino);
        if let Some((_, processes)) = kept.iter().find(|(inode, _)| *inode == table) {
            return Ok(processes);
        }
        // A client of this process has it open. To open it once more would be to close that again if anything failed.
        let opened = Processes::build_of_this_process(table, descriptors::default_base()).map_err(&mapping)?;
        if let Some(processes) = opened {
            let processes: &'static Processes = Box::leak(Box::new(processes));
            kept.push((table, processes));
            return Ok(processes);
        }
    }
    let file = state.open_shared(name, OFlags::RDWR | OFlags::CREATE).map_err(fault("opening run/processes"))?;
    let found = rustix::fs::fstat(&file).map_err(fault("looking at run/processes"))?;
    let processes: &'static Processes = Box::leak(Box::new(Processes::build(file).map_err(mapping)?));
    kept.push(((found.st_dev, found.st_ino), processes));
    Ok(processes)
}
