//! The agent: what serves the programs of one host, of a cluster that has many.
//!
//! Agents elect a master by the cluster's coordinator. The master is a broker as in a cluster of one host, whose table is the one that hosts
//! share: it alone changes that, and makes, moves and frees objects. An agent that loses the election follows the master.
//!
//! An agent takes one role after the other for as long as it holds the lock of its host's state directory. A change of role is to programs
//! what a change of the broker is on one host: they connect again, and I/O on what is placed goes on meanwhile.

mod follower;
mod links;
mod master;
mod watching;

use crate::by_agent;
use crate::context::{Context, Sharing};
use crate::coordination::{Candidate, Coordinator, Master as Elected, Mastership};
use crate::etcd::{EtcdCoordinator, EtcdOptions};
use crate::host_messages::MESSAGES_VERSION;
use crate::hosts::{self, ClusterKey, Introduction, LinkError, Listener, Peer};
use crate::log::{Log, note};
use crate::lost_files::LostFiles;
use crate::membership::Membership;
use crate::others::Others;
use crate::rados::{RadosCoordinator, RadosOptions};
use crate::rmt::{hosts_in, is_shut_out_in};
use crate::service::Service;
use crate::serving::Serves as _;
use crate::{Broker, BrokerError, BrokerHandle, BrokerOptions, guard, threads};
use follower::Follower;
use links::{FollowerEars, MasterEars, PeerLine};
use master::Master;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::{Cluster, Coordinator as Coordination, FileId, ServerUrl};
use stripewise_store::server::emulated::is_emulated;
use stripewise_store::server::is_by_agent;
use stripewise_store::state::{BrokerLock, HostIdentity, StateDirectory};
use watching::MasterWatch;

/// For how long a role is sought before the start fails.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// For how long one election is waited for.
const ELECTION: Duration = Duration::from_millis(200);
/// For how long a master is tried to be reached; one whose host is down is followed by another meanwhile.
const CONNECTION: Duration = Duration::from_secs(1);
/// How often an agent looks whether its role is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Serves this host until dropped.
pub(crate) struct Agent {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    seat: Seat,
    role: Mutex<Option<Role>>,
    cleaned: Vec<String>,
    stopping: Mutex<bool>,
    woken: Condvar,
}

/// What every role of this host has.
struct Seat {
    cluster: Cluster,
    lock: Arc<BrokerLock>,
    options: BrokerOptions,
    coordinator: Arc<dyn Coordinator>,
    candidate: Candidate,
    host_timeout: Duration,
    key: ClusterKey,
    introduction: Introduction,
    links: Arc<MasterEars>,
    /// A role was taken: what a former agent of this host sent takes no effect any more.
    has_come: AtomicBool,
    /// The host that was followed last, and when it was heard last.
    followed: Mutex<Option<(String, Instant)>>,
    /// Agents of other hosts come here when this host is master.
    _listener: Listener,
    log: Log,
}

enum Role {
    Master { master: Arc<Master>, broker: BrokerHandle, mastership: Box<dyn Mastership> },
    Follower { follower: Arc<Follower>, service: Service, link: Arc<Peer>, watch: MasterWatch },
}

impl Role {
    fn is_over(&self) -> bool {
        match self {
            Self::Master { mastership, broker, .. } => mastership.is_lost() || broker.core.context().is_shut_out(),
            Self::Follower { follower, link, watch, .. } => {
                !link.is_open() || follower.is_over() || watch.is_over() || follower.context().is_shut_out()
            }
        }
    }

    /// What is to be done now and then.
    fn tidy(&self) {
        if let Self::Master { master, .. } = self {
            master.forget_departed();
        }
    }

    fn cleaned(&self) -> Vec<String> {
        match self {
            Self::Master { broker, .. } => broker.cleaned().to_vec(),
            Self::Follower { .. } => Vec::new(),
        }
    }

