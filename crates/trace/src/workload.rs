//! Workload generators: the requests of every rank of a synthetic program, the same ones on every machine and in every language.
//!
//! # The sequence, so that a C program can produce it
//! - `splitmix64`: `state += 0x9E3779B97F4A7C15; z = state; z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9; z = (z ^ z >> 27) *
//!   0x94D049BB133111EB; return z ^ z >> 31;` in 64-bit arithmetic that wraps.
//! - The order of regions: `order[i] = i`; with a state of `seed`, for i from n - 1 down to 1: j = next() mod (i + 1), swap `order[i]`
//!   and `order[j]`.
//! - Zipf: `weight[k] = 1 / pow(k + 1, a)` and their running sums as doubles in order of k; `limit[k] = floor(sum[k] / sum[n - 1] x
//!   2^32)`, the last one 2^32. (Rounding to 32 bits makes the last bit of `pow` irrelevant in practice.)
//! - A rank starts with the state `splitmix64` gives when its own state is `seed + (rank + 1) x 0xD1B54A32D192ED03`. Each request takes
//!   two numbers: `u = next() >> 32` chooses the first k with `u < limit[k]` (binary search), so region `order[k]`; `next() mod
//!   (region_bytes / request_bytes)` chooses the aligned slot within the region.
//!
//! With a = 0.8 this is the workload of H2DP section 5.2.1 (IOR changed to a Zipf distribution over the parts of a file). The paper
//! does not say how the popular parts lie in the file; here a shuffle spreads them. Its "access frequencies change at run-time" is a
//! second workload with another seed.

use crate::call::Call;
use crate::clock::{Clock, Ticks};
use crate::format::{ClockPair, Header, RawEvent};
use crate::manifest::{Manifest, ManifestError};
use crate::slots::SlotBuffer;
use std::path::{Path, PathBuf};
use stripewise_layout::{ByteCount, Direction, FileOffset};

/// Which parts of the file are accessed, in which order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// Regions by Zipf's law with that exponent, the place within a region uniform and aligned to the request.
    Zipf { exponent: f64, region_size: ByteCount },
    /// Every rank goes through its own contiguous share of the file, again from its start when through (IOR "segmented").
    Sequential,
    /// Request i of rank r is request i x ranks + r of the file, again from the file's start when through (IOR "interleaved").
    Strided,
}

