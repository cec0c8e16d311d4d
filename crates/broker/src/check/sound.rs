//! Files of which there is nothing to say, found so without loading them: most of the files of most clusters.
//!
//! Nothing is locked meanwhile. A file that changes while it is looked at may look unsound; then it is looked at under its lock as any other.

use super::stubs::Standing;
use super::{Checks, Inventory};
use crate::name_notes::Flux;
use crate::proof::Facts;
use crate::rmt::{FileRecord, FileState};
use std::path::Path;
use stripewise_layout::FileId;
use stripewise_store::protocol::Refusal;
use stripewise_store::server::ObjectName;

impl Checks {
    /// Whether table, servers and stub agree on the file and nothing about it is out of the ordinary.
    pub(super) fn is_sound(
        &self,
        file: FileId,
        record: &FileRecord,
        inventories: &[Inventory<'_>],
    ) -> Result<bool, Refusal> {
        let is_plain = matches!(record.state, FileState::Live)
            && record.truncating_to_bytes.is_none()
            && !record.has_leftovers
            && record.is_described;
        if !is_plain || self.files.if_loaded_now(file).is_some() || self.notes.flux_of(file) != Flux::None {
            return Ok(false);
        }
        Ok(self.has_its_objects_alone(file, inventories)? && self.has_its_stub(file, record))
    }

    /// Every server holds the objects of the file's regions and no others of it, and all regions lie as planned.
    fn has_its_objects_alone(&self, file: FileId, inventories: &[Inventory<'_>]) -> Result<bool, Refusal> {
        let table = self.context.table();
        let has_more = !(table.discards(Some(file))?.is_empty()
            && table.replicas(Some(file))?.is_empty()
            && table.logs(Some(file))?.is_empty());
        if has_more {
            return Ok(false);
        }
        let mut named = vec![0; inventories.len()];
        for (region, placed) in table.regions(file)? {
            let object = ObjectName { file, region, generation: placed.generation };
            for stripe in placed.layout.stripes() {
                let number = usize::from(stripe.server.0);
                let is_there = inventories.get(number).is_some_and(|inventory| !inventory.lacks(&object));
                if placed.fell_back || !is_there {
                    return Ok(false);
                }
                named[number] += 1;
            }
        }
        let holds_more = |(inventory, named): (&Inventory<'_>, usize)| inventory.of(file).count() > named;
        Ok(!inventories.iter().zip(named).any(holds_more))
    }

    fn has_its_stub(&self, file: FileId, record: &FileRecord) -> bool {
        let path = Path::new(&record.path);
        let owns_it = |facts: Facts| {
            let found = facts.ownership;
            (found.mode, found.uid, found.gid) == (record.mode, record.uid, record.gid)
        };
        matches!(self.standing(file, path, record.stub), Ok(Standing::Stub))
            && Facts::at_path(path).is_ok_and(|facts| facts.is_some_and(owns_it))
    }
}
