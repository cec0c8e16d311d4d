//! Freeing files that nobody can use any more.

use super::Lifecycle;
use crate::managed::{Inner, Managed};
use crate::rmt::{Changes, FileState};
use std::collections::BTreeSet;
use stripewise_layout::ServerId;
use stripewise_store::protocol::Refusal;
use stripewise_store::server::Operation;
use stripewise_store::shared::control::Life;

impl Lifecycle {
    /// Frees the file: objects, records, shared memory. Gives up when a user appears after all. Repeated at the next start if it is not finished.
    pub(crate) fn free(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if !matches!(inner.record.state, FileState::Unlinked) {
            self.context.step("free: before the mark");
            self.set_state_later(managed, inner, FileState::Unlinked)?;
        }
        managed.control.set_life(Life::Gone);
        if !self.quiescing.users(managed).is_empty() {
            managed.control.set_life(Life::Live);
            self.rechecks.recheck(managed.file);
            return Ok(());
        }
        self.quiescing.end_moves(managed, inner, "the file was removed");
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
        if self.context.table().file_of(inner.record.stub)? == Some(managed.file) {
            changes.remove_inode(inner.record.stub);
            // The number may be another file's soon.
            self.inodes.withdraw_inode(inner.record.stub);
        }
        self.notes.decide_names_of(managed.file, &mut changes);
        self.context.table().commit_later(&changes)?;
        self.capacity.give_back(inner.promised(), inner.record.region_bytes);
        inner.freed = true;
        inner.stub = None;
        self.logs.forget_logs(managed.file, &managed.fragments);
        self.memory.remove_memory(managed.file);
        self.files.remove(managed.file);
        Ok(())
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
