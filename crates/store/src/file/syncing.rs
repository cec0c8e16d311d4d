//! Making a file durable.
//!
//! What was written lies in the page caches of the servers' file systems, so a sync takes as long as its slowest device, if all are asked together. The
//! objects of all regions that were written are synced with calls to all servers under way at once, whatever region they belong to.
//!
//! The bytes of a durable write (`O_DSYNC`) are durable when the servers' calls return ([`super::together`]). Beside them, reading them after a power
//! failure takes the stub, the names of the objects and a size that covers them. Shared memory says of each whether it is durable, so an overwrite asks
//! nobody, and an append has the broker record the size.

use super::core::FileCore;
use super::error::FileError;
use super::objects::Objects;
use super::reason::RetryReason;
use super::retry::Retry;
use crate::client::rings::GROUP;
use crate::protocol::Request;
use crate::server::is_moved;
use crate::shared::control::{FragmentMode, RegionState};
use crate::shared::marking::Motion;
use rustix::io::Errno;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use stripewise_layout::{FileOffset, Generation, RegionIndex, RegionPiece, ServerId, StripeView};

/// Objects that are synced together, a few of each server at a time: as one ends the server's next begins, so that no device waits for another. Each holds
/// a descriptor for as long.
const SYNCED_TOGETHER: usize = 8 * GROUP;

/// Objects of a region that are synced already.
#[derive(Default)]
struct Begun {
    generation: Generation,
    objects: usize,
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
}

impl Durability {
    pub(super) const fn none() -> Self {
        Self { stub_is_synced: AtomicBool::new(false) }
    }

    /// The regions of `[offset, offset + bytes)` of which all bytes are durable now.
    pub(super) fn durable_regions(&self, file: &FileCore, offset: FileOffset, bytes: u64) -> Vec<DurableBefore> {
        let durable = |piece: RegionPiece| match file.region(piece.region) {
            RegionState::Placed { generation, motion: Motion::Still, .. } => {
                let written = file.extent().synced(piece.region)?;
                Some(DurableBefore { region: piece.region, generation, written })
            }
            _ => None,
        };
        // What lies in logs of fragments is durable after it was written back only.
        let is_known = !may_have_logs(file);
        file.geometry().pieces(offset, bytes).filter(|_| is_known).filter_map(durable).collect()
    }

    /// After one durable write over them: they are durable still, unless others wrote meanwhile or a region moves.
    pub(super) fn note_durable_write(&self, file: &FileCore, before: &[DurableBefore]) {
        // The file got logs meanwhile, and the write may lie there.
        if may_have_logs(file) {
            return;
        }
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
    /// the counts are marked as synced. What wrote in between counts as not synced. The broker has no part in `fdatasync` of what was overwritten: size and
    /// names are durable then.
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
        let regions = || (0..file.geometry().count_for(size)).map(RegionIndex);
        let (synced, writes): (Vec<_>, Vec<_>) =
            regions().filter_map(|region| Some((region, extent.unsynced(region)?))).unzip();
        sync_objects(retry, &synced, Scope::Regions)?;
        let is_known =
            || control.durable_size_bytes() == Some(size) && regions().all(|region| has_durable_names(file, region));
        // What was overwritten is durable with its objects. Where other hosts may have moved these meanwhile, their master says so.
        let is_own = synced.is_empty() || !control.notices().is_shared();
        if !(data_only && is_own && is_known()) {
            file.ask(&Request::Sync { file: file.id() })?;
            // The memory whose size was to be told may be none any more since.
            file.check_not_replaced()?;
        }
        if extent.is_writable() {
            for (region, written) in synced.into_iter().zip(writes) {
                extent.mark_synced(region, written);
            }
        }
        Ok(())
    }

