//! Which requests a sample has, and whose they are.

use super::super::demand::SeenClass;
use super::super::periods::SideBySide;
use super::super::program::Item;
use super::MAX_PROCESSES;
use stripewise_layout::SplitMix64;
use stripewise_model::Profile;

/// Requests of a sample: twice as many as there are, in these limits.
const SAMPLE: (usize, usize) = (256, 16_000);

/// Share of requests that continue others' from which on a march is taken to be in order.
const IN_ORDER: f64 = 0.5;

/// Share of a program's requests from which on it is taken to march.
const MARCHES: f64 = 0.5;

/// Parts of a march that are looked at, regions of each at least, and consecutive requests of a region at most.
const STRETCHES: usize = 8;
const MIN_REGIONS: usize = 3;
const OF_REGION: u64 = 1024;

/// Requests of one rank in a stretch, at least.
const OF_RANK: usize = 16;

/// What a sample is drawn from.
pub(crate) struct Drawn<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) items: &'a [Item],
    pub(crate) window: usize,
    pub(crate) period: usize,
    pub(crate) classes: &'a [SeenClass],
    pub(crate) processes: u32,
    pub(crate) seed: u64,
    /// Requests of a march instead of a crowd.
    pub(crate) march: bool,
    /// As another run with the same popularity would have them.
    pub(crate) redrawn: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    pub(super) item: u32,
    pub(super) class: u16,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The region's number in the order of the march.
    pub(super) turn: u32,
}

/// Requests of some processes that no others issue.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) draws: Vec<Draw>,
    pub(super) processes: usize,
    /// Whether the draws are ranks' own sequences through a file.
    pub(super) in_order: bool,
}

/// Requests of each item and class that may be drawn, added up.
struct Counts(Vec<(f64, u32, u16)>);

impl Counts {
    fn of(counts: impl Iterator<Item = (f64, u32, u16)>) -> Self {
        let added = counts.scan(0.0, |sum, (count, item, class)| {
            *sum += count;
            Some((*sum, item, class))
        });
        Self(added.collect())
    }

    fn total(&self) -> f64 {
        self.0.last().map_or(0.0, |(end, _, _)| *end)
    }

    /// Item and class at a share of the requests.
    fn pick(&self, share: f64) -> (u32, u16) {
        let wanted = share * self.total();
        let (_, item, class) = self.0[self.0.partition_point(|(end, _, _)| *end <= wanted).min(self.0.len() - 1)];
        (item, class)
    }

    /// The counts of another run with the same popularity: what was asked for n times is asked for about the square root of n more or less
    /// often. Whole regions that balance to the last request now will not do so then.
    fn redrawn(&self, random: &mut SplitMix64) -> Self {
        let mut before = 0.0;
        Self::of(self.0.iter().map(|(end, item, class)| {
            let count = end - before;
            before = *end;
            ((count + count.sqrt() * normal(random)).max(0.0), *item, *class)
        }))
    }
}

/// The requests of the period of which the window has `part`.
fn counts(drawn: &Drawn<'_>, part: impl Fn(&Item) -> f64) -> Counts {
    Counts::of(drawn.items.iter().enumerate().flat_map(|(number, item)| {
        let part = part(item) * item.shares[drawn.period];
        let counts = item.counts[drawn.window].iter().filter(move |_| part > 0.0);
        counts.map(move |(class, count)| (count * part, number as u32, *class))
    }))
}

fn sample_size(total: f64) -> usize {
    ((2.0 * total) as usize).clamp(SAMPLE.0, SAMPLE.1)
}

/// The part of the period's requests that keeps company ([`Drawn::march`]) or none, and how many they are: requests in proportion, shuffled; or, in a
/// march, stretches of requests one behind the other, into the next regions where those are longer.
pub(super) fn pool(drawn: &Drawn<'_>) -> (Pool, f64) {
    let part = |item: &Item| {
        let together = item.same_region[drawn.window];
        if drawn.march { together } else { 1.0 - together }
    };
    let counts = counts(drawn, part);
    let wanted = sample_size(counts.total());
    let pool = pool_of(drawn, &counts, drawn.march, drawn.processes, wanted);
    (pool, counts.total())
}

