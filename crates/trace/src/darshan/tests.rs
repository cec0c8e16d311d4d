mod partly;
mod shares;

use super::coarse::{Arrangement, CoarseOptions, Density, access};
use super::*;
use proptest::prelude::*;
use stripewise_darshan::Segment;
use stripewise_layout::{ByteCount, FileOffset, Order};

fn module(name: &str) -> Module {
    Module { name: name.to_owned(), version: 1, bytes: 1, is_partial: false, is_read: true }
}

fn end_of(module: &str, records: u64) -> Item {
    Item::ModuleEnd { module: module.to_owned(), records, fault: None }
}

fn begun(processes: i64, run_s: f64, modules: &[&str]) -> Reader {
    let mut reader = Reader::new(Path::new("/logs/a.darshan"));
    reader.take_item(Item::Job(Job { processes, run_s, command: "./app -x".to_owned(), ..Job::default() }));
    reader.take_item(Item::Modules(modules.iter().map(|name| module(name)).collect()));
    reader
}

fn segments(reader: &mut Reader, id: u64, rank: i64, writes: &[Segment], reads: &[Segment]) {
    let (host, writes_count, reads_count) = ("n0".to_owned(), writes.len() as u64, reads.len() as u64);
    reader.take_item(Item::Dxt { id, rank, host, writes: writes_count, reads: reads_count });
    reader.take(Found::Segments(&mut writes.iter().chain(reads).copied()));
}

/// Counters by name; those that are not given are 0.
fn record(reader: &mut Reader, id: u64, rank: i64, counters: &[(&str, i64)], real: &[(&str, f64)]) {
    record_of(reader, ("POSIX", "POSIX"), id, rank, counters, real);
}

/// The same of a module, by its name and the prefix of its counters.
fn record_of(
    reader: &mut Reader,
    (module, prefix): (&str, &str),
    id: u64,
    rank: i64,
    counters: &[(&str, i64)],
    real: &[(&str, f64)],
) {
    let names: Vec<String> = counters.iter().map(|(name, _)| format!("{prefix}_{name}")).collect();
    let real_names: Vec<String> = real.iter().map(|(name, _)| format!("{prefix}_F_{name}")).collect();
    reader.take_item(Item::Columns { module: module.to_owned(), counters: names, real: real_names });
    let counters: Vec<i64> = counters.iter().map(|(_, value)| *value).collect();
    let real: Vec<f64> = real.iter().map(|(_, value)| *value).collect();
    reader.take_item(Item::Record { id, rank, file: None, counters, real });
}

#[test]
fn requests_of_a_rank_stand_in_the_order_of_their_ends_also_beyond_what_memory_holds() {
    let mut reader = begun(2, 10.0, &["DXT_POSIX"]);
    let at = |number: u64| Segment {
        offset: number as i64 * 8,
        length: 8,
        start_s: number as f64 * 1e-3,
        end_s: number as f64 * 1e-3 + 5e-4,
    };
    let count = 6000;
    let (even, odd): (Vec<Segment>, Vec<Segment>) =
        ((0..count).step_by(2).map(at).collect(), (1..count).step_by(2).map(at).collect());
    assert!(count as usize * 32 > 2 * 65536, "more than is held in memory");
    segments(&mut reader, 7, 0, &odd, &even);
    // Longer than 32 bits of nanoseconds: two slots.
    segments(&mut reader, 8, 1, &[Segment { offset: -1, length: 3, start_s: 0.0, end_s: 9.5 }], &[]);
    reader.take_item(end_of("DXT_POSIX", 2));
    reader.take_item(Item::Names(vec![(7, "/d/seven".to_owned())]));
    let log = reader.finish().unwrap();
    let trace = log.trace.unwrap();
    assert_eq!(trace.files.iter().map(|file| &file.path[..]).collect::<Vec<_>>(), ["/d/seven", "darshan-8"]);
    assert_eq!(log.traced.len(), 2);
    let first: Vec<Event> = trace.events_of(crate::ProcessIndex(0)).collect();
    assert_eq!(first.len() as u64, count);
    for (number, event) in first.iter().enumerate() {
        assert_eq!(event.offset, FileOffset(number as u64 * 8));
        assert_eq!(event.request_kind().map(|kind| kind.direction()), Some(direction_of(number)));
    }
    let second: Vec<Event> = trace.events_of(crate::ProcessIndex(1)).collect();
    assert_eq!((second.len(), second[0].bytes, second[0].end.seconds()), (1, 3, 9.5));
    assert_eq!((trace.mpi_size(), trace.process(crate::ProcessIndex(1)).mpi_rank), (2, Some(1)));
    assert_eq!((log.modules[0].segments_written, log.modules[0].segments_read), (3001, 3000));
}