    /// Makes durable what it takes to find `[offset, offset + bytes)` after a power failure, which this process wrote in a durable mode: what of the bytes
    /// lies in logs of fragments, names of objects, a size that covers them, and the stub. `data_only` as in `O_DSYNC`: a stub that was synced
    /// through any open is not synced again.
    ///
    /// # Errors
    ///
    /// As of [`Self::sync`].
    pub(super) fn sync_written(
        &self,
        retry: Retry<'_>,
        offset: FileOffset,
        bytes: u64,
        data_only: bool,
    ) -> Result<(), FileError> {
        let file = retry.file();
        file.check_not_replaced()?;
        let is_stub_known = || stub_inode(file).is_some_and(|inode| file.extent().is_stub_synced(inode));
        if !(data_only && is_stub_known()) {
            self.sync_stub(file)?;
        }
        let regions: Vec<RegionIndex> = file.geometry().pieces(offset, bytes).map(|piece| piece.region).collect();
        // Once this process knows the logs, parts of its writes may lie there, or may have been written back from there to the disks' page caches.
        let may_lie_in_logs = retry.logs().known().is_some();
        if may_lie_in_logs {
            retry.logs().flush(file)?;
        }
        sync_objects(retry, &regions, Scope::Range { offset, bytes, are_durable: !may_lie_in_logs })?;
        let is_covered = file.control().durable_size_bytes().is_some_and(|durable| durable >= offset.0 + bytes);
        if is_covered && regions.iter().all(|region| has_durable_names(file, *region)) {
            return Ok(());
        }
        file.ask(&Request::Sync { file: file.id() })?;
        file.check_not_replaced()
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
            if file.extent().is_writable() {
                file.extent().note_stub_synced(stub.identity().1);
            }
        }
        self.stub_is_synced.store(true, Release);
        Ok(())
    }
}

fn stub_inode(file: &FileCore) -> Option<u64> {
    Some(file.core().stub_of(file.id(), file.is_writable())?.identity().1)
}

/// Whether the names of the region's objects survive a power failure.
fn has_durable_names(file: &FileCore, region: RegionIndex) -> bool {
    match file.region(region) {
        RegionState::Placed { generation, .. } => is_moved(generation) || generation <= file.control().durable_names(),
        RegionState::Absent => true,
    }
}

/// Which objects of regions are synced.
#[derive(Clone, Copy)]
enum Scope {
    /// All.
    Regions,
    /// Those that hold something of a range. Where its bytes are durable, it is only looked whether the objects still have their names.
    Range { offset: FileOffset, bytes: u64, are_durable: bool },
}

impl Scope {
    /// The servers of a region's objects.
    fn servers(self, file: &FileCore, region: RegionIndex, view: StripeView<'_>) -> Vec<ServerId> {
        let Self::Range { offset, bytes, .. } = self else {
            return view.stripes().iter().map(|stripe| stripe.server).collect();
        };
        let is_of = |piece: &RegionPiece| piece.region == region;
        let pieces = file.geometry().pieces(offset, bytes).filter(is_of);
        pieces.flat_map(|piece| view.split(piece.offset, piece.length).map(|sub| sub.server)).collect()
    }
}

/// Whether a write may lie in a log of fragments alone.
fn may_have_logs(file: &FileCore) -> bool {
    matches!(file.control().notices().fragments(), FragmentMode::On | FragmentMode::Leaving)
}

/// Syncs objects of these regions, of all of them together: devices work side by side only on what they were asked for.
fn sync_objects(retry: Retry<'_>, mut regions: &[RegionIndex], scope: Scope) -> Result<(), FileError> {
    let mut begun = Begun::default();
    while !regions.is_empty() {
        match sync_next(Objects::new(retry.file()), regions, scope, &mut begun) {
            Ok(done) => regions = &regions[done..],
            Err(reason) => retry.resolve(reason)?,
        }
    }
    Ok(())
}

/// Syncs the next objects, as many as are asked for together. Returns how many regions that ends; of the one behind them, `begun` says what is done:
/// that is not done again after a reason.
fn sync_next(
    objects: Objects<'_>,
    regions: &[RegionIndex],
    scope: Scope,
    begun: &mut Begun,
) -> Result<usize, RetryReason> {
    let mut pinned = Vec::new();
    let (mut done, mut next) = (0, Begun::default());
    'regions: for region in regions {
        let RegionState::Placed { generation, view, .. } = objects.file().region(*region) else {
            done += 1;
            continue;
        };
        let before = if done == 0 && begun.generation == generation { begun.objects } else { 0 };
        for (number, server) in scope.servers(objects.file(), *region, view).into_iter().enumerate().skip(before) {
            let key = objects.key(*region, generation, server);
            let pin = if pinned.len() < SYNCED_TOGETHER { objects.pin(&key) } else { Err(RetryReason::Again) };
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
    if !matches!(scope, Scope::Range { are_durable: true, .. }) {
        objects.sync_group(&pinned)?;
    }
    for (key, pin) in &pinned {
        objects.check_named(key, pin.handle())?;
    }
    *begun = next;
    Ok(done)
}
