//! Which file's stub has which inode: in the mapping table, and published for clients (`shared::inodes`).
//!
//! The file system uses the number of a removed stub's inode again, often at once, and its birth may be the same: the clock of births ticks every few
//! milliseconds. Entries of one inode therefore change one after the other, each with a look at whose it is.

use crate::context::Context;
use crate::guard;
use crate::proof::Facts;
use crate::rmt::{Changes, FileRecord, Inode, RmtError};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use stripewise_layout::FileId;
use stripewise_store::protocol::{FileStatus, Refusal, state_full};
use stripewise_store::shared::inodes::{ClosedStatus, Inodes};
use stripewise_store::state::{INODES, StateDirectory, StateError};

/// Locks of entries: an inode has one of them, so that few files wait for each other's commits.
const ENTRY_LOCKS: usize = 64;

fn identity(inode: Inode) -> (u64, u64) {
    (inode.device, inode.inode)
}

/// A new table with space for `count` inodes, which `fill` enters, takes the place of the one at its path.
fn replace(state: &StateDirectory, count: usize, fill: impl FnOnce(&Inodes)) -> rustix::io::Result<Inodes> {
    let temporary = format!("{INODES}.new");
    let file = state.create_shared(&temporary)?;
    let make = || {
        let inodes = Inodes::build(&file, count)?;
        fill(&inodes);
        // Other users' programs need it as well, and come here only where they may.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        Ok(inodes)
    };
    let inodes = make().inspect_err(|_| {
        let _ = rustix::fs::unlinkat(state.run(), &temporary, AtFlags::empty());
    })?;
    let former = state.open_shared(INODES, OFlags::RDWR);
    if let Ok(former) = former.and_then(|former| Inodes::open(former, true)) {
        former.set_replaced();
    }
    rustix::fs::renameat(state.run(), &temporary, state.run(), INODES)?;
    Ok(inodes)
}

/// The inodes of stubs, as clients see them.
pub(crate) struct StubInodes {
    context: Arc<Context>,
    /// None until recovery makes it.
    inodes: Mutex<Option<Inodes>>,
    /// An inode's entries in both tables change under its lock.
    entries: [Mutex<()>; ENTRY_LOCKS],
}

