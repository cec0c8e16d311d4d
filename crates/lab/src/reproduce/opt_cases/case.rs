//! The cases: machines and programs.

use super::super::script::SHARED;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use stripewise::laboratory::Lab;
use stripewise_device::{DeviceSpec, lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, FileOffset};
use stripewise_trace::{FileShape, Generator, IoRequest, Program, ProgramFile, Step, Workload};

pub(in super::super) const REGION: ByteCount = ByteCount(64 << 20);
pub(in super::super) const FILE: ByteCount = ByteCount(128 << 30);
const ZIPF: f64 = 0.8;
const SSD_SHARE: u64 = 6;
pub(in super::super) const HDDS: usize = 12;
pub(in super::super) const SSDS: usize = 4;
pub(super) const SIZES: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
const PROCESSES: [u32; 2] = [32, 128];
/// Of a run with draws, all processes together: enough for 1 % of uncertainty over the repetitions.
const REQUESTS: u64 = 64_000;

/// The two kinds of disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Disk {
    Fast,
    /// With 5 ms of startup for what continues no stream.
    Seeking,
}

impl Disk {
    pub(in super::super) fn name(self) -> &'static str {
        match self {
            Disk::Fast => "0.3ms",
            Disk::Seeking => "5ms",
        }
    }

    /// As `stripewise devices` lists it.
    pub(in super::super) fn device_name(self) -> &'static str {
        match self {
            Disk::Fast => "paper-hdd",
            Disk::Seeking => "paper-hdd-5ms",
        }
    }

    pub(in super::super) fn device(self) -> Result<DeviceSpec> {
        Ok(lookup_device(self.device_name())?)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(in super::super) enum Pattern {
    /// Zipf-distributed reads.
    Zipf,
    /// All processes march through the file together, writing it and then reading it.
    InOrder,
    /// Zipf-distributed, each request a read or a write.
    Mix,
    /// Half of the processes read in order, the others Zipf-distributed.
    MixOrder,
}

impl Pattern {
    const ALL: [Pattern; 4] = [Pattern::Zipf, Pattern::InOrder, Pattern::Mix, Pattern::MixOrder];
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Pattern::Zipf => "zipf",
            Pattern::InOrder => "in-order",
            Pattern::Mix => "mix",
            Pattern::MixOrder => "mix-order",
        })
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(in super::super) struct Case {
    pub(in super::super) disk: Disk,
    pub(in super::super) request_bytes: u64,
    pub(in super::super) processes: u32,
    pub(in super::super) pattern: Pattern,
    /// In each pass.
    pub(in super::super) requests_per_process: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{}", self.disk.name(), ByteCount(self.request_bytes), self.processes, self.pattern)
    }
}

impl Case {
    /// Zipf with few and with many processes, the other patterns with few.
    pub(in super::super) fn all() -> Vec<Case> {
        let mut cases = Vec::new();
        for pattern in Pattern::ALL {
            for processes in PROCESSES.into_iter().filter(|processes| pattern == Pattern::Zipf || *processes == 32) {
                for disk in [Disk::Fast, Disk::Seeking] {
                    cases.extend(SIZES.map(|request_bytes| Self::new(disk, request_bytes, processes, pattern)));
                }
            }
        }
        cases
    }

    fn new(disk: Disk, request_bytes: u64, processes: u32, pattern: Pattern) -> Self {
        let whole_file = FILE.0 / request_bytes;
        let requests = match pattern {
            Pattern::InOrder => whole_file,
            Pattern::Zipf | Pattern::Mix | Pattern::MixOrder => REQUESTS,
        };
        Self { disk, request_bytes, processes, pattern, requests_per_process: requests / u64::from(processes) }
    }

    /// Zipf-distributed reads of few processes.
    pub(in super::super) fn is_one_of_the_eight(&self) -> bool {
        (self.pattern, self.processes) == (Pattern::Zipf, 32)
    }

    /// With fewer requests, all processes together.
    pub(in super::super) fn shortened(self, requests: u64) -> Self {
        Self { requests_per_process: requests / u64::from(self.processes), ..self }
    }

    /// Whether runs differ.
    pub(in super::super) fn is_drawn(&self) -> bool {
        self.pattern != Pattern::InOrder
    }

    /// Whether processes go through the file side by side, so that the order of their requests counts.
    pub(in super::super) fn marches(&self) -> bool {
        matches!(self.pattern, Pattern::InOrder | Pattern::MixOrder)
    }

    pub(in super::super) fn lab(&self) -> Result<Lab> {
        lab(self.disk)
    }

    /// Run `number` of the program: the same popularity, other draws.
    pub(in super::super) fn run(&self, seed: u64, number: u64) -> Result<Run> {
        let zipf = Workload {
            pattern: stripewise_trace::Pattern::Zipf { exponent: ZIPF, region_size: REGION },
            file_size: FILE,
            request_size: ByteCount(self.request_bytes),
            direction: Direction::Read,
            ranks: self.processes,
            requests_per_rank: self.requests_per_process * (number + 1),
            seed,
        };
        let files = vec![FileShape { path: SHARED.to_owned(), size_bytes: FILE.0 }];
        Ok(Run { case: *self, zipf: zipf.generator()?, number, files })
    }
}

