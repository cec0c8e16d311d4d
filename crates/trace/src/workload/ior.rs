//! IOR: blocks of every process, one after the other in segments of a shared file, or in a file for each process.
//!
//! Transfer j of block i of process r lies at `(i x processes + r) x block + j x transfer` in a shared file and at
//! `i x block + j x transfer` in a file per process. With one segment each process has its contiguous share ("segmented"); with
//! `block` = `transfer` the processes march through the file together ("strided").
//!
//! Random offsets (`-z`): IOR deals the transfers of a shared file out to the processes by a random number for each, so that some get
//! more than others. Here a permutation of all transfers is dealt out in turn: every transfer exactly once, the same number for
//! everybody.
//!
//! Modified IOR (H2DP section 5.2.1): the file's regions are asked for by Zipf's law, by the sequence that the module above defines.
//! "The access frequencies change at run-time" is `phases`: in phase i, popularity k is that of region
//! `order[(k + i x regions / phases) mod regions]`, so that the most popular regions of two phases are different ones.

use super::parameters::{Described, Parameter, parameter, words};
use super::random::{Permutation, of_rank};
use super::stages::{InStages, Run, Staged, barrier_after_first, run_parameters, stage_count};
use super::zipf::ZipfRegions;
use super::{WorkloadError, largest_file};
use crate::program::{FileShape, IoRequest, Program, ProgramFile, Step};
use stripewise_layout::SplitMix64;
use stripewise_layout::{ByteCount, Direction, FileOffset};

words! {
    /// The order of offsets.
    IorPattern {
        Sequential = "sequential",
        /// `-z`.
        Random = "random",
        /// Regions by Zipf's law, aligned places within a region all alike.
        Zipf = "zipf",
    }
}

words! {
    /// Reads and writes.
    IorOperation {
        Read = "read",
        Write = "write",
        /// A write pass, then a read pass over the same requests: what IOR does when told neither `-w` nor `-r`.
        Both = "both",
        /// One pass, in which each request is a read or a write at random (ours; IOR has none).
        Mixed = "mixed",
    }
}

/// IOR and its modification with Zipf's law.
#[derive(Clone, PartialEq, Debug)]
pub struct Ior {
    pub(super) pattern: IorPattern,
    /// Zipf's exponent.
    pub(super) a: f64,
    /// The unit of popularity.
    pub(super) region: ByteCount,
    /// Phases in each of which other regions are popular.
    pub(super) phases: u32,
    /// All files together.
    pub(super) size: Option<ByteCount>,
    pub(super) block: Option<ByteCount>,
    pub(super) segments: Option<u64>,
    pub(super) transfer: ByteCount,
    /// Of each process in each pass and phase.
    pub(super) requests: Option<u64>,
    pub(super) file_per_process: bool,
    pub(super) reorder: bool,
    pub(super) op: IorOperation,
    /// Share of reads of [`IorOperation::Mixed`].
    pub(super) reads: f64,
    pub(super) run: Run,
}

impl Default for Ior {
    fn default() -> Self {
        Self {
            pattern: IorPattern::Sequential,
            a: 0.8,
            region: ByteCount(64 << 20),
            phases: 1,
            size: None,
            block: None,
            segments: None,
            transfer: ByteCount(256 << 10),
            requests: None,
            file_per_process: false,
            reorder: false,
            op: IorOperation::Both,
            reads: 0.5,
            run: Run::default(),
        }
    }
}

/// Tells the stream of directions from that of offsets.
const MIXED_STREAM: u64 = 0x006D_6978_6564;
const DEFAULT_BLOCK: ByteCount = ByteCount(1 << 20);

impl Described for Ior {
    const NAME: &'static str = "ior";
    const ABOUT: &'static str = "IOR is a benchmark of Lawrence Livermore National Laboratory. It makes transfers within \
        blocks within segments, of one shared file or of a file per process. `pattern=zipf` is \
        H2DP's modification (section 5.2.1), and `phases` gives its access frequencies that change \
        at run time: each phase has other popular regions. Random offsets are a permutation that is \
        divided evenly, whereas IOR draws the process of each transfer. Give at most two of `size`, \
        `block` and `segments`: `size` alone makes one segment; `size` and `block` give the number \
        of segments. A pass makes each of its transfers once; `pattern=zipf` makes as many as would \
        cover the file once.";
    const EXAMPLE: &'static str =
        "ior:pattern=zipf,a=0.8,size=128GiB,transfer=64KiB,processes=32,nodes=8,op=read,seed=1";