#[test]
fn requests_in_no_order_are_merged_by_their_ends_and_those_of_one_end_stay_in_theirs() {
    let mut reader = begun(1, 10.0, &["DXT_POSIX"]);
    // Some ends are equal; offsets are the order of the log.
    let end_ms = |number: i64| number * 7919 % 500;
    let at = |number: i64| {
        let end_s = end_ms(number) as f64 * 1e-3;
        Segment { offset: number * 8, length: 8, start_s: 0.0, end_s }
    };
    for (file, first) in [(7, 0), (8, 400), (9, 800)] {
        let all: Vec<Segment> = (first..first + 400).map(at).collect();
        segments(&mut reader, file, 0, &all[..250], &all[250..]);
    }
    reader.take_item(end_of("DXT_POSIX", 3));
    let trace = reader.finish().unwrap().trace.unwrap();
    let found: Vec<i64> = trace.events().map(|event| event.offset.0 as i64 / 8).collect();
    let mut expected: Vec<i64> = (0..1200).collect();
    expected.sort_by_key(|number| end_ms(*number));
    assert_eq!(found, expected);
}

use crate::Event;
use stripewise_layout::Direction;

fn direction_of(number: usize) -> Direction {
    if number.is_multiple_of(2) { Direction::Read } else { Direction::Write }
}

const MIB: i64 = 1 << 20;

/// A file of 1 GiB that `ranks` ranks wrote in `requests` requests.
fn written(rank: i64, ranks: i64, requests: i64, consecutive: i64, sequential: i64) -> DarshanLog {
    let mut reader = begun(ranks, 100.0, &["POSIX"]);
    let counters = [
        ("WRITES", requests),
        ("BYTES_WRITTEN", 1 << 30),
        ("MAX_BYTE_WRITTEN", (1 << 30) - 1),
        ("CONSEC_WRITES", consecutive),
        ("SEQ_WRITES", sequential),
        ("SIZE_WRITE_100K_1M", requests),
        ("ACCESS1_ACCESS", (1 << 30) / requests),
        ("ACCESS1_COUNT", requests),
    ];
    let real = [("WRITE_START_TIMESTAMP", 50.0), ("WRITE_END_TIMESTAMP", 99.0), ("WRITE_TIME", 40.0)];
    record(&mut reader, 1, rank, &counters, &real);
    reader.take_item(end_of("POSIX", 1));
    reader.take_item(Item::Names(vec![(1, "/d/f".to_owned())]));
    reader.finish().unwrap()
}

fn accesses(log: &DarshanLog, arrangement: Arrangement) -> (crate::FileAccess, bool) {
    let options =
        CoarseOptions { region_size: ByteCount(64 * MIB as u64), window_s: 1000.0, run_s: 100.0, class_limit: 32 };
    access(log, &log.files[0], arrangement.even(), &options).unwrap()
}

/// Requests and bytes of all regions.
fn sums(access: &crate::FileAccess) -> (u64, u64) {
    let counts = access.windows[0].regions.iter().flat_map(|region| &region.counts);
    counts.fold((0, 0), |(requests, bytes), (class, count)| {
        (requests + count, bytes + count * access.class(*class).request_bytes)
    })
}

