//! BT-IO of the NAS Parallel Benchmarks: a grid of five doubles a point, written every few time steps of the solver.
//!
//! A square number of processes, q x q, cuts the grid into q x q x q cells, and every process has q of them, one in each layer
//! along z: cell c of process r is at x = (r mod q + c) mod q, y = (r / q - c) mod q, z = c ("multi-partitioning"). Where q does not
//! divide the grid, the first cells of a dimension are a point longer. A time step's grid follows the one before in the file, x fastest.
//!
//! Subtype `simple` writes a request for each row of a cell (5 x 8 x points in x bytes), subtype `full` collectively. The processes meet
//! before each time step's output: the solver exchanges faces all the time, so none is ahead.

use super::collective::{self, BUFFER, Range};
use super::hpio::on_shared_file;
use super::parameters::{Described, Parameter, parameter, words};
use super::stages::{InStages, Passes, Run, Staged, run_parameters, stage_count};
use super::{WorkloadError, largest_file};
use crate::program::{FileShape, IoRequest, Program, Step};
use std::time::Duration;
use stripewise_layout::ByteCount;

words! {
    /// NPB's problem sizes.
    BtioClass { S = "S", W = "W", A = "A", B = "B", C = "C", D = "D", E = "E", F = "F" }
}

impl BtioClass {
    /// Points along each side of the grid.
    fn grid(self) -> u64 {
        match self {
            Self::S => 12,
            Self::W => 24,
            Self::A => 64,
            Self::B => 102,
            Self::C => 162,
            Self::D => 408,
            Self::E => 1020,
            Self::F => 2560,
        }
    }

    fn time_steps(self) -> u32 {
        match self {
            Self::S => 60,
            Self::W | Self::A | Self::B | Self::C => 200,
            Self::D | Self::E | Self::F => 250,
        }
    }
}

words! {
    /// BT-IO's subtypes of MPI I/O.
    BtioSubtype { Simple = "simple", Full = "full" }
}

/// BT-IO of the NAS Parallel Benchmarks; see its part of `docs/workloads.md`.
#[derive(Clone, PartialEq, Debug)]
pub struct Btio {
    pub(super) class: BtioClass,
    pub(super) subtype: BtioSubtype,
    pub(super) time_steps: Option<u32>,
    pub(super) write_interval: u32,
    /// Between two outputs.
    pub(super) compute: Duration,
    pub(super) buffer: ByteCount,
    pub(super) op: Passes,
    pub(super) run: Run,
}

impl Default for Btio {
    fn default() -> Self {
        Self {
            class: BtioClass::A,
            subtype: BtioSubtype::Simple,
            time_steps: None,
            write_interval: 5,
            compute: Duration::ZERO,
            buffer: BUFFER,
            op: Passes::Both,
            run: Run { processes: 16, ..Run::default() },
        }
    }
}

/// Five doubles.
const POINT_BYTES: u64 = 5 * 8;
/// NPB refuses smaller cells.
const SMALLEST_CELL: u64 = 3;

impl Described for Btio {
    const NAME: &'static str = "btio";
    const ABOUT: &'static str = "BT-IO is part of the NAS Parallel Benchmarks (3.4). It writes a grid of 5 doubles a point \
        every `write_interval` time steps and reads it back at the end. The number of processes is a \
        square, and each process has a diagonal of cells. Classes S to F have grids of 12, 24, 64, \
        102, 162, 408, 1020 and 2560 points a side and 60 (S), 200 (W to C) or 250 (D to F) time \
        steps; class C writes 6.8 GB, class D 135.8 GB, as H2DP states. `simple` makes a request for \
        each row of a cell; `full` is collective, with one aggregator on each node. A barrier \
        precedes each output.";
    const EXAMPLE: &'static str = "btio:class=C,subtype=simple,processes=16,op=both";

    fn parameters() -> Vec<Parameter<Self>> {
        let own = [
            parameter!("class", "CLASS", class, "`S`, `W`, `A`, `B`, `C`, `D`, `E` or `F`"),
            parameter!("subtype", "SUBTYPE", subtype, "`simple` or `full` (collective)"),
            parameter!("time_steps", "niter", time_steps, "time steps; `auto`: the class's"),
            parameter!("write_interval", "wr_interval", write_interval, "time steps from one output to the next"),
            parameter!("compute", "", compute, "computing before each output, as in `2s`"),
            parameter!("buffer", "cb_buffer_size", buffer, "bytes of a request of subtype `full`"),
            parameter!("op", "", op, "`write`, `read` (what the end of BT-IO does) or `both`"),
        ];
        own.into_iter().chain(run_parameters!("-np", "")).collect()
    }
}

