//! What is measured, in which order: the four lines of a server, or the line of its link.
//!
//! A round times every size once for each line: sizes 4 KiB to 4 MiB in powers of two, each round beginning with another one, so that
//! what drifts during calibration (a warming disk, a filling cache) touches all sizes alike. A sequential round is one stream: an access
//! that only brings the head there, then every size, each where the last one ended. A random round jumps before every access.

use super::error::Result;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::{Duration, Instant};
use stripewise_layout::{Direction, Order};
use stripewise_model::Line;
use stripewise_model::fit::{Fit, Sample, fit};

pub(super) const SMALLEST_BYTES: u64 = 4 << 10;
pub(super) const LARGEST_BYTES: u64 = 4 << 20;
/// Of a line in a round.
pub(super) const SIZES: usize = 11;
/// What one sequential round passes over: all sizes make 4 KiB less than twice the largest, and 4 KiB bring the head there.
const ROUND_BYTES: u64 = 2 * LARGEST_BYTES;
/// The least range that has space for a round, and for random positions to differ.
pub(super) const MIN_SPAN_BYTES: u64 = 2 * ROUND_BYTES;
/// The least [`Options::file_bytes`](super::Options::file_bytes).
pub const MIN_FILE_BYTES: u64 = MIN_SPAN_BYTES;

/// Something that can be read and written and says how long that took.
pub(super) trait Subject {
    /// Accesses stay below this; at least [`MIN_SPAN_BYTES`].
    fn span_bytes(&self) -> u64;

    /// Seconds that one access of `bytes` at `offset` took, both multiples of 4 KiB.
    fn time(&mut self, direction: Direction, offset: u64, bytes: u64) -> Result<f64>;
}

/// How much to measure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Effort {
    pub(super) most_rounds: u32,
    /// No further round begins that would probably end after this; the first is always run.
    pub(super) budget: Duration,
}

/// Measured times of one line.
#[derive(Clone, Debug)]
pub(super) struct LineSamples {
    pub(super) direction: Direction,
    pub(super) order: Order,
    pub(super) samples: Vec<Sample>,
}

/// The ways to access a server that have a line each in its profile. Writes come first: what is read was written by then.
pub const SERVER_LINES: [(Direction, Order); 4] = [
    (Direction::Write, Order::Sequential),
    (Direction::Read, Order::Sequential),
    (Direction::Write, Order::Random),
    (Direction::Read, Order::Random),
];

/// On a link order does not matter.
pub(super) const LINK_LINES: [(Direction, Order); 2] =
    [(Direction::Write, Order::Sequential), (Direction::Read, Order::Sequential)];

/// The line of every direction and order.
pub(super) type Lines = Vec<(Direction, Order, Fit)>;

/// The lines through what was measured.
pub(super) fn fits(measured: &[LineSamples]) -> Result<Lines> {
    measured.iter().map(|line| Ok((line.direction, line.order, fit(&line.samples)?))).collect()
}

pub(super) fn line_of(lines: &[(Direction, Order, Fit)], direction: Direction, order: Order) -> Line {
    let found = lines.iter().find(|line| (line.0, line.1) == (direction, order));
    found.expect("all four lines are measured").2.line
}

/// Measures `lines` of `subject`. `progress` is told the share done, 0 to 1.
pub(super) fn measure(
    subject: &mut dyn Subject,
    lines: &[(Direction, Order)],
    effort: Effort,
    seed: u64,
    progress: &dyn Fn(f64),
) -> Result<Vec<LineSamples>> {
    let mut draws = SmallRng::seed_from_u64(seed);
    let mut measured: Vec<LineSamples> =
        lines.iter().map(|&(direction, order)| LineSamples { direction, order, samples: Vec::new() }).collect();
    let begin = Instant::now();
    for round in 0..effort.most_rounds {
        let spent = begin.elapsed();
        // Rounds cost about the same.
        if round > 0 && spent + spent / round > effort.budget {
            break;
        }
        for (number, line) in measured.iter_mut().enumerate() {
            match line.order {
                Order::Sequential => stream(subject, round, line, &mut draws)?,
                Order::Random => jumps(subject, round, line, &mut draws)?,
            }
            let steps = f64::from(effort.most_rounds) * lines.len() as f64;
            let by_rounds = (f64::from(round) * lines.len() as f64 + number as f64 + 1.0) / steps;
            let by_time = begin.elapsed().as_secs_f64() / effort.budget.as_secs_f64();
            progress(by_rounds.max(by_time).min(1.0));
        }
    }
    progress(1.0);
    Ok(measured)
}

