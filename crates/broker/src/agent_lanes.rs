//! The agent's side of lanes: what processes ask of servers whose I/O runs here.
//!
//! Each lane has a thread that takes what was submitted and begins it ([`ObjectStore::begin`]); whoever ends an operation completes its slot and wakes the process.
//! So operations of one process are under way together, on any servers, and a server that does not answer keeps nobody but those waiting who need it.
//!
//! A process may ask for files only that its connection has opened, and write those only that it opened for writing. A process that dies counts as alive while
//! operations of it are under way ([`crate::under_way`]): until then its requests are not over.
//!
//! # When the role of an agent is over
//!
//! Its lanes take no more orders, and its servers are closed. What they have not answered yet goes on ([`Unanswered`]): the process is told by whoever ends the
//! operation, whichever role is served by then, and the next role does not take that order. It is no more than what was under way before: the process counts as inside
//! the region until it is over, so no move or truncation passes it. A client that was shut out of a server meanwhile gets its orders back, for the present role, which does
//! them again as another client, or refuses them.

use crate::agent_counts::{AgentCounts, Io};
use crate::connection::Client;
use crate::context::{Context, Servers, server_in};
use crate::log::{Log, note};
use crate::under_way::TakenSlots;
use crate::{guard, threads};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, ObjectOffset, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{Handle, LentTransfer, ObjectName, ServerError};
use stripewise_store::shared::agent_lane::{AgentLane, Ask, Failure, Order, SLOTS};
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

/// How often a thread without orders looks whether it is wanted.
const IDLE: Duration = Duration::from_secs(1);
/// For how long operations under way are waited for at the end.
const END_PATIENCE: Duration = Duration::from_secs(5);
/// The same where another role follows: those that servers answer are over by then.
const HANDOVER_PATIENCE: Duration = Duration::from_millis(100);
/// Of every object, as long as one host uses a cluster.
const EPOCH: u64 = 1;

/// By device and inode of its memory.
type Key = (u64, u64);

/// All lanes of one role.
#[derive(Default)]
pub(crate) struct AgentLanes {
    lanes: Mutex<HashMap<Key, Arc<Served>>>,
    begun: Arc<Begun>,
    is_followed: AtomicBool,
}

/// What one role has begun.
#[derive(Default)]
struct Begun {
    /// No more orders are taken.
    is_over: AtomicBool,
    under_way: AtomicUsize,
}

/// A lane that is served.
struct Served {
    lane: AgentLane,
    client: Mutex<Arc<Mutex<Client>>>,
    /// The process, which does not change.
    claim: (ProcessSlot, Incarnation),
    under_way: Arc<AtomicUsize>,
    begun: Arc<Begun>,
    /// By all roles.
    taken: Arc<TakenSlots>,
    /// Its connection has ended.
    ending: AtomicBool,
}

impl AgentLanes {
    /// Serves the lane that a client handed over. A lane that is served already goes on under the client's new connection.
    pub(crate) fn serve(
        self: &Arc<Self>,
        context: &Arc<Context>,
        client: &Arc<Mutex<Client>>,
        file: &OwnedFd,
    ) -> Result<(), Refusal> {
        let invalid = |errno| Refusal::Invalid { what: format!("the lane of a process cannot be used: {errno}") };
        let found = rustix::fs::fstat(file).map_err(invalid)?;
        let key = (found.st_dev, found.st_ino);
        let claim =
            guard(client).claim.ok_or_else(|| Refusal::Invalid { what: "claim a process slot first".to_owned() })?;
        let mut lanes = guard(&self.lanes);
        guard(client).lane = Some(key);
        if let Some(served) = lanes.get(&key).filter(|served| served.claim == claim) {
            *guard(&served.client) = Arc::clone(client);
            served.ending.store(false, SeqCst);
            return Ok(());
        }
        let lane = AgentLane::open(file).map_err(invalid)?;
        let taken = context.under_way().taken_of((key, claim));
        {
            let taken = guard(&taken);
            // What another process had taken, or a role before this one whose client was shut out. What still goes on ends by itself.
            (0..SLOTS).filter(|slot| *taken >> slot & 1 == 0).for_each(|slot| lane.reset(slot));
        }
        let served = Arc::new(Served {
            lane,
            client: Mutex::new(Arc::clone(client)),
            claim,
            under_way: context.under_way().count_of(claim),
            begun: Arc::clone(&self.begun),
            taken,
            ending: AtomicBool::new(false),
        });
        let (all, working, context) = (Arc::downgrade(self), Arc::clone(&served), Arc::downgrade(context));
        threads::spawn("stripewise-lane", move || working.work(key, &all, &context))
            .map_err(|error| Refusal::Invalid { what: error.to_string() })?;
        lanes.insert(key, served);
        Ok(())
    }

