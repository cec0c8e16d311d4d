//! A loaded file: its record, its shared memory, and what is under way on it.

mod active_move;
mod fragments;

pub(crate) use active_move::{AbortReason, ActiveMove};
pub(crate) use fragments::{
    FileFragments, HINTS, LogMemory, Orphans, Quiet, TABLE, Work, drop_entry, log_object, take_from_the_dead,
};

use crate::guard;
use crate::proof::Facts;
use crate::rmt::{FileRecord, LogRecord, RegionRecord, ReplicaRecord};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use stripewise_layout::{FileId, Generation, Layout, Placement, RegionGeometry, RegionIndex, ServerId};
use stripewise_store::manage::is_open;
use stripewise_store::protocol::{FileStatus, Refusal, WantedReplicas, state_full};
use stripewise_store::server::Ownership;
use stripewise_store::shared::control::{ControlBlock, ControlError};
use stripewise_store::shared::extent::Extent;
use stripewise_store::shared::map;
use stripewise_store::shared::slots::Slots;
use stripewise_store::state::StateError;

/// A loaded file.
pub(crate) struct Managed {
    pub(crate) file: FileId,
    pub(crate) control: ControlBlock,
    pub(crate) extent: Extent,
    pub(crate) slots: Slots,
    pub(crate) fragments: FileFragments,
    /// The gate stays shut although nobody is at work on the file: a server may yet cut it.
    pub(crate) stays_shut: AtomicBool,
    /// It is not known what the table says of a cut, so that whoever is master next might do it: the gate stays shut.
    pub(crate) is_truncation_unknown: AtomicBool,
    /// Of a file that hosts share: raised by every cut, so that sizes from before it are told from later ones.
    pub(crate) truncations: AtomicU64,
    /// Of such a file: raised whenever a region is recalled from hosts, so that what they were told before is told from what they are told later.
    pub(crate) recalls: AtomicU64,
    /// Of such a file: when its objects were asked last how long it is. See [`crate::sizes`].
    pub(crate) sizes_as_of: AtomicU64,
    /// Servers that may hold anything of the file, if this broker made it; `None`: any may.
    reached: Mutex<Option<BTreeSet<ServerId>>>,
    pub(crate) inner: Mutex<Inner>,
}

impl Managed {
    pub(crate) fn new(file: FileId, (control, extent, slots): (ControlBlock, Extent, Slots), inner: Inner) -> Self {
        let (fragments, stays_shut) = (FileFragments::default(), AtomicBool::new(false));
        let is_truncation_unknown = AtomicBool::new(false);
        let (reached, inner) = (Mutex::new(None), Mutex::new(inner));
        let (truncations, recalls) = (AtomicU64::new(0), AtomicU64::new(0));
        let sizes_as_of = AtomicU64::new(0);
        Self {
            file,
            control,
            extent,
            slots,
            fragments,
            stays_shut,
            is_truncation_unknown,
            truncations,
            recalls,
            sizes_as_of,
            reached,
            inner,
        }
    }

    /// Cuts and recalls are numbered from here on, cuts from the last one if this master has cut the file before: a size that hosts know since then is not older.
    pub(crate) fn numbered_from(self, first: u64) -> Self {
        let last = guard(&self.inner).record.truncations;
        self.truncations.store(first.max(last), SeqCst);
        self.recalls.store(first, SeqCst);
        self
    }

    /// The size of this host's memory is as of the last truncation, also for a master that comes later.
    pub(crate) fn note_truncations(&self) {
        self.extent.note_truncations(self.truncations.load(SeqCst));
    }

    /// Another host knows of this size, which it learned after cut number `truncations`.
    pub(crate) fn raise_to(&self, size_bytes: u64, truncations: u64) {
        // Cuts hold the lock.
        let _inner = guard(&self.inner);
        if truncations >= self.truncations.load(SeqCst) {
            self.extent.extend_to(size_bytes);
        }
    }

