//! Memory of the library's own.
//!
//! A signal handler may write to a file in the middle of the program's `malloc`, and the library may then have to
//! allocate (a region is placed, an error told). So its memory does not come from `malloc`: blocks of powers of two
//! are cut from mappings of its own and kept in lists for the next, large ones are mapped each for itself. There are
//! several arenas with lists, and nobody waits for one: who finds one taken, by another thread or by what a signal
//! interrupted, goes to the next, so no signal has to be blocked for an allocation. A block belongs to whichever
//! arena it was freed to. No read or write of a region that has its objects allocates.

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
/// Each is taken for a few instructions.
const ARENAS: usize = 8;
/// Rounds through all arenas before a block is mapped for itself, or lost.
const MAX_ROUNDS: usize = 1000;

struct Lists {
    /// Of each class, the first free block; its first word is the next one's address.
    free: [*mut u8; CLASSES],
    /// What is left of the last chunk.
    chunk: *mut u8,
    left: usize,
}

struct Arena {
    taken: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are reached by who took the arena only.
unsafe impl Sync for Arena {}

pub(crate) struct Allocator {
    arenas: [Arena; ARENAS],
}

#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

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

/// A block of that class in a mapping of its own, aligned to its size.
fn map_block(class: usize) -> *mut u8 {
    let bytes = 1usize << (class as u32 + SMALLEST_SHIFT);
    let mapped = map((2 * bytes).next_multiple_of(PAGE_BYTES));
    if mapped.is_null() { mapped } else { mapped.wrapping_add(mapped.align_offset(bytes)) }
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
    const fn new() -> Self {
        Self {
            arenas: [const {
                let lists = Lists { free: [std::ptr::null_mut(); CLASSES], chunk: std::ptr::null_mut(), left: 0 };
                Arena { taken: AtomicBool::new(false), lists: UnsafeCell::new(lists) }
            }; ARENAS],
        }
    }

    /// `None`: every arena was taken in every round, as by handlers that interrupted one another, or never came back. A fork is waited for.
    fn with<T>(&self, then: impl FnOnce(&mut Lists) -> T) -> Option<T> {
        let mut rounds = 0;
        while rounds < MAX_ROUNDS || FORKING.load(Ordering::Relaxed) {
            for arena in &self.arenas {
                if !arena.taken.swap(true, Ordering::Acquire) {
                    // SAFETY: the arena is taken here.
                    let result = then(unsafe { &mut *arena.lists.get() });
                    arena.taken.store(false, Ordering::Release);
                    return Some(result);
                }
            }
            rustix::thread::sched_yield();
            rounds += 1;
        }
        None
    }
}

/// What [`before_fork`] holds: the signals that the forking thread gets back, and the arenas that it took.
type Held = (NoSignals, [bool; ARENAS]);

/// Written and read by the thread that forks, while [`FORKING`] is set.
struct Kept(UnsafeCell<Option<Held>>);
// SAFETY: reached by the one thread that set `FORKING`.
unsafe impl Sync for Kept {}
static KEPT: Kept = Kept(UnsafeCell::new(None));
/// Set with signals blocked, so that no handler waits for the thread that it interrupted.
static FORKING: AtomicBool = AtomicBool::new(false);

/// Takes all arenas while the process forks, so that no child finds one half changed by a thread that it does not have. One that nobody gives back, since a
/// handler left by a jump what it had interrupted, is not waited for.
pub(crate) fn before_fork() {
    let signals = NoSignals::begin();
    while FORKING.swap(true, Ordering::Acquire) {
        rustix::thread::sched_yield();
    }
    let held = std::array::from_fn(|arena| {
        (0..MAX_ROUNDS).any(|round| {
            if round > 0 {
                rustix::thread::sched_yield();
            }
            !ALLOCATOR.arenas[arena].taken.swap(true, Ordering::Acquire)
        })
    });
    // SAFETY: this thread is the one that forks.
    unsafe { *KEPT.0.get() = Some((signals, held)) };
}

/// On both sides of a fork; also in a child that was made without [`before_fork`].
pub(crate) fn after_fork() {
    // SAFETY: this thread is the one that forked, or no other is there.
    let kept = unsafe { (*KEPT.0.get()).take() };
    let held = kept.as_ref().map_or([true; ARENAS], |(_, held)| *held);
    for (arena, _) in ALLOCATOR.arenas.iter().zip(held).filter(|(_, held)| *held) {
        arena.taken.store(false, Ordering::Release);
    }
    FORKING.store(false, Ordering::Release);
    drop(kept);
}

// SAFETY: blocks are distinct, large enough and aligned to their own size (pages, if mapped for themselves).
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class(layout) {
            Some(class) => self.with(|lists| lists.take(class)).unwrap_or_else(|| map_block(class)),
            None if layout.align() <= PAGE_BYTES => map(layout.size().next_multiple_of(PAGE_BYTES)),
            None => std::ptr::null_mut(),
        }
    }

    /// What is mapped for itself is zero already.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() && class(layout).is_some() {
            // SAFETY: just allocated, with that size.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class(layout) {
            // One that finds no arena is lost.
            Some(class) => drop(self.with(|lists| {
                // SAFETY: the block is free now and has space for an address.
                unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
                lists.free[class] = block;
            })),
            // SAFETY: mapped by `alloc` with that length.
            None => drop(unsafe { rustix::mm::munmap(block.cast(), layout.size().next_multiple_of(PAGE_BYTES)) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_that_never_come_back_hold_nobody_up() {
        let allocator = Allocator::new();
        let layouts = [(1, 1), (100, 64), (3000, 2048), (40_000, 65_536), (70_000, 4096)];
        let layouts = layouts.map(|(bytes, align)| Layout::from_size_align(bytes, align).unwrap());
        for taken in 0..=ARENAS {
            allocator.arenas[..taken].iter().for_each(|arena| arena.taken.store(true, Ordering::SeqCst));
            // Twice, so that blocks come from the lists.
            for _ in 0..2 {
                // SAFETY: freed once, with their layouts.
                let blocks = layouts.map(|layout| unsafe { allocator.alloc_zeroed(layout) });
                for (block, layout) in blocks.iter().zip(layouts) {
                    assert!(!block.is_null() && block.align_offset(layout.align()) == 0, "{layout:?}");
                    // SAFETY: a block of that size, read and then written by this test alone.
                    unsafe {
                        assert!(std::slice::from_raw_parts(*block, layout.size()).iter().all(|byte| *byte == 0));
                        block.write_bytes(0xa5, layout.size());
                    }
                }
                for (block, layout) in blocks.into_iter().zip(layouts) {
                    // SAFETY: as above.
                    unsafe { allocator.dealloc(block, layout) };
                }
            }
        }
    }
}
