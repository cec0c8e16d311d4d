//! What came of a commit that ended with an error, in a table that is elsewhere: it may have taken effect all the same, or do so still.

use super::{RmtError, Table};

/// What came of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Applied,
    /// And it never will be.
    NotApplied,
    /// Another host is master, and has found what came of it.
    Deposed,
    Unknown,
}

/// Asks the table. `error` is what the commit ended with, and `is_applied` reads whether it took effect.
///
/// Another transaction is made: after it that commit takes no effect any more. An engine without space takes none. If it was also what refused the commit, nothing of
/// that is under way ([`RmtError::is_full`]), and what is read is all that came of it: etcd says so too of the one transaction by which it reaches its quota, which took
/// effect. If the commit's answer was lost, only that it did can be told until there is space: what was sent may arrive when etcd's alarm is disarmed.
pub(crate) fn fate_of(
    table: &Table,
    error: &RmtError,
    is_applied: impl FnOnce(&Table) -> Result<bool, RmtError>,
) -> Fate {
    let is_over = match table.advance(0) {
        Ok(_) => true,
        Err(RmtError::Deposed { .. }) => return Fate::Deposed,
        Err(full) if full.is_full() => error.is_full(),
        Err(_) => return Fate::Unknown,
    };
    match is_applied(table) {
        Ok(true) => Fate::Applied,
        Ok(false) if is_over => Fate::NotApplied,
        Err(RmtError::Deposed { .. }) => Fate::Deposed,
        Ok(false) | Err(_) => Fate::Unknown,
    }
}

#[cfg(test)]
mod tests;
