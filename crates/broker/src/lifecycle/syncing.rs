//! The broker's part of a `sync` of all files.

use super::Lifecycle;
use crate::guard;
use crate::managed::Managed;
use stripewise_store::protocol::Refusal;

impl Lifecycle {
    /// Makes the sizes of all files durable, and writes fragments back to the disks. Syncs no server: the kernel's `sync`, which follows, does that for all
    /// files at once. A file whose size cannot be saved keeps no other from it.
    pub(crate) fn sync_all(&self) -> Result<(), Refusal> {
        let mut first_fault = None;
        for managed in self.files.ids().into_iter().filter_map(|file| self.files.if_loaded(file)) {
            if let Err(refusal) = self.save_size_and_fragments(&managed)
                && !guard(&managed.inner).freed
            {
                first_fault.get_or_insert(refusal);
            }
        }
        self.context.table().flush()?;
        first_fault.map_or(Ok(()), Err)
    }

    fn save_size_and_fragments(&self, managed: &Managed) -> Result<(), Refusal> {
        self.write_back.flush(managed)?;
        let mut inner = guard(&managed.inner);
        if inner.freed { Ok(()) } else { self.save_size(managed, &mut inner) }
    }
}
