//! MPI-Tile-IO of Argonne: a two-dimensional array of elements, a tile of it for each process, with ghost cells that overlap.

use super::collective::{self, BUFFER, Range};
use super::hpio::on_shared_file;
use super::parameters::{Described, Parameter, parameter, words};
use super::stages::{InStages, Passes, Run, Staged, barrier_after_first, run_parameters, stage_count};
use super::{WorkloadError, largest_file};
use crate::program::{FileShape, IoRequest, Program, Step};
use stripewise_layout::ByteCount;

words! {
    /// How a tile's rows become requests.
    TileMethod {
        /// A request for each row, as a file system with list I/O or without data sieving sees it.
        Rows = "rows",
        /// ROMIO's data sieving: from the tile's first byte to its last in buffers of `sieve_buffer`, holes included.
        Sieve = "sieve",
        /// `--collective`.
        Collective = "collective",
    }
}

/// MPI-Tile-IO; see its part of `docs/workloads.md`.
#[derive(Clone, PartialEq, Debug)]
pub struct TileIo {
    pub(super) nr_tiles_x: u32,
    pub(super) nr_tiles_y: u32,
    /// Elements.
    pub(super) sz_tile_x: u64,
    pub(super) sz_tile_y: u64,
    pub(super) sz_element: ByteCount,
    /// Elements that a tile shares with its neighbour.
    pub(super) overlap_x: u64,
    pub(super) overlap_y: u64,
    pub(super) header_bytes: ByteCount,
    pub(super) method: TileMethod,
    pub(super) sieve_buffer: ByteCount,
    pub(super) buffer: ByteCount,
    pub(super) op: Passes,
    /// Its number of processes is that of the tiles.
    pub(super) run: Run,
}

/// ROMIO's default of `ind_rd_buffer_size`.
const SIEVE_BUFFER: ByteCount = ByteCount(4 << 20);

impl Default for TileIo {
    fn default() -> Self {
        Self {
            nr_tiles_x: 4,
            nr_tiles_y: 4,
            sz_tile_x: 1024,
            sz_tile_y: 1024,
            sz_element: ByteCount(3),
            overlap_x: 0,
            overlap_y: 0,
            header_bytes: ByteCount(0),
            method: TileMethod::Rows,
            sieve_buffer: SIEVE_BUFFER,
            buffer: BUFFER,
            op: Passes::Read,
            run: Run::default(),
        }
    }
}

impl Described for TileIo {
    const NAME: &'static str = "tile-io";
    const ABOUT: &'static str = "MPI-Tile-IO is a benchmark of Argonne National Laboratory. Each process reads (or writes) \
        one tile of an array that lies row by row in one file; tiles may overlap. `method=rows` \
        makes a request for each row of a tile, `sieve` makes the requests of ROMIO's data sieving \
        (reads only), and `collective` is two-phase I/O with one aggregator on each node. A tile as \
        wide as the array is contiguous and takes one request. The real benchmark starts with one \
        tile of one process; here the default is 4 x 4.";
    const EXAMPLE: &'static str =
        "tile-io:nr_tiles_x=4,nr_tiles_y=4,sz_tile_x=1024,sz_tile_y=1024,sz_element=1,method=collective";

    fn parameters() -> Vec<Parameter<Self>> {
        let own = [
            parameter!("nr_tiles_x", "--nr_tiles_x", nr_tiles_x, "tiles side by side"),
            parameter!("nr_tiles_y", "--nr_tiles_y", nr_tiles_y, "tiles one above the other; processes = tiles"),
            parameter!("sz_tile_x", "--sz_tile_x", sz_tile_x, "elements in a row of a tile"),
            parameter!("sz_tile_y", "--sz_tile_y", sz_tile_y, "rows of a tile"),
            parameter!("sz_element", "--sz_element", sz_element, "bytes of an element"),
            parameter!("overlap_x", "--overlap_x", overlap_x, "elements of a row that two neighbours share"),
            parameter!("overlap_y", "--overlap_y", overlap_y, "rows that two neighbours share"),
            parameter!("header_bytes", "--header_bytes", header_bytes, "bytes before the array"),
            parameter!("method", "--collective", method, "`rows`, `sieve` or `collective` (`--collective`)"),
            parameter!("sieve_buffer", "ind_rd_buffer_size", sieve_buffer, "bytes of a request of `method=sieve`"),
            parameter!("buffer", "cb_buffer_size", buffer, "bytes of a request of `method=collective`"),
            parameter!("op", "--write_file", op, "`read`, `write` (`--write_file`) or `both`"),
        ];
        let rest = run_parameters!("", "").into_iter().filter(|parameter| parameter.key != "processes");
        own.into_iter().chain(rest).collect()
    }
}

