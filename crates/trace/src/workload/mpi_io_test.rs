//! mpi-io-test of PVFS: in each iteration every process accesses one block, the blocks of an iteration side by side.
//!
//! Block j of process r lies at `offset + (j x processes + r) x block`. iBridge runs it with blocks that are no multiple of the stripe
//! (its pattern II: 65 KiB) and with blocks of one stripe behind a header (pattern III: `offset`).

use super::collective::Range;
use super::hpio::on_shared_file;
use super::parameters::{Described, Parameter, parameter};
use super::stages::{InStages, Passes, Run, Staged, run_parameters, stage_count};
use super::{WorkloadError, largest_file};
use crate::program::{FileShape, IoRequest, Program, Step};
use stripewise_layout::ByteCount;

/// mpi-io-test of PVFS; see its part of `docs/workloads.md`.
#[derive(Clone, PartialEq, Debug)]
pub struct MpiIoTest {
    pub(super) block: ByteCount,
    pub(super) iterations: Option<u32>,
    pub(super) size: Option<ByteCount>,
    /// Before the first block.
    pub(super) offset: ByteCount,
    /// Before each iteration.
    pub(super) barrier: bool,
    pub(super) op: Passes,
    pub(super) run: Run,
}

impl Default for MpiIoTest {
    fn default() -> Self {
        Self {
            block: ByteCount(16 << 20),
            iterations: None,
            size: None,
            offset: ByteCount(0),
            barrier: true,
            op: Passes::Both,
            run: Run::default(),
        }
    }
}

impl Described for MpiIoTest {
    const NAME: &'static str = "mpi-io-test";
    const ABOUT: &'static str = "mpi-io-test is a program of PVFS2. In each iteration every process writes, and afterwards \
        reads, one block. The blocks of an iteration are adjacent in the order of ranks, and a \
        barrier precedes each iteration. iBridge's figures 2 and 3 use it with a file of 10 GB and \
        blocks of 64 KiB (pattern I), 65 KiB (pattern II), or 64 KiB after an `offset` that is no \
        multiple of it (pattern III).";
    const EXAMPLE: &'static str = "mpi-io-test:block=65KiB,size=10GB,processes=64,op=read";

    fn parameters() -> Vec<Parameter<Self>> {
        let own = [
            parameter!("block", "-b", block, "bytes of a request"),
            parameter!("iterations", "-i", iterations, "blocks of each process; `auto`: from `size`, else 1"),
            parameter!("size", "", size, "bytes of all blocks, in place of `iterations`; rounded down"),
            parameter!("offset", "", offset, "bytes before the first block, as a header has (iBridge's pattern III)"),
            parameter!("barrier", "", barrier, "`no`: processes do not wait for each other between iterations"),
            parameter!("op", "", op, "`read`, `write` or `both` (write, then read)"),
        ];
        own.into_iter().chain(run_parameters!("-np", "")).collect()
    }
}

impl MpiIoTest {
    /// # Errors
    /// When the parameters do not fit one another.
    pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        self.run.check(Self::NAME)?;
        let refuse = |key, value: String, want: &str| Err(WorkloadError::of(Self::NAME, key, value, want));
        if self.block.0 == 0 {
            return refuse("block", self.block.to_string(), "at least 1 byte");
        }
        let too_large = "a file that an offset of 63 bits can reach";
        let Some(round) = self.block.0.checked_mul(u64::from(self.run.processes)) else {
            return refuse("block", self.block.to_string(), too_large);
        };
        let iterations = match (self.iterations, self.size) {
            (Some(_), Some(size)) => return refuse("size", size.to_string(), "`size` or `iterations`, not both"),
            (iterations, None) => u64::from(iterations.unwrap_or(1)),
            (None, Some(size)) => size.0 / round,
        };
        let Some(iterations) = u32::try_from(iterations).ok().filter(|iterations| *iterations > 0) else {
            let (key, value) = self.size.map_or(("iterations", "0".to_owned()), |size| ("size", size.to_string()));
            let want = format!("1 to 2^32 - 1 iterations of {}", ByteCount(round));
            return refuse(key, value, &want);
        };
        let bytes = round.checked_mul(u64::from(iterations)).and_then(|bytes| bytes.checked_add(self.offset.0));
        let Some(size_bytes) = bytes.and_then(largest_file) else {
            return refuse("iterations", iterations.to_string(), too_large);
        };
        let rounds = u64::from(iterations) * self.op.directions().len() as u64;
        let stages = stage_count(Self::NAME, &self.run, rounds)?;
        let files = [FileShape { path: self.run.file.clone(), size_bytes }];
        Ok(Box::new(InStages(Rounds { test: self.clone(), iterations, stages, files })))
    }
}

struct Rounds {
    test: MpiIoTest,
    iterations: u32,
    stages: u32,
    files: [FileShape; 1],
}

impl Staged for Rounds {
    fn run(&self) -> &Run {
        &self.test.run
    }

    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn stages(&self) -> u32 {
        self.stages
    }

    fn entry(&self, stage: u32) -> [Option<Step>; 2] {
        // The passes meet in any case.
        let meets = stage > 0 && (self.test.barrier || stage.is_multiple_of(self.iterations));
        [meets.then_some(Step::Barrier), None]
    }

    fn requests(&self, process: u32, stage: u32) -> impl Iterator<Item = IoRequest> + Send + '_ {
        let test = &self.test;
        let block = u64::from(stage % self.iterations) * u64::from(test.run.processes) + u64::from(process);
        let range = Range { start: test.offset.0 + block * test.block.0, bytes: test.block.0 };
        [on_shared_file(test.op.direction(stage / self.iterations), range)].into_iter()
    }
}

#[cfg(test)]
mod tests;
