//! Measuring a real directory: a scratch file of its own, past the page cache.
//!
//! The file has no name (`O_TMPFILE`, else it is unlinked right after it was made), so the kernel frees it however the command ends.
//! Where the file system takes direct I/O, reads and writes go to the device from aligned buffers; elsewhere a write counts until its data is
//! on the device (`RWF_DSYNC`), and a range is dropped from the cache before it is read.

use super::error::{CalibrationError, Result};
use super::measure::{LARGEST_BYTES, MIN_SPAN_BYTES, SMALLEST_BYTES, Subject};
use super::write_classes::{BufferedFile, COMPANION_BYTES, FLUSH_BYTES, FlushedFile, InCompany};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use stripewise_layout::{ByteCount, Direction};

/// How the page cache is kept out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    Direct,
    /// Synchronous writes, and reads after the cache was dropped.
    Synchronous,
}

pub(super) struct DirectorySubject {
    file: OwnedFd,
    method: Method,
    span_bytes: u64,
    buffer: AlignedBuffer,
}

impl DirectorySubject {
    /// Makes the scratch file in `directory` and fills it: with `wanted_bytes`, or as much as `patience` allows.
    pub(super) fn prepare(directory: &Path, wanted_bytes: u64, patience: Duration, seed: u64) -> Result<Self> {
        let file = scratch_file(directory)?;
        let free = rustix::fs::fstatvfs(&file).map_err(|source| CalibrationError::FreeSpace { source })?;
        let free_bytes = free.f_bavail.saturating_mul(free.f_frsize);
        // Twice, so that calibration never fills a file system to the brim.
        if free_bytes < 2 * MIN_SPAN_BYTES {
            return Err(CalibrationError::NoSpace {
                directory: directory.to_owned(),
                free: ByteCount(free_bytes),
                needed: ByteCount(2 * MIN_SPAN_BYTES),
            });
        }
        let wanted_bytes = wanted_bytes.min(free_bytes / 2).max(MIN_SPAN_BYTES) / LARGEST_BYTES * LARGEST_BYTES;
        let mut subject =
            Self { file, method: Method::Synchronous, span_bytes: 0, buffer: AlignedBuffer::new(LARGEST_BYTES, seed) };
        subject.method = subject.choose_method();
        let begin = Instant::now();
        while subject.span_bytes < wanted_bytes && (subject.span_bytes < MIN_SPAN_BYTES || begin.elapsed() < patience) {
            write_at(&subject.file, subject.buffer.bytes(LARGEST_BYTES), subject.span_bytes, ReadWriteFlags::empty())
                .map_err(scratch("write", directory))?;
            subject.span_bytes += LARGEST_BYTES;
        }
        rustix::fs::fsync(&subject.file)?;
        // Read-ahead would answer later requests from memory.
        let _ = rustix::fs::fadvise(&subject.file, 0, None, Advice::Random);
        Ok(subject)
    }

    pub(super) fn method(&self) -> Method {
        self.method
    }

    /// One access with the caller's memory, aligned as [`AlignedBuffer`]'s. May be called from several threads.
    pub(super) fn perform(&self, direction: Direction, offset: u64, buffer: &mut [u8]) -> Result<()> {
        access(&self.file, self.method, direction, offset, buffer).map(drop)
    }

    /// The file opened again; it has no name, so by its descriptor.
    pub(super) fn cached(&self, directory: &Path) -> Result<CachedFile> {
        self.opened_again().map_err(scratch("open", directory))
    }

    fn opened_again(&self) -> std::result::Result<CachedFile, Errno> {
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(CachedFile)
    }

    /// Direct I/O if the file system takes it for the smallest size; some accept the flag and refuse the access.
    fn choose_method(&self) -> Method {
        let flags = rustix::fs::fcntl_getfl(&self.file).unwrap_or(OFlags::empty());
        if rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT).is_err() {
            return Method::Synchronous;
        }
        if write_at(&self.file, self.buffer.bytes(SMALLEST_BYTES), 0, ReadWriteFlags::empty()).is_ok() {
            return Method::Direct;
        }
        let _ = rustix::fs::fcntl_setfl(&self.file, flags);
        Method::Synchronous
    }
}

impl Subject for DirectorySubject {
    fn span_bytes(&self) -> u64 {
        self.span_bytes
    }

