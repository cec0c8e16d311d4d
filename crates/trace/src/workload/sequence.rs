//! One synthetic program on one shared file, exactly as `demo/zipf_io.c` makes its requests.

use super::WorkloadError;
use super::random::of_rank;
use super::zipf::ZipfRegions;
use crate::program::{FileShape, IoRequest, Program, ProgramFile, Step};
use stripewise_layout::{ByteCount, Direction, FileOffset};

/// The file of a workload that names none.
pub(super) const SHARED_FILE: &str = "/data/shared";

/// Which parts of the file are accessed, in which order.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pattern {
    /// Regions by Zipf's law with that exponent, the place within a region uniform and aligned to the request.
    Zipf {
        /// a of the weights 1 / (k + 1)^a: 0 (uniform) to 100; 0.8 in H2DP.
        exponent: f64,
        /// The unit of popularity; at most the file's size.
        region_size: ByteCount,
    },
    /// Every rank goes through its own contiguous share of the file, again from its start when through (IOR "segmented").
    Sequential,
    /// Request i of rank r is request i x ranks + r of the file, again from the file's start when through (IOR "interleaved").
    Strided,
}

/// A synthetic program on one shared file.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// Where requests lie.
    pub pattern: Pattern,
    /// Size of the shared file.
    pub file_size: ByteCount,
    /// Bytes of every request, more than 0.
    pub request_size: ByteCount,
    /// Whether all read or all write.
    pub direction: Direction,
    /// Processes, at least 1.
    pub ranks: u32,
    /// Requests that each rank makes.
    pub requests_per_rank: u64,
    /// Of the order of regions and of all draws.
    pub seed: u64,
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// First byte of the file.
    pub offset: FileOffset,
    /// Length in bytes.
    pub bytes: u64,
}

/// A workload with its tables made.
#[derive(Debug)]
pub struct Generator {
    workload: Workload,
    places: Places,
    files: [FileShape; 1],
}

#[derive(Debug)]
enum Places {
    Zipf(ZipfRegions),
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
                Places::Zipf(ZipfRegions::new(regions, region_size.0, exponent, self.seed))
            }
            Pattern::Sequential => {
                Places::Sequential { per_rank: fit("a rank's share", self.file_size.0 / u64::from(self.ranks))? }
            }
            Pattern::Strided => Places::Strided { in_file: fit("the file", self.file_size.0)? },
        };
        let files = [FileShape { path: SHARED_FILE.to_owned(), size_bytes: self.file_size.0 }];
        Ok(Generator { workload: self.clone(), places, files })
    }
}

impl Generator {
    /// What the tables were made from.
    #[must_use]
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// The requests of one rank, in order.
    pub fn requests(&self, rank: u32) -> impl Iterator<Item = Request> + '_ {
        let bytes = self.workload.request_size.0;
        let mut random = of_rank(self.workload.seed, rank);
        (0..self.workload.requests_per_rank).map(move |number| {
            let offset = match &self.places {
                Places::Zipf(regions) => regions.next_offset(&mut random, bytes, 0),
                Places::Sequential { per_rank } => (u64::from(rank) * per_rank + number % per_rank) * bytes,
                Places::Strided { in_file } => {
                    (number * u64::from(self.workload.ranks) + u64::from(rank)) % in_file * bytes
                }
            };
            Request { offset: FileOffset(offset), bytes }
        })
    }
}

/// One pass, on one node, over the file that [`TraceShape::default`](super::TraceShape) names.
impl Program for Generator {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        self.workload.ranks
    }

    fn nodes(&self) -> u32 {
        1
    }

    fn phases(&self) -> u32 {
        1
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let direction = self.workload.direction;
        Box::new(self.requests(process).map(move |Request { offset, bytes }| {
            Step::Access(IoRequest { file: ProgramFile(0), kind: direction.into(), offset, bytes })
        }))
    }
}
