//! Several system calls at once, by io_uring: reads and writes of objects on devices, and syncs.
//!
//! A process has as many rings as its threads needed at the same time, up to [`MAX_RINGS`], made when they are first needed: a thread takes a free one for
//! one group of calls and waits for all of them, so what the calls point to is lent until then and no longer. Where there is no ring (more threads than
//! that, a kernel that gives no more memory for them, io_uring switched off or forbidden by a sandbox), the caller does its calls in turn. A ring that the
//! kernel once refused is not asked for again. While a thread waits it takes no signals (`lock`), so no handler leaves calls behind. A ring's memory is
//! shared with the kernel and, after a fork, with the parent: a child forgets the rings and makes its own.

use crate::descriptors::{Descriptor, with_raised_limit};
use crate::lock::Lock;
use io_uring::{IoUring, squeue};
use rustix::fd::RawFd;
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Rings of one process at most. Each is a descriptor and a few pages; threads beyond do their calls in turn.
const MAX_RINGS: usize = 256;
/// Calls of one group under way at the same time; further ones follow as these end.
pub(crate) const GROUP: usize = 64;

enum Ring {
    Untried,
    Ready(Box<IoUring>),
    Unavailable,
}

pub(crate) struct Rings {
    rings: [Lock<Ring>; MAX_RINGS],
    /// Rings that there are or may be: fewer once the kernel refused one.
    available: AtomicUsize,
    base: RawFd,
    issued: AtomicU64,
}

/// In which order the calls of a group begin.
trait Order {
    /// The number of the next one; `None` while those under way have to end first, and when all have begun.
    fn next(&mut self) -> Option<usize>;

    fn ended(&mut self, call: usize);
}

/// One behind the other.
struct InTurn {
    next: usize,
    calls: usize,
}

impl Order for InTurn {
    fn next(&mut self) -> Option<usize> {
        let call = Some(self.next).filter(|call| *call < self.calls);
        self.next += usize::from(call.is_some());
        call
    }

    fn ended(&mut self, _: usize) {}
}

/// Those of each lane one behind the other, a few of every lane under way at a time, whatever the other lanes do.
struct ByLane<'l> {
    lane_of: &'l [u16],
    /// By lane: where in `lane_of` its next call is looked for, and how many are under way.
    lanes: Vec<(usize, usize)>,
    /// The lane that comes next.
    turn: usize,
}

/// Calls of one lane under way at the same time. With 64 of whatever lane, objects met on the disks of `bench/devices`, and buffered writes of 256 KiB under
/// h2dp reached 100 MB/s instead of 147.
const OF_A_LANE: usize = 4;

impl<'l> ByLane<'l> {
    fn new(lane_of: &'l [u16]) -> Self {
        let lanes = lane_of.iter().max().map_or(0, |last| usize::from(*last) + 1);
        Self { lane_of, lanes: vec![(0, 0); lanes], turn: 0 }
    }
}

impl Order for ByLane<'_> {
    fn next(&mut self) -> Option<usize> {
        for _ in 0..self.lanes.len() {
            let lane = self.turn;
            self.turn = (lane + 1) % self.lanes.len();
            let (at, under_way) = &mut self.lanes[lane];
            if *under_way == OF_A_LANE {
                continue;
            }
            let left = &self.lane_of[*at..];
            let distance = left.iter().position(|of| usize::from(*of) == lane);
            *at += distance.map_or(left.len(), |distance| distance + 1);
            if distance.is_some() {
                *under_way += 1;
                return Some(*at - 1);
            }
        }
        None
    }

    fn ended(&mut self, call: usize) {
        self.lanes[usize::from(self.lane_of[call])].1 -= 1;
    }
}

/// One call; what it points to must live until [`Rings::run`] returns.
pub(crate) enum Call<'a> {
    Read { descriptor: RawFd, offset: u64, pieces: &'a [libc::iovec] },
    Write { descriptor: RawFd, offset: u64, pieces: &'a [libc::iovec], durable: bool },
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
            Call::Write { descriptor, offset, pieces, durable } => {
                let write = opcode::Writev::new(types::Fd(*descriptor), pieces.as_ptr().cast(), pieces.len() as u32);
                let write = write.offset(*offset).rw_flags(if *durable { libc::RWF_DSYNC } else { 0 }).build();
                // Durable writes through the page cache go to the kernel's workers in any case. Those that it sends there only after it tried them
                // itself wait for each other: eight of them on Linux 6.18 took 35 ms instead of 21.
                write.flags(if *durable { squeue::Flags::ASYNC } else { squeue::Flags::empty() })
            }
            Call::Sync { descriptor } => {
                opcode::Fsync::new(types::Fd(*descriptor)).flags(types::FsyncFlags::DATASYNC).build()
            }
        };
        entry.user_data(number as u64)
    }
}

