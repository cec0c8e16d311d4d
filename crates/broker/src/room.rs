//! How much room the servers have.
//!
//! A region that is placed is *promised* its full share of each of its servers, the file's last region too, whatever is written
//! later. A server with a capacity takes promises up to capacity minus reserve and what is set aside for fragments, so what a plan
//! puts there never meets a full server. Beside that, a region is only placed where the file system has its share and those two free
//! now; servers on one file system share what it has free. (Promises of before are not held against the free space: without a
//! capacity, files much smaller than their last region would otherwise fill a disk with air. Such a disk can fill up under a program,
//! as it can under ordinary files.)

use super::standing::Standings;
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
    /// Whether there have been replicas since the broker began, which could leave a full server.
    has_replicas: bool,
}

/// Room looked at once for one request: promises that are not yet made, over free space as it was.
pub(super) struct Reservation<'a> {
    room: &'a mut Room,
    standings: &'a Standings<'a>,
    added: HashMap<ServerId, Promised>,
    taken_bytes: HashMap<Store, u64>,
}

/// What free space is shared by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Store {
    FileSystem(u64),
    Server(ServerId),
}

/// Which server has no room, and how much was asked of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    pub(crate) server: ServerId,
    pub(crate) asked_bytes: u64,
    pub(crate) left_bytes: u64,
}

impl Room {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let servers = &cluster.servers;
        Self {
            promised: vec![Promised::default(); servers.len()],
            room_bytes: cluster.ids().map(|id| cluster.room_bytes(id)).collect(),
            kept_free_bytes: cluster.ids().map(|id| cluster.kept_free_bytes(id)).collect(),
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

    pub(super) fn reserve<'a>(&'a mut self, standings: &'a Standings<'a>) -> Reservation<'a> {
        Reservation { room: self, standings, added: HashMap::new(), taken_bytes: HashMap::new() }
    }
}

/// What a full region of this layout occupies on each server.
pub(crate) fn shares(layout: &Layout, region_bytes: u64) -> impl Iterator<Item = (ServerId, u64)> {
    let view = layout.view();
    (0..layout.stripes().len()).map(move |turn| (layout.stripes()[turn].server, view.object_bytes(turn, region_bytes)))
}

impl Reservation<'_> {
    /// Takes the shares of one region if every server has room for its own; otherwise takes nothing. A server that was not asked, or cannot be used, has none.
    pub(super) fn take(&mut self, layout: &Layout, region_bytes: u64) -> Result<(), Full> {
        let mut needed: HashMap<Store, u64> = HashMap::new();
        for (server, asked_bytes) in shares(layout, region_bytes) {
            let full = |left_bytes| Full { server, asked_bytes, left_bytes };
            let index = usize::from(server.0);
            let before = self.room.promised[index].bytes + self.added.get(&server).map_or(0, |added| added.bytes);
            if let Some(room) = self.room.room_bytes[index]
                && before + asked_bytes > room
            {
                return Err(full(room.saturating_sub(before)));
            }
            let Some(standing) = self.standings.of(server) else { return Err(full(0)) };
            let store = standing.file_system.map_or(Store::Server(server), Store::FileSystem);
            let needed = needed.entry(store).or_insert_with(|| self.taken_bytes.get(&store).copied().unwrap_or(0));
            let left_bytes = standing.free_bytes.saturating_sub(self.room.kept_free_bytes[index] + *needed);
            if asked_bytes > left_bytes {
                return Err(full(left_bytes));
            }
            *needed += asked_bytes;
        }
        for (server, bytes) in shares(layout, region_bytes) {
            let added = self.added.entry(server).or_default();
            added.bytes += bytes;
            added.objects += 1;
        }
        self.taken_bytes.extend(needed);
        Ok(())
    }

    /// Makes the promises of all that was taken; without it nothing has changed.
    pub(super) fn promise(self) {
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
        let standings = Standings::new(&[]);
        let refused = room.reserve(&standings).take(&layout, 8 << 10);
        let full = Full { server: ServerId(1), asked_bytes: 8 << 10, left_bytes: 4 << 10 };
        assert_eq!(refused, Err(full));
    }
}