    fn parameters() -> Vec<Parameter<Self>> {
        let own = [
            parameter!("pattern", "-z", pattern, "`sequential`, `random` (`-z`) or `zipf` (modified IOR)"),
            parameter!("a", "", a, "Zipf's exponent; 0 is uniform, H2DP's is 0.8"),
            parameter!("region", "", region, "the unit of popularity of `pattern=zipf`"),
            parameter!("phases", "", phases, "phases of `pattern=zipf`, in each of which other regions are popular"),
            parameter!("size", "", size, "all that is written, over all processes (\"aggregate filesize\")"),
            parameter!(
                "block",
                "-b",
                block,
                "contiguous bytes of a process in each segment; `auto`: from `size`, else 1MiB"
            ),
            parameter!("segments", "-s", segments, "segments; `auto`: from `size` and `block`, else 1"),
            parameter!("transfer", "-t", transfer, "bytes of a request"),
            parameter!(
                "requests",
                "",
                requests,
                "requests of each process in each pass; beyond its share it begins again"
            ),
            parameter!("file_per_process", "-F", file_per_process, "`yes`: a file for each process"),
            parameter!("reorder", "-C", reorder, "`yes`: processes read what the next node has written"),
            parameter!(
                "op",
                "-w -r",
                op,
                "`read`, `write`, `both` (write, then read) or `mixed` (at random, not IOR's)"
            ),
            parameter!("reads", "", reads, "share of reads of `op=mixed`"),
        ];
        own.into_iter().chain(run_parameters!("-N", "-i")).collect()
    }
}

impl Ior {
    /// # Errors
    /// When the parameters do not fit one another.
    pub fn program(&self) -> Result<Box<dyn Program>, WorkloadError> {
        Ok(Box::new(InStages(self.tables()?)))
    }

    fn refuse(&self, key: &'static str, value: String, want: &str) -> WorkloadError {
        WorkloadError::of(Self::NAME, key, value, want)
    }

    fn tables(&self) -> Result<IorTables, WorkloadError> {
        self.check()?;
        let shape = self.shape()?;
        let per_pass = shape.block / self.transfer.0 * shape.segments;
        let zipf = match self.pattern {
            IorPattern::Zipf => Some(self.zipf(shape.file_bytes)?),
            IorPattern::Sequential | IorPattern::Random => None,
        };
        let requests = match (self.requests, &zipf) {
            (Some(requests), _) => requests,
            (None, Some(_)) => {
                let sharers = if self.file_per_process { 1 } else { u64::from(self.run.processes) };
                shape.file_bytes / self.transfer.0 / sharers
            }
            (None, None) => per_pass,
        };
        if requests == 0 {
            return Err(self.refuse("requests", "0".to_owned(), "at least 1; give `requests`, or a larger `size`"));
        }
        let in_file = per_pass * if self.file_per_process { 1 } else { u64::from(self.run.processes) };
        let files = match self.file_per_process {
            false => vec![FileShape { path: self.run.file.clone(), size_bytes: shape.file_bytes }],
            true => (0..self.run.processes)
                .map(|process| {
                    // As IOR names them.
                    FileShape { path: format!("{}.{process:08}", self.run.file), size_bytes: shape.file_bytes }
                })
                .collect(),
        };
        let stages = stage_count(Self::NAME, &self.run, u64::from(self.phases) * u64::from(self.passes()))?;
        Ok(IorTables { ior: self.clone(), shape, requests, in_file, zipf, stages, files })
    }

    fn check(&self) -> Result<(), WorkloadError> {
        self.run.check(Self::NAME)?;
        if self.transfer.0 == 0 {
            return Err(self.refuse("transfer", self.transfer.to_string(), "at least 1 byte"));
        }
        if !(0.0..=100.0).contains(&self.a) {
            return Err(WorkloadError::Exponent { exponent: self.a });
        }
        if !(0.0..=1.0).contains(&self.reads) {
            return Err(self.refuse("reads", self.reads.to_string(), "a share from 0 to 1"));
        }
        if self.phases == 0 || (self.phases > 1 && self.pattern != IorPattern::Zipf) {
            let want = "1; only pattern=zipf has popular regions that can change";
            return Err(self.refuse("phases", self.phases.to_string(), want));
        }
        Ok(())
    }

