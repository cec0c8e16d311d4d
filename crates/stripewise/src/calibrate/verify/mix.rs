//! The requests of one window of a plan, to be drawn as often as the trace has them.
//!
//! A random request lies at any multiple of its size in a region. A process that reads or writes in order goes on where its
//! last request of the class ended, until the region ends.

use rand::Rng;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::SmallRng;
use std::hash::{DefaultHasher, Hash, Hasher};
use stripewise_layout::{Direction, Layout, Order, Placement, RegionIndex, RegionOffset, RequestKind, WriteClass};
use stripewise_planner::region_bytes;
use stripewise_trace::{AccessClass, FileAccess};

/// Requests of one class in one region.
struct Source<'a> {
    file: usize,
    region: RegionIndex,
    class: AccessClass,
    layout: &'a Layout,
    /// Bytes of the file that lie in the region.
    bytes: u64,
}

/// A window's requests of one direction.
pub(super) struct Mix<'a> {
    sources: Vec<Source<'a>>,
    weights: WeightedIndex<u64>,
}

/// Where a process's last request in order ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Cursor(Option<(usize, u64)>);

/// A piece of a request: `length` bytes at `offset` of the object that is one server's part of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) kind: RequestKind,
    pub(super) server: usize,
    /// The same for all pieces of one object.
    pub(super) object: u64,
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
        let (mut sources, mut counts) = (Vec::new(), Vec::new());
        for (file, (access, placement)) in files.iter().enumerate() {
            for region in access.windows.get(window).into_iter().flat_map(|window| &window.regions) {
                let (layout, bytes) = (placement.layout_of(region.region), region_bytes(access, region.region));
                for (class, count) in &region.counts {
                    let class = access.class(*class);
                    if class.direction() == direction {
                        sources.push(Source { file, region: region.region, class, layout, bytes });
                        counts.push(*count);
                    }
                }
            }
        }
        let weights = WeightedIndex::new(counts).expect("the window has requests, and a count is at least 1");
        Self { sources, weights }
    }

    /// Whether any request is a buffered write.
    pub(super) fn is_written_back(&self) -> bool {
        self.sources.iter().any(|source| source.class.kind == RequestKind::Write(WriteClass::Buffered))
    }

    /// Largest piece of any request.
    pub(super) fn largest_piece_bytes(&self) -> u64 {
        let cycles = |source: &Source<'_>| source.layout.view().cycle_bytes();
        let largest = |source: &Source<'_>| {
            let turns = source.class.request_bytes.div_ceil(cycles(source)) + 1;
            let stripes = source.layout.stripes().iter();
            let stripe = stripes.map(|stripe| u64::from(stripe.size_bytes)).max().unwrap_or(0);
            stripe.saturating_mul(turns).min(source.class.request_bytes)
        };
        self.sources.iter().map(largest).max().unwrap_or(0)
    }

    /// Draws a request: its pieces go into `pieces`, which are emptied first. Returns its bytes.
    pub(super) fn draw(&self, draws: &mut SmallRng, cursor: &mut Cursor, pieces: &mut Vec<Piece>) -> u64 {
        let mut number = self.weights.sample(draws);
        let class = self.sources[number].class;
        let mut offset = None;
        if class.order == Order::Sequential {
            let last = cursor.0.filter(|(last, end)| {
                let source = &self.sources[*last];
                source.class == class && end + class.request_bytes <= source.bytes
            });
            if let Some((last, end)) = last {
                (number, offset) = (last, Some(end));
            }
        }
        let source = &self.sources[number];
        // A file may end within a request, as one that was cut short.
        let length = class.request_bytes.min(source.bytes.max(1));
        let offset = offset.unwrap_or_else(|| {
            let places = (source.bytes / length).max(1);
            draws.random_range(0..places) * length
        });
        if class.order == Order::Sequential {
            cursor.0 = Some((number, offset + length));
        }
        pieces.clear();
        pieces.extend(source.layout.view().split(RegionOffset(offset), length).map(|part| Piece {
            kind: class.kind,
            server: usize::from(part.server.0),
            object: object(source.file, source.region, part.turn),
            offset: part.offset.0,
            length: part.length,
        }));
        length
    }
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
    use stripewise_trace::{ClassIndex, Company, RegionAccess, Slices, WindowAccess, WindowProcesses};

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
