//! Trace to region-by-window counts on two threads, in million records per second: opening the files, scanning them for definitions and
//! counting, of one trace of 300 MB. Prints one JSON object, the median of the runs beside its floor: opening and mapping the same files
//! and adding up their words once, in turn with the counting. The time of the parts goes to standard error.
//!
//! Then the most memory that opening and counting a trace of 100 million records (3.2 GB) takes, in MiB. Its floor is the part of the
//! trace that is looked at in one go.
//!
//! `cargo bench -p stripewise-trace --bench counts`; with `-- --all`, other traces too, on standard error.

use rayon::prelude::*;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::{CountOptions, Pattern, Trace, TraceShape, Workload, count, write_trace};

const RECORDS: u64 = 9_600_000;
const REPETITIONS: usize = 15;
/// What a thread adds up at a time.
const PIECE_BYTES: usize = 8 << 20;

fn main() {
    let asked = |wish: &str| std::env::args().any(|argument| argument == wish);
    // `cargo test --all-targets` runs this too, without the flag that `cargo bench` gives: once, on little, shows that it works.
    let (records, repetitions) = if asked("--bench") { (RECORDS, REPETITIONS) } else { (32 * 1024, 1) };
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global().expect("the first pool");
    let zipf = Pattern::Zipf { exponent: 0.8, region_size: ByteCount(64 << 20) };
    let (value, floor) = measure("zipf, 32 ranks, 2048 regions", zipf, 32, records, repetitions);
    let ratio = value / floor;
    println!(
        r#"{{"name": "trace.counts", "value": {value:.2}, "unit": "Mrecords/s", "floor": {floor:.2}, "ratio": {ratio:.4}}}"#
    );
    let (mib, floor) = memory(if asked("--bench") { 100_000_000 } else { 32 * 1024 });
    let ratio = mib / floor;
    println!(
        r#"{{"name": "trace.memory", "value": {mib:.1}, "unit": "MiB", "floor": {floor:.1}, "ratio": {ratio:.4}}}"#
    );
    if asked("--all") {
        measure("zipf, 1 rank, 2048 regions", zipf, 1, records, repetitions);
        measure("sequential, 32 ranks", Pattern::Sequential, 32, records, repetitions);
    }
}

fn workload(pattern: Pattern, ranks: u32, records: u64) -> Workload {
    Workload {
        pattern,
        file_size: ByteCount(128 << 30),
        request_size: ByteCount(512 << 10),
        direction: Direction::Write,
        ranks,
        requests_per_rank: records / u64::from(ranks),
        seed: 1,
    }
}

fn write(workload: &Workload) -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::tempdir_in(base).expect("space in memory");
    let shape = TraceShape { nodes: 4, ..TraceShape::default() };
    write_trace(&workload.generator().expect("a workload"), &shape, directory.path()).expect("a trace");
    directory
}

/// MiB of the most that opening and counting so many records takes, and of the floor.
fn memory(records: u64) -> (f64, f64) {
    let zipf = Pattern::Zipf { exponent: 0.8, region_size: ByteCount(64 << 20) };
    let directory = write(&workload(zipf, 32, records));
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:").map(str::to_owned));
        line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
    };
    // Forgets the peak so far: that of writing the trace. Where that is not allowed, the figure is too large.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    let trace = Trace::open(directory.path()).expect("the trace");
    black_box(count(&trace, &CountOptions::default()).expect("counts"));
    (peak(), (records as f64 * 32.0 / f64::from(1 << 20)).min(256.0))
}

/// Million records per second of opening and counting, and of the floor.
fn measure(name: &str, pattern: Pattern, ranks: u32, records: u64, repetitions: usize) -> (f64, f64) {
    let workload = workload(pattern, ranks, records);
    let directory = write(&workload);
    let (mut opening, mut counting, mut whole, mut passing) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..repetitions {
        let begin = Instant::now();
        let trace = Trace::open(directory.path()).expect("the trace");
        let opened = Instant::now();
        let files = count(&trace, &CountOptions::default()).expect("counts");
        let counted = Instant::now();
        let regions = files.iter().flat_map(|file| &file.windows).flat_map(|window| &window.regions);
        let requests: u64 = regions.flat_map(|region| &region.counts).map(|(_, count)| count).sum();
        assert_eq!(requests, u64::from(ranks) * workload.requests_per_rank);
        let rate = |time: Duration| trace.event_count() as f64 / time.as_secs_f64() / 1e6;
        opening.push(rate(opened - begin));
        counting.push(rate(counted - opened));
        whole.push(rate(counted - begin));
        let begin = Instant::now();
        black_box(add_up(directory.path()));
        passing.push(rate(begin.elapsed()));
    }
    let (value, floor) = (median(&mut whole), median(&mut passing));
    eprintln!(
        "trace.counts {value:7.1} Mrecords/s (opening alone {:.1}, counting alone {:.1}, floor {floor:.1}): {name}",
        median(&mut opening),
        median(&mut counting),
    );
    (value, floor)
}

/// The sum of all words of the trace's files.
fn add_up(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("the trace").map(|entry| entry.expect("an entry").path());
    let files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|extension| extension == "swt")).collect();
    let maps: Vec<_> = files
        .iter()
        .map(|path| {
            let file = std::fs::File::open(path).expect("a process file");
            // SAFETY: nobody else knows the directory, so nobody changes or cuts the file.
            unsafe { memmap2::Mmap::map(&file) }.expect("a mapping")
        })
        .collect();
    let pieces = maps.par_iter().flat_map(|map| map.par_chunks(PIECE_BYTES));
    pieces
        .map(|piece| {
            let (words, _) = piece.as_chunks::<8>();
            words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
        })
        .reduce(|| 0, u64::wrapping_add)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
