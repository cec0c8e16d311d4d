//! An agent that follows the master: it serves the programs of its host and asks the master for what it may not decide.
//!
//! A file that a program here has open has shared memory on this host, as under a broker; its words of regions and its size are what the
//! master has told. Requests go to the master as programs make them. The master, in turn, asks for sizes, and shuts the file's gate here when
//! it is cut ([`Follower::asked`]).

mod files;
mod handover;
mod moving;
mod opening;
mod programs;
mod requests;

use super::note_lost;
use crate::accesses::Accesses;
use crate::agent_lanes::AgentLanes;
use crate::context::Context;
use crate::file_memory::FileMemory;
use crate::guard;
use crate::held::{Held, in_run};
use crate::host_keys::{HostKeys, KeysError};
use crate::host_messages::{FromAgent, FromMaster, Known, Shown, Snapshot, ToAgent, ToMaster, decode, encode};
use crate::identities::text_of;
use crate::log::note;
use crate::membership::Leave;
use crate::observing::Opens;
use crate::others::Line;
use crate::probing::Actor;
use crate::proof::Proof;
use crate::quiescing::Quiescing;
use crate::rechecks::Rechecks;
use files::{HostFile, HostFiles};
use handover::Handover;
use moving::Moving;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};
use stripewise_coherence::host::{Step, can_answer};
use stripewise_layout::{FileId, RegionIndex, ServerId};
use stripewise_store::manage::elsewhere::holders_on_this_host;
use stripewise_store::protocol::{QuestionDirection, Refusal, Reply, Request};
use stripewise_store::server::{Operation, is_by_agent};

/// How long the answer to a program's request is waited for: the master may have to wait for servers and other hosts.
const REQUEST_PATIENCE: Duration = Duration::from_secs(90);

/// For how long files that are being taken over are waited for.
const TAKEOVER: Duration = Duration::from_secs(4);

/// Serves this host for as long as its master does.
pub(crate) struct Follower {
    context: Arc<Context>,
    memory: Arc<FileMemory>,
    accesses: Accesses,
    opens: Opens,
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
    handover: Handover,
    /// Every file that programs had open before is followed.
    has_all: Mutex<bool>,
    followed: Condvar,
    /// Of probes of directories.
    actor: Actor,
}