    fn shape(&self) -> Result<Shape, WorkloadError> {
        let processes = u64::from(self.run.processes);
        let transfer = self.transfer;
        let too_large = || self.refuse("size", "beyond 8 EiB".to_owned(), "a file that an offset of 63 bits can reach");
        let (block, segments, total) = match (self.size, self.block, self.segments) {
            (Some(size), Some(_), Some(_)) => {
                let want = "two of `size`, `block` and `segments`";
                return Err(self.refuse("size", size.to_string(), want));
            }
            (Some(size), Some(block), None) => {
                let step = block.0.checked_mul(processes).ok_or_else(too_large)?;
                (block.0, size.0.checked_div(step).unwrap_or(0), Some(size.0))
            }
            (Some(size), None, segments) => {
                let segments = segments.unwrap_or(1);
                let parts = segments.checked_mul(processes).ok_or_else(too_large)?;
                let block = size.0.checked_div(parts).unwrap_or(0) / transfer.0 * transfer.0;
                (block, segments, Some(size.0))
            }
            (None, block, segments) => (block.unwrap_or(DEFAULT_BLOCK).0, segments.unwrap_or(1), None),
        };
        if block == 0 || !block.is_multiple_of(transfer.0) {
            return match (self.block, self.size) {
                (None, Some(size)) => {
                    let want =
                        format!("at least a transfer of {transfer} for each of {processes} processes in each segment");
                    Err(self.refuse("size", size.to_string(), &want))
                }
                _ => Err(self.refuse(
                    "block",
                    ByteCount(block).to_string(),
                    &format!("a multiple of transfer={transfer}"),
                )),
            };
        }
        if segments == 0 {
            let want = format!("at least one segment: {processes} blocks of {}", ByteCount(block));
            let size = self.size.map_or_else(|| "0".to_owned(), |size| size.to_string());
            return Err(self.refuse(if self.size.is_some() { "size" } else { "segments" }, size, &want));
        }
        let share = block.checked_mul(segments).ok_or_else(too_large)?;
        let covered = share.checked_mul(processes).and_then(largest_file).ok_or_else(too_large)?;
        // Zipf's regions may reach beyond the last whole round of blocks.
        let total = total.filter(|_| self.pattern == IorPattern::Zipf).unwrap_or(covered);
        let file_bytes = if self.file_per_process { total / processes } else { total };
        Ok(Shape { block, segments, file_bytes })
    }

    fn zipf(&self, file_bytes: u64) -> Result<ZipfRegions, WorkloadError> {
        let (region, transfer) = (self.region, self.transfer);
        if region.0 < transfer.0 {
            return Err(self.refuse("region", region.to_string(), &format!("at least transfer={transfer}")));
        }
        let regions = u32::try_from(file_bytes / region.0).unwrap_or(u32::MAX);
        if regions == 0 {
            let want = format!("at most the file of {}; make it smaller, or the file larger", ByteCount(file_bytes));
            return Err(self.refuse("region", region.to_string(), &want));
        }
        if self.phases > regions {
            let want = format!("at most {regions}, the number of regions");
            return Err(self.refuse("phases", self.phases.to_string(), &want));
        }
        Ok(ZipfRegions::new(regions, region.0, self.a, self.run.seed))
    }

    fn passes(&self) -> u32 {
        if self.op == IorOperation::Both { 2 } else { 1 }
    }
}

/// Bytes, all checked to fit.
struct Shape {
    block: u64,
    segments: u64,
    file_bytes: u64,
}

struct IorTables {
    ior: Ior,
    shape: Shape,
    /// Of each process in each stage.
    requests: u64,
    /// Transfers of the blocks of a file.
    in_file: u64,
    zipf: Option<ZipfRegions>,
    stages: u32,
    files: Vec<FileShape>,
}

/// Where the next request of a process lies.
enum Place<'a> {
    /// Transfer `transfer` of the block that begins at `block_start`, in segment `segment`.
    Sequential {
        block_start: u64,
        within: u64,
        segment: u64,
        first: u64,
        stride: u64,
    },
    Random {
        permutation: Permutation,
        index: u64,
        step: u64,
    },
    Zipf {
        regions: &'a ZipfRegions,
        random: SplitMix64,
        rotation: u32,
    },
}

/// Reads or writes, or which is drawn.
enum Drawn {
    Always(Direction),
    Mixed { random: SplitMix64, reads: f64 },
}

impl IorTables {
    /// Which phase of the whole run, and which pass of it.
    fn position(&self, stage: u32) -> (u32, u32) {
        (stage / self.ior.passes(), stage % self.ior.passes())
    }

