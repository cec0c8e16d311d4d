//! A file's fragments on SSDs, as all see them who have the file in hand: the memory of its logs, and what whoever works on them has to remember.

mod waiting;

use crate::rmt::LogRecord;
use crate::{guard, try_guard};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;
use stripewise_layout::{FileId, ObjectOffset, RegionIndex, ServerId};
use stripewise_store::server::ObjectName;
use stripewise_store::shared::fragments::hints::Hints;
use stripewise_store::shared::fragments::table::{FragmentTable, Log, log_region};
use stripewise_store::shared::fragments::{Seen, State};
use stripewise_store::shared::slots::Use;
use waiting::Waiting;

/// Names of the two files in `run/`, behind the file's id.
pub(crate) const TABLE: &str = "frag";
pub(crate) const HINTS: &str = "hints";
/// A loaded file's fragments.
#[derive(Default)]
pub(crate) struct FileFragments {
    work: Mutex<Work>,
    logs: RwLock<Option<Arc<LogMemory>>>,
}

/// The shared memory of a file's logs.
pub(crate) struct LogMemory {
    pub(crate) table: FragmentTable,
    pub(crate) hints: Hints,
}

impl LogMemory {
    /// The logs with their disks.
    pub(crate) fn all(&self) -> impl Iterator<Item = (ServerId, Log<'_>)> {
        self.table.disks().filter_map(|disk| Some((disk, self.table.log(disk)?)))
    }
}

/// What whoever works on the entries has to remember.
#[derive(Default)]
pub(crate) struct Work {
    /// Suggestions of clients, as far as they were looked at; then those that wait for a slot or their turn.
    pub(crate) suggestions_seen: u64,
    pub(crate) waiting: Waiting,
    pub(crate) quiet: BTreeMap<ServerId, Quiet>,
    /// Up to where each disk was written back in passing.
    pub(crate) cursors: BTreeMap<ServerId, (RegionIndex, ObjectOffset)>,
    pub(crate) orphans: Option<Orphans>,
    pub(crate) cleaned_up: Option<Instant>,
    /// A fault of writing back is noted once until it works again.
    pub(crate) fault_noted: bool,
}

impl FileFragments {
    /// Held by who works on the entries. Taken before the file's lock, never under it.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Work> {
        guard(&self.work)
    }

    /// As [`Self::hold`], for the keeper: somebody else may hold one file's for long, and the others are not to wait for it.
    pub(crate) fn try_hold(&self) -> Option<MutexGuard<'_, Work>> {
        try_guard(&self.work)
    }

    /// `None`: the file has no logs.
    pub(crate) fn logs(&self) -> Option<Arc<LogMemory>> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether these are its logs still.
    pub(crate) fn has(&self, logs: &Arc<LogMemory>) -> bool {
        self.logs().is_some_and(|present| Arc::ptr_eq(&present, logs))
    }

    pub(crate) fn set(&self, logs: Option<Arc<LogMemory>>) {
        *self.logs.write().unwrap_or_else(PoisonError::into_inner) = logs;
    }
}

/// Whether anybody used a disk since it was last looked at.
#[derive(Clone, Copy)]
pub(crate) struct Quiet {
    pub(crate) mark: u64,
    pub(crate) since: Instant,
}

/// Entries that nobody has finished, and who was inside when they were seen.
pub(crate) struct Orphans {
    pub(crate) claimed: Vec<(ServerId, Vec<(usize, u64)>)>,
    pub(crate) pending: Vec<(ServerId, Seen)>,
    pub(crate) uses: Vec<Use>,
}

/// The object of a file's log for `disk`.
pub(crate) fn log_object(file: FileId, disk: ServerId, record: LogRecord) -> ObjectName {
    ObjectName { file, region: log_region(disk), generation: record.generation }
}

/// Drops an entry whatever its state; nobody else is inside the file.
pub(crate) fn drop_entry(log: &Log<'_>, seen: &Seen) {
    if log.sets.change(seen, State::Empty).is_some() {
        log.sets.free_slot(seen.slot);
    }
}

/// Removes an entry that its owner left pending when it died, and frees the slot in its stead.
pub(crate) fn take_from_the_dead(log: &Log<'_>, seen: &Seen) {
    if log.sets.remove(seen) {
        log.sets.free_slot(seen.slot);
    }
}
