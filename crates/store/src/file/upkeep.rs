//! What is done to a file as a whole: its size, its durability, its status.

use super::transfer::Obstacle;
use super::{FileError, StripedFile};
use crate::client::objects::ObjectKey;
use crate::client::rings::GROUP;
use crate::protocol::Request;
use crate::server::ObjectName;
use crate::shared::control::RegionState;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::sync::atomic::Ordering::{Acquire, Release};
use stripewise_layout::{FileOffset, Generation, RegionIndex, StripeView};

/// What `stat` tells of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileStatus {
    pub size_bytes: u64,
    /// Blocks of 512 bytes in the placed regions up to the size: what the file occupies, if these have no holes.
    pub blocks_512: u64,
    /// ns since 1970; `None`: the stub's own time holds.
    pub modified_ns: Option<u64>,
}

impl StripedFile {
    /// Cuts or extends to `size_bytes`. Waits until the I/O in flight is done.
    pub fn truncate(&self, size_bytes: u64) -> Result<(), FileError> {
        self.check_writable()?;
        self.check_not_replaced()?;
        if size_bytes > self.limit_bytes() {
            let (file, limit_bytes) = (self.file, self.limit_bytes());
            return Err(FileError::TooLarge { file, offset: FileOffset(size_bytes), limit_bytes });
        }
        self.core.truncate(self.file, size_bytes).map_err(|source| self.broker(source))?;
        // Objects that were cut off are gone only when nobody has them open.
        self.core.objects.close_file(self.file);
        self.touch();
        Ok(())
    }

    /// Places the regions of `[offset, offset + length)`, as `fallocate` does, and raises the size to the end unless `keep_size`. The servers' room is
    /// promised by the broker's account; a server that others fill may still refuse later.
    pub fn allocate(&self, offset: FileOffset, length: u64, keep_size: bool) -> Result<(), FileError> {
        self.check_writable()?;
        let end = offset.0.saturating_add(length);
        if end > self.limit_bytes() {
            let (file, limit_bytes) = (self.file, self.limit_bytes());
            return Err(FileError::TooLarge { file, offset: FileOffset(end), limit_bytes });
        }
        if length == 0 {
            return Ok(());
        }
        let (first, last) = (self.geometry.locate(offset).0, self.geometry.locate(FileOffset(end - 1)).0);
        let absent = |region: u32| self.shared.control.region(RegionIndex(region)) == RegionState::Absent;
        if (first.0..=last.0).any(absent) {
            self.overcome(Obstacle::Place { first, last })?;
        }
        if !keep_size && end > self.size_bytes() {
            // Not by truncation: another writer may have gone beyond `end` meanwhile, and must not be cut.
            self.core.done(&Request::Tidy { file: self.file }, &[]).map_err(|source| self.broker(source))?;
            self.shared.extent.extend_to(end);
            self.touch();
        }
        Ok(())
    }

