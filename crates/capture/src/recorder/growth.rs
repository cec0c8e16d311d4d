//! Room for records: the trace file's descriptor, its length, and the memory it is mapped to.

use super::{CLOSED, POSITION_MASK, Recorder, StartError};
use crate::clock;
use crate::format::EXTENSION;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Resource;
use std::ffi::CStr;
use std::sync::atomic::Ordering;

pub(super) const SPAN_SHIFT: u32 = 26;
/// Bytes of the file that are mapped in one piece: little enough for processes whose address space is limited.
pub(super) const SPAN_BYTES: u64 = 1 << SPAN_SHIFT;
/// 256 GiB, eight thousand million records of one process.
pub(super) const SPANS: usize = 4096;
pub(super) const PATH_BYTES: usize = 4096;

/// After a failure, growing is tried again after so many ticks: a tenth of a second or so.
const RETRY_TICKS: u64 = 1 << 28;
/// Where the descriptor is moved, out of the way of programs that count on low numbers.
const DESCRIPTOR_FLOOR: i32 = 992;

static ZEROES: [u8; 4096] = [0; 4096];

/// How much to add to a file of that length: little first, because most processes of a job script write little.
const fn step_bytes(file_bytes: u64) -> u64 {
    match file_bytes {
        0..0x4_0000 => 0x1_0000,
        0x4_0000..0x80_0000 => 0x10_0000,
        _ => 0x40_0000,
    }
}

/// The path of the running program, in `buffer`; empty when it is not to be had.
pub(super) fn program_path(buffer: &mut [u8]) -> &[u8] {
    let link = rustix::fs::readlinkat_raw(rustix::fs::CWD, c"/proc/self/exe", &mut *buffer);
    let length = link.unwrap_or(0);
    buffer.get(..length).unwrap_or(&[])
}

/// Writes bytes into a fixed buffer; too much is an error at the end.
struct Text<'a> {
    buffer: &'a mut [u8; PATH_BYTES],
    length: usize,
    overflow: bool,
}

impl Text<'_> {
    fn push(&mut self, bytes: &[u8]) {
        // The last byte stays 0.
        match self.buffer.get_mut(self.length..self.length + bytes.len()) {
            Some(target) if self.length + bytes.len() < PATH_BYTES => {
                target.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            _ => self.overflow = true,
        }
    }

    fn push_number(&mut self, number: u64, base: u64) {
        let mut digits = [0u8; 20];
        let mut start = digits.len();
        let mut rest = number;
        loop {
            start -= 1;
            let digit = (rest % base) as u8;
            if let Some(place) = digits.get_mut(start) {
                *place = if digit < 10 { b'0' + digit } else { b'a' + digit - 10 };
            }
            rest /= base;
            if rest == 0 {
                break;
            }
        }
        self.push(digits.get(start..).unwrap_or(&[]));
    }
}