    /// A file of which no server has heard yet.
    pub(crate) fn unheard_of(self) -> Self {
        *guard(&self.reached) = Some(BTreeSet::new());
        self
    }

    /// To be called before these servers are asked to hold anything of the file.
    pub(crate) fn reach(&self, servers: impl IntoIterator<Item = ServerId>) {
        if let Some(reached) = &mut *guard(&self.reached) {
            reached.extend(servers);
        }
    }

    /// Servers that may hold anything of the file; `None`: any may.
    pub(crate) fn reached(&self) -> Option<BTreeSet<ServerId>> {
        guard(&self.reached).clone()
    }

    /// By shared memory alone.
    pub(crate) fn status(&self) -> FileStatus {
        let size_bytes = self.extent.size_bytes();
        let blocks_512 = self.control.regions().placed_bytes(size_bytes).div_ceil(512);
        FileStatus { size_bytes, blocks_512, modified_ns: self.extent.modified_ns() }
    }

    /// The control block shows where the region lies.
    pub(crate) fn publish(&self, region: RegionIndex, placed: &RegionRecord) -> Result<(), ControlError> {
        let regions = self.control.regions();
        match placed.wide {
            Some(_) => regions.publish_narrow(self.file, region, placed.generation, &placed.layout),
            None => regions.publish(self.file, region, placed.generation, &placed.layout),
        }
    }

    /// The control block shows the replicas that the table has.
    pub(crate) fn show_replicas(&self, inner: &Inner, region: RegionIndex) -> Result<(), ControlError> {
        let numbered = inner.replicas.get(&region).into_iter().flatten();
        let shown = numbered.map(|(number, replica)| (*number, replica.generation, &replica.layout));
        self.control.regions().show_replicas(self.file, region, shown)
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        map::unmap_together([self.control.map_mut(), self.extent.map_mut(), self.slots.map_mut()]);
    }
}

/// What requests on the file change, one at a time.
pub(crate) struct Inner {
    pub(crate) record: FileRecord,
    pub(crate) placement: Placement,
    pub(crate) regions: BTreeMap<RegionIndex, RegionRecord>,
    /// Regions that move, also those whose move was ended and is being cleaned up.
    pub(crate) moving: BTreeMap<RegionIndex, Arc<ActiveMove>>,
    /// Objects that belong to no region, as in the table.
    pub(crate) discards: BTreeMap<(RegionIndex, Generation), Layout>,
    /// Of those, such as are to be freed and are in no queue yet: forgotten replicas, above all.
    pub(crate) forgotten: Vec<(RegionIndex, Generation)>,
    /// By number; each equals its region's place.
    pub(crate) replicas: BTreeMap<RegionIndex, BTreeMap<u8, ReplicaRecord>>,
    pub(crate) wanted: Vec<WantedReplicas>,
    /// Logs of fragments, by their disks.
    pub(crate) logs: BTreeMap<ServerId, LogRecord>,
    /// Why regions lack replicas that they are to have, since the last sync.
    pub(crate) lacking: BTreeMap<RegionIndex, String>,
    /// Taken, one bit each.
    pub(crate) move_slots: u64,
    /// Last generation given out.
    pub(crate) generation: u32,
    /// Servers with new objects whose names are not synced.
    pub(crate) unsynced: BTreeSet<ServerId>,
    /// The stub's inode, held while the file has users: it tells when the last name goes, and its number is not used again.
    pub(crate) stub: Option<OwnedFd>,
    /// Connection that holds the file for itself (import, release).
    pub(crate) holder: Option<u64>,
    /// Connections that have opened the file and not closed it: users before they could register, and beside.
    pub(crate) openers: HashSet<u64>,
    /// Of those, such as may write.
    pub(crate) writers: HashSet<u64>,
    pub(crate) removal: Removal,
    pub(crate) freed: bool,
}