    fn time(&mut self, direction: Direction, offset: u64, bytes: u64) -> Result<f64> {
        access(&self.file, self.method, direction, offset, self.buffer.bytes_mut(bytes))
    }
}

/// The scratch file once more, with the page cache in between.
pub(super) struct CachedFile(OwnedFd);

impl CachedFile {
    pub(super) fn write(&self, offset: u64, buffer: &[u8]) -> Result<()> {
        Ok(write_at(&self.0, buffer, offset, ReadWriteFlags::empty())?)
    }

    pub(super) fn write_synchronously(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        access(&self.0, Method::Synchronous, Direction::Write, offset, buffer).map(drop)
    }

    pub(super) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::fdatasync(&self.0)?)
    }
}

/// One access past the page cache, and the seconds that it took.
fn access(file: &OwnedFd, method: Method, direction: Direction, offset: u64, buffer: &mut [u8]) -> Result<f64> {
    if (direction, method) == (Direction::Read, Method::Synchronous) {
        rustix::fs::fadvise(file, offset, NonZeroU64::new(buffer.len() as u64), Advice::DontNeed)?;
    }
    let begin = Instant::now();
    match (direction, method) {
        (Direction::Write, Method::Direct) => write_at(file, buffer, offset, ReadWriteFlags::empty())?,
        (Direction::Write, Method::Synchronous) => match write_at(file, buffer, offset, ReadWriteFlags::DSYNC) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                write_at(file, buffer, offset, ReadWriteFlags::empty())?;
                rustix::fs::fdatasync(file)?;
            }
            result => result?,
        },
        (Direction::Read, _) => read_at(file, buffer, offset)?,
    }
    Ok(begin.elapsed().as_secs_f64())
}

impl DirectorySubject {
    /// Runs with the page cache in between.
    fn through_cache<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        rustix::fs::fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
        let result = run(self);
        rustix::fs::fcntl_setfl(&self.file, flags)?;
        result
    }
}

impl BufferedFile for DirectorySubject {
    fn extent_bytes(&self) -> u64 {
        self.span_bytes
    }

    fn batch_s(&mut self, offsets: &[u64], bytes: u64) -> Result<f64> {
        self.through_cache(|subject| {
            let begin = Instant::now();
            for offset in offsets {
                write_at(&subject.file, subject.buffer.bytes(bytes), *offset, ReadWriteFlags::empty())?;
            }
            rustix::fs::fdatasync(&subject.file)?;
            Ok(begin.elapsed().as_secs_f64())
        })
    }
}

impl FlushedFile for DirectorySubject {
    fn synchronous_s(&mut self, offset: u64, bytes: u64) -> Result<f64> {
        self.through_cache(|subject| {
            let buffer = subject.buffer.bytes_mut(bytes);
            access(&subject.file, Method::Synchronous, Direction::Write, offset, buffer)
        })
    }

    fn in_company(&mut self, rounds: u64, seed: u64) -> Result<InCompany> {
        // Through the page cache: direct reads would hold the file's lock against buffered writes.
        let (cached, half_bytes) = (self.opened_again()?, self.span_bytes / 2);
        rustix::fs::fadvise(&cached.0, 0, None, Advice::Random)?;
        let read_s = |buffer: &mut AlignedBuffer, draws: &mut SmallRng| {
            let offset = draws.random_range(0..half_bytes / COMPANION_BYTES) * COMPANION_BYTES;
            access(&cached.0, Method::Synchronous, Direction::Read, offset, buffer.bytes_mut(COMPANION_BYTES))
        };
        let (mut buffer, mut draws) = (self.buffer.copy(), SmallRng::seed_from_u64(seed));
        let mut alone_s = 0.0;
        for _ in 0..rounds {
            alone_s += read_s(&mut buffer, &mut draws)?;
        }
        let companion_s = alone_s / rounds as f64;
        let (is_over, mut reading) = (AtomicBool::new(false), draws.clone());
        let companion = || -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                read_s(&mut buffer, &mut reading)?;
            }
            Ok(())
        };
        // Each in its half of the file.
        let mut write_s = |method| -> Result<f64> {
            // At any moment of a read.
            std::thread::sleep(Duration::from_secs_f64((companion_s * draws.random_range(0.5..1.5)).min(1.0)));
            let offset = half_bytes + draws.random_range(0..half_bytes / FLUSH_BYTES) * FLUSH_BYTES;
            let file = if method == Method::Direct { &self.file } else { &cached.0 };
            access(file, method, Direction::Write, offset, self.buffer.bytes_mut(FLUSH_BYTES))
        };
        std::thread::scope(|scope| {
            let running = scope.spawn(companion);
            let mut found = InCompany { companion_s, direct_s: 0.0, synchronous_s: 0.0 };
            let mut measure = || -> Result<()> {
                for _ in 0..rounds {
                    found.direct_s += write_s(self.method)? / rounds as f64;
                    found.synchronous_s += write_s(Method::Synchronous)? / rounds as f64;
                }
                Ok(())
            };
            let measured = measure();
            is_over.store(true, Ordering::Relaxed);
            running.join().expect("the companion does not panic")?;
            measured.map(|()| found)
        })
    }
}

