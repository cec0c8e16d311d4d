//! The header page of a process file: which process it is, on which machine, and what its clock's ticks are.
//!
//! Its fields stand at fixed places, so that the recorder updates single ones while the process runs.

use super::{FORMAT_VERSION, HEADER_BYTES, MAGIC, OLDEST_READ_FORMAT, SLOT_BYTES};
use crate::clock::Clock;

/// Where the fields of the header page stand.
pub mod at {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// u32: [`FORMAT_VERSION`](super::FORMAT_VERSION).
    pub const VERSION: usize = 8;
    /// u32: [`super::HEADER_BYTES`].
    pub const HEADER_BYTES: usize = 12;
    /// u32: [`super::SLOT_BYTES`].
    pub const SLOT_BYTES: usize = 16;
    /// u32: [`Clock`](super::Clock) of the records.
    pub const CLOCK: usize = 20;
    /// u32.
    pub const PID: usize = 24;
    /// u32: 0 when unknown.
    pub const PARENT_PID: usize = 28;
    /// Rank in the low, size in the high 32 bits, so that both change at once.
    pub const MPI: usize = 32;
    /// u64: `CLOCK_REALTIME` when the recorder started.
    pub const START_WALL_NS: usize = 40;
    /// u64: `CLOCK_MONOTONIC` when the recorder started.
    pub const START_MONOTONIC_NS: usize = 48;
    /// u64: the trace clock when the recorder started.
    pub const START_TICKS: usize = 56;
    /// u64: 0 when unknown.
    pub const TICKS_PER_SECOND: usize = 64;
    /// u64: records that could not be written.
    pub const LOST: usize = 72;
    /// u64: bits, so far only [`HEADER_FINISHED`](super::HEADER_FINISHED).
    pub const FLAGS: usize = 80;
    /// u64: length of the file when it was finished; 0 before.
    pub const USED_BYTES: usize = 88;
    /// Two pairs of (sequence number, ticks, monotonic ns), written in turn.
    pub const PAIRS: usize = 96;
    /// Length of one pair.
    pub const PAIR_BYTES: usize = 24;
    /// Name of the machine, ended by 0.
    pub const NODE: usize = 144;
    /// Length of that field, the 0 included.
    pub const NODE_BYTES: usize = 128;
    /// Path of the program, ended by 0.
    pub const PROGRAM: usize = 272;
    /// Length of that field, the 0 included.
    pub const PROGRAM_BYTES: usize = 3072;
}

/// The flag of the header that says the process finished its file.
pub const HEADER_FINISHED: u64 = 1;
/// The rank of a process outside MPI.
pub const NO_RANK: u32 = u32::MAX;

/// A reading of the trace clock and the kernel's monotonic clock at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClockPair {
    /// 0: never written. The larger of the two is the later one.
    pub sequence: u64,
    /// The trace clock.
    pub ticks: u64,
    /// `CLOCK_MONOTONIC`, in nanoseconds.
    pub monotonic_ns: u64,
}

/// The header page of a process file; names borrow, so that it can be written without allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header<'a> {
    /// What the ticks of records are.
    pub clock: Clock,
    /// The traced process.
    pub pid: u32,
    /// Its parent when tracing started; 0 when unknown.
    pub parent_pid: u32,
    /// Rank in `MPI_COMM_WORLD`; `None` outside MPI.
    pub mpi_rank: Option<u32>,
    /// 0 when unknown.
    pub mpi_size: u32,
    /// Nanoseconds since 1970-01-01 UTC when tracing started.
    pub start_wall_ns: u64,
    /// Nanoseconds of `CLOCK_MONOTONIC` at the same instant.
    pub start_monotonic_ns: u64,
    /// The trace clock at the same instant.
    pub start_ticks: u64,
    /// 0 when unknown.
    pub ticks_per_second: u64,
    /// Records that could not be written.
    pub lost: u64,
    /// The process ended its trace itself; false when it was killed or still runs.
    pub finished: bool,
    /// Length of the file when it was finished; 0 before.
    pub used_bytes: u64,
    /// Written in turn as the file grows, so that one is whole whenever the process dies.
    pub pairs: [ClockPair; 2],
    /// Name of the machine; at most 127 bytes are kept.
    pub node: &'a [u8],
    /// Path of the program; at most 3,071 bytes are kept.
    pub program: &'a [u8],
}