    /// `leaves`: the agent ends with it. `is_stopping`: it is not wanted any more.
    fn end(self, seat: &Seat, leaves: bool, is_stopping: &dyn Fn() -> bool) {
        match self {
            Self::Master { master, broker, mastership } => {
                seat.links.follow(None);
                master.stop();
                if leaves {
                    broker.core.leave_as(&seat.candidate.name);
                }
                let core = Arc::clone(&broker.core);
                broker.stop();
                core.agent_lanes().wait_until_over(core.context().log(), is_stopping);
                drop(core);
                if let Err(error) = mastership.resign() {
                    note!(seat.log, warn, %error, "the next master is elected when this one's time is over");
                }
            }
            Self::Follower { follower, service, link, watch } => {
                drop(watch);
                if leaves {
                    service.stop();
                    follower.leave();
                    link.close();
                } else {
                    *guard(&seat.followed) = Some((link.introduction().host.clone(), link.last_heard()));
                    // Nobody waits for the answer of a host that is lost.
                    follower.lose();
                    link.close();
                    service.stop();
                    follower.agent_lanes().wait_until_over(follower.context().log(), is_stopping);
                }
                follower.end();
            }
        }
    }
}

/// The engine that the cluster file names.
fn coordinator_of(cluster: &Cluster, coordination: &Coordination) -> Result<Arc<dyn Coordinator>, BrokerError> {
    let fault = |what: String| BrokerError::Coordinator { what };
    if let Some(options) = RadosOptions::of(coordination) {
        let coordinator = RadosCoordinator::new(&options, &cluster.id).map_err(|error| fault(error.to_string()))?;
        return Ok(Arc::new(coordinator));
    }
    let mut options = EtcdOptions::new(coordination.etcd.clone());
    options.tls.ca.clone_from(&coordination.etcd_ca);
    options.tls.certificate = coordination.etcd_certificate.clone().zip(coordination.etcd_key.clone());
    Ok(Arc::new(EtcdCoordinator::new(&options, &cluster.id).map_err(|error| fault(error.to_string()))?))
}

impl Seat {
    /// An agent of this host that was master has ended, since this one has its lock: nobody waits until its time is over.
    fn end_predecessor(&self, state: &StateDirectory) {
        if let Some(term) = state.noted_mastership()
            && let Err(error) = self.coordinator.end_term(term)
        {
            note!(self.log, warn, %error, "the mastership of this host's last agent ends by itself");
        }
    }

    /// Becomes master or follows one; `is_stopping`: it is not wanted any more.
    fn take_role(&self, is_stopping: &dyn Fn() -> bool) -> Result<Role, BrokerError> {
        let deadline = Instant::now() + START_PATIENCE;
        let mut why = "nobody is master".to_owned();
        loop {
            if let Some(mastership) = self.coordinator.campaign(&self.candidate, ELECTION)? {
                note!(self.log, info, "this host is elected master");
                return self.be_master(mastership);
            }
            if let Some(master) = self.coordinator.master()? {
                match self.follow(&master) {
                    Ok(role) => {
                        note!(self.log, info, master = %master.candidate.name, "this host follows the master");
                        return Ok(role);
                    }
                    Err(what) => {
                        why = format!("{} at {}: {what}", master.candidate.name, master.candidate.address);
                        note!(self.log, info, error = why.as_str(), "no master is followed yet");
                    }
                }
            }
            if Instant::now() >= deadline || is_stopping() {
                let what =
                    format!("this host can neither be master of cluster {} nor follow one: {why}", self.cluster.id);
                return Err(BrokerError::Coordinator { what });
            }
        }
    }

    fn be_master(&self, mastership: Box<dyn Mastership>) -> Result<Role, BrokerError> {
        let begun = self.begin_mastership(mastership.as_ref());
        match begun {
            Ok((master, broker)) => Ok(Role::Master { master, broker, mastership }),
            Err(error) => {
                self.links.follow(None);
                // Another host may do better.
                let _ = mastership.resign();
                Err(error)
            }
        }
    }