/// The period's requests by program, each with processes of its own, and how many they are.
pub(super) fn pools(drawn: &Drawn<'_>, programs: &[SideBySide]) -> (Vec<Pool>, f64) {
    let of_program: Vec<(Counts, bool, u32)> = programs
        .iter()
        .map(|program| {
            let counts = counts(drawn, |item| if item.file == program.file { 1.0 } else { 0.0 });
            let together = drawn
                .items
                .iter()
                .find(|item| item.file == program.file)
                .map_or(0.0, |item| item.same_region[drawn.window]);
            (counts, together > MARCHES, program.processes)
        })
        .filter(|(counts, ..)| counts.total() > 0.0)
        .collect();
    let total: f64 = of_program.iter().map(|(counts, ..)| counts.total()).sum();
    let pools = of_program.iter().map(|(counts, march, processes)| {
        let wanted = ((sample_size(total) as f64 * counts.total() / total) as usize).max(1);
        let mut pool = pool_of(drawn, counts, *march, *processes, wanted);
        // Programs are through at their own times, so every draw has to stand for as many requests.
        pool.draws.truncate(wanted);
        pool
    });
    (pools.collect(), total)
}

fn pool_of(drawn: &Drawn<'_>, counts: &Counts, march: bool, processes: u32, wanted: usize) -> Pool {
    let processes = processes.clamp(1, MAX_PROCESSES) as usize;
    let in_order = march && drawn.classes.iter().any(|class| class.continuing >= IN_ORDER);
    let mut random = SplitMix64::new(drawn.seed);
    let draws = match counts.total() > 0.0 {
        false => Vec::new(),
        true if in_order => stretches(drawn, counts, processes, wanted, &mut random),
        true if march => runs(drawn, counts, OF_RANK * processes, wanted, &mut random),
        true => {
            let redrawn = drawn.redrawn.then(|| counts.redrawn(&mut random));
            let mut draws = runs(drawn, redrawn.as_ref().unwrap_or(counts), 1, wanted, &mut random);
            for last in (1..draws.len()).rev() {
                draws.swap(last, random.below(last as u64 + 1) as usize);
            }
            draws
        }
    };
    Pool { draws, processes, in_order }
}

/// Requests of `bytes` in a region of the item.
fn slots(drawn: &Drawn<'_>, item: u32, bytes: u64) -> u64 {
    (drawn.items[item as usize].region_bytes / bytes).max(1)
}

fn request_bytes(drawn: &Drawn<'_>, class: u16) -> u64 {
    drawn.classes[usize::from(class)].class.request_bytes
}

/// Parts of the file from one end to the other, whole regions of requests in order.
fn stretches(
    drawn: &Drawn<'_>,
    counts: &Counts,
    processes: usize,
    wanted: usize,
    random: &mut SplitMix64,
) -> Vec<Draw> {
    let mut draws = Vec::with_capacity(wanted);
    let place = |item: u32| (drawn.items[item as usize].file, drawn.items[item as usize].regions[0]);
    let mut turn = 0;
    for number in 0..STRETCHES {
        // Anywhere in its part of the march: regular distances may meet only one of the layouts that take turns.
        let share = (number as f64 + random.below(1 << 20) as f64 / f64::from(1 << 20)) / STRETCHES as f64;
        let (mut item, class) = counts.pick(share);
        let bytes = request_bytes(drawn, class);
        let least = (OF_RANK * processes).max(wanted / STRETCHES);
        let (end, mut regions) = (draws.len() + least, 0);
        // Whole regions, and the next stretch as if it lay behind: ranks keep their distances, and no seek is charged that the run does not have.
        while draws.len() < end || regions < MIN_REGIONS {
            let of_region = slots(drawn, item, bytes).min(OF_REGION);
            draws.extend((0..of_region).map(|slot| Draw { item, class, offset: slot * bytes, bytes, turn }));
            (turn, regions) = (turn + 1, regions + 1);
            let next = item + 1;
            let goes_on = drawn.items.get(next as usize).is_some_and(|one| {
                let (file, number) = place(item);
                one.is_accessed() && place(next) == (file, number + 1)
            });
            item = if goes_on { next } else { item };
        }
    }
    draws
}

/// Requests in proportion to the counts, so many in a row to one item.
fn runs(drawn: &Drawn<'_>, counts: &Counts, length: usize, wanted: usize, random: &mut SplitMix64) -> Vec<Draw> {
    let runs = wanted.div_ceil(length).max(4);
    let mut draws = Vec::with_capacity(runs * length);
    for number in 0..runs {
        let (item, class) = counts.pick((number as f64 + 0.5) / runs as f64);
        let bytes = request_bytes(drawn, class);
        let slots = slots(drawn, item, bytes);
        draws.extend((0..length).map(|_| Draw { item, class, offset: random.below(slots) * bytes, bytes, turn: 0 }));
    }
    draws
}

/// Nearly normal, mean 0 and variance 1: twelve uniform ones less their mean.
fn normal(random: &mut SplitMix64) -> f64 {
    let scale = 1u64 << 32;
    (0..12).map(|_| random.below(scale) as f64 / scale as f64).sum::<f64>() - 6.0
}