impl Recorder {
    /// Makes `<directory>/<node>.<pid>.<start in hexadecimal ns>.swt`.
    pub(super) fn create_file(&self, directory: &CStr, node: &[u8], pid: u32, start_ns: u64) -> Result<(), StartError> {
        if directory.to_bytes().first() != Some(&b'/') {
            return Err(StartError::Directory);
        }
        // SAFETY: only the thread that stepped from UNSTARTED to STARTING is here, and nobody reads the path before RUNNING.
        let buffer = unsafe { &mut *self.path.get() };
        let mut path = Text { buffer, length: 0, overflow: false };
        path.push(directory.to_bytes());
        path.push(b"/");
        for byte in node.iter().take(128) {
            path.push(if *byte == b'/' || *byte == 0 { b"_" } else { std::slice::from_ref(byte) });
        }
        path.push(b".");
        path.push_number(u64::from(pid), 10);
        path.push(b".");
        path.push_number(start_ns, 16);
        path.push(b".");
        path.push(EXTENSION.as_bytes());
        if path.overflow {
            return Err(StartError::Directory);
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP;
        let file =
            rustix::fs::open(self.path().ok_or(StartError::Directory)?, flags, mode).map_err(StartError::Create)?;
        let status = rustix::fs::fstat(&file).map_err(StartError::Create)?;
        self.device.store(status.st_dev, Ordering::Relaxed);
        self.inode.store(status.st_ino, Ordering::Relaxed);
        self.keep_descriptor(file);
        Ok(())
    }

    /// The path of the trace file; none before the start.
    #[must_use]
    pub fn path(&self) -> Option<&CStr> {
        // SAFETY: written before RUNNING, never changed after (see `Sync`).
        let path = CStr::from_bytes_until_nul(unsafe { &*self.path.get() }).ok()?;
        (!path.is_empty()).then_some(path)
    }

    /// The descriptor that the recorder keeps open in this process, for callers that hide or close it (in a forked child).
    #[must_use]
    pub fn descriptor(&self) -> Option<i32> {
        let stored = self.descriptor.load(Ordering::Relaxed);
        (stored != 0).then(|| stored - 1)
    }

    fn keep_descriptor(&self, file: OwnedFd) {
        let soft = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1024);
        let floor = DESCRIPTOR_FLOOR.min(i32::try_from(soft / 2).unwrap_or(DESCRIPTOR_FLOOR));
        let high = rustix::io::fcntl_dupfd_cloexec(&file, floor);
        let kept = high.unwrap_or(file).into_raw_fd();
        let before = self.descriptor.load(Ordering::Relaxed);
        if self.descriptor.compare_exchange(before, kept + 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: this thread made the descriptor just now and nobody else knows it.
            drop(unsafe { OwnedFd::from_raw_fd(kept) });
        }
    }

    fn is_own_file(&self, file: impl AsFd) -> bool {
        rustix::fs::fstat(file).is_ok_and(|status| {
            status.st_dev == self.device.load(Ordering::Relaxed) && status.st_ino == self.inode.load(Ordering::Relaxed)
        })
    }

    /// Does something with the trace file: by the descriptor kept, or, if the program closed or replaced that, by its path.
    fn with_file<T>(&self, act: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>) -> Result<T, Errno> {
        if let Some(descriptor) = self.descriptor() {
            // SAFETY: not -1; that the number may have become another file's is what the comparison finds out.
            let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
            if self.is_own_file(file) {
                return act(file);
            }
        }
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(self.path().ok_or(Errno::BADF)?, flags, Mode::empty())?;
        if !self.is_own_file(&file) {
            return Err(Errno::STALE);
        }
        let result = act(file.as_fd());
        self.keep_descriptor(file);
        result
    }

    /// [`Recorder::grow`], not tried again for a while after it failed.
    pub(super) fn grow_unless_futile(&self, limit_word: u64, needed: u64) -> bool {
        let retry_after = self.retry_after.load(Ordering::Relaxed);
        let now = clock::now().0;
        if retry_after != 0 && now < retry_after {
            return false;
        }
        let grown = self.grow(limit_word, needed).is_ok();
        let next = if grown { 0 } else { now.wrapping_add(RETRY_TICKS).max(1) };
        self.retry_after.store(next, Ordering::Relaxed);
        grown
    }

    /// Gives the file room up to `needed` at least. Several threads may do this at once for the same room.
    pub(super) fn grow(&self, limit_word: u64, needed: u64) -> Result<(), Errno> {
        let limit = limit_word & POSITION_MASK;
        debug_assert!(needed & CLOSED == 0);
        let mut wish = limit;
        while wish < needed {
            wish += step_bytes(wish);
        }
        // When the large step does not fit, the page that is needed may.
        let least = needed.next_multiple_of(4096);
        let end = match self.extend(limit, wish) {
            Ok(()) => wish,
            Err(_) if least < wish => self.extend(limit, least).map(|()| least)?,
            Err(error) => return Err(error),
        };
        let next = limit_word & !POSITION_MASK | end;
        // Another thread's growth, or a finish, may have been faster; the caller looks again.
        if self.limit.0.compare_exchange(limit_word, next, Ordering::AcqRel, Ordering::Relaxed).is_ok() && limit > 0 {
            self.write_clock_pair();
        }
        Ok(())
    }

