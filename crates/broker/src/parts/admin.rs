//! Requests of the `stripewise` command: moving files in and out, naming what becomes managed, and looking.

use super::Parts;
use super::hosts::agent_report;
use crate::connection::{Answer, Connection};
use crate::context::Context;
use crate::guard;
use crate::managed::Managed;
use crate::proof::{Facts, Proof};
use crate::rekeying;
use crate::rmt::{FileState, ManagedDirectory};
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{FileId, Placement, RegionIndex, ServerId};
use stripewise_store::protocol::{
    Admin, ExpectedFile, FileInfo, MAX_PACKET_BYTES, MoveTotals, Refusal, RegionInfo, Reply, ServerUsage,
};
use stripewise_store::server::{Operation, ServerError, Standing};

/// Files in one answer; a path has at most 4,096 bytes.
const FILES_AT_ONCE: usize = 24;

/// Replicas and fragments are of clusters of one host.
fn refuse_for_many_hosts(context: &Context, request: &Admin) -> Result<(), Refusal> {
    let what = match request {
        Admin::SetReplicas { wanted, .. } | Admin::ExpectReplicas { wanted, .. } if !wanted.is_empty() => "replicas",
        Admin::SetFragments { on: Some(true), .. } => "fragments",
        Admin::Manage { min_bytes: Some(_), .. } => "minimum sizes",
        Admin::ExpectFiles { files }
            if files.iter().any(|file| file.replicas.as_ref().is_some_and(|wanted| !wanted.is_empty())) =>
        {
            "replicas"
        }
        _ => return Ok(()),
    };
    match context.is_shared() {
        true => Err(Refusal::Invalid {
            what: format!(
                "{what} are not kept on a cluster of many hosts; plan without them, or remove [coordinator] from cluster.toml"
            ),
        }),
        false => Ok(()),
    }
}

