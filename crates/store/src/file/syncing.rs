//! Making a file durable.
//!
//! What was written lies in the page caches of the servers' file systems, so a sync takes as long as its slowest device, if all are asked together. The
//! objects of all regions that were written are synced by groups of calls under way at once, whatever region they belong to.

use super::core::FileCore;
use super::error::FileError;
use super::objects::Objects;
use super::reason::RetryReason;
use super::retry::Retry;
use crate::client::rings::GROUP;
use crate::protocol::Request;
use crate::shared::control::{FragmentMode, RegionState};
use crate::shared::marking::Motion;
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use stripewise_layout::{FileOffset, Generation, RegionIndex, RegionPiece};

/// Objects of a region that are synced already.
#[derive(Default)]
struct Begun {
    generation: Generation,
    objects: usize,
}

/// Regions whose new objects' names a sync of this process made durable, each with its generation. A table of few places: what is forgotten is synced
/// again.
#[derive(Debug)]
struct DurableNames([AtomicU64; 64]);

impl DurableNames {
    const fn none() -> Self {
        Self([const { AtomicU64::new(u64::MAX) }; 64])
    }

    fn entry(&self, region: RegionIndex, generation: Generation) -> (&AtomicU64, u64) {
        (&self.0[region.0 as usize % self.0.len()], u64::from(region.0) << 32 | u64::from(generation.0))
    }

    fn add(&self, region: RegionIndex, generation: Generation) {
        let (place, value) = self.entry(region, generation);
        place.store(value, Relaxed);
    }

    fn has(&self, region: RegionIndex, generation: Generation) -> bool {
        let (place, value) = self.entry(region, generation);
        place.load(Relaxed) == value
    }
}

/// A region of which everything was durable before a durable write.
pub(super) struct DurableBefore {
    region: RegionIndex,
    generation: Generation,
    written: u32,
}

/// What of an open file is known to be durable, and how the rest is made so.
#[derive(Debug)]
pub(super) struct Durability {
    /// Since this open.
    stub_is_synced: AtomicBool,
    names: DurableNames,
}

impl Durability {
    pub(super) const fn none() -> Self {
        Self { stub_is_synced: AtomicBool::new(false), names: DurableNames::none() }
    }

    /// The regions of `[offset, offset + bytes)` of which everything is durable now.
    pub(super) fn durable_regions(&self, file: &FileCore, offset: FileOffset, bytes: u64) -> Vec<DurableBefore> {
        let durable = |piece: RegionPiece| match file.region(piece.region) {
            RegionState::Placed { generation, motion: Motion::Still, .. } => {
                let written = file.extent().synced(piece.region)?;
                let has_names = self.names.has(piece.region, generation);
                has_names.then_some(DurableBefore { region: piece.region, generation, written })
            }
            _ => None,
        };
        // What lies in logs of fragments is durable after it was written back only.
        let is_known = file.control().notices().fragments() == FragmentMode::Off;
        file.geometry().pieces(offset, bytes).filter(|_| is_known).filter_map(durable).collect()
    }

    /// After one durable write over them: they are durable still, unless others wrote meanwhile or a region moves.
    pub(super) fn note_durable_write(&self, file: &FileCore, before: &[DurableBefore]) {
        for DurableBefore { region, generation, written } in before {
            let state = file.region(*region);
            // A write counts when it begins and when it ends.
            let after = written.wrapping_add(2);
            if matches!(state, RegionState::Placed { generation: now, motion: Motion::Still, .. } if now == *generation)
                && file.extent().unsynced(*region) == Some(after)
            {
                file.extent().mark_synced(*region, after);
            }
        }
    }

