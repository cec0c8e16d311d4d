use super::*;
use crate::slots::SlotBuffer;
use crate::workload::{Pattern, TraceShape, Workload, write_trace};
use stripewise_capture::call::Call;
use stripewise_capture::clock::{Clock, Ticks};
use stripewise_capture::format::{ClockPair, Header, NO_OFFSET, RawEvent};
use stripewise_layout::{ByteCount, FileOffset};

/// The requests of a process: call, offset, bytes.
type OnNode<'a> = (&'a str, Vec<(Call, u64, u64)>);

/// One request each second, half a second long, on one file.
fn trace_of(processes: &[OnNode<'_>]) -> Trace {
    let directory = tempfile::tempdir().unwrap();
    for (index, (node, requests)) in processes.iter().enumerate() {
        let mut slots = SlotBuffer::default();
        let file = slots.define_file(b"/data/f");
        slots.push_event(&RawEvent::new(Call::Open, file, NO_OFFSET, 0, Ticks(0), Ticks(0)));
        for (number, (call, offset, bytes)) in requests.iter().enumerate() {
            let start = number as u64 * 1_000_000_000;
            let times = (Ticks(start), Ticks(start + 500_000_000));
            slots.push_event(&RawEvent::new(*call, file, FileOffset(*offset), *bytes, times.0, times.1));
        }
        let failed = RawEvent::new(Call::Write, file, FileOffset(0), 0, Ticks(0), Ticks(1));
        slots.push_event(&RawEvent { errno: 28, ..failed });
        let header = Header {
            clock: Clock::Monotonic,
            pid: index as u32,
            parent_pid: 0,
            mpi_rank: None,
            mpi_size: 0,
            start_wall_ns: 1 << 60,
            start_monotonic_ns: 0,
            start_ticks: 0,
            ticks_per_second: 0,
            lost: 2,
            finished: true,
            used_bytes: 0,
            pairs: [ClockPair::default(); 2],
            node: node.as_bytes(),
            program: b"",
        };
        slots.write(&directory.path().join(format!("{index}.swt")), &header).unwrap();
    }
    Trace::open(directory.path()).unwrap()
}

#[test]
fn a_file_is_told_in_numbers() {
    let sequential = (0..10).map(|number| (Call::Pread, number * 100, 100)).collect();
    let strided = (0..10).map(|number| (Call::Pwrite, number * 5_000, 300)).collect();
    let random = [7u64, 1, 9, 2, 2, 8].map(|place| (Call::Pread, place * place * 1_000, 50)).to_vec();
    let single = vec![(Call::Pwrite, 90_000, 10_000)];
    let trace = trace_of(&[("a", sequential), ("a", strided), ("b", random), ("b", single), ("c", vec![])]);
    let options = CountOptions { window_s: 4.0, region_size: ByteCount(10_000), ..CountOptions::default() };
    let all = statistics(&trace, &options, 2).unwrap();
    assert_eq!((all.processes, all.nodes, all.lost, all.unfinished, all.files.len()), (5, 3, 10, 0, 1));
    let file = &all.files[0];
    assert_eq!((file.read_requests, file.write_requests, file.requests()), (16, 11, 27));
    assert_eq!((file.read_bytes, file.write_bytes), (1_300, 13_000));
    assert_eq!((file.failed_requests, file.opens, file.processes, file.nodes), (5, 5, 4, 2));
    let size = |direction, request_bytes, requests| SizeCount { direction, request_bytes, requests };
    assert_eq!(file.sizes, [size(Direction::Read, 100, 10), size(Direction::Write, 300, 10)]);
    assert_eq!((file.distinct_sizes, file.are_sizes_rounded), (4, false));
    assert_eq!(file.patterns(Direction::Read), [(AccessPattern::Sequential, 1), (AccessPattern::Random, 1)]);
    assert_eq!(
        file.patterns(Direction::Write),
        [(AccessPattern::Single, 1), (AccessPattern::Strided { stride_bytes: 5_000 }, 1)]
    );
    assert!((file.busy_s - 13.5).abs() < 1e-9 && (file.bandwidth_mb_s() - 0.0143 / 9.5).abs() < 1e-9);
    assert_eq!(file.hot.iter().map(|window| window.requests).collect::<Vec<_>>(), [13, 10, 4]);
    // Region 0: four sequential reads, two strided writes, and of the random reads the one at 1,000 and, in window 1, 4,000.
    assert_eq!(file.hot[0].hottest, [(RegionIndex(0), 8), (RegionIndex(1), 2)]);
    assert_eq!(file.hot[0].regions, 5);
}

/// Blocks written every 64 KiB, each read back at once or all of them afterwards: both directions go by the same stride, whatever lies
/// between them in time.
#[test]
fn a_program_that_writes_strided_and_reads_back_is_strided_in_both() {
    const STRIDE: u64 = 64 << 10;
    let block = |call, number: u64| (call, number * STRIDE, 4096);
    let at_once = (0..50).flat_map(|number| [block(Call::Pwrite, number), block(Call::Pread, number)]).collect();
    let writes = (0..50).map(|number| block(Call::Pwrite, number));
    let afterwards = writes.chain((0..50).map(|number| block(Call::Pread, number))).collect();
    // Backward, and a third of the blocks only.
    let otherwise = (0..51).map(|number| block(Call::Pwrite, number));
    let otherwise = otherwise.chain((0..17).map(|number| block(Call::Pread, 48 - 3 * number))).collect();
    let trace = trace_of(&[("a", at_once), ("a", afterwards), ("a", otherwise)]);
    let all = statistics(&trace, &CountOptions::default(), 3).unwrap();
    let strided = |stride_bytes| AccessPattern::Strided { stride_bytes };
    assert_eq!(all.files[0].patterns(Direction::Write), [(strided(STRIDE as i64), 3)]);
    assert_eq!(all.files[0].patterns(Direction::Read), [(strided(STRIDE as i64), 2), (strided(-3 * STRIDE as i64), 1)]);
    assert_eq!(all.files[0].processes, 3);
}

#[test]
fn sums_end_at_the_most_there_is() {
    let most = u64::MAX;
    let requests = [(Call::Pwrite, 0, most), (Call::Pread, 1, most), (Call::Pwrite, 2, most), (Call::Pread, 0, 7)];
    let trace = trace_of(&[("a", requests.to_vec()), ("b", requests.to_vec())]);
    let all = statistics(&trace, &CountOptions::default(), 3).unwrap();
    let file = &all.files[0];
    assert_eq!((file.requests(), file.read_bytes, file.write_bytes), (8, most, most));
    assert!(file.bandwidth_mb_s() > 1e12);
    assert_eq!(heat_map(&trace, FileIndex(0), 1, 1).read_bytes.len(), 1);
}

#[test]
fn alignment_is_ibridges_table_1() {
    let stripe = 64 << 10;
    let trace = trace_of(&[(
        "a",
        vec![
            (Call::Pread, 0, 2 * stripe),      // aligned
            (Call::Pread, 0, stripe + 1),      // its end is off
            (Call::Pwrite, 1, 2 * stripe - 1), // its begin is off
            (Call::Pwrite, 1000, 2 * stripe),  // both are
            (Call::Pread, 100, stripe),        // off, but not larger than a stripe
            (Call::Pread, 0, (20 << 10) - 1),  // small
            (Call::Pread, stripe, 20 << 10),   // just not small
            (Call::Pwrite, 5 * stripe, 1),     // small
        ],
    )]);
    let found = alignment(&trace, None, ByteCount(stripe), SMALL_REQUEST);
    assert_eq!(found, Alignment { requests: 8, unaligned: 3, random: 2 });
    assert_eq!((found.unaligned_per_cent(), found.random_per_cent(), found.total_per_cent()), (37.5, 25.0, 62.5));
    assert_eq!(alignment(&trace, Some(FileIndex(9)), ByteCount(stripe), SMALL_REQUEST), Alignment::default());
    assert_eq!(Alignment::default().total_per_cent(), 0.0);
    assert_eq!(alignment(&trace, None, ByteCount(0), ByteCount(0)).unaligned, 0);
}

#[test]
fn a_heat_map_holds_every_byte_where_and_when_it_moved() {
    let trace = trace_of(&[("a", vec![(Call::Pread, 0, 100), (Call::Pwrite, 50, 150), (Call::Pread, 299, 1)])]);
    let map = heat_map(&trace, FileIndex(0), 5, 3);
    assert_eq!((map.duration_s, map.size_bytes), (2.5, 300));
    let cells = |direction| {
        let rows = (0..3).map(|row| (0..5).map(|column| map.bytes(direction, row, column)).collect::<Vec<_>>());
        rows.collect::<Vec<_>>()
    };
    assert_eq!(cells(Direction::Read), [[100, 0, 0, 0, 0], [0; 5], [0, 0, 0, 0, 1]]);
    assert_eq!(cells(Direction::Write), [[0, 0, 50, 0, 0], [0, 0, 100, 0, 0], [0; 5]]);
    assert_eq!((map.read_requests.iter().sum::<u64>(), map.write_requests[2]), (2, 1));
    for (columns, rows) in [(1, 1), (7, 11), (300, 2), (0, 1000)] {
        let map = heat_map(&trace, FileIndex(0), columns, rows);
        assert_eq!((map.read_bytes.iter().sum::<u64>(), map.write_bytes.iter().sum::<u64>()), (101, 150));
    }
}

#[test]
fn a_generated_workload_is_recognised() {
    for (pattern, expected) in [
        (Pattern::Sequential, AccessPattern::Sequential),
        (Pattern::Strided, AccessPattern::Strided { stride_bytes: 4 << 16 }),
        (Pattern::Zipf { exponent: 0.8, region_size: ByteCount(1 << 20) }, AccessPattern::Random),
    ] {
        let workload = Workload {
            pattern,
            file_size: ByteCount(1 << 28),
            request_size: ByteCount(1 << 16),
            direction: Direction::Read,
            ranks: 4,
            requests_per_rank: 500,
            seed: 3,
        };
        let directory = tempfile::tempdir().unwrap();
        write_trace(&workload.generator().unwrap(), &TraceShape::default(), directory.path()).unwrap();
        let trace = Trace::open(directory.path()).unwrap();
        let all = statistics(&trace, &CountOptions::default(), 10).unwrap();
        assert_eq!(all.files[0].patterns(Direction::Read), [(expected, 4)]);
        assert_eq!(all.files[0].patterns(Direction::Write), []);
        assert_eq!(all.files[0].sizes.len(), 1);
    }
}
