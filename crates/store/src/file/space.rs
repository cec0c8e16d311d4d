//! Room for a range of a file, and ranges that read as zeros: `fallocate`.
//!
//! A range becomes zeros by writes of zeros where it has data; regions without data stay without. Its space stays taken, as the standards permit: an object
//! keeps its regions' room until a truncation.

use super::reason::RetryReason;
use super::request::Start;
use super::{FileError, IoMode, StripedFile};
use crate::protocol::Request;
use crate::shared::control::{RegionState, narrow_bytes};
use std::io::IoSlice;
use stripewise_layout::{FileOffset, RegionIndex};

/// Zeros of one write.
const ZEROS_BYTES: u64 = 1 << 20;

/// What `fallocate` does to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpaceChange {
    /// Gives it room.
    Allocate {
        /// The size stays.
        keep_size: bool,
    },
    /// Gives it room, and makes it read as zeros.
    Zero {
        /// The size stays.
        keep_size: bool,
    },
    /// Makes it read as zeros, as far as the size reaches.
    Punch,
}

impl SpaceChange {
    /// What a mode of `fallocate` asks for; `None` of one that moves the bytes behind the range, or shares them.
    #[must_use]
    pub fn of_mode(mode: i32) -> Option<Self> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Some(Self::Allocate { keep_size }),
            libc::FALLOC_FL_ZERO_RANGE => Some(Self::Zero { keep_size }),
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Some(Self::Punch),
            _ => None,
        }
    }
}

impl StripedFile {
    /// Does to `[offset, offset + length)` what `fallocate` asks for.
    ///
    /// # Errors
    ///
    /// As of [`Self::allocate`], and [`FileError`] if zeros could not be written; a part of the range may read as zeros then.
    pub fn change_space(&self, change: SpaceChange, offset: FileOffset, length: u64) -> Result<(), FileError> {
        match change {
            SpaceChange::Allocate { keep_size } => self.allocate(offset, length, keep_size),
            SpaceChange::Zero { keep_size } => {
                self.allocate(offset, length, keep_size)?;
                self.zero(offset, length)
            }
            SpaceChange::Punch => self.zero(offset, length),
        }
    }

    /// Places the regions of `[offset, offset + length)`, as `fallocate` does, and raises the size to the end unless `keep_size`. The servers' room is
    /// promised by the broker's account; a server that others fill may still refuse later.
    ///
    /// # Errors
    ///
    /// [`FileError::NotWritable`], [`FileError::TooLarge`], or [`FileError::Broker`] with
    /// [`Refusal::NoSpace`](crate::protocol::Refusal::NoSpace) when the servers have too little
    /// free space.
    pub fn allocate(&self, offset: FileOffset, length: u64, keep_size: bool) -> Result<(), FileError> {
        self.file.check_writable()?;
        let end = offset.0.saturating_add(length);
        self.file.check_limit(FileOffset(end))?;
        if length == 0 {
            return Ok(());
        }
        let (first, last) = (self.file.geometry().locate(offset).0, self.file.geometry().locate(FileOffset(end - 1)).0);
        let lacks_objects = |region: u32| match self.file.region(RegionIndex(region)) {
            RegionState::Absent => true,
            RegionState::Placed { view, is_narrow, .. } => is_narrow && end > narrow_bytes(view),
        };
        if (first.0..=last.0).any(lacks_objects) {
            let is_begin = last.0 == 0 && self.file.region(first) == RegionState::Absent;
            let reason = if is_begin { RetryReason::Begin { bytes: end } } else { RetryReason::Place { first, last } };
            self.retry().resolve(reason)?;
        }
        if !keep_size && end > self.size_bytes() {
            // Not by truncation: another writer may have gone beyond `end` meanwhile, and must not be cut.
            self.file.ask(&Request::Tidy { file: self.id() })?;
            self.file.extent().extend_to(end);
            self.file.touch();
        }
        Ok(())
    }

    /// Makes `[offset, offset + length)` read as zeros, as far as the size reaches. Not in one step: a reader may see its begin zeroed before its end.
    fn zero(&self, offset: FileOffset, length: u64) -> Result<(), FileError> {
        self.file.check_writable()?;
        let end = offset.0.saturating_add(length);
        let zeros = vec![0; usize::try_from(length.min(ZEROS_BYTES)).unwrap_or(0)];
        let mut at = offset;
        while let Some(data) = self.next_data(at)?.filter(|data| data.0 < end) {
            at = data;
            // Cut meanwhile, if there is none.
            let Some(hole) = self.next_hole(data)? else { break };
            while at.0 < hole.0.min(end) {
                let piece = usize::try_from(hole.0.min(end) - at.0).unwrap_or(usize::MAX).min(zeros.len());
                let (_, written) =
                    self.requests().write(Start::Within(at), &[IoSlice::new(&zeros[..piece])], IoMode::default())?;
                if written == 0 {
                    break;
                }
                at.0 += written as u64;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_move_bytes_or_that_the_kernel_does_not_know_are_none() {
        let punch = libc::FALLOC_FL_PUNCH_HOLE;
        assert_eq!(SpaceChange::of_mode(0), Some(SpaceChange::Allocate { keep_size: false }));
        assert_eq!(SpaceChange::of_mode(libc::FALLOC_FL_ZERO_RANGE | 1), Some(SpaceChange::Zero { keep_size: true }));
        assert_eq!(SpaceChange::of_mode(punch | libc::FALLOC_FL_KEEP_SIZE), Some(SpaceChange::Punch));
        for mode in [punch, punch | 1 | libc::FALLOC_FL_ZERO_RANGE, libc::FALLOC_FL_COLLAPSE_RANGE, 1 << 30] {
            assert_eq!(SpaceChange::of_mode(mode), None, "{mode}");
        }
    }
}
