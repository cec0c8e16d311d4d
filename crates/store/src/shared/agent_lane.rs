//! The lane between a process and the agent of its host: requests for servers whose I/O runs in the agent (the broker), and their data.
//!
//! A file in memory that the process makes, seals against changes of its length, and hands over by a descriptor. One for each process; a forked child
//! makes its own.
//!
//! | offset | words | who writes |
//! |---|---|---|
//! | 0 | magic number | process, before it hands the lane over |
//! | 8 | (32 bits) *submitted*: raised when slots were submitted; the agent waits on it | process |
//! | 12 | (32 bits) *freed*: raised when a slot was freed; threads that find no slot wait on it | process |
//! | 64 + 64 i | slot i, see below | |
//! | 4096 + i * [`SLOT_BYTES`] | data of slot i | process (write), agent (read, text of an error) |
//!
//! | in a slot | words |
//! |---|---|
//! | 0 | (32 bits) state; the process waits on it |
//! | 4 | (32 bits) number of the server, and in bits 16 and 17 what is asked |
//! | 8 | file |
//! | 16 | (32 bits) region |
//! | 20 | (32 bits) generation |
//! | 24 | epoch of the object |
//! | 32 | first byte in the object |
//! | 40 | bytes |
//! | 48 | result |
//!
//! *States*. Free -> claimed (process) -> submitted (process) -> taken (agent) -> done (agent) -> free (process). A process that gives up waiting makes its slot
//! *abandoned*, and the agent frees it when its operation is over: until then the operation uses the slot's memory. An agent that takes over does
//! again what its predecessor, another process, had taken; the operations may be repeated, because nobody was told of their end and whoever asked still waits.
//!
//! *Why nobody waits for ever.* A thread holds slots while it lets other servers begin their parts, so it must not wait for slots then: it takes what
//! is free among the first [`EARLY_SLOTS`]. When all have begun, it may wait for the others too; who holds one of those waits for nothing but the agent.

use super::map::SharedMap;
use crate::size_limit::with_size;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::thread::futex;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use stripewise_layout::{FileId, Generation, RegionIndex, ServerId};

/// Bytes that one operation moves at most.
pub const SLOT_BYTES: usize = 1 << 20;
/// Operations of a process under way together.
pub const SLOTS: usize = 24;
/// Those of them that may be held while others begin.
pub const EARLY_SLOTS: usize = 16;
const DATA: usize = 4096;
const LENGTH: usize = DATA + SLOTS * SLOT_BYTES;
const MAGIC: u64 = u64::from_le_bytes(*b"SWLANE\0\x01");
const SUBMITTED_COUNT: usize = 8;
const FREED_COUNT: usize = 12;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const SUBMITTED: u32 = 2;
const TAKEN: u32 = 3;
const DONE: u32 = 4;
const ABANDONED: u32 = 5;

/// Set in a result that is an error.
const FAILED: u64 = 1 << 63;

/// What is asked of the agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Bytes of the object into the slot's memory.
    Read,
    /// The slot's memory into the object.
    Write,
    /// The object's length.
    Size,
    /// That what was written to the object is durable.
    Sync,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// What is asked.
    pub ask: Ask,
    /// Where the object is.
    pub server: ServerId,
    /// The managed file.
    pub file: FileId,
    /// Its region.
    pub region: RegionIndex,
    /// Of the region's place.
    pub generation: Generation,
    /// Which the object has to be of.
    pub epoch: u64,
    /// First byte in the object.
    pub offset: u64,
    /// At most [`SLOT_BYTES`].
    pub length: usize,
}

/// Why the agent did not do it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// There is no such object, or it has moved on to another epoch.
    Missing,
    /// The server is full.
    NoSpace,
    /// This process may not do that.
    Denied,
    /// Anything else, in words.
    Other(String),
}

/// A lane, mapped by the process or by its agent.
#[derive(Debug)]
pub struct AgentLane {
    map: SharedMap,
}

impl AgentLane {
    /// What a lane reserves; pages that are never used take no memory.
    pub const BYTES: usize = LENGTH;

    /// A new lane, and the descriptor to hand over.
    ///
    /// # Errors
    /// Where no memory is to be had; `FBIG` where this process may make no file of [`Self::BYTES`].
    pub fn make() -> rustix::io::Result<(Self, OwnedFd)> {
        let file = rustix::fs::memfd_create("stripewise-lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        // The limit on the size of files is held against memory as well.
        let map = with_size(LENGTH as u64, || super::map::make(&file, LENGTH, DATA))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        map.word(0).store(MAGIC, Release);
        Ok((Self { map }, file))
    }

    /// The lane that a process handed over.
    ///
    /// # Errors
    /// `INVAL` where it is none of this version, or its length may change; the error of mapping it.
    pub fn open(file: impl AsFd) -> rustix::io::Result<Self> {
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(Errno::INVAL);
        }
        let map = SharedMap::new(&file, LENGTH, true)?;
        if map.word(0).load(Acquire) != MAGIC {
            return Err(Errno::INVAL);
        }
        Ok(Self { map })
    }

