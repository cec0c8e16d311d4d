//! Appending: offset, data and size under one lock, so that no two appends overlap and none leaves a gap.
//!
//! The lock is robust: a holder that dies before it raised the size has changed nothing that the size covers, so the next holder just goes on.

use super::transfer::Start;
use super::{FileError, StripedFile};
use std::io::IoSlice;
use stripewise_layout::FileOffset;

impl StripedFile {
    /// Writes at the end of the file, wherever that is; returns where, and how many bytes. As [`Self::write_at`] otherwise.
    pub fn append(&self, buffers: &[IoSlice<'_>]) -> Result<(FileOffset, usize), FileError> {
        let _held = self.robust_lock(self.shared.extent.append_lock())?;
        self.write_from(Start::End, buffers)
    }
}
