//! Sizes that the kernel believes, of files that it does not cache.
//!
//! It asks for a size when a program does. For asynchronous reads and writes (libaio, io_uring) it goes by the size that it has heard of last, which
//! redirected programs and other hosts may have passed. A read beyond that size finds the end of the file. So open files are watched, and the kernel hears when one has
//! grown.
//!
//! When a write beyond that size fails, the kernel truncates the file to it, to undo what the write may have extended. That would take away what others wrote. So it
//! hears of the present size before it hears of the failure. What it asks for after that is known by its size, its open and its thread: then nothing is truncated,
//! since others may have extended the file again. A program's own truncation comes after it.
//!
//! The kernel takes a size without having asked with bytes of the file only: it gets the last one.

use crate::data;
use crate::failure::failed;
use crate::nodes::lock;
use crate::opens::Open;
use fuser::{FileHandle, INodeNo, Notifier};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

/// For how long a truncation may be the kernel's.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is asked whether open files have grown.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A write that failed.
struct Failure {
    /// Of the program.
    thread: u32,
    /// What the kernel has heard; `None` if it has not.
    size_bytes: Option<u64>,
    replied: Instant,
}

/// What the kernel hears of sizes.
#[derive(Default)]
pub(crate) struct Sizes {
    notifier: OnceLock<Notifier>,
    /// The last of each open.
    failures: Mutex<HashMap<u64, Failure>>,
    has_failures: AtomicBool,
    /// What may grow without the kernel.
    watched: Mutex<Vec<Weak<Open>>>,
    changed: Condvar,
    is_over: AtomicBool,
}

impl Sizes {
    pub(crate) fn begin(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Of a file that the kernel neither reads nor writes itself.
    pub(crate) fn watch(&self, open: &Arc<Open>) {
        lock(&self.watched).push(Arc::downgrade(open));
        self.changed.notify_one();
    }

    /// Raises the kernel's sizes of open files until [`Self::end`].
    pub(crate) fn keep_raised(&self) {
        while !self.is_over.load(Ordering::Acquire) {
            for (open, size_bytes) in self.grown() {
                // Where the last byte cannot be read, it is not tried again: reads get errors too.
                if self.raise(&open).is_err() {
                    open.node().raise_known_size(size_bytes);
                }
            }
            let watched = lock(&self.watched);
            if watched.is_empty() {
                let is_idle = |watched: &mut Vec<_>| watched.is_empty() && !self.is_over.load(Ordering::Acquire);
                drop(self.changed.wait_while(watched, is_idle));
            } else {
                drop(watched);
                std::thread::sleep(CHECK_INTERVAL);
            }
        }
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _watched = lock(&self.watched);
        self.changed.notify_all();
    }

    /// Open files that are larger than the kernel knows, with their sizes.
    fn grown(&self) -> Vec<(Arc<Open>, u64)> {
        let mut watched = Vec::new();
        lock(&self.watched).retain(|open| {
            watched.extend(open.upgrade());
            open.strong_count() > 0
        });
        // Without the lock: an ordinary file's file system may not answer.
        let grown = watched.into_iter().filter_map(|open| {
            let size_bytes = data::size_bytes(&open).ok()?;
            (size_bytes > open.node().known_size()).then_some((open, size_bytes))
        });
        grown.collect()
    }

    /// A write by a program's thread has failed, or is short. The kernel gets the file's size, and hears of it by `reply` then. Not by the thread that serves
    /// it: the kernel may wait until a page has been read that only this thread can serve.
    pub(crate) fn end_failed_write(
        self: &Arc<Self>,
        handle: FileHandle,
        open: Arc<Open>,
        thread: u32,
        reply: impl FnOnce() + Send + 'static,
    ) {
        let sizes = self.clone();
        let end = move || {
            let size_bytes = sizes.raise(&open).ok();
            let failure = Failure { thread, size_bytes, replied: Instant::now() };
            lock(&sizes.failures).insert(handle.0, failure);
            sizes.has_failures.store(true, Ordering::Release);
            reply();
        };
        // Without a thread the reply is dropped, which gives the kernel an error.
        let _ = std::thread::Builder::new().name("size".into()).spawn(end);
    }

    /// A write has succeeded, or the open has ended: what is truncated now is not what failed before.
    pub(crate) fn forget_failure(&self, handle: FileHandle) {
        if self.has_failures.load(Ordering::Acquire) {
            let mut failures = lock(&self.failures);
            failures.remove(&handle.0);
            self.has_failures.store(!failures.is_empty(), Ordering::Release);
        }
    }

    /// Whether a truncation by that open is the kernel's, after a write that failed. `IO` where that cannot be known.
    pub(crate) fn takes_back(
        &self,
        handle: FileHandle,
        open: &Open,
        thread: u32,
        size_bytes: u64,
    ) -> Result<bool, Errno> {
        if !self.has_failures.load(Ordering::Acquire) {
            return Ok(false);
        }
        let failure = lock(&self.failures).remove(&handle.0);
        match failure.filter(|failure| failure.thread == thread && failure.replied.elapsed() < PATIENCE) {
            None => Ok(false),
            // It may have known of a larger size, which others have reduced.
            Some(Failure { size_bytes: Some(known), .. }) => {
                Ok(size_bytes == known || size_bytes > known && size_bytes == open.node().known_size())
            }
            Some(Failure { size_bytes: None, .. }) => Err(Errno::IO),
        }
    }

    /// Gives the kernel the size of an open file, unless it has a larger one.
    fn raise(&self, open: &Open) -> Result<u64, Errno> {
        let size_bytes = match open {
            Open::Managed(open) => open.file.status().map_err(|error| failed(&error))?.size_bytes,
            Open::Ordinary(open) => rustix::fs::fstat(&open.file)?.st_size as u64,
            Open::Directory(_) => return Err(Errno::ISDIR),
        };
        let Some(last) = size_bytes.checked_sub(1) else { return Ok(0) };
        let byte = read_byte(open, last)?;
        let notifier = self.notifier.get().ok_or(Errno::IO)?;
        let (number, known) = (INodeNo(open.node().number()), open.node().known_size());
        let forget_end = || notifier.inval_inode(number, known.min(last) as i64, 0);
        // What was mapped is written back while it ends where the kernel knew that it does. The page of the byte is not kept.
        let stored = forget_end().and_then(|()| notifier.store(number, last, &[byte])).and_then(|()| forget_end());
        stored.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        open.node().raise_known_size(size_bytes);
        Ok(size_bytes)
    }
}

fn read_byte(open: &Open, at: u64) -> Result<u8, Errno> {
    let mut byte = None;
    match open {
        // The program's own open may be for writing only.
        Open::Ordinary(open) => {
            let mut bytes = [0];
            let read = rustix::io::pread(open.node.open(OFlags::RDONLY)?, &mut bytes, at)?;
            byte = bytes[..read].first().copied();
        }
        _ => data::read(open, at, 1, |read| byte = read.ok().and_then(|read| read.first().copied())),
    }
    byte.ok_or(Errno::IO)
}
