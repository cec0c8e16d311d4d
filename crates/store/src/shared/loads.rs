//! Reads under way at each server, of all processes of the host, for those who choose among replicas.
//!
//! Behind the table of processes (`super::processes`) stand a sum for each server, 64 bytes apart: sub-requests that are under way there; and then a row of
//! words for each process slot: its share of every sum. A reader raises its share behind the sum, and lowers the share first, the sum only if the share had
//! something left. What a dead process leaves is its row. The broker takes it off the sums when it sees the connection end or when it starts, and the slot's
//! next process when it claims it: by swapping each share for 0, so that whoever comes first takes it off and nobody twice, whatever else goes
//! on. Who is killed between its two steps, within some ns, leaves one too many in a sum; a broker that starts where no process lives clears them.
//!
//! Only reads of regions with replicas are counted, of servers that cannot tell what stands in their queues. Servers whose numbers differ by [`SERVERS`] share a
//! sum.

use super::map::SharedMap;
use super::process_slot::{MAX_PROCESSES, ProcessSlot};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use stripewise_layout::ServerId;

pub(super) const SERVERS: usize = 256;
const SUM_BYTES: usize = 64;
const ROW_BYTES: usize = SERVERS * 8;
pub(super) const ROWS_AT: usize = SERVERS * SUM_BYTES;
pub(super) const LENGTH: usize = ROWS_AT + MAX_PROCESSES as usize * ROW_BYTES;

/// What is under way, as this process sees it.
#[derive(Clone, Copy, Debug)]
pub struct Loads<'a> {
    map: &'a SharedMap,
    at: usize,
}

impl<'a> Loads<'a> {
    pub(super) fn new(map: &'a SharedMap, at: usize) -> Self {
        Self { map, at }
    }

    fn sum(&self, server: usize) -> &'a AtomicU64 {
        self.map.word(self.at + server % SERVERS * SUM_BYTES)
    }

    fn row_at(&self, slot: ProcessSlot) -> usize {
        self.at + ROWS_AT + usize::from(slot.0 % MAX_PROCESSES) * ROW_BYTES
    }

    /// Whether the slot's row may be used: rows get room when they are first used.
    pub(super) fn has_space_for(&self, slot: ProcessSlot) -> bool {
        self.map.is_reached(self.row_at(slot), ROW_BYTES)
    }

    fn share(&self, slot: ProcessSlot, server: usize) -> &'a AtomicU64 {
        self.map.word(self.row_at(slot) + server % SERVERS * 8)
    }

    /// A sub-request of this process begins.
    pub fn begin(&self, slot: ProcessSlot, server: ServerId) {
        self.sum(server.0.into()).fetch_add(1, Relaxed);
        self.share(slot, server.0.into()).fetch_add(1, Relaxed);
    }

    /// What [`Self::begin`] told of ends.
    pub fn end(&self, slot: ProcessSlot, server: ServerId) {
        let share = self.share(slot, server.0.into());
        if share.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).is_ok() {
            self.sum(server.0.into()).fetch_sub(1, Relaxed);
        }
    }

    /// Sub-requests under way at the server.
    #[must_use]
    pub fn under_way(&self, server: ServerId) -> u64 {
        self.sum(server.0.into()).load(Relaxed)
    }

    /// Takes a slot's shares off the sums: those of a process that is gone. Should it live, what it has under way now is not counted any more.
    pub(super) fn settle(&self, slot: ProcessSlot) {
        for server in 0..SERVERS {
            let share = self.share(slot, server);
            if share.load(Relaxed) > 0 {
                self.sum(server).fetch_sub(share.swap(0, Relaxed), Relaxed);
            }
        }
    }

    /// Nothing is under way. Only where no process lives.
    pub(super) fn clear_sums(&self) {
        (0..SERVERS).for_each(|server| self.sum(server).store(0, Relaxed));
    }
}