    fn begin_mastership(&self, mastership: &dyn Mastership) -> Result<(Arc<Master>, BrokerHandle), BrokerError> {
        let state = StateDirectory::open(&self.cluster.state)?;
        if is_shut_out_in(mastership.table().as_ref(), &self.candidate.name)? {
            self.lose_files(&state)?;
        }
        // Without the note the next agent of this host waits until this one's time is over.
        if let Err(error) = state.note_mastership(mastership.master().term) {
            note!(self.log, warn, %error, "the next agent of this host cannot take over at once");
        }
        // Cuts and turns of one master are fewer than this.
        let first_number = mastership.master().term << 24;
        let mut expected = hosts_in(mastership.table().as_ref())?;
        expected.retain(|host| *host != self.candidate.name);
        let others = Arc::new(Others::new(expected, self.host_timeout, first_number));
        if let Some((host, heard)) = &*guard(&self.followed) {
            others.was_master(host, *heard);
        }
        let master = Arc::new(Master::new(&others, mastership.table()));
        self.links.follow(Some((Arc::clone(&master), Arc::clone(&others))));
        // Before anything is cut or freed, they say what they have open.
        for host in others.wait_for_expected() {
            note!(
                self.log,
                warn,
                host,
                "the host has not come back since the master changed; it may have any file open"
            );
        }
        let membership = Arc::new(Membership::of_master(&self.candidate.name, first_number));
        let sharing = Sharing { table: mastership.table(), others: Some(others), first_number, membership };
        let broker = Broker::serve(&self.cluster, state, Arc::clone(&self.lock), self.options.clone(), Some(sharing))?;
        broker.core.context().table().note_host(&self.candidate.name, true)?;
        broker.core.context().table().note_shut_out(&self.candidate.name, false)?;
        master.serve(&broker.core);
        Ok((master, broker))
    }

    /// This host was shut out, and becomes master before any other told it so.
    fn lose_files(&self, state: &StateDirectory) -> Result<(), BrokerError> {
        let lost = LostFiles::default().lose_all(state);
        let lost =
            lost.map_err(|(_, source)| BrokerError::Os { action: "abandoning the shared memory of a file", source })?;
        note_lost(&self.log, &lost);
        Ok(())
    }

    fn follow(&self, master: &Elected) -> Result<Role, String> {
        let address = master.candidate.address.parse().map_err(|_| "its address is none".to_owned())?;
        let ears = Arc::new(FollowerEars::default());
        let link = hosts::connect(address, &self.key, &self.introduction, Arc::clone(&ears) as _, CONNECTION)
            .map_err(|error| error.to_string())?;
        let begin = || -> Result<_, String> {
            let state = StateDirectory::open(&self.cluster.state).map_err(|error| error.to_string())?;
            let listener = state.listen().map_err(|error| error.to_string())?;
            let membership = Arc::new(Membership::of_follower(&self.candidate.name));
            let sharing = Sharing { table: self.coordinator.table(), others: None, first_number: 0, membership };
            let context =
                Context::open(&self.cluster, state, Arc::clone(&self.lock), self.options.clone(), Some(sharing))
                    .map_err(|error| error.to_string())?;
            let follower = Follower::start(
                context,
                Arc::new(PeerLine(Arc::clone(&link))),
                !self.has_come.load(SeqCst),
                |follower| {
                    ears.belong_to(follower);
                },
            )
            .map_err(|refusal| refusal.to_string())?;
            self.has_come.store(true, SeqCst);
            let service = Service::start(Arc::clone(&follower) as _, listener).map_err(|error| error.to_string())?;
            let watch = MasterWatch::start(&self.coordinator, master.term).map_err(|error| error.to_string())?;
            Ok((follower, service, watch))
        };
        match begin() {
            Ok((follower, service, watch)) => Ok(Role::Follower { follower, service, link, watch }),
            Err(what) => {
                link.close();
                Err(what)
            }
        }
    }
}