/// The machines, with space for the share of the file on SSDs.
pub(in super::super) fn lab(disk: Disk) -> Result<Lab> {
    let (ssd, link) = (lookup_device("paper-ssd")?, lookup_link("gigabit")?);
    let capacity = ByteCount(FILE.0 / SSD_SHARE / SSDS as u64);
    Ok(Lab::hybrid((HDDS, disk.device()?), (SSDS, ssd), link, Some(capacity), REGION))
}

/// One run of a case.
pub(in super::super) struct Run {
    case: Case,
    zipf: Generator,
    /// Draws of earlier runs are skipped.
    number: u64,
    files: Vec<FileShape>,
}

type Steps<'a> = Box<dyn Iterator<Item = Step> + Send + 'a>;

impl Run {
    fn access(&self, direction: Direction, offset: FileOffset) -> Step {
        Step::Access(IoRequest { file: ProgramFile(0), kind: direction.into(), offset, bytes: self.case.request_bytes })
    }

    fn drawn(&self, process: u32, direction: impl Fn(u64) -> Direction + Send + 'static) -> Steps<'_> {
        let skipped = self.case.requests_per_process * self.number;
        let requests = self.zipf.requests(process).skip(skipped as usize).enumerate();
        Box::new(requests.map(move |(number, request)| self.access(direction(number as u64), request.offset)))
    }

    /// Request i of the r-th of `of` processes is request i x `of` + r of the file, again from its start when through.
    fn marching(&self, r: u32, of: u32, direction: Direction) -> Steps<'_> {
        let bytes = self.case.request_bytes;
        let place = move |i: u64| (i * u64::from(of) + u64::from(r)) % (FILE.0 / bytes) * bytes;
        let steps = (0..self.case.requests_per_process).map(move |i| self.access(direction, FileOffset(place(i))));
        Box::new(steps)
    }
}

impl Program for Run {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        self.case.processes
    }

    /// A node for each process: the cases have no client links.
    fn nodes(&self) -> u32 {
        self.case.processes
    }

    fn phases(&self) -> u32 {
        1
    }

    fn steps(&self, process: u32) -> Steps<'_> {
        let half = self.case.processes / 2;
        match self.case.pattern {
            Pattern::Zipf => self.drawn(process, |_| Direction::Read),
            Pattern::Mix => self.drawn(process, move |number| {
                // Of two neighbouring requests of a process one is a read.
                if (number + u64::from(process)).is_multiple_of(2) { Direction::Read } else { Direction::Write }
            }),
            Pattern::InOrder => {
                let written = self.marching(process, self.case.processes, Direction::Write);
                let read = self.marching(process, self.case.processes, Direction::Read);
                Box::new(written.chain([Step::Barrier]).chain(read))
            }
            Pattern::MixOrder if process < half => self.marching(process, half, Direction::Read),
            Pattern::MixOrder => self.drawn(process, |_| Direction::Read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn offsets(run: &Run, process: u32) -> Vec<u64> {
        let offset = |step| if let Step::Access(request) = step { Some(request.offset.0) } else { None };
        run.steps(process).filter_map(offset).collect()
    }

    #[test]
    fn there_are_cases_of_every_kind_with_names_of_their_own() {
        let cases = Case::all();
        let names: HashSet<String> = cases.iter().map(Case::to_string).collect();
        assert_eq!((cases.len(), names.len()), (40, 40));
        assert!(names.contains("5ms-256KiB-128-zipf") && names.contains("0.3ms-4MiB-32-mix-order"));
    }

    #[test]
    fn runs_draw_anew_from_the_same_popularity() {
        let case = Case { requests_per_process: 500, ..Case::all()[0] };
        let (first, second) = (case.run(1, 0).unwrap(), case.run(1, 1).unwrap());
        assert_eq!((offsets(&first, 3).len(), offsets(&second, 3).len()), (500, 500));
        assert_ne!(offsets(&first, 3), offsets(&second, 3));
        let hottest = |run: &Run| {
            let mut counts = vec![0u32; 2048];
            (0..32).flat_map(|process| offsets(run, process)).for_each(|offset| counts[(offset >> 26) as usize] += 1);
            (0..2048).max_by_key(|region| counts[*region]).unwrap()
        };
        assert_eq!(hottest(&first), hottest(&second));
    }

    #[test]
    fn processes_march_through_the_file_side_by_side() {
        let in_order = Case { pattern: Pattern::InOrder, requests_per_process: 10, ..Case::all()[0] };
        let run = in_order.run(1, 0).unwrap();
        let mut all: Vec<u64> = (0..32).flat_map(|process| offsets(&run, process)[..10].to_vec()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..320).map(|place| place << 16).collect::<Vec<u64>>());
        let directions: Vec<Direction> = run
            .steps(5)
            .filter_map(|step| if let Step::Access(request) = step { Some(request.direction()) } else { None })
            .collect();
        assert_eq!(directions, [[Direction::Write; 10], [Direction::Read; 10]].concat());
    }
}
