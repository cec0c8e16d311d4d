//! What a predecessor left unfinished, before the first client is served.

use crate::aside::take_away;
use crate::managed::{Managed, memory_fault};
use crate::rmt::{FileRecord, FileState};
use crate::{Core, guard};
use rustix::fs::{AtFlags, Dir, OFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use stripewise_layout::{FileId, RegionGeometry};
use stripewise_store::protocol::{FoundStatus, Refusal};
use stripewise_store::shared::control::{ControlBlock, Life};
use stripewise_store::shared::extent::Extent;

impl Core {
    /// Counts promises, ends what was under way, and returns sentences for the user. A file that cannot be settled now (its server is
    /// away) is noted, and settled when it is next opened.
    pub(crate) fn recover(&self) -> Result<Vec<String>, crate::BrokerError> {
        let files: HashMap<FileId, FileRecord> = self.context.table().all_files()?.into_iter().collect();
        self.publish_inodes(&files)?;
        self.context.table().every_region(|file, _, placed| {
            if let Some(record) = files.get(&file) {
                self.capacity.add(&placed.layout, record.region_bytes);
            }
        })?;
        for (file, _, _, replica) in self.context.table().replicas(None)? {
            if let Some(record) = files.get(&file) {
                self.capacity.add(&replica.layout, record.region_bytes);
                self.capacity.note_replicas();
            }
        }
        self.remove_stale_memory(&files);
        let mut said = self.recover_moves(&files)?;
        said.extend(self.recover_logs()?);
        for (file, record) in &files {
            if matches!(record.state, FileState::Live) && record.truncating_to_bytes.is_none() {
                continue;
            }
            let settled = self.managed(*file).and_then(|managed| self.settle_left(&managed, record));
            match settled {
                Ok(sentence) => said.extend(sentence.map(|sentence| format!("cleaned up: {sentence}"))),
                Err(refusal) => said.push(format!("not cleaned up yet: {}: {refusal}", record.path)),
            }
        }
        said.extend(self.recover_name_changes()?);
        Ok(said)
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
            if self.remove_objects(object, &layout).is_ok() {
                let mut changes = crate::rmt::Changes::default();
                changes.remove_discard(file, region, generation);
                self.context.table().commit(&changes)?;
            }
        }
        for (file, count) in with_moves {
            let path = &files[&file].path;
            match self.managed(file).and_then(|managed| self.settle_discards(&managed)) {
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

    fn settle_left(&self, managed: &Managed, record: &FileRecord) -> Result<Option<String>, Refusal> {
        match record.state {
            FileState::Importing { .. } | FileState::Releasing { .. } => {
                self.settle_holding(managed, &mut guard(&managed.inner))
            }
            FileState::Unlinked => {
                if self.after_close(managed)? {
                    return Ok(Some(format!("the data of the removed file {} was freed", record.path)));
                }
                self.rechecks.recheck(managed.file);
                Ok(None)
            }
            FileState::Creating => {
                let mut inner = guard(&managed.inner);
                if !self.users(managed).is_empty() {
                    self.rechecks.recheck(managed.file);
                } else if self.stands_at_its_path(record)? || self.has_other_name(managed.file, record)? {
                    self.set_state(managed, &mut inner, FileState::Live)?;
                    managed.control.set_life(Life::Live);
                } else {
                    self.free(managed, &mut inner)?;
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
        let search = self.search_one(file, record);
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

    /// The status of a file that is not loaded, without any server. Shared memory of this boot knows best: what it says was acknowledged. Without it, which is after
    /// another boot, the file has its durable size, to which loading it will cut it. Memory of this boot that cannot be read is an error, since the durable
    /// size may be older than what was acknowledged.
    pub(crate) fn status_unloaded(&self, file: FileId, record: &FileRecord) -> Result<FoundStatus, Refusal> {
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
            Some(cut_to_bytes) if control.as_ref().is_none_or(ControlBlock::gate_is_shut) => cut_to_bytes,
            _ => size_bytes,
        };
        let blocks_512 = control.map_or(size_bytes, |control| control.placed_bytes(size_bytes)).div_ceil(512);
        let modified_ns = Extent::open(&memory, false).ok().and_then(|extent| extent.modified_ns());
        Ok(FoundStatus { size_bytes, blocks_512, modified_ns })
    }

    fn durable_status(&self, file: FileId, record: &FileRecord) -> Result<FoundStatus, Refusal> {
        let size_bytes = record.truncating_to_bytes.unwrap_or(record.size_bytes);
        let geometry = RegionGeometry::new(record.region_bytes);
        let regions = self.context.table().regions(file)?;
        let placed: u64 = regions.iter().map(|(region, _)| geometry.used_bytes(*region, size_bytes)).sum();
        Ok(FoundStatus { size_bytes, blocks_512: placed.div_ceil(512), modified_ns: None })
    }
}
