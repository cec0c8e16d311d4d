//! What hosts of one cluster share: the mapping table, and who is master.
//!
//! One host at a time is the master, the single writer of the table. It is elected by the engine that holds the table, and every commit
//! of its table carries a fence: the engine applies it only while the election that it won still stands. So a master that has lost
//! its place, and may not know it yet, changes nothing.
//!
//! [`crate::etcd::EtcdCoordinator`] implements this over etcd, [`crate::rados::RadosCoordinator`] over a pool of Ceph.

use crate::rmt::{Entries, MappingStore, RmtError};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[cfg(test)]
pub(crate) mod tests;

/// How often an engine that does not report changes is asked for the master.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Bits of the numbers that one master gives to truncations, turns and admissions; above them is its term.
pub(crate) const NUMBERS_OF_A_TERM: u32 = 24;

/// Who stands for election.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// The host, as messages name it.
    pub name: String,
    /// Where other hosts reach it once it is master.
    pub address: String,
}

/// Who won an election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Master {
    pub candidate: Candidate,
    /// Higher than that of every master before it.
    pub term: u64,
}

/// What an engine can say of a table that may be damaged.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Salvage {
    /// Keys and values as they stand there, all of one moment.
    pub present: Entries,
    /// What of it is not in the engine's own form, in words.
    pub damages: Vec<String>,
    /// The table as the last commit of a master left it, by the engine's own history; `None`: the history does not say.
    pub history: Option<Entries>,
}

/// The shared table and the election of one cluster. Methods may be called from any thread.
pub trait Coordinator: Send + Sync {
    /// The table, for reading: a commit is refused with [`RmtError::Deposed`].
    fn table(&self) -> Box<dyn MappingStore>;

    /// What can be read of the table, whatever is wrong with it. Changes nothing, and asks no master.
    fn salvage(&self) -> Result<Salvage, RmtError>;

    /// Who is master now; `None`: nobody.
    fn master(&self) -> Result<Option<Master>, RmtError>;

    /// Becomes master as soon as there is none; `None`: there still was one after `patience`.
    fn campaign(&self, candidate: &Candidate, patience: Duration) -> Result<Option<Box<dyn Mastership>>, RmtError>;

    /// Waits until the master of `term` is master no more; false: it still was after `patience`.
    fn wait_for_end_of(&self, term: u64, patience: Duration) -> Result<bool, RmtError> {
        let deadline = Instant::now() + patience;
        while self.master()?.is_some_and(|master| master.term == term) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(left.min(CHECK_INTERVAL));
        }
        Ok(true)
    }

    /// The process that was master in `term` has ended for certain: another need not wait until its time is over. Does nothing if that
    /// master has a successor.
    fn end_term(&self, term: u64) -> Result<(), RmtError>;
}

/// An election won. It lasts as long as the master renews it, which it does by itself until this value is dropped; a master that is
/// dropped without [`Self::resign`] is followed by another only when its time is over.
pub trait Mastership: Send + Sync {
    /// This master.
    fn master(&self) -> &Master;

    /// The table, for its only writer. A commit after the mastership was lost changes nothing and is [`RmtError::Deposed`].
    fn table(&self) -> Box<dyn MappingStore>;

    /// The time for which it lasts.
    fn lease(&self) -> Arc<dyn Lease>;

    /// Whether another may be master by now, as far as this host can tell by itself. Commits need not ask: they are fenced.
    fn is_lost(&self) -> bool {
        self.lease().is_over()
    }

    /// Hands over at once. The tables of this master commit nothing from then on.
    fn resign(self: Box<Self>) -> Result<(), RmtError>;
}

/// The time for which a mastership lasts unless it is renewed, for all who answer in its name.
pub trait Lease: Send + Sync {
    /// See [`Mastership::is_lost`].
    fn is_over(&self) -> bool;
}

/// A name that nothing had before: 32 hexadecimal digits.
pub(crate) fn unique_name() -> String {
    let mut random = [0; 16];
    let mut filled = 0;
    while filled < random.len() {
        // Fails on no kernel that has the call; one without it would repeat a name.
        filled += rustix::rand::getrandom(&mut random[filled..], rustix::rand::GetRandomFlags::empty())
            .expect("the kernel has random numbers");
    }
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Milliseconds since the boot of this host, sleep included: what leases are measured by.
pub(crate) fn boot_time_ms() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}
