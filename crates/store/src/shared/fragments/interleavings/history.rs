//! What was written to and read from each cell, and when; and whether there is an order that explains it.
//!
//! As every write has a value of its own, this is easy to decide (Gibbons and Korach, "Testing shared memories", 1997): a write and the reads of
//! its value belong together; of two such groups one has to come before the other as a whole, which fails if and only if each has an operation that ended
//! before one of the other began.

use super::{DiskRange, cells};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

const MAX_CELLS: u64 = 8;

/// What a write leaves in a cell.
pub(super) fn value(write: u64, cell: u64) -> u64 {
    write * MAX_CELLS + cell
}

/// A write and the reads of its value.
#[derive(Clone, Copy, Debug)]
struct Group {
    write: u64,
    cell: u64,
    begun: u64,
    /// The dead's never end.
    ended: u64,
    first_end: u64,
    last_begin: u64,
}

/// The locks are not the checker's, so that nothing waits or is ordered by the history.
pub(super) struct History {
    time: AtomicU64,
    groups: Mutex<Vec<Group>>,
}

impl History {
    /// Each cell has the value of write 0.
    pub(super) fn new(cells: u64) -> Self {
        let group = |cell| Group { write: 0, cell, begun: 0, ended: 0, first_end: 0, last_begin: 0 };
        Self { time: AtomicU64::new(1), groups: Mutex::new((0..cells).map(group).collect()) }
    }

    /// Later than all that was asked for before.
    pub(super) fn now(&self) -> u64 {
        self.time.fetch_add(1, SeqCst)
    }

    pub(super) fn begin_write(&self, range: &DiskRange) -> u64 {
        let write = self.now();
        let never = u64::MAX;
        let group = |cell| Group { write, cell, begun: write, ended: never, first_end: never, last_begin: write };
        self.groups.lock().unwrap().extend(cells(range).map(group));
        write
    }

    pub(super) fn end_write(&self, write: u64) {
        let now = self.now();
        for group in self.groups.lock().unwrap().iter_mut().filter(|group| group.write == write) {
            (group.ended, group.first_end) = (now, group.first_end.min(now));
        }
    }

    fn with_value(groups: &mut [Group], cell: u64, found: u64) -> &mut Group {
        let group = groups.iter_mut().find(|group| group.cell == cell && value(group.write, cell) == found);
        group.unwrap_or_else(|| panic!("cell {cell} never had {found}"))
    }

    pub(super) fn read(&self, cell: u64, found: u64, begun: u64) {
        let now = self.now();
        let mut groups = self.groups.lock().unwrap();
        let group = Self::with_value(&mut groups, cell, found);
        group.first_end = group.first_end.min(now);
        group.last_begin = group.last_begin.max(begun);
    }

    /// The disk after an `fsync`: no write ended before it began that is newer.
    pub(super) fn synced(&self, cell: u64, found: u64, begun: u64) {
        let mut groups = self.groups.lock().unwrap();
        let on_disk = *Self::with_value(&mut groups, cell, found);
        for group in groups.iter().filter(|group| group.cell == cell) {
            let is_lost = group.ended < begun && on_disk.ended < group.begun;
            assert!(!is_lost, "{on_disk:?} is on the disk after fsync, and not {group:?}");
        }
    }

    pub(super) fn check(&self) {
        let groups = self.groups.lock().unwrap();
        for (number, one) in groups.iter().enumerate() {
            for other in groups[..number].iter().filter(|other| other.cell == one.cell) {
                let is_twice = one.first_end < other.last_begin && other.first_end < one.last_begin;
                assert!(!is_twice, "no order of {one:?} and {other:?}");
            }
        }
    }
}
