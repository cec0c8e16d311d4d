//! Requests of the `stripewise` command: moving files in and out, naming what becomes managed, and looking.

use crate::aside::take_away;
use crate::managed::{Inner, Managed};
use crate::proof::{Facts, Proof};
use crate::requests::Answer;
use crate::rmt::{FileState, NameKind};
use crate::service::Connection;
use crate::{Core, guard};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use stripewise_layout::{FileId, Placement, RegionIndex, ServerId};
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::{
    Admin, ExpectedFile, FileInfo, MAX_PACKET_BYTES, Refusal, RegionInfo, Reply, ServerUsage,
};
use stripewise_store::server::ServerError;

/// Files in one answer; a path has at most 4,096 bytes.
const FILES_AT_ONCE: usize = 24;

impl Core {
    pub(crate) fn admin(
        &self,
        connection: &Connection,
        request: Admin,
        proof: &mut dyn FnMut() -> Result<Proof, Refusal>,
    ) -> Answer {
        match request {
            Admin::Import { path, placement, temporary } => {
                let (stub, original) = (proof()?, proof()?);
                let managed = self.import(connection, &stub, &original, (path, temporary), placement)?;
                self.opened(connection, &managed, &mut guard(&managed.inner), stub.granted())
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
                    self.set_state(&managed, &mut inner, FileState::Live)?;
                }
                inner.holder = None;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Manage { directory, placement } => self.name(NameKind::Managed, &directory, Some(placement)),
            Admin::Unmanage { directory } => self.name(NameKind::Managed, &directory, None),
            Admin::Expect { path, placement } => self.name(NameKind::Expected, &path, Some(placement)),
            Admin::ExpectFiles { files } => self.expect_files(files),
            Admin::List { after } => self.list(after),
            Admin::Usage => Ok((Reply::Usage { servers: self.usage() }, Vec::new())),
            Admin::Regions { file, first } => self.regions(file, first),
            Admin::Move { orders } => {
                let (first, count) = self.queue_moves(&orders)?;
                Ok((Reply::MovesQueued { first, count }, Vec::new()))
            }
            Admin::ControlMoves(control) => {
                self.moves.control(control);
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Moves { after } => {
                let (moves, more) = self.moves.list(after);
                Ok((Reply::Moves { totals: self.moves.totals(), moves, more }, Vec::new()))
            }
            Admin::SetPlacement { file, placement } => {
                self.set_placement(file, placement)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Placement { file } => Ok((Reply::Placement { placement: self.placement_of(file)? }, Vec::new())),
            Admin::Drain { server, drained } => {
                self.empty_server(ServerId(server), drained)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::SetReplicas { file, wanted } => {
                self.set_wanted(file, wanted)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::ExpectReplicas { path, wanted } => {
                self.check_wanted(&wanted)?;
                self.context.table().expect_replicas(&path, &wanted)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::SyncReplicas { file } => {
                self.queue_syncs(&*self.managed(file)?)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Replicas { file } => Ok((self.replica_totals(file)?, Vec::new())),
            Admin::SetFragments { file, on } => {
                self.switch_fragments(file, on)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Fragments { file } => Ok((self.file_fragments(file)?, Vec::new())),
            Admin::Observe { after, anew } => self.observe(connection, after, anew),
            Admin::ObservedMemory { file } => self.memory_to_observe(file),
            Admin::Rescue { file, path } => {
                self.rescue(&*self.managed(file)?, &path)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Remove { file } => {
                self.remove_lost(&*self.managed(file)?)?;
                Ok((Reply::Done, Vec::new()))
            }
            Admin::Check { repair } => Ok((Reply::Findings { findings: self.check(repair)? }, Vec::new())),
        }
    }

    /// The server is to be emptied, or used again.
    fn empty_server(&self, server: ServerId, is_drained: bool) -> Result<(), Refusal> {
        self.drained.set(server, is_drained)?;
        self.leave_logs();
        if is_drained { self.leave_server(server) } else { Ok(()) }
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
        if let Some(file) = self.context.table().file_of(original.facts.inode)?
            && self.context.table().file(file)?.is_some_and(|record| record.stub.is(&original.facts.inode))
        {
            return Err(Refusal::Invalid { what: format!("{path} is managed already (file {file})") });
        }
        let state = FileState::Importing { original: original.facts.inode, temporary, complete: false };
        let managed = self.create(stub, &path, placement, state, Some(connection.id))?;
        guard(&connection.client).held.insert(managed.file);
        Ok(managed)
    }

    /// The file, if this connection holds it.
    fn held(&self, connection: &Connection, file: FileId) -> Result<Arc<Managed>, Refusal> {
        let managed = self.managed(file)?;
        let holder = guard(&managed.inner).holder;
        if holder == Some(connection.id) {
            return Ok(managed);
        }
        Err(Refusal::Invalid { what: format!("file {file} is not held by this command; begin again") })
    }

    fn imported(&self, connection: &Connection, file: FileId) -> Answer {
        let managed = self.held(connection, file)?;
        self.sync(&managed)?;
        let mut inner = guard(&managed.inner);
        if let FileState::Importing { original, temporary, .. } = inner.record.state.clone() {
            self.set_state(&managed, &mut inner, FileState::Importing { original, temporary, complete: true })?;
        }
        Ok((Reply::Done, Vec::new()))
    }

    fn begin_release(&self, connection: &Connection, file: FileId, copy: &Proof, temporary: String) -> Answer {
        copy.permits_io()?;
        let managed = self.managed(file)?;
        let mut inner = guard(&managed.inner);
        self.refuse_if_held(&managed, &inner, connection.id)?;
        if !inner.openers.contains(&connection.id) {
            return Err(Refusal::NotPermitted);
        }
        let own = guard(&connection.client).claim;
        let others: Vec<u64> = self
            .users(&managed)
            .into_iter()
            .filter(|user| Some(*user) != own)
            .map(|(slot, _)| self.context.processes().process_id(slot))
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
        self.set_state(&managed, &mut inner, FileState::Releasing { copy, temporary })?;
        self.quiescing.end_moves(&managed, &inner, "the file is being released");
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
            self.set_state(&managed, &mut inner, FileState::Unlinked)?;
            inner.holder = None;
        }
        if !self.after_close(&managed)? {
            self.rechecks.recheck(file);
        }
        Ok((Reply::Done, Vec::new()))
    }

    /// Who held the file is gone: an import or release that was under way is undone, or finished if all but its last note was done.
    pub(crate) fn abandoned_by_holder(&self, managed: &Managed) {
        let mut inner = guard(&managed.inner);
        match self.settle_holding(managed, &mut inner) {
            Ok(Some(said)) => self.context.note(&said),
            Ok(None) => {}
            Err(refusal) => self.context.note(&format!("file {}: {refusal}", managed.file)),
        }
    }

    /// Ends an import or release whose process is gone (or, after a change of brokers, may live but has lost its hold) and says what became of
    /// it. The temporary file decides: it is taken away first, after which a rename of it can no longer succeed.
    pub(crate) fn settle_holding(&self, managed: &Managed, inner: &mut Inner) -> Result<Option<String>, Refusal> {
        if inner.freed {
            return Ok(None);
        }
        let path = inner.record.path.clone();
        match inner.record.state.clone() {
            FileState::Importing { original, temporary, complete } => {
                if take_away(&temporary, inner.record.stub)? {
                    self.free(managed, inner)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise apply` of {path} was undone: the original file is whole and its copy was discarded"
                    )));
                }
                let standing = self.at_its_path(&inner.record)?;
                let stands = standing.is_some_and(|facts| inner.record.stub.is(&facts.inode));
                // The stub may have moved on from there since; where the original is, it never came.
                let is_undone = standing.is_some_and(|facts| original.is(&facts.inode));
                if complete && stands {
                    // They had changed places already; what it holds is verified and synced in the managed file.
                    sync_directory_of(&path)?;
                    take_away(&temporary, original)?;
                }
                if stands || (complete && !is_undone) {
                    self.set_state(managed, inner, FileState::Live)?;
                    managed.control.set_life(stripewise_store::shared::control::Life::Live);
                    return Ok(Some(format!(
                        "the interrupted `stripewise apply` of {path} was complete: it is managed"
                    )));
                }
                self.free(managed, inner)?;
                Ok(Some(format!("the interrupted `stripewise apply` of {path} was undone: the original file is whole")))
            }
            FileState::Releasing { copy, temporary } => {
                if take_away(&temporary, copy)? {
                    self.set_state(managed, inner, FileState::Live)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise release` of {path} was undone: the managed file is whole and its copy was discarded"
                    )));
                }
                let released = self.at_its_path(&inner.record)?.is_some_and(|facts| copy.is(&facts.inode));
                if released {
                    sync_directory_of(&path)?;
                    take_away(&temporary, inner.record.stub)?;
                    self.free(managed, inner)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise release` of {path} was finished: it is an ordinary file"
                    )));
                }
                self.set_state(managed, inner, FileState::Live)?;
                Ok(Some(format!(
                    "the interrupted `stripewise release` of {path} was undone: the managed file is whole"
                )))
            }
            FileState::Creating | FileState::Live | FileState::Unlinked => Ok(None),
        }
    }

    fn expect_files(&self, files: Vec<ExpectedFile>) -> Answer {
        for file in &files {
            self.check_name(&file.path, Some(&file.placement))?;
            self.check_wanted(file.replicas.as_deref().unwrap_or_default())?;
        }
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        names.expect(&self.context.table(), files)?;
        Ok((Reply::Done, Vec::new()))
    }

    fn check_name(&self, path: &str, placement: Option<&Placement>) -> Result<(), Refusal> {
        if !Path::new(path).is_absolute() {
            return Err(Refusal::Invalid { what: format!("{path} is not an absolute path") });
        }
        let checked = placement.map_or(Ok(()), |placement| placement.check(self.context.servers().len()));
        checked.map_err(|what| Refusal::Invalid { what: format!("{path}: {what}") })
    }

    fn name(&self, kind: NameKind, path: &str, placement: Option<Placement>) -> Answer {
        self.check_name(path, placement.as_ref())?;
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        names.set(&self.context.table(), kind, path, placement)?;
        Ok((Reply::Done, Vec::new()))
    }

    fn list(&self, after: Option<FileId>) -> Answer {
        let records = self.context.table().files(after, FILES_AT_ONCE + 1)?;
        let more = records.len() > FILES_AT_ONCE;
        let files = records.into_iter().take(FILES_AT_ONCE).map(|(file, record)| {
            let loaded = self.if_loaded(file);
            let (size_bytes, regions_placed, users) = match &loaded {
                Some(managed) => {
                    let users = self.users(managed).len() as u32;
                    // A request may hold the file for long.
                    let regions = match managed.inner.try_lock() {
                        Ok(inner) => inner.regions.len(),
                        Err(_) => self.context.table().regions(file)?.len(),
                    };
                    (managed.extent.size_bytes(), regions as u32, users)
                }
                None => (
                    self.status_unloaded(file, &record)?.size_bytes,
                    self.context.table().regions(file)?.len() as u32,
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
        let faults: Vec<Option<ServerError>> =
            self.context.servers().iter().map(|server| server.probe().err()).collect();
        let (promised, drained) = (self.capacity.promised(), self.drained.servers());
        (0..)
            .map(ServerId)
            .zip(&self.context.cluster().servers)
            .zip(faults)
            .map(|((id, server), fault)| {
                let promised = promised[usize::from(id.0)];
                ServerUsage {
                    name: server.name.clone(),
                    promised_bytes: promised.bytes,
                    room_bytes: self.capacity.total_bytes(id),
                    objects: promised.objects,
                    drained: drained.contains(&id),
                    silent_s: match fault {
                        Some(ServerError::NotAnswering { waited_s, .. }) => Some(waited_s),
                        _ => None,
                    },
                    fault: fault.map(|fault| fault.to_string()),
                }
            })
            .collect()
    }

    fn regions(&self, file: FileId, first: RegionIndex) -> Answer {
        let managed = self.managed(file)?;
        let inner = guard(&managed.inner);
        let (mut bytes, mut more, mut regions) = (0, false, Vec::new());
        for (region, placed) in inner.regions.range(first..) {
            let replicas = self.replica_infos(&inner, *region);
            let stripes = replicas.iter().map(|replica| 1 + replica.stripes.len()).sum::<usize>();
            bytes += 24 + 8 * (placed.layout.stripes().len() + stripes);
            if bytes > MAX_PACKET_BYTES / 2 {
                more = true;
                break;
            }
            regions.push(RegionInfo {
                region: *region,
                generation: placed.generation,
                stripes: placed.layout.stripes().iter().map(|stripe| (stripe.server.0, stripe.size_bytes)).collect(),
                fell_back: placed.fell_back,
                replicas,
            });
        }
        Ok((Reply::Regions { regions, more }, Vec::new()))
    }
}

/// Makes the change of places at `path` durable, before what stood there is removed.
fn sync_directory_of(path: &str) -> Result<(), Refusal> {
    DirectoryEntry::at(Path::new(path))
        .and_then(|entry| entry.sync_directory())
        .map_err(|errno| Refusal::Invalid { what: format!("syncing the directory of {path}: {errno}") })
}
