//! The files that programs of this host have open, and their shared memory.

use super::programs::{Dead, Programs};
use crate::context::Context;
use crate::file_memory::FileMemory;
use crate::guard;
use crate::host_messages::{Known, Snapshot};
use crate::managed::{Inner, Managed, memory_fault, unknown};
use crate::proof::{Facts, Granted};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard};
use stripewise_coherence::host::{HostView, Message, NotTaken, Stage, Then};
use stripewise_layout::{FileId, RegionIndex};
use stripewise_store::manage::is_open;
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::control::MAX_REGIONS;
use stripewise_store::shared::marking::Motion;

/// All of them.
#[derive(Default)]
pub(super) struct HostFiles {
    by_id: Mutex<HashMap<FileId, Arc<HostFile>>>,
    removals: AtomicU64,
}

impl HostFiles {
    /// The file, though it may not be open yet.
    pub(super) fn entry(&self, file: FileId) -> Arc<HostFile> {
        Arc::clone(guard(&self.by_id).entry(file).or_default())
    }

    pub(super) fn find(&self, file: FileId) -> Option<Arc<HostFile>> {
        guard(&self.by_id).get(&file).cloned()
    }

    /// Those that are open.
    pub(super) fn open(&self) -> Vec<Arc<Managed>> {
        let all: Vec<_> = guard(&self.by_id).values().cloned().collect();
        all.into_iter().filter_map(|found| found.managed()).collect()
    }

    /// How many programs here have open.
    pub(super) fn open_count(&self) -> u64 {
        self.open().len() as u64
    }

    /// The file's users are no more: whoever looks for it finds another entry.
    pub(super) fn remove(&self, file: FileId, users: &mut Users) {
        users.are_over = true;
        self.removals.fetch_add(1, SeqCst);
        guard(&self.by_id).remove(&file);
    }

    /// How many times a file was closed here for good.
    pub(super) fn removals(&self) -> u64 {
        self.removals.load(SeqCst)
    }
}

/// A file of this host. The lock of its users is held while the master is asked to open or close it; that of its memory never is.
#[derive(Default)]
pub(super) struct HostFile {
    users: Mutex<Users>,
    memory: Mutex<HostMemory>,
}

/// Connections that have the file open, and for what.
#[derive(Default)]
pub(super) struct Users {
    connections: HashMap<u64, Granted>,
    /// The one of them that holds the file for itself, to move it in or out of management. The master knows only that one of this host does.
    holder: Option<u64>,
    /// Its stub.
    stub: Option<OwnedFd>,
    /// The master was told that the file is closed here, and its memory is gone.
    are_over: bool,
}

impl Users {
    pub(super) fn add(&mut self, connection: u64, granted: Granted) {
        self.connections.entry(connection).or_default().add(granted);
    }

    /// Keeps the first stub that is shown.
    pub(super) fn watch(&mut self, stub: impl FnOnce() -> Option<OwnedFd>) {
        if self.stub.is_none() {
            self.stub = stub();
        }
    }

    /// Whether the file has no name any more and a process of this host has its stub open.
    pub(super) fn is_open_without_name(&self) -> bool {
        let Some(stub) = &self.stub else { return false };
        Facts::of(stub).is_ok_and(|facts| facts.links == 0) && is_open(stub.as_fd())
    }

    pub(super) fn remove(&mut self, connection: u64) {
        self.connections.remove(&connection);
        self.is_held_by(connection, false);
    }

    /// The connection holds the file for itself, or does not any more.
    pub(super) fn is_held_by(&mut self, connection: u64, is_held: bool) {
        match is_held {
            true => self.holder = Some(connection),
            false if self.holder == Some(connection) => self.holder = None,
            false => {}
        }
    }

