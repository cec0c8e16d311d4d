//! Freeing files that nobody can use any more.
//!
//! A file's name is removed in the stub's file system, and its data on the servers'; no order holds between what these make durable.
//! The data of a file that was ever synced therefore goes after the directory was synced in which it had its name: until then a power
//! failure may bring the name back, with the data that `fsync` acknowledged. A program does not wait for that: [`Lifecycle::free`] notes
//! the removal, and the thread that looks at files again syncs each directory once for all that left it ([`Lifecycle::sync_removals`]).

use super::Lifecycle;
use crate::guard;
use crate::log::note;
use crate::managed::{Inner, Managed, Removal};
use crate::rmt::{Changes, FileState};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stripewise_layout::{FileId, ServerId};
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::Refusal;
use stripewise_store::server::Operation;
use stripewise_store::shared::control::Life;

/// Removed files whose data is left to the thread that looks at files again, where nothing must be synced first: who removes more of them frees them.
const MAX_LEFT: usize = 1024;

impl Lifecycle {
    /// Frees the file: objects, records, shared memory. Gives up when a user appears after all, and until its removal is durable. Repeated at
    /// the next start if it is not finished.
    pub(crate) fn free(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        let is_new = inner.removal == Removal::None;
        if is_new && !self.note_removal(managed, inner)? {
            return Ok(());
        }
        let is_left = match inner.removal {
            Removal::Noted { .. } => true,
            Removal::Left => is_new,
            Removal::None | Removal::Freeing => false,
        };
        if is_left {
            self.rechecks.recheck(managed.file);
            return Ok(());
        }
        inner.removal = Removal::Freeing;
        self.context.step("free: before the objects");
        if let Err(refusal) = self.free_objects(managed, inner) {
            self.rechecks.recheck(managed.file);
            return Err(refusal);
        }
        self.context.step("free: before the records");
        let mut changes = Changes::default();
        for region in inner.regions.keys() {
            changes.remove_region(managed.file, *region);
        }
        for (region, generation) in inner.discards.keys() {
            changes.remove_discard(managed.file, *region, *generation);
        }
        for (region, replicas) in &inner.replicas {
            replicas.keys().for_each(|number| changes.remove_replica(managed.file, *region, *number));
        }
        inner.logs.keys().for_each(|disk| changes.remove_log(managed.file, *disk));
        changes.remove_file(managed.file);
        self.notes.decide_names_of(managed.file, &mut changes);
        self.inodes.remove_inode(inner.record.stub, managed.file, changes, |changes| {
            self.context.step("free: before the commit");
            self.context.table().commit_later(changes)
        })?;
        inner.freed = true;
        inner.stub = None;
        guard(&self.removed).remove(&managed.file);
        self.logs.forget_logs(managed.file, &managed.fragments, inner);
        self.memory.remove_memory(managed.file);
        self.files.remove(managed.file);
        Ok(())
    }

    /// Shuts the file for good; false: somebody uses it.
    fn note_removal(&self, managed: &Managed, inner: &mut Inner) -> Result<bool, Refusal> {
        // What was being made had no name that anybody was told of, and nothing was promised of what was never synced.
        let had_name = matches!(inner.record.state, FileState::Live | FileState::Unlinked);
        let is_awaited = had_name && inner.record.generations_synced > 0;
        if !matches!(inner.record.state, FileState::Unlinked) {
            self.context.step("free: before the mark");
            self.set_state_later(managed, inner, FileState::Unlinked)?;
        }
        managed.control.set_life(Life::Gone);
        if !self.quiescing.users(managed).is_empty() {
            managed.control.set_life(Life::Live);
            self.rechecks.recheck(managed.file);
            return Ok(false);
        }
        self.quiescing.end_moves(managed, inner, "the file was removed");
        self.capacity.give_back(inner.promised(), inner.record.region_bytes);
        inner.removal = match is_awaited {
            true => Removal::Noted { is_reported: false },
            false if had_name && guard(&self.removed).len() < MAX_LEFT => Removal::Left,
            false => Removal::Freeing,
        };
        if inner.removal != Removal::Freeing {
            self.inodes.withdraw_inode(inner.record.stub, managed.file)?;
            inner.stub = None;
            guard(&self.removed).insert(managed.file);
        }
        if is_awaited {
            self.context.step("free: the removal is not durable");
        }
        Ok(true)
    }

