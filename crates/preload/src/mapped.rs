//! Tables that take no memory of the library's image: they are mapped when they are first reached.
//!
//! The mapping is private and anonymous, so a forked child has a copy and a child of `vfork` its parent's. Two threads
//! that reach a table at once agree on one mapping; a signal handler that interrupts one of them does, too.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `PLACES` values, all zero bytes at first.
pub(crate) struct Mapped<T, const PLACES: usize>(AtomicPtr<T>);

impl<T: Sync, const PLACES: usize> Mapped<T, PLACES> {
    /// # Safety
    /// Zero bytes are a valid `T`.
    pub(crate) const unsafe fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The value at a place; none beyond the table, and none before it is mapped.
    #[inline(always)]
    pub(crate) fn get(&self, place: usize) -> Option<&'static T> {
        let table = self.0.load(Ordering::Acquire);
        if table.is_null() || place >= PLACES {
            return None;
        }
        // SAFETY: a mapping of `PLACES` values that stays; its zero bytes are values by the promise made to `new`.
        Some(unsafe { &*table.add(place) })
    }

    /// The whole table, mapped if it was not; none where there is no memory for it.
    pub(crate) fn reach(&self) -> Option<&'static [T]> {
        let known = self.0.load(Ordering::Acquire);
        let table = if known.is_null() { self.map()? } else { known };
        // SAFETY: as in `get`.
        Some(unsafe { std::slice::from_raw_parts(table, PLACES) })
    }

    #[cold]
    fn map(&self) -> Option<*mut T> {
        let bytes = size_of::<T>() * PLACES;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at an address of the kernel's choice, aligned to a page.
        let fresh = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }.ok()?;
        // Few pages are ever touched: a huge one would be mostly waste. A kernel without huge pages refuses.
        // SAFETY: the mapping just made.
        let _ = unsafe { rustix::mm::madvise(fresh, bytes, Advice::LinuxNoHugepage) };
        let published =
            self.0.compare_exchange(std::ptr::null_mut(), fresh.cast(), Ordering::AcqRel, Ordering::Acquire);
        match published {
            Ok(_) => Some(fresh.cast()),
            Err(table) => {
                // SAFETY: the mapping just made, which nobody else knows.
                let _ = unsafe { rustix::mm::munmap(fresh, bytes) };
                Some(table)
            }
        }
    }
}