    /// Refuses what another connection than the holder's wants.
    pub(super) fn refuse_if_held(&self, connection: u64, file: FileId) -> Result<(), Refusal> {
        match self.holder {
            Some(holder) if holder != connection => {
                Err(Refusal::Held { file, holder: "a command of this host that moves it".to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Whether another connection uses the file.
    pub(super) fn has_others(&self, connection: u64) -> bool {
        self.connections.keys().any(|other| *other != connection)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }
}

/// What is shown to programs, and what the master has told of it.
#[derive(Default)]
pub(super) struct HostMemory {
    programs: Option<Programs>,
    pub(super) heard: HostView,
    /// Of moves that this host takes part in.
    pub(super) dead: BTreeMap<RegionIndex, Dead>,
}

impl HostFile {
    /// `None`: the file was closed here meanwhile, and is to be looked for again.
    pub(super) fn users(&self) -> Option<MutexGuard<'_, Users>> {
        Some(guard(&self.users)).filter(|users| !users.are_over)
    }

    pub(super) fn memory(&self) -> MutexGuard<'_, HostMemory> {
        guard(&self.memory)
    }

    pub(super) fn managed(&self) -> Option<Arc<Managed>> {
        guard(&self.memory).managed()
    }

    /// What this host knows of the size.
    pub(super) fn known(&self) -> Option<Known> {
        let memory = guard(&self.memory);
        Some(known_of(&*memory.managed()?))
    }

    /// Nobody begins I/O from here on. The file, if it is open here and there is anything to wait for.
    pub(super) fn shut(&self, turn: u64) -> Option<Arc<Managed>> {
        let mut memory = guard(&self.memory);
        let HostMemory { programs, heard, .. } = &mut *memory;
        heard.stop(programs.as_ref(), turn).then(|| memory.managed()).flatten()
    }

    /// I/O goes on, on a file that is so long now.
    pub(super) fn open(&self, turn: u64, known: Known) {
        let mut memory = guard(&self.memory);
        let HostMemory { programs, heard, .. } = &mut *memory;
        heard.resume(programs.as_ref(), turn, known);
    }

    /// Shows what the master answered; the memory is made if there is none. False: the file was truncated since, or a region of it recalled.
    pub(super) fn show(
        &self,
        context: &Arc<Context>,
        files: &FileMemory,
        snapshot: &Snapshot,
    ) -> Result<bool, Refusal> {
        let mut memory = guard(&self.memory);
        if !memory.heard.is_news(&snapshot.news) {
            return Ok(false);
        }
        let is_new = memory.programs.is_none();
        let HostMemory { programs, heard, dead } = &mut *memory;
        if programs.is_none() {
            *programs = Some(memory_of(context, files, snapshot)?);
        }
        let Some(programs) = programs else { return Ok(false) };
        let forgotten = programs.managed().slots.forgotten();
        heard.take_news(programs, is_new, &snapshot.news);
        if is_new {
            *dead = heard.active().map(|(region, turn)| (region, Dead::of(turn, forgotten))).collect();
        }
        programs.show(snapshot, |region| motion_of(heard, region))?;
        Ok(true)
    }
}

impl HostMemory {
    pub(super) fn take_step(&mut self, message: &Message) -> Result<Then, NotTaken> {
        self.heard.take_step(self.programs.as_ref(), message)
    }

    pub(super) fn managed(&self) -> Option<Arc<Managed>> {
        self.programs.as_ref().map(|programs| Arc::clone(programs.managed()))
    }
}

/// What this host knows of the size. Under the lock of the file's memory: the master's word changes both.
pub(super) fn known_of(managed: &Managed) -> Known {
    Known { size_bytes: managed.extent.size_bytes(), truncations: managed.extent.truncations() }
}

/// In which a word of the region is to be shown.
fn motion_of(heard: &HostView, region: RegionIndex) -> Motion {
    match heard.motion(region) {
        None | Some((Stage::Over, _)) => Motion::Still,
        Some((Stage::Moving, slot)) => Motion::Moving(slot),
        Some((Stage::Sealed, slot)) => Motion::Sealed(slot),
    }
}

/// The file's shared memory: what programs here are using, or new. Moves that are under way have space for their marks there.
fn memory_of(context: &Arc<Context>, files: &FileMemory, snapshot: &Snapshot) -> Result<Programs, Refusal> {
    let file = snapshot.file;
    let mut record = context.table().file(file)?.ok_or_else(|| unknown(file))?;
    let placement = context.table().placement(file)?.ok_or_else(|| unknown(file))?;
    let regions: BTreeMap<_, _> = context.table().regions(file)?.into_iter().collect();
    let (memory, regions_end) = match files.adopt(file, &mut record, &regions)? {
        Some(memory) => (memory, MAX_REGIONS),
        None => {
            record.size_bytes = snapshot.news.size_bytes;
            let count = regions.keys().next_back().map_or(0, |region| region.0 + 1);
            (files.build(file, &record, count)?.0, 0)
        }
    };
    let managed = Managed::new(file, memory, Inner::new(record, placement));
    managed.control.notices().set_shared(true);
    // What programs were told under another master, or by a former agent of this host, may be so no longer: whoever needs a region asks.
    (0..regions_end).for_each(|region| managed.control.regions().retract(RegionIndex(region)));
    managed.control.regions().let_writers_go_on();
    // A truncation that this host was carrying out as master is the next one's now.
    managed.control.set_truncating(None);
    // Only the master can say that anything is durable.
    managed.control.set_durable_size_bytes(None);
    managed.truncations.store(snapshot.news.truncations, SeqCst);
    for (_, part) in &snapshot.news.moves {
        managed.extent.reserve_marks(part.slot).map_err(memory_fault(file))?;
        let _ = managed.extent.marks(part.slot).take();
    }
    Ok(Programs::new(managed, regions_end))
}
