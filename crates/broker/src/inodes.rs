//! Publishing the inodes of stubs (`shared::inodes`).

use crate::context::Context;
use crate::guard;
use crate::proof::Facts;
use crate::rmt::{FileRecord, Inode};
use rustix::fs::{AtFlags, Mode, OFlags};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use stripewise_layout::FileId;
use stripewise_store::protocol::{FileStatus, Refusal, state_full};
use stripewise_store::shared::inodes::{ClosedStatus, Inodes};
use stripewise_store::state::{INODES, StateDirectory, StateError};

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
}

impl StubInodes {
    pub(crate) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context), inodes: Mutex::default() }
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

    /// Before a stub of this inode can be opened.
    pub(crate) fn publish_inode(&self, inode: Inode) -> Result<(), Refusal> {
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

    /// The inode is no stub's any more.
    pub(crate) fn withdraw_inode(&self, inode: Inode) {
        if let Some(table) = &*guard(&self.inodes) {
            table.remove(identity(inode));
        }
    }
}