impl TileIo {
    /// # Errors
    /// When the parameters do not fit one another.
    pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        let refuse = |key, value: String, want: &str| WorkloadError::of(Self::NAME, key, value, want);
        let tiles = self.nr_tiles_x.checked_mul(self.nr_tiles_y).filter(|tiles| *tiles > 0);
        let Some(processes) = tiles else {
            let value = format!("{} and nr_tiles_y={}", self.nr_tiles_x, self.nr_tiles_y);
            return Err(refuse("nr_tiles_x", value, "at least 1 of each, and fewer than 2^32 tiles"));
        };
        let run = Run { processes, ..self.run.clone() };
        run.check(Self::NAME)?;
        for (key, size, overlap) in
            [("sz_tile_x", self.sz_tile_x, self.overlap_x), ("sz_tile_y", self.sz_tile_y, self.overlap_y)]
        {
            if size <= overlap {
                let want = format!("more than the {overlap} that overlap");
                return Err(refuse(key, size.to_string(), &want));
            }
        }
        for (key, size) in
            [("sz_element", self.sz_element), ("sieve_buffer", self.sieve_buffer), ("buffer", self.buffer)]
        {
            if size.0 == 0 {
                return Err(refuse(key, size.to_string(), "at least 1 byte"));
            }
        }
        if self.method == TileMethod::Sieve && self.op != Passes::Read {
            let want = "rows or collective; sieved writes lock the file and are not modelled";
            return Err(refuse("method", "sieve".to_owned(), want));
        }
        let stages = stage_count(Self::NAME, &run, self.op.directions().len() as u64)?;
        let shape = self.shape(run, stages).ok_or_else(|| {
            refuse("sz_tile_x", self.sz_tile_x.to_string(), "an array that an offset of 63 bits can reach")
        })?;
        Ok(Box::new(InStages(shape)))
    }

    fn shape(&self, run: Run, stages: u32) -> Option<TileShape> {
        let extent = |tiles: u32, size: u64, overlap: u64| {
            u64::from(tiles).checked_mul(size - overlap).and_then(|bytes| bytes.checked_add(overlap))
        };
        let row = extent(self.nr_tiles_x, self.sz_tile_x, self.overlap_x)?.checked_mul(self.sz_element.0)?;
        let array = extent(self.nr_tiles_y, self.sz_tile_y, self.overlap_y)?.checked_mul(row)?;
        let size_bytes = array.checked_add(self.header_bytes.0).and_then(largest_file)?;
        let files = [FileShape { path: run.file.clone(), size_bytes }];
        Some(TileShape { tile: Self { run, ..self.clone() }, row_bytes: row, stages, files })
    }
}

struct TileShape {
    tile: TileIo,
    /// Of the whole array.
    row_bytes: u64,
    stages: u32,
    files: [FileShape; 1],
}

impl TileShape {
    /// The first row of a process's tile.
    fn first_row(&self, process: u32) -> Range {
        let tile = &self.tile;
        let (x, y) = (u64::from(process % tile.nr_tiles_x), u64::from(process / tile.nr_tiles_x));
        let column = x * (tile.sz_tile_x - tile.overlap_x) * tile.sz_element.0;
        let row = y * (tile.sz_tile_y - tile.overlap_y);
        let start = tile.header_bytes.0 + row * self.row_bytes + column;
        Range { start, bytes: tile.sz_tile_x * tile.sz_element.0 }
    }

    /// What the process itself asks for, when nobody aggregates: rows of that size, a pitch apart.
    fn own(&self, process: u32) -> (Range, u64, u64) {
        let (first, rows, pitch) = (self.first_row(process), self.tile.sz_tile_y, self.row_bytes);
        if first.bytes == pitch {
            return (Range { bytes: rows * pitch, ..first }, 1, pitch);
        }
        (first, rows, pitch)
    }
}

impl Staged for TileShape {
    fn run(&self) -> &Run {
        &self.tile.run
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
        let tile = &self.tile;
        let direction = tile.op.direction(stage);
        let (first, rows, pitch) = self.own(process);
        let empty = Range { start: 0, bytes: 0 };
        let header = tile.header_bytes.0;
        let (rows, extent, buffer) = match tile.method {
            TileMethod::Rows => (rows, empty, tile.buffer),
            TileMethod::Sieve => {
                (0, Range { start: first.start, bytes: (rows - 1) * pitch + first.bytes }, tile.sieve_buffer)
            }
            TileMethod::Collective => {
                let array = Range { start: header, bytes: self.files[0].size_bytes - header };
                (0, collective::domain(&tile.run, process, array), tile.buffer)
            }
        };
        let each = (0..rows).map(move |row| (direction, Range { start: first.start + row * pitch, ..first }));
        each.chain(collective::accesses(extent, buffer, direction, false))
            .map(|(direction, range)| on_shared_file(direction, range))
    }
}

#[cfg(test)]
mod tests;
