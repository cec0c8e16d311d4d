//! Mixed IOR on one file: the plan of `segment` against fixed stripes.

use super::{DEFAULT_STRIPE, NODES, SERVERS, fixed, lab, segments, sigma, stripes_accessed};
use crate::reproduce::experiment::{Findings, Panel, Published, Row, Setting, Unit};
use crate::reproduce::script::{Generated, access};
use anyhow::Result;
use stripewise_layout::{ByteCount, Direction, Order, RegionIndex};
use stripewise_sim::{Borders, FilePlacements, Outcome, SimOptions};
use stripewise_trace::Step;

/// Of one IOR.
const PART_BYTES: u64 = 128 << 20;
const PROCESSES: u32 = 64;
/// The runs in the order of their parts: request bytes and processes.
const RUNS: [(u64, u32); 8] = [
    (16 << 10, 64),
    (1 << 20, 8),
    (256 << 10, 32),
    (4 << 20, 4),
    (64 << 10, 16),
    (1 << 20, 64),
    (4 << 20, 16),
    (256 << 10, 8),
];
const FIXED: [ByteCount; 4] = [ByteCount(16 << 10), DEFAULT_STRIPE, ByteCount(256 << 10), ByteCount(1 << 20)];
const CASES: [(&str, Direction, Order); 4] = [
    ("sequential write", Direction::Write, Order::Sequential),
    ("random write", Direction::Write, Order::Random),
    ("sequential read", Direction::Read, Order::Sequential),
    ("random read", Direction::Read, Order::Random),
];
/// What the processes come back to.
const HEADER_BYTES: u64 = 64 << 10;

/// Accesses to the header of a part that give it the imbalance: with x stripes accessed on each of n servers and y more on one,
/// (x + y) / (x + y / n) = 1 + sigma.
fn header_accesses(request_bytes: u64, sigma: f64) -> u64 {
    let n = f64::from(SERVERS);
    let touched = request_bytes.div_ceil(DEFAULT_STRIPE.0).max(1) * (PART_BYTES / request_bytes);
    let x = touched as f64 / n;
    (sigma * x / (1.0 - (1.0 + sigma) / n)).round() as u64
}

/// Which request of a run's part comes as the `number`-th: in order of the file, or anywhere. Parts have a power of two of requests, and an odd
/// factor permutes the numbers below a power of two.
fn place(order: Order, number: u64, count: u64) -> u64 {
    match order {
        Order::Sequential => number,
        Order::Random => number.wrapping_mul(0x9E37_79B9_7F4A_7C15) % count,
    }
}

/// The steps of a process: a phase for each run, in which the processes that take part go through its part together.
fn steps(direction: Direction, order: Order, sigma: f64, process: u32) -> impl Iterator<Item = Step> + Send {
    RUNS.into_iter().enumerate().flat_map(move |(number, (request_bytes, processes))| {
        let start = number as u64 * PART_BYTES;
        let mark = (number > 0).then_some(Step::Phase);
        let takes_part = process < processes;
        let mine = if takes_part { PART_BYTES / request_bytes / u64::from(processes) } else { 0 };
        let headers = header_accesses(request_bytes, sigma);
        let requests = (0..mine).flat_map(move |turn| {
            let number = turn * u64::from(processes) + u64::from(process);
            let place = place(order, number, PART_BYTES / request_bytes);
            let own = access(direction, start + place * request_bytes, request_bytes);
            // Spread over the run: request i comes with the headers between i and i + 1 shares of it.
            let share = |number: u64| number * headers * request_bytes / PART_BYTES;
            let again = (share(number)..share(number + 1)).map(move |_| access(direction, start, HEADER_BYTES));
            std::iter::once(own).chain(again)
        });
        mark.into_iter().chain(requests)
    })
}

fn program(direction: Direction, order: Order, sigma: f64) -> Generated<'static> {
    let file_bytes = RUNS.len() as u64 * PART_BYTES;
    Generated::shared(file_bytes, (PROCESSES, NODES), RUNS.len() as u32, move |process| {
        steps(direction, order, sigma, process)
    })
}

/// Published gains: the least and the most of the range.
fn published(sigma: f64, direction: Direction) -> (f64, f64) {
    match (sigma > 0.0, direction) {
        (false, Direction::Write) => (29.0, 97.0),
        (false, Direction::Read) => (10.0, 71.0),
        (true, Direction::Write) => (51.0, 123.0),
        (true, Direction::Read) => (25.0, 93.0),
    }
}

fn series() -> impl Iterator<Item = String> {
    FIXED.into_iter().map(|stripe| stripe.to_string()).chain(["segment".to_owned()])
}

