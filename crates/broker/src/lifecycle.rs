//! A managed file's life: opening, closing, its names and owners, and what becomes durable when.
//!
//! A file is freed when its stub has no name left and no process has it open. The mark that it is to be freed outlives the broker before
//! the first object goes, so a crash in between is followed by the rest.
//!
//! | module | what |
//! |---|---|
//! | `creating` | making files |
//! | `freeing` | freeing them |
//! | `holding` | files that a command moves in or out of management |
//! | `opening` | opening files, and what is taken over from their stubs then |
//! | `syncing` | all files at once |

mod creating;
mod freeing;
mod holding;
mod opening;
mod syncing;

use crate::ancestors::RecentAncestors;
use crate::capacity::Capacity;
use crate::context::Context;
use crate::describing::Describing;
use crate::fencing;
use crate::file_memory::FileMemory;
use crate::files::Files;
use crate::fragments::{FragmentLogs, WriteBack};
use crate::guard;
use crate::held::in_run;
use crate::identities::Identities;
use crate::inodes::StubInodes;
use crate::log::note;
use crate::managed::{Inner, Managed, unknown};
use crate::min_size::MinSizes;
use crate::name_notes::NameNotes;
use crate::observing::Observers;
use crate::quiescing::Quiescing;
use crate::rechecks::Rechecks;
use crate::replicas::Replicas;
use crate::rmt::{Changes, FileRecord, FileState, RegionRecord, RmtError, Table};
use crate::search::StubSearch;
use crate::sizes;
use crate::truncation::Truncation;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use stripewise_layout::{FileId, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::Operation;
use stripewise_store::shared::control::Life;
use stripewise_store::times;

/// What becomes of files.
pub(crate) struct Lifecycle {
    context: Arc<Context>,
    rechecks: Arc<Rechecks>,
    capacity: Arc<Capacity>,
    quiescing: Arc<Quiescing>,
    inodes: Arc<StubInodes>,
    min_sizes: Arc<MinSizes>,
    memory: Arc<FileMemory>,
    describing: Arc<Describing>,
    files: Arc<Files>,
    replicas: Arc<Replicas>,
    logs: Arc<FragmentLogs>,
    write_back: Arc<WriteBack>,
    truncation: Arc<Truncation>,
    search: Arc<StubSearch>,
    identities: Arc<Identities>,
    observers: Arc<Observers>,
    notes: Arc<NameNotes>,
    ancestors: RecentAncestors,
    /// Files without name and users whose data goes when the removal is durable.
    removed: Mutex<BTreeSet<FileId>>,
}

impl Lifecycle {
    #[allow(clippy::too_many_arguments, reason = "one for each part that it uses")]
    pub(crate) fn new(
        context: &Arc<Context>,
        rechecks: &Arc<Rechecks>,
        capacity: &Arc<Capacity>,
        quiescing: &Arc<Quiescing>,
        inodes: &Arc<StubInodes>,
        min_sizes: &Arc<MinSizes>,
        memory: &Arc<FileMemory>,
        describing: &Arc<Describing>,
        files: &Arc<Files>,
        replicas: &Arc<Replicas>,
        logs: &Arc<FragmentLogs>,
        write_back: &Arc<WriteBack>,
        truncation: &Arc<Truncation>,
        search: &Arc<StubSearch>,
        identities: &Arc<Identities>,
        observers: &Arc<Observers>,
        notes: &Arc<NameNotes>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            rechecks: Arc::clone(rechecks),
            capacity: Arc::clone(capacity),
            quiescing: Arc::clone(quiescing),
            inodes: Arc::clone(inodes),
            min_sizes: Arc::clone(min_sizes),
            memory: Arc::clone(memory),
            describing: Arc::clone(describing),
            files: Arc::clone(files),
            replicas: Arc::clone(replicas),
            logs: Arc::clone(logs),
            write_back: Arc::clone(write_back),
            truncation: Arc::clone(truncation),
            search: Arc::clone(search),
            identities: Arc::clone(identities),
            observers: Arc::clone(observers),
            notes: Arc::clone(notes),
            ancestors: RecentAncestors::default(),
            removed: Mutex::default(),
        }
    }

    /// The stub has its name: the file lives.
    pub(crate) fn linked(&self, managed: &Managed) -> Result<(), Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(managed.file));
        }
        match &inner.record.state {
            FileState::Creating => {
                self.set_state_later(managed, &mut inner, FileState::Live)?;
                managed.control.set_life(Life::Live);
                return Ok(());
            }
            FileState::Importing { complete: true, .. } => {}
            // Taken for a dead program's, until its user was found; it has its name.
            FileState::Unlinked if managed.control.life() == Life::Live && inner.is_nameless() == Some(false) => {}
            FileState::Live | FileState::Unlinked | FileState::Releasing { .. } => return Ok(()),
            FileState::Importing { complete: false, .. } => {
                return Err(Refusal::Invalid { what: "the import is not complete".to_owned() });
            }
        }
        self.set_state(managed, &mut inner, FileState::Live)?;
        inner.holder = None;
        managed.control.set_life(Life::Live);
        Ok(())
    }

    /// Durably.
    pub(crate) fn set_state(&self, managed: &Managed, inner: &mut Inner, state: FileState) -> Result<(), Refusal> {
        if inner.record.state == state {
            return Ok(());
        }
        self.put_record(managed, inner, Table::commit, |record| record.state = state)
    }

    /// As [`Self::set_state`], not to outlive a power failure yet.
    pub(crate) fn set_state_later(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        state: FileState,
    ) -> Result<(), Refusal> {
        if inner.record.state == state {
            return Ok(());
        }
        self.put_record(managed, inner, Table::commit_later, |record| record.state = state)
    }

    fn put_record(
        &self,
        managed: &Managed,
        inner: &mut Inner,
        commit: fn(&Table, &Changes) -> Result<(), RmtError>,
        change: impl FnOnce(&mut FileRecord),
    ) -> Result<(), Refusal> {
        let mut record = inner.record.clone();
        change(&mut record);
        let mut changes = Changes::default();
        changes.put_file(managed.file, &record);
        commit(self.context.table(), &changes)?;
        inner.record = record;
        Ok(())
    }

    /// The durable part of an fsync: size, and the names of new objects. The mapping is durable since it was published.
    pub(crate) fn sync(&self, managed: &Managed) -> Result<(), Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(managed.file));
        }
        let unsynced = std::mem::take(&mut inner.unsynced);
        let has_new_names = !unsynced.is_empty();
        let sync = |server: &ServerId| (*server, Operation::SyncNames(managed.file));
        let synced = self.context.perform_together(unsynced.iter().map(sync));
        let mut first_fault = None;
        for (server, outcome) in unsynced.into_iter().zip(synced) {
            if let Err(error) = outcome {
                inner.unsynced.insert(server);
                first_fault.get_or_insert(error);
            }
        }
        if let Some(error) = first_fault {
            return Err(error.into());
        }
        // What is told from here on is synced at once.
        managed.control.notices().set_unsynced_descriptions(false);
        self.note_durable_names(managed.file, &mut inner)?;
        let has_new_generations = has_new_names && inner.generation > inner.record.generations_synced;
        self.save_size(managed, &mut inner)?;
        if inner.record.is_size_untold || has_new_generations {
            let (generation, size_bytes) = (inner.generation, inner.record.size_bytes);
            self.describing.describe_size_if_hidden(managed, &mut inner, size_bytes)?;
            self.put_record(managed, &mut inner, Table::commit_later, |record| {
                record.is_size_untold = false;
                if has_new_generations {
                    record.generations_synced = generation;
                }
            })?;
        }
        self.context.table().flush()?;
        managed.control.set_durable_size_bytes(Some(inner.record.size_bytes));
        managed.control.set_durable_names(inner.durable_names());
        Ok(())
    }

    /// All names of objects are durable: also those of regions that were narrow.
    fn note_durable_names(&self, file: FileId, inner: &mut Inner) -> Result<(), Refusal> {
        let mut changes = Changes::default();
        for (region, placed) in inner.regions.iter().filter(|(_, placed)| placed.has_new_names) {
            changes.put_region(file, *region, &RegionRecord { has_new_names: false, ..placed.clone() });
        }
        if changes.is_empty() {
            return Ok(());
        }
        self.context.table().commit_later(&changes)?;
        inner.regions.values_mut().for_each(|placed| placed.has_new_names = false);
        Ok(())
    }

    /// The record takes over the size, which is durable when the table is. The servers are told of it when it is to be durable.
    pub(crate) fn save_size(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if let Some(truncated_to_bytes) = inner.record.truncating_to_bytes {
            self.truncation.note_truncation(managed, inner, truncated_to_bytes)?;
        }
        let size_bytes = managed.extent.size_bytes();
        if size_bytes != inner.record.size_bytes {
            self.put_record(managed, inner, Table::commit_later, |record| {
                (record.size_bytes, record.is_size_untold) = (size_bytes, true);
            })?;
            // Whoever syncs this size has the record made durable.
            managed.control.set_durable_size_bytes(None);
        }
        Ok(())
    }

    /// After an open ended, or a name: frees the file if that was the last user and no name is left; else settles it. True when nothing more is to be expected.
    ///
    /// A program that has executed another one, or passed a descriptor on, may be no user any more, and whoever has the descriptor has not used it yet. So a
    /// file without a name is kept while a process has its stub open.
    pub(crate) fn after_close(&self, managed: &Managed) -> Result<bool, Refusal> {
        self.after_end(managed, true)
    }

    /// As [`Self::after_close`] of a file that was released: nobody but the command has its stub open.
    pub(crate) fn after_release(&self, managed: &Managed) -> Result<bool, Refusal> {
        self.after_end(managed, false)
    }

    fn after_end(&self, managed: &Managed, checks_descriptors: bool) -> Result<bool, Refusal> {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Ok(true);
        }
        if self.is_elsewhere(managed, &inner)
            || !inner.openers.is_empty()
            || inner.holder.is_some()
            || !self.quiescing.users(managed).is_empty()
        {
            if let Err(refusal) = self.share_size(managed, &mut inner) {
                note!(self.context.log(), warn, file = %managed.file, error = %refusal, "a size that a close reported is not in the table yet");
                self.rechecks.recheck(managed.file);
            }
            return Ok(false);
        }
        let is_unlinked = matches!(inner.record.state, FileState::Unlinked);
        let nameless = inner.is_nameless().unwrap_or(is_unlinked);
        if !nameless {
            // Servers that are away are asked when somebody needs the size.
            let _ = sizes::take_owed(&self.context, managed, &inner);
        }
        match &inner.record.state {
            // No call that is known took its last name: a program without redirection did, perhaps by mistake. It is kept until a person decides.
            FileState::Live if nameless => {}
            _ if nameless && checks_descriptors && inner.is_stub_open() => {
                self.rechecks.recheck(managed.file);
                return Ok(false);
            }
            _ if nameless => {
                self.free(managed, &mut inner)?;
                return Ok(true);
            }
            // Named, but the word of it never came. Its size goes into the same record.
            FileState::Creating if inner.stub.is_some() => {
                let size_bytes = managed.extent.size_bytes();
                let is_truncating = inner.record.truncating_to_bytes.is_some();
                let has_new_size = !is_truncating && size_bytes != inner.record.size_bytes;
                self.put_record(managed, &mut inner, Table::commit_later, |record| {
                    record.state = FileState::Live;
                    if has_new_size {
                        (record.size_bytes, record.is_size_untold) = (size_bytes, true);
                    }
                })?;
                if has_new_size {
                    managed.control.set_durable_size_bytes(None);
                }
                managed.control.set_life(Life::Live);
            }
            _ => {}
        }
        self.settle(managed, &mut inner)?;
        inner.stub = None;
        if inner.record.state == FileState::Live {
            self.min_sizes.closed(managed.file, &inner.record);
        }
        if is_settled(managed, &inner) && !sizes::is_owed(&self.context, managed) {
            self.inodes.show_status(inner.record.stub, managed.file, managed.status());
        }
        Ok(true)
    }

    /// A size that a close has told survives the master's host, also while others have the file open: who closed it keeps no memory of it.
    fn share_size(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        let is_settled = inner.record.truncating_to_bytes.is_none();
        match self.context.is_shared() && is_settled && !matches!(inner.record.state, FileState::Unlinked) {
            true => self.save_size(managed, inner),
            false => Ok(()),
        }
    }

    /// Whether another host may have the file open. A silent one does not keep a removed file's capacity where servers can shut it out; one that cannot be shut
    /// out yet counts, and the file is looked at again.
    fn is_elsewhere(&self, managed: &Managed, inner: &Inner) -> bool {
        if matches!(inner.record.state, FileState::Unlinked) {
            let _ = fencing::shut_out_silent(&self.context, managed.file);
        }
        self.context.is_elsewhere(managed.file)
    }

    /// Without users: the size becomes durable, and the stub takes over the time of the last change.
    fn settle(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        self.save_size(managed, inner)?;
        if let (Some(stub), Some(modified_ns)) = (&inner.stub, managed.extent.modified_ns())
            && times::set_modified_ns(stub, modified_ns).is_ok()
        {
            managed.extent.set_modified_ns(None);
        }
        Ok(())
    }

    /// At a stop: as much as possible becomes durable.
    pub(crate) fn settle_all(&self) {
        let files: Vec<FileId> = self.files.ids();
        self.finish_removals();
        for managed in files.into_iter().filter_map(|file| self.files.if_loaded(file)) {
            let flushed = self.write_back.flush_at_once(&managed);
            let done = self.after_close(&managed).and_then(|_| {
                let mut inner = guard(&managed.inner);
                if inner.freed {
                    return Ok(());
                }
                self.save_size(&managed, &mut inner)?;
                self.put_away(&managed, &mut inner)
            });
            if let Err(refusal) = flushed.and(done) {
                note!(self.context.log(), warn, file = %managed.file, error = %refusal, "what a stop leaves to the next start");
            }
        }
    }

    /// Forgets what this host knew of files as master that no program here uses, since it ends and takes part no more. The next master may truncate them without
    /// asking here: whoever found this memory later would take its size for the file's.
    pub(crate) fn forget_as_master(&self) {
        for held in in_run(&self.context) {
            let Ok(managed) = self.files.managed(held.file) else { continue };
            let mut inner = guard(&managed.inner);
            // A size that cannot be saved is known nowhere else.
            let is_saved = inner.record.truncating_to_bytes.is_none() && self.save_size(&managed, &mut inner).is_ok();
            if !is_saved || inner.freed {
                continue;
            }
            // Before it is looked who uses it: a program that takes it over looks at this after it has said so.
            let life = managed.control.life();
            managed.control.set_life(Life::Gone);
            match self.quiescing.users(&managed).is_empty() {
                true => self.memory.remove_memory(managed.file),
                false => managed.control.set_life(life),
            }
        }
    }

    /// Removes the shared memory of a file that nobody uses: its record says all that the memory did.
    pub(crate) fn put_away(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if !is_settled(managed, inner) || !self.quiescing.users(managed).is_empty() {
            return Ok(());
        }
        let boot = self.context.boot();
        let is_unsynced = managed.control.notices().has_unsynced_descriptions();
        self.put_record(managed, inner, Table::commit_later, |record| {
            (record.put_away_in, record.put_away_unsynced) = (Some(boot), is_unsynced);
        })?;
        self.memory.remove_memory(managed.file);
        Ok(())
    }

    pub(crate) fn is_unlinked(&self, managed: &Managed) -> bool {
        matches!(guard(&managed.inner).record.state, FileState::Unlinked)
    }
}

/// Whether nobody uses the file, as far as the broker knows, and its record says all there is to say of it.
fn is_settled(managed: &Managed, inner: &Inner) -> bool {
    let is_unused = inner.openers.is_empty() && inner.holder.is_none() && inner.stub.is_none();
    let is_still = inner.moving.is_empty() && inner.discards.is_empty() && inner.forgotten.is_empty();
    let has_logs = !inner.logs.is_empty() || managed.fragments.logs().is_some();
    let is_whole = inner.record.truncating_to_bytes.is_none()
        && !inner.record.has_leftovers
        && !managed.stays_shut.load(Ordering::SeqCst);
    matches!(inner.record.state, FileState::Live)
        && (is_unused && is_still && is_whole && !inner.freed && !has_logs)
        && managed.extent.modified_ns().is_none()
        && managed.extent.size_bytes() == inner.record.size_bytes
}
