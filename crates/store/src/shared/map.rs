//! A shared mapping of a file, with typed access to atomics at fixed offsets.
//!
//! Touching a page for which the file system has no space kills the process (SIGBUS). So no page is touched before it has space. What is always used is
//! allocated when the file is made ([`make`]). The rest of a file is sparse: its pages get room when they are first used, by
//! [`SharedMap::reach`], which has the kernel touch the page in our stead and returns `NOSPC` where a touch of our own would have been
//! the end. A page that has space keeps it, so each process asks once for each page.
//!
//! A mapping that is large has page tables of its own, which cost more to make and to free than its pages. Memory of small files is used in its first page only,
//! so of such files that page is mapped, and all of the file a second time once something behind it is used ([`SharedMap::first`]).

use crate::zeroed::zeroed;
use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64};

/// Makes a file `length` bytes long and maps it for writing, with space for the first `allocated` bytes. `NOSPC`: there is no space for them. What the file
/// holds already stays.
///
/// # Errors
///
/// `NOSPC` as said, otherwise the error of sizing or mapping the file.
pub fn make(file: impl AsFd, length: usize, allocated: usize) -> rustix::io::Result<SharedMap> {
    make_first(file, length, length, allocated)
}

/// As [`make`]; of the file only the first `mapped` bytes are mapped at once.
///
/// # Errors
///
/// Those of [`make`].
pub fn make_first(file: impl AsFd, mapped: usize, length: usize, allocated: usize) -> rustix::io::Result<SharedMap> {
    let is_new = rustix::fs::fstat(&file)?.st_size == 0;
    rustix::fs::ftruncate(&file, length as u64)?;
    if is_new {
        fill_with_zeros(&file, allocated)?;
    }
    let map = SharedMap::of_length(file, mapped, length, true)?;
    if is_new {
        map.assume_reached(allocated);
    } else {
        map.reach(0, allocated)?;
    }
    Ok(map)
}

/// Gives the first `bytes` bytes space by writing them. On disks that is only reserved until it is written back, which files of
/// short life never are: fallocate would assign blocks at once, which take 3 ms to free on ext4 when the file is removed.
fn fill_with_zeros(file: impl AsFd, bytes: usize) -> rustix::io::Result<()> {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut offset = 0;
    while offset < bytes {
        let piece = &ZEROS[..ZEROS.len().min(bytes - offset)];
        offset += rustix::io::retry_on_intr(|| rustix::io::pwrite(&file, piece, offset as u64))?;
    }
    Ok(())
}

/// A `MAP_SHARED` mapping, unmapped on drop.
#[derive(Debug)]
pub struct SharedMap {
    start: NonNull<u8>,
    /// Bytes mapped at `start`.
    mapped: usize,
    /// Of the file; where it is more than `mapped`, null or all of it mapped a second time. No lock: a signal's handler may come here in the midst of it.
    length: usize,
    whole: AtomicPtr<u8>,
    writable: bool,
    page_bytes: usize,
    reached: Reached,
}

/// One bit for each page that is known to have space. Most mappings are used in their first pages only.
#[derive(Debug)]
struct Reached {
    first: AtomicU64,
    /// Of the pages from the 65th on: null, or words for all of them, made when the first of these pages is reached. No lock: a signal's handler may
    /// come here in the midst of it.
    further: AtomicPtr<AtomicU64>,
    pages: usize,
}

impl Reached {
    fn none_of(pages: usize) -> Self {
        Self { first: AtomicU64::new(0), further: AtomicPtr::default(), pages }
    }

    fn further_words(&self) -> usize {
        self.pages.saturating_sub(64).div_ceil(64)
    }

    fn further(&self) -> Option<&[AtomicU64]> {
        let words = NonNull::new(self.further.load(Acquire))?;
        // SAFETY: as many words as `make_further` put there, which stay until the drop.
        Some(unsafe { std::slice::from_raw_parts(words.as_ptr(), self.further_words()) })
    }

