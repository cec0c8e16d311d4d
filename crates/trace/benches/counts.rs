//! Trace to region-by-window counts, in million records per second on two threads: from an open trace, and with opening (mapping the
//! files and scanning them for definitions). Prints medians over nine runs.

use std::time::Instant;
use stripewise_layout::{ByteCount, Direction};
use stripewise_trace::{CountOptions, Pattern, Trace, TraceShape, Workload, count, write_trace};

fn main() {
    rayon::ThreadPoolBuilder::new().num_threads(2).build_global().expect("the first pool");
    let zipf = Pattern::Zipf { exponent: 0.8, region_size: ByteCount(64 << 20) };
    measure("zipf, 32 ranks, 2048 regions", zipf, 32);
    measure("zipf, 1 rank, 2048 regions", zipf, 1);
    measure("sequential, 32 ranks", Pattern::Sequential, 32);
}

fn measure(name: &str, pattern: Pattern, ranks: u32) {
    let workload = Workload {
        pattern,
        file_size: ByteCount(128 << 30),
        request_size: ByteCount(512 << 10),
        direction: Direction::Write,
        ranks,
        requests_per_rank: 9_600_000 / u64::from(ranks),
        seed: 1,
    };
    let directory = tempfile::tempdir_in("/dev/shm").expect("room in memory");
    let shape = TraceShape { nodes: 4, ..TraceShape::default() };
    write_trace(&workload.generator().expect("a workload"), &shape, directory.path()).expect("a trace");
    let mut counting = Vec::new();
    let mut whole = Vec::new();
    for _ in 0..9 {
        let begin = Instant::now();
        let trace = Trace::open(directory.path()).expect("the trace");
        let opened = Instant::now();
        let files = count(&trace, &CountOptions::default()).expect("counts");
        let done = Instant::now();
        let requests: u64 = files[0]
            .windows
            .iter()
            .flat_map(|window| &window.regions)
            .flat_map(|region| &region.counts)
            .map(|(_, count)| count)
            .sum();
        assert_eq!(requests, u64::from(ranks) * workload.requests_per_rank);
        let rate = |time: std::time::Duration| trace.event_count() as f64 / time.as_secs_f64() / 1e6;
        counting.push(rate(done - opened));
        whole.push(rate(done - begin));
    }
    println!(
        "trace.counts {:7.1} Mrecords/s, opened and scanned too {:7.1} ({name})",
        median(&mut counting),
        median(&mut whole)
    );
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
