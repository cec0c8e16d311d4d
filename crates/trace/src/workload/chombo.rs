//! Output of an adaptive mesh, as Chombo writes it: levels of boxes of many sizes, each box one request.
//!
//! The segment-level poster motivates its method by a trace of the Chombo I/O benchmark whose request sizes "change a lot on different
//! parts of the file", and shows them as pictures without numbers. So this generator follows what Chombo does, not a recorded
//! distribution: a file of levels; each level begins with the table of its boxes (6 integers each) and the table of their offsets
//! (8 bytes each), which process 0 writes, and then holds the boxes' data one after the other, all components of a box together.
//! The sides of a box are multiples of the blocking factor up to the largest box, drawn alike; a finer level has more boxes. Boxes go
//! to the processes in order and by volume, so that each process has adjoining boxes of about as many bytes as the others.

use super::parameters::{Described, Parameter, parameter};
use super::stages::{InStages, Passes, Run, Staged, barrier_after_first, run_parameters, stage_count};
use super::{WorkloadError, largest_file};
use crate::program::{FileShape, IoRequest, Program, ProgramFile, Step};
use stripewise_layout::FileOffset;
use stripewise_layout::SplitMix64;

/// Output of an adaptive mesh; see its part of `docs/workloads.md`.
#[derive(Clone, PartialEq, Debug)]
pub struct Chombo {
    pub(super) levels: u32,
    /// On the coarsest level.
    pub(super) boxes: u64,
    /// Boxes of a level for each of the next coarser one.
    pub(super) growth: f64,
    /// Cells along a side.
    pub(super) max_box: u64,
    pub(super) block_factor: u64,
    pub(super) components: u64,
    pub(super) op: Passes,
    pub(super) run: Run,
}

impl Default for Chombo {
    fn default() -> Self {
        Self {
            levels: 3,
            boxes: 512,
            growth: 2.0,
            max_box: 32,
            block_factor: 8,
            components: 5,
            op: Passes::Write,
            run: Run::default(),
        }
    }
}

/// Boxes that a table may hold.
const MAX_BOXES: u64 = 1 << 24;
const DOUBLE_BYTES: u64 = 8;
/// Two corners of three integers, and an offset.
const TABLE_ENTRY_BYTES: u64 = 6 * 4 + 8;

impl Described for Chombo {
    const NAME: &'static str = "chombo";
    const ABOUT: &'static str = "This is the output of an adaptive mesh as Chombo writes it: levels of boxes, with one \
        request for each box. The sides of a box are multiples of `block_factor` up to `max_box` \
        cells, drawn uniformly; process 0 first writes each level's tables. The segment-level poster \
        shows its Chombo trace only as pictures, so the sizes here are those of such a mesh, not the \
        poster's.";
    const EXAMPLE: &'static str = "chombo:levels=3,boxes=512,max_box=32,block_factor=8,components=5,processes=32";

    fn parameters() -> Vec<Parameter<Self>> {
        let own = [
            parameter!("levels", "max_level", levels, "levels of refinement, the coarsest one included"),
            parameter!("boxes", "", boxes, "boxes of the coarsest level"),
            parameter!("growth", "", growth, "boxes of a level for each of the next coarser level"),
            parameter!("max_box", "max_box_size", max_box, "cells along the longest side of a box"),
            parameter!("block_factor", "block_factor", block_factor, "cells that divide every side of a box"),
            parameter!("components", "", components, "doubles in a cell"),
            parameter!("op", "", op, "`write`, `read` or `both` (write, then read)"),
        ];
        own.into_iter().chain(run_parameters!("-np", "")).collect()
    }
}

