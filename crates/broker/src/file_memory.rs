//! The files of a managed file's shared memory in `run/`: made, taken over, handed out and removed.
//!
//! Memory of this boot is taken over, since processes may be using it; then its size is the truth. Without it nobody can be using the file, and it has its durable size.
//!
//! While a client makes files one after the other, the memory of the next one is made ahead, under an identity that no record has yet
//! ([`FileMemory::make_wanted`]). What is left of that is removed when the broker stops, or at the next start as the memory of any file that is no more.

use crate::context::Context;
use crate::guard;
use crate::log::{Log, note};
use crate::managed::{Memory, memory_fault};
use crate::rmt::{FileRecord, RegionRecord};
use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};
use stripewise_layout::{FileId, RegionGeometry, RegionIndex};
use stripewise_store::protocol::{FileStatus, Refusal};
use stripewise_store::shared::control::{ControlBlock, ControlError, MAX_REGIONS};
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::slots::Slots;

/// The mapped memory of a file, and the three files behind it.
pub(crate) type Built = ((ControlBlock, Extent, Slots), Memory);

/// New files whose memory is made ahead, at most.
const MAX_AHEAD: usize = 4;

/// Shared memory of managed files.
pub(crate) struct FileMemory {
    context: Arc<Context>,
    /// Of files to come.
    ahead: Mutex<Vec<(FileId, Built)>>,
    /// Another one is expected to be made soon.
    is_wanted: AtomicBool,
}