    fn state(&self, slot: usize) -> &AtomicU32 {
        self.map.half(64 + 64 * slot)
    }

    fn half(&self, slot: usize, at: usize) -> &AtomicU32 {
        self.map.half(64 + 64 * slot + at)
    }

    fn word(&self, slot: usize, at: usize) -> &std::sync::atomic::AtomicU64 {
        self.map.word(64 + 64 * slot + at)
    }

    /// The slot's memory, [`SLOT_BYTES`] long. The process uses it while it holds the slot and nothing is submitted or the result is there, the agent
    /// between taking and completing.
    ///
    /// # Errors
    /// `NOSPC` where there is no memory for so many bytes.
    pub fn memory(&self, slot: usize, bytes: usize) -> rustix::io::Result<*mut u8> {
        let at = DATA + slot * SLOT_BYTES;
        assert!(bytes <= SLOT_BYTES);
        self.map.reach(at, bytes)?;
        Ok(self.map.unpublished(at, bytes))
    }

    fn change(&self, slot: usize, from: u32, to: u32) -> bool {
        self.state(slot).compare_exchange(from, to, AcqRel, Acquire).is_ok()
    }

    /// A free slot among these; `None`: all are in use.
    pub fn claim(&self, among: Range<usize>) -> Option<usize> {
        among.into_iter().find(|slot| self.change(*slot, FREE, CLAIMED))
    }

    /// How often slots were freed, for [`Self::wait_for_slot`].
    pub fn freed(&self) -> u32 {
        self.map.half(FREED_COUNT).load(Acquire)
    }

    /// Waits until a slot was freed since `seen`, or for so long.
    pub fn wait_for_slot(&self, seen: u32, patience: Duration) {
        wait(self.map.half(FREED_COUNT), seen, patience);
    }

    /// Frees a slot whose result was taken, or which was never submitted.
    pub fn free(&self, slot: usize) {
        self.state(slot).store(FREE, Release);
        raise(self.map.half(FREED_COUNT));
    }

    /// Asks the agent; [`Self::wake_agent`] tells it.
    pub fn submit(&self, slot: usize, order: &Order) {
        let ask = match order.ask {
            Ask::Read => 0,
            Ask::Write => 1,
            Ask::Size => 2,
            Ask::Sync => 3,
        };
        self.half(slot, 4).store(u32::from(order.server.0) | ask << 16, Relaxed);
        self.word(slot, 8).store(order.file.0, Relaxed);
        self.half(slot, 16).store(order.region.0, Relaxed);
        self.half(slot, 20).store(order.generation.0, Relaxed);
        self.word(slot, 24).store(order.epoch, Relaxed);
        self.word(slot, 32).store(order.offset, Relaxed);
        self.word(slot, 40).store(order.length as u64, Relaxed);
        self.state(slot).store(SUBMITTED, Release);
    }

    /// After slots were submitted.
    pub fn wake_agent(&self) {
        raise(self.map.half(SUBMITTED_COUNT));
    }

    /// Waits for so long. `None`: the operation is not over.
    pub fn wait(&self, slot: usize, patience: Duration) -> Option<Result<u64, Failure>> {
        let state = self.state(slot);
        let seen = state.load(Acquire);
        if seen != DONE {
            wait(state, seen, patience);
        }
        (state.load(Acquire) == DONE).then(|| self.result(slot))
    }

    fn result(&self, slot: usize) -> Result<u64, Failure> {
        let result = self.word(slot, 48).load(Acquire);
        if result & FAILED == 0 {
            return Ok(result);
        }
        Err(match result & 0xff {
            1 => Failure::Missing,
            2 => Failure::NoSpace,
            3 => Failure::Denied,
            _ => {
                let bytes = ((result & !FAILED) >> 8) as usize;
                let text = self.memory(slot, bytes.min(SLOT_BYTES)).map(|start| {
                    // SAFETY: the process holds the slot, whose operation is over.
                    unsafe { std::slice::from_raw_parts(start, bytes.min(SLOT_BYTES)) }.to_vec()
                });
                Failure::Other(String::from_utf8_lossy(&text.unwrap_or_default()).into_owned())
            }
        })
    }

