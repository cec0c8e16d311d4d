//! Appending: offset, data and size under one lock, so that no two appends overlap and none leaves a gap.
//!
//! The lock is robust: a holder that dies before it raised the size has changed nothing that the size covers, so the next holder just goes on.

use super::transfer::Start;
use super::{FileError, IoMode, StripedFile};
use std::io::IoSlice;
use stripewise_layout::FileOffset;

impl StripedFile {
    /// Writes at the end of the file, wherever that is; returns where, and how many bytes. As [`Self::write_at`] otherwise.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn append(&self, buffers: &[IoSlice<'_>]) -> Result<(FileOffset, usize), FileError> {
        self.append_with(buffers, IoMode::default())
    }

    /// As [`Self::append`], in a mode.
    ///
    /// # Errors
    /// As [`Self::write_at`].
    pub fn append_with(&self, buffers: &[IoSlice<'_>], mode: IoMode) -> Result<(FileOffset, usize), FileError> {
        let _held = self.robust_lock(self.open.extent().append_lock())?;
        self.write_from(Start::End, buffers, mode)
    }
}