    fn extend(&self, from: u64, to: u64) -> Result<(), Errno> {
        if to > SPANS as u64 * SPAN_BYTES {
            return Err(Errno::FBIG);
        }
        // Beyond this limit the kernel would also send SIGXFSZ.
        if rustix::process::getrlimit(Resource::Fsize).current.is_some_and(|most| to > most) {
            return Err(Errno::FBIG);
        }
        self.with_file(|file| {
            allocate(file, from, to)?;
            let first = from >> SPAN_SHIFT;
            let last = (to - 1) >> SPAN_SHIFT;
            for index in first..=last {
                let base = self.mapped_span(file, index)?;
                let start = from.max(index << SPAN_SHIFT) & (SPAN_BYTES - 1) & !4095;
                let end = (to - (index << SPAN_SHIFT)).min(SPAN_BYTES);
                // Touching pages here, many at once, costs a fraction of the page faults it saves. Kernels before 5.14 refuse.
                // SAFETY: the range lies in a mapping of this recorder, and the advice changes no data.
                let _ = unsafe {
                    rustix::mm::madvise(
                        base.add(start as usize).cast(),
                        (end - start) as usize,
                        Advice::LinuxPopulateWrite,
                    )
                };
            }
            Ok(())
        })
    }

    fn mapped_span(&self, file: BorrowedFd<'_>, index: u64) -> Result<*mut u8, Errno> {
        let span = self.spans.get(index as usize).ok_or(Errno::FBIG)?;
        let present = span.load(Ordering::Acquire);
        if !present.is_null() {
            return Ok(present);
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let fresh = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                SPAN_BYTES as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                index << SPAN_SHIFT,
            )?
        };
        match span.compare_exchange(std::ptr::null_mut(), fresh.cast(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(fresh.cast()),
            Err(other) => {
                // SAFETY: this thread made the mapping and gave its address to nobody.
                let _ = unsafe { rustix::mm::munmap(fresh, SPAN_BYTES as usize) };
                Ok(other)
            }
        }
    }

    /// Cuts the file to `used` bytes.
    pub(super) fn trim(&self, used: u64) {
        let _ = self.with_file(|file| rustix::fs::ftruncate(file, used));
    }

    /// A recorder for the whole life of the process, in memory that a forked child finds zeroed.
    ///
    /// # Errors
    /// When the kernel gives no memory, or is older than 4.14.
    pub fn in_wiped_memory() -> Result<&'static Self, Errno> {
        let bytes = size_of::<Self>().next_multiple_of(4096);
        // SAFETY: a fresh private mapping at an address of the kernel's choice. It starts zeroed, which is a recorder that has not
        // started; it is larger than a recorder, page-aligned and never unmapped.
        unsafe {
            let memory = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?;
            if let Err(error) = rustix::mm::madvise(memory, bytes, Advice::LinuxWipeOnFork) {
                let _ = rustix::mm::munmap(memory, bytes);
                return Err(error);
            }
            Ok(&*memory.cast::<Self>())
        }
    }

    /// Gives back the memory and the descriptor. Only for programs that make many recorders: the mutable borrow shows that no other
    /// thread can still be writing.
    pub fn unmap(&mut self) {
        self.finish();
        for span in &mut self.spans {
            let base = std::mem::replace(span.get_mut(), std::ptr::null_mut());
            if !base.is_null() {
                // SAFETY: a mapping of this recorder, which nobody else can reach any more.
                let _ = unsafe { rustix::mm::munmap(base.cast(), SPAN_BYTES as usize) };
            }
        }
        if let Some(descriptor) = self.descriptor() {
            // SAFETY: as in `with_file`; closed only if it is still this recorder's file.
            let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
            if self.is_own_file(file) {
                // SAFETY: made by this recorder and given to nobody.
                drop(unsafe { OwnedFd::from_raw_fd(file.as_raw_fd()) });
            }
        }
        *self = Self::new();
    }
}

/// Gives the file real room from `from` to `to` without changing what it holds, however many threads do so at once.
fn allocate(file: BorrowedFd<'_>, from: u64, to: u64) -> Result<(), Errno> {
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), from, to - from) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
            other => return other,
        }
    }
    // NFS before 4.2 and some parallel file systems: zeros appended (the descriptor is in append mode) extend the file, take real room,
    // and cannot overwrite what another thread wrote.
    while (rustix::fs::fstat(file)?.st_size as u64) < to {
        match rustix::io::write(file, &ZEROES) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