    /// Gives up waiting. `false`: the operation is over, after all.
    pub fn abandon(&self, slot: usize) -> bool {
        // What was not taken is not done any more.
        if self.change(slot, SUBMITTED, FREE) {
            raise(self.map.half(FREED_COUNT));
            return true;
        }
        self.change(slot, TAKEN, ABANDONED)
    }

    /// How often slots were submitted, for [`Self::wait_for_orders`].
    pub fn submitted(&self) -> u32 {
        self.map.half(SUBMITTED_COUNT).load(Acquire)
    }

    /// Waits until slots were submitted since `seen`, or for so long.
    pub fn wait_for_orders(&self, seen: u32, patience: Duration) {
        wait(self.map.half(SUBMITTED_COUNT), seen, patience);
    }

    /// For the agent that waits, so that it looks whether it is still wanted.
    pub fn interrupt_agent(&self) {
        raise(self.map.half(SUBMITTED_COUNT));
    }

    /// Whether the slot has an order to take.
    pub fn is_submitted(&self, slot: usize) -> bool {
        self.state(slot).load(Relaxed) == SUBMITTED
    }

    /// Takes an order. Another process wrote it, so all that it says is to be checked.
    pub fn take(&self, slot: usize) -> Option<Result<Order, Failure>> {
        if !self.change(slot, SUBMITTED, TAKEN) {
            return None;
        }
        let (asked, length) = (self.half(slot, 4).load(Relaxed), self.word(slot, 40).load(Relaxed));
        let ask = match asked >> 16 {
            0 => Ask::Read,
            1 => Ask::Write,
            2 => Ask::Size,
            3 => Ask::Sync,
            other => return Some(Err(Failure::Other(format!("the agent knows no request {other}")))),
        };
        if length > SLOT_BYTES as u64 {
            return Some(Err(Failure::Other(format!("a request of {length} bytes is longer than {SLOT_BYTES}"))));
        }
        Some(Ok(Order {
            ask,
            server: ServerId(asked as u16),
            file: FileId(self.word(slot, 8).load(Relaxed)),
            region: RegionIndex(self.half(slot, 16).load(Relaxed)),
            generation: Generation(self.half(slot, 20).load(Relaxed)),
            epoch: self.word(slot, 24).load(Relaxed),
            offset: self.word(slot, 32).load(Relaxed),
            length: length as usize,
        }))
    }

    /// Of an order that was taken and whose operation nobody ends any more: it is to be done again, or, where nobody waits for it, its slot is free.
    pub fn reset(&self, slot: usize) {
        if !self.change(slot, TAKEN, SUBMITTED) && self.change(slot, ABANDONED, FREE) {
            raise(self.map.half(FREED_COUNT));
        }
    }

    /// Says what became of an order that was taken. Its memory is not used any more. Whoever waits for it looks when what this returns is dropped.
    pub fn complete(&self, slot: usize, result: &Result<u64, Failure>) -> Wake<'_> {
        let word = match result {
            Ok(count) => *count & !FAILED,
            Err(Failure::Missing) => FAILED | 1,
            Err(Failure::NoSpace) => FAILED | 2,
            Err(Failure::Denied) => FAILED | 3,
            Err(Failure::Other(text)) => {
                let bytes = text.len().min(4096);
                let copied = self.memory(slot, bytes).map(|start| {
                    // SAFETY: the slot's memory is the agent's until the state says otherwise.
                    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), start, bytes) };
                });
                FAILED | 4 | if copied.is_ok() { (bytes as u64) << 8 } else { 0 }
            }
        };
        self.word(slot, 48).store(word, Release);
        if self.change(slot, TAKEN, DONE) {
            return Wake(Some(self.state(slot)));
        }
        if self.change(slot, ABANDONED, FREE) {
            let count = self.map.half(FREED_COUNT);
            count.fetch_add(1, Ordering::AcqRel);
            return Wake(Some(count));
        }
        Wake(None)
    }
}

/// Dropped, it wakes those who wait for a word that was changed.
#[derive(Debug)]
pub struct Wake<'l>(Option<&'l AtomicU32>);

impl Drop for Wake<'_> {
    fn drop(&mut self) {
        if let Some(word) = self.0 {
            let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
        }
    }
}

fn raise(count: &AtomicU32) {
    count.fetch_add(1, Ordering::AcqRel);
    drop(Wake(Some(count)));
}

