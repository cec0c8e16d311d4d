//! A program whose requests are anywhere in one file, which tests of predictions share.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use stripewise_layout::{ByteCount, FileOffset, RequestKind};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

pub(crate) const PROCESSES: u32 = 16;
pub(crate) const SEED: u64 = 1;

/// Requests of one size, more often at the begin of the file the higher `skew` is.
pub(crate) struct Skewed {
    files: Vec<FileShape>,
    region: ByteCount,
    pub(crate) kind: RequestKind,
    pub(crate) bytes: u64,
    /// Of all processes together.
    pub(crate) requests: u64,
    skew: i32,
}

impl Skewed {
    /// On a file of so many regions.
    pub(crate) fn new(
        (region, regions): (ByteCount, u64),
        kind: RequestKind,
        bytes: u64,
        requests: u64,
        skew: i32,
    ) -> Self {
        let files = vec![FileShape { path: "/data/shared".to_owned(), size_bytes: region.0 * regions }];
        Self { files, region, kind, bytes, requests, skew }
    }
}

impl Program for Skewed {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        PROCESSES
    }

    fn nodes(&self) -> u32 {
        PROCESSES
    }

    fn phases(&self) -> u32 {
        1
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let mut draws = SmallRng::seed_from_u64(SEED << 32 | u64::from(process));
        let regions = self.files[0].size_bytes / self.region.0;
        Box::new((0..self.requests / u64::from(PROCESSES)).map(move |_| {
            let region = (draws.random::<f64>().powi(self.skew) * regions as f64) as u64;
            let slot = draws.random_range(0..self.region.0 / self.bytes);
            let offset = FileOffset(region * self.region.0 + slot * self.bytes);
            Step::Access(IoRequest { file: ProgramFile(0), kind: self.kind, offset, bytes: self.bytes })
        }))
    }
}
