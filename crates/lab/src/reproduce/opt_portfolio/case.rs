//! The varied cases: machines, and programs that draw or march.

use anyhow::Result;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use stripewise::laboratory::{Lab, Machine};
use stripewise_device::{DeviceSpec, HddSpec, Service, SsdSpec, lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, FileOffset, ServerClass};
use stripewise_trace::{FileShape, IoRequest, Program, ProgramFile, Step};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
pub(super) const REGION: ByteCount = ByteCount(64 * MIB);
/// Of a run with draws, at least: of all processes of a program together, and of each, so that few requests more or less do not make one the last.
const REQUESTS: u64 = 24_000;
const REQUESTS_EACH: u64 = 500;
/// Of processes that do not start together, the last one begins so much later: many requests.
const LATEST_NS: u64 = 200_000_000;

/// Kinds of devices.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Kind {
    /// 0.3 ms of random startup.
    Fast,
    /// 5 ms.
    Seeking,
    /// 5 ms, and half of the transfer rate.
    Slow,
    Ssd,
    /// An SSD that writes at a seventh of its rate.
    SlowWrites,
    /// An SSD with a third of the rate.
    OldSsd,
}

impl Kind {
    fn device(self) -> Result<DeviceSpec> {
        let slower = |service: Service, factor: f64| Service {
            transfer_s_per_byte: service.transfer_s_per_byte * factor,
            ..service
        };
        let named = match self {
            Kind::Fast => "paper-hdd",
            Kind::Seeking | Kind::Slow => "paper-hdd-5ms",
            Kind::Ssd | Kind::SlowWrites | Kind::OldSsd => "paper-ssd",
        };
        Ok(match (self, lookup_device(named)?) {
            (Kind::Slow, DeviceSpec::Hdd(hdd)) => {
                DeviceSpec::Hdd(HddSpec { read: slower(hdd.read, 2.0), write: slower(hdd.write, 2.0), ..hdd })
            }
            (Kind::SlowWrites, DeviceSpec::Ssd(ssd)) => {
                DeviceSpec::Ssd(SsdSpec { write: slower(ssd.write, 7.0), ..ssd })
            }
            (Kind::OldSsd, DeviceSpec::Ssd(ssd)) => {
                DeviceSpec::Ssd(SsdSpec { read: slower(ssd.read, 9.0), write: slower(ssd.write, 9.0), ..ssd })
            }
            (_, device) => device,
        })
    }

    fn class(self) -> ServerClass {
        match self {
            Kind::Fast | Kind::Seeking | Kind::Slow => ServerClass::Hdd,
            Kind::Ssd | Kind::SlowWrites | Kind::OldSsd => ServerClass::Ssd,
        }
    }
}

/// Where a program's requests go.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Pattern {
    /// Regions by Zipf's law, in a drawn order.
    Zipf(f64),
    /// So much of the requests to the first so much of the file.
    HotSpot { requests: f64, file: f64 },
    /// Request i of rank r is request i n + r of the file: all of it is written, then read.
    Checkpoint { together: bool },
}

/// One program on a file of its own.
#[derive(Clone, PartialEq, Debug)]
struct Part {
    processes: u32,
    file_bytes: u64,
    pattern: Pattern,
    /// Sizes and how often each is drawn.
    sizes: Vec<(u64, f64)>,
    /// Share of writes among drawn requests.
    writes: f64,
}

/// One case.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Case {
    pub(super) name: &'static str,
    machines: Vec<(usize, Kind)>,
    /// SSD capacity as a share of all data.
    capacity: f64,
    parts: Vec<Part>,
}

fn drawn(processes: u32, pattern: Pattern, sizes: &[(u64, f64)], writes: f64) -> Part {
    Part { processes, file_bytes: 32 * GIB, pattern, sizes: sizes.to_vec(), writes }
}

fn zipf(processes: u32, request_bytes: u64) -> Part {
    drawn(processes, Pattern::Zipf(0.8), &[(request_bytes, 1.0)], 0.0)
}

fn mixed(exponent: f64, processes: u32, request_bytes: u64) -> Part {
    drawn(processes, Pattern::Zipf(exponent), &[(request_bytes, 1.0)], 0.5)
}

fn checkpoint(processes: u32, request_bytes: u64, file_bytes: u64, together: bool) -> Part {
    let pattern = Pattern::Checkpoint { together };
    Part { processes, file_bytes, pattern, sizes: vec![(request_bytes, 1.0)], writes: 0.0 }
}