impl Parts {
    pub(super) fn admin(
        &self,
        connection: &Connection,
        request: Admin,
        proof: &mut dyn FnMut() -> Result<Proof, Refusal>,
    ) -> Answer {
        refuse_for_many_hosts(&self.base.context, &request)?;
        match request {
            Admin::Import { path, placement, temporary } => {
                let (stub, original) = (proof()?, proof()?);
                let managed = self.import(connection, &stub, &original, (path, temporary), placement)?;
                self.lifecycle.opened(connection, &managed, &mut guard(&managed.inner), stub.granted(), None)
            }
            Admin::Imported { file } => self.imported(connection, file),
            Admin::BeginRelease { file, temporary } => {
                let copy = proof()?;
                self.begin_release(connection, file, &copy, temporary)
            }
            Admin::EndRelease { file } => self.end_release(connection, file),
            Admin::CancelRelease { file } => {
                let managed = self.held(connection, file)?;
                let mut inner = guard(&managed.inner);
                if matches!(inner.record.state, FileState::Releasing { .. }) {
                    self.lifecycle.set_state(&managed, &mut inner, FileState::Live)?;
                }
                inner.holder = None;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Manage { directory, placement, min_bytes } => {
                self.manage(&directory, Some(ManagedDirectory { placement, min_bytes }))
            }
            Admin::Unmanage { directory } => self.manage(&directory, None),
            Admin::Expect { path, placement } => {
                self.check_name(&path, Some(&placement))?;
                self.base.names.write().expect_one(self.base.context.table(), &path, placement)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::ExpectFiles { files } => self.expect_files(files),
            Admin::ForgetExpected { path } => {
                self.check_name(&path, None)?;
                let names = self.base.names.write().forget(self.base.context.table(), &path)?;
                Ok((Reply::Forgotten { names }, Vec::new()))
            }
            Admin::List { after } => {
                if after.is_none() {
                    self.lifecycle.finish_removals();
                }
                self.list(after)
            }
            Admin::Usage => Ok((Reply::Usage { servers: self.usage() }, Vec::new())),
            Admin::Regions { file, first } => self.regions(file, first),
            Admin::Move { orders } => {
                let (first, count) = self.regions.moves.queue_moves(&orders)?;
                Ok((Reply::MovesQueued { first, count }, Vec::new()))
            }
            Admin::ControlMoves(control) => {
                self.regions.queue.control(control);
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Moves { after } => {
                let (moves, more) = self.regions.queue.list(after);
                let totals = MoveTotals { guide: self.guiding.guide(), ..self.regions.queue.totals() };
                Ok((Reply::Moves { totals, moves, more }, Vec::new()))
            }
            Admin::SetPlacement { file, placement } => {
                self.regions.placer.set_placement(file, placement)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Placement { file } => {
                Ok((Reply::Placement { placement: self.regions.placer.placement_of(file)? }, Vec::new()))
            }
            Admin::Drain { server, drained } => {
                self.empty_server(ServerId(server), drained)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::SetReplicas { file, wanted } => {
                self.regions.replicas.set_wanted(file, wanted)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::ExpectReplicas { path, wanted } => {
                self.regions.replicas.check_wanted(&wanted)?;
                self.base.context.table().expect_replicas(&path, &wanted)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::SyncReplicas { file } => {
                self.regions.replicas.queue_syncs(&*self.base.files.managed(file)?)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Replicas { file } => Ok((self.regions.replicas.replica_totals(file)?, Vec::new())),
            Admin::SetFragments { file, on } => {
                self.regions.fragments.switch_fragments(file, on)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Fragments { file } => Ok((self.regions.fragments.file_fragments(file)?, Vec::new())),
            Admin::Observe { after, reset } => self.observers.observe(connection, after, reset),
            Admin::Accesses => self.observers.accesses(),
            Admin::Sizes { files } => self.observers.sizes(&files),
            Admin::Guide { process, begins } => {
                self.guiding.tell(&self.base.context, connection, process, begins)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::OpenedPaths { after } => self.observers.opened_paths(connection, &after),
            Admin::HeldBytes { file } => {
                let servers = self.base.occupancy.of_file(&*self.base.files.managed(file)?);
                Ok((Reply::HeldBytes { servers }, Vec::new()))
            }
            Admin::HeldByFiles { after } => {
                let (servers, last) = self.base.occupancy.of_files(after)?;
                Ok((Reply::HeldByFiles { servers, last }, Vec::new()))
            }
            Admin::ObservedMemory { file } => self.observers.memory_to_observe(file),
            Admin::Rescue { file, path } => {
                self.checks.rescue(&*self.base.files.managed(file)?, &path)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Remove { file } => {
                self.checks.remove_lost(&*self.base.files.managed(file)?)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Hosts => Ok((self.hosts(), Vec::new())),
            Admin::Rekey { order } => Ok((rekeying::rekey(&self.base.context, order)?, Vec::new())),
            Admin::Agent => Ok((agent_report(self), Vec::new())),
            Admin::ForgetHost { host } => {
                self.forget_host(&host)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Holders { file, unchecked } => {
                Ok((Reply::Holders { holders: self.holders.elsewhere(connection, &file, &unchecked)? }, Vec::new()))
            }
            Admin::Probe { directory } => {
                Ok((Reply::Probed { hosts: self.directories.probe(&directory)? }, Vec::new()))
            }
            Admin::Check { repair } => Ok((Reply::Findings { findings: self.checks.check(repair)? }, Vec::new())),
        }
    }

    /// The server is to be emptied, or used again.
    fn empty_server(&self, server: ServerId, is_drained: bool) -> Result<(), Refusal> {
        self.base.drained.set(server, is_drained)?;
        self.regions.logs.leave_logs();
        if is_drained { self.regions.replicas.leave_server(server) } else { Ok(()) }
    }

    fn import(
        &self,
        connection: &Connection,
        stub: &Proof,
        original: &Proof,
        (path, temporary): (String, String),
        placement: Placement,
    ) -> Result<Arc<Managed>, Refusal> {
        original.permits_io()?;
        if let Some(file) = self.base.context.table().file_of(original.facts.inode)?
            && self.base.context.table().file(file)?.is_some_and(|record| record.stub.is(&original.facts.inode))
        {
            return Err(Refusal::Invalid { what: format!("{path} is managed already (file {file})") });
        }
        let state = FileState::Importing { original: original.facts.inode, temporary, complete: false };
        let (managed, _) = self.lifecycle.create(stub, &path, placement, state, Some(connection.id))?;
        guard(&connection.client).held.insert(managed.file);
        Ok(managed)
    }

    /// The file, if this connection holds it.
    fn held(&self, connection: &Connection, file: FileId) -> Result<Arc<Managed>, Refusal> {
        let managed = self.base.files.managed(file)?;
        let holder = guard(&managed.inner).holder;
        if holder == Some(connection.id) {
            return Ok(managed);
        }
        Err(Refusal::Invalid { what: format!("file {file} is not held by this command; begin again") })
    }

    fn imported(&self, connection: &Connection, file: FileId) -> Answer {
        let managed = self.held(connection, file)?;
        self.lifecycle.sync(&managed)?;
        let mut inner = guard(&managed.inner);
        if let FileState::Importing { original, temporary, .. } = inner.record.state.clone() {
            self.lifecycle.set_state(
                &managed,
                &mut inner,
                FileState::Importing { original, temporary, complete: true },
            )?;
        }
        Ok((Reply::Done, Vec::new()))
    }

    fn begin_release(&self, connection: &Connection, file: FileId, copy: &Proof, temporary: String) -> Answer {
        copy.permits_io()?;
        let managed = self.base.files.managed(file)?;
        if let Some(others) = self.base.context.others() {
            others.refuse_if_elsewhere(file, connection.host())?;
        }
        let mut inner = guard(&managed.inner);
        self.lifecycle.refuse_if_held(&managed, &inner, connection.id)?;
        if !inner.openers.contains(&connection.id) {
            return Err(Refusal::NotPermitted);
        }
        let own = guard(&connection.client).claim;
        let others: Vec<u64> = self
            .base
            .quiescing
            .users(&managed)
            .into_iter()
            .filter(|user| Some(*user) != own)
            .map(|(slot, _)| self.base.context.processes().process_id(slot))
            .collect();
        if !others.is_empty() || inner.openers.len() > 1 {
            let processes: Vec<String> = others.iter().map(u64::to_string).collect();
            return Err(Refusal::Busy { file, holder: format!("process {}", processes.join(", ")) });
        }
        let copy = copy.facts.inode;
        let stub_links = inner.stub.as_ref().and_then(|stub| Facts::of(stub).ok()).map_or(0, |facts| facts.links);
        if stub_links != 1 {
            return Err(Refusal::Invalid {
                what: format!("{} has {stub_links} names (hard links); remove all but one first", inner.record.path),
            });
        }
        self.lifecycle.set_state(&managed, &mut inner, FileState::Releasing { copy, temporary })?;
        self.base.quiescing.end_moves(&managed, &inner, "the file is being released");
        inner.holder = Some(connection.id);
        guard(&connection.client).held.insert(file);
        Ok((Reply::Done, Vec::new()))
    }

    fn end_release(&self, connection: &Connection, file: FileId) -> Answer {
        let managed = match self.held(connection, file) {
            // Said twice.
            Err(Refusal::UnknownFile { .. }) => return Ok((Reply::Done, Vec::new())),
            result => result?,
        };
        {
            let mut inner = guard(&managed.inner);
            if inner.is_nameless() != Some(true) {
                return Err(Refusal::Invalid { what: format!("the stub {} still has its name", inner.record.path) });
            }
            self.lifecycle.set_state(&managed, &mut inner, FileState::Unlinked)?;
            inner.holder = None;
        }
        if !self.lifecycle.after_release(&managed)? {
            self.base.rechecks.recheck(file);
        }
        // The command has synced the directory.
        self.lifecycle.finish_removals();
        Ok((Reply::Done, Vec::new()))
    }

    fn expect_files(&self, files: Vec<ExpectedFile>) -> Answer {
        for file in &files {
            self.check_name(&file.path, Some(&file.placement))?;
            self.regions.replicas.check_wanted(file.replicas.as_deref().unwrap_or_default())?;
        }
        let mut names = self.base.names.write();
        names.expect(self.base.context.table(), files)?;
        Ok((Reply::Done, Vec::new()))
    }

    fn check_name(&self, path: &str, placement: Option<&Placement>) -> Result<(), Refusal> {
        if !Path::new(path).is_absolute() {
            return Err(Refusal::Invalid { what: format!("{path} is not an absolute path") });
        }
        let checked = placement.map_or(Ok(()), |placement| placement.check(self.base.context.servers().len()));
        checked.map_err(|what| Refusal::Invalid { what: format!("{path}: {what}") })
    }

    fn manage(&self, path: &str, directory: Option<ManagedDirectory>) -> Answer {
        self.check_name(path, directory.as_ref().map(|directory| &directory.placement))?;
        if directory.is_some() {
            self.directories.check_for_stubs(path)?;
        }
        self.base.names.write().manage(self.base.context.table(), path, directory)?;
        self.show_min_sizes();
        self.base.min_sizes.scan_again();
        Ok((Reply::Done, Vec::new()))
    }

    fn list(&self, after: Option<FileId>) -> Answer {
        let records = self.base.context.table().files(after, FILES_AT_ONCE + 1)?;
        let more = records.len() > FILES_AT_ONCE;
        let files = records.into_iter().take(FILES_AT_ONCE).map(|(file, record)| {
            let loaded = self.base.files.if_loaded(file);
            let (size_bytes, regions_placed, users) = match &loaded {
                Some(managed) => {
                    let users = self.base.quiescing.users(managed).len() as u32;
                    // A request may hold the file for long.
                    let regions = match managed.inner.try_lock() {
                        Ok(inner) => inner.regions.len(),
                        Err(_) => self.base.context.table().regions(file)?.len(),
                    };
                    (managed.extent.size_bytes(), regions as u32, users)
                }
                None => (
                    self.base.memory.status_unloaded(file, &record)?.size_bytes,
                    self.base.context.table().regions(file)?.len() as u32,
                    0,
                ),
            };
            let state = match record.state {
                FileState::Creating => "creating",
                FileState::Live => "live",
                FileState::Importing { .. } => "importing",
                FileState::Releasing { .. } => "releasing",
                FileState::Unlinked => "unlinked",
            };
            Ok(FileInfo {
                file,
                path: record.path,
                size_bytes,
                region_bytes: record.region_bytes,
                regions_placed,
                users,
                state: state.to_owned(),
            })
        });
        Ok((Reply::Files { files: files.collect::<Result<_, Refusal>>()?, more }, Vec::new()))
    }

    /// The number of objects and promises per server, and what is wrong with it now.
    fn usage(&self) -> Vec<ServerUsage> {
        self.lifecycle.finish_removals();
        let servers = (0..self.base.context.servers().len()).map(|number| ServerId(number as u16));
        let probed = self.base.context.perform_together(servers.map(|server| (server, Operation::Probe)));
        let faults: Vec<Option<ServerError>> = probed.into_iter().map(Result::err).collect();
        let standings = standings_without(&self.base.context, &faults);
        let (promised, drained) = (self.base.capacity.promised(), self.base.drained.servers());
        (0..)
            .map(ServerId)
            .zip(&self.base.context.cluster().servers)
            .zip(faults.into_iter().zip(standings))
            .map(|((id, server), (fault, standing))| {
                let promised = promised[usize::from(id.0)];
                ServerUsage {
                    name: server.name.clone(),
                    promised_bytes: promised.bytes,
                    room_bytes: self.base.capacity.total_bytes(id),
                    objects: promised.objects,
                    drained: drained.contains(&id),
                    silent_s: match fault {
                        Some(ServerError::NotAnswering { waited_s, .. }) => Some(waited_s),
                        _ => None,
                    },
                    fault: fault.map(|fault| fault.to_string()),
                    standing,
                }
            })
            .collect()
    }

    fn regions(&self, file: FileId, first: RegionIndex) -> Answer {
        let managed = self.base.files.managed(file)?;
        let inner = guard(&managed.inner);
        let (mut bytes, mut more, mut regions) = (0, false, Vec::new());
        for (region, placed) in inner.regions.range(first..) {
            let replicas = self.regions.replicas.replica_infos(&inner, *region);
            let stripes = replicas.iter().map(|replica| 1 + replica.stripes.len()).sum::<usize>();
            // A narrow region lies as planned: it has got no other objects because it needs none.
            let layout = placed.promised();
            bytes += 24 + 8 * (layout.stripes().len() + stripes);
            if bytes > MAX_PACKET_BYTES / 2 {
                more = true;
                break;
            }
            regions.push(RegionInfo {
                region: *region,
                generation: placed.generation,
                stripes: layout.stripes().iter().map(|stripe| (stripe.server.0, stripe.size_bytes)).collect(),
                fell_back: placed.fell_back,
                replicas,
            });
        }
        Ok((Reply::Regions { regions, more }, Vec::new()))
    }
}

/// The free space of each server that has no fault, or why it is not known.
fn standings_without(context: &Context, faults: &[Option<ServerError>]) -> Vec<Result<Standing, String>> {
    let unknown = |fault: &Option<ServerError>| Err(fault.as_ref().map_or_else(String::new, ToString::to_string));
    let mut standings: Vec<Result<Standing, String>> = faults.iter().map(unknown).collect();
    let asked = || (0..).map(ServerId).zip(faults).filter(|(_, fault)| fault.is_none()).map(|(server, _)| server);
    let answers = context.perform_together(asked().map(|server| (server, Operation::Standing)));
    for (server, outcome) in asked().zip(answers) {
        let name = context.server_name(server);
        let standing = outcome.and_then(|outcome| outcome.into_standing(&name));
        standings[usize::from(server.0)] = standing.map_err(|error| error.to_string());
    }
    standings
}
