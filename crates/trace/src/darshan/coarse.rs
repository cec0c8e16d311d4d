//! Accesses of a file made from its counters alone.
//!
//! Counters say how many requests of which sizes moved how many bytes, how many of them followed the one before, how far the file reaches
//! and when the first and the last request were. They do not say which rank accessed what when. So the requests are spread evenly over
//! the file, and where the order counters leave it open, twice: [`Arrangement::Apart`] gives each rank a part of its own, which it goes
//! through in order; with [`Arrangement::Together`] all ranks go through the file side by side. What a plan for the one is predicted to
//! bring under the other says how far the counters carry. [`Density`] does the same for the even spread: two thirds of the requests may lie
//! in the first half of each file, or in the last.

use super::counters::{DirectionCounters, FileCounters, LevelCounters};
use super::sizes;
use super::{DarshanLog, Interface};
use crate::access::{
    Company, FileAccess, ProcessCount, RegionAccess, SLICES, Slices, Synchronizations, WindowAccess, WindowProcesses,
};
use crate::counts::classes::{ClassKey, Classes};
use std::collections::BTreeMap;
use stripewise_layout::{ByteCount, Direction, RegionIndex, RequestKind};

/// How ranks share a file where counters leave it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrangement {
    /// Each has a part of its own.
    Apart,
    /// All are in one place at a time.
    Together,
}

/// How densely requests lie in a file, which counters never say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Density {
    /// Everywhere alike.
    Even,
    /// Two thirds of them in the first half.
    Front,
    /// Two thirds of them in the last half.
    Back,
}

impl Density {
    /// Of so many requests over so many bytes, those before a byte.
    fn before(self, count: u64, byte: u64, extent: u64) -> u64 {
        let (count, byte, extent) = (u128::from(count), u128::from(byte), u128::from(extent));
        let is_in_front = 2 * byte <= extent;
        // In thirds of the extent.
        let thirds = match (self, is_in_front) {
            (Self::Even, _) => 3 * byte,
            (Self::Front, true) => 4 * byte,
            (Self::Front, false) => extent + 2 * byte,
            (Self::Back, true) => 2 * byte,
            (Self::Back, false) => 4 * byte - extent,
        };
        (count * thirds / (3 * extent)) as u64
    }
}

/// What is taken for granted where counters leave it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assumed {
    /// How ranks share files.
    pub arrangement: Arrangement,
    /// Where requests lie.
    pub density: Density,
}

impl Arrangement {
    /// With requests everywhere alike.
    #[must_use]
    pub const fn even(self) -> Assumed {
        Assumed { arrangement: self, density: Density::Even }
    }
}

/// For what accesses are made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CoarseOptions {
    /// Bytes of a region, more than 0.
    pub region_size: ByteCount,
    /// Length of the one window, at least that of the longest run.
    pub window_s: f64,
    /// Seconds of the longest run, which slices are shares of.
    pub run_s: f64,
    /// Classes of a file at most.
    pub class_limit: u16,
}

/// Files beyond this many regions are not planned, so no accesses are made for them.
const MAX_REGIONS: u64 = 1 << 24;

/// Whether the requests of a file reach beyond what can be planned in such regions.
#[must_use]
pub fn is_too_large(log: &DarshanLog, file: &FileCounters, region_size: ByteCount) -> bool {
    let extent = file.data_level().map_or(0, |(_, level)| extent(log, file, level));
    extent.div_ceil(region_size.0.max(1)) > MAX_REGIONS
}

/// The size that a file had at least.
fn extent(log: &DarshanLog, file: &FileCounters, level: &LevelCounters) -> u64 {
    let counted = level.read.end.max(level.write.end);
    // MPI-IO counts no offsets: the file is taken to be as long as what was read or written once.
    let counted = if counted > 0 { counted } else { level.read.bytes.max(level.write.bytes) };
    // Segments that are some of the requests say where these are.
    log.partly_traced.get(&file.path).map_or(counted, |partly| partly.end.max(counted))
}