impl Chombo {
    /// # Errors
    /// When the parameters do not fit one another.
    pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        self.run.check(Self::NAME)?;
        let refuse = |key, value: String, want: &str| WorkloadError::of(Self::NAME, key, value, want);
        for (key, number) in [
            ("levels", u64::from(self.levels)),
            ("boxes", self.boxes),
            ("block_factor", self.block_factor),
            ("components", self.components),
        ] {
            if number == 0 {
                return Err(refuse(key, "0".to_owned(), "at least 1"));
            }
        }
        if self.max_box < self.block_factor || self.max_box > 1 << 16 {
            let want = format!("block_factor={} to {} cells", self.block_factor, 1 << 16);
            return Err(refuse("max_box", self.max_box.to_string(), &want));
        }
        if !(0.0..=1000.0).contains(&self.growth) {
            return Err(refuse("growth", self.growth.to_string(), "0 to 1000"));
        }
        let stages = stage_count(Self::NAME, &self.run, u64::from(self.levels) * self.op.directions().len() as u64)?;
        let counts =
            (0..self.levels).map(|level| (self.boxes as f64 * self.growth.powi(level as i32)).round().max(1.0));
        let total: f64 = counts.clone().sum();
        if total > MAX_BOXES as f64 {
            let want = format!("at most {MAX_BOXES} boxes in all levels; make boxes, levels or growth smaller");
            return Err(refuse("boxes", format!("{} ({total} in all levels)", self.boxes), &want));
        }
        let levels = self.make_levels(counts.map(|count| count as u64)).ok_or_else(|| {
            refuse("components", self.components.to_string(), "a file that an offset of 63 bits can reach")
        })?;
        let size_bytes = levels.last().map_or(0, |level| level.end());
        let files = [FileShape { path: self.run.file.clone(), size_bytes }];
        Ok(Box::new(InStages(Mesh { chombo: self.clone(), levels, stages, files })))
    }

    fn make_levels(&self, counts: impl Iterator<Item = u64>) -> Option<Vec<Level>> {
        let mut random = SplitMix64::new(self.run.seed);
        let sides = self.max_box / self.block_factor;
        let mut side = || (random.next() % sides + 1) * self.block_factor;
        let mut start: u64 = 0;
        let mut levels = Vec::new();
        for count in counts {
            let mut at = start.checked_add(count * TABLE_ENTRY_BYTES)?;
            let mut starts = Vec::with_capacity(count as usize + 1);
            for _ in 0..count {
                starts.push(at);
                let cells = side().checked_mul(side())?.checked_mul(side())?;
                at = cells.checked_mul(self.components)?.checked_mul(DOUBLE_BYTES)?.checked_add(at)?;
            }
            starts.push(largest_file(at)?);
            levels.push(Level { start, starts });
            start = at;
        }
        Some(levels)
    }
}

/// One level of the file.
struct Level {
    /// Of its tables.
    start: u64,
    /// Where each box's data begin, and the end of the last one's.
    starts: Vec<u64>,
}

impl Level {
    fn end(&self) -> u64 {
        self.starts.last().copied().unwrap_or(self.start)
    }

    /// The first box of a process: the first whose data begin at or behind the process's share of the level's bytes.
    fn first_box(&self, process: u32, processes: u32) -> usize {
        let data = self.starts[0];
        let bytes = u128::from(self.end() - data) * u128::from(process);
        let share = data + bytes.div_ceil(u128::from(processes)) as u64;
        self.starts.partition_point(|start| *start < share)
    }
}

struct Mesh {
    chombo: Chombo,
    levels: Vec<Level>,
    stages: u32,
    files: [FileShape; 1],
}

impl Staged for Mesh {
    fn run(&self) -> &Run {
        &self.chombo.run
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
        let count = self.levels.len() as u32;
        let (level, processes) = (&self.levels[(stage % count) as usize], self.chombo.run.processes);
        let direction = self.chombo.op.direction(stage / count);
        let boxes = level.starts.len() - 1;
        let corners = 6 * 4 * boxes as u64;
        let tables = [(level.start, corners), (level.start + corners, level.starts[0] - level.start - corners)];
        let tables = tables.into_iter().filter(move |_| process == 0);
        let own = level.first_box(process, processes)..level.first_box(process + 1, processes).min(boxes);
        let data = own.map(|number| (level.starts[number], level.starts[number + 1] - level.starts[number]));
        tables.chain(data).map(move |(offset, bytes)| IoRequest {
            file: ProgramFile(0),
            kind: direction.into(),
            offset: FileOffset(offset),
            bytes,
        })
    }
}

#[cfg(test)]
mod tests;
