//! What a predecessor left unfinished, before the first client is served.

use crate::aside::take_away;
use crate::capacity::Capacity;
use crate::context::Context;
use crate::discards::Discards;
use crate::files::Files;
use crate::fragments::FragmentLogs;
use crate::guard;
use crate::held::in_run;
use crate::inodes::StubInodes;
use crate::lifecycle::Lifecycle;
use crate::managed::Managed;
use crate::name_changes::NameChanges;
use crate::objects::Objects;
use crate::proof::Facts;
use crate::quiescing::Quiescing;
use crate::rechecks::Rechecks;
use crate::rmt::{FileRecord, FileState, Inode};
use crate::search::{Search, StubSearch};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::{FileId, RegionGeometry};
use stripewise_store::holders::hold_open;
use stripewise_store::protocol::{FileStatus, Refusal};
use stripewise_store::shared::control::Life;

/// Ends what a predecessor left unfinished.
pub(crate) struct Recovery {
    context: Arc<Context>,
    rechecks: Arc<Rechecks>,
    capacity: Arc<Capacity>,
    quiescing: Arc<Quiescing>,
    inodes: Arc<StubInodes>,
    files: Arc<Files>,
    objects: Arc<Objects>,
    discards: Arc<Discards>,
    logs: Arc<FragmentLogs>,
    search: Arc<StubSearch>,
    lifecycle: Arc<Lifecycle>,
    name_changes: Arc<NameChanges>,
}