thread_local! {
    /// The ring that this thread used last. No destructor: a plain value of the thread's static block.
    static RECENT: Cell<usize> = const { Cell::new(0) };
}

impl Rings {
    pub(super) fn new(base: RawFd) -> Self {
        Self {
            rings: [const { Lock::new(Ring::Untried) }; MAX_RINGS],
            available: AtomicUsize::new(MAX_RINGS),
            base,
            issued: AtomicU64::new(0),
        }
    }

    pub(super) fn issued(&self) -> u64 {
        self.issued.load(Relaxed)
    }

    /// Does the calls at once and calls `done` with the number of each that was begun and its result. False: none was begun.
    pub(crate) fn run(&self, calls: &[Call<'_>], done: impl FnMut(usize, Result<usize, Errno>)) -> bool {
        self.run_in(InTurn { next: 0, calls: calls.len() }, calls, done)
    }

    /// The same, a few calls of every lane at a time: `lane_of` says of each call its lane, from 0 on. So the slowest device holds up its own calls alone.
    pub(crate) fn run_by_lane(
        &self,
        lane_of: &[u16],
        calls: &[Call<'_>],
        done: impl FnMut(usize, Result<usize, Errno>),
    ) -> bool {
        self.run_in(ByLane::new(lane_of), calls, done)
    }

    fn run_in(&self, order: impl Order, calls: &[Call<'_>], done: impl FnMut(usize, Result<usize, Errno>)) -> bool {
        let (available, recent) = (self.available.load(Relaxed), RECENT.get());
        // The one of last time first, then from the lowest on, so that no more are made than are needed.
        let tried = std::iter::once(recent).filter(|number| *number < available);
        for number in tried.chain((0..available).filter(|number| *number != recent)) {
            let Some(mut ring) = self.rings[number].try_lock() else { continue };
            if matches!(*ring, Ring::Untried) {
                match make(self.base) {
                    Some(made) => *ring = Ring::Ready(Box::new(made)),
                    None => {
                        self.available.fetch_min(number, Relaxed);
                        return false;
                    }
                }
            }
            let Ring::Ready(ready) = &mut *ring else { continue };
            RECENT.set(number);
            let (begun, intact) = issue(ready, order, calls, done);
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
        self.available.store(MAX_RINGS, Relaxed);
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
    let low = match IoUring::new(GROUP as u32) {
        // The program is at its own limit of open files, which is not the library's.
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => with_raised_limit(|| IoUring::new(GROUP as u32)),
        result => result,
    };
    MAKING.set(false);
    let low = low.ok()?;
    let params = low.params().clone();
    // SAFETY: borrowed for the time of the call only.
    let descriptor = unsafe { rustix::fd::BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&low)) };
    let number = Descriptor::duplicate(descriptor, base).ok()?.into_number();
    // SAFETY: a descriptor of the ring that these parameters were filled in for, ours alone.
    let ring = unsafe { IoUring::from_fd(number, params) }.ok()?;
    // A worker for each call that waits: the kernel's own limit is four for each processor. Kernels before 5.15 keep to that.
    let _ = ring.submitter().register_iowq_max_workers(&mut [GROUP as u32, 0]);
    Some(ring)
}

/// Returns the number of calls begun, all of which have ended, and whether the ring can be used again.
fn issue(
    ring: &mut IoUring,
    mut order: impl Order,
    calls: &[Call<'_>],
    mut done: impl FnMut(usize, Result<usize, Errno>),
) -> (usize, bool) {
    let (mut pushed, mut begun, mut ended) = (0, 0, 0);
    let mut intact = true;
    while ended < calls.len() {
        while intact && pushed - ended < GROUP && !ring.submission().is_full() {
            let Some(call) = order.next() else { break };
            // SAFETY: what the call points to lives until this function returns, which is after the call's end.
            unsafe { ring.submission().push(&calls[call].to_entry(call)) }.expect("the queue is not full");
            pushed += 1;
        }
        let wanted = if pushed == calls.len() { pushed - ended } else { 1 };
        match ring.submit_and_wait(wanted) {
            Ok(submitted) => begun += submitted,
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(_) => intact = false,
        }
        for completion in ring.completion() {
            ended += 1;
            let result = completion.result();
            let result = usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
            order.ended(completion.user_data() as usize);
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
    use proptest::prelude::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_group_of_reads_gives_each_its_own_bytes_and_errors() {
        let rings = Rings::new(crate::descriptors::default_base());
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

    proptest! {
        /// Each call begins once, in its lane's order, with so many of a lane under way; none waits for another lane.
        #[test]
        fn calls_of_a_lane_wait_for_their_own_lane_alone(
            lane_of in proptest::collection::vec(0u16..5, 1..80), ends in proptest::collection::vec(0usize..1000, 80),
        ) {
            let mut order = ByLane::new(&lane_of);
            let (mut under_way, mut begun): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
            for end in ends {
                while let Some(call) = order.next() {
                    prop_assert!(begun.iter().all(|before| lane_of[*before] != lane_of[call] || *before < call));
                    begun.push(call);
                    under_way.push(call);
                }
                for lane in 0..5 {
                    let of_lane = |calls: &[usize]| calls.iter().filter(|call| lane_of[**call] == lane).count();
                    let left = lane_of.iter().filter(|of| **of == lane).count() - of_lane(&begun);
                    let busy = of_lane(&under_way);
                    prop_assert!(busy == OF_A_LANE || (busy < OF_A_LANE && left == 0), "lane {lane}: {busy}, {left} left");
                }
                if !under_way.is_empty() {
                    order.ended(under_way.swap_remove(end % under_way.len()));
                }
            }
            prop_assert_eq!((begun.len(), order.next()), (lane_of.len(), None));
        }
    }

    /// More calls than one ring takes at a time, and more threads than any fixed number of rings that a process ever had.
    #[test]
    fn many_threads_write_groups_of_any_length() {
        const THREADS: usize = 12;
        const CALLS: usize = 150;
        let rings = Rings::new(crate::descriptors::default_base());
        if !rings.run(&[Call::Sync { descriptor: -1 }], |_, _| ()) {
            eprintln!("skipped: no io_uring here");
            return;
        }
        let file = tempfile::tempfile().unwrap();
        let together = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (rings, file, together) = (&rings, &file, &together);
                scope.spawn(move || {
                    let memory = [thread as u8 + 1; CALLS];
                    let piece = |at: usize| libc::iovec { iov_base: memory[at..].as_ptr() as *mut _, iov_len: 1 };
                    let pieces: Vec<libc::iovec> = (0..CALLS).map(piece).collect();
                    let call = |at: usize| Call::Write {
                        descriptor: file.as_raw_fd(),
                        offset: (at * THREADS + thread) as u64,
                        pieces: &pieces[at..=at],
                        durable: at == 0,
                    };
                    let calls: Vec<Call<'_>> = (0..CALLS).map(call).collect();
                    together.wait();
                    let mut ended = [false; CALLS];
                    assert!(rings.run(&calls, |number, result| {
                        assert_eq!(result, Ok(1));
                        assert!(!std::mem::replace(&mut ended[number], true));
                    }));
                    assert!(ended.iter().all(|ended| *ended));
                });
            }
        });
        let mut found = vec![0; THREADS * CALLS];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
        assert!(found.iter().enumerate().all(|(at, byte)| usize::from(*byte) == at % THREADS + 1));
    }

    /// As where a sandbox forbids io_uring, or the memory for rings is used up.
    #[test]
    fn a_kernel_that_gives_no_further_ring_is_asked_once() {
        let rings = Rings::new(crate::descriptors::default_base());
        rings.available.store(0, Relaxed);
        assert!(!rings.run(&[Call::Sync { descriptor: -1 }], |_, _| panic!("begun without a ring")));
        rings.forget_in_child();
        assert_eq!(rings.available.load(Relaxed), MAX_RINGS);
    }
}
