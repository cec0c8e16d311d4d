//! The requests of one window of a plan, to be drawn as often as the trace has them.
//!
//! A random request lies at any multiple of its size in a region. A process that reads or writes in order goes on where its
//! last request of the class ended, until the region ends.
//!
//! What buffered writes cost depends on how many of them are neighbours. Some seconds have time for a part of the window's
//! requests only; spread over all regions, these would lie further apart than the window's. So they go to a *stretch* of a
//! region, as long a part of it as theirs is of the requests, and every stretch has places of its own in the scratch files
//! ([`Mix::keep_density`]).

use super::super::measure::SMALLEST_BYTES;
use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use stripewise_layout::{Direction, Layout, Order, Placement, RegionIndex, RegionOffset, RequestKind, WriteClass};
use stripewise_planner::region_bytes;
use stripewise_trace::{AccessClass, FileAccess};

/// Largest requests that a stretch has places for, at least: its ends have no neighbours outside of it.
const MIN_PLACES: u64 = 512;

/// Rounds that a stretch is gone through in.
const ROUNDS_OF_STRETCH: u64 = 8;

/// Share of a scratch file that stretches may fill.
const FILLED: f64 = 0.9;

/// One region's requests of one direction.
#[derive(Clone)]
struct Part<'a> {
    layout: &'a Layout,
    /// Bytes of the file that lie in the region.
    bytes: u64,
    /// Classes of the requests, and how many there are.
    counts: Vec<(AccessClass, u64)>,
    /// Where in the region they go.
    stretch: Range<u64>,
    /// Of each stripe, what [`Piece::object`] is.
    objects: Vec<u64>,
}

/// Requests of one class in one region.
struct Source {
    part: usize,
    class: AccessClass,
}

/// A window's requests of one direction.
pub(super) struct Mix<'a> {
    parts: Vec<Part<'a>>,
    sources: Vec<Source>,
    weights: WeightedIndex<f64>,
    rounds: Option<Rounds>,
}

/// Places of one source that a process goes through in order.
#[derive(Clone, Copy)]
struct Round {
    source: usize,
    next: u64,
    end: u64,
}

/// All places of stretches that are accessed in order, as often as the window has it. Processes that began anywhere would write some places twice and
/// others never.
struct Rounds {
    all: Vec<Round>,
    begun: AtomicUsize,
}

/// The rest of a process's requests in order.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor(Option<Round>);

