//! The agent: what serves the programs of one host, of a cluster that has many.
//!
//! Agents elect a master by the cluster's coordinator. The master is a broker as in a cluster of one host, whose table is the one that hosts
//! share: it alone changes that, and makes, moves and frees objects. An agent that loses the election follows the master. A master that hears none of the
//! others any more gives the role up, and wants it again only if none of them takes it.
//!
//! An agent takes one role after the other for as long as it holds the lock of its host's state directory. A change of role is to programs
//! what a change of the broker is on one host: they connect again, and I/O on what is placed goes on meanwhile. Agents do that themselves where
//! a server's I/O runs in them, so one that has lost its master serves programs until another role is in reach.

mod follower;
mod following;
mod links;
mod master;
mod own_name;
mod watching;

#[cfg(test)]
mod many_hosts;
#[cfg(test)]
mod tests;

use crate::agent_counts::AgentCounts;
use crate::agent_lanes::{AgentLanes, Unanswered};
use crate::context::{Context, Sharing};
use crate::coordination::{Candidate, Coordinator, Mastership, NUMBERS_OF_A_TERM};
use crate::engine::coordinator_of;
use crate::host_keys::HostKeys;
use crate::host_messages::MESSAGES_VERSION;
use crate::hosts::{self, Introduction, LinkError, Listener};
use crate::log::{Log, note};
use crate::lost_files::LostFiles;
use crate::membership::{Leave, Membership};
use crate::others::Others;
use crate::parts::hosts::{has_left_as, leave_as};
use crate::rmt::{hosts_in, is_shut_out_in, key_record_in};
use crate::serving::Serves as _;
use crate::under_way::UnderWay;
use crate::{Broker, BrokerError, BrokerHandle, BrokerOptions, guard, is_used, threads, try_guard};
use following::{Following, Next, NotFollowed, Reached};
use links::MasterEars;
use master::Master;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use stripewise_layout::{Cluster, Coordinator as Coordination, FileId};
use stripewise_store::server::emulated::is_emulated;
use stripewise_store::state::{BrokerLock, HostIdentity, StateDirectory};

/// For how long a role is sought before the start fails, beside the time for which a new master waits for hosts that do not come back.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// For how long a master that refuses this host is tried all the same: another may have its name for as long as that one is not known to be gone.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(8);
/// For how long one election is waited for.
const ELECTION: Duration = Duration::from_millis(200);
/// For how long a master is tried to be reached; one whose host is down is followed by another meanwhile.
const CONNECTION: Duration = Duration::from_secs(1);
/// When no role could be taken.
const ROLE_PAUSE: Duration = Duration::from_secs(1);
/// See [`patience_of_leaving`].
const LEAVE_PATIENCE: Duration = Duration::from_secs(10);
/// How often an agent looks whether its role is over.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

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
    keys: Arc<HostKeys>,
    introduction: Introduction,
    links: Arc<MasterEars>,
    counts: Arc<AgentCounts>,
    /// A role was taken: what a former agent of this host sent takes no effect any more.
    has_come: AtomicBool,
    /// The host that was followed last, and when it was heard last.
    followed: Mutex<Option<(String, Instant)>>,
    /// Until when this host does not want to be master: no other reached it when it was.
    stands_back: Mutex<Option<Instant>>,
    under_way: Arc<UnderWay>,
    unanswered: Unanswered,
    /// Agents of other hosts come here when this host is master.
    _listener: Arc<Listener>,
    log: Log,
}

enum Role {
    Master { master: Arc<Master>, broker: BrokerHandle, mastership: Box<dyn Mastership> },
    Follower(Following),
}

impl Role {
    fn is_over(&self) -> bool {
        match self {
            Self::Master { mastership, broker, .. } => {
                let context = broker.core.context();
                self.is_alone()
                    || mastership.is_lost()
                    || context.table().is_deposed()
                    || context.is_shut_out()
                    || context.is_term_used_up()
            }
            Self::Follower(following) => following.is_over(),
        }
    }

    /// What is to be done now and then.
    fn tidy(&self) {
        match self {
            Self::Master { master, broker, .. } => {
                master.forget_departed();
                master.end_holds_of_silent();
                broker.core.tidy_accesses();
            }
            Self::Follower(following) => following.follower().tidy(),
        }
    }

    /// Whether this host is master and cut off from all others.
    fn is_alone(&self) -> bool {
        matches!(self, Self::Master { master, .. } if master.is_alone())
    }

    /// Whether this host is master and has hardly any numbers of its term left.
    fn is_term_used_up(&self) -> bool {
        matches!(self, Self::Master { broker, .. } if broker.core.context().is_term_used_up())
    }