/// Why a header page is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderFault {
    /// The first bytes are not [`MAGIC`].
    Foreign,
    /// Another version of the format, the number found.
    Version(u32),
    /// A field that cannot be: its name and value.
    Field(&'static str, u64),
}

/// Rank and size in one word, as the header has them.
#[must_use]
pub const fn mpi_word(rank: Option<u32>, size: u32) -> u64 {
    let rank = match rank {
        Some(rank) => rank,
        None => NO_RANK,
    };
    rank as u64 | (size as u64) << 32
}

impl<'a> Header<'a> {
    /// The page. Names longer than their fields are cut.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut page = [0; HEADER_BYTES];
        put(&mut page, at::MAGIC, &MAGIC);
        put(&mut page, at::VERSION, &FORMAT_VERSION.to_le_bytes());
        put(&mut page, at::HEADER_BYTES, &(HEADER_BYTES as u32).to_le_bytes());
        put(&mut page, at::SLOT_BYTES, &(SLOT_BYTES as u32).to_le_bytes());
        put(&mut page, at::CLOCK, &(self.clock as u32).to_le_bytes());
        put(&mut page, at::PID, &self.pid.to_le_bytes());
        put(&mut page, at::PARENT_PID, &self.parent_pid.to_le_bytes());
        put(&mut page, at::MPI, &mpi_word(self.mpi_rank, self.mpi_size).to_le_bytes());
        put(&mut page, at::START_WALL_NS, &self.start_wall_ns.to_le_bytes());
        put(&mut page, at::START_MONOTONIC_NS, &self.start_monotonic_ns.to_le_bytes());
        put(&mut page, at::START_TICKS, &self.start_ticks.to_le_bytes());
        put(&mut page, at::TICKS_PER_SECOND, &self.ticks_per_second.to_le_bytes());
        put(&mut page, at::LOST, &self.lost.to_le_bytes());
        put(&mut page, at::FLAGS, &(if self.finished { HEADER_FINISHED } else { 0 }).to_le_bytes());
        put(&mut page, at::USED_BYTES, &self.used_bytes.to_le_bytes());
        for (index, pair) in self.pairs.iter().enumerate() {
            let start = at::PAIRS + index * at::PAIR_BYTES;
            put(&mut page, start, &pair.sequence.to_le_bytes());
            put(&mut page, start + 8, &pair.ticks.to_le_bytes());
            put(&mut page, start + 16, &pair.monotonic_ns.to_le_bytes());
        }
        put(&mut page, at::NODE, truncated(self.node, at::NODE_BYTES));
        put(&mut page, at::PROGRAM, truncated(self.program, at::PROGRAM_BYTES));
        page
    }

    /// Reads a page.
    ///
    /// # Errors
    /// When it is not a header of this version.
    pub fn decode(page: &'a [u8; HEADER_BYTES]) -> Result<Self, HeaderFault> {
        if page[..8] != MAGIC {
            return Err(HeaderFault::Foreign);
        }
        let version = word32(page, at::VERSION);
        if !(OLDEST_READ_FORMAT..=FORMAT_VERSION).contains(&version) {
            return Err(HeaderFault::Version(version));
        }
        for (name, start, expected) in
            [("header bytes", at::HEADER_BYTES, HEADER_BYTES), ("slot bytes", at::SLOT_BYTES, SLOT_BYTES)]
        {
            let found = word32(page, start);
            if found as usize != expected {
                return Err(HeaderFault::Field(name, u64::from(found)));
            }
        }
        let clock = word32(page, at::CLOCK);
        let clock = Clock::from_code(clock).ok_or(HeaderFault::Field("clock", u64::from(clock)))?;
        let rank = word32(page, at::MPI);
        let pair = |index: usize| {
            let start = at::PAIRS + index * at::PAIR_BYTES;
            ClockPair {
                sequence: word64(page, start),
                ticks: word64(page, start + 8),
                monotonic_ns: word64(page, start + 16),
            }
        };
        Ok(Self {
            clock,
            pid: word32(page, at::PID),
            parent_pid: word32(page, at::PARENT_PID),
            mpi_rank: (rank != NO_RANK).then_some(rank),
            mpi_size: word32(page, at::MPI + 4),
            start_wall_ns: word64(page, at::START_WALL_NS),
            start_monotonic_ns: word64(page, at::START_MONOTONIC_NS),
            start_ticks: word64(page, at::START_TICKS),
            ticks_per_second: word64(page, at::TICKS_PER_SECOND),
            lost: word64(page, at::LOST),
            finished: word64(page, at::FLAGS) & HEADER_FINISHED != 0,
            used_bytes: word64(page, at::USED_BYTES),
            pairs: [pair(0), pair(1)],
            node: text(&page[at::NODE..at::NODE + at::NODE_BYTES]),
            program: text(&page[at::PROGRAM..at::PROGRAM + at::PROGRAM_BYTES]),
        })
    }

    /// The later of the two clock pairs, if one was written.
    #[must_use]
    pub fn last_pair(&self) -> Option<ClockPair> {
        let [first, second] = self.pairs;
        let last = if second.sequence > first.sequence { second } else { first };
        (last.sequence > 0).then_some(last)
    }
}