/// The bandwidth of every run under each placement.
fn by_run(name: &str, outcomes: &[Outcome]) -> Panel {
    let groups = RUNS.iter().enumerate().map(|(number, (request_bytes, processes))| {
        let rate = |outcome: &Outcome| {
            let run = &outcome.phases[number];
            Some((run.read_bytes + run.write_bytes) as f64 / 1e6 / (run.end_s - run.start_s))
        };
        (format!("{} x {processes}", ByteCount(*request_bytes)), outcomes.iter().map(rate).collect())
    });
    Panel::new(format!("{name}, run by run"), Unit::MbPerS, "request x processes", series(), groups)
}

/// The stripe that `segment` chose for every run.
fn chosen_stripes(name: &str, planned: &FilePlacements) -> String {
    let regions_of_part = PART_BYTES / super::REGION.0;
    let stripes = RUNS.iter().enumerate().map(|(number, (request_bytes, processes))| {
        let region = RegionIndex((number as u64 * regions_of_part) as u32);
        let stripe = planned.windows[0].placement.layout_of(region).stripes()[0].size_bytes;
        format!("{} for {} x {processes}", ByteCount(stripe.into()), ByteCount(*request_bytes))
    });
    format!("Stripes chosen for {name}: {}.", stripes.collect::<Vec<_>>().join(", "))
}

pub(super) fn mixed_ior(setting: &Setting<'_>, sigma_wanted: f64) -> Result<Findings> {
    let lab = lab("gigabit")?;
    let options = || SimOptions { borders: Borders::Phase, ..SimOptions::default() };
    let mut findings = Findings::default();
    let mut groups = Vec::new();
    for (name, direction, order) in CASES {
        let program = program(direction, order, sigma_wanted);
        let planned = segments(&lab, &program, setting.seed)?;
        let default = fixed(DEFAULT_STRIPE)?;
        if (direction, order) == (Direction::Write, Order::Sequential) {
            let counts = [("64KiB", &default), ("segment", &planned.windows[0].placement)]
                .map(|(name, placement)| (name, sigma(&stripes_accessed(&program, placement))));
            for (name, found) in counts {
                let asked = if name == "64KiB" { Published::Value(sigma_wanted) } else { Published::NotPrinted };
                findings.rows.push(Row::new(name, "imbalance", Unit::Ratio, asked, found));
            }
        }
        let mut all: Vec<FilePlacements> =
            FIXED.iter().map(|stripe| Ok(FilePlacements::fixed(fixed(*stripe)?))).collect::<Result<_>>()?;
        all.push(planned);
        let outcomes = setting
            .map(&all, |placements| Ok(lab.simulate_with(std::slice::from_ref(placements), &program, options())?))?;
        groups.push((name.to_owned(), outcomes.iter().map(|outcome| Some(outcome.mb_per_s)).collect::<Vec<_>>()));
        if direction == Direction::Read {
            findings.panels.push(by_run(name, &outcomes));
            findings.notes.push(chosen_stripes(name, all.last().expect("the planned one")));
        }
    }
    let panel = Panel::new("Mixed IOR", Unit::MbPerS, "operation", series(), groups);
    for (name, direction, _) in CASES {
        let gains: Vec<f64> =
            FIXED.iter().filter_map(|base| panel.gain_percent(name, "segment", &base.to_string())).collect();
        let (least, most) = published(sigma_wanted, direction);
        let found = [
            gains.iter().copied().fold(f64::INFINITY, f64::min),
            gains.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ];
        for (what, published, ours) in [
            ("segment over the best fixed stripe", least, found[0]),
            ("segment over the worst fixed stripe", most, found[1]),
        ] {
            findings.rows.push(Row::new(name, what, Unit::Percent, Published::Value(published), ours));
        }
        for (base, gain) in FIXED.iter().zip(gains) {
            let what = format!("segment over {base}");
            findings.rows.push(Row::new(name, what, Unit::Percent, Published::NotPrinted, gain));
        }
    }
    findings.panels.push(panel);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripewise_trace::Program;

    #[test]
    fn the_headers_make_the_imbalance_that_the_poster_names() {
        for sigma_wanted in [0.0, 0.2] {
            let program = program(Direction::Read, Order::Random, sigma_wanted);
            assert_eq!(program.phases() as usize, RUNS.len());
            let found = sigma(&stripes_accessed(&program, &fixed(DEFAULT_STRIPE).unwrap()));
            assert!((found - sigma_wanted).abs() < 0.01, "{found} {sigma_wanted}");
        }
    }

    #[test]
    fn every_part_is_accessed_once_over() {
        let program = program(Direction::Write, Order::Random, 0.0);
        let mut ranges: Vec<(u64, u64)> =
            super::super::requests(&program).map(|request| (request.offset.0, request.bytes)).collect();
        ranges.sort_unstable();
        let end = ranges.iter().fold(0, |end, (offset, bytes)| {
            assert_eq!(*offset, end);
            end + bytes
        });
        assert_eq!(end, program.files()[0].size_bytes);
    }
}
