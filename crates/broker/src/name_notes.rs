//! Changes of names that are not settled yet: which files they concern, and which names they hold.

use crate::guard;
use crate::rmt::{Changes, NameChange};
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use stripewise_layout::FileId;

/// Changes that are not settled, by their numbers.
pub(crate) type OpenChanges = HashMap<u64, Open>;

pub(crate) struct Open {
    pub(crate) change: NameChange,
    /// Of the caller, as long as it is connected.
    pub(crate) connection: Option<u64>,
    /// The victim's stub, by which its last name is seen to go.
    pub(crate) victim: Option<OwnedFd>,
    /// Those of the names, as long as the broker lives that noted the change: they may be renamed meanwhile.
    pub(crate) directories: Option<Arc<Directories>>,
    /// What the caller said of the call, where it could not be settled at once.
    pub(crate) returned: Option<bool>,
    /// Nothing tells whether the call was made: a person decides. It holds no name.
    pub(crate) undecided: bool,
}

pub(crate) struct Directories {
    pub(crate) target: OwnedFd,
    pub(crate) source: Option<OwnedFd>,
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

#[derive(Default)]
pub(crate) struct NameNotes(Mutex<OpenChanges>);

impl NameNotes {
    pub(crate) fn open(&self) -> MutexGuard<'_, OpenChanges> {
        guard(&self.0)
    }

    pub(crate) fn flux_of(&self, file: FileId) -> Flux {
        let open = self.open();
        let mut concerned = open.values().filter(|held| held.change.files().any(|other| other == file)).peekable();
        if concerned.peek().is_none() {
            return Flux::None;
        }
        if concerned.all(|held| held.undecided) { Flux::Undecided } else { Flux::Changing }
    }

    /// The file is known to have its name, or is freed: what could not be decided of it does not matter any more.
    pub(crate) fn decide_names_of(&self, file: FileId, changes: &mut Changes) {
        self.open().retain(|number, held| {
            let is_settled = held.undecided && held.change.files().any(|other| other == file);
            if is_settled {
                changes.remove_name_change(*number);
            }
            !is_settled
        });
    }
}
