//! An agent that follows the master: it serves the programs of its host and asks the master for what it may not decide.
//!
//! A file that a program here has open has shared memory on this host, as under a broker; its words of regions and its size are what the
//! master has told. Requests go to the master as programs make them. The master, in turn, asks for sizes, and shuts the file's gate here when
//! it is cut ([`Follower::asked`]).

mod files;
mod moves;
mod moving;
mod opening;

use super::note_lost;
use crate::agent_lanes::AgentLanes;
use crate::connection::{Answer, Carried, Connection};
use crate::context::Context;
use crate::file_memory::FileMemory;
use crate::guard;
use crate::host_messages::{FromAgent, FromMaster, Known, Shown, Snapshot, ToAgent, ToMaster, decode, encode};
use crate::identities::text_of;
use crate::log::note;
use crate::managed::{Managed, memory_fault};
use crate::others::Line;
use crate::proof::{Granted, Proof};
use crate::quiescing::Quiescing;
use crate::rechecks::Rechecks;
use crate::serving::Serves;
use files::{HostFile, HostFiles};
use moving::Moving;
use rustix::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Duration;
use stripewise_layout::{Direction, FileId, RegionIndex, ServerId};
use stripewise_store::protocol::{Admin, Event, PROTOCOL_VERSION, Refusal, Reply, Request};
use stripewise_store::server::{ObjectName, Operation, is_by_agent};

/// How long the answer to a program's request is waited for: the master may have to wait for servers and other hosts.
const REQUEST_PATIENCE: Duration = Duration::from_secs(90);

/// For how long files that are being taken over are waited for.
const TAKEOVER: Duration = Duration::from_secs(4);

/// Serves this host for as long as its master does.
pub(crate) struct Follower {
    context: Arc<Context>,
    memory: FileMemory,
    quiescing: Quiescing,
    rechecks: Arc<Rechecks>,
    lanes: Arc<AgentLanes>,
    files: HostFiles,
    master: Arc<dyn Line>,
    /// The master did not answer, or is none any more.
    is_lost: AtomicBool,
    /// What waits for programs gives up.
    is_ending: AtomicBool,
    /// Held while the master is answered.
    has_ended: RwLock<bool>,
    /// Every file that programs had open before is followed.
    has_all: Mutex<bool>,
    followed: Condvar,
}

impl Follower {
    /// Tells the master which files programs here have open, and takes their memory over. `is_first`: a former agent of this host may have sent what nobody heard of.
    pub(crate) fn start(
        context: Context,
        master: Arc<dyn Line>,
        is_first: bool,
        hear: impl FnOnce(&Arc<Self>),
    ) -> Result<Arc<Self>, Refusal> {
        let context = Arc::new(context);
        let rechecks = Arc::new(Rechecks::default());
        let follower = Arc::new(Self {
            memory: FileMemory::new(&context),
            quiescing: Quiescing::new(&context, &rechecks),
            rechecks,
            lanes: Arc::default(),
            files: HostFiles::default(),
            master,
            is_lost: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            has_ended: RwLock::new(false),
            has_all: Mutex::new(false),
            followed: Condvar::new(),
            context,
        });
        // From here on it may be asked.
        hear(&follower);
        match follower.take_over(is_first) {
            Ok(()) => Ok(follower),
            Err(refusal) => {
                follower.end();
                Err(refusal)
            }
        }
    }

    /// Follows the files that programs here have open.
    fn take_over(&self, is_first: bool) -> Result<(), Refusal> {
        let admission = match self.ask(&ToMaster::Join)? {
            FromMaster::Admitted { admission, is_shut_out } => {
                if is_shut_out {
                    self.lose_files()?;
                }
                admission
            }
            FromMaster::Refused(refusal) => return Err(refusal),
            other => return Err(unexpected(&other)),
        };
        if let Some(membership) = self.context.membership() {
            membership.admit(admission);
        }
        if is_first {
            self.come_to_servers()?;
        }
        let held = self.held_files();
        let holding = ToMaster::Holding { admission, files: held.iter().map(|(file, _)| *file).collect() };
        match self.ask(&holding)? {
            FromMaster::Heard => {}
            other => return Err(unexpected(&other)),
        }
        for (file, size_bytes) in held {
            match self.reopen(file, size_bytes) {
                Ok(()) => {}
                Err(Refusal::UnknownFile { .. }) => {
                    note!(self.context.log(), warn, %file, "a file that programs have open is no more");
                }
                // Without it the master would think that nobody here uses the file.
                Err(refusal) => return Err(refusal),
            }
        }
        *guard(&self.has_all) = true;
        self.followed.notify_all();
        Ok(())
    }

