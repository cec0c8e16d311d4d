//! Streams of ours by descriptor; a table, because `fileno` is asked by stream and seldom.

use crate::mapped::Mapped;
use libc::{FILE, c_int};
use std::sync::atomic::{AtomicI8, AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// Streams can be had on descriptors below this.
const LIMIT: usize = 1 << 16;

/// What is known of the stream on a descriptor.
pub(super) struct Place {
    stream: AtomicPtr<FILE>,
    /// Where between two multibyte characters the stream is (glibc's `mbstate_t`), reading and writing.
    pub(super) reading: AtomicU64,
    pub(super) writing: AtomicU64,
    pub(super) orientation: AtomicI8,
}

// SAFETY: zero bytes are a null pointer and numbers.
static STREAMS: Mapped<Place, LIMIT> = unsafe { Mapped::new() };
/// One more than the highest descriptor that ever had one.
static HIGHEST: AtomicI32 = AtomicI32::new(0);

/// Where the stream of a descriptor is to be noted; none where it cannot be.
pub(super) fn place_for(descriptor: c_int) -> Option<&'static Place> {
    STREAMS.reach()?.get(descriptor as usize)
}

/// The place of a descriptor that has a stream, or had one.
pub(super) fn place(descriptor: c_int) -> Option<&'static Place> {
    STREAMS.get(descriptor as usize)
}

impl Place {
    /// A new stream on the descriptor.
    pub(super) fn begin(&self, descriptor: c_int, stream: *mut FILE) {
        self.reading.store(0, Ordering::Relaxed);
        self.writing.store(0, Ordering::Relaxed);
        self.orientation.store(0, Ordering::Relaxed);
        self.stream.store(stream, Ordering::Release);
        HIGHEST.fetch_max(descriptor + 1, Ordering::AcqRel);
    }
}

pub(super) fn forget(descriptor: c_int) {
    if let Some(place) = place(descriptor) {
        place.stream.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// The descriptor below a stream of ours.
pub(crate) fn descriptor_of(stream: *mut FILE) -> Option<c_int> {
    let count = HIGHEST.load(Ordering::Acquire);
    if count == 0 || stream.is_null() {
        return None;
    }
    (0..count).find(|descriptor| place(*descriptor).is_some_and(|place| place.stream.load(Ordering::Acquire) == stream))
}
