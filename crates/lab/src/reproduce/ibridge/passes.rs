//! Figure 3 on emulated servers, with fragments as the store has them: admission, room, copying in and writing back included.
//!
//! Ranks that together go through the file twice, each as fast as it can; what fragments bring shows in the second pass, since
//! the first one's reads find nothing on SSDs. Writing back goes on beside.

use super::{SERVERS, STRIPE, UNALIGNED};
use crate::replay::Ranks;
use crate::reproduce::emulated::EmulatedLab;
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use crate::reproduce::run_log::Scale;
use crate::reproduce::script::{Generated, access};
use anyhow::Result;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use stripewise::laboratory::Lab;
use stripewise_device::{lookup_device, lookup_link};
use stripewise_layout::{ByteCount, Direction, Layout, Placement, ServerId};
use stripewise_trace::{Program, Step};

/// Requests of one pass by each rank, and by all of them at least.
const RANK_REQUESTS: u64 = 128;
const MIN_REQUESTS: u64 = 2_048;
const MAX_REQUESTS: u64 = RANK_REQUESTS * PROCESSES[PROCESSES.len() - 1] as u64;
const REGION: ByteCount = ByteCount(16 << 20);
const PASSES: u32 = 2;
const PROCESSES: [u32; 4] = [8, 16, 32, 64];
/// Of each disk: twice the slots that its share of the requests can take.
const LOG_CAPACITY: ByteCount = ByteCount(MAX_REQUESTS / SERVERS as u64 * 2 * (32 << 10));

/// Runs of the cases that have a goal, of which the median is told: processes that go on without barriers drift apart in another way each time.
const RUNS: usize = 3;

/// iBridge's own threshold, and half a stripe, the most that it could be.
const THRESHOLDS: [ByteCount; 2] = [ByteCount(20 << 10), ByteCount(32 << 10)];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Case {
    direction: Direction,
    in_order: bool,
    processes: u32,
}

impl Case {
    fn name(self) -> String {
        let Self { direction, in_order, processes } = self;
        let order = if in_order { "in order" } else { "at random" };
        let op = match direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        format!("{processes} processes {op} {order}")
    }

    fn requests(self) -> u64 {
        (u64::from(self.processes) * RANK_REQUESTS).max(MIN_REQUESTS)
    }

    /// The same requests in every pass; at random, in another order each time.
    fn program(self, seed: u64) -> impl Program {
        let Self { direction, in_order, processes } = self;
        let requests = self.requests();
        Generated::shared(requests * UNALIGNED.0, (processes, 1), PASSES, move |process| {
            (0..PASSES).flat_map(move |pass| {
                let mut order: Vec<u64> = (0..requests).collect();
                if !in_order {
                    order.shuffle(&mut StdRng::seed_from_u64(seed ^ u64::from(pass) << 32));
                }
                let own = order.into_iter().skip(process as usize).step_by(processes as usize);
                let mark = (pass > 0).then_some(Step::Phase);
                mark.into_iter().chain(own.map(move |number| access(direction, number * UNALIGNED.0, UNALIGNED.0)))
            })
        })
    }
}

fn cases() -> Vec<Case> {
    let in_order = |direction| PROCESSES.map(|processes| Case { direction, in_order: true, processes });
    let at_random = |direction| Case { direction, in_order: false, processes: PROCESSES[PROCESSES.len() - 1] };
    let both = [Direction::Read, Direction::Write];
    both.into_iter().flat_map(in_order).chain(both.map(at_random)).collect()
}

/// Eight disks that need 5 ms to start what continues no stream, each with an SSD.
fn lab(threshold: Option<ByteCount>) -> Result<Lab> {
    let (disk, ssd) = (lookup_device("paper-hdd-5ms")?, lookup_device("sata-ssd-2012")?);
    let mut lab = Lab::hybrid((SERVERS, disk), (SERVERS, ssd), lookup_link("infiniband")?, None, REGION);
    if threshold.is_some() {
        lab.cluster.fragments = true;
        lab.cluster.fragment_threshold = threshold;
        lab.cluster.fragment_room = Some(LOG_CAPACITY);
    }
    Ok(lab)
}