impl Btio {
    /// # Errors
    /// When the parameters do not fit one another.
    pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        self.run.check(Self::NAME)?;
        let refuse = |key, value: String, want: &str| Err(WorkloadError::of(Self::NAME, key, value, want));
        let (processes, grid) = (self.run.processes, self.class.grid());
        let side = processes.isqrt();
        if side * side != processes {
            let want = format!("a square number; {} and {} are near", side * side, (side + 1) * (side + 1));
            return refuse("processes", processes.to_string(), &want);
        }
        if grid / u64::from(side) < SMALLEST_CELL {
            let most = grid / SMALLEST_CELL;
            let want = format!("at most {}, or a larger class: cells have at least 3 points a side", most * most);
            return refuse("processes", processes.to_string(), &want);
        }
        if self.buffer.0 == 0 {
            return refuse("buffer", self.buffer.to_string(), "at least 1 byte");
        }
        let time_steps = self.time_steps.unwrap_or_else(|| self.class.time_steps());
        let dumps = time_steps.checked_div(self.write_interval).unwrap_or(0);
        if dumps == 0 {
            let want = format!("1 to {time_steps}, the number of time steps");
            return refuse("write_interval", self.write_interval.to_string(), &want);
        }
        let dump_bytes = grid * grid * grid * POINT_BYTES;
        let Some(size_bytes) = dump_bytes.checked_mul(u64::from(dumps)).and_then(largest_file) else {
            return refuse("time_steps", time_steps.to_string(), "a file that an offset of 63 bits can reach");
        };
        let stages = stage_count(Self::NAME, &self.run, u64::from(dumps) * self.op.directions().len() as u64)?;
        let files = [FileShape { path: self.run.file.clone(), size_bytes }];
        let side = u64::from(side);
        Ok(Box::new(InStages(BtioShape { btio: self.clone(), grid, side, dumps, dump_bytes, stages, files })))
    }
}

struct BtioShape {
    btio: Btio,
    grid: u64,
    /// Processes along a side, and cells of a process.
    side: u64,
    dumps: u32,
    dump_bytes: u64,
    stages: u32,
    files: [FileShape; 1],
}

/// Points from `low`, `size` of them.
#[derive(Clone, Copy, Debug)]
struct Span {
    low: u64,
    size: u64,
}

impl BtioShape {
    /// The points of a cell along one side.
    fn span(&self, coordinate: u64) -> Span {
        let (size, excess) = (self.grid / self.side, self.grid % self.side);
        match coordinate < excess {
            true => Span { low: coordinate * (size + 1), size: size + 1 },
            false => Span { low: excess * (size + 1) + (coordinate - excess) * size, size },
        }
    }

    /// The spans in x, y and z of a cell of the process.
    fn cell(&self, process: u32, cell: u64) -> [Span; 3] {
        let (side, process) = (self.side, u64::from(process));
        [self.span((process % side + cell) % side), self.span((process / side + side - cell) % side), self.span(cell)]
    }

    fn rows(&self, process: u32, start: u64) -> impl Iterator<Item = Range> + Send + '_ {
        let grid = self.grid;
        (0..self.side).flat_map(move |cell| {
            let [x, y, z] = self.cell(process, cell);
            let (mut row, mut plane) = (0, 0);
            (0..y.size * z.size).map(move |_| {
                let points = x.low + grid * (y.low + row + grid * (z.low + plane));
                row += 1;
                if row == y.size {
                    (row, plane) = (0, plane + 1);
                }
                Range { start: start + points * POINT_BYTES, bytes: x.size * POINT_BYTES }
            })
        })
    }
}

impl Staged for BtioShape {
    fn run(&self) -> &Run {
        &self.btio.run
    }

    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn stages(&self) -> u32 {
        self.stages
    }

    fn entry(&self, stage: u32) -> [Option<Step>; 2] {
        let writing = self.btio.op.direction(stage / self.dumps) == stripewise_layout::Direction::Write;
        let nanoseconds = u64::try_from(self.btio.compute.as_nanos()).unwrap_or(u64::MAX);
        let think = (writing && nanoseconds > 0).then_some(Step::Think { nanoseconds });
        [think, (stage > 0).then_some(Step::Barrier)]
    }

    fn requests(&self, process: u32, stage: u32) -> impl Iterator<Item = IoRequest> + Send + '_ {
        let direction = self.btio.op.direction(stage / self.dumps);
        let start = u64::from(stage % self.dumps) * self.dump_bytes;
        let full = self.btio.subtype == BtioSubtype::Full;
        let rows = (!full).then(|| self.rows(process, start).map(move |range| (direction, range)));
        let whole = Range { start, bytes: if full { self.dump_bytes } else { 0 } };
        let domain = collective::domain(&self.btio.run, process, whole);
        let together = collective::accesses(domain, self.btio.buffer, direction, false);
        rows.into_iter().flatten().chain(together).map(|(direction, range)| on_shared_file(direction, range))
    }
}

#[cfg(test)]
mod tests;
