//! What each request means, and what it needs of the connection that sends it.

use super::Parts;
use super::shown::with_latest_size;
use crate::connection::{Answer, Carried, Connection, Requester};
use crate::guard;
use crate::log::note;
use crate::managed::Managed;
use crate::name_changes::Asked;
use crate::proof::{Granted, Proof};
use crate::rmt::FileState;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use stripewise_layout::{FileId, Placement, ServerId};
use stripewise_store::protocol::{Event, PROTOCOL_VERSION, Refusal, Reply, Request, ServerInfo};
use stripewise_store::server::{ObjectName, Ownership, ServerError};

/// Whether a request is heard of a client that is gone. Such as clean up after it are, and such as take nothing from anybody; the rest it would have to be
/// told of.
pub(crate) fn is_heard_of_the_gone(request: &Request) -> bool {
    match request {
        Request::Hello { .. }
        | Request::Processes
        | Request::Claimed { .. }
        | Request::Open { .. }
        | Request::Linked { .. }
        | Request::Abandon { .. }
        | Request::Attributes { .. }
        | Request::Close { .. }
        | Request::EndNameChange { .. }
        | Request::Unanswered(_) => true,
        Request::Create { .. }
        | Request::BeginNameChange { .. }
        | Request::Place { .. }
        | Request::Begin { .. }
        | Request::LinkedAndBegin { .. }
        | Request::Rescue { .. }
        | Request::Pin { .. }
        | Request::Truncate { .. }
        | Request::Tidy { .. }
        | Request::Fragments { .. }
        | Request::Flush { .. }
        | Request::Sync { .. }
        | Request::SyncAll
        | Request::Refresh { .. }
        | Request::OpenObject { .. }
        | Request::Find
        | Request::IsExpected { .. }
        | Request::Admin(_) => false,
        // The file outlives the client.
        Request::Closing => true,
        Request::Lane => false,
    }
}

/// Whether the file has data, and no more than the object of its first stripe takes.
fn is_small(managed: &Managed) -> bool {
    managed.extent.size_bytes() > 0 && {
        let inner = guard(&managed.inner);
        inner.regions.len() == 1 && inner.regions.values().all(|placed| placed.layout.stripes().len() == 1)
    }
}

fn done() -> Answer {
    Ok((Reply::Done, Vec::new()))
}

