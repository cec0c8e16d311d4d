//! HPIO of Northwestern University and Sandia: regions of every process, with spaces between.
//!
//! Noncontiguous in the file, region i of process r lies at `(i x processes + r) x (region_size + region_spacing)`: processes take
//! turns. Contiguous, every process has its own share. Memory layouts (the first half of `c-nc`) change no request.

use super::collective::{self, BUFFER, Range};
use super::parameters::{Described, Parameter, parameter, words};
use super::stages::{InStages, Passes, Run, Staged, barrier_after_first, run_parameters, stage_count};
use super::{WorkloadError, largest_file};
use crate::program::{FileShape, IoRequest, Program, ProgramFile, Step};
use stripewise_layout::{ByteCount, Direction, FileOffset};

words! {
    /// Contiguous or not: memory, then file.
    Noncontig {
        ContiguousContiguous = "c-c",
        NoncontiguousContiguous = "nc-c",
        ContiguousNoncontiguous = "c-nc",
        NoncontiguousNoncontiguous = "nc-nc",
    }
}

words! {
    /// HPIO's `-m`.
    IoMethod {
        /// A request for each region.
        Individual = "individual",
        /// Two-phase I/O.
        Collective = "collective",
    }
}

/// HPIO; see its part of `docs/workloads.md`.
#[derive(Clone, PartialEq, Debug)]
pub struct Hpio {
    /// Of each process.
    pub(super) region_count: u64,
    pub(super) region_size: ByteCount,
    pub(super) region_spacing: ByteCount,
    pub(super) noncontig: Noncontig,
    pub(super) method: IoMethod,
    pub(super) buffer: ByteCount,
    pub(super) op: Passes,
    pub(super) run: Run,
}

impl Default for Hpio {
    fn default() -> Self {
        Self {
            region_count: 40_960,
            region_size: ByteCount(64 << 10),
            region_spacing: ByteCount(0),
            noncontig: Noncontig::ContiguousNoncontiguous,
            method: IoMethod::Individual,
            buffer: BUFFER,
            op: Passes::Both,
            run: Run { processes: 16, ..Run::default() },
        }
    }
}

impl Described for Hpio {
    const NAME: &'static str = "hpio";
    const ABOUT: &'static str = "HPIO is a benchmark of Northwestern University and Sandia National Laboratories. Every \
        process has `region_count` regions. Noncontiguous in the file (`c-nc`, `nc-nc`), the \
        processes' regions alternate, with a space after each; contiguous (`c-c`, `nc-c`), the \
        regions of a process are adjacent. The layout in memory changes no request. The defaults are \
        H2DP's (section 5.2.2). Individual I/O makes a request for each region, contiguous ones too, \
        as in H2DP, whose request sizes are the region sizes; HPIO itself writes contiguous data \
        with one call. Collective I/O is two-phase I/O with one aggregator on each node.";
    const EXAMPLE: &'static str = "hpio:region_count=40960,region_size=256KiB,region_spacing=0,processes=16,op=both";

    fn parameters() -> Vec<Parameter<Self>> {
        let own = [
            parameter!("region_count", "-c", region_count, "regions of each process"),
            parameter!("region_size", "-s", region_size, "bytes of a region"),
            parameter!("region_spacing", "-p", region_spacing, "bytes between two regions of the file"),
            parameter!(
                "noncontig",
                "-n",
                noncontig,
                "`c-c`, `nc-c`, `c-nc` or `nc-nc`: contiguous or not in memory, in the file"
            ),
            parameter!("method", "-m", method, "`individual` or `collective`"),
            parameter!("buffer", "cb_buffer_size", buffer, "bytes of a request of collective I/O"),
            parameter!("op", "-O", op, "`read`, `write` or `both` (write, then read)"),
        ];
        own.into_iter().chain(run_parameters!("-np", "-r")).collect()
    }
}

impl Hpio {
    fn in_turns(&self) -> bool {
        matches!(self.noncontig, Noncontig::ContiguousNoncontiguous | Noncontig::NoncontiguousNoncontiguous)
    }

    /// # Errors
    /// When the parameters do not fit one another.
    pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        self.run.check(Self::NAME)?;
        let refuse = |key, value: String, want: &str| Err(WorkloadError::of(Self::NAME, key, value, want));
        if self.region_count == 0 {
            return refuse("region_count", "0".to_owned(), "at least 1");
        }
        if self.region_size.0 == 0 {
            return refuse("region_size", self.region_size.to_string(), "at least 1 byte");
        }
        if self.buffer.0 == 0 {
            return refuse("buffer", self.buffer.to_string(), "at least 1 byte");
        }
        let spacing = if self.in_turns() { self.region_spacing.0 } else { 0 };
        let pitch = self.region_size.0.checked_add(spacing);
        let regions = self.region_count.checked_mul(u64::from(self.run.processes));
        let size = pitch.zip(regions).and_then(|(pitch, regions)| pitch.checked_mul(regions)).and_then(largest_file);
        let Some(size_bytes) = size.map(|size| size - spacing) else {
            return refuse("region_count", self.region_count.to_string(), "a file that an offset of 63 bits can reach");
        };
        let stages = stage_count(Self::NAME, &self.run, self.op.directions().len() as u64)?;
        let files = [FileShape { path: self.run.file.clone(), size_bytes }];
        Ok(Box::new(InStages(HpioShape { hpio: self.clone(), pitch: self.region_size.0 + spacing, stages, files })))
    }
}

struct HpioShape {
    hpio: Hpio,
    /// From the start of one region to that of the next in the file.
    pitch: u64,
    stages: u32,
    files: [FileShape; 1],
}

impl Staged for HpioShape {
    fn run(&self) -> &Run {
        &self.hpio.run
    }

    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn stages(&self) -> u32 {
        self.stages
    }

    fn entry(&self, stage: u32) -> [Option<Step>; 2] {
        barrier_after_first(stage)
    }

    fn requests(&self, process: u32, stage: u32) -> impl Iterator<Item = IoRequest> + Send + '_ {
        let hpio = &self.hpio;
        let direction = hpio.op.direction(stage);
        let collective = hpio.method == IoMethod::Collective;
        let (first, step) = match hpio.in_turns() {
            true => (u64::from(process), u64::from(hpio.run.processes)),
            false => (u64::from(process) * hpio.region_count, 1),
        };
        let (mut offset, stride, bytes) = (first * self.pitch, step * self.pitch, hpio.region_size.0);
        let individual = (0..if collective { 0 } else { hpio.region_count }).map(move |_| {
            let range = Range { start: offset, bytes };
            offset += stride;
            (direction, range)
        });
        let whole = Range { start: 0, bytes: if collective { self.files[0].size_bytes } else { 0 } };
        let domain = collective::domain(&hpio.run, process, whole);
        let holes = self.pitch > bytes;
        individual
            .chain(collective::accesses(domain, hpio.buffer, direction, holes))
            .map(|(direction, range)| on_shared_file(direction, range))
    }
}

/// A request to the only file.
pub(super) fn on_shared_file(direction: Direction, range: Range) -> IoRequest {
    IoRequest { file: ProgramFile(0), kind: direction.into(), offset: FileOffset(range.start), bytes: range.bytes }
}

#[cfg(test)]
mod tests;
