//! The library's own descriptors inside a foreign process: high numbers, closed on exec, and known, so that the program can be
//! kept from closing them.
//!
//! They lie at or above a *base*, by default the program's soft limit of open files but at most [`HIGHEST_BASE`] (a higher number makes the
//! kernel's table, and every fork, larger). A number beyond the soft limit needs the limit raised; it is raised for the time of the one
//! call and put back, so the program never sees another limit than its own, and none of its numbers is taken. Once the program has lowered its hard limit below the base, they lie in the
//! upper quarter of what is left.
//!
//! Closing goes by raw system call: the destructor of the standard library's `OwnedFd` calls libc's `close`, which the preload library defines.

use crate::lock::Lock;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit};
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// Highest default base.
pub const HIGHEST_BASE: RawFd = 4096;

/// Numbers that can be marked as owned; a process with more open files than this keeps them unmarked.
const MARKS: usize = 1 << 20;

static OWNED: [AtomicU64; MARKS / 64] = [const { AtomicU64::new(0) }; MARKS / 64];

/// Guards the moment in which the soft limit is raised; taken across `fork`, so that no child inherits a raised one.
static RAISING: Lock<()> = Lock::new(());

/// Whether `descriptor` is one of this library's own in this process. One load.
#[must_use]
#[inline]
pub fn owns_descriptor(descriptor: RawFd) -> bool {
    usize::try_from(descriptor)
        .ok()
        .and_then(|number| OWNED.get(number / 64).map(|word| word.load(Acquire) >> (number % 64) & 1 == 1))
        .unwrap_or(false)
}

/// The library's own descriptors from `first` on, in ascending order.
pub fn owned_descriptors(first: RawFd) -> impl Iterator<Item = RawFd> {
    let first = usize::try_from(first).unwrap_or(0);
    (first / 64..OWNED.len())
        .flat_map(move |word| {
            let bits = OWNED[word].load(Acquire);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| (word * 64 + bit) as RawFd)
        })
        .filter(move |number| *number as usize >= first)
}

fn mark(descriptor: RawFd, owned: bool) {
    let number = descriptor as usize;
    if let Some(word) = OWNED.get(number / 64) {
        let bit = 1 << (number % 64);
        if owned {
            word.fetch_or(bit, AcqRel)
        } else {
            word.fetch_and(!bit, AcqRel)
        };
    }
}

/// A descriptor that is closed by raw system call.
#[derive(Debug)]
pub(crate) struct Received(RawFd);

impl From<OwnedFd> for Received {
    fn from(descriptor: OwnedFd) -> Self {
        Self(descriptor.into_raw_fd())
    }
}

impl AsFd for Received {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Received {
    pub(crate) fn into_raw(self) -> RawFd {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        // SAFETY: ours alone, and not used after.
        unsafe { rustix::io::close(self.0) };
    }
}

/// One of the library's own descriptors: high, closed on exec, marked as owned until it is closed.
#[derive(Debug)]
pub struct Descriptor(RawFd);

impl Descriptor {
    /// Moves `descriptor` to a number of at least `base`; where none is to be had it stays where it is.
    pub fn raise(descriptor: OwnedFd, base: RawFd) -> Self {
        let low = Received::from(descriptor);
        let number =
            if low.0 >= base { low.into_raw() } else { duplicate_above(&low, base).unwrap_or_else(|_| low.into_raw()) };
        mark(number, true);
        Self(number)
    }

    /// A duplicate of someone else's descriptor.
    ///
    /// # Errors
    ///
    /// That of `fcntl`: no number is free.
    pub fn duplicate(descriptor: BorrowedFd<'_>, base: RawFd) -> Result<Self, Errno> {
        let number = match duplicate_above(descriptor, base) {
            Ok(number) => number,
            Err(_) => rustix::io::fcntl_dupfd_cloexec(descriptor, 0)?.into_raw_fd(),
        };
        mark(number, true);
        Ok(Self(number))
    }

    /// The number, still open and marked: for the object cache, which closes it by [`Self::from_number`].
    pub(crate) fn into_number(self) -> RawFd {
        let number = self.0;
        std::mem::forget(self);
        number
    }

    /// # Safety
    /// `number` came from [`Self::into_number`], and nobody else took it back.
    pub(crate) unsafe fn from_number(number: RawFd) -> Self {
        Self(number)
    }

    /// As an `OwnedFd`, for types of other modules; it stays marked, so it must not be closed.
    pub(crate) fn into_owned(self) -> OwnedFd {
        // SAFETY: ours alone.
        unsafe { OwnedFd::from_raw_fd(self.into_number()) }
    }
}

/// Counts a descriptor among the library's own that nobody closes.
pub fn keep(descriptor: BorrowedFd<'static>) {
    mark(descriptor.as_raw_fd(), true);
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        mark(self.0, false);
        // SAFETY: ours alone, and not used after.
        unsafe { rustix::io::close(self.0) };
    }
}