    /// Whether I/O goes on in it although it is over, until another role is in reach.
    fn outlasts_its_master(&self) -> bool {
        matches!(self, Self::Follower(following) if !following.follower().context().is_shut_out())
    }

    fn cleaned(&self) -> Vec<String> {
        match self {
            Self::Master { broker, .. } => broker.cleaned().to_vec(),
            Self::Follower(_) => Vec::new(),
        }
    }

    /// `leaves`: the agent ends with it.
    fn end(self, seat: &Seat, leaves: bool) -> Leave {
        match self {
            Self::Master { master, broker, mastership } => {
                seat.links.follow(None);
                master.stop();
                let mut leave = if leaves { leave_as(&broker.core, &seat.candidate.name) } else { Leave::Stays };
                let core = Arc::clone(&broker.core);
                if !leaves {
                    core.agent_lanes().are_followed();
                }
                broker.stop();
                if leave == Leave::Said {
                    leave = has_left_as(&core, &seat.candidate.name, &seat.identity());
                }
                seat.close_servers(core.context(), core.agent_lanes());
                drop(core);
                if let Err(error) = mastership.resign() {
                    note!(seat.log, warn, %error, "the next master is elected when this one's time is over");
                }
                leave
            }
            Self::Follower(following) => following.end(seat, leaves),
        }
    }
}

impl Seat {
    /// A role is over; what its servers have not answered goes on.
    fn close_servers(&self, context: &Context, lanes: &AgentLanes) {
        if let Some(membership) = context.membership() {
            membership.end();
        }
        self.unanswered.keep(&self.log, context.all_servers(), lanes);
    }

    /// See [`StateDirectory::note_leaving`].
    fn note_leaving(&self, is_leaving: bool) {
        let noted = StateDirectory::of(&self.cluster).map(|state| state.note_leaving(is_leaving));
        if let Ok(Err(error)) = noted {
            self.note_unheard(&error);
        }
    }

    fn note_unheard(&self, error: &dyn std::fmt::Display) {
        note!(self.log, warn, %error, "other hosts may take files for open here until an agent serves this host again");
    }

    /// An agent of this host that was master has ended, since this one has its lock: nobody waits until its time is over.
    fn end_predecessor(&self, state: &StateDirectory) {
        if let Some(term) = state.noted_mastership()
            && let Err(error) = self.coordinator.end_term(term)
        {
            note!(self.log, warn, %error, "the mastership of this host's last agent ends by itself");
        }
    }

    /// Becomes master or follows one, that which was reached already if any; `is_stopping`: it is not wanted any more.
    fn take_role(&self, mut reached: Option<Reached>, is_stopping: &dyn Fn() -> bool) -> Result<Role, BrokerError> {
        let deadline = Instant::now() + START_PATIENCE + self.host_timeout;
        let mut refused = None;
        let mut why = "nobody is master".to_owned();
        loop {
            self.catch_up()?;
            if let Some(Ok(role)) = reached.take().map(|reached| self.follow(reached)) {
                return Ok(role);
            }
            let namesake = self.namesake(self.coordinator.table().as_ref())?;
            if let Some(what) = namesake {
                // A master knows more: the other may have left since.
                refused = refused.or_else(|| Some(Instant::now()));
                why = what;
                std::thread::sleep(ELECTION);
            } else if guard(&self.stands_back).is_some_and(|end| Instant::now() < end) {
                std::thread::sleep(ELECTION);
            } else if let Some(mastership) = self.coordinator.campaign(&self.candidate, ELECTION)? {
                note!(self.log, info, "this host is elected master");
                return self.be_master(mastership);
            }
            if let Some(master) = self.coordinator.master()? {
                match self.reach(&master).and_then(|reached| self.follow(reached)) {
                    Ok(role) => return Ok(role),
                    Err(NotFollowed { what, is_refused }) => {
                        refused = refused.filter(|_| is_refused).or(is_refused.then(Instant::now));
                        why = format!("{} at {}: {what}", master.candidate.name, master.candidate.address);
                        note!(self.log, info, error = why.as_str(), "no master is followed yet");
                    }
                }
            }
            let is_refused = refused.is_some_and(|since| since.elapsed() >= REFUSAL_PATIENCE);
            if is_refused || Instant::now() >= deadline || is_stopping() {
                let what =
                    format!("this host can neither be master of cluster {} nor follow one: {why}", self.cluster.id);
                return Err(BrokerError::Coordinator { what });
            }
        }
    }

    /// Has the cluster's present key, or no role.
    fn catch_up(&self) -> Result<(), BrokerError> {
        // A process that was shut out of the engine reaches it again by this, and not by a table that it has.
        self.coordinator.master()?;
        let record = key_record_in(self.coordinator.table().as_ref())?;
        let caught_up = self.keys.catch_up(record.as_ref());
        caught_up.map_err(|error| BrokerError::Coordinator { what: error.to_string() })
    }