fn put(page: &mut [u8; HEADER_BYTES], start: usize, bytes: &[u8]) {
    if let Some(target) = page.get_mut(start..start + bytes.len()) {
        target.copy_from_slice(bytes);
    }
}

/// A name that leaves space for the zero after it.
fn truncated(name: &[u8], field_bytes: usize) -> &[u8] {
    name.get(..field_bytes - 1).unwrap_or(name)
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or(field)
}

fn word32(page: &[u8; HEADER_BYTES], start: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[start..start + 4]);
    u32::from_le_bytes(bytes)
}

fn word64(page: &[u8; HEADER_BYTES], start: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&page[start..start + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_header_comes_back_from_its_page(
            numbers in any::<[u64; 6]>(), ids in any::<[u32; 4]>(), finished in any::<bool>(),
            node in "[a-z0-9.]{0,127}", program in "/[ -~]{0,200}",
        ) {
            let header = Header {
                clock: Clock::Tsc, pid: ids[0], parent_pid: ids[1], mpi_rank: (ids[2] != NO_RANK).then_some(ids[2]),
                mpi_size: ids[3], start_wall_ns: numbers[0], start_monotonic_ns: numbers[1], start_ticks: numbers[2],
                ticks_per_second: numbers[3], lost: numbers[4], finished, used_bytes: numbers[5],
                pairs: [ClockPair { sequence: 1, ticks: numbers[0], monotonic_ns: 7 }, ClockPair::default()],
                node: node.as_bytes(), program: program.as_bytes(),
            };
            let page = header.encode();
            prop_assert_eq!(Header::decode(&page), Ok(header));
        }
    }

    #[test]
    fn foreign_and_later_headers_are_refused() {
        let header = Header {
            clock: Clock::Monotonic,
            pid: 1,
            parent_pid: 0,
            mpi_rank: None,
            mpi_size: 0,
            start_wall_ns: 0,
            start_monotonic_ns: 0,
            start_ticks: 0,
            ticks_per_second: 0,
            lost: 0,
            finished: false,
            used_bytes: 0,
            pairs: [ClockPair::default(); 2],
            node: &[b'n'; 500],
            program: b"",
        };
        let page = header.encode();
        assert_eq!(Header::decode(&page).map(|found| found.node.len()), Ok(at::NODE_BYTES - 1));
        for (start, fault) in [
            (at::MAGIC, HeaderFault::Foreign),
            (at::VERSION, HeaderFault::Version(FORMAT_VERSION ^ 0xFF)),
            (at::SLOT_BYTES, HeaderFault::Field("slot bytes", 32 ^ 0xFF)),
            (at::CLOCK, HeaderFault::Field("clock", 1 ^ 0xFF)),
        ] {
            let mut broken = page;
            broken[start] ^= 0xFF;
            assert_eq!(Header::decode(&broken), Err(fault));
        }
    }
}
