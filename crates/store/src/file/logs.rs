//! The logs of a file's fragments, as far as this process knows them.

use super::core::FileCore;
use super::error::FileError;
use super::sub_request::Weigh;
use super::trial::Trial;
use crate::client::ClientError;
use crate::protocol::{Reply, Request};
use crate::shared::control::FragmentMode;
use crate::shared::fragments::hints::{Hints, Suggestion};
use crate::shared::fragments::table::FragmentTable;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The shared memory of a file's fragments.
#[derive(Debug)]
pub(super) struct FragmentMemory {
    pub(super) table: FragmentTable,
    pub(super) hints: Hints,
}

/// Mapped when there is use for it, and then for as long as the file is open.
#[derive(Default)]
pub(super) struct FragmentLogs {
    memory: OnceLock<FragmentMemory>,
    /// Nobody could be asked for it while the file had no logs; the disks take everything as long as it has none.
    is_done_without: AtomicBool,
    pub(super) trial: Trial,
}

impl FragmentLogs {
    /// `None`: not asked for yet.
    #[inline]
    pub(super) fn known(&self) -> Option<&FragmentMemory> {
        self.memory.get()
    }

    /// Of a file without logs: whether its small parts are to get some. Emulated disks take their devices' time from the first request on.
    #[inline]
    pub(super) fn are_worth_making(&self, file: &FileCore) -> bool {
        (file.core().stations.is_some() || self.trial.is_over()) && !self.is_done_without.load(Relaxed)
    }

    /// As [`Self::map`]. As long as nobody has logs made, a file is used without them where there is no broker to be asked.
    #[cold]
    pub(super) fn check_for(&self, file: &FileCore) -> Result<(), FileError> {
        let mapped = self.map(file);
        if mapped.is_err() && file.control().notices().fragments() == FragmentMode::Wanted {
            self.is_done_without.store(true, Relaxed);
            return Ok(());
        }
        mapped
    }

    /// Asks the broker for the logs' shared memory.
    #[cold]
    fn map(&self, file: &FileCore) -> Result<(), FileError> {
        let request = Request::Fragments { file: file.id() };
        let (reply, descriptors) = file.core().with_descriptors(&request, &[]).map_err(|source| file.broker(source))?;
        let unexpected = |what: String| file.broker(ClientError::Unexpected { request: "Fragments", what });
        match (reply, &descriptors[..]) {
            (Reply::Done, _) => Ok(()),
            (Reply::Fragments, [table, hints]) => {
                let fault = |source| file.broker(ClientError::Os { action: "mapping the table of fragments", source });
                let table = FragmentTable::open(table, file.id(), file.is_writable()).map_err(fault)?;
                let hints = Hints::open(hints, file.core().server_count(), &table).map_err(fault)?;
                // Two threads may both have asked; the second one's mapping is dropped.
                let _ = self.memory.set(FragmentMemory { table, hints });
                Ok(())
            }
            (reply, _) => Err(unexpected(format!("{reply:?}"))),
        }
    }

    /// The logs that there are, whoever has them made.
    fn all(&self, file: &FileCore) -> Result<Option<&FragmentMemory>, FileError> {
        let mode = file.control().notices().fragments();
        if matches!(mode, FragmentMode::On | FragmentMode::Leaving) && self.memory.get().is_none() {
            self.map(file)?;
        }
        Ok(self.memory.get())
    }

    /// Has the broker write to the disks what any process wrote to logs, if there is such.
    pub(super) fn flush(&self, file: &FileCore) -> Result<(), FileError> {
        match self.all(file)? {
            Some(memory) if memory.table.is_dirtied() => file.ask(&Request::Flush { file: file.id() }),
            _ => Ok(()),
        }
    }

    /// A disk has served a read of a file with logs.
    pub(super) fn served_by_disk(&self, weigh: &Weigh, took_ns: u64) {
        let Some(FragmentMemory { hints, .. }) = self.memory.get() else { return };
        let Weigh { disk, range, class, siblings_ns_per_byte } = *weigh;
        if let Some(class) = class {
            let value = hints.return_of(disk, range.length, took_ns) + siblings_ns_per_byte;
            if hints.weigh(disk, class, value) {
                hints.suggest(&Suggestion { disk, range, class });
                return;
            }
        }
        hints.note_service(disk, range.length, took_ns);
    }
}