/// A piece of a request: `length` bytes at `offset` of the object that is one server's part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) kind: RequestKind,
    pub(super) server: usize,
    /// The same for all pieces of one object. Where stretches have places of their own, the page at which this one begins.
    pub(super) object: u64,
    /// From the object's begin, or that of the stretch.
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl<'a> Mix<'a> {
    /// The requests of `direction` in the window of this number, of which there is at least one. Each file with its
    /// placement in that window.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(super) fn of(files: &[(&FileAccess, &'a Placement)], window: usize, direction: Direction) -> Self {
        let mut parts = Vec::new();
        for (file, (access, placement)) in files.iter().enumerate() {
            for region in access.windows.get(window).into_iter().flat_map(|window| &window.regions) {
                let counts = region.counts.iter().map(|(class, count)| (access.class(*class), *count));
                let counts: Vec<_> = counts.filter(|(class, _)| class.direction() == direction).collect();
                let (layout, bytes) = (placement.layout_of(region.region), region_bytes(access, region.region));
                let turns = 0..layout.stripes().len();
                let objects = turns.map(|turn| object(file, region.region, turn)).collect();
                parts.push(Part { layout, bytes, counts, stretch: 0..bytes, objects });
            }
        }
        Self::of_parts(parts)
    }

    fn of_parts(parts: Vec<Part<'a>>) -> Self {
        let (mut sources, mut weights) = (Vec::new(), Vec::new());
        for (number, part) in parts.iter().enumerate() {
            for (class, count) in &part.counts {
                sources.push(Source { part: number, class: *class });
                weights.push(*count as f64 * part.share());
            }
        }
        let weights = WeightedIndex::new(weights).expect("the window has requests, and a count is at least 1");
        Self { parts, sources, weights, rounds: None }
    }

    /// Lets requests of at most `limit_bytes` together, in scratch files of `span_bytes`, lie as densely as all of the window do. Returns how many
    /// bytes these requests have.
    ///
    /// Each region's requests go to a stretch of it, from any cycle of its layout on. Where a stretch that has enough places would be longer than the
    /// region's part of the bytes, some of the regions are left out, in turn; where there is space for more than the window has, regions come several
    /// times.
    pub(super) fn keep_density(self, limit_bytes: u64, span_bytes: &[u64], draws: &mut SmallRng) -> (Self, u64) {
        let all_bytes: f64 = self.parts.iter().map(Part::request_bytes).sum();
        let mut share = limit_bytes as f64 / all_bytes;
        // Longer stretches fill more of a scratch file than their share.
        loop {
            let parts = stretched(&self.parts, share, draws);
            let used = used_bytes(&parts, span_bytes.len());
            let fits = |(used, span): (&u64, &u64)| *used as f64 <= FILLED * *span as f64;
            if parts.len() <= 1 || used.iter().zip(span_bytes).all(fits) {
                let bytes: f64 = parts.iter().map(|part| part.request_bytes() * part.share()).sum();
                let mut mix = Self::of_parts(settled(parts, span_bytes.len()));
                mix.rounds = Rounds::of(&mix, draws);
                return (mix, bytes as u64);
            }
            share *= 0.8;
        }
    }

    /// Whether any request is a buffered write.
    pub(super) fn is_written_back(&self) -> bool {
        self.sources.iter().any(|source| source.class.kind == RequestKind::Write(WriteClass::Buffered))
    }

    /// Largest piece of any request.
    pub(super) fn largest_piece_bytes(&self) -> u64 {
        let largest = |source: &Source| {
            let layout = self.parts[source.part].layout;
            let turns = source.class.request_bytes.div_ceil(layout.view().cycle_bytes()) + 1;
            let stripe = layout.stripes().iter().map(|stripe| u64::from(stripe.size_bytes)).max().unwrap_or(0);
            stripe.saturating_mul(turns).min(source.class.request_bytes)
        };
        self.sources.iter().map(largest).max().unwrap_or(0)
    }

    /// Draws a request: its pieces go into `pieces`, which are emptied first. Returns its bytes.
    pub(super) fn draw(&self, draws: &mut SmallRng, cursor: &mut Cursor, pieces: &mut Vec<Piece>) -> u64 {
        let mut number = self.weights.sample(draws);
        let class = self.sources[number].class;
        let round = (class.order == Order::Sequential).then(|| {
            let goes_on = |round: &Round| {
                let of = self.sources[round.source].class;
                (of == class || self.rounds.is_some()) && round.next + of.request_bytes <= round.end
            };
            cursor.0.filter(goes_on).or_else(|| self.rounds.as_ref().map(Rounds::begin))
        });
        if let Some(Some(round)) = round {
            number = round.source;
        }
        let Source { part, class } = &self.sources[number];
        let part = &self.parts[*part];
        // A file may end within a request, as one that was cut short.
        let length = class.request_bytes.min(part.stretch_bytes().max(1));
        let offset = round.flatten().map_or_else(
            || {
                let places = (part.stretch_bytes() / length).max(1);
                part.stretch.start + draws.random_range(0..places) * length
            },
            |round| round.next,
        );
        if class.order == Order::Sequential {
            let end = round.flatten().map_or(part.stretch.end, |round| round.end);
            cursor.0 = Some(Round { source: number, next: offset + length, end });
        }
        pieces.clear();
        let cycles = part.stretch.start / part.layout.view().cycle_bytes();
        pieces.extend(part.layout.view().split(RegionOffset(offset), length).map(|sub| Piece {
            kind: class.kind,
            server: usize::from(sub.server.0),
            object: part.objects[sub.turn],
            offset: sub.offset.0 - cycles * u64::from(part.layout.stripes()[sub.turn].size_bytes),
            length: sub.length,
        }));
        length
    }
}

impl Rounds {
    /// `None` where nothing is accessed in order.
    fn of(mix: &Mix<'_>, draws: &mut SmallRng) -> Option<Self> {
        let mut all = Vec::new();
        for (source, Source { part: number, class }) in mix.sources.iter().enumerate() {
            let part = &mix.parts[*number];
            if class.order != Order::Sequential {
                continue;
            }
            let length = class.request_bytes.min(part.stretch_bytes()).max(1);
            let places = part.stretch_bytes() / length;
            let in_round = places.div_ceil(ROUNDS_OF_STRETCH).max(1);
            let count = part.counts.iter().find(|(of, _)| of == class).map_or(0, |(_, count)| *count);
            // Of a region that is gone through less than once some rounds, of one that is gone through often all of them so often.
            let passes = count as f64 * length as f64 / part.bytes as f64;
            let mut due = draws.random_range(0.0..1.0);
            for first in (0..places).step_by(in_round as usize) {
                due += passes;
                let at = |place: u64| part.stretch.start + place * length;
                let round = Round { source, next: at(first), end: at((first + in_round).min(places)) };
                all.extend(std::iter::repeat_n(round, due as usize));
                due = due.fract();
            }
        }
        all.shuffle(draws);
        (!all.is_empty()).then(|| Self { all, begun: AtomicUsize::new(0) })
    }

