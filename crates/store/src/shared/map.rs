//! A shared mapping of a file, with typed access to atomics at fixed offsets.

use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A `MAP_SHARED` mapping, unmapped on drop.
#[derive(Debug)]
pub struct SharedMap {
    start: NonNull<u8>,
    length: usize,
    writable: bool,
}

// SAFETY: the mapping is only reached through atomics (and `Stripe` words that are never changed once published).
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps the first `length` bytes of `file`; a shorter file is refused, since touching a mapping beyond its file's end kills the process.
    pub fn new(file: impl AsFd, length: usize, writable: bool) -> rustix::io::Result<Self> {
        if (rustix::fs::fstat(&file)?.st_size as u64) < length as u64 {
            return Err(rustix::io::Errno::INVAL);
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), length, protection, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(rustix::io::Errno::NOMEM)?;
        Ok(Self { start, length, writable })
    }

    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn at<T>(&self, offset: usize, count: usize) -> *const T {
        assert!(offset.is_multiple_of(align_of::<T>()) && offset + count * size_of::<T>() <= self.length);
        // SAFETY: within the mapping, as just checked.
        unsafe { self.start.as_ptr().add(offset).cast() }
    }

    /// The atomic at `offset`. Storing through it in a read-only mapping faults: callers check [`Self::is_writable`] at open.
    #[must_use]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds and aligned; every process reaches this memory through atomics only.
        unsafe { &*self.at::<AtomicU64>(offset, 1) }
    }

    /// As [`Self::word`], of 32 bits.
    #[must_use]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { &*self.at::<AtomicU32>(offset, 1) }
    }

    /// `count` atomics from `offset` on.
    #[must_use]
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        // SAFETY: as in `word`.
        unsafe { std::slice::from_raw_parts(self.at::<AtomicU64>(offset, count), count) }
    }

    /// `count` values that were published before and never change again.
    ///
    /// # Safety
    /// No process writes these bytes any more, and any bit pattern is a valid `T`.
    #[must_use]
    pub unsafe fn published<T: Copy>(&self, offset: usize, count: usize) -> &[T] {
        // SAFETY: in bounds and aligned; immutability is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at::<T>(offset, count), count) }
    }

    /// Start of `bytes` writable bytes at `offset`, for values not yet published to others.
    #[must_use]
    pub fn unpublished(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(self.writable);
        self.at::<u8>(offset, bytes).cast_mut()
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no reference into it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
