//! The broker's part of fragments on SSDs; `shared::fragments` has the order of operations, and says why it loses nothing.
//!
//! A file gets its logs when a program first has use for them. What is durable is only *that* there are logs (`rmt`, key `l`), before their objects are made. What they
//! hold is not: to its disk a log is what the page cache is. It survives the end of every process, since objects and `run/` do, so a broker
//! that finds a table of this boot goes on with it; without one, after a power failure, the logs are void and are removed. `fsync` has had
//! everything written back by then.
//!
//! | module | what |
//! |---|---|
//! | `logs` | making logs, taking them over, removing them |
//! | `write_back` | from logs to disks |
//! | `cutting` | entries that have to go: truncation, moves |
//! | `copy_in` | from disks to logs |
//! | `room` | what is granted to whom |
//! | `shares` | granting, and giving up |
//! | `orphans` | what the dead leave |
//! | `waiting` | suggestions until their time comes |
//! | `keeper` | the thread that does this when it is time to |
//!
//! Whatever changes entries holds the file's *work* lock, which comes before the file's own. So a region that moves, or a file that is cut,
//! is nobody else's meanwhile, and no two write back the same bytes.

mod copy_in;
mod keeper;
mod logs;
mod orphans;
mod room;
mod shares;
mod truncation;
mod waiting;
mod write_back;

pub(super) use keeper::{Keeper, Keeping};
pub(super) use logs::{TABLE, log_object};
pub(super) use room::LogRoom;

use super::files::{Managed, unknown};
use super::proof::Granted;
use super::requests::{Answer, Carried};
use super::{Core, guard};
use rustix::fs::OFlags;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::Instant;
use stripewise_layout::{ObjectOffset, RegionIndex, ServerId};
use stripewise_store::protocol::{Refusal, Reply};
use stripewise_store::shared::control::FragmentMode;
use stripewise_store::shared::fragments::hints::Hints;
use stripewise_store::shared::fragments::table::FragmentTable;

/// A loaded file's fragments.
#[derive(Default)]
pub(super) struct Fragments {
    work: Mutex<Work>,
    logs: RwLock<Option<Arc<Logs>>>,
}

/// The shared memory of a file's logs.
pub(super) struct Logs {
    pub(super) table: FragmentTable,
    pub(super) hints: Hints,
}

/// What whoever works on the entries has to remember.
#[derive(Default)]
pub(super) struct Work {
    /// Suggestions of clients, as far as they were looked at; then those that wait for a slot or their turn.
    suggestions_seen: u64,
    waiting: waiting::Waiting,
    quiet: BTreeMap<ServerId, keeper::Quiet>,
    /// Up to where each disk was written back in passing.
    cursors: BTreeMap<ServerId, (RegionIndex, ObjectOffset)>,
    orphans: Option<orphans::Orphans>,
    cleaned_up: Option<Instant>,
    /// A fault of writing back is noted once until it works again.
    fault_noted: bool,
}

impl Fragments {
    /// Held by who works on the entries. Taken before the file's lock, never under it.
    pub(super) fn hold(&self) -> MutexGuard<'_, Work> {
        guard(&self.work)
    }

    /// As [`Self::hold`], for the keeper: somebody else may hold one file's for long, and the others are not to wait for it.
    fn try_hold(&self) -> Option<MutexGuard<'_, Work>> {
        try_guard(&self.work)
    }

    /// `None`: the file has no logs.
    pub(super) fn logs(&self) -> Option<Arc<Logs>> {
        self.logs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether these are its logs still.
    fn has(&self, logs: &Arc<Logs>) -> bool {
        self.logs().is_some_and(|present| Arc::ptr_eq(&present, logs))
    }

    fn set(&self, logs: Option<Arc<Logs>>) {
        *self.logs.write().unwrap_or_else(PoisonError::into_inner) = logs;
    }
}

/// As [`guard`], if nobody else has it.
fn try_guard<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guarded) => Some(guarded),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Core {
    /// See [`stripewise_store::protocol::Request::Fragments`].
    pub(super) fn fragments_for(&self, managed: &Managed, granted: Granted) -> Answer {
        let mut inner = guard(&managed.inner);
        if inner.freed {
            return Err(unknown(managed.file));
        }
        if managed.control.fragments() == FragmentMode::Wanted
            && let Err(refusal) = self.set_up_logs(managed, &mut inner)
        {
            // The file is as good without, so that a server that is away fails nobody's write.
            self.state.note(&format!("{}: its fragments go to the disks: {refusal}", inner.record.path));
            self.show_mode(managed, FragmentMode::Off);
        }
        if managed.control.fragments() == FragmentMode::Off {
            return Ok((Reply::Done, Vec::new()));
        }
        let file = managed.file;
        self.keeping.watch(file);
        let open = |kind: &str, access: OFlags| {
            self.state
                .open_shared(&format!("{file}.{kind}"), access)
                .map(Carried::Own)
                .map_err(|errno| Refusal::Table { what: format!("the fragments' memory of file {file}: {errno}") })
        };
        let access = if granted.writable { OFlags::RDWR } else { OFlags::RDONLY };
        Ok((Reply::Fragments, vec![open(logs::TABLE, access)?, open(logs::HINTS, OFlags::RDWR)?]))
    }

    fn show_mode(&self, managed: &Managed, mode: FragmentMode) {
        managed.control.set_fragments(mode, self.cluster.fragment_threshold().0 as u32);
    }
}