    fn be_master(&self, mastership: Box<dyn Mastership>) -> Result<Role, BrokerError> {
        let begun = self.begin_mastership(mastership.as_ref());
        match begun {
            Ok((master, broker)) => {
                self.counts.note_election(true);
                Ok(Role::Master { master, broker, mastership })
            }
            Err(error) => {
                self.links.follow(None);
                // Another host may do better.
                let _ = mastership.resign();
                Err(error)
            }
        }
    }

    fn begin_mastership(&self, mastership: &dyn Mastership) -> Result<(Arc<Master>, BrokerHandle), BrokerError> {
        let state = StateDirectory::of(&self.cluster)?;
        let agent = self.identity();
        if let Some(what) = self.namesake(mastership.table().as_ref())? {
            return Err(BrokerError::Coordinator { what });
        }
        if is_shut_out_in(mastership.table().as_ref(), &self.candidate.name, &agent)? {
            self.lose_files(&state)?;
        }
        // Without the note the next agent of this host waits until this one's time is over.
        if let Err(error) = state.note_mastership(mastership.master().term) {
            note!(self.log, warn, %error, "the next agent of this host cannot take over at once");
        }
        let first_number = mastership.master().term << NUMBERS_OF_A_TERM;
        let mut expected = hosts_in(mastership.table().as_ref())?;
        expected.retain(|(host, _)| *host != self.candidate.name);
        let others = Arc::new(Others::new(expected, self.host_timeout, first_number, &self.counts));
        if let Some((host, heard)) = &*guard(&self.followed) {
            others.was_master(host, *heard);
        }
        let master = Arc::new(Master::new(&others, mastership.table(), &self.counts));
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
        let membership = Arc::new(Membership::of_master(&self.candidate.name, first_number).under(mastership.lease()));
        let sharing = Sharing {
            table: mastership.table(),
            others: Some(others),
            first_number,
            membership,
            counts: Arc::clone(&self.counts),
            keys: Arc::clone(&self.keys),
            under_way: Arc::clone(&self.under_way),
            agent,
        };
        let broker = Broker::serve(&self.cluster, state, Arc::clone(&self.lock), self.options.clone(), Some(sharing))?;
        master.serve(&broker.core);
        Ok((master, broker))
    }

    /// This host was shut out, and becomes master before any other told it so.
    fn lose_files(&self, state: &StateDirectory) -> Result<(), BrokerError> {
        let fault = |source| BrokerError::Os { action: "abandoning the shared memory of files in run/", source };
        note_lost(&self.log, &LostFiles::default().lose_all(state).map_err(fault)?);
        Ok(())
    }
}

/// For how long programs wait for a master. One that is lost is followed when its lease has ended, and the next waits for the other hosts once.
fn patience_of_programs(host_timeout: Duration) -> Duration {
    START_PATIENCE + 2 * host_timeout
}

/// For how long an agent that ends tries to say so: a host that has not said it may have any file open. A new master hears nobody before it has waited for
/// hosts that do not come back.
pub(crate) fn patience_of_leaving(host_timeout: Duration) -> Duration {
    LEAVE_PATIENCE + host_timeout
}

