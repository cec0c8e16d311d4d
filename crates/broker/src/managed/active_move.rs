//! A move that has begun, as all see it who have its file in hand.

use crate::guard;
use crate::rmt::{RegionRecord, ReplicaRecord};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_coherence::host::Part;
use stripewise_coherence::moving::{Act, JointMove, Outcome};
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
    joint: Mutex<JointMove>,
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
        joint: JointMove,
        (old, new): (RegionRecord, Vec<RegionRecord>),
        is_sync: bool,
        ownership: Ownership,
    ) -> Self {
        let (ended, why) = (AtomicBool::new(false), Mutex::new(None));
        let region = joint.region();
        Self { slot, region, old, new, is_sync, ownership, joint: Mutex::new(joint), ended, why }
    }

    /// What a sync makes, by the numbers of the replicas.
    pub(crate) fn replicas(&self) -> BTreeMap<u8, ReplicaRecord> {
        let replica = |new: &RegionRecord| ReplicaRecord { generation: new.generation, layout: new.layout.clone() };
        (0..).zip(self.new.iter().map(replica)).collect()
    }

    /// What its mover does next, after the last act had this outcome.
    pub(crate) fn next(&self, outcome: Outcome) -> Act {
        guard(&self.joint).next(outcome)
    }

    /// The number by which hosts recall the region.
    pub(crate) fn set_recalls(&self, recalls: u64) {
        guard(&self.joint).set_recalls(recalls);
    }

    /// What a host that opens the file is told of the move.
    pub(crate) fn part(&self) -> Option<Part> {
        if self.is_ended() { None } else { guard(&self.joint).part() }
    }

    /// Whether all hosts that took part so far still do.
    pub(crate) fn has_all(&self, departures: u64) -> bool {
        guard(&self.joint).has_all(departures)
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