/// Accesses of a file, and whether they depend on the arrangement. `None` without reads and writes, and of files that are too large.
#[must_use]
pub fn access(
    log: &DarshanLog,
    file: &FileCounters,
    assumed: Assumed,
    options: &CoarseOptions,
) -> Option<(FileAccess, bool)> {
    let (interface, level) = file.data_level()?;
    let shape = Shape::of(extent(log, file, level), level.ranks, options.region_size.0)?;
    let Assumed { arrangement, density } = assumed;
    let mut spread = Spread { density, classes: Classes::default(), requests: Vec::new(), regions: BTreeMap::new() };
    let mut depends = false;
    let mut company = Company::default();
    let (read, write) = (&level.read, &level.write);
    for (direction, found, other) in [(Direction::Read, read, write), (Direction::Write, write, read)] {
        if found.requests == 0 || found.bytes == 0 {
            continue;
        }
        let order = Known::of(interface, found, &shape);
        depends |= order == Known::Open;
        let is_together = order == Known::Open && arrangement == Arrangement::Together;
        if is_together {
            let ranks = f64::from(shape.ranks);
            company = Company { same_region: 1.0, adjoining: (ranks - 1.0) / ranks, ..Company::default() };
        }
        let way = match (order, is_together) {
            (Known::Random, _) => Way::Anywhere,
            (_, true) => Way::Together,
            (_, false) => Way::Apart,
        };
        let follows = sequential_share(interface, found, arrangement);
        let phase = phase(found, options.run_s);
        for (size, count) in sizes::sizes(found.requests, found.bytes, &found.bins, &other.bins, &level.common) {
            // Of a count beyond 2^53 the product may be the next number that a float can hold.
            let in_order = ((count as f64 * follows).round() as u64).min(count);
            for (is_random, count) in [(false, in_order), (true, count - in_order)] {
                spread.add(&shape, direction.into(), is_random, size, count, way, phase);
            }
        }
    }
    if spread.regions.is_empty() {
        return None;
    }
    let file_processes = ProcessCount { processes: shape.ranks, per_node: 0 };
    let processes =
        WindowProcesses { file: file_processes, run: ProcessCount { processes: log.processes(), per_node: 0 } };
    let (classes, settled) = spread.classes.settle(&spread.requests, usize::from(options.class_limit.max(4)));
    let region = |(region, found): (u32, InRegion)| {
        let mut counts = BTreeMap::new();
        for (class, count) in found.counts {
            let sum: &mut u64 = counts.entry(settled[class as usize]).or_insert(0);
            *sum = sum.saturating_add(count);
        }
        RegionAccess {
            region: RegionIndex(region),
            counts: counts.into_iter().collect(),
            processes: found.processes,
            processes_per_node: 0,
            slices: Slices(found.slices),
        }
    };
    let window = WindowAccess {
        start_s: 0.0,
        end_s: options.window_s,
        company,
        processes,
        synchronizations: Synchronizations::default(),
        regions: spread.regions.into_iter().map(region).collect(),
    };
    let (path, size_bytes) = (file.path.clone(), shape.extent);
    Some((FileAccess { path, size_bytes, region_size: options.region_size, classes, windows: vec![window] }, depends))
}

/// What counters say of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Ranks go through parts of their own, or there is one rank that goes through the file.
    Apart,
    /// Requests jump.
    Random,
    /// Forward in a shared file, in steps: side by side or in parts.
    Open,
}

impl Known {
    fn of(interface: Interface, found: &DirectionCounters, shape: &Shape) -> Self {
        if !found.knows_order {
            return if shape.ranks > 1 && interface != Interface::Stdio { Self::Open } else { Self::Apart };
        }
        let runs = found.requests.saturating_sub(found.consecutive).max(1);
        if found.bytes / runs >= shape.region.min(shape.extent / u64::from(shape.ranks).max(1)).max(1) {
            return Self::Apart;
        }
        if found.requests > u64::from(shape.ranks) && found.sequential < found.requests / 2 {
            return Self::Random;
        }
        if shape.ranks > 1 { Self::Open } else { Self::Apart }
    }
}

/// Share of requests that begin where the rank's one before ended. MPI-IO does not count that, streams are taken to be in order.
fn sequential_share(interface: Interface, found: &DirectionCounters, arrangement: Arrangement) -> f64 {
    match (found.knows_order, interface, arrangement) {
        (true, ..) => (found.consecutive as f64 / found.requests.max(1) as f64).min(1.0),
        (false, Interface::Stdio, _) | (false, _, Arrangement::Apart) => 1.0,
        (false, _, Arrangement::Together) => 0.0,
    }
}