fn sizes(round: u32) -> impl Iterator<Item = u64> {
    (0..SIZES).map(move |step| SMALLEST_BYTES << ((step + round as usize) % SIZES))
}

fn stream(subject: &mut dyn Subject, round: u32, line: &mut LineSamples, draws: &mut SmallRng) -> Result<()> {
    let mut offset = position(subject.span_bytes() - ROUND_BYTES, draws);
    subject.time(line.direction, offset, SMALLEST_BYTES)?;
    offset += SMALLEST_BYTES;
    for bytes in sizes(round) {
        line.samples.push(Sample { bytes, seconds: subject.time(line.direction, offset, bytes)? });
        offset += bytes;
    }
    Ok(())
}

fn jumps(subject: &mut dyn Subject, round: u32, line: &mut LineSamples, draws: &mut SmallRng) -> Result<()> {
    for bytes in sizes(round) {
        let offset = position(subject.span_bytes() - bytes, draws);
        line.samples.push(Sample { bytes, seconds: subject.time(line.direction, offset, bytes)? });
    }
    Ok(())
}

fn position(below: u64, draws: &mut SmallRng) -> u64 {
    draws.random_range(0..=below / SMALLEST_BYTES) * SMALLEST_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// A subject that answers with the access itself, coded as a time, and checks its bounds.
    struct Recorder {
        accesses: Vec<(Direction, u64, u64)>,
    }

    impl Subject for Recorder {
        fn span_bytes(&self) -> u64 {
            MIN_SPAN_BYTES
        }

        fn time(&mut self, direction: Direction, offset: u64, bytes: u64) -> Result<f64> {
            assert!(offset.is_multiple_of(4096) && bytes.is_multiple_of(4096) && offset + bytes <= MIN_SPAN_BYTES);
            self.accesses.push((direction, offset, bytes));
            Ok(bytes as f64)
        }
    }

    #[test]
    fn every_size_is_measured_once_a_round_for_every_line() {
        let mut subject = Recorder { accesses: Vec::new() };
        let effort = Effort { most_rounds: 5, budget: Duration::from_secs(3600) };
        let reported = std::cell::RefCell::new(Vec::new());
        let measured =
            measure(&mut subject, &SERVER_LINES, effort, 3, &|share| reported.borrow_mut().push(share)).unwrap();
        assert_eq!(measured.len(), 4);
        for line in &measured {
            let mut count = BTreeMap::new();
            for sample in &line.samples {
                *count.entry(sample.bytes).or_insert(0) += 1;
                assert_eq!(sample.seconds, sample.bytes as f64);
            }
            let expected: BTreeMap<u64, i32> = (12..=22).map(|bits| (1 << bits, 5)).collect();
            assert_eq!(count, expected, "{:?} {:?}", line.direction, line.order);
        }
        assert!(reported.borrow().is_sorted() && reported.borrow().last() == Some(&1.0));
    }

    #[test]
    fn sequential_accesses_follow_each_other_and_random_ones_do_not() {
        let mut subject = Recorder { accesses: Vec::new() };
        let effort = Effort { most_rounds: 1, budget: Duration::from_secs(3600) };
        measure(&mut subject, &SERVER_LINES, effort, 9, &|_| {}).unwrap();
        let follows = |pair: &[(Direction, u64, u64)]| pair[0].1 + pair[0].2 == pair[1].1;
        // 12 accesses for each sequential line, of which the first is not timed, and 11 for each random one.
        let (write, rest) = subject.accesses.split_at(12);
        let (read, random) = rest.split_at(12);
        assert!(write.windows(2).all(follows) && read.windows(2).all(follows));
        assert_eq!(random.len(), 22);
        assert!(!random.windows(2).any(follows));
    }

    #[test]
    fn a_spent_budget_leaves_one_round() {
        let mut subject = Recorder { accesses: Vec::new() };
        let effort = Effort { most_rounds: 1000, budget: Duration::ZERO };
        let measured = measure(&mut subject, &LINK_LINES, effort, 1, &|_| {}).unwrap();
        assert!(measured.iter().all(|line| line.samples.len() == SIZES));
    }
}
