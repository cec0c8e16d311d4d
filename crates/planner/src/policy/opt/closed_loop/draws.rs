//! Which requests a sample has, and whose they are.

use super::super::program::Item;
use super::super::side_by_side::{Part, SideBySide};
use super::MAX_PROCESSES;
use super::drawn::{Counts, Draw, Drawn};
use super::march::{self, OF_RANK};
use stripewise_layout::SplitMix64;

/// Requests of a sample: twice as many as there are, in these limits.
const SAMPLE: (usize, usize) = (256, 16_000);

/// Share of a program's requests from which on it is taken to march.
const MARCHES: f64 = 0.5;

/// Requests of some processes that no others issue.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) draws: Vec<Draw>,
    pub(super) processes: usize,
    /// Whether the draws are ranks' own sequences through a file.
    pub(super) in_order: bool,
}

/// The requests of a period of which the window has `part`.
fn counts(drawn: &Drawn<'_>, period: usize, part: impl Fn(&Item) -> f64) -> Counts {
    Counts::of(drawn.items.iter().enumerate().flat_map(|(number, item)| {
        let part = part(item) * item.shares[period];
        let counts = item.counts[drawn.window].iter().filter(move |(class, _)| part > 0.0 && drawn.has(*class));
        counts.map(move |(class, count)| (count * part, number as u32, *class))
    }))
}

fn sample_size(total: f64) -> usize {
    ((2.0 * total) as usize).clamp(SAMPLE.0, SAMPLE.1)
}

/// The part of the periods' requests that keeps company ([`Drawn::march`]) or none, and how many they are: requests in proportion, shuffled; or, in a
/// march, requests one behind the other.
pub(super) fn pool(drawn: &Drawn<'_>) -> (Pool, f64) {
    let part = |item: &Item| {
        let together = drawn.marching(item);
        if drawn.march { together } else { 1.0 - together }
    };
    let counts: Vec<Counts> = drawn.periods.clone().map(|period| counts(drawn, period, part)).collect();
    let total = counts.iter().map(Counts::total).sum();
    (pool_of(drawn, &counts, drawn.march, drawn.processes, None), total)
}

/// The period's requests by program, each with processes of its own, and how many they are.
pub(super) fn pools(drawn: &Drawn<'_>, programs: &[SideBySide]) -> (Vec<Pool>, f64) {
    let of_program = programs.iter().map(|program| {
        let drawn = drawn.of(program);
        let of_file = |item: &Item| if item.file == program.file { 1.0 } else { 0.0 };
        (counts(&drawn, drawn.periods.start, of_file), drawn, program)
    });
    let of_program: Vec<(Counts, Drawn<'_>, &SideBySide)> =
        of_program.filter(|(counts, ..)| counts.total() > 0.0).collect();
    let total: f64 = of_program.iter().map(|(counts, ..)| counts.total()).sum();
    let pools = of_program.iter().map(|(counts, drawn, program)| {
        let wanted = ((sample_size(total) as f64 * counts.total() / total) as usize).max(1);
        let mut of_file = drawn.items.iter().filter(|item| item.file == program.file);
        let together = match program.part {
            Part::All => of_file.next().map_or(0.0, |item| drawn.marching(item)),
            Part::March => 1.0,
            Part::Crowd => 0.0,
        };
        let counts = std::slice::from_ref(counts);
        let mut pool = pool_of(drawn, counts, together > MARCHES, program.processes, Some(wanted));
        // Programs are through at their own times, so every draw has to stand for as many requests.
        pool.draws.truncate(wanted);
        pool
    });
    (pools.collect(), total)
}

/// `counts` by period; so many requests of them as are wanted, if that is said.
fn pool_of(drawn: &Drawn<'_>, counts: &[Counts], march: bool, processes: u32, wanted: Option<usize>) -> Pool {
    let processes = processes.clamp(1, MAX_PROCESSES) as usize;
    let in_order = march && drawn.is_in_order();
    let mut random = SplitMix64::new(drawn.seed);
    let total: f64 = counts.iter().map(Counts::total).sum();
    let size = wanted.unwrap_or_else(|| sample_size(total));
    let draws = match total > 0.0 {
        false => Vec::new(),
        true if in_order => march::draws(drawn, counts, processes, wanted, &mut random),
        true if march => runs(drawn, &counts[0], OF_RANK * processes, size, &mut random),
        true => {
            let redrawn = drawn.redrawn.then(|| counts[0].redrawn(&mut random));
            let mut draws = runs(drawn, redrawn.as_ref().unwrap_or(&counts[0]), 1, size, &mut random);
            for last in (1..draws.len()).rev() {
                draws.swap(last, random.below(last as u64 + 1) as usize);
            }
            draws
        }
    };
    Pool { draws, processes, in_order }
}

fn request_bytes(drawn: &Drawn<'_>, class: u16) -> u64 {
    drawn.classes[usize::from(class)].class.request_bytes
}

/// Requests in proportion to the counts, so many in a row to one item.
fn runs(drawn: &Drawn<'_>, counts: &Counts, length: usize, wanted: usize, random: &mut SplitMix64) -> Vec<Draw> {
    let runs = wanted.div_ceil(length).max(4);
    let mut draws = Vec::with_capacity(runs * length);
    for number in 0..runs {
        let (item, class) = counts.pick((number as f64 + 0.5) / runs as f64);
        let bytes = request_bytes(drawn, class);
        let last = drawn.items[item as usize].region_bytes.saturating_sub(bytes);
        let first = drawn.first_offset(item, bytes).min(last);
        let slots = (last - first) / bytes + 1;
        let draw = |offset: u64| Draw { item, class, offset: first + offset, bytes, turn: 0 };
        draws.extend((0..length).map(|_| draw(random.below(slots) * bytes)));
    }
    draws
}
