//! What every descriptor of the process is: one word each, in memory that costs nothing until it is touched.
//!
//! | low two bits | the descriptor |
//! |---|---|
//! | 0, all zero | unknown: never seen, or not since it was closed. Looked at on its first use, which is also how descriptors that came through `exec` are found |
//! | 1 | none of our business: a pipe, a socket, a directory, a file that is neither captured nor managed |
//! | 2 | a captured file; above, its number in the trace of this process and what writes through the descriptor wait for |
//! | 3 | a managed file; the rest is the address of its [`Open`] |
//!
//! Reading a word needs no lock. Words change where descriptors are made and closed, and there only by the process
//! that owns the table: a child of `vfork` does not, and is told apart (`process::children`).

use crate::capture::{self, Captured};
pub(crate) use crate::log::FLOOR;
use crate::managed::{self, Open, Pinned, stub};
use crate::mapped::Mapped;
use crate::process;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// As many descriptors as Linux gives a process unless `fs.nr_open` was raised; those beyond are not ours.
const LIMIT: usize = 1 << 20;

const PLAIN: u64 = 1;
const CAPTURED: u64 = 2;
const MANAGED: u64 = 3;
const KIND: u64 = 3;

// SAFETY: zero bytes are an `AtomicU64`.
static TABLE: Mapped<AtomicU64, LIMIT> = unsafe { Mapped::new() };
/// One more than the highest descriptor whose word was ever set.
static HIGHEST: AtomicU32 = AtomicU32::new(0);

/// Maps the table. Without it nothing can be told of a descriptor, so nothing may be done: says so and answers false.
pub(crate) fn prepare() -> bool {
    let is_there = TABLE.reach().is_some();
    if !is_there {
        process::say(&[b"no memory for the table of descriptors (a limit on address space?); nothing is done"]);
    }
    is_there
}

/// The word of a descriptor; 0 for one beyond the table.
#[inline(always)]
fn word_of(descriptor: c_int) -> u64 {
    TABLE.get(descriptor as usize).map_or(0, |word| word.load(Ordering::SeqCst))
}

pub(crate) enum Known {
    Plain,
    Captured(Captured),
    Managed(Pinned),
    /// A managed file, of this child of `vfork`: a helper does what is asked of it.
    OfChild,
}

/// What `descriptor` is. Three loads when it is none of our business.
#[inline(always)]
pub(crate) fn lookup(descriptor: c_int) -> Known {
    if descriptor as usize >= LIMIT {
        return Known::Plain;
    }
    if process::children::are_there() {
        return lookup_with_children(descriptor);
    }
    lookup_in_table(descriptor)
}

/// Where some process with this memory has changed its descriptors and not the table.
#[cold]
#[inline(never)]
fn lookup_with_children(descriptor: c_int) -> Known {
    if process::owns_tables() {
        process::children::are_over();
        return lookup_in_table(descriptor);
    }
    let _errno = process::Errno::keep();
    // SAFETY: if it is not open, the kernel says so.
    let borrowed = unsafe { crate::borrow::borrow(descriptor) };
    let is_path = rustix::fs::fcntl_getfl(borrowed).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::PATH));
    let is_managed = !is_path
        && rustix::fs::fstat(borrowed).is_ok_and(|status| {
            rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::RegularFile
                && stub::is_stub(borrowed, &status)
        });
    if is_managed { Known::OfChild } else { Known::Plain }
}

#[inline(always)]
fn lookup_in_table(descriptor: c_int) -> Known {
    // Before the table is there, every descriptor is unknown.
    let word = TABLE.get(descriptor as usize).map_or(0, |word| word.load(Ordering::Acquire));
    if word & KIND == PLAIN {
        return Known::Plain;
    }
    if word & KIND == CAPTURED && process::is_begun() {
        return Known::Captured(Captured::from_word(word >> 2));
    }
    lookup_managed(descriptor, word)
}