    fn begin(&self) -> Round {
        self.all[self.begun.fetch_add(1, Relaxed) % self.all.len()]
    }
}

impl Part<'_> {
    fn stretch_bytes(&self) -> u64 {
        self.stretch.end - self.stretch.start
    }

    /// Of the region that the stretch is.
    fn share(&self) -> f64 {
        self.stretch_bytes() as f64 / self.bytes.max(1) as f64
    }

    /// Of all requests to the region.
    fn request_bytes(&self) -> f64 {
        self.counts.iter().map(|(class, count)| class.request_bytes as f64 * *count as f64).sum()
    }

    /// Bytes of a stretch that has `share` of the region and enough places, by whole cycles.
    fn wanted_bytes(&self, share: f64) -> u64 {
        let largest = self.counts.iter().map(|(class, _)| class.request_bytes).max().unwrap_or(0);
        let wanted = ((self.bytes as f64 * share) as u64).max(MIN_PLACES * largest);
        wanted.next_multiple_of(self.layout.view().cycle_bytes()).min(self.bytes)
    }
}

/// Stretches that have `share` of all requests together, regions in turn.
fn stretched<'a>(parts: &[Part<'a>], share: f64, draws: &mut SmallRng) -> Vec<Part<'a>> {
    let (mut stretches, mut due) = (Vec::new(), draws.random_range(0.0..1.0));
    for part in parts.iter().filter(|part| !part.counts.is_empty() && part.bytes > 0) {
        let wanted = part.wanted_bytes(share);
        due += share * part.bytes as f64 / wanted as f64;
        while due >= 1.0 {
            due -= 1.0;
            let cycle = part.layout.view().cycle_bytes();
            let start = draws.random_range(0..=(part.bytes - wanted) / cycle) * cycle;
            stretches.push(Part { stretch: start..start + wanted, ..part.clone() });
        }
    }
    if stretches.is_empty() {
        // Less than one stretch: the one with the most to write.
        let most = parts.iter().max_by(|a, b| a.request_bytes().total_cmp(&b.request_bytes()));
        stretches.extend(most.map(|part| Part { stretch: 0..part.wanted_bytes(share), ..part.clone() }));
    }
    stretches
}

