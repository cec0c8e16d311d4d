//! Writes the records of one process from inside that process, whatever the process is doing.
//!
//! The file is mapped shared, so a record is four stores and survives the death of the process. One atomic addition claims the place of
//! a record; its first word is stored last and makes it valid. When the claimed place lies beyond the room, the claimer frees space
//! itself: it allocates file space (so that a full disk is an error here, not a signal later), maps it, and touches the pages ahead. All
//! of that may be done by several threads at once, or again by a signal handler in the middle: no step undoes another's.
//!
//! Nothing here allocates, locks, waits, panics or calls a libc function that an interposer may have taken over. What cannot be
//! written is counted in the header.
//!
//! # Life
//! All-zero bytes are a recorder that has not started. Let it live in memory that a forked child finds zeroed
//! ([`Recorder::in_wiped_memory`]); then a child simply starts its own file at its first record. A `vfork` child shares its parent's
//! memory and goes on in its parent's file. The open descriptor ([`Recorder::descriptor`]) is inherited by a child like all others; it
//! is checked before each use, so a program that closes or replaces it loses nothing.
#![allow(unsafe_code, reason = "records go into memory mapped from the trace file")]

mod growth;

use crate::clock::{self, Clock, Ticks};
use crate::format::{
    CommunicatorKey, Definition, FileKey, HEADER_BYTES, HEADER_FINISHED, Header, NAME_LIMIT, RawEvent, SLOT_BYTES,
    Slot, at, continuation, definition_slots, mpi_word,
};
use growth::SPANS;
use rustix::io::Errno;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What a process says of itself in its header.
#[derive(Clone, Copy, Debug)]
pub struct Meta<'a> {
    /// Where to put the file; absolute and existing.
    pub directory: &'a CStr,
    /// Empty: the kernel's node name.
    pub node: &'a [u8],
    /// Empty: what `/proc/self/exe` points to.
    pub program: &'a [u8],
    /// Rank in `MPI_COMM_WORLD`; `None` outside MPI or when not yet known ([`Recorder::set_mpi`]).
    pub mpi_rank: Option<u32>,
    /// 0 when unknown.
    pub mpi_size: u32,
    /// Rate of the trace clock if somebody measured it; 0 when unknown. Helps only processes that die within their first records.
    pub ticks_per_second: u64,
}

impl<'a> Meta<'a> {
    /// Everything but the directory unknown.
    #[must_use]
    pub const fn new(directory: &'a CStr) -> Self {
        Self { directory, node: b"", program: b"", mpi_rank: None, mpi_size: 0, ticks_per_second: 0 }
    }
}

/// Why a recorder did not start. Records are then dropped and counted ([`Recorder::lost`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartError {
    /// The directory is not absolute, or its path leaves no space for the file's name.
    #[error("the trace directory must be an absolute path of at most {} bytes", growth::PATH_BYTES - 320)]
    Directory,
    /// No file could be made in the directory.
    #[error("creating the trace file failed ({0}); is the directory there and writable?")]
    Create(Errno),
    /// The file could not be allocated or mapped.
    #[error("the trace file got no space ({0}); is the disk full?")]
    Space(Errno),
    /// [`Recorder::start`] was called before; the recorder goes on as it was.
    #[error("the recorder has been started already, or is being started by another thread")]
    Started,
}

/// The states of [`Recorder::state`].
mod state {
    pub(super) const UNSTARTED: u32 = 0;
    pub(super) const STARTING: u32 = 1;
    pub(super) const RUNNING: u32 = 2;
    pub(super) const FINISHING: u32 = 3;
    pub(super) const FINISHED: u32 = 4;
    pub(super) const REOPENING: u32 = 5;
    pub(super) const FAILED: u32 = 6;
}

/// Where a recorder is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Nobody called [`Recorder::start`]; true of a child just forked, too.
    Unstarted,
    /// Records are written.
    Running,
    /// [`Recorder::finish`] was called; a record reopens the file.
    Finished,
    /// Starting failed.
    Failed,
    /// Another thread (or the caller below a signal handler) is just changing the stage.
    Changing,
}

/// Set in the cursor while the file is finished, which puts every claim beyond the room.
const CLOSED: u64 = 1 << 63;
/// The limit is a position in the low bits and, above, the number of times the file was finished: a grower that was overtaken by
/// [`Recorder::finish`] must not publish the room that was cut away.
const POSITION_MASK: u64 = (1 << 48) - 1;
const EPOCH: u64 = 1 << 48;

#[repr(C, align(64))]
struct CacheLine<T>(T);