fn scratch(what: &'static str, directory: &Path) -> impl FnOnce(Errno) -> CalibrationError {
    move |source| CalibrationError::Scratch { what, directory: directory.to_owned(), source }
}

/// A file in `directory` that no name leads to.
pub(super) fn scratch_file(directory: &Path) -> Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => return Ok(file),
        // What file systems and kernels without O_TMPFILE say.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        Err(errno) => return Err(scratch("create", directory)(errno)),
    }
    let path = directory.join(format!(".stripewise-calibrate-{}", std::process::id()));
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(&path, flags, mode).map_err(scratch("create", directory))?;
    rustix::fs::unlink(&path).map_err(scratch("unlink", directory))?;
    Ok(file)
}

/// Writes all of `bytes`; a short write goes on where it stopped.
pub(super) fn write_at(
    file: impl AsFd,
    bytes: &[u8],
    offset: u64,
    flags: ReadWriteFlags,
) -> std::result::Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwritev2(&file, &[IoSlice::new(&bytes[done..])], offset + done as u64, flags) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Reads all of `bytes`; an end of file before that is an error.
pub(super) fn read_at(file: impl AsFd, bytes: &mut [u8], offset: u64) -> std::result::Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::preadv(&file, &mut [IoSliceMut::new(&mut bytes[done..])], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Memory aligned for direct I/O, filled with random bytes so that no device compresses them away.
pub(super) struct AlignedBuffer {
    storage: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    pub(super) fn new(bytes: u64, seed: u64) -> Self {
        let mut storage = vec![0; (bytes + SMALLEST_BYTES) as usize];
        SmallRng::seed_from_u64(seed).fill_bytes(&mut storage);
        Self::of(storage)
    }

    fn of(storage: Vec<u8>) -> Self {
        let start = storage.as_ptr().align_offset(SMALLEST_BYTES as usize);
        Self { storage, start }
    }

    /// As many bytes, of the same randomness.
    pub(super) fn copy(&self) -> Self {
        Self::of(self.storage.clone())
    }

    pub(super) fn bytes(&self, bytes: u64) -> &[u8] {
        &self.storage[self.start..self.start + bytes as usize]
    }

    pub(super) fn bytes_mut(&mut self, bytes: u64) -> &mut [u8] {
        &mut self.storage[self.start..self.start + bytes as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_measured_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let mut subject = DirectorySubject::prepare(directory.path(), MIN_SPAN_BYTES, Duration::ZERO, 1).unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "the scratch file has no name");
        assert!(subject.span_bytes() >= MIN_SPAN_BYTES);
        for method in [subject.method(), Method::Synchronous] {
            if method == Method::Synchronous {
                let flags = rustix::fs::fcntl_getfl(&subject.file).unwrap();
                rustix::fs::fcntl_setfl(&subject.file, flags & !OFlags::DIRECT).unwrap();
            }
            subject.method = method;
            for direction in [Direction::Write, Direction::Read] {
                assert!(subject.time(direction, 8192, 65_536).unwrap() > 0.0);
            }
        }
        let written = subject.buffer.bytes(65_536).to_vec();
        subject.time(Direction::Write, 1 << 20, 65_536).unwrap();
        subject.buffer.bytes_mut(65_536).fill(0);
        subject.time(Direction::Read, 1 << 20, 65_536).unwrap();
        assert_eq!(subject.buffer.bytes(65_536), written, "the bytes measured are the bytes of the file");
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = DirectorySubject::prepare(Path::new("/nonexistent/x"), 0, Duration::ZERO, 1).err().unwrap();
        assert!(format!("{error:#}").contains("cannot create a scratch file in /nonexistent/x"), "{error:#}");
    }
}