/// How far a file has gone whose last name was removed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Removal {
    /// It has a name or users, as far as is known.
    #[default]
    None,
    /// Nobody can use it any more and its capacity is promised to others, but a power failure may bring the name back. `is_reported`: that
    /// the directory cannot be synced.
    Noted { is_reported: bool },
    /// Its data may go, and the thread that looks at files again frees it.
    Left,
    /// Its data is being freed.
    Freeing,
}

impl Inner {
    /// Of a file without regions and users.
    pub(crate) fn new(record: FileRecord, placement: Placement) -> Self {
        Self {
            record,
            placement,
            regions: BTreeMap::new(),
            moving: BTreeMap::new(),
            discards: BTreeMap::new(),
            forgotten: Vec::new(),
            replicas: BTreeMap::new(),
            wanted: Vec::new(),
            logs: BTreeMap::new(),
            lacking: BTreeMap::new(),
            move_slots: 0,
            generation: 0,
            unsynced: BTreeSet::new(),
            stub: None,
            holder: None,
            openers: HashSet::new(),
            writers: HashSet::new(),
            removal: Removal::None,
            freed: false,
        }
    }

    pub(crate) fn geometry(&self) -> RegionGeometry {
        RegionGeometry::new(self.record.region_bytes)
    }

    pub(crate) fn ownership(&self) -> Ownership {
        Ownership { mode: self.record.mode, uid: self.record.uid, gid: self.record.gid }
    }

    /// In the order of their numbers.
    pub(crate) fn replicas_of(&self, region: RegionIndex) -> impl Iterator<Item = &ReplicaRecord> {
        self.replicas.get(&region).into_iter().flat_map(BTreeMap::values)
    }

    /// Layouts of all objects of the file, whatever they are.
    pub(crate) fn layouts(&self) -> impl Iterator<Item = &Layout> {
        let replicas = self.replicas.values().flat_map(BTreeMap::values).map(|replica| &replica.layout);
        self.regions.values().map(|placed| &placed.layout).chain(replicas).chain(self.discards.values())
    }

    /// Layouts of which the servers promise their shares: as [`Self::layouts`], narrow regions with what they may become.
    pub(crate) fn promised(&self) -> impl Iterator<Item = &Layout> {
        let replicas = self.replicas.values().flat_map(BTreeMap::values).map(|replica| &replica.layout);
        self.regions.values().map(RegionRecord::promised).chain(replicas).chain(self.discards.values())
    }

    /// The generation up to which the names of all placed objects are durable.
    pub(crate) fn durable_names(&self) -> Generation {
        let synced = self.record.generations_synced;
        let widened = self.regions.values().filter(|placed| placed.has_new_names).map(|placed| placed.generation.0);
        Generation(widened.fold(synced, |synced, generation| synced.min(generation.saturating_sub(1))))
    }

    /// Whether the stub's last name is gone; `None` if the broker does not know the stub.
    pub(crate) fn is_nameless(&self) -> Option<bool> {
        self.stub.as_ref().and_then(|stub| Facts::of(stub).ok()).map(|facts| facts.links == 0)
    }

    /// Whether a process of this host has the stub open, whether or not it has used the file since. False if the broker does not know the stub.
    pub(crate) fn is_stub_open(&self) -> bool {
        self.stub.as_ref().is_some_and(|stub| is_open(stub.as_fd()))
    }
}

/// The three files of a managed file's shared memory, as descriptors.
pub(crate) struct Memory {
    pub(crate) control: OwnedFd,
    pub(crate) extent: OwnedFd,
    pub(crate) slots: OwnedFd,
}

pub(crate) fn unknown(file: FileId) -> Refusal {
    Refusal::UnknownFile { file }
}

pub(crate) fn memory_fault(file: FileId) -> impl Fn(rustix::io::Errno) -> Refusal {
    move |errno| match StateError::is_full(errno) {
        true => state_full(&format!("the shared memory of file {file}")),
        false => Refusal::Table { what: format!("the shared memory of file {file} in the state directory: {errno}") },
    }
}
