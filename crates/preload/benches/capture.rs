//! What capture adds to a 4 KiB `pread` or `pwrite` on tmpfs: `cargo bench -p stripewise-preload --bench capture [--
//! OPERATIONS]`.
//!
//! Bare and captured runs take turns; medians of each are compared, of the loop alone (*path*) and of the whole
//! process with start and exit (*process*). Then the trace is read: every operation must be there.

#[allow(unreachable_pub, reason = "each test uses a part")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Instant;
use stripewise_trace::trace::Trace;

const ROUNDS: usize = 5;
/// Writes that fill the file before the clock is read.
const FILLING: u64 = 16_384;

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// ns per operation: of the loop, and of the process.
fn run(mut command: Command, file: &Path, operations: u64) -> (f64, f64) {
    let start = Instant::now();
    let output = support::run(command.arg(file).arg(operations.to_string()));
    let process_ns = start.elapsed().as_nanos() as f64 / operations as f64;
    (String::from_utf8(output.stdout).unwrap().trim().parse().unwrap(), process_ns)
}

fn main() {
    let operations = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(10_000_000);
    let scratch = tempfile::tempdir_in("/dev/shm").unwrap();
    let program = support::compile("cc", "hammer", scratch.path());
    let (file, traces) = (scratch.path().join("file"), scratch.path().join("traces"));
    let (mut bare, mut captured) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..ROUNDS {
        let _ = std::fs::remove_dir_all(&traces);
        std::fs::create_dir(&traces).unwrap();
        let (path, process) = run(Command::new(&program), &file, operations);
        bare[0].push(path);
        bare[1].push(process);
        let mut command = support::preloaded(&program);
        command.env("STRIPEWISE_TRACE", &traces);
        let (path, process) = run(command, &file, operations);
        captured[0].push(path);
        captured[1].push(process);
    }
    for (name, index) in [("capture.path", 0), ("capture.process", 1)] {
        let (floor, value) = (median(&mut bare[index]), median(&mut captured[index]));
        println!("{name}: {value:.1} ns/op captured, {floor:.1} bare, {:.1} added", value - floor);
    }
    let trace = Trace::open(&traces).unwrap();
    let recorded = trace.events().filter(|event| event.call.operation().is_data()).count() as u64;
    let lost: u64 = trace.process_indices().map(|index| trace.process(index).lost).sum();
    println!("{recorded} of {} reads and writes recorded, {lost} lost", operations + FILLING);
    assert_eq!((recorded, lost), (operations + FILLING, 0));
}