    /// Programs that a former agent of this host served may have died since, and hold nothing. What that agent sent for them takes no effect any more when the
    /// master hears so.
    fn come_to_servers(&self) -> Result<(), Refusal> {
        let servers = (0..).map(ServerId).zip(&self.context.cluster().servers);
        let by_agent = servers.filter(|(_, server)| is_by_agent(&server.url)).map(|(number, _)| number);
        let probed = self.context.perform_together(by_agent.map(|number| (number, Operation::Probe)));
        Ok(probed.into_iter().try_for_each(|outcome| outcome.map(drop))?)
    }

    /// The host was shut out while it did not answer.
    fn lose_files(&self) -> Result<(), Refusal> {
        let lost = self.context.lost().lose_all(self.context.state());
        note_lost(self.context.log(), &lost.map_err(|(file, errno)| memory_fault(file)(errno))?);
        Ok(())
    }

    /// From here on nothing that the master asks for changes anything on this host, however late it comes: the next to serve the host takes the files over.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, SeqCst);
        *guard(&self.has_all) = true;
        self.followed.notify_all();
        *self.has_ended.write().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// The file, if a program here has it open. What is being taken over from before the master changed is waited for: it may be among that.
    fn find(&self, file: FileId) -> Option<Arc<HostFile>> {
        let found = self.files.find(file).filter(|found| found.managed().is_some());
        if found.is_some() {
            return found;
        }
        let has_all = guard(&self.has_all);
        drop(self.followed.wait_timeout_while(has_all, TAKEOVER, |has_all| !*has_all));
        self.files.find(file)
    }

    fn ask(&self, question: &ToMaster) -> Result<FromMaster, Refusal> {
        let lost = |why| {
            self.is_lost.store(true, Relaxed);
            no_master(why)
        };
        let answer = self.master.ask(&encode(question), REQUEST_PATIENCE).map_err(lost)?;
        match decode(&answer).map_err(no_master)? {
            FromMaster::NotMaster => Err(lost("it is not the master any more".to_owned())),
            answer => Ok(answer),
        }
    }

    /// Passes a request on. Descriptors that came with it are shown.
    fn forward(
        &self,
        request: Request,
        proofs: &[&Proof],
        known: Option<Known>,
    ) -> Result<(Reply, Option<Snapshot>), Refusal> {
        let shown = proofs.iter().map(|proof| self.shown(proof)).collect::<Result<_, Refusal>>()?;
        match self.ask(&ToMaster::Request { request, shown, known })? {
            FromMaster::Refused(refusal) => Err(refusal),
            FromMaster::Answer { reply, snapshot } => Ok((*reply, snapshot.map(|snapshot| *snapshot))),
            other => Err(unexpected(&other)),
        }
    }

    fn shown(&self, proof: &Proof) -> Result<Shown, Refusal> {
        // The kernel forgets where a stub stands that was made under a temporary name; the table knows.
        let recorded = || {
            let stub = text_of(proof).filter(|_| proof.facts.links > 0)?;
            self.context.table().file(stub.file).ok()?.map(|record| record.path)
        };
        let path = proof.path().or_else(recorded).ok_or_else(|| Refusal::Invalid {
            what: "a file without a name cannot be shown to the master of the cluster; give it a name first".to_owned(),
        })?;
        Ok(Shown { path, inode: proof.facts.inode.inode, is_readable: proof.readable, is_writable: proof.writable })
    }

