//! What programs of this host ask, and what becomes of what they leave.

use super::{Follower, refresh_of};
use crate::agent_lanes::AgentLanes;
use crate::connection::{Answer, Carried, Connection};
use crate::context::Context;
use crate::guard;
use crate::host_messages::ToMaster;
use crate::log::note;
use crate::managed::Managed;
use crate::proof::{Granted, Proof};
use crate::rechecks::Rechecks;
use crate::serving::Serves;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use stripewise_layout::{Direction, FileId, ServerId};
use stripewise_store::protocol::{Admin, AgentRole, Event, FileStatus, PROTOCOL_VERSION, Refusal, Reply, Request};
use stripewise_store::server::ObjectName;

impl Follower {
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
            Request::Processes => Ok((Reply::Processes, vec![Carried::Kept(self.context.processes().descriptor())])),
            Request::Claimed { slot, incarnation } | Request::Unanswered(Event::Claimed { slot, incarnation }) => {
                connection.claim(slot, incarnation)?;
                done()
            }
            Request::Open { file } => self.open(connection, file, request, first(&shown)?),
            Request::Create { .. } | Request::Admin(Admin::Import { .. }) => self.create(connection, request, &shown),
            Request::Linked { file } | Request::Unanswered(Event::Linked { file }) => {
                needs(connection, file, true)?;
                self.forward(Request::Linked { file }, &[], None)?;
                self.no_longer_held(connection, file);
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
                self.no_longer_held(connection, file);
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
            Request::SyncAll => {
                self.sync_all()?;
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
            Request::EndNameChange { number, .. } | Request::Unanswered(Event::NameChanged { number }) => {
                let is_done = !matches!(request, Request::EndNameChange { done: false, .. });
                // What was removed has no path any more; the master has held it since the change began.
                self.forward(Request::EndNameChange { number, done: is_done }, &[], None)?;
                guard(&connection.client).changing.remove(&number);
                done()
            }
            // Minimum sizes are refused on a cluster of many hosts.
            Request::Closing => done(),
            Request::Admin(Admin::ObservedMemory { .. } | Admin::Observe { .. }) => Err(Refusal::Invalid {
                what: "hosts share this cluster; ask for the accesses of all of them".to_owned(),
            }),
            Request::Admin(Admin::OpenedPaths { after }) => self.opens.since(connection, &after),
            Request::Admin(Admin::Agent) => {
                let report = self.context.counts().report(AgentRole::Follower, self.files.open_count(), None);
                Ok((Reply::Agent(Box::new(report)), Vec::new()))
            }
            Request::Admin(_) => {
                let user = rustix::process::geteuid();
                if !connection.peer.uid.is_root() && connection.peer.uid != user {
                    return Err(Refusal::NotPermitted);
                }
                match request {
                    Request::Admin(Admin::BeginRelease { file, .. }) => {
                        self.begin_release(connection, file, request, &shown)
                    }
                    Request::Admin(Admin::EndRelease { file } | Admin::CancelRelease { file }) => {
                        let reply = self.forward(request, &shown, None)?.0;
                        self.no_longer_held(connection, file);
                        Ok((reply, Vec::new()))
                    }
                    _ => Ok((self.forward(request, &shown, None)?.0, Vec::new())),
                }
            }
            // A program of another host was quicker; the name is looked up again.
            Request::BeginNameChange { victim: Some(_), ref target, .. }
            | Request::BeginNameChange { source: Some(_), ref target, .. }
                if proofs.iter().any(|proof| proof.facts.links == 0) =>
            {
                Err(Refusal::NameChanged { path: String::from_utf8_lossy(target).into_owned() })
            }
            Request::BeginNameChange { number, .. } => {
                // Whether or not the answer is heard.
                guard(&connection.client).changing.insert(number);
                let begun = self.forward(request, &shown, None);
                if matches!(begun, Err(ref refusal) if !matches!(refusal, Refusal::Table { .. })) {
                    guard(&connection.client).changing.remove(&number);
                }
                Ok((begun?.0, Vec::new()))
            }
            Request::Find => Ok((self.found(first(&shown)?)?, Vec::new())),
            Request::Attributes { .. } | Request::IsExpected { .. } => {
                Ok((self.forward(request, &shown, None)?.0, Vec::new()))
            }
            Request::Lane => Err(Refusal::Invalid { what: "the request needs the lane's descriptor".to_owned() }),
        }
    }