impl Recovery {
    #[allow(clippy::too_many_arguments, reason = "one for each part that it uses")]
    pub(crate) fn new(
        context: &Arc<Context>,
        rechecks: &Arc<Rechecks>,
        capacity: &Arc<Capacity>,
        quiescing: &Arc<Quiescing>,
        inodes: &Arc<StubInodes>,
        files: &Arc<Files>,
        objects: &Arc<Objects>,
        discards: &Arc<Discards>,
        logs: &Arc<FragmentLogs>,
        search: &Arc<StubSearch>,
        lifecycle: &Arc<Lifecycle>,
        name_changes: &Arc<NameChanges>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            rechecks: Arc::clone(rechecks),
            capacity: Arc::clone(capacity),
            quiescing: Arc::clone(quiescing),
            inodes: Arc::clone(inodes),
            files: Arc::clone(files),
            objects: Arc::clone(objects),
            discards: Arc::clone(discards),
            logs: Arc::clone(logs),
            search: Arc::clone(search),
            lifecycle: Arc::clone(lifecycle),
            name_changes: Arc::clone(name_changes),
        }
    }

    /// Counts promises, ends what was under way, and returns sentences for the user. A file that cannot be settled now (its server is
    /// away) is noted, and settled when it is next opened.
    pub(crate) fn recover(&self) -> Result<Vec<String>, crate::BrokerError> {
        let files: HashMap<FileId, FileRecord> = self.context.table().all_files()?.into_iter().collect();
        self.inodes.publish_inodes(&files)?;
        let mut placed_bytes = HashMap::<FileId, u64>::new();
        self.context.table().every_region(|file, region, placed| {
            if let Some(record) = files.get(&file) {
                self.capacity.add(placed.promised(), record.region_bytes);
                let used_bytes = RegionGeometry::new(record.region_bytes).used_bytes(region, record.size_bytes);
                *placed_bytes.entry(file).or_default() += used_bytes;
            }
        })?;
        for (file, record) in &files {
            if record.put_away_in == Some(self.context.boot()) {
                let blocks_512 = placed_bytes.get(file).map_or(0, |bytes| bytes.div_ceil(512));
                let status = FileStatus { size_bytes: record.size_bytes, blocks_512, modified_ns: None };
                self.inodes.show_status(record.stub, *file, status);
            }
        }
        for (file, _, _, replica) in self.context.table().replicas(None)? {
            if let Some(record) = files.get(&file) {
                self.capacity.add(&replica.layout, record.region_bytes);
                self.capacity.note_replicas();
            }
        }
        self.remove_stale_memory(&files);
        let mut said = self.recover_moves(&files)?;
        said.extend(self.logs.recover_logs()?);
        let removed = files.iter().filter(|(_, record)| was_synced_and_removed(record));
        let found = self.search.search(&removed.map(|(file, record)| (*file, record.clone())).collect());
        let mut held = held_without_name(&files);
        for (file, record) in &files {
            if matches!(record.state, FileState::Live) && record.truncating_to_bytes.is_none() {
                continue;
            }
            let settled = self.files.managed(*file).and_then(|managed| {
                if let Some(stub) = held.remove(&(record.stub.device, record.stub.inode)) {
                    guard(&managed.inner).stub = Some(stub);
                }
                self.settle_left(&managed, record, &found)
            });
            match settled {
                Ok(sentence) => said.extend(sentence.map(|sentence| format!("cleaned up: {sentence}"))),
                Err(refusal) => said.push(format!("not cleaned up yet: {}: {refusal}", record.path)),
            }
        }
        if self.context.is_shared() {
            said.extend(self.take_over_memory(&files));
        }
        said.extend(self.name_changes.recover_name_changes()?);
        Ok(said)
    }

    /// What killed programs of this host had told its agent of sizes goes into the table, as it would have gone to another master. Programs that live have their
    /// files looked at when they ask.
    fn take_over_memory(&self, files: &HashMap<FileId, FileRecord>) -> Vec<String> {
        let held = in_run(&self.context).into_iter().filter(|held| !held.is_used);
        let known = held.filter_map(|held| Some((held.file, files.get(&held.file)?)));
        let not_taken = |(file, record): (FileId, &FileRecord)| {
            let taken = self.files.managed(file).and_then(|managed| self.lifecycle.after_close(&managed));
            Some(format!("not taken over yet: {}: {}", record.path, taken.err()?))
        };
        known.filter_map(not_taken).collect()
    }

    /// Ends what moves were under way: each region lies where the table says, and the objects that are not its own are removed.
    fn recover_moves(&self, files: &HashMap<FileId, FileRecord>) -> Result<Vec<String>, crate::BrokerError> {
        let discards = self.context.table().discards(None)?;
        let mut said = Vec::new();
        let mut with_moves = std::collections::BTreeMap::<FileId, u32>::new();
        for (file, region, generation, layout) in discards {
            if let Some(record) = files.get(&file) {
                self.capacity.add(&layout, record.region_bytes);
                *with_moves.entry(file).or_default() += 1;
                continue;
            }
            // Its file was freed.
            let object = stripewise_store::server::ObjectName { file, region, generation };
            if self.objects.remove_objects(object, &layout).is_ok() {
                let mut changes = crate::rmt::Changes::default();
                changes.remove_discard(file, region, generation);
                self.context.table().commit(&changes)?;
            }
        }
        for (file, count) in with_moves {
            let path = &files[&file].path;
            match self.files.managed(file).and_then(|managed| self.discards.settle_discards(&managed)) {
                Ok(()) => said.push(format!(
                    "cleaned up: {count} interrupted moves of regions of {path}: every region is whole at one place"
                )),
                Err(refusal) => {
                    said.push(format!("not cleaned up yet: interrupted moves of regions of {path}: {refusal}"))
                }
            }
        }
        Ok(said)
    }

    fn settle_left(&self, managed: &Managed, record: &FileRecord, found: &Search) -> Result<Option<String>, Refusal> {
        match record.state {
            FileState::Importing { .. } | FileState::Releasing { .. } => {
                self.lifecycle.settle_holding(managed, &mut guard(&managed.inner))
            }
            FileState::Unlinked => {
                if was_synced_and_removed(record) {
                    // A power failure takes a removal that was not durable.
                    if found.found(managed.file).is_some() || self.search.stands_at_its_path(record)? {
                        self.lifecycle.set_state(managed, &mut guard(&managed.inner), FileState::Live)?;
                        managed.control.set_life(Life::Live);
                        return Ok(Some(format!("{} was removed and has its name again: it is whole", record.path)));
                    }
                    if !Path::new(&record.path).parent().is_some_and(Path::is_dir) {
                        let what = "its directory is gone, or not mounted; `stripewise check --repair` frees the data";
                        return Err(Refusal::Invalid { what: what.to_owned() });
                    }
                }
                let mut is_over = self.lifecycle.after_close(managed)?;
                if is_over && !guard(&managed.inner).freed {
                    self.lifecycle.sync_removals();
                    is_over = self.lifecycle.after_close(managed)?;
                }
                if is_over && guard(&managed.inner).freed {
                    return Ok(Some(format!("the data of the removed file {} was freed", record.path)));
                }
                self.rechecks.recheck(managed.file);
                Ok(None)
            }
            FileState::Creating => {
                let mut inner = guard(&managed.inner);
                let is_used = || !self.quiescing.users(managed).is_empty() || inner.is_stub_open();
                if self.context.is_elsewhere(managed.file) || is_used() {
                    self.rechecks.recheck(managed.file);
                } else if self.search.stands_at_its_path(record)? || self.has_other_name(managed.file, record)? {
                    self.lifecycle.set_state(managed, &mut inner, FileState::Live)?;
                    managed.control.set_life(Life::Live);
                } else {
                    self.lifecycle.free(managed, &mut inner)?;
                    return Ok(Some(format!("{}, which was being created, was discarded", record.path)));
                }
                Ok(None)
            }
            FileState::Live => Ok(record
                .truncating_to_bytes
                .map(|size| format!("the interrupted truncation of {} to {size} bytes was finished", record.path))),
        }
    }

    /// Whether a file that is not known to have got its name has another one: its stub was named and then moved. One that still has the temporary
    /// name under which it was made loses that, unless a process lives that may be making it and asks again.
    fn has_other_name(&self, file: FileId, record: &FileRecord) -> Result<bool, Refusal> {
        let search = self.search.search_one(file, record);
        let Some(path) = search.found(file) else { return Ok(false) };
        let is_temporary = path.file_name().is_some_and(|name| name.to_string_lossy().contains(".stripewise-"));
        match path.to_str() {
            Some(_) if is_temporary && self.context.processes().any_living().is_some() => Ok(false),
            Some(path) if is_temporary => Ok(!take_away(path, record.stub)?),
            _ => Ok(true),
        }
    }

    /// Shared memory of files that are no more.
    fn remove_stale_memory(&self, files: &HashMap<FileId, FileRecord>) {
        let Ok(run) = Dir::read_from(self.context.state().run()) else { return };
        for entry in run.flatten() {
            let Ok(name) = entry.file_name().to_str() else { continue };
            let Some((id, "ctl" | "ext" | "slots" | "frag" | "hints")) = name.split_once('.') else { continue };
            if id.parse().is_ok_and(|file| !files.contains_key(&file)) {
                // What stays costs nothing but its name.
                let _ = rustix::fs::unlinkat(self.context.state().run(), name, AtFlags::empty());
            }
        }
    }
}

/// The stubs of files that may have no name any more, where a process of this host has them open: it may have been given the descriptor, and not used it yet.
fn held_without_name(files: &HashMap<FileId, FileRecord>) -> HashMap<(u64, u64), OwnedFd> {
    let may_be_nameless = |record: &&FileRecord| matches!(record.state, FileState::Unlinked | FileState::Creating);
    let inodes: HashMap<(u64, u64), Inode> = files
        .values()
        .filter(may_be_nameless)
        .map(|record| ((record.stub.device, record.stub.inode), record.stub))
        .collect();
    if inodes.is_empty() {
        return HashMap::new();
    }
    let mut held = hold_open(&inodes.keys().copied().collect());
    held.retain(|number, stub| Facts::of(stub).is_ok_and(|facts| inodes[number].is(&facts.inode)));
    held
}

/// Whether the data of a removed file goes after its removal is durable only ([`Lifecycle::free`]).
fn was_synced_and_removed(record: &FileRecord) -> bool {
    matches!(record.state, FileState::Unlinked) && record.generations_synced > 0
}