/// Bandwidths of the second pass of each case; `None` where this machine set the pace.
fn second_passes(setting: &Setting<'_>, threshold: Option<ByteCount>) -> Result<Vec<Option<f64>>> {
    let stripe_bytes = u32::try_from(STRIPE.0)?;
    let layout = Layout::new((0..SERVERS).map(|id| (ServerId(id as u16), stripe_bytes)))?;
    let placement = Placement::uniform(REGION, layout.clone(), layout);
    let bytes = ByteCount(MAX_REQUESTS * UNALIGNED.0);
    let lab = EmulatedLab::build(setting.voice, &lab(threshold)?, bytes, Ranks::Mpi)?;
    setting.map(&cases(), |case| {
        let program = case.program(setting.seed);
        let prepared = lab.prepare(&program)?;
        let mut found = Vec::new();
        for _ in 0..if case.processes == PROCESSES[PROCESSES.len() - 1] { RUNS } else { 1 } {
            let passes = lab.run_passes(&prepared, std::slice::from_ref(&placement))?;
            found.extend(passes.last().and_then(|pass| setting.log.mb_per_s(pass)));
        }
        found.sort_by(f64::total_cmp);
        Ok(found.get(found.len() / 2).copied())
    })
}

pub(super) fn figure_3(setting: &Setting<'_>) -> Result<Findings> {
    setting.scale(Scale { files: super::FILE.0 / (MIN_REQUESTS * UNALIGNED.0), regions: super::REGION.0 / REGION.0 });
    let stock = second_passes(setting, None)?;
    let by_threshold: Vec<Vec<Option<f64>>> =
        THRESHOLDS.iter().map(|threshold| second_passes(setting, Some(*threshold))).collect::<Result<_>>()?;
    let mut findings = Findings::default();
    for (number, case) in cases().iter().enumerate() {
        for (threshold, found) in THRESHOLDS.iter().zip(&by_threshold) {
            let (Some(with), Some(without)) = (found[number], stock[number]) else { continue };
            let goal = match (case.in_order, case.processes, threshold.0 >> 10) {
                (true, 64, 32) => Published::AtLeast(1.8),
                (true, _, _) => Published::AtLeast(2.0),
                (false, ..) => Published::AtLeast(1.28),
            };
            let what = format!("iBridge below {threshold} over none");
            findings.rows.push(Row::new(case.name(), what, Unit::Ratio, goal, with / without));
        }
    }
    let groups = cases().into_iter().enumerate().map(|(number, case)| {
        let found = std::iter::once(&stock).chain(&by_threshold).map(|found| found[number]);
        (case.name(), found.collect())
    });
    let series =
        std::iter::once("none".to_owned()).chain(THRESHOLDS.iter().map(|threshold| format!("below {threshold}")));
    let series: Vec<String> = series.collect();
    findings.panels.push(Panel::new("65KiB requests, second pass", Unit::MbPerS, "processes", series, groups));
    findings.notes.push(
        format!(
            "Emulated disks of 5 ms, not figure 3's own: requests go on without barriers, and the bandwidth is that of the second pass over the file; with 64 processes \
             the median of {RUNS} runs. Writing back goes on beside and after the program, and what it takes after is not in the time."
        ),
    );
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_pass_goes_once_through_the_file() {
        for case in [cases()[0], cases()[cases().len() - 1]] {
            let program = case.program(5);
            let mut passes = vec![BTreeSet::new(); PASSES as usize];
            for process in 0..program.processes() {
                let mut pass = 0;
                for step in program.steps(process) {
                    match step {
                        Step::Phase => pass += 1,
                        Step::Access(request) => {
                            assert_eq!((request.direction(), request.bytes), (case.direction, UNALIGNED.0));
                            assert!(passes[pass].insert(request.offset.0 / UNALIGNED.0));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            assert!(passes.iter().all(|requests| requests.len() as u64 == case.requests()), "{}", case.name());
        }
    }

    #[test]
    fn laboratories_have_room_for_every_fragment() {
        for threshold in THRESHOLDS {
            let cluster = lab(Some(threshold)).unwrap().cluster;
            cluster.check().unwrap();
            assert!((0..SERVERS).all(|id| cluster.fragment_log(ServerId(id as u16)).unwrap().capacity == LOG_CAPACITY));
        }
    }
}