impl Follower {
    /// Tells the master which files programs here have open, and takes their memory over. `is_first`: a former agent of this host may have sent what nobody heard of.
    /// `patience`: for how long programs wait for a master.
    pub(crate) fn start(
        context: Context,
        master: Arc<dyn Line>,
        is_first: bool,
        patience: Duration,
        hear: impl FnOnce(&Arc<Self>),
    ) -> Result<Arc<Self>, Refusal> {
        let context = Arc::new(context);
        let rechecks = Arc::new(Rechecks::default());
        let memory = Arc::new(FileMemory::new(&context));
        let follower = Arc::new(Self {
            accesses: Accesses::new(&memory),
            opens: Opens::default(),
            memory,
            quiescing: Quiescing::new(&context, &rechecks),
            rechecks,
            lanes: Arc::default(),
            files: HostFiles::default(),
            master,
            is_lost: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            has_ended: RwLock::new(false),
            handover: Handover::new(patience),
            has_all: Mutex::new(false),
            followed: Condvar::new(),
            actor: Actor::default(),
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
        let admission = match self.ask(&ToMaster::Join { agent: self.context.counts().agent().clone() })? {
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
        match self.ask(&ToMaster::Probe)? {
            FromMaster::Heard => {}
            FromMaster::Refused(refusal) => return Err(refusal),
            other => return Err(unexpected(&other)),
        }
        let held = in_run(&self.context);
        let key = self.context.keys().map(HostKeys::shown).unwrap_or_default();
        let holding = ToMaster::Holding { admission, files: held.iter().map(|held| held.file).collect(), key };
        match self.ask(&holding)? {
            FromMaster::Heard => {}
            FromMaster::Refused(refusal) => return Err(refusal),
            other => return Err(unexpected(&other)),
        }
        for Held { file, known, is_used } in held {
            match self.reopen(file, known) {
                Ok(()) if is_used => {}
                Ok(()) => self.close_left(file),
                Err(Refusal::UnknownFile { .. }) if is_used => {
                    note!(self.context.log(), warn, %file, "a file that programs have open is no more");
                }
                Err(Refusal::UnknownFile { .. }) => self.memory.remove_memory(file),
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
        let lost = lost.map_err(|errno| Refusal::Table {
            what: format!("abandoning the shared memory of files in the state directory: {errno}"),
        })?;
        note_lost(self.context.log(), &lost);
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

    /// The file, which may not be open here: an open may be under way, whose answer is not here yet. Refused as long as it may be among those that programs
    /// had open before this agent followed the master, and the master has not told of it: programs use it as they knew it.
    fn find_or_expect(&self, file: FileId) -> Result<Arc<HostFile>, Refusal> {
        let found = self.find(file);
        let has_memory = found.as_ref().is_some_and(|found| found.managed().is_some());
        match can_answer(has_memory, *guard(&self.has_all)) {
            true => Ok(found.unwrap_or_else(|| self.files.entry(file))),
            false => Err(Refusal::Busy { file, holder: "a host that is just coming back".to_owned() }),
        }
    }

    fn ask(&self, question: &ToMaster) -> Result<FromMaster, Refusal> {
        let lost = |why| {
            self.is_lost.store(true, Relaxed);
            no_master(why)
        };
        let ask = || self.master.ask(&encode(question), REQUEST_PATIENCE).map_err(lost);
        let answer = self.context.counts().time(QuestionDirection::ToMaster, question.kind(), ask)?;
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
        let shown = proofs.iter().map(|proof| self.shown(proof, &request));
        let shown = shown.collect::<Result<Vec<_>, Refusal>>()?;
        self.forward_shown(request, shown, known)
    }

    fn forward_shown(
        &self,
        request: Request,
        shown: Vec<Shown>,
        known: Option<Known>,
    ) -> Result<(Reply, Option<Snapshot>), Refusal> {
        match self.ask(&ToMaster::Request { request, shown, known })? {
            FromMaster::Refused(refusal) => Err(refusal),
            FromMaster::Answer { reply, snapshot } => Ok((*reply, snapshot.map(|snapshot| *snapshot))),
            other => Err(unexpected(&other)),
        }
    }

    /// Which file the stub is of. One that has been renamed since, or removed, the master knows by its text.
    fn forward_find(&self, proof: &Proof) -> Result<Reply, Refusal> {
        let mut shown = self.shown(proof, &Request::Find)?;
        let found = match self.forward_shown(Request::Find, vec![shown.clone()], None) {
            Err(refusal @ Refusal::NameChanged { .. }) if shown.file.is_none() => {
                shown.file = Some(self.file_by_text(proof).ok_or(refusal)?);
                self.forward_shown(Request::Find, vec![shown], None)
            }
            found => found,
        };
        found.map(|(reply, _)| reply)
    }

    fn shown(&self, proof: &Proof, request: &Request) -> Result<Shown, Refusal> {
        // The kernel forgets where a stub stands that was made under a temporary name; the table knows.
        let recorded = || {
            let file = self.file_by_text(proof).filter(|_| proof.facts.links > 0)?;
            self.context.table().file(file).ok()?.map(|record| record.path)
        };
        let path = proof.path().or_else(recorded);
        let file = match request {
            Request::Open { file } | Request::Attributes { file } => Some(*file),
            Request::Find if path.is_none() => self.file_by_text(proof),
            _ => None,
        };
        if path.is_none() && file.is_none() {
            let what =
                "a file without a name cannot be shown to the master of the cluster; give it a name first".to_owned();
            return Err(Refusal::Invalid { what });
        }
        let (path, inode) = (path.unwrap_or_default(), proof.facts.inode.inode);
        Ok(Shown { path, file, inode, is_readable: proof.readable, is_writable: proof.writable })
    }

    fn file_by_text(&self, proof: &Proof) -> Option<FileId> {
        text_of(proof).filter(|stub| stub.cluster == self.context.cluster().id).map(|stub| stub.file)
    }

    /// The master is none any more: what programs ask waits until they are passed on.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Relaxed);
    }

    /// Programs connect again, to whoever serves this host next, and ask that.
    pub(super) fn pass_on(&self) {
        self.handover.begin();
    }

    /// Whether nothing is done any more that the master asks for.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(SeqCst)
    }

    /// What is to be done now and then.
    pub(super) fn tidy(&self) {
        self.accesses.tidy(|file| self.files.find(file)?.managed());
    }

    /// Whether there is nobody to follow any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_lost.load(Relaxed)
    }

    /// This agent ends, which is said if nothing is open here.
    pub(crate) fn leave(&self) -> Leave {
        let held = in_run(&self.context);
        if held.iter().any(|held| held.is_used) {
            return Leave::Stays;
        }
        // A file that nobody has open any more may be held because its close was not heard.
        let is_heard = held.is_empty() && self.ask(&ToMaster::Leaving).is_ok();
        if is_heard { Leave::Said } else { Leave::Unheard }
    }

    /// Answers the master.
    pub(crate) fn asked(&self, question: &[u8]) -> Vec<u8> {
        let has_ended = self.has_ended.read().unwrap_or_else(PoisonError::into_inner);
        let answer = match decode::<ToAgent>(question) {
            _ if *has_ended => Err(Refusal::Invalid { what: "this host follows nobody".to_owned() }),
            Err(what) => Err(Refusal::Invalid { what }),
            Ok(question) => {
                let (counts, kind) = (self.context.counts(), question.kind());
                counts.time(QuestionDirection::FromMaster, kind, || self.carry_out(question))
            }
        };
        encode(&answer.unwrap_or_else(FromAgent::Refused))
    }

    fn carry_out(&self, question: ToAgent) -> Result<FromAgent, Refusal> {
        let is_ending = || self.is_ending.load(SeqCst);
        match question {
            ToAgent::Size { file } => Ok(FromAgent::Size(self.find(file).and_then(|found| found.known()))),
            ToAgent::Shut { file, turn } => {
                let found = self.find_or_expect(file)?;
                let Some(managed) = found.shut(turn) else { return Ok(FromAgent::Size(None)) };
                self.quiescing.drain_file(&managed, Instant::now(), &is_ending)?;
                Ok(FromAgent::Size(found.known()))
            }
            ToAgent::Open { file, turn, known } => {
                if let Some(found) = self.files.find(file) {
                    found.open(turn, known);
                }
                Ok(FromAgent::Done)
            }
            ToAgent::Move { file, message, patience } => {
                // What programs had open before may be the file, as long as not all of that is followed.
                // What was given up is over, whatever programs here know of it.
                let found = match message.step {
                    Step::GiveUp => self.files.entry(file),
                    _ => self.find_or_expect(file)?,
                };
                let moving = Moving { found: &found, quiescing: &self.quiescing, file, message };
                moving.take(patience, &is_ending)
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
            ToAgent::Keys(step) => {
                let invalid = |error: KeysError| Refusal::Invalid { what: error.to_string() };
                self.context.keys().map_or(Ok(()), |keys| keys.take(&step)).map_err(invalid)?;
                Ok(FromAgent::Done)
            }
            ToAgent::Drain { file, region } => {
                // A host that is just opening the file is told where the region lies now.
                let Some(managed) = self.find_or_expect(file)?.managed() else { return Ok(FromAgent::Done) };
                let drained = self.quiescing.drain_region(&managed, region);
                Ok(drained.map_or_else(FromAgent::Stuck, |()| FromAgent::Done))
            }
            ToAgent::Accesses => Ok(FromAgent::Accessed(self.accesses.take(|| self.files.open()))),
            ToAgent::Holders { file } => Ok(FromAgent::Holders(holders_on_this_host(&file))),
            ToAgent::Probe { act } => Ok(FromAgent::Probed(self.actor.perform(&act))),
        }
    }
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