/// All of them.
pub(super) fn all() -> Vec<Case> {
    use Kind::{Fast, OldSsd, Seeking, Slow, SlowWrites, Ssd};
    let hybrid = |hdds, hdd, ssds| vec![(hdds, hdd), (ssds, Ssd)];
    let case = |name, machines, capacity, part| Case { name, machines, capacity, parts: vec![part] };
    let sixth = 1.0 / 6.0;
    let (k64, k256, m1, m4) = (64 * KIB, 256 * KIB, MIB, 4 * MIB);
    let hot_spot = |processes, size, requests, file, writes| {
        drawn(processes, Pattern::HotSpot { requests, file }, &[(size, 1.0)], writes)
    };
    let bimodal = |processes, sizes: [(u64, f64); 2], writes| drawn(processes, Pattern::Zipf(0.8), &sizes, writes);
    vec![
        case("zipf-3h1s-5ms-256KiB-32", hybrid(3, Seeking, 1), sixth, zipf(32, k256)),
        case("zipf-3h1s-0.3ms-64KiB-16", hybrid(3, Fast, 1), sixth, zipf(16, k64)),
        case("zipf-6h2s-5ms-64KiB-32", hybrid(6, Seeking, 2), sixth, zipf(32, k64)),
        case("zipf-6h2s-0.3ms-1MiB-64", hybrid(6, Fast, 2), sixth, zipf(64, m1)),
        case("zipf-20h2s-5ms-256KiB-128", hybrid(20, Seeking, 2), sixth, zipf(128, k256)),
        case("zipf-20h2s-0.3ms-64KiB-128", hybrid(20, Fast, 2), sixth, zipf(128, k64)),
        case("zipf-12h4s-5ms-256KiB-128", hybrid(12, Seeking, 4), sixth, zipf(128, k256)),
        case("zipf-12h4s-0.3ms-64KiB-128", hybrid(12, Fast, 4), sixth, zipf(128, k64)),
        case("zipf-12h4s-5ms-4MiB-32", hybrid(12, Seeking, 4), sixth, zipf(32, m4)),
        case("zipf-4h4s-5ms-1MiB-16", hybrid(4, Seeking, 4), sixth, zipf(16, m1)),
        case("zipf1.2-mix-12h4s-5ms-64KiB-32", hybrid(12, Seeking, 4), sixth, mixed(1.2, 32, k64)),
        case("zipf1.2-mix-12h4s-0.3ms-256KiB-128", hybrid(12, Fast, 4), sixth, mixed(1.2, 128, k256)),
        case("zipf1.2-mix-6h2s-5ms-256KiB-64", hybrid(6, Seeking, 2), sixth, mixed(1.2, 64, k256)),
        case("zipf1.2-mix-20h2s-5ms-1MiB-32", hybrid(20, Seeking, 2), sixth, mixed(1.2, 32, m1)),
        case("room-2-12h4s-5ms-256KiB-64", hybrid(12, Seeking, 4), 0.02, zipf(64, k256)),
        case("room-2-12h4s-0.3ms-64KiB-32", hybrid(12, Fast, 4), 0.02, zipf(32, k64)),
        case("room-10-20h2s-5ms-1MiB-64", hybrid(20, Seeking, 2), 0.1, zipf(64, m1)),
        case("room-50-12h4s-5ms-64KiB-64", hybrid(12, Seeking, 4), 0.5, zipf(64, k64)),
        case("room-50-6h2s-0.3ms-1MiB-16", hybrid(6, Fast, 2), 0.5, zipf(16, m1)),
        case(
            "bimodal-12h4s-5ms-16KiB-1MiB-32",
            hybrid(12, Seeking, 4),
            sixth,
            bimodal(32, [(16 * KIB, 0.8), (m1, 0.2)], 0.0),
        ),
        case(
            "bimodal-12h4s-0.3ms-64KiB-4MiB-64",
            hybrid(12, Fast, 4),
            sixth,
            bimodal(64, [(k64, 0.5), (m4, 0.5)], 0.0),
        ),
        case(
            "bimodal-6h2s-5ms-4KiB-256KiB-128",
            hybrid(6, Seeking, 2),
            sixth,
            bimodal(128, [(4 * KIB, 0.9), (k256, 0.1)], 0.0),
        ),
        case(
            "bimodal-mix-12h4s-5ms-64KiB-1MiB-32",
            hybrid(12, Seeking, 4),
            sixth,
            bimodal(32, [(k64, 0.7), (m1, 0.3)], 0.5),
        ),
        case("hotspot-12h4s-5ms-256KiB-32", hybrid(12, Seeking, 4), sixth, hot_spot(32, k256, 0.9, 0.05, 0.0)),
        case("hotspot-12h4s-0.3ms-64KiB-128", hybrid(12, Fast, 4), sixth, hot_spot(128, k64, 0.9, 0.05, 0.0)),
        case("hotspot-20h2s-5ms-1MiB-32", hybrid(20, Seeking, 2), sixth, hot_spot(32, m1, 0.8, 0.2, 0.0)),
        case("hotspot-write-6h2s-5ms-256KiB-64", hybrid(6, Seeking, 2), sixth, hot_spot(64, k256, 0.9, 0.1, 1.0)),
        case("even-12h4s-5ms-256KiB-64", hybrid(12, Seeking, 4), sixth, hot_spot(64, k256, 1.0, 1.0, 0.0)),
        case("checkpoint-12h4s-5ms-1MiB-16", hybrid(12, Seeking, 4), sixth, checkpoint(16, m1, 8 * GIB, true)),
        case("checkpoint-late-12h4s-5ms-1MiB-16", hybrid(12, Seeking, 4), sixth, checkpoint(16, m1, 8 * GIB, false)),
        case("checkpoint-12h4s-0.3ms-64KiB-64", hybrid(12, Fast, 4), sixth, checkpoint(64, k64, 2 * GIB, true)),
        case("checkpoint-late-12h4s-0.3ms-64KiB-64", hybrid(12, Fast, 4), sixth, checkpoint(64, k64, 2 * GIB, false)),
        case("checkpoint-late-6h2s-5ms-4MiB-32", hybrid(6, Seeking, 2), 0.5, checkpoint(32, m4, 32 * GIB, false)),
        case(
            "slow-writes-12h4s-0.3ms-256KiB-64",
            vec![(12, Fast), (4, SlowWrites)],
            sixth,
            drawn(64, Pattern::Zipf(0.8), &[(k256, 1.0)], 1.0),
        ),
        case("slow-writes-mix-12h4s-5ms-256KiB-32", vec![(12, Seeking), (4, SlowWrites)], sixth, mixed(0.8, 32, k256)),
        case("speeds-12h4s-256KiB-64", vec![(4, Fast), (4, Seeking), (4, Slow), (4, Ssd)], sixth, zipf(64, k256)),
        case("speeds-12h4s-1MiB-32", vec![(4, Fast), (4, Seeking), (4, Slow), (4, Ssd)], 0.1, zipf(32, m1)),
        case("speeds-8h4s-64KiB-64", vec![(4, Seeking), (4, Slow), (2, Ssd), (2, OldSsd)], sixth, mixed(0.8, 64, k64)),
        Case {
            name: "two-12h4s-5ms-zipf-64KiB-32-checkpoint-1MiB-16",
            machines: hybrid(12, Seeking, 4),
            capacity: sixth,
            parts: vec![zipf(32, k64), checkpoint(16, m1, 8 * GIB, false)],
        },
        Case {
            name: "two-12h4s-5ms-zipf-256KiB-64-even-1MiB-32",
            machines: hybrid(12, Seeking, 4),
            capacity: sixth,
            parts: vec![zipf(64, k256), hot_spot(32, m1, 1.0, 1.0, 0.0)],
        },
    ]
}

