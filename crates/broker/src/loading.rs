//! Loading managed files: their records, and their shared memory taken over or built again.
//!
//! A file is loaded when it is first asked for. Its shared memory in `run/` is taken over if it is of this boot, since processes may be using it; then
//! its size is the truth. Otherwise nobody can be using it: it is built again from the table, and objects are cut to the durable
//! size, or have it raised ([`crate::sizes`]). What a predecessor committed but did not publish is published now.

use crate::context::Context;
use crate::describing::{Describing, servers_of};
use crate::fencing;
use crate::file_memory::FileMemory;
use crate::files::Load;
use crate::fragments::FragmentLogs;
use crate::guard;
use crate::log::note;
use crate::managed::{Inner, Managed, memory_fault, unknown};
use crate::objects::stripe_servers;
use crate::quiescing::Quiescing;
use crate::replicas::Replicas;
use crate::rmt::{Changes, FileRecord, FileState, RegionRecord};
use crate::truncation::Truncation;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stripewise_layout::{FileId, Generation, RegionIndex, ServerId};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, Operation, ServerError, is_moved};
use stripewise_store::shared::control::{ControlBlock, Life, RegionState};
use stripewise_store::shared::marking::Motion;

/// Takes files over from their records and shared memory.
pub(crate) struct Loader {
    context: Arc<Context>,
    memory: Arc<FileMemory>,
    quiescing: Arc<Quiescing>,
    describing: Arc<Describing>,
    replicas: Arc<Replicas>,
    truncation: Arc<Truncation>,
    logs: Arc<FragmentLogs>,
}