    fn touch(&self) {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::RealtimeCoarse);
        self.shared.extent.set_modified_ns(Some(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64));
    }

    /// Makes durable what any process wrote before: data, then size, mapping and names. `data_only` as in `fdatasync`: the size counts as
    /// data, since it is needed to read it.
    ///
    /// First the broker writes to the disks what lies in logs of fragments alone. Per region, the count of writes is read first, the objects synced, and after the broker's part the count marked as synced.
    /// What wrote in between counts as not synced.
    pub fn sync(&self, data_only: bool) -> Result<(), FileError> {
        self.check_not_replaced()?;
        self.sync_stub()?;
        self.flush_fragments()?;
        let (control, extent) = (&self.shared.control, &self.shared.extent);
        let size = self.size_bytes();
        let mut synced = Vec::new();
        for region in (0..self.geometry.count_for(size)).map(RegionIndex) {
            if let Some(written) = extent.unsynced(region) {
                self.sync_region(region)?;
                synced.push((region, written));
            }
        }
        if synced.is_empty() && data_only && control.durable_size_bytes() == size {
            return Ok(());
        }
        self.core.done(&Request::Sync { file: self.file }, &[]).map_err(|source| self.broker(source))?;
        if extent.is_writable() {
            for (region, written) in synced {
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
        if let Some(stub) = self.core.stub_of(self.file, self.writable) {
            match stub.with_open(|stub| rustix::fs::fsync(stub)) {
                // Some file systems cannot sync, or have nothing to sync.
                Ok(Ok(()) | Err(Errno::INVAL | Errno::ROFS)) => {}
                Ok(Err(source)) | Err(source) => return Err(FileError::Stub { file: self.file, source }),
            }
        }
        self.stub_is_synced.store(true, Release);
        Ok(())
    }

    fn sync_region(&self, region: RegionIndex) -> Result<(), FileError> {
        let mut synced = (Generation(0), 0);
        loop {
            let RegionState::Placed { generation, view, .. } = self.shared.control.region(region) else {
                return Ok(());
            };
            if synced.0 != generation {
                synced = (generation, 0);
            }
            match self.sync_objects(region, generation, view, &mut synced.1) {
                Ok(()) => return Ok(()),
                Err(obstacle) => self.overcome(obstacle)?,
            }
        }
    }

    /// Syncs the region's objects from number `synced` on, and counts them there: what is done is not done again after an obstacle.
    fn sync_objects(
        &self,
        region: RegionIndex,
        generation: Generation,
        view: StripeView<'_>,
        synced: &mut usize,
    ) -> Result<(), Obstacle> {
        while *synced < view.stripes().len() {
            // By groups, so that not too many descriptors are held at a time.
            let mut objects = Vec::new();
            for stripe in view.stripes()[*synced..].iter().take(GROUP) {
                let key = self.key(region, generation, stripe.server);
                match self.pin(&key) {
                    Ok(pin) => objects.push((key, pin)),
                    Err(obstacle) if objects.is_empty() => return Err(obstacle),
                    // Met again when those before it are synced.
                    Err(_) => break,
                }
            }
            self.sync_group(&objects)?;
            for (key, pin) in &objects {
                self.check_named(key, pin.as_fd())?;
            }
            *synced += objects.len();
        }
        Ok(())
    }

    /// An object that lost its name (a server directory emptied under us) is not durable, though its open descriptor still works.
    fn check_named(&self, key: &ObjectKey, object: BorrowedFd<'_>) -> Result<(), Obstacle> {
        if rustix::fs::fstat(object).is_ok_and(|status| status.st_nlink > 0) {
            return Ok(());
        }
        let ObjectName { file, region, generation } = key.object;
        match self.shared.control.region(region) {
            RegionState::Placed { generation: present, .. } if present == generation => {
                // What is opened from now on is looked for by name.
                self.core.objects.close_file(file);
                let server = self.core.server_name(key.server);
                Err(Obstacle::Fault(FileError::ObjectMissing { file, region, generation, server }))
            }
            _ => Err(Obstacle::Again),
        }
    }

    /// Size, blocks and time, from shared memory alone: no server is asked, so a missing one changes nothing.
    #[must_use]
    pub fn status(&self) -> FileStatus {
        let (extent, control) = (&self.shared.extent, &self.shared.control);
        let size_bytes = self.size_bytes();
        let blocks_512 = control.placed_bytes(size_bytes).div_ceil(512);
        FileStatus { size_bytes, blocks_512, modified_ns: extent.modified_ns() }
    }

    /// The next byte at or after `offset` that may be data, as `SEEK_DATA`; `None`: no data up to the end (ENXIO). At the
    /// granularity of regions: a placed region counts as data.
    #[must_use]
    pub fn next_data(&self, offset: FileOffset) -> Option<FileOffset> {
        self.next_region(offset, |state| state != RegionState::Absent)
    }

    /// The next hole at or after `offset`, as `SEEK_HOLE`: an unplaced region or the end of the file; `None` at or beyond the end.
    #[must_use]
    pub fn next_hole(&self, offset: FileOffset) -> Option<FileOffset> {
        let size = self.size_bytes();
        let found = self.next_region(offset, |state| state == RegionState::Absent);
        found.or_else(|| (offset.0 < size).then_some(FileOffset(size)))
    }

    fn next_region(&self, offset: FileOffset, matches: impl Fn(RegionState<'_>) -> bool) -> Option<FileOffset> {
        let size = self.size_bytes();
        if offset.0 >= size {
            return None;
        }
        let first = self.geometry.locate(offset).0;
        (first.0..self.geometry.count_for(size))
            .map(RegionIndex)
            .find(|region| matches(self.shared.control.region(*region)))
            .map(|region| self.geometry.start_of(region).max(offset))
    }
}