    fn direction(&self, process: u32, stage: u32) -> Drawn {
        let ior = &self.ior;
        let seed = ior.run.seed;
        match (ior.op, self.position(stage).1) {
            (IorOperation::Read, _) | (IorOperation::Both, 1) => Drawn::Always(Direction::Read),
            (IorOperation::Write | IorOperation::Both, _) => Drawn::Always(Direction::Write),
            (IorOperation::Mixed, _) => {
                // A stream of its own: the offsets are those of the other operations.
                let seed = seed.wrapping_add(u64::from(stage)) ^ MIXED_STREAM;
                Drawn::Mixed { random: of_rank(seed, process), reads: ior.reads }
            }
        }
    }

    /// Whose share a process works on: with `-C` it reads what the next node wrote.
    fn owner(&self, process: u32, stage: u32) -> u32 {
        let run = &self.ior.run;
        let reads = match self.ior.op {
            IorOperation::Read => true,
            IorOperation::Both => self.position(stage).1 == 1,
            IorOperation::Write | IorOperation::Mixed => false,
        };
        if !self.ior.reorder || !reads {
            return process;
        }
        let per_node = run.processes.div_ceil(run.nodes());
        ((u64::from(process) + u64::from(per_node)) % u64::from(run.processes)) as u32
    }

    fn place(&self, owner: u32, stage: u32) -> Place<'_> {
        let (ior, shape) = (&self.ior, &self.shape);
        let (alone, processes) = (ior.file_per_process, u64::from(ior.run.processes));
        let (share, sharers) = if alone { (0, 1) } else { (u64::from(owner), processes) };
        match (&self.zipf, ior.pattern) {
            (Some(regions), _) => {
                let phase = self.position(stage).0 % ior.phases;
                let rotation = u64::from(phase) * u64::from(regions.regions()) / u64::from(ior.phases);
                // Phase 0 of the first pass is the documented sequence; the passes of a phase make the same requests.
                let random = of_rank(ior.run.seed.wrapping_add(u64::from(phase)), owner);
                Place::Zipf { regions, random, rotation: rotation as u32 }
            }
            (None, IorPattern::Random) => {
                let seed = if alone { ior.run.seed.wrapping_add(u64::from(owner)) } else { ior.run.seed };
                Place::Random { permutation: Permutation::new(self.in_file, seed), index: share, step: sharers }
            }
            (None, _) => {
                let first = share * shape.block;
                Place::Sequential { block_start: first, within: 0, segment: 0, first, stride: sharers * shape.block }
            }
        }
    }
}

impl Staged for IorTables {
    fn run(&self) -> &Run {
        &self.ior.run
    }

    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn stages(&self) -> u32 {
        self.stages
    }

    fn phases(&self) -> u32 {
        if self.ior.phases == 1 { 1 } else { self.ior.run.repetitions * self.ior.phases }
    }

    fn entry(&self, stage: u32) -> [Option<Step>; 2] {
        if self.ior.phases > 1 && stage > 0 && self.position(stage).1 == 0 {
            return [Some(Step::Phase), None];
        }
        barrier_after_first(stage)
    }

    fn requests(&self, process: u32, stage: u32) -> impl Iterator<Item = IoRequest> + Send + '_ {
        let owner = self.owner(process, stage);
        let (mut place, mut drawn) = (self.place(owner, stage), self.direction(process, stage));
        let file = ProgramFile(if self.ior.file_per_process { owner } else { 0 });
        let (transfer, block, segments) = (self.ior.transfer.0, self.shape.block, self.shape.segments);
        let in_file = self.in_file;
        (0..self.requests).map(move |_| {
            let offset = match &mut place {
                Place::Sequential { block_start, within, segment, first, stride } => {
                    let offset = *block_start + *within;
                    *within += transfer;
                    if *within == block {
                        (*within, *block_start, *segment) = (0, *block_start + *stride, *segment + 1);
                        if *segment == segments {
                            (*block_start, *segment) = (*first, 0);
                        }
                    }
                    offset
                }
                Place::Random { permutation, index, step } => {
                    let offset = permutation.at(*index) * transfer;
                    *index += *step;
                    if *index >= in_file {
                        *index -= in_file;
                    }
                    offset
                }
                Place::Zipf { regions, random, rotation } => regions.next_offset(random, transfer, *rotation),
            };
            let direction = match &mut drawn {
                Drawn::Always(direction) => *direction,
                Drawn::Mixed { random, reads } => {
                    if random.unit() < *reads {
                        Direction::Read
                    } else {
                        Direction::Write
                    }
                }
            };
            IoRequest { file, kind: direction.into(), offset: FileOffset(offset), bytes: transfer }
        })
    }
}

#[cfg(test)]
mod tests;