/// A function of its own, so that [`lookup`] is two comparisons and no table of jumps: kernels that forget indirect
/// branches at every system call make such a jump the dearest instruction of a captured call.
#[inline(never)]
fn lookup_managed(descriptor: c_int, word: u64) -> Known {
    if word & KIND == MANAGED
        && process::is_begun()
        && let Some(pinned) = managed::pin(open_of(word), || word_of(descriptor) == word)
    {
        return Known::Managed(pinned);
    }
    identify(descriptor)
}

#[cold]
#[inline(never)]
fn identify(descriptor: c_int) -> Known {
    if !process::is_active() {
        return Known::Plain;
    }
    if !process::is_begun() {
        process::begin_child();
    }
    loop {
        let word = word_of(descriptor);
        match word & KIND {
            MANAGED => match managed::pin(open_of(word), || word_of(descriptor) == word) {
                Some(pinned) => return Known::Managed(pinned),
                // Closed or replaced in between.
                None => continue,
            },
            PLAIN => return Known::Plain,
            CAPTURED => return Known::Captured(Captured::from_word(word >> 2)),
            _ => {
                // Our own calls, and those of a vfork child, do not change what the table says.
                let Some(_inside) = process::Inside::enter() else { return Known::Plain };
                if !process::owns_tables() {
                    return Known::Plain;
                }
                let _errno = process::Errno::keep();
                discover(descriptor);
                if word_of(descriptor) == 0 {
                    return Known::Plain;
                }
            }
        }
    }
}

/// Finds out what an open descriptor is and notes it; leaves the word alone if it is not open.
fn discover(descriptor: c_int) {
    // SAFETY: if it is not open, fstat says so.
    let borrowed = unsafe { crate::borrow::borrow(descriptor) };
    let Ok(status) = rustix::fs::fstat(borrowed) else { return };
    if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::RegularFile {
        return set_plain(descriptor);
    }
    if adopt(borrowed, &status) {
        return;
    }
    match capture::key_of_open(borrowed, &status) {
        Some(key) => {
            let write_class = capture::write_class_of_descriptor(borrowed);
            set_captured(descriptor, Captured { key, write_class });
        }
        None => set_plain(descriptor),
    }
}

/// Enters a descriptor as managed if it is a stub's. Called once for each open file description that appears.
pub(crate) fn adopt(descriptor: rustix::fd::BorrowedFd<'_>, status: &rustix::fs::Stat) -> bool {
    let open = stub::open_behind(descriptor, status);
    if let Some(open) = open {
        set_managed(std::os::fd::AsRawFd::as_raw_fd(&descriptor), open);
    }
    open.is_some()
}

/// Looks what every open descriptor is that nobody has looked at.
pub(crate) fn identify_all() {
    use rustix::fs::{Mode, OFlags, RawDir};
    if !process::owns_tables() {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()) else { return };
    let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = RawDir::new(&directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse::<c_int>().ok());
        if let Some(number) = number.filter(|number| is_undecided(*number) && !managed::owns_descriptor(*number)) {
            discover(number);
        }
    }
    forget(std::os::fd::AsRawFd::as_raw_fd(&directory));
    managed::close_raw(directory);
}

/// In a process whose descriptors the table does not know: each is looked at again. What was open stays so.
pub(crate) fn forget_all() {
    for descriptor in 0..HIGHEST.load(Ordering::Relaxed) {
        store(descriptor as c_int, 0);
    }
}

/// Whether nobody has looked what the descriptor is: after [`lookup`], that the caller may not note it.
pub(crate) fn is_undecided(descriptor: c_int) -> bool {
    TABLE.get(descriptor as usize).is_some_and(|word| word.load(Ordering::Acquire) == 0)
}

fn open_of(word: u64) -> &'static Open {
    // SAFETY: managed words are made from references by `set_managed`.
    unsafe { &*((word & !KIND) as *const Open) }
}

/// The managed open behind a descriptor without pinning it; for the table's owner while it changes the table.
pub(crate) fn managed_open(descriptor: c_int) -> Option<&'static Open> {
    let word = TABLE.get(descriptor as usize)?.load(Ordering::Acquire);
    (word & KIND == MANAGED).then(|| open_of(word))
}

