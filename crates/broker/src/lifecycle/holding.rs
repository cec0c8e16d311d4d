//! Files that a command holds for itself, to move them in or out of management: what becomes of them when it goes.

use super::Lifecycle;
use crate::aside::take_away;
use crate::guard;
use crate::log::note;
use crate::managed::{Inner, Managed};
use crate::rmt::FileState;
use std::path::Path;
use stripewise_store::entry::DirectoryEntry;
use stripewise_store::protocol::Refusal;

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
        match inner.record.state.clone() {
            FileState::Importing { original, temporary, complete } => {
                if take_away(&temporary, inner.record.stub)? {
                    self.free(managed, inner)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise apply` of {path} was undone: the original file is whole and its copy was discarded"
                    )));
                }
                let standing = self.search.at_its_path(&inner.record)?;
                let stands = standing.is_some_and(|facts| inner.record.stub.is(&facts.inode));
                // The stub may have moved on from there since; where the original is, it never came.
                let is_undone = standing.is_some_and(|facts| original.is(&facts.inode));
                if complete && stands {
                    // They had changed places already; what it holds is verified and synced in the managed file.
                    sync_directory_of(&path)?;
                    take_away(&temporary, original)?;
                }
                if stands || (complete && !is_undone) {
                    self.set_state(managed, inner, FileState::Live)?;
                    managed.control.set_life(stripewise_store::shared::control::Life::Live);
                    return Ok(Some(format!(
                        "the interrupted `stripewise apply` of {path} was complete: it is managed"
                    )));
                }
                self.free(managed, inner)?;
                Ok(Some(format!("the interrupted `stripewise apply` of {path} was undone: the original file is whole")))
            }
            FileState::Releasing { copy, temporary } => {
                if take_away(&temporary, copy)? {
                    self.set_state(managed, inner, FileState::Live)?;
                    return Ok(Some(format!(
                        "the interrupted `stripewise release` of {path} was undone: the managed file is whole and its copy was discarded"
                    )));
                }
                let released = self.search.at_its_path(&inner.record)?.is_some_and(|facts| copy.is(&facts.inode));
                if released {
                    sync_directory_of(&path)?;
                    take_away(&temporary, inner.record.stub)?;
                    self.free(managed, inner)?;
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
}

/// Makes the change of places at `path` durable, before what stood there is removed.
fn sync_directory_of(path: &str) -> Result<(), Refusal> {
    DirectoryEntry::at(Path::new(path))
        .and_then(|entry| entry.sync_directory())
        .map_err(|errno| Refusal::Invalid { what: format!("syncing the directory of {path}: {errno}") })
}
