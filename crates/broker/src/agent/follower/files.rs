//! The files that programs of this host have open, and their shared memory.

use super::moves::HostMoves;
use crate::context::Context;
use crate::file_memory::FileMemory;
use crate::guard;
use crate::host_messages::{Known, Snapshot, layout_of};
use crate::managed::{Inner, Managed, memory_fault, unknown};
use crate::proof::Granted;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard};
use stripewise_layout::{FileId, RegionGeometry, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::control::{Life, MAX_REGIONS, RegionState};

/// All of them.
#[derive(Default)]
pub(super) struct HostFiles(Mutex<HashMap<FileId, Arc<HostFile>>>);

impl HostFiles {
    /// The file, though it may not be open yet.
    pub(super) fn entry(&self, file: FileId) -> Arc<HostFile> {
        Arc::clone(guard(&self.0).entry(file).or_default())
    }

    pub(super) fn find(&self, file: FileId) -> Option<Arc<HostFile>> {
        guard(&self.0).get(&file).cloned()
    }

    /// The file's users are no more: whoever looks for it finds another entry.
    pub(super) fn remove(&self, file: FileId, users: &mut Users) {
        users.are_over = true;
        guard(&self.0).remove(&file);
    }
}

/// A file of this host. The lock of its users is held while the master is asked to open or close it; that of its memory never is.
#[derive(Default)]
pub(super) struct HostFile {
    users: Mutex<Users>,
    memory: Mutex<HostMemory>,
}

/// Connections that have the file open, and for what.
#[derive(Default)]
pub(super) struct Users {
    connections: HashMap<u64, Granted>,
    /// The master was told that the file is closed here, and its memory is gone.
    are_over: bool,
}

impl Users {
    pub(super) fn add(&mut self, connection: u64, granted: Granted) {
        self.connections.entry(connection).or_default().add(granted);
    }

    pub(super) fn remove(&mut self, connection: u64) {
        self.connections.remove(&connection);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}

/// What is shown to programs, and what of it the master has in hand.
#[derive(Default)]
pub(super) struct HostMemory {
    pub(super) managed: Option<Arc<Managed>>,
    /// The master keeps the file shut.
    is_shut: bool,
    /// The last turn of the master's that ended.
    opened: u64,
    /// The newest that the master told: see [`Snapshot::truncations`].
    pub(super) truncations: u64,
    /// The newest that the master told: see [`Snapshot::recalls`].
    pub(super) recalls: u64,
    pub(super) moves: HostMoves,
    /// Regions from this one on have no words here. They may lie beyond the size that this host knows.
    regions_end: u32,
}

impl HostFile {
    /// `None`: the file was closed here meanwhile, and is to be looked for again.
    pub(super) fn users(&self) -> Option<MutexGuard<'_, Users>> {
        Some(guard(&self.users)).filter(|users| !users.are_over)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, HostMemory> {
        guard(&self.memory)
    }

    pub(super) fn managed(&self) -> Option<Arc<Managed>> {
        guard(&self.memory).managed.clone()
    }

    /// What this host knows of the size.
    pub(super) fn known(&self) -> Option<Known> {
        let memory = guard(&self.memory);
        let size_bytes = memory.managed.as_ref()?.extent.size_bytes();
        Some(Known { size_bytes, truncations: memory.truncations })
    }

    /// Nobody begins I/O from here on. The file, if it is open here.
    pub(super) fn shut(&self, turn: u64) -> Option<Arc<Managed>> {
        let mut memory = guard(&self.memory);
        if turn <= memory.opened {
            return None;
        }
        memory.is_shut = true;
        let managed = memory.managed.clone()?;
        managed.control.gate().shut();
        Some(managed)
    }

    /// I/O goes on, on a file that is so long now.
    pub(super) fn open(&self, turn: u64, known: Known) {
        let mut memory = guard(&self.memory);
        memory.opened = memory.opened.max(turn);
        memory.is_shut = false;
        memory.take_size(known);
        if let Some(managed) = &memory.managed
            && managed.control.gate().is_shut()
        {
            managed.control.gate().open();
        }
    }

    /// Shows what the master answered; the memory is made if there is none. False: the file was truncated since, or a region of it recalled.
    pub(super) fn show(
        &self,
        context: &Arc<Context>,
        files: &FileMemory,
        snapshot: &Snapshot,
    ) -> Result<bool, Refusal> {
        let mut memory = guard(&self.memory);
        if snapshot.truncations < memory.truncations || snapshot.recalls < memory.recalls {
            return Ok(false);
        }
        if memory.managed.is_none() {
            let (managed, regions_end) = memory_of(context, files, snapshot)?;
            (memory.managed, memory.regions_end) = (Some(Arc::new(managed)), regions_end);
        }
        memory.recalls = memory.recalls.max(snapshot.recalls);
        memory.take_size(Known { size_bytes: snapshot.size_bytes, truncations: snapshot.truncations });
        let snapshot_end = snapshot.regions.iter().map(|(region, ..)| region.0 + 1).max();
        memory.regions_end = memory.regions_end.max(snapshot_end.unwrap_or(0));
        let Some(managed) = &memory.managed else { return Ok(false) };
        let regions = managed.control.regions();
        for (region, generation, stripes) in &snapshot.regions {
            let is_shown = matches!(
                regions.get(*region),
                RegionState::Placed { generation: shown, .. } if shown == *generation
            );
            if is_shown {
                continue;
            }
            let layout = layout_of(stripes).ok_or_else(|| Refusal::Table {
                what: format!("the master sent an impossible layout of region {region} of file {}", managed.file),
            })?;
            managed.extent.reserve(*region).map_err(memory_fault(managed.file))?;
            regions.publish_in(memory.moves.motion(*region), managed.file, *region, *generation, &layout)?;
        }
        managed.control.notices().set_leftovers(snapshot.has_leftovers);
        managed.control.set_life(if snapshot.is_being_made { Life::Making } else { Life::Live });
        let gate = managed.control.gate();
        match (memory.is_shut, gate.is_shut()) {
            (true, false) => gate.shut(),
            // Shut under a master that is gone.
            (false, true) => gate.open(),
            _ => {}
        }
        Ok(true)
    }
}

impl HostMemory {
    /// The size as the master knows it: the file's own after a cut, else at least that.
    fn take_size(&mut self, known: Known) {
        let is_truncated = known.truncations > self.truncations;
        self.truncations = self.truncations.max(known.truncations);
        let Some(managed) = &self.managed else { return };
        // What was drained when the gate was shut is in the master's size.
        if !is_truncated || !managed.control.gate().is_shut() {
            managed.extent.extend_to(known.size_bytes);
            return;
        }
        let geometry = RegionGeometry::new(managed.control.region_bytes());
        managed.extent.truncate_to(known.size_bytes);
        let count = geometry.count_for(known.size_bytes);
        (count..self.regions_end).for_each(|region| managed.control.regions().retract(RegionIndex(region)));
        self.regions_end = self.regions_end.min(count);
    }
}

/// The file's shared memory: what programs here are using, or new. With the region from which on there are no words in it.
fn memory_of(context: &Arc<Context>, files: &FileMemory, snapshot: &Snapshot) -> Result<(Managed, u32), Refusal> {
    let file = snapshot.file;
    let mut record = context.table().file(file)?.ok_or_else(|| unknown(file))?;
    let placement = context.table().placement(file)?.ok_or_else(|| unknown(file))?;
    let regions: BTreeMap<_, _> = context.table().regions(file)?.into_iter().collect();
    let (memory, regions_end) = match files.adopt(file, &mut record, &regions)? {
        Some(memory) => (memory, MAX_REGIONS),
        None => {
            record.size_bytes = snapshot.size_bytes;
            let count = regions.keys().next_back().map_or(0, |region| region.0 + 1);
            (files.build(file, &record, count)?.0, 0)
        }
    };
    let managed = Managed::new(file, memory, Inner::new(record, placement));
    managed.control.notices().set_shared(true);
    // What programs were told under another master, or by a former agent of this host, may be so no longer: whoever needs a region asks.
    (0..regions_end).for_each(|region| managed.control.regions().retract(RegionIndex(region)));
    managed.control.regions().let_writers_go_on();
    // Only the master can say that anything is durable.
    managed.control.set_durable_size_bytes(None);
    managed.truncations.store(snapshot.truncations, SeqCst);
    Ok((managed, regions_end))
}
