//! A file as programs of this host see it, in shared memory.

use crate::host_messages::{Snapshot, layout_of};
use crate::managed::{Managed, memory_fault};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use stripewise_coherence::host::Shared;
use stripewise_layout::{RegionGeometry, RegionIndex};
use stripewise_store::protocol::Refusal;
use stripewise_store::shared::control::{Life, RegionState};
use stripewise_store::shared::marking::Motion;
use stripewise_store::shared::process_slot::{Incarnation, ProcessSlot};

/// The file's shared memory on this host.
pub(super) struct Programs {
    managed: Arc<Managed>,
    /// Regions from this one on have no words here. They may lie beyond the size that this host knows.
    regions_end: AtomicU32,
}

/// Of a move: who died inside, so that what they wrote is to be copied again.
pub(super) struct Dead {
    pub(super) turn: u64,
    /// Those whose writes have been copied since.
    pub(super) counted: HashSet<(ProcessSlot, Incarnation)>,
    /// See [`stripewise_store::shared::slots::Slots::forgotten`].
    pub(super) forgotten: u64,
}

impl Dead {
    pub(super) fn of(turn: u64, forgotten: u64) -> Self {
        Self { turn, counted: HashSet::new(), forgotten }
    }
}

impl Programs {
    pub(super) fn new(managed: Managed, regions_end: u32) -> Self {
        Self { managed: Arc::new(managed), regions_end: AtomicU32::new(regions_end) }
    }

    pub(super) fn managed(&self) -> &Arc<Managed> {
        &self.managed
    }

    /// Shows the regions of the snapshot, each in its motion, and what else it says of the file.
    pub(super) fn show(&self, snapshot: &Snapshot, motion: impl Fn(RegionIndex) -> Motion) -> Result<(), Refusal> {
        let managed = &self.managed;
        let snapshot_end = snapshot.regions.iter().map(|(region, ..)| region.0 + 1).max();
        self.regions_end.fetch_max(snapshot_end.unwrap_or(0), SeqCst);
        let regions = managed.control.regions();
        for (region, generation, stripes) in &snapshot.regions {
            let is_shown = matches!(
                regions.get(*region),
                RegionState::Placed { generation: shown, .. } if shown == *generation
            );
            if is_shown {
                continue;
            }
            let layout = layout_of(stripes).ok_or_else(|| Refusal::Table {
                what: format!("the master sent an impossible layout of region {region} of file {}", managed.file),
            })?;
            managed.extent.reserve(*region).map_err(memory_fault(managed.file))?;
            regions.publish_in(motion(*region), managed.file, *region, *generation, &layout)?;
        }
        managed.control.notices().set_leftovers(snapshot.has_leftovers);
        managed.control.set_life(if snapshot.is_being_made { Life::Making } else { Life::Live });
        Ok(())
    }
}

impl Shared for Programs {
    fn is_absent(&self, region: RegionIndex) -> bool {
        self.managed.control.regions().is_absent(region)
    }

    fn follow(&self, region: RegionIndex, slot: u8) -> bool {
        self.managed.control.regions().follow_move(region, slot, self.managed.extent.marks(slot))
    }

    fn clear_marks(&self, slot: u8) {
        let _ = self.managed.extent.marks(slot).take();
    }

    fn seal(&self, region: RegionIndex, slot: u8) -> bool {
        self.managed.control.regions().seal(region, slot)
    }

    fn unseal(&self, region: RegionIndex, slot: u8) {
        let _ = self.managed.control.regions().unseal(region, slot);
    }

    fn give_up(&self, region: RegionIndex, slot: u8) {
        let _ = self.managed.control.regions().give_up_move(region, slot);
    }

    fn retract(&self, region: RegionIndex) {
        self.managed.control.regions().retract(region);
    }

    fn wake_writers(&self) {
        self.managed.control.regions().let_writers_go_on();
    }

    fn shut_gate(&self) {
        self.managed.control.gate().shut();
    }

    fn open_gate(&self) {
        self.managed.control.gate().open();
    }

    fn is_gate_shut(&self) -> bool {
        self.managed.control.gate().is_shut()
    }

    fn truncations(&self) -> u64 {
        self.managed.extent.truncations()
    }

    fn note_truncations(&self, truncations: u64) {
        self.managed.extent.note_truncations(truncations);
    }

    fn extend_to(&self, size_bytes: u64) {
        self.managed.extent.extend_to(size_bytes);
    }

    fn truncate_to(&self, size_bytes: u64) {
        let geometry = RegionGeometry::new(self.managed.control.region_bytes());
        self.managed.extent.truncate_to(size_bytes);
        let count = geometry.count_for(size_bytes);
        let end = self.regions_end.fetch_min(count, SeqCst);
        (count..end).for_each(|region| self.managed.control.regions().retract(RegionIndex(region)));
    }
}