impl Loader {
    pub(crate) fn new(
        context: &Arc<Context>,
        memory: &Arc<FileMemory>,
        quiescing: &Arc<Quiescing>,
        describing: &Arc<Describing>,
        replicas: &Arc<Replicas>,
        truncation: &Arc<Truncation>,
        logs: &Arc<FragmentLogs>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            memory: Arc::clone(memory),
            quiescing: Arc::clone(quiescing),
            describing: Arc::clone(describing),
            replicas: Arc::clone(replicas),
            truncation: Arc::clone(truncation),
            logs: Arc::clone(logs),
        }
    }

    fn load_file(&self, file: FileId) -> Result<Managed, Refusal> {
        let is_durable = self.context.table().is_durable();
        let record = self.context.table().file(file)?.ok_or_else(|| unknown(file))?;
        let placement = self.context.table().placement(file)?.ok_or_else(|| unknown(file))?;
        let regions: BTreeMap<_, _> = self.context.table().regions(file)?.into_iter().collect();
        let discards = self.context.table().discards(Some(file))?;
        let mut replicas: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for (_, region, number, replica) in self.context.table().replicas(Some(file))? {
            replicas.entry(region).or_default().insert(number, replica);
        }
        let mut record = record;
        let durable_size_bytes = record.size_bytes;
        let adopted = self.memory.adopt(file, &mut record, &regions)?;
        if record.size_bytes != durable_size_bytes {
            let mut changes = Changes::default();
            changes.put_file(file, &record);
            self.context.table().commit(&changes)?;
        }
        // Of a file that was put away in this boot the record says what the memory did.
        let was_put_away = adopted.is_none() && record.put_away_in == Some(self.context.boot());
        let is_new = adopted.is_none() && !was_put_away;
        let memory = match adopted {
            Some(memory) => memory,
            None => {
                let last = regions.keys().next_back().map_or(0, |region| region.0 + 1);
                let memory = self.memory.build(file, &record, last)?.0;
                if record.truncating_to_bytes.is_some() {
                    // Who tries again, should this fail, is to find that the cut is not done.
                    memory.0.gate().shut();
                }
                memory
            }
        };
        if self.context.is_shared() {
            // While another was master, this host knew a lower bound only.
            memory.1.extend_to(durable_size_bytes);
        }
        if was_put_away {
            memory.0.notices().set_unsynced_descriptions(record.put_away_unsynced);
        }
        if record.put_away_in.take().is_some() {
            let mut changes = Changes::default();
            changes.put_file(file, &record);
            self.context.table().commit_later(&changes)?;
        }
        let inner = Inner {
            generation: record.generations_reserved,
            unsynced: unsynced_servers(&memory.0, &record, &regions),
            regions,
            discards: discards.into_iter().map(|(_, region, number, layout)| ((region, number), layout)).collect(),
            replicas,
            wanted: self.context.table().wanted(file)?,
            logs: self.context.table().logs(Some(file))?.into_iter().map(|(_, disk, record)| (disk, record)).collect(),
            ..Inner::new(record, placement)
        };
        let managed = Managed::new(file, memory, inner).numbered_from(self.context.first_number());
        self.settle(&managed, is_new, is_durable)?;
        managed.note_truncations();
        Ok(managed)
    }

    /// Of a file whose memory `is_new`, or was taken over: ends what a predecessor had under way, and shows what the table says. `is_durable`: the record that
    /// was found.
    fn settle(&self, managed: &Managed, is_new: bool, is_durable: bool) -> Result<(), Refusal> {
        let file = managed.file;
        let mut work = managed.fragments.hold();
        let mut inner = guard(&managed.inner);
        // The gate stays shut until a cut is done.
        if let Some(size) = inner.record.truncating_to_bytes.filter(|_| !is_new && !managed.control.gate().is_shut()) {
            self.truncation.note_truncation_of_predecessor(managed, &mut inner, size)?;
        }
        self.describing.describe_loaded(managed, &mut inner)?;
        self.publish_all(managed, &inner)?;
        self.logs.load_logs(managed, &mut inner)?;
        if is_new && !self.context.is_elsewhere(file) {
            self.restore_unsynced(file, &inner);
        }
        if !is_new {
            self.truncation.settle_truncation(managed, &inner);
        }
        // An absent server does not keep the file from being used: what it was to cut is noted.
        let truncated = match inner.record.truncating_to_bytes {
            Some(size) => self.truncation.finish_truncation(managed, &mut inner, &mut work, size, || {}),
            // What lies beyond the size may be what another host has written and not told yet, or one that was lost.
            None if is_new && !self.context.is_elsewhere(file) && !self.keeps_what_was_lost(&inner) => {
                self.truncation.truncate_leftovers(managed, &mut inner, &mut work)
            }
            None => Ok(()),
        };
        if is_new
            && truncated.is_ok()
            && let Err(refusal) = self.truncation.sync_truncated(managed, &inner)
        {
            note!(self.context.log(), warn, path = %inner.record.path, error = %refusal, "what was truncated is not synced yet");
        }
        if let Err(refusal) = truncated {
            if !inner.record.has_leftovers {
                return Err(refusal);
            }
            note!(self.context.log(), warn, path = %inner.record.path, error = %refusal, "what lies beyond the size is not truncated yet");
        }
        managed.control.notices().set_leftovers(inner.record.has_leftovers);
        // Without a sync, the record may not outlive a power failure yet.
        let durable = Some(&inner.record).filter(|_| is_durable);
        managed.control.set_durable_size_bytes(durable.map(|record| record.size_bytes));
        managed.control.set_durable_names(durable.map_or(Generation(0), |_| inner.durable_names()));
        self.quiescing.open_or_keep_shut(managed);
        managed.control.set_life(match inner.record.state {
            FileState::Creating | FileState::Importing { .. } => Life::Making,
            FileState::Live | FileState::Releasing { .. } | FileState::Unlinked => Life::Live,
        });
        if inner.regions.keys().any(|region| self.replicas.lacks_replicas(&inner, *region)) {
            self.replicas.watch_for_idleness(file);
        }
        Ok(())
    }

    /// Whether the servers hold what hosts wrote that were lost, and nothing beyond the size that was removed: then they are asked how long the file is when somebody
    /// needs the size ([`crate::sizes`]). Directories may have lost a truncation that was not synced.
    fn keeps_what_was_lost(&self, inner: &Inner) -> bool {
        self.context.others().is_some() && fencing::can_fence(&self.context) && !inner.record.has_leftovers
    }

    /// After a power failure, objects that were made and never synced may be gone, though the table names them. What they held was never
    /// acknowledged: they are made again, empty. A synced one that is missing stays missing, and reading it fails.
    fn restore_unsynced(&self, file: FileId, inner: &Inner) {
        let objects: Vec<(ServerId, ObjectName)> = inner
            .regions
            .iter()
            .flat_map(|(region, placed)| {
                let object = ObjectName { file, region: *region, generation: placed.generation };
                let durable = durable_stripes(&inner.record, placed);
                stripe_servers(&placed.layout).skip(durable).map(move |server| (server, object))
            })
            .collect();
        let sizes =
            self.context.perform_together(objects.iter().map(|(server, object)| (*server, Operation::Size(*object))));
        let missing = objects.iter().zip(sizes).filter(|(_, size)| matches!(size, Err(ServerError::Missing { .. })));
        let create = |((server, object), _): (&(ServerId, ObjectName), _)| {
            (*server, Operation::create(*object, inner.ownership()))
        };
        // One that cannot be looked at or made now is an error to those who read it.
        for error in self.context.perform_together(missing.map(create)).into_iter().filter_map(Result::err) {
            note!(self.context.log(), warn, path = %inner.record.path, %error, "an object that was never synced cannot be made again");
        }
    }

    fn publish_all(&self, managed: &Managed, inner: &Inner) -> Result<(), Refusal> {
        let mut has_moved = false;
        for (region, record) in &inner.regions {
            let published = match managed.control.regions().get(*region) {
                RegionState::Placed { generation, motion, is_narrow, .. } => {
                    // A predecessor's move ends here, on one side or the other.
                    let is_still = matches!(motion, Motion::Still | Motion::Replicated);
                    has_moved |= !is_still;
                    generation == record.generation && is_still && is_narrow == record.wide.is_some()
                }
                RegionState::Absent => false,
            };
            if !published {
                managed.extent.reserve(*region).map_err(memory_fault(managed.file))?;
                // Nobody may be told of names that are not durable as if they were.
                managed.control.set_durable_names(Generation(0));
                managed.publish(*region, record)?;
            }
            managed.show_replicas(inner, *region)?;
        }
        if has_moved {
            managed.control.regions().let_writers_go_on();
        }
        Ok(())
    }
}

