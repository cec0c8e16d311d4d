//! What is granted of the capacity that is set aside for each disk's fragments. All files share it.

use crate::guard;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use stripewise_layout::{Cluster, FileId, ServerId};

/// Grants of all files.
pub(crate) struct LogCapacity(Mutex<Grants>);

#[derive(Debug, Default)]
struct Grants {
    /// By disk: bytes set aside, and of them granted.
    disks: BTreeMap<ServerId, (u64, u64)>,
    granted: HashMap<(FileId, ServerId), u64>,
}

impl LogCapacity {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let ids = (0..cluster.servers.len()).map(|number| ServerId(number as u16));
        let disks = ids.filter_map(|id| Some((id, (cluster.fragment_log(id)?.capacity.0, 0)))).collect();
        Self(Mutex::new(Grants { disks, granted: HashMap::new() }))
    }

    /// Bytes set aside for the disk.
    pub(crate) fn total_bytes(&self, disk: ServerId) -> u64 {
        guard(&self.0).disks.get(&disk).map_or(0, |(total, _)| *total)
    }

    /// Bytes that nobody has. None where more was granted before than is set aside now.
    pub(crate) fn left_bytes(&self, disk: ServerId) -> u64 {
        guard(&self.0).left_bytes(disk)
    }

    /// The file has so much from now on as `grant` returns, given what nobody has.
    pub(crate) fn set(&self, file: FileId, disk: ServerId, grant: impl FnOnce(u64) -> u64) {
        let mut grants = guard(&self.0);
        let bytes = grant(grants.left_bytes(disk));
        grants.set(file, disk, bytes);
    }

    /// The file has nothing any more.
    pub(crate) fn forget(&self, file: FileId) {
        let mut grants = guard(&self.0);
        let disks: Vec<ServerId> = grants.granted.keys().filter(|(of, _)| *of == file).map(|(_, disk)| *disk).collect();
        disks.into_iter().for_each(|disk| grants.set(file, disk, 0));
    }
}

impl Grants {
    fn left_bytes(&self, disk: ServerId) -> u64 {
        self.disks.get(&disk).map_or(0, |(total, granted)| total.saturating_sub(*granted))
    }

    fn set(&mut self, file: FileId, disk: ServerId, bytes: u64) {
        let before = self.granted.insert((file, disk), bytes).unwrap_or(0);
        if bytes == 0 {
            self.granted.remove(&(file, disk));
        }
        if let Some((_, granted)) = self.disks.get_mut(&disk) {
            *granted = (*granted + bytes).saturating_sub(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_counted_by_file_and_disk() {
        let (disk, other) = (ServerId(0), ServerId(1));
        let disks = [(disk, (100, 0)), (other, (10, 0))].into();
        let capacity = LogCapacity(Mutex::new(Grants { disks, granted: HashMap::new() }));
        capacity.set(FileId(1), disk, |_| 60);
        capacity.set(FileId(2), disk, |_| 30);
        capacity.set(FileId(1), other, |_| 10);
        capacity.set(FileId(1), disk, |_| 50);
        assert_eq!(
            (capacity.left_bytes(disk), capacity.left_bytes(other), capacity.left_bytes(ServerId(2))),
            (20, 0, 0)
        );
        // Taken over from a broker that had more to give.
        capacity.set(FileId(3), disk, |_| 70);
        assert_eq!((capacity.left_bytes(disk), capacity.total_bytes(disk)), (0, 100));
        capacity.forget(FileId(3));
        capacity.forget(FileId(1));
        assert_eq!((capacity.left_bytes(disk), capacity.left_bytes(other)), (70, 10));
        capacity.set(FileId(2), disk, |_| 0);
        assert_eq!((capacity.left_bytes(disk), guard(&capacity.0).granted.len()), (100, 0));
    }
}
