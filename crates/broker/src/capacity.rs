//! How much capacity the servers have left.
//!
//! A region that is placed is *promised* its full share of each of its servers, the file's last region too, whatever is written
//! later. A server with a capacity takes promises up to capacity minus reserve and what is set aside for fragments, so what a plan
//! puts there never meets a full server. Beside that, a region is only placed where the file system has its share and those two free
//! now; servers on one file system share what it has free. (Promises of before are not held against the free space: without a
//! capacity, files much smaller than their last region would otherwise fill a disk with air. Such a disk can fill up under a program,
//! as it can under ordinary files.)

use crate::guard;
use crate::standing::Standings;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use stripewise_layout::{Cluster, FileId, Layout, ServerId};

/// Promises of one server.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Promised {
    pub(crate) bytes: u64,
    pub(crate) objects: u64,
}

/// The promises of all servers.
pub(crate) struct Capacity {
    /// `None`: no capacity given.
    total_bytes: Vec<Option<u64>>,
    /// Of what the file systems have free: reserves, and what is set aside for fragments.
    kept_free_bytes: Vec<u64>,
    promises: Mutex<Promises>,
}

struct Promises {
    by_server: Vec<Promised>,
    /// Whether there have been replicas since the broker began, which could leave a full server.
    has_replicas: bool,
}

/// Capacity looked at once for one request: promises that are not yet made, over free space as it was. Nobody else is promised anything meanwhile, so no
/// server may be asked.
pub(crate) struct Reservation<'a> {
    capacity: &'a Capacity,
    promises: MutexGuard<'a, Promises>,
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

/// A region that is to move: what it leaves and what it takes.
pub(crate) struct Relocation {
    pub(crate) file: FileId,
    pub(crate) from: Layout,
    pub(crate) to: Arc<Layout>,
    /// Bytes that it holds.
    pub(crate) used_bytes: u64,
}

/// Which server has no space, and how much was asked of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    pub(crate) server: ServerId,
    pub(crate) asked_bytes: u64,
    pub(crate) left_bytes: u64,
}

impl Capacity {
    pub(crate) fn new(cluster: &Cluster) -> Self {
        let promises = Promises { by_server: vec![Promised::default(); cluster.servers.len()], has_replicas: false };
        Self {
            total_bytes: cluster.ids().map(|id| cluster.room_bytes(id)).collect(),
            kept_free_bytes: cluster.ids().map(|id| cluster.kept_free_bytes(id)).collect(),
            promises: Mutex::new(promises),
        }
    }

    /// There are replicas now.
    pub(crate) fn note_replicas(&self) {
        guard(&self.promises).has_replicas = true;
    }

    pub(crate) fn has_replicas(&self) -> bool {
        guard(&self.promises).has_replicas
    }

    /// What each server is promised to hold, in the order of the servers.
    pub(crate) fn promised(&self) -> Vec<Promised> {
        guard(&self.promises).by_server.clone()
    }

    /// What the server takes promises for at most, in bytes; `None`: no capacity was given.
    pub(crate) fn total_bytes(&self, server: ServerId) -> Option<u64> {
        self.total_bytes[usize::from(server.0)]
    }

    /// Counts a region that is placed already.
    pub(crate) fn add(&self, layout: &Layout, region_bytes: u64) {
        let mut promises = guard(&self.promises);
        for (server, bytes) in shares(layout, region_bytes) {
            let promised = &mut promises.by_server[usize::from(server.0)];
            promised.bytes += bytes;
            promised.objects += 1;
        }
    }