impl Case {
    pub(super) fn lab(&self) -> Result<Lab> {
        let link = Some(lookup_link("gigabit")?);
        let data: u64 = self.parts.iter().map(|part| part.file_bytes).sum();
        let is_ssd = |kind: &Kind| kind.class() == ServerClass::Ssd;
        let ssds: usize = self.machines.iter().filter(|(_, kind)| is_ssd(kind)).map(|(count, _)| count).sum();
        let capacity = ByteCount((data as f64 * self.capacity / ssds as f64) as u64);
        let mut machines = Vec::new();
        for (count, kind) in &self.machines {
            let capacity = is_ssd(kind).then_some(capacity);
            let machine = Machine { class: kind.class(), device: kind.device()?, link, capacity };
            machines.extend(std::iter::repeat_n(machine, *count));
        }
        Ok(Lab::new(&machines, REGION))
    }

    /// The starts that it is judged with, each as a case. What a common start gives hangs on a perfect order that nobody makes: where processes
    /// march from one, plans are judged with a late start as well.
    pub(super) fn starts(&self) -> Vec<(&'static str, Case)> {
        let late = |part: &Part| match part.pattern {
            Pattern::Checkpoint { .. } => Part { pattern: Pattern::Checkpoint { together: false }, ..part.clone() },
            _ => part.clone(),
        };
        let late = Case { parts: self.parts.iter().map(late).collect(), ..self.clone() };
        let mut starts = vec![("together", self.clone())];
        if late != *self {
            starts.push(("late", late));
        }
        starts
    }

