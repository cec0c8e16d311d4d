//! Several system calls at once, by io_uring: for reads that the page cache cannot answer, and for syncs.
//!
//! A few rings per process, made at first use; a thread takes a free one for one group of calls and waits for all of them. Where there is
//! none free, or the kernel has none to give (switched off, forbidden by a sandbox), the caller does its calls in turn. A ring's
//! memory is shared with the kernel and, after a fork, with the parent: a child forgets the rings and makes its own.

use super::descriptors::Descriptor;
use super::lock::Lock;
use io_uring::{IoUring, squeue};
use rustix::fd::RawFd;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Groups under way at the same time in one process.
const RINGS: usize = 4;
/// Calls in one group.
pub(crate) const GROUP: usize = 64;

enum Ring {
    Untried,
    Ready(Box<IoUring>),
    Unavailable,
}

pub(crate) struct Rings {
    rings: [Lock<Ring>; RINGS],
    base: RawFd,
    issued: AtomicU64,
}

/// One call; what it points to must live until [`Rings::run`] returns.
pub(crate) enum Call<'a> {
    Read { descriptor: RawFd, offset: u64, pieces: &'a [libc::iovec] },
    Sync { descriptor: RawFd },
}

impl Call<'_> {
    fn to_entry(&self, number: usize) -> squeue::Entry {
        use io_uring::{opcode, types};
        let entry = match self {
            Call::Read { descriptor, offset, pieces } => {
                opcode::Readv::new(types::Fd(*descriptor), pieces.as_ptr().cast(), pieces.len() as u32)
                    .offset(*offset)
                    .build()
            }
            Call::Sync { descriptor } => {
                opcode::Fsync::new(types::Fd(*descriptor)).flags(types::FsyncFlags::DATASYNC).build()
            }
        };
        entry.user_data(number as u64)
    }
}

impl Rings {
    pub(super) fn new(base: RawFd) -> Self {
        Self { rings: [const { Lock::new(Ring::Untried) }; RINGS], base, issued: AtomicU64::new(0) }
    }

    pub(super) fn issued(&self) -> u64 {
        self.issued.load(Relaxed)
    }

    /// Does up to [`GROUP`] calls at once and calls `done` with the number of each and its result. False: none was begun.
    pub(crate) fn run(&self, calls: &[Call<'_>], done: impl FnMut(usize, Result<usize, Errno>)) -> bool {
        for ring in &self.rings {
            let Some(mut ring) = ring.try_lock() else { continue };
            if matches!(*ring, Ring::Untried) {
                *ring = make(self.base).map_or(Ring::Unavailable, |ring| Ring::Ready(Box::new(ring)));
            }
            let Ring::Ready(ready) = &mut *ring else { return false };
            let (begun, intact) = issue(ready, calls, done);
            self.issued.fetch_add(begun as u64, Relaxed);
            if !intact {
                // Its queue may hold calls that must never be submitted: their memory is not lent any more.
                std::mem::forget(std::mem::replace(&mut *ring, Ring::Unavailable));
            }
            return begun > 0;
        }
        false
    }

    pub(super) fn forget_in_child(&self) {
        for ring in &self.rings {
            ring.replace_in_child(Ring::Untried);
        }
    }
}

thread_local! {
    /// No destructor: a plain value of the thread's static block.
    static MAKING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is asking the kernel for one of the library's own rings, by libc's `syscall`: the preload library refuses a
/// redirected program's.
#[must_use]
pub fn is_making_ring() -> bool {
    MAKING.get()
}

/// A ring whose descriptor is high and marked as owned.
fn make(base: RawFd) -> Option<IoUring> {
    MAKING.set(true);
    let low = IoUring::new(GROUP as u32);
    MAKING.set(false);
    let low = low.ok()?;
    let params = low.params().clone();
    // SAFETY: borrowed for the time of the call only.
    let descriptor = unsafe { rustix::fd::BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&low)) };
    let number = Descriptor::duplicate(descriptor, base).ok()?.into_number();
    // SAFETY: a descriptor of the ring that these parameters were filled in for, ours alone.
    unsafe { IoUring::from_fd(number, params) }.ok()
}

/// Returns the number of calls begun, all of which have ended, and whether the ring can be used again.
fn issue(ring: &mut IoUring, calls: &[Call<'_>], mut done: impl FnMut(usize, Result<usize, Errno>)) -> (usize, bool) {
    let calls = &calls[..calls.len().min(GROUP)];
    for (number, call) in calls.iter().enumerate() {
        // SAFETY: what the call points to lives until this function returns, which is after the call's end.
        if unsafe { ring.submission().push(&call.to_entry(number)) }.is_err() {
            return (0, false);
        }
    }
    let (mut begun, mut ended) = (0, 0);
    let mut intact = true;
    while ended < calls.len() {
        match ring.submit_and_wait(calls.len() - ended) {
            Ok(submitted) => begun += submitted,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(_) => intact = false,
        }
        for completion in ring.completion() {
            ended += 1;
            let result = completion.result();
            let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
            done(completion.user_data() as usize, result);
        }
        if !intact {
            if ended >= begun {
                return (begun, false);
            }
            super::sleep(std::time::Duration::from_millis(1));
        }
    }
    (ended, intact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_group_of_reads_gives_each_its_own_bytes_and_errors() {
        let rings = Rings::new(super::super::descriptors::default_base());
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&(0..=255).collect::<Vec<u8>>()).unwrap();
        let mut memory = [[0u8; 10]; 20];
        let pieces: Vec<libc::iovec> =
            memory.iter_mut().map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: 10 }).collect();
        let mut calls: Vec<Call> = (0..20)
            .map(|i| Call::Read { descriptor: file.as_raw_fd(), offset: i as u64 * 13, pieces: &pieces[i..=i] })
            .collect();
        calls.push(Call::Sync { descriptor: file.as_raw_fd() });
        calls.push(Call::Sync { descriptor: -1 });
        let mut results = vec![None; calls.len()];
        for _ in 0..3 {
            if !rings.run(&calls, |number, result| results[number] = Some(result)) {
                eprintln!("skipped: no io_uring here");
                return;
            }
        }
        for (i, part) in memory.iter().enumerate() {
            let length = 256usize.saturating_sub(i * 13).min(10);
            assert_eq!(results[i], Some(Ok(length)));
            assert!((0..length).all(|at| usize::from(part[at]) == i * 13 + at));
        }
        assert_eq!(results[20..], [Some(Ok(0)), Some(Err(Errno::BADF))]);
        assert_eq!(rings.issued(), 66);
    }
}