impl StubInodes {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), inodes: Mutex::default(), entries: [const { Mutex::new(()) }; _] }
    }

    /// At the start: a new table with the inodes of all files.
    pub(crate) fn publish_inodes(&self, files: &HashMap<FileId, FileRecord>) -> Result<(), crate::BrokerError> {
        let fault = |source| crate::BrokerError::Os { action: "publishing the inodes of stubs in run/inodes", source };
        let devices = self.devices_of_this_boot(files);
        let fill = |inodes: &Inodes| {
            inodes.set_asks_by_text(self.context.is_shared());
            for record in files.values() {
                let moved = devices.get(&record.stub.device).filter(|_| record.boot != self.context.boot());
                for device in moved.into_iter().chain([&record.stub.device]) {
                    let _ = inodes.insert((*device, record.stub.inode));
                }
            }
        };
        let inodes = replace(self.context.state(), 2 * files.len(), fill).map_err(fault)?;
        *guard(&self.inodes) = Some(inodes);
        Ok(())
    }

    /// Numbers of devices may change from boot to boot: what those of records of an earlier boot are now, as far as a stub at its path tells.
    fn devices_of_this_boot(&self, files: &HashMap<FileId, FileRecord>) -> HashMap<u64, u64> {
        let mut devices = HashMap::new();
        for record in files.values().filter(|record| record.boot != self.context.boot()) {
            if devices.contains_key(&record.stub.device) {
                continue;
            }
            if let Ok(Some(facts)) = Facts::at_path(Path::new(&record.path))
                && (facts.inode.inode, facts.inode.born_ns) == (record.stub.inode, record.stub.born_ns)
            {
                devices.insert(record.stub.device, facts.inode.device);
            }
        }
        devices
    }

    fn hold_entry(&self, inode: Inode) -> MutexGuard<'_, ()> {
        guard(&self.entries[inode.inode as usize % ENTRY_LOCKS])
    }

    fn is_of(&self, inode: Inode, file: FileId) -> Result<bool, RmtError> {
        Ok(self.context.table().file_of(inode)? == Some(file))
    }

    /// Before a stub of this inode can be opened: it is the file's, with the other `changes` that `commit` makes. If the number was that of another file's stub,
    /// that one was removed behind our back, or is about to be freed.
    pub(crate) fn enter_inode(
        &self,
        inode: Inode,
        file: FileId,
        mut changes: Changes,
        commit: impl FnOnce(&Changes) -> Result<(), RmtError>,
    ) -> Result<(), Refusal> {
        changes.put_inode(inode, file);
        let _entry = self.hold_entry(inode);
        self.publish_inode(inode)?;
        Ok(commit(&changes)?)
    }

    /// Durably: the file's stub has the inode `is` and not `was`, with the other `changes`.
    pub(crate) fn move_inode(&self, was: Inode, is: Inode, file: FileId, changes: Changes) -> Result<(), Refusal> {
        let commit = |changes: &Changes| self.context.table().commit(changes);
        self.enter_inode(is, file, changes, commit)?;
        // The number may be the same, with another birth.
        if identity(was) != identity(is) {
            // An entry that stays is not believed: the record names another inode.
            let _ = self.remove_inode(was, file, Changes::default(), commit);
        }
        Ok(())
    }

    /// The inode is not the file's any more, with the other `changes` that `commit` makes.
    pub(crate) fn remove_inode(
        &self,
        inode: Inode,
        file: FileId,
        mut changes: Changes,
        commit: impl FnOnce(&Changes) -> Result<(), RmtError>,
    ) -> Result<(), Refusal> {
        let _entry = self.hold_entry(inode);
        if self.is_of(inode, file)? {
            changes.remove_inode(inode);
            self.withdraw_from_clients(inode);
        }
        Ok(commit(&changes)?)
    }

    /// Nobody finds the file by the inode any more, which may be another's soon.
    pub(crate) fn withdraw_inode(&self, inode: Inode, file: FileId) -> Result<(), Refusal> {
        let _entry = self.hold_entry(inode);
        if self.is_of(inode, file)? {
            self.withdraw_from_clients(inode);
        }
        Ok(())
    }

    fn publish_inode(&self, inode: Inode) -> Result<(), Refusal> {
        let mut inodes = guard(&self.inodes);
        match &*inodes {
            Some(table) if table.insert(identity(inode)) => {
                table.set_status(identity(inode), None);
                return Ok(());
            }
            Some(table) => {
                let larger = replace(self.context.state(), 2 * table.count(), |larger| larger.insert_all_of(table))
                    .map_err(|errno| match StateError::is_full(errno) {
                        true => state_full("the inodes of stubs"),
                        false => Refusal::Table { what: format!("the inodes of stubs in run/{INODES}: {errno}") },
                    })?;
                let _ = larger.insert(identity(inode));
                *inodes = Some(larger);
            }
            // Recovery makes the table first.
            None => {}
        }
        Ok(())
    }

    /// Programs look at closes of larger files from now on; `None`: at none.
    pub(crate) fn show_least_min_size(&self, bytes: Option<u64>) {
        if let Some(table) = &*guard(&self.inodes) {
            table.set_least_min_size(bytes);
        }
    }

    /// What holds of the stub's file while nobody has it open.
    pub(crate) fn show_status(&self, inode: Inode, file: FileId, status: FileStatus) {
        // One without a birth time could be another file's by now, and one with a time of its own is for the broker to tell.
        if inode.born_ns == 0 || status.modified_ns.is_some() {
            return;
        }
        let _entry = self.hold_entry(inode);
        if !self.is_of(inode, file).unwrap_or(false) {
            return;
        }
        if let Some(table) = &*guard(&self.inodes) {
            let FileStatus { size_bytes, blocks_512, .. } = status;
            let status = ClosedStatus { file, born_ns: inode.born_ns, size_bytes, blocks_512 };
            table.set_status(identity(inode), Some(status));
        }
    }

    /// Before anybody can change what holds of the stub's file.
    pub(crate) fn hide_status(&self, inode: Inode) {
        if let Some(table) = &*guard(&self.inodes) {
            table.set_status(identity(inode), None);
        }
    }

    fn withdraw_from_clients(&self, inode: Inode) {
        if let Some(table) = &*guard(&self.inodes) {
            table.remove(identity(inode));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inodes(root: &Path) -> StubInodes {
        let inodes = StubInodes::new(&crate::file_memory::tests::context(root, false));
        inodes.publish_inodes(&HashMap::new()).unwrap();
        inodes
    }

    const STATUS: FileStatus = FileStatus { size_bytes: 1, blocks_512: 8, modified_ns: None };

    /// Whose the inode is, whether clients take it for a stub's, and whose status they see.
    fn found(inodes: &StubInodes, inode: Inode) -> (Option<FileId>, bool, Option<FileId>) {
        let file = inodes.context.table().file_of(inode).unwrap();
        let published = guard(&inodes.inodes);
        let published = published.as_ref().unwrap();
        (file, published.holds(identity(inode)), published.status(identity(inode)).map(|status| status.file))
    }

    #[test]
    fn an_inode_that_is_another_files_by_now_stays_its() {
        let root = tempfile::tempdir().unwrap();
        let inodes = inodes(root.path());
        let (inode, was, is) = (crate::rmt::tests::record("").stub, FileId(2), FileId(3));
        let commit = |changes: &Changes| inodes.context.table().commit_later(changes);
        inodes.enter_inode(inode, was, Changes::default(), commit).unwrap();
        inodes.show_status(inode, was, STATUS);
        assert_eq!(found(&inodes, inode), (Some(was), true, Some(was)));
        inodes.withdraw_inode(inode, was).unwrap();
        assert_eq!(found(&inodes, inode), (Some(was), false, None));
        // The same number and birth, before the first file is freed.
        inodes.enter_inode(inode, is, Changes::default(), commit).unwrap();
        assert_eq!(found(&inodes, inode), (Some(is), true, None));
        inodes.show_status(inode, was, STATUS);
        inodes.withdraw_inode(inode, was).unwrap();
        inodes.remove_inode(inode, was, Changes::default(), commit).unwrap();
        assert_eq!(found(&inodes, inode), (Some(is), true, None));
        inodes.show_status(inode, is, STATUS);
        assert_eq!(found(&inodes, inode), (Some(is), true, Some(is)));
        inodes.remove_inode(inode, is, Changes::default(), commit).unwrap();
        assert_eq!(found(&inodes, inode), (None, false, None));
    }

    #[test]
    fn a_stub_that_moved_is_found_by_its_new_inode_alone() {
        let root = tempfile::tempdir().unwrap();
        let inodes = inodes(root.path());
        let (first, file) = (crate::rmt::tests::record("").stub, FileId(2));
        let reborn = Inode { born_ns: first.born_ns + 1, ..first };
        let other = Inode { inode: first.inode + 1, ..first };
        inodes.enter_inode(first, file, Changes::default(), |changes| inodes.context.table().commit(changes)).unwrap();
        inodes.move_inode(first, reborn, file, Changes::default()).unwrap();
        assert_eq!(found(&inodes, reborn), (Some(file), true, None));
        inodes.move_inode(reborn, other, file, Changes::default()).unwrap();
        assert_eq!([first, other].map(|inode| found(&inodes, inode)), [(None, false, None), (Some(file), true, None)]);
    }

    #[test]
    fn entries_of_an_inode_change_one_after_the_other() {
        let root = tempfile::tempdir().unwrap();
        let inodes = inodes(root.path());
        let inode = crate::rmt::tests::record("").stub;
        let held = |_: &Changes| {
            assert!(inodes.entries[inode.inode as usize % ENTRY_LOCKS].try_lock().is_err());
            Ok(())
        };
        inodes.enter_inode(inode, FileId(2), Changes::default(), held).unwrap();
        inodes.remove_inode(inode, FileId(2), Changes::default(), held).unwrap();
    }
}