    #[cold]
    fn make_further(&self) -> &[AtomicU64] {
        // SAFETY: zero bytes are an atomic of value 0.
        let made = unsafe { zeroed::<AtomicU64>(self.further_words()) };
        let made = Box::into_raw(made);
        if self.further.compare_exchange(std::ptr::null_mut(), made.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: just made here, and seen by nobody.
            drop(unsafe { Box::from_raw(made) });
        }
        self.further().expect("there now")
    }

    #[inline]
    fn has(&self, page: usize) -> bool {
        let word = match page.checked_sub(64) {
            None => self.first.load(Relaxed),
            Some(further) => self.further().map_or(0, |words| words[further / 64].load(Relaxed)),
        };
        word >> (page % 64) & 1 != 0
    }

    fn add(&self, page: usize) {
        let word = match page.checked_sub(64) {
            None => &self.first,
            Some(further) => &self.further().unwrap_or_else(|| self.make_further())[further / 64],
        };
        word.fetch_or(1 << (page % 64), Relaxed);
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if let Some(words) = NonNull::new(*self.further.get_mut()) {
            let words = std::ptr::slice_from_raw_parts_mut(words.as_ptr(), self.further_words());
            // SAFETY: made by `make_further` as a box of that length, and nobody looks any more.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

// SAFETY: the mapping is only reached through atomics (and `Stripe` words that are never changed once published).
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps the first `length` bytes of `file`; a shorter file is refused, since touching a mapping beyond its file's end kills the process.
    ///
    /// # Errors
    ///
    /// `INVAL` if the file is shorter than `length`, otherwise the error of mapping it.
    pub fn new(file: impl AsFd, length: usize, writable: bool) -> rustix::io::Result<Self> {
        Self::first(file, length, length, writable)
    }

    /// As [`Self::new`]; of the file only the first `mapped` bytes are mapped before others are used.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`].
    pub fn first(file: impl AsFd, mapped: usize, length: usize, writable: bool) -> rustix::io::Result<Self> {
        if (rustix::fs::fstat(&file)?.st_size as u64) < length as u64 {
            return Err(Errno::INVAL);
        }
        Self::of_length(file, mapped, length, writable)
    }

    /// Maps a file that is known to have `length` bytes.
    fn of_length(file: impl AsFd, mapped: usize, length: usize, writable: bool) -> rustix::io::Result<Self> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let page_bytes = rustix::param::page_size();
        let mapped = mapped.next_multiple_of(page_bytes).min(length);
        // One page is mapped because it is used: its entry in the page table is made here and not by a fault. A page without room gets none.
        let flags = if mapped > page_bytes { MapFlags::SHARED } else { MapFlags::SHARED | MapFlags::POPULATE };
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), mapped, protection, flags, file, 0)? };
        if mapped > page_bytes {
            advise(start, mapped);
        }
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        let reached = Reached::none_of(length.div_ceil(page_bytes));
        Ok(Self { start, mapped, length, whole: AtomicPtr::default(), writable, page_bytes, reached })
    }

    /// Start of a mapping of the first `end` bytes: of the first page where they end in it, else of all the file.
    #[inline]
    fn mapping_to(&self, end: usize) -> rustix::io::Result<*mut u8> {
        if end <= self.mapped {
            return Ok(self.start.as_ptr());
        }
        let whole = self.whole.load(Acquire);
        if whole.is_null() { self.map_whole() } else { Ok(whole) }
    }

    #[cold]
    fn map_whole(&self) -> rustix::io::Result<*mut u8> {
        // An old length of 0 makes a further mapping of a shared one's file, with the same protection. The file is not needed for that: nobody has kept it.
        // SAFETY: the mapping at `start` stays as it is, and the new one at an address of the kernel's choice overlaps nothing.
        let whole = unsafe {
            rustix::mm::mremap(self.start.as_ptr().cast(), 0, self.length, rustix::mm::MremapFlags::MAYMOVE)?
        };
        advise(whole, self.length);
        match self.whole.compare_exchange(std::ptr::null_mut(), whole.cast(), AcqRel, Acquire) {
            Ok(_) => Ok(whole.cast()),
            Err(others) => {
                // SAFETY: just made here, and seen by nobody.
                let _ = unsafe { rustix::mm::munmap(whole, self.length) };
                Ok(others)
            }
        }
    }

    /// Makes sure that `bytes` bytes at `offset` may be touched. In a writable mapping that gives them room; otherwise a page without room is all zeros,
    /// and stays so until somebody with a writable mapping reaches it. `NOSPC`: there is no space.
    ///
    /// # Errors
    ///
    /// `NOSPC` as said, otherwise the kernel's error.
    #[inline]
    pub fn reach(&self, offset: usize, bytes: usize) -> rustix::io::Result<()> {
        let end = (offset + bytes).div_ceil(self.page_bytes);
        for page in offset / self.page_bytes..end {
            if !self.reached.has(page) {
                self.reach_pages(page, end)?;
            }
        }
        Ok(())
    }

    /// The first `bytes` bytes, at least one, and what lies in the same pages, are known to have space.
    pub(super) fn assume_reached(&self, bytes: usize) {
        for page in 0..bytes.div_ceil(self.page_bytes) {
            self.reached.add(page);
        }
    }

    /// Whether `bytes` bytes at `offset` may be touched now; see [`Self::reach`].
    #[must_use]
    #[inline]
    pub fn is_reached(&self, offset: usize, bytes: usize) -> bool {
        self.reach(offset, bytes).is_ok()
    }

    /// Reaches `first`, and all pages up to `end` if the kernel knows how to at once.
    #[cold]
    fn reach_pages(&self, first: usize, end: usize) -> rustix::io::Result<()> {
        if !self.writable || end - first < 2 {
            return self.reach_page(first);
        }
        let (from, to) = (first * self.page_bytes, (end * self.page_bytes).min(self.length));
        let start = self.mapping_to(to)?;
        // SAFETY: within that mapping; what its pages hold stays.
        let populated =
            unsafe { rustix::mm::madvise(start.add(from).cast(), to - from, rustix::mm::Advice::LinuxPopulateWrite) };
        match populated {
            Ok(()) => (first..end).for_each(|page| self.reached.add(page)),
            Err(Errno::FAULT | Errno::NOMEM | Errno::NOSPC) => return Err(Errno::NOSPC),
            // A kernel before 5.14.
            Err(_) => return self.reach_page(first),
        }
        Ok(())
    }

    fn reach_page(&self, page: usize) -> rustix::io::Result<()> {
        self.mapping_to(((page + 1) * self.page_bytes).min(self.length))?;
        // Nobody waits on the page's last words, so nobody is woken.
        let last = ((page + 1) * self.page_bytes).min(self.length & !7) - 8;
        let word = self.half(last);
        // The kernel takes the fault of a futex's word itself and returns EFAULT where ours would be a SIGBUS. OR with 0 changes nothing.
        let touched = if self.writable {
            let (or, equal) = (futex::WakeOp::Or, futex::WakeOpCmp::Eq);
            futex::wake_op(word, futex::Flags::empty(), 0, 0, self.half(last + 4), or, equal, 0, 0)
        } else {
            futex::wake(word, futex::Flags::empty(), 0)
        };
        match touched {
            Ok(_) => {}
            Err(Errno::FAULT) => return Err(Errno::NOSPC),
            Err(errno) => return Err(errno),
        }
        self.reached.add(page);
        Ok(())
    }

    /// Whether the mapping permits writes.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    #[inline]
    fn at<T>(&self, offset: usize, count: usize) -> *const T {
        let end = offset + count * size_of::<T>();
        assert!(offset.is_multiple_of(align_of::<T>()) && end <= self.length);
        // As an allocation that fails.
        let start = self.mapping_to(end).expect("no address space for the shared memory of a file");
        // SAFETY: within the mapping, as just checked.
        unsafe { start.add(offset).cast() }
    }

    /// The atomic at `offset`. Storing through it in a read-only mapping faults: callers check [`Self::is_writable`] at open.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: in bounds and aligned; every process reaches this memory through atomics only.
        unsafe { &*self.at::<AtomicU64>(offset, 1) }
    }

    /// As [`Self::word`], of 32 bits.
    #[must_use]
    #[inline]
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as in `word`.
        unsafe { &*self.at::<AtomicU32>(offset, 1) }
    }

    /// `count` atomics from `offset` on.
    #[must_use]
    #[inline]
    pub fn words(&self, offset: usize, count: usize) -> &[AtomicU64] {
        // SAFETY: as in `word`.
        unsafe { std::slice::from_raw_parts(self.at::<AtomicU64>(offset, count), count) }
    }

    /// `count` values that were published before and never change again.
    ///
    /// # Safety
    /// No process writes these bytes any more, and any bit pattern is a valid `T`.
    #[must_use]
    #[inline]
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