/// A synthetic program on one shared file.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    pub pattern: Pattern,
    pub file_size: ByteCount,
    pub request_size: ByteCount,
    pub direction: Direction,
    pub ranks: u32,
    pub requests_per_rank: u64,
    pub seed: u64,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    pub offset: FileOffset,
    pub bytes: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    #[error(
        "requests of {request_size} do not fit {place} of {place_size}; make requests smaller (at least 1 byte) or {place} larger"
    )]
    Request { request_size: ByteCount, place: &'static str, place_size: ByteCount },
    #[error("a Zipf exponent of {exponent} cannot be; give 0 (uniform) to 100, 0.8 is H2DP's")]
    Exponent { exponent: f64 },
    #[error("{ranks} ranks cannot be; give at least 1")]
    Ranks { ranks: u32 },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Manifest(#[from] ManifestError),
}

struct SplitMix64(u64);

impl SplitMix64 {
    fn of_rank(seed: u64, rank: u32) -> Self {
        let mut start = Self(seed.wrapping_add((u64::from(rank) + 1).wrapping_mul(0xD1B5_4A32_D192_ED03)));
        Self(start.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// A workload with its tables made.
#[derive(Debug)]
pub struct Generator {
    workload: Workload,
    places: Places,
}

#[derive(Debug)]
enum Places {
    Zipf {
        region_bytes: u64,
        order: Vec<u32>,
        limits: Vec<u64>,
    },
    /// Requests in each rank's share.
    Sequential {
        per_rank: u64,
    },
    /// Requests in the file.
    Strided {
        in_file: u64,
    },
}

impl Workload {
    /// Makes the tables.
    ///
    /// # Errors
    /// When request, region, share and file do not fit one another.
    pub fn generator(&self) -> Result<Generator, WorkloadError> {
        let request = self.request_size.0;
        if self.ranks == 0 {
            return Err(WorkloadError::Ranks { ranks: self.ranks });
        }
        let fit = |place, place_size: u64| {
            if request == 0 || request > place_size {
                let place_size = ByteCount(place_size);
                return Err(WorkloadError::Request { request_size: self.request_size, place, place_size });
            }
            Ok(place_size / request)
        };
        let places = match self.pattern {
            Pattern::Zipf { exponent, region_size } => {
                if !(0.0..=100.0).contains(&exponent) {
                    return Err(WorkloadError::Exponent { exponent });
                }
                fit("a region", region_size.0)?;
                fit("the file", self.file_size.0)?;
                let regions = u32::try_from(self.file_size.0 / region_size.0).unwrap_or(u32::MAX);
                if regions == 0 {
                    let place_size = self.file_size;
                    return Err(WorkloadError::Request { request_size: region_size, place: "the file", place_size });
                }
                Places::Zipf {
                    region_bytes: region_size.0,
                    order: shuffled(regions, self.seed),
                    limits: zipf_limits(regions, exponent),
                }
            }
            Pattern::Sequential => {
                Places::Sequential { per_rank: fit("a rank's share", self.file_size.0 / u64::from(self.ranks))? }
            }
            Pattern::Strided => Places::Strided { in_file: fit("the file", self.file_size.0)? },
        };
        Ok(Generator { workload: self.clone(), places })
    }
}

fn shuffled(regions: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..regions).collect();
    let mut random = SplitMix64(seed);
    for index in (1..order.len()).rev() {
        let other = random.next() % (index as u64 + 1);
        order.swap(index, other as usize);
    }
    order
}

fn zipf_limits(regions: u32, exponent: f64) -> Vec<u64> {
    let mut sum = 0.0;
    let sums: Vec<f64> = (0..regions)
        .map(|k| {
            sum += 1.0 / (f64::from(k) + 1.0).powf(exponent);
            sum
        })
        .collect();
    let mut limits: Vec<u64> = sums.iter().map(|partial| (partial / sum * 4_294_967_296.0).floor() as u64).collect();
    if let Some(last) = limits.last_mut() {
        *last = 1 << 32;
    }
    limits
}

impl Generator {
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The requests of one rank, in order.
    pub fn requests(&self, rank: u32) -> impl Iterator<Item = Request> + '_ {
        let bytes = self.workload.request_size.0;
        let mut random = SplitMix64::of_rank(self.workload.seed, rank);
        (0..self.workload.requests_per_rank).map(move |number| {
            let offset = match &self.places {
                Places::Zipf { region_bytes, order, limits } => {
                    let draw = random.next() >> 32;
                    let k = limits.partition_point(|limit| *limit <= draw);
                    let slot = random.next() % (region_bytes / bytes);
                    u64::from(order[k]) * region_bytes + slot * bytes
                }
                Places::Sequential { per_rank } => (u64::from(rank) * per_rank + number % per_rank) * bytes,
                Places::Strided { in_file } => {
                    (number * u64::from(self.workload.ranks) + u64::from(rank)) % in_file * bytes
                }
            };
            Request { offset: FileOffset(offset), bytes }
        })
    }
}

/// When and where the requests of a synthetic trace happen.
#[derive(Clone, PartialEq, Debug)]
pub struct TraceShape {
    /// The path of the file in the trace.
    pub file: String,
    /// Client nodes; ranks are spread in blocks.
    pub nodes: u32,
    /// From the start of one request of a rank to the start of its next.
    pub interval_ns: u64,
    /// From start to end of a request.
    pub duration_ns: u64,
    /// Begin of the run.
    pub start_unix_ns: u64,
}

impl Default for TraceShape {
    fn default() -> Self {
        Self {
            file: "/data/shared".to_owned(),
            nodes: 1,
            interval_ns: 1_000_000,
            duration_ns: 800_000,
            start_unix_ns: 1_700_000_000_000_000_000,
        }
    }
}

/// Writes the workload as a trace of Stripewise's own format: manifest, and a process file per rank that opens, accesses and closes.
///
/// # Errors
/// When `directory` (which must exist) cannot be written to.
pub fn write_trace(generator: &Generator, shape: &TraceShape, directory: &Path) -> Result<(), WorkloadError> {
    let workload = generator.workload();
    let nodes = shape.nodes.clamp(1, workload.ranks);
    let mut manifest = Manifest::new("node0".to_owned(), vec!["synthetic".to_owned()], shape.start_unix_ns);
    manifest.mpi_size = Some(workload.ranks);
    manifest.write(directory)?;
    let call = match workload.direction {
        Direction::Read => Call::Pread,
        Direction::Write => Call::Pwrite,
    };
    for rank in 0..workload.ranks {
        let node = format!("node{}", u64::from(rank) * u64::from(nodes) / u64::from(workload.ranks));
        let mut slots = SlotBuffer::default();
        let file = slots.define_file(shape.file.as_bytes());
        let at = |ns: u64| Ticks(1_000_000 + ns);
        slots.push_event(&RawEvent::new(Call::Open, file, crate::format::NO_OFFSET, 0, at(0), at(0)));
        let mut start = 0;
        for request in generator.requests(rank) {
            let end = at(start + shape.duration_ns);
            slots.push_event(&RawEvent::new(call, file, request.offset, request.bytes, at(start), end));
            start += shape.interval_ns;
        }
        slots.push_event(&RawEvent::new(Call::Close, file, crate::format::NO_OFFSET, 0, at(start), at(start)));
        let header = Header {
            clock: Clock::Monotonic,
            pid: 1000 + rank,
            parent_pid: 1,
            mpi_rank: Some(rank),
            mpi_size: workload.ranks,
            start_wall_ns: shape.start_unix_ns,
            start_monotonic_ns: at(0).0,
            start_ticks: at(0).0,
            ticks_per_second: 1_000_000_000,
            lost: 0,
            finished: true,
            used_bytes: 0,
            pairs: [ClockPair { sequence: 1, ticks: at(start).0, monotonic_ns: at(start).0 }, ClockPair::default()],
            node: node.as_bytes(),
            program: b"synthetic",
        };
        let path = directory.join(format!("{node}.{}.{}", header.pid, crate::format::EXTENSION));
        slots.write(&path, &header).map_err(|source| WorkloadError::Io { path, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;

    fn zipf(exponent: f64) -> Workload {
        Workload {
            pattern: Pattern::Zipf { exponent, region_size: ByteCount(4 << 20) },
            file_size: ByteCount(1 << 30),
            request_size: ByteCount(64 << 10),
            direction: Direction::Read,
            ranks: 4,
            requests_per_rank: 50_000,
            seed: 42,
        }
    }

    /// A C program with the same definition printed these.
    #[test]
    fn the_sequence_is_the_documented_one() {
        let mut random = SplitMix64(0);
        assert_eq!([random.next(), random.next()], [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
        let generator = zipf(0.8).generator().unwrap();
        let places = |rank| generator.requests(rank).map(|request| request.offset.0 >> 16);
        assert_eq!(places(0).take(4).collect::<Vec<_>>(), [13_005, 2_456, 8_044, 10_443]);
        assert_eq!(places(3).take(4).collect::<Vec<_>>(), [15_745, 6_490, 15_392, 8_004]);
        let digest = |rank| places(rank).fold(0u64, |digest, place| digest.wrapping_mul(31).wrapping_add(place));
        assert_eq!([digest(0), digest(3)], [10_948_157_683_335_090_644, 11_376_126_666_976_339_816]);
    }

    #[test]
    fn regions_are_as_popular_as_zipf_says() {
        for exponent in [0.0, 0.8, 1.5] {
            let workload = zipf(exponent);
            let generator = workload.generator().unwrap();
            let mut counts = vec![0f64; 256];
            for request in (0..4).flat_map(|rank| generator.requests(rank)) {
                assert!(request.offset.0.is_multiple_of(request.bytes) && request.bytes == 64 << 10);
                counts[(request.offset.0 / (4 << 20)) as usize] += 1.0;
            }
            counts.sort_by(|left, right| right.total_cmp(left));
            let total: f64 = (1..=256).map(|k| f64::from(k).powf(-exponent)).sum();
            for (k, count) in counts.iter().enumerate().take(8) {
                let expected = 200_000.0 * (k as f64 + 1.0).powf(-exponent) / total;
                // Six standard deviations; sorting biases the uniform case upward.
                assert!((count - expected).abs() < 6.0 * expected.sqrt() + 60.0, "{exponent} {k}: {count} {expected}");
            }
        }
    }

    #[test]
    fn sequential_and_strided_cover_the_file_once() {
        for pattern in [Pattern::Sequential, Pattern::Strided] {
            let workload = Workload { pattern, requests_per_rank: 4096, ..zipf(0.8) };
            let generator = workload.generator().unwrap();
            let mut places: Vec<u64> =
                (0..4).flat_map(|rank| generator.requests(rank).map(|request| request.offset.0)).collect();
            if pattern == Pattern::Sequential {
                assert!(places.is_sorted());
            }
            places.sort_unstable();
            assert_eq!(places, (0..16_384).map(|index| index << 16).collect::<Vec<u64>>());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refuse = |workload: Workload| workload.generator().unwrap_err().to_string();
        assert!(
            refuse(Workload { request_size: ByteCount(8 << 20), ..zipf(0.8) }).contains("8MiB do not fit a region")
        );
        assert!(refuse(Workload { request_size: ByteCount(0), ..zipf(0.8) }).contains("0B"));
        assert!(refuse(Workload { file_size: ByteCount(1 << 20), ..zipf(0.8) }).contains("the file of 1MiB"));
        assert!(refuse(Workload { ranks: 0, ..zipf(0.8) }).contains("0 ranks"));
        assert!(refuse(zipf(f64::NAN)).contains("NaN"));
    }

    #[test]
    fn a_synthetic_trace_holds_the_requests() {
        let directory = tempfile::tempdir().unwrap();
        let generator = Workload { requests_per_rank: 100, ..zipf(0.8) }.generator().unwrap();
        write_trace(&generator, &TraceShape { nodes: 2, ..TraceShape::default() }, directory.path()).unwrap();
        let trace = Trace::open(directory.path()).unwrap();
        assert_eq!(
            (&trace.warnings[..], trace.mpi_size(), &trace.nodes[..]),
            (&[][..], 4, &["node0".into(), "node1".into()][..])
        );
        assert_eq!(trace.origin_unix_ns(), TraceShape::default().start_unix_ns);
        for (rank, process) in trace.process_indices().enumerate() {
            assert_eq!(trace.process(process).mpi_rank, Some(rank as u32));
            let found: Vec<u64> = trace
                .events_of(process)
                .filter(|event| event.operation().is_data())
                .map(|event| event.offset.0)
                .collect();
            assert_eq!(found, generator.requests(rank as u32).map(|request| request.offset.0).collect::<Vec<_>>());
        }
    }
}