    /// Makes removals durable, so that the next [`Self::free`] of each file frees its data; returns the files that wait for that.
    pub(crate) fn sync_removals(&self) -> Vec<FileId> {
        let mut directories: BTreeMap<PathBuf, Vec<Arc<Managed>>> = BTreeMap::new();
        // All that share a sync were removed before it.
        let removed: Vec<FileId> = guard(&self.removed).iter().copied().collect();
        for managed in removed.iter().filter_map(|file| self.files.if_loaded(*file)) {
            let inner = guard(&managed.inner);
            if let Removal::Noted { .. } = inner.removal {
                let directory = Path::new(&inner.record.path).parent().unwrap_or(Path::new("/")).to_owned();
                drop(inner);
                directories.entry(directory).or_default().push(managed);
            }
        }
        for (directory, files) in directories {
            let synced = sync_nearest(&directory);
            for managed in files {
                let mut inner = guard(&managed.inner);
                match (synced, &mut inner.removal) {
                    (Ok(()), removal) => *removal = Removal::Left,
                    (Err(error), Removal::Noted { is_reported: is_reported @ false }) => {
                        *is_reported = true;
                        let directory = directory.display();
                        note!(self.context.log(), warn, path = %inner.record.path, %error, "the data of a removed file is kept until {directory} can be synced");
                    }
                    (Err(_), _) => {}
                }
            }
        }
        removed
    }

    /// Frees at once what waits for its removal to be durable, for its stub to be closed, or for the thread that frees it; false: nothing did.
    pub(crate) fn finish_removals(&self) -> bool {
        for managed in self.rechecks.all().into_iter().filter_map(|file| self.files.if_loaded(file)) {
            if self.is_unlinked(&managed)
                && let Err(error) = self.after_close(&managed)
            {
                note!(self.context.log(), warn, file = %managed.file, %error, "a file cannot be freed yet");
            }
        }
        let removed = self.sync_removals();
        for managed in removed.iter().filter_map(|file| self.files.if_loaded(*file)) {
            let mut inner = guard(&managed.inner);
            // Another thread may have freed it.
            let freed = if inner.freed { Ok(()) } else { self.free(&managed, &mut inner) };
            if let Err(error) = freed {
                note!(self.context.log(), warn, file = %managed.file, %error, "a file cannot be freed yet");
            }
        }
        !removed.is_empty()
    }

    fn free_objects(&self, managed: &Managed, inner: &Inner) -> Result<(), Refusal> {
        let regions = inner.layouts().flat_map(|layout| layout.stripes().iter().map(|stripe| stripe.server));
        let servers: BTreeSet<ServerId> = regions.chain(inner.logs.values().map(|log| log.on)).collect();
        // Others may have been told where its regions went; what they say is nobody's concern.
        let reached = managed.reached();
        let others = (0..).map(ServerId).zip(self.context.servers()).map(|(number, _)| number);
        let others = others.filter(|number| reached.as_ref().is_none_or(|reached| reached.contains(number)));
        let others = others.filter(|number| !servers.contains(number));
        let removal = |server: ServerId| (server, Operation::RemoveFile(managed.file));
        let removed = self.context.perform_together(servers.iter().copied().chain(others).map(removal));
        removed.into_iter().take(servers.len()).find_map(Result::err).map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Syncs the directory or, where it is gone itself, the one that it left. File systems log changes in their order: what is synced covers
/// what was removed before, from other directories too.
fn sync_nearest(directory: &Path) -> rustix::io::Result<()> {
    for directory in directory.ancestors() {
        match DirectoryEntry::at(&directory.join("any")).and_then(|entry| entry.sync_directory()) {
            // Removed or renamed meanwhile, or a link stands there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            // That this user may not read cannot be synced by any of the user's programs.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(()),
            result => return result,
        }
    }
    Ok(())
}