/// Unmaps these, which are used no more: any use panics. Those that lie side by side go by one call, which is a third of the cost of three: the kernel mostly
/// puts what is mapped one after the other there.
pub fn unmap_together<const N: usize>(mut maps: [&mut SharedMap; N]) {
    maps.sort_unstable_by_key(|map| map.start);
    let is_next = |map: &&mut SharedMap, next: &&mut SharedMap| {
        map.mapped > 0 && map.start.as_ptr().wrapping_add(map.mapped) == next.start.as_ptr()
    };
    for neighbours in maps.chunk_by_mut(is_next) {
        let (start, bytes): (_, usize) = (neighbours[0].start, neighbours.iter().map(|map| map.mapped).sum());
        neighbours.iter_mut().for_each(|map| map.forget_start());
        // SAFETY: all of it was mapped by these, which refer to it no more; who holds a reference into one holds that one.
        let _ = unsafe { rustix::mm::munmap(start.as_ptr().cast(), bytes) };
    }
}

impl SharedMap {
    /// The caller unmaps what is mapped at the start.
    fn forget_start(&mut self) {
        self.unmap_whole();
        (self.start, self.mapped, self.length) = (NonNull::<AtomicU64>::dangling().cast(), 0, 0);
    }

    fn unmap_whole(&mut self) {
        let whole = std::mem::replace(self.whole.get_mut(), std::ptr::null_mut());
        if !whole.is_null() {
            // SAFETY: the mapping is ours and no reference into it outlives `self`.
            let _ = unsafe { rustix::mm::munmap(whole.cast(), self.length) };
        }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        self.unmap_whole();
        if self.mapped > 0 {
            // SAFETY: the mapping is ours and no reference into it outlives `self`.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
        }
    }
}

