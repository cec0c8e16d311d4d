//! What is done to a file as a whole: its size, its status.

use super::asked::Asked;
use super::{FileError, StripedFile};
use crate::protocol::FileStatus;
use crate::shared::control::{MAX_REGIONS, RegionState};
use stripewise_layout::{FileOffset, RegionIndex};

impl StripedFile {
    /// Cuts or extends to `size_bytes`. Waits until the I/O in flight is done.
    ///
    /// # Errors
    ///
    /// [`FileError::NotWritable`], [`FileError::TooLarge`], [`FileError::Replaced`], or
    /// [`FileError::Broker`] if the broker refuses or cannot be reached.
    pub fn truncate(&self, size_bytes: u64) -> Result<(), FileError> {
        self.file.check_writable()?;
        self.file.check_not_replaced()?;
        self.file.check_limit(FileOffset(size_bytes))?;
        self.file.core().truncate(self.file.id(), size_bytes).map_err(|source| self.file.broker(source))?;
        // Objects that were cut off are gone only when nobody has them open.
        self.file.core().objects.close_file(self.file.id());
        self.file.touch();
        Ok(())
    }

    /// Logical size: where other hosts use the file too, at least what any of them had acknowledged before this call.
    ///
    /// # Errors
    ///
    /// [`FileError::Broker`] or [`FileError::Replaced`] where other hosts use the file and this host's broker cannot be asked.
    pub fn latest_size_bytes(&self) -> Result<u64, FileError> {
        if self.is_shared() {
            self.file.refresh(RegionIndex(0), RegionIndex(0))?;
        }
        Ok(self.size_bytes())
    }

    /// Size, blocks and time, from shared memory alone: no server is asked, so a missing one changes nothing. Of a file that other hosts use too the
    /// broker is asked for the size; the blocks are those of a file without holes, since this host need not know where others have placed data.
    ///
    /// # Errors
    ///
    /// As of [`Self::latest_size_bytes`].
    pub fn status(&self) -> Result<FileStatus, FileError> {
        let size_bytes = self.latest_size_bytes()?;
        let occupied_bytes =
            if self.is_shared() { size_bytes } else { self.file.control().regions().placed_bytes(size_bytes) };
        let modified_ns = self.file.extent().modified_ns();
        Ok(FileStatus { size_bytes, blocks_512: occupied_bytes.div_ceil(512), modified_ns })
    }

    /// The next byte at or after `offset` that may be data, as `SEEK_DATA`; `None`: no data up to the end (ENXIO). At the
    /// granularity of regions: a placed region counts as data.
    ///
    /// # Errors
    ///
    /// As of [`Self::latest_size_bytes`].
    pub fn next_data(&self, offset: FileOffset) -> Result<Option<FileOffset>, FileError> {
        self.read_known_from(offset, || self.next_region(offset, |state| state != RegionState::Absent))
    }

    /// The next hole at or after `offset`, as `SEEK_HOLE`: an unplaced region or the end of the file; `None` at or beyond the end.
    ///
    /// # Errors
    ///
    /// As of [`Self::latest_size_bytes`].
    pub fn next_hole(&self, offset: FileOffset) -> Result<Option<FileOffset>, FileError> {
        self.read_known_from(offset, || {
            let size = self.size_bytes();
            let found = self.next_region(offset, |state| state == RegionState::Absent);
            found.or_else(|| (offset.0 < size).then_some(FileOffset(size)))
        })
    }

    /// What `read` makes of the size and of the regions from `offset` on, once this host knows them.
    fn read_known_from<T>(&self, offset: FileOffset, read: impl Fn() -> T) -> Result<T, FileError> {
        let mut asked = Asked::default();
        loop {
            let seen = read();
            if asked.is_enough(&self.file) || offset.0 >= self.limit_bytes() {
                return Ok(seen);
            }
            asked = Asked::now(&self.file);
            self.file.refresh(self.file.geometry().locate(offset).0, RegionIndex(MAX_REGIONS - 1))?;
        }
    }

    fn next_region(&self, offset: FileOffset, matches: impl Fn(RegionState<'_>) -> bool) -> Option<FileOffset> {
        let size = self.size_bytes();
        if offset.0 >= size {
            return None;
        }
        let first = self.file.geometry().locate(offset).0;
        (first.0..self.file.geometry().count_for(size))
            .map(RegionIndex)
            .find(|region| matches(self.file.region(*region)))
            .map(|region| self.file.geometry().start_of(region).max(offset))
    }
}
