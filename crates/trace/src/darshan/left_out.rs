//! Files that are not kept, since others moved more bytes: their numbers, so that one whose records come again counts once.

use super::Interface;
use super::counters::FileCounters;
use std::collections::HashSet;

/// By what was known of them when they were left out; each is in one set at most.
#[derive(Default)]
pub(super) struct LeftOut {
    /// With requests by POSIX.
    posix: HashSet<u64>,
    /// With requests by others alone.
    others: HashSet<u64>,
}

impl LeftOut {
    /// Files without requests do not count.
    pub(super) fn add(&mut self, file: &FileCounters) {
        if file.level(Interface::Posix).is_some_and(|level| level.requests() > 0) {
            self.others.remove(&file.id);
            self.posix.insert(file.id);
        } else if file.data_level().is_some() && !self.posix.contains(&file.id) {
            self.others.insert(file.id);
        }
    }

    pub(super) fn has_posix(&self, id: u64) -> bool {
        self.posix.contains(&id)
    }

    /// Those that are not kept after all.
    pub(super) fn count(&self, is_kept: impl Fn(u64) -> bool) -> u64 {
        self.posix.iter().chain(&self.others).filter(|id| !is_kept(**id)).count() as u64
    }
}