fn wait(word: &AtomicU32, seen: u32, patience: Duration) {
    let patience = futex::Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    // Whatever ends it, the caller looks again.
    let _ = futex::wait(word, futex::Flags::empty(), seen, Some(&patience));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(length: usize) -> Order {
        Order {
            ask: Ask::Write,
            server: ServerId(3),
            file: FileId(0x1234_5678_9abc_def0),
            region: RegionIndex(7),
            generation: Generation(1 << 31 | 5),
            epoch: 9,
            offset: 1 << 40,
            length,
        }
    }

    #[test]
    fn an_order_arrives_as_it_was_given_and_its_result_comes_back() {
        let (process, file) = AgentLane::make().unwrap();
        let agent = AgentLane::open(&file).unwrap();
        let slot = process.claim(0..SLOTS).unwrap();
        let start = process.memory(slot, 5).unwrap();
        // SAFETY: the slot is claimed.
        unsafe { std::ptr::copy_nonoverlapping(b"hello".as_ptr(), start, 5) };
        assert_eq!(agent.take(slot), None, "it was not submitted");
        process.submit(slot, &order(5));
        assert_eq!(agent.take(slot), Some(Ok(order(5))));
        assert_eq!(agent.take(slot), None, "it is taken once");
        let read = agent.memory(slot, 5).unwrap();
        // SAFETY: the slot is taken.
        assert_eq!(unsafe { std::slice::from_raw_parts(read, 5) }, b"hello");
        assert_eq!(process.wait(slot, Duration::ZERO), None);
        agent.complete(slot, &Ok(5));
        assert_eq!(process.wait(slot, Duration::ZERO), Some(Ok(5)));
        for failure in [Failure::Missing, Failure::NoSpace, Failure::Denied, Failure::Other("no, for a reason".into())]
        {
            process.submit(slot, &order(5));
            agent.take(slot).unwrap().unwrap();
            agent.complete(slot, &Err(failure.clone()));
            assert_eq!(process.wait(slot, Duration::ZERO), Some(Err(failure)));
        }
        process.submit(slot, &order(SLOT_BYTES + 1));
        assert!(matches!(agent.take(slot), Some(Err(Failure::Other(what))) if what.contains("longer")));
        process.free(slot);
    }

    #[test]
    fn slots_are_claimed_once_and_abandoned_ones_stay_until_they_are_over() {
        let (process, file) = AgentLane::make().unwrap();
        let agent = AgentLane::open(&file).unwrap();
        let all: Vec<usize> = std::iter::from_fn(|| process.claim(0..SLOTS)).collect();
        assert_eq!(all, (0..SLOTS).collect::<Vec<_>>());
        for slot in [0, 1, 2] {
            process.submit(slot, &order(1));
        }
        assert!(agent.take(0).is_some() && agent.take(1).is_some());
        assert!(process.abandon(0) && process.abandon(2));
        assert_eq!(process.claim(0..3), Some(2), "what was not taken is free at once");
        agent.complete(0, &Ok(1));
        assert_eq!(process.claim(0..3), Some(0), "the rest when it is over");
        // The next agent does again what was taken, and nobody waits for what was abandoned.
        process.submit(0, &order(1));
        assert!(agent.take(0).is_some() && process.abandon(0));
        let next = AgentLane::open(&file).unwrap();
        (0..SLOTS).for_each(|slot| next.reset(slot));
        assert!(next.take(1).is_some() && next.take(0).is_none());
        assert_eq!(process.claim(0..3), Some(0));
    }

    #[test]
    fn a_lane_whose_length_may_change_is_refused() {
        let file = rustix::fs::memfd_create("lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, LENGTH as u64).unwrap();
        assert_eq!(AgentLane::open(&file).err(), Some(Errno::INVAL));
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert_eq!(AgentLane::open(&file).err(), Some(Errno::INVAL), "no magic number");
    }

    /// A request's way to the agent and back with nothing behind it.
    #[test]
    #[ignore = "measures"]
    fn figures_of_a_round_trip() {
        const COUNT: u32 = 20_000;
        let (process, file) = AgentLane::make().unwrap();
        let agent = AgentLane::open(&file).unwrap();
        let serve = || {
            let mut served = 0;
            while served < COUNT {
                let seen = agent.submitted();
                match (0..SLOTS).find(|slot| agent.is_submitted(*slot)) {
                    Some(slot) => {
                        agent.take(slot).unwrap().unwrap();
                        agent.complete(slot, &Ok(0));
                        served += 1;
                    }
                    None => agent.wait_for_orders(seen, Duration::from_secs(1)),
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(serve);
            let begun = std::time::Instant::now();
            for _ in 0..COUNT {
                let slot = process.claim(0..SLOTS).unwrap();
                process.submit(slot, &order(4096));
                process.wake_agent();
                while process.wait(slot, Duration::from_secs(1)).is_none() {}
                process.free(slot);
            }
            println!("a round trip: {:.1} us", begun.elapsed().as_secs_f64() * 1e6 / f64::from(COUNT));
        });
    }
}
