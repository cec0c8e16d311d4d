//! Logs of fragments in a table that is rebuilt: which log of an SSD holds what is newer than the disk is known by shared memory alone, and holds as long as the
//! host runs. A log that no record names would be removed as left over, with bytes that programs were told are written.

use super::Rebuilding;
use crate::BrokerError;
use crate::managed::{TABLE, log_object};
use crate::rmt::{Changes, FileRecord, LogRecord};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashSet;
use stripewise_layout::{FileId, ServerId};
use stripewise_store::server::ObjectName;
use stripewise_store::shared::control::MAX_REGIONS;
use stripewise_store::shared::fragments::table::FragmentTable;

impl Rebuilding<'_> {
    /// Records the logs that shared memory of this boot tells of, and says which are lost.
    pub(super) fn write_logs(
        &self,
        changes: &mut Changes,
        file: FileId,
        record: &FileRecord,
        said: &mut Vec<String>,
    ) -> Result<(), BrokerError> {
        let mut kept: HashSet<(ServerId, ObjectName)> = HashSet::new();
        for (disk, log) in self.known_logs(file)? {
            // Recorded without its object too: `check` then tells how much of it is lost.
            changes.put_log(file, disk, log);
            kept.insert((log.on, log_object(file, disk, log)));
        }
        let is_log = |object: &ObjectName| object.file == file && object.region.0 >= MAX_REGIONS;
        let unknown = self.objects.iter().filter(|((_, object), _)| is_log(object));
        for ((server, object), bytes) in unknown.filter(|(place, bytes)| **bytes > 0 && !kept.contains(*place)) {
            let name = &self.cluster.servers[usize::from(server.0)].name;
            said.push(format!(
                "{}: nothing says any more what the {bytes} bytes of fragments in stripewise-objects/{object} on server {name} belong to: compare what was written since its last fsync",
                record.path
            ));
        }
        Ok(())
    }

    fn known_logs(&self, file: FileId) -> Result<Vec<(ServerId, LogRecord)>, BrokerError> {
        let opened = self.state.open_shared(&format!("{file}.{TABLE}"), OFlags::RDWR);
        let table = match opened.and_then(|memory| FragmentTable::open(&memory, file, true)) {
            // Damaged memory tells nothing.
            Err(Errno::NOENT | Errno::INVAL) => return Ok(Vec::new()),
            result => result.map_err(|source| BrokerError::Os { action: "reading the memory of fragments", source })?,
        };
        if table.boot_id() != self.boot {
            return Ok(Vec::new());
        }
        let record = |disk| table.log(disk).map(|log| (disk, LogRecord { on: log.on, generation: log.generation }));
        Ok(table.disks().filter_map(record).collect())
    }
}