    /// The same programs on files of so many bytes.
    #[cfg(test)]
    pub(super) fn shortened(&self, file_bytes: u64) -> Case {
        let parts = self.parts.iter().map(|part| Part { file_bytes, ..part.clone() });
        Case { parts: parts.collect(), ..self.clone() }
    }

    /// Run `number`: the same popularity, other draws.
    pub(super) fn run(&self, seed: u64, number: u64) -> Run {
        let mut files = Vec::new();
        let mut regions = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            files.push(FileShape { path: format!("/data/file{place}"), size_bytes: part.file_bytes });
            regions.push(part.popularity(seed + place as u64));
        }
        Run { case: self.clone(), regions, seed: seed ^ number << 40, files }
    }
}

impl Part {
    /// Regions, each with the share of the requests that go to it and to those before it.
    fn popularity(&self, seed: u64) -> Vec<(u64, f64)> {
        let count = self.file_bytes / REGION.0;
        let weights: Vec<f64> = match self.pattern {
            Pattern::Zipf(exponent) => (0..count).map(|rank| 1.0 / (rank as f64 + 1.0).powf(exponent)).collect(),
            Pattern::HotSpot { requests, file } => {
                let hot = ((count as f64 * file).round() as u64).clamp(1, count);
                let cold = (count - hot).max(1) as f64;
                (0..count)
                    .map(|rank| if rank < hot { requests / hot as f64 } else { (1.0 - requests) / cold })
                    .collect()
            }
            Pattern::Checkpoint { .. } => vec![1.0; count as usize],
        };
        let mut order: Vec<u64> = (0..count).collect();
        if matches!(self.pattern, Pattern::Zipf(_)) {
            order.shuffle(&mut SmallRng::seed_from_u64(seed));
        }
        let sum: f64 = weights.iter().sum();
        let shares = weights.iter().scan(0.0, |end, weight| {
            *end += weight / sum;
            Some(*end)
        });
        order.into_iter().zip(shares).collect()
    }
}

/// One run of a case.
pub(super) struct Run {
    case: Case,
    /// By file.
    regions: Vec<Vec<(u64, f64)>>,
    seed: u64,
    files: Vec<FileShape>,
}

impl Run {
    /// The part that a process belongs to, and its number there.
    fn part_of(&self, process: u32) -> (usize, u32) {
        let mut before = 0;
        for (place, part) in self.case.parts.iter().enumerate() {
            if process < before + part.processes {
                return (place, process - before);
            }
            before += part.processes;
        }
        (0, process)
    }

    fn drawn(&self, place: usize, mut random: SmallRng) -> impl Iterator<Item = Step> + Send + '_ {
        let part = &self.case.parts[place];
        let each = (REQUESTS / u64::from(part.processes)).max(REQUESTS_EACH);
        (0..each).map(move |_| {
            let share: f64 = random.random();
            let regions = &self.regions[place];
            let (region, _) = regions[regions.partition_point(|(_, end)| *end <= share).min(regions.len() - 1)];
            let mut left: f64 = random.random();
            let size = part.sizes.iter().find(|(_, often)| {
                left -= often;
                left < 0.0
            });
            let bytes = size.unwrap_or(&part.sizes[0]).0;
            let offset = region * REGION.0 + random.random_range(0..REGION.0 / bytes) * bytes;
            let direction = if random.random::<f64>() < part.writes { Direction::Write } else { Direction::Read };
            step(place, direction, offset, bytes)
        })
    }

    fn checkpoint(&self, place: usize, rank: u32, direction: Direction) -> impl Iterator<Item = Step> + Send + 'static {
        let part = &self.case.parts[place];
        let (bytes, ranks) = (part.sizes[0].0, u64::from(part.processes));
        let each = part.file_bytes / bytes / ranks;
        (0..each).map(move |number| step(place, direction, (number * ranks + u64::from(rank)) * bytes, bytes))
    }
}