/// Appends records to the trace file of this process. See the [module](self).
#[repr(C)]
pub struct Recorder {
    /// Next free byte of the file, and [`CLOSED`].
    cursor: CacheLine<AtomicU64>,
    /// First byte without room.
    limit: CacheLine<AtomicU64>,
    state: AtomicU32,
    next_file: AtomicU32,
    next_communicator: AtomicU32,
    /// The descriptor plus one; 0 is none.
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// Records that had no header to be counted in.
    lost_early: AtomicU64,
    /// Ticks before which growing is not tried again; 0 is none.
    retry_after: AtomicU64,
    /// Addresses of the mapped parts of the file, [`growth::SPAN_BYTES`] each.
    spans: [AtomicPtr<u8>; SPANS],
    path: UnsafeCell<[u8; growth::PATH_BYTES]>,
}

// SAFETY: all fields but `path` are atomics; `path` is written by the one thread that won the step from UNSTARTED to STARTING and read
// only after a load of a later state with acquire order.
unsafe impl Sync for Recorder {}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// A recorder that has not started: all bytes zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cursor: CacheLine(AtomicU64::new(0)),
            limit: CacheLine(AtomicU64::new(0)),
            state: AtomicU32::new(state::UNSTARTED),
            next_file: AtomicU32::new(0),
            next_communicator: AtomicU32::new(0),
            descriptor: AtomicI32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            lost_early: AtomicU64::new(0),
            retry_after: AtomicU64::new(0),
            spans: [const { AtomicPtr::new(std::ptr::null_mut()) }; SPANS],
            path: UnsafeCell::new([0; growth::PATH_BYTES]),
        }
    }

    /// Where the recorder is in its life at this instant; other threads may change it.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self.state.load(Ordering::Acquire) {
            state::UNSTARTED => Stage::Unstarted,
            state::RUNNING => Stage::Running,
            state::FINISHED => Stage::Finished,
            state::FAILED => Stage::Failed,
            _ => Stage::Changing,
        }
    }

    /// Creates the trace file of this process in `meta.directory` and readies the first 60 KiB of room.
    ///
    /// # Errors
    /// When the file cannot be made, and when this is not the first call; the recorder then stays as it is or fails for good.
    pub fn start(&self, meta: &Meta<'_>) -> Result<(), StartError> {
        self.step(state::UNSTARTED, state::STARTING).map_err(|_| StartError::Started)?;
        match self.begin(meta) {
            Ok(()) => {
                self.state.store(state::RUNNING, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                self.state.store(state::FAILED, Ordering::Release);
                Err(error)
            }
        }
    }

    fn step(&self, from: u32, to: u32) -> Result<u32, u32> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    fn begin(&self, meta: &Meta<'_>) -> Result<(), StartError> {
        let clock = Clock::of_process();
        let (start_ticks, start_monotonic_ns) = clock::pair();
        let start_wall_ns = clock::wall_ns();
        let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let name = rustix::system::uname();
        let node = if meta.node.is_empty() { name.nodename().to_bytes() } else { meta.node };
        self.create_file(meta.directory, node, pid, start_wall_ns)?;
        self.cursor.0.store(HEADER_BYTES as u64, Ordering::Relaxed);
        self.grow(0, HEADER_BYTES as u64 + 1).map_err(StartError::Space)?;

        let mut link = [0u8; at::PROGRAM_BYTES];
        let program = if meta.program.is_empty() { growth::program_path(&mut link) } else { meta.program };
        let header = Header {
            clock,
            pid,
            parent_pid: rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get() as u32),
            mpi_rank: meta.mpi_rank,
            mpi_size: meta.mpi_size,
            start_wall_ns,
            start_monotonic_ns,
            start_ticks: start_ticks.0,
            ticks_per_second: meta.ticks_per_second,
            lost: self.lost_early.load(Ordering::Relaxed),
            finished: false,
            used_bytes: 0,
            pairs: [Default::default(); 2],
            node,
            program,
        };
        let page = header.encode();
        let (words, _) = page.as_chunks::<8>();
        // The magic comes last: a header cut short by a kill is no header.
        for (index, word) in words.iter().enumerate().skip(1) {
            self.header_word(index * 8, |target| target.store(u64::from_ne_bytes(*word), Ordering::Relaxed));
        }
        self.header_word(0, |target| target.store(u64::from_ne_bytes(words[0]), Ordering::Release));
        Ok(())
    }

    /// Hands the header's word at byte `start` to `use_it`; nothing when there is no header.
    fn header_word<T>(&self, start: usize, use_it: impl FnOnce(&AtomicU64) -> T) -> Option<T> {
        let base = self.spans.first()?.load(Ordering::Acquire);
        if base.is_null() {
            return None;
        }
        // SAFETY: the first span maps the header page, `start` is one of the aligned positions of `at` within it; spans are unmapped only through `&mut`.
        Some(use_it(unsafe { AtomicU64::from_ptr(base.add(start).cast()) }))
    }

    /// Appends the record of one call. Never fails visibly: what has no space is counted. Inlined, so that an event whose parts the
    /// caller has in registers is never put together in memory.
    #[inline(always)]
    pub fn record(&self, event: &RawEvent) {
        match event.encode() {
            (slot, None) => {
                if let Some(position) = self.claim(SLOT_BYTES as u64) {
                    self.put(position, &slot);
                }
            }
            (slot, Some(extension)) => self.record_extended(&slot, &extension),
        }
    }

    #[cold]
    #[inline(never)]
    fn record_extended(&self, slot: &Slot, extension: &Slot) {
        if let Some(position) = self.claim(2 * SLOT_BYTES as u64) {
            self.put(position + SLOT_BYTES as u64, extension);
            self.put(position, slot);
        }
    }

    /// Gives a file its number in this process and writes down what it is. `path` should be absolute.
    pub fn define_file(&self, path: &[u8], device: u64, inode: u64) -> FileKey {
        let key = FileKey(self.next_file.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let name = path.get(..NAME_LIMIT).unwrap_or(path);
        self.define(Definition::File { key, device, inode, name_bytes: name.len() as u16 }, name);
        key
    }

    /// Gives a communicator its number in this process. `hash` should be equal in all its processes; `rank` is this process's in it.
    /// After 65,535 communicators no more are told apart: 0, none.
    pub fn define_communicator(&self, name: &[u8], hash: u64, size: u32, rank: u32) -> CommunicatorKey {
        let count = self.next_communicator.fetch_add(1, Ordering::Relaxed);
        let Ok(key) = u16::try_from(count.saturating_add(1)) else {
            self.next_communicator.store(u32::from(u16::MAX), Ordering::Relaxed);
            return CommunicatorKey(0);
        };
        let key = CommunicatorKey(key);
        let name = name.get(..NAME_LIMIT).unwrap_or(name);
        self.define(Definition::Communicator { key, hash, size, rank, name_bytes: name.len() as u16 }, name);
        key
    }

    fn define(&self, definition: Definition, name: &[u8]) {
        let slots = definition_slots(name.len()) as u64;
        let Some(position) = self.claim(slots * SLOT_BYTES as u64) else { return };
        for index in 1..slots {
            self.put(position + index * SLOT_BYTES as u64, &continuation(name, index as usize - 1));
        }
        self.put(position, &definition.encode());
    }

    /// Says which MPI process this is, as soon as that is known.
    pub fn set_mpi(&self, rank: u32, size: u32) {
        self.header_word(at::MPI, |word| word.store(mpi_word(Some(rank), size).to_le(), Ordering::Relaxed));
    }

    /// Records that found no space so far, or came before the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.header_word(at::LOST, |word| u64::from_le(word.load(Ordering::Relaxed)))
            .unwrap_or_else(|| self.lost_early.load(Ordering::Relaxed))
    }

    /// Counts a record that the caller could not even make.
    pub fn lose(&self) {
        if self.header_word(at::LOST, |word| word.fetch_add(1, Ordering::Relaxed)).is_none() {
            self.lost_early.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Claims space for `bytes`, a multiple of the slot size.
    #[inline(always)]
    fn claim(&self, bytes: u64) -> Option<u64> {
        // A look first, so that a file that cannot grow is not claimed far beyond its end.
        let cursor = self.cursor.0.load(Ordering::Relaxed);
        let limit = self.limit.0.load(Ordering::Acquire) & POSITION_MASK;
        if cursor.wrapping_add(bytes) <= limit {
            let position = self.cursor.0.fetch_add(bytes, Ordering::Relaxed);
            if position.wrapping_add(bytes) <= limit {
                return Some(position);
            }
        }
        self.claim_after_growing(bytes)
    }

    /// A claim that lost the race for the last room left a hole behind, which readers skip.
    #[cold]
    #[inline(never)]
    fn claim_after_growing(&self, bytes: u64) -> Option<u64> {
        loop {
            match self.state.load(Ordering::Acquire) {
                state::RUNNING => {}
                state::FINISHED => {
                    if self.step(state::FINISHED, state::REOPENING).is_ok() && !self.reopen(bytes) {
                        self.lose();
                        return None;
                    }
                    continue;
                }
                _ => {
                    self.lose();
                    return None;
                }
            }
            let word = self.limit.0.load(Ordering::Acquire);
            let limit = word & POSITION_MASK;
            let cursor = self.cursor.0.load(Ordering::Relaxed);
            if cursor & CLOSED != 0 {
                // Finished between the two looks.
                continue;
            }
            if cursor + bytes > limit {
                if !self.grow_unless_futile(word, cursor + bytes) {
                    self.lose();
                    return None;
                }
                continue;
            }
            let position = self.cursor.0.fetch_add(bytes, Ordering::Relaxed);
            if position.wrapping_add(bytes) <= limit {
                return Some(position);
            }
        }
    }

    /// A finished file gets room again. Only the thread that stepped to REOPENING is here.
    fn reopen(&self, bytes: u64) -> bool {
        let word = self.limit.0.load(Ordering::Acquire);
        let cursor = self.cursor.0.load(Ordering::Relaxed) & !CLOSED;
        let grown = cursor + bytes <= word & POSITION_MASK || self.grow_unless_futile(word, cursor + bytes);
        if grown {
            self.cursor.0.fetch_and(!CLOSED, Ordering::AcqRel);
        }
        self.state.store(if grown { state::RUNNING } else { state::FINISHED }, Ordering::Release);
        grown
    }

    #[inline(always)]
    fn put(&self, position: u64, slot: &Slot) {
        let index = (position >> growth::SPAN_SHIFT) as usize;
        let Some(span) = self.spans.get(index) else { return };
        let base = span.load(Ordering::Acquire);
        if base.is_null() {
            return;
        }
        let within = (position & (growth::SPAN_BYTES - 1)) as usize;
        // SAFETY: `position` was claimed below the limit, so the span is mapped and its file room allocated; a slot is aligned and lies
        // in one span. Words are stored atomically because a reader in another process may look at any time.
        let words: &[AtomicU64; 4] = unsafe { &*base.add(within).cast::<[AtomicU64; 4]>() };
        words[1].store(slot[1].to_le(), Ordering::Relaxed);
        words[2].store(slot[2].to_le(), Ordering::Relaxed);
        words[3].store(slot[3].to_le(), Ordering::Relaxed);
        words[0].store(slot[0].to_le(), Ordering::Release);
    }

    /// Cuts the file to its used length and marks it as finished. Later records are still kept; the file then ends in unused room until
    /// the next call. Does nothing on a recorder that is not running.
    pub fn finish(&self) {
        if self.step(state::RUNNING, state::FINISHING).is_err() {
            return;
        }
        // Whoever claimed before this addition writes below `used`; whoever claims after it is sent away.
        let cursor = self.cursor.0.fetch_or(CLOSED, Ordering::AcqRel) & !CLOSED;
        let mut word = self.limit.0.load(Ordering::Acquire);
        let used = loop {
            let used = cursor.min(word & POSITION_MASK);
            let next = (word & !POSITION_MASK).wrapping_add(EPOCH) | used;
            match self.limit.0.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break used,
                Err(now) => word = now,
            }
        };
        self.write_clock_pair();
        self.header_word(at::USED_BYTES, |target| target.store(used.to_le(), Ordering::Relaxed));
        self.header_word(at::FLAGS, |target| target.fetch_or(HEADER_FINISHED.to_le(), Ordering::Release));
        self.trim(used);
        self.state.store(state::FINISHED, Ordering::Release);
    }

    /// Sets the older of the header's two clock pairs to now.
    fn write_clock_pair(&self) {
        let (Ticks(ticks), ns) = clock::pair();
        let sequence = |index: usize| {
            self.header_word(at::PAIRS + index * at::PAIR_BYTES, |word| u64::from_le(word.load(Ordering::Relaxed)))
        };
        let (Some(first), Some(second)) = (sequence(0), sequence(1)) else { return };
        let start = at::PAIRS + if first <= second { 0 } else { at::PAIR_BYTES };
        let next = first.max(second).wrapping_add(1);
        // No number while the pair is being changed.
        self.header_word(start, |word| word.store(0, Ordering::Release));
        self.header_word(start + 8, |word| word.store(ticks.to_le(), Ordering::Release));
        self.header_word(start + 16, |word| word.store(ns.to_le(), Ordering::Release));
        self.header_word(start, |word| word.store(next.to_le(), Ordering::Release));
    }
}
