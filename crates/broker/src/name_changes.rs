//! Calls that change names of managed files: noted before they are made, settled by what became of them.
//!
//! A removal or a rename over a managed file frees its data, and nothing but the note proves that it did: a stub that is gone, or has another
//! file in its place, may as well have been moved by a program that is not redirected. A note holds its names until the call has returned, so
//! that what stands there is what the note says. When the caller dies, or its broker, the note is settled by looking.

use crate::ancestors::Ancestors;
use crate::aside::take_away;
use crate::managed::Managed;
use crate::proof::{Facts, Proof, path_of};
use crate::rmt::{Caller, Changes, FileRecord, FileState, Inode, Mover, NameChange, Place, Victim};
use crate::service::Connection;
use crate::{Core, guard};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use stripewise_layout::FileId;
use stripewise_store::entry::open_directory;
use stripewise_store::protocol::{NameCall, Refusal};
use stripewise_store::shared::processes::{Incarnation, ProcessSlot};

/// That one connection may have: a thread has one at a time.
const MAX_OPEN_CHANGES: usize = 256;

/// Changes that are not settled, by their numbers.
pub(crate) type NameChanges = HashMap<u64, Open>;

pub(crate) struct Open {
    change: NameChange,
    /// Of the caller, as long as it is connected.
    connection: Option<u64>,
    /// The victim's stub, by which its last name is seen to go.
    victim: Option<OwnedFd>,
    /// Those of the names, as long as the broker lives that noted the change: they may be renamed meanwhile.
    directories: Option<Arc<Directories>>,
    /// What the caller said of the call, where it could not be settled at once.
    returned: Option<bool>,
    /// Nothing tells whether the call was made: a person decides. It holds no name.
    undecided: bool,
}

struct Directories {
    target: OwnedFd,
    source: Option<OwnedFd>,
}

/// What a request says of the names.
pub(crate) struct Asked {
    pub(crate) call: NameCall,
    pub(crate) source: Option<Vec<u8>>,
    pub(crate) target: Vec<u8>,
    pub(crate) victim: Option<FileId>,
    pub(crate) mover: Option<FileId>,
}

/// Whether a file's names are in flux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flux {
    None,
    /// A call is under way.
    Changing,
    /// A caller died in a removal, and nothing tells whether it was made.
    Undecided,
}

/// What became of the victim.
enum Fate {
    Lives,
    Removed,
    Undecided,
}

fn place(proof: &Proof, name: Vec<u8>) -> Result<Place, Refusal> {
    if name.is_empty() || name.contains(&b'/') {
        return Err(Refusal::Invalid { what: format!("{:?} is no name", String::from_utf8_lossy(&name)) });
    }
    let path = path_in(proof.path().unwrap_or_default(), &name);
    Ok(Place { path, directory: proof.facts.inode, name })
}

fn path_in(directory: String, name: &[u8]) -> Vec<u8> {
    let mut path = directory.into_bytes();
    if path.last() != Some(&b'/') {
        path.push(b'/');
    }
    path.extend(name);
    path
}

fn shown(place: &Place) -> String {
    String::from_utf8_lossy(&place.path).into_owned()
}

fn places(change: &NameChange) -> impl Iterator<Item = &Place> {
    std::iter::once(&change.target).chain(&change.source)
}

fn is_same(a: &Place, b: &Place) -> bool {
    a.directory.is(&b.directory) && a.name == b.name
}

fn standing(directory: &OwnedFd, place: &Place) -> Result<Option<Facts>, Refusal> {
    Facts::at_name(directory, OsStr::from_bytes(&place.name))
        .map_err(|errno| Refusal::Invalid { what: format!("{}: cannot look at it: {errno}", shown(place)) })
}

/// The place's directory, if it still stands at its path.
fn directory_of(place: &Place) -> Option<OwnedFd> {
    let parent = Path::new(OsStr::from_bytes(&place.path)).parent()?;
    let directory = open_directory(parent).ok()?;
    Facts::of(&directory).ok().filter(|facts| facts.inode.is(&place.directory)).map(|_| directory)
}

