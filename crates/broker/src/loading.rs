//! Loading managed files: their records, and their shared memory taken over or built anew.
//!
//! A file is loaded when it is first asked for. Its shared memory in `run/` is taken over if it is of this boot, since processes may be using it; then
//! its size is the truth. Otherwise nobody can be using it: it is built anew from the table, and objects are cut to the durable
//! size. What a predecessor committed but did not publish is published now.

use crate::managed::{FileFragments, Inner, Managed, Memory, memory_fault, unknown};
use crate::rmt::{Changes, FileRecord, FileState, RegionRecord};
use crate::{Core, guard};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use stripewise_layout::{FileId, RegionGeometry, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::server::{ObjectName, ServerError, is_moved};
use stripewise_store::shared::control::{ControlBlock, ControlError, Life, MAX_REGIONS, RegionState};
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::marking::Motion;
use stripewise_store::shared::slots::Slots;

/// Files that stay loaded without users.
const KEPT: usize = 512;

/// A file that is being loaded or is loaded.
#[derive(Default)]
pub(crate) struct Entry {
    loaded: Mutex<Option<Arc<Managed>>>,
}

impl Core {
    /// The file, loaded.
    pub(crate) fn managed(&self, file: FileId) -> Result<Arc<Managed>, Refusal> {
        let entry = Arc::clone(guard(&self.files).entry(file).or_default());
        let mut loaded = guard(&entry.loaded);
        if let Some(managed) = &*loaded {
            return Ok(Arc::clone(managed));
        }
        match self.load(file) {
            Ok(managed) => Ok(Arc::clone(loaded.insert(Arc::new(managed)))),
            Err(refusal) => {
                drop(loaded);
                self.forget(file, &entry);
                Err(refusal)
            }
        }
    }

    /// The file if it is loaded.
    pub(crate) fn if_loaded(&self, file: FileId) -> Option<Arc<Managed>> {
        let entry = guard(&self.files).get(&file).cloned()?;
        let loaded = guard(&entry.loaded);
        loaded.clone()
    }

    /// The file if it is loaded and nobody is at loading it, which may take as long as a server does.
    pub(crate) fn if_loaded_now(&self, file: FileId) -> Option<Arc<Managed>> {
        let entry = guard(&self.files).get(&file).cloned()?;
        match entry.loaded.try_lock() {
            Ok(loaded) => loaded.clone(),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// A file that was just made is loaded.
    pub(crate) fn remember(&self, managed: &Arc<Managed>) {
        let entry = Entry { loaded: Mutex::new(Some(Arc::clone(managed))) };
        guard(&self.files).insert(managed.file, Arc::new(entry));
        self.unload_some();
    }

    fn forget(&self, file: FileId, entry: &Arc<Entry>) {
        let mut files = guard(&self.files);
        if files.get(&file).is_some_and(|found| Arc::ptr_eq(found, entry)) {
            files.remove(&file);
        }
    }

    /// Unloads files without users when many are loaded. Only those that no other thread has in hand: counted under the map's lock,
    /// without which no further hand can reach for them.
    fn unload_some(&self) {
        let mut files = guard(&self.files);
        if files.len() <= KEPT {
            return;
        }
        files.retain(|_, entry| {
            let Some(alone) = Arc::get_mut(entry) else { return true };
            let loaded = alone.loaded.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
            match loaded {
                Some(managed) => match Arc::get_mut(managed) {
                    Some(managed) => {
                        let inner = managed.inner.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                        let is_used = inner.stub.is_some()
                            || inner.holder.is_some()
                            || !inner.forgotten.is_empty()
                            || managed.stays_shut.load(Ordering::SeqCst)
                            || managed.fragments.logs().is_some();
                        is_used || !matches!(inner.record.state, FileState::Live)
                    }
                    None => true,
                },
                None => false,
            }
        });
    }

    fn load(&self, file: FileId) -> Result<Managed, Refusal> {
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
        let adopted = self.adopt(file, &mut record, &regions)?;
        if record.size_bytes != durable_size_bytes {
            let mut changes = Changes::default();
            changes.put_file(file, &record);
            self.context.table().commit(&changes)?;
        }
        let is_new = adopted.is_none();
        let (control, extent, slots) = match adopted {
            Some(memory) => memory,
            None => {
                let last = regions.keys().next_back().map_or(0, |region| region.0 + 1);
                self.build(file, &record, last)?
            }
        };
        let inner = Inner {
            generation: record.generations_reserved,
            unsynced: regions.values().flat_map(|r| r.layout.stripes().iter().map(|s| s.server)).collect(),
            record,
            placement,
            regions,
            moving: BTreeMap::new(),
            discards: discards.into_iter().map(|(_, region, number, layout)| ((region, number), layout)).collect(),
            forgotten: Vec::new(),
            replicas,
            wanted: self.context.table().wanted(file)?,
            logs: self.context.table().logs(Some(file))?.into_iter().map(|(_, disk, record)| (disk, record)).collect(),
            lacking: BTreeMap::new(),
            move_slots: 0,
            stub: None,
            holder: None,
            openers: HashSet::new(),
            writers: HashSet::new(),
            freed: false,
        };
        let fragments = FileFragments::default();
        let stays_shut = AtomicBool::new(false);
        let managed = Managed { file, control, extent, slots, fragments, stays_shut, inner: Mutex::new(inner) };
        {
            let mut work = managed.fragments.hold();
            let mut inner = guard(&managed.inner);
            // The gate stays shut until a cut is done.
            if let Some(size) = inner.record.truncating_to_bytes.filter(|_| !is_new && !managed.control.gate_is_shut())
            {
                self.note_cut(&managed, &mut inner, size)?;
            }
            self.describe_loaded(&managed, &mut inner)?;
            self.publish_all(&managed, &inner)?;
            self.load_logs(&managed, &mut inner)?;
            if is_new {
                self.restore_unsynced(file, &inner);
            }
            if !is_new {
                self.settle_truncation(&managed, &inner);
            }
            // An absent server does not keep the file from being used: what it was to cut is noted.
            let cut = match inner.record.truncating_to_bytes {
                Some(size) => self.finish_truncation(&managed, &mut inner, &mut work, size, || {}),
                None if is_new => self.truncate_leftovers(&managed, &mut inner, &mut work),
                None => Ok(()),
            };
            if is_new
                && cut.is_ok()
                && let Err(refusal) = self.sync_truncated(&managed, &inner)
            {
                self.context.note(&format!("{}: what was cut is not synced yet: {refusal}", inner.record.path));
            }
            if let Err(refusal) = cut {
                if !inner.record.has_leftovers {
                    return Err(refusal);
                }
                self.context.note(&format!("{}: {refusal}", inner.record.path));
            }
            managed.control.set_leftovers(inner.record.has_leftovers);
            managed.control.set_durable_size_bytes(inner.record.size_bytes);
            self.quiescing.open_or_keep_shut(&managed);
            managed.control.set_life(match inner.record.state {
                FileState::Creating | FileState::Importing { .. } => Life::Making,
                FileState::Live | FileState::Releasing { .. } | FileState::Unlinked => Life::Live,
            });
            if inner.regions.keys().any(|region| self.lacks_replicas(&inner, *region)) {
                self.watch_for_idleness(file);
            }
        }
        Ok(managed)
    }

    /// After a power failure, objects that were made and never synced may be gone, though the table names them. What they held was never
    /// acknowledged: they are made again, empty. A synced one that is missing stays missing, and reading it fails.
    fn restore_unsynced(&self, file: FileId, inner: &Inner) {
        // What was moved was synced first.
        let unsynced = |placed: &RegionRecord| {
            !is_moved(placed.generation) && placed.generation.0 > inner.record.generations_synced
        };
        for (region, placed) in inner.regions.iter().filter(|(_, placed)| unsynced(placed)) {
            let object = ObjectName { file, region: *region, generation: placed.generation };
            for stripe in placed.layout.stripes() {
                let Ok(server) = self.context.server(stripe.server) else { continue };
                // One that cannot be looked at or made now is an error to those who read it.
                if matches!(server.size(object), Err(ServerError::Missing { .. }))
                    && let Err(error) = server.create(object, inner.ownership())
                {
                    self.context.note(&format!("{}: {error}", inner.record.path));
                }
            }
        }
    }

    /// Shared memory of this boot and file; `None` if it is not all there or not of this boot. What cannot be opened or mapped now is an
    /// error: living processes may be using it, and making it anew would forget what they wrote.
    ///
    /// What another version of stripewise made is made anew once nobody uses it; the size that it holds is taken over into `record`.
    ///
    /// So is a control block that is damaged: what it says stands in the table too.
    fn adopt(
        &self,
        file: FileId,
        record: &mut FileRecord,
        regions: &BTreeMap<RegionIndex, RegionRecord>,
    ) -> Result<Option<(ControlBlock, Extent, Slots)>, Refusal> {
        let fault = memory_fault(file);
        let memory = match self.open_memory(file, OFlags::RDWR, OFlags::RDWR) {
            Err(Errno::NOENT) => return Ok(None),
            result => result.map_err(&fault)?,
        };
        let control = match ControlBlock::open(&memory.control, file, true) {
            // A shorter file is one whose making was cut off.
            Err(ControlError::Os(Errno::INVAL)) => return Ok(None),
            Err(ControlError::NotAControlBlock) => {
                return match ControlBlock::boot_id_of_any(&memory.control)? == self.context.boot() {
                    true => self.rebuild(&memory, record, file, "damaged shared memory (its head)"),
                    false => Ok(None),
                };
            }
            Err(ControlError::OtherVersion { boot, .. }) if boot != self.context.boot() => return Ok(None),
            Err(ControlError::OtherVersion { .. }) => {
                return self.rebuild(&memory, record, file, "another version of stripewise");
            }
            result => result?,
        };
        if control.boot_id() != self.context.boot() {
            return Ok(None);
        }
        let size_bytes = self.size_of(&memory, record, file)?;
        let last = regions.keys().next_back().map_or(0, |region| region.0 + 1);
        let count = last.max(RegionGeometry::new(record.region_bytes).count_for(size_bytes));
        let recorded = regions.iter().map(|(region, placed)| (*region, placed.generation, &placed.layout));
        let damage = match control.region_bytes() == record.region_bytes {
            true => control.find_damage(recorded, count),
            false => Some(format!("regions of {} bytes", control.region_bytes())),
        };
        if let Some(damage) = damage {
            return self.rebuild(&memory, record, file, &format!("damaged shared memory ({damage})"));
        }
        let cleared = control.clear_from(&memory.control, count).map_err(&fault)?;
        if cleared > 0 {
            self.context
                .note(&format!("{}: {cleared} words of regions that it does not have are cleared", record.path));
        }
        let extent = Extent::open(&memory.extent, true).map_err(&fault)?;
        Ok(Some((control, extent, Slots::open(&memory.slots).map_err(&fault)?)))
    }

    /// The memory is to be made anew, because of `what`: refused while a process uses it, and its size is taken over into `record`.
    fn rebuild<T>(
        &self,
        memory: &Memory,
        record: &mut FileRecord,
        file: FileId,
        what: &str,
    ) -> Result<Option<T>, Refusal> {
        let fault = memory_fault(file);
        let mut users = Slots::users_of_any_version(&memory.slots).map_err(&fault)?.into_iter();
        if let Some((slot, _)) = users.find(|(slot, incarnation)| self.context.is_alive(*slot, *incarnation)) {
            let process = self.context.processes().process_id(slot);
            return Err(Refusal::Busy { file, holder: format!("process {process} with {what}; end it first") });
        }
        if record.truncating_to_bytes.is_none() {
            record.size_bytes = self.size_of(memory, record, file)?;
        }
        self.context.note(&format!("{}: its shared memory is made anew: {what}", record.path));
        Ok(None)
    }

    /// The size that the file's shared memory holds, whatever its version.
    fn size_of(&self, memory: &Memory, record: &FileRecord, file: FileId) -> Result<u64, Refusal> {
        let most = record.region_bytes.saturating_mul(u64::from(MAX_REGIONS));
        match Extent::size_of_any_version(&memory.extent) {
            Ok(size_bytes) if size_bytes <= most => Ok(size_bytes),
            Ok(_) | Err(Errno::INVAL) => {
                let run = self.context.state().path().join("run").join(format!("{file}.*"));
                let what = format!(
                    "the shared memory of {} is damaged, so its size is not known, and it is not opened. Copy its bytes from the servers with setup/recover.py (docs/recovery.md); then end the processes that use it and move {} elsewhere, which gives it the size of its last fsync or close",
                    record.path,
                    run.display()
                );
                Err(Refusal::Table { what })
            }
            Err(errno) => Err(memory_fault(file)(errno)),
        }
    }

    /// New shared memory; what an earlier boot left is unlinked, never written.
    pub(crate) fn build(
        &self,
        file: FileId,
        record: &FileRecord,
        regions: u32,
    ) -> Result<(ControlBlock, Extent, Slots), Refusal> {
        let fault = memory_fault(file);
        let make = |kind: &str| self.context.state().create_shared(&format!("{file}.{kind}"));
        let dirty = regions.max(RegionGeometry::new(record.region_bytes).count_for(record.size_bytes));
        let build = || {
            let slots = Slots::build(&make("slots").map_err(&fault)?).map_err(&fault)?;
            let extent = Extent::build(&make("ext").map_err(&fault)?, record.size_bytes, dirty).map_err(&fault)?;
            // Last: with it the memory counts as complete.
            let control =
                ControlBlock::build(&make("ctl").map_err(&fault)?, file, self.context.boot(), record.region_bytes)?;
            Ok((control, extent, slots))
        };
        build().inspect_err(|_| self.remove_memory(file))
    }

    /// Descriptors of the file's shared memory with these accesses; the slots are everybody's to write.
    fn open_memory(&self, file: FileId, control: OFlags, extent: OFlags) -> rustix::io::Result<Memory> {
        let open = |kind: &str, access: OFlags| self.context.state().open_shared(&format!("{file}.{kind}"), access);
        Ok(Memory { control: open("ctl", control)?, extent: open("ext", extent)?, slots: open("slots", OFlags::RDWR)? })
    }

    /// As a client gets them: layouts are nobody's to write but the broker's, or one user could lead another's writes astray.
    pub(crate) fn memory_for_client(&self, file: FileId, writable: bool) -> rustix::io::Result<Memory> {
        self.open_memory(file, OFlags::RDONLY, if writable { OFlags::RDWR } else { OFlags::RDONLY })
    }

    pub(crate) fn remove_memory(&self, file: FileId) {
        for kind in ["ctl", "ext", "slots"] {
            // What stays is removed at the next start.
            let _ = rustix::fs::unlinkat(self.context.state().run(), format!("{file}.{kind}"), AtFlags::empty());
        }
    }

    fn publish_all(&self, managed: &Managed, inner: &Inner) -> Result<(), Refusal> {
        let mut has_moved = false;
        for (region, record) in &inner.regions {
            let published = match managed.control.region(*region) {
                RegionState::Placed { generation, motion, .. } => {
                    // A predecessor's move ends here, on one side or the other.
                    let is_still = matches!(motion, Motion::Still | Motion::Replicated);
                    has_moved |= !is_still;
                    generation == record.generation && is_still
                }
                RegionState::Absent => false,
            };
            if !published {
                managed.extent.reserve(*region).map_err(memory_fault(managed.file))?;
                managed.control.publish(managed.file, *region, record.generation, &record.layout)?;
            }
            managed.show_replicas(inner, *region)?;
        }
        if has_moved {
            managed.control.let_writers_go_on();
        }
        Ok(())
    }
}
