//! Counters of a file, of all ranks together.

use super::Interface;
use super::sizes::BINS;
use std::borrow::Cow;
use stripewise_darshan::Component;
use stripewise_layout::Direction;

/// Sizes that are kept of the common ones.
const MAX_COMMON: usize = 8;

/// No counter and no sum of a log's counters is more: damaged logs hold any number, and what is made of a few counters must fit.
const MAX_COUNTED: u64 = 1 << 55;

/// A counter as a log has it; 0 where it is negative.
pub(super) fn counted(counter: i64) -> u64 {
    u64::try_from(counter).unwrap_or(0).min(MAX_COUNTED)
}

/// The sum of two counters.
pub(super) fn plus(one: u64, two: u64) -> u64 {
    one.saturating_add(two).min(MAX_COUNTED)
}

/// Requests of one direction.
#[derive(Clone, PartialEq, Debug)]
pub struct DirectionCounters {
    /// Calls.
    pub requests: u64,
    /// Bytes that moved.
    pub bytes: u64,
    /// Behind the last byte accessed; 0 where the interface does not count it.
    pub end: u64,
    /// Requests that begin where the one before ended.
    pub consecutive: u64,
    /// Requests that begin where the one before ended or behind that.
    pub sequential: u64,
    /// Whether the interface counts order.
    pub knows_order: bool,
    /// Requests whose order is known: those behind the first one of each rank, which no other precedes. 0 where the interface counts no order.
    pub ordered: u64,
    /// Requests by size, by [`super::BIN_NAMES`].
    pub bins: [u64; BINS],
    /// Seconds in the calls, all ranks added up.
    pub time_s: f64,
    /// Begin of the first request, seconds since the program's; infinite without requests.
    pub start_s: f64,
    /// End of the last request.
    pub end_s: f64,
}

impl Default for DirectionCounters {
    fn default() -> Self {
        Self {
            requests: 0,
            bytes: 0,
            end: 0,
            consecutive: 0,
            sequential: 0,
            knows_order: false,
            ordered: 0,
            bins: [0; BINS],
            time_s: 0.0,
            start_s: f64::INFINITY,
            end_s: 0.0,
        }
    }
}

impl DirectionCounters {
    fn add(&mut self, other: &Self) {
        self.requests = plus(self.requests, other.requests);
        self.bytes = plus(self.bytes, other.bytes);
        self.end = self.end.max(other.end);
        self.consecutive = plus(self.consecutive, other.consecutive);
        self.sequential = plus(self.sequential, other.sequential);
        self.knows_order |= other.knows_order;
        self.ordered = plus(self.ordered, other.ordered);
        self.bins.iter_mut().zip(other.bins).for_each(|(sum, count)| *sum = plus(*sum, count));
        self.time_s += other.time_s;
        self.start_s = self.start_s.min(other.start_s);
        self.end_s = self.end_s.max(other.end_s);
    }
}

/// What one interface counted of a file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LevelCounters {
    /// Reads.
    pub read: DirectionCounters,
    /// Writes.
    pub write: DirectionCounters,
    /// Opens.
    pub opens: u64,
    /// Seeks, stats and renames.
    pub metadata: u64,
    /// `fsync` and its like.
    pub syncs: u64,
    /// Seconds in opens, closes, seeks, stats and the like, all ranks added up.
    pub metadata_s: f64,
    /// The most common sizes of requests, reads and writes together, with how many.
    pub common: Vec<(u64, u64)>,
    /// Requests that do not begin at a multiple of [`Self::alignment`].
    pub not_aligned: u64,
    /// Bytes; 0 where it is not known.
    pub alignment: u64,
    /// Ranks that opened it.
    pub ranks: u32,
    /// All ranks opened it and their counters were added up.
    pub is_shared: bool,
    /// The rank that took longest.
    pub slowest: Extreme,
    /// The rank that took least, of shared files.
    pub fastest: Extreme,
}

/// A rank at one end of all that access a file.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Extreme {
    /// Which; `None` where the log does not say it.
    pub rank: Option<u32>,
    /// Its seconds in reads, writes and metadata calls; 0 where the log does not say it.
    pub time_s: f64,
    /// Its bytes.
    pub bytes: u64,
}

impl LevelCounters {
    /// With those of another rank or file.
    pub(super) fn add(&mut self, other: &Self) {
        self.read.add(&other.read);
        self.write.add(&other.write);
        self.opens = plus(self.opens, other.opens);
        self.metadata = plus(self.metadata, other.metadata);
        self.syncs = plus(self.syncs, other.syncs);
        self.metadata_s += other.metadata_s;
        for (size, count) in &other.common {
            match self.common.iter_mut().find(|(known, _)| known == size) {
                Some((_, sum)) => *sum = plus(*sum, *count),
                None => self.common.push((*size, *count)),
            }
        }
        if self.common.len() > MAX_COMMON {
            self.common.sort_by(|left, right| right.1.cmp(&left.1).then(left.0.cmp(&right.0)));
            self.common.truncate(MAX_COMMON);
        }
        self.not_aligned = plus(self.not_aligned, other.not_aligned);
        self.alignment = self.alignment.max(other.alignment);
        self.ranks = self.ranks.saturating_add(other.ranks);
        self.is_shared |= other.is_shared;
        if other.slowest.time_s > self.slowest.time_s {
            (self.slowest, self.fastest) = (other.slowest, other.fastest);
        }
    }

