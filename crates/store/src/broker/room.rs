//! How much room the servers have.
//!
//! A region that is placed is *promised* its full share of each of its servers, the file's last region too, whatever is written
//! later. A server with a capacity takes promises up to capacity minus reserve and what is set aside for fragments, so what a plan
//! puts there never meets a full server. Beside that, a region is only placed where the file system has its share and those two free
//! now; servers on one file system share what it has free. (Promises of before are not held against the free space: without a
//! capacity, files much smaller than their last region would otherwise fill a disk with air. Such a disk can fill up under a program,
//! as it can under ordinary files.)

use crate::server::{ServerBackend, ServerError};
use std::collections::HashMap;
use stripewise_layout::{Cluster, Layout, ServerId};

/// Promises of one server.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Promised {
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
}

#[derive(Debug)]
pub(crate) struct Room {
    promised: Vec<Promised>,
    /// `None`: no capacity given.
    room_bytes: Vec<Option<u64>>,
    /// Of what the file systems have free: reserves, and what is set aside for fragments.
    kept_free_bytes: Vec<u64>,
    /// Number of the file system that each server lies on.
    file_system: Vec<u64>,
    /// Whether there have been replicas since the broker began, which could leave a full server.
    has_replicas: bool,
}

/// Room looked at once for one request: promises that are not yet made, over free space as it was.
pub(crate) struct Reservation<'a> {
    room: &'a mut Room,
    servers: &'a [Box<dyn ServerBackend>],
    added: HashMap<ServerId, Promised>,
    free_bytes: HashMap<u64, u64>,
}

/// Which server has no room, and how much was asked of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    pub(crate) server: ServerId,
    pub(crate) asked_bytes: u64,
    pub(crate) left_bytes: u64,
}

#[derive(Debug)]
pub(crate) enum NoRoom {
    Full(Full),
    Server(ServerError),
}

impl Room {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let servers = &cluster.servers;
        let device = |path: &std::path::Path| rustix::fs::stat(path).map(|found| found.st_dev).ok();
        Self {
            promised: vec![Promised::default(); servers.len()],
            room_bytes: cluster.ids().map(|id| cluster.room_bytes(id)).collect(),
            kept_free_bytes: cluster.ids().map(|id| cluster.kept_free_bytes(id)).collect(),
            // A directory that is not there stands alone; asking for its free space is an error of its own.
            file_system: (0..).zip(servers).map(|(n, s)| device(s.url.directory()).unwrap_or(u64::MAX - n)).collect(),
            has_replicas: false,
        }
    }

    pub(crate) fn note_replicas(&mut self) {
        self.has_replicas = true;
    }

    pub(crate) fn has_replicas(&self) -> bool {
        self.has_replicas
    }

    pub(crate) fn promised(&self, server: ServerId) -> Promised {
        self.promised[usize::from(server.0)]
    }

    pub(crate) fn room_bytes(&self, server: ServerId) -> Option<u64> {
        self.room_bytes[usize::from(server.0)]
    }

    /// Counts a region that is placed already.
    pub(crate) fn add(&mut self, layout: &Layout, region_bytes: u64) {
        for (server, bytes) in shares(layout, region_bytes) {
            let promised = &mut self.promised[usize::from(server.0)];
            promised.bytes += bytes;
            promised.objects += 1;
        }
    }

    /// Takes back the promises of a region that was freed.
    pub(crate) fn give_back(&mut self, layout: &Layout, region_bytes: u64) {
        for (server, bytes) in shares(layout, region_bytes) {
            let promised = &mut self.promised[usize::from(server.0)];
            promised.bytes = promised.bytes.saturating_sub(bytes);
            promised.objects = promised.objects.saturating_sub(1);
        }
    }

    pub(crate) fn reserve<'a>(&'a mut self, servers: &'a [Box<dyn ServerBackend>]) -> Reservation<'a> {
        Reservation { room: self, servers, added: HashMap::new(), free_bytes: HashMap::new() }
    }
}

/// What a full region of this layout occupies on each server.
pub(crate) fn shares(layout: &Layout, region_bytes: u64) -> impl Iterator<Item = (ServerId, u64)> {
    let view = layout.view();
    (0..layout.stripes().len()).map(move |turn| (layout.stripes()[turn].server, view.object_bytes(turn, region_bytes)))
}

impl Reservation<'_> {
    /// Takes the shares of one region if every server has room for its own; otherwise takes nothing.
    pub(crate) fn take(&mut self, layout: &Layout, region_bytes: u64) -> Result<(), NoRoom> {
        let mut needed_free: HashMap<u64, u64> = HashMap::new();
        for (server, bytes) in shares(layout, region_bytes) {
            let index = usize::from(server.0);
            let before = self.room.promised[index].bytes + self.added.get(&server).map_or(0, |added| added.bytes);
            if let Some(room) = self.room.room_bytes[index]
                && before + bytes > room
            {
                let left_bytes = room.saturating_sub(before);
                return Err(NoRoom::Full(Full { server, asked_bytes: bytes, left_bytes }));
            }
            let file_system = self.room.file_system[index];
            let free = match self.free_bytes.get(&file_system) {
                Some(free) => *free,
                None => {
                    let free = self.servers[index].free_bytes().map_err(NoRoom::Server)?;
                    self.free_bytes.insert(file_system, free);
                    free
                }
            };
            let needed = needed_free.entry(file_system).or_default();
            *needed += bytes;
            if *needed + self.room.kept_free_bytes[index] > free {
                let left_bytes = free.saturating_sub(self.room.kept_free_bytes[index] + *needed - bytes);
                return Err(NoRoom::Full(Full { server, asked_bytes: bytes, left_bytes }));
            }
        }
        for (server, bytes) in shares(layout, region_bytes) {
            let added = self.added.entry(server).or_default();
            added.bytes += bytes;
            added.objects += 1;
        }
        for (file_system, needed) in needed_free {
            *self.free_bytes.entry(file_system).or_default() -= needed;
        }
        Ok(())
    }

    /// Makes the promises of all that was taken; without it nothing has changed.
    pub(crate) fn promise(self) {
        for (server, added) in self.added {
            let promised = &mut self.room.promised[usize::from(server.0)];
            promised.bytes += added.bytes;
            promised.objects += added.objects;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_is_set_aside_for_fragments_is_promised_to_no_region() {
        let text = "version = 1\nid = \"c\"\nstate = \"s\"\nfragment_room = \"32KiB\"\n\
            [[server]]\nname = \"h0\"\nclass = \"hdd\"\nurl = \"file://h\"\n\
            [[server]]\nname = \"s0\"\nclass = \"ssd\"\nurl = \"file://s\"\ncapacity = \"100KiB\"\nreserve = \"4KiB\"\n";
        let cluster = Cluster::parse(text, Path::new("/nowhere/cluster.toml")).unwrap();
        let mut room = Room::new(&cluster);
        assert_eq!((room.room_bytes(ServerId(0)), room.room_bytes(ServerId(1))), (None, Some(64 << 10)));
        assert_eq!(room.kept_free_bytes, [0, 36 << 10]);
        let layout = Layout::new([(ServerId(1), 4096)]).unwrap();
        room.add(&layout, 60 << 10);
        let refused = room.reserve(&[]).take(&layout, 8 << 10);
        let full = Full { server: ServerId(1), asked_bytes: 8 << 10, left_bytes: 4 << 10 };
        assert!(matches!(refused, Err(NoRoom::Full(found)) if found == full));
    }
}