impl Core {
    pub(crate) fn begin_name_change(
        &self,
        connection: &Connection,
        number: u64,
        asked: Asked,
        proof: &mut dyn FnMut() -> Result<Proof, Refusal>,
    ) -> Result<(), Refusal> {
        let directory = proof()?;
        let target = place(&directory, asked.target)?;
        connection.may_change(&directory.descriptor, &target)?;
        let mut directories = Directories { target: directory.descriptor, source: None };
        let mut source = None;
        if let Some(name) = asked.source {
            let directory = proof()?;
            let place = place(&directory, name)?;
            connection.may_change(&directory.descriptor, &place)?;
            (source, directories.source) = (Some(place), Some(directory.descriptor));
        }
        let (mut victim, mut held) = (None, None);
        if let Some(file) = asked.victim {
            let stub = proof()?;
            if self.is_stub_of(file, &stub)? {
                victim = Some(Victim { file, stub: stub.facts.inode, links: stub.facts.links });
                held = Some(stub.descriptor);
            }
        }
        let mut mover = None;
        if source.is_some() {
            let moved = proof()?;
            let file = match asked.mover {
                Some(file) if self.is_stub_of(file, &moved)? => Some(file),
                _ => None,
            };
            let new = if moved.facts.links == 0 { Mover::nameless } else { Mover::new };
            mover = Some(new(moved.facts.inode, file));
        }
        if (asked.call == NameCall::Remove) == source.is_some() {
            return Err(Refusal::Invalid { what: "a removal has no source, and other changes have one".to_owned() });
        }
        let caller = guard(&connection.client)
            .claim
            .map(|(slot, incarnation)| Caller { slot: slot.0, incarnation: incarnation.0 });
        let change = NameChange { call: asked.call, caller, boot: self.context.boot(), target, source, victim, mover };
        let directories = Arc::new(directories);
        let held = Open {
            change: change.clone(),
            connection: Some(connection.id),
            victim: held,
            directories: Some(Arc::clone(&directories)),
            returned: None,
            undecided: false,
        };
        self.hold_names(number, held)?;
        let noted = self.check_names(&change, &directories).and_then(|()| self.note_name_change(number, &change));
        if noted.is_err() {
            guard(&self.name_changes).remove(&number);
        }
        noted
    }