/// The slices of the run from a direction's first request to its last.
fn phase(found: &DirectionCounters, run_s: f64) -> (u32, u32) {
    if run_s.is_nan() || run_s <= 0.0 || !found.start_s.is_finite() || found.end_s <= found.start_s {
        return (0, SLICES - 1);
    }
    let slice = |at_s: f64| ((at_s / run_s * f64::from(SLICES)) as u32).min(SLICES - 1);
    (slice(found.start_s), slice(found.end_s))
}

/// Extent of a file and who accesses it.
struct Shape {
    extent: u64,
    region: u64,
    regions: u64,
    ranks: u32,
}

impl Shape {
    fn of(extent: u64, ranks: u32, region: u64) -> Option<Self> {
        let regions = extent.div_ceil(region);
        let is_plannable = extent > 0 && regions <= MAX_REGIONS;
        is_plannable.then(|| Self { extent, region, regions, ranks: ranks.max(1) })
    }

    /// Bytes before the end of a region.
    fn end_of(&self, region: u64) -> u64 {
        (region + 1).saturating_mul(self.region).min(self.extent)
    }

    /// Ranks whose equal parts meet a region.
    fn ranks_in(&self, region: u64) -> u32 {
        let part = |byte: u64| (u128::from(byte) * u128::from(self.ranks) / u128::from(self.extent)) as u32;
        part(self.end_of(region) - 1) - part(region * self.region) + 1
    }

    /// From where to where of the way through it, a region lies: in the file, or in the part of the rank whose it is.
    fn place_of(&self, region: u64, way: Way) -> (f64, f64) {
        let (from, to) = ((region * self.region) as f64, self.end_of(region) as f64);
        let part = self.extent as f64 / f64::from(self.ranks);
        match way {
            Way::Anywhere => (0.0, 1.0),
            Way::Together => (from / self.extent as f64, to / self.extent as f64),
            Way::Apart if self.ranks_in(region) > 1 => (0.0, 1.0),
            Way::Apart => ((from % part) / part, ((from % part) + to - from) / part),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Apart,
    Together,
    Anywhere,
}

#[derive(Default)]
struct InRegion {
    counts: BTreeMap<u32, u64>,
    processes: u32,
    slices: u64,
}

/// Requests spread over regions.
struct Spread {
    density: Density,
    classes: Classes,
    /// By class.
    requests: Vec<u64>,
    regions: BTreeMap<u32, InRegion>,
}

impl Spread {
    #[expect(clippy::too_many_arguments, reason = "one kind of request, and where it goes")]
    fn add(
        &mut self,
        shape: &Shape,
        kind: RequestKind,
        is_random: bool,
        size: u64,
        count: u64,
        way: Way,
        phase: (u32, u32),
    ) {
        // A request larger than a region is one in each region that it covers.
        let (whole, rest) = (size / shape.region, size % shape.region);
        for (piece, count) in [(shape.region, count.saturating_mul(whole)), (rest, if rest > 0 { count } else { 0 })] {
            if count == 0 {
                continue;
            }
            let class = self.classes.number(ClassKey::new(kind, is_random, piece));
            self.requests.resize(self.classes.len(), 0);
            self.requests[class as usize] = self.requests[class as usize].saturating_add(count);
            self.add_class(shape, class, count, way, phase);
        }
    }

    fn add_class(&mut self, shape: &Shape, class: u32, count: u64, way: Way, phase: (u32, u32)) {
        let density = self.density;
        let mut counted = 0;
        for region in 0..shape.regions {
            let until = density.before(count, shape.end_of(region), shape.extent);
            if until > counted {
                let found = self.regions.entry(region as u32).or_default();
                let sum = found.counts.entry(class).or_insert(0);
                *sum = sum.saturating_add(until - counted);
                let ranks = if way == Way::Apart { shape.ranks_in(region) } else { shape.ranks };
                found.processes = found.processes.max(ranks);
                found.slices |= slices(phase, shape.place_of(region, way));
                counted = until;
            }
        }
    }
}

/// The slices of a part of a phase.
fn slices((first, last): (u32, u32), (from, to): (f64, f64)) -> u64 {
    let length = f64::from(last - first + 1);
    let slice = |share: f64| (first + (share.clamp(0.0, 1.0) * length) as u32).min(last);
    let (from, to) = (slice(from), slice(to));
    (from..=to).fold(0, |bits, slice| bits | 1 << slice)
}