impl FileMemory {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), ahead: Mutex::default(), is_wanted: AtomicBool::new(false) }
    }

    /// Identity and memory of a new file, with the descriptors that a client gets who may write it.
    pub(crate) fn make_new(&self, region_bytes: u64) -> Result<(FileId, Built), Refusal> {
        let ahead = guard(&self.ahead).pop();
        let (file, built) = ahead.map_or_else(|| self.make(), Ok)?;
        built.0.0.set_region_bytes(region_bytes);
        Ok((file, built))
    }

    fn make(&self) -> Result<(FileId, Built), Refusal> {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| Refusal::Table { what: format!("no random file id: {errno}") })?;
        let file = FileId(u64::from_ne_bytes(bytes).max(1));
        let (mapped, memory) = self.build_for(file, 0, 0, 0)?;
        let control = self.context.state().open_shared(&format!("{file}.ctl"), OFlags::RDONLY).map_err(|errno| {
            self.remove_memory(file);
            memory_fault(file)(errno)
        })?;
        Ok((file, (mapped, Memory { control, ..memory })))
    }

    /// Another file will be made soon: [`Self::make_wanted`] makes its memory.
    pub(crate) fn want_another(&self) {
        self.is_wanted.store(true, SeqCst);
    }

    /// Makes memory ahead if it is wanted. To be called by who has nothing else to do. A client that needs new memory meanwhile waits for this one, which is
    /// half made.
    pub(crate) fn make_wanted(&self) {
        if !self.is_wanted.load(Relaxed) {
            return;
        }
        let mut ahead = guard(&self.ahead);
        if self.is_wanted.swap(false, SeqCst)
            && !self.context.is_shared()
            && ahead.len() < MAX_AHEAD
            && let Ok(made) = self.make()
        {
            ahead.push(made);
        }
    }

    /// Removes what was made ahead.
    fn forget_ahead(&self) {
        let mut ahead = guard(&self.ahead);
        self.is_wanted.store(false, SeqCst);
        ahead.drain(..).for_each(|(file, _)| self.remove_memory(file));
    }

    pub(crate) fn log(&self) -> &Log {
        self.context.log()
    }

    /// The status of a file that is not loaded, without any server. Shared memory of this boot knows best: what it says was acknowledged. Without it, which is after
    /// another boot, the file has its durable size, to which loading it will cut it. Memory of this boot that cannot be read is an error, since the durable
    /// size may be older than what was acknowledged.
    pub(crate) fn status_unloaded(&self, file: FileId, record: &FileRecord) -> Result<FileStatus, Refusal> {
        let fault = memory_fault(file);
        let open = |kind: &str| self.context.state().open_shared(&format!("{file}.{kind}"), OFlags::RDWR);
        let block = match open("ctl") {
            Err(Errno::NOENT) => return self.durable_status(file, record),
            result => result.map_err(&fault)?,
        };
        // A shorter file is one whose making was cut off: nobody has used it.
        if !ControlBlock::boot_id_of_any(&block).is_ok_and(|boot| boot == self.context.boot()) {
            return self.durable_status(file, record);
        }
        let memory = open("ext").map_err(&fault)?;
        let size_bytes = Extent::size_of_any_version(&memory).map_err(&fault)?;
        let control = ControlBlock::open(&block, file, false).ok();
        let size_bytes = match record.truncating_to_bytes {
            // The cut is finished when the file is loaded. An open gate says that only its end was not recorded.
            Some(truncated_to_bytes) if control.as_ref().is_none_or(|control| control.gate().is_shut()) => {
                truncated_to_bytes
            }
            _ => size_bytes,
        };
        let blocks_512 = control.map_or(size_bytes, |control| control.regions().placed_bytes(size_bytes)).div_ceil(512);
        let modified_ns = Extent::open(&memory, false).ok().and_then(|extent| extent.modified_ns());
        Ok(FileStatus { size_bytes, blocks_512, modified_ns })
    }

    fn durable_status(&self, file: FileId, record: &FileRecord) -> Result<FileStatus, Refusal> {
        let size_bytes = record.truncating_to_bytes.unwrap_or(record.size_bytes);
        let geometry = RegionGeometry::new(record.region_bytes);
        let regions = self.context.table().regions(file)?;
        let placed: u64 = regions.iter().map(|(region, _)| geometry.used_bytes(*region, size_bytes)).sum();
        Ok(FileStatus { size_bytes, blocks_512: placed.div_ceil(512), modified_ns: None })
    }

    /// Shared memory of this boot and file; `None` if it is not all there or not of this boot. What cannot be opened or mapped now is an
    /// error: living processes may be using it, and rebuilding it would forget what they wrote.
    ///
    /// What another version of stripewise made is rebuilt once nobody uses it; the size that it holds is taken over into `record`.
    ///
    /// So is a control block that is damaged: what it says stands in the table too. A host that shares the file may have missed the end of a truncation, which is no
    /// damage: its words of regions that are no more are taken away, and the file is no longer than the table says.
    pub(crate) fn adopt(
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
        let has_same_regions = control.region_bytes() == record.region_bytes;
        let missed = match self.context.is_shared() && has_same_regions {
            true => control.regions().retract_unrecorded(regions.keys().copied(), count),
            false => 0,
        };
        let damage = match has_same_regions {
            true => control.regions().find_damage(recorded, count),
            false => Some(format!("regions of {} bytes", control.region_bytes())),
        };
        if let Some(damage) = damage {
            return self.rebuild(&memory, record, file, &format!("damaged shared memory ({damage})"));
        }
        let cleared = control.regions().clear_from(&memory.control, count).map_err(&fault)?;
        if cleared > 0 {
            note!(self.context.log(), warn, path = %record.path, words = cleared, "words of regions that a file does not have are cleared");
        }
        control.notices().set_shared(self.context.is_shared());
        let extent = Extent::open(&memory.extent, true).map_err(&fault)?;
        let has_missed = self.context.is_shared() && extent.truncations() < record.truncations;
        if missed > 0 || has_missed {
            note!(self.context.log(), info, path = %record.path, words = missed, "a file was truncated while this host was not heard of");
            // Stopped for that truncation, and drained: nobody here has written since.
            if control.gate().is_shut() {
                extent.truncate_to(record.truncating_to_bytes.unwrap_or(record.size_bytes));
            }
        }
        Ok(Some((control, extent, Slots::open(&memory.slots).map_err(&fault)?)))
    }

    /// The memory is to be rebuilt, because of `what`: refused while a process uses it, and its size is taken over into `record`.
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
        note!(self.context.log(), warn, path = %record.path, cause = what, "the shared memory of a file is rebuilt");
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

    /// New shared memory, with the descriptors by which it was made; what an earlier boot left is unlinked, never written.
    pub(crate) fn build(&self, file: FileId, record: &FileRecord, regions: u32) -> Result<Built, Refusal> {
        let dirty = regions.max(RegionGeometry::new(record.region_bytes).count_for(record.size_bytes));
        self.build_for(file, record.region_bytes, record.size_bytes, dirty)
    }

    fn build_for(&self, file: FileId, region_bytes: u64, size_bytes: u64, dirty: u32) -> Result<Built, Refusal> {
        let fault = memory_fault(file);
        let make = |kind: &str| self.context.state().create_shared(&format!("{file}.{kind}"));
        let build = || {
            let slots = make("slots").map_err(&fault)?;
            let mapped_slots = Slots::build(&slots).map_err(&fault)?;
            let extent = make("ext").map_err(&fault)?;
            let mapped_extent = Extent::build(&extent, size_bytes, dirty).map_err(&fault)?;
            // Last: with it the memory counts as complete.
            let control = make("ctl").map_err(&fault)?;
            let mapped_control = ControlBlock::build(&control, file, self.context.boot(), region_bytes)?;
            mapped_control.notices().set_shared(self.context.is_shared());
            Ok(((mapped_control, mapped_extent, mapped_slots), Memory { control, extent, slots }))
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
}

impl Drop for FileMemory {
    fn drop(&mut self) {
        self.forget_ahead();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::BrokerOptions;
    use stripewise_layout::{ByteCount, Cluster, Generation, Layout, Server, ServerClass, ServerId, ServerUrl};
    use stripewise_store::server::directory;
    use stripewise_store::state::StateDirectory;

    const REGION: u64 = 4096;

    /// Of a cluster of one server in `root`.
    pub(crate) fn context(root: &std::path::Path, shared: bool) -> Arc<Context> {
        std::fs::create_dir_all(root.join("a")).unwrap();
        directory::prepare("c", "a", &root.join("a")).unwrap();
        let servers = vec![Server::new("a", ServerClass::Hdd, ServerUrl::new("file", root.join("a")))];
        let cluster = Cluster::new("c", root.join("state"), ByteCount(REGION), servers);
        let state = StateDirectory::make(&cluster.state).unwrap();
        let lock = Arc::new(state.try_lock().unwrap().unwrap());
        let options = BrokerOptions { shared, ..BrokerOptions::default() };
        Arc::new(Context::open(&cluster, state, lock, options, None).unwrap())
    }

    /// The master died in the middle of it, and the next one finished it. Programs may still be using the memory, so that a new one could not take its place.
    #[test]
    fn memory_of_a_host_that_missed_the_end_of_a_truncation_is_taken_over_and_on_one_host_is_damaged() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::new([(ServerId(0), REGION as u32)]).unwrap();
        let placed = |region| (RegionIndex(region), RegionRecord::placed(Generation(1), layout.clone()));
        let file = FileId(7);
        // As the table has it: truncated to less than a region.
        let recorded =
            crate::rmt::FileRecord { region_bytes: REGION, size_bytes: 10, ..crate::rmt::tests::record("x") };
        for (shared, is_shut) in [(true, true), (true, false), (false, true)] {
            let memory = FileMemory::new(&context(root.path(), shared));
            {
                let ((control, extent, _), _) = memory.build(file, &recorded, 4).unwrap();
                for region in (0..4).map(RegionIndex) {
                    control.regions().publish(file, region, Generation(1), &layout).unwrap();
                }
                extent.extend_to(4 * REGION);
                if is_shut {
                    control.gate().shut();
                }
            }
            let mut record = recorded.clone();
            let adopted = memory.adopt(file, &mut record, &[placed(0)].into()).unwrap();
            assert_eq!(adopted.is_some(), shared);
            if let Some((control, extent, _)) = adopted {
                let is_absent = |region| control.regions().is_absent(RegionIndex(region));
                assert_eq!([0, 1, 2, 3].map(is_absent), [false, true, true, true]);
                assert_eq!(extent.size_bytes(), if is_shut { 10 } else { 4 * REGION });
                assert_eq!(record.size_bytes, 10);
            }
            memory.remove_memory(file);
        }
    }
}
