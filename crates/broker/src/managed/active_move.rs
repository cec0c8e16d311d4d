//! A move that has begun, as all see it who have its file in hand.

use crate::guard;
use crate::rmt::RegionRecord;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_layout::RegionIndex;
use stripewise_store::server::Ownership;

/// A move that has begun.
pub(crate) struct ActiveMove {
    pub(crate) slot: u8,
    pub(crate) region: RegionIndex,
    pub(crate) old: RegionRecord,
    /// Of a move its one new place; of a sync the replicas.
    pub(crate) new: Vec<RegionRecord>,
    pub(crate) is_sync: bool,
    pub(crate) ownership: Ownership,
    ended: AtomicBool,
    why: Mutex<Option<AbortReason>>,
}

/// Why a move was ended.
#[derive(Clone)]
pub(crate) enum AbortReason {
    Cancelled,
    Abandoned(String),
}

impl ActiveMove {
    pub(crate) fn new(
        slot: u8,
        region: RegionIndex,
        (old, new): (RegionRecord, Vec<RegionRecord>),
        is_sync: bool,
        ownership: Ownership,
    ) -> Self {
        Self { slot, region, old, new, is_sync, ownership, ended: AtomicBool::new(false), why: Mutex::new(None) }
    }

    fn end(&self, why: AbortReason) {
        guard(&self.why).get_or_insert(why);
        self.ended.store(true, SeqCst);
    }

    pub(crate) fn cancel(&self) {
        self.end(AbortReason::Cancelled);
    }

    /// The move is to be given up, and tried again from the start if it still can be.
    pub(crate) fn abandon(&self, why: &str) {
        self.end(AbortReason::Abandoned(why.to_owned()));
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Why it was ended; `None`: it was not.
    pub(crate) fn reason(&self) -> Option<AbortReason> {
        guard(&self.why).clone()
    }
}