impl Agent {
    /// Takes a role. When this returns, programs of this host can connect.
    pub(crate) fn start(
        cluster: &Cluster,
        coordination: &Coordination,
        lock: Arc<BrokerLock>,
        options: BrokerOptions,
    ) -> Result<Self, BrokerError> {
        if let Some(server) = cluster.servers.iter().find(|server| is_emulated(&server.url)) {
            let what = format!(
                "server {} ({}) can be used by one host only; name pools of Ceph, I/O servers of OrangeFS or directories that all hosts mount, or remove [coordinator] from cluster.toml",
                server.name, server.url
            );
            return Err(BrokerError::Cluster { what });
        }
        let host = options.host.clone().map_or_else(HostIdentity::of_this_host, Ok)?;
        let state = Arc::new(StateDirectory::of(cluster)?);
        state
            .note_agent(patience_of_programs(coordination.host_timeout()))
            .map_err(|source| BrokerError::Os { action: "making run/agent", source })?;
        let unlinked = |error: LinkError| BrokerError::Coordinator { what: error.to_string() };
        let keys =
            HostKeys::load(&coordination.key).map_err(|error| BrokerError::Coordinator { what: error.to_string() })?;
        let keys = Arc::new(keys);
        let introduction = Introduction {
            cluster: cluster.id.clone(),
            host: host.name.clone(),
            machine: machine_of(&host),
            process: std::process::id(),
            version: MESSAGES_VERSION,
            boot: Some(format!("{:032x}", u128::from_be_bytes(host.boot))),
            directory: Some(
                state.run_id().map_err(|source| BrokerError::Os { action: "reading or making run/id", source })?,
            ),
        };
        let address = hosts::address_of(coordination.listen.as_deref().unwrap_or_default()).map_err(unlinked)?;
        let links = Arc::new(MasterEars::default());
        let log = Log::new(&state);
        let listen = || Listener::start(address, &keys.key(), introduction.clone(), Arc::clone(&links) as _);
        // Whom it refuses is in the log too.
        let listener = Arc::new(log.within(listen).map_err(unlinked)?);
        keys.belong_to(&listener);
        let seat = Seat {
            cluster: cluster.clone(),
            lock,
            options,
            coordinator: coordinator_of(cluster, coordination)?,
            candidate: Candidate { name: host.name, address: listener.address().to_string() },
            host_timeout: coordination.host_timeout(),
            keys,
            introduction,
            links,
            counts: Arc::new(AgentCounts::new(cluster.servers.len(), listener.refused())),
            has_come: AtomicBool::new(false),
            followed: Mutex::default(),
            stands_back: Mutex::default(),
            under_way: Arc::default(),
            unanswered: Unanswered::default(),
            _listener: listener,
            log,
        };
        seat.end_predecessor(&state);
        let role = seat.take_role(None, &|| false)?;
        seat.note_leaving(false);
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

    /// Whether any program of this host uses the cluster; true also between two roles.
    pub(crate) fn is_used(&self) -> bool {
        let role = try_guard(&self.shared.role);
        role.is_none_or(|role| match &*role {
            None => true,
            Some(Role::Master { broker, .. }) => is_used(broker.core.context()),
            Some(Role::Follower(following)) => is_used(following.follower().context()),
        })
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
    /// Waits so long; true: the agent ends.
    fn is_stopping(&self, time: Duration) -> bool {
        let stopping = guard(&self.stopping);
        let waited = self.woken.wait_timeout_while(stopping, time, |stopping| !*stopping);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Takes another role whenever one is over.
    fn work(&self) {
        let mut pause = CHECK_INTERVAL;
        while !self.is_stopping(pause) {
            pause = CHECK_INTERVAL;
            self.seat.unanswered.close_answered();
            let mut role = guard(&self.role);
            if let Some(role) = role.as_ref().filter(|role| !role.is_over()) {
                role.tidy();
                continue;
            }
            let mut reached = None;
            if let Some(Role::Follower(following)) = role.as_ref().filter(|role| role.outlasts_its_master()) {
                following.lose_master(&self.seat);
                // Only this thread changes the role.
                drop(role);
                match self.seat.next_master() {
                    Next::OutOfReach => continue,
                    Next::None => {}
                    Next::Reached(next) => reached = Some(next),
                }
                role = guard(&self.role);
            }
            if let Some(ended) = role.take() {
                if ended.is_alone() {
                    note!(
                        self.seat.log,
                        warn,
                        "no other host is heard any more; one that others reach may become master"
                    );
                    *guard(&self.seat.stands_back) = Some(Instant::now() + self.seat.host_timeout);
                }
                if ended.is_term_used_up() {
                    note!(
                        self.seat.log,
                        info,
                        "this master has numbered as many moves, truncations and admissions as one term allows; another term begins, of this host or another"
                    );
                }
                note!(self.seat.log, info, "the role of this host is over");
                ended.end(&self.seat, false);
            }
            match self.seat.take_role(reached, &|| *guard(&self.stopping)) {
                Ok(next) => *role = Some(next),
                // The agent ends, and leaves by the next master.
                Err(_) if *guard(&self.stopping) => {}
                Err(error) => {
                    note!(self.seat.log, error, %error, "this host has no role; it is tried again");
                    pause = ROLE_PAUSE;
                }
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
        let seat = &self.shared.seat;
        let deadline = Instant::now() + patience_of_leaving(seat.host_timeout);
        let role = guard(&self.shared.role).take();
        // Before it is looked whether files are open: whoever has one either is seen, or sees this at its end.
        seat.note_leaving(true);
        // Agents of a job end together: one whose master ends before it was heard, or is sought, follows the next, or is that.
        let mut leave = role.map_or(Leave::Unheard, |role| role.end(seat, true));
        while leave == Leave::Unheard && Instant::now() < deadline {
            note!(seat.log, info, "this host leaves by the next master");
            leave = match seat.take_role(None, &|| Instant::now() >= deadline) {
                Ok(role) => role.end(seat, true),
                Err(error) => return seat.note_unheard(&error),
            };
        }
        if leave == Leave::Said {
            seat.note_leaving(false);
        }
    }
}
