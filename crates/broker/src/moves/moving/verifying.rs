//! What came of a move's commit, after an error.

use super::{Done, Move, VERIFY_PAUSE};
use crate::rmt::{Fate, RmtError, Table, fate_of};

impl Move<'_> {
    /// Whether the table has the new place, or the replicas, after a commit of which that is not known.
    pub(super) fn verify(&self) -> Done {
        let (core, active) = (self.core, self.active);
        let Some(error) = &self.commit_error else { return Done::Failed };
        match fate_of(core.context.table(), error, |table| self.is_committed(table)) {
            Fate::Applied => Done::Done,
            Fate::NotApplied => Done::Failed,
            Fate::Deposed => Done::Deposed,
            Fate::Unknown if core.context.is_shut_out() || active.is_ended() => Done::Deposed,
            Fate::Unknown => {
                std::thread::sleep(VERIFY_PAUSE);
                Done::Unknown
            }
        }
    }

    fn is_committed(&self, table: &Table) -> Result<bool, RmtError> {
        let (file, active) = (self.managed.file, self.active);
        if active.is_sync {
            let found = table.replicas(Some(file))?;
            let has = |(number, replica)| found.contains(&(file, active.region, number, replica));
            return Ok(active.replicas().into_iter().all(has));
        }
        Ok(table.regions(file)?.contains(&(active.region, active.new[0].clone())))
    }
}
