//! What is allocated, counted: of memory the most at a time, and all together as a measure of work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The system's allocator, counted for the whole process.
pub(crate) struct Counted;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MAX_HELD: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    MAX_HELD.fetch_max(held, Relaxed);
    TOTAL.fetch_add(bytes, Relaxed);
}

// SAFETY: every call is passed on as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(block, layout) }
    }
}

pub(crate) struct Cost {
    /// Beyond what was held before.
    pub(crate) most_held: usize,
    pub(crate) total: usize,
}

/// Runs `work` and tells what it cost.
pub(crate) fn of<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let (held, total) = (HELD.load(Relaxed), TOTAL.load(Relaxed));
    MAX_HELD.store(held, Relaxed);
    let result = work();
    let most_held = MAX_HELD.load(Relaxed).saturating_sub(held);
    (result, Cost { most_held, total: TOTAL.load(Relaxed) - total })
}