/// Around the first page touched, the kernel would fill as much of the cache with the holes of a file on a disk as the device reads ahead: 5 ms at 8 MiB. Without
/// the advice a mapping works as well.
fn advise(start: *mut std::ffi::c_void, length: usize) {
    // SAFETY: the advice concerns what is read ahead in a mapping of the caller's, and none of its contents.
    let _ = unsafe { rustix::mm::madvise(start, length, rustix::mm::Advice::Random) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn a_page_gets_room_when_it_is_reached_and_keeps_what_it_holds() {
        for directory in ["/dev/shm", "/tmp"] {
            let Ok(file) = tempfile::tempfile_in(directory) else { continue };
            let page = rustix::param::page_size();
            let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks as u64 * 512;
            let map = make(&file, 8 * page, page).unwrap();
            map.word(16).store(7, Relaxed);
            assert_eq!(make(&file, 8 * page, page).unwrap().word(16).load(Relaxed), 7, "what is there stays");
            map.word(16).store(0, Relaxed);
            assert!((page as u64..8 * page as u64).contains(&blocks()), "{directory}: {}", blocks());
            map.word(5 * page + 16).store(7, SeqCst);
            map.reach(5 * page, page).unwrap();
            map.reach(7 * page, 8).unwrap();
            map.reach(2 * page, 2 * page).unwrap();
            assert!(map.reached.has(2) && map.reached.has(3) && !map.reached.has(4));
            assert!(map.word(3 * page).load(SeqCst) == 0 && map.word(5 * page + 16).load(SeqCst) == 7);
            assert_eq!(map.word(5 * page + 16).load(SeqCst), 7);
            let reader = SharedMap::new(&file, 8 * page, false).unwrap();
            assert!(reader.is_reached(5 * page, 8) && reader.word(5 * page + 16).load(SeqCst) == 7);
            assert!((5 * page as u64..8 * page as u64).contains(&blocks()), "{directory}: {}", blocks());
        }
    }

    #[test]
    fn what_lies_behind_the_first_page_is_mapped_when_it_is_used_and_is_the_same_memory() {
        let page = rustix::param::page_size();
        let file = tempfile::tempfile().unwrap();
        let made = make_first(&file, page, 64 * page, page).unwrap();
        let (writer, reader) = (made, SharedMap::first(&file, page, 64 * page, false).unwrap());
        writer.word(8).store(3, SeqCst);
        assert!(
            reader.word(8).load(SeqCst) == 3 && [&writer, &reader].iter().all(|map| map.whole.load(SeqCst).is_null())
        );
        // Threads that are the first to use it see one mapping.
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let map = &writer;
                scope.spawn(move || {
                    map.reach(40 * page, page).unwrap();
                    map.word(40 * page + thread * 8).store(thread as u64 + 1, SeqCst);
                });
            }
        });
        assert!(reader.is_reached(40 * page, page));
        let words: Vec<u64> = reader.words(40 * page, 4).iter().map(|word| word.load(SeqCst)).collect();
        assert_eq!(words, [1, 2, 3, 4]);
        // Several pages at once, none of which is mapped yet.
        let other = SharedMap::first(&file, page, 64 * page, true).unwrap();
        let before = rustix::fs::fstat(&file).unwrap().st_blocks;
        other.reach(50 * page, 3 * page).unwrap();
        assert!(!other.whole.load(SeqCst).is_null() && [50, 51, 52].iter().all(|page| other.reached.has(*page)));
        assert!(rustix::fs::fstat(&file).unwrap().st_blocks >= before + 3 * page as i64 / 512);
        // A slice over the end of the first page.
        reader.words(0, page / 4).iter().skip(1).take(1).for_each(|word| assert_eq!(word.load(SeqCst), 3));
        let mut bytes = [0; 8];
        rustix::io::pread(&file, &mut bytes, 40 * page as u64 + 24).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 4);
        drop((writer, file));
        assert_eq!(reader.word(40 * page).load(SeqCst), 1);
    }

    #[test]
    fn maps_that_go_together_are_unmapped_wherever_they_lie() {
        let page = rustix::param::page_size();
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut maps = [(); 5].map(|()| make_first(file.as_file(), page, 8 * page, page).unwrap());
        // Not side by side with what is around it.
        maps[2] = make(file.as_file(), 8 * page, page).unwrap();
        maps[1].word(5 * page).store(3, SeqCst);
        // By name: another thread may have mapped something else where these were.
        let mappings = || {
            let all = std::fs::read_to_string("/proc/self/maps").unwrap();
            all.lines().filter(|line| line.ends_with(file.path().to_str().unwrap())).count()
        };
        assert_eq!(mappings(), 6, "all of the second one's file is mapped beside its first page");
        let [first, second, third, fourth, left] = &mut maps;
        unmap_together([second, fourth, first, third]);
        assert_eq!(mappings(), 1);
        assert_eq!(left.word(5 * page).load(SeqCst), 3);
        drop(maps);
        assert_eq!(mappings(), 0);
    }

    /// Where a device's read-ahead is long, each file's memory took as much of the cache, and milliseconds.
    #[test]
    fn the_holes_around_a_page_that_is_reached_stay_out_of_memory() {
        const LENGTH: usize = 32 << 20;
        for directory in ["/dev/shm", "/tmp"] {
            let Ok(file) = tempfile::tempfile_in(directory) else { continue };
            let page = rustix::param::page_size();
            let map = make(&file, LENGTH, page).unwrap();
            map.reach(LENGTH / 2, 8).unwrap();
            let mut resident = vec![0u8; LENGTH / page];
            // SAFETY: `resident` has a byte for each page of the mapping.
            assert_eq!(unsafe { libc::mincore(map.start.as_ptr().cast(), LENGTH, resident.as_mut_ptr()) }, 0);
            let pages = resident.iter().filter(|page| **page & 1 == 1).count();
            assert!((2..=256).contains(&pages), "{directory}: {pages} pages");
        }
    }
}
