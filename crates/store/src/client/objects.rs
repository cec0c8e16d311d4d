//! Open descriptors of objects: a bounded cache for the whole process, looked up without a lock.
//!
//! Sets of [`WAYS`] entries. An entry's state is one word: an *open* bit and a count of pins. A lookup compares the name, pins by one
//! atomic addition, and looks at open bit and name again: while a pin is held on an open entry its name and descriptor do not change,
//! because an entry is closed only by a compare-and-swap from "open, no pins". Insertion and eviction hold a lock; the victim is
//! the unpinned entry of the set whose last use is longest ago, in steps of the number of insertions.
//! A child after fork inherits the descriptors with the table; pins of its parent's other threads are forgotten there.

use crate::descriptors::Descriptor;
use crate::lock::Lock;
use crate::server::{Handle, ObjectName};
use crate::zeroed::zeroed;
use rustix::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};
use stripewise_layout::{FileId, ServerId};

const WAYS: usize = 8;
const OPEN: u64 = 1 << 63;
/// In the place of a descriptor: the store goes by names.
const NAMED: RawFd = -1;

/// An object on a server, opened for reading or for both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectKey {
    pub(crate) object: ObjectName,
    pub(crate) server: ServerId,
    pub(crate) writable: bool,
    /// Past the page cache.
    pub(crate) direct: bool,
}

impl ObjectKey {
    fn place(&self) -> u64 {
        u64::from(self.object.region.0) << 32 | u64::from(self.object.generation.0)
    }

    fn seat(&self) -> u32 {
        u32::from(self.server.0) << 2 | u32::from(self.direct) << 1 | u32::from(self.writable)
    }

    fn hash(&self) -> usize {
        let mixed = (self.object.file.0 ^ self.place().rotate_left(17)).wrapping_add(u64::from(self.seat()) << 5);
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Entry {
    state: AtomicU64,
    file: AtomicU64,
    place: AtomicU64,
    seat: AtomicU32,
    descriptor: AtomicI32,
    used: AtomicU32,
}

impl Entry {
    fn is_of(&self, key: &ObjectKey) -> bool {
        self.file.load(Relaxed) == key.object.file.0
            && self.place.load(Relaxed) == key.place()
            && self.seat.load(Relaxed) == key.seat()
    }

    /// Takes the object out, unless it is pinned or out already; with the cache's lock held.
    fn take(&self) -> Option<Opened> {
        let taken = self.state.compare_exchange(OPEN, 0, AcqRel, Relaxed).is_ok();
        taken.then(|| match self.descriptor.load(Relaxed) {
            NAMED => Opened::Named,
            // SAFETY: the number went in by `into_number`; the exchange lets one taker through.
            number => Opened::Descriptor(unsafe { Descriptor::from_number(number) }),
        })
    }
}

/// One bit for each set.
#[derive(Debug)]
struct Sets(Box<[AtomicU64]>);

impl Sets {
    fn none_of(sets: usize) -> Self {
        Self((0..sets.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn add(&self, set: usize) {
        self.0[set / 64].fetch_or(1 << (set % 64), Relaxed);
    }

    fn remove(&self, set: usize) {
        self.0[set / 64].fetch_and(!(1 << (set % 64)), Relaxed);
    }

    fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = bits.load(Relaxed);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros() as usize)?;
                left &= left - 1;
                Some(word * 64 + bit)
            })
        })
    }
}

#[derive(Debug)]
pub(crate) struct ObjectCache {
    /// Of most nothing is touched, and no memory taken, in most processes.
    entries: Box<[Entry]>,
    /// Sets that had an entry open ever, and that may have one now. Changed with the lock held.
    used: Sets,
    open: Sets,
    changing: Lock<()>,
    insertions: AtomicU32,
}

/// An object as a store opened it.
#[derive(Debug)]
pub(crate) enum Opened {
    Descriptor(Descriptor),
    /// There is nothing to be kept open.
    Named,
}

/// An object that stays open while this lives.
#[derive(Debug)]
pub(crate) enum Pin<'a> {
    Cached {
        entry: &'a AtomicU64,
        descriptor: RawFd,
    },
    /// All entries of its set are in use: closed after this one use.
    Passing(Descriptor),
    Named(ObjectName),
}

