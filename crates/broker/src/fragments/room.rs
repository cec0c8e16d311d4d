//! What is granted of the room that is set aside for each disk's fragments. All files share it.

use std::collections::{BTreeMap, HashMap};
use stripewise_layout::{Cluster, FileId, ServerId};

/// Grants of all files.
#[derive(Debug, Default)]
pub(in super::super) struct LogRoom {
    /// By disk: bytes set aside, and of them granted.
    disks: BTreeMap<ServerId, (u64, u64)>,
    granted: HashMap<(FileId, ServerId), u64>,
}

impl LogRoom {
    pub(in super::super) fn new(cluster: &Cluster) -> Self {
        let ids = (0..cluster.servers.len()).map(|number| ServerId(number as u16));
        let disks = ids.filter_map(|id| Some((id, (cluster.fragment_log(id)?.room.0, 0)))).collect();
        Self { disks, granted: HashMap::new() }
    }

    /// Bytes set aside for the disk.
    pub(super) fn total_bytes(&self, disk: ServerId) -> u64 {
        self.disks.get(&disk).map_or(0, |(total, _)| *total)
    }

    /// Bytes that nobody has. None where more was granted before than is set aside now.
    pub(super) fn left_bytes(&self, disk: ServerId) -> u64 {
        self.disks.get(&disk).map_or(0, |(total, granted)| total.saturating_sub(*granted))
    }

    /// The file has so much from now on.
    pub(super) fn set(&mut self, file: FileId, disk: ServerId, bytes: u64) {
        let before = self.granted.insert((file, disk), bytes).unwrap_or(0);
        if bytes == 0 {
            self.granted.remove(&(file, disk));
        }
        if let Some((_, granted)) = self.disks.get_mut(&disk) {
            *granted = (*granted + bytes).saturating_sub(before);
        }
    }

    /// The file has nothing any more.
    pub(super) fn forget(&mut self, file: FileId) {
        let disks: Vec<ServerId> = self.granted.keys().filter(|(of, _)| *of == file).map(|(_, disk)| *disk).collect();
        disks.into_iter().for_each(|disk| self.set(file, disk, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_counted_by_file_and_disk() {
        let (disk, other) = (ServerId(0), ServerId(1));
        let disks = [(disk, (100, 0)), (other, (10, 0))].into();
        let mut room = LogRoom { disks, granted: HashMap::new() };
        room.set(FileId(1), disk, 60);
        room.set(FileId(2), disk, 30);
        room.set(FileId(1), other, 10);
        room.set(FileId(1), disk, 50);
        assert_eq!((room.left_bytes(disk), room.left_bytes(other), room.left_bytes(ServerId(2))), (20, 0, 0));
        // Taken over from a broker that had more to give.
        room.set(FileId(3), disk, 70);
        assert_eq!((room.left_bytes(disk), room.total_bytes(disk)), (0, 100));
        room.forget(FileId(3));
        room.forget(FileId(1));
        assert_eq!((room.left_bytes(disk), room.left_bytes(other)), (70, 10));
        room.set(FileId(2), disk, 0);
        assert_eq!((room.left_bytes(disk), room.granted.len()), (100, 0));
    }
}