/// The numbers of all descriptors that this process has open.
///
/// # Errors
///
/// That of reading `/proc/self/fd`: then nothing is known of them.
pub(crate) fn open_numbers() -> Result<Vec<RawFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = Received::from(with_raised_limit(|| rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()))?);
    let mut buffer = [MaybeUninit::<u8>::uninit(); 2048];
    let mut entries = RawDir::new(&directory, &mut buffer);
    let mut numbers = Vec::new();
    while let Some(entry) = entries.next() {
        numbers.extend(entry?.file_name().to_str().ok().and_then(|name| name.parse::<RawFd>().ok()));
    }
    Ok(numbers)
}

/// The base for a process with the present limits.
#[must_use]
pub fn default_base() -> RawFd {
    let soft = rustix::process::getrlimit(Resource::Nofile).current;
    soft.and_then(|soft| RawFd::try_from(soft).ok()).unwrap_or(HIGHEST_BASE).clamp(3, HIGHEST_BASE)
}

/// Descriptors that can be had from `base` on.
#[must_use]
pub fn space_above(base: RawFd) -> usize {
    let limits = rustix::process::getrlimit(Resource::Nofile);
    usize::try_from(limits.maximum.unwrap_or(1 << 20)).unwrap_or(1 << 20).saturating_sub(base as usize)
}

fn duplicate_above(descriptor: impl AsFd, base: RawFd) -> Result<RawFd, Errno> {
    let duplicate = |base| rustix::io::fcntl_dupfd_cloexec(&descriptor, base).map(IntoRawFd::into_raw_fd);
    let is_beyond = |result: &Result<RawFd, Errno>| matches!(result, Err(Errno::INVAL | Errno::MFILE));
    let result = duplicate(base);
    // The number lies beyond the soft limit.
    let result = if is_beyond(&result) { with_raised_limit(|| duplicate(base)) } else { result };
    // The program has lowered the hard limit below the base since: as high as that permits, out of the way of its own numbers.
    if !is_beyond(&result) {
        return result;
    }
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.and_then(|hard| RawFd::try_from(hard).ok());
    match hard.map(|hard| hard - hard / 4) {
        Some(below) if below < base => with_raised_limit(|| duplicate(below)),
        _ => result,
    }
}

/// Does `action`, which makes a descriptor, with the soft limit of open files raised to the hard one.
pub(crate) fn with_raised_limit<T>(action: impl FnOnce() -> T) -> T {
    let _raising = RAISING.lock();
    let limits = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, maximum: limits.maximum };
    let raised = limits != raised && rustix::process::setrlimit(Resource::Nofile, raised).is_ok();
    let result = action();
    if raised {
        let _ = rustix::process::setrlimit(Resource::Nofile, limits);
    }
    result
}

/// The limits that [`raise_limit`] found when it raised them first.
static FIRST_LIMITS: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit of open files to the hard one for good, in a process that serves: each managed file that a program has open takes descriptors there.
pub fn raise_limit() {
    let _raising = RAISING.lock();
    let limits = rustix::process::getrlimit(Resource::Nofile);
    FIRST_LIMITS.get_or_init(|| limits);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits });
}

/// Starts a user's program by `start`: with the limits of open files that this process was started with, whether it serves by now or not.
pub fn with_first_limits<T>(start: impl FnOnce() -> T) -> T {
    let Some(first) = FIRST_LIMITS.get() else { return start() };
    // Without a guard, which blocks signals: the program would have them blocked from its start.
    RAISING.take_for_fork();
    let raised = rustix::process::getrlimit(Resource::Nofile);
    let is_lowered = rustix::process::setrlimit(Resource::Nofile, *first).is_ok();
    let started = start();
    if is_lowered {
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    }
    RAISING.free_after_fork();
    started
}

pub(crate) fn take_for_fork() {
    RAISING.take_for_fork();
}

pub(crate) fn free_after_fork() {
    RAISING.free_after_fork();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_high_marked_and_unmarked_when_closed() {
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        // While no other test has them raised.
        let limits = || {
            let _raising = RAISING.lock();
            rustix::process::getrlimit(Resource::Nofile)
        };
        let before = limits();
        // A base that no other test of this process uses.
        let base = default_base() + 3000;
        let descriptor = Descriptor::raise(file, base);
        let number = descriptor.as_fd().as_raw_fd();
        assert!(number >= base);
        assert!(owns_descriptor(number) && owned_descriptors(number).next() == Some(number));
        assert!(rustix::io::fcntl_getfd(&descriptor).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(limits(), before);
        drop(descriptor);
        assert!(!owns_descriptor(number) && !owns_descriptor(-1) && !owns_descriptor(RawFd::MAX));
    }
}