impl Pin<'_> {
    #[inline]
    pub(crate) fn handle(&self) -> Handle<'_> {
        match self {
            // SAFETY: the pin keeps it open.
            Pin::Cached { descriptor, .. } => Handle::Descriptor(unsafe { BorrowedFd::borrow_raw(*descriptor) }),
            Pin::Passing(descriptor) => Handle::Descriptor(descriptor.as_fd()),
            Pin::Named(object) => Handle::Named(*object),
        }
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Pin::Cached { entry, .. } = self {
            entry.fetch_sub(1, Release);
        }
    }
}

impl ObjectCache {
    /// For at most `limit` descriptors (rounded down to a power of two, at least [`WAYS`]).
    pub(crate) fn new(limit: usize) -> Self {
        let sets = (limit / WAYS).max(1);
        let sets = if sets.is_power_of_two() { sets } else { sets.next_power_of_two() / 2 };
        Self {
            // SAFETY: an entry is atomics, for which zero bytes are 0.
            entries: unsafe { zeroed(sets * WAYS) },
            used: Sets::none_of(sets),
            open: Sets::none_of(sets),
            changing: Lock::new(()),
            insertions: AtomicU32::new(0),
        }
    }

    #[inline]
    fn number_of(&self, key: &ObjectKey) -> usize {
        let sets = self.entries.len() / WAYS;
        key.hash() & (sets - 1)
    }

    #[inline]
    fn set(&self, number: usize) -> &[Entry] {
        &self.entries[number * WAYS..(number + 1) * WAYS]
    }

    #[inline]
    pub(crate) fn find(&self, key: &ObjectKey) -> Option<Pin<'_>> {
        for entry in self.set(self.number_of(key)) {
            if !entry.is_of(key) {
                continue;
            }
            let before = entry.state.fetch_add(1, Acquire);
            if before & OPEN != 0 && entry.is_of(key) {
                let now = self.insertions.load(Relaxed);
                if entry.used.load(Relaxed) != now {
                    entry.used.store(now, Relaxed);
                }
                match entry.descriptor.load(Relaxed) {
                    NAMED => {
                        entry.state.fetch_sub(1, Release);
                        return Some(Pin::Named(key.object));
                    }
                    descriptor => return Some(Pin::Cached { entry: &entry.state, descriptor }),
                }
            }
            entry.state.fetch_sub(1, Release);
        }
        None
    }

    /// Takes in a newly opened object; another thread may have been first, then its descriptor is used.
    pub(crate) fn insert(&self, key: &ObjectKey, opened: Opened) -> Pin<'_> {
        // Closed when the lock is free: a server that does not answer keeps whoever closes waiting.
        let mut evicted = None;
        let _changing = self.changing.lock();
        if let Some(pin) = self.find(key) {
            return pin;
        }
        let now = self.insertions.fetch_add(1, Relaxed).wrapping_add(1);
        let set = self.set(self.number_of(key));
        let victim = set.iter().find(|entry| entry.state.load(Acquire) & OPEN == 0).or_else(|| {
            // The one unused longest first; one that is pinned at this instant is passed over.
            let mut order: [usize; WAYS] = std::array::from_fn(|way| way);
            order.sort_unstable_by_key(|way| std::cmp::Reverse(now.wrapping_sub(set[*way].used.load(Relaxed))));
            order.into_iter().map(|way| &set[way]).find(|entry| {
                evicted = entry.take();
                evicted.is_some()
            })
        });
        let Some(entry) = victim else {
            return match opened {
                Opened::Descriptor(descriptor) => Pin::Passing(descriptor),
                Opened::Named => Pin::Named(key.object),
            };
        };
        self.used.add(self.number_of(key));
        self.open.add(self.number_of(key));
        entry.file.store(key.object.file.0, Relaxed);
        entry.place.store(key.place(), Relaxed);
        entry.seat.store(key.seat(), Relaxed);
        let number = match opened {
            Opened::Descriptor(descriptor) => descriptor.into_number(),
            Opened::Named => NAMED,
        };
        entry.descriptor.store(number, Relaxed);
        entry.used.store(now, Relaxed);
        // Others may just be adding and taking back a pin on the closed entry: add, do not store.
        if number == NAMED {
            entry.state.fetch_add(OPEN, AcqRel);
            return Pin::Named(key.object);
        }
        entry.state.fetch_add(OPEN + 1, AcqRel);
        Pin::Cached { entry: &entry.state, descriptor: number }
    }

    /// Closes what is open of `file` (an open descriptor would keep a freed object's space).
    pub(crate) fn close_file(&self, file: FileId) {
        let taken: Vec<Opened> = {
            let _changing = self.changing.lock();
            let mut taken = Vec::new();
            for number in self.open.numbers() {
                let set = self.set(number);
                let own = set.iter().filter(|entry| entry.file.load(Relaxed) == file.0);
                taken.extend(own.filter_map(Entry::take));
                if set.iter().all(|entry| entry.state.load(Acquire) & OPEN == 0) {
                    self.open.remove(number);
                }
            }
            taken
        };
        // Without the lock: see `insert`.
        drop(taken);
    }

    pub(crate) fn take_for_fork(&self) {
        self.changing.take_for_fork();
    }

    pub(crate) fn free_after_fork(&self) {
        self.changing.free_after_fork();
    }

    /// In a forked child, where no other thread is: pins of threads that were left behind are void.
    pub(crate) fn forget_pins(&self) {
        for entry in self.used.numbers().flat_map(|number| self.set(number)) {
            entry.state.fetch_and(OPEN, AcqRel);
        }
    }
}