/// Bytes on each server under the stretches, by whole pages.
fn used_bytes(parts: &[Part<'_>], servers: usize) -> Vec<u64> {
    let mut used = vec![0; servers];
    for part in parts {
        for (stripe, bytes) in part.layout.stripes().iter().zip(held_bytes(part)) {
            used[usize::from(stripe.server.0)] += bytes;
        }
    }
    used
}

/// Of each stripe the bytes under the stretch, by whole pages and one page of distance.
fn held_bytes<'p>(part: &'p Part<'_>) -> impl Iterator<Item = u64> + 'p {
    let view = part.layout.view();
    let bytes = move |turn| view.object_bytes(turn, part.stretch_bytes()).next_multiple_of(SMALLEST_BYTES);
    (0..part.layout.stripes().len()).map(move |turn| bytes(turn) + SMALLEST_BYTES)
}

/// Every stretch with places of its own, one behind the other on each server.
fn settled(mut parts: Vec<Part<'_>>, servers: usize) -> Vec<Part<'_>> {
    let mut next = vec![0; servers];
    for part in &mut parts {
        let held: Vec<u64> = held_bytes(part).collect();
        for ((stripe, object), bytes) in part.layout.stripes().iter().zip(&mut part.objects).zip(held) {
            let at = &mut next[usize::from(stripe.server.0)];
            *object = *at / SMALLEST_BYTES;
            *at += bytes;
        }
    }
    parts
}

/// A number that stands for an object, spread over all numbers.
fn object(file: usize, region: RegionIndex, turn: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    (file, region.0, turn).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rand::SeedableRng;
    use std::collections::{HashMap, HashSet};
    use stripewise_layout::{ByteCount, ServerId};
    use stripewise_trace::{
        ClassIndex, Company, RegionAccess, Slices, Synchronizations, WindowAccess, WindowProcesses,
    };

    const REGION_BYTES: u64 = 1 << 20;

    /// Two regions of a file that ends within the second: random reads of 64 KiB, three times as many in the first, and
    /// as many reads in order in the second.
    pub(crate) fn file() -> FileAccess {
        let class = |order| AccessClass { kind: Direction::Read.into(), request_bytes: 64 << 10, order };
        let region = |number, counts: &[(u16, u64)]| RegionAccess {
            region: RegionIndex(number),
            counts: counts.iter().map(|(class, count)| (ClassIndex(*class), *count)).collect(),
            processes: 3,
            processes_per_node: 3,
            slices: Slices::ALL,
        };
        let regions = vec![region(0, &[(0, 300)]), region(1, &[(0, 100), (1, 400)])];
        let window = WindowAccess {
            start_s: 0.0,
            end_s: 1.0,
            company: Company::default(),
            processes: WindowProcesses::default(),
            synchronizations: Synchronizations::default(),
            regions,
        };
        FileAccess {
            path: "/data".into(),
            size_bytes: REGION_BYTES + (512 << 10),
            region_size: ByteCount(REGION_BYTES),
            classes: vec![class(Order::Random), class(Order::Sequential)],
            windows: vec![window],
        }
    }

    /// Region 0 whole on server 1, the others over both in stripes of 16 and 48 KiB.
    pub(crate) fn placement() -> Placement {
        let whole = Layout::new([(ServerId(1), 64 << 10)]).unwrap();
        let over_both = Layout::new([(ServerId(0), 16 << 10), (ServerId(1), 48 << 10)]).unwrap();
        Placement::from_regions(ByteCount(REGION_BYTES), [whole.clone()], over_both, whole)
    }

    #[test]
    fn requests_are_drawn_as_often_as_the_window_has_them() {
        let (file, placement) = (file(), placement());
        let mix = Mix::of(&[(&file, &placement)], 0, Direction::Read);
        let (mut draws, mut cursor, mut pieces) = (SmallRng::seed_from_u64(5), Cursor::default(), Vec::new());
        let (mut whole, mut objects) = (0, HashSet::new());
        for _ in 0..10_000 {
            assert_eq!(mix.draw(&mut draws, &mut cursor, &mut pieces), 64 << 10);
            assert_eq!(pieces.iter().map(|piece| piece.length).sum::<u64>(), 64 << 10);
            assert!(pieces.iter().all(|piece| piece.length <= mix.largest_piece_bytes()));
            objects.extend(pieces.iter().map(|piece| (piece.server, piece.object)));
            match pieces[..] {
                [only] => {
                    assert!(only.server == 1 && only.offset + only.length <= REGION_BYTES);
                    whole += 1;
                }
                [slow, fast] => {
                    assert_eq!((slow.length, fast.length), (16 << 10, 48 << 10));
                    assert!(slow.offset + slow.length <= 128 << 10 && fast.offset + fast.length <= 384 << 10);
                }
                _ => panic!("{pieces:?}"),
            }
        }
        assert!((3_500..4_000).contains(&whole), "three of eight requests are to region 0: {whole}");
        assert_eq!(objects.len(), 3);
    }

    #[test]
    fn a_process_goes_on_where_its_last_request_in_order_ended() {
        let (mut file, placement) = (file(), placement());
        file.windows[0].regions.remove(0);
        file.windows[0].regions[0].counts.remove(0);
        let mix = Mix::of(&[(&file, &placement)], 0, Direction::Read);
        let (mut draws, mut cursor, mut pieces) = (SmallRng::seed_from_u64(6), Cursor::default(), Vec::new());
        let mut starts: HashMap<u64, usize> = HashMap::new();
        let mut last: Option<u64> = None;
        for _ in 0..1_000 {
            mix.draw(&mut draws, &mut cursor, &mut pieces);
            let at = pieces[0].offset / (16 << 10);
            match last {
                // The file ends after eight requests of the region.
                Some(before) if before < 7 => assert_eq!(at, before + 1),
                _ => *starts.entry(at).or_default() += 1,
            }
            last = Some(at);
        }
        assert!(starts.len() > 4, "a new round begins anywhere: {starts:?}");
    }
}
