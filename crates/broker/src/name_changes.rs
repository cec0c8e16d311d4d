//! Calls that change names of managed files: noted before they are made, settled by what became of them.
//!
//! A removal or a rename over a managed file frees its data, and nothing but the note proves that it did: a stub that is gone, or has another
//! file in its place, may as well have been moved by a program that is not redirected. A note holds its names until the call has returned, so
//! that what stands there is what the note says. When the caller dies, or its broker, the note is settled by looking.

mod settling;

use crate::connection::Connection;
use crate::context::Context;
use crate::files::Files;
use crate::guard;
use crate::identities::Identities;
use crate::lifecycle::Lifecycle;
use crate::name_notes::{Directories, NameNotes, Open, OpenChanges};
use crate::proof::{Facts, Proof};
use crate::quiescing::Quiescing;
use crate::rechecks::Rechecks;
use crate::rmt::{Caller, Changes, Inode, Mover, NameChange, Place, Victim};
use crate::search::StubSearch;
use crate::truncation::Truncation;
use rustix::fd::OwnedFd;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use stripewise_layout::FileId;
use stripewise_store::protocol::{NameCall, Refusal};

/// That one connection may have: a thread has one at a time.
const MAX_OPEN_CHANGES: usize = 256;

/// What a request says of the names.
pub(crate) struct Asked {
    pub(crate) call: NameCall,
    pub(crate) source: Option<Vec<u8>>,
    pub(crate) target: Vec<u8>,
    pub(crate) victim: Option<FileId>,
    pub(crate) mover: Option<FileId>,
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

/// Notes changes of names before they are made, and settles them.
pub(crate) struct NameChanges {
    context: Arc<Context>,
    rechecks: Arc<Rechecks>,
    quiescing: Arc<Quiescing>,
    files: Arc<Files>,
    identities: Arc<Identities>,
    notes: Arc<NameNotes>,
    search: Arc<StubSearch>,
    lifecycle: Arc<Lifecycle>,
    truncation: Arc<Truncation>,
}

impl NameChanges {
    #[allow(clippy::too_many_arguments, reason = "one for each part that it uses")]
    pub(crate) fn new(
        context: &Arc<Context>,
        rechecks: &Arc<Rechecks>,
        quiescing: &Arc<Quiescing>,
        files: &Arc<Files>,
        identities: &Arc<Identities>,
        notes: &Arc<NameNotes>,
        search: &Arc<StubSearch>,
        lifecycle: &Arc<Lifecycle>,
        truncation: &Arc<Truncation>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            rechecks: Arc::clone(rechecks),
            quiescing: Arc::clone(quiescing),
            files: Arc::clone(files),
            identities: Arc::clone(identities),
            notes: Arc::clone(notes),
            search: Arc::clone(search),
            lifecycle: Arc::clone(lifecycle),
            truncation: Arc::clone(truncation),
        }
    }

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
        let (mut victim, mut held, mut seen) = (None, None, None);
        if let Some(file) = asked.victim {
            let stub = proof()?;
            seen = Some(stub.facts.inode);
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
        let noted = self.check_names(&change, seen, &directories).and_then(|()| self.note_name_change(number, &change));
        if noted.is_err() {
            self.notes.open().remove(&number);
        }
        noted
    }

    /// Copies of stubs, and stubs of files that are no more, are files as any other.
    fn is_stub_of(&self, file: FileId, proof: &Proof) -> Result<bool, Refusal> {
        match self.identities.identify(file, proof) {
            Ok(_) => Ok(true),
            Err(Refusal::CopiedStub { .. } | Refusal::UnknownFile { .. }) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// From here on nobody else changes these names, and `check` leaves the files alone.
    fn hold_names(&self, number: u64, asked: Open) -> Result<(), Refusal> {
        let change = &asked.change;
        let in_use = |open: &OpenChanges| {
            let others = || open.iter().filter(|(other, held)| **other != number && !held.undecided);
            if others().filter(|(_, held)| held.connection == asked.connection).count() >= MAX_OPEN_CHANGES {
                return Some(change.target.clone());
            }
            let held: Vec<&Place> = others().flat_map(|(_, held)| places(&held.change)).collect();
            places(change).find(|place| held.iter().any(|held| is_same(held, place))).cloned()
        };
        if in_use(&self.notes.open()).is_some() {
            // Perhaps by a process that died.
            self.settle_orphans();
        }
        let mut open = self.notes.open();
        if let Some(place) = in_use(&open) {
            return Err(Refusal::NameInUse { path: shown(&place) });
        }
        let files: Vec<FileId> = change.files().collect();
        open.insert(number, asked);
        drop(open);
        // A check that has one of the files in hand goes to its end first; a later one sees the change.
        for file in files {
            if let Some(managed) = self.files.if_loaded(file) {
                drop(guard(&managed.inner));
            }
        }
        Ok(())
    }

    /// What stands at the names must be what the client says. `seen`: what it found at the target and took for a managed file. That may have gone with its
    /// record, so that the change has no victim; one that is made there before the call would lose its name unnoted.
    fn check_names(&self, change: &NameChange, seen: Option<Inode>, directories: &Directories) -> Result<(), Refusal> {
        let changed = |place: &Place| Refusal::NameChanged { path: shown(place) };
        let found = standing(&directories.target, &change.target)?;
        if seen.is_some_and(|seen| !found.is_some_and(|facts| seen.is(&facts.inode))) {
            return Err(changed(&change.target));
        }
        if let (None, Some(facts)) = (&change.victim, found)
            && self.identities.stub_of(facts.inode)?.is_some()
        {
            return Err(changed(&change.target));
        }
        if let (Some(source), Some(directory), Some(mover)) = (&change.source, &directories.source, &change.mover) {
            let is_right = match standing(directory, source)? {
                Some(facts) => mover.inode.is(&facts.inode) && !mover.is_nameless(),
                None => mover.is_nameless(),
            };
            if !is_right || (mover.file().is_none() && self.identities.stub_of(mover.inode)?.is_some()) {
                return Err(changed(source));
            }
        }
        Ok(())
    }

    fn note_name_change(&self, number: u64, change: &NameChange) -> Result<(), Refusal> {
        if change.is_durable() {
            let mut changes = Changes::default();
            changes.put_name_change(number, change);
            self.context.step("name change: before the note");
            // The note outlives caller and broker. A power failure that takes it may take the change of the name as well.
            self.context.table().commit_later(&changes)?;
            self.context.step("name change: noted");
        }
        Ok(())
    }

    pub(crate) fn end_name_change(&self, number: u64, done: bool, victim: Option<Proof>) -> Result<(), Refusal> {
        self.context.step("name change: made");
        let files: Vec<FileId> = {
            let mut open = self.notes.open();
            // Settled before, and said again.
            let Some(held) = open.get_mut(&number) else { return Ok(()) };
            held.returned = Some(done);
            if let Some(proof) = victim {
                held.victim = Some(proof.descriptor);
            }
            held.change.files().collect()
        };
        self.settle_name_change(number, Some(done)).inspect_err(|_| {
            if let Some(held) = self.notes.open().get_mut(&number) {
                held.connection = None;
            }
            files.into_iter().for_each(|file| self.rechecks.recheck(file));
        })
    }
}
