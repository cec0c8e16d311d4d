use super::*;
use crate::counts::{CountOptions, count};
use crate::program::{Program, Step};
use crate::trace::Trace;
use crate::workload::{Pattern, TraceShape, Workload, write_trace};
use proptest::prelude::*;
use stripewise_layout::Direction;

const REGION: ByteCount = ByteCount(1 << 20);

fn options() -> LiveOptions {
    LiveOptions { region_size: REGION, ..LiveOptions::default() }
}

fn read(offset: u64, bytes: u64, time_ms: u32) -> LiveRequest {
    LiveRequest { kind: RequestKind::Read, offset: FileOffset(offset), bytes, time_ms }
}

const NODE: LiveProcess = LiveProcess { node: 0, process: 1 };

/// (region, request size, order, count), and the processes of each region.
fn counts_of(file: &FileAccess) -> Vec<(u32, u64, Order, u64)> {
    let regions = file.windows[0].regions.iter();
    let cells = regions.flat_map(|region| {
        region.counts.iter().map(move |(class, count)| (region.region.0, file.class(*class), *count))
    });
    cells.map(|(region, class, count)| (region, class.request_bytes, class.order, count)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Seen request by request, a program is counted as from its trace, but for slices and company.
    #[test]
    fn what_is_seen_whole_is_counted_as_a_trace(
        pattern in prop_oneof![
            Just(Pattern::Zipf { exponent: 0.8, region_size: ByteCount(4 << 20) }), Just(Pattern::Sequential), Just(Pattern::Strided)
        ],
        ranks in 1..6u32,
        requests_per_rank in 1..200u64,
        size in prop_oneof![Just(4u64 << 10), Just(64 << 10), Just(7 << 18)],
        burst in 1..9usize, nodes in 1..4u32,
    ) {
        let nodes = nodes.min(ranks);
        let workload = Workload {
            pattern, file_size: ByteCount(1 << 27), request_size: ByteCount(size), direction: Direction::Write, ranks, requests_per_rank, seed: 3,
        };
        let generator = workload.generator().unwrap();
        let directory = tempfile::tempdir().unwrap();
        write_trace(&generator, &TraceShape { nodes, ..TraceShape::default() }, directory.path()).unwrap();
        let mut of_trace =
            count(&Trace::open(directory.path()).unwrap(), &CountOptions { region_size: REGION, ..CountOptions::default() }).unwrap();
        let mut file = LiveFile::new(options());
        for process in 0..ranks {
            let accesses = generator.steps(process).filter_map(|step| match step {
                Step::Access(request) => Some(request),
                _ => None,
            });
            let requests: Vec<LiveRequest> = accesses
                .map(|request| LiveRequest { kind: request.kind, offset: request.offset, bytes: request.bytes, time_ms: 0 })
                .collect();
            let process = LiveProcess { node: process * nodes / ranks, process };
            requests.chunks(burst).for_each(|part| file.add(process, 0, part, 0));
        }
        prop_assert_eq!(file.requests(), (u64::from(ranks) * requests_per_rank, u64::from(ranks) * requests_per_rank));
        let expected = of_trace.remove(0);
        let window = &expected.windows[0];
        let run = LiveProcess::count(&file.processes().collect());
        let found = file.finish(expected.path.clone(), expected.size_bytes, (window.start_s, window.end_s), run);
        // Pieces of odd sizes at the ends of regions are rounded.
        let is_exact = size != 7 << 18;
        if is_exact {
            prop_assert_eq!(counts_of(&found), counts_of(&expected));
        }
        prop_assert_eq!(found.windows[0].processes, expected.windows[0].processes);
        for (found, expected) in found.windows[0].regions.iter().zip(&expected.windows[0].regions) {
            let all = |counts: &[(ClassIndex, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
            prop_assert_eq!(
                (found.region, found.processes, found.processes_per_node, all(&found.counts)),
                (expected.region, expected.processes, expected.processes_per_node, all(&expected.counts))
            );
        }
        prop_assert!(file.finish(String::new(), 0, (0.0, 0.0), ProcessCount::default()).windows[0].regions.is_empty());
    }
}

/// What is known stands for what was missed, and the request behind a gap tells nothing of its order.
#[test]
fn missed_requests_are_made_up_for() {
    let mut file = LiveFile::new(options());
    file.add(NODE, 0, &[read(0, 65_536, 0)], 0);
    // In sequence as far as is known, in the second region.
    let known: Vec<LiveRequest> = (16..20).map(|number| read(number << 16, 65_536, 5)).collect();
    file.add(NODE, 0, &known, 7);
    assert_eq!(file.requests(), (12, 4));
    let counted = file.finish("/f".into(), 1 << 22, (0.0, 1.0), ProcessCount::default());
    assert_eq!(counts_of(&counted), [(0, 65_536, Order::Random, 1), (1, 65_536, Order::Sequential, 11)]);
    // It continues the last one, in the next window too.
    file.add(NODE, 0, &[read(20 << 16, 65_536, 9)], 0);
    // Alone behind a gap: it is all there is.
    file.add(LiveProcess { process: 2, ..NODE }, 0, &[read(0, 4096, 9)], 9);
    let counted = file.finish("/f".into(), 1 << 22, (1.0, 2.0), ProcessCount::default());
    assert_eq!(counts_of(&counted), [(0, 4096, Order::Random, 10), (1, 65_536, Order::Sequential, 1)]);
    // Another thread of the process has a sequence of its own.
    file.add(NODE, 1, &[read(21 << 16, 65_536, 9)], 0);
    assert_eq!(
        counts_of(&file.finish("/f".into(), 1 << 22, (2.0, 3.0), ProcessCount::default())),
        [(1, 65_536, Order::Random, 1)]
    );
}

#[test]
fn nonsense_is_passed_over() {
    let mut file = LiveFile::new(options());
    file.add(NODE, 0, &[read(u64::MAX >> 1, 4096, 0), read(0, 0, 0), read(0, u64::MAX, 0), read(u64::MAX, 9, 0)], 3);
    assert_eq!(file.requests(), (0, 0));
}

/// The classes of a window are those of any other with the same requests, and few.
#[test]
fn sizes_are_rounded_alike_in_every_window() {
    let mut file = LiveFile::new(LiveOptions { class_limit: 8, ..options() });
    let sizes = |from: u64| (0..400).map(move |number| from + number * 331);
    let mut windows = (0..3).map(|seed| {
        let requests: Vec<LiveRequest> = sizes(4096 + seed).map(|bytes| read(bytes << 3 & !4095, bytes, 0)).collect();
        file.add(NODE, 0, &requests, 0);
        file.finish("/f".into(), 1 << 22, (0.0, 1.0), ProcessCount::default()).classes
    });
    let (first, second, third) = (windows.next().unwrap(), windows.next().unwrap(), windows.next().unwrap());
    assert!(first.len() <= 16, "{first:?}");
    assert_eq!((&first, &second), (&second, &third));
}

#[test]
fn simultaneous_requests_are_those_that_are_recent() {
    let mut file = LiveFile::new(options());
    // Ranks march through the file together: always in one region, each behind the other.
    for step in 0..40u32 {
        for rank in 0..4u32 {
            file.add(
                LiveProcess { node: 0, process: rank },
                0,
                &[read(u64::from(step * 4 + rank) << 16, 65_536, step * 20)],
                0,
            );
        }
        file.sample(step * 20 + 1);
    }
    // Long after, nobody is busy.
    file.sample(1_000_000);
    let marching = file.finish("/f".into(), 1 << 24, (0.0, 1.0), ProcessCount::default()).windows[0].company;
    assert!(marching.same_region > 0.9 && marching.adjoining > 0.7, "{marching:?}");
    for step in 0..3000u32 {
        for rank in 0..4u32 {
            let region =
                (step.wrapping_mul(2_654_435_761) ^ rank.wrapping_mul(40_503).wrapping_mul(step | 1)) >> 7 & 15;
            file.add(LiveProcess { node: 0, process: rank }, 0, &[read(u64::from(region) << 20, 65_536, step * 20)], 0);
        }
        file.sample(step * 20 + 1);
    }
    let spread = file.finish("/f".into(), 1 << 24, (0.0, 1.0), ProcessCount::default()).windows[0].company;
    assert!(spread.same_region < 0.3 && spread.adjoining < 0.1, "{spread:?}");
}