#[test]
fn counters_become_as_many_requests_of_as_many_bytes_spread_over_the_file() {
    let log = written(-1, 4, 2048, 0, 2044);
    for arrangement in [Arrangement::Apart, Arrangement::Together] {
        let (access, depends) = accesses(&log, arrangement);
        assert!(depends, "steps in a shared file say nothing of who is where");
        assert_eq!(sums(&access), (2048, 1 << 30));
        assert_eq!((access.size_bytes, access.windows[0].regions.len()), (1 << 30, 16));
        assert!(access.windows[0].regions.iter().all(|region| region.counts.len() == 1 && region.counts[0].1 == 128));
    }
    let (apart, _) = accesses(&log, Arrangement::Apart);
    let (together, _) = accesses(&log, Arrangement::Together);
    assert!(apart.windows[0].regions.iter().all(|region| region.processes == 1));
    assert!(together.windows[0].regions.iter().all(|region| region.processes == 4));
    assert_eq!(together.windows[0].company.same_region, 1.0);
    // The second half of the run, as its times say: the first region of every rank, or of the file, at its begin.
    let begin = |access: &crate::FileAccess, region: usize| access.windows[0].regions[region].slices.0.trailing_zeros();
    assert_eq!((begin(&apart, 0), begin(&apart, 4), begin(&apart, 8)), (32, 32, 32));
    assert_eq!(begin(&together, 0), 32);
    assert!(begin(&together, 8) > 46);
}

#[test]
fn what_order_counters_decide_does_not_depend_on_the_arrangement() {
    // Every rank writes 256 MiB in one run.
    let log = written(-1, 4, 2048, 2044, 2044);
    let (access, depends) = accesses(&log, Arrangement::Together);
    assert!(!depends);
    let sequential = access.windows[0].regions.iter().flat_map(|region| &region.counts);
    let sequential: u64 =
        sequential.filter(|(class, _)| access.class(*class).order == Order::Sequential).map(|(_, count)| count).sum();
    assert_eq!(sequential, 2044);
    // Jumps to and fro.
    let log = written(-1, 4, 2048, 0, 100);
    assert!(!accesses(&log, Arrangement::Together).1);
    // One rank.
    let log = written(3, 4, 2048, 0, 2047);
    assert!(!accesses(&log, Arrangement::Together).1);
}

#[test]
fn files_beyond_the_limit_count_in_the_totals_only() {
    let mut reader = begun(1, 1.0, &["POSIX"]);
    for id in 0..5 * MAX_FILES as u64 {
        record(&mut reader, id, 0, &[("READS", 1), ("BYTES_READ", id as i64)], &[]);
    }
    reader.take_item(end_of("POSIX", 5 * MAX_FILES as u64));
    let log = reader.finish().unwrap();
    assert!((MAX_FILES..=2 * MAX_FILES).contains(&log.files.len()));
    assert_eq!(log.left_out + log.files.len() as u64, 5 * MAX_FILES as u64);
    assert_eq!(log.files[0].bytes(), 5 * MAX_FILES as u64 - 1, "those with most bytes are kept");
    assert_eq!(log.totals[&Interface::Posix].read.requests, 5 * MAX_FILES as u64);
}

#[test]
fn a_file_that_was_left_out_and_comes_again_counts_once_and_one_without_requests_not_at_all() {
    let mut reader = begun(2, 1.0, &["POSIX"]);
    let count = 5 * MAX_FILES as u64;
    for rank in 0..2 {
        for id in 0..count {
            record(&mut reader, id, rank, &[("READS", 1), ("BYTES_READ", id as i64)], &[]);
        }
    }
    for id in count..2 * count {
        record(&mut reader, id, 0, &[("OPENS", 1)], &[]);
    }
    let log = reader.finish().unwrap();
    let with_requests = log.files.iter().filter(|file| file.data_level().is_some()).count() as u64;
    assert_eq!(log.left_out + with_requests, count);
    assert_eq!(log.near_servers.read.requests, 2 * count);
}