    /// What the master finds of a file, with what programs of this host have written that have it open.
    fn found(&self, proof: &Proof) -> Result<Reply, Refusal> {
        loop {
            let removals = self.files.removals();
            let found = self.forward_find(proof)?;
            let Reply::Found { file: Some(file), status: Some(status) } = found else { return Ok(found) };
            let open = self.files.find(file);
            // Held, so that it is not closed meanwhile: the master would not hear of its size here any more.
            let users = open.as_ref().and_then(|open| open.users());
            match (users, open.as_ref().and_then(|open| open.managed())) {
                (Some(_users), Some(managed)) => {
                    self.renew(file, refresh_of(file))?;
                    let status = FileStatus {
                        size_bytes: managed.extent.size_bytes(),
                        blocks_512: status.blocks_512.max(managed.status().blocks_512),
                        modified_ns: managed.extent.modified_ns().or(status.modified_ns),
                    };
                    return Ok(Reply::Found { file: Some(file), status: Some(status) });
                }
                _ if self.files.removals() == removals => return Ok(found),
                // The master may have looked before it heard of the close.
                _ => {}
            }
        }
    }

    /// Sizes that only this host knows first. The master then makes durable what it heard at closes, too.
    fn sync_all(&self) -> Result<(), Refusal> {
        let mut first_fault = None;
        for managed in self.files.open() {
            let file = managed.file;
            let known = self.files.find(file).and_then(|found| found.known());
            let is_open = || self.files.find(file).is_some_and(|found| found.managed().is_some());
            // A close meanwhile has told the size.
            if let Err(refusal) = self.forward(Request::Sync { file }, &[], known)
                && is_open()
            {
                first_fault.get_or_insert(refusal);
            }
        }
        self.forward(Request::SyncAll, &[], None)?;
        first_fault.map_or(Ok(()), Err)
    }

    fn hello(&self, connection: &Connection, version: u32) -> Answer {
        if version != PROTOCOL_VERSION {
            return Err(Refusal::Version { broker: PROTOCOL_VERSION, client: version });
        }
        let (reply, _) = self.forward(Request::Hello { version }, &[], None)?;
        guard(&connection.client).greeted = true;
        Ok((reply, Vec::new()))
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
            Err(_) if self.is_lost.load(Relaxed) && self.handover.wait(|| connection.has_hung_up()) => None,
            Err(refusal) => Some((Reply::Refused(refusal), Vec::new())),
        }
    }

    fn in_spare_time(&self) {}

    fn connection_ended(&self, connection: &Connection) {
        self.opens.end(connection);
        if let Some(lane) = guard(&connection.client).lane.take() {
            self.lanes.leave(lane);
        }
        let (claim, files, given_up) = {
            let mut client = guard(&connection.client);
            let files = std::mem::take(&mut client.held).into_iter().collect();
            let changes = std::mem::take(&mut client.changing).into_iter().collect();
            (client.claim.take(), std::mem::take(&mut client.opened), ToMaster::GivenUp { files, changes })
        };
        if !matches!(&given_up, ToMaster::GivenUp { files, changes } if files.is_empty() && changes.is_empty()) {
            // A master that does not hear it ends what it was about when this host comes back, or is silent for long.
            let _ = self.ask(&given_up);
        }
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

pub(super) fn first<'a>(shown: &[&'a Proof]) -> Result<&'a Proof, Refusal> {
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