impl Drop for ObjectCache {
    fn drop(&mut self) {
        self.open.numbers().flat_map(|number| self.set(number)).for_each(|entry| drop(entry.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::default_base;
    use rustix::fs::{FileType, fstat};
    use stripewise_layout::{Generation, RegionIndex};

    fn key(region: u32) -> ObjectKey {
        let object = ObjectName { file: FileId(7), region: RegionIndex(region), generation: Generation(1) };
        ObjectKey { object, server: ServerId(2), writable: true, direct: false }
    }

    fn opened(region: u32) -> Opened {
        let file = tempfile::tempfile().unwrap();
        file.set_len(u64::from(region)).unwrap();
        Opened::Descriptor(Descriptor::raise(file.into(), default_base()))
    }

    fn size_of(pin: &Pin<'_>) -> i64 {
        fstat(pin.handle().descriptor().unwrap()).unwrap().st_size
    }

    #[test]
    fn a_full_cache_evicts_the_unpinned_and_never_mixes_objects_up() {
        let cache = ObjectCache::new(WAYS);
        let pinned: Vec<_> = (0..WAYS as u32 - 1).map(|region| cache.insert(&key(region), opened(region))).collect();
        for region in 100..120 {
            drop(cache.insert(&key(region), opened(region)));
        }
        for (region, pin) in pinned.iter().enumerate() {
            assert_eq!(size_of(pin), region as i64);
        }
        assert!(cache.find(&key(118)).is_none() && cache.find(&key(119)).is_some());
        let last = cache.find(&key(119)).unwrap();
        let passing = cache.insert(&key(200), opened(200));
        assert!(matches!(passing, Pin::Passing(_)) && size_of(&passing) == 200);
        drop((last, passing, pinned));
        cache.close_file(FileId(7));
        assert!((0..300).all(|region| cache.find(&key(region)).is_none()));
    }

    #[test]
    fn threads_find_the_right_object_while_others_evict() {
        let cache = ObjectCache::new(16);
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let cache = &cache;
                scope.spawn(move || {
                    for i in 0..4_000u32 {
                        let region = (i.wrapping_mul(2_654_435_761) >> 7 ^ thread) % 40;
                        let pin =
                            cache.find(&key(region)).unwrap_or_else(|| cache.insert(&key(region), opened(region)));
                        let status = fstat(pin.handle().descriptor().unwrap()).unwrap();
                        assert_eq!(status.st_size, i64::from(region));
                        assert!(FileType::from_raw_mode(status.st_mode).is_file());
                    }
                });
            }
        });
    }
}
