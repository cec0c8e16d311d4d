//! Files that a command holds for itself, to move them in or out of management: what becomes of them when it goes.

use super::Lifecycle;
use crate::aside::{PutBack, drop_second_name, put_back, take_away, take_away_displaced, turned_up};
use crate::guard;
use crate::log::note;
use crate::managed::{Inner, Managed};
use crate::rmt::{FileState, Inode};
use std::path::Path;
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::control::Life;

impl Lifecycle {
    /// Who held the file is gone: an import or release that was under way is undone, or finished if all but its last note was done.
    pub(crate) fn abandoned_by_holder(&self, managed: &Managed) {
        let mut inner = guard(&managed.inner);
        match self.settle_holding(managed, &mut inner) {
            Ok(Some(said)) => note!(self.context.log(), info, "{said}"),
            Ok(None) => {}
            Err(refusal) => {
                note!(self.context.log(), warn, file = %managed.file, error = %refusal, "an import or release is not settled yet")
            }
        }
    }

    /// Ends an import or release whose process is gone (or, after a change of brokers, may live but has lost its hold) and says what became of
    /// it. The temporary file decides: it is taken away first, after which a rename of it can no longer succeed.
    pub(crate) fn settle_holding(&self, managed: &Managed, inner: &mut Inner) -> Result<Option<String>, Refusal> {
        if inner.freed {
            return Ok(None);
        }
        let path = inner.record.path.clone();
        let here = |inode: Inode| self.as_numbered_here(inode, &path);
        let stub = here(inner.record.stub);
        match inner.record.state.clone() {
            FileState::Importing { original, temporary, complete } => {
                let import = Import { path: &path, temporary, original: here(original), stub, complete };
                self.settle_import(managed, inner, &import).map(Some)
            }
            FileState::Releasing { copy, temporary } => {
                let copy = here(copy);
                if take_away(&temporary, copy)? {
                    drop_second_name(&path, &temporary)?;
                    self.set_state(managed, inner, FileState::Live)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise release` of {path} was undone: the managed file is whole and its copy was discarded"
                    )));
                }
                if let Some(other) = turned_up(&temporary, &[copy, stub])? {
                    // It stood at the path when the copy was to go there: it replaced the stub, and `check` asks what is to become of the data.
                    put_back(&path, &temporary, other, copy)?;
                    self.set_state(managed, inner, FileState::Live)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise release` of {path} was undone: another file had been put there, and stands there"
                    )));
                }
                let released = self.search.at_its_path(&inner.record)?.is_some_and(|facts| copy.is(&facts.inode));
                if released {
                    sync_directory_of(&path)?;
                    take_away_displaced(&temporary, stub)?;
                    self.discard(managed, inner)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise release` of {path} was finished: it is an ordinary file"
                    )));
                }
                self.set_state(managed, inner, FileState::Live)?;
                Ok(Some(format!(
                    "the interrupted `stripewise release` of {path} was undone: the managed file is whole"
                )))
            }
            FileState::Creating | FileState::Live | FileState::Unlinked => Ok(None),
        }
    }

    fn settle_import(&self, managed: &Managed, inner: &mut Inner, import: &Import<'_>) -> Result<String, Refusal> {
        let Import { path, temporary, original, stub, complete } = import;
        let undone = format!("the interrupted `stripewise apply` of {path} was undone: the original file is whole");
        if take_away(temporary, *stub)? {
            drop_second_name(path, temporary)?;
            self.discard(managed, inner)?;
            return Ok(format!("{undone} and its copy was discarded"));
        }
        let other = turned_up(temporary, &[*original, *stub])?;
        if !complete || other.is_some() {
            // Nobody knows yet that what was copied is what the original holds: a program of another host may have written it since. Or another file stood
            // at the path when the stub was to go there, and what was copied is out of date.
            let put = put_back(path, temporary, other.unwrap_or(*original), *stub)?;
            self.discard(managed, inner)?;
            return Ok(match put {
                PutBack::Kept(kept) => {
                    format!("{undone}; another file stands at its path meanwhile, so it is kept at {kept}")
                }
                PutBack::Stands | PutBack::Nowhere => undone,
            });
        }
        let standing = self.search.at_its_path(&inner.record)?;
        let stands = standing.is_some_and(|facts| stub.is(&facts.inode));
        // The stub may have moved on from there since; where the original is, it never came.
        let is_undone = standing.is_some_and(|facts| original.is(&facts.inode));
        if stands {
            // They had changed places already; what it holds is verified and synced in the managed file.
            sync_directory_of(path)?;
            take_away_displaced(temporary, *original)?;
        }
        if !is_undone {
            self.set_state(managed, inner, FileState::Live)?;
            managed.control.set_life(Life::Live);
            return Ok(format!("the interrupted `stripewise apply` of {path} was complete: it is managed"));
        }
        self.discard(managed, inner)?;
        Ok(undone)
    }

    /// Frees what nobody will use. A host that may have had a hand in it until now is waited for: it may yet write there.
    fn discard(&self, managed: &Managed, inner: &mut Inner) -> Result<(), Refusal> {
        if self.context.is_elsewhere(managed.file) {
            self.set_state(managed, inner, FileState::Unlinked)?;
            inner.stub = None;
            self.rechecks.recheck(managed.file);
            return Ok(());
        }
        self.free(managed, inner)
    }

    /// The inode of a file in the directory of `path` as this host has it: hosts number the devices of one file system differently.
    fn as_numbered_here(&self, inode: Inode, path: &str) -> Inode {
        if !self.context.is_shared() {
            return inode;
        }
        let directory = DirectoryEntry::at(Path::new(path)).and_then(|entry| rustix::fs::fstat(entry.directory()));
        directory.map_or(inode, |found| Inode { device: found.st_dev, ..inode })
    }
}

/// An import that is to be settled.
struct Import<'a> {
    path: &'a str,
    temporary: String,
    original: Inode,
    stub: Inode,
    complete: bool,
}

/// Makes the change of places at `path` durable, before what stood there is removed.
fn sync_directory_of(path: &str) -> Result<(), Refusal> {
    DirectoryEntry::at(Path::new(path))
        .and_then(|entry| entry.sync_directory())
        .map_err(|errno| Refusal::Invalid { what: format!("syncing the directory of {path}: {errno}") })
}
