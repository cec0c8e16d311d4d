//! What became of a call that changes names: by the caller's word, by the victim's names, or by looking.

use super::{NameChanges, path_in, shown, standing};
use crate::ancestors::Ancestors;
use crate::aside::take_away;
use crate::guard;
use crate::log::note;
use crate::name_notes::{Directories, Flux, Open};
use crate::proof::{Facts, path_of};
use crate::rmt::{Changes, FileRecord, FileState, Inode, NameChange, Place, Victim};
use rustix::fd::OwnedFd;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use stripewise_layout::FileId;
use stripewise_store::entry::open_directory;
use stripewise_store::protocol::{NameCall, Refusal};
use stripewise_store::shared::control::Life;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

/// What became of the victim.
enum Fate {
    Lives,
    Removed,
    Undecided,
}

/// The place's directory, if it still stands at its path.
fn directory_of(place: &Place) -> Option<OwnedFd> {
    let parent = Path::new(OsStr::from_bytes(&place.path)).parent()?;
    let directory = open_directory(parent).ok()?;
    Facts::of(&directory).ok().filter(|facts| facts.inode.is(&place.directory)).map(|_| directory)
}

impl NameChanges {
    /// Takes in what became of the call: by the caller's word, by the victim's names, or else by looking.
    pub(super) fn settle_name_change(&self, number: u64, word: Option<bool>) -> Result<(), Refusal> {
        let (change, handle, directories) = {
            let open = self.notes.open();
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
                if let Some(held) = self.notes.open().get_mut(&number) {
                    held.undecided = true;
                }
            }
        }
        Ok(())
    }

    pub(super) fn forget_name_change(&self, number: u64, change: &NameChange) -> Result<(), Refusal> {
        if change.is_durable() {
            let mut changes = Changes::default();
            changes.remove_name_change(number);
            self.context.table().commit_later(&changes)?;
        }
        self.notes.open().remove(&number);
        Ok(())
    }

    /// The managed files that the call moved stand at their new names, as is seen and not believed: their records follow.
    pub(super) fn follow_movers(&self, change: &NameChange, directories: Option<&Directories>) -> Result<(), Refusal> {
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
            let managed = match self.files.managed(file) {
                Err(Refusal::UnknownFile { .. }) => return Ok(()),
                managed => managed?,
            };
            let mut inner = guard(&managed.inner);
            // One whose maker has not said so yet has its name too.
            let has_name = matches!(inner.record.state, FileState::Live | FileState::Creating);
            if let (true, false, Ok(path)) = (has_name, inner.freed, String::from_utf8(path)) {
                let record = Ancestors::of_directory(directory).record(path, &inner.record);
                let record = FileRecord { state: FileState::Live, ..record };
                let mut changes = Changes::default();
                changes.put_file(file, &record);
                self.context.table().commit_later(&changes)?;
                inner.record = record;
                managed.control.set_life(Life::Live);
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
        if stands(victim.stub)
            || victim.links > 1
            || self.search.search_one(victim.file, &record).found(victim.file).is_some()
        {
            return Ok(Fate::Lives);
        }
        let is_witnessed = change.call == NameCall::Rename && change.mover.is_some_and(|mover| stands(mover.inode));
        Ok(if is_witnessed { Fate::Removed } else { Fate::Undecided })
    }

    /// The victim has lost its last name by a call that was noted: freed when it has no users.
    pub(super) fn victim_removed(
        &self,
        number: u64,
        change: &NameChange,
        handle: Option<OwnedFd>,
    ) -> Result<(), Refusal> {
        let Some(victim) = change.victim else { return Ok(()) };
        let managed = match self.files.managed(victim.file) {
            Err(Refusal::UnknownFile { .. }) => return self.forget_name_change(number, change),
            managed => managed?,
        };
        {
            let mut inner = guard(&managed.inner);
            let mut changes = Changes::default();
            changes.remove_name_change(number);
            if inner.freed {
                self.context.table().commit_later(&changes)?;
            } else {
                let record = FileRecord { state: FileState::Unlinked, ..inner.record.clone() };
                changes.put_file(victim.file, &record);
                self.context.table().commit_later(&changes)?;
                inner.record = record;
                self.quiescing.end_moves(&managed, &inner, "the file was removed");
                if inner.stub.is_none() {
                    inner.stub = handle;
                }
            }
        }
        self.notes.open().remove(&number);
        // The name is gone, whatever keeps the data.
        match self.lifecycle.after_close(&managed) {
            Ok(true) => {}
            Ok(false) => self.rechecks.recheck(victim.file),
            Err(refusal) => {
                self.rechecks.recheck(victim.file);
                note!(self.context.log(), warn, file = %victim.file, error = %refusal, "a file cannot be freed yet");
            }
        }
        Ok(())
    }

    /// The connection is gone, and perhaps its process.
    pub(crate) fn leave_name_changes(&self, connection: u64) {
        let mut open = self.notes.open();
        let mut left = open.values_mut().filter(|held| held.connection == Some(connection)).peekable();
        if left.peek().is_none() {
            return;
        }
        left.for_each(|held| held.connection = None);
        drop(open);
        self.settle_orphans();
    }

    /// Whoever began these changes, and those of the names of these files, is gone or does not count any more.
    pub(crate) fn leave_changes(&self, numbers: &[u64], files: &[FileId]) {
        let is_left = |number: &u64, held: &Open| {
            numbers.contains(number) || held.change.files().any(|file| files.contains(&file))
        };
        let mut open = self.notes.open();
        let mut left = open.iter_mut().filter(|(number, held)| is_left(number, held)).peekable();
        if left.peek().is_none() {
            return;
        }
        left.for_each(|(_, held)| held.connection = None);
        drop(open);
        self.settle_orphans();
    }

    /// Settles the changes of callers that are dead. Those of callers that live but are not connected are looked at again later.
    pub(crate) fn settle_orphans(&self) {
        let orphans: Vec<(u64, NameChange, Option<bool>)> = {
            let open = self.notes.open();
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
                note!(self.context.log(), warn, path = %shown(&change.target), error = %refusal, "a change of a name is not settled yet");
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
        self.notes.open().extend(open);
        self.settle_orphans();
        let mut said = Vec::new();
        for (number, change) in left {
            let path = shown(&change.target);
            match self.notes.open().get(&number) {
                Some(held) if held.undecided => said.push(format!(
                    "not cleaned up: a program that was removing {path} was killed; its data is kept, see `stripewise check`"
                )),
                Some(_) => {}
                None => said.push(format!("cleaned up: an interrupted removal or renaming at {path}")),
            }
        }
        Ok(said)
    }

    /// Looks at a file whose last user may have died; true when it need not be looked at again.
    pub(crate) fn recheck_again(&self, file: FileId) -> bool {
        self.settle_orphans();
        if self.notes.flux_of(file) == Flux::Changing {
            return false;
        }
        let managed = match self.files.managed(file) {
            Ok(managed) => managed,
            Err(refusal) => return matches!(refusal, Refusal::UnknownFile { .. }),
        };
        {
            // Over both, or a truncation that begins in between would have its gate opened.
            let mut inner = guard(&managed.inner);
            let settled = self.truncation.settle_unknown(&managed, &mut inner);
            if settled.and_then(|()| self.quiescing.open_when_truncated(&managed)).is_err() {
                return false;
            }
        }
        match self.lifecycle.after_close(&managed) {
            Ok(done) => done && (guard(&managed.inner).freed || !self.lifecycle.is_unlinked(&managed)),
            Err(refusal) => {
                note!(self.context.log(), warn, %file, error = %refusal, "a file cannot be freed yet");
                false
            }
        }
    }
}