    /// Takes back the promises of regions that were freed.
    pub(crate) fn give_back<'l>(&self, layouts: impl IntoIterator<Item = &'l Layout>, region_bytes: u64) {
        let mut promises = guard(&self.promises);
        for (server, bytes) in layouts.into_iter().flat_map(|layout| shares(layout, region_bytes)) {
            let promised = &mut promises.by_server[usize::from(server.0)];
            promised.bytes = promised.bytes.saturating_sub(bytes);
            promised.objects = promised.objects.saturating_sub(1);
        }
    }

    /// Whether servers hold no more than they may when regions of these sizes have moved and their old places are free. All servers of their layouts
    /// must have been asked.
    pub(crate) fn has_space_after(&self, standings: &Standings<'_>, moves: &[(&Relocation, u64)]) -> bool {
        let mut promised: HashMap<ServerId, i128> = HashMap::new();
        let mut written: HashMap<Store, i128> = HashMap::new();
        let promises = guard(&self.promises);
        let sides = moves.iter().flat_map(|(one, bytes)| [(one, *bytes, &one.from, -1), (one, *bytes, &*one.to, 1)]);
        for (one, region_bytes, layout, sign) in sides {
            for (server, bytes) in shares(layout, region_bytes) {
                *promised.entry(server).or_default() += sign * i128::from(bytes);
            }
            for (server, bytes) in shares(layout, one.used_bytes) {
                *written.entry(store_of(standings, server)).or_default() += sign * i128::from(bytes);
            }
        }
        promised.iter().all(|(server, change)| {
            let index = usize::from(server.0);
            let after = i128::from(promises.by_server[index].bytes) + change;
            let free = standings.of(*server).map_or(0, |standing| standing.free_bytes);
            self.total_bytes[index].is_none_or(|total| *change <= 0 || after <= i128::from(total))
                && written[&store_of(standings, *server)]
                    <= i128::from(free.saturating_sub(self.kept_free_bytes[index]))
        })
    }

    pub(crate) fn reserve<'a>(&'a self, standings: &'a Standings<'a>) -> Reservation<'a> {
        let (added, taken_bytes) = (HashMap::new(), HashMap::new());
        Reservation { capacity: self, promises: guard(&self.promises), standings, added, taken_bytes }
    }
}

fn store_of(standings: &Standings<'_>, server: ServerId) -> Store {
    let file_system = standings.of(server).and_then(|standing| standing.file_system);
    file_system.map_or(Store::Server(server), Store::FileSystem)
}

/// What a full region of this layout occupies on each server.
pub(crate) fn shares(layout: &Layout, region_bytes: u64) -> impl Iterator<Item = (ServerId, u64)> {
    let view = layout.view();
    (0..layout.stripes().len()).map(move |turn| (layout.stripes()[turn].server, view.object_bytes(turn, region_bytes)))
}

impl Reservation<'_> {
    /// Takes the shares of one region if every server has space for its own; otherwise takes nothing. A server that was not asked, or cannot be used, has none.
    pub(crate) fn take(&mut self, layout: &Layout, region_bytes: u64) -> Result<(), Full> {
        self.take_where(layout, region_bytes, |_| true)
    }

    /// As [`Self::take`], of a region that is to begin on its first server: only that one is looked at for free space.
    pub(crate) fn take_for_first(&mut self, layout: &Layout, region_bytes: u64) -> Result<(), Full> {
        let first = layout.stripes().first().map(|stripe| stripe.server);
        self.take_where(layout, region_bytes, |server| Some(server) == first)
    }

    fn take_where(
        &mut self,
        layout: &Layout,
        region_bytes: u64,
        needs_space_now: impl Fn(ServerId) -> bool,
    ) -> Result<(), Full> {
        let mut needed: HashMap<Store, u64> = HashMap::new();
        for (server, asked_bytes) in shares(layout, region_bytes) {
            let full = |left_bytes| Full { server, asked_bytes, left_bytes };
            let index = usize::from(server.0);
            let before = self.promises.by_server[index].bytes + self.added.get(&server).map_or(0, |added| added.bytes);
            if let Some(total) = self.capacity.total_bytes[index]
                && before + asked_bytes > total
            {
                return Err(full(total.saturating_sub(before)));
            }
            if !needs_space_now(server) {
                continue;
            }
            let Some(standing) = self.standings.of(server) else { return Err(full(0)) };
            let store = standing.file_system.map_or(Store::Server(server), Store::FileSystem);
            let needed = needed.entry(store).or_insert_with(|| self.taken_bytes.get(&store).copied().unwrap_or(0));
            let left_bytes = standing.free_bytes.saturating_sub(self.capacity.kept_free_bytes[index] + *needed);
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
    pub(crate) fn promise(mut self) {
        for (server, added) in self.added {
            let promised = &mut self.promises.by_server[usize::from(server.0)];
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
        let capacity = Capacity::new(&cluster);
        assert_eq!((capacity.total_bytes(ServerId(0)), capacity.total_bytes(ServerId(1))), (None, Some(64 << 10)));
        assert_eq!(capacity.kept_free_bytes, [0, 36 << 10]);
        let layout = Layout::new([(ServerId(1), 4096)]).unwrap();
        capacity.add(&layout, 60 << 10);
        let standings = Standings::new(&[]);
        let refused = capacity.reserve(&standings).take(&layout, 8 << 10);
        let full = Full { server: ServerId(1), asked_bytes: 8 << 10, left_bytes: 4 << 10 };
        assert_eq!(refused, Err(full));
        capacity.give_back([&layout], 60 << 10);
        assert_eq!(capacity.promised()[1], Promised::default());
    }
}