impl Agent {
    /// Takes a role. When this returns, programs of this host can connect.
    pub(crate) fn start(
        cluster: &Cluster,
        coordination: &Coordination,
        lock: Arc<BrokerLock>,
        options: BrokerOptions,
    ) -> Result<Self, BrokerError> {
        let is_alone = |url: &ServerUrl| is_emulated(url) || (is_by_agent(url) && !by_agent::can_be_shared(url));
        if let Some(server) = cluster.servers.iter().find(|server| is_alone(&server.url)) {
            let what = format!(
                "server {} ({}) can be used by one host only; name pools of Ceph or directories that all hosts mount, or remove [coordinator] from cluster.toml",
                server.name, server.url
            );
            return Err(BrokerError::Cluster { what });
        }
        let host = options.host.clone().map_or_else(HostIdentity::of_this_host, Ok)?;
        let state = Arc::new(StateDirectory::open(&cluster.state)?);
        state.note_agent().map_err(|source| BrokerError::Os { action: "making run/agent", source })?;
        let unlinked = |error: LinkError| BrokerError::Coordinator { what: error.to_string() };
        let key = ClusterKey::load(&coordination.key)
            .map_err(|error| BrokerError::Coordinator { what: error.to_string() })?;
        let introduction = Introduction {
            cluster: cluster.id.clone(),
            host: host.name.clone(),
            machine: machine_of(&host),
            process: std::process::id(),
            version: MESSAGES_VERSION,
        };
        let address = hosts::address_of(coordination.listen.as_deref().unwrap_or_default()).map_err(unlinked)?;
        let links = Arc::new(MasterEars::default());
        let listener =
            Listener::start(address, &key, introduction.clone(), Arc::clone(&links) as _).map_err(unlinked)?;
        let seat = Seat {
            cluster: cluster.clone(),
            lock,
            options,
            coordinator: coordinator_of(cluster, coordination)?,
            candidate: Candidate { name: host.name, address: listener.address().to_string() },
            host_timeout: coordination.host_timeout(),
            key,
            introduction,
            links,
            has_come: AtomicBool::new(false),
            followed: Mutex::default(),
            _listener: listener,
            log: Log::new(&state),
        };
        seat.end_predecessor(&state);
        let role = seat.take_role(&|| false)?;
        let cleaned = role.cleaned();
        let shared = Arc::new(Shared {
            seat,
            role: Mutex::new(Some(role)),
            cleaned,
            stopping: Mutex::new(false),
            woken: Condvar::new(),
        });
        let working = Arc::clone(&shared);
        let thread = Some(threads::spawn("stripewise-agent", move || working.work())?);
        Ok(Self { shared, thread })
    }

    /// What the first role found unfinished, and whether it could be cleaned up.
    pub(crate) fn cleaned(&self) -> Vec<String> {
        self.shared.cleaned.clone()
    }
}

/// Says in the log what became of files of this host.
fn note_lost(log: &Log, files: &[FileId]) {
    for file in files {
        note!(
            log,
            error,
            %file,
            "this host did not answer and was shut out: what programs here had neither synced nor closed of the file may be lost, and their I/O fails until they open it again"
        );
    }
}

/// What tells two hosts of one name apart.
fn machine_of(host: &HostIdentity) -> String {
    match host.machine.is_empty() {
        true => format!("boot {:032x}", u128::from_be_bytes(host.boot)),
        false => host.machine.clone(),
    }
}

impl Shared {
    /// Waits a while; true: the agent ends.
    fn is_stopping(&self) -> bool {
        let stopping = guard(&self.stopping);
        let waited = self.woken.wait_timeout_while(stopping, CHECK_INTERVAL, |stopping| !*stopping);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes another role whenever one is over.
    fn work(&self) {
        while !self.is_stopping() {
            let mut role = guard(&self.role);
            if let Some(role) = role.as_ref().filter(|role| !role.is_over()) {
                role.tidy();
                continue;
            }
            if let Some(ended) = role.take() {
                note!(self.seat.log, info, "the role of this host is over");
                ended.end(&self.seat, false, &|| *guard(&self.stopping));
            }
            match self.seat.take_role(&|| *guard(&self.stopping)) {
                Ok(next) => *role = Some(next),
                Err(error) => note!(self.seat.log, error, %error, "this host has no role; it is tried again"),
            }
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        *guard(&self.shared.stopping) = true;
        self.shared.woken.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(role) = guard(&self.shared.role).take() {
            role.end(&self.shared.seat, true, &|| true);
        }
    }
}