#[test]
fn of_a_skewed_spread_two_thirds_lie_in_one_half() {
    let log = written(-1, 4, 2048, 0, 2044);
    let options = CoarseOptions { region_size: ByteCount(64 << 20), window_s: 1000.0, run_s: 100.0, class_limit: 32 };
    let requests = |density: Density| -> Vec<u64> {
        let assumed = super::coarse::Assumed { density, ..Arrangement::Apart.even() };
        let (access, _) = access(&log, &log.files[0], assumed, &options).unwrap();
        access.windows[0].regions.iter().map(|region| region.counts[0].1).collect()
    };
    let (front, back) = (requests(Density::Front), requests(Density::Back));
    assert_eq!((front.iter().sum::<u64>(), back.iter().sum::<u64>()), (2048, 2048));
    assert_eq!((front[..8].iter().sum::<u64>(), back[..8].iter().sum::<u64>()), (1365, 682));
    assert!(front.iter().rev().zip(&back).all(|(one, two)| one.abs_diff(*two) <= 1), "{front:?} {back:?}");
}

#[test]
fn damaged_counters_are_read_without_fault() {
    let mut reader = begun(i64::MAX, f64::NAN, &["POSIX"]);
    let most = [
        ("READS", i64::MAX),
        ("BYTES_READ", i64::MAX),
        ("MAX_BYTE_READ", i64::MAX),
        ("SIZE_READ_0_100", i64::MAX),
        ("SIZE_READ_1G_PLUS", i64::MAX),
        ("ACCESS1_ACCESS", -5),
        ("ACCESS1_COUNT", i64::MIN),
    ];
    for rank in [-1, 0, i64::MAX] {
        record(&mut reader, 1, rank, &most, &[("READ_START_TIMESTAMP", f64::NAN), ("READ_TIME", f64::INFINITY)]);
    }
    segments(
        &mut reader,
        1,
        i64::MIN,
        &[Segment { offset: i64::MAX, length: -3, start_s: f64::NAN, end_s: -1.0 }],
        &[],
    );
    reader.take_item(end_of("POSIX", 3));
    let log = reader.finish().unwrap();
    let options = CoarseOptions { region_size: ByteCount(4096), window_s: 1.0, run_s: f64::NAN, class_limit: 4 };
    assert_eq!(access(&log, &log.files[0], Arrangement::Apart.even(), &options), None, "too many regions to plan");
}

/// What damaged logs hold: small numbers, those about the limits of floats, and the largest.
fn counter() -> impl Strategy<Value = i64> {
    prop_oneof![0..5000i64, (1i64 << 52)..(1i64 << 54), Just(i64::MAX), any::<i64>()]
}

proptest! {
    #[test]
    fn any_counters_become_accesses_or_none(
        ranks in prop_oneof![1..64i64, any::<i64>()],
        counts in prop::collection::vec(counter(), 15),
        end in 0..(1i64 << 34),
        at in prop::collection::vec(any::<f64>(), 2),
    ) {
        let names = [
            "READS", "BYTES_READ", "CONSEC_READS", "SEQ_READS", "SIZE_READ_0_100", "SIZE_READ_1M_4M", "WRITES",
            "BYTES_WRITTEN", "CONSEC_WRITES", "SEQ_WRITES", "SIZE_WRITE_1M_4M", "ACCESS1_ACCESS", "ACCESS1_COUNT",
            "ACCESS2_ACCESS", "ACCESS2_COUNT",
        ];
        let counters: Vec<_> = names.into_iter().zip(counts).chain([("MAX_BYTE_READ", end)]).collect();
        let times = [("READ_START_TIMESTAMP", at[0]), ("READ_END_TIMESTAMP", at[1])];
        let mut reader = begun(ranks, 100.0, &["POSIX"]);
        for rank in [-1, 0] {
            record(&mut reader, 1, rank, &counters, &times);
        }
        reader.take_item(end_of("POSIX", 2));
        let log = reader.finish().unwrap();
        let options =
            CoarseOptions { region_size: ByteCount(64 << 20), window_s: 1000.0, run_s: 100.0, class_limit: 32 };
        for arrangement in [Arrangement::Apart, Arrangement::Together] {
            let made = log.files.first().and_then(|file| access(&log, file, arrangement.even(), &options));
            if let Some((made, _)) = made {
                prop_assert!(made.windows[0].regions.iter().all(|region| region.processes > 0));
            }
        }
    }
}
