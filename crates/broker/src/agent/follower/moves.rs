//! What moves have come to on this host.

use std::collections::{BTreeMap, HashSet};
use stripewise_layout::{FileId, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::marking::Motion;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

/// The moves of a file that this host takes part in, by their regions.
#[derive(Default)]
pub(super) struct HostMoves(BTreeMap<RegionIndex, HostMove>);

/// One of them.
pub(super) struct HostMove {
    pub(super) turn: u64,
    pub(super) slot: u8,
    pub(super) is_sealed: bool,
    /// Who died inside, and whose writes have been copied since.
    pub(super) dead: HashSet<(ProcessSlot, Incarnation)>,
    /// See [`stripewise_store::shared::slots::Slots::forgotten`].
    pub(super) forgotten: u64,
}

impl HostMoves {
    /// In which a word of the region is to be shown.
    pub(super) fn motion(&self, region: RegionIndex) -> Motion {
        match self.0.get(&region) {
            None => Motion::Still,
            Some(HostMove { slot, is_sealed: false, .. }) => Motion::Moving(*slot),
            Some(HostMove { slot, is_sealed: true, .. }) => Motion::Sealed(*slot),
        }
    }

    pub(super) fn insert(&mut self, region: RegionIndex, moving: HostMove) {
        self.0.insert(region, moving);
    }

    pub(super) fn remove(&mut self, region: RegionIndex) {
        self.0.remove(&region);
    }

    /// The region's move, if it has this turn.
    pub(super) fn of(&mut self, file: FileId, region: RegionIndex, turn: u64) -> Result<&mut HostMove, Refusal> {
        let unknown = || busy(file, format!("this host, which knows nothing of the move of region {region}"));
        self.0.get_mut(&region).filter(|found| found.turn == turn).ok_or_else(unknown)
    }
}

pub(super) fn busy(file: FileId, holder: String) -> Refusal {
    Refusal::Busy { file, holder }
}