impl Parts {
    pub(crate) fn answer(
        &self,
        connection: &Connection,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> (Reply, Vec<Carried>) {
        self.try_answer(connection, request, descriptors)
            .unwrap_or_else(|refusal| (Reply::Refused(refusal), Vec::new()))
    }

    fn try_answer(&self, connection: &Connection, request: Request, descriptors: Vec<OwnedFd>) -> Answer {
        let greeted = guard(&connection.client).greeted;
        if !greeted && !matches!(request, Request::Hello { .. }) {
            return Err(Refusal::Invalid { what: "say Hello first".to_owned() });
        }
        let mut descriptors = descriptors.into_iter();
        let mut proof = || {
            let descriptor = descriptors
                .next()
                .ok_or_else(|| Refusal::Invalid { what: "the request needs the stub's descriptor".to_owned() })?;
            Proof::new(descriptor)
        };
        match request {
            Request::Hello { version } => self.hello(connection, version),
            Request::Processes => {
                Ok((Reply::Processes, vec![Carried::Kept(self.base.context.processes().descriptor())]))
            }
            Request::Claimed { slot, incarnation } | Request::Unanswered(Event::Claimed { slot, incarnation }) => {
                connection.claim(slot, incarnation)?;
                done()
            }
            Request::Open { file } => {
                let proof = proof()?;
                self.lifecycle.open_file(connection, file, &proof)
            }
            Request::Create { path } => {
                let proof = proof()?;
                let placement = self.placement_for(&path)?;
                let (managed, made) = self.lifecycle.create(&proof, &path, placement, FileState::Creating, None)?;
                let is_written_next = guard(&connection.client).creations.made(managed.file, &self.base.small_in_a_row);
                // Another host asks for what its programs write.
                if is_written_next && connection.host().is_none() {
                    self.begin_unasked(&managed);
                }
                self.lifecycle.opened(connection, &managed, &mut guard(&managed.inner), proof.granted(), made)
            }
            Request::Linked { file } | Request::Unanswered(Event::Linked { file }) => {
                needs_write(connection, file)?;
                self.lifecycle.linked(&*self.base.files.managed(file)?)?;
                done()
            }
            Request::Abandon { file } => {
                self.abandon(connection, file)?;
                done()
            }
            Request::Place { file, first, last } => {
                needs_write(connection, file)?;
                let managed = self.base.files.managed(file)?;
                self.with_space_of_removed(|| self.regions.placer.place(&managed, first, last))?;
                done()
            }
            Request::Begin { file, bytes } => {
                needs_write(connection, file)?;
                let managed = self.base.files.managed(file)?;
                self.with_space_of_removed(|| self.regions.placer.begin(&managed, bytes))?;
                done()
            }
            Request::LinkedAndBegin { file, bytes } => {
                needs_write(connection, file)?;
                let managed = self.base.files.managed(file)?;
                self.lifecycle.linked(&managed)?;
                self.with_space_of_removed(|| self.regions.placer.begin(&managed, bytes))?;
                done()
            }
            Request::Rescue { file, region, generation, server } => {
                needs_write(connection, file)?;
                self.base.context.server(ServerId(server))?;
                self.regions.moves.move_from_full(
                    &self.base.files.managed(file)?,
                    region,
                    generation,
                    ServerId(server),
                )?;
                done()
            }
            Request::Pin { file, first, last } => {
                needs_write(connection, file)?;
                self.regions.replicas.pin(&*self.base.files.managed(file)?, first, last)?;
                done()
            }
            Request::Truncate { file, size_bytes, number } => {
                needs_write(connection, file)?;
                self.regions.truncation.truncate(
                    &*self.base.files.managed(file)?,
                    size_bytes,
                    number,
                    &Requester(connection),
                )?;
                done()
            }
            Request::Tidy { file } => {
                needs_write(connection, file)?;
                self.regions.truncation.tidy(&*self.base.files.managed(file)?)?;
                done()
            }
            Request::Fragments { file } => {
                let granted = needs_open(connection, file)?;
                self.regions.fragments.fragments_for(&*self.base.files.managed(file)?, granted)
            }
            Request::Flush { file } => {
                needs_open(connection, file)?;
                self.regions.write_back.flush(&*self.base.files.managed(file)?)?;
                done()
            }
            Request::Sync { file } => {
                needs_open(connection, file)?;
                self.lifecycle.sync(&*self.base.files.managed(file)?)?;
                done()
            }
            Request::SyncAll => {
                self.lifecycle.sync_all()?;
                done()
            }
            Request::Refresh { file, first, last } => {
                needs_open(connection, file)?;
                if first > last {
                    return Err(Refusal::Invalid { what: format!("regions {first} to {last} are none") });
                }
                self.base.context.step("refresh");
                self.refresh(connection, file)?;
                done()
            }
            Request::Attributes { file } => {
                let proof = proof()?;
                let managed = self.identities.identify(file, &proof)?;
                self.lifecycle.follow_stub(&managed, &mut guard(&managed.inner), &proof)?;
                done()
            }
            Request::Close { file } | Request::Unanswered(Event::Closed { file }) => {
                let managed = self.base.files.if_loaded(file);
                let was_made_last = {
                    let mut client = guard(&connection.client);
                    client.opened.remove(&file);
                    client.creations.is_last(file)
                };
                if was_made_last {
                    // Without the client's lock, which comes after the file's.
                    let is_small = managed.as_deref().is_some_and(is_small);
                    guard(&connection.client).creations.closed(file, is_small, &self.base.small_in_a_row);
                }
                if let Some(managed) = managed {
                    self.regions.replicas.left(&managed, connection.id);
                    self.lifecycle.after_close(&managed)?;
                }
                done()
            }
            Request::BeginNameChange { number, call, source, target, victim, mover } => {
                let asked = Asked { call, source, target, victim, mover };
                self.name_changes.begin_name_change(connection, number, asked, &mut proof)?;
                done()
            }
            Request::Unanswered(Event::NameChanged { number }) => {
                self.name_changes.end_name_change(number, true, None)?;
                done()
            }
            Request::EndNameChange { number, done: is_done } => {
                self.name_changes.end_name_change(number, is_done, proof().ok())?;
                done()
            }
            Request::OpenObject { file, region, generation, server } => {
                let granted = needs_open(connection, file)?;
                let object = ObjectName { file, region, generation };
                let handle = self.open_object(object, ServerId(server), granted)?;
                Ok((Reply::Object, vec![Carried::Own(handle)]))
            }
            Request::Find => {
                let found = self.identities.find(&proof()?)?;
                Ok((with_latest_size(self, connection, found)?, Vec::new()))
            }
            Request::IsExpected { path } => {
                let names = self.base.names.read();
                Ok((Reply::Expected { expected: names.is_expected(&path) }, Vec::new()))
            }
            Request::Lane => {
                let lane = descriptors
                    .next()
                    .ok_or_else(|| Refusal::Invalid { what: "the request needs the lane's descriptor".to_owned() })?;
                self.base.agent_lanes.serve(&self.base.context, &connection.client, &lane)?;
                done()
            }
            Request::Closing => {
                self.base.min_sizes.closing(&proof()?)?;
                done()
            }
            Request::Admin(request) => {
                let user = rustix::process::geteuid();
                if !connection.peer.uid.is_root() && connection.peer.uid != user {
                    return Err(Refusal::NotPermitted);
                }
                self.admin(connection, request, &mut proof)
            }
        }
    }

    /// Begins a new file's first region where it can be expected that it is written at once: the client need not ask for it.
    fn begin_unasked(&self, managed: &Managed) {
        self.base.memory.want_another();
        // What fails here is asked for again, and reported then.
        let _ = self.regions.placer.begin(managed, 1);
    }

    fn hello(&self, connection: &Connection, version: u32) -> Answer {
        if version != PROTOCOL_VERSION {
            return Err(Refusal::Version { broker: PROTOCOL_VERSION, client: version });
        }
        guard(&connection.client).greeted = true;
        let copy = |descriptor: rustix::fd::BorrowedFd<'_>| {
            rustix::io::fcntl_dupfd_cloexec(descriptor, 0)
                .map_err(|errno| Refusal::Table { what: format!("descriptors of shared memory: {errno}") })
        };
        let mut along = Vec::new();
        if let Some(stations) = &self.base.context.stations() {
            along.push(Carried::Own(copy(stations.as_fd())?));
        }
        let servers = self.base.context.cluster().servers.iter().zip(self.base.context.read_costs()).map(
            |(server, read_cost)| ServerInfo {
                name: server.name.clone(),
                class: server.class,
                url: server.url.to_string(),
                read_cost: *read_cost,
            },
        );
        let names = self.base.names.read();
        let welcome = Reply::Welcome {
            cluster: self.base.context.cluster().id.clone(),
            servers: servers.collect(),
            managed: names.managed(),
            expected: names.expected(),
            min_sizes: names.min_sizes(),
            shared: self.base.context.is_shared(),
        };
        Ok((welcome, along))
    }