    /// The master is none any more: programs ask whoever serves this host next.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Relaxed);
    }

    /// Whether there is nobody to follow any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// Nothing is open here, and this agent ends.
    pub(crate) fn leave(&self) {
        if self.held_files().is_empty() {
            // A master that does not hear it finds the host silent.
            let _ = self.ask(&ToMaster::Leaving);
        }
    }

    /// Answers the master.
    pub(crate) fn asked(&self, question: &[u8]) -> Vec<u8> {
        let has_ended = self.has_ended.read().unwrap_or_else(PoisonError::into_inner);
        let answer = match decode(question) {
            _ if *has_ended => Err(Refusal::Invalid { what: "this host follows nobody".to_owned() }),
            Err(what) => Err(Refusal::Invalid { what }),
            Ok(question) => self.carry_out(question),
        };
        encode(&answer.unwrap_or_else(FromAgent::Refused))
    }

    fn carry_out(&self, question: ToAgent) -> Result<FromAgent, Refusal> {
        let is_ending = || self.is_ending.load(SeqCst);
        match question {
            ToAgent::Size { file } => Ok(FromAgent::Size(self.find(file).and_then(|found| found.known()))),
            ToAgent::Shut { file, turn } => {
                // An open of it may be under way, whose answer is not here yet.
                let found = self.find(file).unwrap_or_else(|| self.files.entry(file));
                let Some(managed) = found.shut(turn) else { return Ok(FromAgent::Size(None)) };
                self.quiescing.drain_until(&managed, &is_ending)?;
                Ok(FromAgent::Size(found.known()))
            }
            ToAgent::Open { file, turn, known } => {
                if let Some(found) = self.files.find(file) {
                    found.open(turn, known);
                }
                Ok(FromAgent::Done)
            }
            ToAgent::Move { file, region, turn, step } => {
                let found = self.find(file).unwrap_or_default();
                let moving = Moving { found: &found, quiescing: &self.quiescing, file, region, turn };
                moving.take(step, &is_ending)
            }
            ToAgent::Show { snapshot } => {
                // Who needs it asks, if the file is not open here, or what is shown comes too late.
                if let Some(found) = self.files.find(snapshot.file)
                    && let Some(managed) = found.managed()
                {
                    found.show(&self.context, &self.memory, &snapshot)?;
                    managed.control.regions().let_writers_go_on();
                }
                Ok(FromAgent::Done)
            }
            ToAgent::Drain { file, region } => {
                let Some(found) = self.find(file) else { return Ok(FromAgent::Done) };
                let opening = || Refusal::Busy { file, holder: "a host that is just opening the file".to_owned() };
                let managed = found.managed().ok_or_else(opening)?;
                let drained = self.quiescing.drain_region(&managed, region);
                Ok(drained.map_or_else(FromAgent::Stuck, |()| FromAgent::Done))
            }
        }
    }

    fn try_answer(&self, connection: &Connection, request: Request, descriptors: Vec<OwnedFd>) -> Answer {
        if !guard(&connection.client).greeted && !matches!(request, Request::Hello { .. }) {
            return Err(Refusal::Invalid { what: "say Hello first".to_owned() });
        }
        if let (Request::Lane, Some(lane)) = (&request, descriptors.first()) {
            self.lanes.serve(&self.context, &connection.client, lane)?;
            return done();
        }
        let proofs = descriptors.into_iter().map(Proof::new).collect::<Result<Vec<_>, Refusal>>()?;
        let shown: Vec<&Proof> = proofs.iter().collect();
        match request {
            Request::Hello { version } => self.hello(connection, version),
            Request::Claimed { slot, incarnation } | Request::Unanswered(Event::Claimed { slot, incarnation }) => {
                connection.claim(slot, incarnation)?;
                done()
            }
            Request::Open { file } => self.open(connection, file, request, first(&shown)?),
            Request::Create { .. } | Request::Admin(Admin::Import { .. }) => self.create(connection, request, &shown),
            Request::Linked { file } | Request::Unanswered(Event::Linked { file }) => {
                needs(connection, file, true)?;
                self.forward(Request::Linked { file }, &[], None)?;
                done()
            }
            Request::Close { file } | Request::Unanswered(Event::Closed { file }) => {
                self.close(connection.id, file)?;
                guard(&connection.client).opened.remove(&file);
                done()
            }
            Request::Abandon { file } => {
                needs(connection, file, true)?;
                self.forward(request, &[], None)?;
                guard(&connection.client).opened.remove(&file);
                if let Some(found) = self.files.find(file)
                    && let Some(mut users) = found.users()
                {
                    self.forget(file, &mut users);
                }
                done()
            }
            Request::Place { file, .. }
            | Request::Begin { file, .. }
            | Request::LinkedAndBegin { file, .. }
            | Request::Truncate { file, .. } => {
                needs(connection, file, true)?;
                self.renew(file, request)
            }
            Request::Refresh { file, .. } => {
                needs(connection, file, false)?;
                self.renew(file, request)
            }
            Request::Sync { file } | Request::Tidy { file } | Request::Rescue { file, .. } => {
                needs(connection, file, false)?;
                let known = self.files.find(file).and_then(|found| found.known());
                self.forward(request, &[], known)?;
                done()
            }
            // A file that hosts share has neither replicas nor fragments.
            Request::Pin { .. } | Request::Flush { .. } | Request::Fragments { .. } => done(),
            Request::OpenObject { file, region, generation, server } => {
                let granted = needs(connection, file, false)?;
                let store = self.context.server(ServerId(server))?;
                let handle = store.open(ObjectName { file, region, generation }, granted.writable)?;
                Ok((Reply::Object, vec![Carried::Own(handle.into_descriptor(store.name())?)]))
            }
            Request::EndNameChange { .. } => {
                // What was removed has no path any more; the master has held it since the change began.
                self.forward(request, &[], None)?;
                done()
            }
            // Minimum sizes are refused on a cluster of many hosts.
            Request::Closing => done(),
            Request::Admin(Admin::ObservedMemory { .. } | Admin::Observe { .. } | Admin::OpenedPaths { .. }) => {
                Err(Refusal::Invalid {
                    what: "accesses are observed by the master's host; run this command there".to_owned(),
                })
            }
            Request::Admin(_) => {
                let user = rustix::process::geteuid();
                if !connection.peer.uid.is_root() && connection.peer.uid != user {
                    return Err(Refusal::NotPermitted);
                }
                Ok((self.forward(request, &shown, None)?.0, Vec::new()))
            }
            // A program of another host was quicker; the name is looked up again.
            Request::BeginNameChange { victim: Some(_), ref target, .. }
            | Request::BeginNameChange { source: Some(_), ref target, .. }
                if proofs.iter().any(|proof| proof.facts.links == 0) =>
            {
                Err(Refusal::NameChanged { path: String::from_utf8_lossy(target).into_owned() })
            }
            Request::Attributes { .. }
            | Request::BeginNameChange { .. }
            | Request::Find
            | Request::IsExpected { .. } => Ok((self.forward(request, &shown, None)?.0, Vec::new())),
            Request::Lane => Err(Refusal::Invalid { what: "the request needs the lane's descriptor".to_owned() }),
        }
    }

    fn hello(&self, connection: &Connection, version: u32) -> Answer {
        if version != PROTOCOL_VERSION {
            return Err(Refusal::Version { broker: PROTOCOL_VERSION, client: version });
        }
        let (reply, _) = self.forward(Request::Hello { version }, &[], None)?;
        guard(&connection.client).greeted = true;
        Ok((reply, vec![Carried::Kept(self.context.processes().descriptor())]))
    }
}

