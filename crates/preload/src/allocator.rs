//! Memory of the library's own.
//!
//! A signal handler may write to a file in the middle of the program's `malloc`, and the library may then have to
//! allocate (a region is placed, an error told). So its memory does not come from `malloc`: blocks of powers of two
//! are cut from mappings of its own and kept in lists for the next, large ones are mapped each for itself. Signals
//! are blocked while a list changes, so a handler never meets one half changed; the lock is a word that spins, held
//! for a few instructions. No read or write of a region that has its objects allocates.

use crate::process::NoSignals;
use rustix::mm::{MapFlags, ProtFlags};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks of 16 bytes to 64 KiB.
const SMALLEST_SHIFT: u32 = 4;
const CLASSES: usize = 13;
/// What is mapped at once to cut blocks from.
const CHUNK_BYTES: usize = 256 << 10;
const PAGE_BYTES: usize = 4096;

struct Lists {
    /// Of each class, the first free block; its first word is the next one's address.
    free: [*mut u8; CLASSES],
    /// What is left of the last chunk.
    chunk: *mut u8,
    left: usize,
}

pub(crate) struct Allocator {
    taken: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are reached under the lock only.
unsafe impl Sync for Allocator {}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator {
    taken: AtomicBool::new(false),
    lists: UnsafeCell::new(Lists { free: [std::ptr::null_mut(); CLASSES], chunk: std::ptr::null_mut(), left: 0 }),
};

/// The class of a block that holds `layout`; none when it is mapped for itself. Blocks are aligned to their size.
fn class(layout: Layout) -> Option<usize> {
    let bytes = layout.size().max(layout.align()).max(1 << SMALLEST_SHIFT).next_power_of_two();
    let class = (bytes.trailing_zeros() - SMALLEST_SHIFT) as usize;
    (class < CLASSES).then_some(class)
}

fn map(bytes: usize) -> *mut u8 {
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let mapped = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    mapped.map_or(std::ptr::null_mut(), |memory| memory.cast())
}

impl Lists {
    fn take(&mut self, class: usize) -> *mut u8 {
        let head = self.free[class];
        if !head.is_null() {
            // SAFETY: a free block's first word is the address of the next.
            self.free[class] = unsafe { head.cast::<*mut u8>().read() };
            return head;
        }
        let bytes = 1usize << (class as u32 + SMALLEST_SHIFT);
        let gap = self.chunk.align_offset(bytes);
        if self.chunk.is_null() || gap.saturating_add(bytes) > self.left {
            let chunk = map(CHUNK_BYTES);
            if chunk.is_null() {
                return chunk;
            }
            (self.chunk, self.left) = (chunk, CHUNK_BYTES);
            return self.take(class);
        }
        // SAFETY: `gap + bytes` lie within what is left of the chunk.
        unsafe {
            let block = self.chunk.add(gap);
            self.chunk = block.add(bytes);
            self.left -= gap + bytes;
            block
        }
    }
}

impl Allocator {
    fn with<T>(&self, then: impl FnOnce(&mut Lists) -> T) -> T {
        let signals = NoSignals::begin();
        while self.taken.swap(true, Ordering::Acquire) {
            std::hint::spin_loop();
            rustix::thread::sched_yield();
        }
        // SAFETY: the lock is held.
        let result = then(unsafe { &mut *self.lists.get() });
        self.taken.store(false, Ordering::Release);
        drop(signals);
        result
    }
}

/// The signals that the forking thread gets back, written and read under the lock.
struct Kept(UnsafeCell<Option<NoSignals>>);
// SAFETY: reached under the lock only.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(None));

/// Holds the lock while the process forks, so that no child finds it taken by a thread that it does not have.
pub(crate) fn before_fork() {
    let signals = NoSignals::begin();
    while ALLOCATOR.taken.swap(true, Ordering::Acquire) {
        rustix::thread::sched_yield();
    }
    // SAFETY: the lock is held.
    unsafe { *KEPT.0.get() = Some(signals) };
}

/// On both sides of a fork; also in a child that was made without [`before_fork`].
pub(crate) fn after_fork() {
    // SAFETY: the lock is held, or no other thread is there.
    let signals = unsafe { (*KEPT.0.get()).take() };
    ALLOCATOR.taken.store(false, Ordering::Release);
    drop(signals);
}

// SAFETY: blocks are distinct, large enough and aligned to their own size (pages, if mapped for themselves).
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => self.with(|lists| lists.take(class)),
            None if layout.align() <= PAGE_BYTES => map(layout.size().next_multiple_of(PAGE_BYTES)),
            None => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            Some(class) => self.with(|lists| {
                // SAFETY: the block is free now and has space for an address.
                unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
                lists.free[class] = block;
            }),
            // SAFETY: mapped by `alloc` with that length.
            None => drop(unsafe { rustix::mm::munmap(block.cast(), layout.size().next_multiple_of(PAGE_BYTES)) }),
        }
    }
}