    fn placement_for(&self, path: &str) -> Result<Placement, Refusal> {
        let names = self.base.names.read();
        names.placement_for(path).cloned().ok_or_else(|| Refusal::NotManaged { path: path.to_owned() })
    }

    /// Places regions; where there is no space, once more without the data of removed files that lies there yet.
    fn with_space_of_removed(&self, place: impl Fn() -> Result<(), Refusal>) -> Result<(), Refusal> {
        match place() {
            Err(Refusal::NoSpace { .. }) if self.lifecycle.finish_removals() => place(),
            placed => placed,
        }
    }

    fn abandon(&self, connection: &Connection, file: FileId) -> Result<(), Refusal> {
        needs_write(connection, file)?;
        let managed = self.base.files.managed(file)?;
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Ok(());
        }
        let is_import = match inner.record.state {
            FileState::Creating => false,
            FileState::Importing { .. } => true,
            _ => {
                let what = format!("file {file} is no longer being made; nothing was removed");
                return Err(Refusal::Invalid { what });
            }
        };
        guard(&connection.client).opened.remove(&file);
        inner.openers.remove(&connection.id);
        inner.holder = None;
        if let (Some(others), Some(host)) = (self.base.context.others(), connection.host()) {
            others.closes(host, file);
        }
        if is_import {
            return self.lifecycle.settle_holding(&managed, &mut inner).map(drop);
        }
        // It may have been passed on.
        if inner.is_nameless() == Some(true) && inner.is_stub_open() {
            self.base.rechecks.recheck(file);
            return Ok(());
        }
        self.lifecycle.free(&managed, &mut inner)
    }

    fn open_object(&self, object: ObjectName, server: ServerId, granted: Granted) -> Result<OwnedFd, Refusal> {
        let managed = self.base.files.managed(object.file)?;
        // Held, so that the mode is not changed by two at once.
        let inner = guard(&managed.inner);
        let backend = self.base.context.server(server)?;
        let open = || {
            let opened = backend.open(object, granted.writable)?.into_descriptor(backend.name())?;
            if granted.readable || !granted.writable {
                return Ok(opened);
            }
            // The broker may read what the client, whose descriptor is for writing only, may not.
            let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
            rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|source| ServerError::Os {
                server: backend.name().to_owned(),
                action: "opening an object for writing only",
                source,
            })
        };
        match open() {
            Err(ServerError::Denied { .. }) => {
                let ownership = inner.ownership();
                backend.set_ownership(object, Ownership { mode: ownership.mode | 0o600, ..ownership })?;
                let opened = open();
                backend.set_ownership(object, ownership)?;
                Ok(opened?)
            }
            result => Ok(result?),
        }
    }

    /// The client is gone, or closed its connection: its files may have lost their last user.
    pub(crate) fn connection_ended(&self, connection: &Connection) {
        self.observers.no_longer_observes(connection);
        if let Some(lane) = guard(&connection.client).lane.take() {
            self.base.agent_lanes.leave(lane);
        }
        self.name_changes.leave_name_changes(connection.id);
        let (claim, files) = {
            let mut client = guard(&connection.client);
            let mut files = std::mem::take(&mut client.held);
            files.extend(std::mem::take(&mut client.opened).into_keys());
            (client.claim.take(), files)
        };
        if let Some((slot, incarnation)) = claim {
            self.base.context.processes().forget_reads(slot, incarnation);
        }
        for file in files {
            let Some(managed) = self.base.files.if_loaded(file) else { continue };
            self.regions.replicas.left(&managed, connection.id);
            self.holders.no_longer_held(connection, &managed);
            let died_writing = claim.is_some_and(|(slot, _)| {
                managed.slots.in_flight(slot).any(|io| io.direction == stripewise_layout::Direction::Write)
            });
            if died_writing && let Err(refusal) = self.regions.truncation.tidy(&managed) {
                note!(self.base.context.log(), warn, %file, error = %refusal, "what a dead writer left beyond the size stays");
            }
            // A process that is just dying may still hold its lock.
            if !self.lifecycle.after_close(&managed).unwrap_or(false) {
                self.base.rechecks.recheck(file);
            }
        }
    }
}

/// What the descriptors that the connection has shown of the file permit; an error if it has shown none.
fn needs_open(connection: &Connection, file: FileId) -> Result<Granted, Refusal> {
    guard(&connection.client).opened.get(&file).copied().ok_or(Refusal::NotPermitted)
}

fn needs_write(connection: &Connection, file: FileId) -> Result<(), Refusal> {
    if needs_open(connection, file)?.writable { Ok(()) } else { Err(Refusal::NotPermitted) }
}