    /// Copies of stubs, and stubs of files that are no more, are files as any other.
    fn is_stub_of(&self, file: FileId, proof: &Proof) -> Result<bool, Refusal> {
        match self.identify(file, proof) {
            Ok(_) => Ok(true),
            Err(Refusal::CopiedStub { .. } | Refusal::UnknownFile { .. }) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// From here on nobody else changes these names, and `check` leaves the files alone.
    fn hold_names(&self, number: u64, asked: Open) -> Result<(), Refusal> {
        let change = &asked.change;
        let in_use = |open: &NameChanges| {
            let others = || open.iter().filter(|(other, held)| **other != number && !held.undecided);
            if others().filter(|(_, held)| held.connection == asked.connection).count() >= MAX_OPEN_CHANGES {
                return Some(change.target.clone());
            }
            let held: Vec<&Place> = others().flat_map(|(_, held)| places(&held.change)).collect();
            places(change).find(|place| held.iter().any(|held| is_same(held, place))).cloned()
        };
        if in_use(&guard(&self.name_changes)).is_some() {
            // Perhaps by a process that died.
            self.settle_orphans();
        }
        let mut open = guard(&self.name_changes);
        if let Some(place) = in_use(&open) {
            return Err(Refusal::NameInUse { path: shown(&place) });
        }
        let files: Vec<FileId> = change.files().collect();
        open.insert(number, asked);
        drop(open);
        // A check that has one of the files in hand goes to its end first; a later one sees the change.
        for file in files {
            if let Some(managed) = self.if_loaded(file) {
                drop(guard(&managed.inner));
            }
        }
        Ok(())
    }

    /// What stands at the names must be what the client says.
    fn check_names(&self, change: &NameChange, directories: &Directories) -> Result<(), Refusal> {
        let changed = |place: &Place| Refusal::NameChanged { path: shown(place) };
        let found = standing(&directories.target, &change.target)?;
        match (&change.victim, found) {
            (Some(victim), found) if !found.is_some_and(|facts| victim.stub.is(&facts.inode)) => {
                return Err(changed(&change.target));
            }
            (None, Some(facts)) if self.stub_of(facts.inode)?.is_some() => return Err(changed(&change.target)),
            _ => {}
        }
        if let (Some(source), Some(directory), Some(mover)) = (&change.source, &directories.source, &change.mover) {
            let is_right = match standing(directory, source)? {
                Some(facts) => mover.inode.is(&facts.inode) && !mover.is_nameless(),
                None => mover.is_nameless(),
            };
            if !is_right || (mover.file().is_none() && self.stub_of(mover.inode)?.is_some()) {
                return Err(changed(source));
            }
        }
        Ok(())
    }

    /// The file whose stub has this inode.
    pub(crate) fn stub_of(&self, inode: Inode) -> Result<Option<FileId>, Refusal> {
        let Some(file) = self.context.table().file_of(inode)? else { return Ok(None) };
        Ok(self.context.table().file(file)?.filter(|record| record.stub.is(&inode)).map(|_| file))
    }

    fn note_name_change(&self, number: u64, change: &NameChange) -> Result<(), Refusal> {
        if change.is_durable() {
            let mut changes = Changes::default();
            changes.put_name_change(number, change);
            self.context.step("name change: before the note");
            self.context.table().commit(&changes)?;
            self.context.step("name change: noted");
        }
        Ok(())
    }

    pub(crate) fn end_name_change(&self, number: u64, done: bool, victim: Option<Proof>) -> Result<(), Refusal> {
        self.context.step("name change: made");
        let files: Vec<FileId> = {
            let mut open = guard(&self.name_changes);
            // Settled before, and said again.
            let Some(held) = open.get_mut(&number) else { return Ok(()) };
            held.returned = Some(done);
            if let Some(proof) = victim {
                held.victim = Some(proof.descriptor);
            }
            held.change.files().collect()
        };
        self.settle_name_change(number, Some(done)).inspect_err(|_| {
            if let Some(held) = guard(&self.name_changes).get_mut(&number) {
                held.connection = None;
            }
            files.into_iter().for_each(|file| self.rechecks.recheck(file));
        })
    }

    /// Takes in what became of the call: by the caller's word, by the victim's names, or else by looking.
    fn settle_name_change(&self, number: u64, word: Option<bool>) -> Result<(), Refusal> {
        let (change, handle, directories) = {
            let open = guard(&self.name_changes);
            let Some(held) = open.get(&number) else { return Ok(()) };
            let handle = held.victim.as_ref().and_then(|stub| rustix::io::fcntl_dupfd_cloexec(stub, 0).ok());
            (held.change.clone(), handle, held.directories.clone())
        };
        let watched = handle.as_ref().and_then(|handle| Facts::of(handle).ok());
        // Another file's descriptor proves nothing.
        let facts = watched.filter(|facts| change.victim.is_some_and(|victim| victim.stub.is(&facts.inode)));
        if word != Some(false) {
            self.follow_movers(&change, directories.as_deref())?;
        }
        if word != Some(true)
            && let Some((source, inode)) = change.temporary()
            && let Ok(path) = str::from_utf8(&source.path)
        {
            // Given by the caller, which died before it renamed the file.
            take_away(path, inode)?;
        }
        let fate = match (&change.victim, word, facts) {
            (None, ..) | (_, Some(false), _) => Fate::Lives,
            _ if change.call == NameCall::Exchange => Fate::Lives,
            (_, _, Some(facts)) if facts.links == 0 => Fate::Removed,
            (_, _, Some(_)) => Fate::Lives,
            (Some(victim), _, None) => self.fate_of(&change, *victim)?,
        };
        match fate {
            Fate::Lives => self.forget_name_change(number, &change)?,
            Fate::Removed => self.victim_removed(number, &change, handle)?,
            Fate::Undecided => {
                if let Some(held) = guard(&self.name_changes).get_mut(&number) {
                    held.undecided = true;
                }
            }
        }
        Ok(())
    }

    fn forget_name_change(&self, number: u64, change: &NameChange) -> Result<(), Refusal> {
        if change.is_durable() {
            let mut changes = Changes::default();
            changes.remove_name_change(number);
            self.context.table().commit(&changes)?;
        }
        guard(&self.name_changes).remove(&number);
        Ok(())
    }

    /// The managed files that the call moved stand at their new names, as is seen and not believed: their records follow.
    fn follow_movers(&self, change: &NameChange, directories: Option<&Directories>) -> Result<(), Refusal> {
        let follow = |file: FileId, inode: Inode, place: &Place, directory: Option<&OwnedFd>| -> Result<(), Refusal> {
            let at_its_path = if directory.is_none() { directory_of(place) } else { None };
            let Some(directory) = directory.or(at_its_path.as_ref()) else { return Ok(()) };
            if !standing(directory, place)?.is_some_and(|facts| inode.is(&facts.inode)) {
                return Ok(());
            }
            // The directory may have another name by now.
            let path = match path_of(directory) {
                Some(path) => path_in(path, &place.name),
                None => place.path.clone(),
            };
            let managed = match self.managed(file) {
                Err(Refusal::UnknownFile { .. }) => return Ok(()),
                managed => managed?,
            };
            let mut inner = guard(&managed.inner);
            if let (FileState::Live, false, Ok(path)) = (&inner.record.state, inner.freed, String::from_utf8(path)) {
                let record = Ancestors::of_directory(directory).record(path, &inner.record);
                let mut changes = Changes::default();
                changes.put_file(file, &record);
                self.context.table().commit(&changes)?;
                inner.record = record;
            }
            Ok(())
        };
        if let Some((mover, file)) = change.mover.and_then(|mover| Some((mover, mover.file()?))) {
            follow(file, mover.inode, &change.target, directories.map(|held| &held.target))?;
        }
        if let (NameCall::Exchange, Some(victim), Some(source)) = (change.call, change.victim, &change.source) {
            follow(victim.file, victim.stub, source, directories.and_then(|held| held.source.as_ref()))?;
        }
        Ok(())
    }

    /// What became of the victim of a caller that died, where nobody holds its stub: a rename that was made has left the file that it moved at the
    /// target. Of a removal nothing is left to see, unless the stub is still there.
    fn fate_of(&self, change: &NameChange, victim: Victim) -> Result<Fate, Refusal> {
        let Some(record) = self.context.table().file(victim.file)? else { return Ok(Fate::Lives) };
        if matches!(record.state, FileState::Unlinked) {
            return Ok(Fate::Removed);
        }
        let Some(directory) = directory_of(&change.target) else { return Ok(Fate::Undecided) };
        let found = standing(&directory, &change.target)?;
        let stands = |inode: Inode| found.is_some_and(|facts| inode.is(&facts.inode));
        if stands(victim.stub) || victim.links > 1 || self.search_one(victim.file, &record).found(victim.file).is_some()
        {
            return Ok(Fate::Lives);
        }
        let is_witnessed = change.call == NameCall::Rename && change.mover.is_some_and(|mover| stands(mover.inode));
        Ok(if is_witnessed { Fate::Removed } else { Fate::Undecided })
    }

    /// The victim has lost its last name by a call that was noted: freed when it has no users.
    fn victim_removed(&self, number: u64, change: &NameChange, handle: Option<OwnedFd>) -> Result<(), Refusal> {
        let Some(victim) = change.victim else { return Ok(()) };
        let managed = match self.managed(victim.file) {
            Err(Refusal::UnknownFile { .. }) => return self.forget_name_change(number, change),
            managed => managed?,
        };
        {
            let mut inner = guard(&managed.inner);
            let mut changes = Changes::default();
            changes.remove_name_change(number);
            if inner.freed {
                self.context.table().commit(&changes)?;
            } else {
                let record = FileRecord { state: FileState::Unlinked, ..inner.record.clone() };
                changes.put_file(victim.file, &record);
                self.context.table().commit(&changes)?;
                inner.record = record;
                self.quiescing.end_moves(&managed, &inner, "the file was removed");
                if inner.stub.is_none() {
                    inner.stub = handle;
                }
            }
        }
        guard(&self.name_changes).remove(&number);
        // The name is gone, whatever keeps the data.
        match self.after_close(&managed) {
            Ok(true) => {}
            Ok(false) => self.rechecks.recheck(victim.file),
            Err(refusal) => {
                self.rechecks.recheck(victim.file);
                self.context.note(&format!("file {} cannot be freed yet: {refusal}", victim.file));
            }
        }
        Ok(())
    }

    /// The connection is gone, and perhaps its process.
    pub(crate) fn leave_name_changes(&self, connection: u64) {
        let mut open = guard(&self.name_changes);
        let mut left = open.values_mut().filter(|held| held.connection == Some(connection)).peekable();
        if left.peek().is_none() {
            return;
        }
        left.for_each(|held| held.connection = None);
        drop(open);
        self.settle_orphans();
    }

    /// Settles the changes of callers that are dead. Those of callers that live but are not connected are looked at again later.
    pub(crate) fn settle_orphans(&self) {
        let orphans: Vec<(u64, NameChange, Option<bool>)> = {
            let open = guard(&self.name_changes);
            let left = open.iter().filter(|(_, held)| held.connection.is_none() && !held.undecided);
            left.map(|(number, held)| (*number, held.change.clone(), held.returned)).collect()
        };
        for (number, change, returned) in orphans {
            let is_awaited = returned.is_none()
                && change.boot == self.context.boot()
                && change.caller.is_some_and(|caller| {
                    self.context.is_alive(ProcessSlot(caller.slot), Incarnation(caller.incarnation))
                });
            if is_awaited && change.is_durable() {
                change.files().for_each(|file| self.rechecks.recheck(file));
                continue;
            }
            if let Err(refusal) = self.settle_name_change(number, returned) {
                self.context.note(&format!("the change of {} is not settled yet: {refusal}", shown(&change.target)));
                change.files().for_each(|file| self.rechecks.recheck(file));
            }
        }
    }

    /// Takes over the changes that a predecessor left, and settles those whose callers are dead; returns sentences for the user.
    pub(crate) fn recover_name_changes(&self) -> Result<Vec<String>, crate::BrokerError> {
        let left = self.context.table().name_changes()?;
        let open = left.iter().map(|(number, change)| {
            let held = Open {
                change: change.clone(),
                connection: None,
                victim: None,
                directories: None,
                returned: None,
                undecided: false,
            };
            (*number, held)
        });
        guard(&self.name_changes).extend(open);
        self.settle_orphans();
        let mut said = Vec::new();
        for (number, change) in left {
            let path = shown(&change.target);
            match guard(&self.name_changes).get(&number) {
                Some(held) if held.undecided => said.push(format!(
                    "not cleaned up: a program that was removing {path} was killed; its data is kept, see `stripewise check`"
                )),
                Some(_) => {}
                None => said.push(format!("cleaned up: an interrupted removal or renaming at {path}")),
            }
        }
        Ok(said)
    }

    pub(crate) fn flux_of(&self, file: FileId) -> Flux {
        let open = guard(&self.name_changes);
        let mut concerned = open.values().filter(|held| held.change.files().any(|other| other == file)).peekable();
        if concerned.peek().is_none() {
            return Flux::None;
        }
        if concerned.all(|held| held.undecided) { Flux::Undecided } else { Flux::Changing }
    }

    /// The file is known to have its name, or is freed: what could not be decided of it does not matter any more.
    pub(crate) fn decide_names_of(&self, file: FileId, changes: &mut Changes) {
        guard(&self.name_changes).retain(|number, held| {
            let is_settled = held.undecided && held.change.files().any(|other| other == file);
            if is_settled {
                changes.remove_name_change(*number);
            }
            !is_settled
        });
    }

    /// A file whose stub is gone is freed, by a person's word.
    pub(crate) fn remove_lost(&self, managed: &Managed) -> Result<(), Refusal> {
        {
            let mut inner = guard(&managed.inner);
            if inner.freed {
                return Ok(());
            }
            self.refuse_if_it_stands(managed, &mut inner, "remove that with `stripewise rm`")?;
            let mut changes = Changes::default();
            self.decide_names_of(managed.file, &mut changes);
            let record = FileRecord { state: FileState::Unlinked, ..inner.record.clone() };
            changes.put_file(managed.file, &record);
            self.context.table().commit(&changes)?;
            inner.record = record;
            self.quiescing.end_moves(managed, &inner, "the file was removed");
        }
        if !self.after_close(managed)? {
            self.rechecks.recheck(managed.file);
        }
        Ok(())
    }
}