impl Serves for Follower {
    fn answer(
        &self,
        connection: &Connection,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Option<(Reply, Vec<Carried>)> {
        match self.try_answer(connection, request, descriptors) {
            Ok(answer) => Some(answer),
            // The program asks whoever serves this host under the next master.
            Err(_) if self.is_lost.load(Relaxed) => None,
            Err(refusal) => Some((Reply::Refused(refusal), Vec::new())),
        }
    }

    fn has_answered(&self, _: &Connection) {}

    fn connection_ended(&self, connection: &Connection) {
        if let Some(lane) = guard(&connection.client).lane.take() {
            self.lanes.leave(lane);
        }
        let (claim, files) = {
            let mut client = guard(&connection.client);
            (client.claim.take(), std::mem::take(&mut client.opened))
        };
        if let Some((slot, incarnation)) = claim {
            self.context.processes().forget_reads(slot, incarnation);
        }
        for file in files.into_keys() {
            let managed = self.files.find(file).and_then(|found| found.managed());
            let is_writing =
                |managed: Arc<Managed>, slot| managed.slots.in_flight(slot).any(|io| io.direction == Direction::Write);
            let died_writing = managed.zip(claim).is_some_and(|(managed, (slot, _))| is_writing(managed, slot));
            if died_writing && let Err(error) = self.forward(Request::Tidy { file }, &[], None) {
                note!(self.context.log(), warn, %file, %error, "what a dead writer left beyond the size stays");
            }
            // A process that is just dying may still hold its lock.
            if !self.close(connection.id, file).unwrap_or(false) {
                self.rechecks.recheck(file);
            }
        }
    }

    fn context(&self) -> &Arc<Context> {
        &self.context
    }

    fn agent_lanes(&self) -> &AgentLanes {
        &self.lanes
    }

    fn rechecks(&self) -> &Rechecks {
        &self.rechecks
    }

    fn begin_rechecks(&self) {}

    fn recheck_again(&self, file: FileId) -> bool {
        self.close_if_unused(file).unwrap_or(false)
    }
}

fn done() -> Answer {
    Ok((Reply::Done, Vec::new()))
}

fn first<'a>(shown: &[&'a Proof]) -> Result<&'a Proof, Refusal> {
    shown
        .first()
        .copied()
        .ok_or_else(|| Refusal::Invalid { what: "the request needs the stub's descriptor".to_owned() })
}

/// What the descriptors that the connection has shown of the file permit.
fn needs(connection: &Connection, file: FileId, to_write: bool) -> Result<Granted, Refusal> {
    let granted = guard(&connection.client).opened.get(&file).copied().ok_or(Refusal::NotPermitted)?;
    if granted.writable || !to_write { Ok(granted) } else { Err(Refusal::NotPermitted) }
}

/// What tells of the file's size, and of its first regions.
fn refresh_of(file: FileId) -> Request {
    Request::Refresh { file, first: RegionIndex(0), last: RegionIndex(0) }
}

fn no_master(why: String) -> Refusal {
    Refusal::Table {
        what: format!("the master of the cluster does not answer ({why}); it is asked again when there is one"),
    }
}

fn unexpected(answer: &FromMaster) -> Refusal {
    Refusal::Table { what: format!("the master answered something else ({answer:?}); use one version of stripewise") }
}