    /// Reads and writes alone.
    pub(super) fn without_metadata(&self) -> Self {
        Self { opens: 0, metadata: 0, syncs: 0, metadata_s: 0.0, ..self.clone() }
    }

    /// Of that direction.
    #[must_use]
    pub fn direction(&self, direction: Direction) -> &DirectionCounters {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    /// Both directions' bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read.bytes.saturating_add(self.write.bytes)
    }

    /// Both directions' requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.read.requests.saturating_add(self.write.requests)
    }

    /// Seconds in reads and writes, all ranks added up.
    #[must_use]
    pub fn data_s(&self) -> f64 {
        self.read.time_s + self.write.time_s
    }

    /// Seconds in reads, writes and metadata calls, all ranks added up.
    #[must_use]
    pub fn time_s(&self) -> f64 {
        self.data_s() + self.metadata_s
    }
}

/// Calls of MPI-IO.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MpiCalls {
    /// Collective ones, split ones among them.
    pub collective: u64,
    /// Independent ones, nonblocking ones among them.
    pub independent: u64,
}

impl MpiCalls {
    pub(super) fn add(&mut self, other: &Self) {
        self.collective = plus(self.collective, other.collective);
        self.independent = plus(self.independent, other.independent);
    }
}

/// How a file lay on Lustre in the run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LustreLayout {
    /// Stripe size, stripes and pool of each component.
    pub components: Vec<(u64, u64, String)>,
    /// Targets of all components.
    pub targets: Vec<u64>,
}

impl LustreLayout {
    pub(super) fn of(names: &[String], components: &[Component], targets: &[i64]) -> Self {
        let place = |name: &str| names.iter().position(|known| known == name);
        let (size, count) = (place("LUSTRE_COMP_STRIPE_SIZE"), place("LUSTRE_COMP_STRIPE_COUNT"));
        let one = |component: &Component| {
            let number = |place: Option<usize>| {
                place.and_then(|place| component.counters.get(place)).and_then(|found| u64::try_from(*found).ok())
            };
            (number(size).unwrap_or(0), number(count).unwrap_or(0), component.pool.clone())
        };
        Self {
            components: components.iter().map(one).collect(),
            targets: targets.iter().filter_map(|target| u64::try_from(*target).ok()).collect(),
        }
    }
}

/// Counters of one file.
#[derive(Clone, PartialEq, Debug)]
pub struct FileCounters {
    /// Darshan's number of it.
    pub id: u64,
    /// As the program named it, or its number where the log has no name.
    pub path: String,
    levels: [Option<Box<LevelCounters>>; 3],
    /// Calls of MPI-IO.
    pub mpi_calls: MpiCalls,
    /// Where the log says it.
    pub lustre: Option<LustreLayout>,
}

impl FileCounters {
    pub(super) fn new(id: u64) -> Self {
        Self { id, path: String::new(), levels: [None, None, None], mpi_calls: MpiCalls::default(), lustre: None }
    }

    /// What an interface counted.
    #[must_use]
    pub fn level(&self, interface: Interface) -> Option<&LevelCounters> {
        self.levels[interface as usize].as_deref()
    }

    pub(super) fn level_mut(&mut self, interface: Interface) -> &mut LevelCounters {
        self.levels[interface as usize].get_or_insert_with(Box::default)
    }

    /// The interface whose requests are nearest to what the servers see: POSIX, else streams, else MPI-IO.
    #[must_use]
    pub fn data_level(&self) -> Option<(Interface, &LevelCounters)> {
        let nearest = [Interface::Posix, Interface::Stdio, Interface::MpiIo].into_iter();
        nearest.filter_map(|one| Some((one, self.level(one)?))).find(|(_, level)| level.requests() > 0)
    }

    /// What the interfaces count that are nearest to the servers: POSIX, streams, and MPI-IO where POSIX has no requests.
    pub(super) fn near_servers(&self) -> Vec<(Interface, Cow<'_, LevelCounters>)> {
        let posix = self.level(Interface::Posix);
        let direct = [Interface::Posix, Interface::Stdio].into_iter();
        let mut found: Vec<_> = direct.filter_map(|one| Some((one, Cow::Borrowed(self.level(one)?)))).collect();
        let mpi = self.level(Interface::MpiIo).filter(|_| posix.is_none_or(|posix| posix.requests() == 0));
        found.extend(mpi.map(|mpi| match posix {
            // Its driver opens the file by POSIX.
            Some(_) => (Interface::MpiIo, Cow::Owned(mpi.without_metadata())),
            None => (Interface::MpiIo, Cow::Borrowed(mpi)),
        }));
        found
    }

    /// Bytes that moved, as [`Self::data_level`] counts them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.data_level().map_or(0, |(_, level)| level.bytes())
    }
}