    /// Makes durable what any process wrote before: data, then size, mapping and names. `data_only` as in `fdatasync`: the size counts as
    /// data, since it is needed to read it.
    ///
    /// First the broker writes to the disks what lies in logs of fragments alone. The counts of the regions' writes are read first, then the objects are synced, and after the broker's part
    /// the counts are marked as synced.
    /// What wrote in between counts as not synced.
    ///
    /// # Errors
    ///
    /// [`FileError::Stub`], [`FileError::Server`], [`FileError::ObjectMissing`] or [`FileError::Broker`]
    /// where something could not be made durable, which the next call tries again;
    /// [`FileError::Replaced`].
    pub(super) fn sync(&self, retry: Retry<'_>, data_only: bool) -> Result<(), FileError> {
        let file = retry.file();
        file.check_not_replaced()?;
        self.sync_stub(file)?;
        retry.logs().flush(file)?;
        let (control, extent) = (file.control(), file.extent());
        let size = file.size_bytes();
        let regions = (0..file.geometry().count_for(size)).map(RegionIndex);
        let (synced, writes): (Vec<_>, Vec<_>) =
            regions.filter_map(|region| Some((region, extent.unsynced(region)?))).unzip();
        let placed = |region: &RegionIndex| match file.region(*region) {
            RegionState::Placed { generation, .. } => Some((*region, generation)),
            RegionState::Absent => None,
        };
        let named: Vec<(RegionIndex, Generation)> = synced.iter().filter_map(placed).collect();
        sync_regions(retry, &synced)?;
        if synced.is_empty() && data_only && control.durable_size_bytes() == size {
            return Ok(());
        }
        file.ask(&Request::Sync { file: file.id() })?;
        named.into_iter().for_each(|(region, generation)| self.names.add(region, generation));
        if extent.is_writable() {
            for (region, written) in synced.into_iter().zip(writes) {
                extent.mark_synced(region, written);
            }
        }
        Ok(())
    }

    /// Once for each open: the broker wrote its text, and without that the data would not be found after a power failure.
    fn sync_stub(&self, file: &FileCore) -> Result<(), FileError> {
        if self.stub_is_synced.load(Acquire) {
            return Ok(());
        }
        if let Some(stub) = file.core().stub_of(file.id(), file.is_writable()) {
            match stub.with_open(|stub| rustix::fs::fsync(stub)) {
                // Some file systems cannot sync, or have nothing to sync.
                Ok(Ok(()) | Err(Errno::INVAL | Errno::ROFS)) => {}
                Ok(Err(source)) | Err(source) => return Err(FileError::Stub { file: file.id(), source }),
            }
        }
        self.stub_is_synced.store(true, Release);
        Ok(())
    }
}

/// Syncs the objects of these regions, of all of them together: devices work side by side only on what they were asked for.
fn sync_regions(retry: Retry<'_>, mut regions: &[RegionIndex]) -> Result<(), FileError> {
    let mut begun = Begun::default();
    while !regions.is_empty() {
        match sync_next(Objects::new(retry.file()), regions, &mut begun) {
            Ok(done) => regions = &regions[done..],
            Err(reason) => retry.resolve(reason)?,
        }
    }
    Ok(())
}

/// Syncs the next objects, as many as are asked for together. Returns how many regions that ends; of the one behind them, `begun` says what is done:
/// that is not done again after a reason.
fn sync_next(objects: Objects<'_>, regions: &[RegionIndex], begun: &mut Begun) -> Result<usize, RetryReason> {
    let mut pinned = Vec::new();
    let (mut done, mut next) = (0, Begun::default());
    'regions: for region in regions {
        let RegionState::Placed { generation, view, .. } = objects.file().region(*region) else {
            done += 1;
            continue;
        };
        let before = if done == 0 && begun.generation == generation { begun.objects } else { 0 };
        for (number, stripe) in view.stripes().iter().enumerate().skip(before) {
            let key = objects.key(*region, generation, stripe.server);
            // No more, so that not too many descriptors are held at a time.
            let pin = if pinned.len() < GROUP { objects.pin(&key) } else { Err(RetryReason::Again) };
            match pin {
                Ok(pin) => pinned.push((key, pin)),
                Err(reason) if pinned.is_empty() => return Err(reason),
                // Met again when those before it are synced.
                Err(_) => {
                    next = Begun { generation, objects: number };
                    break 'regions;
                }
            }
        }
        done += 1;
    }
    objects.sync_group(&pinned)?;
    for (key, pin) in &pinned {
        objects.check_named(key, pin.handle())?;
    }
    *begun = next;
    Ok(done)
}
