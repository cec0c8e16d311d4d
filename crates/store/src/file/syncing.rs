//! Making a file durable.
//!
//! What was written lies in the page caches of the servers' file systems, so a sync takes as long as its slowest device, if all are asked together. The
//! objects of all regions that were written are synced by groups of calls under way at once, whatever region they belong to.

use super::retry::RetryReason;
use super::{FileError, StripedFile};
use crate::client::objects::{ObjectKey, Pin};
use crate::client::rings::{Call, GROUP};
use crate::protocol::Request;
use crate::server::{Handle, ObjectName, ServerError};
use crate::shared::control::{FragmentMode, RegionState};
use crate::shared::marking::Motion;
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
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
pub(super) struct DurableNames([AtomicU64; 64]);

impl DurableNames {
    pub(super) const fn none() -> Self {
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

impl StripedFile {
    /// The regions of `[offset, offset + bytes)` of which everything is durable now.
    pub(super) fn durable_regions(&self, offset: FileOffset, bytes: u64) -> Vec<DurableBefore> {
        let durable = |piece: RegionPiece| match self.open.control().regions().get(piece.region) {
            RegionState::Placed { generation, motion: Motion::Still, .. } => {
                let written = self.open.extent().synced(piece.region)?;
                let has_names = self.durable_names.has(piece.region, generation);
                has_names.then_some(DurableBefore { region: piece.region, generation, written })
            }
            _ => None,
        };
        // What lies in logs of fragments is durable after it was written back only.
        let is_known = self.open.control().notices().fragments() == FragmentMode::Off;
        self.geometry.pieces(offset, bytes).filter(|_| is_known).filter_map(durable).collect()
    }

    /// After one durable write over them: they are durable still, unless others wrote meanwhile or a region moves.
    pub(super) fn note_durable_write(&self, before: &[DurableBefore]) {
        for DurableBefore { region, generation, written } in before {
            let state = self.open.control().regions().get(*region);
            // A write counts when it begins and when it ends.
            let after = written.wrapping_add(2);
            if matches!(state, RegionState::Placed { generation: now, motion: Motion::Still, .. } if now == *generation)
                && self.open.extent().unsynced(*region) == Some(after)
            {
                self.open.extent().mark_synced(*region, after);
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
    pub fn sync(&self, data_only: bool) -> Result<(), FileError> {
        self.check_not_replaced()?;
        self.sync_stub()?;
        self.flush_fragments()?;
        let (control, extent) = (self.open.control(), self.open.extent());
        let size = self.size_bytes();
        let regions = (0..self.geometry.count_for(size)).map(RegionIndex);
        let (synced, writes): (Vec<_>, Vec<_>) =
            regions.filter_map(|region| Some((region, extent.unsynced(region)?))).unzip();
        let placed = |region: &RegionIndex| match self.open.control().regions().get(*region) {
            RegionState::Placed { generation, .. } => Some((*region, generation)),
            RegionState::Absent => None,
        };
        let named: Vec<(RegionIndex, Generation)> = synced.iter().filter_map(placed).collect();
        self.sync_regions(&synced)?;
        if synced.is_empty() && data_only && control.durable_size_bytes() == size {
            return Ok(());
        }
        self.open.core().done(&Request::Sync { file: self.open.id() }, &[]).map_err(|source| self.broker(source))?;
        named.into_iter().for_each(|(region, generation)| self.durable_names.add(region, generation));
        if extent.is_writable() {
            for (region, written) in synced.into_iter().zip(writes) {
                extent.mark_synced(region, written);
            }
        }
        Ok(())
    }

    /// Once for each open: the broker wrote its text, and without that the data would not be found after a power failure.
    fn sync_stub(&self) -> Result<(), FileError> {
        if self.stub_is_synced.load(Acquire) {
            return Ok(());
        }
        if let Some(stub) = self.open.core().stub_of(self.open.id(), self.open.is_writable()) {
            match stub.with_open(|stub| rustix::fs::fsync(stub)) {
                // Some file systems cannot sync, or have nothing to sync.
                Ok(Ok(()) | Err(Errno::INVAL | Errno::ROFS)) => {}
                Ok(Err(source)) | Err(source) => return Err(FileError::Stub { file: self.open.id(), source }),
            }
        }
        self.stub_is_synced.store(true, Release);
        Ok(())
    }

    /// Syncs the objects of these regions, of all of them together: devices work side by side only on what they were asked for.
    fn sync_regions(&self, mut regions: &[RegionIndex]) -> Result<(), FileError> {
        let mut begun = Begun::default();
        while !regions.is_empty() {
            match self.sync_next(regions, &mut begun) {
                Ok(done) => regions = &regions[done..],
                Err(reason) => self.resolve(reason)?,
            }
        }
        Ok(())
    }

    /// Syncs the next objects, as many as are asked for together. Returns how many regions that ends; of the one behind them, `begun` says what is done:
    /// that is not done again after an reason.
    fn sync_next(&self, regions: &[RegionIndex], begun: &mut Begun) -> Result<usize, RetryReason> {
        let mut objects = Vec::new();
        let (mut done, mut next) = (0, Begun::default());
        'regions: for region in regions {
            let RegionState::Placed { generation, view, .. } = self.open.control().regions().get(*region) else {
                done += 1;
                continue;
            };
            let before = if done == 0 && begun.generation == generation { begun.objects } else { 0 };
            for (number, stripe) in view.stripes().iter().enumerate().skip(before) {
                let key = self.key(*region, generation, stripe.server);
                // No more, so that not too many descriptors are held at a time.
                let pin = if objects.len() < GROUP { self.pin(&key) } else { Err(RetryReason::Again) };
                match pin {
                    Ok(pin) => objects.push((key, pin)),
                    Err(reason) if objects.is_empty() => return Err(reason),
                    // Met again when those before it are synced.
                    Err(_) => {
                        next = Begun { generation, objects: number };
                        break 'regions;
                    }
                }
            }
            done += 1;
        }
        self.sync_group(&objects)?;
        for (key, pin) in &objects {
            self.check_named(key, pin.handle())?;
        }
        *begun = next;
        Ok(done)
    }

    /// An object that lost its name (a server directory emptied under us) is not durable, though its open descriptor still works.
    fn check_named(&self, key: &ObjectKey, object: Handle<'_>) -> Result<(), RetryReason> {
        let is_named = match object {
            Handle::Descriptor(object) => rustix::fs::fstat(object).is_ok_and(|status| status.st_nlink > 0),
            Handle::Named(object) => {
                self.open.core().server(key.server).is_ok_and(|server| server.size(object).is_ok())
            }
        };
        if is_named {
            return Ok(());
        }
        let ObjectName { file, region, generation } = key.object;
        match self.open.control().regions().get(region) {
            RegionState::Placed { generation: present, .. } if present == generation => {
                // What is opened from now on is looked for by name.
                self.open.core().objects.close_file(file);
                let server = self.open.core().server_name(key.server);
                Err(RetryReason::Fault(FileError::ObjectMissing { file, region, generation, server }))
            }
            _ => Err(RetryReason::Again),
        }
    }

    /// Syncs objects, at once where they are plain descriptors of stores that wait.
    pub(super) fn sync_group(&self, objects: &[(ObjectKey, Pin<'_>)]) -> Result<(), RetryReason> {
        let mut results = vec![None; objects.len()];
        if objects.len() > 1 && objects.iter().all(|(key, _)| self.open.core().may_wait(key.server)) {
            let calls: Vec<Call<'_>> =
                objects.iter().filter_map(|(_, pin)| pin.handle().descriptor()).map(sync_call).collect();
            if calls.len() == objects.len() {
                self.open.core().rings.run(&calls, |number, result| results[number] = Some(result));
            }
        }
        for ((key, pin), result) in objects.iter().zip(results) {
            match result {
                Some(Ok(_)) => {}
                // The kernel tells a failed write-back once: asking again would hide it.
                Some(Err(source)) if source != Errno::INTR && source != Errno::AGAIN => {
                    let server = self.open.core().server_name(key.server);
                    return Err(self.fault(ServerError::Os { server, action: "syncing an object", source }));
                }
                _ => {
                    let server = self.open.core().server(key.server).map_err(|error| self.fault(error))?;
                    server.sync(pin.handle()).map_err(|error| self.fault(error))?;
                }
            }
        }
        Ok(())
    }
}

fn sync_call(object: BorrowedFd<'_>) -> Call<'static> {
    Call::Sync { descriptor: object.as_raw_fd() }
}