fn step(place: usize, direction: Direction, offset: u64, bytes: u64) -> Step {
    Step::Access(IoRequest {
        file: ProgramFile(place as u32),
        kind: direction.into(),
        offset: FileOffset(offset),
        bytes,
    })
}

impl Program for Run {
    fn files(&self) -> &[FileShape] {
        &self.files
    }

    fn processes(&self) -> u32 {
        self.case.parts.iter().map(|part| part.processes).sum()
    }

    /// A node for each process: the cases have no client links.
    fn nodes(&self) -> u32 {
        self.processes()
    }

    fn phases(&self) -> u32 {
        1
    }

    fn steps(&self, process: u32) -> Box<dyn Iterator<Item = Step> + Send + '_> {
        let (place, rank) = self.part_of(process);
        let mut random = SmallRng::seed_from_u64(self.seed ^ u64::from(process) << 20);
        match self.case.parts[place].pattern {
            Pattern::Zipf(_) | Pattern::HotSpot { .. } => Box::new(self.drawn(place, random)),
            Pattern::Checkpoint { together } => {
                let late = if together { 0 } else { random.random_range(0..LATEST_NS) };
                let phases = [Direction::Write, Direction::Read];
                let steps = phases.map(|direction| {
                    std::iter::once(Step::Think { nanoseconds: late }).chain(self.checkpoint(place, rank, direction))
                });
                Box::new(steps.into_iter().flatten())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn there_are_forty_cases_with_names_of_their_own() {
        let cases = all();
        let names: HashSet<&str> = cases.iter().map(|case| case.name).collect();
        assert_eq!((cases.len(), names.len()), (40, 40));
    }

    #[test]
    fn runs_of_a_case_differ_but_not_in_what_is_popular() {
        let case = &all()[0];
        let offsets = |run: &Run| -> Vec<u64> {
            let offset = |step| if let Step::Access(request) = step { Some(request.offset.0) } else { None };
            (0..run.processes()).flat_map(|process| run.steps(process).filter_map(offset).collect::<Vec<_>>()).collect()
        };
        let (first, second) = (offsets(&case.run(1, 0)), offsets(&case.run(1, 1)));
        assert_eq!(first.len() as u64, REQUESTS);
        assert_ne!(first, second);
        let hottest = |offsets: &[u64]| {
            let mut counts = vec![0u32; 512];
            offsets.iter().for_each(|offset| counts[(offset / REGION.0) as usize] += 1);
            (0..512).max_by_key(|region| counts[*region]).unwrap()
        };
        assert_eq!(hottest(&first), hottest(&second));
    }

    #[test]
    fn only_what_starts_together_is_judged_with_both_starts() {
        let starts = |name: &str| -> Vec<&'static str> {
            let case = all().into_iter().find(|case| case.name == name).unwrap();
            case.starts().into_iter().map(|(start, _)| start).collect()
        };
        assert_eq!(starts("checkpoint-12h4s-5ms-1MiB-16"), ["together", "late"]);
        assert_eq!(starts("checkpoint-late-12h4s-5ms-1MiB-16").len(), 1);
        assert_eq!(starts("zipf-3h1s-5ms-256KiB-32").len(), 1);
        let twin = all().into_iter().find(|case| case.name == "checkpoint-late-12h4s-5ms-1MiB-16").unwrap();
        let case = all().into_iter().find(|case| case.name == "checkpoint-12h4s-5ms-1MiB-16").unwrap();
        let late = &case.starts()[1].1;
        assert_eq!(late.parts, twin.parts);
    }

    #[test]
    fn checkpoints_write_and_read_the_whole_file() {
        let case = all().into_iter().find(|case| case.name == "checkpoint-late-12h4s-0.3ms-64KiB-64").unwrap();
        let run = case.run(1, 0);
        let mut bytes = [0; 2];
        for step in (0..run.processes()).flat_map(|process| run.steps(process)) {
            if let Step::Access(request) = step {
                bytes[usize::from(request.direction() == Direction::Write)] += request.bytes;
            }
        }
        assert_eq!(bytes, [2 * GIB; 2]);
    }
}