    /// Another role of this process follows: it does not wait for what servers do not answer.
    pub(crate) fn are_followed(&self) {
        self.is_followed.store(true, SeqCst);
    }

    /// The client's connection has ended: its thread ends, once nothing is under way.
    pub(crate) fn leave(&self, key: Key) {
        if let Some(served) = guard(&self.lanes).get(&key) {
            served.ending.store(true, SeqCst);
            served.lane.interrupt_agent();
        }
    }

    /// Takes no more orders, and waits a while for those under way. What is left when the process ends is shut out by whoever opens its servers next.
    pub(crate) fn stop(&self) {
        self.begun.is_over.store(true, SeqCst);
        let patience = if self.is_followed.load(SeqCst) { HANDOVER_PATIENCE } else { END_PATIENCE };
        let end = Instant::now() + patience;
        loop {
            let has_ended = {
                let lanes = guard(&self.lanes);
                lanes.values().for_each(|served| served.lane.interrupt_agent());
                lanes.is_empty()
            };
            let is_over = has_ended && self.begun.under_way.load(SeqCst) == 0;
            if is_over || Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Servers of roles that are over, for as long as operations go on there that they have not answered.
#[derive(Default)]
pub(crate) struct Unanswered(Mutex<Vec<(Arc<Servers>, Arc<Begun>)>>);

impl Unanswered {
    /// Keeps the servers if there is such an operation, of these lanes that are stopped.
    pub(crate) fn keep(&self, log: &Log, servers: &Arc<Servers>, lanes: &AgentLanes) {
        if lanes.begun.under_way.load(SeqCst) > 0 {
            note!(log, warn, "servers have not answered programs of this host, which takes its next role meanwhile");
            guard(&self.0).push((Arc::clone(servers), Arc::clone(&lanes.begun)));
        }
    }

    /// Closes those that have answered all.
    pub(crate) fn close_answered(&self) {
        let answered: Vec<_> = guard(&self.0).extract_if(.., |(_, begun)| begun.under_way.load(SeqCst) == 0).collect();
        // Without the lock: a connection may take a while to close.
        drop(answered);
    }
}

impl Served {
    /// The thread's life.
    fn work(self: &Arc<Self>, key: Key, all: &Weak<AgentLanes>, context: &Weak<Context>) {
        loop {
            let (Some(lanes), Some(context)) = (all.upgrade(), context.upgrade()) else { return };
            let is_stopping = self.begun.is_over.load(SeqCst);
            let seen = self.lane.submitted();
            if is_stopping || self.ending.load(SeqCst) {
                // Whoever finds no lane left may start a successor, which needs the lock that the context keeps.
                drop(context);
                let mut lanes = guard(&lanes.lanes);
                if is_stopping || self.ending.load(SeqCst) && self.under_way.load(SeqCst) == 0 {
                    lanes.remove(&key);
                    return;
                }
                drop(lanes);
                self.lane.wait_for_orders(seen, Duration::from_millis(1));
                continue;
            }
            drop(lanes);
            let mut has_begun = false;
            for slot in (0..SLOTS).filter(|slot| self.lane.is_submitted(*slot)) {
                self.count_one();
                match self.take(slot) {
                    None => {
                        self.count_off();
                        continue;
                    }
                    Some(Ok(order)) if context.lost().has(order.file, self.claim) => {
                        let what =
                            "this host did not answer the cluster's master and was shut out; open the file again";
                        self.complete(slot, Err(Failure::Other(what.to_owned())));
                    }
                    Some(Ok(order)) => self.begin(&context, slot, &order),
                    Some(Err(failure)) => self.complete(slot, Err(failure)),
                }
                has_begun = true;
            }
            drop(context);
            if !has_begun {
                self.lane.wait_for_orders(seen, IDLE);
            }
        }
    }

    fn count_one(&self) {
        self.under_way.fetch_add(1, SeqCst);
        self.begun.under_way.fetch_add(1, SeqCst);
    }

    /// Last: from here on the servers may be closed.
    fn count_off(&self) {
        self.under_way.fetch_sub(1, SeqCst);
        self.begun.under_way.fetch_sub(1, SeqCst);
    }

    /// Takes an order.
    fn take(&self, slot: usize) -> Option<Result<Order, Failure>> {
        let mut taken = guard(&self.taken);
        // The next role has looked at what is taken, or does so later.
        if self.begun.is_over.load(SeqCst) {
            return None;
        }
        let order = self.lane.take(slot)?;
        *taken |= 1 << slot;
        Some(order)
    }

    fn complete(&self, slot: usize, result: Result<u64, Failure>) {
        let mut taken = guard(&self.taken);
        let wake = self.lane.complete(slot, &result);
        *taken &= !(1 << slot);
        drop(taken);
        drop(wake);
        self.count_off();
    }

    /// The order was not done, and is there for the next role, or for the present one if this is over.
    fn leave(&self, slot: usize) {
        let mut taken = guard(&self.taken);
        *taken &= !(1 << slot);
        let is_over = self.begun.is_over.load(SeqCst);
        if is_over {
            self.lane.reset(slot);
        }
        drop(taken);
        if is_over {
            self.lane.interrupt_agent();
        }
        self.count_off();
    }

    /// The same of what a server answered, which is counted if `io` says so. `is_shared`: where the host was shut out the next agent here does it again, or refuses it.
    fn end(
        &self,
        slot: usize,
        result: Result<u64, ServerError>,
        is_shared: bool,
        io: Option<(&AgentCounts, ServerId, Io)>,
    ) {
        if let Some((counts, server, io)) = io {
            counts.note_io(server, io, result.as_ref().ok().copied());
        }
        match result {
            Err(ServerError::ShutOut { .. }) if is_shared => self.leave(slot),
            result => self.complete(slot, result.map_err(failure_of)),
        }
    }

    fn may(&self, order: &Order) -> bool {
        let client = Arc::clone(&guard(&self.client));
        let granted = guard(&client).opened.get(&order.file).copied();
        granted.is_some_and(|granted| order.ask != Ask::Write || granted.writable)
    }

    /// On a thread of its own, so that other orders of the process go on.
    fn sync(self: &Arc<Self>, context: &Arc<Context>, slot: usize, server: ServerId, object: ObjectName) {
        let (served, servers, is_shared) = (Arc::clone(self), Arc::clone(context.all_servers()), context.is_shared());
        let counts = Arc::clone(context.counts());
        let run = move || {
            let result = sync(&servers, server, object);
            // What ends the lanes waits for this one before the servers are closed.
            drop(servers);
            served.end(slot, result, is_shared, Some((&counts, server, Io::Sync)));
        };
        if let Err(error) = threads::spawn("stripewise-sync", run) {
            self.complete(slot, Err(Failure::Other(error.to_string())));
        }
    }

    fn begin(self: &Arc<Self>, context: &Arc<Context>, slot: usize, order: &Order) {
        // Counted before this looks: who finds the process dead and nothing under way can be sure that nothing of it begins any more.
        if !context.processes().is_alive(self.claim.0, self.claim.1) {
            return self.complete(slot, Err(Failure::Denied));
        }
        if !self.may(order) {
            return self.complete(slot, Err(Failure::Denied));
        }
        if order.epoch != EPOCH {
            return self.complete(slot, Err(Failure::Missing));
        }
        let store = match context.server(order.server) {
            Ok(store) => store,
            Err(refusal) => return self.complete(slot, Err(Failure::Other(refusal.to_string()))),
        };
        let object = ObjectName { file: order.file, region: order.region, generation: order.generation };
        let (served, is_shared) = (Arc::clone(self), context.is_shared());
        let (counts, server, io) = (Arc::clone(context.counts()), order.server, transfer_of(order.ask));
        let then = Box::new(move |result: Result<usize, ServerError>| {
            let counted = io.map(|io| (&*counts, server, io));
            served.end(slot, result.map(|bytes| bytes as u64), is_shared, counted);
        });
        let direction = match order.ask {
            Ask::Size => return store.begin_size(object, then),
            Ask::Sync => return self.sync(context, slot, order.server, object),
            Ask::Read => Direction::Read,
            Ask::Write => Direction::Write,
        };
        let start = match self.lane.memory(slot, order.length) {
            Ok(start) => start,
            Err(errno) => return self.complete(slot, Err(Failure::Other(format!("no memory for its data: {errno}")))),
        };
        let offset = ObjectOffset(order.offset);
        let transfer = LentTransfer { object, offset, start, length: order.length, direction };
        // SAFETY: the slot's memory is the agent's until the slot is completed, and mapped as long as `served` lives.
        unsafe { store.begin(transfer, then) };
    }
}

fn transfer_of(ask: Ask) -> Option<Io> {
    match ask {
        Ask::Read => Some(Io::Transfer(Direction::Read)),
        Ask::Write => Some(Io::Transfer(Direction::Write)),
        Ask::Size | Ask::Sync => None,
    }
}

/// Makes an object durable, however long its disks take.
fn sync(servers: &Servers, server: ServerId, object: ObjectName) -> Result<u64, ServerError> {
    server_in(servers, server)?.sync(Handle::Named(object)).map(|()| 0)
}

/// What the process is told. Its own words name the server.
fn failure_of(error: ServerError) -> Failure {
    match error {
        ServerError::Missing { .. } => Failure::Missing,
        ServerError::NoSpace { .. } => Failure::NoSpace,
        ServerError::Denied { .. } => Failure::Denied,
        ServerError::Unusable { what, .. } => Failure::Other(what),
        other @ (ServerError::ShutOut { .. }
        | ServerError::Exists { .. }
        | ServerError::NotAnswering { .. }
        | ServerError::Os { .. }) => Failure::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
