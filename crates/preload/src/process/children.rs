//! Children of `vfork`, which share the memory of their parent and not its descriptors.
//!
//! The table of descriptors says what the parent's are, and what the client opens for such a child would stand in the parent's tables under
//! numbers that are something else there. So as long as there is one, each process with this memory looks whether it is the one that
//! the table belongs to. If it is not, its descriptors are looked at each time, and what it asks of a managed file is done by a helper
//! ([`super::helper`]).
//!
//! A child is counted by its parent before `vfork`, or by itself where it was made otherwise (`CLONE_VM | CLONE_VFORK`), when it changes a descriptor. It is not counted any
//! more when it becomes another program or ends. One that is killed before is found out by its parent's thread, which goes on only when it is gone.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many there are.
static CHILDREN: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Whether the child is counted for which this thread waits, and which runs in its memory.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a process with this memory may not own the table.
#[inline(always)]
pub(crate) fn are_there() -> bool {
    CHILDREN.load(Ordering::Relaxed) != 0
}

/// This thread makes a child by `vfork`, or is in one that changes its descriptors.
pub(crate) fn begins() {
    if !IS_COUNTED.replace(true) {
        CHILDREN.fetch_add(1, Ordering::Relaxed);
    }
}

/// In the process that owns the table: a child of this thread is gone.
pub(crate) fn are_over() {
    if IS_COUNTED.replace(false) {
        CHILDREN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// This process, which may be such a child, is about to end or to become another program. Returns whether it is one: if that fails, it is to be counted again.
pub(crate) fn ends() -> bool {
    let is_one = are_there() && !super::owns_tables();
    if is_one {
        are_over();
    }
    is_one
}

/// In a child with memory of its own.
pub(super) fn forget_all() {
    CHILDREN.store(0, Ordering::Relaxed);
    IS_COUNTED.set(false);
}