fn store(descriptor: c_int, word: u64) -> u64 {
    let Some(place) = TABLE.get(descriptor as usize) else { return 0 };
    if word != 0 {
        HIGHEST.fetch_max(descriptor as u32 + 1, Ordering::Relaxed);
    }
    place.swap(word, Ordering::SeqCst)
}

/// Sets a word; a managed file that the descriptor was before loses one descriptor.
fn replace(descriptor: c_int, word: u64) {
    let before = store(descriptor, word);
    if before & KIND == MANAGED {
        managed::drop_descriptor(open_of(before));
    }
}

pub(crate) fn set_plain(descriptor: c_int) {
    replace(descriptor, PLAIN);
}

pub(crate) fn set_captured(descriptor: c_int, file: Captured) {
    replace(descriptor, file.word() << 2 | CAPTURED);
}

/// Flags of a captured descriptor changed: those of every descriptor that leads to the same open file did, and which these are only the
/// kernel knows.
pub(crate) fn captured_flags_changed(file: Captured) {
    for descriptor in range() {
        let Some(place) = TABLE.get(descriptor as usize) else { continue };
        let word = place.load(Ordering::Acquire);
        if word & KIND != CAPTURED || Captured::from_word(word >> 2).key != file.key {
            continue;
        }
        // SAFETY: of the table; if it was closed meanwhile the kernel says so, and the word is another one.
        let borrowed = unsafe { crate::borrow::borrow(descriptor) };
        if let Some(class) = capture::write_class_of_descriptor(borrowed) {
            let now = Captured { write_class: Some(class), ..file }.word() << 2 | CAPTURED;
            let _ = place.compare_exchange(word, now, Ordering::SeqCst, Ordering::Relaxed);
        }
    }
}

/// Flags of a managed descriptor changed. As [`captured_flags_changed`]: descriptors that came through `exec` have each an
/// [`Open`] of its own and may still lead to one open file.
pub(crate) fn managed_flags_changed(identity: (u64, u64)) {
    for descriptor in range() {
        let word = word_of(descriptor);
        if word & KIND != MANAGED {
            continue;
        }
        let is_same = || word_of(descriptor) == word;
        let Some(open) = managed::pin(open_of(word), is_same).filter(|open| open.identity() == identity) else {
            continue;
        };
        // SAFETY: of the table; if it was closed meanwhile the kernel says so, or the word is another one.
        let borrowed = unsafe { crate::borrow::borrow(descriptor) };
        if let Ok(flags) = rustix::fs::fcntl_getfl(borrowed)
            && is_same()
        {
            open.flags_changed(flags.bits() as c_int);
        }
    }
}

/// The caller has counted the descriptor in `open` already.
pub(crate) fn set_managed(descriptor: c_int, open: &'static Open) {
    replace(descriptor, std::ptr::from_ref(open) as u64 | MANAGED);
}

/// The descriptor is closed, or about to be.
pub(crate) fn forget(descriptor: c_int) {
    replace(descriptor, 0);
}

/// `to` now refers to what `from` refers to.
pub(crate) fn copy(from: c_int, to: c_int) {
    let word = TABLE.get(from as usize).map_or(0, |word| word.load(Ordering::Acquire));
    if word & KIND == MANAGED {
        managed::add_descriptor(open_of(word));
    }
    replace(to, word);
}

/// Descriptors whose words may be set.
pub(crate) fn range() -> std::ops::Range<c_int> {
    0..HIGHEST.load(Ordering::Relaxed) as c_int
}

/// The trace of this process is a new one: files get new numbers in it.
pub(crate) fn forget_captured() {
    let words = range().filter_map(|descriptor| TABLE.get(descriptor as usize));
    for word in words {
        if word.load(Ordering::Relaxed) & KIND == CAPTURED {
            word.store(0, Ordering::Relaxed);
        }
    }
    for descriptor in range() {
        if let Some(open) = managed_open(descriptor) {
            open.forget_key();
        }
    }
}