/// Whether the names of the region's objects are durable. What was moved was synced first.
fn has_durable_names(record: &FileRecord, placed: &RegionRecord) -> bool {
    is_moved(placed.generation) || placed.generation.0 <= record.generations_synced
}

/// Of how many of the region's stripes the objects' names are durable: of the first only, where the others were made since.
fn durable_stripes(record: &FileRecord, placed: &RegionRecord) -> usize {
    match (has_durable_names(record, placed), placed.has_new_names) {
        (false, _) => 0,
        (true, true) => 1,
        (true, false) => placed.layout.stripes().len(),
    }
}

/// Servers on which names of objects or lines of the description may not be durable.
fn unsynced_servers(
    control: &ControlBlock,
    record: &FileRecord,
    regions: &BTreeMap<RegionIndex, RegionRecord>,
) -> BTreeSet<ServerId> {
    let are_described = !control.notices().has_unsynced_descriptions();
    let is_durable = |placed: &&RegionRecord| durable_stripes(record, placed) == placed.layout.stripes().len();
    let unsynced = regions.values().filter(|placed| !(are_described && is_durable(placed)));
    servers_of(unsynced.map(|placed| &placed.layout))
}

impl Load for Loader {
    fn load(&self, file: FileId) -> Result<Managed, Refusal> {
        self.load_file(file)
    }
}
